// The main loop on tensor cores (sm_80 and later): mma.sync of 16 pixels, 8 filters and 32 bytes of depth with
// f32 accumulators, and a pipeline of STAGES stages in shared memory. f32 is rounded to TF32.
//
// Filters lie in a stage as rows of TILE_K, and so do pixels if channels are neighbours in memory. Otherwise a row
// is a position along the depth and holds TILE_P pixels: neighbours in a plane are read and stored side by side, and
// ldmatrix transposes 16-bit elements on their way to registers. What is 4 bytes or more goes there by
// cp.async; single 16-bit elements through registers, loaded a whole step ahead of their use. Chunks of 16
// bytes are swizzled within a row, so that neither ldmatrix nor stores have bank conflicts.
//
// needs macros: DEVICE, DYNAMIC_SHARED, KERNEL
// needs constants: ACC_AT, CHUNK, CHUNKS, FILTERS, FILTER_TILES, OCCUPANCY, SLICE, SLICES, STAGES, STEPS, THREADS,
//   TILE_F, TILE_K, TILE_P, WARPS_F, WARPS_P, W_K, W_LINEAR, W_LOADS, W_VECTOR, X_RUN, X_VECTOR, Y_ALONG_K
// needs types: DepthEntry, Row, Shape, T, Vector, bf16, f16
// needs functions: begin_grid, cluster_sync, depth_end, depth_entry, filter_at, finish_tile, first_step, gather_filter,
//   is_aligned, missing, mma_sync, row_of, step_count, tile_at, tile_number, write_tile

constexpr int BYTES = (int)sizeof(T);
DEVICE unsigned bits(f16 v) { return v.bits; }
DEVICE unsigned bits(bf16 v) { return v.bits; }
DEVICE unsigned bits(float v) { return __float_as_uint(v); }
constexpr int ROW = TILE_K * BYTES;
static_assert(ROW == 64 || ROW == 128, "a row of a tile is 4 or 8 chunks");
// TF32 pixels are read from shared memory one by one: the padding puts four rows on different banks.
constexpr int PLANE_ROW = BYTES == 2 ? TILE_P * 2 : (TILE_P + 8) * 4;
constexpr int X_BYTES = X_VECTOR ? TILE_P * ROW : TILE_K * PLANE_ROW;
constexpr int STAGE = X_BYTES + TILE_F * ROW;
constexpr int WARP_P = TILE_P / WARPS_P, WARP_F = TILE_F / WARPS_F;
static_assert(WARP_P % 16 == 0 && WARP_F % 16 == 0 && THREADS == WARPS_P * WARPS_F * SLICES * 32, "whole fragments");
// Fragments along the depth of a step that a slice of warps has.
constexpr int SLICE_K = ROW / 32 / SLICES;
static_assert(SLICE_K * SLICES * 32 == ROW, "slices have the same share of a row");

// Loads of the image: THREADS / X_ACROSS rows of a stage at once.
constexpr bool SINGLE = !X_VECTOR && X_RUN * BYTES == 2;
constexpr int RUN = SINGLE ? 2 : X_RUN;
constexpr int X_ACROSS = X_VECTOR ? CHUNKS : TILE_P / RUN;
constexpr int X_DOWN = THREADS / X_ACROSS;
constexpr int X_PARTS = (X_VECTOR ? TILE_P : TILE_K) / X_DOWN;
// Positions along the depth at which a step loads: the entries of its table.
constexpr int TABLE = X_VECTOR ? CHUNKS : TILE_K;
static_assert(X_DOWN > 0 && X_PARTS > 0 && THREADS >= TABLE, "threads suit the image's part of a stage");
// Loads of the filters: threads side by side read along the depth.
constexpr int W_DOWN = THREADS / CHUNKS;

DEVICE unsigned swizzle(int row, int chunk) {
  return ROW == 64 ? row * 64 + ((chunk ^ (row >> 1 & 3)) << 4) : row * 128 + ((chunk ^ (row & 7)) << 4);
}
DEVICE unsigned swizzle_plane(int depth, int pixel) {
  return depth * PLANE_ROW + (BYTES == 2 ? (pixel >> 3 ^ (depth & 7)) << 4 | (pixel & 7) << 1 : pixel * 4);
}

// Copies to shared memory, or fills with zeros if something is missing.
template <int SIZE> DEVICE void copy_async(unsigned to, const T* from, unsigned missing) {
  const int size = missing ? 0 : SIZE;
  if (SIZE == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(SIZE), "r"(size) : "memory");
}
DEVICE void put_word(unsigned to, unsigned word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}
// The same as copy_async, from a pointer that is only aligned to an element.
template <int SIZE> DEVICE void copy_elements(unsigned to, const T* from, unsigned missing) {
#pragma unroll
  for (int i = 0; i < SIZE; i += 4) {
    unsigned word = 0;
    if (!missing) {
      const T* const part = from + i / BYTES;
      word = BYTES == 4 ? *(const unsigned*)part : bits(part[0]) | bits(part[BYTES == 2]) << 16;
    }
    put_word(to + i, word);
  }
}
// A 16-bit element, and two of them side by side.
DEVICE unsigned short load_single(const T* from, unsigned missing) {
  unsigned short v;
  asm volatile(
      "{\n .reg .pred there;\n setp.eq.u32 there, %2, 0;\n mov.b16 %0, 0;\n"
      " @there ld.global.b16 %0, [%1];\n}"
      : "=h"(v)
      : "l"(from), "r"(missing));
  return v;
}
DEVICE void put_singles(unsigned to, unsigned short low, unsigned short high) {
  asm volatile("{\n .reg .b32 word;\n mov.b32 word, {%1, %2};\n st.shared.b32 [%0], word;\n}" ::"r"(to), "h"(low),
               "h"(high)
               : "memory");
}

template <bool TRANSPOSE> DEVICE void load_matrices(unsigned from, unsigned* v) {
  if (TRANSPOSE)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(from)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(from)
                 : "memory");
}
DEVICE unsigned load_word(unsigned from) {
  unsigned v;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}
DEVICE void round_to_tf32(unsigned* v, int count) {
  if (BYTES == 4)
#pragma unroll
    for (int i = 0; i < count; i++) asm("cvt.rna.tf32.f32 %0, %0;" : "+r"(v[i]));
}

KERNEL(THREADS, OCCUPANCY) {
  begin_grid();
  DYNAMIC_SHARED(char, shared);
  const unsigned base = (unsigned)__cvta_generic_to_shared(shared);
  DepthEntry* const table = (DepthEntry*)(shared + STAGES * STAGE);
  const Shape& shape = args.shape;
  const int first_filter = tile_number() % FILTER_TILES * TILE_F, first_pixel = tile_number() / FILTER_TILES * TILE_P;
  const int group = blockIdx.z, begin = first_step<STEPS>(), steps = step_count<STEPS>(), end = depth_end();
  float* const tile = (float*)(shared + ACC_AT);
  if (finish_tile(args, tile, first_pixel, first_filter, group)) return;
  const T* const image = (const T*)args.x;
  const T* const weights = (const T*)args.op[0].p[0];
  const bool x_aligned = is_aligned(image, SINGLE ? 2 : X_VECTOR ? 16 : RUN * BYTES);
  const bool w_aligned = is_aligned(weights, 16);

  // What the thread loads of the image: chunks `across` of X_PARTS pixels; or pixels `across * RUN` and on, of
  // X_PARTS neighbouring positions along the depth.
  const int across = threadIdx.x % X_ACROSS, down = threadIdx.x / X_ACROSS;
  constexpr int ROWS = X_VECTOR ? X_PARTS : SINGLE ? 2 : 1;
  Row rows[ROWS];
  const T* firsts[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    rows[i] = row_of(shape, first_pixel + (X_VECTOR ? down + i * X_DOWN : across * RUN + i), group);
    firsts[i] = image + rows[i].pixel.offset;
    // One addition away from each element, whatever the compiler thinks of it.
    if (!X_VECTOR) asm volatile("" : "+l"(firsts[i]));
  }
  // Rows come in powers of two, so that a swizzled offset is the sum of the thread's part and a constant.
  const unsigned x_at = X_VECTOR ? swizzle(down, across) : swizzle_plane(down * X_PARTS, across * RUN);
  const auto x_address = [&](int i, unsigned stage) {
    if (X_VECTOR) return stage + x_at + i * X_DOWN * ROW;
    return ((stage + x_at) ^ (BYTES == 2 ? (i & 7) << 4 : 0)) + i * PLANE_ROW;
  };
  const int w_chunk = threadIdx.x % CHUNKS, w_row = threadIdx.x / CHUNKS;
  const int w_first = (group * FILTERS + first_filter + w_row) * W_K + w_chunk * CHUNK;
  const unsigned w_at = X_BYTES + swizzle(w_row, w_chunk);
  const auto w_address = [&](int i, unsigned stage) { return stage + w_at + i * W_DOWN * ROW; };

  // Writes the table of a step for the whole block, a step before its loads start.
  const auto plan = [&](int step) {
    if (threadIdx.x < TABLE)
      table[step % STAGES * TABLE + threadIdx.x] =
          depth_entry(shape, (begin + step) * TILE_K + threadIdx.x * (X_VECTOR ? CHUNK : 1), end);
  };

  // These start the loads of a step, also of those beyond the last, which load nothing. Singles go to shared memory by
  // `store_singles`.
  unsigned short singles[SINGLE ? X_PARTS : 1][2];
  const auto fetch_image = [&](int step, unsigned stage) {
    const DepthEntry* const here = table + step % STAGES * TABLE + (X_VECTOR ? across : down * X_PARTS);
    constexpr int SIZE = X_VECTOR ? 16 : RUN * BYTES;
    if constexpr (SINGLE) {
#pragma unroll
      for (int i = 0; i < X_PARTS; i++)
#pragma unroll
        for (int j = 0; j < 2; j++)
          singles[i][j] = load_single(firsts[j] + here[i].offset, missing(shape, rows[j], here[i]));
    } else if (x_aligned) {
#pragma unroll
      for (int i = 0; i < X_PARTS; i++) {
        const DepthEntry at = here[X_VECTOR ? 0 : i];
        const Row& row = rows[X_VECTOR ? i : 0];
        const T* const from = X_VECTOR ? image + (row.pixel.offset + at.offset) : firsts[0] + at.offset;
        copy_async<SIZE>(x_address(i, stage), from, missing(shape, row, at));
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < X_PARTS; i++) {
        const DepthEntry at = here[X_VECTOR ? 0 : i];
        const Row row = row_of(shape, first_pixel + (X_VECTOR ? down + i * X_DOWN : across * RUN), group);
        copy_elements<SIZE>(x_address(i, stage), image + (row.pixel.offset + at.offset), missing(shape, row, at));
      }
    }
  };
  const auto store_singles = [&](unsigned stage) {
    if constexpr (SINGLE) {
#pragma unroll
      for (int i = 0; i < X_PARTS; i++) put_singles(x_address(i, stage), singles[i][0], singles[i][1]);
    }
  };
  const auto fetch_filters = [&](int step, unsigned stage) {
    const int depth = (begin + step) * TILE_K + w_chunk * CHUNK;
    if (W_VECTOR && w_aligned) {
#pragma unroll
      for (int i = 0; i < W_LOADS; i++) {
        const int filter = first_filter + w_row + i * W_DOWN;
        const bool there = depth < end && (FILTERS % TILE_F == 0 || filter < FILTERS);
        const T* const from = W_LINEAR ? weights + (w_first + (begin + step) * TILE_K) + i * W_DOWN * W_K
                                       : weights + (there ? filter_at(filter, group, depth) : 0);
        copy_async<16>(w_address(i, stage), from, !there);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < W_LOADS; i++) {
        T chunk[CHUNK];
        gather_filter(args, first_filter + w_row + i * W_DOWN, group, depth, chunk);
        copy_elements<16>(w_address(i, stage), chunk, 0);
      }
    }
  };
  const auto commit = [] { asm volatile("cp.async.commit_group;" ::: "memory"); };

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % (WARPS_P * WARPS_F);
  const int slice = SLICES == 1 ? 0 : threadIdx.x / 32 / (WARPS_P * WARPS_F);
  const int warp_p = warp % WARPS_P * WARP_P, warp_f = warp / WARPS_P * WARP_F;
  float acc[WARP_P / 16][WARP_F / 8][4] = {};
  // The offset in a stage of what a lane reads of its first fragment: 16 pixels or filters, and 32 bytes of depth.
  const unsigned a_at = X_VECTOR     ? swizzle(warp_p + lane % 16, lane / 16)
                        : BYTES == 2 ? swizzle_plane(lane / 16 * 8 + lane % 8, warp_p + lane / 8 % 2 * 8)
                                     : swizzle_plane(lane % 4, warp_p + lane / 4);
  const unsigned b_at = X_BYTES + swizzle(warp_f + lane % 8 + lane / 16 * 8, lane / 8 % 2);
  const auto load_pixels = [&](unsigned stage, int i, int k, unsigned* a) {
    if (X_VECTOR) {
      load_matrices<false>(((stage + a_at) ^ k << 5) + i * 16 * ROW, a);
    } else if (BYTES == 2) {
      load_matrices<true>(((stage + a_at) ^ i << 5) + k * 16 * PLANE_ROW, a);
    } else {
#pragma unroll
      for (int e = 0; e < 4; e++) a[e] = load_word(stage + a_at + swizzle_plane(k * 8 + e / 2 * 4, i * 16 + e % 2 * 8));
    }
    round_to_tf32(a, 4);
  };
  const auto load_filters = [&](unsigned stage, int j, int k, unsigned* b) {
    load_matrices<false>(((stage + b_at) ^ k << 5) + j * 16 * ROW, b);
    round_to_tf32(b, 4);
  };

  // Singles are loaded one step ahead, all else STAGES - 1.
  constexpr int AHEAD = SINGLE ? 1 : STAGES - 1;
#pragma unroll
  for (int step = 0; step <= AHEAD; step++) plan(step);
  __syncthreads();
#pragma unroll
  for (int step = 0; step < STAGES - 1; step++) {
    if (step < AHEAD) fetch_image(step, base + step * STAGE);
    fetch_filters(step, base + step * STAGE);
    commit();
  }
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    const auto stage_of = [&](int step) { return base + step % STAGES * STAGE; };
    const unsigned stage = stage_of(step);
    store_singles(stage);
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();
    fetch_image(step + AHEAD, stage_of(step + AHEAD));
    fetch_filters(step + STAGES - 1, stage_of(step + STAGES - 1));
    commit();
    plan(step + AHEAD + 1);
#pragma unroll
    for (int part = 0; part < SLICE_K; part++) {
      const int k = slice * SLICE_K + part;
      unsigned a[WARP_P / 16][4], b[WARP_F / 16][4];
#pragma unroll
      for (int i = 0; i < WARP_P / 16; i++) load_pixels(stage, i, k, a[i]);
#pragma unroll
      for (int j = 0; j < WARP_F / 16; j++) load_filters(stage, j, k, b[j]);
#pragma unroll
      for (int i = 0; i < WARP_P / 16; i++)
#pragma unroll
        for (int j = 0; j < WARP_F / 8; j++) mma_sync(acc[i][j], a[i], b[j / 2] + j % 2 * 2, T());
    }
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();

  float* own = tile + slice * SLICE;
#pragma unroll
  for (int i = 0; i < WARP_P / 16; i++)
#pragma unroll
    for (int j = 0; j < WARP_F / 8; j++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int p = warp_p + i * 16 + lane / 4 + half * 8, f = warp_f + j * 8 + lane % 4 * 2;
        const float* two = acc[i][j] + half * 2;
        if (Y_ALONG_K) *(Vector<float, 2>*)(own + tile_at(p, f)) = {two[0], two[1]};
        else own[tile_at(p, f)] = two[0], own[tile_at(p, f + 1)] = two[1];
      }
  cluster_sync();
  write_tile(args, tile, first_pixel, first_filter, group);
}

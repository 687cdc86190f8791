// The main loop on tensor cores (sm_80 and later): mma.sync m16n8k16 with f32 sums, STAGES buffers in shared
// memory. Chunks go there by cp.async; elements through registers, loaded a whole step ahead of their use.
// Rows of a tile are 64 bytes, four chunks; chunks are permuted so that ldmatrix and stores meet no bank twice.

static_assert(sizeof(T) == 2 && TILE_K == 32, "a row of a tile is 64 bytes");
constexpr int WARP_P = TILE_P / WARPS_P, WARP_F = TILE_F / WARPS_F;
constexpr int STAGE = (TILE_P + TILE_F) * 64;

DEVICE unsigned slot(int row, int chunk) { return row * 64 + ((chunk ^ (row >> 1 & 3)) << 4); }

DEVICE void copy_async(unsigned to, const T* from, int at) {
  const T* source = at >= 0 ? from + at : from;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(source), "r"(at >= 0 ? 16 : 0) : "memory");
}
DEVICE void put_chunk(unsigned to, const T* chunk) {
  unsigned v[4];
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] = chunk[2 * i].bits | (unsigned)chunk[2 * i + 1].bits << 16;
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}
DEVICE void load_matrices(unsigned from, unsigned* v) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(from) : "memory");
}
#define MMA(type) \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 " \
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
DEVICE void multiply(float* c, const unsigned* a, const unsigned* b, f16) { MMA("f16"); }
DEVICE void multiply(float* c, const unsigned* a, const unsigned* b, bf16) { MMA("bf16"); }

KERNEL(THREADS) {
  DYNAMIC_SHARED(char, shared);
  const unsigned base = (unsigned)__cvta_generic_to_shared(shared);
  const int first_filter = blockIdx.x % FILTER_TILES * TILE_F, first_pixel = blockIdx.x / FILTER_TILES * TILE_P;
  const int group = blockIdx.z;
  const bool x_aligned = is_aligned(args.x, 16), w_aligned = is_aligned(args.op[0].p[0], 16);
  const T* weights = (const T*)args.op[0].p[0];

  Pixel pixels[X_LOADS];
#pragma unroll
  for (int i = 0; i < X_LOADS; i++)
    pixels[i] = pixel_of(args.shape, first_pixel + load_row<X_VECTOR, TILE_P>(i), group);

  T x[X_LOADS][CHUNK], w[W_LOADS][CHUNK];
  const auto x_slot = [&](int i, unsigned stage) {
    return stage + slot(load_row<X_VECTOR, TILE_P>(i), load_chunk<X_VECTOR, TILE_P>(i));
  };
  const auto w_slot = [&](int i, unsigned stage) {
    return stage + TILE_P * 64 + slot(load_row<W_VECTOR, TILE_F>(i), load_chunk<W_VECTOR, TILE_F>(i));
  };
  // Starts the loads of a step; what goes through registers is put in its place by `land`.
  const auto fetch = [&](int step, unsigned stage) {
#pragma unroll
    for (int i = 0; i < X_LOADS; i++) {
      const int depth = step * TILE_K + load_chunk<X_VECTOR, TILE_P>(i) * CHUNK;
      if (!X_VECTOR) {
        gather_image(args, pixels[i], depth, x[i]);
      } else if (x_aligned) {
        copy_async(x_slot(i, stage), (const T*)args.x, image_at(args.shape, pixels[i], depth));
      } else {
        T chunk[CHUNK];
        gather_image(args, pixels[i], depth, chunk);
        put_chunk(x_slot(i, stage), chunk);
      }
    }
#pragma unroll
    for (int i = 0; i < W_LOADS; i++) {
      const int depth = step * TILE_K + load_chunk<W_VECTOR, TILE_F>(i) * CHUNK;
      const int filter = first_filter + load_row<W_VECTOR, TILE_F>(i);
      if (!W_VECTOR) {
        gather_filter(args, filter, group, depth, w[i]);
      } else if (w_aligned) {
        copy_async(w_slot(i, stage), weights, filter_at(filter, group, depth));
      } else {
        T chunk[CHUNK];
        gather_filter(args, filter, group, depth, chunk);
        put_chunk(w_slot(i, stage), chunk);
      }
    }
  };
  const auto land = [&](unsigned stage) {
    if (!X_VECTOR)
#pragma unroll
      for (int i = 0; i < X_LOADS; i++) put_chunk(x_slot(i, stage), x[i]);
    if (!W_VECTOR)
#pragma unroll
      for (int i = 0; i < W_LOADS; i++) put_chunk(w_slot(i, stage), w[i]);
  };
  const auto commit = [] { asm volatile("cp.async.commit_group;" ::: "memory"); };

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_p = warp % WARPS_P * WARP_P, warp_f = warp / WARPS_P * WARP_F;
  float sums[WARP_P / 16][WARP_F / 8][4] = {};

#pragma unroll
  for (int step = 0; step < STAGES - 1; step++) {
    if (step < STEPS) {
      fetch(step, base + step * STAGE);
      land(base + step * STAGE);
    }
    commit();
  }
#pragma unroll 1
  for (int step = 0; step < STEPS; step++) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();
    const int ahead = step + STAGES - 1;
    const unsigned stage = base + step % STAGES * STAGE, next = base + ahead % STAGES * STAGE;
    if (ahead < STEPS) fetch(ahead, next);
#pragma unroll
    for (int k = 0; k < TILE_K / 16; k++) {
      unsigned a[WARP_P / 16][4], b[WARP_F / 16][4];
#pragma unroll
      for (int i = 0; i < WARP_P / 16; i++)
        load_matrices(stage + slot(warp_p + i * 16 + lane % 16, k * 2 + lane / 16), a[i]);
#pragma unroll
      for (int j = 0; j < WARP_F / 16; j++)
        load_matrices(stage + TILE_P * 64 + slot(warp_f + j * 16 + lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2), b[j]);
#pragma unroll
      for (int i = 0; i < WARP_P / 16; i++)
#pragma unroll
        for (int j = 0; j < WARP_F / 8; j++) multiply(sums[i][j], a[i], b[j / 2] + j % 2 * 2, T());
    }
    if (ahead < STEPS) land(next);
    commit();
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();

  float* tile = (float*)shared;
#pragma unroll
  for (int i = 0; i < WARP_P / 16; i++)
#pragma unroll
    for (int j = 0; j < WARP_F / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        tile[tile_at(warp_p + i * 16 + lane / 4 + e / 2 * 8, warp_f + j * 8 + lane % 4 * 2 + e % 2)] = sums[i][j][e];
  __syncthreads();
  write_tile(args, tile, first_pixel, first_filter, group);
}

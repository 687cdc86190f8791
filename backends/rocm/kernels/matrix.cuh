// The main loop on matrix cores; the text before it has their instructions: Accumulators, Fragment, mma. Rows of a
// tile are 64 bytes in shared memory, four chunks, swizzled so that eight neighbours of a wave that read or write 16
// bytes each have no bank conflicts. The next step's operands are on their way to registers while this one's
// are multiplied. Loads do not branch on what lies outside: of chunks it is read from the tensor's start, across pixels from
// wherever it would be, and dropped on the way to shared memory.
//
// needs macros: DEVICE, DYNAMIC_SHARED, KERNEL, WAVE
// needs constants: ACCUMULATORS, ACC_AT, AHEAD, BLOCK, CHANNELS, CHANNEL_INNER, CHUNK, CHUNKS, DEPTH, DILATION_D,
//   DILATION_H, DILATION_W, FILTER_TILES, OCCUPANCY, OUTSIDE_D, OUTSIDE_H, OUTSIDE_W, PAD_D, PAD_H, PAD_W, PART_P, SPLIT,
//   STEPS, STRIDE_D, STRIDE_H, STRIDE_W, TAPS, TAPS_D, TAPS_H, TAPS_W, THREADS, TILE_F, TILE_K, TILE_P, WAVES_F, WAVES_P,
//   W_LOADS, W_VECTOR, XCDS, X_RUN, X_VECTOR, Y_ALONG_K
// needs sizes: in_d, in_h, in_w, out_h, out_plane, out_w, pixels, x_c, x_d, x_h, x_n, x_w
// needs types: Accumulators, DepthEntry, Fragment, Pixel, Row, Shape, T, Vector, Words
// needs functions: acc_row, begin_grid, depth_entry, filter_at, finish_tile, first_step, fragment, load_chunk, load_row,
//   missing, mma, pixel_of, row_of, step_count, tile_at, tile_number, write_tile, zero

static_assert(TILE_K * sizeof(T) == 64, "a row of a tile is 64 bytes");
constexpr int WAVE_P = TILE_P / WAVES_P, WAVE_F = TILE_F / WAVES_F;
constexpr int BLOCKS_P = WAVE_P / BLOCK, BLOCKS_F = WAVE_F / BLOCK;
static_assert(WAVE_P % PART_P == 0 && PART_P % BLOCK == 0, "a part is of one row of waves");

// A load of the image: a chunk, or for each element of a chunk X_RUN neighbouring pixels. Chunks: neighbouring
// threads read along the depth. Pixels: neighbours read neighbours.
constexpr int X_ACROSS = X_VECTOR ? CHUNKS : TILE_P / X_RUN;
constexpr int X_DOWN = THREADS / X_ACROSS;
constexpr int X_COUNT = TILE_P / X_RUN * CHUNKS / THREADS;
DEVICE int x_row(int i) {
  return X_VECTOR ? (int)threadIdx.x / X_ACROSS + i * X_DOWN : (int)threadIdx.x % X_ACROSS * X_RUN;
}
DEVICE int x_chunk(int i) { return X_VECTOR ? (int)threadIdx.x % X_ACROSS : (int)threadIdx.x / X_ACROSS + i * X_DOWN; }

// Loads of chunks in flight, each at once or element by element. A bit of `inside` for each.
template <bool VECTOR, int COUNT> struct Staged {
  Words chunk[VECTOR ? COUNT : 1];
  T element[VECTOR ? 1 : COUNT][CHUNK];
  unsigned inside;
  static_assert((VECTOR ? COUNT : COUNT * CHUNK) <= 32, "a bit for each load");

  // Takes the chunk at `offset`. AMD's loads of 16 bytes need no more alignment than an element's.
  DEVICE void load(int i, const T* from, int offset, bool is_inside) {
    __builtin_memcpy(&chunk[i], from + (unsigned)(is_inside ? offset : 0), sizeof(Words));
    inside |= (unsigned)is_inside << i;
  }
  // Takes element `e` of a chunk.
  DEVICE void load(int i, int e, const T* from, int offset, bool is_inside) {
    element[i][e] = from[(unsigned)(is_inside ? offset : 0)];
    inside |= (unsigned)is_inside << (i * CHUNK + e);
  }
  // A chunk when it has come.
  DEVICE Words arrived(int i) const {
    if constexpr (VECTOR) {
      return inside >> i & 1 ? chunk[i] : (Words)0u;
    } else {
      Vector<T, CHUNK> v;
#pragma unroll
      for (int e = 0; e < CHUNK; e++) v.at[e] = inside >> (i * CHUNK + e) & 1 ? element[i][e] : zero();
      return __builtin_bit_cast(Words, v);
    }
  }
};

// Positions along the depth at which a step loads the image: the entries of its table.
constexpr int TABLE = X_VECTOR ? CHUNKS : TILE_K;

// The image read across pixels. What a pixel has of a position along the depth is a bit if there are few taps; it is not
// asked before the elements have come, so that where to load from takes one addition.
constexpr bool BITS = TAPS < 32;
constexpr bool LEAVES = OUTSIDE_D + OUTSIDE_H + OUTSIDE_W > 0;
// Of what reads an element as a word or a half of it.
typedef Vector<unsigned, sizeof(T) == 4 ? X_RUN : 1> Run;
// Pixels of a word.
constexpr int PACKED = sizeof(T) == 4 ? 1 : X_RUN;

// The place of an element: what a pixel adds to a position along the depth. `needs` is the number of its tap where BITS.
DEVICE DepthEntry pixel_entry(const Shape& s, int depth) {
  // What lies beyond the depth is read where its last position is.
  DepthEntry entry = depth_entry(s, depth < DEPTH ? depth : DEPTH - 1);
  if (BITS) entry.needs = depth >= DEPTH ? 31 : CHANNEL_INNER ? depth / CHANNELS : depth % TAPS;
  else if (depth >= DEPTH) entry.needs = depth_entry(s, depth).needs;
  return entry;
}
// All bits if bit `at` is set, else none.
DEVICE unsigned all_of_bit(unsigned bits, unsigned at) {
#if defined(__AMDGCN__)
  return __builtin_amdgcn_sbfe((int)bits, at, 1);
#else
  return bits >> at & 1 ? ~0u : 0;
#endif
}
// A pixel's bit for each tap that lies in the image.
DEVICE unsigned has_of(const Shape& s, const Pixel& pixel) {
  unsigned has = 0;
#pragma unroll
  for (int t = 0; t < (BITS ? TAPS : 0); t++) {
    const int d = t / (TAPS_H * TAPS_W) * DILATION_D, h = t / TAPS_W % TAPS_H * DILATION_H, w = t % TAPS_W * DILATION_W;
    bool inside = true;
    if (OUTSIDE_D) inside = inside && (unsigned)(pixel.d + d) < (unsigned)s.in_d;
    if (OUTSIDE_H) inside = inside && (unsigned)(pixel.h + h) < (unsigned)s.in_h;
    if (OUTSIDE_W) inside = inside && (unsigned)(pixel.w + w) < (unsigned)s.in_w;
    has |= (unsigned)inside << t;
  }
  return has;
}

// A thread's X_RUN pixels, whose elements are neighbours in memory under every tap.
struct PixelRun {
  // Beyond the last pixel are those before it, whose results nobody writes.
  int offset;
  unsigned has[X_RUN];
  Row row[BITS ? 1 : X_RUN];

  DEVICE PixelRun(const Shape& s, int m, int group) {
    if (m > (int)s.pixels - X_RUN) m = (int)s.pixels - X_RUN;
#pragma unroll
    for (int p = 0; p < X_RUN; p++) {
      const Pixel pixel = pixel_of(s, m + p, group);
      if (p == 0) offset = pixel.offset;
      has[p] = has_of(s, pixel);
      if constexpr (!BITS) row[p] = row_of(s, m + p, group);
    }
  }
  // All bits if pixel `p` has what the position along the depth needs, else none.
  DEVICE unsigned mask(const Shape& s, int p, const DepthEntry& entry) const {
    if constexpr (BITS) return all_of_bit(has[p], entry.needs);
    else return missing(s, row[p], entry) ? 0 : ~0u;
  }
};

// Whether all that pixels of a tile need of a step, and what they lack of it, lies within the tensor. Only some steps of the
// first and the last image do not.
struct Bounds {
  int below, above, last;

  DEVICE Bounds(const Shape& s, int first, int group) {
    int end = first + TILE_P;
    if (end > (int)s.pixels) end = s.pixels;
    const int plane = s.out_plane, area = s.out_h * s.out_w, image = group * CHANNELS * s.x_c;
    const int top_d = OUTSIDE_D ? (plane / area - 1) * STRIDE_D - PAD_D + (TAPS_D - 1) * DILATION_D : s.in_d - 1;
    const int top_h = OUTSIDE_H ? ((int)s.out_h - 1) * STRIDE_H - PAD_H + (TAPS_H - 1) * DILATION_H : s.in_h - 1;
    const int top_w = OUTSIDE_W ? ((int)s.out_w - 1) * STRIDE_W - PAD_W + (TAPS_W - 1) * DILATION_W : s.in_w - 1;
    last = ((int)s.pixels / plane - 1) * s.x_n + ((int)gridDim.z * CHANNELS - 1) * s.x_c + (s.in_d - 1) * s.x_d +
           (s.in_h - 1) * s.x_h + (s.in_w - 1) * s.x_w;
    below = first / plane * s.x_n + image - PAD_D * s.x_d - PAD_H * s.x_h - PAD_W * s.x_w;
    above = last - ((end - 1) / plane * s.x_n + image + top_d * s.x_d + top_h * s.x_h + top_w * s.x_w);
  }
  DEVICE bool holds(const Shape& s, int step) const {
    if (!LEAVES) return true;
    const int first = CHANNEL_INNER ? 0 : step * TILE_K / TAPS;
    int end = CHANNEL_INNER ? CHANNELS - 1 : (step * TILE_K + TILE_K - 1) / TAPS;
    if (end > CHANNELS - 1) end = CHANNELS - 1;
    return below + first * s.x_c >= 0 && above - end * s.x_c >= 0;
  }
};

// Loads in flight: of each chunk its elements for a run of pixels.
template <int COUNT> struct StagedPixels {
  Run run[COUNT][CHUNK];

  DEVICE void load(int i, int e, const T* from, int offset) {
    const char* const at = (const char*)from + (unsigned)offset * (unsigned)sizeof(T);
    if constexpr (sizeof(T) * X_RUN == 2) {
      unsigned short half;
      __builtin_memcpy(&half, at, 2);
      run[i][e].at[0] = half;
    } else {
      __builtin_memcpy(&run[i][e], at, sizeof(T) * X_RUN);
    }
  }
  // The same, whatever of it lies beyond the tensor: none of that is kept.
  DEVICE void load_within(int i, int e, const T* from, int offset, int last) {
#pragma unroll
    for (int p = 0; p < X_RUN; p++) {
      const int here = offset + p, at = here < 0 ? 0 : here > last ? last : here;
      unsigned word = 0;
      __builtin_memcpy(&word, (const char*)from + (unsigned)at * (unsigned)sizeof(T), sizeof(T));
      unsigned& to = run[i][e].at[p / PACKED];
      to = p % PACKED == 0 ? word : to | word << 16;
    }
  }
  // What pixels lack is dropped when it has come.
  DEVICE void mask(int i, int e, unsigned low, unsigned high) {
    if constexpr (PACKED == 2) run[i][e].at[0] &= (low & 0xffffu) | (high & 0xffff0000u);
    else run[i][e].at[0] &= low;
    if constexpr (sizeof(Run) == 8) run[i][e].at[1] &= high;
  }
  // A chunk of pixel `p`.
  DEVICE Words arrived(int i, int p) const {
    Words v;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      if constexpr (sizeof(T) == 4) {
        v[j] = run[i][j].at[p];
      } else {
        typedef unsigned short Halves __attribute__((ext_vector_type(2)));
        const Halves first = __builtin_bit_cast(Halves, run[i][2 * j].at[0]);
        const Halves second = __builtin_bit_cast(Halves, run[i][2 * j + 1].at[0]);
        const Halves both = p == 0 ? (Halves){first.x, second.x} : (Halves){first.y, second.y};
        v[j] = __builtin_bit_cast(unsigned, both);
      }
    }
    return v;
  }
};

DEVICE Words* swizzled(char* rows, int row, int chunk) {
  return (Words*)(rows + row * 64 + ((chunk ^ (row >> 1 & 3)) << 4));
}

// Waits for the block's threads and their shared memory; loads from global memory stay in flight.
DEVICE void sync_block() {
#if __clang_major__ >= 19
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
#else
  __syncthreads();
#endif
}

// The tile that this block computes. Blocks are dealt to the chip's XCDs in turn, each with an L2 of its own:
// neighbouring tiles, which share pixels and filters, go to the same one. Where SPLIT blocks share a tile those go there that have
// the same share of the depth of all tiles.
struct Work {
  int pixel, filter, group;
};
DEVICE Work work() {
  const int tiles = gridDim.x / SPLIT, blocks = tiles * (int)gridDim.z;
  int b = (int)blockIdx.z * tiles + tile_number();
  if (SPLIT == 1 && XCDS > 1 && b < blocks / XCDS * XCDS) b = b % XCDS * (blocks / XCDS) + b / XCDS;
  return {b % tiles / FILTER_TILES * TILE_P, b % tiles % FILTER_TILES * TILE_F, b / tiles};
}

KERNEL(THREADS, OCCUPANCY) {
  begin_grid();
  DYNAMIC_SHARED(char, shared);
  char* const x_rows = shared;
  char* const w_rows = shared + TILE_P * 64;
  DepthEntry* const table = (DepthEntry*)(w_rows + TILE_F * 64);
  const Shape& s = args.shape;
  const Work at = work();
  float* const tile = (float*)(shared + ACC_AT);
  if (finish_tile(args, tile, at.pixel, at.filter, at.group)) return;
  const int begin = first_step<STEPS>();
  const T* const x = (const T*)args.x;
  const T* const weights = (const T*)args.op[0].p[0];

  // Chunks have a row of the image operand each; a thread's runs are of the same pixels.
  Row rows[X_VECTOR ? X_COUNT : 1];
  if constexpr (X_VECTOR)
#pragma unroll
    for (int i = 0; i < X_COUNT; i++) rows[i] = row_of(s, at.pixel + x_row(i), at.group);
  const PixelRun pixels(s, at.pixel + (X_VECTOR ? 0 : x_row(0)), at.group);
  const Bounds bounds(s, at.pixel, at.group);

  // Writes the table of a step for the whole block, a step before it is fetched.
  const auto plan = [&](int step) {
    if (threadIdx.x < TABLE) {
      const int depth = (begin + step) * TILE_K + (int)threadIdx.x * (X_VECTOR ? CHUNK : 1);
      table[step % 2 * TABLE + threadIdx.x] = X_VECTOR ? depth_entry(s, depth) : pixel_entry(s, depth);
    }
  };
  Staged<true, X_VECTOR ? X_COUNT : 1> chunks_x;
  StagedPixels<X_VECTOR ? 1 : X_COUNT> pixels_x;
  Staged<W_VECTOR, W_LOADS> staged_w;
  const auto fetch = [&](int step) {
    const DepthEntry* const here = table + step % 2 * TABLE;
    chunks_x.inside = staged_w.inside = 0;
    if constexpr (X_VECTOR) {
#pragma unroll
      for (int i = 0; i < X_COUNT; i++) {
        const DepthEntry entry = here[x_chunk(i)];
        chunks_x.load(i, x, rows[i].pixel.offset + entry.offset, !missing(s, rows[i], entry));
      }
    } else if (bounds.holds(s, begin + step)) {
#pragma unroll
      for (int i = 0; i < X_COUNT; i++)
#pragma unroll
        for (int e = 0; e < CHUNK; e++) pixels_x.load(i, e, x, pixels.offset + here[x_chunk(i) * CHUNK + e].offset);
    } else {
#pragma unroll
      for (int i = 0; i < X_COUNT; i++)
#pragma unroll
        for (int e = 0; e < CHUNK; e++)
          pixels_x.load_within(i, e, x, pixels.offset + here[x_chunk(i) * CHUNK + e].offset, bounds.last);
    }
#pragma unroll
    for (int i = 0; i < W_LOADS; i++) {
      const int filter = at.filter + load_row<true, TILE_F>(i);
      const int depth = (begin + step) * TILE_K + load_chunk<true, TILE_F>(i) * CHUNK;
      if constexpr (W_VECTOR) {
        const int offset = filter_at(filter, at.group, depth);
        staged_w.load(i, weights, offset, offset >= 0);
      } else {
#pragma unroll
        for (int e = 0; e < CHUNK; e++) {
          const int offset = filter_at(filter, at.group, depth + e);
          staged_w.load(i, e, weights, offset, offset >= 0);
        }
      }
    }
  };
  const auto store_staged = [&](int step) {
    [[maybe_unused]] const DepthEntry* const here = table + step % 2 * TABLE;
#pragma unroll
    for (int i = 0; i < X_COUNT; i++) {
      if constexpr (X_VECTOR) {
        *swizzled(x_rows, x_row(i), x_chunk(i)) = chunks_x.arrived(i);
      } else {
        if (LEAVES || DEPTH % TILE_K != 0)
#pragma unroll
          for (int e = 0; e < CHUNK; e++) {
            const DepthEntry entry = here[x_chunk(i) * CHUNK + e];
            pixels_x.mask(i, e, pixels.mask(s, 0, entry), pixels.mask(s, X_RUN - 1, entry));
          }
#pragma unroll
        for (int p = 0; p < X_RUN; p++) *swizzled(x_rows, x_row(i) + p, x_chunk(i)) = pixels_x.arrived(i, p);
      }
    }
#pragma unroll
    for (int i = 0; i < W_LOADS; i++)
      *swizzled(w_rows, load_row<true, TILE_F>(i), load_chunk<true, TILE_F>(i)) = staged_w.arrived(i);
  };

  const int lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE;
  const int wave_p = wave % WAVES_P * WAVE_P, wave_f = wave / WAVES_P * WAVE_F;
  Accumulators acc[BLOCKS_P][BLOCKS_F] = {};

  // The compiler must not know how many: where it unrolls few steps, registers spill.
  const int steps = step_count<STEPS>() * (int)gridDim.y;
  plan(0);
  plan(1);
  sync_block();
  fetch(0);
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    store_staged(step);
    sync_block();
    if (step + 1 < steps) fetch(step + 1);
    plan(step + 2);
#pragma unroll
    for (int first = 0; first < CHUNKS / 2; first += AHEAD) {
      Fragment p[AHEAD][BLOCKS_P], f[AHEAD][BLOCKS_F];
#pragma unroll
      for (int k = 0; k < AHEAD; k++) {
#pragma unroll
        for (int i = 0; i < BLOCKS_P; i++) p[k][i] = fragment(x_rows, wave_p + i * BLOCK, first + k, lane);
#pragma unroll
        for (int j = 0; j < BLOCKS_F; j++) f[k][j] = fragment(w_rows, wave_f + j * BLOCK, first + k, lane);
      }
      // The compiler would rather have fewer registers than reads under way.
      if (AHEAD > 1) __builtin_amdgcn_sched_barrier(0);
#pragma unroll
      for (int k = 0; k < AHEAD; k++)
#pragma unroll
        for (int i = 0; i < BLOCKS_P; i++)
#pragma unroll
          for (int j = 0; j < BLOCKS_F; j++)
            // A lane has accumulators of one column: of what lies in a row of the output's memory.
            acc[i][j] = Y_ALONG_K ? mma(p[k][i], f[k][j], acc[i][j], T()) : mma(f[k][j], p[k][i], acc[i][j], T());
    }
    sync_block();
  }

#pragma unroll
  for (int part = 0; part < WAVE_P; part += PART_P)
#pragma unroll 1
    for (int owner = 0; owner < WAVES_P; owner++) {
      if (wave % WAVES_P == owner)
#pragma unroll
        for (int i = 0; i < PART_P / BLOCK; i++)
#pragma unroll
          for (int j = 0; j < BLOCKS_F; j++)
#pragma unroll
            for (int r = 0; r < ACCUMULATORS; r++) {
              const int row = acc_row(r, lane), column = lane % BLOCK;
              const int p = i * BLOCK + (Y_ALONG_K ? row : column), f = j * BLOCK + (Y_ALONG_K ? column : row);
              tile[tile_at(p, wave_f + f)] = acc[part / BLOCK + i][j][r];
            }
      sync_block();
      write_tile(args, tile, at.pixel + owner * WAVE_P + part, at.filter, at.group);
      sync_block();
    }
}

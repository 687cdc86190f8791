// The main loop on matrix cores; the text before it has their instructions: Accumulators, Fragment, mma. Rows of a
// tile are 64 bytes in shared memory, four chunks, swizzled so that eight neighbours of a wave that read or write 16
// bytes each have no bank conflicts. The next step's operands are on their way to registers while this one's
// are multiplied. Loads never branch: what lies outside is read from the tensor's start and dropped when the
// chunk goes to shared memory.
//
// needs macros: DEVICE, DYNAMIC_SHARED, KERNEL, WAVE
// needs constants: ACCUMULATORS, ACC_AT, AHEAD, BLOCK, CHUNK, CHUNKS, FILTER_TILES, OCCUPANCY, PART_P, STEPS, THREADS,
//   TILE_F, TILE_K, TILE_P, WAVES_F, WAVES_P, W_LOADS, W_VECTOR, XCDS, X_RUN, X_VECTOR, Y_ALONG_K
// needs types: Accumulators, DepthEntry, Fragment, Row, Shape, T, Vector, Words
// needs functions: acc_row, begin_grid, depth_entry, filter_at, fragment, load_chunk, load_row, missing, mma, row_of,
//   tile_at, write_tile, zero

static_assert(TILE_K * sizeof(T) == 64, "a row of a tile is 64 bytes");
constexpr int WAVE_P = TILE_P / WAVES_P, WAVE_F = TILE_F / WAVES_F;
constexpr int BLOCKS_P = WAVE_P / BLOCK, BLOCKS_F = WAVE_F / BLOCK;
static_assert(WAVE_P % PART_P == 0 && PART_P % BLOCK == 0, "a part is of one row of waves");

// A load of the image: a chunk, or for each element of a chunk X_WIDE neighbouring pixels. Chunks: neighbouring
// threads read along the depth. Pixels: neighbours read neighbours.
constexpr int X_WIDE = !X_VECTOR && X_RUN >= 2 && sizeof(T) == 2 ? 2 : 1;
constexpr int X_ACROSS = X_VECTOR ? CHUNKS : TILE_P / X_WIDE;
constexpr int X_DOWN = THREADS / X_ACROSS;
constexpr int X_COUNT = TILE_P / X_WIDE * CHUNKS / THREADS;
DEVICE int x_row(int i) {
  return X_VECTOR ? (int)threadIdx.x / X_ACROSS + i * X_DOWN : (int)threadIdx.x % X_ACROSS * X_WIDE;
}
DEVICE int x_chunk(int i) { return X_VECTOR ? (int)threadIdx.x % X_ACROSS : (int)threadIdx.x / X_ACROSS + i * X_DOWN; }
// Positions along the depth at which a step loads the image: the entries of its table.
constexpr int TABLE = X_VECTOR ? CHUNKS : TILE_K;

// Loads in flight: chunks, or elements. A bit of `inside` for each.
template <bool VECTOR, int COUNT, int WIDE> struct Staged {
  Words chunk[VECTOR ? COUNT : 1];
  Vector<T, WIDE> element[VECTOR ? 1 : COUNT][CHUNK];
  unsigned inside;
  static_assert((VECTOR ? COUNT : COUNT * CHUNK) <= 32, "a bit for each load");

  // Takes the chunk at `offset`. AMD's loads of 16 bytes need no more alignment than an element's.
  DEVICE void load(int i, const T* from, int offset, bool is_inside) {
    __builtin_memcpy(&chunk[i], from + (unsigned)(is_inside ? offset : 0), sizeof(Words));
    inside |= (unsigned)is_inside << i;
  }
  // Takes element `e` of a chunk.
  DEVICE void load(int i, int e, const T* from, int offset, bool is_inside) {
    __builtin_memcpy(&element[i][e], from + (unsigned)(is_inside ? offset : 0), WIDE * sizeof(T));
    inside |= (unsigned)is_inside << (i * CHUNK + e);
  }
  // A chunk of pixel `p` when it has come.
  DEVICE Words arrived(int i, int p) const {
    if constexpr (VECTOR) {
      return inside >> i & 1 ? chunk[i] : (Words)0u;
    } else {
      Vector<T, CHUNK> v;
#pragma unroll
      for (int e = 0; e < CHUNK; e++) v.at[e] = inside >> (i * CHUNK + e) & 1 ? element[i][e].at[p] : zero();
      return __builtin_bit_cast(Words, v);
    }
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
// neighbouring tiles, which share pixels and filters, go to the same one.
struct Work {
  int pixel, filter, group;
};
DEVICE Work work() {
  const int tiles = gridDim.x, blocks = tiles * (int)gridDim.z;
  int b = (int)blockIdx.z * tiles + (int)blockIdx.x;
  if (XCDS > 1 && b < blocks / XCDS * XCDS) b = b % XCDS * (blocks / XCDS) + b / XCDS;
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
  const T* const x = (const T*)args.x;
  const T* const weights = (const T*)args.op[0].p[0];

  Row rows[X_VECTOR ? X_COUNT : 1];
#pragma unroll
  for (int i = 0; i < (X_VECTOR ? X_COUNT : 1); i++) rows[i] = row_of(s, at.pixel + x_row(i), at.group);

  // Writes the table of a step for the whole block, a step before it is fetched.
  const auto plan = [&](int step) {
    if (threadIdx.x < TABLE)
      table[step % 2 * TABLE + threadIdx.x] = depth_entry(s, step * TILE_K + (int)threadIdx.x * (X_VECTOR ? CHUNK : 1));
  };
  Staged<X_VECTOR, X_COUNT, X_WIDE> staged_x;
  Staged<W_VECTOR, W_LOADS, 1> staged_w;
  const auto fetch = [&](int step) {
    const DepthEntry* const here = table + step % 2 * TABLE;
    staged_x.inside = staged_w.inside = 0;
#pragma unroll
    for (int i = 0; i < X_COUNT; i++) {
      const Row& row = rows[X_VECTOR ? i : 0];
      if constexpr (X_VECTOR) {
        const DepthEntry entry = here[x_chunk(i)];
        staged_x.load(i, x, row.pixel.offset + entry.offset, !missing(s, row, entry));
      } else {
#pragma unroll
        for (int e = 0; e < CHUNK; e++) {
          const DepthEntry entry = here[x_chunk(i) * CHUNK + e];
          staged_x.load(i, e, x, row.pixel.offset + entry.offset, !missing(s, row, entry));
        }
      }
    }
#pragma unroll
    for (int i = 0; i < W_LOADS; i++) {
      const int filter = at.filter + load_row<true, TILE_F>(i);
      const int depth = step * TILE_K + load_chunk<true, TILE_F>(i) * CHUNK;
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
  const auto store_staged = [&] {
#pragma unroll
    for (int i = 0; i < X_COUNT; i++)
#pragma unroll
      for (int p = 0; p < X_WIDE; p++) *swizzled(x_rows, x_row(i) + p, x_chunk(i)) = staged_x.arrived(i, p);
#pragma unroll
    for (int i = 0; i < W_LOADS; i++)
      *swizzled(w_rows, load_row<true, TILE_F>(i), load_chunk<true, TILE_F>(i)) = staged_w.arrived(i, 0);
  };

  const int lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE;
  const int wave_p = wave % WAVES_P * WAVE_P, wave_f = wave / WAVES_P * WAVE_F;
  Accumulators acc[BLOCKS_P][BLOCKS_F] = {};

  // STEPS, which the compiler must not know: where it unrolls few steps, registers spill.
  const int steps = STEPS * (int)gridDim.y;
  plan(0);
  plan(1);
  sync_block();
  fetch(0);
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    store_staged();
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

  float* tile = (float*)(shared + ACC_AT);
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

// The main loop on matrix cores; the text before it has their instructions: Sums, Fragment, multiply. Rows of a
// tile are 64 bytes in shared memory, four chunks, permuted so that no eight neighbours of a wave that read or
// write 16 bytes each meet in a bank. The next step's operands are on their way to registers while this one's
// are multiplied. Loads never branch: what lies outside is read from the tensor's start and dropped when the
// chunk goes to shared memory.

static_assert(TILE_K * sizeof(T) == 64, "a row of a tile is 64 bytes");
static_assert(X_LOADS + W_LOADS <= 32, "a bit for each load");
constexpr int WAVE_P = TILE_P / WAVES_P, WAVE_F = TILE_F / WAVES_F;
constexpr int BLOCKS_P = WAVE_P / BLOCK, BLOCKS_F = WAVE_F / BLOCK;
static_assert(WAVE_P % PART_P == 0 && PART_P % BLOCK == 0, "a part is of one row of waves");

DEVICE Words* slot(char* rows, int row, int chunk) { return (Words*)(rows + row * 64 + ((chunk ^ (row >> 1 & 3)) << 4)); }

// Waits for the block's threads and their shared memory; loads from global memory stay in flight.
DEVICE void meet() {
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

DEVICE Words gathered(const T* chunk) {
  Vector<T, CHUNK> v;
#pragma unroll
  for (int e = 0; e < CHUNK; e++) v.at[e] = chunk[e];
  return __builtin_bit_cast(Words, v);
}

KERNEL(THREADS, OCCUPANCY) {
  DYNAMIC_SHARED(char, shared);
  char* const x_rows = shared;
  char* const w_rows = shared + TILE_P * 64;
  const Work at = work();
  const T* x = (const T*)args.x;
  const T* weights = (const T*)args.op[0].p[0];
  const bool x_chunks = X_VECTOR && is_aligned(x, 16), w_chunks = W_VECTOR && is_aligned(weights, 16);

  Pixel pixels[X_LOADS];
#pragma unroll
  for (int i = 0; i < X_LOADS; i++)
    pixels[i] = pixel_of(args.shape, at.pixel + load_row<X_VECTOR, TILE_P>(i), at.group);

  Words staged[X_LOADS + W_LOADS];
  unsigned inside;
  const auto fetch = [&](int step) {
    inside = 0;
    const auto load = [&](int i, const T* from, int offset) {
      staged[i] = *(const Words*)(from + (offset >= 0 ? offset : 0));
      inside |= (unsigned)(offset >= 0) << i;
    };
#pragma unroll
    for (int i = 0; i < X_LOADS; i++) {
      const int depth = step * TILE_K + load_chunk<X_VECTOR, TILE_P>(i) * CHUNK;
      if (x_chunks) {
        load(i, x, image_at(args.shape, pixels[i], depth));
      } else {
        T chunk[CHUNK];
        gather_image(args, pixels[i], depth, chunk);
        staged[i] = gathered(chunk);
        inside |= 1u << i;
      }
    }
#pragma unroll
    for (int i = 0; i < W_LOADS; i++) {
      const int depth = step * TILE_K + load_chunk<W_VECTOR, TILE_F>(i) * CHUNK;
      const int filter = at.filter + load_row<W_VECTOR, TILE_F>(i);
      if (w_chunks) {
        load(X_LOADS + i, weights, filter_at(filter, at.group, depth));
      } else {
        T chunk[CHUNK];
        gather_filter(args, filter, at.group, depth, chunk);
        staged[X_LOADS + i] = gathered(chunk);
        inside |= 1u << (X_LOADS + i);
      }
    }
  };
  const auto land = [&] {
#pragma unroll
    for (int i = 0; i < X_LOADS + W_LOADS; i++) {
      const Words v = inside >> i & 1 ? staged[i] : (Words)0u;
      if (i < X_LOADS) *slot(x_rows, load_row<X_VECTOR, TILE_P>(i), load_chunk<X_VECTOR, TILE_P>(i)) = v;
      else *slot(w_rows, load_row<W_VECTOR, TILE_F>(i - X_LOADS), load_chunk<W_VECTOR, TILE_F>(i - X_LOADS)) = v;
    }
  };

  const int lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE;
  const int wave_p = wave % WAVES_P * WAVE_P, wave_f = wave / WAVES_P * WAVE_F;
  Sums sums[BLOCKS_P][BLOCKS_F] = {};

  // STEPS, which the compiler must not know: where it unrolls few steps, registers spill.
  const int steps = STEPS * (int)gridDim.y;
  fetch(0);
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    land();
    meet();
    if (step + 1 < steps) fetch(step + 1);
#pragma unroll
    for (int k = 0; k < CHUNKS / 2; k++) {
      Fragment p[BLOCKS_P], f[BLOCKS_F];
#pragma unroll
      for (int i = 0; i < BLOCKS_P; i++) p[i] = fragment(x_rows, wave_p + i * BLOCK, k, lane);
#pragma unroll
      for (int j = 0; j < BLOCKS_F; j++) f[j] = fragment(w_rows, wave_f + j * BLOCK, k, lane);
#pragma unroll
      for (int i = 0; i < BLOCKS_P; i++)
#pragma unroll
        for (int j = 0; j < BLOCKS_F; j++)
          // A lane has sums of one column: of what lies in a row of the output's memory.
          sums[i][j] = Y_ALONG_K ? multiply(p[i], f[j], sums[i][j], T()) : multiply(f[j], p[i], sums[i][j], T());
    }
    meet();
  }

  float* tile = (float*)shared;
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
            for (int r = 0; r < SUMS; r++) {
              const int row = sum_row(r, lane), column = lane % BLOCK;
              const int p = i * BLOCK + (Y_ALONG_K ? row : column), f = j * BLOCK + (Y_ALONG_K ? column : row);
              tile[tile_at(p, wave_f + f)] = sums[part / BLOCK + i][j][r];
            }
      meet();
      write_tile(args, tile, at.pixel + owner * WAVE_P + part, at.filter, at.group);
      meet();
    }
}

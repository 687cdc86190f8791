// The main loop in f32 multiply-adds: 8x8 sums a thread, two buffers in shared memory. f32 products are f32.

constexpr int X_PITCH = TILE_P + 4, W_PITCH = TILE_F + 4;
constexpr int BUFFER = TILE_K * (X_PITCH + W_PITCH);
constexpr int COLUMN_THREADS = TILE_F / 8;

struct Staged {
  T x[X_LOADS][CHUNK], w[W_LOADS][CHUNK];
};

template <bool VECTOR, int ROWS, int LOADS, int ROW_PITCH>
DEVICE void put(float* operand, const T (*chunks)[CHUNK]) {
#pragma unroll
  for (int i = 0; i < LOADS; i++)
#pragma unroll
    for (int e = 0; e < CHUNK; e++)
      operand[(load_chunk<VECTOR, ROWS>(i) * CHUNK + e) * ROW_PITCH + load_row<VECTOR, ROWS>(i)] =
          to_float(chunks[i][e]);
}

KERNEL(THREADS) {
  DYNAMIC_SHARED(float, shared);
  const int first_filter = blockIdx.x % FILTER_TILES * TILE_F, first_pixel = blockIdx.x / FILTER_TILES * TILE_P;
  const int group = blockIdx.z;
  const bool x_chunks = X_VECTOR && is_aligned(args.x, 16), w_chunks = W_VECTOR && is_aligned(args.op[0].p[0], 16);

  Pixel pixels[X_LOADS];
#pragma unroll
  for (int i = 0; i < X_LOADS; i++)
    pixels[i] = pixel_of(args.shape, first_pixel + load_row<X_VECTOR, TILE_P>(i), group);

  Staged staged;
  const auto fetch = [&](int step) {
#pragma unroll
    for (int i = 0; i < X_LOADS; i++) {
      const int depth = step * TILE_K + load_chunk<X_VECTOR, TILE_P>(i) * CHUNK;
      if (x_chunks) load_vector((const T*)args.x, image_at(args.shape, pixels[i], depth), staged.x[i]);
      else gather_image(args, pixels[i], depth, staged.x[i]);
    }
#pragma unroll
    for (int i = 0; i < W_LOADS; i++) {
      const int depth = step * TILE_K + load_chunk<W_VECTOR, TILE_F>(i) * CHUNK;
      const int filter = first_filter + load_row<W_VECTOR, TILE_F>(i);
      if (w_chunks) load_vector((const T*)args.op[0].p[0], filter_at(filter, group, depth), staged.w[i]);
      else gather_filter(args, filter, group, depth, staged.w[i]);
    }
  };
  const auto store = [&](int buffer) {
    float* x = shared + buffer * BUFFER;
    put<X_VECTOR, TILE_P, X_LOADS, X_PITCH>(x, staged.x);
    put<W_VECTOR, TILE_F, W_LOADS, W_PITCH>(x + TILE_K * X_PITCH, staged.w);
  };

  const int p = threadIdx.x / COLUMN_THREADS * 4, f = threadIdx.x % COLUMN_THREADS * 4;
  float sums[8][8] = {};
  fetch(0);
  store(0);
  __syncthreads();
#pragma unroll 1
  for (int step = 0; step < STEPS; step++) {
    if (step + 1 < STEPS) fetch(step + 1);
    const float* x = shared + step % 2 * BUFFER;
    const float* w = x + TILE_K * X_PITCH;
#pragma unroll UNROLL
    for (int k = 0; k < TILE_K; k++) {
      float a[8], b[8];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const Vector<float, 4> pa = *(const Vector<float, 4>*)(x + k * X_PITCH + half * (TILE_P / 2) + p);
        const Vector<float, 4> pb = *(const Vector<float, 4>*)(w + k * W_PITCH + half * (TILE_F / 2) + f);
#pragma unroll
        for (int i = 0; i < 4; i++) a[half * 4 + i] = pa.at[i], b[half * 4 + i] = pb.at[i];
      }
#pragma unroll
      for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
    }
    if (step + 1 < STEPS) store((step + 1) % 2);
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < 8; i++)
#pragma unroll
    for (int j = 0; j < 8; j++)
      shared[tile_at(i / 4 * (TILE_P / 2) + p + i % 4, j / 4 * (TILE_F / 2) + f + j % 4)] = sums[i][j];
  __syncthreads();
  write_tile(args, shared, first_pixel, first_filter, group);
}

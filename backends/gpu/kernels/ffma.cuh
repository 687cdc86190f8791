// The main loop in f32 multiply-adds. A thread has 8x8 accumulators. Shared memory has two stages, whose rows are
// positions along the depth; a slice of threads has some rows of each. f32 products are f32.
//
// needs macros: DYNAMIC_SHARED, KERNEL
// needs constants: ACC_AT, CHUNK, CHUNKS, FILTER_TILES, OCCUPANCY, PART_P, SLICE, SLICES, STEPS, THREADS, TILE_F,
//   TILE_K, TILE_P, UNROLL, W_LOADS, W_VECTOR, X_RUN, X_VECTOR
// needs types: DepthEntry, Row, Shape, T, Vector
// needs functions: begin_grid, cluster_sync, depth_end, depth_entry, filter_at, finish_tile, first_step, gather_filter,
//   is_aligned, load_vector, missing, row_of, step_count, tile_at, tile_number, to_float, write_tile, zero

constexpr int X_PITCH = TILE_P + 4, W_PITCH = TILE_F + 4;
constexpr int BUFFER = TILE_K * (X_PITCH + W_PITCH);
constexpr int COLUMN_THREADS = TILE_F / 8, SLICE_THREADS = TILE_P * TILE_F / 64, SLICE_K = TILE_K / SLICES;
static_assert(SLICE_THREADS * SLICES == THREADS && SLICE_K * SLICES == TILE_K, "threads sum all");

// Loads of the image: chunks along the depth, or runs of X_RUN pixels in rows of the buffer.
constexpr int X_PART = X_VECTOR ? CHUNK : X_RUN;
constexpr int X_ACROSS = X_VECTOR ? CHUNKS : TILE_P / X_RUN;
constexpr int X_DOWN = THREADS / X_ACROSS;
constexpr int X_PARTS = (X_VECTOR ? TILE_P : TILE_K) / X_DOWN;
// Positions along the depth at which a step loads: the entries of its table.
constexpr int TABLE = X_VECTOR ? CHUNKS : TILE_K;
static_assert(X_DOWN > 0 && X_PARTS > 0 && X_DOWN * X_PARTS * X_ACROSS * X_PART == TILE_P * TILE_K, "threads load all");

// Loads of the filters: threads side by side read along the depth.
constexpr int W_DOWN = THREADS / CHUNKS;

KERNEL(THREADS, OCCUPANCY) {
  begin_grid();
  DYNAMIC_SHARED(float, shared);
  DepthEntry* const table = (DepthEntry*)(shared + 2 * BUFFER);
  const int first_filter = tile_number() % FILTER_TILES * TILE_F, first_pixel = tile_number() / FILTER_TILES * TILE_P;
  const int group = blockIdx.z, begin = first_step<STEPS>(), steps = step_count<STEPS>(), end = depth_end();
  float* const tile = shared + ACC_AT / (int)sizeof(float);
  if (finish_tile(args, tile, first_pixel, first_filter, group)) return;
  const Shape& shape = args.shape;
  const T* const image = (const T*)args.x;
  const T* const weights = (const T*)args.op[0].p[0];
  const bool x_aligned = X_PART == 1 || is_aligned(image, X_PART * (int)sizeof(T));
  const bool w_chunks = W_VECTOR && is_aligned(weights, 16);

  const int across = threadIdx.x % X_ACROSS, down = threadIdx.x / X_ACROSS;
  constexpr int ROWS = X_VECTOR ? X_PARTS : 1;
  Row rows[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; i++)
    rows[i] = row_of(shape, first_pixel + (X_VECTOR ? down + i * X_DOWN : across * X_RUN), group);
  const int w_chunk = threadIdx.x % CHUNKS, w_row = threadIdx.x / CHUNKS;

  // Writes the table of a step for the whole block, a step before the step is fetched.
  const auto plan = [&](int step) {
    if (threadIdx.x < TABLE)
      table[step % 2 * TABLE + threadIdx.x] =
          depth_entry(shape, (begin + step) * TILE_K + threadIdx.x * (X_VECTOR ? CHUNK : 1), end);
  };
  // Loads of a step. Nothing is done with what arrives until it is stored.
  Vector<T, X_PART> x[X_PARTS];
  T w[W_LOADS][CHUNK];
  const auto fetch = [&](int step) {
    const DepthEntry* const here = table + step % 2 * TABLE + (X_VECTOR ? across : down * X_PARTS);
#pragma unroll
    for (int i = 0; i < X_PARTS; i++)
#pragma unroll
      for (int e = 0; e < X_PART; e++) x[i].at[e] = zero();
    if (x_aligned) {
#pragma unroll
      for (int i = 0; i < X_PARTS; i++) {
        const Row& row = rows[X_VECTOR ? i : 0];
        const DepthEntry at = here[X_VECTOR ? 0 : i];
        const T* const from = image + (row.pixel.offset + at.offset);
        if (!missing(shape, row, at)) x[i] = *(const Vector<T, X_PART>*)from;
      }
    } else {
#pragma unroll
      for (int i = 0; i < X_PARTS; i++) {
        const Row& row = rows[X_VECTOR ? i : 0];
        const DepthEntry at = here[X_VECTOR ? 0 : i];
        const T* const from = image + (row.pixel.offset + at.offset);
        if (!missing(shape, row, at))
#pragma unroll
          for (int e = 0; e < X_PART; e++) x[i].at[e] = from[e];
      }
    }
    const int depth = (begin + step) * TILE_K + w_chunk * CHUNK;
    if (w_chunks) {
#pragma unroll
      for (int i = 0; i < W_LOADS; i++)
        load_vector(weights, filter_at(first_filter + w_row + i * W_DOWN, group, depth), w[i]);
    } else {
#pragma unroll
      for (int i = 0; i < W_LOADS; i++) gather_filter(args, first_filter + w_row + i * W_DOWN, group, depth, w[i]);
    }
  };
  const auto store = [&](int buffer) {
    float* const x_rows = shared + buffer * BUFFER;
    float* const w_rows = x_rows + TILE_K * X_PITCH;
#pragma unroll
    for (int i = 0; i < X_PARTS; i++) {
      if constexpr (X_VECTOR) {
#pragma unroll
        for (int e = 0; e < CHUNK; e++)
          x_rows[(across * CHUNK + e) * X_PITCH + down + i * X_DOWN] = to_float(x[i].at[e]);
      } else {
        constexpr int PART = X_RUN < 4 ? X_RUN : 4;
#pragma unroll
        for (int e = 0; e < X_RUN; e += PART) {
          Vector<float, PART> part;
#pragma unroll
          for (int j = 0; j < PART; j++) part.at[j] = to_float(x[i].at[e + j]);
          *(Vector<float, PART>*)(x_rows + (down * X_PARTS + i) * X_PITCH + across * X_RUN + e) = part;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < W_LOADS; i++)
#pragma unroll
      for (int e = 0; e < CHUNK; e++) w_rows[(w_chunk * CHUNK + e) * W_PITCH + w_row + i * W_DOWN] = to_float(w[i][e]);
  };

  const int slice = SLICES == 1 ? 0 : threadIdx.x / SLICE_THREADS, thread = threadIdx.x % SLICE_THREADS;
  const int p = thread / COLUMN_THREADS * 4, f = thread % COLUMN_THREADS * 4;
  float acc[8][8] = {};
  plan(0);
  plan(1);
  __syncthreads();
  fetch(0);
  store(0);
  __syncthreads();
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    if (step + 1 < steps) fetch(step + 1);
    plan(step + 2);
    const float* x = shared + step % 2 * BUFFER + slice * SLICE_K * X_PITCH;
    const float* w = shared + step % 2 * BUFFER + TILE_K * X_PITCH + slice * SLICE_K * W_PITCH;
#pragma unroll UNROLL
    for (int k = 0; k < SLICE_K; k++) {
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
        for (int j = 0; j < 8; j++) acc[i][j] = fmaf(a[i], b[j], acc[i][j]);
    }
    if (step + 1 < steps) store((step + 1) % 2);
    __syncthreads();
  }

  // A thread has accumulators of both halves of the pixels.
  constexpr int PARTS = TILE_P / PART_P;
  static_assert(PARTS == 1 || PARTS == 2, "parts are halves");
#pragma unroll 1
  for (int part = 0; part < PARTS; part++) {
#pragma unroll
    for (int i = 0; i < 8 / PARTS; i++)
#pragma unroll
      for (int j = 0; j < 8; j++)
        tile[slice * SLICE + tile_at(i / 4 * (TILE_P / 2) + p + i % 4, j / 4 * (TILE_F / 2) + f + j % 4)] =
            part == 0 ? acc[i][j] : acc[4 + i % 4][j];
    cluster_sync();
    write_tile(args, tile, first_pixel + part * PART_P, first_filter, group);
    if (PARTS > 1) __syncthreads();
  }
}

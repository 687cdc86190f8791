// Products of the filters' matrix and a vector for each pixel. A pixel's receptive field lies in memory as a filter does, so
// both are read along the depth, CHUNK elements at a time, with nothing between memory and registers: the
// work is to have enough of the filters on their way. SLICES threads side by side are a team, which has TEAM_F filters and TILE_P pixels; each
// of them has every SLICES-th vector of the depth. A block has TEAMS teams. Sums meet in shared memory. The order in which a result is
// summed is a constant of the text: operands that do not begin at multiples of a vector are read element by element, and summed as others are.
//
// needs macros: DEVICE, DYNAMIC_SHARED, KERNEL
// needs constants: CHUNK, DEPTH, FILTERS, ONE_TILE, SLICES, TEAMS, TEAM_F, THREADS, TILE_P, UNROLL, W_K, X_LINEAR
// needs sizes: out_h, out_plane, out_w, pixels, step_d, step_h, step_w, x_group, x_n, x_p
// needs types: Packed, Shape, T
// needs functions: begin_grid, channel_of, coord_of, finish, is_aligned

constexpr int BLOCK_F = TEAMS * TEAM_F;
// Sums of slices that a thread adds up at once.
constexpr int FAN_IN = 8;

// Where a pixel's receptive field begins, and a filter of the group; those beyond the last are the last once more.
DEVICE int pixel_at(const Shape& s, int pixel) {
  const int m = pixel < s.pixels ? pixel : (int)s.pixels - 1, group = (int)blockIdx.z * s.x_group;
  if (X_LINEAR) return group + m * s.x_p;
  const int n = m / s.out_plane, at = m % s.out_plane, row = at / s.out_w;
  return group + n * s.x_n + row / s.out_h * s.step_d + row % s.out_h * s.step_h + at % s.out_w * s.step_w;
}
DEVICE int filter_at(int filter) {
  const int k = filter < FILTERS ? filter : FILTERS - 1;
  return ((int)blockIdx.z * FILTERS + k) * W_K;
}

// CHUNK elements at a place, one by one where it is no multiple of their size.
template <bool ALIGNED> DEVICE Packed<CHUNK> read(const T* at) {
  if (ALIGNED) return *(const Packed<CHUNK>*)at;
  Packed<CHUNK> v = {};
#pragma unroll
  for (int e = 0; e < CHUNK; e++) v.set(e, at[e]);
  return v;
}

// Adds the products of the thread's vectors to the sums.
template <bool ALIGNED>
DEVICE void accumulate(const T* image, const int (&pixels)[TILE_P], const T* weights, const int (&filters)[TEAM_F],
                       float (&sums)[TEAM_F][TILE_P]) {
  constexpr int APART = SLICES * CHUNK;
  // Vectors of a filter that are on their way, and those of a pixel with them, where there are registers for them.
  constexpr int AHEAD = ALIGNED ? UNROLL : 1, PIXELS_AHEAD = AHEAD * TILE_P <= 8 ? AHEAD : 1;
#pragma unroll 1
  for (int first = (int)threadIdx.x % SLICES * CHUNK; first < DEPTH; first += AHEAD * APART) {
    // What lies beyond the depth is read at its beginning and not used: a read without a condition waits for no other.
    const auto at = [&](int u) { return first + u * APART < DEPTH ? first + u * APART : 0; };
    Packed<CHUNK> w[AHEAD][TEAM_F], x[PIXELS_AHEAD][TILE_P];
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
#pragma unroll
      for (int f = 0; f < TEAM_F; f++) w[u][f] = read<ALIGNED>(weights + filters[f] + at(u));
    if (PIXELS_AHEAD == AHEAD)
#pragma unroll
      for (int u = 0; u < PIXELS_AHEAD; u++)
#pragma unroll
        for (int p = 0; p < TILE_P; p++) x[u][p] = read<ALIGNED>(image + pixels[p] + at(u));
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      if (PIXELS_AHEAD < AHEAD)
#pragma unroll
        for (int p = 0; p < TILE_P; p++) x[0][p] = read<ALIGNED>(image + pixels[p] + at(u));
      if (first + u * APART < DEPTH)
#pragma unroll
        for (int e = 0; e < CHUNK; e++)
#pragma unroll
          for (int p = 0; p < TILE_P; p++)
#pragma unroll
            for (int f = 0; f < TEAM_F; f++) sums[f][p] = fmaf(x[u % PIXELS_AHEAD][p].at(e), w[u][f].at(e), sums[f][p]);
    }
  }
}

KERNEL(THREADS) {
  begin_grid();
  DYNAMIC_SHARED(float, shared);
  const Shape& s = args.shape;
  // Blocks of the same filters are neighbours, so that caches have these for all but the first.
  const int pixel_tiles = ONE_TILE ? 1 : ((int)s.pixels + TILE_P - 1) / TILE_P;
  const int first_filter = (int)blockIdx.x / pixel_tiles * BLOCK_F,
            first_pixel = (int)blockIdx.x % pixel_tiles * TILE_P;
  const int slice = threadIdx.x % SLICES, first = threadIdx.x / SLICES * TEAM_F;
  int pixels[TILE_P], filters[TEAM_F];
#pragma unroll
  for (int p = 0; p < TILE_P; p++) pixels[p] = pixel_at(s, first_pixel + p);
#pragma unroll
  for (int f = 0; f < TEAM_F; f++) filters[f] = filter_at(first_filter + first + f);
  float sums[TEAM_F][TILE_P] = {};
  const T* const image = (const T*)args.x;
  const T* const weights = (const T*)args.op[0].p[0];
  constexpr int BYTES = CHUNK * (int)sizeof(T);
  if (is_aligned(image, BYTES) && is_aligned(weights, BYTES)) accumulate<true>(image, pixels, weights, filters, sums);
  else accumulate<false>(image, pixels, weights, filters, sums);

  // A row of SLICES sums for each filter of the block and pixel of the tile.
  const auto row_of = [&](int f, int p) { return shared + (f * TILE_P + p) * SLICES; };
#pragma unroll
  for (int f = 0; f < TEAM_F; f++)
#pragma unroll
    for (int p = 0; p < TILE_P; p++) row_of(first + f, p)[slice] = sums[f][p];
  constexpr int ROWS = BLOCK_F * TILE_P;
#pragma unroll
  for (int slices = SLICES; slices > 1;) {
    const int at_once = slices < FAN_IN ? slices : FAN_IN, left = slices / at_once;
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * left; i += THREADS) {
      // Nobody else reads what this thread adds up and overwrites.
      float* const row = shared + i / left * SLICES + i % left;
      float sum = row[0];
#pragma unroll
      for (int other = 1; other < FAN_IN; other++)
        if (other < at_once) sum += row[other * left];
      row[0] = sum;
    }
    slices = left;
  }
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < ROWS; i += THREADS) {
    const int f = i % BLOCK_F, p = i / BLOCK_F, k = first_filter + f, m = first_pixel + p;
    if (k >= FILTERS || m >= s.pixels) continue;
    const int channel = (int)blockIdx.z * FILTERS + k;
    finish(args, channel_of(args, channel), row_of(f, p)[0], coord_of(s, m, channel));
  }
}

// Convolution of a few pixels: products of the filters' matrix and a vector for each pixel. What a pixel sees lies in memory
// as a filter does, so that both are read along the depth, 16 bytes at a time, with nothing between memory and registers: the
// work is to have enough of the filters on their way. PARTS threads side by side are a team, which has TEAM_F filters and TILE_P pixels; each
// of them has every PARTS-th vector of the depth. A block has TEAMS teams. Their sums meet in shared memory, in an order that never changes.
//
// needs macros: DEVICE, DYNAMIC_SHARED, KERNEL
// needs constants: CHUNK, DEPTH, FILTERS, PARTS, TEAMS, TEAM_F, THREADS, TILE_P, UNROLL, W_K, X_LINEAR
// needs sizes: out_h, out_plane, out_w, pixels, step_d, step_h, step_w, x_group, x_n, x_p
// needs types: Packed, Shape, T
// needs functions: begin_grid, channel_of, coord_of, finish, is_aligned

constexpr int BLOCK_F = TEAMS * TEAM_F;
constexpr int FILTER_TILES = (FILTERS + BLOCK_F - 1) / BLOCK_F;
// Sums that a thread adds up at once.
constexpr int MEET = 8;
// Vectors of pixels that are on their way with those of the filters, where there are registers for them.
constexpr int PIXELS_AHEAD = UNROLL * TILE_P <= 8 ? UNROLL : 1;

// Where what a pixel sees begins, and a filter of the group; those beyond the last are the last once more.
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

// Adds the products of the thread's vectors of V elements to the sums.
template <int V>
DEVICE void accumulate(const T* image, const int (&pixels)[TILE_P], const T* weights, const int (&filters)[TEAM_F],
                       float (&sums)[TEAM_F][TILE_P]) {
  constexpr int APART = PARTS * V;
#pragma unroll 1
  for (int first = (int)threadIdx.x % PARTS * V; first < DEPTH; first += UNROLL * APART) {
    // What lies beyond the depth is read at its beginning and not used: a read without a condition waits for no other.
    const auto at = [&](int u) { return first + u * APART < DEPTH ? first + u * APART : 0; };
    Packed<V> w[UNROLL][TEAM_F], x[PIXELS_AHEAD][TILE_P];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
#pragma unroll
      for (int f = 0; f < TEAM_F; f++) w[u][f] = *(const Packed<V>*)(weights + filters[f] + at(u));
    if (PIXELS_AHEAD == UNROLL)
#pragma unroll
      for (int u = 0; u < PIXELS_AHEAD; u++)
#pragma unroll
        for (int p = 0; p < TILE_P; p++) x[u][p] = *(const Packed<V>*)(image + pixels[p] + at(u));
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      if (PIXELS_AHEAD < UNROLL)
#pragma unroll
        for (int p = 0; p < TILE_P; p++) x[0][p] = *(const Packed<V>*)(image + pixels[p] + at(u));
      if (first + u * APART < DEPTH)
#pragma unroll
        for (int e = 0; e < V; e++)
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
  const int first_filter = (int)blockIdx.x % FILTER_TILES * BLOCK_F,
            first_pixel = (int)blockIdx.x / FILTER_TILES * TILE_P;
  const int part = threadIdx.x % PARTS, first = threadIdx.x / PARTS * TEAM_F;
  int pixels[TILE_P], filters[TEAM_F];
#pragma unroll
  for (int p = 0; p < TILE_P; p++) pixels[p] = pixel_at(s, first_pixel + p);
#pragma unroll
  for (int f = 0; f < TEAM_F; f++) filters[f] = filter_at(first_filter + first + f);
  float sums[TEAM_F][TILE_P] = {};
  const T* const image = (const T*)args.x;
  const T* const weights = (const T*)args.op[0].p[0];
  constexpr int BYTES = CHUNK * (int)sizeof(T);
  if (is_aligned(image, BYTES) && is_aligned(weights, BYTES)) accumulate<CHUNK>(image, pixels, weights, filters, sums);
  else accumulate<1>(image, pixels, weights, filters, sums);

  // A row of PARTS sums for each filter of the block and pixel of the tile.
  const auto row_of = [&](int f, int p) { return shared + (f * TILE_P + p) * PARTS; };
#pragma unroll
  for (int f = 0; f < TEAM_F; f++)
#pragma unroll
    for (int p = 0; p < TILE_P; p++) row_of(first + f, p)[part] = sums[f][p];
  constexpr int ROWS = BLOCK_F * TILE_P;
#pragma unroll
  for (int parts = PARTS; parts > 1;) {
    const int at_once = parts < MEET ? parts : MEET, left = parts / at_once;
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * left; i += THREADS) {
      // Nobody else reads what this thread adds up and overwrites.
      float* const row = shared + i / left * PARTS + i % left;
      float sum = row[0];
#pragma unroll
      for (int other = 1; other < MEET; other++)
        if (other < at_once) sum += row[other * left];
      row[0] = sum;
    }
    parts = left;
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

// The blocks that share a tile meet between two launches, where they are no cluster: the first launch writes each block's
// accumulators to memory, the second adds up those of all in the order of their ranks, and writes the tile. Each block
// of the second has some of the tile's parts, or some rows of one.
//
// needs macros: DEVICE
// needs constants: FILTERS, PART_P, PITCH, SLICE, SLICES, SPLIT, THREADS, TILE_F, TILE_P, Y_ALONG_K, Y_VECTOR
// needs sizes: launch, pixels, scratch
// needs types: Args, Rows, Shape, T, Vector
// needs functions: cluster_rank, is_aligned, tile_number, write_rows

// Within a launch blocks do not wait for each other.
DEVICE void cluster_sync() { __syncthreads(); }

constexpr int TILE_PARTS = TILE_P / PART_P;
// Blocks that have the same part in the second launch.
constexpr int WRITERS = SPLIT < TILE_PARTS ? 1 : SPLIT / TILE_PARTS;
static_assert(SPLIT % TILE_PARTS == 0 || TILE_PARTS % SPLIT == 0, "blocks have as many rows each");

// The accumulators of the block of this rank of a part of the tile, as they lie in shared memory.
DEVICE float* handed_on(const Shape& s, int part, int rank) {
  const long long tile = (long long)blockIdx.z * (gridDim.x / SPLIT) + tile_number();
  return (float*)s.scratch + ((tile * TILE_PARTS + part) * SPLIT + rank) * SLICE;
}

// Rows of a part, which are pixels or filters, that are of the result.
DEVICE int rows_there(const Shape& s, int first_pixel, int first_filter) {
  const int left = Y_ALONG_K ? (int)s.pixels - first_pixel : FILTERS - first_filter, most = Y_ALONG_K ? PART_P : TILE_F;
  return left < 0 ? 0 : left < most ? left : most;
}

DEVICE void add(Vector<float, 4>& sum, const Vector<float, 4>& more) {
#pragma unroll
  for (int e = 0; e < 4; e++) sum.at[e] += more.at[e];
}

// Hands on the accumulators of the PART_P pixels and all filters that are in shared memory. All threads that wrote these must
// have synchronised.
DEVICE void write_tile(const Args& args, const float* tile, int first_pixel, int first_filter, int) {
  float* const to = handed_on(args.shape, first_pixel % TILE_P / PART_P, cluster_rank());
  const int end = rows_there(args.shape, first_pixel, first_filter) * PITCH;
#pragma unroll 1
  for (int i = threadIdx.x * 4; i < end; i += THREADS * 4) {
    Vector<float, 4> sum = *(const Vector<float, 4>*)(tile + i);
#pragma unroll
    for (int slice = 1; slice < SLICES; slice++) add(sum, *(const Vector<float, 4>*)(tile + slice * SLICE + i));
    *(Vector<float, 4>*)(to + i) = sum;
  }
}

// Whether this launch only writes what another has accumulated. If it does, this has been done, by way of shared memory.
DEVICE bool finish_tile(const Args& args, float* tile, int first_pixel, int first_filter, int group) {
  const Shape& s = args.shape;
  if (s.launch == 0) return false;
  const int rank = cluster_rank();
#pragma unroll 1
  for (int part = rank % TILE_PARTS; part < TILE_PARTS; part += SPLIT) {
    const int pixel = first_pixel + part * PART_P, there = rows_there(s, pixel, first_filter);
    const int share = (there + WRITERS - 1) / WRITERS, first = rank / TILE_PARTS * share;
    const Rows rows = {first, first + share < there ? first + share : there};
    const float* const from = handed_on(s, part, 0);
#pragma unroll 1
    for (int i = rows.first * PITCH + threadIdx.x * 4; i < rows.end * PITCH; i += THREADS * 4) {
      Vector<float, 4> sum = {};
#pragma unroll 8
      for (int of = 0; of < SPLIT; of++) add(sum, *(const Vector<float, 4>*)(from + of * SLICE + i));
      *(Vector<float, 4>*)(tile + i) = sum;
    }
    __syncthreads();
    if (is_aligned(args.y, Y_VECTOR * (int)sizeof(T))) write_rows<true>(args, tile, pixel, first_filter, group, rows);
    else write_rows<false>(args, tile, pixel, first_filter, group, rows);
    __syncthreads();
  }
  return true;
}

// Split-K over a cluster of SPLIT blocks, each of which has a share of the tile's steps. A block leaves its accumulators
// in shared memory. Then it takes a share of the tile's rows, adds up the accumulators of all blocks in the order of their
// ranks, and runs these rows' epilogue. A block has one tile.
//
// needs macros: DEVICE
// needs constants: ACC_PITCH, ATOMS, COOPERATIVE, FILTERS, PINGPONG, PIXELS_ARE_ROWS, PRODUCERS, RESIDENT,
//   ROWS, SPLIT, WIDTH, Y_VECTOR
// needs types: Args, Channel, Column, Coord, Pixels, Rows, Shape, Vector
// needs functions: cluster_arrive, cluster_load, cluster_sync, cluster_wait, column_of, coord_of, finish_vector,
//   pixels_of, share_of, tile_number

static_assert(SPLIT == 1 || (PINGPONG == 1 && !RESIDENT), "a block has one tile");

DEVICE void epilogue_split(const Args& args, const float (&acc)[ATOMS][WIDTH / 2], float* all,
                           const Channel* channels) {
  const Shape& s = args.shape;
  const Column column = column_of(tile_number());
  const Pixels pixels = pixels_of(s, tile_number());
  const int thread = threadIdx.x - PRODUCERS * 128, lane = thread % 32;
#pragma unroll
  for (int atom = 0; atom < ATOMS; atom++)
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i += 2) {
      const int row = thread / 128 * ROWS + atom * 64 + thread / 32 % 4 * 16 + i / 2 % 2 * 8 + lane / 4;
      *(Vector<float, 2>*)(all + row * ACC_PITCH + i / 4 * 8 + lane % 4 * 2) = {acc[atom][i], acc[atom][i + 1]};
    }
  cluster_sync();

  const int left = PIXELS_ARE_ROWS ? pixels.end - pixels.first : FILTERS - column.filter;
  const Rows rows = share_of(left < COOPERATIVE * ROWS ? left : COOPERATIVE * ROWS);
  // Elements that a thread takes at a time.
  constexpr int UNIT = Y_VECTOR < 4 ? 4 : Y_VECTOR, ACROSS = WIDTH / UNIT;
#pragma unroll 1
  for (int at = rows.first * ACROSS + thread; at < rows.end * ACROSS; at += COOPERATIVE * 128) {
    const int row = at / ACROSS, from = at % ACROSS * UNIT;
    float v[UNIT] = {};
#pragma unroll
    for (int i = 0; i < UNIT; i += 4) {
      Vector<float, 4> parts[SPLIT];
#pragma unroll
      for (int rank = 0; rank < SPLIT; rank++) parts[rank] = cluster_load(rank, all + row * ACC_PITCH + from + i);
#pragma unroll
      for (int rank = 0; rank < SPLIT; rank++)
#pragma unroll
        for (int e = 0; e < 4; e++) v[i + e] += parts[rank].at[e];
    }
    Channel channel[UNIT];
#pragma unroll
    for (int e = 0; e < UNIT; e++) channel[e] = channels[PIXELS_ARE_ROWS ? from + e : row];
#pragma unroll
    for (int e = 0; e < UNIT; e += Y_VECTOR) {
      const int pixel = PIXELS_ARE_ROWS ? row : from + e, filter = PIXELS_ARE_ROWS ? from + e : row;
      if (pixels.first + pixel >= pixels.end || column.filter + filter >= FILTERS) break;
      const Coord at_output = coord_of(s, pixels.first + pixel, column.group * FILTERS + column.filter + filter);
      finish_vector<Y_VECTOR, PIXELS_ARE_ROWS != 0>(args, channel + e, v + e, at_output);
    }
  }
  // No block may exit before all others have read its accumulators.
  cluster_arrive();
  cluster_wait();
}

// Where SPLIT blocks share a tile: each leaves its sums in shared memory, adds up those of all for a share of the rows,
// in the order of their ranks, and finishes these. A block has one tile.

static_assert(SPLIT == 1 || (TEAMS == 1 && !RESIDENT), "a block has one tile");

DEVICE void finish_share(const Args& args, const float (&sums)[BLOCKS][WIDTH / 2], float* all, const Channel* channels) {
  const Shape& s = args.shape;
  const Column column = column_of(tile_number());
  const int first_pixel = tile_number() / COLUMNS * TILE_P;
  const int thread = threadIdx.x - FEEDERS * 128, lane = thread % 32;
#pragma unroll
  for (int block = 0; block < BLOCKS; block++)
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i += 2) {
      const int row = thread / 128 * ROWS + block * 64 + thread / 32 % 4 * 16 + i / 2 % 2 * 8 + lane / 4;
      *(Vector<float, 2>*)(all + row * SUM_PITCH + i / 4 * 8 + lane % 4 * 2) = {sums[block][i], sums[block][i + 1]};
    }
  cluster_meet();

  const int left = PIXELS_ARE_ROWS ? s.pixels - first_pixel : FILTERS - column.filter;
  const Rows rows = share_of(left < CONSUMERS * ROWS ? left : CONSUMERS * ROWS);
  // What a thread finishes at once.
  constexpr int UNIT = Y_VECTOR < 4 ? 4 : Y_VECTOR, ACROSS = WIDTH / UNIT;
#pragma unroll 1
  for (int at = rows.first * ACROSS + thread; at < rows.end * ACROSS; at += CONSUMERS * 128) {
    const int row = at / ACROSS, from = at % ACROSS * UNIT;
    float v[UNIT] = {};
#pragma unroll
    for (int i = 0; i < UNIT; i += 4) {
      Vector<float, 4> parts[SPLIT];
#pragma unroll
      for (int rank = 0; rank < SPLIT; rank++) parts[rank] = sums_of(rank, all + row * SUM_PITCH + from + i);
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
      if (first_pixel + pixel >= s.pixels || column.filter + filter >= FILTERS) break;
      const Place place = place_of(s, first_pixel + pixel, column.group * FILTERS + column.filter + filter);
      finish_vector<Y_VECTOR, PIXELS_ARE_ROWS != 0>(args, channel + e, v + e, place);
    }
  }
  // No block leaves before all have read its sums.
  cluster_leave();
  cluster_wait();
}

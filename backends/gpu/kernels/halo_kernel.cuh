// The kernel: tile after tile is read, multiplied and written. What the next one sees is on its way meanwhile, unless results are
// DIRECT.
//
// needs macros: AT_ONCE, DYNAMIC_SHARED, KERNEL
// needs constants: ACC_AT, COPIES_ASYNC, BLOCK_COLUMNS, CHANNELS_AT, DIRECT, FILTER_TILES, OCCUPANCY, SHARED, SPOTS_AT,
//   THREADS, TILE_F, TILE_G, WINDOW_P, X_VECTOR, Y_VECTOR
// needs sizes: tiles
// needs types: Channel, Column, Corner, Loader, Multiplier, Shape, Spot, T
// needs functions: begin_grid, channel_of, corner_of, is_aligned, is_plain, load_filters, spot_of, wait_for_copies,
//   write_tile

KERNEL(THREADS, AT_ONCE(OCCUPANCY, SHARED)) {
  begin_grid();
  DYNAMIC_SHARED(char, shared);
  float* const acc = (float*)(shared + ACC_AT);
  Channel* const channels = (Channel*)(shared + CHANNELS_AT);
  Spot* const spots = (Spot*)(shared + SPOTS_AT);
  const Shape& s = args.shape;
  const int at = blockIdx.x % BLOCK_COLUMNS;
  const Column column = {at / FILTER_TILES * TILE_G, at % FILTER_TILES * TILE_F};
  const bool x_aligned = X_VECTOR > 1 && is_aligned(args.x, X_VECTOR * (int)sizeof(T));
  const bool y_aligned = is_aligned(args.y, Y_VECTOR * (int)sizeof(T)), plain = is_plain(args);
  const int walkers = gridDim.x / BLOCK_COLUMNS;
#pragma unroll 1
  for (int i = threadIdx.x; i < WINDOW_P; i += THREADS) spots[i] = spot_of(s, i);
  __syncthreads();
  Loader loader(args, shared, spots, column.group);
  const Multiplier multiplier;
  const int first = blockIdx.x / BLOCK_COLUMNS;
  Corner before = {};
#pragma unroll 1
  for (int tile = first;; tile += walkers) {
    const Corner corner = corner_of(s, tile);
    if (tile < s.tiles) loader.load(corner, x_aligned);
    if (tile == first) {
      load_filters(args, shared, column);
#pragma unroll 1
      for (int i = threadIdx.x; i < column.count(); i += THREADS) channels[i] = channel_of(args, column.first() + i);
    } else if constexpr (!DIRECT) {
      if (!y_aligned) write_tile<false, 1>(args, acc, channels, before, column);
      else if (plain) write_tile<true, Y_VECTOR>(args, acc, channels, before, column);
      else write_tile<false, Y_VECTOR>(args, acc, channels, before, column);
    }
    if (tile >= s.tiles) break;
    if (COPIES_ASYNC) wait_for_copies();
    __syncthreads();
    multiplier.multiply(args, shared, acc, channels, corner, column, y_aligned, plain);
    __syncthreads();
    before = corner;
  }
}

// Filters of a single tap of which a block has no room for all: a filter's channels lie side by side in memory, so TMA brings a step's as
// rows of a stage of their own.
//
// needs macros: DEVICE
// needs constants: FILTERS, FILTER_STAGES, FILTER_STEPS, ROW, SPLIT, STREAMED, TAPS, TILE_F, TILE_K, W_AT, W_BYTES
// needs types: Barriers, Column, Launch, PipelineState, T
// needs functions: column_of, mbarrier_expect_tx, mbarrier_wait, tile_number, tile_stride, tiles_of, tma_load_rows,
//   tma_prefetch_map, wait_for_grids

static_assert(STREAMED && SPLIT == 1 && TAPS == 1 && ROW == TILE_K * (int)sizeof(T) && W_BYTES == TILE_F * ROW,
              "as the launch was planned");

DEVICE bool prepares(const Launch&) { return false; }
DEVICE void prepare(const Launch&) {}
DEVICE void wait_for_image(const Launch&) { wait_for_grids(); }

DEVICE void stream_filters(const Launch& launch, unsigned shared, const Barriers& barriers) {
  tma_prefetch_map(&launch.w);
  wait_for_grids();
  PipelineState<FILTER_STAGES> pipe(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(launch.args.shape); tile += tile_stride()) {
    const Column column = column_of(tile);
    const int filter = column.group * FILTERS + column.filter;
#pragma unroll 1
    for (int step = 0; step < FILTER_STEPS; step++) {
      const unsigned full = barriers.filters_full(pipe.stage);
      mbarrier_wait(barriers.filters_empty(pipe.stage), pipe.phase ^ 1);
      // Steps of channels and tiles of filters are whole.
      mbarrier_expect_tx(full, W_BYTES);
      tma_load_rows(shared + W_AT + pipe.stage * W_BYTES, &launch.w, full, step * TILE_K, filter);
      pipe.next();
    }
  }
}

// Load::Planes, for 1x1 convolutions of images whose positions are neighbours in memory: columns of the product are
// pixels, which TMA loads as they lie, BLOCK_P positions of TILE_K channels at a time, and rows are filters, whose depth is one
// row in memory. Positions beyond the image come as zeros.
//
// needs macros: DEVICE
// needs constants: BLOCK_P, CHANNELS, FILTERS, LOADED_P, PRODUCERS, REARRANGED, RESIDENT, ROW, STAGES, STEPS, TAPS,
//   TILE_K, W_AT, W_BYTES, X_BYTES, X_LOADED
// needs sizes: out_plane
// needs types: Barriers, Column, Launch, PipelineState, Shape
// needs functions: column_of, first_step, mbarrier_expect_tx, mbarrier_wait, pixels_of, step_count, tile_number,
//   tile_stride, tiles_of, tma_load_planes, tma_load_rows, tma_prefetch_map, wait_for_grids

static_assert(STEPS == (CHANNELS + TILE_K - 1) / TILE_K && TAPS == 1 && PRODUCERS == 1, "as the launch was planned");

// Issues the loads of every step of every tile. One thread calls it.
DEVICE void load_operands(const Launch& launch, unsigned shared, const Barriers& barriers) {
  const Shape& s = launch.args.shape;
  tma_prefetch_map(&launch.x);
  wait_for_grids();
  if (RESIDENT && !REARRANGED && tile_number() < tiles_of(s)) {
    const Column column = column_of(tile_number());
    mbarrier_expect_tx(barriers.filters(), STEPS * W_BYTES);
#pragma unroll 1
    for (int step = 0; step < STEPS; step++)
      tma_load_rows(shared + W_AT + step * W_BYTES, &launch.w, barriers.filters(), step * TILE_K,
                    column.group * FILTERS + column.filter);
  }
  PipelineState<STAGES> pipe(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(s); tile += tile_stride()) {
    const Column column = column_of(tile);
    const int first = pixels_of(s, tile).first, n = first / s.out_plane, p = first % s.out_plane;
    const int begin = first_step<STEPS>(), end = begin + step_count<STEPS>();
#pragma unroll 1
    for (int step = begin; step < end; step++) {
      const unsigned full = barriers.full(pipe.stage), to = shared + pipe.stage * X_BYTES;
      mbarrier_wait(barriers.empty(pipe.stage), pipe.phase ^ 1);
      mbarrier_expect_tx(full, RESIDENT ? X_LOADED : X_LOADED + W_BYTES);
#pragma unroll
      for (int at = 0; at < LOADED_P; at += BLOCK_P)
        tma_load_planes(to + at * ROW, &launch.x, full, p + at, column.group * CHANNELS + step * TILE_K, n);
      if (!RESIDENT)
        tma_load_rows(shared + W_AT + pipe.stage * W_BYTES, &launch.w, full, step * TILE_K,
                      column.group * FILTERS + column.filter);
      pipe.next();
    }
  }
}

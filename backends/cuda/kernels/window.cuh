// Load::Halo, for convolutions without strides: rows of the product are the pixels of a rectangle of an output's plane. TMA
// loads the window of the image that several taps see together, with its halo, TILE_K channels at a time, and the filters of
// these taps; the taps multiply it one after the other, each from another pixel on. Pixels beyond the image come as zeros. Where a
// step would reach into another group's channels, groups are a dimension of the image's map (OF_GROUPS), in two dimensions: then
// what is beyond a group's channels comes as zeros too.
//
// needs macros: DEVICE
// needs constants: CHANNELS, DILATION_D, DILATION_H, FILTERS, FILTER_STEPS, OF_GROUPS, PAD_D, PAD_H, PAD_W, PRODUCERS,
//   RESIDENT, SPLIT, STAGES, STEPS, STEP_TAPS, TAPS, TAPS_H, TAPS_W, TILE_K, W_AT, W_BYTES, W_LOADED, X_BYTES, X_LOADED
// needs sizes: out_h, out_plane, out_w
// needs types: Barriers, Column, Launch, PipelineState, Rectangle, Shape
// needs functions: column_of, first_step, load_filters_of, mbarrier_expect_tx, mbarrier_wait, rectangle_of, step_count, tile_number,
//   tile_stride, tiles_of, tma_load_box, tma_load_box_5d, tma_prefetch_map, wait_for_grids

constexpr int CHANNEL_STEPS = (CHANNELS + TILE_K - 1) / TILE_K, STEP_LINES = STEP_TAPS / TAPS_W;
static_assert(FILTER_STEPS == CHANNEL_STEPS * TAPS && STEPS * STEP_TAPS == FILTER_STEPS && PRODUCERS == 1,
              "as the launch was planned");

// Loads the filters of taps of a column from one tap on, TILE_K channels of each.
DEVICE void load_filters(const Launch& launch, unsigned to, unsigned barrier, const Column& column, int c, int tap,
                         int count) {
#pragma unroll 1
  for (int t = tap; t < tap + count; t++, to += W_BYTES)
    load_filters_of(to, launch, barrier, c, t, column.group * FILTERS + column.filter);
}

// Issues the loads of every step of every tile. One thread calls it.
DEVICE void load_operands(const Launch& launch, unsigned shared, const Barriers& barriers) {
  const Shape& s = launch.args.shape;
  tma_prefetch_map(&launch.x);
  if (RESIDENT && tile_number() < tiles_of(s)) {
    wait_for_grids();
    mbarrier_expect_tx(barriers.filters(), FILTER_STEPS * W_LOADED);
#pragma unroll 1
    for (int c = 0; c < CHANNEL_STEPS; c++)
      load_filters(launch, shared + W_AT + c * TAPS * W_BYTES, barriers.filters(), column_of(tile_number()), c * TILE_K,
                   0, TAPS);
  }
  PipelineState<STAGES> pipe(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(s); tile += tile_stride()) {
    // The steps of the tile before this block's share, and the steps of its share.
    int before = first_step<STEPS>(), steps = step_count<STEPS>();
    const Column column = column_of(tile);
    const Rectangle rectangle = rectangle_of(s, tile);
    const int planes = s.out_plane / (s.out_h * s.out_w), n = rectangle.plane / planes,
              d = rectangle.plane % planes - PAD_D;
    wait_for_grids(rectangle.h | rectangle.w | n);
#pragma unroll 1
    for (int c = 0; c < CHANNEL_STEPS; c++)
#pragma unroll 1
      for (int tap = 0; tap < TAPS; tap += STEP_TAPS) {
        if (SPLIT > 1 && before-- > 0) continue;
        if (SPLIT > 1 && steps-- <= 0) continue;
        const unsigned full = barriers.full(pipe.stage);
        mbarrier_wait(barriers.empty(pipe.stage), pipe.phase ^ 1);
        mbarrier_expect_tx(full, X_LOADED + (RESIDENT ? 0 : STEP_TAPS * W_LOADED));
        const unsigned to = shared + pipe.stage * X_BYTES;
        const int w = rectangle.w - PAD_W, h = rectangle.h - PAD_H + tap / TAPS_W % TAPS_H * DILATION_H;
        if (OF_GROUPS) tma_load_box_5d(to, &launch.x, full, c * TILE_K, column.group, w, h, n);
        else
          tma_load_box(to, &launch.x, full, column.group * CHANNELS + c * TILE_K, w, h,
                       d + tap / (TAPS_W * TAPS_H) * DILATION_D, n);
        if (!RESIDENT)
          load_filters(launch, shared + W_AT + pipe.stage * STEP_TAPS * W_BYTES, full, column, c * TILE_K, tap,
                       STEP_TAPS);
        pipe.next();
      }
  }
}

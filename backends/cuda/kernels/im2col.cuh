// Load::Tma: rows of the product are pixels, which TMA loads in its im2col mode, one tap and TILE_K channels at a time;
// columns are filters; results are written along channels. One thread of the producer warpgroup issues all TMA loads, and
// its other three warps load the parameters of channels. Where a step would reach into another group's channels, groups are a
// dimension of the image's map (OF_GROUPS), in two dimensions: pixels lie in the first group, and are those of another by an
// offset, as a tap's are.
//
// needs macros: DEVICE
// needs constants: CHANNELS, DILATION_D, DILATION_H, DILATION_W, DIMS, FILTERS, OF_GROUPS, PAD_D, PAD_H,
//   PAD_W, PRODUCERS, RESIDENT, SPLIT, STAGES, STEPS, STRIDE_D, STRIDE_H, STRIDE_W, TAPS, TAPS_D, TAPS_H, TAPS_W, TILE_K,
//   W_AT, W_BYTES, W_LOADED, X_BYTES, X_LOADED
// needs sizes: out_h, out_plane, out_w
// needs types: Barriers, Column, Launch, PipelineState, Shape
// needs functions: column_of, first_loaded, first_step, load_filters_of, mbarrier_expect_tx, mbarrier_wait, step_count, tile_number, tile_stride,
//   tiles_of, tma_load_im2col, tma_load_im2col_5d, tma_prefetch_map, wait_for_grids

constexpr int CHANNEL_STEPS = (CHANNELS + TILE_K - 1) / TILE_K;
static_assert(STEPS == CHANNEL_STEPS * TAPS && PRODUCERS == 1, "as the launch was planned");

// Issues the loads of every step of every tile. One thread calls it.
DEVICE void load_operands(const Launch& launch, unsigned shared, const Barriers& barriers) {
  const Shape& s = launch.args.shape;
  tma_prefetch_map(&launch.x);
  if (RESIDENT && tile_number() < tiles_of(s)) {
    wait_for_grids();
    const Column column = column_of(tile_number());
    mbarrier_expect_tx(barriers.filters(), STEPS * W_LOADED);
    unsigned to = shared + W_AT;
#pragma unroll 1
    for (int c = 0; c < CHANNEL_STEPS; c++)
#pragma unroll 1
      for (int t = 0; t < TAPS; t++, to += W_BYTES)
        load_filters_of(to, launch, barriers.filters(), c * TILE_K, t, column.group * FILTERS + column.filter);
  }
  PipelineState<STAGES> pipe(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(s); tile += tile_stride()) {
    // The steps of the tile before this block's share, and the steps of its share.
    int before = first_step<STEPS>(), steps = step_count<STEPS>();
    const Column column = column_of(tile);
    const int k = column.group * FILTERS + column.filter, first = first_loaded(s, tile);
    const int n = first / s.out_plane, p = first % s.out_plane, row = p / s.out_w;
    const int plane = DIMS == 2 ? 0 : row / s.out_h, line = DIMS == 2 ? row : row % s.out_h,
              column_of_line = p % s.out_w;
    const int w = column_of_line * STRIDE_W - PAD_W, h = line * STRIDE_H - PAD_H, d = plane * STRIDE_D - PAD_D;
    wait_for_grids(column_of_line | line | plane);
#pragma unroll 1
    for (int c = 0; c < CHANNEL_STEPS; c++)
#pragma unroll 1
      for (int td = 0; td < TAPS_D; td++)
#pragma unroll 1
        for (int th = 0; th < TAPS_H; th++)
#pragma unroll 1
          for (int tw = 0; tw < TAPS_W; tw++) {
            if (SPLIT > 1 && before-- > 0) continue;
            if (SPLIT > 1 && steps-- <= 0) continue;
            const unsigned full = barriers.full(pipe.stage);
            mbarrier_wait(barriers.empty(pipe.stage), pipe.phase ^ 1);
            // The bytes that TMA fills with zeros count too.
            mbarrier_expect_tx(full, RESIDENT ? X_LOADED : X_LOADED + W_LOADED);
            const unsigned to = shared + pipe.stage * X_BYTES;
            if (OF_GROUPS)
              tma_load_im2col_5d(to, &launch.x, full, c * TILE_K, 0, w, h, n, column.group, tw * DILATION_W,
                                 th * DILATION_H);
            else
              tma_load_im2col(to, &launch.x, full, column.group * CHANNELS + c * TILE_K, w, h, d, n, tw * DILATION_W,
                              th * DILATION_H, td * DILATION_D);
            if (!RESIDENT)
              load_filters_of(shared + W_AT + pipe.stage * W_BYTES, launch, full, c * TILE_K,
                              (td * TAPS_H + th) * TAPS_W + tw, k);
            pipe.next();
          }
  }
}

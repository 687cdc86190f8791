// Load::Packed, for 1x1 convolutions of images whose planes follow one another without gaps, wherever these begin: the
// channels of a step of an image are one run of bytes, which bulk copies bring as they lie, for every image that a tile has
// pixels of. Rows of the product are pixels, columns are filters, whose depth is one row in memory.
//
// needs macros: DEVICE
// needs constants: CHANNELS, FILTERS, IMAGES, LOADED_P, PLANE, PRODUCERS, REARRANGED, RESIDENT, STAGES, STEPS, TAPS,
//   TILE_K, W_AT, W_BYTES, X_BYTES
// needs sizes: x_n
// needs types: Barriers, Column, Launch, PipelineState, Pixels, Shape, T
// needs functions: bulk_load, column_of, first_step, mbarrier_expect_tx, mbarrier_wait, pixels_of, step_count,
//   tile_number, tile_stride, tiles_of, tma_load_rows, wait_for_grids

static_assert(STEPS == (CHANNELS + TILE_K - 1) / TILE_K && TAPS == 1 && PRODUCERS == 1 && LOADED_P == IMAGES * PLANE,
              "as the launch was planned");
static_assert(!REARRANGED && CHANNELS * PLANE % 8 == 0, "what is copied is whole numbers of 16 bytes");

// Issues the loads of every step of every tile. One thread calls it.
DEVICE void load_operands(const Launch& launch, unsigned shared, const Barriers& barriers) {
  const Shape& s = launch.args.shape;
  wait_for_grids();
  if (RESIDENT && tile_number() < tiles_of(s)) {
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
    const Pixels pixels = pixels_of(s, tile);
    const int image = pixels.first / PLANE, images = (pixels.end - 1) / PLANE - image + 1;
    const T* const first = (const T*)launch.args.x + image * s.x_n + column.group * (CHANNELS * PLANE);
    const int begin = first_step<STEPS>(), end = begin + step_count<STEPS>();
#pragma unroll 1
    for (int step = begin; step < end; step++) {
      const unsigned full = barriers.full(pipe.stage), to = shared + pipe.stage * X_BYTES;
      const int channels = CHANNELS - step * TILE_K < TILE_K ? CHANNELS - step * TILE_K : TILE_K;
      const unsigned bytes = channels * (PLANE * 2);
      mbarrier_wait(barriers.empty(pipe.stage), pipe.phase ^ 1);
      mbarrier_expect_tx(full, images * bytes + (RESIDENT ? 0 : W_BYTES));
#pragma unroll
      for (int i = 0; i < IMAGES; i++)
        if (i < images)
          bulk_load(to + i * (TILE_K * PLANE * 2), first + i * s.x_n + step * (TILE_K * PLANE), bytes, full);
      if (!RESIDENT)
        tma_load_rows(shared + W_AT + pipe.stage * W_BYTES, &launch.w, full, step * TILE_K,
                      column.group * FILTERS + column.filter);
      pipe.next();
    }
  }
}

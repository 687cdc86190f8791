// Load::Lines, for convolutions without strides of images whose lines have no gaps and start at multiples of 16 bytes:
// columns of the product are pixels, of which TMA loads whole lines as they lie, and rows are filters. A box of TMA starts
// at a multiple of 16 bytes, so no box has the pixels of a tap beside the middle one. Therefore sums are moved, not pixels:
// the lines are multiplied by a column of taps, all sums move by a pixel, the same lines are multiplied by the next column.
// Lines above and below the image, and columns behind it, come as zeros.
//
// needs macros: DEVICE
// needs constants: CHANNELS, KEEP, LINE, LINES, LOADED_P, PAD_H, PRODUCERS, RESIDENT, ROW, STAGES, STEPS, STREAMED,
//   TAPS_H, TAPS_W, TILE_K, X_BYTES, X_LOADED
// needs sizes: out_plane, out_w
// needs types: Barriers, Launch, PipelineState, Shape
// needs functions: column_of, mbarrier_expect_tx, mbarrier_wait, pixels_of, tile_number, tile_stride, tiles_of,
//   tma_load_lines, tma_prefetch_map, wait_for_image

constexpr int CHANNEL_STEPS = (CHANNELS + TILE_K - 1) / TILE_K;
static_assert(STEPS == CHANNEL_STEPS * (KEEP ? 1 : TAPS_W) && RESIDENT != STREAMED && PRODUCERS == 1,
              "as the launch was planned");
// Bytes of a line in a stage.
constexpr unsigned LINE_BYTES = LINE * ROW;
static_assert(LOADED_P == (LINES + TAPS_H - 1) * LINE, "a stage has what a tile sees");

// Issues the loads of every tile: KEEP says that a stage is kept for all columns of taps, else it comes for each of them.
// One thread calls it.
DEVICE void load_operands(const Launch& launch, unsigned shared, const Barriers& barriers) {
  const Shape& s = launch.args.shape;
  tma_prefetch_map(&launch.x);
  wait_for_image(launch);
  PipelineState<STAGES> pipe(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(s); tile += tile_stride()) {
    const int first = pixels_of(s, tile).first, n = first / s.out_plane;
    const int h = first % s.out_plane / s.out_w - PAD_H, c = column_of(tile).group * CHANNELS;
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
      const unsigned full = barriers.full(pipe.stage);
      mbarrier_wait(barriers.empty(pipe.stage), pipe.phase ^ 1);
      mbarrier_expect_tx(full, X_LOADED);
      tma_load_lines(shared + pipe.stage * X_BYTES, &launch.x, full, c + step % CHANNEL_STEPS * TILE_K, h, n);
      pipe.next();
    }
  }
}

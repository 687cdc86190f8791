// The main loop of Load::Runs of 16 bits: while the tensor cores multiply 16 channels of some taps of a line, those that follow are read,
// and are put together when the products before have read theirs.
//
// needs macros: DEVICE
// needs constants: ATOMS, FILTER_STAGES, FILTER_STEPS, PINGPONG, STREAMED_TAPS, TAPS_H, TAPS_W, TILE_K, WIDTH, W_AT, W_BYTES
// needs types: Barriers, LineWalk, PipelineState, PixelRows, PixelWords, T, TilePixels
// needs functions: first_row, mbarrier_arrive, mbarrier_wait, tile_number, tile_stride, wgmma, wgmma_commit, wgmma_descriptor,
//   wgmma_fence, wgmma_fence_accumulators, wgmma_fence_rows, wgmma_wait

// Of the depth each instruction takes 16 channels.
constexpr int BLOCKS = TILE_K / 16;
static_assert(BLOCKS % 2 == 0, "factors alternate between two sets of registers");
// Lines of taps that are unrolled, whose places in a stage are constants then: a plane's, if these are few.
constexpr int UNROLLED_LINES = STREAMED_TAPS == TAPS_W && TAPS_H <= 3 ? TAPS_H : 1;

DEVICE void mainloop(float (&acc)[ATOMS][WIDTH / 2], unsigned shared, const Barriers& barriers, unsigned count) {
  constexpr int LINES_OF_TAPS = FILTER_STEPS / STREAMED_TAPS;
  const int lane = threadIdx.x % 32, set = count % PINGPONG;
  const PixelRows rows(TilePixels(tile_number() + (int)count * tile_stride()), first_row());
  LineWalk walk(rows, shared, barriers, count);
  PipelineState<FILTER_STAGES> pipe(count * LINES_OF_TAPS);
  if (PINGPONG > 1) mbarrier_wait(barriers.order(set), (count / PINGPONG & 1) ^ (set == 0));
  unsigned factors[2][STREAMED_TAPS][4] = {};
  PixelWords words = {};
  walk.find(words);
  words.load(0);
  words.put(factors[0], 0);
  int last = 0;
#pragma unroll 1
  for (int n = 0; n < LINES_OF_TAPS; n += UNROLLED_LINES)
#pragma unroll
    for (int of_plane = 0; of_plane < UNROLLED_LINES; of_plane++) {
      const int line = n + of_plane;
      if (UNROLLED_LINES > 1) walk.is_at(of_plane);
      mbarrier_wait(barriers.filters_full(pipe.stage), pipe.phase);
      if (PINGPONG > 1 && line == LINES_OF_TAPS - 1 && lane == 0) mbarrier_arrive(barriers.order((set + 1) % PINGPONG));
      const auto columns = wgmma_descriptor(shared + W_AT + pipe.stage * (STREAMED_TAPS * W_BYTES));
#pragma unroll
      for (int block = 0; block < BLOCKS; block++) {
        constexpr unsigned TAP = W_BYTES >> 4;
        const int i = block % 2, next = (block + 1) % BLOCKS;
        wgmma_fence_accumulators(acc[0]);
        wgmma_fence();
#pragma unroll
        for (int t = 0; t < STREAMED_TAPS; t++)
          wgmma(acc[0], factors[i][t], columns + t * TAP + block * 2, line + block + t != 0, T());
        wgmma_commit();
        wgmma_fence_accumulators(acc[0]);
        const bool more = next != 0 || line + 1 < LINES_OF_TAPS;
        if (next == 0) {
          // The step's last words are in the registers of all lanes.
          if (walk.ends() && lane == 0) mbarrier_arrive(barriers.empty(walk.pipe.stage));
          walk.next();
          if (more) walk.find(words);
        }
        if (more) words.load(next);
        // When this returns, the products before have read their operands.
        wgmma_wait<1>();
        wgmma_fence_rows(factors[1 - i]);
        if (block == 0 && line > 0 && lane == 0) mbarrier_arrive(barriers.filters_empty(last));
        if (more) words.put(factors[1 - i], next);
      }
      last = pipe.stage;
      pipe.next();
    }
  wgmma_wait<0>();
  wgmma_fence_accumulators(acc[0]);
  wgmma_fence_rows(factors[0]);
  wgmma_fence_rows(factors[1]);
  if (lane == 0) mbarrier_arrive(barriers.filters_empty(last));
}

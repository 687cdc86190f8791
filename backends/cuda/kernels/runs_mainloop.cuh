// The main loop of Load::Runs: factors of a tap are read while the tensor cores multiply those of the tap before.
//
// needs macros: DEVICE
// needs constants: ATOMS, FILTER_STAGES, FILTER_STEPS, PINGPONG, TAPS_H, TAPS_W, TILE_K, WIDTH, W_AT, W_BYTES
// needs types: Barriers, PipelineState, PixelRows, T, TapWalk, TilePixels
// needs functions: column_of, first_row, mbarrier_arrive, mbarrier_wait, tile_number, tile_stride, wgmma, wgmma_commit, wgmma_descriptor,
//   wgmma_fence, wgmma_fence_accumulators, wgmma_fence_rows, wgmma_wait

// Of the depth each instruction takes 8 channels.
constexpr int BLOCKS = TILE_K / 8;
// Taps whose places in a stage and bits are constants, as so many are unrolled: a plane's, if these are few, such that factors alternate
// between two sets of registers.
constexpr int PLANE_TAPS = TAPS_H * TAPS_W;
constexpr bool UNROLLED = PLANE_TAPS <= 9;
constexpr int UNROLLED_TAPS = !UNROLLED ? 2 : PLANE_TAPS % 2 == 0 ? PLANE_TAPS : 2 * PLANE_TAPS;

DEVICE void mainloop(float (&acc)[ATOMS][WIDTH / 2], unsigned shared, const Barriers& barriers, unsigned count) {
  const int lane = threadIdx.x % 32, set = count % PINGPONG;
  const int tile = tile_number() + (int)count * tile_stride();
  const PixelRows rows(TilePixels(tile), column_of(tile).group, first_row());
  TapWalk walk(rows, shared, barriers, count);
  PipelineState<FILTER_STAGES> pipe(count * FILTER_STEPS);
  if (PINGPONG > 1) mbarrier_wait(barriers.order(set), (count / PINGPONG & 1) ^ (set == 0));
  unsigned factors[2][BLOCKS][4] = {};
  walk.load(factors[0], 0);
  int last = 0;
#pragma unroll 1
  for (int from = 0; from < FILTER_STEPS; from += UNROLLED_TAPS) {
#pragma unroll
    for (int n = 0; n < UNROLLED_TAPS; n++) {
      if (from + n >= FILTER_STEPS) break;
      const int i = n % 2;
      if (UNROLLED) walk.is_at(n % PLANE_TAPS);
      mbarrier_wait(barriers.filters_full(pipe.stage), pipe.phase);
      if (PINGPONG > 1 && from + n == FILTER_STEPS - 1 && lane == 0)
        mbarrier_arrive(barriers.order((set + 1) % PINGPONG));
      const auto columns = wgmma_descriptor(shared + W_AT + pipe.stage * W_BYTES);
      wgmma_fence_accumulators(acc[0]);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < BLOCKS; k++) wgmma(acc[0], factors[i][k], columns + k * 2, from + n + k != 0, T());
      wgmma_commit();
      wgmma_fence_accumulators(acc[0]);
      // The factors of a step's last tap are in the registers of all lanes.
      if (walk.ends() && lane == 0) mbarrier_arrive(barriers.empty(walk.pipe.stage));
      // When this returns, the products of the tap before have read their operands. Those of the next come meanwhile.
      wgmma_wait<1>();
      wgmma_fence_rows(factors[1 - i]);
      if (from + n > 0 && lane == 0) mbarrier_arrive(barriers.filters_empty(last));
      last = pipe.stage;
      pipe.next();
      if (from + n + 1 == FILTER_STEPS) break;
      walk.next();
      walk.load(factors[1 - i], 0);
    }
  }
  wgmma_wait<0>();
  wgmma_fence_accumulators(acc[0]);
  wgmma_fence_rows(factors[0]);
  wgmma_fence_rows(factors[1]);
  if (lane == 0) mbarrier_arrive(barriers.filters_empty(last));
}

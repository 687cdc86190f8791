// The main loop of Load::Runs with 3xTF32: factors of an interval are read and split while the tensor cores multiply those of the
// interval before.
//
// needs macros: DEVICE
// needs constants: ATOMS, FILTER_STAGES, FILTER_STEPS, INTERVAL, INTERVALS, PINGPONG, WIDTH, W_AT, W_BYTES, W_LOADED
// needs types: Barriers, FactorParts, PipelineState, PixelRows, TapWalk, TilePixels
// needs functions: column_of, first_row, issue_interval, mbarrier_arrive, mbarrier_wait, tile_number, tile_stride, wgmma_descriptor,
//   wgmma_fence_accumulators, wgmma_wait

DEVICE void mainloop(float (&acc)[ATOMS][WIDTH / 2], unsigned shared, const Barriers& barriers, unsigned count) {
  const int lane = threadIdx.x % 32, set = count % PINGPONG;
  const int tile = tile_number() + (int)count * tile_stride();
  const PixelRows rows(TilePixels(tile), column_of(tile).group, first_row());
  TapWalk walk(rows, shared, barriers, count);
  PipelineState<FILTER_STAGES> pipe(count * FILTER_STEPS);
  if (PINGPONG > 1) mbarrier_wait(barriers.order(set), (count / PINGPONG & 1) ^ (set == 0));
#pragma unroll
  for (int i = 0; i < WIDTH / 2; i++) acc[0][i] = 0.f;
  float sum[WIDTH / 2], factors[INTERVAL][4];
  walk.load(factors, 0);
  FactorParts parts[2] = {FactorParts(factors), FactorParts(factors)};
  constexpr int ALL = FILTER_STEPS * INTERVALS;
#pragma unroll 1
  for (int from = 0; from < ALL; from += 2) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      if (from + i >= ALL) break;
      const int interval = i % INTERVALS;
      const bool begins = interval == 0, ends = interval + 1 == INTERVALS;
      if (begins) mbarrier_wait(barriers.filters_full(pipe.stage), pipe.phase);
      if (PINGPONG > 1 && from + i == ALL - 1 && lane == 0) mbarrier_arrive(barriers.order((set + 1) % PINGPONG));
      const auto high = wgmma_descriptor(shared + W_AT + pipe.stage * W_BYTES) + interval * INTERVAL * 2;
      issue_interval(sum, parts[i], high, high + (W_LOADED >> 4));
      // The next interval's factors come meanwhile; those of a step's last tap are in the registers of all lanes by now.
      if (ends && walk.ends() && lane == 0) mbarrier_arrive(barriers.empty(walk.pipe.stage));
      if (from + i + 1 < ALL) {
        if (ends) walk.next();
        walk.load(factors, ends ? 0 : INTERVAL);
        parts[1 - i] = FactorParts(factors);
      }
      wgmma_wait<0>();
      wgmma_fence_accumulators(sum);
      parts[i].fence();
      if (ends && lane == 0) mbarrier_arrive(barriers.filters_empty(pipe.stage));
      if (ends) pipe.next();
#pragma unroll
      for (int j = 0; j < WIDTH / 2; j++) acc[0][j] += sum[j];
    }
  }
}

// The main loop of Load::Transposed: a stage's pixels serve a plane of taps, whose filters come line by line.
//
// needs macros: DEVICE
// needs constants: ATOMS, COOPERATIVE, FILTER_STAGES, LINE, PINGPONG, PRODUCERS, ROW, ROWS, STAGES, STEPS, STREAMED_BYTES,
//   TAPS_H, TAPS_W, WIDTH, W_AT, W_BYTES, X_BYTES
// needs types: Barriers, PipelineState, T
// needs functions: mbarrier_arrive, mbarrier_wait, wgmma, wgmma_commit, wgmma_descriptor, wgmma_fence,
//   wgmma_fence_accumulators, wgmma_wait

DEVICE void mainloop(float (&acc)[ATOMS][WIDTH / 2], unsigned shared, const Barriers& barriers, unsigned count) {
  const int consumer = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE, lane = threadIdx.x % 32, set = count % PINGPONG;
  PipelineState<STAGES> pipe(count * STEPS);
  PipelineState<FILTER_STAGES> filter_pipe(count * (STEPS * TAPS_H));
  if (PINGPONG > 1) mbarrier_wait(barriers.order(set), (count / PINGPONG & 1) ^ (set == 0));
  int last = 0, last_filters = 0;
#pragma unroll 1
  for (int step = 0; step < STEPS; step++) {
    mbarrier_wait(barriers.full(pipe.stage), pipe.phase);
#pragma unroll 1
    for (int h = 0; h < TAPS_H; h++) {
      mbarrier_wait(barriers.filters_full(filter_pipe.stage), filter_pipe.phase);
      const bool ends = step == STEPS - 1 && h == TAPS_H - 1;
      if (PINGPONG > 1 && ends && lane == 0) mbarrier_arrive(barriers.order((set + 1) % PINGPONG));
      const auto rows = wgmma_descriptor(shared + W_AT + filter_pipe.stage * STREAMED_BYTES + consumer * (ROWS * ROW));
      const auto columns = wgmma_descriptor(shared + pipe.stage * X_BYTES + h * (LINE * ROW));
#pragma unroll
      for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
      wgmma_fence();
#pragma unroll
      for (int w = 0; w < TAPS_W; w++)
#pragma unroll
        for (int k = 0; k < ROW / 32; k++)
#pragma unroll
          for (int atom = 0; atom < ATOMS; atom++)
            wgmma(acc[atom], rows + (w * W_BYTES + atom * (64 * ROW) >> 4) + k * 2, columns + (w * ROW >> 4) + k * 2,
                  step + h + w + k != 0, T());
      wgmma_commit();
#pragma unroll
      for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
      // When this returns, the wgmma of the line of taps before have read their operands.
      wgmma_wait<1>();
      if (step + h > 0 && lane == 0) mbarrier_arrive(barriers.filters_empty(last_filters));
      if (step > 0 && h == 0 && lane == 0) mbarrier_arrive(barriers.empty(last));
      last_filters = filter_pipe.stage;
      filter_pipe.next();
    }
    last = pipe.stage;
    pipe.next();
  }
  wgmma_wait<0>();
#pragma unroll
  for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
  if (lane == 0) mbarrier_arrive(barriers.empty(last)), mbarrier_arrive(barriers.filters_empty(last_filters));
}

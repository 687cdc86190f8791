// The main loop where a stage has all that a step multiplies.
//
// needs macros: DEVICE
// needs constants: ATOMS, BLOCK_P, COOPERATIVE, PINGPONG, PIXELS_ARE_ROWS, PIXELS_INNERMOST, PRODUCERS, RESIDENT, ROW,
//   ROWS, ROW_LOADED, STAGES, STEPS, WIDTH, W_AT, W_BYTES, X_BYTES
// needs types: Barriers, PipelineState, T
// needs functions: mbarrier_arrive, mbarrier_wait, step_count, wgmma, wgmma_commit, wgmma_descriptor,
//   wgmma_descriptor_innermost, wgmma_fence, wgmma_fence_accumulators, wgmma_wait

// The main loop: accumulates the products of every step of the block's tile number `count`. A set of consumers waits
// until the set before it has seen its last stage become full, since an mbarrier that is two phases behind looks like one
// that has completed.
DEVICE void mainloop(float (&acc)[ATOMS][WIDTH / 2], unsigned shared, const Barriers& barriers, unsigned count) {
  const int consumer = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE, lane = threadIdx.x % 32, set = count % PINGPONG;
  const int steps = step_count<STEPS>();
  PipelineState<STAGES> pipe(count * STEPS);
  if (PINGPONG > 1) mbarrier_wait(barriers.order(set), (count / PINGPONG & 1) ^ (set == 0));
  int last = 0;
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    mbarrier_wait(barriers.full(pipe.stage), pipe.phase);
    if (PINGPONG > 1 && step == STEPS - 1 && lane == 0) mbarrier_arrive(barriers.order((set + 1) % PINGPONG));
    const unsigned x = shared + pipe.stage * X_BYTES, w = shared + W_AT + (RESIDENT ? step : pipe.stage) * W_BYTES;
    const auto rows = wgmma_descriptor((PIXELS_ARE_ROWS ? x : w) + consumer * (ROWS * ROW));
    const auto columns = PIXELS_INNERMOST ? wgmma_descriptor_innermost(x) : wgmma_descriptor(PIXELS_ARE_ROWS ? w : x);
    // From one instruction's part of the columns to the next one's, in 16 bytes.
    constexpr int COLUMNS_ON = PIXELS_INNERMOST ? 16 * BLOCK_P * 2 / 16 : 2;
#pragma unroll
    for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < ROW_LOADED / 32; k++)
#pragma unroll
      for (int atom = 0; atom < ATOMS; atom++)
        wgmma(acc[atom], rows + atom * (64 * ROW >> 4) + k * 2, columns + k * COLUMNS_ON, step + k != 0, T());
    wgmma_commit();
#pragma unroll
    for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
    // When this returns, the wgmma of the step before have read their operands, and their stage is released.
    wgmma_wait<1>();
    if (step > 0 && lane == 0) mbarrier_arrive(barriers.empty(last));
    last = pipe.stage;
    pipe.next();
  }
  wgmma_wait<0>();
#pragma unroll
  for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
  if (lane == 0) mbarrier_arrive(barriers.empty(last));
}

// The main loop of Load::Halo. A square of 8 x 8 pixels is the 64 rows of a wgmma: its lines are the groups of eight rows,
// which lie as far apart as lines of the window do, so that a tap's pixels are the same rows from another address on.
//
// needs macros: DEVICE
// needs constants: ATOMS, COOPERATIVE, DILATION_H, DILATION_W, LOADED_P, PINGPONG, PRODUCERS, RECTANGLE_LINES,
//   RESIDENT, ROW, ROW_LOADED, SQUARES, STAGES, STEPS, STEP_LINES, STEP_TAPS, TAPS_W, WIDTH, W_AT, W_BYTES, X_BYTES
// needs types: Barriers, PipelineState, T
// needs functions: mbarrier_arrive, mbarrier_wait, step_count, wgmma, wgmma_commit, wgmma_descriptor, wgmma_descriptor_lines,
//   wgmma_fence, wgmma_fence_accumulators, wgmma_wait

// From a line of the window to the next one, in bytes.
constexpr unsigned LINE_PITCH = LOADED_P / (RECTANGLE_LINES + (STEP_LINES - 1) * DILATION_H) * ROW;

// Taps whose products are issued before the stage of the step before is released. Of two stages none is on its way until then;
// of more some are, and to wait behind the first tap would only hold products up.
constexpr int FIRST_TAPS = STAGES == 2 ? 1 : STEP_TAPS;

DEVICE void mainloop(float (&acc)[ATOMS][WIDTH / 2], unsigned shared, const Barriers& barriers, unsigned count) {
  const int consumer = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE, lane = threadIdx.x % 32, set = count % PINGPONG;
  unsigned square[ATOMS];
#pragma unroll
  for (int atom = 0; atom < ATOMS; atom++) {
    const int at = consumer * ATOMS + atom;
    square[atom] = at / SQUARES * 8 * LINE_PITCH + at % SQUARES * 8 * ROW;
  }
  const int steps = step_count<STEPS>();
  PipelineState<STAGES> pipe(count * STEPS);
  if (PINGPONG > 1) mbarrier_wait(barriers.order(set), (count / PINGPONG & 1) ^ (set == 0));
  int last = 0;
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    mbarrier_wait(barriers.full(pipe.stage), pipe.phase);
    if (PINGPONG > 1 && step == STEPS - 1 && lane == 0) mbarrier_arrive(barriers.order((set + 1) % PINGPONG));
    const unsigned x = shared + pipe.stage * X_BYTES;
    const auto filters = wgmma_descriptor(shared + W_AT + (RESIDENT ? step : pipe.stage) * STEP_TAPS * W_BYTES);
    const auto pixels = wgmma_descriptor_lines(x, LINE_PITCH);
#pragma unroll
    for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
    wgmma_fence();
#pragma unroll
    for (int t = 0; t < STEP_TAPS; t++) {
#pragma unroll
      for (int k = 0; k < ROW_LOADED / 32; k++)
#pragma unroll
        for (int atom = 0; atom < ATOMS; atom++) {
          const unsigned tap = t / TAPS_W * DILATION_H * LINE_PITCH + t % TAPS_W * DILATION_W * ROW;
          wgmma(acc[atom], pixels + (square[atom] >> 4) + (tap >> 4) + k * 2, filters + (t * W_BYTES >> 4) + k * 2,
                step + t + k != 0, T());
        }
      if (t + 1 == FIRST_TAPS || t + 1 == STEP_TAPS) wgmma_commit();
      if (t + 1 == FIRST_TAPS) {
        // When this returns, the wgmma of the step before have read their operands, and their stage is released.
        wgmma_wait<1>();
        if (step > 0 && lane == 0) mbarrier_arrive(barriers.empty(last));
      }
    }
#pragma unroll
    for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
    last = pipe.stage;
    pipe.next();
  }
  wgmma_wait<0>();
#pragma unroll
  for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
  if (lane == 0) mbarrier_arrive(barriers.empty(last));
}

// The main loop of 3xTF32. The rows' factors come to a thread's registers from rows in shared memory.
//
// needs macros: DEVICE
// needs constants: ATOMS, COOPERATIVE, FILTERS_IN_PARTS, INTERVAL, INTERVALS, PINGPONG, PIXELS_ARE_ROWS, PRODUCERS, RESIDENT, ROW, ROWS,
//   STAGES, STEPS, WIDTH, W_AT, W_BYTES, W_LOADED, X_BYTES, X_PART
// needs types: Barriers, FactorParts, PipelineState
// needs functions: issue_interval, mbarrier_arrive, mbarrier_wait, step_count, wgmma_descriptor, wgmma_fence_accumulators, wgmma_wait

static_assert(ATOMS == 1, "a thread has the factors of two rows");
// Whether factors are split before the interval before ends: where pixels are gathered, producers have the registers that it takes.
constexpr bool SPLITS_AHEAD = PIXELS_ARE_ROWS;

// What the swizzle makes of an offset in rows of ROW bytes.
DEVICE unsigned row_swizzled(unsigned at) { return at ^ (at >> 7 & (ROW == 128 ? 7 : ROW == 64 ? 3 : 1)) << 4; }

// A thread's factors of an interval, as `wgmma` takes them: of each 8 of the depth those at lane % 4 and 4 behind it, of a row and
// of the row 8 below it.
struct Factors {
  float v[INTERVAL][4];
  // `at` is where the first of a step's is.
  DEVICE void load(unsigned rows, unsigned at, int interval) {
#pragma unroll
    for (int k = 0; k < INTERVAL; k++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        asm volatile("ld.shared.f32 %0, [%1];"
                     : "=f"(v[k][e])
                     : "r"(rows + (at ^ ((interval * INTERVAL + k) * 2 + e / 2) * 16) + e % 2 * 8 * ROW)
                     : "memory");
  }
};

DEVICE void mainloop(float (&acc)[ATOMS][WIDTH / 2], unsigned shared, const Barriers& barriers, unsigned count) {
  const int consumer = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE, lane = threadIdx.x % 32, set = count % PINGPONG;
  const int steps = step_count<STEPS>();
  const unsigned at = row_swizzled((consumer * ROWS + threadIdx.x / 32 % 4 * 16 + lane / 4) * ROW + lane % 4 * 4);
  const auto x = [&](int stage) { return shared + stage * X_BYTES; };
  const auto w = [&](int stage, int step) { return shared + W_AT + (RESIDENT ? step : stage) * W_BYTES; };
  PipelineState<STAGES> pipe(count * STEPS);
  const auto wait_for_step = [&](int step) {
    mbarrier_wait(barriers.full(pipe.stage), pipe.phase);
    if (FILTERS_IN_PARTS && !RESIDENT) mbarrier_wait(barriers.parts(pipe.stage), pipe.phase);
    if (PINGPONG > 1 && step == STEPS - 1 && lane == 0) mbarrier_arrive(barriers.order((set + 1) % PINGPONG));
  };
  if (PINGPONG > 1) mbarrier_wait(barriers.order(set), (count / PINGPONG & 1) ^ (set == 0));
#pragma unroll
  for (int i = 0; i < WIDTH / 2; i++) acc[0][i] = 0.f;
  float sum[WIDTH / 2];
  wait_for_step(0);
  Factors factors;
  factors.load(PIXELS_ARE_ROWS ? x(pipe.stage) : w(pipe.stage, 0), at, 0);
  FactorParts rows(factors.v), next_rows = rows;
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    const int stage = pipe.stage;
    const auto high = wgmma_descriptor(PIXELS_ARE_ROWS ? w(stage, step) : x(stage));
    const auto low = high + ((PIXELS_ARE_ROWS ? W_LOADED : X_PART) >> 4);
#pragma unroll
    for (int interval = 0; interval < INTERVALS; interval++) {
      issue_interval(sum, rows, high + interval * INTERVAL * 2, low + interval * INTERVAL * 2);
      // The next interval's factors come meanwhile; behind the last step its first ones once more.
      const bool ends = interval + 1 == INTERVALS;
      const int next = ends && step + 1 < steps ? step + 1 : step;
      if (next > step) pipe.next(), wait_for_step(next);
      factors.load(PIXELS_ARE_ROWS ? x(pipe.stage) : w(pipe.stage, next), at, ends ? 0 : interval + 1);
      if (SPLITS_AHEAD) next_rows = FactorParts(factors.v);
      wgmma_wait<0>();
      wgmma_fence_accumulators(sum);
      rows.fence();
      if (ends && lane == 0) mbarrier_arrive(barriers.empty(stage));
#pragma unroll
      for (int i = 0; i < WIDTH / 2; i++) acc[0][i] += sum[i];
      rows = SPLITS_AHEAD ? next_rows : FactorParts(factors.v);
    }
  }
}

// The main loop of 3xTF32. The rows' factors come to a thread's registers, where it splits them. The columns' parts are in
// shared memory, the high ones in front of the low ones.
// Tensor cores cut sums off instead of rounding them, and what they cut off adds up. So an interval of products is short: those of
// 16 of the depth, the small ones first, are summed by themselves and added to the others by f32 additions. Meanwhile the
// tensor cores have an interval of another warpgroup.
//
// needs macros: DEVICE
// needs constants: ATOMS, COOPERATIVE, FILTERS_IN_PARTS, PINGPONG, PIXELS_ARE_ROWS, PRODUCERS, RESIDENT, ROW, ROWS,
//   STAGES, STEPS, WIDTH, W_AT, W_BYTES, W_LOADED, X_BYTES, X_PART
// needs types: Barriers, Parts, PipelineState
// needs functions: bits_of, mbarrier_arrive, mbarrier_wait, parts_of, step_count, wgmma, wgmma_commit, wgmma_descriptor,
//   wgmma_fence, wgmma_fence_accumulators, wgmma_wait

static_assert(ATOMS == 1, "a thread has the factors of two rows");
// Of the depth each instruction takes 32 bytes: those of an interval, and intervals of a step.
constexpr int INTERVAL = ROW > 32 ? 2 : 1, INTERVALS = ROW / 32 / INTERVAL;
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
struct FactorParts {
  unsigned high[INTERVAL][4], low[INTERVAL][4];
  DEVICE explicit FactorParts(const Factors& factors) {
#pragma unroll
    for (int k = 0; k < INTERVAL; k++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const Parts parts = parts_of(factors.v[k][e]);
        high[k][e] = parts.high, low[k][e] = bits_of(parts.low);
        // Here, and not behind the wait for the interval before.
        asm volatile("" : "+r"(high[k][e]), "+r"(low[k][e])::"memory");
      }
  }
};

// Issues an interval, whose columns begin at these descriptors.
DEVICE void issue_interval(float (&sum)[WIDTH / 2], const FactorParts& rows, unsigned long long high,
                           unsigned long long low) {
  wgmma_fence_accumulators(sum);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < INTERVAL; k++) wgmma(sum, rows.low[k], high + k * 2, k != 0);
#pragma unroll
  for (int k = 0; k < INTERVAL; k++) wgmma(sum, rows.high[k], low + k * 2, true);
#pragma unroll
  for (int k = 0; k < INTERVAL; k++) wgmma(sum, rows.high[k], high + k * 2, true);
  wgmma_commit();
}

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
  FactorParts rows(factors), next_rows = rows;
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
      if (SPLITS_AHEAD) next_rows = FactorParts(factors);
      wgmma_wait<0>();
      wgmma_fence_accumulators(sum);
      if (ends && lane == 0) mbarrier_arrive(barriers.empty(stage));
#pragma unroll
      for (int i = 0; i < WIDTH / 2; i++) acc[0][i] += sum[i];
      rows = SPLITS_AHEAD ? next_rows : FactorParts(factors);
    }
  }
}

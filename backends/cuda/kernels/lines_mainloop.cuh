// The main loop of Load::Lines: columns of taps one after the other, and sums that move by a pixel in between.
//
// needs macros: DEVICE
// needs constants: ATOMS, BEHIND, BLOCK_P, CHANNEL_STEPS, COOPERATIVE, FILTER_STAGES, KEEP, LINE, LINES, LINE_BYTES, PAD_W, PINGPONG,
//   PRODUCERS, ROW, ROWS, STAGES, STEPS, STREAMED, TAPS_H, TAPS_W, WIDTH, W_AT, W_BYTES, X_BYTES
// needs types: Barriers, PipelineState, T
// needs functions: mbarrier_arrive, mbarrier_wait, wgmma, wgmma_commit, wgmma_descriptor, wgmma_descriptor_innermost,
//   wgmma_fence, wgmma_fence_accumulators, wgmma_wait

// The sums of a thread, of a line and of the columns behind its end onto which sums move, of which there are at most eight:
// each row of a fragment is two neighbours of every eight columns.
struct Line {
  float* sums;
  float* behind;
  DEVICE float& at(int eight, int row, int which) const {
    return eight < LINE / 8 ? sums[eight * 4 + row * 2 + which] : behind[row * 2 + which];
  }
};
// Eights of columns of a line onto which sums move.
constexpr int EIGHTS = LINE / 8 + (BEHIND > 0);

// A lane's `v` goes to the next lane of four, or to the one before.
template <int STEP> DEVICE float from_lane(float v) {
  const int lane = threadIdx.x % 32, from = lane / 4 * 4 + (lane + STEP) % 4;
  float moved;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(moved) : "f"(v), "r"(from));
  return moved;
}

// Moves the sums of every line a pixel to the right.
DEVICE void move_right(float (&acc)[ATOMS][WIDTH / 2], float (&behind)[ATOMS][LINES][4]) {
  const bool is_last = threadIdx.x % 4 == 3;
#pragma unroll
  for (int of = 0; of < ATOMS * LINES * 2; of++) {
    const int atom = of / 2 / LINES, line = of / 2 % LINES, row = of % 2;
    const Line sums = {acc[atom] + line * (LINE / 2), behind[atom][line]};
#pragma unroll
    for (int i = EIGHTS - 1; i >= 0; i--) {
      const float before = i > 0 ? sums.at(i > 0 ? i - 1 : 0, row, 1) : 0.f;
      // Behind a line's end the first column alone may be of use.
      const bool single = i == LINE / 8 && BEHIND == 1;
      const float moved = from_lane<3>(is_last ? before : single ? 0.f : sums.at(i, row, 1));
      if (!single) sums.at(i, row, 1) = sums.at(i, row, 0);
      sums.at(i, row, 0) = moved;
    }
  }
}
// Moves them a pixel to the left.
DEVICE void move_left(float (&acc)[ATOMS][WIDTH / 2], float (&behind)[ATOMS][LINES][4]) {
  const bool is_first = threadIdx.x % 4 == 0;
#pragma unroll
  for (int of = 0; of < ATOMS * LINES * 2; of++) {
    const int atom = of / 2 / LINES, line = of / 2 % LINES, row = of % 2;
    const Line sums = {acc[atom] + line * (LINE / 2), behind[atom][line]};
#pragma unroll
    for (int i = 0; i < EIGHTS; i++) {
      const float next = i + 1 < EIGHTS ? sums.at(i + 1 < EIGHTS ? i + 1 : i, row, 0) : 0.f;
      const float moved = from_lane<1>(is_first ? next : sums.at(i, row, 0));
      sums.at(i, row, 0) = sums.at(i, row, 1);
      sums.at(i, row, 1) = moved;
    }
  }
}

// A tap's column multiplies pixel p where the sum of the output that it is for has moved to. In the end all sums are at
// their outputs' columns.
DEVICE void mainloop(float (&acc)[ATOMS][WIDTH / 2], unsigned shared, const Barriers& barriers, unsigned count) {
  const int consumer = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE, lane = threadIdx.x % 32, set = count % PINGPONG;
  constexpr int ALL_STEPS = TAPS_W * CHANNEL_STEPS;
  PipelineState<STAGES> pipe(count * STEPS);
  PipelineState<FILTER_STAGES> filter_pipe(STREAMED ? count * ALL_STEPS : 0);
  if (PINGPONG > 1) mbarrier_wait(barriers.order(set), (count / PINGPONG & 1) ^ (set == 0));
  float behind[ATOMS][LINES][4] = {};
  int last = 0, last_filters = 0;
#pragma unroll 1
  for (int w = 0; w < TAPS_W; w++) {
    if (w > 0) {
      wgmma_wait<0>();
#pragma unroll
      for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
      if (STREAMED && lane == 0) mbarrier_arrive(barriers.filters_empty(last_filters));
      move_right(acc, behind);
      if (KEEP) pipe = PipelineState<STAGES>(count * STEPS);
    }
#pragma unroll 1
    for (int c = 0; c < CHANNEL_STEPS; c++) {
      const int step = w * CHANNEL_STEPS + c;
      if (!KEEP || w == 0) mbarrier_wait(barriers.full(pipe.stage), pipe.phase);
      if (STREAMED) mbarrier_wait(barriers.filters_full(filter_pipe.stage), filter_pipe.phase);
      if (PINGPONG > 1 && step == (STREAMED ? ALL_STEPS : STEPS) - 1 && lane == 0)
        mbarrier_arrive(barriers.order((set + 1) % PINGPONG));
      const int filters_at = STREAMED ? filter_pipe.stage : step;
      const unsigned filters = shared + W_AT + filters_at * TAPS_H * W_BYTES + consumer * (ROWS * ROW);
      const auto rows = wgmma_descriptor(filters), columns = wgmma_descriptor_innermost(shared + pipe.stage * X_BYTES);
#pragma unroll
      for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
      wgmma_fence();
#pragma unroll
      for (int h = 0; h < TAPS_H; h++)
#pragma unroll
        for (int k = 0; k < ROW / 32; k++)
#pragma unroll
          for (int atom = 0; atom < ATOMS; atom++)
            wgmma(acc[atom], rows + (h * W_BYTES + atom * (64 * ROW) >> 4) + k * 2,
                  columns + (h * LINE_BYTES + k * (16 * BLOCK_P * 2) >> 4), step + h + k != 0, T());
      wgmma_commit();
#pragma unroll
      for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
      // When this returns, the wgmma of the step before have read their operands.
      wgmma_wait<1>();
      const bool releases = KEEP ? w == TAPS_W - 1 && c > 0 : step > 0;
      if (releases && lane == 0) mbarrier_arrive(barriers.empty(last));
      if (STREAMED && c > 0 && lane == 0) mbarrier_arrive(barriers.filters_empty(last_filters));
      last = pipe.stage;
      pipe.next();
      last_filters = filter_pipe.stage;
      if (STREAMED) filter_pipe.next();
    }
  }
  wgmma_wait<0>();
#pragma unroll
  for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
  if (lane == 0) mbarrier_arrive(barriers.empty(last));
  if (STREAMED && lane == 0) mbarrier_arrive(barriers.filters_empty(last_filters));
#pragma unroll
  for (int moves = PAD_W; moves < TAPS_W - 1; moves++) move_left(acc, behind);
}

// An interval of the depth with 3xTF32. A thread splits its rows' factors in registers. The columns' parts are in shared memory, the
// high ones in front of the low ones.
// Tensor cores cut sums off instead of rounding them, and what they cut off adds up. So an interval of products is short: those of
// 16 of the depth, the small ones first, are summed by themselves and added to the others by f32 additions. Meanwhile the
// tensor cores have an interval of another warpgroup.
//
// needs macros: DEVICE
// needs constants: ROW, WIDTH
// needs types: Parts
// needs functions: bits_of, parts_of, wgmma, wgmma_commit, wgmma_fence, wgmma_fence_accumulators, wgmma_fence_rows

// Of the depth each instruction takes 32 bytes: those of an interval, and intervals of a step.
constexpr int INTERVAL = ROW > 32 ? 2 : 1, INTERVALS = ROW / 32 / INTERVAL;

// A thread's factors of an interval in parts, as `wgmma` takes them: of each 8 of the depth those at lane % 4 and 4 behind it, of a row
// and of the row 8 below it.
struct FactorParts {
  unsigned high[INTERVAL][4], low[INTERVAL][4];
  DEVICE explicit FactorParts(const float (&factors)[INTERVAL][4]) {
#pragma unroll
    for (int k = 0; k < INTERVAL; k++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const Parts parts = parts_of(factors[k][e]);
        high[k][e] = parts.high, low[k][e] = bits_of(parts.low);
        // Here, and not behind the wait for the interval before.
        asm volatile("" : "+r"(high[k][e]), "+r"(low[k][e])::"memory");
      }
  }
  DEVICE void fence() {
    wgmma_fence_rows(high);
    wgmma_fence_rows(low);
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

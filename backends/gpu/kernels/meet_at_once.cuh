// Blocks of a batch-norm for training that share groups are a cluster: one launch sums and writes results, and each block adds
// up the sums of all in the order of their ranks.
//
// needs macros: DEVICE
// needs constants: COLUMNS, SPLIT, THREADS
// needs types: Shape, Sums, Totals, Walk
// needs functions: block_totals, cluster_arrive, cluster_load, cluster_sync, cluster_wait

// Whether this launch sums.
DEVICE bool is_summing(const Shape&) { return true; }
// Whether it writes results.
DEVICE bool is_writing(const Shape&) { return true; }

// The totals of part `part` of a block's groups, if this launch writes results.
template <int N> DEVICE void meet(const Shape&, const Walk& walk, int, const Sums<N>& sums, Totals<N>& totals) {
  if constexpr (SPLIT == 1) {
    block_totals<N>(walk, sums, totals);
  } else {
    __shared__ Totals<N> own;
    block_totals<N>(walk, sums, own);
    cluster_sync();
    for (int t = threadIdx.x; t < 2 * COLUMNS * N; t += THREADS) {
      double sum = 0.0;
#pragma unroll
      for (int rank = 0; rank < SPLIT; rank++) sum += cluster_load(rank, own.of + t);
      totals.of[t] = sum;
    }
    for (int t = threadIdx.x; t < COLUMNS * N; t += THREADS) totals.from[t] = own.from[t];
    cluster_arrive();
  }
  __syncthreads();
}

// What blocks call before they end or meet again: others may still read their sums.
DEVICE void end_meeting() { cluster_wait(); }

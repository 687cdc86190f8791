// Blocks of a batch-norm for training that share groups meet between two launches, however many they are: the first launch writes
// each block's sums to memory, the second adds up those of all, in an order that never changes, and writes results.
//
// needs macros: DEVICE
// needs constants: COLUMNS, GROUPS, LANES, SPLIT, THREADS
// needs sizes: launch, scratch
// needs types: Shape, Sums, Totals, Walk
// needs functions: block_totals, cluster_rank, shared_numbers, tile_number

// Whether this launch sums.
DEVICE bool is_summing(const Shape& s) { return s.launch == 0; }
// Whether it writes results.
DEVICE bool is_writing(const Shape& s) { return s.launch != 0; }

// The totals of part `part` of a block's groups, if this launch writes results.
template <int N> DEVICE void meet(const Shape& s, const Walk& walk, int part, const Sums<N>& sums, Totals<N>& totals) {
  // The sums of a tile's groups in the order of its blocks, behind them what they are the distances from.
  constexpr int WIDTH = 2 * COLUMNS * N, OF_BLOCK = 2 * GROUPS;
  double* const of_tile = s.scratch + (long long)tile_number() * (SPLIT * OF_BLOCK + GROUPS);
  double* const of_part = of_tile + 2 * COLUMNS * part;
  double* const from = of_tile + SPLIT * OF_BLOCK + COLUMNS * part;
  if (s.launch == 0) {
    block_totals<N>(walk, sums, totals);
    __syncthreads();
    const int rank = cluster_rank();
    for (int t = threadIdx.x; t < WIDTH; t += THREADS) of_part[rank * OF_BLOCK + t] = totals.of[t];
    if (rank == 0)
      for (int t = threadIdx.x; t < COLUMNS * N; t += THREADS) from[t] = totals.from[t];
    __syncthreads();
    return;
  }
  // Each of PARTS threads adds every PARTS-th block's, then one thread adds those.
  constexpr int MOST = THREADS / WIDTH < 16 ? THREADS / WIDTH : 16, PARTS = MOST < 1 ? 1 : MOST;
  static_assert(PARTS * WIDTH <= (LANES + 1) * GROUPS, "shared memory has room for what threads add");
  double* const parts = shared_numbers();
  for (int t = threadIdx.x; t < PARTS * WIDTH; t += THREADS) {
    double sum = 0.0;
#pragma unroll 8
    for (int rank = t / WIDTH; rank < SPLIT; rank += PARTS) sum += of_part[rank * OF_BLOCK + t % WIDTH];
    parts[t] = sum;
  }
  for (int t = threadIdx.x; t < COLUMNS * N; t += THREADS) totals.from[t] = (float)from[t];
  __syncthreads();
  for (int t = threadIdx.x; t < WIDTH; t += THREADS) {
    double sum = 0.0;
#pragma unroll
    for (int i = 0; i < PARTS; i++) sum += parts[i * WIDTH + t];
    totals.of[t] = sum;
  }
  __syncthreads();
}

// What blocks call before they end or meet again.
DEVICE void end_meeting() {}

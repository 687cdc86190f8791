// What matrix cores can do at most: products of operands that are in registers. TYPE is the elements'.
DEVICE Words* swizzled(char* rows, int row, int chunk) { return (Words*)rows + row * 4 + chunk; }

// Accumulators of a wave that do not wait for one another.
constexpr int CHAINS = 4;
KERNEL(THREADS) {
  begin_grid();
  __shared__ Words rows[2 * BLOCK * 4];
  for (int i = threadIdx.x; i < 2 * BLOCK * 16; i += THREADS) ((unsigned*)rows)[i] = operand(i);
  __syncthreads();
  const int lane = threadIdx.x % WAVE;
  const Fragment a = fragment((char*)rows, 0, 0, lane), b = fragment((char*)rows, BLOCK, 0, lane);
  Accumulators acc[CHAINS] = {};
#pragma unroll 1
  for (long long round = 0; round < args.count; ++round)
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) acc[i] = mma(a, b, acc[i], TYPE());
  float sum = 0;
#pragma unroll
  for (int i = 0; i < CHAINS * ACCUMULATORS; ++i) sum += acc[i / ACCUMULATORS][i % ACCUMULATORS];
  want(args, sum);
}

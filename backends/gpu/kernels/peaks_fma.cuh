// Chains that do not wait for one another.
constexpr int CHAINS = 16;
KERNEL(THREADS) {
  begin_grid();
  float sums[CHAINS];
#pragma unroll
  for (int i = 0; i < CHAINS; ++i) sums[i] = threadIdx.x * 0.37f + i;
  const float factor = 0.75f + threadIdx.x * 0x1p-13f, summand = 0.61f + blockIdx.x * 0x1p-10f;
#pragma unroll 1
  for (long long round = 0; round < args.count; ++round)
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int i = 0; i < CHAINS; ++i) sums[i] = fmaf(sums[i], factor, summand);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < CHAINS; ++i) sum += sums[i];
  want(args, sum);
}

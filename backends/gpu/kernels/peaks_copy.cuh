// A vector for each thread: nothing copies faster.
KERNEL(THREADS) {
  begin_grid();
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i < args.count) args.to[i] = args.from[i];
}

// What tensor cores can do at most, by mma.sync (MMA) or wgmma (WGMMA). TYPE is the type's name in PTX.

#ifdef MMA
// Sums of a warp that do not wait for one another.
constexpr int SUMS = 8;
KERNEL(THREADS) {
  begin_grid();
  unsigned a[2][4], b[SUMS][2];
  float d[2][SUMS][4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) a[i / 4][i % 4] = operand(threadIdx.x * 8 + i);
#pragma unroll
  for (int i = 0; i < 2 * SUMS; ++i) b[i / 2][i % 2] = operand(threadIdx.x * 64 + i);
#pragma unroll 1
  for (long long round = 0; round < args.count; ++round)
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < SUMS; ++n)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE
                     ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[m][n][0]), "+f"(d[m][n][1]), "+f"(d[m][n][2]), "+f"(d[m][n][3])
                     : "r"(a[m][0]), "r"(a[m][1]), "r"(a[m][2]), "r"(a[m][3]), "r"(b[n][0]), "r"(b[n][1]));
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 2 * SUMS * 4; ++i) sum += d[i / 4 / SUMS][i / 4 % SUMS][i % 4];
  want(args, sum);
}
#endif

#ifdef WGMMA
// Operands of 64x64 and 256x64 elements in shared memory, rows of 128 bytes.
constexpr int ROWS = 64 + 256;

// The descriptor of an operand: its address, 1024 bytes from eight rows to the next, swizzles of 128 bytes.
DEVICE unsigned long long descriptor(const void* rows) {
  return (unsigned long long)((__cvta_generic_to_shared(rows) & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

#define SUMS8(i)                                                                                              \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define SUMS64(i) \
  SUMS8(i), SUMS8(i + 8), SUMS8(i + 16), SUMS8(i + 24), SUMS8(i + 32), SUMS8(i + 40), SUMS8(i + 48), SUMS8(i + 56)

KERNEL(THREADS, 1) {
  begin_grid();
  __shared__ __align__(1024) unsigned rows[ROWS][32];
  for (int i = threadIdx.x; i < ROWS * 32; i += THREADS) rows[i / 32][i % 32] = operand(i);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const unsigned long long a = descriptor(rows[0]), b = descriptor(rows[64]);
  float d[128] = {};
#pragma unroll 1
  for (long long round = 0; round < args.count; ++round) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int step = 0; step < 4; ++step)
      asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE
                   " {"
                   "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                   "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                   "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                   "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                   "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                   "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
                   "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
                   "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
                   "}, %128, %129, 1, 1, 1, 0, 0;"
                   : SUMS64(0), SUMS64(64)
                   : "l"(a + 2 * step), "l"(b + 2 * step));
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 128; ++i) sum += d[i];
  want(args, sum);
}
#endif

// What the shared kernels need of HIP C++, with no header.

#if defined(__GFX9__)
#define WAVE 64
#else
#define WAVE 32
#endif

#define DEVICE __device__ inline __attribute__((always_inline))
// Most threads of a block, and, for kernels that need their registers more than neighbours, least waves of a SIMD.
#define KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__) fuseplan_kernel(const Args args)
// What each kernel calls before it reads or writes global memory. A grid begins when the one before it in the stream has ended.
DEVICE void begin_grid() {}
// The same with what brings memory into a cache meanwhile, of which there is nothing here.
DEVICE void prefetch_sector(const void*) {}
template <class Hint> DEVICE void begin_grid(Hint) {}
// What KERNEL is told of blocks that are to be on a compute unit at once, which has four SIMDs and 64 KiB.
#define AT_ONCE(blocks, shared) (((blocks) < 65536 / (shared) ? (blocks) : 65536 / (shared)) * THREADS / WAVE + 3) / 4
// How many of a loop's rounds are unrolled, which have so many products for each result: the compiler computes ahead
// for all of them, and has no registers left.
#define UNROLLED(rounds, products) ((products) > 9 ? 1 : (rounds))
// The same of a loop whose indices have 64 bits: each multiple of a stride takes two scalar registers.
#define WIDE_ROUNDS 1
#define DYNAMIC_SHARED(type, name) extern __shared__ __attribute__((aligned(128))) type name[]

// The kernel's arguments, to be read anew: what was read of them before is not kept for what reads them by this.
template <class Args> DEVICE const Args& reread(const Args& args) {
#if defined(__AMDGCN__)
  auto segment = __builtin_amdgcn_kernarg_segment_ptr();
  asm volatile("" : "+s"(segment));
  return *(const Args*)segment;
#else
  return args;
#endif
}

DEVICE float float_of_bits(unsigned v) { return __builtin_bit_cast(float, v); }
DEVICE unsigned bits_of(float v) { return __builtin_bit_cast(unsigned, v); }

struct f16 {
  unsigned short bits;
};
struct bf16 {
  unsigned short bits;
};

DEVICE float to_float(f16 v) { return (float)__builtin_bit_cast(_Float16, v.bits); }
DEVICE float to_float(bf16 v) { return __builtin_bit_cast(float, (unsigned)v.bits << 16); }
DEVICE f16 f16_from_float(float v) { return {__builtin_bit_cast(unsigned short, (_Float16)v)}; }
DEVICE bf16 bf16_from_float(float v) {
  const unsigned u = __builtin_bit_cast(unsigned, v);
  return {(unsigned short)(v != v ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16)};
}

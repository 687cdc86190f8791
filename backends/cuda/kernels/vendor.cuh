// What the shared kernels need of CUDA C++, with no header.

#define DEVICE __device__ __forceinline__
// Most threads of a block, and, for kernels that need their registers more than neighbours, least blocks.
#define KERNEL(...) \
  extern "C" __global__ void __launch_bounds__(__VA_ARGS__) CLUSTER fuseplan_kernel(const __grid_constant__ Args args)
// A grid may have been launched while the grid before it in the stream still ran (programmatic dependent launch). It lets the
// next one be launched, and each of its threads waits for those before it, whose results it sees from then on, before it
// reads or writes global memory, but for an image behind a launch that has waited for what is before it. Hints that bring what
// lies there into a cache are none of these.
DEVICE void launch_next_grid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
DEVICE void wait_for_grids() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The same, not before this number is known, which is never negative: it is the condition of the instruction, or the compiler would
// move what the number is computed by behind the wait, where it takes time.
DEVICE void wait_for_grids(int known) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{\n.reg .pred p;\nsetp.ge.s32 p, %0, 0;\n@p griddepcontrol.wait;\n}" ::"r"(known) : "memory");
#endif
}
// What a kernel calls first whose threads have nothing else to do before they wait.
DEVICE void begin_grid() {
  launch_next_grid();
  wait_for_grids();
}
// Starts to bring at least the 32 bytes around an address into L2.
DEVICE void prefetch_sector(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }
// The same where there is something to do meanwhile: `hint` brings what the kernel reads first into L2, and touches it in no
// other way.
template <class Hint> DEVICE void begin_grid(Hint hint) {
  launch_next_grid();
#if __CUDA_ARCH__ >= 900
  hint();
#endif
  wait_for_grids();
}
// How many blocks are a cluster: each alone, if cluster.cuh does not say otherwise.
#define CLUSTER
// What KERNEL is told of blocks that are to be on a multiprocessor at once.
#if __CUDA_ARCH__ < 800
// Their instructions need a few registers more than later ones for the same.
#define AT_ONCE(blocks, shared) ((blocks) < 2 ? (blocks) : 2)
#else
#define AT_ONCE(blocks, shared) (blocks)
#endif
// How many of a loop's rounds are unrolled, which have so many products for each result.
#define UNROLLED(rounds, products) (rounds)
// The same of a loop whose indices have 64 bits.
#define WIDE_ROUNDS 4
#define DYNAMIC_SHARED(type, name) extern __shared__ __align__(128) type name[]

// The kernel's arguments, to be read anew: here they lie in a bank that instructions read at no cost.
template <class Args> DEVICE const Args& reread(const Args& args) { return args; }

DEVICE float float_of_bits(unsigned v) { return __uint_as_float(v); }
DEVICE unsigned bits_of(float v) { return __float_as_uint(v); }

struct f16 {
  unsigned short bits;
};
struct bf16 {
  unsigned short bits;
};

DEVICE float to_float(f16 v) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits));
  return r;
}
DEVICE float to_float(bf16 v) { return __uint_as_float((unsigned)v.bits << 16); }
DEVICE f16 f16_from_float(float v) {
  f16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
  return r;
}
DEVICE bf16 bf16_from_float(float v) {
  bf16 r;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
#else
  const unsigned u = __float_as_uint(v);
  r.bits = v != v ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
#endif
  return r;
}

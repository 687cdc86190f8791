// Fragments of mma.sync (sm_80 and later), and copies of what they are read from.
//
// needs macros: DEVICE
// needs constants: X_VECTOR
// needs types: T
// needs functions: mma_sync

// What a lane has of a row of pixels, or of a filter, in a step: four elements along the depth.
constexpr int WORDS = (int)sizeof(T);
struct alignas(4 * WORDS) Words {
  unsigned at[WORDS];
};

DEVICE void round_to_tf32(unsigned& v) { asm("cvt.rna.tf32.f32 %0, %0;" : "+r"(v)); }

// Accumulates the product of a step: of two rows of pixels, 8 apart, and a filter.
DEVICE void mma(float* c, const Words& low, const Words& high, const Words& b) {
#pragma unroll
  for (int i = 0; i < WORDS; i += 2) {
    const unsigned a[] = {low.at[i], high.at[i], low.at[i + 1], high.at[i + 1]};
    mma_sync(c, a, b.at + i, T());
  }
}

// f32 comes as it is, and is rounded when it is read.
DEVICE void copy_async(unsigned at, const T* from, bool inside) {
  constexpr int BYTES = X_VECTOR * (int)sizeof(T);
  const int size = inside ? BYTES : 0;
  if (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(size) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(at), "l"(from), "r"(size) : "memory");
}
DEVICE void copy_async(char* to, const T* from, bool inside) {
  copy_async((unsigned)__cvta_generic_to_shared(to), from, inside);
}
DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

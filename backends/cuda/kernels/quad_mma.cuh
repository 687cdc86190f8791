// Fragments of mma.sync (sm_80 and later), and copies of what they are read from.
//
// needs macros: DEVICE
// needs constants: X_VECTOR
// needs types: T, bf16, f16

// What a lane has of a row of pixels, or of a filter, in a step: four elements along the depth.
constexpr int WORDS = (int)sizeof(T);
struct alignas(4 * WORDS) Words {
  unsigned at[WORDS];
};

DEVICE void round_to_tf32(unsigned& v) { asm("cvt.rna.tf32.f32 %0, %0;" : "+r"(v)); }

#define MMA(shape, type)                                                                                 \
  asm volatile("mma.sync.aligned." shape ".row.col.f32." type "." type                                   \
               ".f32 "                                                                                   \
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                         \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                          \
               : "r"(low.at[i]), "r"(high.at[i]), "r"(low.at[i + 1]), "r"(high.at[i + 1]), "r"(b.at[i]), \
                 "r"(b.at[i + 1]))
// Accumulates a step's product of two rows of pixels, 8 apart, and a filter.
DEVICE void mma(float* c, const Words& low, const Words& high, const Words& b, f16) {
  constexpr int i = 0;
  MMA("m16n8k16", "f16");
}
DEVICE void mma(float* c, const Words& low, const Words& high, const Words& b, bf16) {
  constexpr int i = 0;
  MMA("m16n8k16", "bf16");
}
DEVICE void mma(float* c, const Words& low, const Words& high, const Words& b, float) {
#pragma unroll
  for (int i = 0; i < WORDS; i += 2) MMA("m16n8k8", "tf32");
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

// The instructions of mma.sync (sm_80 and later).
//
// needs macros: DEVICE
// needs types: bf16, f16

#define MMA(shape, type)                                                         \
  asm volatile("mma.sync.aligned." shape ".row.col.f32." type "." type           \
               ".f32 "                                                           \
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                  \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
// Accumulates the product of 16 pixels and 8 filters, 32 bytes deep.
DEVICE void mma_sync(float* c, const unsigned* a, const unsigned* b, f16) { MMA("m16n8k16", "f16"); }
DEVICE void mma_sync(float* c, const unsigned* a, const unsigned* b, bf16) { MMA("m16n8k16", "bf16"); }
DEVICE void mma_sync(float* c, const unsigned* a, const unsigned* b, float) { MMA("m16n8k8", "tf32"); }

// Results of 16 bits, two of which a word has.
//
// needs macros: DEVICE
// needs types: bf16, f16

template <class E> DEVICE unsigned pair_of(float low, float high);
template <> DEVICE unsigned pair_of<f16>(float low, float high) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
template <> DEVICE unsigned pair_of<bf16>(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Instructions of CDNA's matrix cores: 32x32 accumulators of a wave of 64, 16 bytes of a lane's row along the depth. The
// depth's order is free as long as both operands have the same, so each half of the wave takes a whole chunk and
// feeds it piece by piece.
//
// needs macros: DEVICE
// needs types: bf16, f16

typedef unsigned Words __attribute__((ext_vector_type(4), may_alias));
typedef float Accumulators __attribute__((ext_vector_type(16)));
constexpr int BLOCK = 32, ACCUMULATORS = 16;
#if defined(__gfx942__) || defined(__gfx950__)
constexpr int XCDS = 8;
#else
constexpr int XCDS = 1;
#endif
typedef Words Fragment;

DEVICE Words* swizzled(char* rows, int row, int chunk);
DEVICE Fragment fragment(char* rows, int row, int k, int lane) {
  return *swizzled(rows, row + lane % 32, 2 * k + lane / 32);
}
// The row of the lane's accumulator `r`; its column is lane % 32.
DEVICE int acc_row(int r, int lane) { return r / 4 * 8 + lane / 32 * 4 + r % 4; }

DEVICE Accumulators mma(Fragment a, Fragment b, Accumulators c, f16) {
  typedef _Float16 Half4 __attribute__((ext_vector_type(4)));
  typedef _Float16 Half8 __attribute__((ext_vector_type(8)));
  const Half8 p = __builtin_bit_cast(Half8, a), q = __builtin_bit_cast(Half8, b);
#if defined(__gfx950__)
  return __builtin_amdgcn_mfma_f32_32x32x16_f16(p, q, c, 0, 0, 0);
#else
  c = __builtin_amdgcn_mfma_f32_32x32x8f16((Half4)p.lo, (Half4)q.lo, c, 0, 0, 0);
  return __builtin_amdgcn_mfma_f32_32x32x8f16((Half4)p.hi, (Half4)q.hi, c, 0, 0, 0);
#endif
}
DEVICE Accumulators mma(Fragment a, Fragment b, Accumulators c, bf16) {
#if defined(__gfx950__)
  typedef __bf16 BHalf8 __attribute__((ext_vector_type(8)));
  const BHalf8 p = __builtin_bit_cast(BHalf8, a), q = __builtin_bit_cast(BHalf8, b);
  return __builtin_amdgcn_mfma_f32_32x32x16_bf16(p, q, c, 0, 0, 0);
#else
  typedef short Short4 __attribute__((ext_vector_type(4)));
  typedef short Short8 __attribute__((ext_vector_type(8)));
  const Short8 p = __builtin_bit_cast(Short8, a), q = __builtin_bit_cast(Short8, b);
  c = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k((Short4)p.lo, (Short4)q.lo, c, 0, 0, 0);
  return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k((Short4)p.hi, (Short4)q.hi, c, 0, 0, 0);
#endif
}
DEVICE Accumulators mma(Fragment a, Fragment b, Accumulators c, float) {
  typedef float Float4 __attribute__((ext_vector_type(4)));
  const Float4 p = __builtin_bit_cast(Float4, a), q = __builtin_bit_cast(Float4, b);
#pragma unroll
  for (int e = 0; e < 4; e++) c = __builtin_amdgcn_mfma_f32_32x32x2f32(p[e], q[e], c, 0, 0, 0);
  return c;
}

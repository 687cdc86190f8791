// Instructions of RDNA's matrix cores: 16x16 accumulators of a wave of 32, 16 values of the depth at once. On gfx11 each
// half of the wave has whole rows; on gfx12 a half has a chunk of each.
//
// needs macros: DEVICE
// needs types: bf16, f16

typedef unsigned Words __attribute__((ext_vector_type(4), may_alias));
typedef float Accumulators __attribute__((ext_vector_type(8)));
constexpr int BLOCK = 16, ACCUMULATORS = 8, XCDS = 1;

DEVICE Words* swizzled(char* rows, int row, int chunk);

#if defined(__GFX12__)
typedef Words Fragment;
DEVICE Fragment fragment(char* rows, int row, int k, int lane) {
  return *swizzled(rows, row + lane % 16, 2 * k + lane / 16);
}
// The row of the lane's accumulator `r`; its column is lane % 16.
DEVICE int acc_row(int r, int lane) { return r + lane / 16 * 8; }
#define LANE_DEPTH 8
#define WMMA(name) name##_w32_gfx12
#else
struct Fragment {
  Words low, high;
};
DEVICE Fragment fragment(char* rows, int row, int k, int lane) {
  return {*swizzled(rows, row + lane % 16, 2 * k), *swizzled(rows, row + lane % 16, 2 * k + 1)};
}
DEVICE int acc_row(int r, int lane) { return 2 * r + lane / 16; }
#define LANE_DEPTH 16
#define WMMA(name) name##_w32
#endif

DEVICE Accumulators mma(Fragment a, Fragment b, Accumulators c, f16) {
  typedef _Float16 Row __attribute__((ext_vector_type(LANE_DEPTH)));
  return WMMA(__builtin_amdgcn_wmma_f32_16x16x16_f16)(__builtin_bit_cast(Row, a), __builtin_bit_cast(Row, b), c);
}
DEVICE Accumulators mma(Fragment a, Fragment b, Accumulators c, bf16) {
  typedef short Row __attribute__((ext_vector_type(LANE_DEPTH)));
  return WMMA(__builtin_amdgcn_wmma_f32_16x16x16_bf16)(__builtin_bit_cast(Row, a), __builtin_bit_cast(Row, b), c);
}

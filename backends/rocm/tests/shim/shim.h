// A kernel's text as C++ for this CPU: what the text takes from HIP's compiler, on top of shim.cpp. The text given
// to hiprtc is compiled as it is, with the macros of its target:
//
//   clang++ -std=c++17 -fPIC -shared -D__gfx942__ -D__GFX9__ -DTEXT='"kernel.hip"' kernel.cpp shim.o -o kernel.so
//
// A work-item that waits is a fiber; a collective is computed from the fragments of a whole wave, in the lane
// layouts of AMD's ISA guides. This tells of indices, layouts, barriers and arithmetic, not of code generation.
#pragma once

#define __global__
#define __device__
#define __launch_bounds__(...)
// Static within a function and defined elsewhere if it is extern, as HIP's.
#define __shared__ thread_local

struct ShimIndex {
  unsigned x, y, z;
};
extern ShimIndex shim_grid, shim_block, shim_group;
ShimIndex shim_item();
#define gridDim shim_grid
#define blockDim shim_block
#define blockIdx shim_group
#define threadIdx shim_item()

// Waits for every work-item of the group.
void shim_barrier();
inline void __syncthreads() { shim_barrier(); }
#define __builtin_amdgcn_s_barrier shim_barrier
#define __builtin_amdgcn_fence(...) (void)0
#define __builtin_amdgcn_sched_barrier(...) (void)0

// A matrix instruction: the rows and columns of its result, the depth that a lane's fragments have, which sums
// a lane has, and what an element of a fragment is.
enum class ShimElement { F16, Bf16, F32 };
enum class ShimLanes { Mfma, Gfx11, Gfx12 };
struct ShimMatrix {
  const char* name;
  ShimLanes lanes;
  ShimElement element;
  int depth;
};
// Adds the product of all lanes' fragments `a` (a row each) and `b` (a column each) to the lane's sums `c`.
void shim_product(const ShimMatrix&, const void* a, const void* b, float* c);

template <class V, class Sums> Sums shim_multiply(const ShimMatrix& matrix, const V& a, const V& b, Sums c) {
  shim_product(matrix, &a, &b, (float*)&c);
  return c;
}
#define SHIM_MATRIX(name, lanes, element, depth) \
  constexpr ShimMatrix shim_##name = {#name, ShimLanes::lanes, ShimElement::element, depth}
SHIM_MATRIX(mfma_f32_32x32x2f32, Mfma, F32, 1);
SHIM_MATRIX(mfma_f32_32x32x8f16, Mfma, F16, 4);
SHIM_MATRIX(mfma_f32_32x32x8bf16_1k, Mfma, Bf16, 4);
SHIM_MATRIX(mfma_f32_32x32x16_f16, Mfma, F16, 8);
SHIM_MATRIX(mfma_f32_32x32x16_bf16, Mfma, Bf16, 8);
SHIM_MATRIX(wmma_f32_16x16x16_f16_w32, Gfx11, F16, 16);
SHIM_MATRIX(wmma_f32_16x16x16_bf16_w32, Gfx11, Bf16, 16);
SHIM_MATRIX(wmma_f32_16x16x16_f16_w32_gfx12, Gfx12, F16, 8);
SHIM_MATRIX(wmma_f32_16x16x16_bf16_w32_gfx12, Gfx12, Bf16, 8);
#define __builtin_amdgcn_mfma_f32_32x32x2f32(a, b, c, x, y, z) shim_multiply(shim_mfma_f32_32x32x2f32, a, b, c)
#define __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, x, y, z) shim_multiply(shim_mfma_f32_32x32x8f16, a, b, c)
#define __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, b, c, x, y, z) shim_multiply(shim_mfma_f32_32x32x8bf16_1k, a, b, c)
#define __builtin_amdgcn_mfma_f32_32x32x16_f16(a, b, c, x, y, z) shim_multiply(shim_mfma_f32_32x32x16_f16, a, b, c)
#define __builtin_amdgcn_mfma_f32_32x32x16_bf16(a, b, c, x, y, z) shim_multiply(shim_mfma_f32_32x32x16_bf16, a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c) shim_multiply(shim_wmma_f32_16x16x16_f16_w32, a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c) shim_multiply(shim_wmma_f32_16x16x16_bf16_w32, a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c) \
  shim_multiply(shim_wmma_f32_16x16x16_f16_w32_gfx12, a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c) \
  shim_multiply(shim_wmma_f32_16x16x16_bf16_w32_gfx12, a, b, c)

// Of the C library, by name: its headers have names that a text may want.
extern "C" {
float expf(float), expm1f(float), log1pf(float), tanhf(float), powf(float, float), sqrtf(float), fabsf(float);
float fmaf(float, float, float), fminf(float, float), fmaxf(float, float);
double exp(double), erfc(double), sqrt(double), fabs(double), fmin(double, double), fmax(double, double);
}
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float normcdff(float x) { return (float)(0.5 * erfc(-0.70710678118654752 * x)); }

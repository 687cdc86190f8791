// What hiprtc declares by itself, for editors alone: no kernel is compiled with this.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
struct Index {
  unsigned x, y, z;
};
extern const __device__ Index threadIdx, blockIdx, blockDim, gridDim;
__device__ void __syncthreads();
__device__ float fmaf(float, float, float);
__device__ float fminf(float, float);
__device__ float fmaxf(float, float);
__device__ float fabsf(float);
__device__ float sqrtf(float);
__device__ float __fdividef(float, float);
__device__ float expf(float);
__device__ float expm1f(float);
__device__ float log1pf(float);
__device__ float powf(float, float);
__device__ float tanhf(float);
__device__ float normcdff(float);

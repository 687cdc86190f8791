/* How this copy of the library was built. */
#ifndef FUSEPLAN_MIOPEN_CONFIG_H
#define FUSEPLAN_MIOPEN_CONFIG_H

/*
 * 1 where a program is compiled for HIP on AMD's platform and HIP's header is found, as in AMD's own copy; then
 * miopenAcceleratorQueue_t is HIP's hipStream_t. A compiler for HIP sets __HIP__, from which HIP's header
 * concludes its platform. A program that defines MIOPEN_BACKEND_HIP itself, before this header or on the
 * compiler's command line, decides; where HIP's header is not found, or with 0, the queue is an opaque pointer
 * of the same size.
 */
#if !defined(MIOPEN_BACKEND_HIP) && defined(__has_include)
#if defined(__HIP_PLATFORM_AMD__) || defined(__HIP_PLATFORM_HCC__) || defined(__HIP__)
#if __has_include(<hip/hip_runtime_api.h>)
#define MIOPEN_BACKEND_HIP 1
#endif
#endif
#endif

#ifndef MIOPEN_BACKEND_HIP
#define MIOPEN_BACKEND_HIP 0
#endif

#ifndef MIOPEN_BACKEND_OPENCL
#define MIOPEN_BACKEND_OPENCL 0
#endif

/* Always defined here, so a program can tell this library from AMD's. */
#define MIOPEN_IS_FUSEPLAN 1

#endif

/* How this copy of the library was built. */
#ifndef FUSEPLAN_MIOPEN_CONFIG_H
#define FUSEPLAN_MIOPEN_CONFIG_H

/*
 * Define MIOPEN_BACKEND_HIP as 1 before including <miopen/miopen.h> (or on the compiler's command line) to
 * have miopenAcceleratorQueue_t be HIP's hipStream_t. That needs <hip/hip_runtime_api.h>; where it is not
 * found, or not asked for, the queue is an opaque pointer of the same size.
 */
#ifndef MIOPEN_BACKEND_HIP
#define MIOPEN_BACKEND_HIP 0
#endif

#ifndef MIOPEN_BACKEND_OPENCL
#define MIOPEN_BACKEND_OPENCL 0
#endif

/* Always defined here, so a program can tell this library from AMD's. */
#define MIOPEN_IS_FUSEPLAN 1

#endif

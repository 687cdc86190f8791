/*
 * How programs include the header, and what the stream and the backend's macro are then. run.sh compiles it as C
 * and C++ for each WAY, each platform macro, with MIOPEN_BACKEND_HIP set and not, with HIP's header and without.
 * It says in EXPECT_BACKEND what the macro has to be, and in EXPECT_STREAM whether the queue is HIP's stream.
 */
#if WAY == 1 /* AMD's sample: HIP first. */
#include <hip/hip_runtime.h>
#include <miopen/miopen.h>
#elif WAY == 2 /* MIOpenDriver: what the library was built with decides what else is included. */
#include <miopen/config.h>
#if MIOPEN_BACKEND_HIP
#include <hip/hip_runtime_api.h>
#endif
#include <miopen/miopen.h>
#elif WAY == 3 /* MIVisionX: HIP behind. */
#include <miopen/miopen.h>
#include <hip/hip_runtime.h>
#elif WAY == 4 /* Nothing of HIP's but what the header brings. */
#include <miopen/miopen.h>
#include <miopen/version.h>
#endif

#if MIOPEN_BACKEND_HIP != EXPECT_BACKEND
#error "MIOPEN_BACKEND_HIP is another"
#endif
#if MIOPEN_BACKEND_OPENCL
#error "OpenCL"
#endif

miopenStatus_t use(miopenHandle_t* handle, void* opaque);
miopenStatus_t use(miopenHandle_t* handle, void* opaque) {
#if EXPECT_STREAM
    /* Pointers to the two types convert only if they are one. */
    hipStream_t stream = (hipStream_t)opaque, got;
    miopenAcceleratorQueue_t* same = &stream;
    miopenStatus_t status = miopenCreateWithStream(handle, *same);
    return status ? status : miopenGetStream(*handle, &got);
#else
    miopenAcceleratorQueue_t stream = (miopenAcceleratorQueue_t)opaque;
    return miopenCreateWithStream(handle, stream);
#endif
}

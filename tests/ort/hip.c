/*
 * libamdhip64.so.7 without a GPU, for ONNX Runtime's ROCm provider as it comes from PyPI: memory of the device is the
 * host's, copies are done when the call returns, streams and events have nothing to wait for. So a MIOpen that
 * computes on the CPU is a GPU's MIOpen to the provider.
 *
 * Kernels of the provider's own are machine code for a GPU. Launching one fails, with the kernel's name on stderr and
 * in the error that the provider raises; nothing is computed in its place.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int hipError_t;
typedef struct stream *hipStream_t;
typedef struct event *hipEvent_t;

enum {
    hipSuccess = 0,
    hipErrorInvalidValue = 1,
    hipErrorOutOfMemory = 2,
    hipErrorInvalidDevice = 101,
    hipErrorNoBinaryForGpu = 209,
    hipErrorNotSupported = 801,
};

/* HIP 7.2, the version that the provider was built with. */
enum { VERSION = 70200000 };

/* What AMD promises of hipMalloc's addresses. */
enum { ALIGNMENT = 256 };

/* The last failure, until it is asked for. */
static _Thread_local hipError_t last_error;

static hipError_t failed(hipError_t error) {
    last_error = error;
    return error;
}

/* ---- errors ---- */

const char *hipGetErrorName(hipError_t error) {
    switch (error) {
    case hipSuccess: return "hipSuccess";
    case hipErrorInvalidValue: return "hipErrorInvalidValue";
    case hipErrorOutOfMemory: return "hipErrorOutOfMemory";
    case hipErrorInvalidDevice: return "hipErrorInvalidDevice";
    case hipErrorNoBinaryForGpu: return "hipErrorNoBinaryForGpu";
    case hipErrorNotSupported: return "hipErrorNotSupported";
    default: return "hipErrorUnknown";
    }
}
const char *hipGetErrorString(hipError_t error) {
    return error == hipErrorNoBinaryForGpu ? "a kernel of the program's own was launched, and there is no GPU"
                                           : hipGetErrorName(error);
}
hipError_t hipGetLastError(void) {
    hipError_t error = last_error;
    last_error = hipSuccess;
    return error;
}
hipError_t hipPeekAtLastError(void) { return last_error; }

/* ---- the device ---- */

/* The start of hipDeviceProp_tR0600, and its architecture. */
struct properties {
    char name[256];
    char uuid[16];
    char luid[8];
    unsigned luid_node_mask;
    size_t total_global_memory;
    size_t shared_memory_per_block;
    int registers_per_block;
    int warp_size;
    size_t memory_pitch;
    int threads_per_block;
    int block[3];
    int grid[3];
    char others[1160 - 348];
    char architecture[256];
    char rest[1472 - 1416];
};
_Static_assert(offsetof(struct properties, total_global_memory) == 288, "hipDeviceProp_tR0600");
_Static_assert(offsetof(struct properties, others) == 348, "hipDeviceProp_tR0600");
_Static_assert(offsetof(struct properties, architecture) == 1160, "hipDeviceProp_tR0600");
_Static_assert(sizeof(struct properties) == 1472, "hipDeviceProp_tR0600");

static size_t memory_of(int name) { return (size_t)sysconf(name) * (size_t)sysconf(_SC_PAGESIZE); }

hipError_t hipRuntimeGetVersion(int *version) {
    *version = VERSION;
    return hipSuccess;
}
hipError_t hipGetDeviceCount(int *count) {
    *count = 1;
    return hipSuccess;
}
hipError_t hipGetDevice(int *device) {
    *device = 0;
    return hipSuccess;
}
hipError_t hipSetDevice(int device) { return device == 0 ? hipSuccess : failed(hipErrorInvalidDevice); }
hipError_t hipDeviceSynchronize(void) { return hipSuccess; }
hipError_t hipDeviceGetAttribute(int *value, int attribute, int device) {
    (void)attribute;
    *value = 1;
    return device == 0 ? hipSuccess : failed(hipErrorInvalidDevice);
}
hipError_t hipGetDevicePropertiesR0600(struct properties *of, int device) {
    if (device != 0) return failed(hipErrorInvalidDevice);
    memset(of, 0, sizeof *of);
    strcpy(of->name, "this machine's processor");
    strcpy(of->architecture, "gfx90a");
    of->total_global_memory = memory_of(_SC_PHYS_PAGES);
    of->shared_memory_per_block = 65536;
    of->registers_per_block = 65536;
    of->warp_size = 64;
    of->threads_per_block = 1024;
    for (int d = 0; d < 3; d++) {
        of->block[d] = 1024;
        of->grid[d] = 65535;
    }
    return hipSuccess;
}
hipError_t hipMemGetInfo(size_t *available, size_t *total) {
    *available = memory_of(_SC_AVPHYS_PAGES);
    *total = memory_of(_SC_PHYS_PAGES);
    return hipSuccess;
}

/* ---- memory ---- */

/* Bytes that are no number, so that what nobody wrote cannot pass for a result. */
hipError_t hipMalloc(void **pointer, size_t bytes) {
    *pointer = NULL;
    if (bytes == 0) return hipSuccess;
    if (bytes > SIZE_MAX - ALIGNMENT) return failed(hipErrorOutOfMemory);
    *pointer = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (!*pointer) return failed(hipErrorOutOfMemory);
    memset(*pointer, 0xff, bytes);
    return hipSuccess;
}
hipError_t hipHostMalloc(void **pointer, size_t bytes, unsigned flags) {
    (void)flags;
    return hipMalloc(pointer, bytes);
}
hipError_t hipFree(void *pointer) {
    free(pointer);
    return hipSuccess;
}
hipError_t hipHostFree(void *pointer) { return hipFree(pointer); }

hipError_t hipMemcpy(void *to, const void *from, size_t bytes, int kind) {
    (void)kind;
    memmove(to, from, bytes);
    return hipSuccess;
}
hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, hipStream_t stream) {
    (void)stream;
    return hipMemcpy(to, from, bytes, kind);
}
hipError_t hipMemcpyWithStream(void *to, const void *from, size_t bytes, int kind, hipStream_t stream) {
    (void)stream;
    return hipMemcpy(to, from, bytes, kind);
}
hipError_t hipMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                            int kind, hipStream_t stream) {
    (void)kind, (void)stream;
    for (size_t row = 0; row < height; row++)
        memmove((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
    return hipSuccess;
}
hipError_t hipMemset(void *to, int value, size_t bytes) {
    memset(to, value, bytes);
    return hipSuccess;
}
hipError_t hipMemsetAsync(void *to, int value, size_t bytes, hipStream_t stream) {
    (void)stream;
    return hipMemset(to, value, bytes);
}

/* ---- streams and events: addresses of their own, and nothing to wait for ---- */

static hipError_t object(void **to) {
    *to = malloc(1);
    return *to ? hipSuccess : failed(hipErrorOutOfMemory);
}

hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned flags) {
    (void)flags;
    return object((void **)stream);
}
hipError_t hipStreamDestroy(hipStream_t stream) {
    free(stream);
    return hipSuccess;
}
hipError_t hipStreamSynchronize(hipStream_t stream) {
    (void)stream;
    return hipSuccess;
}
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags) {
    (void)stream, (void)event, (void)flags;
    return hipSuccess;
}
int hipGetStreamDeviceId(hipStream_t stream) {
    (void)stream;
    return 0;
}
hipError_t hipLaunchHostFunc(hipStream_t stream, void (*function)(void *), void *data) {
    (void)stream;
    function(data);
    return hipSuccess;
}

hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned flags) {
    (void)flags;
    return object((void **)event);
}
hipError_t hipEventCreate(hipEvent_t *event) { return hipEventCreateWithFlags(event, 0); }
hipError_t hipEventDestroy(hipEvent_t event) {
    free(event);
    return hipSuccess;
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
    (void)event, (void)stream;
    return hipSuccess;
}
hipError_t hipEventSynchronize(hipEvent_t event) {
    (void)event;
    return hipSuccess;
}
hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t from, hipEvent_t to) {
    (void)from, (void)to;
    *milliseconds = 0;
    return hipSuccess;
}

/* ---- what only a GPU has ---- */

static hipError_t unsupported(void) { return failed(hipErrorNotSupported); }
hipError_t hipStreamBeginCapture(void) { return unsupported(); }
hipError_t hipStreamEndCapture(void) { return unsupported(); }
hipError_t hipGraphInstantiate(void) { return unsupported(); }
hipError_t hipGraphLaunch(void) { return unsupported(); }
hipError_t hipGraphDestroy(void) { return unsupported(); }
hipError_t hipGraphExecDestroy(void) { return unsupported(); }

/* A kernel of the program's: its handle, and its mangled name, which lives as long as the program. */
struct kernel {
    const void *handle;
    const char *name;
};
static struct kernel *kernels;
static size_t kernel_count, kernel_room;

void **__hipRegisterFatBinary(const void *data) {
    (void)data;
    static void *module;
    return &module;
}
void __hipUnregisterFatBinary(void **modules) { (void)modules; }
/* Called by one thread, while the program is loaded. */
void __hipRegisterFunction(void **modules, const void *handle, char *text, const char *name) {
    (void)modules, (void)text;
    if (kernel_count == kernel_room) {
        size_t room = kernel_room ? 2 * kernel_room : 1024;
        struct kernel *more = realloc(kernels, room * sizeof *more);
        if (!more) return;
        kernels = more;
        kernel_room = room;
    }
    kernels[kernel_count++] = (struct kernel){handle, name};
}
void __hipRegisterVar(void) {}
hipError_t __hipPushCallConfiguration(void) { return hipSuccess; }
hipError_t __hipPopCallConfiguration(void) { return hipSuccess; }

hipError_t hipLaunchKernel(const void *handle) {
    const char *name = "an unknown one";
    for (size_t i = 0; i < kernel_count; i++)
        if (kernels[i].handle == handle) name = kernels[i].name;
    fprintf(stderr, "device kernel: %s\n", name);
    return failed(hipErrorNoBinaryForGpu);
}

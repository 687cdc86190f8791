//! The C interfaces of the driver and of NVRTC: types, numbers and tables of functions, as far as this backend
//! needs them.
//!
//! They are written down here and not taken from a crate of bindings for three reasons. What a call returns
//! is a plain number: a newer library may return one that this version does not know, which no Rust
//! enumeration may hold. A function that a library lacks is an error of the one call that needs it. And there
//! is no CUDA version to choose at build time, on which every crate of a build would have to agree.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::Library;

/// What a function returns; 0 is success.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) c_int);

impl Status {
    pub(crate) const SUCCESS: Status = Status(0);
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub(crate) const OUT_OF_MEMORY: Status = Status(2);
    /// `NVRTC_ERROR_COMPILATION`.
    pub(crate) const COMPILATION: Status = Status(6);
}

pub(crate) type CUdevice = c_int;
/// An address in a device's memory.
pub(crate) type CUdeviceptr = u64;
/// Contexts, modules, functions, streams, events, graphs, nodes, user objects and programs are opaque.
pub(crate) type Opaque = *mut c_void;

pub(crate) const CU_DEVICE_ATTRIBUTE_WARP_SIZE: c_int = 10;
pub(crate) const CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: c_int = 16;
pub(crate) const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: c_int = 75;
pub(crate) const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: c_int = 76;
pub(crate) const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: c_int = 97;
pub(crate) const CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: c_int = 1;
pub(crate) const CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: c_int = 3;
pub(crate) const CU_FUNC_ATTRIBUTE_NUM_REGS: c_int = 4;
pub(crate) const CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;
pub(crate) const CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: c_int = 6;
pub(crate) const CU_STREAM_NON_BLOCKING: c_uint = 1;
pub(crate) const CU_STREAM_CAPTURE_MODE_RELAXED: c_int = 2;
pub(crate) const CU_STREAM_CAPTURE_STATUS_NONE: c_int = 0;
pub(crate) const CU_USER_OBJECT_NO_DESTRUCTOR_SYNC: c_uint = 1;
pub(crate) const CU_GRAPH_USER_OBJECT_MOVE: c_uint = 1;
pub(crate) const CU_TENSOR_MAP_DATA_TYPE_FLOAT16: c_int = 6;
pub(crate) const CU_TENSOR_MAP_DATA_TYPE_FLOAT32: c_int = 7;
pub(crate) const CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: c_int = 9;
pub(crate) const CU_TENSOR_MAP_DATA_TYPE_TFLOAT32: c_int = 11;
pub(crate) const CU_TENSOR_MAP_INTERLEAVE_NONE: c_int = 0;
pub(crate) const CU_TENSOR_MAP_SWIZZLE_NONE: c_int = 0;
pub(crate) const CU_TENSOR_MAP_SWIZZLE_32B: c_int = 1;
pub(crate) const CU_TENSOR_MAP_SWIZZLE_64B: c_int = 2;
pub(crate) const CU_TENSOR_MAP_SWIZZLE_128B: c_int = 3;
pub(crate) const CU_TENSOR_MAP_L2_PROMOTION_L2_256B: c_int = 3;
pub(crate) const CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE: c_int = 0;
pub(crate) const CU_EVENT_DEFAULT: c_uint = 0;

/// `CUlaunchAttribute`: its number, and the value's first words of sixteen.
#[repr(C, align(8))]
pub(crate) struct LaunchAttribute {
    pub(crate) id: c_int,
    pub(crate) unused: c_int,
    pub(crate) value: [c_int; 16],
}

/// `CUlaunchConfig`.
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
    pub(crate) stream: Opaque,
    pub(crate) attributes: *const LaunchAttribute,
    pub(crate) count: c_uint,
}

/// A library's functions by their names. One that the library does not have is `None`.
macro_rules! table {
    ($(#[$doc:meta])* $table:ident { $($function:ident($($type:ty),* $(,)?) $(-> $result:ty)?;)* }) => {
        $(#[$doc])*
        #[allow(non_snake_case, reason = "the library's own names")]
        pub(crate) struct $table {
            $(pub(crate) $function: Option<unsafe extern "system" fn($($type),*) -> table!(@result $($result)?)>,)*
        }

        impl $table {
            /// # Safety
            /// The library's functions of these names have these types.
            pub(crate) unsafe fn of(library: &Library) -> Self {
                $table {
                    // SAFETY: as promised by the caller.
                    $($function: unsafe { library.get(stringify!($function)) }.ok().map(|found| *found),)*
                }
            }
        }
    };
    (@result) => { Status };
    (@result $result:ty) => { $result };
}

table! {
    /// The driver. Names with a version are those that the header's names stand for.
    Driver {
        cuCtxGetCurrent(*mut Opaque);
        cuCtxGetDevice(*mut CUdevice);
        cuCtxPopCurrent_v2(*mut Opaque);
        cuCtxPushCurrent_v2(Opaque);
        cuDeviceGet(*mut CUdevice, c_int);
        cuDeviceGetAttribute(*mut c_int, c_int, CUdevice);
        cuDeviceGetCount(*mut c_int);
        cuDeviceGetName(*mut c_char, c_int, CUdevice);
        cuDevicePrimaryCtxRelease_v2(CUdevice);
        cuDevicePrimaryCtxRetain(*mut Opaque, CUdevice);
        cuDeviceTotalMem_v2(*mut usize, CUdevice);
        cuDriverGetVersion(*mut c_int);
        cuEventCreate(*mut Opaque, c_uint);
        cuEventDestroy_v2(Opaque);
        cuEventElapsedTime(*mut f32, Opaque, Opaque);
        cuEventRecord(Opaque, Opaque);
        cuEventSynchronize(Opaque);
        cuFuncGetAttribute(*mut c_int, c_int, Opaque);
        cuFuncSetAttribute(Opaque, c_int, c_int);
        cuGetErrorName(Status, *mut *const c_char);
        cuGetErrorString(Status, *mut *const c_char);
        cuGraphAddChildGraphNode(*mut Opaque, Opaque, *const Opaque, usize, Opaque);
        cuGraphDestroy(Opaque);
        cuGraphExecChildGraphNodeSetParams(Opaque, Opaque, Opaque);
        cuGraphExecDestroy(Opaque);
        cuGraphInstantiateWithFlags(*mut Opaque, Opaque, u64);
        cuGraphLaunch(Opaque, Opaque);
        cuGraphRetainUserObject(Opaque, Opaque, c_uint, c_uint);
        cuInit(c_uint);
        cuLaunchKernel(
            Opaque, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Opaque, *mut *mut c_void,
            *mut *mut c_void,
        );
        cuLaunchKernelEx(*const LaunchConfig, Opaque, *mut *mut c_void, *mut *mut c_void);
        cuMemAlloc_v2(*mut CUdeviceptr, usize);
        cuMemFree_v2(CUdeviceptr);
        cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, Opaque);
        cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, Opaque);
        cuMemsetD8Async(CUdeviceptr, u8, usize, Opaque);
        cuModuleGetFunction(*mut Opaque, Opaque, *const c_char);
        cuModuleLoadData(*mut Opaque, *const c_void);
        cuModuleUnload(Opaque);
        cuOccupancyMaxActiveBlocksPerMultiprocessor(*mut c_int, Opaque, c_int, usize);
        cuStreamBeginCapture_v2(Opaque, c_int);
        cuStreamCreate(*mut Opaque, c_uint);
        cuStreamDestroy_v2(Opaque);
        cuStreamEndCapture(Opaque, *mut Opaque);
        cuStreamGetCaptureInfo_v2(Opaque, *mut c_int, *mut u64, *mut Opaque, *mut *const Opaque, *mut usize);
        cuStreamGetId(Opaque, *mut u64);
        cuStreamSynchronize(Opaque);
        cuTensorMapEncodeIm2col(
            *mut u64, c_int, c_uint, *mut c_void, *const u64, *const u64, *const c_int, *const c_int, c_uint, c_uint,
            *const c_uint, c_int, c_int, c_int, c_int,
        );
        cuTensorMapEncodeTiled(
            *mut u64, c_int, c_uint, *mut c_void, *const u64, *const u64, *const c_uint, *const c_uint, c_int, c_int,
            c_int, c_int,
        );
        cuThreadExchangeStreamCaptureMode(*mut c_int);
        cuUserObjectCreate(*mut Opaque, *mut c_void, unsafe extern "C" fn(*mut c_void), c_uint, c_uint);
        cuUserObjectRelease(Opaque, c_uint);
    }
}

table! {
    /// The run-time compiler.
    Nvrtc {
        nvrtcCompileProgram(Opaque, c_int, *const *const c_char);
        nvrtcCreateProgram(
            *mut Opaque, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
        );
        nvrtcDestroyProgram(*mut Opaque);
        nvrtcGetCUBIN(Opaque, *mut c_char);
        nvrtcGetCUBINSize(Opaque, *mut usize);
        nvrtcGetErrorString(Status) -> *const c_char;
        nvrtcGetProgramLog(Opaque, *mut c_char);
        nvrtcGetProgramLogSize(Opaque, *mut usize);
        nvrtcVersion(*mut c_int, *mut c_int);
    }
}

//! DLPack's structures, as far as a reader needs them (`dlpack.h`, version 1).

use std::ffi::c_void;

/// Memory of the host.
pub(crate) const CPU: i32 = 1;
/// Memory of a CUDA device.
pub(crate) const CUDA: i32 = 2;
/// Memory of the host that is pinned for CUDA.
pub(crate) const CUDA_HOST: i32 = 3;
/// Memory of a ROCm device.
pub(crate) const ROCM: i32 = 10;
/// Memory of the host that is pinned for ROCm.
pub(crate) const ROCM_HOST: i32 = 11;
/// Memory that CUDA moves between host and device.
pub(crate) const CUDA_MANAGED: i32 = 13;

/// `DLDevice`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Device {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

/// `DLDataType`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct DataType {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

/// `DLTensor`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Tensor {
    pub(crate) data: *mut c_void,
    pub(crate) device: Device,
    pub(crate) ndim: i32,
    pub(crate) dtype: DataType,
    pub(crate) shape: *const i64,
    /// In elements; null where the tensor is packed, the last dimension innermost.
    pub(crate) strides: *const i64,
    pub(crate) byte_offset: u64,
}

/// `DLManagedTensorVersioned`, in a capsule named `dltensor_versioned`. In one named `dltensor`, `DLManagedTensor` starts
/// with the tensor itself.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Versioned {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) tensor: Tensor,
}

/// The flag of memory that must not be written.
pub(crate) const READ_ONLY: u64 = 1;

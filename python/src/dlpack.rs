//! DLPack's structures, as far as a reader needs them (`dlpack.h`, version 1).

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

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
    pub(crate) deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    pub(crate) flags: u64,
    pub(crate) tensor: Tensor,
}

/// The flag of memory that must not be written.
pub(crate) const READ_ONLY: u64 = 1;

/// The beginning of `DLPackExchangeAPI`, the functions of a type whose arrays are handed over without a call of Python.
#[repr(C)]
struct ExchangeApi {
    major: u32,
    minor: u32,
    previous: *const c_void,
    allocate: *const c_void,
    export: unsafe extern "C" fn(*mut pyo3::ffi::PyObject, *mut *mut Versioned) -> c_int,
}

/// A tensor whose memory lives as long as this does.
#[derive(Debug)]
pub(crate) struct Managed(NonNull<Versioned>);

// SAFETY: nobody changes the structure, and DLPack's consumers may let go of it in any thread.
unsafe impl Send for Managed {}
// SAFETY: as for `Send`.
unsafe impl Sync for Managed {}

impl Managed {
    /// The tensor that an object is, if its type hands tensors over in C. No stream waits for another.
    ///
    /// # Errors
    /// What the type's function raises.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let py = object.py();
        let Some(api) = object.get_type().getattr_opt(intern!(py, "__dlpack_c_exchange_api__"))? else {
            return Ok(None);
        };
        let Ok(api) = api.cast::<PyCapsule>() else { return Ok(None) };
        let api = api.pointer_checked(Some(c"dlpack_exchange_api"))?.cast::<ExchangeApi>();
        // SAFETY: a capsule of this name holds this structure, which lives as long as the process. Every version starts with
        // the version's numbers.
        if unsafe { (*api.as_ptr()).major } != 1 {
            return Ok(None);
        }
        // A tensor that records gradients is refused by `__dlpack__`, in the library's own words.
        if object.getattr_opt(intern!(py, "requires_grad"))?.map_or(Ok(false), |wants| wants.is_truthy())? {
            return Ok(None);
        }
        let mut tensor = std::ptr::null_mut();
        // SAFETY: the structure is that of version 1, the object is of the type that it was found at, and Python's lock is
        // held.
        let status = unsafe { (api.as_ref().export)(object.as_ptr(), &raw mut tensor) };
        if status != 0 {
            return Err(PyErr::fetch(py));
        }
        let tensor = NonNull::new(tensor).ok_or_else(|| PyBufferError::new_err("DLPack gave no tensor"))?;
        Ok(Some(Managed(tensor)))
    }

    pub(crate) fn get(&self) -> &Versioned {
        // SAFETY: the structure lives until its deleter is called.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        if let Some(deleter) = self.get().deleter {
            // SAFETY: this is the only owner, which is gone now.
            unsafe { deleter(self.0.as_ptr()) }
        }
    }
}

//! DLPack's structures, as far as a reader needs them (`dlpack.h`, version 1).

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};

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
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub(crate) struct Device {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

impl Device {
    /// The backend, and the number of its device, that alone can use the memory; none where several can, or no backend.
    pub(crate) fn of_backend(self) -> Option<(&'static str, u32)> {
        let numbered = |backend| Some((backend, u32::try_from(self.id).ok()?));
        match self.kind {
            CPU | CUDA_HOST | ROCM_HOST => Some(("cpu", 0)),
            CUDA => numbered("cuda"),
            ROCM => numbered("rocm"),
            _ => None,
        }
    }
}

/// `DLDataType`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub(crate) struct DataType {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

/// Floating-point numbers of 32 bits.
pub(crate) const F32: DataType = DataType { code: 2, bits: 32, lanes: 1 };

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

/// `DLPackDLTensorFromPyObjectNoSync`
type Look = unsafe extern "C" fn(*mut pyo3::ffi::PyObject, *mut Tensor) -> c_int;

/// The beginning of `DLPackExchangeAPI`, the functions of a type whose arrays are handed over without a call of Python.
#[repr(C)]
struct ExchangeApi {
    major: u32,
    minor: u32,
    previous: *const c_void,
    allocate: *const c_void,
    export: unsafe extern "C" fn(*mut pyo3::ffi::PyObject, *mut *mut Versioned) -> c_int,
    import: *const c_void,
    look: Option<Look>,
}

impl ExchangeApi {
    /// The functions of a type, if it has those of version 1.
    fn of(class: &Bound<'_, PyType>) -> PyResult<Option<&'static Self>> {
        let Some(api) = class.getattr_opt(intern!(class.py(), "__dlpack_c_exchange_api__"))? else {
            return Ok(None);
        };
        let Ok(api) = api.cast::<PyCapsule>() else { return Ok(None) };
        let api = api.pointer_checked(Some(c"dlpack_exchange_api"))?.cast::<ExchangeApi>();
        // SAFETY: a capsule of this name holds this structure, which lives as long as the process. Every version starts with
        // the version's numbers.
        let major = unsafe { (*api.as_ptr()).major };
        if major != 1 {
            return Ok(None);
        }
        // SAFETY: the structure is that of version 1, lives as long as the process, and nobody changes it.
        Ok(Some(unsafe { api.as_ref() }))
    }
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
        let Some(api) = ExchangeApi::of(&object.get_type())? else { return Ok(None) };
        // A tensor that records gradients is refused by `__dlpack__`, in the library's own words.
        if object.getattr_opt(intern!(py, "requires_grad"))?.map_or(Ok(false), |wants| wants.is_truthy())? {
            return Ok(None);
        }
        let mut tensor = std::ptr::null_mut();
        // SAFETY: the object is of the type that the function was found at, and Python's lock is held.
        let status = unsafe { (api.export)(object.as_ptr(), &raw mut tensor) };
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

/// A tensor as it is at the moment.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) address: usize,
    pub(crate) device: Device,
    pub(crate) dtype: DataType,
    pub(crate) shape: &'a [i64],
    /// In elements, also where a length of 1 makes them meaningless.
    pub(crate) strides: &'a [i64],
}

/// Looks at the tensors of a type without a call of Python, and keeps nothing of them.
#[derive(Debug)]
pub(crate) struct Looker {
    class: Py<PyType>,
    look: Look,
}

impl Looker {
    /// What looks at a type's tensors, if the type has a function in C for it.
    ///
    /// # Errors
    /// What the look-up of the type's attribute raises.
    pub(crate) fn of(class: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        let look = ExchangeApi::of(class)?.and_then(|api| api.look);
        Ok(look.map(|look| Looker { class: class.clone().unbind(), look }))
    }

    /// What `read` tells from a tensor; nothing of an object of another type or a tensor that DLPack has no words for.
    pub(crate) fn look<R>(&self, object: &Bound<'_, PyAny>, read: impl FnOnce(&View<'_>) -> R) -> Option<R> {
        let py = object.py();
        // SAFETY: both are objects that live, the second is a type, and Python's lock is held.
        let is_known =
            unsafe { pyo3::ffi::PyObject_TypeCheck(object.as_ptr(), self.class.as_ptr().cast()) } != 0;
        if !is_known {
            return None;
        }
        let mut tensor = Tensor {
            data: std::ptr::null_mut(),
            device: Device { kind: 0, id: 0 },
            ndim: 0,
            dtype: DataType { code: 0, bits: 0, lanes: 0 },
            shape: std::ptr::null(),
            strides: std::ptr::null(),
            byte_offset: 0,
        };
        // SAFETY: the object is of the function's type, and Python's lock is held.
        if unsafe { (self.look)(object.as_ptr(), &raw mut tensor) } != 0 {
            drop(PyErr::take(py));
            return None;
        }
        let rank = usize::try_from(tensor.ndim).unwrap_or(0);
        let numbers = |pointer: *const i64| match rank {
            0 => Some(&[][..]),
            _ if pointer.is_null() => None,
            // SAFETY: lengths and strides have `ndim` entries, which are the tensor's own; it is alive, and does not change
            // while `read` looks at them, as Python's lock is held and `read` cannot reach the object.
            _ => Some(unsafe { std::slice::from_raw_parts(pointer, rank) }),
        };
        Some(read(&View {
            address: tensor.data.expose_provenance() + tensor.byte_offset as usize,
            device: tensor.device,
            dtype: tensor.dtype,
            shape: numbers(tensor.shape)?,
            strides: numbers(tensor.strides)?,
        }))
    }
}

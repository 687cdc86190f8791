//! Arrays of other libraries, read where they lie: memory of the host by NumPy's protocols, any memory by DLPack. Of each there
//! is one in C, which costs a call next to nothing, and one in Python.

use std::ffi::{c_char, c_int, c_void};

use fuseplan::DataType;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyString, PyTuple};

use crate::tensor::{check_packed, in_blocks, strides};
use crate::{dlpack, error, names};

/// The most dimensions that a descriptor has.
pub(crate) const MAX_RANK: usize = 5;

/// What the memory of an array belongs to.
#[derive(Debug)]
pub(crate) enum Owner {
    Object(#[allow(dead_code, reason = "kept, not read")] Py<PyAny>),
    Managed(#[allow(dead_code, reason = "kept, not read")] dlpack::Managed),
}

/// `PyArrayInterface` of NumPy, in the capsule that `__array_struct__` gives.
#[repr(C)]
struct ArrayStruct {
    two: c_int,
    rank: c_int,
    kind: c_char,
    item_size: c_int,
    flags: c_int,
    shape: *const isize,
    /// In bytes.
    strides: *const isize,
    data: *mut c_void,
}

/// The flag of numbers in this machine's order of bytes.
const NOT_SWAPPED: c_int = 0x200;
/// The flag of memory that may be written.
const WRITEABLE: c_int = 0x400;

/// An array with what is known of its memory, which lives as long as `owner` does.
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) descriptor: fuseplan::TensorDescriptor,
    pub(crate) address: usize,
    pub(crate) device: dlpack::Device,
    pub(crate) is_writable: bool,
    pub(crate) owner: Owner,
}

impl Array {
    /// The array that an object is, if it is one, ready for what is launched into `stream` (DLPack's number of it) next.
    ///
    /// # Errors
    /// Elements, lengths or strides that no plan can read; what the array's library raises.
    pub(crate) fn of(name: &str, object: &Bound<'_, PyAny>, stream: Option<usize>) -> PyResult<Option<Self>> {
        let py = object.py();
        if let Some(capsule) = object.getattr_opt(intern!(py, "__array_struct__"))? {
            return Self::of_struct(name, object, capsule.cast::<PyCapsule>()?).map(Some);
        }
        // Memory of the host is in no stream, and PyTorch refuses to hear of one.
        let stream = if stream.is_some() && is_on_host(object)? { None } else { stream };
        if stream.is_none()
            && let Some(managed) = dlpack::Managed::of(object)?
        {
            let dlpack::Versioned { flags, ref tensor, .. } = *managed.get();
            let array = Self::of_tensor(name, object, tensor, flags)?;
            return Ok(Some(Array { owner: Owner::Managed(managed), ..array }));
        }
        if let Some(interface) = object.getattr_opt(intern!(py, "__array_interface__"))? {
            return Self::of_interface(name, object, interface.cast::<PyDict>()?).map(Some);
        }
        let Some(export) = object.getattr_opt(intern!(py, "__dlpack__"))? else { return Ok(None) };
        Self::of_dlpack(name, object, &export, stream).map(Some)
    }

    fn of_struct(name: &str, object: &Bound<'_, PyAny>, capsule: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        let pointer = capsule.pointer_checked(None)?.cast::<ArrayStruct>();
        // SAFETY: NumPy's protocol says that the capsule holds this structure.
        let array = unsafe { pointer.as_ref() };
        if array.two != 2 {
            return Err(PyBufferError::new_err(format!("{name}: __array_struct__ is not NumPy's structure")));
        }
        let is_native = array.flags & NOT_SWAPPED != 0;
        let data_type = match (array.kind as u8, array.item_size) {
            (b'f', 2) if is_native => DataType::Half,
            (b'f', 4) if is_native => DataType::Float,
            (b'f', 8) if is_native => DataType::Double,
            (b'i', 1) => DataType::Int8,
            (kind, size) => other_package(name, object, || format!("{}{size}", char::from(kind)))?,
        };
        let rank = usize::try_from(array.rank).unwrap_or(0);
        let numbers = |pointer: *const isize| -> Vec<i64> {
            if rank == 0 || pointer.is_null() {
                return Vec::new();
            }
            // SAFETY: the structure's lengths and strides have `rank` entries, and live as long as the capsule.
            let numbers = unsafe { std::slice::from_raw_parts(pointer, rank) };
            numbers.iter().map(|&number| number as i64).collect()
        };
        let shape = numbers(array.shape);
        let strides = (!array.strides.is_null()).then(|| numbers(array.strides));
        let strides = strides.map(|bytes| in_elements(name, data_type, &shape, bytes)).transpose()?;
        Ok(Array {
            descriptor: describe(name, data_type, &shape, strides.as_deref())?,
            address: array.data.expose_provenance(),
            device: dlpack::Device { kind: dlpack::CPU, id: 0 },
            is_writable: array.flags & WRITEABLE != 0,
            owner: Owner::Object(object.clone().unbind()),
        })
    }

    fn of_interface<'py>(
        name: &str,
        object: &Bound<'py, PyAny>,
        interface: &Bound<'py, PyDict>,
    ) -> PyResult<Self> {
        let py = object.py();
        let entry = |key: &Bound<'py, PyString>| {
            let missing = || PyBufferError::new_err(format!("{name}: __array_interface__ has no {key}"));
            interface.get_item(key)?.filter(|value| !value.is_none()).ok_or_else(missing)
        };
        let typestr = entry(intern!(py, "typestr"))?;
        let typestr = typestr.cast::<PyString>()?.to_cow()?;
        let native = if cfg!(target_endian = "little") { '<' } else { '>' };
        let data_type = match typestr.strip_prefix([native, '|']) {
            Some("f2") => DataType::Half,
            Some("f4") => DataType::Float,
            Some("f8") => DataType::Double,
            Some("i1") => DataType::Int8,
            _ => other_package(name, object, || typestr.into_owned())?,
        };
        let shape: Vec<i64> = entry(intern!(py, "shape"))?.extract()?;
        let strides = match interface.get_item(intern!(py, "strides"))?.filter(|strides| !strides.is_none()) {
            None => None,
            Some(strides) => Some(in_elements(name, data_type, &shape, strides.extract()?)?),
        };
        let (address, read_only): (usize, bool) = entry(intern!(py, "data"))?.extract()?;
        Ok(Array {
            descriptor: describe(name, data_type, &shape, strides.as_deref())?,
            address,
            device: dlpack::Device { kind: dlpack::CPU, id: 0 },
            is_writable: !read_only,
            owner: Owner::Object(object.clone().unbind()),
        })
    }

    fn of_dlpack(
        name: &str,
        object: &Bound<'_, PyAny>,
        export: &Bound<'_, PyAny>,
        stream: Option<usize>,
    ) -> PyResult<Self> {
        let py = object.py();
        let arguments = PyDict::new(py);
        arguments.set_item(intern!(py, "stream"), stream)?;
        arguments.set_item(intern!(py, "max_version"), (1, 0))?;
        let capsule = match export.call((), Some(&arguments)) {
            // A library of before version 1, which does not know the word.
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {
                arguments.del_item(intern!(py, "max_version"))?;
                export.call((), Some(&arguments))?
            }
            result => result?,
        };
        let managed = capsule.cast::<PyCapsule>()?;
        let (tensor, flags) = if managed.is_valid_checked(Some(c"dltensor_versioned")) {
            let pointer = managed.pointer_checked(Some(c"dltensor_versioned"))?.cast::<dlpack::Versioned>();
            // SAFETY: a capsule of this name holds this structure, and is kept as the array's owner. Every version starts
            // with the version's numbers.
            let major = unsafe { (*pointer.as_ptr()).major };
            if major != 1 {
                return Err(PyBufferError::new_err(format!(
                    "{name}: DLPack {major} is not known; accepted: 1"
                )));
            }
            // SAFETY: the structure is that of version 1.
            let versioned = unsafe { pointer.as_ref() };
            (&versioned.tensor, versioned.flags)
        } else {
            let pointer = managed.pointer_checked(Some(c"dltensor"))?.cast::<dlpack::Tensor>();
            // SAFETY: a capsule of this name holds a structure that starts with the tensor, and is kept as the array's
            // owner.
            (unsafe { pointer.as_ref() }, 0)
        };
        // The capsule frees the tensor when it goes, since nobody has taken it out.
        let array = Self::of_tensor(name, object, tensor, flags)?;
        Ok(Array { owner: Owner::Object(capsule.unbind()), ..array })
    }

    /// What DLPack's structure of an object says.
    fn of_tensor(
        name: &str,
        object: &Bound<'_, PyAny>,
        tensor: &dlpack::Tensor,
        flags: u64,
    ) -> PyResult<Self> {
        let data_type = match (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) {
            (2, 16, 1) => DataType::Half,
            (2, 32, 1) => DataType::Float,
            (2, 64, 1) => DataType::Double,
            (4, 16, 1) => DataType::BFloat16,
            (0, 8, 1) => DataType::Int8,
            (code, bits, lanes) => {
                let known = object.getattr_opt(intern!(object.py(), "dtype"))?.map(|dtype| dtype.to_string());
                let found = known.unwrap_or_else(|| format!("DLPack's {code} of {bits} bits, {lanes} lanes"));
                return Err(other_type(name, found));
            }
        };
        let rank = usize::try_from(tensor.ndim).unwrap_or(0);
        let numbers = |pointer: *const i64| {
            if rank == 0 || pointer.is_null() {
                return None;
            }
            // SAFETY: DLPack's lengths and strides have `ndim` entries, and live as long as the capsule.
            Some(unsafe { std::slice::from_raw_parts(pointer, rank) })
        };
        Ok(Array {
            descriptor: describe(
                name,
                data_type,
                numbers(tensor.shape).unwrap_or(&[]),
                numbers(tensor.strides),
            )?,
            address: tensor.data.addr() + tensor.byte_offset as usize,
            device: tensor.device,
            is_writable: flags & dlpack::READ_ONLY == 0,
            owner: Owner::Object(object.clone().unbind()),
        })
    }

    /// The memory's address.
    pub(crate) fn pointer(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.address)
    }

    /// Whether the device of a handle can use the memory.
    pub(crate) fn check_device(&self, name: &str, handle: &fuseplan::Handle) -> PyResult<()> {
        use dlpack::{CPU, CUDA, CUDA_HOST, CUDA_MANAGED, ROCM, ROCM_HOST};
        let info = handle.device_info();
        let is_here = match (info.backend, self.device.kind) {
            ("cpu" | "cuda", CUDA_MANAGED) => true,
            (backend, _) => self.device.of_backend() == Some((backend, info.ordinal)),
        };
        if is_here {
            return Ok(());
        }
        let id = self.device.id;
        let found = match self.device.kind {
            CPU => "the CPU".into(),
            CUDA => format!("cuda:{id}"),
            CUDA_HOST | ROCM_HOST => "pinned memory of the host".into(),
            CUDA_MANAGED => "managed memory of CUDA".into(),
            ROCM => format!("rocm:{id}"),
            kind => format!("DLPack's device {kind}:{id}"),
        };
        Err(error::operand(name, "device", found, format!("memory of {}", handle.target())))
    }

    /// Whether the array is what a descriptor says; of one value a channel, as the descriptor or as a vector; of blocks of
    /// channels, with a dimension for the blocks' own.
    pub(crate) fn check_is(&self, name: &str, expected: &fuseplan::TensorDescriptor) -> PyResult<()> {
        let found = &self.descriptor;
        if found == expected {
            return Ok(());
        }
        if found.data_type() != expected.data_type() {
            let (found, accepted) = (found.data_type(), expected.data_type());
            let found = names::of_data_type(found);
            return Err(error::operand(name, "dtype", found, names::of_data_type(accepted).into()));
        }
        let is_per_channel = expected.lens().iter().enumerate().all(|(d, &len)| d == 1 || len == 1);
        let list = crate::tensor::list;
        if let Some(shape) = in_blocks(expected) {
            return check_packed(name, found, &shape);
        }
        if is_per_channel && found.lens() == [expected.lens()[1]] {
            if found.is_packed() {
                return Ok(());
            }
            return Err(error::operand(name, "strides", list(strides(name, found)?), "(1,)".into()));
        }
        let (property, found, accepted) = if found.lens() == expected.lens() {
            ("strides", strides(name, found)?, list(strides(name, expected)?))
        } else if is_per_channel {
            let vector = list(&expected.lens()[1..2]);
            ("shape", found.lens(), format!("{} or {vector}", list(expected.lens())))
        } else {
            ("shape", found.lens(), list(expected.lens()))
        };
        Err(error::operand(name, property, list(found), accepted))
    }
}

/// The data type that is no number type of NumPy's, but of a package that it knows, such as ml_dtypes.
fn other_package(name: &str, object: &Bound<'_, PyAny>, code: impl FnOnce() -> String) -> PyResult<DataType> {
    let dtype = object.getattr_opt(intern!(object.py(), "dtype"))?.map(|dtype| dtype.to_string());
    match dtype.as_deref() {
        Some("bfloat16") => Ok(DataType::BFloat16),
        _ => Err(other_type(name, dtype.unwrap_or_else(code))),
    }
}

/// Strides of bytes as strides of elements.
fn in_elements(name: &str, data_type: DataType, shape: &[i64], bytes: Vec<i64>) -> PyResult<Vec<i64>> {
    let size = data_type.size() as i64;
    if !shape.iter().zip(&bytes).all(|(&len, &stride)| len < 2 || stride % size == 0) {
        let accepted = format!("whole elements of {size} bytes");
        return Err(error::operand(name, "strides", format!("{bytes:?} bytes"), accepted));
    }
    Ok(bytes.into_iter().map(|stride| stride / size).collect())
}

fn other_type(name: &str, found: String) -> PyErr {
    error::operand(name, "dtype", found, DataType::ALL.map(names::of_data_type).join(", "))
}

/// The descriptor of an array, whose numbers may be any.
fn describe(
    name: &str,
    data_type: DataType,
    shape: &[i64],
    strides: Option<&[i64]>,
) -> PyResult<fuseplan::TensorDescriptor> {
    let rank = shape.len();
    if rank == 0 || rank > MAX_RANK {
        let found = format!("of {rank} dimensions");
        return Err(error::operand(name, "shape", found, format!("1 to {MAX_RANK} dimensions")));
    }
    let (mut lens, mut steps) = ([0; MAX_RANK], [0; MAX_RANK]);
    for (len, &given) in lens.iter_mut().zip(shape) {
        *len = usize::try_from(given).unwrap_or(0);
    }
    let described = match strides {
        None => fuseplan::TensorDescriptor::packed(data_type, &lens[..rank]),
        Some(strides) => {
            for ((step, &given), &len) in steps.iter_mut().zip(strides).zip(&lens) {
                // The stride of a dimension of length 1 means nothing.
                *step = match usize::try_from(given) {
                    Ok(given) => given,
                    Err(_) if len < 2 => 1,
                    Err(_) => {
                        let found = format!("{strides:?}");
                        return Err(error::operand(
                            name,
                            "strides",
                            found,
                            "strides that are not negative".into(),
                        ));
                    }
                };
            }
            fuseplan::TensorDescriptor::new(data_type, &lens[..rank], &steps[..rank])
        }
    };
    described.map_err(|error| {
        let strides = strides.map_or_else(String::new, |strides| format!(" with strides {strides:?}"));
        let found = format!("{shape:?}{strides}: {error}");
        error::operand(name, "shape", found, "lengths and strides of at least 1".into())
    })
}

/// An array of the kind that `like` is, of this descriptor, which nothing else uses.
///
/// # Errors
/// An array of a library that is neither NumPy nor PyTorch.
pub(crate) fn empty_like<'py>(
    like: &Bound<'py, PyAny>,
    descriptor: &fuseplan::TensorDescriptor,
) -> PyResult<Bound<'py, PyAny>> {
    static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static NDARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = like.py();
    // Blocks of channels are a dimension of an array of their own.
    let packed =
        in_blocks(descriptor).map(|shape| fuseplan::TensorDescriptor::packed(descriptor.data_type(), &shape));
    let packed = packed.transpose().map_err(|error| error::descriptor(&error))?;
    let descriptor = packed.as_ref().unwrap_or(descriptor);
    let (lens, strides) = (PyTuple::new(py, descriptor.lens())?, strides("the output", descriptor)?);
    match like.get_type().module()?.to_cow()?.as_ref() {
        "numpy" => {
            let dtype = like.getattr(intern!(py, "dtype"))?;
            let empty = EMPTY.import(py, "numpy", "empty")?;
            let packed = fuseplan::TensorDescriptor::packed(descriptor.data_type(), descriptor.lens());
            if packed.is_ok_and(|packed| packed.strides() == Some(strides)) {
                return empty.call1((lens, dtype));
            }
            let memory = empty.call1((descriptor.span(), &dtype))?;
            let size = descriptor.data_type().size();
            let strides = PyTuple::new(py, strides.iter().map(|stride| stride * size))?;
            NDARRAY.import(py, "numpy", "ndarray")?.call1((lens, dtype, memory, 0, strides))
        }
        name if name == "torch" || name.starts_with("torch.") => {
            let strides = PyTuple::new(py, strides)?;
            like.call_method1(intern!(py, "new_empty_strided"), (lens, strides))
        }
        other => Err(PyTypeError::new_err(format!(
            "out has to be given, as the input is an array of {other}; it is made for arrays of numpy and torch"
        ))),
    }
}

/// Whether an array says by DLPack that its memory is the host's.
fn is_on_host(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Some(device) = object.getattr_opt(intern!(object.py(), "__dlpack_device__"))? else {
        return Ok(false);
    };
    let (kind, _): (i32, i32) = device.call0()?.extract()?;
    Ok(kind == dlpack::CPU)
}

/// Whether an object is a tensor of PyTorch.
pub(crate) fn is_torch(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let module = object.get_type().module()?;
    let module = module.to_cow()?;
    Ok(module == "torch" || module.starts_with("torch."))
}

//! Arrays of other libraries, read where they lie: memory of the host by NumPy's `__array_interface__`, any memory by
//! DLPack.

use std::ffi::c_void;

use fuseplan::DataType;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyString, PyTuple};

use crate::{dlpack, error, names};

/// The most dimensions that a descriptor has.
const MAX_RANK: usize = 5;

/// An array with what is known of its memory, which lives as long as `owner` does.
#[derive(Debug)]
pub(crate) struct Array<'py> {
    pub(crate) descriptor: fuseplan::TensorDescriptor,
    pub(crate) address: usize,
    pub(crate) device: dlpack::Device,
    pub(crate) is_writable: bool,
    /// What the memory belongs to.
    pub(crate) owner: Bound<'py, PyAny>,
}

impl<'py> Array<'py> {
    /// The array that an object is, if it is one, ready for what is launched into `stream` (DLPack's number of it) next.
    ///
    /// # Errors
    /// Elements, lengths or strides that no plan can read; what the array's library raises.
    pub(crate) fn of(
        name: &str,
        object: &Bound<'py, PyAny>,
        stream: Option<usize>,
    ) -> PyResult<Option<Self>> {
        let py = object.py();
        if let Some(interface) = object.getattr_opt(intern!(py, "__array_interface__"))? {
            return Self::of_interface(name, object, interface.cast::<PyDict>()?).map(Some);
        }
        let Some(export) = object.getattr_opt(intern!(py, "__dlpack__"))? else { return Ok(None) };
        Self::of_dlpack(name, object, &export, stream).map(Some)
    }

    fn of_interface(
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
            // NumPy has no number of its own for types of other packages, such as that of ml_dtypes.
            _ => {
                let dtype = object.getattr_opt(intern!(py, "dtype"))?.map(|dtype| dtype.to_string());
                match dtype.as_deref() {
                    Some("bfloat16") => DataType::BFloat16,
                    _ => return Err(other_type(name, dtype.unwrap_or_else(|| typestr.into_owned()))),
                }
            }
        };
        let shape: Vec<i64> = entry(intern!(py, "shape"))?.extract()?;
        let size = data_type.size() as i64;
        let strides = match interface.get_item(intern!(py, "strides"))?.filter(|strides| !strides.is_none()) {
            None => None,
            Some(strides) => {
                let bytes: Vec<i64> = strides.extract()?;
                let whole = shape.iter().zip(&bytes).all(|(&len, &stride)| len < 2 || stride % size == 0);
                if !whole {
                    let found = format!("{bytes:?} bytes");
                    let accepted = format!("whole elements of {size} bytes");
                    return Err(error::operand(name, "strides", found, accepted));
                }
                Some(bytes.into_iter().map(|stride| stride / size).collect::<Vec<_>>())
            }
        };
        let (address, read_only): (usize, bool) = entry(intern!(py, "data"))?.extract()?;
        Ok(Array {
            descriptor: describe(name, data_type, &shape, strides.as_deref())?,
            address,
            device: dlpack::Device { kind: dlpack::CPU, id: 0 },
            is_writable: !read_only,
            owner: object.clone(),
        })
    }

    fn of_dlpack(
        name: &str,
        object: &Bound<'py, PyAny>,
        export: &Bound<'py, PyAny>,
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
        let data_type = match (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) {
            (2, 16, 1) => DataType::Half,
            (2, 32, 1) => DataType::Float,
            (2, 64, 1) => DataType::Double,
            (4, 16, 1) => DataType::BFloat16,
            (0, 8, 1) => DataType::Int8,
            (code, bits, lanes) => {
                let known = object.getattr_opt(intern!(py, "dtype"))?.map(|dtype| dtype.to_string());
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
            // The capsule frees the tensor when it goes, since nobody has taken it out.
            owner: capsule.clone(),
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
            ("cpu", CPU | CUDA_HOST | ROCM_HOST | CUDA_MANAGED) | ("cuda", CUDA_MANAGED) => true,
            ("cuda", CUDA) | ("rocm", ROCM) => u32::try_from(self.device.id) == Ok(info.ordinal),
            _ => false,
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

    /// Whether the array is what a descriptor says; of one value a channel, as the descriptor or as a vector.
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
        if is_per_channel && found.lens() == [expected.lens()[1]] {
            if found.is_packed() {
                return Ok(());
            }
            return Err(error::operand(name, "strides", list(found.strides()), "(1,)".into()));
        }
        let (property, found, accepted) = if found.lens() == expected.lens() {
            ("strides", found.strides(), list(expected.strides()))
        } else if is_per_channel {
            let vector = list(&expected.lens()[1..2]);
            ("shape", found.lens(), format!("{} or {vector}", list(expected.lens())))
        } else {
            ("shape", found.lens(), list(expected.lens()))
        };
        Err(error::operand(name, property, list(found), accepted))
    }
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
        let found = format!("{shape:?} with strides {strides:?}: {error}");
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
    let py = like.py();
    let lens = PyTuple::new(py, descriptor.lens())?;
    let module = like.get_type().module()?;
    let dtype = || like.getattr(intern!(py, "dtype"));
    match module.to_cow()?.as_ref() {
        "numpy" => {
            let numpy = py.import(intern!(py, "numpy"))?;
            let memory = numpy.call_method1(intern!(py, "empty"), (descriptor.span(), dtype()?))?;
            let size = descriptor.data_type().size();
            let strides = PyTuple::new(py, descriptor.strides().iter().map(|stride| stride * size))?;
            numpy.call_method1(intern!(py, "ndarray"), (lens, dtype()?, memory, 0, strides))
        }
        name if name == "torch" || name.starts_with("torch.") => {
            let torch = py.import(intern!(py, "torch"))?;
            let strides = PyTuple::new(py, descriptor.strides())?;
            let arguments = PyDict::new(py);
            arguments.set_item(intern!(py, "dtype"), dtype()?)?;
            arguments.set_item(intern!(py, "device"), like.getattr(intern!(py, "device"))?)?;
            torch.call_method(intern!(py, "empty_strided"), (lens, strides), Some(&arguments))
        }
        other => Err(PyTypeError::new_err(format!(
            "out has to be given, as the input is an array of {other}; it is made for arrays of numpy and torch"
        ))),
    }
}

/// Whether an object is a tensor of PyTorch.
pub(crate) fn is_torch(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let module = object.get_type().module()?;
    let module = module.to_cow()?;
    Ok(module == "torch" || module.starts_with("torch."))
}

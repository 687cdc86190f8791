//! Descriptors of tensors, and the three ways in which a caller gives one.

use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::array::Array;
use crate::{count, error, names, type_name};

/// Data type, shape and strides of a tensor.
#[pyclass(frozen, module = "fuseplan")]
#[derive(Debug, Clone)]
pub(crate) struct TensorDescriptor(pub(crate) fuseplan::TensorDescriptor);

#[pymethods]
impl TensorDescriptor {
    #[new]
    #[pyo3(signature = (shape, dtype=None, *, strides=None, layout=None))]
    pub(crate) fn new(
        #[pyo3(from_py_with = count::shape)] shape: Vec<usize>,
        dtype: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = count::strides)] strides: Option<Vec<usize>>,
        layout: Option<&str>,
    ) -> PyResult<Self> {
        let data_type = dtype.map_or(Ok(fuseplan::DataType::Float), names::data_type)?;
        let made = match (strides, layout) {
            (None, None) => fuseplan::TensorDescriptor::packed(data_type, &shape),
            (Some(strides), None) => fuseplan::TensorDescriptor::new(data_type, &shape, &strides),
            (None, Some(name)) => {
                fuseplan::TensorDescriptor::with_layout(data_type, names::layout(name)?, &shape)
            }
            (Some(_), Some(_)) => return Err(PyTypeError::new_err("strides and layout are both given")),
        };
        made.map(TensorDescriptor).map_err(|error| error::descriptor(&error))
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        names::of_data_type(self.0.data_type())
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.lens())
    }

    #[getter]
    fn layout(&self) -> Option<String> {
        self.0.literal_layout().map(|layout| layout.to_string())
    }

    #[getter]
    fn array_shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match in_blocks(&self.0) {
            Some(lens) => PyTuple::new(py, lens),
            None => PyTuple::new(py, self.0.lens()),
        }
    }

    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, strides("the tensor", &self.0)?)
    }

    /// As images of one pixel, channels innermost; a `ValueError` where no strides say that.
    fn rows(&self) -> PyResult<Self> {
        let rows = fuseplan::chains::rows(&self.0).map(TensorDescriptor);
        let accepted = fuseplan::chains::ROWS;
        rows.ok_or_else(|| PyValueError::new_err(format!("the tensor is {}; accepted: {accepted}", self.0)))
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let other = other.cast::<TensorDescriptor>().ok().map(|other| other.get().0 == self.0);
        Ok(match (op, other) {
            (CompareOp::Eq, Some(equal)) => equal.into_pyobject(py)?.to_owned().into_any().unbind(),
            (CompareOp::Ne, Some(equal)) => (!equal).into_pyobject(py)?.to_owned().into_any().unbind(),
            _ => py.NotImplemented(),
        })
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        let (lens, dtype) = (list(self.0.lens()), self.dtype());
        match (self.0.literal_layout(), in_blocks(&self.0)) {
            (Some(layout), Some(_)) => format!("TensorDescriptor({lens}, {dtype:?}, layout=\"{layout}\")"),
            _ => {
                let strides = list(self.0.strides().unwrap_or_default());
                format!("TensorDescriptor({lens}, {dtype:?}, strides={strides})")
            }
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let this = slf.get();
        let blocked = in_blocks(&this.0).and(this.layout());
        let strides = if blocked.is_none() { this.0.strides() } else { None };
        let arguments = (this.0.lens(), this.dtype(), strides, blocked);
        let make = slf.py().import("fuseplan._libraries")?.getattr("tensor_descriptor")?;
        Ok((make, arguments.into_pyobject(slf.py())?))
    }
}

/// The strides of a tensor; one with blocks of channels has none.
pub(crate) fn strides<'a>(name: &str, tensor: &'a fuseplan::TensorDescriptor) -> PyResult<&'a [usize]> {
    let accepted = || "a layout without blocks of channels".into();
    tensor.strides().ok_or_else(|| error::operand(name, "layout", tensor.order(), accepted()))
}

/// The shape of arrays that have a tensor whose channels lie in blocks: N, C/b, H, W, b, packed.
pub(crate) fn in_blocks(tensor: &fuseplan::TensorDescriptor) -> Option<[usize; 5]> {
    let block = tensor.literal_layout()?.block()?;
    match *tensor.lens() {
        [n, c, h, w] => Some([n, c / block, h, w, block]),
        _ => None,
    }
}

/// The tensor that an array is in a layout with blocks of channels.
pub(crate) fn of_blocks(
    name: &str,
    array: &fuseplan::TensorDescriptor,
    layout: fuseplan::TensorLayout,
    block: usize,
) -> PyResult<fuseplan::TensorDescriptor> {
    let lens = match *array.lens() {
        // No more than the array has elements, all of them lengths of at least 1.
        [n, blocks, h, w, last] if last == block => [n, blocks * block, h, w],
        _ => {
            let accepted = format!("(N, C/{block}, H, W, {block}) for {layout}");
            return Err(error::operand(name, "shape", list(array.lens()), accepted));
        }
    };
    let made = fuseplan::TensorDescriptor::with_layout(array.data_type(), layout, &lens);
    let tensor = made.map_err(|error| error::descriptor(&error))?;
    check_packed(name, array, array.lens())?;
    Ok(tensor)
}

/// That an array has this shape and no gaps, the last dimension innermost.
pub(crate) fn check_packed(name: &str, array: &fuseplan::TensorDescriptor, shape: &[usize]) -> PyResult<()> {
    let packed = fuseplan::TensorDescriptor::packed(array.data_type(), shape);
    let packed = packed.map_err(|error| error::descriptor(&error))?;
    if array.lens() != shape {
        return Err(error::operand(name, "shape", list(array.lens()), list(shape)));
    }
    if *array != packed {
        let (found, accepted) = (strides(name, array)?, strides(name, &packed)?);
        return Err(error::operand(name, "strides", list(found), list(accepted)));
    }
    Ok(())
}

/// `(1, 64, 56, 56)`, as Python prints it.
pub(crate) fn list(numbers: &[usize]) -> String {
    let text: Vec<_> = numbers.iter().map(usize::to_string).collect();
    if text.len() == 1 { format!("({},)", text[0]) } else { format!("({})", text.join(", ")) }
}

/// What a caller gives for a tensor of a plan.
pub(crate) enum Given {
    /// A descriptor, or lengths that were made one.
    Described(fuseplan::TensorDescriptor),
    /// An array, whose descriptor it is.
    Array(Array),
}

impl Given {
    /// An array, a descriptor, or lengths, of which `of_lens` makes a descriptor.
    pub(crate) fn of(
        name: &str,
        object: &Bound<'_, PyAny>,
        of_lens: impl FnOnce(&[usize]) -> PyResult<fuseplan::TensorDescriptor>,
    ) -> PyResult<Self> {
        if let Ok(descriptor) = object.cast::<TensorDescriptor>() {
            return Ok(Given::Described(descriptor.get().0));
        }
        if object.is_instance_of::<PyTuple>() || object.is_instance_of::<PyList>() {
            let lens: Vec<usize> = object.extract().map_err(|_| {
                PyTypeError::new_err(format!(
                    "{name}: a shape is a sequence of integers that are not negative"
                ))
            })?;
            return of_lens(&lens).map(Given::Described);
        }
        let Some(array) = Array::of(name, object, None)? else {
            return Err(PyTypeError::new_err(format!(
                "{name} is of type {}; accepted: an array with __dlpack__ or __array_interface__, a TensorDescriptor, a shape",
                type_name(object)
            )));
        };
        Ok(Given::Array(array))
    }

    pub(crate) fn descriptor(&self) -> &fuseplan::TensorDescriptor {
        match self {
            Given::Described(descriptor) => descriptor,
            Given::Array(array) => &array.descriptor,
        }
    }
}

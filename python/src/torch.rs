//! What tensors of PyTorch are at a moment: by DLPack's function in C where PyTorch has it, else by their attributes.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::array::MAX_RANK;
use crate::dlpack::{self, Looker, View};
use crate::getter::Getter;

/// The type of a tensor's elements, by either name.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Elements {
    Dlpack(dlpack::DataType),
    /// The address of PyTorch's object, which lives as long as the process.
    Torch(usize),
}

/// Device, type, lengths and strides of a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Layout {
    device: dlpack::Device,
    elements: Elements,
    rank: usize,
    /// Followed by zeros, as strides are.
    shape: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
}

impl Layout {
    /// Nothing of more dimensions than a plan has.
    fn new(device: dlpack::Device, elements: Elements, shape: &[i64], strides: &[i64]) -> Option<Self> {
        let rank = shape.len();
        if rank > MAX_RANK {
            return None;
        }
        let mut layout = Layout { device, elements, rank, shape: [0; MAX_RANK], strides: [0; MAX_RANK] };
        layout.shape[..rank].copy_from_slice(shape);
        layout.strides[..rank].copy_from_slice(strides);
        Some(layout)
    }

    /// Other memory is the host's, which has several names.
    pub(crate) fn is_on_gpu(&self) -> bool {
        matches!(self.device.kind, dlpack::CUDA | dlpack::ROCM)
    }

    /// Whether both are of one device.
    pub(crate) fn is_beside(&self, other: &Layout) -> bool {
        self.device == other.device
    }

    pub(crate) fn shape(&self) -> &[i64; MAX_RANK] {
        &self.shape
    }

    /// Lengths and strides of four dimensions of f32 in the host's memory, as DLPack tells of it.
    pub(crate) fn f32_image(&self) -> Option<([usize; 4], [usize; 4])> {
        let four = |of: &[i64; MAX_RANK]| {
            let numbers = of[..4].iter().map(|&number| usize::try_from(number).ok());
            numbers.collect::<Option<Vec<_>>>()?.try_into().ok()
        };
        if self.rank != 4 || self.device.kind != dlpack::CPU || self.elements != Elements::Dlpack(dlpack::F32)
        {
            return None;
        }
        Some((four(&self.shape)?, four(&self.strides)?))
    }
}

/// Looks at tensors.
#[derive(Debug)]
pub(crate) struct Tensors {
    looker: Option<Looker>,
    version: Option<Getter>,
}

impl Tensors {
    /// Of a class that may have functions of DLPack, and PyTorch's class of parameters.
    pub(crate) fn new(class: &Bound<'_, PyType>, parameters: &Bound<'_, PyType>) -> PyResult<Self> {
        let version = Getter::of(&[class, parameters], intern!(class.py(), "_version"))?;
        Ok(Tensors { looker: Looker::of(class)?, version })
    }

    /// Whether that is PyTorch's count of changes to a tensor that had one.
    pub(crate) fn has_version(&self, tensor: &Bound<'_, PyAny>, known: u64) -> bool {
        let version = match self.version.as_ref().and_then(|version| version.get(tensor)) {
            Some(version) => version,
            None => tensor.getattr(intern!(tensor.py(), "_version")),
        };
        version.and_then(|version| version.extract::<u64>()).is_ok_and(|version| version == known)
    }

    /// Layout and address of a tensor, if it has no more dimensions than a plan has.
    ///
    /// # Errors
    /// What PyTorch raises of a tensor without strides or memory.
    pub(crate) fn see(&self, tensor: &Bound<'_, PyAny>) -> PyResult<Option<(Layout, usize)>> {
        match self.looker.as_ref().and_then(|looker| looker.look(tensor, seen)) {
            Some(seen) => Ok(seen),
            None => by_attributes(tensor),
        }
    }

    /// As [`see`](Self::see), of what DLPack's function in C tells of; nothing without that.
    pub(crate) fn look(&self, tensor: &Bound<'_, PyAny>) -> Option<(Layout, usize)> {
        self.looker.as_ref()?.look(tensor, seen)?
    }

    /// Where a tensor's elements begin.
    ///
    /// # Errors
    /// What PyTorch raises of a tensor without memory.
    pub(crate) fn address(&self, tensor: &Bound<'_, PyAny>) -> PyResult<usize> {
        match self.looker.as_ref().and_then(|looker| looker.look(tensor, |view| view.address)) {
            Some(address) => Ok(address),
            None => data_ptr(tensor),
        }
    }
}

fn seen(view: &View<'_>) -> Option<(Layout, usize)> {
    let elements = Elements::Dlpack(view.dtype);
    Layout::new(view.device, elements, view.shape, view.strides).map(|layout| (layout, view.address))
}

fn by_attributes(tensor: &Bound<'_, PyAny>) -> PyResult<Option<(Layout, usize)>> {
    let py = tensor.py();
    let is_cuda: bool = tensor.getattr(intern!(py, "is_cuda"))?.extract()?;
    let kind = if is_cuda { dlpack::CUDA } else { dlpack::CPU };
    let id: Option<i32> = tensor.getattr(intern!(py, "device"))?.getattr(intern!(py, "index"))?.extract()?;
    let device = dlpack::Device { kind, id: id.unwrap_or(0) };
    let elements = Elements::Torch(tensor.getattr(intern!(py, "dtype"))?.as_ptr().addr());
    let shape: Vec<i64> = tensor.getattr(intern!(py, "shape"))?.extract()?;
    let strides: Vec<i64> = tensor.call_method0(intern!(py, "stride"))?.extract()?;
    let layout = Layout::new(device, elements, &shape, &strides);
    layout.map(|layout| Ok((layout, data_ptr(tensor)?))).transpose()
}

fn data_ptr(tensor: &Bound<'_, PyAny>) -> PyResult<usize> {
    tensor.call_method0(intern!(tensor.py(), "data_ptr"))?.extract()
}

/// PyTorch's count of changes to a tensor; tensors of inference mode have none, and take a hundred microseconds to say so.
///
/// # Errors
/// What the look-up of the attributes raises.
pub(crate) fn version(tensor: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    let py = tensor.py();
    if tensor.call_method0(intern!(py, "is_inference"))?.is_truthy()? {
        return Ok(None);
    }
    tensor.getattr(intern!(py, "_version"))?.extract().map(Some)
}

/// Whether the tensor's elements are the negatives of those in its memory, as PyTorch has it of views of complex numbers.
///
/// # Errors
/// What the call raises.
pub(crate) fn is_negative(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    tensor.call_method0(intern!(tensor.py(), "is_neg"))?.is_truthy()
}

/// Whether PyTorch would record gradients of what is computed with the tensor.
///
/// # Errors
/// What the look-up of the attribute raises.
pub(crate) fn requires_grad(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    tensor.getattr(intern!(tensor.py(), "requires_grad"))?.is_truthy()
}

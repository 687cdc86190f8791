//! Tensors in host memory: a descriptor and a slice.

use fuseplan_api::{DataType, Element, TensorDescriptor};

/// A tensor that a plan reads.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a, T> {
    pub(crate) descriptor: &'a TensorDescriptor,
    pub(crate) data: &'a [T],
}

/// A tensor that a plan writes.
#[derive(Debug)]
pub struct TensorMut<'a, T> {
    pub(crate) descriptor: &'a TensorDescriptor,
    pub(crate) data: &'a mut [T],
}

impl<'a, T: Element> Tensor<'a, T> {
    /// Elements and their descriptor. Whether they fit one another and the plan is checked when a plan runs.
    pub fn new(descriptor: &'a TensorDescriptor, data: &'a [T]) -> Self {
        Tensor { descriptor, data }
    }

    pub(crate) const DATA_TYPE: DataType = T::DATA_TYPE;
}

impl<'a, T: Element> TensorMut<'a, T> {
    /// Elements and their descriptor. Whether they fit one another and the plan is checked when a plan runs.
    pub fn new(descriptor: &'a TensorDescriptor, data: &'a mut [T]) -> Self {
        TensorMut { descriptor, data }
    }
}

//! Tensors: a descriptor and memory.

use fuseplan_api::TensorDescriptor;

use crate::args::{Operand, OperandMut};

/// A tensor that a plan reads.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    pub(crate) descriptor: &'a TensorDescriptor,
    pub(crate) operand: Operand<'a>,
}

/// A tensor that a plan writes.
#[derive(Debug)]
pub struct TensorMut<'a> {
    pub(crate) descriptor: &'a TensorDescriptor,
    pub(crate) operand: OperandMut<'a>,
}

impl<'a> Tensor<'a> {
    /// Elements ([`DeviceBuffer`](crate::DeviceBuffer), slice or raw pointer) and their descriptor. Whether
    /// they fit one another and the plan is checked when a plan runs.
    pub fn new(descriptor: &'a TensorDescriptor, elements: impl Into<Operand<'a>>) -> Self {
        Tensor { descriptor, operand: elements.into() }
    }
}

impl<'a> TensorMut<'a> {
    /// Elements ([`DeviceBuffer`](crate::DeviceBuffer), slice or raw pointer) and their descriptor. Whether
    /// they fit one another and the plan is checked when a plan runs.
    pub fn new(descriptor: &'a TensorDescriptor, elements: impl Into<OperandMut<'a>>) -> Self {
        TensorMut { descriptor, operand: elements.into() }
    }
}

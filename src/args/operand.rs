//! Operands: memory that plans read and write, from whatever a program has it in.

use std::ffi::c_void;
use std::marker::PhantomData;

use fuseplan_api::{DataType, Element};

use super::{Place, Span};
use crate::buffer::DeviceBuffer;

/// Memory that a plan reads: a [`DeviceBuffer`], a slice, or a raw pointer to memory of the handle's device.
#[derive(Debug, Clone, Copy)]
pub struct Operand<'a> {
    pub(crate) memory: Span<'a>,
    pub(super) constant: bool,
}

/// Memory that a plan writes: a [`DeviceBuffer`], a mutable slice, or a raw pointer to memory of the
/// handle's device.
#[derive(Debug)]
pub struct OperandMut<'a> {
    pub(crate) memory: Span<'a>,
    lifetime: PhantomData<&'a mut ()>,
}

impl Operand<'_> {
    /// An operand that was not set.
    pub(super) const ABSENT: Self = Operand { memory: Span::raw(std::ptr::null(), false), constant: false };

    /// A raw pointer to memory of the handle's device.
    ///
    /// # Safety
    /// The memory holds the operand when a plan runs with it (`bytes` of it, if given, else as much as the
    /// plan's descriptor says), lives until the plan's stream has passed the execution, and is not written
    /// meanwhile.
    pub unsafe fn from_raw(address: *const c_void, bytes: Option<usize>) -> Self {
        Operand { memory: Span { bytes, ..Span::raw(address, false) }, constant: false }
    }

    /// Promises that the contents do not change as long as the arguments with this operand live, so that a
    /// kernel may keep what it derives from them. Slices promise it by their borrow.
    ///
    /// # Safety
    /// The contents do not change.
    pub unsafe fn constant(mut self) -> Self {
        self.constant = true;
        self
    }
}

impl OperandMut<'_> {
    /// A raw pointer to memory of the handle's device that a plan may write. Null where an output is not
    /// wanted and may be left out.
    ///
    /// # Safety
    /// As [`Operand::from_raw`], and nothing else reads or writes the memory until the stream has passed
    /// the execution.
    pub unsafe fn from_raw(address: *mut c_void, bytes: Option<usize>) -> Self {
        OperandMut::new(address, bytes, None, Place::Raw)
    }

    /// An output that is not wanted.
    pub fn none() -> Self {
        OperandMut::new(std::ptr::null(), None, None, Place::Raw)
    }
}

impl<'a> OperandMut<'a> {
    pub(crate) fn new(
        address: *const c_void,
        bytes: Option<usize>,
        data_type: Option<DataType>,
        place: Place<'a>,
    ) -> Self {
        let memory = Span { address, bytes, data_type, written: true, place };
        OperandMut { memory, lifetime: PhantomData }
    }
}

impl<'a> Operand<'a> {
    /// Memory that is borrowed, so that its contents do not change.
    pub(crate) fn new(address: *const c_void, bytes: usize, data_type: DataType, place: Place<'a>) -> Self {
        let memory = Span { address, bytes: Some(bytes), data_type: Some(data_type), written: false, place };
        Operand { memory, constant: true }
    }
}

impl<'a, T: Element> From<&'a [T]> for Operand<'a> {
    fn from(slice: &'a [T]) -> Self {
        Operand::new(slice.as_ptr().cast(), size_of_val(slice), T::DATA_TYPE, Place::Host)
    }
}

/// Like a slice's, the contents cannot change as long as the borrow lasts.
impl<'a, T: Element> From<&'a DeviceBuffer<T>> for Operand<'a> {
    fn from(buffer: &'a DeviceBuffer<T>) -> Self {
        let block = buffer.block();
        Operand::new(block.address(), block.bytes(), T::DATA_TYPE, Place::Device(block))
    }
}

impl<'a, T: Element> From<&'a Vec<T>> for Operand<'a> {
    fn from(vec: &'a Vec<T>) -> Self {
        vec.as_slice().into()
    }
}

impl<'a, T: Element, const N: usize> From<&'a [T; N]> for Operand<'a> {
    fn from(array: &'a [T; N]) -> Self {
        array.as_slice().into()
    }
}

impl<'a, T: Element> From<&'a mut [T]> for OperandMut<'a> {
    fn from(slice: &'a mut [T]) -> Self {
        let (address, bytes) = (slice.as_mut_ptr().cast_const().cast(), size_of_val(slice));
        OperandMut::new(address, Some(bytes), Some(T::DATA_TYPE), Place::Host)
    }
}

impl<'a, T: Element> From<&'a mut DeviceBuffer<T>> for OperandMut<'a> {
    fn from(buffer: &'a mut DeviceBuffer<T>) -> Self {
        let block = buffer.block();
        OperandMut::new(block.address(), Some(block.bytes()), Some(T::DATA_TYPE), Place::Device(block))
    }
}

impl<'a, T: Element> From<&'a mut Vec<T>> for OperandMut<'a> {
    fn from(vec: &'a mut Vec<T>) -> Self {
        vec.as_mut_slice().into()
    }
}

impl<'a, T: Element, const N: usize> From<&'a mut [T; N]> for OperandMut<'a> {
    fn from(array: &'a mut [T; N]) -> Self {
        array.as_mut_slice().into()
    }
}

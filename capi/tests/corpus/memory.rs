//! Memory that C functions read and write.

use std::ffi::c_void;

use fuseplan::{DataType, TensorDescriptor};
use fuseplan_suite::case::OperandSpec;
use fuseplan_suite::number;

use crate::Result;

/// Memory of a tensor, poisoned but for the elements.
pub(crate) struct Memory {
    descriptor: TensorDescriptor,
    /// Of 8 bytes each, so that every element type is aligned.
    words: Vec<u64>,
}

impl Memory {
    pub(crate) fn new(descriptor: TensorDescriptor, values: Option<&[f64]>) -> Result<Self> {
        let data_type = descriptor.data_type();
        let mut memory = Memory { descriptor, words: vec![u64::MAX; descriptor.bytes() / 8 + 1] };
        for (index, value) in values.into_iter().flatten().enumerate() {
            let (offset, size) = (memory.offset(index), data_type.size());
            let mut bytes = [0; 8];
            number::encode(*value, data_type, &mut bytes[..size]);
            // SAFETY: inside of the words, by the descriptor's own count of bytes.
            unsafe { memory.pointer().byte_add(offset * size).cast::<u8>().copy_from(bytes.as_ptr(), size) };
        }
        Ok(memory)
    }

    /// An operand of the case; a residual that says nothing of its layout is like the output.
    pub(crate) fn of(spec: &OperandSpec, output: TensorDescriptor, values: Option<&[f64]>) -> Result<Self> {
        let layout = spec.layout.as_ref();
        let described = layout.map_or(Ok(output), |layout| layout.describe(spec.data_type, &spec.lens));
        Memory::new(described?, values)
    }

    pub(crate) fn data_type(&self) -> DataType {
        self.descriptor.data_type()
    }

    pub(crate) fn pointer(&mut self) -> *mut c_void {
        self.words.as_mut_ptr().cast()
    }

    /// Of the element at an index, in elements.
    fn offset(&self, mut index: usize) -> usize {
        let lens = self.descriptor.lens();
        let mut place = vec![0; lens.len()];
        for (at, &length) in place.iter_mut().zip(lens).rev() {
            *at = index % length;
            index /= length;
        }
        self.descriptor.offset(&place)
    }

    pub(crate) fn values(&mut self) -> Vec<f64> {
        let (data_type, size) = (self.descriptor.data_type(), self.descriptor.data_type().size());
        let start = self.pointer();
        let element = |index| {
            let mut bytes = [0u8; 8];
            // SAFETY: as in `new`.
            unsafe {
                start.byte_add(self.offset(index) * size).cast::<u8>().copy_to(bytes.as_mut_ptr(), size)
            };
            number::decode(&bytes[..size], data_type)
        };
        (0..self.descriptor.element_count()).map(element).collect()
    }
}

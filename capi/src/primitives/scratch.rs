//! Host memory for the duration of a call.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;

use fuseplan::TensorDescriptor;

use crate::execute::Memory;
use crate::status::{Failure, Status};

/// Host memory of a descriptor's size, zeroed nowhere, freed at the end.
pub(crate) struct Scratch {
    memory: *mut u8,
    layout: Layout,
    descriptor: TensorDescriptor,
}

impl Scratch {
    /// Memory for a tensor; its contents are to be written before they are read.
    pub(crate) fn new(descriptor: TensorDescriptor) -> Result<Self, Failure> {
        const ALIGNMENT: usize = 64;
        let bytes = descriptor.bytes();
        let fail = || Failure::new(Status::AllocFailed, format!("no memory for {bytes} bytes"));
        let layout = Layout::from_size_align(bytes, ALIGNMENT).map_err(|_| fail())?;
        // SAFETY: descriptors are of one byte at least.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() { Err(fail()) } else { Ok(Scratch { memory, layout, descriptor }) }
    }

    /// A copy.
    ///
    /// # Safety
    /// `source` is host memory as its descriptor says.
    pub(crate) unsafe fn copy(source: &Memory) -> Result<Self, Failure> {
        let copy = Scratch::new(source.descriptor)?;
        // SAFETY: both have as many bytes as the descriptor they share says, and one is new.
        unsafe {
            std::ptr::copy_nonoverlapping(source.address.cast::<u8>(), copy.memory, copy.layout.size())
        };
        Ok(copy)
    }

    pub(crate) fn address(&self) -> *mut c_void {
        self.memory.cast()
    }

    pub(crate) fn memory(&self) -> Memory {
        Memory { descriptor: self.descriptor, address: self.address() }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it with this layout.
        unsafe { dealloc(self.memory, self.layout) };
    }
}

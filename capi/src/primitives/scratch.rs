//! Memory of a handle's device for the duration of a call.

use std::ffi::c_void;

use fuseplan::{ActivationForward, ActivationMode, DeviceBuffer, TensorDescriptor, raw::ActivationParams};

use crate::args::Scales;
use crate::execute::{Chain, Memory};
use crate::handle::Pinned;
use crate::status::Failure;

/// The chain that copies a tensor to memory of the same descriptor, each element times `alpha`.
pub(crate) fn copying(descriptor: TensorDescriptor, alpha: f32) -> Result<Chain, Failure> {
    let mut chain = Chain::new(descriptor)?;
    let params = ActivationParams::default();
    let scales = Scales { alpha, beta: 0.0 };
    chain.append(ActivationForward::new(ActivationMode::Pasthru), params.into(), scales)?;
    Ok(chain)
}

/// Memory of a descriptor's size. Its drop waits for the stream that it was made for.
pub(crate) struct Scratch {
    buffer: DeviceBuffer<f32>,
    descriptor: TensorDescriptor,
}

impl Scratch {
    /// Memory for a tensor.
    pub(crate) fn new(on: &Pinned<'_>, descriptor: TensorDescriptor) -> Result<Self, Failure> {
        let words = descriptor.bytes().div_ceil(size_of::<f32>());
        Ok(Scratch { buffer: DeviceBuffer::zeroed(on.handle(), words)?, descriptor })
    }

    /// A packed f32 tensor of one value.
    pub(crate) fn filled(on: &Pinned<'_>, descriptor: TensorDescriptor, value: f32) -> Result<Self, Failure> {
        let values = vec![value; descriptor.element_count()];
        Ok(Scratch { buffer: DeviceBuffer::from_slice(on.handle(), &values)?, descriptor })
    }

    /// A copy, each element times `alpha`.
    ///
    /// # Safety
    /// `source` is memory of the handle's device as its descriptor says.
    pub(crate) unsafe fn scaled(on: &Pinned<'_>, source: &Memory, alpha: f32) -> Result<Self, Failure> {
        let copy = Scratch::new(on, source.descriptor)?;
        // SAFETY: as promised by the caller.
        unsafe { copying(source.descriptor, alpha)?.run_on(on, *source, copy.memory(), None) }?;
        Ok(copy)
    }

    pub(crate) fn address(&self) -> *mut c_void {
        self.buffer.as_raw()
    }

    pub(crate) fn memory(&self) -> Memory {
        Memory { descriptor: self.descriptor, address: self.address() }
    }
}

//! Memory of a handle's device for the duration of a call.

use std::ffi::c_void;

use fuseplan::error::BackendError;
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
        let count = descriptor.element_count();
        let mut values = Vec::new();
        // The host's memory is the cpu backend's.
        let bytes = count.saturating_mul(size_of::<f32>());
        let refused = |_| BackendError::OutOfMemory { backend: "cpu", bytes };
        values.try_reserve_exact(count).map_err(refused)?;
        values.resize(count, value);
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

#[cfg(test)]
mod tests {
    use fuseplan::{DataType, Handle};

    use super::*;
    use crate::handle::HandleObject;
    use crate::status::Status;

    #[test]
    fn memory_that_the_host_does_not_have_is_a_status() {
        let object = HandleObject::new(&Handle::cpu(), std::ptr::null_mut());
        let large = TensorDescriptor::packed(DataType::Float, &[1, 1 << 60, 1, 1]).unwrap();
        let failure = Scratch::filled(&object.pinned(), large, 1.0).map(drop).unwrap_err();
        assert_eq!(failure.status, Status::AllocFailed);
        assert!(failure.text.contains(&(1u64 << 62).to_string()), "{}", failure.text);
    }
}

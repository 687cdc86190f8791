//! Filters that an executable has written to the device's memory as its kernel wants them, kept beside constant operands.
//!
//! What is launched into a stream that is being captured does not run now, and runs whenever the graph is launched. So filters
//! are prepared by an execution that is not captured, and those that a graph reads stay as long as its kernels do.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fuseplan_api::{BackendError, Device, RawStream};
use fuseplan_gpu::{GpuDevice, Object};

use crate::BACKEND;
use crate::context::Cuda;
use crate::driver::call;

/// What is prepared for one executable.
pub(super) struct Preparation {
    /// Bytes that it takes.
    bytes: usize,
    /// Under which it is kept: a number that no other executable has, of this backend or the one for CPUs.
    owner: u64,
    device: Arc<dyn Device>,
}

impl fmt::Debug for Preparation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Preparation({} bytes)", self.bytes)
    }
}

impl Preparation {
    pub(super) fn new(bytes: usize, device: &Arc<dyn Device>) -> Self {
        static OWNERS: AtomicU64 = AtomicU64::new(1 << 32);
        Preparation { bytes, owner: OWNERS.fetch_add(1, Ordering::Relaxed), device: device.clone() }
    }

    /// The filters that are kept beside an operand for something launched into the stream next, which are made by what `write`
    /// launches if there are none. That is waited for, so that executions on other streams may read them at once.
    ///
    /// # Errors
    /// The stream is being captured and there are none; out of memory; the driver lacks a function, or refuses.
    ///
    /// # Safety
    /// A context is current, in which the stream is a live one.
    pub(super) unsafe fn get(
        &self,
        kept: &fuseplan_api::Prepared,
        stream: RawStream,
        write: impl FnOnce(*mut c_void) -> Result<(), BackendError>,
    ) -> Result<Arc<Prepared>, BackendError> {
        let mut capturing: c_int = 0;
        // SAFETY: as promised by the caller; the driver writes the number.
        unsafe { call!(cuStreamIsCapturing(stream, &mut capturing)) }?;
        let is_captured = capturing != 0;
        let prepared = kept.get_or_try_make(self.owner, || {
            if is_captured {
                let what = "preparing filters while a stream is captured";
                return Err(BackendError::Unsupported { backend: BACKEND, what });
            }
            let address = Object(self.device.memory().allocate(self.bytes)?);
            let in_graph = AtomicBool::new(false);
            let prepared = Prepared { address, bytes: self.bytes, in_graph, device: self.device.clone() };
            write(prepared.address())?;
            // SAFETY: as promised by the caller.
            unsafe { call!(cuStreamSynchronize(stream)) }.map(|()| prepared)
        })?;
        prepared.in_graph.fetch_or(is_captured, Ordering::Relaxed);
        Ok(prepared)
    }
}

/// Prepared filters. The driver waits for the device's work before it gives the memory away (`cuMemFree`), also for kernels that
/// were launched just before the operands were dropped.
pub(super) struct Prepared {
    address: Object,
    bytes: usize,
    /// Whether a graph was captured that reads them.
    in_graph: AtomicBool,
    device: Arc<dyn Device>,
}

impl Prepared {
    pub(super) fn address(&self) -> *mut c_void {
        self.address.0
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        match GpuDevice::<Cuda>::of(&*self.device) {
            Ok(device) if *self.in_graph.get_mut() => device.keep(self.address.0),
            // SAFETY: the memory was allocated with as many bytes, and is freed once.
            _ => unsafe { self.device.memory().free(self.address.0, self.bytes) },
        }
    }
}

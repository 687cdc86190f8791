//! Filters that an executable has written to the device's memory as its kernel wants them.
//!
//! They are kept beside constant operands. What is launched into a stream that is being captured does not run now, and runs
//! whenever the graph is launched. So filters are kept of an execution that is not captured, and those that a graph reads stay as
//! long as it does. Of operands that may change, and of a captured execution where none are kept, filters are written to
//! scratch memory each time.

use std::ffi::c_void;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fuseplan_api::{BackendError, Device, RawStream};
use fuseplan_gpu::{Capture, Driver, Entered, GpuDevice, Held, Object, OfGraph, ScratchDriver};

use crate::context::Cuda;

/// What is prepared for one executable.
pub(crate) struct Preparation {
    /// Bytes that it takes.
    bytes: usize,
    /// Whether filters are also prepared by every execution that has none kept.
    each_time: bool,
    /// Under which it is kept: a number that no other executable has, of this backend or the one for CPUs.
    owner: u64,
    device: Arc<dyn Device>,
}

impl fmt::Debug for Preparation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Preparation({} bytes)", self.bytes)
    }
}

/// Filters for one launch.
pub(crate) enum Filters<'a> {
    /// Written earlier.
    Kept(Arc<Prepared>),
    /// Written by the launch before, into memory that is used by no other launch before this is dropped.
    JustWritten(Held<'a>),
}

impl Filters<'_> {
    pub(crate) fn address(&self) -> *mut c_void {
        match self {
            Filters::Kept(prepared) => prepared.address.0,
            Filters::JustWritten(held) => held.address(),
        }
    }
}

impl Preparation {
    pub(crate) fn new(bytes: usize, each_time: bool, device: &Arc<dyn Device>) -> Self {
        static OWNERS: AtomicU64 = AtomicU64::new(1 << 32);
        let owner = OWNERS.fetch_add(1, Ordering::Relaxed);
        Preparation { bytes, each_time, owner, device: device.clone() }
    }

    /// Filters for what is launched into the stream next: those that are kept, which are made by what `write` launches if there are
    /// none, or those that it writes now. `None` where they are neither kept nor prepared each time, and where they cannot be made.
    ///
    /// # Safety
    /// A context is entered, in which the stream is a live one, and `write` launches what writes as many bytes.
    pub(crate) unsafe fn filters<'a>(
        &self,
        entered: &'a Entered<'_, Cuda>,
        kept: Option<&fuseplan_api::Prepared>,
        stream: RawStream,
        mut write: impl FnMut(*mut c_void) -> Result<(), BackendError>,
    ) -> Option<Filters<'a>> {
        // SAFETY: as promised by the caller.
        let capture = unsafe { entered.capture_of(stream) }.ok()?;
        let captured = capture.is_some();
        let make = || {
            if captured {
                return Err(None);
            }
            // SAFETY: as promised by the caller.
            unsafe { self.make(entered, stream, &mut write) }.map_err(Some)
        };
        match kept.map(|kept| kept.get_or_try_make(self.owner, make)) {
            Some(Ok(prepared)) => {
                if let Some(capture) = &capture {
                    // SAFETY: the context is entered, and the stream is being captured.
                    unsafe { prepared.stay_for(entered, capture) }.ok()?;
                }
                return Some(Filters::Kept(prepared));
            }
            Some(Err(Some(_refused))) => return None,
            Some(Err(None)) | None => {}
        }
        if !self.each_time {
            return None;
        }
        // SAFETY: as promised by the caller.
        let held = unsafe { entered.scratch().hold(&**entered, stream, capture, self.bytes) }.ok()?;
        write(held.address()).ok()?;
        Some(Filters::JustWritten(held))
    }

    /// Filters that executions on other streams may read at once.
    ///
    /// # Safety
    /// As for [`filters`](Self::filters).
    unsafe fn make(
        &self,
        entered: &Entered<'_, Cuda>,
        stream: RawStream,
        write: &mut impl FnMut(*mut c_void) -> Result<(), BackendError>,
    ) -> Result<Prepared, BackendError> {
        // SAFETY: the context is entered.
        unsafe { entered.scratch().free_gone(&**entered) }?;
        let address = Object(self.device.memory().allocate(self.bytes)?);
        let (graphs, device) = (Mutex::default(), self.device.clone());
        let prepared = Prepared { address, bytes: self.bytes, graphs, device };
        write(prepared.address.0)?;
        // SAFETY: as promised by the caller.
        unsafe { entered.synchronize(stream) }.map(|()| prepared)
    }
}

/// Prepared filters. The driver waits for the device's work before it gives the memory away (`cuMemFree`), also for kernels that
/// were launched just before the operands were dropped.
pub(crate) struct Prepared {
    address: Object,
    bytes: usize,
    /// Those that read them.
    graphs: Mutex<Vec<OfGraph>>,
    device: Arc<dyn Device>,
}

impl Prepared {
    /// Until the graph that is being captured is gone.
    ///
    /// # Safety
    /// As for [`Capture::retain`].
    unsafe fn stay_for(&self, entered: &Entered<'_, Cuda>, capture: &Capture) -> Result<(), BackendError> {
        let mut graphs = self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
        graphs.retain(|graph| !graph.is_gone());
        if !graphs.iter().any(|graph| graph.is_of(capture)) {
            // SAFETY: as promised by the caller.
            graphs.push(unsafe { capture.retain(&**entered) }?);
        }
        Ok(())
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let mut graphs = mem::take(self.graphs.get_mut().unwrap_or_else(PoisonError::into_inner));
        graphs.retain(|graph| !graph.is_gone());
        match GpuDevice::<Cuda>::of(&*self.device) {
            Ok(device) if !graphs.is_empty() => {
                device.driver().scratch().leave(self.address, self.bytes, graphs)
            }
            // SAFETY: the memory was allocated with as many bytes, and is freed once.
            _ => unsafe { self.device.memory().free(self.address.0, self.bytes) },
        }
    }
}

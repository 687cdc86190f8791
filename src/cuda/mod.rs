//! What CUDA programs have of their own: contexts and, with the feature `cudarc`, cudarc's streams and memory.
//!
//! A [`Handle`] from [`Handle::open`] works in the device's primary context, which the CUDA runtime and all
//! that is built on it (cudarc, PyTorch) use too: their pointers are good for
//! [raw operands](crate::memory::Operand::from_raw), their streams for [`Handle::with_stream`]. A program with contexts
//! of its own hands one to [`Handle::adopt_cuda_context`].

#[cfg(feature = "cudarc")]
mod cudarc;

use std::ffi::c_void;

use fuseplan_api::BackendError;
use fuseplan_cuda::CudaBackend;

#[cfg(feature = "cudarc")]
pub(crate) use self::cudarc::Tracked;
#[cfg(feature = "cudarc")]
pub use self::cudarc::{CudarcHandle, Reading, Writing};

use crate::handle::Handle;

impl Handle {
    /// The device of a caller's context (`CUcontext`), with a stream of its own; null is the context that is the
    /// thread's current one. All work runs in the context, which is never destroyed. What is compiled is kept
    /// with the result and its clones, not with other handles of the device.
    ///
    /// # Errors
    /// There is no driver, no current context, or the device is not supported.
    ///
    /// # Safety
    /// The context is null or live, and lives until the result and everything that is made with it is gone.
    pub unsafe fn adopt_cuda_context(context: *mut c_void) -> Result<Self, BackendError> {
        // SAFETY: as promised by the caller.
        let device = unsafe { CudaBackend::adopt(context) }?;
        Handle::of(&CudaBackend, device)
    }
}

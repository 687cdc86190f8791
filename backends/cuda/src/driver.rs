//! Calls of the driver with errors in its own words.

use std::ffi::CStr;
use std::ptr;

use cudarc::driver::sys::{self, CUcontext, CUresult};
use fuseplan_api::BackendError;

use crate::{BACKEND, library};

/// Calls a function of the driver; an error carries the function's name and the driver's words. Only where
/// [`library::driver`] has succeeded. Unsafe like the function itself.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::driver::check(stringify!($function), cudarc::driver::sys::$function($($argument),*))
    };
}
pub(crate) use call;

/// The error of a driver's function.
pub(crate) fn check(call: &'static str, result: CUresult) -> Result<(), BackendError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let words = |function: unsafe fn(CUresult, *mut *const std::ffi::c_char) -> CUresult| {
        let mut text = ptr::null();
        // SAFETY: the driver is loaded, since it gave this result; it gives a constant string or null.
        unsafe {
            function(result, &mut text);
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    };
    let text =
        format!("{} ({}): {}", words(sys::cuGetErrorName), result as u32, words(sys::cuGetErrorString));
    Err(BackendError::Driver { backend: BACKEND, call, text })
}

/// The driver, initialised.
pub(crate) fn initialise() -> Result<(), BackendError> {
    library::driver()?;
    // SAFETY: the driver is there; initialising again does nothing.
    unsafe { call!(cuInit(0)) }
}

/// A device's primary context, which the CUDA runtime uses too, so that pointers and streams of either are
/// good for the other.
#[derive(Debug)]
pub(crate) struct Context {
    raw: CUcontext,
    device: sys::CUdevice,
}

// SAFETY: a context is an address that only the driver dereferences, which takes it from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the primary context of a device of the initialised driver.
    pub(crate) fn retain(device: sys::CUdevice) -> Result<Self, BackendError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the driver writes the context to `raw`.
        unsafe { call!(cuDevicePrimaryCtxRetain(&mut raw, device)) }?;
        Ok(Context { raw, device })
    }

    /// Makes it the thread's current context until the result is dropped.
    pub(crate) fn enter(&self) -> Result<Entered, BackendError> {
        // SAFETY: the context is retained.
        unsafe { call!(cuCtxPushCurrent_v2(self.raw)) }?;
        Ok(Entered)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once. A driver that is shutting down refuses, which is as good.
        let _ = unsafe { call!(cuDevicePrimaryCtxRelease_v2(self.device)) };
    }
}

/// The time in which a context is the thread's current one.
#[derive(Debug)]
pub(crate) struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        let mut left = ptr::null_mut();
        // SAFETY: `enter` pushed the context on this thread; results of it are not sent to others, since
        // they live on its stack only.
        let _ = unsafe { call!(cuCtxPopCurrent_v2(&mut left)) };
    }
}

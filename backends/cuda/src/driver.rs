//! Calls of the driver with errors in its own words.

use std::ffi::{CStr, c_int};
use std::ptr;

use fuseplan_api::BackendError;

use crate::BACKEND;
use crate::modules::Modules;
use crate::sys::{CUdevice, Opaque, Status};

/// Calls a function of the driver: its status, or an error where there is no driver or it lacks the function.
/// Unsafe like the function itself.
macro_rules! status {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::library::driver().and_then(|driver| match driver.$function {
            Some(function) => Ok(function($($argument),*)),
            None => Err($crate::library::lacks("libcuda", stringify!($function))),
        })
    };
}
pub(crate) use status;

/// Calls a function of the driver; an error carries the function's name and the driver's words. Unsafe like
/// the function itself.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::driver::status!($function($($argument),*))
            .and_then(|status| $crate::driver::check(stringify!($function), status))
    };
}
pub(crate) use call;

/// The error of a driver's function.
pub(crate) fn check(call: &'static str, status: Status) -> Result<(), BackendError> {
    if status == Status::SUCCESS {
        return Ok(());
    }
    let (mut name, mut words) = (ptr::null(), ptr::null());
    // SAFETY: the driver gives constant strings, or null for a number that it does not know.
    let [name, words] = unsafe {
        let _ = status!(cuGetErrorName(status, &mut name));
        let _ = status!(cuGetErrorString(status, &mut words));
        [name, words].map(|text| (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy()))
    };
    let name = name.unwrap_or("an error that this driver has no name for".into());
    let text = format!(
        "{name} ({}){}{}",
        status.0,
        if words.is_some() { ": " } else { "" },
        words.unwrap_or_default()
    );
    Err(BackendError::Driver { backend: BACKEND, call, text })
}

/// The newest CUDA version that the driver is for, as major and minor number. Needs no device.
pub(crate) fn version() -> Result<(c_int, c_int), BackendError> {
    let mut version = 0;
    // SAFETY: the driver writes the number.
    unsafe { call!(cuDriverGetVersion(&mut version)) }?;
    Ok((version / 1000, version % 1000 / 10))
}

/// Initialises the driver.
pub(crate) fn initialise() -> Result<(), BackendError> {
    // SAFETY: initialising again does nothing.
    unsafe { call!(cuInit(0)) }
}

/// A context that work runs in.
#[derive(Debug)]
pub(crate) struct Context {
    raw: Opaque,
    device: CUdevice,
    /// Whether it is the device's primary context, which counts its users.
    retained: bool,
    modules: Modules,
}

// SAFETY: a context is an address that only the driver dereferences, which takes it from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// A device's primary context, which the CUDA runtime uses too, so that pointers and streams of either
    /// are good for the other. The driver is initialised.
    pub(crate) fn retain(device: CUdevice) -> Result<Self, BackendError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the driver writes the context to `raw`.
        unsafe { call!(cuDevicePrimaryCtxRetain(&mut raw, device)) }?;
        Ok(Context { raw, device, retained: true, modules: Modules::default() })
    }

    /// Somebody else's context; null is the thread's current one. It is used, never destroyed.
    ///
    /// # Safety
    /// It is null, or a context that lives as long as the result.
    pub(crate) unsafe fn adopt(mut raw: Opaque) -> Result<Self, BackendError> {
        if raw.is_null() {
            // SAFETY: the driver writes the context.
            unsafe { call!(cuCtxGetCurrent(&mut raw)) }?;
        }
        if raw.is_null() {
            return Err(BackendError::Unavailable {
                backend: BACKEND,
                reason: "the thread has no current context".into(),
            });
        }
        let mut context = Context { raw, device: 0, retained: false, modules: Modules::default() };
        let entered = context.enter()?;
        let mut device = 0;
        // SAFETY: the driver writes the device of the current context.
        unsafe { call!(cuCtxGetDevice(&mut device)) }?;
        drop(entered);
        context.device = device;
        Ok(context)
    }

    pub(crate) fn raw(&self) -> Opaque {
        self.raw
    }

    pub(crate) fn device(&self) -> CUdevice {
        self.device
    }

    /// The kernels loaded in it.
    pub(crate) fn modules(&self) -> &Modules {
        &self.modules
    }

    /// Makes it the thread's current context until the result is dropped.
    pub(crate) fn enter(&self) -> Result<Entered, BackendError> {
        // SAFETY: the context is live.
        unsafe { call!(cuCtxPushCurrent_v2(self.raw)) }?;
        Ok(Entered)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.modules.is_empty() {
            // A module knows its context; the current one matters to errors only.
            let _entered = self.enter();
            self.modules.unload();
        }
        if self.retained {
            // SAFETY: it was retained once. A driver that is shutting down refuses, which is as good.
            let _ = unsafe { call!(cuDevicePrimaryCtxRelease_v2(self.device)) };
        }
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

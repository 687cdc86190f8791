//! Calls of the driver with errors in its own words.

use std::ffi::{CStr, c_int};
use std::ptr;

use fuseplan_api::BackendError;

use crate::BACKEND;
use crate::sys::Status;

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

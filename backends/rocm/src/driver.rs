//! Calls of the runtime with errors in its own words.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use fuseplan_api::{BackendError, fork};
use fuseplan_hip_sys::{self as sys, Hip, hipError_t};

use crate::{BACKEND, unavailable};

/// Calls a function of the runtime; an error carries the function's name and the runtime's words. Unsafe like the
/// function itself.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::driver::hip().and_then(|hip| {
            $crate::driver::check(hip, stringify!($function), hip.$function($($argument),*))
        })
    };
}
pub(crate) use call;

/// The error of a function. Only the result counts: what `hipGetLastError` says differs between versions.
pub(crate) fn check(hip: &Hip, call: &'static str, result: hipError_t) -> Result<(), BackendError> {
    if result == hipError_t::hipSuccess {
        return Ok(());
    }
    let words = |text: *const c_char| {
        // SAFETY: the runtime gives a constant string or null for any number.
        if text.is_null() { "?".into() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy() }
    };
    // SAFETY: these take any number.
    let (name, text) = unsafe { (words(hip.hipGetErrorName(result)), words(hip.hipGetErrorString(result))) };
    Err(BackendError::Driver { backend: BACKEND, call, text: format!("{name} ({}): {text}", result.0) })
}

/// The runtime, or why it cannot be used. A process that was forked from the one that initialised it cannot: the
/// runtime's threads are not there, and it would wait for them.
pub(crate) fn hip() -> Result<&'static Hip, BackendError> {
    static INITIALISED_IN: OnceLock<u64> = OnceLock::new();
    let hip = sys::hip().map_err(unavailable)?;
    let generation = fork::generation();
    if *INITIALISED_IN.get_or_init(|| generation) == generation {
        Ok(hip)
    } else {
        Err(fork::forked(BACKEND))
    }
}

/// Initialises the runtime: its number of devices. HIP reports their absence as an error, before version 6
/// as one of two.
pub(crate) fn initialise() -> Result<u32, BackendError> {
    let hip = hip()?;
    // SAFETY: initialising again does nothing.
    if is_absent("hipInit", hip, unsafe { hip.hipInit(0) })? {
        return Ok(0);
    }
    let mut count = 0;
    // SAFETY: the runtime writes the number.
    let counted = unsafe { hip.hipGetDeviceCount(&mut count) };
    let absent = is_absent("hipGetDeviceCount", hip, counted)?;
    Ok(if absent { 0 } else { count.max(0) as u32 })
}

/// Whether a function says that there is no device; other errors are errors.
fn is_absent(call: &'static str, hip: &Hip, result: hipError_t) -> Result<bool, BackendError> {
    match result {
        hipError_t::hipErrorNoDevice | hipError_t::hipErrorInvalidDevice => Ok(true),
        result => check(hip, call, result).map(|()| false),
    }
}

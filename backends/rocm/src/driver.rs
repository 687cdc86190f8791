//! Calls of the runtime with errors in its own words, and the current device.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use fuseplan_api::{BackendError, fork};
use fuseplan_hip_sys::{self as sys, Hip, hipError_t};

use crate::{BACKEND, unavailable};

/// Calls a function of the runtime; an error carries the function's name and the runtime's words. In a process that was
/// forked from the one that initialised the runtime it is not called. Unsafe like the function itself.
macro_rules! call {
    ($hip:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let hip: &fuseplan_hip_sys::Hip = $hip;
        $crate::driver::not_forked().and_then(|()| {
            $crate::driver::check(hip, stringify!($function), hip.$function($($argument),*))
        })
    }};
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

/// Whether this process has initialised the runtime, or will.
///
/// # Errors
/// A process has from which this one was forked; the runtime's threads are not here, and it would wait for them.
pub(crate) fn not_forked() -> Result<(), BackendError> {
    static INITIALISED_IN: OnceLock<u64> = OnceLock::new();
    let generation = fork::generation();
    if *INITIALISED_IN.get_or_init(|| generation) == generation { Ok(()) } else { Err(fork::forked(BACKEND)) }
}

/// The runtime, initialised, and its number of devices. HIP reports their absence as an error, before version 6
/// as one of two.
pub(crate) fn initialise() -> Result<(&'static Hip, u32), BackendError> {
    let hip = sys::hip().map_err(unavailable)?;
    not_forked()?;
    // SAFETY: initialising again does nothing.
    if is_absent("hipInit", hip, unsafe { hip.hipInit(0) })? {
        return Ok((hip, 0));
    }
    let mut count = 0;
    // SAFETY: the runtime writes the number.
    let counted = unsafe { hip.hipGetDeviceCount(&mut count) };
    let absent = is_absent("hipGetDeviceCount", hip, counted)?;
    Ok((hip, if absent { 0 } else { count.max(0) as u32 }))
}

/// Whether a function says that there is no device; other errors are errors.
fn is_absent(call: &'static str, hip: &Hip, result: hipError_t) -> Result<bool, BackendError> {
    match result {
        hipError_t::hipErrorNoDevice | hipError_t::hipErrorInvalidDevice => Ok(true),
        result => check(hip, call, result).map(|()| false),
    }
}

/// The ordinal of the calling thread's current device, if there is a device.
pub fn current_device() -> Option<u32> {
    let (hip, count) = initialise().ok()?;
    let mut ordinal = 0;
    // SAFETY: the runtime is initialised and writes the number.
    unsafe { call!(hip, hipGetDevice(&mut ordinal)) }.ok()?;
    u32::try_from(ordinal).ok().filter(|&ordinal| ordinal < count)
}

/// A device of the initialised runtime.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    pub(crate) hip: &'static Hip,
    pub(crate) ordinal: c_int,
}

impl Context {
    /// Makes it the thread's current device until the result is dropped.
    pub(crate) fn enter(&self) -> Result<Entered, BackendError> {
        let hip = self.hip;
        let mut before = 0;
        // SAFETY: the runtime is initialised and writes the number.
        unsafe { call!(hip, hipGetDevice(&mut before)) }?;
        if before != self.ordinal {
            // SAFETY: the device was found.
            unsafe { call!(hip, hipSetDevice(self.ordinal)) }?;
        }
        Ok(Entered { hip, before: (before != self.ordinal).then_some(before) })
    }
}

/// The time in which a device is the thread's current one.
pub(crate) struct Entered {
    hip: &'static Hip,
    before: Option<c_int>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: it was the current device before; results of `enter` live on one thread's stack only.
            unsafe { self.hip.hipSetDevice(before) };
        }
    }
}

//! A CUDA driver and an NVRTC with nothing behind them, for tests: one library that is loaded under both names.
//!
//! Memory is the host's, copies happen at once, launches are only counted, events are five milliseconds apart, a
//! cubin is a few words. What is real is the bookkeeping: every object belongs to a context and is live until
//! it is destroyed, calls need a current context where the driver's do, and misuse is an error. There are two
//! devices, of compute capability 9.0 and 8.0.
//!
//! `fake_fail` makes a later call fail; a call that destroys something does so even then, as the driver's do.
#![allow(non_snake_case, reason = "the driver's own names")]
#![allow(clippy::missing_safety_doc, reason = "the driver's own contracts")]

mod driver;
mod nvrtc;
mod state;

use std::ffi::{CString, c_char, c_int};

use state::state;

/// The `nth` counted call from now fails with `status`; 0: none does.
#[unsafe(no_mangle)]
extern "C" fn fake_fail(nth: u64, status: c_int) {
    let mut state = state();
    state.fault = (nth, status);
    state.failed = None;
}

/// The name of the call that failed as `fake_fail` asked; empty while none has.
#[unsafe(no_mangle)]
extern "C" fn fake_failed() -> *mut c_char {
    give(state().failed.unwrap_or_default())
}

/// What is live, a word for each object, and the depth of this thread's stack of contexts and its mode of captures where they are not 0.
#[unsafe(no_mangle)]
extern "C" fn fake_live() -> *mut c_char {
    give(&state().live())
}

/// The names of all functions that were called so far, in order, once each.
#[unsafe(no_mangle)]
extern "C" fn fake_called() -> *mut c_char {
    give(&state().called.iter().copied().collect::<Vec<_>>().join(" "))
}

/// How many kernels have run on a device, replays of graphs included.
#[unsafe(no_mangle)]
extern "C" fn fake_launches(device: c_int) -> u64 {
    state().launches.get(device as usize).copied().unwrap_or_default()
}

/// A string that stays.
fn give(text: &str) -> *mut c_char {
    CString::new(text).unwrap_or_default().into_raw()
}

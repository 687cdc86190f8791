//! What every call into the library runs in.

use crate::float::in_default_float_environment;
use crate::fork;

/// Runs the body of a call that computes, or that takes locks: in the default floating-point environment, whatever
/// the caller's is, and with no [fork](fork) of the process meanwhile. Nests; costs some nanoseconds.
pub fn call<R>(body: impl FnOnce() -> R) -> R {
    let _call = fork::Call::begin();
    in_default_float_environment(body)
}

//! AMD's HIP runtime and its run-time compiler hiprtc.
//!
//! Nothing of ROCm is needed to build this, and nothing is linked: the libraries are looked for when they are
//! first wanted ([`hip`], [`hiprtc`]) and then stay loaded for the life of the process. A library or function
//! that is missing is a [`LoadError`], never a panic.
//!
//! [`Hip`] and [`Hiprtc`] are made by bindgen from HIP's headers (`examples/generate.rs`), the few functions
//! that the backend calls and no others. Enumerations are numbers with named constants, so a value that is
//! not known here is a value like any other. Layouts and numbers are those of HIP 6 and 7; of HIP 5 only the
//! compiler can be used.

#[allow(
    clippy::missing_errors_doc,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    clippy::undocumented_unsafe_blocks,
    missing_debug_implementations,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unsafe_op_in_unsafe_fn,
    reason = "made by bindgen"
)]
mod hip;
#[allow(
    clippy::missing_errors_doc,
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    missing_debug_implementations,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unsafe_op_in_unsafe_fn,
    reason = "made by bindgen"
)]
mod hiprtc;
mod loader;

pub use hip::*;
pub use hiprtc::*;
pub use loader::{FOLDERS, LoadError, hip, hiprtc, version};

impl std::fmt::Debug for Hip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hip")
    }
}

impl std::fmt::Debug for Hiprtc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hiprtc")
    }
}

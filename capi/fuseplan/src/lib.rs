//! fuseplan's own C interface, `libfuseplan.so.0`, on top of the `fuseplan` crate.
//!
//! `capi/include/fuseplan.h` is the interface, written for its readers; this crate is its other side, one file for each
//! section: `handle`, `tensor`, `plan` with `operators`, `compile`, `args`, `execute`. `status` has its numbers. The rules
//! that all functions share stand in `boundary`, which `libMIOpen.so.1` has too.

pub mod abi;
mod args;
#[allow(dead_code, unused_imports, reason = "libMIOpen.so.1 uses the rest")]
#[path = "../../src/boundary/mod.rs"]
mod boundary;
mod compile;
mod execute;
mod handle;
mod operators;
mod plan;
mod status;
mod tensor;

use abi::Prototype;
use boundary::Library;

pub use args::*;
pub use boundary::table::{Ref, live};
pub use compile::*;
pub use execute::*;
pub use handle::*;
pub use operators::*;
pub use plan::*;
pub use status::*;
pub use tensor::*;

/// Under which name, and with which numbers, the boundary works here.
pub(crate) const LIBRARY: Library = Library { name: "fuseplan", tag: 0x46, code: status::code };

/// The prototype of every function but those that return text.
pub fn prototypes() -> impl Iterator<Item = &'static Prototype> {
    let files = [
        handle::PROTOTYPES,
        tensor::PROTOTYPES,
        plan::PROTOTYPES,
        operators::PROTOTYPES,
        compile::PROTOTYPES,
        args::PROTOTYPES,
        execute::PROTOTYPES,
    ];
    files.into_iter().flatten()
}

//! fuseplan as `libMIOpen.so.1`: MIOpen's C interface on top of the `fuseplan` crate.
//!
//! `include/miopen` is the interface, written for its readers; this crate is its other side, one file for
//! each section: `handle`, `tensor`, `convolution`, `activation`, `plan`, `operators`, `args`,
//! `execute`, `primitives`, `find2`, `unimplemented`. `status` has MIOpen's numbers. The rules that all functions share
//! stand in `boundary`, which `libfuseplan.so.0` has too.

#![allow(non_snake_case, reason = "the library's file is libMIOpen")]

pub mod abi;
mod activation;
mod args;
mod boundary;
mod convolution;
mod execute;
mod find2;
mod handle;
mod operators;
mod plan;
mod primitives;
mod status;
mod tensor;
mod text;
mod unimplemented;

use abi::Prototype;
use boundary::{Library, guard, parallel, table};

pub use activation::*;
pub use args::*;
pub use convolution::*;
pub use execute::*;
pub use find2::options::*;
pub use find2::problem::*;
pub use find2::search::*;
pub use find2::solution::*;
pub use handle::*;
pub use operators::*;
pub use plan::*;
pub use primitives::activation::*;
pub use primitives::batch_norm::gradient::*;
pub use primitives::batch_norm::inference::*;
pub use primitives::batch_norm::training::*;
pub use primitives::convolution::*;
pub use primitives::immediate::*;
pub use primitives::tensor::*;
pub use status::*;
pub use table::{Ref, live};
pub use tensor::*;
pub use text::*;
pub use unimplemented::*;

/// Under which name, and with which numbers, the boundary works here.
pub(crate) const LIBRARY: Library = Library { name: "MIOpen", tag: 0x4d, code: status::code };

/// The prototype of every implemented function but the two that return text.
pub fn prototypes() -> impl Iterator<Item = &'static Prototype> {
    let files = [
        handle::PROTOTYPES,
        tensor::PROTOTYPES,
        convolution::PROTOTYPES,
        activation::PROTOTYPES,
        plan::PROTOTYPES,
        operators::PROTOTYPES,
        args::PROTOTYPES,
        execute::PROTOTYPES,
        text::PROTOTYPES,
        primitives::tensor::PROTOTYPES,
        primitives::convolution::PROTOTYPES,
        primitives::immediate::PROTOTYPES,
        primitives::activation::PROTOTYPES,
        primitives::batch_norm::inference::PROTOTYPES,
        primitives::batch_norm::training::PROTOTYPES,
        primitives::batch_norm::gradient::PROTOTYPES,
        find2::problem::PROTOTYPES,
        find2::options::PROTOTYPES,
        find2::search::PROTOTYPES,
        find2::solution::PROTOTYPES,
    ];
    files.into_iter().flatten()
}

/// The functions that are exported and not implemented.
pub fn unimplemented_functions() -> &'static [&'static str] {
    unimplemented::NAMES
}

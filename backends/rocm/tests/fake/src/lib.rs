//! A HIP runtime and compiler without a GPU.
//!
//! The shared object has the functions that the ROCm backend calls, under their real names: memory is the
//! host's, between pages that nobody may touch; calls are counted, any can be made to fail, and what is not given
//! back is known. With `FAKE_HIP_KERNELS` the compiler makes shared objects for this CPU (`tests/shim`) and
//! launches run them at once; without it kernels do nothing.
//!
//! Environment, read when first wanted: `FAKE_HIP_ARCHS`, the devices' architectures with blanks between them,
//! by default one gfx942; `FAKE_HIP_VERSION`, the runtime's version, by default 70253211, and an error if it is
//! no number; `FAKE_HIP_KERNELS`, the folder in which compiled kernels are kept.

#![allow(unreachable_pub, reason = "functions are exported by their names")]

mod control;
mod graph;
mod hip;
mod hiprtc;
mod launch;
mod memory;
#[path = "../../shim/mod.rs"]
mod shim;
mod state;

pub use control::Fake;

//! What fuseplan's GPU backends share.
//!
//! Kernels are text: C++ without a single header, made from files in `kernels/`, constants of the problem
//! and a function generated for its chain of operators ([`Kernel`]). A vendor adds a short text with its own
//! words for the few things that differ, and a [`Runtime`]: compile a text, load what came out, launch it.
//! [`JitSolver`] makes solvers of the two.

mod arguments;
mod batch_norm;
pub mod binary;
mod ceilings;
mod chain;
mod constraint;
mod depthwise;
mod direct;
mod element_wise;
mod halo;
mod implicit_gemm;
mod jit;
mod kernel;
mod memo;
mod runtime;
mod solvers;
mod tiling;
mod volume;

pub use arguments::{MAX_WORDS, pack};
pub use ceilings::{Measured, Probe};
pub use chain::channel_values;
pub use constraint::{
    DATA_TYPE, FEW_FILTERS, GEMM, GROUP_COUNT, INFERENCE, NARROW, OPERATOR_COUNT, SIXTEEN_BITS, SPAN, WINDOW,
};
pub use halo::{HaloLoop, halo, halo_fma, halo_refusal};
pub use implicit_gemm::{Access, MainLoop, ffma, image_run, implicit_gemm};
pub use jit::{JitSolver, Planner, compile, load, upcast};
pub use kernel::{ALONE, Geometry, Kernel, PLACE, SHARE, Text};
pub use memo::{Compiled, Memo};
pub use runtime::{CompileFailure, Function, Runtime};
pub use tiling::{Costs, Target, Tile, units_at_once};
pub use volume::{Volume, common_power, spatial};

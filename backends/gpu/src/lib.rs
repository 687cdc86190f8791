//! What fuseplan's GPU backends share.
//!
//! Kernels are text: C++ without a single header, made from files in `kernels/`, constants of the problem
//! and a function generated for its chain of operators ([`Kernel`]). A vendor adds a short text with its own
//! words for the few things that differ, and a [`Runtime`], which compiles a text. [`JitSolver`] makes solvers of the
//! two.
//!
//! What came out runs on a [`GpuDevice`], which is the same for every vendor: it needs of one the calls of its driver
//! ([`Driver`]).

#[macro_use]
mod constants;
#[macro_use]
pub mod file;

mod affine;
mod arguments;
mod batch_norm;
pub mod binary;
mod chain;
mod configurations;
mod constraint;
mod context;
mod depthwise;
mod device;
mod direct;
mod driver;
mod element_wise;
#[cfg(test)]
mod fake;
mod function;
mod gemv;
mod graph;
mod halo;
mod implicit_gemm;
mod jit;
mod kernel;
mod memo;
mod modules;
mod parts;
mod peaks;
mod preference;
mod runtime;
mod scratch;
mod solvers;
mod tiling;
mod volume;

pub use arguments::{ArgumentLayout, MAX_WORDS};
pub use chain::{chain_values, channel_values, has_exponentials, reads_elements, residuals};
pub use configurations::{LISTED, named, ranked};
pub use constants::Constant;
pub use constraint::{
    CONVOLUTION, DATA_TYPE, GROUP_COUNT, INFERENCE, OPERATOR_COUNT, SIXTEEN_BITS, SPAN, WINDOW, convolution,
};
pub use context::{Context, Entered};
pub use device::{GpuDevice, discover};
pub use driver::{Attribute, Driver, Object, RawEvent, RawFunction, RawModule};
pub use function::Function;
pub use fuseplan_api::volume::{Volume, common_power, spatial};
pub use halo::{HaloLoop, halo, halo_configurations, halo_fma, halo_refusal};
pub use implicit_gemm::{
    Access, MainLoop, ffma, ffma_constants, gemm_configurations, image_pair, image_run, implicit_gemm,
};
pub use jit::{JitSolver, Kernels, Planner, compile, kernel_of, load, no_configuration, upcast};
pub use kernel::{ALONE, COORD, Geometry, Kernel, SCRATCH_WORDS, SHARE, Text, element};
pub use memo::{Compiled, Memo};
pub use parts::InParts;
pub use peaks::Probe;
pub use preference::{FEW_FILTERS, FEW_PIXELS, GEMM, NARROW};
pub use runtime::{CompileFailure, Runtime};
pub use scratch::{Capture, Held, OfGraph, RawUserObject, Scratch, ScratchDriver};
pub use tiling::{Costs, Target, Tile, Tiling, units_at_once};

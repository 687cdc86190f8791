//! fuseplan's CPU backend: SIMD kernels chosen at run time, and the reference that they are judged by.

#[allow(dead_code, reason = "the convolution solvers are the first users")]
mod arena;
#[allow(dead_code, reason = "the convolution solvers are the first users")]
mod isa;
#[allow(dead_code, reason = "the convolution solvers are the first users")]
mod pool;

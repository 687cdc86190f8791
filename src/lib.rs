//! Fused neural-network operators from one plan.
//!
//! Describe a tensor, append operators in order (convolution, bias, batch-norm, activation), compile them
//! into **one kernel**, give weights and scalars at run time, execute. An operator that cannot be part of
//! the plan is rejected when it is appended, with the reason and the nearest thing that would be accepted.
//!
//! # Example
//! ```
//! use fuseplan::*;
//! # fn main() -> Result<(), Error> {
//! let handle = Handle::cpu();
//! let x = TensorDescriptor::nchw(DataType::Float, [1, 2, 3, 3])?;
//! let w = TensorDescriptor::nchw(DataType::Float, [1, 2, 3, 3])?;
//!
//! let mut plan = FusionPlan::for_device(FusionDirection::Vertical, x, &handle)?;
//! let conv = plan.append(ConvForward::new(ConvolutionDescriptor::new_2d([0, 0], [1, 1], [1, 1])?, w))?;
//! let bias = plan.append(BiasForward::new())?;
//! let relu = plan.append(ActivationForward::new(ActivationMode::Relu))?;
//! let compiled = plan.compile(&handle)?;
//!
//! let (input, weights, shift) = ([1.0f32; 18], [0.5f32; 18], [-4.0f32]);
//! let mut args = OperatorArgs::new();
//! args.set(conv, ConvForwardArgs::new(&weights))
//!     .set(bias, BiasForwardArgs::new(&shift))
//!     .set(relu, ActivationForwardArgs::new(0.0, 0.0, 0.0));
//! let mut output = [0.0f32; 1];
//! compiled.execute(&handle, Tensor::new(&x, &input), TensorMut::new(plan.output(), &mut output), &args)?;
//! assert_eq!(output, [5.0]);
//! assert!(compiled.is_one_kernel());
//! # Ok(())
//! # }
//! ```
//!
//! # Numerics
//! 16-bit data is accumulated in f32 and rounded once, to nearest even. On one machine results are bitwise
//! the same from run to run and for any number of threads. `docs/architecture.md` has the error bounds that
//! the tests hold every kernel to.
//!
//! # Threads
//! [`CompiledPlan`] and [`Handle`] are `Send` and `Sync`; any number of threads may execute one plan at once. The
//! library works in destructors of thread-locals, in `atexit` handlers, and in children of `fork` too; `docs/processes.md`
//! has the details.
//!
//! What a caller has set in its floating-point environment (rounding, flushing of denormal numbers, exceptions that
//! trap) has no part in results: calls compute in the default environment, and the caller's is restored.
//!
//! # Untrusted input
//! Safe functions have no undefined behaviour whatever their arguments: every descriptor, operand and
//! overlap is checked before a kernel runs. The `unsafe` functions state what they rely on.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "raw operands: the constructors state what is promised")]
mod args;
#[allow(unsafe_code, reason = "memory of devices")]
mod buffer;
mod cache;
#[cfg(feature = "cuda")]
#[allow(unsafe_code, reason = "adopting a caller's context")]
pub mod cuda;
#[cfg(test)]
#[allow(unsafe_code, reason = "passing a kernel's arguments on")]
mod double;
mod env;
mod error;
mod execute;
#[allow(unsafe_code, reason = "timing kernels on memory of its own")]
mod find;
mod graph;
#[allow(unsafe_code, reason = "adopting a caller's stream")]
mod handle;
pub mod log;
mod operator;
mod plan;
mod select;
mod support;
mod tensor;

pub use args::{
    ActivationBackwardArgs, ActivationForwardArgs, Arguments, BatchNormBackwardArgs, BatchNormForwardArgs,
    BatchNormInferenceArgs, BiasForwardArgs, ConvForwardArgs, Operand, OperandMut, OperatorArgs,
};
pub use buffer::{BufferError, DeviceBuffer};
pub use cache::BinaryError;
pub use error::Error;
pub use execute::ExecuteError;
pub use fuseplan_api::{
    ActivationMode, ActivationParams, Algorithm, BackendError, BatchNormMode, BuildError, Ceilings,
    ConvolutionDescriptor, ConvolutionMode, DataType, DescriptorError, DeviceInfo, Discovery, Element,
    ExecutableInfo, Graph, GraphExec, MAX_RANK, MathMode, MemoryKind, Op, OpKind, Problem, RawGraph,
    RawGraphExec, RawNode, RawStream, Refusal, Resources, RunError, TensorDescriptor, TensorLayout,
};
pub use handle::{Handle, Target, backends, discover};
pub use operator::{
    ActivationBackward, ActivationForward, BatchNormBackward, BatchNormForward, BatchNormInference,
    BiasForward, ConvForward, OpId, Operator,
};
pub use plan::{AppendError, CompiledBinary, CompiledPlan, FusionDirection, FusionPlan, PlanError, Reason};
pub use select::{Chosen, CompileError, CompileOptions, FindMode};
pub use support::{
    Comparison, ComparisonRow, SupportRow, SupportTable, beside_miopen, supported, supported_on,
};
pub use tensor::{Tensor, TensorMut};

#[doc(hidden)]
pub use fuseplan_api::{call, fork};

/// The README's examples are run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

const _: () = {
    const fn shareable<T: Send + Sync>() {}
    shareable::<Handle>();
    shareable::<FusionPlan>();
    shareable::<CompiledPlan>();
    shareable::<CompiledBinary>();
    shareable::<OperatorArgs<'static>>();
    shareable::<DeviceBuffer<f32>>();
    shareable::<Error>();
};

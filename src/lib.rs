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
//! let mut plan = FusionPlan::for_device(&handle, x)?;
//! let conv = plan.append(ConvForward::new(ConvolutionDescriptor::d2(), w))?;
//! let bias = plan.append(BiasForward::new())?;
//! let relu = plan.append(ActivationForward::new(ActivationMode::Relu))?;
//! let compiled = plan.compile(&handle)?;
//!
//! let (input, weights, shift) = ([1.0f32; 18], [0.5f32; 18], [-4.0f32]);
//! let mut args = OperatorArgs::new();
//! args.set(conv, ConvForwardArgs::new(&weights))
//!     .set(bias, BiasForwardArgs::new(&shift))
//!     .set(relu, Activation::Relu);
//! let mut output = [0.0f32; 1];
//! compiled.execute(&handle, Tensor::new(&x, &input), TensorMut::new(plan.output(), &mut output), &args)?;
//! assert_eq!(output, [5.0]);
//! assert!(compiled.is_one_kernel());
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//! The names at the root are those that programs describe, compile and execute plans with. Modules have the rest: [`error`],
//! [`device`] (what there is to run on), [`memory`] (what operands are), [`choice`] and [`problem`] (which solver was
//! chosen for what, and why), [`support`] (the table of what is supported), [`graph`] (executions to be replayed),
//! [`raw`] (bare pointers), [`traits`], [`log`].
//!
//! # Numerics
//! 16-bit data is accumulated in f32 and rounded once, to nearest even. On one machine results are bitwise
//! the same from run to run and for any number of threads. (Where a plan says that another kernel computes weights that are not
//! constant, or lie at odd addresses, its sums may have another order.) `docs/architecture.md` has the error bounds that
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
mod backends;
#[allow(unsafe_code, reason = "memory of devices")]
mod buffer;
mod build;
mod cache;
pub mod chains;
pub mod choice;
mod context;
#[cfg(feature = "cuda")]
#[allow(unsafe_code, reason = "adopting a caller's context")]
pub mod cuda;
mod env;
pub mod error;
mod execute;
#[allow(unsafe_code, reason = "timing kernels on memory of its own")]
mod find;
pub mod graph;
#[allow(unsafe_code, reason = "adopting a caller's stream")]
mod handle;
pub mod log;
mod observe;
mod operator;
mod options;
mod plan;
#[allow(unsafe_code, reason = "functions of profilers, loaded at run time")]
mod ranges;
#[allow(unsafe_code, reason = "the promise of who hands in bare pointers")]
pub mod raw;
mod several;
mod stored;
pub mod support;
mod target;
mod tensor;

pub use args::{
    ActivationBackwardArgs, ActivationForwardArgs, BatchNormBackwardArgs, BatchNormForwardArgs,
    BatchNormInferenceArgs, BiasForwardArgs, ConvForwardArgs, OperatorArgs, PReluForwardArgs,
};
pub use buffer::DeviceBuffer;
pub use error::any::Error;
pub use fuseplan_api::{
    Activation, ActivationMode, BatchNormMode, ConvolutionDescriptor, ConvolutionMode, DataType, MathMode,
    TensorDescriptor, TensorLayout,
};
pub use handle::Handle;
pub use operator::{
    ActivationBackward, ActivationForward, BatchNormBackward, BatchNormForward, BatchNormInference,
    BiasForward, ConvForward, OpId, PReluForward,
};
pub use options::{CompileOptions, FindMode};
pub use plan::{CompiledBinary, CompiledPlan, FusionPlan, PlanText};
pub use tensor::{Tensor, TensorMut};

/// Backends and devices: which there are, what is known of them, and architectures to compile for without a device.
pub mod device {
    pub use fuseplan_api::{DeviceInfo, Discovery, MemoryKind, Peaks};
    pub use fuseplan_cpu::ParallelFor;

    pub use crate::backends::{backends, discover};
    pub use crate::target::Target;
}

/// Memory that plans read and write, whatever it is: buffers on devices, slices, raw pointers.
pub mod memory {
    pub use crate::args::{Operand, OperandMut};
}

/// A plan as solvers see it, in canonical form.
pub mod problem {
    pub use fuseplan_api::{Blocks, Op, OpKind, Problem};
}

/// What operators, their arguments and elements of tensors have in common, for code that is generic over them.
pub mod traits {
    pub use fuseplan_api::Element;

    pub use crate::args::Arguments;
    pub use crate::operator::Operator;
}

#[doc(hidden)]
pub use fuseplan_api::{call, fnv1a, fork};

/// A fake device with memory of its own, and a handle of it.
#[cfg(test)]
fn fake_device() -> (fuseplan_fakes::FakeDevice, Handle) {
    let fake = fuseplan_fakes::FakeDevice::new();
    let handle = Handle::of(fuseplan_fakes::FakeDevice::backend(), fake.device()).unwrap();
    (fake, handle)
}

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

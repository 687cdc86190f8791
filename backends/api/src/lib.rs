//! What a backend must know and provide.
//!
//! A backend hears a [`Problem`]: one canonical, hashable description of a fusion plan. It answers with
//! devices ([`Backend`], [`Device`]), with [`Solver`]s in order of preference that accept a problem or say
//! why not, and with [`Executable`]s that run it. Everything above (the plan and its rules, argument
//! checking, caching) lives in the `fuseplan` crate; everything below is a backend's own business.
//!
//! Validation happens once, above this contract. A backend may rely on every documented property of the
//! values it is given and must not check them again.

mod activation;
mod args;
mod backend;
mod batch_norm;
mod call;
mod choice;
mod convolution;
mod data_type;
mod environment;
mod error;
mod float;
pub mod fork;
mod graph;
mod hash;
mod key;
mod layout;
pub mod operands;
mod patience;
mod problem;
mod solver;
mod tensor;
pub mod volume;

pub use activation::{Activation, ActivationMode, ActivationParams};
pub use args::{OpArgs, Prepared, RunArgs};
pub use backend::{
    Backend, Device, DeviceInfo, Discovery, Memory, MemoryKind, Peaks, RawStream, Stream, StreamOwner,
};
pub use batch_norm::BatchNormMode;
pub use call::call;
pub use choice::{Accuracy, Candidate, Configuration, Estimate, Preference, in_order_of, smallest_first};
pub use convolution::{ConvolutionDescriptor, ConvolutionMode};
pub use data_type::{DataType, Element};
pub use environment::{Variable, is_elevated};
pub use error::{BackendError, BuildError, DescriptorError, RunError};
pub use float::in_default_float_environment;
pub use graph::{Graph, GraphDriver, GraphExec, RawGraph, RawGraphExec, RawNode};
pub use hash::fnv1a;
pub use layout::{Blocks, TensorLayout};
pub use patience::Patience;
pub use problem::{MathMode, Op, OpGroup, OpKind, Problem, Training};
pub use solver::{
    Algorithm, Binary, Constraint, Executable, ExecutableInfo, LAYOUT, Refusal, Resources, Solver,
};
pub use tensor::{MAX_RANK, TensorDescriptor};

//! Why an execution was refused, or how it failed.

use fuseplan_api::{ActivationMode, BackendError, DataType, OpKind, RunError, TensorDescriptor};
use thiserror::Error;

/// An execution that was refused, or failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExecuteError {
    /// The output's descriptor is not the plan's.
    #[error("the output is {found}, the plan's is {expected} ({}compare type, lengths and strides)", strides(.found, .expected))]
    Output {
        /// The descriptor given.
        found: Box<TensorDescriptor>,
        /// The plan's.
        expected: Box<TensorDescriptor>,
    },
    /// The input's descriptor is not the plan's.
    #[error("the input is {found}, the plan's is {expected} ({}compare type, lengths and strides)", strides(.found, .expected))]
    Input {
        /// The descriptor given.
        found: Box<TensorDescriptor>,
        /// The plan's.
        expected: Box<TensorDescriptor>,
    },
    /// The plan was compiled for another device.
    #[error("the plan was compiled for {plan}, the handle is of {}; compile it for that handle", another(.handle, .plan))]
    OtherDevice {
        /// What it was compiled for.
        plan: String,
        /// The handle's device.
        handle: String,
    },
    /// A buffer in the memory of another device.
    #[error("{operand} is in the memory of {found}, the handle is of {}", another(.expected, .found))]
    OtherMemory {
        /// The operator and operand.
        operand: String,
        /// The buffer's device.
        found: String,
        /// The handle's device.
        expected: String,
    },
    /// An operator has no arguments.
    #[error("{kind} (operator {index}) has no arguments")]
    Missing {
        /// The operator's index.
        index: usize,
        /// The operator's kind.
        kind: OpKind,
    },
    /// Arguments for an operator that the compiled plan does not have.
    #[error("there are arguments for a {kind} as operator {index}; the plan has {count} operators")]
    Extra {
        /// The index that they were set for.
        index: usize,
        /// The kind that they were set for.
        kind: OpKind,
        /// How many operators the plan has.
        count: usize,
    },
    /// An operand that the operator, as it was described, does not have.
    #[error("{operand} is given; it must be none, as the operator was appended without it")]
    Unexpected {
        /// The operator and operand.
        operand: String,
    },
    /// Arguments that were set for an operator of another plan.
    #[error("the arguments of {kind} (operator {index}) were set for an operator of another plan")]
    Foreign {
        /// The operator's index.
        index: usize,
        /// The operator's kind.
        kind: OpKind,
    },
    /// Arguments with an activation of another mode than the operator was appended with.
    #[error("{kind} (operator {index}) was appended with {expected}, its arguments are of {found}")]
    Activation {
        /// The operator's index.
        index: usize,
        /// The operator's kind.
        kind: OpKind,
        /// The mode of the arguments' activation.
        found: ActivationMode,
        /// The mode that the operator was appended with.
        expected: ActivationMode,
    },
    /// A beta other than 0 on an operator whose result is not the output.
    #[error(
        "{kind} (operator {index}) has beta {beta}; only the last operator, {last}, may blend with the output's previous contents"
    )]
    Beta {
        /// The operator's index.
        index: usize,
        /// The operator's kind.
        kind: OpKind,
        /// The beta given, as text.
        beta: String,
        /// The index of the last operator.
        last: usize,
    },
    /// An operand of the wrong data type.
    #[error("{operand}: {found} elements, expected {expected}")]
    DataType {
        /// The operator and operand.
        operand: String,
        /// The type given.
        found: DataType,
        /// The type that the plan says.
        expected: DataType,
    },
    /// Memory that is too small for its descriptor.
    #[error("{operand}: {found} bytes, the descriptor needs {needed}")]
    TooSmall {
        /// The operator and operand.
        operand: String,
        /// The bytes given.
        found: usize,
        /// The bytes needed.
        needed: usize,
    },
    /// A null pointer.
    #[error("{operand} is null")]
    Null {
        /// The operator and operand.
        operand: String,
    },
    /// An address that is not a multiple of the element's size.
    #[error("{operand} is not aligned to its elements of {size} bytes")]
    Misaligned {
        /// The operator and operand.
        operand: String,
        /// The element's size.
        size: usize,
    },
    /// Written memory that overlaps other memory of the same execution.
    #[error("{written} overlaps {other}{}", if *.element_wise { "; an element-wise plan may run in place only on the same address with the same descriptor" } else { "" })]
    Overlap {
        /// What is written.
        written: String,
        /// What it overlaps.
        other: String,
        /// Whether the plan is element-wise.
        element_wise: bool,
    },
    /// A plan that is not element-wise cannot run in place.
    #[error("a plan with {first} cannot run in place; only element-wise plans can")]
    InPlace {
        /// The plan's first operator.
        first: OpKind,
    },
    /// A workspace that is too small.
    #[error("the workspace has {found} bytes, the plan needs {needed}")]
    Workspace {
        /// The bytes given.
        found: usize,
        /// The bytes needed.
        needed: usize,
    },
    /// A workspace at an address that its kernel could not use.
    #[error("the workspace is not aligned to {alignment} bytes")]
    MisalignedWorkspace {
        /// What its address has to be a multiple of.
        alignment: usize,
    },
    /// Memory that is ready for another stream than that of the handle.
    #[error("{operand} was given for another stream than the handle's")]
    OtherStream {
        /// The operator and operand.
        operand: String,
    },
    /// The launch failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl From<BackendError> for ExecuteError {
    fn from(error: BackendError) -> Self {
        ExecuteError::Run(error.into())
    }
}

/// A device beside another. Those that print alike are one device that was opened more than once: an adopted context
/// beside the shared one, a CPU with another number of threads.
fn another(device: &str, other: &str) -> String {
    if device == other { format!("another opening of {device}") } else { device.into() }
}

/// Two descriptors that print alike differ in unused strides; then those are shown.
fn strides(found: &TensorDescriptor, expected: &TensorDescriptor) -> String {
    match (found.strides(), expected.strides()) {
        (Some(strides), Some(others)) if found.to_string() == expected.to_string() => {
            format!("strides {strides:?} and {others:?}; ")
        }
        _ => String::new(),
    }
}

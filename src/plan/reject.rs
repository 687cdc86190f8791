//! Why a plan or an operator is rejected: as data, as a sentence, and with what would be accepted.

use fuseplan_api::{BatchNormMode, DataType, DescriptorError, OpKind, Refusal, TensorDescriptor};
use thiserror::Error;

/// A plan that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The input has a number of dimensions that no operator takes.
    #[error("the plan's input has {found} dimensions; accepted: 4 (N, C, H, W) or 5 (N, C, D, H, W)")]
    Rank {
        /// The number of dimensions given.
        found: usize,
    },
}

/// An operator that was not appended; the plan is as it was.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{kind} (operator {index}): {reason}; accepted: {accepted}")]
#[non_exhaustive]
pub struct AppendError {
    /// The index that the operator would have had.
    pub index: usize,
    /// The operator's kind.
    pub kind: OpKind,
    /// Why it was rejected.
    pub reason: Reason,
    /// The nearest thing that would have been accepted.
    pub accepted: String,
}

/// Why an operator was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// A second convolution.
    #[error("the plan already has a convolution")]
    SecondConvolution,
    /// A convolution behind another operator.
    #[error("a convolution can only be the first operator of a plan, here {first} is")]
    ConvolutionNotFirst {
        /// The plan's first operator.
        first: OpKind,
    },
    /// An operator that only starts a plan, behind another operator.
    #[error("it can only be the first operator of a plan, here {first} is")]
    NotFirst {
        /// The plan's first operator.
        first: OpKind,
    },
    /// A training operator's plan takes nothing but the one operator that belongs to it.
    #[error("a plan that starts with {first} takes {} behind it", .takes.map_or("nothing".into(), |k| format!("one {k} and nothing else")))]
    AfterTraining {
        /// The plan's first operator.
        first: OpKind,
        /// What may follow at this place.
        takes: Option<OpKind>,
    },
    /// The gradient of an activation without the gradient of the batch-norm before it.
    #[error("it only follows BatchNormBackward")]
    NotAfterBatchNormBackward,
    /// A transposed convolution.
    #[error("transposed convolution is not supported")]
    Transpose,
    /// The shapes do not fit one another.
    #[error("{text}")]
    Shape {
        /// Which property differs, with both numbers.
        text: String,
        /// What would fit.
        fits: String,
    },
    /// Operands of different data types.
    #[error("{operand} of type {found}, the plan's tensor is {expected}")]
    DataType {
        /// Which operand.
        operand: &'static str,
        /// The operand's data type.
        found: DataType,
        /// The type of the plan's tensor.
        expected: DataType,
    },
    /// Parameters, of a channel for example, that are neither of the plan's data type nor f32.
    #[error("{operand} of type {found}, the plan's tensor is {running}")]
    ParameterType {
        /// Which operand.
        operand: &'static str,
        /// Its type.
        found: DataType,
        /// The type of the plan's tensor.
        running: DataType,
    },
    /// A bias that is neither one value a channel nor one an element.
    #[error("the bias has lengths {:?}, the plan's tensor has {:?}", bias.lens(), running.lens())]
    BiasShape {
        /// The bias.
        bias: Box<TensorDescriptor>,
        /// The plan's tensor.
        running: Box<TensorDescriptor>,
    },
    /// Parameters that are not of the shape that the mode derives.
    #[error("{mode} parameters are {params}")]
    BatchNormShape {
        /// Over what the parameters run.
        mode: BatchNormMode,
        /// The descriptor given.
        params: Box<TensorDescriptor>,
        /// The derived one.
        derived: Box<TensorDescriptor>,
    },
    /// The plan's output would write some elements more than once.
    #[error("the output has {}, with which elements overlap", output.order())]
    OverlappingOutput {
        /// The output's descriptor.
        output: Box<TensorDescriptor>,
    },
    /// The backend has no solver for the plan with this operator on the plan's device.
    #[error("{device} has no solver for it: {}", .refusals.last().map_or("the backend has no solvers".into(), ToString::to_string))]
    NoSolver {
        /// The device or architecture.
        device: String,
        /// Every solver's own reason, in order of preference.
        refusals: Vec<Refusal>,
    },
}

impl Reason {
    pub(crate) fn shape(error: DescriptorError, fits: impl Into<String>) -> Self {
        Reason::Shape { text: error.to_string(), fits: fits.into() }
    }
}

impl AppendError {
    /// What of the operator is not accepted, in a word or two.
    pub fn property(&self) -> &'static str {
        match &self.reason {
            Reason::SecondConvolution
            | Reason::ConvolutionNotFirst { .. }
            | Reason::NotFirst { .. }
            | Reason::AfterTraining { .. }
            | Reason::NotAfterBatchNormBackward => "order",
            Reason::Transpose => "mode",
            Reason::Shape { .. } | Reason::BiasShape { .. } | Reason::BatchNormShape { .. } => "shape",
            Reason::DataType { .. } | Reason::ParameterType { .. } => "data type",
            Reason::OverlappingOutput { .. } => "strides",
            Reason::NoSolver { refusals, .. } => refusals.last().map_or("solver", |refusal| refusal.property),
        }
    }

    /// What it is instead.
    pub fn found(&self) -> String {
        match &self.reason {
            Reason::DataType { found, .. } | Reason::ParameterType { found, .. } => found.to_string(),
            Reason::BiasShape { bias, .. } => format!("{:?}", bias.lens()),
            Reason::BatchNormShape { params, .. } => params.to_string(),
            Reason::OverlappingOutput { output } => output.order(),
            Reason::NoSolver { refusals, .. } if !refusals.is_empty() => {
                refusals.last().map_or_else(String::new, |refusal| refusal.found.clone())
            }
            Reason::SecondConvolution
            | Reason::ConvolutionNotFirst { .. }
            | Reason::NotFirst { .. }
            | Reason::AfterTraining { .. }
            | Reason::NotAfterBatchNormBackward
            | Reason::Transpose
            | Reason::Shape { .. }
            | Reason::NoSolver { .. } => self.reason.to_string(),
        }
    }

    pub(super) fn new(index: usize, kind: OpKind, reason: Reason) -> Self {
        let accepted = match &reason {
            Reason::SecondConvolution => "a second plan that starts with it".into(),
            Reason::ConvolutionNotFirst { .. } | Reason::NotFirst { .. } => {
                "a plan that starts with it".into()
            }
            Reason::AfterTraining { first, takes } => match takes {
                Some(takes) => format!("{first}+{takes}"),
                None => "a second plan for it".into(),
            },
            Reason::NotAfterBatchNormBackward => "BatchNormBackward+ActivationBackward".into(),
            Reason::Transpose => "a convolution with mode Convolution".into(),
            Reason::Shape { fits, .. } => fits.clone(),
            Reason::DataType { operand, expected, .. } => format!("{expected} {operand}"),
            Reason::ParameterType { operand, running: DataType::Float, .. } => format!("f32 {operand}"),
            Reason::ParameterType { operand, running, .. } => format!("{running} or f32 {operand}"),
            Reason::BiasShape { running, .. } => {
                let mut lens = vec![1; running.rank()];
                lens[1] = running.lens()[1];
                format!("lengths {lens:?}, or {:?} for a residual", running.lens())
            }
            Reason::BatchNormShape { derived, .. } => derived.to_string(),
            Reason::OverlappingOutput { .. } => "strides with which no elements overlap".into(),
            Reason::NoSolver { refusals, .. } => refusals
                .last()
                .map_or("nothing".into(), |refusal| format!("{} {}", refusal.property, refusal.accepts)),
        };
        AppendError { index, kind, reason, accepted }
    }
}

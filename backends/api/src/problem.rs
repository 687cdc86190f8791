//! The canonical description of a fusion plan: what solvers judge and caches are keyed by.

use std::fmt;

use crate::operands::{Access, DescribedOperand};
use crate::{ActivationMode, BatchNormMode, ConvolutionDescriptor, DataType, TensorDescriptor};

/// How exactly convolutions may be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum MathMode {
    /// Each output is the sum of its own products, in the precision of the data type at least: what is not finite
    /// reaches the outputs that it is a term of and no others.
    Strict,
    /// Errors of the order of a sum of f32 products at most. Three products of TensorFloat-32 for one of f32 are allowed
    /// (3xTF32), and Winograd's convolution at points that keep to that: it rounds where a sum of small integers would be
    /// exact, and what is not finite makes outputs beside it NaN.
    #[default]
    Precise,
    /// f32 products may be rounded to TensorFloat-32 where that is faster.
    AllowTf32,
}

/// An operator of a plan with everything that is fixed before run time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// Convolution. Only the first operator of a plan.
    ConvForward {
        /// Padding, strides, dilations, groups.
        conv: ConvolutionDescriptor,
        /// Filters: K, C/groups, (D,) H, W, any strides.
        weights: TensorDescriptor,
    },
    /// `x + bias`: one value a channel, or, where the descriptor has the running shape and more than one
    /// value a channel, one value an element (a residual).
    BiasForward {
        /// `[1, K, (1,) 1, 1]`, of the tensors' data type or f32, or the running shape with any strides, of the tensors'
        /// data type.
        bias: TensorDescriptor,
    },
    /// `x > 0 ? x : slope · x` (PyTorch's PReLU, ONNX's PRelu), NaN where x is.
    PReluForward {
        /// `[1, K, (1,) 1, 1]`, or lengths of 1 for one slope; of the tensors' data type or f32.
        slope: TensorDescriptor,
    },
    /// `scale · (x − mean) / sqrt(variance + ε) + bias` with given statistics; parameters are packed, of the shape of
    /// [`BatchNormMode::derive`].
    BatchNormInference {
        /// Over what the parameters run.
        mode: BatchNormMode,
        /// The parameters' data type: f32, or that of the tensors.
        params: DataType,
    },
    /// An activation.
    ActivationForward {
        /// Which function.
        mode: ActivationMode,
    },
    /// Batch-norm with the statistics of this very input, which are written to the saved and, if there are
    /// any, the running statistics.
    BatchNormForward {
        /// Over what statistics are taken.
        mode: BatchNormMode,
        /// Whether running statistics are updated.
        running: bool,
    },
    /// Gradient of [`Op::BatchNormForward`]: the plan's input is dy, its output dx.
    BatchNormBackward {
        /// Over what statistics were taken.
        mode: BatchNormMode,
    },
    /// Gradient of an activation that followed the batch-norm; only directly after
    /// [`Op::BatchNormBackward`], and applied before it.
    ActivationBackward {
        /// Which function's gradient.
        mode: ActivationMode,
    },
}

/// The kind of an operator, without its descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpKind {
    /// [`Op::ConvForward`]
    ConvForward,
    /// [`Op::BiasForward`]
    BiasForward,
    /// [`Op::PReluForward`]
    PReluForward,
    /// [`Op::BatchNormInference`]
    BatchNormInference,
    /// [`Op::ActivationForward`]
    ActivationForward,
    /// [`Op::BatchNormForward`]
    BatchNormForward,
    /// [`Op::BatchNormBackward`]
    BatchNormBackward,
    /// [`Op::ActivationBackward`]
    ActivationBackward,
}

impl OpKind {
    /// Every kind.
    pub const ALL: [OpKind; 8] = [
        OpKind::ConvForward,
        OpKind::BiasForward,
        OpKind::PReluForward,
        OpKind::BatchNormInference,
        OpKind::ActivationForward,
        OpKind::BatchNormForward,
        OpKind::BatchNormBackward,
        OpKind::ActivationBackward,
    ];
}

/// Where an operator belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpGroup {
    /// The convolution that a plan may begin with.
    Convolution,
    /// Operators of inference whose outputs depend on the input at the same place only: in any order, behind a convolution
    /// or alone.
    ElementWise,
    /// Operators of training, in plans of their own.
    Training,
}

impl OpKind {
    /// The group that the kind is of.
    pub const fn group(self) -> OpGroup {
        match self {
            OpKind::ConvForward => OpGroup::Convolution,
            OpKind::BiasForward
            | OpKind::PReluForward
            | OpKind::BatchNormInference
            | OpKind::ActivationForward => OpGroup::ElementWise,
            OpKind::BatchNormForward | OpKind::BatchNormBackward | OpKind::ActivationBackward => {
                OpGroup::Training
            }
        }
    }
}

impl fmt::Display for OpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            OpKind::ConvForward => "ConvForward",
            OpKind::BiasForward => "BiasForward",
            OpKind::PReluForward => "PReluForward",
            OpKind::BatchNormInference => "BatchNormInference",
            OpKind::ActivationForward => "ActivationForward",
            OpKind::BatchNormForward => "BatchNormForward",
            OpKind::BatchNormBackward => "BatchNormBackward",
            OpKind::ActivationBackward => "ActivationBackward",
        })
    }
}

impl Op {
    /// The operator's kind.
    pub fn kind(&self) -> OpKind {
        match self {
            Op::ConvForward { .. } => OpKind::ConvForward,
            Op::BiasForward { .. } => OpKind::BiasForward,
            Op::PReluForward { .. } => OpKind::PReluForward,
            Op::BatchNormInference { .. } => OpKind::BatchNormInference,
            Op::ActivationForward { .. } => OpKind::ActivationForward,
            Op::BatchNormForward { .. } => OpKind::BatchNormForward,
            Op::BatchNormBackward { .. } => OpKind::BatchNormBackward,
            Op::ActivationBackward { .. } => OpKind::ActivationBackward,
        }
    }

    /// Which function an activation applies, or the gradient of one is of.
    pub fn activation_mode(&self) -> Option<ActivationMode> {
        match self {
            Op::ActivationForward { mode } | Op::ActivationBackward { mode } => Some(*mode),
            Op::ConvForward { .. }
            | Op::BiasForward { .. }
            | Op::PReluForward { .. }
            | Op::BatchNormInference { .. }
            | Op::BatchNormForward { .. }
            | Op::BatchNormBackward { .. } => None,
        }
    }

    /// Whether this is a bias with one value an element (a residual add).
    pub fn is_residual(&self) -> bool {
        self.residual().is_some()
    }

    /// What a bias with one value an element adds.
    pub fn residual(&self) -> Option<&TensorDescriptor> {
        match self {
            Op::BiasForward { bias } => (!is_per_channel(bias)).then_some(bias),
            Op::ConvForward { .. }
            | Op::PReluForward { .. }
            | Op::BatchNormInference { .. }
            | Op::ActivationForward { .. }
            | Op::BatchNormForward { .. }
            | Op::BatchNormBackward { .. }
            | Op::ActivationBackward { .. } => None,
        }
    }
}

fn is_per_channel(bias: &TensorDescriptor) -> bool {
    bias.lens()[0] == 1 && bias.spatial().iter().all(|&l| l == 1)
}

/// `ConvForward(pad 1x1 stride 1x1, weights f32 64x64x3x3 NCHW)`, `ActivationForward(RELU)`, …
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind())?;
        match self {
            Op::ConvForward { conv, weights } => write!(f, "({conv}, weights {weights})"),
            Op::BiasForward { bias } if self.is_residual() => write!(f, "(residual {bias})"),
            Op::BiasForward { .. } => Ok(()),
            Op::PReluForward { slope } if slope.element_count() == 1 => write!(f, "(one slope)"),
            Op::PReluForward { .. } => Ok(()),
            Op::BatchNormInference { mode, params: DataType::Float } | Op::BatchNormBackward { mode } => {
                write!(f, "({mode})")
            }
            Op::BatchNormInference { mode, params } => write!(f, "({mode}, {params} parameters)"),
            Op::BatchNormForward { mode, running } => {
                write!(f, "({mode}{})", if *running { ", running statistics" } else { "" })
            }
            Op::ActivationForward { mode } | Op::ActivationBackward { mode } => write!(f, "({mode})"),
        }
    }
}

/// What a plan for training is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Training {
    /// Over what its batch-norm takes statistics.
    pub mode: BatchNormMode,
    /// Whether it is a gradient.
    pub is_backward: bool,
    /// The activation, or that whose gradient it is, if the plan has a second operator.
    pub activation: Option<ActivationMode>,
}

/// A whole plan in canonical form. Equal problems compute the same function of their run-time arguments.
///
/// What a backend may rely on: there is at least one operator; a convolution is the first operator or
/// there is none; every descriptor fits its neighbours; input, output, weights and residuals have the same
/// data type, which other operands have too or are f32; the output does not overlap itself. Only the convolution changes the shape, so every
/// operator but the first sees tensors of the output's shape. Operators are applied in order. Filters and parameters have
/// strides; input, output and residuals may have their channels in blocks, and a convolution's output may lie in another
/// order than its input, which a solver gets only where it says that it
/// [addresses any layout](crate::Solver::addresses_any_layout).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Problem {
    /// The plan's input.
    pub input: TensorDescriptor,
    /// The plan's output.
    pub output: TensorDescriptor,
    /// The operators, in the order in which they are applied.
    pub ops: Vec<Op>,
    /// How exactly products may be computed.
    pub math: MathMode,
}

impl Problem {
    /// The convolution and its weights, if the plan has one.
    pub fn conv(&self) -> Option<(&ConvolutionDescriptor, &TensorDescriptor)> {
        match self.ops.first() {
            Some(Op::ConvForward { conv, weights }) => Some((conv, weights)),
            _ => None,
        }
    }

    /// The operators behind the convolution; all of them where there is none.
    pub fn epilogue(&self) -> &[Op] {
        match self.conv() {
            Some(_) => &self.ops[1..],
            None => &self.ops,
        }
    }

    /// What is added element by element.
    pub fn residuals(&self) -> impl Iterator<Item = &TensorDescriptor> {
        self.ops.iter().filter_map(Op::residual)
    }

    /// Whether the dimensions of the output lie in the order of the input's, with whatever gaps: no two of them, that are longer
    /// than 1 in both, lie the other way round. So an input that fits several orders, such as one of single channels, fits the
    /// output's.
    pub fn keeps_order(&self) -> bool {
        let [x, y] = [&self.input, &self.output].map(|tensor| tensor.strides().unwrap_or_default());
        let is_long = |d: &usize| self.input.lens()[*d] > 1 && self.output.lens()[*d] > 1;
        let dims: Vec<_> = (0..x.len().min(y.len())).filter(is_long).collect();
        let is_reversed = |a: usize, b: usize| x[a] < x[b] && y[a] > y[b];
        self.conv().is_none() || !dims.iter().any(|&a| dims.iter().any(|&b| is_reversed(a, b)))
    }

    /// Whether every output element depends on the input element at the same place only.
    pub fn is_element_wise(&self) -> bool {
        self.ops.iter().all(|op| op.kind().group() == OpGroup::ElementWise)
    }

    /// Whether the plan has an operator that belongs to training.
    pub fn is_training(&self) -> bool {
        self.ops.iter().any(|op| op.kind().group() == OpGroup::Training)
    }

    /// What a plan that begins with an operator of training is made of; `None` for others.
    pub fn training(&self) -> Option<Training> {
        let (mode, is_backward) = match self.ops.first()? {
            Op::BatchNormForward { mode, .. } => (*mode, false),
            Op::BatchNormBackward { mode } => (*mode, true),
            Op::ConvForward { .. }
            | Op::BiasForward { .. }
            | Op::PReluForward { .. }
            | Op::BatchNormInference { .. }
            | Op::ActivationForward { .. }
            | Op::ActivationBackward { .. } => return None,
        };
        let activation = self.ops.get(1).and_then(Op::activation_mode);
        Some(Training { mode, is_backward, activation })
    }

    /// The plan's chain if an operator of it is of none of these kinds: the words of a constraint's refusal.
    pub fn beyond(&self, kinds: &[OpKind]) -> Option<String> {
        self.ops.iter().any(|op| !kinds.contains(&op.kind())).then(|| self.chain())
    }

    /// Floating-point operations of the convolution (two for each product, padding counted) plus one for
    /// each element and operator behind it. The floor of compute time is this over the device's rate.
    pub fn flops(&self) -> f64 {
        let outputs = self.output.element_count() as f64;
        let conv = self.conv().map_or(0.0, |(_, weights)| {
            2.0 * outputs * weights.lens()[1..].iter().map(|&l| l as f64).product::<f64>()
        });
        conv + outputs * self.epilogue().len() as f64
    }

    /// Bytes that must be read or written at least once: input, output and every operand.
    /// The floor of memory time is this over the device's bandwidth.
    pub fn bytes(&self) -> f64 {
        let size = |d: &TensorDescriptor| d.element_bytes() as f64;
        let operand = |operand: DescribedOperand| match (operand.is_taken, operand.spec.access) {
            (false, _) => 0.0,
            (true, Access::Read | Access::Write) => size(&operand.descriptor),
            (true, Access::Update) => 2.0 * size(&operand.descriptor),
        };
        let operands = self.ops.iter().flat_map(|op| op.operands(&self.output)).map(operand);
        size(&self.input) + size(&self.output) + operands.sum::<f64>()
    }

    /// The operators' kinds, `ConvForward+BiasForward+ActivationForward`.
    pub fn chain(&self) -> String {
        self.ops.iter().map(|op| op.kind().to_string()).collect::<Vec<_>>().join("+")
    }
}

/// `f32 64x64x56x56 NCHW -> ConvForward(…) -> ActivationForward(RELU) -> f32 64x64x56x56 NCHW`
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.input)?;
        for op in &self.ops {
            write!(f, " -> {op}")?;
            match op {
                Op::BiasForward { bias: own } | Op::PReluForward { slope: own }
                    if own.data_type() != self.output.data_type() =>
                {
                    write!(f, "({})", own.data_type())?;
                }
                Op::ConvForward { .. }
                | Op::BiasForward { .. }
                | Op::PReluForward { .. }
                | Op::BatchNormInference { .. }
                | Op::ActivationForward { .. }
                | Op::BatchNormForward { .. }
                | Op::BatchNormBackward { .. }
                | Op::ActivationBackward { .. } => {}
            }
        }
        write!(f, " -> {}", self.output)?;
        match self.math {
            MathMode::Precise => Ok(()),
            MathMode::AllowTf32 => write!(f, " (TF32 allowed)"),
            MathMode::Strict => write!(f, " (strict)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_of_any_rank_has_words() {
        let words = |lens: &[usize]| {
            let slope = TensorDescriptor::packed(DataType::Float, lens).unwrap();
            Op::PReluForward { slope }.to_string()
        };
        for lens in [&[1][..], &[1, 1], &[1, 1, 1, 1]] {
            assert_eq!(words(lens), "PReluForward(one slope)");
        }
        for lens in [&[4][..], &[1, 4], &[1, 4, 1, 1]] {
            assert_eq!(words(lens), "PReluForward");
        }
    }
}

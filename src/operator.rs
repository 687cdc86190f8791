//! The operators that can be appended to a plan, and the typed handles that appending returns.

use std::fmt;
use std::marker::PhantomData;

use fuseplan_api::{
    ActivationMode, BatchNormMode, ConvolutionDescriptor, ConvolutionMode, Op, OpKind, TensorDescriptor,
};

use crate::args;
use crate::plan::Reason;

pub(crate) mod sealed {
    use super::*;

    /// What a plan asks of an operator.
    pub trait Lower {
        /// The operator for a running tensor, or why it does not fit it.
        fn lower(self, running: &TensorDescriptor) -> Result<Op, Reason>;
    }
}

/// Something that [`FusionPlan::append`](crate::FusionPlan::append) takes.
pub trait Operator: sealed::Lower {
    /// The arguments that an operator of this type needs at run time.
    type Args<'a>: args::Arguments<'a>;

    /// The operator's kind.
    const KIND: OpKind;
}

/// An operator of a plan, typed: only the arguments of its own kind can be set for it.
///
/// Valid for the plan that returned it and for that plan's clones.
///
/// ```
/// # use fuseplan::*;
/// # let x = TensorDescriptor::nchw(DataType::Float, [1, 1, 4, 4])?;
/// # let mut plan = FusionPlan::new(FusionDirection::Vertical, x)?;
/// let bias: OpId<BiasForward> = plan.append(BiasForward::new())?;
/// OperatorArgs::new().set(bias, BiasForwardArgs::new(&[1.0f32]));
/// # Ok::<(), Error>(())
/// ```
/// Arguments of another kind do not compile:
/// ```compile_fail
/// # use fuseplan::*;
/// # let x = TensorDescriptor::nchw(DataType::Float, [1, 1, 4, 4])?;
/// # let mut plan = FusionPlan::new(FusionDirection::Vertical, x)?;
/// let bias: OpId<BiasForward> = plan.append(BiasForward::new())?;
/// OperatorArgs::new().set(bias, ConvForwardArgs::new(&[1.0f32]));
/// # Ok::<(), Error>(())
/// ```
pub struct OpId<O> {
    pub(crate) plan: u64,
    pub(crate) index: usize,
    operator: PhantomData<fn() -> O>,
}

impl<O> OpId<O> {
    pub(crate) fn new(plan: u64, index: usize) -> Self {
        OpId { plan, index, operator: PhantomData }
    }

    /// The operator's position in its plan, from 0.
    pub fn index(self) -> usize {
        self.index
    }
}

impl<O> Clone for OpId<O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for OpId<O> {}

impl<O> PartialEq for OpId<O> {
    fn eq(&self, other: &Self) -> bool {
        (self.plan, self.index) == (other.plan, other.index)
    }
}

impl<O> Eq for OpId<O> {}

impl<O: Operator> fmt::Debug for OpId<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpId<{}>({})", O::KIND, self.index)
    }
}

macro_rules! operator {
    ($name:ident, $args:ident) => {
        impl Operator for $name {
            type Args<'a> = args::$args<'a>;
            const KIND: OpKind = OpKind::$name;
        }
    };
}

/// Convolution; only as the first operator of a plan.
#[derive(Debug, Clone, Copy)]
pub struct ConvForward {
    conv: ConvolutionDescriptor,
    weights: TensorDescriptor,
}

impl ConvForward {
    /// A convolution with filters of shape K, C/groups, (D,) H, W and any strides.
    pub fn new(conv: ConvolutionDescriptor, weights: TensorDescriptor) -> Self {
        ConvForward { conv, weights }
    }
}

operator!(ConvForward, ConvForwardArgs);

impl ConvForward {
    /// What would fit the running tensor where this convolution does not.
    fn nearest(&self, running: &TensorDescriptor) -> String {
        let (dims, groups) = (self.conv.spatial_dims(), self.conv.groups());
        let (channels, filters) = (running.lens()[1], self.weights.lens()[0]);
        if running.spatial().len() != dims {
            return format!("a {}-D convolution", running.spatial().len());
        }
        if self.weights.rank() != running.rank() {
            return format!("weights with {} dimensions", running.rank());
        }
        if channels % groups != 0 {
            return format!("a group count that divides {channels}");
        }
        let mut lens = self.weights.lens().to_vec();
        lens[0] = filters.next_multiple_of(groups);
        lens[1] = channels / groups;
        for d in 0..dims {
            let padded = running.spatial()[d] + 2 * self.conv.pads()[d];
            lens[2 + d] = lens[2 + d].min((padded - 1) / self.conv.dilations()[d] + 1);
        }
        format!("weights with lengths {lens:?}")
    }
}

impl sealed::Lower for ConvForward {
    fn lower(self, running: &TensorDescriptor) -> Result<Op, Reason> {
        same_type("weights", &self.weights, running)?;
        if self.conv.mode() == ConvolutionMode::Transpose {
            return Err(Reason::Transpose);
        }
        self.conv
            .forward_output(running, &self.weights)
            .map_err(|error| Reason::shape(error, self.nearest(running)))?;
        Ok(Op::ConvForward { conv: self.conv, weights: self.weights })
    }
}

/// `x + bias`: one value a channel, or a residual of the running tensor's shape.
#[derive(Debug, Clone, Copy)]
pub struct BiasForward(Bias);

#[derive(Debug, Clone, Copy)]
enum Bias {
    PerChannel,
    Residual,
    Described(TensorDescriptor),
}

impl BiasForward {
    /// One value for each channel of the running tensor.
    #[allow(clippy::new_without_default, reason = "a default bias would say nothing")]
    pub fn new() -> Self {
        BiasForward(Bias::PerChannel)
    }

    /// One value for each element: a tensor with the running tensor's own descriptor is added.
    pub fn residual() -> Self {
        BiasForward(Bias::Residual)
    }

    /// A bias with a descriptor: `[1, K, (1,) 1, 1]`, or the running shape with any strides for a residual.
    pub fn with_descriptor(bias: TensorDescriptor) -> Self {
        BiasForward(Bias::Described(bias))
    }
}

operator!(BiasForward, BiasForwardArgs);

impl sealed::Lower for BiasForward {
    fn lower(self, running: &TensorDescriptor) -> Result<Op, Reason> {
        let mut per_channel = [1; fuseplan_api::MAX_RANK];
        per_channel[1] = running.lens()[1];
        let per_channel = &per_channel[..running.rank()];
        let bias = match self.0 {
            Bias::PerChannel => TensorDescriptor::packed(running.data_type(), per_channel)
                .map_err(|error| Reason::shape(error, "fewer channels"))?,
            Bias::Residual => *running,
            Bias::Described(bias) => {
                same_type("bias", &bias, running)?;
                if bias.lens() != per_channel && bias.lens() != running.lens() {
                    return Err(Reason::BiasShape { bias: bias.into(), running: (*running).into() });
                }
                bias
            }
        };
        Ok(Op::BiasForward { bias })
    }
}

/// Batch-norm with given statistics: `scale · (x − mean) / sqrt(variance + ε) + bias`. Parameters are f32.
#[derive(Debug, Clone, Copy)]
pub struct BatchNormInference {
    mode: BatchNormMode,
    params: Option<TensorDescriptor>,
}

impl BatchNormInference {
    /// Parameters of the shape that the mode derives from the running tensor.
    pub fn new(mode: BatchNormMode) -> Self {
        BatchNormInference { mode, params: None }
    }

    /// The same, with the parameters' descriptor, which must be the derived one.
    pub fn with_descriptor(mode: BatchNormMode, params: TensorDescriptor) -> Self {
        BatchNormInference { mode, params: Some(params) }
    }
}

operator!(BatchNormInference, BatchNormInferenceArgs);

impl sealed::Lower for BatchNormInference {
    fn lower(self, running: &TensorDescriptor) -> Result<Op, Reason> {
        let derived = self.mode.derive(running).map_err(|error| Reason::shape(error, "a smaller tensor"))?;
        if let Some(params) = self.params.filter(|&params| params != derived) {
            return Err(Reason::BatchNormShape {
                mode: self.mode,
                params: params.into(),
                derived: derived.into(),
            });
        }
        Ok(Op::BatchNormInference { mode: self.mode })
    }
}

macro_rules! plain_operator {
    ($(#[$doc:meta])* $name:ident, $args:ident, { $($(#[$fdoc:meta])* $field:ident: $ty:ty),* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name { $($field: $ty),* }

        impl $name {
            /// The operator.
            pub fn new($($(#[$fdoc])* $field: $ty),*) -> Self {
                $name { $($field),* }
            }
        }

        operator!($name, $args);

        impl sealed::Lower for $name {
            fn lower(self, _running: &TensorDescriptor) -> Result<Op, Reason> {
                Ok(Op::$name { $($field: self.$field),* })
            }
        }
    };
}

plain_operator!(
    /// An activation; see [`ActivationMode`] for the formulas.
    ActivationForward, ActivationForwardArgs, { mode: ActivationMode }
);
plain_operator!(
    /// Training: batch-norm with the statistics of this batch, which it saves; only the first operator of a
    /// plan. `running` says whether running statistics are updated.
    BatchNormForward, BatchNormForwardArgs, { mode: BatchNormMode, running: bool }
);
plain_operator!(
    /// Training: the gradient of [`BatchNormForward`]; only the first operator of a plan, whose input is
    /// then dy and whose output is dx.
    BatchNormBackward, BatchNormBackwardArgs, { mode: BatchNormMode }
);
plain_operator!(
    /// Training: the gradient of the activation that followed the batch-norm; only directly behind
    /// [`BatchNormBackward`], before which it is applied.
    ActivationBackward, ActivationBackwardArgs, { mode: ActivationMode }
);

fn same_type(
    operand: &'static str,
    found: &TensorDescriptor,
    running: &TensorDescriptor,
) -> Result<(), Reason> {
    if found.data_type() == running.data_type() {
        return Ok(());
    }
    Err(Reason::DataType { operand, found: found.data_type(), expected: running.data_type() })
}

//! The operators that can be appended to a plan, and the typed handles that appending returns.

use std::fmt;
use std::marker::PhantomData;

use fuseplan_api::{
    ActivationMode, BatchNormMode, ConvolutionDescriptor, ConvolutionMode, DataType, DescriptorError,
    MAX_RANK, Op, OpKind, TensorDescriptor, TensorLayout, operands,
};

use crate::args;
use crate::plan::Reason;

pub(crate) mod sealed {
    use super::*;

    /// What a plan asks of an operator.
    pub trait Lower {
        /// The operator for a running tensor, with what it makes of that, or why it does not fit it.
        fn lower(self, running: &TensorDescriptor) -> Result<(Op, TensorDescriptor), Reason>;
    }
}

/// Something that [`FusionPlan::append`](crate::FusionPlan::append) takes.
pub trait Operator: sealed::Lower {
    /// The arguments that an operator of this type needs at run time.
    type Args<'a>: args::Arguments<'a>;

    /// The operands and scalars of such an operator as bare pointers and numbers.
    type Operands: operands::Operands;

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
/// # let mut plan = FusionPlan::new(x)?;
/// let bias: OpId<BiasForward> = plan.append(BiasForward::new())?;
/// OperatorArgs::new().set(bias, BiasForwardArgs::new(&[1.0f32]));
/// # Ok::<(), Error>(())
/// ```
/// Arguments of another kind do not compile:
/// ```compile_fail
/// # use fuseplan::*;
/// # let x = TensorDescriptor::nchw(DataType::Float, [1, 1, 4, 4])?;
/// # let mut plan = FusionPlan::new(x)?;
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
            type Operands = operands::$name;
            const KIND: OpKind = OpKind::$name;
        }
    };
}

/// Convolution; only as the first operator of a plan.
#[derive(Debug, Clone, Copy)]
pub struct ConvForward {
    conv: ConvolutionDescriptor,
    weights: TensorDescriptor,
    output: Output,
}

/// How a convolution's output lies in memory.
#[derive(Debug, Clone, Copy)]
enum Output {
    AsInput,
    Layout(TensorLayout),
    /// As many of them as were given.
    Strides([usize; MAX_RANK], usize),
}

impl ConvForward {
    /// A convolution with filters of shape K, C/groups, (D,) H, W and any strides. Its output is packed in the memory order
    /// of the input.
    pub fn new(conv: ConvolutionDescriptor, weights: TensorDescriptor) -> Self {
        ConvForward { conv, weights, output: Output::AsInput }
    }

    /// This convolution with an output in a layout of its own, whatever the input's is.
    pub fn with_output_layout(self, layout: TensorLayout) -> Self {
        ConvForward { output: Output::Layout(layout), ..self }
    }

    /// This convolution with an output of these strides, in the order N, K, (D,) H, W, with which no elements overlap: a slice
    /// of a larger tensor, such as some of its channels. Nothing is written but the slice.
    ///
    /// ```
    /// use fuseplan::*;
    /// // The first 32 of 48 channels.
    /// let whole = TensorDescriptor::nhwc(DataType::Half, [1, 48, 8, 8])?;
    /// let x = TensorDescriptor::nhwc(DataType::Half, [1, 16, 8, 8])?;
    /// let weights = TensorDescriptor::nhwc(DataType::Half, [32, 16, 1, 1])?;
    /// let conv = ConvForward::new(ConvolutionDescriptor::d2(), weights);
    /// let mut plan = FusionPlan::new(x)?;
    /// plan.append(conv.with_output_strides(whole.strides().unwrap_or_default()))?;
    /// assert_eq!(plan.output().to_string(), "f16 1x32x8x8 strides 3072x1x384x48");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn with_output_strides(self, strides: &[usize]) -> Self {
        let mut first = [0; MAX_RANK];
        first.iter_mut().zip(strides).for_each(|(first, stride)| *first = *stride);
        ConvForward { output: Output::Strides(first, strides.len()), ..self }
    }
}

operator!(ConvForward, ConvForwardArgs);

impl ConvForward {
    /// What would fit the running tensor where this convolution does not.
    fn nearest(&self, running: &TensorDescriptor, error: &DescriptorError) -> String {
        if let DescriptorError::Overflow { .. } = error {
            return "padding, filters and output strides with which the output fits the address space".into();
        }
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
            let padded = running.spatial()[d] + self.conv.pads_before()[d] + self.conv.pads_after()[d];
            lens[2 + d] = lens[2 + d].min((padded - 1) / self.conv.dilations()[d] + 1);
        }
        if lens == self.weights.lens() {
            // They fit, so it is the output that cannot be made of them.
            return match self.output {
                Output::Strides(..) => {
                    format!("{} output strides, above 0 where the length is above 1", running.rank())
                }
                Output::AsInput | Output::Layout(_) => {
                    "an output layout that has as many channels as there are filters".into()
                }
            };
        }
        format!("weights with lengths {lens:?}")
    }
}

impl sealed::Lower for ConvForward {
    fn lower(self, running: &TensorDescriptor) -> Result<(Op, TensorDescriptor), Reason> {
        same_type("weights", &self.weights, running)?;
        strided("the weights are", &self.weights)?;
        if self.conv.mode() == ConvolutionMode::Transpose {
            return Err(Reason::Transpose);
        }
        let output = match self.output {
            Output::AsInput => self.conv.forward_output(running, &self.weights),
            Output::Layout(layout) => self.conv.forward_output_in(layout, running, &self.weights),
            Output::Strides(strides, count) if count <= MAX_RANK => {
                self.conv.forward_output_with(&strides[..count], running, &self.weights)
            }
            Output::Strides(_, found) => {
                Err(DescriptorError::Count { what: "output strides", found, expected: running.rank() })
            }
        };
        let output = output.map_err(|error| {
            let accepted = self.nearest(running, &error);
            Reason::shape(error, accepted)
        })?;
        Ok((Op::ConvForward { conv: self.conv, weights: self.weights }, output))
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

    /// A bias with a descriptor: `[1, K, (1,) 1, 1]`, of the running tensor's data type or f32, or the running shape with any
    /// strides for a residual, of the running tensor's data type.
    pub fn with_descriptor(bias: TensorDescriptor) -> Self {
        BiasForward(Bias::Described(bias))
    }
}

operator!(BiasForward, BiasForwardArgs);

impl sealed::Lower for BiasForward {
    fn lower(self, running: &TensorDescriptor) -> Result<(Op, TensorDescriptor), Reason> {
        let per_channel = per_channel(running)?;
        let bias = match self.0 {
            Bias::PerChannel => per_channel,
            Bias::Residual => *running,
            Bias::Described(bias) => {
                if bias.lens() == per_channel.lens() {
                    parameter_type("bias", &bias, running)?;
                } else if bias.lens() == running.lens() {
                    same_type("residual", &bias, running)?;
                } else {
                    return Err(Reason::BiasShape { bias: bias.into(), running: (*running).into() });
                }
                bias
            }
        };
        Ok((Op::BiasForward { bias }, *running))
    }
}

/// PReLU: `x > 0 ? x : slope · x`, with one slope a channel or one for all; NaN where x is.
#[derive(Debug, Clone, Copy)]
pub struct PReluForward(Option<TensorDescriptor>);

impl PReluForward {
    /// One slope for each channel of the running tensor, of its data type.
    #[allow(clippy::new_without_default, reason = "a default slope would say nothing")]
    pub fn new() -> Self {
        PReluForward(None)
    }

    /// Slopes with a descriptor, of the running tensor's data type or f32: `[1, K, (1,) 1, 1]`, or `[1, 1, (1,) 1, 1]` for
    /// one slope.
    pub fn with_descriptor(slope: TensorDescriptor) -> Self {
        PReluForward(Some(slope))
    }
}

operator!(PReluForward, PReluForwardArgs);

impl sealed::Lower for PReluForward {
    fn lower(self, running: &TensorDescriptor) -> Result<(Op, TensorDescriptor), Reason> {
        let per_channel = per_channel(running)?;
        let slope = self.0.unwrap_or(per_channel);
        let is_one = slope.rank() == running.rank() && slope.element_count() == 1;
        if slope.lens() != per_channel.lens() && !is_one {
            let mut one = per_channel.lens().to_vec();
            one[1] = 1;
            let (found, each) = (slope.lens(), per_channel.lens());
            return Err(Reason::Shape {
                text: format!("the slope has lengths {found:?}, the plan's tensor has {:?}", running.lens()),
                fits: format!("lengths {each:?}, or {one:?} for one slope"),
            });
        }
        parameter_type("slope", &slope, running)?;
        Ok((Op::PReluForward { slope }, *running))
    }
}

/// Batch-norm with given statistics: `scale · (x − mean) / sqrt(variance + ε) + bias`.
#[derive(Debug, Clone, Copy)]
pub struct BatchNormInference {
    mode: BatchNormMode,
    params: Option<TensorDescriptor>,
}

impl BatchNormInference {
    /// f32 parameters of the shape that the mode derives from the running tensor.
    pub fn new(mode: BatchNormMode) -> Self {
        BatchNormInference { mode, params: None }
    }

    /// A batch-norm whose parameters have this descriptor, which must be the one that the mode derives, or that with the
    /// running tensor's data type.
    pub fn with_descriptor(mode: BatchNormMode, params: TensorDescriptor) -> Self {
        BatchNormInference { mode, params: Some(params) }
    }
}

operator!(BatchNormInference, BatchNormInferenceArgs);

impl sealed::Lower for BatchNormInference {
    fn lower(self, running: &TensorDescriptor) -> Result<(Op, TensorDescriptor), Reason> {
        let too_large = |error| Reason::shape(error, "a smaller tensor");
        let derived = self.mode.derive(running).map_err(too_large)?;
        let params = self.params.unwrap_or(derived);
        parameter_type("parameters", &params, running)?;
        let data_type = params.data_type();
        if params != derived.with_data_type(data_type).map_err(too_large)? {
            return Err(Reason::BatchNormShape {
                mode: self.mode,
                params: params.into(),
                derived: derived.into(),
            });
        }
        Ok((Op::BatchNormInference { mode: self.mode, params: data_type }, *running))
    }
}

macro_rules! plain_operator {
    ($(#[$doc:meta])* $name:ident, $args:ident, $(#[$new:meta])* { $($field:ident: $ty:ty),* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name { $($field: $ty),* }

        impl $name {
            $(#[$new])*
            pub fn new($($field: $ty),*) -> Self {
                $name { $($field),* }
            }
        }

        operator!($name, $args);

        impl sealed::Lower for $name {
            fn lower(self, running: &TensorDescriptor) -> Result<(Op, TensorDescriptor), Reason> {
                Ok((Op::$name { $($field: self.$field),* }, *running))
            }
        }
    };
}

plain_operator!(
    /// An activation, whose parameters are given at run time; [`Activation`](crate::Activation) has the formulas.
    ActivationForward, ActivationForwardArgs,
    /// An activation of this mode.
    { mode: ActivationMode }
);
plain_operator!(
    /// Training: batch-norm with the statistics of this batch, which it saves; only the first operator of a
    /// plan.
    BatchNormForward, BatchNormForwardArgs,
    /// A batch-norm for training; `running` says whether it updates running statistics.
    { mode: BatchNormMode, running: bool }
);
plain_operator!(
    /// Training: the gradient of [`BatchNormForward`]; only the first operator of a plan, whose input is
    /// then dy and whose output is dx.
    BatchNormBackward, BatchNormBackwardArgs,
    /// The gradient of a batch-norm of this mode.
    { mode: BatchNormMode }
);
plain_operator!(
    /// Training: the gradient of the activation that followed the batch-norm; only directly behind
    /// [`BatchNormBackward`], before which it is applied.
    ActivationBackward, ActivationBackwardArgs,
    /// The gradient of an activation of this mode.
    { mode: ActivationMode }
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

/// Filters have a stride for each dimension.
fn strided(operand: &'static str, found: &TensorDescriptor) -> Result<(), Reason> {
    match found.blocks() {
        None => Ok(()),
        Some(_) => Err(Reason::Shape {
            text: format!("{operand} {found}, whose channels lie in blocks"),
            fits: "filters with strides, which plans pack as they need them".into(),
        }),
    }
}

/// One value for each channel of the running tensor, of its type.
fn per_channel(running: &TensorDescriptor) -> Result<TensorDescriptor, Reason> {
    let mut lens = [1; fuseplan_api::MAX_RANK];
    lens[1] = running.lens()[1];
    TensorDescriptor::packed(running.data_type(), &lens[..running.rank()])
        .map_err(|error| Reason::shape(error, "fewer channels"))
}

/// Parameters are of the running tensor's type, or f32.
fn parameter_type(
    operand: &'static str,
    found: &TensorDescriptor,
    running: &TensorDescriptor,
) -> Result<(), Reason> {
    if [running.data_type(), DataType::Float].contains(&found.data_type()) {
        return Ok(());
    }
    Err(Reason::ParameterType { operand, found: found.data_type(), running: running.data_type() })
}

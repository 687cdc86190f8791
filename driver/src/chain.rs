//! A chain of operators with random operands, as one fused plan or as one plan for each operator.

use fuseplan::{
    Activation, ActivationBackward, ActivationBackwardArgs, ActivationForward, BatchNormBackward,
    BatchNormBackwardArgs, BatchNormForward, BatchNormForwardArgs, BatchNormInference,
    BatchNormInferenceArgs, BatchNormMode, BiasForward, BiasForwardArgs, CompileOptions, CompiledPlan,
    ConvForward, ConvForwardArgs, ConvolutionDescriptor, DataType, DeviceBuffer, Error, FusionPlan, Handle,
    MathMode, OpId, OperatorArgs, PReluForward, PReluForwardArgs, PlanText, Tensor, TensorDescriptor,
    TensorLayout, TensorMut,
    error::{BackendError, ExecuteError},
    memory::{Operand, OperandMut},
    problem::Op,
    raw::ActivationParams,
};

use crate::element::{Random, Scalar};
use crate::memory;

/// Added to the variance, as MIOpenDriver does.
const EPSILON: f64 = 1e-6;

/// What an operator finds where it writes.
const WRITTEN: f32 = 0.5;

/// The parameters of an activation of which a text says none.
const ONES: ActivationParams = ActivationParams::new(1.0, 1.0, 1.0);

/// An input and the operators on it.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) input: TensorDescriptor,
    pub(crate) steps: Vec<Step>,
    pub(crate) math: MathMode,
}

/// An operator with what is fixed before run time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Step {
    /// By filters, and with an output in a layout of its own if there is one.
    Convolution(ConvolutionDescriptor, TensorDescriptor, Option<TensorLayout>),
    Bias,
    /// A tensor of the running shape, added.
    Residual,
    /// A bias or a residual with a descriptor of its own.
    Described(TensorDescriptor),
    PRelu(TensorDescriptor),
    BatchNorm(BatchNormMode),
    /// The same with parameters of this type.
    TypedBatchNorm(BatchNormMode, DataType),
    Activation(Activation),
    /// Training, with running statistics or without.
    BatchNormForward(BatchNormMode, bool),
    BatchNormBackward(BatchNormMode),
    ActivationBackward(Activation),
}

impl Chain {
    /// The chain that a text describes.
    pub(crate) fn of(text: &PlanText) -> Self {
        let step = |(op, activation): (&Op, Option<Activation>)| match *op {
            Op::ConvForward { conv, weights } => {
                Step::Convolution(conv, weights, text.plan.output().literal_layout())
            }
            Op::BiasForward { bias } => Step::Described(bias),
            Op::PReluForward { slope } => Step::PRelu(slope),
            Op::BatchNormInference { mode, params } => Step::TypedBatchNorm(mode, params),
            Op::ActivationForward { mode } => Step::Activation(activation.unwrap_or(mode.with(&ONES))),
            Op::BatchNormForward { mode, running } => Step::BatchNormForward(mode, running),
            Op::BatchNormBackward { mode } => Step::BatchNormBackward(mode),
            Op::ActivationBackward { mode } => {
                Step::ActivationBackward(activation.unwrap_or(mode.with(&ONES)))
            }
        };
        let steps = text.plan.ops().iter().zip(text.activations.iter().copied()).map(step).collect();
        Chain { input: *text.plan.input(), steps, math: text.plan.problem().math }
    }
}

/// An appended operator and what it needs to make its arguments.
#[derive(Debug, Clone, Copy)]
enum Appended {
    Convolution(OpId<ConvForward>),
    Bias(OpId<BiasForward>),
    PRelu(OpId<PReluForward>),
    BatchNorm(OpId<BatchNormInference>),
    Activation(OpId<ActivationForward>, Activation),
    BatchNormForward(OpId<BatchNormForward>, bool),
    BatchNormBackward(OpId<BatchNormBackward>),
    ActivationBackward(OpId<ActivationBackward>, Activation),
}

/// A plan of some of a chain's steps.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) plan: FusionPlan,
    steps: Vec<Appended>,
}

impl Plan {
    /// A plan of the whole chain for any device.
    pub(crate) fn of(chain: &Chain) -> Result<Self, Error> {
        Self::new(chain.input, &chain.steps, chain.math)
    }

    /// A plan for any device of these steps.
    pub(crate) fn new(input: TensorDescriptor, steps: &[Step], math: MathMode) -> Result<Self, Error> {
        let mut plan = FusionPlan::new(input)?;
        plan.set_math_mode(math);
        let mut appended = Vec::new();
        for step in steps {
            appended.push(match *step {
                Step::Convolution(conv, weights, output) => {
                    let operator = ConvForward::new(conv, weights);
                    let operator = output.map_or(operator, |layout| operator.with_output_layout(layout));
                    Appended::Convolution(plan.append(operator)?)
                }
                Step::Bias => Appended::Bias(plan.append(BiasForward::new())?),
                Step::Residual => Appended::Bias(plan.append(BiasForward::residual())?),
                Step::Described(bias) => Appended::Bias(plan.append(BiasForward::with_descriptor(bias))?),
                Step::PRelu(slope) => Appended::PRelu(plan.append(PReluForward::with_descriptor(slope))?),
                Step::BatchNorm(mode) => Appended::BatchNorm(plan.append(BatchNormInference::new(mode))?),
                Step::TypedBatchNorm(mode, data_type) => {
                    let params = mode.derive(plan.output())?.with_data_type(data_type)?;
                    Appended::BatchNorm(plan.append(BatchNormInference::with_descriptor(mode, params))?)
                }
                Step::Activation(activation) => {
                    Appended::Activation(plan.append(ActivationForward::new(activation.mode()))?, activation)
                }
                Step::BatchNormForward(mode, running) => {
                    Appended::BatchNormForward(plan.append(BatchNormForward::new(mode, running))?, running)
                }
                Step::BatchNormBackward(mode) => {
                    Appended::BatchNormBackward(plan.append(BatchNormBackward::new(mode))?)
                }
                Step::ActivationBackward(activation) => Appended::ActivationBackward(
                    plan.append(ActivationBackward::new(activation.mode()))?,
                    activation,
                ),
            });
        }
        Ok(Plan { plan, steps: appended })
    }

    /// The plan compiled for a handle, with its arguments: what each of its steps reads, and where it writes besides the
    /// output.
    pub(crate) fn compile<'a, T: Scalar>(
        &self,
        handle: &Handle,
        options: &CompileOptions,
        operands: &'a [Vec<List<T>>],
        written: &'a mut [Vec<DeviceBuffer<f32>>],
    ) -> Result<Ready<'a>, Error> {
        let compiled = self.plan.compile_with(handle, options)?;
        let mut args = OperatorArgs::new();
        for ((step, operands), written) in self.steps.iter().zip(operands).zip(written) {
            // Lists are in the order of the operator's operands.
            let (mut operands, mut written) = (operands.iter(), written.iter_mut());
            let mut read = || operands.next().map_or(Operand::from(&[0f32; 0]), Operand::from);
            let mut write = || written.next().map_or(OperandMut::none(), OperandMut::from);
            match *step {
                Appended::Convolution(id) => args.set(id, ConvForwardArgs::new(read())),
                Appended::Bias(id) => args.set(id, BiasForwardArgs::new(read())),
                Appended::PRelu(id) => args.set(id, PReluForwardArgs::new(read())),
                Appended::BatchNorm(id) => args.set(
                    id,
                    BatchNormInferenceArgs::new()
                        .scale(read())
                        .bias(read())
                        .mean(read())
                        .variance(read())
                        .epsilon(EPSILON),
                ),
                Appended::Activation(id, activation) => args.set(id, activation),
                Appended::BatchNormForward(id, running) => {
                    let given = BatchNormForwardArgs::new()
                        .scale(read())
                        .bias(read())
                        .saved_mean(write())
                        .saved_inv_variance(write())
                        .epsilon(EPSILON);
                    let given = match running {
                        true => given.running_mean(write()).running_variance(write()),
                        false => given,
                    };
                    args.set(id, given)
                }
                Appended::BatchNormBackward(id) => args.set(
                    id,
                    BatchNormBackwardArgs::new()
                        .x(read())
                        .scale(read())
                        .bias(read())
                        .saved_mean(read())
                        .saved_inv_variance(read())
                        .scale_diff(write())
                        .bias_diff(write()),
                ),
                Appended::ActivationBackward(id, activation) => {
                    args.set(id, ActivationBackwardArgs::new(activation, read()))
                }
            };
        }
        Ok(Ready { handle: handle.clone(), compiled, args })
    }
}

/// What an operator reads besides its input.
#[derive(Debug)]
pub(crate) enum List<T> {
    /// Elements of the plan's type.
    Data(Vec<T>),
    /// Parameters in f32, whatever the plan's type is.
    F32(Vec<f32>),
}

impl<'a, T: Scalar> From<&'a List<T>> for Operand<'a> {
    fn from(list: &'a List<T>) -> Self {
        match list {
            List::Data(list) => list.into(),
            List::F32(list) => list.into(),
        }
    }
}

/// Random operands of a plan's operators: of each what it reads, in order.
#[derive(Debug)]
pub(crate) struct Operands<T>(pub(crate) Vec<Vec<List<T>>>);

impl<T: Scalar> Operands<T> {
    /// Evenly distributed from `low` up to 1 above it; variances from 0 up to 1.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(crate) fn random(plan: &FusionPlan, random: &mut Random, low: f32) -> Result<Self, BackendError> {
        let mut operands = Vec::new();
        for op in plan.ops() {
            let mut lists = Vec::new();
            for operand in op.operands(plan.output()).filter(|operand| !operand.spec.access.is_written()) {
                let low = if operand.spec.name.ends_with("variance") { 0.0 } else { low };
                let count = operand.descriptor.span();
                lists.push(match operand.descriptor.data_type() == T::DATA_TYPE {
                    true => List::Data(random.numbers(count, low)?),
                    false => List::F32(random.numbers(count, low)?),
                });
            }
            operands.push(lists);
        }
        Ok(Operands(operands))
    }
}

impl<T: Copy> Operands<T> {
    /// With other residuals, made of these.
    ///
    /// # Errors
    /// There is no memory for them, or for a copy of the other operands.
    pub(crate) fn with_residual(
        &self,
        chain: &Chain,
        make: impl Fn(&[T]) -> Result<Vec<T>, BackendError>,
    ) -> Result<Self, BackendError> {
        let list = |step: &Step, list: &List<T>| {
            Ok(match list {
                List::Data(list) if *step == Step::Residual => List::Data(make(list)?),
                List::Data(list) => List::Data(memory::copied(list)?),
                List::F32(list) => List::F32(memory::copied(list)?),
            })
        };
        let lists = chain.steps.iter().zip(&self.0);
        let lists = lists.map(|(step, lists)| lists.iter().map(|each| list(step, each)).collect());
        lists.collect::<Result<_, _>>().map(Operands)
    }
}

/// Where a plan's operators write besides the output, in a device's memory: of each its lists in order.
#[derive(Debug)]
pub(crate) struct Written(pub(crate) Vec<Vec<DeviceBuffer<f32>>>);

impl Written {
    /// Memory for it.
    pub(crate) fn new(plan: &FusionPlan, handle: &Handle) -> Result<Self, Error> {
        let mut written = Vec::new();
        for op in plan.ops() {
            let operands = op.operands(plan.output()).filter(|operand| operand.is_taken);
            let buffer = |count| -> Result<_, Error> {
                Ok(DeviceBuffer::from_slice(handle, &memory::filled(count, || WRITTEN)?)?)
            };
            let operands = operands.filter(|operand| operand.spec.access.is_written());
            written
                .push(operands.map(|operand| buffer(operand.descriptor.span())).collect::<Result<_, _>>()?);
        }
        Ok(Written(written))
    }

    /// As much for each of several sets.
    pub(crate) fn sets(plan: &FusionPlan, handle: &Handle, count: usize) -> Result<Vec<Self>, Error> {
        (0..count).map(|_| Written::new(plan, handle)).collect()
    }

    /// What is there now, one list after the other.
    pub(crate) fn values(&self) -> Result<Vec<Vec<f32>>, Error> {
        self.0.iter().flatten().map(|buffer| Ok(buffer.to_vec()?)).collect()
    }
}

/// A compiled plan with its arguments.
#[derive(Debug)]
pub(crate) struct Ready<'a> {
    handle: Handle,
    pub(crate) compiled: CompiledPlan,
    args: OperatorArgs<'a>,
}

impl Ready<'_> {
    /// Executes the plan.
    pub(crate) fn run(&self, input: Operand<'_>, output: OperandMut<'_>) -> Result<(), ExecuteError> {
        let x = Tensor::new(self.compiled.input(), input);
        let y = TensorMut::new(self.compiled.output(), output);
        self.compiled.execute(&self.handle, x, y, &self.args)
    }
}

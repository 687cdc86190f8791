//! A chain of operators with random operands, as one fused plan or as one plan for each operator.

use fuseplan::{
    ActivationForward, ActivationForwardArgs, ActivationMode, ActivationParams, BackendError,
    BatchNormInference, BatchNormInferenceArgs, BatchNormMode, BiasForward, BiasForwardArgs, CompileOptions,
    CompiledPlan, ConvForward, ConvForwardArgs, ConvolutionDescriptor, Error, ExecuteError, FusionDirection,
    FusionPlan, Handle, MathMode, OpId, Operand, OperandMut, OperatorArgs, Tensor, TensorDescriptor,
    TensorMut,
};

use crate::element::{Random, Scalar};
use crate::memory;

/// Added to the variance, as MIOpenDriver does.
const EPSILON: f64 = 1e-6;

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
    Convolution(ConvolutionDescriptor, TensorDescriptor),
    Bias,
    /// A tensor of the running shape, added.
    Residual,
    BatchNorm(BatchNormMode),
    Activation(ActivationMode, ActivationParams),
}

/// An appended operator and what it needs to make its arguments.
#[derive(Debug, Clone, Copy)]
enum Appended {
    Convolution(OpId<ConvForward>),
    Bias(OpId<BiasForward>),
    Residual(OpId<BiasForward>),
    BatchNorm(OpId<BatchNormInference>),
    Activation(OpId<ActivationForward>, ActivationParams),
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
        let mut plan = FusionPlan::new(FusionDirection::Vertical, input)?;
        plan.set_math_mode(math);
        let mut appended = Vec::new();
        for step in steps {
            appended.push(match *step {
                Step::Convolution(conv, weights) => {
                    Appended::Convolution(plan.append(ConvForward::new(conv, weights))?)
                }
                Step::Bias => Appended::Bias(plan.append(BiasForward::new())?),
                Step::Residual => Appended::Residual(plan.append(BiasForward::residual())?),
                Step::BatchNorm(mode) => Appended::BatchNorm(plan.append(BatchNormInference::new(mode))?),
                Step::Activation(mode, params) => {
                    Appended::Activation(plan.append(ActivationForward::new(mode))?, params)
                }
            });
        }
        Ok(Plan { plan, steps: appended })
    }

    /// The plan compiled for a handle, with its arguments.
    pub(crate) fn compile<'a, T: Scalar>(
        &self,
        handle: &Handle,
        options: &CompileOptions,
        operands: &'a Operands<T>,
    ) -> Result<Ready<'a>, Error> {
        let compiled = self.plan.compile_with(handle, options)?;
        let mut args = OperatorArgs::new();
        for step in &self.steps {
            match *step {
                Appended::Convolution(id) => args.set(id, ConvForwardArgs::new(&operands.weights)),
                Appended::Bias(id) => args.set(id, BiasForwardArgs::new(&operands.bias)),
                Appended::Residual(id) => args.set(id, BiasForwardArgs::new(&operands.residual)),
                Appended::BatchNorm(id) => {
                    let [scale, bias, mean, variance] = &operands.batch_norm;
                    args.set(id, BatchNormInferenceArgs::new(scale, bias, mean, variance, EPSILON))
                }
                Appended::Activation(id, ActivationParams { alpha, beta, gamma }) => {
                    args.set(id, ActivationForwardArgs::new(alpha, beta, gamma))
                }
            };
        }
        Ok(Ready { handle: handle.clone(), compiled, args })
    }
}

/// Random operands of a chain's operators. A chain has at most one operator of each kind.
#[derive(Debug)]
pub(crate) struct Operands<T> {
    weights: Vec<T>,
    bias: Vec<T>,
    /// As long as the output.
    residual: Vec<T>,
    /// Scale, bias, mean, variance.
    batch_norm: [Vec<f32>; 4],
}

impl<T: Scalar> Operands<T> {
    /// Evenly distributed from `low` up to 1 above it; variances from 0 up to 1.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(crate) fn random(
        chain: &Chain,
        output: &TensorDescriptor,
        random: &mut Random,
        low: f32,
    ) -> Result<Self, BackendError> {
        let mut operands = Operands {
            weights: Vec::new(),
            bias: Vec::new(),
            residual: Vec::new(),
            batch_norm: Default::default(),
        };
        for step in &chain.steps {
            match step {
                Step::Convolution(_, weights) => operands.weights = random.numbers(weights.span(), low)?,
                Step::Bias => operands.bias = random.numbers(output.lens()[1], low)?,
                Step::Residual => operands.residual = random.numbers(output.span(), low)?,
                Step::BatchNorm(mode) => {
                    let count = mode.derive(output).map_or(0, |params| params.element_count());
                    for (values, low) in operands.batch_norm.iter_mut().zip([low, low, low, 0.0]) {
                        *values = random.numbers(count, low)?;
                    }
                }
                Step::Activation(..) => {}
            }
        }
        Ok(operands)
    }
}

impl<T: Copy> Operands<T> {
    /// With another residual, made of this one's.
    ///
    /// # Errors
    /// There is no memory for it, or for a copy of the other operands.
    pub(crate) fn with_residual(
        &self,
        make: impl Fn(&[T]) -> Result<Vec<T>, BackendError>,
    ) -> Result<Self, BackendError> {
        let [scale, bias, mean, variance] = &self.batch_norm;
        Ok(Operands {
            weights: memory::copied(&self.weights)?,
            bias: memory::copied(&self.bias)?,
            residual: make(&self.residual)?,
            batch_norm: [
                memory::copied(scale)?,
                memory::copied(bias)?,
                memory::copied(mean)?,
                memory::copied(variance)?,
            ],
        })
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

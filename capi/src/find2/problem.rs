//! Problems: what is to be computed, and the chain of operators that computes it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use fuseplan::{
    ActivationForward, ActivationMode, BatchNormForward, BatchNormInference, BatchNormMode, BiasForward,
    ConvForward, ConvolutionDescriptor, TensorDescriptor,
    raw::{ActivationParams, operands},
};

use super::operands::*;
use crate::abi::{
    Bool, Out, export, miopenBatchNormMode_t, miopenProblemDirection_t, miopenTensorArgumentId_t,
};
use crate::activation::miopenActivationDescriptor_t;
use crate::args::Scales;
use crate::convolution::miopenConvolutionDescriptor_t;
use crate::execute::Chain;
use crate::operators::bias;
use crate::status::{Failure, Status, bad_parm, not_implemented};
use crate::table::{Ref, create, object};
use crate::tensor::{batch_norm_mode, in_full, miopenTensorDescriptor_t};

/// What a `miopenProblem_t` names.
#[derive(Debug)]
pub struct ProblemObject {
    problem: Mutex<Problem>,
}
object!(ProblemObject, Problem);

/// C's `miopenProblem_t`.
#[allow(non_camel_case_types, reason = "MIOpen's own name")]
pub type miopenProblem_t = Ref<ProblemObject>;

/// Operators in the order in which they are computed; at least one.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Problem {
    pub(super) parts: Vec<Part>,
}

/// An operator and the tensors that were described for it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) operation: Operation,
    pub(super) tensors: BTreeMap<miopenTensorArgumentId_t, TensorDescriptor>,
}

/// What an operator computes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Operation {
    Convolution(ConvolutionDescriptor),
    Bias,
    Activation(ActivationMode, ActivationParams),
    BatchNormInference(BatchNormMode),
    BatchNormTraining { mode: BatchNormMode, running: bool },
}

/// The most operators of a problem: activations could be fused without an end.
pub(super) const MOST_PARTS: usize = 64;

/// The parameters of batch-norm, which have one descriptor.
const BATCHNORM_PARAMETERS: [miopenTensorArgumentId_t; 8] = [
    BATCHNORM_SCALE,
    BATCHNORM_BIAS,
    BATCHNORM_ESTIMATED_MEAN,
    BATCHNORM_ESTIMATED_VARIANCE,
    BATCHNORM_RUNNING_MEAN,
    BATCHNORM_RUNNING_VARIANCE,
    BATCHNORM_SAVED_MEAN,
    BATCHNORM_SAVED_VARIANCE,
];

impl Operation {
    fn name(&self) -> &'static str {
        match self {
            Operation::Convolution(_) => "a convolution",
            Operation::Bias => "a bias",
            Operation::Activation(..) => "an activation",
            Operation::BatchNormInference(_) => "batch-norm inference",
            Operation::BatchNormTraining { .. } => "batch-norm training",
        }
    }

    fn input(&self) -> miopenTensorArgumentId_t {
        match self {
            Operation::Convolution(_) => CONVOLUTION_X,
            Operation::Bias => BIAS_X,
            Operation::Activation(..) => ACTIVATION_X,
            Operation::BatchNormInference(_) | Operation::BatchNormTraining { .. } => BATCHNORM_X,
        }
    }

    fn output(&self) -> miopenTensorArgumentId_t {
        match self {
            Operation::Convolution(_) => CONVOLUTION_Y,
            Operation::Bias => BIAS_Y,
            Operation::Activation(..) => ACTIVATION_Y,
            Operation::BatchNormInference(_) | Operation::BatchNormTraining { .. } => BATCHNORM_Y,
        }
    }

    /// What a call has to give beside input and output.
    fn operands(&self) -> &'static [miopenTensorArgumentId_t] {
        match self {
            Operation::Convolution(_) => &[CONVOLUTION_W],
            Operation::Bias => &[BIAS],
            Operation::Activation(..) => &[],
            Operation::BatchNormInference(_) => &[
                BATCHNORM_SCALE,
                BATCHNORM_BIAS,
                BATCHNORM_ESTIMATED_MEAN,
                BATCHNORM_ESTIMATED_VARIANCE,
                BATCHNORM_EPSILON,
            ],
            Operation::BatchNormTraining { running: false, .. } => {
                &[BATCHNORM_SCALE, BATCHNORM_BIAS, BATCHNORM_EPSILON]
            }
            Operation::BatchNormTraining { running: true, .. } => &[
                BATCHNORM_SCALE,
                BATCHNORM_BIAS,
                BATCHNORM_RUNNING_MEAN,
                BATCHNORM_RUNNING_VARIANCE,
                BATCHNORM_EPSILON,
                BATCHNORM_EXP_AVG_FACTOR,
            ],
        }
    }

    /// Whether the argument can be described for this operator.
    fn has(&self, id: miopenTensorArgumentId_t) -> bool {
        let batch_norm =
            matches!(self, Operation::BatchNormInference(_) | Operation::BatchNormTraining { .. });
        id == self.input()
            || id == self.output()
            || self.operands().contains(&id)
            || batch_norm && BATCHNORM_PARAMETERS.contains(&id)
    }
}

impl Part {
    /// The tensor must be the running one, where it was described at all.
    fn check(&self, id: miopenTensorArgumentId_t, running: &TensorDescriptor) -> Result<(), Failure> {
        match self.tensors.get(&id) {
            Some(found) if found != running => Err(bad_parm(format!(
                "{} is {}, the problem makes it {}",
                name(id),
                in_full(found),
                in_full(running)
            ))),
            _ => Ok(()),
        }
    }

    /// Every parameter that was described must be as the mode has it.
    fn check_parameters(&self, mode: BatchNormMode, running: &TensorDescriptor) -> Result<(), Failure> {
        let derived = mode.derive(running)?;
        let described = BATCHNORM_PARAMETERS.iter().filter_map(|id| Some((*id, self.tensors.get(id)?)));
        for (id, found) in described {
            if found.canonical() != derived.canonical() {
                return Err(bad_parm(format!("{} is {found}; accepted: {derived}", name(id))));
            }
        }
        Ok(())
    }

    /// Appends the operator to a chain.
    fn append(&self, chain: &mut Chain, arguments: &Operands) -> Result<(), Failure> {
        let running = *chain.output();
        self.check(self.operation.input(), &running)?;
        let data = |id| arguments.buffer(id);
        let parameter = |id| arguments.buffer(id).cast();
        match &self.operation {
            Operation::Convolution(conv) => {
                let weights = self.required(CONVOLUTION_W)?;
                let operands = operands::ConvForward { weights: data(CONVOLUTION_W) };
                chain.append(ConvForward::new(*conv, weights), operands, Scales::NONE)?;
            }
            Operation::Bias => {
                let operator = match self.tensors.get(&BIAS) {
                    Some(described) => bias(*described, &running)?,
                    None => BiasForward::new(),
                };
                chain.append(operator, operands::BiasForward { bias: data(BIAS) }, Scales::NONE)?;
            }
            Operation::Activation(mode, params) => {
                chain.append(ActivationForward::new(*mode), (*params).into(), Scales::NONE)?;
            }
            Operation::BatchNormInference(mode) => {
                self.check_parameters(*mode, &running)?;
                let operands = operands::BatchNormInference {
                    scale: data(BATCHNORM_SCALE),
                    bias: data(BATCHNORM_BIAS),
                    mean: data(BATCHNORM_ESTIMATED_MEAN),
                    variance: data(BATCHNORM_ESTIMATED_VARIANCE),
                    epsilon: arguments.scalar(BATCHNORM_EPSILON),
                };
                chain.append(BatchNormInference::new(*mode), operands, Scales::NONE)?;
            }
            Operation::BatchNormTraining { mode, running: keeps } => {
                self.check_parameters(*mode, &running)?;
                let operands = operands::BatchNormForward {
                    scale: parameter(BATCHNORM_SCALE),
                    bias: parameter(BATCHNORM_BIAS),
                    saved_mean: parameter(BATCHNORM_SAVED_MEAN),
                    saved_inv_variance: parameter(BATCHNORM_SAVED_VARIANCE),
                    running_mean: parameter(BATCHNORM_RUNNING_MEAN),
                    running_variance: parameter(BATCHNORM_RUNNING_VARIANCE),
                    epsilon: arguments.scalar(BATCHNORM_EPSILON),
                    exp_avg_factor: arguments.scalar(BATCHNORM_EXP_AVG_FACTOR),
                };
                chain.append(BatchNormForward::new(*mode, *keeps), operands, Scales::NONE)?;
            }
        }
        self.check(self.operation.output(), chain.output())
    }

    fn required(&self, id: miopenTensorArgumentId_t) -> Result<TensorDescriptor, Failure> {
        let described = self.tensors.get(&id).copied();
        described.ok_or_else(|| bad_parm(format!("{} of the problem is not described", name(id))))
    }

    /// The descriptor of an operand of this operator, whose input is `running`.
    fn operand(
        &self,
        id: miopenTensorArgumentId_t,
        running: &TensorDescriptor,
    ) -> Result<TensorDescriptor, Failure> {
        match (&self.operation, self.tensors.get(&id)) {
            (_, Some(described)) => Ok(*described),
            (Operation::BatchNormInference(mode) | Operation::BatchNormTraining { mode, .. }, None) => {
                Ok(mode.derive(running)?)
            }
            (Operation::Bias, None) => {
                let mut lens = vec![1; running.rank()];
                lens[1] = running.lens()[1];
                Ok(TensorDescriptor::packed(running.data_type(), &lens)?)
            }
            _ => self.required(id),
        }
    }
}

impl Problem {
    /// The name of the tensor that the problem reads first.
    pub(super) fn input(&self) -> miopenTensorArgumentId_t {
        self.parts[0].operation.input()
    }

    /// The name of the tensor that the problem writes.
    pub(super) fn output(&self) -> miopenTensorArgumentId_t {
        self.parts[self.parts.len() - 1].operation.output()
    }

    /// The descriptor of the tensor that the problem reads first.
    pub(super) fn input_descriptor(&self) -> Result<TensorDescriptor, Failure> {
        self.parts[0].required(self.input())
    }

    /// The operators with what a call gives for them, which may be nothing where they are only compiled.
    pub(super) fn chain(&self, arguments: &Operands) -> Result<Chain, Failure> {
        let mut chain = Chain::new(self.input_descriptor()?)?;
        for part in &self.parts {
            part.append(&mut chain, arguments)?;
        }
        Ok(chain)
    }

    /// What a call has to give: names of tensors and scalars, input and output among them.
    pub(super) fn needed(&self) -> Vec<miopenTensorArgumentId_t> {
        let operands = self.parts.iter().flat_map(|part| part.operation.operands()).copied();
        [self.input(), self.output()].into_iter().chain(operands).collect()
    }

    /// The tensors that a call has to give, with their descriptors: the input first, the output last.
    pub(super) fn tensors(&self) -> Result<Vec<(miopenTensorArgumentId_t, TensorDescriptor)>, Failure> {
        let mut tensors = vec![(self.input(), self.input_descriptor()?)];
        let mut chain = Chain::new(self.input_descriptor()?)?;
        for part in &self.parts {
            let operands = part.operation.operands().iter().filter(|&&id| !is_scalar(id));
            for &id in operands {
                tensors.push((id, part.operand(id, chain.output())?));
            }
            part.append(&mut chain, &Operands::default())?;
        }
        tensors.push((self.output(), *chain.output()));
        Ok(tensors)
    }

    /// Whether an execution changes the tensor although it is not the problem's output.
    pub(super) fn updates(&self, id: miopenTensorArgumentId_t) -> bool {
        let updated = [BATCHNORM_RUNNING_MEAN, BATCHNORM_RUNNING_VARIANCE].contains(&id);
        updated && self.parts.iter().any(|part| matches!(part.operation, Operation::BatchNormTraining { .. }))
    }

    /// Puts another descriptor in the place of the problem's.
    pub(super) fn describe(
        &mut self,
        id: miopenTensorArgumentId_t,
        descriptor: TensorDescriptor,
    ) -> Result<(), Failure> {
        let part = self.parts.iter_mut().find(|part| !is_scalar(id) && part.operation.has(id));
        let part = part.ok_or_else(|| bad_parm(format!("the problem has no tensor {}", name(id))))?;
        part.tensors.insert(id, descriptor);
        Ok(())
    }

    /// Two operators whose operands have the same names cannot be told apart by a call.
    fn fuse(&mut self, others: Problem) -> Result<(), Failure> {
        let count = self.parts.len() + others.parts.len();
        if count > MOST_PARTS {
            return Err(Failure::new(
                Status::UnsupportedOp,
                format!("a problem of {count} operators; accepted: up to {MOST_PARTS}"),
            ));
        }
        for part in &others.parts {
            let same = |own: &&Part| own.operation.operands().iter().any(|id| part.operation.has(*id));
            if let Some(own) = self.parts.iter().find(same) {
                return Err(Failure::new(
                    Status::UnsupportedOp,
                    format!(
                        "the problem has {} already; another's operands would have the same names",
                        own.operation.name()
                    ),
                ));
            }
        }
        self.parts.extend(others.parts);
        Ok(())
    }
}

impl miopenProblem_t {
    fn with<R>(self, work: impl FnOnce(&mut Problem) -> Result<R, Failure>) -> Result<R, Failure> {
        let object = self.get()?;
        let mut problem = object.problem.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut problem)
    }

    /// The problem as it is now.
    pub(super) fn snapshot(self) -> Result<Problem, Failure> {
        self.with(|problem| Ok(problem.clone()))
    }
}

/// Creates a problem of one operator.
fn make(out: Out<miopenProblem_t>, operation: Operation) -> Result<(), Failure> {
    let out = out.required("problem")?;
    let problem = Problem { parts: vec![Part { operation, tensors: BTreeMap::new() }] };
    out.set(create(ProblemObject { problem: Mutex::new(problem) })?);
    Ok(())
}

/// The directions that are computed. They differ for batch-norm alone.
enum Direction {
    Forward,
    Inference,
}

fn direction(number: miopenProblemDirection_t) -> Result<Direction, Failure> {
    const ACCEPTED: &str = "accepted: 0 (forward), 4 (inference)";
    match number {
        0 => Ok(Direction::Forward),
        4 => Ok(Direction::Inference),
        1 | 2 => Err(not_implemented(format!("problems of direction {number} (gradients); {ACCEPTED}"))),
        _ => Err(bad_parm(format!("{number} is no direction of a problem; {ACCEPTED}"))),
    }
}

export! {
    fn miopenCreateConvProblem(
        problem: Out<miopenProblem_t>,
        operatorDesc: miopenConvolutionDescriptor_t,
        direction: miopenProblemDirection_t,
    ) {
        let conv = operatorDesc.descriptor()?;
        self::direction(direction)?;
        make(problem, Operation::Convolution(conv))?;
    }

    fn miopenCreateBiasProblem(problem: Out<miopenProblem_t>, direction: miopenProblemDirection_t) {
        self::direction(direction)?;
        make(problem, Operation::Bias)?;
    }

    fn miopenCreateActivationProblem(
        problem: Out<miopenProblem_t>,
        operatorDesc: miopenActivationDescriptor_t,
        direction: miopenProblemDirection_t,
    ) {
        let (mode, params) = operatorDesc.activation()?;
        self::direction(direction)?;
        make(problem, Operation::Activation(mode, params))?;
    }

    fn miopenCreateBatchnormProblem(
        problem: Out<miopenProblem_t>,
        mode: miopenBatchNormMode_t,
        runningMeanVariance: Bool,
        direction: miopenProblemDirection_t,
    ) {
        let mode = batch_norm_mode(mode)?;
        let operation = match self::direction(direction)? {
            Direction::Inference => Operation::BatchNormInference(mode),
            Direction::Forward => Operation::BatchNormTraining { mode, running: runningMeanVariance.get() },
        };
        make(problem, operation)?;
    }

    fn miopenFuseProblems(problem1: miopenProblem_t, problem2: miopenProblem_t) {
        let others = problem2.snapshot()?;
        problem1.with(|problem| problem.fuse(others))?;
    }

    fn miopenSetProblemTensorDescriptor(
        problem: miopenProblem_t,
        id: miopenTensorArgumentId_t,
        descriptor: miopenTensorDescriptor_t,
    ) {
        let object = problem.get()?;
        let descriptor = descriptor.descriptor()?;
        object.problem.lock().unwrap_or_else(PoisonError::into_inner).describe(id, descriptor)?;
    }

    fn miopenDestroyProblem(problem: miopenProblem_t) {
        if !problem.is_null() {
            problem.remove()?;
        }
    }
}

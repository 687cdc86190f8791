//! The plan: an input descriptor and operators appended in order.

#[allow(unsafe_code, reason = "taking bytes for machine code: the constructor states what is promised")]
mod binary;
mod compiled;
mod reject;
mod rules;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuseplan_api::{BuildError, MathMode, Op, Problem, TensorDescriptor, call, fork};

pub use binary::CompiledBinary;
pub use compiled::CompiledPlan;
pub use reject::{AppendError, PlanError, Reason};

use crate::handle::{Handle, Target};
use crate::operator::{OpId, Operator};
use crate::select::{self, CompileError, CompileOptions};

/// How the operators of a plan relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FusionDirection {
    /// Each operator works on the result of the one before.
    Vertical,
    /// Independent operators side by side. Not supported.
    Horizontal,
}

/// A chain of operators that is computed as one kernel, in the order in which they were appended.
///
/// ```
/// use fuseplan::*;
/// # fn main() -> Result<(), Error> {
/// let x = TensorDescriptor::nchw(DataType::Float, [1, 3, 8, 8])?;
/// let mut plan = FusionPlan::new(FusionDirection::Vertical, x)?;
/// let weights = TensorDescriptor::nchw(DataType::Float, [16, 3, 3, 3])?;
/// plan.append(ConvForward::new(ConvolutionDescriptor::new_2d([1, 1], [1, 1], [1, 1])?, weights))?;
/// plan.append(BiasForward::new())?;
/// plan.append(ActivationForward::new(ActivationMode::Relu))?;
/// assert_eq!(plan.output().lens(), [1, 16, 8, 8]);
/// // A second convolution is rejected, with the reason, and leaves the plan as it was.
/// let second = ConvForward::new(ConvolutionDescriptor::new_2d([1, 1], [1, 1], [1, 1])?, weights);
/// assert_eq!(plan.append(second).unwrap_err().reason, Reason::SecondConvolution);
/// assert_eq!(plan.ops().len(), 3);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FusionPlan {
    id: u64,
    input: TensorDescriptor,
    output: TensorDescriptor,
    ops: Vec<Op>,
    math: MathMode,
    target: Option<Target>,
    /// Counts changes; compiled plans of an earlier count are invalid.
    generation: Arc<AtomicU64>,
}

impl FusionPlan {
    /// A plan for any device: only what no backend could do is rejected at the append; what the device
    /// cannot do is found at the compile.
    ///
    /// # Errors
    /// Horizontal fusion; an input that is not 4-D or 5-D.
    pub fn new(direction: FusionDirection, input: TensorDescriptor) -> Result<Self, PlanError> {
        if direction == FusionDirection::Horizontal {
            return Err(PlanError::Horizontal);
        }
        if !(4..=5).contains(&input.rank()) {
            return Err(PlanError::Rank { found: input.rank() });
        }
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(FusionPlan {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            input,
            output: input,
            ops: Vec::new(),
            math: MathMode::default(),
            target: None,
            generation: Arc::default(),
        })
    }

    /// A plan for one device (a [`Handle`]) or architecture (a [`Target`]): what it cannot do is rejected
    /// at the append.
    ///
    /// # Errors
    /// As [`FusionPlan::new`].
    pub fn for_device(
        direction: FusionDirection,
        input: TensorDescriptor,
        device: impl AsRef<Target>,
    ) -> Result<Self, PlanError> {
        let plan = Self::new(direction, input)?;
        Ok(FusionPlan { target: Some(device.as_ref().clone()), ..plan })
    }

    /// Allows products of lower precision than the data type's where that is faster.
    pub fn set_math_mode(&mut self, math: MathMode) {
        self.math = math;
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Appends an operator and returns its typed handle. Plans compiled before are invalid from then on.
    ///
    /// # Errors
    /// The operator cannot stand there, does not fit the running tensor, or the plan's device has no solver
    /// for the plan with it. The plan is then unchanged.
    pub fn append<O: Operator>(&mut self, operator: O) -> Result<OpId<O>, AppendError> {
        let index = self.ops.len();
        let reject = |reason| AppendError::new(index, O::KIND, reason);
        rules::may_follow(&self.ops, O::KIND).map_err(reject)?;
        let op = operator.lower(&self.output).map_err(reject)?;
        let output = match &op {
            Op::ConvForward { conv, weights } => conv
                .forward_output(&self.output, weights)
                .map_err(|error| reject(Reason::shape(error, "operands that fit the plan's tensor")))?,
            _ => self.output,
        };
        if output.overlaps_itself() {
            return Err(reject(Reason::OverlappingOutput { output: output.into() }));
        }
        let before = std::mem::replace(&mut self.output, output);
        self.ops.push(op);
        if let Err(error) = call(|| self.check_target()) {
            self.ops.pop();
            self.output = before;
            return Err(reject(error));
        }
        self.generation.fetch_add(1, Ordering::Release);
        Ok(OpId::new(self.id, index))
    }

    /// Whether the plan's device, if it has one, has a solver for the plan as it is.
    fn check_target(&self) -> Result<(), Reason> {
        let Some(target) = &self.target else { return Ok(()) };
        match select::is_taken(target, &self.problem()) {
            Ok(_) => Ok(()),
            Err(refusals) => Err(Reason::NoSolver { device: target.to_string(), refusals }),
        }
    }

    /// The plan's input.
    pub fn input(&self) -> &TensorDescriptor {
        &self.input
    }

    /// What the operators so far make of the input. After a convolution: packed, in the memory order of the
    /// input; otherwise the input's own descriptor.
    pub fn output(&self) -> &TensorDescriptor {
        &self.output
    }

    /// The operators, in the order in which they are computed.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The typed handle of the operator at `index`, if it is of the kind asked for.
    pub fn op_id<O: Operator>(&self, index: usize) -> Option<OpId<O>> {
        self.ops.get(index).filter(|op| op.kind() == O::KIND).map(|_| OpId::new(self.id, index))
    }

    /// The plan in canonical form: what solvers judge and what the cache is keyed by.
    pub fn problem(&self) -> Problem {
        let ops = self.ops.iter().map(|op| match op {
            Op::ConvForward { conv, weights } => {
                Op::ConvForward { conv: *conv, weights: weights.canonical() }
            }
            Op::BiasForward { bias } => Op::BiasForward { bias: bias.canonical() },
            other => other.clone(),
        });
        Problem {
            input: self.input.canonical(),
            output: self.output.canonical(),
            ops: ops.collect(),
            math: self.math,
        }
    }

    /// Compiles for a handle's device, or finds the kernel that an equal plan has compiled before.
    ///
    /// # Errors
    /// An empty plan, a plan made for another device, no solver, or a kernel that cannot be built.
    pub fn compile(&self, handle: &Handle) -> Result<CompiledPlan, CompileError> {
        self.compile_with(handle, &CompileOptions::default())
    }

    /// Compiles with choices of the caller's.
    ///
    /// # Errors
    /// As [`FusionPlan::compile`]; a solver asked for by name that does not exist.
    pub fn compile_with(
        &self,
        handle: &Handle,
        options: &CompileOptions,
    ) -> Result<CompiledPlan, CompileError> {
        self.check_for(handle.target())?;
        let (generation, problem) = (self.generation(), self.problem());
        let built = call(|| {
            fork::usable().map_err(BuildError::from)?;
            handle.context().build(&problem, options)
        })?;
        Ok(CompiledPlan::new(self, problem, generation, handle, built))
    }

    /// Whether there is something to compile, and the plan was not made for another device.
    fn check_for(&self, target: &Target) -> Result<(), CompileError> {
        if self.ops.is_empty() {
            return Err(CompileError::Empty);
        }
        match self.target.as_ref().filter(|own| !own.covers(target)) {
            Some(own) => Err(CompileError::OtherDevice { plan: own.to_string(), handle: target.to_string() }),
            None => Ok(()),
        }
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

/// The clone is a plan of its own: an append to one does not invalidate what the other has compiled.
impl Clone for FusionPlan {
    fn clone(&self) -> Self {
        FusionPlan {
            id: self.id,
            input: self.input,
            output: self.output,
            ops: self.ops.clone(),
            math: self.math,
            target: self.target.clone(),
            generation: Arc::default(),
        }
    }
}

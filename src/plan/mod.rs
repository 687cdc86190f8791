//! The plan: an input descriptor and operators appended in order.

#[allow(unsafe_code, reason = "taking bytes for machine code: the constructor states what is promised")]
mod binary;
mod compiled;
mod layouts;
mod many;
mod reject;
mod rules;
mod text;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fuseplan_api::{BuildError, Estimate, MathMode, Op, Problem, TensorDescriptor, call, fork};

pub use binary::CompiledBinary;
pub use compiled::CompiledPlan;
pub use layouts::LayoutTime;
pub use reject::{AppendError, PlanError, Reason};
pub use text::{PlanText, PlanTextError};

use crate::build::{self, CompileError};
use crate::choice::{self, Answer};
use crate::handle::Handle;
use crate::observe;
use crate::operator::{OpId, Operator};
use crate::options::CompileOptions;
use crate::target::Target;

/// A chain of operators that is computed as one kernel, in the order in which they were appended.
///
/// A [`CompiledPlan`] is of the plan as it was when it was compiled: what is appended afterwards takes another compile to
/// be computed, and what was compiled before still runs. The operators' typed handles are good for the plan, its clones and
/// whatever is compiled from them.
///
/// ```
/// use fuseplan::{error::Reason, *};
/// # fn main() -> Result<(), Error> {
/// let x = TensorDescriptor::nchw(DataType::Float, [1, 3, 8, 8])?;
/// let mut plan = FusionPlan::new(x)?;
/// let weights = TensorDescriptor::nchw(DataType::Float, [16, 3, 3, 3])?;
/// plan.append(ConvForward::new(ConvolutionDescriptor::d2().with_pads([1, 1])?, weights))?;
/// plan.append(BiasForward::new())?;
/// plan.append(ActivationForward::new(ActivationMode::Relu))?;
/// assert_eq!(plan.output().lens(), [1, 16, 8, 8]);
/// // A second convolution is rejected, with the reason, and leaves the plan as it was.
/// let second = ConvForward::new(ConvolutionDescriptor::d2().with_pads([1, 1])?, weights);
/// assert_eq!(plan.append(second).unwrap_err().reason, Reason::SecondConvolution);
/// assert_eq!(plan.ops().len(), 3);
/// # Ok(())
/// # }
/// ```
///
/// # Text
///
/// A plan prints as one line, which parses to an equal plan for any device; the command runs it, `fuseplan run "…"`. The
/// input is followed by an arrow and the name of each operator with what is not usual of it:
///
/// ```
/// use fuseplan::FusionPlan;
/// let plan: FusionPlan = "f16 8x64x56x56 NHWC -> conv 128 3x3 stride 2 pad 1 -> bias -> residual -> relu".parse()?;
/// assert_eq!(plan.output().to_string(), "f16 8x128x28x28 NHWC");
/// assert_eq!(plan.to_string(), "f16 8x64x56x56 NHWC -> conv 128 3x3 pad 1 stride 2 -> bias -> residual -> relu");
/// # Ok::<(), fuseplan::error::PlanTextError>(())
/// ```
///
/// | written | meaning |
/// |---|---|
/// | `f32 2x3x224x224 NCHW` | type, lengths, layout (`NCHWc16` has blocks of 16 channels); any other order in memory is `strides 150528x50176x224x1` |
/// | `math strict`, `math tf32`, behind the input | [`MathMode::Strict`], [`MathMode::AllowTf32`] |
/// | `conv 64 3x3` | 64 filters of 3x3; behind it `pad`, `stride`, `dilation`, `groups`, each with a number for all dimensions or one for each, `weights` with a layout or strides, if they do not lie as the input does (as NCHW, where that has blocks), and `output` with a layout or strides, if it does not lie packed as the input does |
/// | `bias`, `residual` | the residual may have a layout or strides of its own |
/// | `batch-norm spatial`, `batch-norm per-activation` | batch-norm with given statistics |
/// | `relu`, `leakyrelu slope 0.1`, … | activations by their names; parameters are arguments, which [`PlanText`] has |
/// | `batch-norm-forward spatial running` | training, with running statistics |
/// | `batch-norm-backward spatial`, `relu-backward` | gradients |
#[derive(Debug, Clone)]
pub struct FusionPlan {
    id: u64,
    input: TensorDescriptor,
    output: TensorDescriptor,
    ops: Vec<Op>,
    math: MathMode,
    target: Option<Target>,
}

impl FusionPlan {
    /// A plan for any device: only what no backend could do is rejected at the append; what the device
    /// cannot do is found at the compile.
    ///
    /// # Errors
    /// An input that is not 4-D or 5-D.
    pub fn new(input: TensorDescriptor) -> Result<Self, PlanError> {
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
        })
    }

    /// A plan for one device (a [`Handle`]) or architecture (a [`Target`]): what it cannot do is rejected
    /// at the append.
    ///
    /// # Errors
    /// As [`FusionPlan::new`].
    pub fn for_device(device: impl AsRef<Target>, input: TensorDescriptor) -> Result<Self, PlanError> {
        let plan = Self::new(input)?;
        Ok(FusionPlan { target: Some(device.as_ref().clone()), ..plan })
    }

    /// Says how exactly the plan's convolution may be computed.
    pub fn set_math_mode(&mut self, math: MathMode) {
        self.math = math;
    }

    /// Appends an operator and returns its typed handle.
    ///
    /// # Errors
    /// The operator cannot stand there, does not fit the running tensor, or the plan's device has no solver
    /// for the plan with it. The plan is then unchanged.
    pub fn append<O: Operator>(&mut self, operator: O) -> Result<OpId<O>, AppendError> {
        let index = self.ops.len();
        let reject = |reason| AppendError::new(index, O::KIND, reason);
        rules::may_follow(&self.ops, O::KIND).map_err(reject)?;
        let (op, output) = operator.lower(&self.output).map_err(reject)?;
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
        Ok(OpId::new(self.id, index))
    }

    /// Whether the plan's device, if it has one, has a solver for the plan as it is.
    fn check_target(&self) -> Result<(), Reason> {
        let Some(target) = &self.target else { return Ok(()) };
        match choice::is_taken(target, &self.problem()) {
            Ok(_) => Ok(()),
            Err(refusals) => Err(Reason::NoSolver { device: target.to_string(), refusals }),
        }
    }

    /// The plan's input.
    pub fn input(&self) -> &TensorDescriptor {
        &self.input
    }

    /// What the operators so far make of the input. After a convolution: packed, in the memory order of the
    /// input unless [another layout](crate::ConvForward::with_output_layout) or
    /// [strides](crate::ConvForward::with_output_strides) were chosen; otherwise the input's own descriptor.
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
        Problem {
            input: self.input.canonical(),
            output: self.output.canonical(),
            ops: self.ops.iter().map(Op::canonical).collect(),
            math: self.math,
        }
    }

    /// What every solver of a device (a [`Handle`]) or architecture (a [`Target`]) says of the plan: in which
    /// configurations it computes it and how fast it expects them to be, in the order in which they are preferred; or
    /// why it cannot.
    ///
    /// # Errors
    /// An empty plan, a plan made for another device.
    pub fn answers(&self, device: impl AsRef<Target>) -> Result<Vec<Answer>, CompileError> {
        let target = device.as_ref();
        self.check_for(target)?;
        Ok(call(|| choice::answers(target, &self.problem())))
    }

    /// The time of an execution that the preferred solver's model expects on a device or architecture; `None` where that
    /// solver has no model of time, or none takes the plan. Nothing is compiled or run.
    ///
    /// # Errors
    /// Those of [`answers`](Self::answers).
    pub fn expected_time(&self, device: impl AsRef<Target>) -> Result<Option<Duration>, CompileError> {
        let target = device.as_ref();
        self.check_for(target)?;
        Ok(call(|| match choice::preferred(target, &self.problem())?.estimate {
            Estimate::Time { seconds, .. } => Duration::try_from_secs_f64(seconds).ok(),
            Estimate::Cost { .. } | Estimate::Order => None,
        }))
    }

    /// Compiles for a handle's device, or finds the kernel that an equal plan has compiled before.
    ///
    /// # Errors
    /// An empty plan, a plan made for another device, no solver, or a kernel that cannot be built.
    pub fn compile(&self, handle: &Handle) -> Result<CompiledPlan, CompileError> {
        self.compile_with(handle, &CompileOptions::default())
    }

    /// Compiles with choices of the caller's. Many plans at once are [`compile_all`](Self::compile_all)'s.
    ///
    /// # Errors
    /// As [`FusionPlan::compile`]; a solver asked for by name that does not exist.
    pub fn compile_with(
        &self,
        handle: &Handle,
        options: &CompileOptions,
    ) -> Result<CompiledPlan, CompileError> {
        self.check_for(handle.target())?;
        let problem = self.problem();
        let built = observe::compile(self, handle.target(), options, || {
            call(|| {
                fork::usable().map_err(BuildError::from)?;
                build::build(handle.context(), &problem, options)
            })
        })?;
        Ok(CompiledPlan::new(self, problem, handle, built))
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
}

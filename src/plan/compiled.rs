//! A compiled plan: what was chosen, and everything that an execution is checked against.

use std::fmt;
use std::sync::Arc;

use fuseplan_api::operands::DescribedOperand;
use fuseplan_api::{BuildError, Executable, ExecutableInfo, Problem, Refusal, TensorDescriptor};

use super::FusionPlan;
use crate::choice::{Built, Chosen};
use crate::context::Context;
use crate::handle::Handle;
use crate::target::Target;

/// A plan compiled for a device: one kernel, ready to run.
///
/// Cheap to clone, `Send` and `Sync`; any number of threads may execute it at once. It owns all that it
/// needs: whatever happens to the plan that it was compiled from, it computes what that plan was at the compile.
#[derive(Clone)]
pub struct CompiledPlan {
    inner: Arc<Inner>,
}

struct Inner {
    plan: FusionPlan,
    problem: Problem,
    operands: Vec<Vec<DescribedOperand>>,
    context: Arc<Context>,
    target: Target,
    built: Built,
}

impl CompiledPlan {
    pub(super) fn new(plan: &FusionPlan, problem: Problem, handle: &Handle, built: Built) -> Self {
        let inner = Inner {
            plan: plan.clone(),
            operands: plan.ops.iter().map(|op| op.operands(&plan.output).collect()).collect(),
            problem,
            context: handle.context().clone(),
            target: handle.target().clone(),
            built,
        };
        CompiledPlan { inner: Arc::new(inner) }
    }

    /// The descriptor of the input.
    pub fn input(&self) -> &TensorDescriptor {
        &self.inner.plan.input
    }

    /// The descriptor of the output.
    pub fn output(&self) -> &TensorDescriptor {
        &self.inner.plan.output
    }

    /// The plan as it was when it was compiled.
    pub fn plan(&self) -> &FusionPlan {
        &self.inner.plan
    }

    /// The plan in canonical form.
    pub fn problem(&self) -> &Problem {
        &self.inner.problem
    }

    /// The solver that was chosen, its algorithm, how many kernels it launches (1 unless it says
    /// otherwise) and its workspace.
    pub fn info(&self) -> &ExecutableInfo {
        self.inner.built.executable.info()
    }

    /// Why the solvers that are preferred to the chosen one were not taken, in order.
    pub fn refusals(&self) -> &[Refusal] {
        &self.inner.built.refusals
    }

    /// Why kernels of solvers that are preferred to the chosen one could not be built, in order.
    pub fn failures(&self) -> &[BuildError] {
        &self.inner.built.failures
    }

    /// How the solver was chosen.
    pub fn chosen(&self) -> &Chosen {
        &self.inner.built.chosen
    }

    /// Bytes of workspace that an execution needs.
    pub fn workspace(&self) -> usize {
        self.info().workspace
    }

    /// Whether an execution launches one kernel, besides those that prepare its weights. Those that copy the image first launch two, and those whose
    /// blocks meet in memory the same one twice.
    pub fn is_one_kernel(&self) -> bool {
        self.info().kernels == 1
    }

    /// What it was compiled for.
    pub fn target(&self) -> &Target {
        &self.inner.target
    }

    /// Whether it was compiled for this handle's device.
    pub fn is_for(&self, handle: &Handle) -> bool {
        Arc::ptr_eq(&self.inner.context, handle.context())
    }

    pub(crate) fn plan_id(&self) -> u64 {
        self.inner.plan.id
    }

    /// The operands of the operator at `index`; none for an index beyond the plan.
    pub(crate) fn operands(&self, index: usize) -> &[DescribedOperand] {
        self.inner.operands.get(index).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn executable(&self) -> &dyn Executable {
        &*self.inner.built.executable
    }
}

impl fmt::Debug for CompiledPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledPlan")
            .field("plan", &self.plan().to_string())
            .field("target", &self.target().to_string())
            .field("info", self.info())
            .finish_non_exhaustive()
    }
}

/// The plan, the chosen solver with its choices, and why others were not taken.
impl fmt::Display for CompiledPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.info();
        writeln!(f, "{}", self.plan())?;
        writeln!(f, "device     {}", self.target())?;
        writeln!(f, "solver     {} ({})", info.solver, info.algorithm)?;
        writeln!(f, "chosen     {}", self.chosen())?;
        writeln!(f, "kernels    {}", info.kernels)?;
        write!(f, "workspace  {} bytes", info.workspace)?;
        if !info.detail.is_empty() {
            write!(f, "\nchoices    {}", info.detail)?;
        }
        if let Some(resources) = info.resources {
            write!(f, "\nresources  {resources}")?;
        }
        for refusal in self.refusals() {
            write!(f, "\nrefused    {refusal}")?;
        }
        for failure in self.failures() {
            write!(f, "\nfailed     {failure}")?;
        }
        Ok(())
    }
}

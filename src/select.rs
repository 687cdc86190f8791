//! The choice of a solver.

use std::sync::Arc;

use fuseplan_api::{Binary, BuildError, Device, DeviceInfo, Executable, Problem, Refusal, Solver};
use thiserror::Error;

use crate::cache::{self, BinaryError, Subject};
use crate::handle::Target;

/// Choices of the caller's at a compile.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct CompileOptions {
    /// The id of the only solver to be considered, such as `cpu.reference.v1`.
    pub solver: Option<String>,
}

impl CompileOptions {
    /// Only the solver with this id is considered.
    pub fn with_solver(mut self, id: impl Into<String>) -> Self {
        self.solver = Some(id.into());
        self
    }
}

/// A plan that cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompileError {
    /// There is nothing to compute.
    #[error("the plan has no operators")]
    Empty,
    /// The plan was made for a device that the handle is not of.
    #[error("the plan is for {plan}, the handle is of {handle}")]
    OtherDevice {
        /// The plan's device or architecture.
        plan: String,
        /// The handle's device.
        handle: String,
    },
    /// No solver has the id asked for.
    #[error("{backend} has no solver `{id}`; it has {known}")]
    UnknownSolver {
        /// The backend's name.
        backend: &'static str,
        /// The id asked for.
        id: String,
        /// The ids it has.
        known: String,
    },
    /// No solver takes the plan.
    #[error("no solver of {device} takes {chain}: {}", .refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NoSolver {
        /// The device.
        device: String,
        /// The plan's operators.
        chain: String,
        /// Every solver's own reason, in order of preference.
        refusals: Vec<Refusal>,
    },
    /// A compiled binary is not for this plan, device or version.
    #[error(transparent)]
    Binary(#[from] BinaryError),
    /// The solver's kernel cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// A chosen solver and why those before it were not.
pub(crate) type Choice = (&'static dyn Solver, Vec<Refusal>);

/// The first solver of the target's backend that takes the problem, in the backend's order; else every
/// solver's reason.
pub(crate) fn choose(
    target: &Target,
    problem: &Problem,
    options: &CompileOptions,
) -> Result<Choice, Vec<Refusal>> {
    let mut refusals = Vec::new();
    for &solver in target.backend.solvers() {
        if options.solver.as_deref().is_some_and(|id| id != solver.id()) {
            continue;
        }
        match solver.applies(problem, target.info()) {
            Ok(()) => {
                tracing::debug!(target: "fuseplan::select", solver = solver.id(), accept = true, %problem);
                return Ok((solver, refusals));
            }
            Err(refusal) => {
                tracing::debug!(target: "fuseplan::select", solver = solver.id(), reject = %refusal, %problem);
                refusals.push(refusal);
            }
        }
    }
    Err(refusals)
}

/// An executable and how it was chosen.
#[derive(Debug, Clone)]
pub(crate) struct Built {
    pub(crate) executable: Arc<dyn Executable>,
    pub(crate) refusals: Arc<[Refusal]>,
}

/// Chooses a solver, compiles for the target and loads on the device.
pub(crate) fn build(
    target: &Target,
    device: &Arc<dyn Device>,
    problem: &Problem,
    options: &CompileOptions,
) -> Result<Built, CompileError> {
    let (solver, refusals) = require(target, problem, options)?;
    let executable = obtain(solver, problem, target.info(), |binary| solver.load(problem, device, binary))?;
    Ok(Built { executable, refusals: refusals.into() })
}

/// Loads a binary of a solver on the device, if the solver takes the problem there.
pub(crate) fn load(
    target: &Target,
    device: &Arc<dyn Device>,
    problem: &Problem,
    binary: &Binary,
) -> Result<Built, CompileError> {
    let options = CompileOptions::default().with_solver(&binary.solver);
    let (solver, refusals) = require(target, problem, &options)?;
    let executable = solver.load(problem, device, binary)?;
    Ok(Built { executable, refusals: refusals.into() })
}

/// Chooses a solver and compiles for the target, which needs no device.
pub(crate) fn compile(
    target: &Target,
    problem: &Problem,
    options: &CompileOptions,
) -> Result<(&'static dyn Solver, Binary), CompileError> {
    let (solver, _) = require(target, problem, options)?;
    let binary = obtain(solver, problem, target.info(), |binary| Ok(binary.clone()))?;
    Ok((solver, binary))
}

/// [`choose`], or the error that says why not.
fn require(target: &Target, problem: &Problem, options: &CompileOptions) -> Result<Choice, CompileError> {
    if let Some(id) = &options.solver {
        let known: Vec<_> = target.backend.solvers().iter().map(|solver| solver.id()).collect();
        if !known.contains(&id.as_str()) {
            let (backend, known) = (target.info().backend, known.join(", "));
            return Err(CompileError::UnknownSolver { backend, id: id.clone(), known });
        }
    }
    choose(target, problem, options).map_err(|refusals| CompileError::NoSolver {
        device: target.to_string(),
        chain: problem.chain(),
        refusals,
    })
}

/// What `load` makes of the solver's binary, from the disk cache if it is there.
fn obtain<T>(
    solver: &dyn Solver,
    problem: &Problem,
    target: &DeviceInfo,
    load: impl Fn(&Binary) -> Result<T, BuildError>,
) -> Result<T, BuildError> {
    let compile = || solver.compile(problem, target);
    let cached = Subject::stored(solver, problem, target).and_then(|subject| Some((subject, cache::disk()?)));
    match cached {
        Some((subject, disk)) => disk.get_or_build(&subject, load, compile),
        None => load(&compile()?),
    }
}

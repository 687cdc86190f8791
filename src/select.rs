//! The choice of a solver.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fuseplan_api::{Binary, BuildError, Device, DeviceInfo, Executable, Problem, Refusal, Solver};
use thiserror::Error;

use crate::cache::{self, BinaryError, Subject};
use crate::env;
use crate::handle::{Handle, Target};

/// Choices of the caller's at a compile.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct CompileOptions {
    /// The id of the only solver to be considered, such as `cpu.reference.v1`.
    pub solver: Option<String>,
    /// How a solver is chosen; if not given, as the environment variables `MIOPEN_FIND_MODE_FUSION` and
    /// `MIOPEN_FIND_MODE` say, else [`FindMode::Fast`].
    pub find: Option<FindMode>,
}

/// How a solver is chosen among those that take a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindMode {
    /// The backend's order of preference decides; nothing is run.
    Fast,
    /// Each is timed on memory of the device that is allocated for it (as much as the plan's tensors), and
    /// the fastest taken. What was found is stored on disk with the compiled kernels, and not timed again.
    /// Where timing is impossible the order of preference decides.
    Normal,
}

impl CompileOptions {
    /// Only the solver with this id is considered.
    pub fn with_solver(mut self, id: impl Into<String>) -> Self {
        self.solver = Some(id.into());
        self
    }

    /// How a solver is chosen.
    pub fn with_find(mut self, mode: FindMode) -> Self {
        self.find = Some(mode);
        self
    }

    /// With the environment's choices where the caller made none.
    pub(crate) fn resolved(&self) -> Self {
        let find = self.find.or_else(env::find_mode).unwrap_or(FindMode::Fast);
        CompileOptions { find: Some(find), ..self.clone() }
    }

    /// Whether solvers are to be timed.
    pub(crate) fn times_solvers(&self) -> bool {
        self.solver.is_none() && self.find == Some(FindMode::Normal)
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

/// How a compiled plan's solver was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Chosen {
    /// It is the first in the backend's order of preference that takes the plan.
    Preferred,
    /// It is the one that the caller, or a binary that was loaded, named.
    Requested,
    /// It is the fastest of those that take the plan.
    Measured {
        /// The solvers and the time of an execution of each, the fastest first.
        times: Vec<(&'static str, Duration)>,
        /// Whether the times were found earlier and stored.
        stored: bool,
    },
}

/// `measured: cuda.conv_mma.v1 31.2 µs, cuda.direct.v1 501.0 µs`
impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Chosen::Preferred => f.write_str("by order of preference"),
            Chosen::Requested => f.write_str("by request"),
            Chosen::Measured { times, stored } => {
                f.write_str(if *stored { "measured earlier:" } else { "measured:" })?;
                for (index, (solver, time)) in times.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma} {solver} {:.1} µs", time.as_secs_f64() * 1e6)?;
                }
                Ok(())
            }
        }
    }
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
    pub(crate) chosen: Chosen,
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
    let chosen = if options.solver.is_some() { Chosen::Requested } else { Chosen::Preferred };
    Ok(Built { executable, refusals: refusals.into(), chosen })
}

/// A solver's executable on the handle's device, its binary from the disk cache if it is there.
pub(crate) fn load_stored(
    handle: &Handle,
    solver: &dyn Solver,
    problem: &Problem,
) -> Result<Arc<dyn Executable>, BuildError> {
    let device = handle.context().device();
    obtain(solver, problem, handle.device_info(), |binary| solver.load(problem, device, binary))
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
    Ok(Built { executable, refusals: refusals.into(), chosen: Chosen::Requested })
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

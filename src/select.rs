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

/// The solvers of the target's backend in its order of preference, or of those the one that the options name:
/// each takes the problem, or says why not.
fn candidates<'a>(
    target: &'a Target,
    problem: &'a Problem,
    options: &'a CompileOptions,
) -> impl Iterator<Item = Result<&'static dyn Solver, Refusal>> + 'a {
    let named = |id: &str| options.solver.as_deref().is_none_or(|name| name == id);
    target.backend.solvers().iter().filter(move |solver| named(solver.id())).map(move |&solver| match solver
        .applies(problem, target.info())
    {
        Ok(()) => {
            tracing::debug!(target: "fuseplan::select", solver = solver.id(), accept = true, %problem);
            Ok(solver)
        }
        Err(refusal) => {
            tracing::debug!(target: "fuseplan::select", solver = solver.id(), reject = %refusal, %problem);
            Err(refusal)
        }
    })
}

/// Whether a solver takes the problem.
///
/// # Errors
/// Every solver's reason.
pub(crate) fn is_taken(target: &Target, problem: &Problem) -> Result<(), Vec<Refusal>> {
    let mut refusals = Vec::new();
    for candidate in candidates(target, problem, &CompileOptions::default()) {
        match candidate {
            Ok(_) => return Ok(()),
            Err(refusal) => refusals.push(refusal),
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
    let load = |solver: &dyn Solver| {
        obtain(solver, problem, target.info(), |binary| solver.load(problem, device, binary))
    };
    let (executable, refusals) = first(target, problem, options, load)?;
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
    let (executable, refusals) =
        first(target, problem, &options, |solver| solver.load(problem, device, binary))?;
    Ok(Built { executable, refusals: refusals.into(), chosen: Chosen::Requested })
}

/// Chooses a solver and compiles for the target, which needs no device.
pub(crate) fn compile(
    target: &Target,
    problem: &Problem,
    options: &CompileOptions,
) -> Result<(&'static dyn Solver, Binary), CompileError> {
    let compile = |solver: &'static dyn Solver| {
        Ok((solver, obtain(solver, problem, target.info(), |binary| Ok(binary.clone()))?))
    };
    Ok(first(target, problem, options, compile)?.0)
}

/// What `build` makes of the first solver that takes the problem, and why those before it were not taken. A solver
/// whose kernel does not compile is passed over, unless it was asked for.
fn first<T>(
    target: &Target,
    problem: &Problem,
    options: &CompileOptions,
    build: impl Fn(&'static dyn Solver) -> Result<T, BuildError>,
) -> Result<(T, Vec<Refusal>), CompileError> {
    if let Some(id) = &options.solver {
        let known: Vec<_> = target.backend.solvers().iter().map(|solver| solver.id()).collect();
        if !known.contains(&id.as_str()) {
            let (backend, known) = (target.info().backend, known.join(", "));
            return Err(CompileError::UnknownSolver { backend, id: id.clone(), known });
        }
    }
    let (mut refusals, mut failure) = (Vec::new(), None);
    for candidate in candidates(target, problem, options) {
        let solver = match candidate {
            Ok(solver) => solver,
            Err(refusal) => {
                refusals.push(refusal);
                continue;
            }
        };
        match build(solver) {
            Ok(built) => return Ok((built, refusals)),
            Err(BuildError::Compiler { solver, log }) if options.solver.is_none() => {
                tracing::warn!(target: "fuseplan::select", "{solver} is passed over, its kernel does not compile: {log}");
                let found = format!("one that does not compile: {}", log.trim_end());
                refusals.push(Refusal { solver, property: "kernel", accepts: "one that compiles", found });
                failure.get_or_insert(BuildError::Compiler { solver, log });
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(match failure {
        Some(failure) => failure.into(),
        None => CompileError::NoSolver { device: target.to_string(), chain: problem.chain(), refusals },
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

#[cfg(test)]
mod tests {
    use fuseplan_api::null::NullBackend;
    use fuseplan_api::{Algorithm, Backend, BackendError, Constraint, Discovery};

    use super::*;
    use crate::{ActivationForward, ActivationMode, DataType, FusionDirection, FusionPlan, TensorDescriptor};

    /// Solvers of which some have kernels that do not compile.
    #[derive(Debug)]
    struct Partly(&'static [&'static dyn Solver]);

    #[derive(Debug)]
    struct Stub {
        id: &'static str,
        compiles: bool,
    }

    static BROKEN: Stub = Stub { id: "stub.broken.v1", compiles: false };
    static WORSE: Stub = Stub { id: "stub.worse.v1", compiles: false };
    static SOUND: Stub = Stub { id: "stub.sound.v1", compiles: true };

    impl Backend for Partly {
        fn name(&self) -> &'static str {
            "stub"
        }

        fn discover(&self) -> Discovery {
            NullBackend.discover()
        }

        fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, BackendError> {
            NullBackend.open(ordinal)
        }

        fn target(&self, arch: &str) -> Result<DeviceInfo, BackendError> {
            NullBackend.target(arch)
        }

        fn solvers(&self) -> &'static [&'static dyn Solver] {
            self.0
        }
    }

    impl Solver for Stub {
        fn id(&self) -> &'static str {
            self.id
        }

        fn algorithm(&self) -> Algorithm {
            Algorithm::ElementWise
        }

        fn constraints(&self) -> &'static [Constraint] {
            &[]
        }

        fn compile(&self, _problem: &Problem, target: &DeviceInfo) -> Result<Binary, BuildError> {
            if !self.compiles {
                return Err(BuildError::Compiler { solver: self.id, log: format!("line 1 of {}", self.id) });
            }
            Ok(Binary { solver: self.id.into(), arch: target.arch.clone(), bytes: Vec::new() })
        }

        fn load(
            &self,
            problem: &Problem,
            device: &Arc<dyn Device>,
            binary: &Binary,
        ) -> Result<Arc<dyn Executable>, BuildError> {
            NullBackend.solvers()[0].load(problem, device, binary)
        }
    }

    fn problem() -> Problem {
        let x = TensorDescriptor::nchw(DataType::Float, [1, 1, 2, 2]).unwrap();
        let mut plan = FusionPlan::new(FusionDirection::Vertical, x).unwrap();
        plan.append(ActivationForward::new(ActivationMode::Relu)).unwrap();
        plan.problem()
    }

    fn build_on(backend: &'static Partly, options: &CompileOptions) -> Result<Built, CompileError> {
        let target = Target::of(backend, NullBackend.target("").unwrap());
        let compiled = compile(&target, &problem(), options).map(|(solver, _)| solver.id());
        let built = build(&target, &NullBackend.open(0).unwrap(), &problem(), options);
        match &built {
            Ok(_) => assert_eq!(compiled, Ok("stub.sound.v1")),
            Err(error) => assert_eq!(compiled, Err(error.clone())),
        }
        built
    }

    #[test]
    fn a_kernel_that_does_not_compile_leaves_the_plan_to_the_next_solver() {
        static BACKEND: Partly = Partly(&[&BROKEN, &SOUND]);
        let options = CompileOptions::default();
        let built = build_on(&BACKEND, &options).unwrap();
        assert_eq!(built.chosen, Chosen::Preferred);
        let refusals: Vec<_> = built.refusals.iter().map(ToString::to_string).collect();
        assert_eq!(
            refusals,
            [
                "stub.broken.v1: kernel is one that does not compile: line 1 of stub.broken.v1, accepted: one that compiles"
            ]
        );
        // Who asks for it is told.
        let error = build_on(&BACKEND, &options.clone().with_solver("stub.broken.v1")).unwrap_err();
        assert!(
            matches!(error, CompileError::Build(BuildError::Compiler { solver: "stub.broken.v1", .. })),
            "{error}"
        );
        static ALL_BROKEN: Partly = Partly(&[&BROKEN, &WORSE]);
        let error = build_on(&ALL_BROKEN, &options).unwrap_err();
        assert!(
            matches!(error, CompileError::Build(BuildError::Compiler { solver: "stub.broken.v1", .. })),
            "{error}"
        );
    }
}

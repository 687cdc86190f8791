//! From a problem to an executable, the one path on which everything is built:
//!
//! 1. The executables of the device that were built before ([`Cache`](crate::cache::Cache)), by problem and options.
//! 2. The choice of a solver and its configuration: the first by estimates and order ([`choice`](crate::choice)), or the
//!    fastest by times that are stored or measured now ([`find`](crate::find)).
//! 3. Its binary, from the disk or compiled and stored there, loaded on the device ([`stored`](crate::stored)).

mod error;

use std::cell::Cell;
use std::sync::Arc;

use fuseplan_api::{Binary, BuildError, Candidate, Device, Problem, Refusal, Solver};

pub use error::CompileError;

use crate::cache;
use crate::choice::{self, Able, Built, Chosen};
use crate::context::Context;
use crate::env;
use crate::find;
use crate::handle::Handle;
use crate::observe::{Outcome, Source};
use crate::options::{CompileOptions, FindMode};
use crate::stored;
use crate::target::Target;

/// The executable of a problem on an opened device, which is built if it is asked for for the first time.
pub(crate) fn build(
    context: &Arc<Context>,
    problem: &Problem,
    options: &CompileOptions,
) -> Result<Built, CompileError> {
    let find = find_mode(options);
    let options = CompileOptions { find: Some(find), ..options.clone() };
    let is_new = Cell::new(false);
    let built = context.built().get_or_build((problem.clone(), options.clone()), || {
        is_new.set(true);
        if options.solver.is_none() && find == FindMode::Normal {
            // On a stream of its own, which nothing else waits for.
            let handle = Handle::on(context.clone());
            let found = handle.ok().and_then(|handle| find::fastest(&handle, problem, cache::disk()));
            if let Some(built) = found {
                return Ok(built);
            }
        }
        choose(context.target(), context.device(), problem, &options)
    })?;
    let source = if is_new.get() { built.source } else { Source::Memory };
    Ok(Built { source, ..built })
}

/// What compiling a problem is expected to take, in no unit: the length of the text of the binary that is chosen by estimates;
/// 0 of what was built before, and where nothing is compiled. It is not asked whether the disk has it.
pub(crate) fn effort(context: &Context, problem: &Problem, options: &CompileOptions) -> usize {
    let key = (problem.clone(), CompileOptions { find: Some(find_mode(options)), ..options.clone() });
    if context.built().has(&key) {
        return 0;
    }
    let target = context.target();
    let text = || {
        let (ranked, _) = choice::ranked(target, problem, options.solver.as_deref());
        let first = ranked.first()?;
        let Candidate { configuration, .. } = first.candidates(problem, target).into_iter().next()?;
        first.solver.cache_key(problem, target.info(), &configuration)
    };
    text().map_or(0, |text| text.len())
}

/// How kernels are found: as the options say, else the environment.
pub(crate) fn find_mode(options: &CompileOptions) -> FindMode {
    options.find.or_else(env::find_mode).unwrap_or(FindMode::Fast)
}

/// Chooses a solver and its configuration by estimates and order, and builds its executable on the device.
pub(crate) fn choose(
    target: &Target,
    device: &Arc<dyn Device>,
    problem: &Problem,
    options: &CompileOptions,
) -> Result<Built, CompileError> {
    let chosen = if options.solver.is_some() { Chosen::Requested } else { Chosen::Preferred };
    let build = |able: &Able| {
        let Some(Candidate { configuration, .. }) = able.candidates(problem, target).into_iter().next()
        else {
            return Ok(None);
        };
        let (executable, source) = stored::executable(able.solver, &configuration, problem, device)?;
        Ok(Some((able.solver.id(), executable, source)))
    };
    let first = first(target, problem, options.solver.as_deref(), build)?;
    let (solver, executable, source) = first.made;
    let refusals = choice::before(first.refusals, solver, target);
    Ok(Built { executable, source, chosen, refusals, failures: first.failures.into() })
}

/// A solver's binary.
pub(crate) struct Compiled {
    pub(crate) solver: &'static dyn Solver,
    pub(crate) binary: Binary,
    source: Source,
}

impl Outcome for Compiled {
    fn solver(&self) -> &'static str {
        self.solver.id()
    }

    fn source(&self) -> Source {
        self.source
    }
}

/// Chooses a solver and its configuration and compiles for the target, which needs no device.
pub(crate) fn compile(
    target: &Target,
    problem: &Problem,
    options: &CompileOptions,
) -> Result<Compiled, CompileError> {
    let compile = |able: &Able| {
        let solver = able.solver;
        let Some(candidate) = able.candidates(problem, target).into_iter().next() else { return Ok(None) };
        let copy = |binary: &Binary| Ok(binary.clone());
        let (binary, source) =
            stored::obtain(solver, &candidate.configuration, problem, target.info(), copy)?;
        Ok(Some(Compiled { solver, binary, source }))
    };
    Ok(first(target, problem, options.solver.as_deref(), compile)?.made)
}

/// Loads a binary of a solver on the device, if the solver takes the problem there.
pub(crate) fn load(context: &Context, problem: &Problem, binary: &Binary) -> Result<Built, CompileError> {
    let load = |able: &Able| able.solver.load(problem, context.device(), binary).map(Some);
    let executable = first(context.target(), problem, Some(&binary.solver), load)?.made;
    let (refusals, failures) = (Arc::default(), Arc::default());
    Ok(Built { executable, source: Source::Given, chosen: Chosen::Requested, refusals, failures })
}

/// What was made of the first solver whose kernel compiles, and why others were not taken.
struct First<T> {
    made: T,
    refusals: Vec<Refusal>,
    failures: Vec<BuildError>,
}

/// What `make` makes of the first solver in the ranking of which it makes anything. A solver whose kernel does not
/// compile is passed over, unless it was asked for by its id.
fn first<T>(
    target: &Target,
    problem: &Problem,
    id: Option<&str>,
    make: impl Fn(&Able) -> Result<Option<T>, BuildError>,
) -> Result<First<T>, CompileError> {
    if let Some(id) = id {
        let known: Vec<_> = target.backend.solvers().iter().map(|solver| solver.id()).collect();
        if !known.contains(&id) {
            let (backend, known) = (target.info().backend, known.join(", "));
            return Err(CompileError::UnknownSolver { backend, id: id.into(), known });
        }
    }
    let (ranked, refusals) = choice::ranked(target, problem, id);
    let mut failures = Vec::new();
    for able in &ranked {
        match make(able) {
            Ok(Some(made)) => return Ok(First { made, refusals, failures }),
            Ok(None) => (),
            Err(error @ BuildError::Compiler { .. }) if id.is_none() => {
                tracing::warn!(target: "fuseplan::select", "a solver is passed over: {error}");
                failures.push(error);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(match failures.into_iter().next() {
        Some(failure) => failure.into(),
        None => CompileError::NoSolver { device: target.to_string(), chain: problem.chain(), refusals },
    })
}

#[cfg(test)]
mod tests {
    use fuseplan_api::Backend;
    use fuseplan_fakes::{FakeBackend, FakeSolver};

    use super::*;
    use crate::{ActivationForward, ActivationMode, DataType, FusionPlan, TensorDescriptor};

    static BROKEN: FakeSolver = broken("fake.broken.v1");
    static WORSE: FakeSolver = broken("fake.worse.v1");
    static SOUND: FakeSolver = FakeSolver::new("fake.sound.v1");

    const fn broken(id: &'static str) -> FakeSolver {
        FakeSolver { compile: |_| Err("line 1 is wrong".into()), ..FakeSolver::new(id) }
    }

    const fn backend(solvers: &'static [&'static dyn Solver]) -> FakeBackend {
        FakeBackend { name: "fake", arch: "fake_90", toolchain: "", solvers }
    }

    fn problem() -> Problem {
        let x = TensorDescriptor::nchw(DataType::Float, [1, 1, 2, 2]).unwrap();
        let mut plan = FusionPlan::new(x).unwrap();
        plan.append(ActivationForward::new(ActivationMode::Relu)).unwrap();
        plan.problem()
    }

    fn build_on(backend: &'static FakeBackend, options: &CompileOptions) -> Result<Built, CompileError> {
        let target = Target::of(backend, backend.info());
        let compiled = compile(&target, &problem(), options).map(|compiled| compiled.solver.id());
        let built = choose(&target, &backend.open(0).unwrap(), &problem(), options);
        match &built {
            Ok(_) => assert_eq!(compiled, Ok("fake.sound.v1")),
            Err(error) => assert_eq!(compiled, Err(error.clone())),
        }
        built
    }

    #[test]
    fn the_effort_is_the_length_of_the_first_solvers_text() {
        static TEXT: FakeSolver =
            FakeSolver { cache_key: |problem| Some(vec![0; problem.input.lens()[3]]), ..SOUND };
        static BACKEND: FakeBackend = backend(&[&TEXT, &BROKEN]);
        let handle = Handle::of(&BACKEND, BACKEND.open(0).unwrap()).unwrap();
        let asked = |options: &CompileOptions| effort(handle.context(), &problem(), options);
        assert_eq!(asked(&CompileOptions::default()), 2);
        // Nothing is built of what was asked.
        assert_eq!(asked(&CompileOptions::default()), 2);
        for nothing in ["fake.broken.v1", "fake.unknown.v1"] {
            assert_eq!(asked(&CompileOptions::default().with_solver(nothing)), 0);
        }
    }

    #[test]
    fn a_kernel_that_does_not_compile_leaves_the_plan_to_the_next_solver() {
        static BACKEND: FakeBackend = backend(&[&BROKEN, &SOUND]);
        let options = CompileOptions::default();
        let built = build_on(&BACKEND, &options).unwrap();
        assert_eq!(built.chosen, Chosen::Preferred);
        assert!(built.refusals.is_empty());
        let failures: Vec<_> = built.failures.iter().map(ToString::to_string).collect();
        assert_eq!(failures, ["fake.broken.v1: the kernel does not compile: line 1 is wrong"]);
        // Who asks for it is told.
        let error = build_on(&BACKEND, &options.clone().with_solver("fake.broken.v1")).unwrap_err();
        assert!(
            matches!(error, CompileError::Build(BuildError::Compiler { solver: "fake.broken.v1", .. })),
            "{error}"
        );
        static ALL_BROKEN: FakeBackend = backend(&[&BROKEN, &WORSE]);
        let error = build_on(&ALL_BROKEN, &options).unwrap_err();
        assert!(
            matches!(error, CompileError::Build(BuildError::Compiler { solver: "fake.broken.v1", .. })),
            "{error}"
        );
    }
}

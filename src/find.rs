//! Find mode: of every solver that can compute a plan the first configurations by its estimates are timed, the fastest
//! is taken, and what was found is stored beside the binaries, so that it is timed once for a device and not once for a
//! process.

mod operands;

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuseplan_api::{
    BackendError, Configuration, DeviceInfo, Executable, Graph, Problem, RawStream, Refusal, RunArgs,
    RunError, Solver, in_order_of,
};
use thiserror::Error;

use crate::buffer::Block;
use crate::cache::{Disk, Subject};
use crate::choice::{self, Able, Built, Chosen, Measured};
use crate::handle::Handle;
use crate::observe::Source;
use crate::several::{processors, several};
use crate::stored;
use operands::Scratch;

/// How long a solver is timed, but for one first execution.
const BUDGET: Duration = Duration::from_millis(100);

/// The most rounds, of which the fastest counts.
const ROUNDS: usize = 5;

/// Executions of a round, of kernels that take less than [`SHORT`]: one graph of the device's driver, where it has such, so that of
/// what the host takes for a launch, which may be longer than a kernel, only an eighth is counted.
const BURST: u32 = 8;
/// How times are taken, in words: those that were taken in another way are not found.
const TIMED: &str = "the least of 5 rounds, short ones a graph of 8";
const SHORT: Duration = Duration::from_millis(1);

/// The solvers of which several configurations are timed: the first in the ranking; of others one.
const SEVERAL: usize = 2;
/// Configurations of each that are timed.
const CONFIGURATIONS: usize = 4;

/// A solver that needs this many times the fastest's time at first is not timed further.
const HOPELESS: u32 = 4;

/// Why there is no fastest solver, or why one was not timed.
#[derive(Debug, Error)]
enum FindError {
    /// There is no memory for operands, or the device refuses them.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A kernel does not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Nothing could be built and timed.
    #[error("no solver could be timed")]
    NothingTimed,
    /// Stored times are of solvers or configurations that are not those of the problem.
    #[error("the stored times name other solvers or configurations")]
    OtherTrials,
}

/// An executable, and where its binary comes from.
type Loaded = (Arc<dyn Executable>, Source);

/// A solver in one of its configurations.
struct Trial {
    solver: &'static dyn Solver,
    configuration: Configuration,
}

impl Trial {
    fn is_of(&self, measured: &Measured) -> bool {
        self.solver.id() == measured.solver && self.configuration == measured.configuration
    }
}

/// The fastest executable; `None` where there is nothing to choose from, or timing failed: then the estimates decide.
pub(crate) fn fastest(handle: &Handle, problem: &Problem, disk: Option<&Disk>) -> Option<Built> {
    let (trials, refusals) = trials(handle, problem);
    if trials.len() < 2 {
        return None;
    }
    let load = |stored: &[u8]| parse(stored, &trials).ok_or(FindError::OtherTrials);
    let (target, device) = (handle.target(), handle.context().device());
    let subject = subject(target.info(), problem, &trials);
    let build = |times: Vec<Measured>, stored: bool, (executable, source): Loaded| {
        let refusals = choice::before(refusals, times[0].solver, target);
        let chosen = Chosen::Measured { times, stored };
        Some(Built { executable, source, chosen, refusals, failures: Arc::default() })
    };
    if let Some(times) = disk.and_then(|disk| disk.find(&subject, load)) {
        let Trial { solver, configuration } = trials.iter().find(|trial| trial.is_of(&times[0]))?;
        let executable = stored::executable(*solver, configuration, problem, device).ok()?;
        return build(times, true, executable);
    }
    // Before the lock of those who time: compiling has locks of its own, and whoever waited for one while holding
    // the other could wait for somebody who does the same.
    let executables = load_all(handle, problem, &trials);
    let measured = Cell::new(false);
    let measure = || {
        measured.set(true);
        Ok(format(&time_all(handle, problem, &executables)?))
    };
    let found = match disk {
        Some(disk) => disk.get_or_build(&subject, load, measure),
        None => measure().and_then(|times| load(&times)),
    };
    match found {
        Ok(times) => {
            let (_, fastest) = executables.into_iter().find(|(trial, _)| trial.is_of(&times[0]))?;
            build(times, !measured.get(), fastest)
        }
        Err(error) => {
            tracing::warn!(target: "fuseplan::find", "nothing can be timed, the estimates decide: {error}");
            None
        }
    }
}

/// The fastest solver's time of a problem; `None` where no solver takes it, or no kernel of those that do runs.
///
/// # Errors
/// The device refuses, or has no memory for the operands.
pub(crate) fn least_time(handle: &Handle, problem: &Problem) -> Result<Option<Measured>, BackendError> {
    let (trials, _) = trials(handle, problem);
    match time_all(handle, problem, &load_all(handle, problem, &trials)) {
        Ok(times) => Ok(times.into_iter().next()),
        Err(FindError::Backend(error)) => Err(error),
        Err(FindError::Run(_) | FindError::NothingTimed | FindError::OtherTrials) => Ok(None),
    }
}

/// What is timed: of the first solvers in the ranking some configurations, of every other solver that can compute the
/// problem one, those of the smallest estimates. A reference counts where it is the only one.
fn trials(handle: &Handle, problem: &Problem) -> (Vec<Trial>, Vec<Refusal>) {
    let (mut able, refusals) = choice::ranked(handle.target(), problem, None);
    if able.iter().any(|able| !able.solver.is_reference()) {
        able.retain(|able| !able.solver.is_reference());
    }
    let of = |(rank, able): (usize, &Able)| {
        let count = if rank < SEVERAL && able.reservation.is_none() { CONFIGURATIONS } else { 1 };
        let solver = able.solver;
        let candidates = able.candidates(problem, handle.target()).into_iter().take(count);
        candidates.map(move |candidate| Trial { solver, configuration: candidate.configuration })
    };
    (able.iter().enumerate().flat_map(of).collect(), refusals)
}

/// What the times of these trials are stored as.
fn subject(device: &DeviceInfo, problem: &Problem, trials: &[Trial]) -> Subject {
    let words = trials.iter().map(|trial| format!("{} {}\n", trial.solver.id(), trial.configuration));
    Subject::found(device, problem, &format!("{TIMED}\n{}", words.collect::<String>()))
}

/// The executables of those that can be built. Compilers work beside each other; nothing is timed meanwhile.
fn load_all<'a>(handle: &Handle, problem: &Problem, trials: &'a [Trial]) -> Vec<(&'a Trial, Loaded)> {
    let device = handle.context().device();
    let built = several(trials, processors(), |trial| {
        stored::executable(trial.solver, &trial.configuration, problem, device)
    });
    let mut executables = Vec::new();
    for (trial, built) in trials.iter().zip(built) {
        match built {
            Ok(executable) => executables.push((trial, executable)),
            Err(error) => tracing::warn!(target: "fuseplan::find", "not timed: {error}"),
        }
    }
    executables
}

/// The times of those that run, the fastest first.
fn time_all(
    handle: &Handle,
    problem: &Problem,
    executables: &[(&Trial, Loaded)],
) -> Result<Vec<Measured>, FindError> {
    let scratch = Scratch::new(handle, problem)?;
    let mut times: Vec<Measured> = Vec::new();
    for (Trial { solver, configuration }, (executable, _)) in executables {
        let solver = solver.id();
        let best = times.iter().map(|measured| measured.time).min();
        match time(handle, &scratch, &**executable, best) {
            Ok(time) => {
                tracing::debug!(target: "fuseplan::find", solver, %configuration, ?time, %problem);
                times.push(Measured { solver, configuration: configuration.clone(), time });
            }
            Err(error) => {
                tracing::warn!(target: "fuseplan::find", "{solver} {configuration} is not timed: {error}");
            }
        }
    }
    let times = in_order_of(times, |measured| measured.time.as_secs_f64());
    if times.is_empty() { Err(FindError::NothingTimed) } else { Ok(times) }
}

/// The time of an execution on the device; a rough one if it is hopeless beside `best`.
fn time(
    handle: &Handle,
    scratch: &Scratch,
    executable: &dyn Executable,
    best: Option<Duration>,
) -> Result<Duration, FindError> {
    let workspace = Block::new(handle, executable.info().workspace)?;
    let args = RunArgs {
        input: scratch.input.address(),
        output: scratch.output.address(),
        ops: &scratch.ops,
        workspace: workspace.address(),
    };
    let run = |stream: RawStream, executions: u32| {
        for _ in 0..executions {
            // SAFETY: memory of the handle's device, as large as the problem's descriptors say, apart from one another, and kept
            // until `time` has waited for the stream.
            unsafe { executable.run(stream, &args) }?;
        }
        Ok::<_, RunError>(())
    };
    let time = |work: &dyn Fn() -> Result<(), RunError>| {
        let (time, result) = handle.time(work)?;
        result.map(|()| time).map_err(FindError::Run)
    };
    // The first one prepares weights and wakes the device.
    let first = time(&|| run(handle.stream(), 1))?;
    if best.is_some_and(|best| first > best * HOPELESS && first > SHORT) {
        return Ok(first);
    }
    let executions = if first < SHORT { BURST } else { 1 };
    let captured = || {
        let graph = Graph::capture(&**handle.context().device(), |stream| run(stream.raw(), executions));
        let launched = graph.and_then(|graph| Ok(graph.instantiate()?));
        let tell = |error| tracing::debug!(target: "fuseplan::find", "timed without a graph: {error}");
        launched.map_err(tell).ok()
    };
    let graph = (executions > 1).then(captured).flatten();
    let round = || match &graph {
        // SAFETY: as for an execution; the stream is the device's.
        Some(graph) => Ok(unsafe { graph.launch(handle.stream()) }?),
        None => run(handle.stream(), executions),
    };
    let (start, mut fastest) = (Instant::now(), first);
    for _ in 0..ROUNDS {
        fastest = fastest.min(time(&round)? / executions);
        if start.elapsed() > BUDGET {
            break;
        }
    }
    Ok(fastest)
}

/// A line for each: nanoseconds, the solver's id, the configuration.
fn format(times: &[Measured]) -> Vec<u8> {
    let line = |Measured { solver, configuration, time }: &Measured| {
        format!("{} {solver} {configuration}\n", time.as_nanos())
    };
    times.iter().map(line).collect::<String>().into_bytes()
}

/// What [`format`] wrote, if it names at least one trial and nothing but trials.
fn parse(bytes: &[u8], trials: &[Trial]) -> Option<Vec<Measured>> {
    let line = |line: &str| {
        let (nanoseconds, rest) = line.split_once(' ')?;
        let (solver, words) = rest.split_once(' ')?;
        let mut trials = trials.iter();
        let trial =
            trials.find(|trial| trial.solver.id() == solver && trial.configuration.as_str() == words)?;
        Some(Measured {
            solver: trial.solver.id(),
            configuration: trial.configuration.clone(),
            time: Duration::from_nanos(nanoseconds.parse().ok()?),
        })
    };
    let times: Vec<_> = std::str::from_utf8(bytes).ok()?.lines().map(line).collect::<Option<_>>()?;
    (!times.is_empty()).then_some(times)
}

#[cfg(test)]
mod tests;

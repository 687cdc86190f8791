//! Find mode: every solver that takes a plan is timed, the fastest is taken, and what was found is stored
//! beside the binaries, so that it is timed once for a device and not once for a process.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuseplan_api::{
    ActivationParams, Binary, BuildError, Executable, Op, OpArgs, OpArgsKind, Prepared, Problem, Refusal,
    RunArgs, RunError, Solver,
};

use crate::args::place;
use crate::buffer::{Block, CHUNK};
use crate::cache::{Disk, FIND, Subject};
use crate::execute::operands;
use crate::handle::Handle;
use crate::select::{self, Built, Chosen};

/// How long a solver is timed, but for one first execution.
const BUDGET: Duration = Duration::from_millis(100);

/// The most rounds, of which the fastest counts.
const ROUNDS: usize = 5;

/// Executions of a round, of kernels that take less than [`SHORT`].
const BURST: u32 = 8;
const SHORT: Duration = Duration::from_millis(1);

/// A solver that needs this many times the fastest's time at first is not timed further.
const HOPELESS: u32 = 4;

/// The fastest solver's executable; `None` where there is nothing to choose from, or timing failed: then
/// the order of preference decides.
pub(crate) fn fastest(handle: &Handle, problem: &Problem, disk: Option<&Disk>) -> Option<Built> {
    let (solvers, refusals) = candidates(handle, problem);
    if solvers.len() < 2 {
        return None;
    }
    let ids: Vec<_> = solvers.iter().map(|solver| solver.id()).collect();
    let load = |binary: &Binary| {
        parse(&binary.bytes, &ids)
            .ok_or_else(|| BuildError::Binary { solver: FIND, reason: "it names other solvers".into() })
    };
    let info = handle.device_info();
    let subject = Subject::found(info, problem, &ids);
    let build = |times: Times, stored: bool, executable: Arc<dyn Executable>| {
        Some(Built { executable, refusals: refusals.into(), chosen: Chosen::Measured { times, stored } })
    };
    if let Some(times) = disk.and_then(|disk| disk.find(&subject, load)) {
        let solver = *solvers.iter().find(|solver| solver.id() == times[0].0)?;
        return build(times, true, select::load_stored(handle, solver, problem).ok()?);
    }
    // Before the lock of those who time: compiling has locks of its own, and whoever waited for one while holding
    // the other could wait for somebody who does the same.
    let executables = load_all(handle, problem, &solvers);
    let timed = Cell::new(false);
    let measure = || {
        timed.set(true);
        let times = time_all(handle, problem, &executables)?;
        Ok(Binary { solver: FIND.into(), arch: info.arch.clone(), bytes: format(&times) })
    };
    let found = match disk {
        Some(disk) => disk.get_or_build(&subject, load, measure),
        None => measure().and_then(|binary| load(&binary)),
    };
    match found {
        Ok(times) => {
            let fastest =
                executables.into_iter().find(|executable| executable.info().solver == times[0].0)?;
            build(times, !timed.get(), fastest)
        }
        Err(error) => {
            tracing::warn!(target: "fuseplan::find", "solvers cannot be timed, the preferred one is taken: {error}");
            None
        }
    }
}

/// The solvers that take the problem, and why others do not. The last of a backend, which takes everything
/// and is nobody's choice, counts where it is the only one.
fn candidates(handle: &Handle, problem: &Problem) -> (Vec<&'static dyn Solver>, Vec<Refusal>) {
    let (mut solvers, mut refusals) = (Vec::new(), Vec::new());
    for &solver in handle.target().backend.solvers() {
        match solver.applies(problem, handle.device_info()) {
            Ok(()) => solvers.push(solver),
            Err(refusal) => refusals.push(refusal),
        }
    }
    let last = handle.target().backend.solvers().last().map(|solver| solver.id());
    if solvers.len() > 1 {
        solvers.retain(|solver| Some(solver.id()) != last);
    }
    (solvers, refusals)
}

/// Solvers by time, the fastest first.
type Times = Vec<(&'static str, Duration)>;

/// The executables of those solvers that can be built.
fn load_all(handle: &Handle, problem: &Problem, solvers: &[&'static dyn Solver]) -> Vec<Arc<dyn Executable>> {
    let load = |solver: &&'static dyn Solver| {
        let loaded = select::load_stored(handle, *solver, problem);
        loaded.inspect_err(|error| not_timed(solver.id(), error)).ok()
    };
    solvers.iter().filter_map(load).collect()
}

/// The times of those that run.
fn time_all(
    handle: &Handle,
    problem: &Problem,
    executables: &[Arc<dyn Executable>],
) -> Result<Times, BuildError> {
    let scratch = Scratch::new(handle, problem)?;
    let mut times = Times::new();
    for executable in executables {
        let solver = executable.info().solver;
        let best = times.iter().map(|(_, time)| *time).min();
        match scratch.time(handle, &**executable, best) {
            Ok(time) => {
                tracing::debug!(target: "fuseplan::find", solver, ?time, %problem);
                times.push((solver, time));
            }
            Err(error) => not_timed(solver, &error),
        }
    }
    times.sort_by_key(|(_, time)| *time);
    if times.is_empty() {
        return Err(BuildError::Binary { solver: FIND, reason: "no solver could be timed".into() });
    }
    Ok(times)
}

fn not_timed(solver: &str, error: &BuildError) {
    tracing::warn!(target: "fuseplan::find", "{solver} is not timed: {error}");
}

/// A line for each solver: its id and nanoseconds.
fn format(times: &Times) -> Vec<u8> {
    let lines = times.iter().map(|(solver, time)| format!("{solver} {}\n", time.as_nanos()));
    lines.collect::<String>().into_bytes()
}

/// What [`format`] wrote, if it names at least one solver and none but `ids`.
fn parse(bytes: &[u8], ids: &[&'static str]) -> Option<Times> {
    let line = |line: &str| {
        let (solver, nanoseconds) = line.split_once(' ')?;
        let id = ids.iter().find(|id| **id == solver)?;
        Some((*id, Duration::from_nanos(nanoseconds.parse().ok()?)))
    };
    let times: Times = std::str::from_utf8(bytes).ok()?.lines().map(line).collect::<Option<_>>()?;
    (!times.is_empty()).then_some(times)
}

/// Operands of a problem, of small positive numbers.
struct Scratch {
    input: Block,
    output: Block,
    ops: Vec<OpArgs>,
    /// What `ops` point to.
    _operands: Vec<Block>,
}

impl Scratch {
    fn new(handle: &Handle, problem: &Problem) -> Result<Self, BuildError> {
        let block = |bytes: usize| {
            let block = Block::new(handle, bytes)?;
            block.fill(&pattern(), handle).map(|()| block)
        };
        let (mut ops, mut all) = (Vec::new(), Vec::new());
        for op in &problem.ops {
            let mut addresses = Vec::new();
            for spec in operands(op, &problem.output) {
                // What must be absent is null.
                addresses.push(if spec.is_absent() {
                    std::ptr::null_mut()
                } else {
                    all.push(block(spec.descriptor().bytes())?);
                    all[all.len() - 1].address()
                });
            }
            let mut kind = arguments(op);
            place(&mut kind, &addresses);
            ops.push(OpArgs { alpha: 1.0, beta: 0.0, kind });
        }
        let (input, output) = (block(problem.input.bytes())?, block(problem.output.bytes())?);
        Ok(Scratch { input, output, ops, _operands: all })
    }

    /// The time of an execution on the device; a rough one if it is hopeless beside `best`.
    fn time(
        &self,
        handle: &Handle,
        executable: &dyn Executable,
        best: Option<Duration>,
    ) -> Result<Duration, BuildError> {
        let workspace = Block::new(handle, executable.info().workspace)?;
        let args = RunArgs {
            input: self.input.address(),
            output: self.output.address(),
            ops: &self.ops,
            workspace: workspace.address(),
        };
        let time = |executions: u32| {
            let work = || {
                for _ in 0..executions {
                    // SAFETY: memory of the handle's device, as large as the problem's descriptors say, apart
                    // from one another, and kept until `time` has waited for the stream.
                    unsafe { executable.run(handle.stream(), &args) }?;
                }
                Ok(())
            };
            let (time, result) = handle.time(work)?;
            result.map(|()| time / executions)
        };
        let failed = |error: RunError| match error {
            RunError::Backend(error) => BuildError::Backend(error),
            other => BuildError::Binary { solver: executable.info().solver, reason: other.to_string() },
        };
        // The first one prepares weights and wakes the device.
        let first = time(1).map_err(failed)?;
        if best.is_some_and(|best| first > best * HOPELESS && first > SHORT) {
            return Ok(first);
        }
        let executions = if first < SHORT { BURST } else { 1 };
        let (start, mut fastest) = (Instant::now(), first);
        for _ in 0..ROUNDS {
            fastest = fastest.min(time(executions).map_err(failed)?);
            if start.elapsed() > BUDGET {
                break;
            }
        }
        Ok(fastest)
    }
}

/// Bytes of small positive numbers in f32, f16 and bf16 alike: their exponents are in every second byte.
fn pattern() -> [u8; CHUNK] {
    let mut state = 1u32;
    std::array::from_fn(|at| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if at % 2 == 1 { 0x3C } else { (state >> 24) as u8 }
    })
}

/// Arguments of an operator, its pointers null.
fn arguments(op: &Op) -> OpArgsKind {
    let (read, written) = (std::ptr::null(), std::ptr::null_mut());
    let params = ActivationParams::new(0.5, 0.5, 0.5);
    let epsilon = 1e-5;
    match op {
        Op::ConvForward { .. } => OpArgsKind::ConvForward {
            weights: std::ptr::null(),
            prepared: Some(Arc::new(Prepared::default())),
        },
        Op::BiasForward { .. } => OpArgsKind::BiasForward { bias: std::ptr::null() },
        Op::BatchNormInference { .. } => {
            OpArgsKind::BatchNormInference { scale: read, bias: read, mean: read, variance: read, epsilon }
        }
        Op::ActivationForward { .. } => OpArgsKind::ActivationForward { params },
        Op::BatchNormForward { .. } => OpArgsKind::BatchNormForward {
            scale: read,
            bias: read,
            saved_mean: written,
            saved_inv_variance: written,
            running_mean: written,
            running_variance: written,
            exp_avg_factor: 0.5,
            epsilon,
        },
        Op::BatchNormBackward { .. } => OpArgsKind::BatchNormBackward {
            x: std::ptr::null(),
            scale: read,
            bias: read,
            scale_diff: written,
            bias_diff: written,
            saved_mean: read,
            saved_inv_variance: read,
        },
        Op::ActivationBackward { .. } => OpArgsKind::ActivationBackward { y: std::ptr::null(), params },
        _ => OpArgsKind::Unset,
    }
}

#[cfg(test)]
mod tests;

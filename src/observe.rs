//! What is said of compiles and executions while they happen: events of `tracing` and ranges of profilers. Where nobody
//! wants to know, an execution pays for two relaxed loads.

use std::fmt;
use std::time::Instant;

use tracing::Level;

use crate::build::CompileError;
use crate::log;
use crate::options::{CompileOptions, FindMode};
use crate::plan::{CompiledPlan, FusionPlan};
use crate::ranges::{self, Range};
use crate::target::Target;

/// Where a kernel comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// It was built in this process before.
    Memory,
    /// Its binary was on disk.
    Disk,
    /// It was compiled now.
    Compiled,
    /// The caller brought its binary.
    Given,
    /// Its solver has nothing to compile.
    Solver,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Source::Memory => "memory",
            Source::Disk => "disk",
            Source::Compiled => "compiled",
            Source::Given => "given",
            Source::Solver => "solver",
        })
    }
}

/// What a compile came to.
pub(crate) trait Outcome {
    /// The id of the solver.
    fn solver(&self) -> &'static str;

    /// Where its kernel comes from.
    fn source(&self) -> Source;
}

/// Runs a compile: its command is said before, what it came to behind it.
pub(crate) fn compile<T: Outcome>(
    plan: &FusionPlan,
    target: &Target,
    options: &CompileOptions,
    compile: impl FnOnce() -> Result<T, CompileError>,
) -> Result<T, CompileError> {
    tracing::trace!(target: log::COMMANDS, "{}", Command { plan, target, options });
    let is_logged = tracing::event_enabled!(target: "fuseplan::compile", Level::INFO);
    let _range = ranges::are_on().then(|| Range::new(format!("compile {plan}")));
    let start = is_logged.then(Instant::now);
    let made = compile()?;
    if let Some(start) = start {
        let (solver, cache, microseconds) = (made.solver(), made.source(), microseconds(start));
        tracing::info!(target: "fuseplan::compile", solver, %cache, microseconds, device = %target, %plan, "compile");
    }
    Ok(made)
}

/// Runs an execution of a plan. Its time is that of the call: on a device with memory of its own that is the time of the
/// launch, since nothing is waited for that the caller does not wait for.
pub(crate) fn execution<E>(
    compiled: &CompiledPlan,
    execute: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    let is_logged = tracing::event_enabled!(target: "fuseplan::execute", Level::DEBUG);
    let is_ranged = ranges::are_on();
    if !is_logged && !is_ranged {
        return execute();
    }
    let (solver, plan) = (compiled.info().solver, compiled.plan());
    let _range = is_ranged.then(|| Range::new(format!("execute {solver} {plan}")));
    let start = Instant::now();
    execute()?;
    if is_logged {
        let microseconds = microseconds(start);
        tracing::debug!(target: "fuseplan::execute", solver, microseconds, %plan, "execute");
    }
    Ok(())
}

/// Microseconds since then, with one decimal.
fn microseconds(start: Instant) -> f64 {
    (start.elapsed().as_secs_f64() * 1e7).round() / 10.0
}

/// The command that compiles and runs a plan in the same way.
struct Command<'a> {
    plan: &'a FusionPlan,
    target: &'a Target,
    options: &'a CompileOptions,
}

/// `fuseplan run "f32 1x8x6x6 NCHW -> relu" --backend cpu`
impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.target.info();
        write!(f, "fuseplan run \"{}\" --backend {}", self.plan, info.backend)?;
        if info.ordinal > 0 {
            write!(f, " --device {}", info.ordinal)?;
        }
        match (&self.options.solver, self.options.find) {
            (Some(solver), _) => write!(f, " --solver {solver}"),
            (None, Some(FindMode::Normal)) => write!(f, " --find"),
            (None, Some(FindMode::Fast) | None) => Ok(()),
        }
    }
}

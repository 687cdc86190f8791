//! What the library says beside its results, for programs that have no subscriber of `tracing` themselves.
//!
//! | target | level | what |
//! |---|---|---|
//! | `fuseplan::compile` | info | each compile: solver, where its kernel comes from, microseconds, device, plan |
//! | `fuseplan::execute` | debug | each execution: solver, microseconds of the call, plan |
//! | [`COMMANDS`] | trace | the command that reproduces each plan, before it is compiled |
//! | [`CALLS`] | trace | each call of the C library |
//! | others, `fuseplan::…` | any | what is chosen, cached, found, and what is wrong |
//!
//! A plan is written as [text](crate::FusionPlan#text). On a device with memory of its own the time of an execution is
//! that of the launch, as nothing is waited for that the caller does not wait for.

mod json;
#[cfg_attr(unix, path = "log/unix.rs")]
#[cfg_attr(not(unix), path = "log/other.rs")]
#[allow(unsafe_code, reason = "the signal mask of a thread that writes")]
mod pipe;

use std::fmt::{Debug, Write as _};
use std::io::Write as _;
use std::sync::LazyLock;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

pub use tracing::Level;

use crate::env;

/// The target of events that are calls of an interface; `MIOPEN_ENABLE_LOGGING` asks for them.
pub const CALLS: &str = "fuseplan::calls";

/// The target of events that are commands which reproduce plans; `MIOPEN_ENABLE_LOGGING_CMD` asks for them.
pub const COMMANDS: &str = "fuseplan::commands";

/// How an event is written as a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// `fuseplan: info: compile solver=cpu.direct.v1 cache=memory …`
    Text,
    /// `{"level":"info","target":"fuseplan::compile","message":"compile","solver":"cpu.direct.v1",…}`
    Json,
}

/// Writes the library's events to standard error from now on, a line for each: `fuseplan: warning: …`, or JSON where
/// `FUSEPLAN_LOG_JSON` says so. Which of them is decided by `MIOPEN_LOG_LEVEL`, see [`is_on`]. A program that has a
/// subscriber of `tracing` keeps it, and this does nothing; so does a second call. What cannot be written is lost.
///
/// # Example
/// ```
/// fuseplan::log::to_stderr();
/// ```
pub fn to_stderr() {
    let is_text = !is_json();
    to(if is_text { Format::Text } else { Format::Json }, is_on, line);
}

/// Gives the library's events to a function from now on, a line without its end for each: those of the levels that are
/// wanted, and calls and commands where the environment asks for them. A program that has a subscriber of `tracing` keeps it,
/// and this does nothing; so does a second call. The function is called by whichever thread something happens on.
///
/// # Example
/// ```
/// use fuseplan::log::{self, Format, Level};
/// log::to(Format::Json, |level| level <= Level::INFO, |line| println!("{line}"));
/// ```
pub fn to(
    format: Format,
    wants: impl Fn(Level) -> bool + Send + Sync + 'static,
    write: impl Fn(&str) + Send + Sync + 'static,
) {
    let all = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
    let most = all.into_iter().filter(|&level| wants(level)).max();
    let lines = Lines {
        format,
        most: most.map_or(LevelFilter::OFF, LevelFilter::from_level),
        write: Box::new(write),
    };
    // An error says that there is a subscriber.
    let _ = tracing::subscriber::set_global_default(lines);
}

/// Says on standard error that a call of the C library has failed, in MIOpen's words or as JSON.
#[doc(hidden)]
pub fn failed_call(library: &str, text: &str) {
    match is_json() {
        false => line(&format!("{library} Error: {text}")),
        true => line(&json::object(Level::ERROR, CALLS, |fields| fields.text("message", text))),
    }
}

fn is_json() -> bool {
    static JSON: LazyLock<bool> = LazyLock::new(env::logs_json);
    *JSON
}

/// Writes a line to standard error in one piece, so that lines of several threads do not mix. What cannot be written
/// is lost, and where standard error is a pipe that nobody reads any more, the program gets no SIGPIPE for it: the
/// library is a guest, and its messages end nobody.
pub fn line(text: &str) {
    let line = format!("{text}\n");
    pipe::without_signal(|| std::io::stderr().write_all(line.as_bytes()));
}

/// Whether `MIOPEN_LOG_LEVEL` asks for a level, with MIOpen's numbers: 0, as any that is not listed, the default,
/// which is 4; 1 nothing; 2 fatal errors, of which there are none; 3 errors; 4 warnings too; 5 what is going on;
/// 6 in detail; 7 everything. The variable is read once.
pub fn is_on(level: Level) -> bool {
    level <= *FILTER
}

static FILTER: LazyLock<LevelFilter> = LazyLock::new(|| filter(env::log_level()));

fn filter(number: Option<u32>) -> LevelFilter {
    match number {
        Some(1 | 2) => LevelFilter::OFF,
        Some(3) => LevelFilter::ERROR,
        Some(5) => LevelFilter::INFO,
        Some(6) => LevelFilter::DEBUG,
        Some(7) => LevelFilter::TRACE,
        _ => LevelFilter::WARN,
    }
}

/// Whether the environment asks for the events of a target, whatever their level.
fn is_asked_for(target: &str) -> bool {
    static CALLS_ON: LazyLock<bool> = LazyLock::new(env::logs_calls);
    static COMMANDS_ON: LazyLock<bool> = LazyLock::new(env::logs_commands);
    target == CALLS && *CALLS_ON || target == COMMANDS && *COMMANDS_ON
}

/// A subscriber that writes events as lines.
struct Lines {
    format: Format,
    /// The level that has most.
    most: LevelFilter,
    write: Box<dyn Fn(&str) + Send + Sync>,
}

impl Lines {
    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        let is_ours = target.split("::").next().is_some_and(|name| name.starts_with("fuseplan"));
        metadata.is_event() && is_ours && (*metadata.level() <= self.most || is_asked_for(target))
    }
}

impl Subscriber for Lines {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let is_any = [CALLS, COMMANDS].into_iter().any(is_asked_for);
        Some(if is_any { LevelFilter::TRACE } else { self.most })
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let text = match self.format {
            Format::Text => {
                let mut said = Line::default();
                event.record(&mut said);
                format!("fuseplan: {}:{}{}", word(*metadata.level()), said.message, said.fields)
            }
            Format::Json => json::object(*metadata.level(), metadata.target(), |fields| event.record(fields)),
        };
        (self.write)(&text);
    }

    // Spans are nobody's here.
    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

fn word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// An event's message and its other fields, each with a space before it.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            // A compiler's log has lines of its own.
            "message" => write!(self.message, " {}", format!("{value:?}").trim_end().replace('\n', "\n    ")),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_miopens() {
        let levels = [
            (None, LevelFilter::WARN),
            (Some(0), LevelFilter::WARN),
            (Some(1), LevelFilter::OFF),
            (Some(2), LevelFilter::OFF),
            (Some(3), LevelFilter::ERROR),
            (Some(4), LevelFilter::WARN),
            (Some(5), LevelFilter::INFO),
            (Some(6), LevelFilter::DEBUG),
            (Some(7), LevelFilter::TRACE),
            (Some(8), LevelFilter::WARN),
        ];
        for (number, level) in levels {
            assert_eq!(filter(number), level, "{number:?}");
        }
    }
}

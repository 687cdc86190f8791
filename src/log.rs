//! What the library says beside its results, for programs that have no subscriber of `tracing` themselves.

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

/// Writes the library's events to standard error from now on, a line for each: `fuseplan: warning: …`. Which of
/// them is decided by `MIOPEN_LOG_LEVEL`, see [`is_on`]. A program that has a subscriber of `tracing` keeps it, and
/// this does nothing; so does a second call. What cannot be written is lost.
///
/// # Example
/// ```
/// fuseplan::log::to_stderr();
/// ```
pub fn to_stderr() {
    // An error says that there is a subscriber.
    let _ = tracing::subscriber::set_global_default(Stderr);
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

fn are_calls_on() -> bool {
    static CALLS_ON: LazyLock<bool> = LazyLock::new(env::logs_calls);
    *CALLS_ON
}

struct Stderr;

impl Stderr {
    fn wants(metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        let is_ours = target.split("::").next().is_some_and(|name| name.starts_with("fuseplan"));
        metadata.is_event() && is_ours && (is_on(*metadata.level()) || target == CALLS && are_calls_on())
    }
}

impl Subscriber for Stderr {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        Self::wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(if are_calls_on() { LevelFilter::TRACE } else { *FILTER })
    }

    fn event(&self, event: &Event<'_>) {
        let mut said = Line::default();
        event.record(&mut said);
        line(&format!("fuseplan: {}:{}{}", word(*event.metadata().level()), said.message, said.fields));
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

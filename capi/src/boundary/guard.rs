//! The boundary between C and Rust: panics and failures become statuses, with a reason that can be read.

use std::any::Any;
use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::{c_char, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, Once, PoisonError};

use fuseplan::log;

use super::arguments::Arguments;
use super::failure::{Failure, Status};
use crate::LIBRARY;

/// Runs the body of a function without arguments worth logging.
pub(crate) fn guard(function: &'static str, body: impl FnOnce() -> Result<(), Failure>) -> c_uint {
    guard_call(function, &|_| {}, body)
}

/// Runs a function's body as a [call](fuseplan::call) into the library; `arguments` puts its arguments down where
/// calls are logged. Shared state is behind locks whose poison is ignored, and is written in one step, so a panic in
/// a body leaves nothing half done behind.
pub(crate) fn guard_call(
    function: &'static str,
    arguments: &dyn Fn(&mut Arguments),
    body: impl FnOnce() -> Result<(), Failure>,
) -> c_uint {
    let logged = || {
        fuseplan::fork::usable()?;
        static LOG: Once = Once::new();
        LOG.call_once(log::to_stderr);
        if tracing::event_enabled!(target: log::CALLS, tracing::Level::TRACE) {
            let mut list = Arguments::default();
            arguments(&mut list);
            tracing::trace!(target: log::CALLS, "{function}({list})");
        }
        body()
    };
    fuseplan::call(|| {
        let failure = match catch_unwind(AssertUnwindSafe(logged)) {
            Ok(Ok(())) => return (LIBRARY.code)(Status::Success),
            Ok(Err(failure)) => failure,
            Err(panic) => {
                Failure::new(Status::InternalError, format!("internal error: {}", text_of(&*panic)))
            }
        };
        let status = (LIBRARY.code)(failure.status);
        // Reporting allocates and writes; should that fail, the status is still right.
        let _ = catch_unwind(AssertUnwindSafe(|| report(function, &failure)));
        status
    })
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}

/// The longest text that is kept, its terminating zero included.
const TEXT: usize = 4096;

thread_local! {
    /// A C string at a place that does not move, so that a pointer to it is good as long as the thread.
    static LAST_ERROR: [Cell<u8>; TEXT] = const { [const { Cell::new(0) }; TEXT] };
}

/// Writes the text, cut to what fits, with its zeros replaced.
fn keep(text: &str, place: &[Cell<u8>; TEXT]) {
    let mut end = text.len().min(TEXT - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (cell, byte) in place.iter().zip(text[..end].bytes()) {
        cell.set(if byte == 0 { b' ' } else { byte });
    }
    place[end].set(0);
}

fn report(function: &str, failure: &Failure) {
    let line = format!("{function}: {}", failure.text);
    if is_worth_a_line(failure.status, &line) {
        log::failed_call(LIBRARY.name, &line);
    }
    LAST_ERROR.with(|place| keep(&line, place));
}

/// Misuse is reported every time. Refusals are how programs find out what they must not fuse, often for
/// thousands of plans: each is reported once.
fn is_worth_a_line(status: Status, line: &str) -> bool {
    const REMEMBERED: usize = 1024;
    static SEEN: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    if !log::is_on(log::Level::ERROR) {
        return false;
    }
    if !matches!(status, Status::UnsupportedOp | Status::NotImplemented) {
        return true;
    }
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = seen.get_or_insert_default();
    seen.len() < REMEMBERED && seen.insert(line.into())
}

/// The text of this thread's last failure; its next one overwrites it.
pub(crate) fn last_error() -> *const c_char {
    LAST_ERROR.with(|place| place.as_ptr().cast())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;
    use crate::boundary::failure::bad_parm;

    fn last() -> String {
        // SAFETY: a C string that lives until this thread's next failure, after the copy.
        unsafe { CStr::from_ptr(last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn failures_and_panics_become_statuses_with_their_reasons() {
        assert_eq!(guard("f", || Ok(())), 0);
        assert_eq!(last(), "");
        assert_eq!(guard("f", || Err(bad_parm("the reason"))), (LIBRARY.code)(Status::BadParm));
        assert_eq!(last(), "f: the reason");
        assert_eq!(guard("g", || panic!("number {}", 7)), (LIBRARY.code)(Status::InternalError));
        assert_eq!(last(), "g: internal error: number 7");
        assert_eq!(guard("g", || std::panic::panic_any(7)), (LIBRARY.code)(Status::InternalError));
        assert_eq!(last(), "g: internal error: a panic without a message");
        assert_eq!(guard("f", || Err(bad_parm("with\0zero"))), (LIBRARY.code)(Status::BadParm));
        assert_eq!(last(), "f: with zero");
        let long = "ü".repeat(TEXT);
        assert_eq!(guard("f", || Err(bad_parm(long.clone()))), (LIBRARY.code)(Status::BadParm));
        assert_eq!(last().len(), TEXT - 1);
        assert_eq!(guard("f", || Err(bad_parm("with\0zero"))), (LIBRARY.code)(Status::BadParm));
        // A success does not take the reason away, and another thread has its own.
        assert_eq!(guard("f", || Ok(())), 0);
        assert_eq!(last(), "f: with zero");
        std::thread::spawn(|| assert_eq!(last(), "")).join().unwrap();
    }

    #[test]
    fn refusals_are_reported_once_and_misuse_always() {
        assert!(is_worth_a_line(Status::UnsupportedOp, "some refusal"));
        assert!(!is_worth_a_line(Status::UnsupportedOp, "some refusal"));
        assert!(is_worth_a_line(Status::UnsupportedOp, "another refusal"));
        for _ in 0..2 {
            assert!(is_worth_a_line(Status::BadParm, "misuse"));
        }
    }
}

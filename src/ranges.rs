//! Compiles and executions as ranges in a profiler's timeline, where `FUSEPLAN_RANGES` asks for them: NVTX for Nsight's
//! tools, rocTX for AMD's. Nothing of a profiler is needed to build; what is not there at run time gets no ranges.

mod nvtx;
mod roctx;

use std::ffi::{CStr, CString};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use fuseplan_api::call;

use crate::env;

/// Ranges of a thread, which nest.
trait Profiler: Send + Sync {
    /// Opens a range inside of those that this thread has opened.
    fn push(&self, name: &CStr);

    /// Closes the range that this thread opened last.
    fn pop(&self);
}

const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// Whether there is a profiler, so that an execution without one costs a relaxed load.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether ranges are wanted and there is a profiler that takes them. The environment is read once.
pub(crate) fn are_on() -> bool {
    match STATE.load(Ordering::Relaxed) {
        OFF => false,
        ON => true,
        _ => {
            let is_on = !call(profilers).is_empty();
            STATE.store(if is_on { ON } else { OFF }, Ordering::Relaxed);
            is_on
        }
    }
}

fn profilers() -> &'static [Box<dyn Profiler>] {
    static PROFILERS: OnceLock<Vec<Box<dyn Profiler>>> = OnceLock::new();
    PROFILERS.get_or_init(|| {
        if !env::wants_ranges() {
            return Vec::new();
        }
        let found: Vec<_> = nvtx::load().into_iter().chain(roctx::load()).collect();
        if found.is_empty() {
            let text = "no ranges: no profiler has set NVTX_INJECTION64_PATH, and there is no rocTX library";
            tracing::warn!(target: "fuseplan::ranges", "{text}");
        }
        found
    })
}

/// A range, until it is dropped on the thread that opened it.
pub(crate) struct Range {
    /// A range belongs to its thread.
    not_send: std::marker::PhantomData<*const ()>,
}

impl Range {
    /// Opens a range in every profiler's timeline.
    pub(crate) fn new(name: String) -> Self {
        // Names are a plan's text and solvers' ids, which have no zeros.
        let name = CString::new(name).unwrap_or_default();
        profilers().iter().for_each(|profiler| profiler.push(&name));
        Range { not_send: std::marker::PhantomData }
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        profilers().iter().for_each(|profiler| profiler.pop());
    }
}

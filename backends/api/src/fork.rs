//! Forks of this process.
//!
//! `fork` copies the calling thread only. What other threads have locked stays locked in the child, and what they were
//! about to write stays half written. So a fork waits until no other thread is in a [call](crate::call()), and no call
//! begins meanwhile: the child finds every lock of the library free, whichever it is. Threads of a pool and what a GPU's
//! driver has open are not copied either; who owns such things compares [`generation`].
//!
//! The wait has a limit. A child that was forked behind it gets an [error](usable) of every call.

#![allow(unsafe_code, reason = "`pthread_atfork` is C's")]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::BackendError;

/// How long a fork waits for other threads' calls to end.
const LIMIT: Duration = if cfg!(test) { Duration::from_millis(300) } else { Duration::from_secs(10) };

/// As many counters as there are likely to be threads that call at once.
const COUNTERS: usize = 16;

/// A counter with cache lines of its own.
#[repr(align(128))]
struct Line(AtomicUsize);

/// Threads in calls, each counted in one of these.
static INSIDE: [Line; COUNTERS] = [const { Line(AtomicUsize::new(0)) }; COUNTERS];
/// Held by the thread that forks: nobody else may begin a call.
static FORKING: AtomicBool = AtomicBool::new(false);
/// Forks between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// Whether threads were still in calls when the thread that forks had waited for long enough.
static IN_VAIN: AtomicBool = AtomicBool::new(false);
/// Whether this process was forked then.
static TORN: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Calls of this thread, one within the other. Has no destructor, so it is there as long as the thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// This thread's counter, or `COUNTERS` before it has one.
    static COUNTER: Cell<usize> = const { Cell::new(COUNTERS) };
}

/// How often this process and those before it were forked: what another number was written beside is of a process
/// before this one. Its threads and its contexts with drivers are not in this process.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Whether the library can be used in this process.
///
/// # Errors
/// The process was forked while another thread was in a call, and stayed there: locks of the library may be held for ever.
pub fn usable() -> Result<(), BackendError> {
    if !TORN.load(Ordering::Relaxed) {
        return Ok(());
    }
    Err(BackendError::Unavailable {
        backend: "fuseplan",
        reason: format!(
            "this process was forked while other threads were in calls that did not end within {} s, so that it has \
             halves of what they did; fork while no call is running, or start a program by `exec`",
            LIMIT.as_secs()
        ),
    })
}

/// The error of a backend whose driver was in use before a fork, of which the child has nothing.
pub fn forked(backend: &'static str) -> BackendError {
    BackendError::Unavailable {
        backend,
        reason: "this process was forked from one that had opened the driver, which is not usable here; open devices \
                 after forks only, or start a program by `exec`"
            .into(),
    }
}

/// A call of this thread, until it is dropped.
pub(crate) struct Call(());

impl Call {
    #[inline]
    pub(crate) fn begin() -> Self {
        let depth = DEPTH.get();
        if depth == 0 {
            begin_outermost();
        }
        DEPTH.set(depth + 1);
        Call(())
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 {
            INSIDE[COUNTER.get()].0.fetch_sub(1, Ordering::Release);
        }
    }
}

fn begin_outermost() {
    if COUNTER.get() == COUNTERS {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        COUNTER.set(NEXT.fetch_add(1, Ordering::Relaxed) % COUNTERS);
        handlers::register();
    }
    let counter = &INSIDE[COUNTER.get()].0;
    // Either this thread sees that another forks, or that one sees this thread inside.
    counter.fetch_add(1, Ordering::SeqCst);
    while FORKING.load(Ordering::SeqCst) {
        counter.fetch_sub(1, Ordering::Release);
        while FORKING.load(Ordering::Relaxed) {
            thread::sleep(PAUSE);
        }
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

/// How long who waits for a fork, or a fork for calls, sleeps at a time.
const PAUSE: Duration = Duration::from_micros(50);

/// Threads in calls besides this one.
fn others() -> usize {
    let inside: usize = INSIDE.iter().map(|line| line.0.load(Ordering::SeqCst)).sum();
    inside.saturating_sub(usize::from(DEPTH.get() > 0))
}

#[cfg(all(unix, not(miri)))]
mod handlers {
    use super::*;

    pub(super) fn register() {
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        if REGISTERED.load(Ordering::Relaxed) || REGISTERED.swap(true, Ordering::Relaxed) {
            return;
        }
        // SAFETY: the handlers may be called at any time. Without memory for them forks are not waited with, as
        // without this module.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    }

    extern "C" fn prepare() {
        let end = Instant::now() + LIMIT;
        // Forks of several threads take turns; one that is in a call itself must not wait for ever.
        while FORKING.swap(true, Ordering::SeqCst) && Instant::now() < end {
            thread::sleep(PAUSE);
        }
        while others() > 0 && Instant::now() < end {
            thread::sleep(PAUSE);
        }
        // From now on others are counted only for the moment in which they see that they have to wait.
        IN_VAIN.store(others() > 0 && Instant::now() >= end, Ordering::Relaxed);
    }

    extern "C" fn parent() {
        FORKING.store(false, Ordering::Release);
    }

    extern "C" fn child() {
        if IN_VAIN.load(Ordering::Relaxed) {
            TORN.store(true, Ordering::Relaxed);
        }
        for line in &INSIDE {
            line.0.store(0, Ordering::Relaxed);
        }
        if DEPTH.get() > 0 {
            INSIDE[COUNTER.get()].0.store(1, Ordering::Relaxed);
        }
        GENERATION.fetch_add(1, Ordering::Relaxed);
        FORKING.store(false, Ordering::Release);
    }
}

#[cfg(not(all(unix, not(miri))))]
mod handlers {
    pub(super) fn register() {}
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::thread::Scope;

    use super::*;
    use crate::call;

    /// Forks of one test must not wait for calls of another.
    fn turn() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forks; whether the child found `work` right. A child that hangs is killed.
    fn child(work: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child runs `work` and ends, without anything of the test's harness.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::alarm(30);
                libc::_exit(i32::from(!work()));
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            status == 0
        }
    }

    /// A thread that is in a call for some time; returns when it is.
    fn in_a_call<'scope>(scope: &'scope Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) {
        let (begun, begin) = std::sync::mpsc::channel();
        scope.spawn(move || {
            call(|| {
                begun.send(()).unwrap();
                work();
            })
        });
        begin.recv().unwrap();
    }

    #[test]
    fn a_fork_waits_for_calls_and_calls_wait_for_a_fork() {
        let _turn = turn();
        let lock = Mutex::new(0);
        let before = generation();
        thread::scope(|scope| {
            for round in 1..=20 {
                in_a_call(scope, || {
                    let mut value = lock.lock().unwrap();
                    *value += 1;
                    thread::sleep(Duration::from_millis(3));
                    *value += 1;
                });
                assert!(child(|| call(|| {
                    let value = lock.try_lock().map_or(-1, |value| *value);
                    value == 2 * round && generation() == before + 1 && usable().is_ok()
                })));
            }
        });
        assert_eq!(generation(), before);
    }

    #[test]
    fn a_call_may_fork() {
        let _turn = turn();
        assert!(call(|| child(|| call(|| usable().is_ok()) && child(|| call(|| usable().is_ok())))));
        assert_eq!(others(), 0);
    }

    #[test]
    fn a_fork_in_vain_is_an_error_of_the_childs_calls() {
        let _turn = turn();
        thread::scope(|scope| {
            let (end, ended) = std::sync::mpsc::channel();
            in_a_call(scope, move || ended.recv().unwrap());
            let torn =
                || usable().unwrap_err().to_string().contains("forked while other threads were in calls");
            assert!(child(|| call(torn)));
            end.send(()).unwrap();
        });
        assert!(usable().is_ok() && child(|| usable().is_ok()));
    }
}

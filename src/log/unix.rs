//! Writing to pipes in programs whose dispositions of signals are not ours.

use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;

/// Runs a write, and takes away the SIGPIPE that it raises where nobody reads. The signal goes to the thread that
/// writes, so blocking it for this thread, for this long, changes nothing for other threads, and no disposition. One
/// that the program itself had waiting before stays.
pub(super) fn without_signal(write: impl FnOnce() -> io::Result<()>) {
    let was_waiting = is_waiting();
    let Some(before) = block() else { return };
    let result = write();
    let is_broken = result.is_err_and(|error| error.kind() == ErrorKind::BrokenPipe);
    if is_broken && !was_waiting && is_waiting() {
        let mut number = 0;
        // SAFETY: a set and a place for a number; the signal is waiting, so this returns at once.
        unsafe { libc::sigwait(&only_pipe(), &mut number) };
    }
    // SAFETY: the mask that this thread had; the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
}

fn only_pipe() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call fills the set, which the second changes; SIGPIPE is a signal.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
        set.assume_init()
    }
}

/// Whether a SIGPIPE waits for this thread, which it does only while it is blocked.
fn is_waiting() -> bool {
    let mut set = MaybeUninit::uninit();
    // SAFETY: a place for a set, which is read only where the call has filled it.
    unsafe { libc::sigpending(set.as_mut_ptr()) == 0 && libc::sigismember(set.as_ptr(), libc::SIGPIPE) == 1 }
}

/// Blocks SIGPIPE for this thread and gives the mask before.
fn block() -> Option<libc::sigset_t> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: a set, and a place for one, which is filled where the call succeeds.
    unsafe {
        let status = libc::pthread_sigmask(libc::SIG_BLOCK, &only_pipe(), before.as_mut_ptr());
        (status == 0).then(|| before.assume_init())
    }
}

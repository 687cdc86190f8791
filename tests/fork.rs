//! Children of a process whose threads execute and compile: every lock and every thread of the library is as a child
//! needs it.
#![cfg(target_os = "linux")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use fuseplan::{CompileOptions, FindMode, Handle};
use fuseplan_suite::sample::Sample;

const FORKS: usize = 100;

/// Forks; the child answers for `work` by its status, which the result is. A child that hangs is killed.
fn child(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child runs `work` and ends, without anything of the test's harness.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::alarm(30);
            let right = catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
            libc::_exit(i32::from(!right));
        }
        assert!(pid > 0);
        let mut status = -1;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        status
    }
}

/// Compiles and runs a sample that nothing has compiled before.
fn is_right(handle: &Handle, channels: usize, options: &CompileOptions) -> bool {
    let sample = Sample::new(channels).unwrap();
    let compiled = sample.plan.compile_with(handle, options).unwrap();
    sample.run(&compiled, handle, &sample.args()).unwrap() == sample.expected()
}

#[test]
fn children_compute_whatever_other_threads_are_doing() {
    let (known, handle) = (Sample::new(5).unwrap(), Handle::cpu());
    let (stop, channels) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (compiled, args) = (known.plan.compile(&handle).unwrap(), known.args());
    let execute = || known.run(&compiled, &handle, &args).unwrap() == known.expected();
    let next = || 6 + channels.fetch_add(1, Ordering::Relaxed) % 100;
    let found = CompileOptions::default().with_find(FindMode::Normal);
    thread::scope(|scope| {
        for number in 0..4 {
            let (handle, stop, execute, next, found) = (&handle, &stop, &execute, &next, &found);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    assert!(match number {
                        0 | 1 => execute(),
                        2 => is_right(handle, next(), &CompileOptions::default()),
                        _ => is_right(handle, next(), found),
                    });
                }
            });
        }
        let fresh = |fork| is_right(&handle, 200 + fork, &CompileOptions::default());
        let statuses: Vec<_> = (0..FORKS).map(|fork| child(|| execute() && fresh(fork))).collect();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(statuses, [0; FORKS]);
    });
}

#[test]
fn a_childs_threads_are_its_own() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let handle = Handle::cpu_with_threads(3).unwrap();
    assert!(is_right(&handle, 2000, &CompileOptions::default()));
    let status = child(|| {
        let alone = threads();
        let right = is_right(&handle, 2001, &CompileOptions::default());
        let several = threads();
        // A child of the child, in which there is a third team; and the end of all three.
        let grandchild = child(|| is_right(&handle, 2002, &CompileOptions::default()));
        drop(handle);
        right && grandchild == 0 && (alone, several) == (1, 3)
    });
    assert_eq!(status, 0);
}

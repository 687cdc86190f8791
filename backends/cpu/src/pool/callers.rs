//! Threads of the caller's.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuseplan_api::{RunError, in_default_float_environment};

use super::{Job, PANICKED, stopped};

/// A program's own threads, for a CPU device to compute on: a parallel loop.
///
/// A program whose threads wait for the library while its own threads compute has more threads than cores, and both
/// lose. ONNX Runtime, PyTorch and rayon have a pool each; hand it to the library in this form.
///
/// Results are bitwise the same for any number of threads and any order. An implementation that runs everything on one
/// thread is right, and so is one with fewer threads than it says. Indices that it leaves out are made up for by the
/// thread that called the library, and a second call with the same index finds nothing to do. If it panics, the
/// execution returns an error, and the next one works.
///
/// The library is in a call while it waits here. A thread that waits may run other jobs of the program, which may call
/// the library; but they must not compile with find mode, nor measure peaks, for a device on which the same is just
/// being done, since they would wait for what waits for them.
///
/// ```
/// use std::thread;
///
/// /// Threads that are started for each loop.
/// struct Scoped(usize);
///
/// impl fuseplan_cpu::ParallelFor for Scoped {
///     fn threads(&self) -> usize {
///         self.0
///     }
///
///     fn run(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
///         thread::scope(|scope| {
///             for index in 1..count {
///                 scope.spawn(move || work(index));
///             }
///             work(0);
///         });
///     }
/// }
/// ```
pub trait ParallelFor: Send + Sync {
    /// How many threads there are, the calling one included, from 1 to 1024: how finely work is cut. Asked for once,
    /// when the device is opened.
    fn threads(&self) -> usize;

    /// Calls `work(index)` for each index below `count`, which is at most the number of threads, on any threads and in
    /// any order; returns when all these calls have returned.
    ///
    /// `work` does not panic. It sets the floating-point environment that it computes in, and gives the thread its own
    /// back.
    fn run(&self, count: usize, work: &(dyn Fn(usize) + Sync));
}

/// A device's view of them.
pub(crate) struct Callers {
    pool: Arc<dyn ParallelFor>,
    threads: usize,
}

impl Callers {
    pub(super) fn new(pool: Arc<dyn ParallelFor>, threads: usize) -> Self {
        Callers { pool, threads }
    }

    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// As [`Pool::run`](super::Pool::run), on at most `most` threads.
    ///
    /// The workers are in no [call](fuseplan_api::call) of their own. A fork that waits for this thread's call would
    /// hold up theirs, for which this thread waits.
    pub(super) fn run(&self, most: usize, f: Job<'_>) -> Result<(), RunError> {
        let panicked = AtomicBool::new(false);
        let work = |index: usize| {
            let part = || catch_unwind(AssertUnwindSafe(|| f(index % self.threads)));
            if in_default_float_environment(part).is_err() {
                panicked.store(true, Ordering::Relaxed);
            }
        };
        let count = self.threads.min(most);
        let pools =
            if count > 1 { catch_unwind(AssertUnwindSafe(|| self.pool.run(count, &work))) } else { Ok(()) };
        // What the pool has left over, which is nothing if it did what it should.
        work(0);
        if pools.is_err() {
            return Err(stopped("the caller's parallel loop panicked"));
        }
        if panicked.load(Ordering::Relaxed) { Err(stopped(PANICKED)) } else { Ok(()) }
    }

    /// Does the work on this thread alone.
    pub(super) fn alone(&self, f: Job<'_>) -> Result<(), RunError> {
        self.run(1, f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::super::{Locked, Pool};
    use super::*;

    /// What a caller's pool may do with a loop.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Way {
        Threads,
        Backwards,
        Nothing,
        Twice,
        Beyond,
        Panic,
    }

    impl ParallelFor for Way {
        fn threads(&self) -> usize {
            3
        }

        fn run(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
            assert!((2..=3).contains(&count));
            match self {
                Way::Threads => thread::scope(|scope| {
                    (0..count).for_each(|index| drop(scope.spawn(move || work(index))));
                }),
                Way::Backwards => (0..count).rev().for_each(work),
                Way::Nothing => {}
                Way::Twice => thread::scope(|scope| {
                    (0..2 * count).for_each(|index| drop(scope.spawn(move || work(index / 2))));
                }),
                Way::Beyond => [usize::MAX, 1 << 40].into_iter().for_each(work),
                Way::Panic => {
                    work(1);
                    panic!("on purpose");
                }
            }
        }
    }

    fn pool(way: Way) -> Pool {
        Pool::of_caller(Arc::new(way), way.threads())
    }

    #[test]
    fn every_item_is_computed_once_whatever_the_pool_does() {
        for way in [Way::Threads, Way::Backwards, Way::Nothing, Way::Twice, Way::Beyond, Way::Panic] {
            let pool = pool(way);
            assert_eq!(pool.threads(), 3);
            for items in [0, 1, 2, 7, 1000] {
                let taken: Vec<_> = (0..items).map(|_| AtomicUsize::new(0)).collect();
                let count = |item: usize| {
                    taken[item].fetch_add(1, Ordering::Relaxed);
                };
                let result = pool.for_each(items, &count);
                assert_eq!(result.is_err(), way == Way::Panic && items > 1, "{way:?}");
                assert!(taken.iter().all(|c| c.load(Ordering::Relaxed) == 1), "{way:?}");
                pool.for_each_locked(Locked::Yes, items, &count).unwrap();
                assert!(taken.iter().all(|c| c.load(Ordering::Relaxed) == 2), "{way:?}");
            }
        }
    }

    #[test]
    fn panics_are_errors_that_say_whose() {
        let text = |result: Result<(), RunError>| result.unwrap_err().to_string();
        let loops = text(pool(Way::Panic).for_each(3, &|_| ()));
        assert!(loops.contains("the caller's parallel loop panicked"), "{loops}");
        let works = text(pool(Way::Threads).for_each(3, &|_| panic!("on purpose")));
        assert!(works.contains(PANICKED), "{works}");
        pool(Way::Threads).for_each(3, &|_| ()).unwrap();
    }

    #[test]
    fn under_a_lock_no_other_thread_computes() {
        let own = thread::current().id();
        let check = |_| assert_eq!(thread::current().id(), own);
        pool(Way::Threads).for_each_locked(Locked::Yes, 5, &check).unwrap();
    }
}

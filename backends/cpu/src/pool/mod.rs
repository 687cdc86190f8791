//! The threads that a device's kernels run on: the library's own, or a caller's.

mod callers;
mod split;
mod team;

use std::fmt;
use std::sync::Arc;

use fuseplan_api::RunError;

pub use callers::ParallelFor;
pub(crate) use split::Split;

use callers::Callers;
use team::Teams;

/// What a region runs: called with a thread's number, on each thread that takes part.
type Job<'a> = &'a (dyn Fn(usize) + Sync);

/// The threads of a device.
pub(crate) enum Pool {
    /// Threads that were started for the device.
    Own(Teams),
    /// Threads of the caller's.
    Callers(Callers),
}

impl Pool {
    /// A pool of `threads` threads of its own, the calling one included; at least 1. Where the system refuses a
    /// thread, the pool is smaller.
    pub(crate) fn new(threads: usize) -> Self {
        Pool::Own(Teams::new(threads))
    }

    /// A pool of the caller's threads, taken to be `threads`.
    pub(crate) fn of_caller(pool: Arc<dyn ParallelFor>, threads: usize) -> Self {
        Pool::Callers(Callers::new(pool, threads))
    }

    /// The most threads that compute at once.
    pub(crate) fn threads(&self) -> usize {
        match self {
            Pool::Own(teams) => teams.threads(),
            Pool::Callers(callers) => callers.threads(),
        }
    }

    /// Calls `f(tid)` on this thread and on others, which come or do not, at the same time; waits for those that came.
    /// `tid` is below [`Pool::threads`], and different on threads of the library's own. So `f` must take what it
    /// computes from something shared, such as a [`Split`], until nothing is left. Does not allocate. All threads
    /// compute in the default floating-point environment: this one since [calls](fuseplan_api::call) do.
    ///
    /// # Errors
    /// `f` panicked, or the caller's pool did, on whichever thread. All calls have returned all the same.
    pub(crate) fn run(&self, f: Job<'_>) -> Result<(), RunError> {
        match self {
            Pool::Own(teams) => teams.run(f),
            Pool::Callers(callers) => callers.run(callers.threads(), f),
        }
    }

    /// Calls `f` once for each of `items`, shared out to the threads, and waits. Does not allocate.
    ///
    /// # Errors
    /// As [`Pool::run`]; some items may then be left out.
    pub(crate) fn for_each(&self, items: usize, f: &(dyn Fn(usize) + Sync)) -> Result<(), RunError> {
        let split = Split::new(items, self.threads());
        let take = |tid| {
            while let Some(item) = split.next(tid) {
                f(item);
            }
        };
        match self {
            Pool::Own(teams) => teams.run(&take),
            Pool::Callers(callers) => callers.run(items, &take),
        }
    }

    /// As [`Pool::for_each`], for who holds a lock meanwhile: a caller's thread that waits for others may run another
    /// of the caller's jobs, and that job may want the lock. So these items are computed by this thread alone.
    ///
    /// # Errors
    /// As [`Pool::for_each`].
    pub(crate) fn for_each_under_lock(
        &self,
        items: usize,
        f: &(dyn Fn(usize) + Sync),
    ) -> Result<(), RunError> {
        match self {
            Pool::Own(_) => self.for_each(items, f),
            Pool::Callers(callers) => callers.alone(&|_| (0..items).for_each(f)),
        }
    }
}

/// What an error says when a kernel panicked.
const PANICKED: &str = "a worker thread panicked";

fn stopped(text: &str) -> RunError {
    RunError::Stopped { backend: "cpu", text: text.into() }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = match self {
            Pool::Own(_) => "of its own",
            Pool::Callers(_) => "of the caller's",
        };
        write!(f, "Pool({} threads, {whose})", self.threads())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_item_is_taken_once_whoever_comes() {
        for threads in [1, 2, 3, 5] {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads);
            for items in [0, 1, 7, 1000] {
                let calls: Vec<_> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
                let taken: Vec<_> = (0..items).map(|_| AtomicUsize::new(0)).collect();
                let split = Split::new(items, threads);
                pool.run(&|tid| {
                    calls[tid].fetch_add(1, Ordering::Relaxed);
                    while let Some(item) = split.next(tid) {
                        taken[item].fetch_add(1, Ordering::Relaxed);
                    }
                })
                .unwrap();
                assert_eq!(calls[0].load(Ordering::Relaxed), 1);
                assert!(calls.iter().all(|c| c.load(Ordering::Relaxed) <= 1));
                assert!(taken.iter().all(|c| c.load(Ordering::Relaxed) == 1));
            }
        }
    }
}

//! The threads that a device's kernels run on: the library's own, or a caller's.

mod callers;
mod split;
mod team;

use std::fmt;
use std::sync::{Arc, OnceLock};

use fuseplan_api::RunError;

pub use callers::ParallelFor;
pub(crate) use split::{Items, mirrored};

use crate::arena::with_scratch;
use callers::Callers;
use split::Split;
use team::Teams;

/// What a region runs: called with a thread's number, on each thread that takes part.
type Job<'a> = &'a (dyn Fn(usize) + Sync);

/// Whether the calling thread holds a lock while it waits for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locked {
    Yes,
    No,
}

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

    /// Shares out `items` to this thread and to others, which come or do not: calls `f` on each thread that finds some
    /// left, with those that it takes, of which `f` must leave none. Waits for the threads that came. Does not allocate.
    /// All threads compute in the default floating-point environment: this one since [calls](fuseplan_api::call) do.
    ///
    /// A caller's thread that waits for others may run another of the caller's jobs, and that job may want a lock that
    /// is held here. So such items are taken by this thread alone.
    ///
    /// # Errors
    /// `f` panicked, or the caller's pool did, on whichever thread. All calls have returned all the same; some items may be
    /// left out.
    fn share(&self, locked: Locked, items: usize, f: &(dyn Fn(Items<'_>) + Sync)) -> Result<(), RunError> {
        let split = Split::new(items, self.threads());
        let take = |tid| {
            if let Some(items) = split.items(tid) {
                f(items);
            }
        };
        match (self, locked) {
            (Pool::Own(teams), _) => teams.run(&take),
            (Pool::Callers(callers), Locked::No) => callers.run(items, &take),
            (Pool::Callers(callers), Locked::Yes) => callers.alone(&take),
        }
    }

    /// Calls `f` once for each of `items`, shared out to the threads, and waits. Does not allocate.
    ///
    /// # Errors
    /// As [`Pool::for_each_locked`].
    pub(crate) fn for_each(&self, items: usize, f: &(dyn Fn(usize) + Sync)) -> Result<(), RunError> {
        self.for_each_locked(Locked::No, items, f)
    }

    /// As [`Pool::for_each`], for who may hold a lock meanwhile.
    ///
    /// # Errors
    /// `f` panicked, or the caller's pool did, on whichever thread; some items may then be left out.
    pub(crate) fn for_each_locked(
        &self,
        locked: Locked,
        items: usize,
        f: &(dyn Fn(usize) + Sync),
    ) -> Result<(), RunError> {
        self.share(locked, items, &|items| items.for_each(f))
    }

    /// Shares out `items` to the threads: calls `f` on each that finds some left, with `len` floats of scratch of its own,
    /// whose contents are unspecified, and with the items that it takes, of which `f` must leave none. Allocates nothing
    /// that the thread has had before.
    ///
    /// # Errors
    /// As [`Pool::for_each_locked`]; out of memory, on whichever thread.
    pub(crate) fn for_each_with_scratch(
        &self,
        locked: Locked,
        items: usize,
        len: usize,
        f: &(dyn Fn(&mut [f32], Items<'_>) + Sync),
    ) -> Result<(), RunError> {
        let out_of_memory = OnceLock::new();
        self.share(locked, items, &|items| {
            if let Err(error) = with_scratch(len, |scratch| f(scratch, items)) {
                let _ = out_of_memory.set(error);
            }
        })?;
        out_of_memory.into_inner().map_or(Ok(()), Err)
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
                let calls = AtomicUsize::new(0);
                let taken: Vec<_> = (0..items).map(|_| AtomicUsize::new(0)).collect();
                let take = |scratch: &mut [f32], items: Items<'_>| {
                    calls.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(scratch.len(), 3);
                    items.for_each(|item| {
                        taken[item].fetch_add(1, Ordering::Relaxed);
                    });
                };
                pool.for_each_with_scratch(Locked::No, items, 3, &take).unwrap();
                let calls = calls.into_inner();
                assert!(calls <= threads.min(items) && (calls > 0 || items == 0), "{calls} of {threads}");
                assert!(taken.iter().all(|c| c.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_thread_without_memory_is_an_error_and_one_without_items_wants_none() {
        let pool = Pool::new(2);
        let none = |items| pool.for_each_with_scratch(Locked::No, items, usize::MAX / 8, &|_, _| ());
        let error = none(3).unwrap_err();
        assert!(error.to_string().contains("out of memory"), "{error}");
        none(0).unwrap();
    }
}

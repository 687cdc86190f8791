//! The threads that a device's kernels run on.
//!
//! A fused convolution lasts 20–500 µs, so what a fork and join cost decides whether a second core helps.
//! Measured: rayon needs 3.5 µs when warm, 64 µs after a millisecond of rest, and allocates for each
//! broadcast; scoped threads need 23 µs. Workers that spin for about a millisecond before they sleep need
//! 0.1 µs, and sleep like any other when nothing comes.

use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use fuseplan_api::RunError;

/// What a region runs: called once for each thread with its number and the size of the team.
type Job<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// How long a worker looks for work before it sleeps.
const PATIENCE: Duration = Duration::from_millis(1);

/// A team of threads. The calling thread is one of them.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<(Thread, JoinHandle<()>)>,
}

struct Shared {
    /// Held by the one region that has the workers.
    busy: AtomicBool,
    /// Number of the region; a change is the signal to start.
    epoch: AtomicUsize,
    /// Workers that have not finished the region.
    pending: AtomicUsize,
    /// Size of the region's team.
    team: AtomicUsize,
    /// The region's job. Written before `epoch`, read behind it, valid until `pending` is 0.
    job: UnsafeCell<Option<Job<'static>>>,
    panicked: AtomicBool,
    stop: AtomicBool,
    /// One for each worker: it sleeps, or is about to.
    asleep: Vec<AtomicBool>,
}

// SAFETY: `job` is only written by the thread that holds `busy`, while no worker is between seeing a new
// epoch and leaving `pending`; everything else is atomic.
unsafe impl Sync for Shared {}
// SAFETY: the job is `Sync`, so its reference may be sent.
unsafe impl Send for Shared {}

impl Pool {
    /// A pool of `threads` threads, the caller's included; at least 1. Where the system refuses a thread,
    /// the pool is smaller.
    pub(crate) fn new(threads: usize) -> Self {
        let workers = threads.saturating_sub(1);
        let shared = Arc::new(Shared {
            busy: AtomicBool::new(false),
            epoch: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            team: AtomicUsize::new(1),
            job: UnsafeCell::new(None),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            asleep: (0..workers).map(|_| AtomicBool::new(false)).collect(),
        });
        let workers = (0..workers)
            .map_while(|index| {
                let shared = Arc::clone(&shared);
                let name = format!("fuseplan-{}", index + 1);
                let handle = thread::Builder::new().name(name).spawn(move || shared.work(index)).ok()?;
                Some((handle.thread().clone(), handle))
            })
            .collect();
        Pool { shared, workers }
    }

    /// Size of the largest team.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f(tid, team)` once for each `tid` in `0..team`, at the same time, and waits. `team` is
    /// [`Pool::threads`], or 1 where the workers are busy with another region (also one that this very call
    /// is part of): so what `f` computes must not depend on it. Does not allocate.
    ///
    /// # Errors
    /// `f` panicked, on whichever thread. All calls have returned all the same.
    pub(crate) fn run(&self, f: Job<'_>) -> Result<(), RunError> {
        let alone = self.workers.is_empty()
            || self.shared.busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err();
        if alone {
            return catch_unwind(AssertUnwindSafe(|| f(0, 1))).map_err(|_| stopped());
        }
        let shared = &*self.shared;
        let team = self.threads();
        // Only the lifetime changes. The workers use the reference until they have left `pending`, which
        // this function waits for whatever happens.
        // SAFETY: see above.
        let job: Job<'static> = unsafe { std::mem::transmute::<Job<'_>, Job<'static>>(f) };
        // SAFETY: this thread holds `busy`, and no worker reads the job before `epoch` changes.
        unsafe { *shared.job.get() = Some(job) };
        shared.panicked.store(false, Ordering::Relaxed);
        shared.pending.store(team - 1, Ordering::Relaxed);
        shared.team.store(team, Ordering::Relaxed);
        shared.epoch.fetch_add(1, Ordering::SeqCst);
        self.wake();
        let own = catch_unwind(AssertUnwindSafe(|| f(0, team)));
        let mut spins = 0u32;
        while shared.pending.load(Ordering::Acquire) != 0 {
            relax(&mut spins);
        }
        let failed = own.is_err() || shared.panicked.load(Ordering::Relaxed);
        shared.busy.store(false, Ordering::Release);
        if failed { Err(stopped()) } else { Ok(()) }
    }

    /// Calls `f` once for each of `items`, shared out to the threads, and waits. Does not allocate.
    ///
    /// # Errors
    /// As [`Pool::run`]; some items may then be left out.
    pub(crate) fn for_each(&self, items: usize, f: &(dyn Fn(usize) + Sync)) -> Result<(), RunError> {
        let split = Split::new(items, self.threads());
        self.run(&|tid, _| {
            while let Some(item) = split.next(tid) {
                f(item);
            }
        })
    }

    fn wake(&self) {
        for ((worker, _), asleep) in self.workers.iter().zip(&self.shared.asleep) {
            if asleep.load(Ordering::SeqCst) {
                worker.unpark();
            }
        }
    }
}

fn stopped() -> RunError {
    RunError::Stopped { backend: "cpu", text: "a worker thread panicked".into() }
}

/// One step of waiting for something that is soon: spin, and let others run where it takes long, as it
/// does when there are more threads than cores.
fn relax(spins: &mut u32) {
    *spins += 1;
    if spins.is_multiple_of(4096) { thread::yield_now() } else { std::hint::spin_loop() }
}

impl Shared {
    fn work(&self, index: usize) {
        let mut seen = 0;
        loop {
            self.await_epoch_after(seen, index);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            seen = seen.wrapping_add(1);
            // SAFETY: the job was written before the epoch that this thread has seen, and stays until this
            // thread leaves `pending`.
            let job = unsafe { *self.job.get() };
            if let Some(job) = job {
                let team = self.team.load(Ordering::Relaxed);
                if catch_unwind(AssertUnwindSafe(|| job(index + 1, team))).is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
            }
            self.pending.fetch_sub(1, Ordering::Release);
        }
    }

    fn await_epoch_after(&self, seen: usize, index: usize) {
        let start = Instant::now();
        let mut spins = 0u32;
        while self.epoch.load(Ordering::SeqCst) == seen {
            relax(&mut spins);
            if spins.is_multiple_of(1024) && start.elapsed() > PATIENCE {
                // Either this thread sees the epoch change after it has raised its flag, or the caller, who
                // changes the epoch first, sees the flag.
                self.asleep[index].store(true, Ordering::SeqCst);
                while self.epoch.load(Ordering::SeqCst) == seen {
                    thread::park();
                }
                self.asleep[index].store(false, Ordering::SeqCst);
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        self.wake();
        for (_, handle) in self.workers.drain(..) {
            // A worker catches the panics of its jobs, so that there is nothing to learn here.
            let _ = handle.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} threads)", self.threads())
    }
}

/// Items shared out to a team: a thread takes those of its own contiguous range first, then what others
/// have left over. Which thread computes an item is left to chance, so items must not depend on it.
pub(crate) struct Split {
    /// The first item of each range that nobody has taken yet.
    next: [Line; Split::RANGES],
    items: usize,
    ranges: usize,
}

/// A counter with a cache line of its own.
#[repr(align(64))]
struct Line(AtomicUsize);

impl Split {
    const RANGES: usize = 64;

    /// `items` in one range for each of `threads`; threads beyond 64 only take what others leave.
    pub(crate) fn new(items: usize, threads: usize) -> Self {
        let ranges = threads.clamp(1, Self::RANGES);
        let start = |range: usize| items * range.min(ranges) / ranges;
        Split { next: std::array::from_fn(|r| Line(AtomicUsize::new(start(r)))), items, ranges }
    }

    /// The next item for thread `tid`.
    pub(crate) fn next(&self, tid: usize) -> Option<usize> {
        (0..self.ranges).find_map(|k| {
            let range = (tid + k) % self.ranges;
            let end = self.items * (range + 1) / self.ranges;
            let next = &self.next[range].0;
            if next.load(Ordering::Relaxed) >= end {
                return None;
            }
            let item = next.fetch_add(1, Ordering::Relaxed);
            (item < end).then_some(item)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_runs_once_and_every_item_is_taken_once() {
        for threads in [1, 2, 3, 5] {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads);
            for items in [0, 1, 7, 1000] {
                let calls: Vec<_> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
                let taken: Vec<_> = (0..items).map(|_| AtomicUsize::new(0)).collect();
                let split = Split::new(items, threads);
                pool.run(&|tid, team| {
                    assert_eq!(team, threads);
                    calls[tid].fetch_add(1, Ordering::Relaxed);
                    while let Some(item) = split.next(tid) {
                        taken[item].fetch_add(1, Ordering::Relaxed);
                    }
                })
                .unwrap();
                assert!(calls.iter().all(|c| c.load(Ordering::Relaxed) == 1));
                assert!(taken.iter().all(|c| c.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn one_thread_can_do_the_work_of_all() {
        let split = Split::new(10, 3);
        assert_eq!(std::iter::from_fn(|| split.next(1)).count(), 10);
        assert_eq!(split.next(0), None);
    }

    #[test]
    fn sleeping_workers_wake() {
        let pool = Pool::new(3);
        for _ in 0..3 {
            thread::sleep(PATIENCE * 3);
            let calls = AtomicUsize::new(0);
            pool.run(&|_, _| {
                calls.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
            assert_eq!(calls.into_inner(), 3);
        }
    }

    #[test]
    fn a_panic_is_an_error_and_the_pool_lives_on() {
        let pool = Pool::new(2);
        for culprit in 0..2 {
            let error = pool.run(&|tid, _| assert_ne!(tid, culprit, "on purpose")).unwrap_err();
            assert!(matches!(error, RunError::Stopped { backend: "cpu", .. }));
        }
        assert!(pool.run(&|_, _| ()).is_ok());
    }

    #[test]
    fn a_busy_pool_lets_the_caller_work_alone() {
        let pool = Pool::new(2);
        pool.run(&|_, team| {
            assert_eq!(team, 2);
            pool.run(&|tid, team| assert_eq!((tid, team), (0, 1))).unwrap();
        })
        .unwrap();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..200).for_each(|_| pool.run(&|_, _| ()).unwrap()));
            }
        });
    }
}

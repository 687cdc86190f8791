//! Threads of the library's own.
//!
//! A fused convolution lasts 20–500 µs, so what a fork and join cost decides whether a second core helps.
//! Measured: rayon needs 3.5 µs when warm, 64 µs after a millisecond of rest, and allocates for each
//! broadcast; scoped threads need 23 µs. Workers that spin for about a millisecond before they sleep need
//! 0.1 µs, and sleep like any other when nothing comes.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use fuseplan_api::{RunError, fork, in_default_float_environment};

use super::{Job, PANICKED, stopped};
use crate::arena;

/// How long a worker looks for work before it sleeps.
const PATIENCE: Duration = Duration::from_millis(1);

/// How long a team waits for its threads to begin. A thread allocates as it begins, and the process ends where that is
/// refused, so it must not wait until tensors have taken the memory. No longer, because a thread does not begin while
/// the one that starts it holds the dynamic loader's lock.
const BEGINNING: Duration = Duration::from_millis(100);

/// A team of threads. The calling thread is one of them. A process that was forked starts a team of its own when it
/// first runs something, as it has no threads but the one that forked.
pub(crate) struct Teams {
    first: Team,
}

/// The threads of one process.
struct Team {
    /// Which process, as [`fork::generation`] counts them.
    generation: u64,
    shared: Arc<Shared>,
    workers: Vec<(Thread, JoinHandle<()>)>,
    /// The team of a process that was forked from this team's.
    next: OnceLock<Box<Team>>,
}

struct Shared {
    /// Held by the one region that has the workers.
    busy: AtomicBool,
    /// Who may enter the region and who is inside.
    gate: Gate,
    /// The region's job. Written while the gate is closed and nobody is inside, read inside.
    job: UnsafeCell<Option<Job<'static>>>,
    panicked: AtomicBool,
    stop: AtomicBool,
    /// How many workers have begun.
    begun: AtomicUsize,
    /// One for each worker: it sleeps, or is about to.
    asleep: Vec<AtomicBool>,
}

// SAFETY: `job` is only written by the thread that holds `busy`, while the gate is closed and nobody is
// inside, and only read inside; everything else is atomic.
unsafe impl Sync for Shared {}
// SAFETY: the job is `Sync`, so its reference may be sent.
unsafe impl Send for Shared {}

/// The number of the region, whether it is closed, and how many workers are inside, in one word: so a worker
/// enters the very region that it has seen, or none.
struct Gate(AtomicUsize);

impl Gate {
    const INSIDE: usize = 0x7fff;
    const CLOSED: usize = 0x8000;
    const REGION: usize = 0x1_0000;

    fn region(word: usize) -> usize {
        word / Self::REGION
    }

    fn new() -> Self {
        Gate(AtomicUsize::new(Self::CLOSED))
    }

    /// Opens the next region. The gate is closed and nobody is inside.
    fn open(&self) {
        let word = self.0.load(Ordering::Relaxed);
        self.0.store(Self::region(word).wrapping_add(1).wrapping_mul(Self::REGION), Ordering::SeqCst);
    }

    /// Lets nobody in any more, and waits until nobody is inside.
    fn close(&self) {
        let mut word = self.0.fetch_or(Self::CLOSED, Ordering::Acquire);
        let mut spins = 0;
        while word & Self::INSIDE != 0 {
            relax(&mut spins);
            word = self.0.load(Ordering::Acquire);
        }
    }

    /// Enters the region of `word`, unless it was closed meanwhile.
    fn enter(&self, mut word: usize) -> bool {
        let region = Self::region(word);
        while word & Self::CLOSED == 0 && Self::region(word) == region {
            match self.0.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Teams {
    /// A team of `threads` threads, the caller's included; at least 1. Where the system refuses a thread,
    /// the team is smaller.
    pub(super) fn new(threads: usize) -> Self {
        Teams { first: Team::start(threads) }
    }

    /// Size of the largest team.
    pub(super) fn threads(&self) -> usize {
        self.first.threads()
    }

    /// Calls `f(0)` on this thread and, at the same time, `f(tid)` on each worker that comes while it runs;
    /// waits for those. No worker is waited for that has not come: on a busy machine that can take longer
    /// than the work. Where the workers have another region (also one that this very call is part of), this
    /// thread computes alone. Does not allocate. Workers compute in the default floating-point environment.
    ///
    /// # Errors
    /// `f` panicked, on whichever thread. All calls have returned all the same.
    pub(super) fn run(&self, f: Job<'_>) -> Result<(), RunError> {
        self.team().run(f)
    }

    /// The team of this process.
    fn team(&self) -> &Team {
        let mut team = &self.first;
        while team.generation != fork::generation() {
            team = team.next.get_or_init(|| Box::new(Team::start(self.threads())));
        }
        team
    }
}

impl Team {
    fn start(threads: usize) -> Self {
        let workers = threads.saturating_sub(1).min(Gate::INSIDE);
        let shared = Arc::new(Shared {
            busy: AtomicBool::new(false),
            gate: Gate::new(),
            job: UnsafeCell::new(None),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            begun: AtomicUsize::new(0),
            asleep: (0..workers).map(|_| AtomicBool::new(false)).collect(),
        });
        let workers: Vec<_> = (0..workers)
            .map_while(|index| {
                let shared = Arc::clone(&shared);
                let name = format!("fuseplan-{}", index + 1);
                // A new thread has its creator's floating-point environment, whatever that is.
                let work = move || in_default_float_environment(|| shared.work(index));
                let handle = thread::Builder::new().name(name).spawn(work).ok()?;
                Some((handle.thread().clone(), handle))
            })
            .collect();
        let (start, mut spins) = (Instant::now(), 0);
        while shared.begun.load(Ordering::Acquire) < workers.len() && start.elapsed() < BEGINNING {
            relax(&mut spins);
        }
        Team { generation: fork::generation(), shared, workers, next: OnceLock::new() }
    }

    fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    fn run(&self, f: Job<'_>) -> Result<(), RunError> {
        let alone = self.workers.is_empty()
            || self.shared.busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err();
        if alone {
            return catch_unwind(AssertUnwindSafe(|| f(0))).map_err(|_| stopped(PANICKED));
        }
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes. Workers use the reference inside of the gate only, and this
        // function returns when it is closed with nobody inside, whatever happens.
        let job: Job<'static> = unsafe { std::mem::transmute::<Job<'_>, Job<'static>>(f) };
        // SAFETY: this thread holds `busy`, and the gate is closed with nobody inside.
        unsafe { *shared.job.get() = Some(job) };
        shared.panicked.store(false, Ordering::Relaxed);
        shared.gate.open();
        self.wake();
        let own = catch_unwind(AssertUnwindSafe(|| f(0)));
        shared.gate.close();
        let failed = own.is_err() || shared.panicked.load(Ordering::Relaxed);
        shared.busy.store(false, Ordering::Release);
        if failed { Err(stopped(PANICKED)) } else { Ok(()) }
    }

    fn wake(&self) {
        for ((worker, _), asleep) in self.workers.iter().zip(&self.shared.asleep) {
            if asleep.load(Ordering::SeqCst) {
                worker.unpark();
            }
        }
    }
}

/// One step of waiting for something that is soon: spin, and let others run where it takes long, as it
/// does when there are more threads than cores.
fn relax(spins: &mut u32) {
    *spins += 1;
    if spins.is_multiple_of(4096) { thread::yield_now() } else { std::hint::spin_loop() }
}

impl Shared {
    fn work(&self, index: usize) {
        arena::begin();
        self.begun.fetch_add(1, Ordering::Release);
        let mut seen = 0;
        loop {
            let word = self.await_region_after(seen, index);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            seen = Gate::region(word);
            if !self.gate.enter(word) {
                continue;
            }
            // SAFETY: inside of the gate the job is there and is not written.
            let job = unsafe { *self.job.get() };
            if job.is_some_and(|job| catch_unwind(AssertUnwindSafe(|| job(index + 1))).is_err()) {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.gate.leave();
        }
    }

    /// Waits for a region other than `seen`: the gate's word with it.
    fn await_region_after(&self, seen: usize, index: usize) -> usize {
        let next = || Some(self.gate.0.load(Ordering::SeqCst)).filter(|&word| Gate::region(word) != seen);
        let start = Instant::now();
        let mut spins = 0u32;
        loop {
            if let Some(word) = next() {
                return word;
            }
            relax(&mut spins);
            if spins.is_multiple_of(1024) && start.elapsed() > PATIENCE {
                // Either this thread sees the new region after it has raised its flag, or the caller, who
                // opens the region first, sees the flag.
                self.asleep[index].store(true, Ordering::SeqCst);
                while next().is_none() {
                    thread::park();
                }
                self.asleep[index].store(false, Ordering::SeqCst);
            }
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // Threads of a process before this one: there is nobody to wait for.
            std::mem::forget(std::mem::take(&mut self.workers));
            return;
        }
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.gate.open();
        self.wake();
        for (_, handle) in self.workers.drain(..) {
            // A worker catches the panics of its jobs, so that there is nothing to learn here.
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a region that lasts until all threads have come.
    fn meet(pool: &Teams) {
        let here = AtomicUsize::new(0);
        pool.run(&|_| {
            here.fetch_add(1, Ordering::SeqCst);
            let mut spins = 0;
            while here.load(Ordering::SeqCst) < pool.threads() {
                relax(&mut spins);
            }
        })
        .unwrap();
    }

    #[test]
    fn all_threads_take_part_in_a_region_that_lasts() {
        let pool = Teams::new(4);
        (0..500).for_each(|_| meet(&pool));
    }

    #[test]
    fn sleeping_workers_wake() {
        let pool = Teams::new(3);
        for _ in 0..3 {
            thread::sleep(PATIENCE * 3);
            meet(&pool);
        }
    }

    #[test]
    fn a_panic_is_an_error_and_the_pool_lives_on() {
        let pool = Teams::new(2);
        for culprit in 0..2 {
            let here = AtomicUsize::new(0);
            let error = pool
                .run(&|tid| {
                    here.fetch_add(1, Ordering::SeqCst);
                    let mut spins = 0;
                    while here.load(Ordering::SeqCst) < 2 {
                        relax(&mut spins);
                    }
                    assert_ne!(tid, culprit, "on purpose");
                })
                .unwrap_err();
            assert!(matches!(error, RunError::Stopped { backend: "cpu", .. }));
        }
        meet(&pool);
    }

    #[test]
    fn a_busy_pool_lets_the_caller_work_alone() {
        let pool = Teams::new(2);
        pool.run(&|_| pool.run(&|tid| assert_eq!(tid, 0)).unwrap()).unwrap();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..200).for_each(|_| pool.run(&|_| ()).unwrap()));
            }
        });
    }
}

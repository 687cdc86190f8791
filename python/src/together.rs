//! Loops behind each other in one region of threads: a loop begins and ends by words in memory that the threads look at.

use std::cell::{Cell, UnsafeCell};
use std::hint;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// What a loop calls, with the number of each part.
type Work<'a> = &'a (dyn Fn(usize) + Sync);

/// The loops of a thread, whose team waits for them.
pub(crate) struct Together {
    /// The number of the loop, whether it is closed, and how many threads are inside, in one word: so a thread enters the very
    /// loop that it has seen, or none.
    gate: AtomicUsize,
    /// The loop's work and how many parts it has. Written while the gate is closed and nobody is inside, read inside.
    job: UnsafeCell<Option<(Work<'static>, usize)>>,
    over: AtomicBool,
    /// Nanoseconds in which the thread that has the loops waited for the others.
    waited: AtomicU64,
}

// SAFETY: `job` is written by the one thread that has the loops, while the gate is closed and nobody is inside, and read inside only;
// everything else is atomic.
unsafe impl Sync for Together {}

const INSIDE: usize = 0x7fff;
const CLOSED: usize = 0x8000;
const NEXT: usize = 0x1_0000;

thread_local! {
    /// Whose loops this thread's are, while a team waits for them.
    static MINE: Cell<*const Together> = const { Cell::new(ptr::null()) };
}

impl Together {
    pub(crate) fn new() -> Self {
        Together {
            gate: AtomicUsize::new(CLOSED),
            job: UnsafeCell::new(None),
            over: AtomicBool::new(false),
            waited: AtomicU64::new(0),
        }
    }

    /// Calls `body`, of which each loop of this thread's is one of these.
    pub(crate) fn lead(&self, body: &mut dyn FnMut()) {
        /// Ends the loops, whatever happens.
        struct End<'a>(&'a Together);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                MINE.set(ptr::null());
                self.0.over.store(true, Ordering::Release);
            }
        }
        let _end = End(self);
        MINE.set(self);
        body();
    }

    /// Computes the part of this number of each loop, if it comes in time, until there are no more.
    pub(crate) fn follow(&self, part: usize) {
        let (mut seen, mut spins) = (0, 0);
        while !self.over.load(Ordering::Acquire) {
            let word = self.gate.load(Ordering::Acquire);
            if word / NEXT == seen || word & CLOSED != 0 {
                relax(&mut spins);
                continue;
            }
            seen = word / NEXT;
            if !self.enter(word) {
                continue;
            }
            // SAFETY: inside the job is there and is not written.
            if let Some((work, _)) = unsafe { *self.job.get() }.filter(|&(_, count)| part < count) {
                // It catches panics, so none leaves this function.
                work(part);
            }
            self.gate.fetch_sub(1, Ordering::Release);
            spins = 0;
        }
    }

    /// Runs a loop on this thread, and on those that come while it computes its own part. Whether the thread's loops are together
    /// at all is the result; if not, nothing has run.
    pub(crate) fn run(count: usize, work: Work<'_>) -> bool {
        // SAFETY: it was set by `lead`, which has not ended, on this thread.
        let Some(together) = (unsafe { MINE.get().as_ref() }) else { return false };
        // SAFETY: only the lifetime changes. The reference is used inside only, and this function returns when the gate is closed and
        // nobody is inside; `work` does not panic.
        let job: Work<'static> = unsafe { std::mem::transmute::<Work<'_>, Work<'static>>(work) };
        // SAFETY: this thread has the loops, and the gate is closed with nobody inside.
        unsafe { *together.job.get() = Some((job, count)) };
        let number = together.gate.load(Ordering::Relaxed) / NEXT;
        together.gate.store(number.wrapping_add(1).wrapping_mul(NEXT), Ordering::Release);
        work(0);
        let (mut word, mut spins) = (together.gate.fetch_or(CLOSED, Ordering::Acquire), 0);
        if word & INSIDE != 0 {
            let start = Instant::now();
            while word & INSIDE != 0 {
                relax(&mut spins);
                word = together.gate.load(Ordering::Acquire);
            }
            let waited = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            together.waited.fetch_add(waited, Ordering::Relaxed);
        }
        true
    }

    /// Nanoseconds in which the thread that has the loops waited for others at the end of one.
    pub(crate) fn waited(&self) -> u64 {
        self.waited.load(Ordering::Relaxed)
    }

    fn enter(&self, mut word: usize) -> bool {
        let number = word / NEXT;
        while word & CLOSED == 0 && word / NEXT == number {
            match self.gate.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }
}

/// One step of waiting for something that is soon: spin, and let others run where it takes long, as it does when there are more
/// threads than cores.
fn relax(spins: &mut u32) {
    *spins += 1;
    if spins.is_multiple_of(4096) { thread::yield_now() } else { hint::spin_loop() }
}

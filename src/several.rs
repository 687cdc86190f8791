//! Work on several items at a time.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// As many threads as this process has processors.
pub(crate) fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// What `make` makes of each item, in the order of the items, by at most so many threads at once, of which the calling one is one.
pub(crate) fn several<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    make: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let made: Vec<_> = items.iter().map(|_| Mutex::new(None)).collect();
    each(items.len(), threads, &|at| {
        *made[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(make(&items[at]));
    });
    let made = made.into_iter().map(|made| made.into_inner().unwrap_or_else(PoisonError::into_inner));
    // The calling thread has gone on until no item was left, and the scope has waited for those of the others.
    made.map(|made| made.expect("an item was left out")).collect()
}

/// Calls `work` with every number below `count`, once. It is one function for all that several threads do, as its machine code is
/// long.
fn each(count: usize, threads: usize, work: &(dyn Fn(usize) + Sync)) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&at| at < count) {
            work(at);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            // A thread that the system does not give is one fewer.
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..100).collect();
        let squares: Vec<_> = items.iter().map(|n| n * n).collect();
        for threads in [0, 1, 3, 1000] {
            assert_eq!(several(&items, threads, |n| n * n), squares, "{threads} threads");
        }
        assert!(several(&[], 4, |n: &usize| *n).is_empty());
    }
}

//! Items shared out to threads.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Items shared out to threads: a thread takes those of its own contiguous range first, then what others
/// have left over. Which thread computes an item is left to chance, so items must not depend on it.
pub(super) struct Split {
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
    pub(super) fn new(items: usize, threads: usize) -> Self {
        let ranges = threads.clamp(1, Self::RANGES);
        let start = |range: usize| items * range.min(ranges) / ranges;
        Split { next: std::array::from_fn(|r| Line(AtomicUsize::new(start(r)))), items, ranges }
    }

    /// The items that thread `tid` takes, if there is one left for it.
    pub(super) fn items(&self, tid: usize) -> Option<Items<'_>> {
        let first = self.next(tid)?;
        Some(Items { split: self, tid, first: Some(first) })
    }

    /// The next item for thread `tid`.
    fn next(&self, tid: usize) -> Option<usize> {
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

/// The items that a thread takes, one when it asks for one.
pub(crate) struct Items<'a> {
    split: &'a Split,
    tid: usize,
    /// Which was taken in advance.
    first: Option<usize>,
}

impl Iterator for Items<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.first.take().or_else(|| self.split.next(self.tid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_can_do_the_work_of_all() {
        let split = Split::new(10, 3);
        assert_eq!(split.items(1).map(Iterator::count), Some(10));
        assert!(split.items(0).is_none());
    }
}

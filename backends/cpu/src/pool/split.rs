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
        let ranges = Self::ranges(threads);
        let start = |range: usize| items * range.min(ranges) / ranges;
        Split { next: std::array::from_fn(|r| Line(AtomicUsize::new(start(r)))), items, ranges }
    }

    fn ranges(threads: usize) -> usize {
        threads.clamp(1, Self::RANGES)
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

/// The item that is as far from the end of a thread's range as `item` is from its start, so that threads go through their ranges
/// backwards.
pub(crate) fn mirrored(item: usize, items: usize, threads: usize) -> usize {
    let ranges = Split::ranges(threads);
    let start = |range: usize| items * range / ranges;
    let range = ((item + 1) * ranges - 1) / items;
    start(range) + start(range + 1) - 1 - item
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
    fn mirrored_items_are_those_of_the_same_range_backwards() {
        let all = |items: usize, threads: usize| (0..items).map(move |item| mirrored(item, items, threads));
        assert_eq!(all(5, 1).collect::<Vec<_>>(), [4, 3, 2, 1, 0]);
        assert_eq!(all(7, 2).collect::<Vec<_>>(), [2, 1, 0, 6, 5, 4, 3]);
        assert_eq!(all(2, 4).collect::<Vec<_>>(), [0, 1]);
        for (items, threads) in [(1, 1), (13, 3), (64, 64), (1000, 100)] {
            let mut found: Vec<_> = all(items, threads).collect();
            assert!(found.iter().enumerate().all(|(item, &at)| mirrored(at, items, threads) == item));
            found.sort_unstable();
            assert!(found.into_iter().eq(0..items));
        }
    }

    #[test]
    fn one_thread_can_do_the_work_of_all() {
        let split = Split::new(10, 3);
        assert_eq!(split.items(1).map(Iterator::count), Some(10));
        assert!(split.items(0).is_none());
    }
}

//! Items shared out to threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use arrayvec::ArrayVec;

/// Items shared out to threads: a thread takes those of its own contiguous range first, then what others
/// have left over. Which thread computes an item is left to chance, so items must not depend on it.
pub(super) struct Split {
    /// The first item of each range that nobody has taken yet.
    next: ArrayVec<Line, { Split::RANGES }>,
    items: usize,
}

/// A counter with a cache line of its own.
#[repr(align(64))]
struct Line(AtomicUsize);

impl Split {
    const RANGES: usize = 64;

    /// `items` in one range for each of `threads`; threads beyond 64 only take what others leave.
    pub(super) fn new(items: usize, threads: usize) -> Self {
        let ranges = Self::ranges(threads);
        let line = |range| Line(AtomicUsize::new(start(items, ranges, range)));
        Split { next: (0..ranges).map(line).collect(), items }
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
        let ranges = self.next.len();
        (0..ranges).find_map(|k| {
            let range = (tid + k) % ranges;
            let end = start(self.items, ranges, range + 1);
            let next = &self.next[range].0;
            if next.load(Ordering::Relaxed) >= end {
                return None;
            }
            let item = next.fetch_add(1, Ordering::Relaxed);
            (item < end).then_some(item)
        })
    }
}

/// Where a range of `items` begins, and so where the one before it ends: `items * range / ranges`, by products that are at
/// most `items` or the square of `ranges`.
fn start(items: usize, ranges: usize, range: usize) -> usize {
    items / ranges * range + items % ranges * range / ranges
}

/// The item that is as far from the end of a thread's range as `item` is from its start, so that threads go through their ranges
/// backwards. `items` are parts of a tensor in memory: 64 times as many do not overflow.
pub(crate) fn mirrored(item: usize, items: usize, threads: usize) -> usize {
    let ranges = Split::ranges(threads);
    let range = ((item + 1) * ranges - 1) / items;
    start(items, ranges, range) + start(items, ranges, range + 1) - 1 - item
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
    fn ranges_cover_all_items_in_order_and_differ_by_at_most_one() {
        let counts =
            [0, 1, 7, 63, 64, 1000, (1 << 58) + 1, 1 << 63, (1 << 63) + 63, usize::MAX - 1, usize::MAX];
        for items in counts {
            for threads in [1, 2, 3, 63, 64, 100] {
                let ranges = Split::ranges(threads);
                let starts: Vec<_> = (0..=ranges).map(|range| start(items, ranges, range)).collect();
                assert_eq!((starts[0], starts[ranges]), (0, items));
                let is_even = |pair: &[usize]| {
                    let len = pair[1].checked_sub(pair[0]);
                    len.is_some_and(|len| len == items / ranges || len == items.div_ceil(ranges))
                };
                assert!(starts.windows(2).all(is_even), "{items} items, {threads} threads: {starts:?}");
            }
        }
    }

    #[test]
    fn threads_begin_at_their_ranges_of_many_items() {
        let split = Split::new(1 << 63, 2);
        let begins = [0, 1].map(|tid| split.items(tid).map(|items| items.take(2).collect::<Vec<_>>()));
        assert_eq!(begins, [Some(vec![0, 1]), Some(vec![1 << 62, (1 << 62) + 1])]);
    }

    #[test]
    fn one_thread_can_do_the_work_of_all() {
        let split = Split::new(10, 3);
        assert_eq!(split.items(1).map(Iterator::count), Some(10));
        assert!(split.items(0).is_none());
    }
}

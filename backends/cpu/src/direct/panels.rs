//! How output channels are cut into panels, and panels dealt out in parts.

use std::ops::Range;

use super::geometry::Geometry;
use super::weights::Panel;

/// Vectors of a panel that is no part's last one.
const VECTORS: usize = 2;

/// The vectors of a group that a part has: as many as any other, or one less.
fn vectors_of(part: usize, vectors: usize, parts: usize) -> Range<usize> {
    vectors * part / parts..vectors * (part + 1) / parts
}

/// Which of a group's panels each part has.
pub(super) fn shares(vectors: usize, parts: usize) -> Vec<Range<usize>> {
    let counts = (0..parts).map(|part| vectors_of(part, vectors, parts).len().div_ceil(VECTORS));
    let ends = counts.scan(0, |end, count| {
        *end += count;
        Some(*end - count..*end)
    });
    ends.collect()
}

/// The panels of all groups, of which each part of a group has whole ones.
pub(super) fn dense(g: &Geometry, lanes: usize, parts: usize) -> Vec<Panel> {
    let vectors = g.outputs.div_ceil(lanes);
    let of_part = |part: usize| {
        let all = vectors_of(part, vectors, parts);
        all.clone().step_by(VECTORS).map(move |first| first..all.end.min(first + VECTORS))
    };
    let of_group = |group: usize| {
        (0..parts).flat_map(of_part).map(move |vectors| {
            let (start, end) = (vectors.start * lanes, g.outputs.min(vectors.end * lanes));
            (group * g.outputs + start, end - start)
        })
    };
    packed(g, lanes, (0..g.groups).flat_map(of_group))
}

/// The panels of groups that share vectors.
pub(super) fn lanewise(g: &Geometry, lanes: usize) -> Vec<Panel> {
    let channels = g.groups * g.outputs;
    let size = g.outputs * (lanes / g.outputs.max(g.inputs)).max(1);
    packed(g, lanes, (0..channels).step_by(size).map(|first| (first, size.min(channels - first))))
}

/// Panels of so many output channels from a first one on, their weights one behind the other.
fn packed(g: &Geometry, lanes: usize, channels: impl Iterator<Item = (usize, usize)>) -> Vec<Panel> {
    let products = g.inputs * g.filters.tap_count();
    let mut end = 0;
    let panel = |(first, count): (usize, usize)| {
        let (vectors, offset) = (count.div_ceil(lanes), end);
        end += vectors * lanes * products;
        Panel { first, count, vectors, offset }
    };
    channels.map(panel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_as_many_vectors_or_one_less() {
        assert_eq!(shares(10, 2), [0..3, 3..6]);
        assert_eq!(shares(10, 1)[0], 0..5);
        assert_eq!(shares(7, 3), [0..1, 1..2, 2..4]);
        for (vectors, parts) in [(1, 1), (5, 2), (13, 3), (64, 5)] {
            let all: Vec<_> = (0..parts).map(|part| vectors_of(part, vectors, parts).len()).collect();
            assert_eq!(all.iter().sum::<usize>(), vectors);
            assert!(all.iter().max().unwrap() - all.iter().min().unwrap() <= 1);
        }
    }
}

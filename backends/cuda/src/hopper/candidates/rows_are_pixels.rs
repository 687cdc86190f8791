//! Tiles whose rows are pixels: TMA loads channels that are innermost, or threads read planes from shared memory.

use super::super::runs::{Runs, Sight};
use super::super::tiling::{Load, Packed, Tiling, Window};
use super::super::work::Work;
use super::{FILTERS, Schedule, THREE_QUARTERS, depth, depth_of_rows, with_splits};

/// Schedules of tiles whose rows are pixels.
const SCHEDULES: [Schedule; 11] = [
    (1, 2, 1, 1),
    (1, 3, 1, 1),
    (1, 2, 2, 1),
    (2, 1, 1, 1),
    (2, 2, 1, 1),
    (3, 1, 1, 1),
    (4, 1, 1, 1),
    (1, 1, 1, 2),
    (2, 1, 1, 2),
    (1, 1, 2, 2),
    (1, 1, 1, 1),
];

/// Schedules of tiles whose pixels come in whole planes.
const PACKED_SCHEDULES: [Schedule; 13] = [
    (3, 1, 1, 1),
    (1, 1, 1, 1),
    (1, 2, 1, 1),
    (1, 3, 1, 1),
    (1, 1, 2, 1),
    (1, 2, 2, 1),
    (2, 1, 1, 1),
    (2, 2, 1, 1),
    (2, 1, 2, 1),
    (1, 1, 1, 2),
    (1, 2, 1, 2),
    (1, 1, 2, 2),
    (2, 1, 1, 2),
];

/// Schedules of tiles whose pixels come as runs.
const RUN_SCHEDULES: [Schedule; 8] = [
    (1, 2, 1, 1),
    (2, 1, 1, 1),
    (1, 3, 1, 1),
    (2, 2, 1, 1),
    (1, 4, 1, 1),
    (3, 1, 1, 1),
    (1, 1, 1, 2),
    (1, 2, 1, 2),
];

/// The narrowest tile whose pixels come in whole planes: epilogues that do not write images have parts of as many filters.
const NARROWEST_PACKED: usize = 32;

/// The most taps that a step has, as its products are unrolled.
const MOST_TAPS: usize = 9;
/// The most pixels of a box along a dimension.
const LONGEST_BOX: usize = 256;

/// Every tile that there is room for where TMA walks over pixels.
pub(super) fn im2col(work: &Work) -> Vec<Tiling> {
    let mut all = Vec::new();
    let mut depths = vec![depth_of_channels(work, false), depth_of_channels(work, work.groups_walked)];
    depths.dedup();
    depths.retain(|depth| work.groups == 1 || work.groups_walked || work.channels.is_multiple_of(*depth));
    for depth in depths {
        for width in widths(work) {
            for schedule in SCHEDULES {
                let tile = Tiling::new(Load::Tma, work, schedule, width, depth);
                for resident in [false, true] {
                    all.extend(Tiling { resident, ..tile }.filled(work));
                }
            }
        }
    }
    with_splits(all, work)
}

/// Every tile that there is room for where bulk copies bring whole planes: of as many pixels as rows, or of whole planes.
pub(super) fn packed(work: &Work) -> Vec<Tiling> {
    let plane = work.planes * work.lines * work.columns;
    let mut all = Vec::new();
    let mut widths: Vec<_> = widths(work).into_iter().map(|width| width.max(NARROWEST_PACKED)).collect();
    widths.dedup();
    for width in widths {
        for schedule in PACKED_SCHEDULES {
            let tile = Tiling::new(Load::Packed, work, schedule, width, depth(work, false));
            let mut pixels = vec![tile.rows() / plane * plane, tile.rows()];
            pixels.dedup();
            for pixels in pixels.into_iter().filter(|&pixels| pixels > 0) {
                for resident in [false, true] {
                    let packed = Some(Packed { plane, pixels });
                    all.extend(Tiling { resident, packed, ..tile }.filled(work));
                }
            }
        }
    }
    with_splits(all, work)
}

/// Every tile that there is room for where pixels come as runs of planes, or as whole planes.
pub(super) fn runs(work: &Work, sight: &Sight) -> Vec<Tiling> {
    runs_of(work, sight, false)
}

/// The same, of which filters are read as they are, or prepared.
fn runs_of(work: &Work, sight: &Sight, reads_filters: bool) -> Vec<Tiling> {
    let own = reads_filters && work.element == 2;
    let mut widths: Vec<_> = widths(work).into_iter().map(|width| width.max(NARROWEST_PACKED)).collect();
    widths.dedup();
    let depths = [128, 64].map(|row| row / work.element).into_iter();
    let padded = |depth| work.channels.next_multiple_of(depth);
    let depths = depths.filter(|&depth| work.groups == 1 || work.channels.is_multiple_of(depth));
    let least = 64 / work.element;
    // Whole sectors are written of words that do not all begin at even elements, by one block of a multiprocessor, as two took 1.03 to 1.05 of
    // the time; behind several taps they take as long as words, or longer, as products do.
    let writes_sectors = work.results_are_odd && !work.reads_elements && work.taps == [1; 3];
    let depths = depths.filter(|&depth| depth == least || padded(depth) < padded(least) + least);
    let mut all = Vec::new();
    for depth in depths {
        for schedule in RUN_SCHEDULES {
            for runs in sight.tiles(work.images, work.channels, schedule.1 * schedule.2 * 64, depth) {
                if runs.overlap > 0 && (!writes_sectors || schedule.3 > 1) {
                    continue;
                }
                for &width in &widths {
                    let tile = Tiling::new(Load::Runs, work, schedule, width, depth);
                    let runs = Some(Runs { filter_rows: reads_filters, ..runs });
                    all.extend(Tiling { runs, resident: own, rearranged: own, ..tile }.filled(work));
                }
            }
        }
    }
    all
}

/// Those of them whose filters may be read as they are: a filter's channels are a row of the product as it lies in memory where it has one
/// tap. TMA brings them, or, those of 16 bits, which come in another order, the threads of a block that has room for all of its own. Those of
/// 3xTF32 come in two parts. TMA takes longer for what is not there.
pub(super) fn filter_rows(work: &Work, sight: &Sight) -> Vec<Tiling> {
    if work.tf32x3 || work.taps != [1; 3] || !work.is_aligned {
        return Vec::new();
    }
    let whole = |tiling: &Tiling| {
        (work.element == 2 || tiling.row() == 128)
            && work.channels.is_multiple_of(tiling.depth)
            && work.filters.is_multiple_of(tiling.width)
    };
    runs_of(work, sight, true).into_iter().filter(whole).collect()
}

/// Every tile that there is room for where TMA loads windows of the image, whose taps lie so far apart, columns first. A step
/// may leave its group where TMA knows where groups end.
pub(super) fn windows(work: &Work, dilations: [usize; 2]) -> Vec<Tiling> {
    let [_, taps_h, taps_w] = work.taps;
    // Lines of taps of a step: all of them, or one.
    let mut steps = vec![1, taps_h];
    steps.dedup();
    steps.retain(|lines| lines * taps_w <= MOST_TAPS && taps_h * taps_w > 1);
    let depths = [128, 64].map(|row| row / work.element).into_iter().filter(|&depth| {
        let whole = work.groups == 1 || work.groups_apart || work.channels.is_multiple_of(depth);
        whole && depth < work.channels.next_multiple_of(16) + 16
    });
    let of_channels = depth_of_channels(work, work.groups_apart);
    let depths = depths.chain((of_channels * work.element == THREE_QUARTERS).then_some(of_channels));
    let mut all = Vec::new();
    for depth in depths {
        for width in widths(work) {
            for schedule in SCHEDULES {
                let [columns, lines] = covering(work, schedule.1 * schedule.2);
                for &lines_of_taps in &steps {
                    let window = Window {
                        columns,
                        lines,
                        halo: [(taps_w - 1) * dilations[0], (lines_of_taps - 1) * dilations[1]],
                        lines_of_taps,
                        taps: lines_of_taps * taps_w,
                    };
                    let is_small = columns < work.columns + 8 && lines < work.lines + 8;
                    if !is_small
                        || columns + window.halo[0] > LONGEST_BOX
                        || lines + window.halo[1] > LONGEST_BOX
                    {
                        continue;
                    }
                    let tile = Tiling::new(Load::Halo, work, schedule, width, depth);
                    for resident in [false, true] {
                        all.extend(Tiling { resident, window: Some(window), ..tile }.filled(work));
                    }
                }
            }
        }
    }
    // Larger tiles that blocks share need as many blocks as small ones that none do, and exchange accumulators besides.
    let (small, large) = all.into_iter().partition(|tile| tile.rows() == 64);
    [with_splits(small, work), large].concat()
}

/// Channels of a step where TMA loads channels that are innermost. Threads that split filters read whole rows.
fn depth_of_channels(work: &Work, known: bool) -> usize {
    let rows: &[usize] = if work.tf32x3 { &[128, 64, 32] } else { &[128, THREE_QUARTERS, 64, 32] };
    depth_of_rows(rows, work, known)
}

/// Columns and lines of a rectangle of so many squares of 8 x 8 pixels: of all such the one that covers the image by the fewest,
/// then that of the least halo.
fn covering(work: &Work, squares: usize) -> [usize; 2] {
    let rectangles = (1..=squares).filter(|across| squares.is_multiple_of(*across));
    let rectangles = rectangles.map(|across| [8 * across, 8 * squares / across]);
    let cost = |[columns, lines]: &[usize; 2]| {
        (work.columns.div_ceil(*columns) * work.lines.div_ceil(*lines), columns + lines)
    };
    rectangles.min_by_key(cost).unwrap_or([8 * squares, 8])
}

/// Widths that cut the filters into equal parts: also narrow ones where 1x1 of 16 bits has so few pixels that others leave
/// multiprocessors idle, for which they were timed. With a residual of 16 bits also multiples of 32 next to these, of which the last tile is filled
/// in part, as lanes exchange results by 32 filters: of six such convolutions in f16 these are fastest in five on an H200, by 0.03 to
/// 0.16. Of those without a residual one is, by a twentieth, and the model would take them in four that they make slower.
fn widths(work: &Work) -> Vec<usize> {
    let tiles = (work.images * work.planes * work.lines * work.columns).div_ceil(64);
    let leaves_idle = tiles * work.groups * work.filters.div_ceil(64) < work.units;
    let narrowest = if leaves_idle && work.taps == [1; 3] && work.element == 2 { 32 } else { 64 };
    let (fewest, most) = (work.filters.div_ceil(FILTERS), work.filters.div_ceil(narrowest));
    let multiples: &[usize] = if work.residuals > 0 && work.element == 2 { &[8, 32] } else { &[8] };
    let mut widths: Vec<_> = (fewest..=most)
        .map(|parts| work.filters.div_ceil(parts))
        .flat_map(|equal| multiples.iter().map(move |&multiple| equal.next_multiple_of(multiple)))
        .collect();
    widths.sort_unstable_by(|one, other| other.cmp(one));
    widths.dedup();
    widths
}

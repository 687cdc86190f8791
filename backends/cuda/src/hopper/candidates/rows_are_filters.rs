//! Tiles whose rows are filters: pixels are loaded from channels-first tensors.

use super::super::layout::columns_behind;
use super::super::tiling::{BOX, Lines, Load, TRANSPOSED_DEPTH, Tiling, Transposed};
use super::super::work::Work;
use super::{FILTERS, Schedule, depth, with_splits};

/// Schedules of tiles of planes.
const PLANE_SCHEDULES: [Schedule; 9] = [
    (1, 2, 1, 1),
    (1, 2, 2, 1),
    (2, 1, 1, 1),
    (2, 1, 2, 1),
    (2, 2, 1, 1),
    (4, 1, 1, 1),
    (1, 1, 1, 2),
    (2, 1, 1, 2),
    (1, 1, 1, 1),
];

/// The same of tiles of lines.
const LINE_SCHEDULES: [Schedule; 7] =
    [(1, 1, 1, 1), (1, 1, 1, 2), (2, 1, 1, 1), (3, 1, 1, 1), (4, 1, 1, 1), (1, 2, 1, 1), (2, 2, 1, 1)];

/// Schedules of tiles whose pixels are gathered, each with producer warpgroups and pixels.
const GATHER_SCHEDULES: [(Schedule, usize, usize); 6] = [
    ((1, 2, 2, 1), 1, 128),
    ((1, 2, 1, 1), 2, 128),
    ((2, 1, 1, 1), 2, 128),
    ((1, 1, 1, 1), 2, 256),
    ((1, 1, 1, 1), 2, 128),
    ((1, 1, 1, 1), 2, 64),
];

/// The same where products are 3xTF32, whose consumers have more sums.
const TF32X3_GATHER_SCHEDULES: [(Schedule, usize, usize); 6] = [
    ((1, 2, 1, 1), 1, 128),
    ((1, 3, 1, 1), 1, 64),
    ((1, 2, 1, 1), 2, 64),
    ((2, 1, 1, 1), 1, 128),
    ((1, 1, 1, 1), 2, 128),
    ((1, 1, 1, 1), 2, 64),
];

/// The fewest stages of streamed filters: those of a step are multiplied, others released and on their way.
const FILTER_STAGES: usize = 3;

/// Pixels of a sector of memory. Nine tiles of 104, 200 and 248 pixels of six layers on an H200, of which every other one begins within a
/// sector, had times over their estimates that were 1.18 times those of the layers' tiles of whole sectors (1.01 to 1.41).
const SECTOR: usize = 16;

/// The narrowest tile of pixels: the epilogue along pixels has parts of 64, as a tile has that is wider than half of one.
const NARROWEST: usize = 40;

/// Every tile that there is room for where TMA loads planes, or threads copy them.
pub(super) fn planes(work: &Work, copied: bool) -> Vec<Tiling> {
    // For every number of boxes the least width with which they cover an image in as many tiles, and of several tiles that TMA brings the
    // least of whole [`SECTOR`]s, so that each begins at one wherever planes do.
    let plane = work.planes * work.lines * work.columns;
    let width = |tiles: usize| {
        plane.div_ceil(tiles).next_multiple_of(if copied || tiles == 1 { 8 } else { SECTOR }).max(NARROWEST)
    };
    let mut widths: Vec<_> = (1..=FILTERS / BOX).map(|boxes| width(plane.div_ceil(boxes * BOX))).collect();
    widths.dedup();
    let mut all = Vec::new();
    for width in widths {
        for schedule in PLANE_SCHEDULES {
            let tile = Tiling {
                rearranged: !work.is_aligned,
                copied,
                ..Tiling::new(Load::Planes, work, schedule, width, depth(work, false))
            };
            // Threads bring filters once. No warpgroup of a tile is without filters.
            for resident in [false, true].into_iter().filter(|&resident| resident || work.is_aligned) {
                let fits = tile.filters() < work.filters + 64;
                all.extend(Tiling { resident, ..tile }.filled(work).filter(|_| fits));
            }
        }
    }
    with_splits(all, work)
}

/// Columns of the blocks that a tile's lines may be made of, and of the lines: blocks that lines of the image are whole
/// numbers of, or a single one. No line has fewer columns than the output's.
pub(super) fn blocks(image: usize, output: usize) -> impl Iterator<Item = (usize, usize)> {
    let sizes = [64, 32, 16];
    let whole = sizes.into_iter().find(|&block| image.is_multiple_of(block)).map(|block| (block, image));
    let whole = whole.filter(|_| output <= image);
    let single = sizes.into_iter().rfind(|&block| block >= image.max(output)).map(|block| (block, block));
    whole.into_iter().chain(single.filter(|&(_, columns)| whole.is_none_or(|(_, whole)| whole != columns)))
}

/// Every tile that there is room for where TMA loads lines.
pub(super) fn lines(work: &Work) -> Vec<Tiling> {
    let of = |depth| -> Vec<_> {
        line_tiles(work).flat_map(|tile| Tiling { depth, ..tile }.filled(work)).collect()
    };
    let [wide, middle, narrow] = [128, 64, 32].map(|row| row / work.element);
    let fits = |depth: usize| work.groups == 1 || work.channels.is_multiple_of(depth);
    let padded = |depth| work.channels.next_multiple_of(depth);
    let mut all = Vec::new();
    for depth in
        [wide, middle].into_iter().filter(|&depth| fits(depth) && padded(depth) < padded(middle) + middle)
    {
        all.extend(of(depth));
    }
    // Narrow rows are loaded slowly, but are the least.
    if all.is_empty() || padded(narrow) < padded(middle) {
        all.extend(of(narrow));
    }
    all
}

/// Tiles of lines of any depth.
fn line_tiles(work: &Work) -> impl Iterator<Item = Tiling> {
    let [_, taps_h, taps_w] = work.taps;
    let shapes = blocks(work.image_columns, work.columns);
    let shapes =
        shapes.filter(move |&(_, columns)| columns_behind(work.columns, taps_w, work.pad, columns) <= 8);
    let shapes = shapes.flat_map(|(block, columns)| {
        let (fewest, most) = (NARROWEST.div_ceil(columns), FILTERS / columns);
        (fewest..=most.min(work.lines.max(fewest))).map(move |count| (block, columns, count))
    });
    let keeps = if taps_w > 1 { &[false, true][..] } else { &[true] };
    // Filters are resident, or streamed, by one block of a multiprocessor: no two were faster where timed.
    let ways = move |keep| [(keep, 0), (keep, FILTER_STAGES)];
    shapes.flat_map(move |(block, columns, count)| {
        let schedules = LINE_SCHEDULES.into_iter().flat_map(move |schedule| {
            keeps.iter().flat_map(move |&keep| ways(keep)).map(move |way| (schedule, way))
        });
        let tiles = schedules.map(move |(schedule, (keep, filter_stages))| Tiling {
            resident: filter_stages == 0,
            rearranged: filter_stages == 0,
            lines: Some(Lines { count, columns, block, halo: taps_h - 1, keep, filter_stages }),
            ..Tiling::new(Load::Lines, work, schedule, count * columns, 0)
        });
        // No warpgroup of a tile is without filters.
        tiles.filter(move |tile| tile.filters() < work.filters + 64 && (tile.resident || tile.occupancy == 1))
    })
}

/// Schedules of tiles of rectangles.
const TRANSPOSED_SCHEDULES: [Schedule; 4] = [(1, 2, 1, 1), (2, 1, 1, 1), (1, 1, 1, 1), (1, 3, 1, 1)];

/// Every tile that there is room for where TMA loads rectangles, whose pixels are transposed.
pub(super) fn transposed(work: &Work) -> Vec<Tiling> {
    let [_, taps_h, taps_w] = work.taps;
    // Equal parts of lines, of which narrow ones come with more of their neighbours.
    let mut widths: Vec<_> = (1..=work.columns.div_ceil(NARROWEST))
        .map(|parts| work.columns.div_ceil(parts).next_multiple_of(8))
        .filter(|columns| columns + 8 <= FILTERS)
        .collect();
    widths.dedup();
    let shapes = widths.into_iter().flat_map(|columns| {
        let most = (FILTERS / (columns + 8)).min(work.lines);
        (1..=most).map(move |lines| (lines, columns))
    });
    let shapes = shapes.filter(|&(lines, columns)| lines * (columns + 8) >= NARROWEST);
    let mut all = Vec::new();
    for (lines, columns) in shapes {
        for schedule in TRANSPOSED_SCHEDULES {
            let line = columns + 8;
            let boxes = (line + (8 - work.pad % 8) % 8).div_ceil(BOX);
            let tile = Transposed {
                lines,
                columns,
                halo: taps_h - 1,
                boxes,
                taps: taps_w,
                raw_stages: 1,
                filter_stages: 2,
            };
            let tiling = Tiling {
                transposed: Some(tile),
                ..Tiling::new(Load::Transposed, work, schedule, lines * line, TRANSPOSED_DEPTH)
            };
            let fits = tiling.filters() < work.filters + 64;
            all.extend(tiling.filled(work).filter(|_| fits));
        }
    }
    all
}

/// Pixels of a tile that are reordered.
const REORDERED_WIDTHS: [usize; 7] = [64, 96, 128, 160, 192, 224, 256];

/// Every tile that there is room for where TMA walks over pixels that are reordered.
pub(super) fn reordered(work: &Work) -> Vec<Tiling> {
    let mut all = Vec::new();
    for width in REORDERED_WIDTHS {
        for schedule in PLANE_SCHEDULES.into_iter().chain([(1, 3, 1, 1)]) {
            let tile = Tiling::new(Load::Reordered, work, schedule, width, depth(work, false));
            // No warpgroup of a tile is without filters.
            let fits = tile.filters() < work.filters + 64;
            for resident in [false, true] {
                all.extend(Tiling { resident, ..tile }.filled(work).filter(|_| fits));
            }
        }
    }
    with_splits(all, work)
}

/// Every tile that there is room for where pixels are gathered.
pub(super) fn gathering(work: &Work) -> Vec<Tiling> {
    let mut all = Vec::new();
    let schedules = if work.tf32x3 { TF32X3_GATHER_SCHEDULES } else { GATHER_SCHEDULES };
    for (schedule, producers, width) in schedules {
        let tile =
            Tiling { producers, ..Tiling::new(Load::Gather, work, schedule, width, 128 / work.element) };
        for resident in [false, true] {
            all.extend(Tiling { resident, ..tile }.filled(work));
        }
    }
    with_splits(all, work)
}

//! The tiles that a problem may have: every one that a block has room for.

use fuseplan_api::Problem;
use fuseplan_gpu::{
    Volume, chain_values, channel_values, has_exponentials, residuals, spatial, units_at_once,
};

use super::cost::Work;
use super::tiling::{BOX, Lines, Load, SHARED, SHARED_RESERVED, Tiling, columns_behind, outputs_at_once};

/// Schedules of tiles whose pixels TMA loads: ping-pong sets, cooperative warpgroups, atoms of 64 pixels of each, blocks of a
/// multiprocessor.
const TMA_SCHEDULES: [(usize, usize, usize, usize); 11] = [
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

/// Schedules of tiles whose pixels TMA loads from planes: ping-pong sets, cooperative warpgroups, atoms of 64 filters of
/// each, blocks of a multiprocessor.
const PLANE_SCHEDULES: [(usize, usize, usize, usize); 9] = [
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
const LINE_SCHEDULES: [(usize, usize, usize, usize); 5] =
    [(1, 1, 1, 1), (1, 1, 1, 2), (2, 1, 1, 1), (3, 1, 1, 1), (1, 2, 1, 1)];

/// Schedules of tiles whose pixels are gathered: producer warpgroups, ping-pong sets, cooperative warpgroups, atoms of 64
/// filters of each, pixels.
const GATHER_SCHEDULES: [(usize, usize, usize, usize, usize); 6] = [
    (1, 1, 2, 2, 128),
    (2, 1, 2, 1, 128),
    (2, 2, 1, 1, 128),
    (2, 1, 1, 1, 256),
    (2, 1, 1, 1, 128),
    (2, 1, 1, 1, 64),
];

/// How many blocks may share a tile.
const SPLITS: [usize; 3] = [2, 4, 8];

/// Most stages: more are of no use.
const STAGES: usize = 12;
/// The widest tile that one instruction makes.
const FILTERS: usize = 256;
/// The narrowest tile of pixels: the epilogue along pixels has parts of 64, as a tile has that is wider than half of one.
const NARROWEST: usize = 40;

/// The tiles of a problem that meets the solver's constraints, with about how many microseconds each takes on a device of
/// about `units` multiprocessors.
pub(super) fn tilings(load: Load, problem: &Problem, units: usize) -> Vec<(Tiling, f64)> {
    let Some((conv, weights)) = problem.conv() else { unreachable!("a constraint demands a convolution") };
    let (w, y) = (Volume::of(weights), Volume::of(&problem.output));
    let element = problem.output.data_type().size();
    let x = Volume::of(&problem.input);
    let work = Work {
        images: y.lens[0],
        lines: y.lens[2] * y.lens[3],
        columns: y.lens[4],
        image_columns: x.lens[4],
        pad: spatial(conv.pads_before(), 0)[2],
        is_aligned: (w.strides[0] * element).is_multiple_of(16),
        groups: conv.groups(),
        filters: w.lens[0] / conv.groups(),
        channels: w.lens[1],
        taps: [w.lens[2], w.lens[3], w.lens[4]],
        channel_values: channel_values(problem),
        epilogue: 8 * chain_values(problem)
            + 4 * element * residuals(problem)
            + if has_exponentials(problem) { 8 } else { 0 },
        element,
        vector: outputs_at_once(load, problem),
        bytes: problem.input.bytes() + weights.bytes() + problem.output.bytes(),
        units,
    };
    let (all, time): (_, fn(&Work, &Tiling) -> f64) = match load {
        Load::Tma => (candidates(&work), Work::time),
        Load::Planes => (planes(&work), Work::time),
        Load::Lines => (lines(&work), Work::time),
        Load::Gather => (gathering(&work), Work::gathering_time),
    };
    all.into_iter().map(|tiling| (tiling, time(&work, &tiling))).collect()
}

/// Every tile that there is room for.
fn candidates(work: &Work) -> Vec<Tiling> {
    let depth = depth(work);
    // Widths that cut the filters into equal parts.
    let (fewest, most) = (work.filters.div_ceil(FILTERS), work.filters.div_ceil(64));
    let mut widths: Vec<_> =
        (fewest..=most).map(|parts| work.filters.div_ceil(parts).next_multiple_of(8)).collect();
    widths.dedup();
    let mut all = Vec::new();
    for filters in widths {
        for (pingpong, cooperative, atoms, occupancy) in TMA_SCHEDULES {
            for resident in [false, true] {
                all.extend(
                    Tiling {
                        load: Load::Tma,
                        producers: 1,
                        pingpong,
                        cooperative,
                        atoms,
                        width: filters,
                        depth,
                        element: work.element,
                        stages: 0,
                        occupancy,
                        resident,
                        rearranged: false,
                        split: 1,
                        lines: None,
                    }
                    .filled(work),
                );
            }
        }
    }
    with_splits(all, work)
}

/// Tilings, and the same tiles shared by several blocks where all blocks have room at once. A block has one of these.
fn with_splits(mut all: Vec<Tiling>, work: &Work) -> Vec<Tiling> {
    for at in 0..all.len() {
        let tiling = all[at];
        let tiles = work.tiles(&tiling);
        // Adding up the blocks' accumulators takes registers.
        let room = tiling.registers_at_launch() >= tiling.accumulators() + 72;
        if tiling.pingpong > 1 || tiling.resident || !room {
            continue;
        }
        for split in SPLITS {
            let slots = units_at_once(work.units, split) * tiling.occupancy;
            if tiles * split <= slots && 2 * split <= work.steps(&tiling) {
                all.extend(Tiling { split, ..tiling }.filled(work));
            }
        }
    }
    all
}

/// Every tile that there is room for where TMA loads planes.
fn planes(work: &Work) -> Vec<Tiling> {
    // For every number of boxes the least width with which they cover an image in as many tiles.
    let plane = work.lines * work.columns;
    let mut widths: Vec<_> = (1..=FILTERS / BOX)
        .map(|boxes| plane.div_ceil(plane.div_ceil(boxes * BOX)).next_multiple_of(8))
        .map(|width| width.max(NARROWEST))
        .collect();
    widths.dedup();
    let mut all = Vec::new();
    for width in widths {
        for (pingpong, cooperative, atoms, occupancy) in PLANE_SCHEDULES {
            // Threads bring filters once.
            for resident in [false, true].into_iter().filter(|&resident| resident || work.is_aligned) {
                let tiling = Tiling {
                    load: Load::Planes,
                    producers: 1,
                    pingpong,
                    cooperative,
                    atoms,
                    width,
                    depth: depth(work),
                    element: work.element,
                    stages: 0,
                    occupancy,
                    resident,
                    rearranged: !work.is_aligned,
                    split: 1,
                    lines: None,
                };
                // No warpgroup of a tile is without filters.
                let fits = tiling.filters() < work.filters + 64;
                all.extend(tiling.filled(work).filter(|_| fits));
            }
        }
    }
    with_splits(all, work)
}

/// Columns of the blocks that a tile's lines may be made of, and of the lines: blocks that lines of the image are whole
/// numbers of, or a single one. No line has fewer columns than the output's.
fn blocks(image: usize, output: usize) -> impl Iterator<Item = (usize, usize)> {
    let sizes = [64, 32, 16];
    let whole = sizes.into_iter().find(|&block| image.is_multiple_of(block)).map(|block| (block, image));
    let whole = whole.filter(|_| output <= image);
    let single = sizes.into_iter().rfind(|&block| block >= image.max(output)).map(|block| (block, block));
    whole.into_iter().chain(single.filter(|&(_, columns)| whole.is_none_or(|(_, whole)| whole != columns)))
}

/// Every tile that there is room for where TMA loads lines.
fn lines(work: &Work) -> Vec<Tiling> {
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
    shapes.flat_map(move |(block, columns, count)| {
        let schedules = LINE_SCHEDULES
            .into_iter()
            .flat_map(move |schedule| keeps.iter().map(move |&keep| (schedule, keep)));
        let tiles = schedules.map(move |((pingpong, cooperative, atoms, occupancy), keep)| Tiling {
            load: Load::Lines,
            producers: 1,
            pingpong,
            cooperative,
            atoms,
            width: count * columns,
            depth: 0,
            element: work.element,
            stages: 0,
            occupancy,
            resident: true,
            rearranged: true,
            split: 1,
            lines: Some(Lines { count, columns, block, halo: taps_h - 1, keep }),
        });
        // No warpgroup of a tile is without filters.
        tiles.filter(move |tile| tile.filters() < work.filters + 64)
    })
}

/// Every tiling that has room where pixels are gathered.
fn gathering(work: &Work) -> Vec<Tiling> {
    let mut all = Vec::new();
    for (producers, pingpong, cooperative, atoms, width) in GATHER_SCHEDULES {
        for resident in [false, true] {
            let tiling = Tiling {
                load: Load::Gather,
                producers,
                pingpong,
                cooperative,
                atoms,
                width,
                depth: 128 / work.element,
                element: work.element,
                stages: 0,
                occupancy: 1,
                resident,
                rearranged: false,
                split: 1,
                lines: None,
            };
            all.extend(tiling.filled(work));
        }
    }
    with_splits(all, work)
}

/// Channels of a step: those that leave the least of the last step empty. A step of a group with others
/// beside it must not reach into them.
fn depth(work: &Work) -> usize {
    let cost = |depth: &usize| {
        // Wide rows are loaded faster.
        let slow = match depth * work.element {
            128 => 100,
            64 => 110,
            _ => 135,
        };
        work.channels.next_multiple_of(*depth) * slow
    };
    let fits = |depth: &usize| work.groups == 1 || work.channels.is_multiple_of(*depth);
    let rows = [128, 64, 32].map(|row| row / work.element);
    rows.into_iter().filter(fits).min_by_key(cost).unwrap_or(rows[2])
}

impl Tiling {
    /// This tiling with as many stages as there is room for, if there are registers and shared memory enough.
    fn filled(self, work: &Work) -> Option<Tiling> {
        let steps = work.steps(&self);
        // Registers that a thread needs besides its accumulators: at the entry, and in the epilogue. Those that it needs
        // to gather.
        let (entry, epilogue, gathering) = match self.load {
            Load::Tma => (26, 32 + work.epilogue, 0),
            Load::Planes => (40, 40 + work.channel_values, 0),
            // Sums that move, and outputs' places within lines, take more.
            Load::Lines => (80, 40 + work.channel_values, 0),
            Load::Gather => (26, 40 + work.channel_values, if self.producers == 1 { 96 } else { 72 }),
        };
        let (producer, consumer) = self.registers();
        if self.registers_at_launch() < self.accumulators() + entry
            || consumer < self.accumulators() + epilogue
            || producer < gathering
        {
            return None;
        }
        let columns = work.columns(&self);
        if self.resident && columns > work.units * self.occupancy {
            return None;
        }
        let least = match self.lines {
            Some(lines) if lines.keep => steps + 1,
            Some(_) => 2,
            None => 3 + usize::from(self.resident),
        };
        let limit = SHARED / self.occupancy - SHARED_RESERVED;
        let taps = work.taps.iter().product();
        let stages = (least..=STAGES.max(least)).rev().find(|&stages| {
            Tiling { stages, ..self }.shared(work.filter_steps(&self), taps, work.channel_values) <= limit
        })?;
        Some(Tiling { stages, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tiling::REGISTERS;
    use super::*;

    fn work(pixels: usize, filters: usize, channels: usize, taps: usize) -> Work {
        let bytes = 2 * pixels * (filters + channels);
        Work {
            images: 1,
            lines: 1,
            columns: pixels,
            image_columns: pixels,
            pad: 0,
            is_aligned: true,
            groups: 1,
            filters,
            channels,
            taps: [1, 1, taps],
            channel_values: 1,
            epilogue: 0,
            element: 2,
            vector: 8,
            bytes,
            units: 132,
        }
    }

    fn best(work: &Work) -> Tiling {
        candidates(work).into_iter().min_by(|a, b| work.time(a).total_cmp(&work.time(b))).unwrap()
    }

    #[test]
    fn every_problem_has_a_tile_within_a_block() {
        for filters in [16, 17, 24, 100, 256, 257, 5000] {
            for channels in [1, 8, 24, 72, 512, 4096usize] {
                for channel_values in [0, 1, 4, 16] {
                    for groups in [1, 3] {
                        let all = candidates(&Work {
                            channel_values,
                            epilogue: 8 * channel_values,
                            groups,
                            channels: channels.next_multiple_of(if groups == 1 { 1 } else { 16 }),
                            ..work(1000, filters, channels, 9)
                        });
                        assert!(!all.is_empty(), "{filters} {channels} {channel_values} {groups}");
                        for tiling in all {
                            assert!(tiling.filters().is_multiple_of(8) && tiling.filters() <= FILTERS);
                            let (producer, consumer) = tiling.registers();
                            let registers = producer + tiling.pingpong * tiling.cooperative * consumer;
                            assert!(
                                registers * tiling.occupancy <= REGISTERS && consumer <= 240,
                                "{tiling:?}"
                            );
                            assert!(tiling.stages >= 3);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn tiles_suit_their_problems() {
        // One wave of 25 times 5 tiles.
        let deep = best(&work(64 * 49, 512, 512, 9));
        assert_eq!((deep.pixels(), deep.filters()), (128, 104));
        // Memory bound: many consumers, and resident filters.
        let wide = best(&work(64 * 55 * 55, 256, 64, 1));
        assert!(wide.pingpong * wide.cooperative * wide.occupancy >= 4 && wide.resident, "{wide:?}");
        // Large: every operand is used often.
        let large = best(&work(16 * 128 * 128, 512, 512, 9));
        assert!(large.pixels() * large.filters() >= 128 * 128, "{large:?}");
        // A single image still gives work to many multiprocessors.
        let one = best(&work(49, 512, 512, 9));
        assert!(one.pixels() == 64 && one.filters() <= 64 && one.split > 1, "{one:?}");
    }

    #[test]
    fn gathered_tiles_suit_their_problems() {
        let best = |work: &Work| {
            let time = |tiling: &Tiling| work.gathering_time(tiling);
            gathering(work).into_iter().min_by(|a, b| time(a).total_cmp(&time(b))).unwrap()
        };
        // One wave either way: pixels are gathered for as many filters as can be.
        assert_eq!(best(&work(64 * 14 * 14, 256, 256, 9)).filters(), 256);
        // Half a wave, or all of it in narrower tiles.
        assert_eq!(best(&work(64 * 7 * 7, 512, 512, 9)).filters(), 128);
        assert_eq!(best(&work(64 * 55 * 55, 64, 64, 9)).filters(), 64);
        for filters in [32, 100, 5000] {
            for channel_values in [0, 16] {
                let all = gathering(&Work { channel_values, ..work(1000, filters, 64, 27) });
                assert!(!all.is_empty());
                for tiling in all {
                    let (producer, consumer) = tiling.registers();
                    let registers =
                        tiling.producers * producer + tiling.pingpong * tiling.cooperative * consumer;
                    assert!(registers <= REGISTERS && consumer <= 240, "{tiling:?}");
                }
            }
        }
    }

    #[test]
    fn tiles_of_planes_and_lines_fit_a_block() {
        for (filters, channels, taps) in
            [(16, 24, 1), (64, 64, 1), (200, 17, 1), (64, 64, 3), (130, 128, 3), (48, 20, 5)]
        {
            for (rows, columns) in [(1, 8), (4, 14), (28, 28), (56, 56), (80, 80), (160, 160), (9, 256)] {
                for channel_values in [0, 16] {
                    let work = Work {
                        images: 3,
                        lines: rows,
                        columns,
                        image_columns: columns,
                        pad: taps / 2,
                        is_aligned: channels % 8 == 0,
                        channel_values,
                        ..work(1, filters, channels, 1)
                    };
                    let work = Work { taps: [1, taps, taps], ..work };
                    let all = if taps == 1 { planes(&work) } else { lines(&work) };
                    assert!(!all.is_empty(), "{work:?}");
                    for tiling in all {
                        let (producer, consumer) = tiling.registers();
                        let registers = producer + tiling.pingpong * tiling.cooperative * consumer;
                        assert!(registers * tiling.occupancy <= REGISTERS && consumer <= 240, "{tiling:?}");
                        assert!(tiling.width <= FILTERS && tiling.width > 32, "{tiling:?}");
                        assert!(tiling.resident || !tiling.rearranged, "{tiling:?}");
                        if let Some(Lines { keep: true, .. }) = tiling.lines {
                            assert!(tiling.stages > work.steps(&tiling), "{tiling:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn lines_are_whole_blocks_or_one() {
        let of = |columns| blocks(columns, columns).collect::<Vec<_>>();
        assert_eq!(of(64), [(64, 64)]);
        assert_eq!(of(160), [(32, 160)]);
        assert_eq!(of(48), [(16, 48), (64, 64)]);
        assert_eq!(of(14), [(16, 16)]);
        assert_eq!(of(72), []);
        assert_eq!([(32, 34), (64, 66)].map(|(image, output)| blocks(image, output).count()), [1, 0]);
        // A 3x3 filter's sums end a pixel to the right of a full line, not of one with room.
        assert_eq!([columns_behind(160, 3, 1, 160), columns_behind(56, 3, 1, 64)], [1, 0]);
    }

    #[test]
    fn steps_leave_little_empty_and_stay_within_groups() {
        let depth_of = |channels, groups| depth(&Work { groups, ..work(100, 64, channels, 1) });
        assert_eq!(
            [8, 16, 24, 32, 48, 64, 72, 512].map(|c| depth_of(c, 1)),
            [16, 16, 32, 32, 64, 64, 32, 64]
        );
        assert_eq!([16, 32, 48, 64, 96].map(|c| depth_of(c, 2)), [16, 32, 16, 64, 32]);
    }
}

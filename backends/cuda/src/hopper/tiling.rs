//! The choice of a tile: a model of what bounds a kernel, put to every tile that a block has room for.

use fuseplan_api::Problem;
use fuseplan_gpu::{Volume, channel_values, common_power, units_at_once};

/// How pixels come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// By the copy engine, channels innermost. Rows of the product are pixels.
    Copied,
    /// By loads of elements, any layout. Rows of the product are filters.
    Gathered,
}

/// Shapes of a block and its tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tiling {
    pub(crate) way: Way,
    /// Groups of four warps that bring operands.
    pub(crate) feeders: usize,
    /// Teams that take tiles by turns.
    pub(crate) teams: usize,
    /// Groups of four warps of a team.
    pub(crate) consumers: usize,
    /// Blocks of 64 rows of each.
    pub(crate) blocks: usize,
    /// Columns.
    pub(crate) width: usize,
    /// Elements of the depth in a step.
    pub(crate) depth: usize,
    /// Steps in flight.
    pub(crate) stages: usize,
    /// Blocks of a multiprocessor.
    pub(crate) per_unit: usize,
    /// Whether a block keeps its filters.
    pub(crate) resident: bool,
    /// Blocks that share a tile.
    pub(crate) split: usize,
}

/// Registers of a multiprocessor for each of 128 threads.
const REGISTERS: usize = 512;
/// Bytes of shared memory of a multiprocessor, and of it what every block costs besides its own.
const SHARED: usize = 228 * 1024;
const SHARED_RESERVED: usize = 1024;

impl Tiling {
    fn rows(&self) -> usize {
        self.consumers * self.blocks * 64
    }

    pub(super) fn pixels(&self) -> usize {
        if self.way == Way::Copied { self.rows() } else { self.width }
    }

    pub(super) fn filters(&self) -> usize {
        if self.way == Way::Copied { self.width } else { self.rows() }
    }

    /// Tiles whose channels are at hand: of every team's, and the next.
    pub(super) fn buffers(&self) -> usize {
        self.teams + 1
    }

    fn groups(&self) -> usize {
        self.feeders + self.teams * self.consumers
    }

    pub(super) fn threads(&self) -> usize {
        self.groups() * 128
    }

    /// Microseconds in which blocks that share a tile add up their sums.
    fn meeting(&self) -> f64 {
        if self.split > 1 { 1.3 } else { 0.0 }
    }

    /// Bytes of the table of the depth where pixels are gathered.
    pub(super) fn table(&self, taps: usize) -> usize {
        if self.way == Way::Gathered { self.depth * taps * 8 } else { 0 }
    }

    /// Bytes of shared memory of a block; as the text counts them.
    pub(super) fn shared(&self, steps: usize, taps: usize, channel_values: usize) -> usize {
        let row = self.depth * 2;
        let kept = if self.resident { steps } else { self.stages };
        let operands = self.stages * self.pixels() * row + kept * self.filters() * row;
        let sums = if self.split > 1 {
            self.rows() * (self.width + 4)
        } else {
            self.teams * self.consumers * 4 * 8 * 72
        };
        let sums = sums * size_of::<f32>();
        let channels =
            (self.buffers() * self.filters() * channel_values * size_of::<f32>()).next_multiple_of(16);
        let barriers = (2 * self.stages + 2 * self.buffers() + self.teams + 1) * 8;
        1024 + operands + sums + channels + self.table(taps) + barriers
    }

    fn registers_at_launch(&self) -> usize {
        (REGISTERS / (self.per_unit * self.groups()) / 8 * 8).min(248)
    }

    /// Registers of sums.
    fn sums(&self) -> usize {
        self.blocks * self.width / 2
    }

    /// Registers of a thread that feeds and of one that multiplies.
    pub(super) fn registers(&self) -> (usize, usize) {
        let consumers = self.teams * self.consumers;
        let pool = self.registers_at_launch() * self.groups();
        match self.way {
            Way::Copied => {
                let feed = if pool >= 400 { 40 } else { 24 };
                (feed, ((pool - feed) / consumers / 8 * 8).min(240))
            }
            Way::Gathered => {
                let consumer = (self.sums() + 56).next_multiple_of(8).clamp(self.registers_at_launch(), 240);
                let feed = pool.saturating_sub(consumer * consumers) / self.feeders / 8 * 8;
                (feed.min(self.registers_at_launch()), consumer)
            }
        }
    }
}

/// Shapes of tiles whose pixels are copied: teams, groups of a team, blocks of 64 pixels of a group, blocks of a
/// multiprocessor.
const SHAPES: [(usize, usize, usize, usize); 11] = [
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

/// Shapes of tiles whose pixels are gathered: feeding groups, teams, groups of a team, blocks of 64 filters of a
/// group, pixels.
const GATHERED: [(usize, usize, usize, usize, usize); 6] = [
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

/// What the choice is made of.
#[derive(Debug, Clone, Copy)]
struct Work {
    pixels: usize,
    groups: usize,
    /// Filters and channels of a group.
    filters: usize,
    channels: usize,
    taps: usize,
    channel_values: usize,
    /// Outputs that are written at once.
    vector: usize,
    /// Bytes of input, filters and output.
    bytes: usize,
    /// Multiprocessors.
    units: usize,
}

/// The tile for a problem that meets the solver's constraints, on a device of about `units` multiprocessors.
pub(super) fn choose(way: Way, problem: &Problem, units: usize) -> Tiling {
    let Some((conv, weights)) = problem.conv() else { unreachable!("a constraint demands a convolution") };
    let (w, y) = (Volume::of(weights), Volume::of(&problem.output));
    let work = Work {
        pixels: y.pixels(),
        groups: conv.groups(),
        filters: w.lens[0] / conv.groups(),
        channels: w.lens[1],
        taps: w.plane(),
        channel_values: channel_values(problem),
        vector: outputs_at_once(way, problem),
        bytes: problem.input.bytes() + weights.bytes() + problem.output.bytes(),
        units,
    };
    let (all, time): (_, fn(&Work, &Tiling) -> f64) = match way {
        Way::Copied => (candidates(&work), Work::time),
        Way::Gathered => (gathering(&work), Work::gathering_time),
    };
    let best = all.into_iter().min_by(|a, b| time(&work, a).total_cmp(&time(&work, b)));
    // Unreachable: the smallest tile always fits.
    best.unwrap_or(Tiling {
        way,
        feeders: 1,
        teams: 1,
        consumers: 1,
        blocks: 1,
        width: 64,
        depth: if way == Way::Copied { 16 } else { 64 },
        stages: 2,
        per_unit: 1,
        resident: false,
        split: 1,
    })
}

/// Results that lie side by side in memory, at most 16 bytes of them: of channels, or of places where pixels are
/// gathered.
pub(super) fn outputs_at_once(way: Way, problem: &Problem) -> usize {
    let y = Volume::of(&problem.output);
    match (way, problem.conv()) {
        (Way::Copied, Some((conv, _))) => common_power(y.alignment(1, 8), y.lens[1] / conv.groups()),
        _ => y.strides[..2]
            .iter()
            .fold(common_power(8, y.plane()), |power, &stride| common_power(power, stride)),
    }
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
        for (teams, consumers, blocks, per_unit) in SHAPES {
            for resident in [false, true] {
                all.extend(
                    Tiling {
                        way: Way::Copied,
                        feeders: 1,
                        teams,
                        consumers,
                        blocks,
                        width: filters,
                        depth,
                        stages: 0,
                        per_unit,
                        resident,
                        split: 1,
                    }
                    .filled(work),
                );
            }
        }
    }
    with_splits(all, work)
}

/// The same tiles, and shared by several blocks where all blocks have room at once. A block has one of these.
fn with_splits(mut all: Vec<Tiling>, work: &Work) -> Vec<Tiling> {
    for at in 0..all.len() {
        let tiling = all[at];
        let tiles = work.pixels.div_ceil(tiling.pixels()) * work.columns(&tiling);
        // Adding up takes registers.
        let room = tiling.registers_at_launch() >= tiling.sums() + 72;
        if tiling.teams > 1 || tiling.resident || !room {
            continue;
        }
        for split in SPLITS {
            let slots = units_at_once(work.units, split) * tiling.per_unit;
            if tiles * split <= slots && 2 * split <= work.steps(&tiling) {
                all.extend(Tiling { split, ..tiling }.filled(work));
            }
        }
    }
    all
}

/// The same where pixels are gathered.
fn gathering(work: &Work) -> Vec<Tiling> {
    let mut all = Vec::new();
    for (feeders, teams, consumers, blocks, width) in GATHERED {
        for resident in [false, true] {
            let tiling = Tiling {
                way: Way::Gathered,
                feeders,
                teams,
                consumers,
                blocks,
                width,
                depth: 64,
                stages: 0,
                per_unit: 1,
                resident,
                split: 1,
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
        // Wide rows are copied faster.
        let slow = match depth {
            64 => 100,
            32 => 110,
            _ => 135,
        };
        work.channels.next_multiple_of(*depth) * slow
    };
    let fits = |depth: &usize| work.groups == 1 || work.channels.is_multiple_of(*depth);
    [64, 32, 16].into_iter().filter(fits).min_by_key(cost).unwrap_or(16)
}

impl Tiling {
    /// The same with as many stages as there is room for, if there are registers and shared memory enough.
    fn filled(self, work: &Work) -> Option<Tiling> {
        let steps = work.steps(&self);
        // What a thread needs besides its sums: at the entry, and to finish. What it needs to gather.
        let (entry, finishing, gathering) = match self.way {
            Way::Copied => (26, 30 + 8 * work.channel_values.max(1), 0),
            Way::Gathered => (26, 40 + work.channel_values, if self.feeders == 1 { 96 } else { 72 }),
        };
        let (feed, consumer) = self.registers();
        if self.registers_at_launch() < self.sums() + entry
            || consumer < self.sums() + finishing
            || feed < gathering
        {
            return None;
        }
        let columns = work.columns(&self);
        if self.resident && columns > work.units * self.per_unit {
            return None;
        }
        let least = if self.resident { 4 } else { 3 };
        let limit = SHARED / self.per_unit - SHARED_RESERVED;
        let stages = (least..=STAGES).rev().find(|&stages| {
            Tiling { stages, ..self }.shared(steps, work.taps, work.channel_values) <= limit
        })?;
        Some(Tiling { stages, ..self })
    }
}

impl Work {
    fn steps(&self, tiling: &Tiling) -> usize {
        match tiling.way {
            Way::Copied => self.channels.div_ceil(tiling.depth) * self.taps,
            Way::Gathered => (self.channels * self.taps).div_ceil(tiling.depth),
        }
    }

    fn columns(&self, tiling: &Tiling) -> usize {
        self.groups * self.filters.div_ceil(tiling.filters())
    }

    /// About how many microseconds the kernel takes. The form is that of what bounds it; the numbers were
    /// fitted to 918 timings of 20 convolutions on an H200, such that the choice is 1.5 % slower than the
    /// fastest tile in the mean.
    fn time(&self, tiling: &Tiling) -> f64 {
        // Of a multiprocessor in a microsecond: products, bytes into and out of shared memory, outputs
        // finished. Bytes of the device's memory in a microsecond.
        const PRODUCTS: f64 = 3.32e6;
        const BYTES_IN: f64 = 130e3;
        const BYTES_OUT: f64 = 45.7e3;
        const OUTPUTS: f64 = 15.6e3;
        const MEMORY: f64 = 4.76e6;
        // Microseconds of a launch, more for every group of a multiprocessor; of a step; of 64 pixels times
        // 64 filters in a team's hands.
        const LAUNCH: f64 = 1.34;
        const GROUP: f64 = 0.34;
        const STEP: f64 = 0.0051;
        const PART: f64 = 0.61;
        // Filters that are kept are waited for.
        const KEPT: f64 = 4.1;
        // How far what a multiprocessor does and what the memory does overlap.
        const OVERLAP: f64 = 1.64;

        let (steps, columns) = (self.steps(tiling).div_ceil(tiling.split) as f64, self.columns(tiling));
        let tiles = self.pixels.div_ceil(tiling.pixels()) * columns * tiling.split;
        let slots = self.units * tiling.per_unit;
        let slots = if tiling.resident { slots / columns * columns } else { slots };
        let rounds = tiles.div_ceil(slots.max(1)) as f64;
        let row = (tiling.depth * 2) as f64;
        let outputs = (tiling.pixels() * tiling.filters().next_multiple_of(64)) as f64;
        let filters = steps * tiling.filters() as f64 * row / BYTES_IN;
        let pixels = steps * tiling.pixels() as f64 * row / BYTES_IN;
        let bytes = pixels + if tiling.resident { 0.0 } else { filters } + outputs * 2.0 / BYTES_OUT;
        let products = steps * (tiling.pixels() * tiling.filters() * tiling.depth) as f64 / PRODUCTS;
        let multiply = products.max(bytes);
        let finish = PART * (tiling.blocks * tiling.filters().div_ceil(64)) as f64;
        let alone = multiply + STEP * steps;

        // What the teams of a multiprocessor share, and what one team does one after the other.
        let blocks = tiling.per_unit.min(tiles.div_ceil(self.units)) as f64;
        let shared = rounds * blocks * multiply.max(outputs / OUTPUTS);
        let one = (rounds / tiling.teams as f64).ceil() * (alone + finish);
        let in_turn = if tiling.teams > 1 { rounds * alone + finish } else { 0.0 };
        let unit = shared.max(one).max(in_turn);
        let memory = self.bytes as f64 / MEMORY;
        let kept = if tiling.resident { KEPT * filters } else { 0.0 };
        let groups = (tiling.teams * tiling.consumers * tiling.per_unit) as f64;
        let work = (unit.powf(OVERLAP) + memory.powf(OVERLAP)).powf(1.0 / OVERLAP);
        LAUNCH + GROUP * groups + kept + work + tiling.meeting()
    }

    /// The same where pixels are gathered, which is what bounds most; fitted to 165 timings of 33 convolutions, to
    /// 9 % in the mean square, with a choice that is 0.5 % slower than the fastest tile in the mean.
    fn gathering_time(&self, tiling: &Tiling) -> f64 {
        const PRODUCTS: f64 = 3.3e6;
        // Microseconds of a launch; of a step of a thread that feeds, and of each of its loads; of a tile; of
        // 64 filters times 64 pixels in a team's hands, more where few results are written at once.
        const LAUNCH: f64 = 3.25;
        const STEP: f64 = 0.169;
        const LOAD: f64 = 0.0175;
        const TILE: f64 = 0.677;
        const PART: f64 = 0.585;
        const WRITE: f64 = 0.663;
        // A step's filters that are kept are waited for.
        const KEPT: f64 = 0.53;
        // How far those who gather and those who multiply and finish overlap.
        const OVERLAP: f64 = 2.32;

        let (steps, columns) = (self.steps(tiling).div_ceil(tiling.split) as f64, self.columns(tiling));
        let tiles = self.pixels.div_ceil(tiling.pixels()) * columns * tiling.split;
        let slots = if tiling.resident { self.units / columns * columns } else { self.units };
        let rounds = tiles.div_ceil(slots.max(1)) as f64;
        let loads = (tiling.width * tiling.depth) as f64 / (tiling.feeders * 128) as f64;
        let gather = TILE + steps * (STEP + LOAD * loads);
        let multiply = steps * (tiling.pixels() * tiling.filters() * tiling.depth) as f64 / PRODUCTS;
        let parts = (tiling.blocks * tiling.width) as f64 / 64.0;
        let finish = parts * (PART + WRITE / self.vector as f64);
        let one = (rounds / tiling.teams as f64).ceil() * (multiply + finish);
        let (feeders, teams) = (rounds * gather, one.max(rounds * multiply + finish));
        let unit = (feeders.powf(OVERLAP) + teams.powf(OVERLAP)).powf(1.0 / OVERLAP);
        LAUNCH + unit + tiling.meeting() + if tiling.resident { KEPT * steps } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(pixels: usize, filters: usize, channels: usize, taps: usize) -> Work {
        let bytes = 2 * pixels * (filters + channels);
        Work { pixels, groups: 1, filters, channels, taps, channel_values: 1, vector: 8, bytes, units: 132 }
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
                            groups,
                            channels: channels.next_multiple_of(if groups == 1 { 1 } else { 16 }),
                            ..work(1000, filters, channels, 9)
                        });
                        assert!(!all.is_empty(), "{filters} {channels} {channel_values} {groups}");
                        for tiling in all {
                            assert!(tiling.filters().is_multiple_of(8) && tiling.filters() <= FILTERS);
                            let (feed, consumer) = tiling.registers();
                            let registers = feed + tiling.teams * tiling.consumers * consumer;
                            assert!(
                                registers * tiling.per_unit <= REGISTERS && consumer <= 240,
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
        // Memory bound: many hands, and filters that stay.
        let wide = best(&work(64 * 55 * 55, 256, 64, 1));
        assert!(wide.teams * wide.consumers * wide.per_unit >= 4 && wide.resident, "{wide:?}");
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
                    let (feed, consumer) = tiling.registers();
                    let registers = tiling.feeders * feed + tiling.teams * tiling.consumers * consumer;
                    assert!(registers <= REGISTERS && consumer <= 240, "{tiling:?}");
                }
            }
        }
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

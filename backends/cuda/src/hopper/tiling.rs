//! Tiles, and a model of what bounds a kernel, put to every tile that a block has room for.

use std::fmt;

use fuseplan_api::Problem;
use fuseplan_gpu::{
    Volume, chain_values, channel_values, common_power, has_exponentials, residuals, units_at_once,
};

/// How pixels come into shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// By TMA, channels innermost. Rows of the product are pixels.
    Tma,
    /// By loads of elements, any layout. Rows of the product are filters.
    Gather,
}

/// A block's tile and schedule: how its warpgroups share the work, and how far loads run ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tiling {
    pub(crate) load: Load,
    /// Producer warpgroups, which bring operands.
    pub(crate) producers: usize,
    /// Sets of consumer warpgroups that alternate between tiles (ping-pong); with one, nothing multiplies during the
    /// epilogue.
    pub(crate) pingpong: usize,
    /// Consumer warpgroups of a set, which share a tile (cooperative).
    pub(crate) cooperative: usize,
    /// Rows of each, in the 64 rows of one `wgmma`.
    pub(crate) atoms: usize,
    /// Columns.
    pub(crate) width: usize,
    /// Elements of the depth in a step.
    pub(crate) depth: usize,
    /// Bytes of an element.
    pub(crate) element: usize,
    /// Stages of the pipeline: steps whose operands are in flight or in use.
    pub(crate) stages: usize,
    /// Blocks of a multiprocessor.
    pub(crate) occupancy: usize,
    /// Whether a block's filters are resident: loaded once, for all of its tiles.
    pub(crate) resident: bool,
    /// Blocks that share a tile (split-K over a cluster).
    pub(crate) split: usize,
}

/// `128x104x64, 1 ping-pong, 2 cooperative, occupancy 1`: pixels, filters, depth of a step, and who takes them.
impl fmt::Display for Tiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tiling { pingpong, cooperative, depth, occupancy, .. } = self;
        write!(f, "{}x{}x{depth}, {pingpong} ping-pong, ", self.pixels(), self.filters())?;
        write!(f, "{cooperative} cooperative, occupancy {occupancy}")?;
        if self.resident {
            f.write_str(", resident filters")?;
        }
        if self.split > 1 {
            write!(f, ", split {}", self.split)?;
        }
        Ok(())
    }
}

/// Registers of a multiprocessor for each of 128 threads.
const REGISTERS: usize = 512;
/// Bytes of shared memory of a multiprocessor, and of it what every block costs besides its own.
const SHARED: usize = 228 * 1024;
const SHARED_RESERVED: usize = 1024;

impl Tiling {
    fn rows(&self) -> usize {
        self.cooperative * self.atoms * 64
    }

    pub(super) fn pixels(&self) -> usize {
        if self.load == Load::Tma { self.rows() } else { self.width }
    }

    pub(super) fn filters(&self) -> usize {
        if self.load == Load::Tma { self.width } else { self.rows() }
    }

    /// Stages of the channels' parameters: one for the tile of every set of consumers, and one for the next tile.
    pub(super) fn channel_stages(&self) -> usize {
        self.pingpong + 1
    }

    fn warpgroups(&self) -> usize {
        self.producers + self.pingpong * self.cooperative
    }

    pub(super) fn threads(&self) -> usize {
        self.warpgroups() * 128
    }

    /// Microseconds in which blocks that share a tile add up their accumulators.
    fn cluster_sync(&self) -> f64 {
        if self.split > 1 { 1.3 } else { 0.0 }
    }

    /// Bytes of a row of a stage: a step's elements of one pixel or filter.
    pub(super) fn row(&self) -> usize {
        self.depth * self.element
    }

    /// Bytes of the table of the depth where pixels are gathered.
    pub(super) fn table(&self, taps: usize) -> usize {
        if self.load == Load::Gather { self.depth * taps * 8 } else { 0 }
    }

    /// Bytes of shared memory of a block; as the text counts them.
    pub(super) fn shared(&self, steps: usize, taps: usize, channel_values: usize) -> usize {
        let row = self.row();
        let kept = if self.resident { steps } else { self.stages };
        let operands = self.stages * self.pixels() * row + kept * self.filters() * row;
        let acc = if self.split > 1 {
            self.rows() * (self.width + 4)
        } else {
            let (rows, columns) = self.part();
            self.pingpong * self.cooperative * 4 * rows * (columns + 8)
        };
        let acc = acc * size_of::<f32>();
        let channels =
            (self.channel_stages() * self.filters() * channel_values * size_of::<f32>()).next_multiple_of(16);
        let barriers = (2 * self.stages + 2 * self.channel_stages() + self.pingpong + 1) * 8;
        1024 + operands + acc + channels + self.table(taps) + barriers
    }

    /// Rows and columns of the parts in which a warp's accumulators pass through shared memory; as the text counts them.
    fn part(&self) -> (usize, usize) {
        match self.width {
            ..=16 => (16, 16),
            17..=32 => (16, 32),
            33.. => (8, 64),
        }
    }

    /// Columns of all parts side by side: those that lanes take time for.
    fn columns_of_parts(&self) -> usize {
        self.width.next_multiple_of(self.part().1)
    }

    fn registers_at_launch(&self) -> usize {
        (REGISTERS / (self.occupancy * self.warpgroups()) / 8 * 8).min(248)
    }

    /// Registers of a consumer's accumulators.
    fn accumulators(&self) -> usize {
        self.atoms * self.width / 2
    }

    /// Registers of a producer's thread and of a consumer's.
    pub(super) fn registers(&self) -> (usize, usize) {
        let consumers = self.pingpong * self.cooperative;
        let pool = self.registers_at_launch() * self.warpgroups();
        match self.load {
            Load::Tma => {
                let producer = if pool >= 400 { 40 } else { 24 };
                (producer, ((pool - producer) / consumers / 8 * 8).min(240))
            }
            Load::Gather => {
                let consumer =
                    (self.accumulators() + 56).next_multiple_of(8).clamp(self.registers_at_launch(), 240);
                let producer = pool.saturating_sub(consumer * consumers) / self.producers / 8 * 8;
                (producer.min(self.registers_at_launch()), consumer)
            }
        }
    }
}

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
    /// Registers that operators of the chain need in the epilogue where eight channels of two pixels are finished at a
    /// time: numbers of these channels, residuals that are on their way, what is between exponentials.
    epilogue: usize,
    /// Outputs that are written at once.
    vector: usize,
    /// Bytes of an element.
    element: usize,
    /// Bytes of input, filters and output.
    bytes: usize,
    /// Multiprocessors.
    units: usize,
}

/// The tiles of a problem that meets the solver's constraints, with about how many microseconds each takes on a device of
/// about `units` multiprocessors.
pub(super) fn tilings(load: Load, problem: &Problem, units: usize) -> Vec<(Tiling, f64)> {
    let Some((conv, weights)) = problem.conv() else { unreachable!("a constraint demands a convolution") };
    let (w, y) = (Volume::of(weights), Volume::of(&problem.output));
    let element = problem.output.data_type().size();
    let work = Work {
        pixels: y.pixels(),
        groups: conv.groups(),
        filters: w.lens[0] / conv.groups(),
        channels: w.lens[1],
        taps: w.plane(),
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
        Load::Gather => (gathering(&work), Work::gathering_time),
    };
    all.into_iter().map(|tiling| (tiling, time(&work, &tiling))).collect()
}

/// Results that lie side by side in memory, at most 16 bytes of them: of channels, or of positions where pixels
/// are gathered.
pub(super) fn outputs_at_once(load: Load, problem: &Problem) -> usize {
    let (y, most) = (Volume::of(&problem.output), 16 / problem.output.data_type().size());
    match load {
        Load::Tma => {
            let groups = problem.conv().map_or(1, |(conv, _)| conv.groups());
            common_power(y.alignment(1, most), y.lens[1] / groups)
        }
        Load::Gather => y.strides[..2]
            .iter()
            .fold(common_power(most, y.plane()), |power, &stride| common_power(power, stride)),
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
                        split: 1,
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
        let tiles = work.pixels.div_ceil(tiling.pixels()) * work.columns(&tiling);
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
        let least = if self.resident { 4 } else { 3 };
        let limit = SHARED / self.occupancy - SHARED_RESERVED;
        let stages = (least..=STAGES).rev().find(|&stages| {
            Tiling { stages, ..self }.shared(steps, work.taps, work.channel_values) <= limit
        })?;
        Some(Tiling { stages, ..self })
    }
}

impl Work {
    fn steps(&self, tiling: &Tiling) -> usize {
        match tiling.load {
            Load::Tma => self.channels.div_ceil(tiling.depth) * self.taps,
            Load::Gather => (self.channels * self.taps).div_ceil(tiling.depth),
        }
    }

    fn columns(&self, tiling: &Tiling) -> usize {
        self.groups * self.filters.div_ceil(tiling.filters())
    }

    /// About how many microseconds the kernel takes. The form is that of what bounds it; the numbers were
    /// fitted to 918 timings of 20 convolutions on an H200, such that the choice is 1.5 % slower than the
    /// fastest tile in the mean.
    fn time(&self, tiling: &Tiling) -> f64 {
        // Of a multiprocessor in a microsecond: bytes of factors times factors, bytes into and out of shared memory, outputs
        // finished. Bytes of the device's memory in a microsecond.
        const PRODUCTS: f64 = 6.64e6;
        const BYTES_IN: f64 = 130e3;
        const BYTES_OUT: f64 = 45.7e3;
        const OUTPUTS: f64 = 15.6e3;
        const MEMORY: f64 = 4.76e6;
        // Microseconds of a launch, more for every group of a multiprocessor; of a step; of 64 pixels times
        // 64 filters in the epilogue of a set of consumers.
        const LAUNCH: f64 = 1.34;
        const GROUP: f64 = 0.34;
        const STEP: f64 = 0.0051;
        const PART: f64 = 0.61;
        // Resident filters are waited for.
        const KEPT: f64 = 4.1;
        // How far what a multiprocessor does and what the memory does overlap.
        const OVERLAP: f64 = 1.64;

        let (steps, columns) = (self.steps(tiling).div_ceil(tiling.split) as f64, self.columns(tiling));
        let tiles = self.pixels.div_ceil(tiling.pixels()) * columns * tiling.split;
        let slots = self.units * tiling.occupancy;
        let slots = if tiling.resident { slots / columns * columns } else { slots };
        let rounds = tiles.div_ceil(slots.max(1)) as f64;
        let row = tiling.row() as f64;
        let outputs = (tiling.pixels() * tiling.columns_of_parts()) as f64;
        let filters = steps * tiling.filters() as f64 * row / BYTES_IN;
        let pixels = steps * tiling.pixels() as f64 * row / BYTES_IN;
        let bytes =
            pixels + if tiling.resident { 0.0 } else { filters } + outputs * self.element as f64 / BYTES_OUT;
        let products = steps * (tiling.pixels() * tiling.filters() * tiling.row()) as f64 / PRODUCTS;
        let multiply = products.max(bytes);
        let finish = PART * (tiling.atoms * tiling.columns_of_parts()) as f64 / 64.0;
        let alone = multiply + STEP * steps;

        // What all consumers of a multiprocessor share, and what one set of them does one after the other.
        let blocks = tiling.occupancy.min(tiles.div_ceil(self.units)) as f64;
        let shared = rounds * blocks * multiply.max(outputs / OUTPUTS);
        let one = (rounds / tiling.pingpong as f64).ceil() * (alone + finish);
        let in_turn = if tiling.pingpong > 1 { rounds * alone + finish } else { 0.0 };
        let unit = shared.max(one).max(in_turn);
        let memory = self.bytes as f64 / MEMORY;
        let kept = if tiling.resident { KEPT * filters } else { 0.0 };
        let warpgroups = (tiling.pingpong * tiling.cooperative * tiling.occupancy) as f64;
        let work = (unit.powf(OVERLAP) + memory.powf(OVERLAP)).powf(1.0 / OVERLAP);
        LAUNCH + GROUP * warpgroups + kept + work + tiling.cluster_sync()
    }

    /// The time of an execution where pixels are gathered, which is what bounds most; fitted to 165 timings of 33 convolutions, to
    /// 9 % in the mean square, with a choice that is 0.5 % slower than the fastest tile in the mean.
    fn gathering_time(&self, tiling: &Tiling) -> f64 {
        const PRODUCTS: f64 = 6.6e6;
        // Microseconds of a launch; of a step of a producer's thread, and of each of its loads; of a tile; of
        // 64 filters times 64 pixels in the epilogue, more where few results are written at once.
        const LAUNCH: f64 = 3.25;
        const STEP: f64 = 0.169;
        const LOAD: f64 = 0.0175;
        const TILE: f64 = 0.677;
        const PART: f64 = 0.585;
        const WRITE: f64 = 0.663;
        // A step's resident filters are waited for.
        const KEPT: f64 = 0.53;
        // How far producers and consumers overlap.
        const OVERLAP: f64 = 2.32;

        let (steps, columns) = (self.steps(tiling).div_ceil(tiling.split) as f64, self.columns(tiling));
        let tiles = self.pixels.div_ceil(tiling.pixels()) * columns * tiling.split;
        let slots = if tiling.resident { self.units / columns * columns } else { self.units };
        let rounds = tiles.div_ceil(slots.max(1)) as f64;
        let loads = (tiling.width * tiling.depth) as f64 / (tiling.producers * 128) as f64;
        let gather = TILE + steps * (STEP + LOAD * loads);
        let multiply = steps * (tiling.pixels() * tiling.filters() * tiling.row()) as f64 / PRODUCTS;
        let parts = (tiling.atoms * tiling.width) as f64 / 64.0;
        let finish = parts * (PART + WRITE / self.vector as f64);
        let one = (rounds / tiling.pingpong as f64).ceil() * (multiply + finish);
        let (producers, consumers) = (rounds * gather, one.max(rounds * multiply + finish));
        let unit = (producers.powf(OVERLAP) + consumers.powf(OVERLAP)).powf(1.0 / OVERLAP);
        LAUNCH + unit + tiling.cluster_sync() + if tiling.resident { KEPT * steps } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(pixels: usize, filters: usize, channels: usize, taps: usize) -> Work {
        let bytes = 2 * pixels * (filters + channels);
        Work {
            pixels,
            groups: 1,
            filters,
            channels,
            taps,
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
    fn steps_leave_little_empty_and_stay_within_groups() {
        let depth_of = |channels, groups| depth(&Work { groups, ..work(100, 64, channels, 1) });
        assert_eq!(
            [8, 16, 24, 32, 48, 64, 72, 512].map(|c| depth_of(c, 1)),
            [16, 16, 32, 32, 64, 64, 32, 64]
        );
        assert_eq!([16, 32, 48, 64, 96].map(|c| depth_of(c, 2)), [16, 32, 16, 64, 32]);
    }
}

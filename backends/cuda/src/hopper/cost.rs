//! A model of what bounds a kernel.

use super::tiling::{Lines, Load, Tiling};

mod runs;
mod transposed;

/// What the choice is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) images: usize,
    /// Planes of an output's image, their lines, and columns.
    pub(super) planes: usize,
    pub(super) lines: usize,
    pub(super) columns: usize,
    /// Columns of the input, and those of its padding before the first.
    pub(super) image_columns: usize,
    pub(super) pad: usize,
    /// Whether TMA can load the filters as rows.
    pub(super) is_aligned: bool,
    pub(super) groups: usize,
    /// Whether TMA can know where groups end: where it loads boxes, and where it walks over pixels.
    pub(super) groups_apart: bool,
    pub(super) groups_walked: bool,
    /// Filters and channels of a group.
    pub(super) filters: usize,
    pub(super) channels: usize,
    pub(super) taps: [usize; 3],
    pub(super) channel_values: usize,
    /// Registers that operators of the chain need in the epilogue where eight channels of two pixels are finished at a
    /// time: numbers of these channels, residuals that are on their way, what is between exponentials.
    pub(super) epilogue: usize,
    /// Outputs that are written at once.
    pub(super) vector: usize,
    /// Bytes of an element.
    pub(super) element: usize,
    /// Whether products are three of TF32.
    pub(super) tf32x3: bool,
    /// Bytes of input, filters and output.
    pub(super) bytes: usize,
    /// Multiprocessors.
    pub(super) units: usize,
}

/// Products of a multiprocessor in a microsecond: bytes of factors times factors.
const PRODUCTS: f64 = 6.64e6;

/// Microseconds in which a warpgroup rearranges a byte of filters.
const REARRANGED: f64 = 0.76e-4;

/// Microseconds of a pixel that TMA walks to where groups are a dimension: it goes over the end of that dimension for each.
const WALKED: f64 = 5.6e-3;

/// What bounds a kernel whose pixels TMA loads.
struct Rates {
    /// Of a multiprocessor in a microsecond: bytes into and out of shared memory, outputs finished.
    bytes_in: f64,
    bytes_out: f64,
    outputs: f64,
    /// Bytes of the device's memory in a microsecond.
    memory: f64,
    /// Microseconds of a launch, more for every group of a multiprocessor; of a step; of 64 pixels times 64 filters in
    /// the epilogue of a set of consumers; from asking for a stage until it is there.
    launch: f64,
    group: f64,
    step: f64,
    part: f64,
    latency: f64,
    /// Bytes that the loads of a block bring in a microsecond, and stages that are not on their way meanwhile.
    block: f64,
    held: f64,
    /// Bytes of shared memory in a microsecond, and microseconds of a row of a box that TMA loads.
    shared: f64,
    row: f64,
    /// Of a channel that threads copy, and of each of its pixels.
    channel: f64,
    pixel: f64,
    /// Of the sums of 64 pixels and 64 filters by a pixel.
    moved: f64,
    /// Of an instruction of 3xTF32, for the rows in registers, whatever its width; of a promotion, from an interval that ends until the next begins.
    instruction: f64,
    promotion: f64,
    /// Resident filters are waited for.
    kept: f64,
    /// How far what a multiprocessor does and what the memory does overlap.
    overlap: f64,
}

/// Fitted to 918 timings of 20 convolutions on an H200, such that the choice is 1.5 % slower than the fastest tile in the
/// mean; what is waited for, shared memory and rows to timings of half of 47 more. Over 22 of these, of which tiles were timed that
/// it chooses among, the choice is 3.2 % slower.
const CHANNELS: Rates = Rates {
    bytes_in: 130e3,
    bytes_out: 45.7e3,
    outputs: 15.6e3,
    memory: 4.76e6,
    launch: 1.34,
    group: 0.34,
    step: 0.0051,
    part: 0.61,
    latency: 0.9,
    block: 64e3,
    held: 1.0,
    shared: 200e3,
    row: 0.001,
    channel: 0.0,
    pixel: 0.0,
    moved: 0.0,
    instruction: 0.0,
    promotion: 0.0,
    kept: 4.1,
    overlap: 1.64,
};

/// 3xTF32, channels last. Fitted to 309 timings of 25 convolutions on an H100, of which the choice is 2.1 % slower than the
/// fastest tile in the mean, 14 % at worst; of 22 others 3.3 and 15 %.
const TF32X3: Rates = Rates {
    memory: 5.4e6,
    launch: 2.56,
    part: 0.46,
    shared: 161e3,
    instruction: 0.004,
    promotion: 0.13,
    overlap: 1.0,
    ..CHANNELS
};

/// Fitted to timings of 12 convolutions on an H200, of which the choice is 2.2 % slower than the fastest tile in the mean;
/// of 12 others 6.3 %.
const PLANES: Rates = Rates {
    bytes_in: 149e3,
    bytes_out: 72.6e3,
    outputs: 43.1e3,
    memory: 5.24e6,
    launch: 1.84,
    group: 0.28,
    step: 0.0107,
    part: 0.56,
    latency: 1.1,
    block: f64::INFINITY,
    held: 0.0,
    shared: f64::INFINITY,
    row: 0.0,
    channel: 0.0,
    pixel: 0.0,
    moved: 0.0,
    instruction: 0.0,
    promotion: 0.0,
    kept: 0.94,
    overlap: 1.28,
};

/// Planes that threads copy. Fitted to 68 timings of 4 convolutions on an H100, of which the choice is 0.5 % slower than the
/// fastest tile in the mean; of 4 others 3.9 %.
const COPIED: Rates = Rates {
    bytes_in: 268e3,
    bytes_out: 22.6e3,
    outputs: 20.9e3,
    memory: 2.7e6,
    launch: 2.21,
    group: 0.3,
    step: 0.0695,
    part: 0.0178,
    latency: 0.034,
    channel: 0.0022,
    pixel: 2.86e-5,
    kept: 1.53,
    overlap: 1.54,
    ..PLANES
};

/// Planes that come as a whole.
const PACKED: Rates = Rates {
    bytes_in: 146e3,
    bytes_out: 53.9e3,
    outputs: 5.77e3,
    memory: 4.39e6,
    launch: 1.8,
    group: 0.456,
    step: 0.0,
    part: 0.728,
    latency: 1.03,
    shared: 188e3,
    kept: 2.26,
    overlap: 1.0,
    ..PLANES
};

/// Fitted to 68 timings of 8 convolutions on an H100, of which the choice is 0.6 % slower than the fastest tile in the mean, 4.9 %
/// at worst; of 8 others 1.2 and 8.4 %. Among rates that fit as well, those whose choices for all 16 were timed.
const LINES: Rates = Rates {
    bytes_in: 163e3,
    bytes_out: 155e3,
    outputs: 78e3,
    memory: 1.65e6,
    launch: 1.03,
    group: 0.016,
    step: 0.122,
    part: 0.241,
    latency: 0.305,
    block: f64::INFINITY,
    held: 0.0,
    shared: 118e3,
    row: 0.0,
    channel: 0.0,
    pixel: 0.0,
    moved: 0.268,
    instruction: 0.0,
    promotion: 0.0,
    kept: 0.0,
    overlap: 4.0,
};

/// What bounds a kernel of lines whose filters are streamed.
struct StreamedRates {
    /// As those of [`Rates`], but that a step is one of filters.
    bytes_in: f64,
    bytes_out: f64,
    outputs: f64,
    memory: f64,
    launch: f64,
    group: f64,
    step: f64,
    part: f64,
    latency: f64,
    block: f64,
    held: f64,
    shared: f64,
    moved: f64,
    overlap: f64,
    /// Of a row of a box, and how much more of each bound between parts of 128 bytes of the device's memory that it crosses.
    row: f64,
    crossed: f64,
}

/// Fitted to 61 timings of 8 convolutions on an H100, of which the choice is 1.8 % slower than the fastest timed tile in the
/// mean, 8.3 % at worst; of 8 others 1.2 and 5.4 %.
const STREAMED: StreamedRates = StreamedRates {
    bytes_in: 189e3,
    bytes_out: 105e3,
    outputs: 54.4e3,
    memory: 1.8e6,
    launch: 3.2,
    group: 0.06,
    step: 0.058,
    part: 0.03,
    latency: 1.23,
    block: 983e3,
    held: 1.0,
    shared: 187e3,
    moved: 0.115,
    overlap: 2.4,
    row: 0.00131,
    crossed: 5.5,
};

/// What bounds a kernel whose pixels are gathered, in microseconds.
struct GatherRates {
    /// Of a launch; of a step of a producer's thread, and of each of its loads; of a tile; of 64 filters times 64 pixels in the
    /// epilogue, more where few results are written at once.
    launch: f64,
    step: f64,
    load: f64,
    tile: f64,
    part: f64,
    write: f64,
    /// Of an instruction with rows in registers, whatever its width.
    instruction: f64,
    /// A step's resident filters are waited for.
    kept: f64,
    /// Bytes of the device's memory in a microsecond.
    memory: f64,
    /// How far producers, consumers and the memory overlap.
    overlap: f64,
}

/// As [`PRODUCTS`].
const GATHERED_PRODUCTS: f64 = 6.6e6;

/// Fitted to 165 timings of 33 convolutions, to 9 % in the mean square, with a choice that is 0.5 % slower than the fastest tile
/// in the mean.
const GATHERED: GatherRates = GatherRates {
    launch: 3.25,
    step: 0.169,
    load: 0.0175,
    tile: 0.677,
    part: 0.585,
    write: 0.663,
    instruction: 0.0,
    kept: 0.53,
    memory: f64::INFINITY,
    overlap: 2.32,
};

/// TF32: the rates of 16 bits, but for a load and the memory, as elements have twice the bytes. These are fitted to the chosen tiles
/// of 13 convolutions on an H100, to 10 % in the mean square, and 11 % of 12 others, where they were 24 and 27 % off.
const GATHERED_TF32: GatherRates = GatherRates { load: 0.0242, memory: 2.24e6, ..GATHERED };

/// 1x1 of 16 bits: these rates and the memory's, with which they are 9 % from the times of 13 layers on an H100 in the mean square,
/// and 11 % from those of 13 others, where they were 18 and 20 %. Tiles rank as without it; it is for the comparison with copied planes.
const GATHERED_POINTWISE: GatherRates = GatherRates { memory: 2.1e6, ..GATHERED };

/// 3xTF32: fitted to 226 timings of 25 convolutions on an H100, to 6 % in the mean square, with a choice that is 0.2 % slower than
/// the fastest tile in the mean; of 22 others 0.5 %.
const GATHERED_TF32X3: GatherRates = GatherRates {
    launch: 2.2,
    step: 0.28,
    load: 0.0213,
    tile: 0.92,
    part: 0.65,
    write: 1.76,
    instruction: 0.0061,
    kept: 0.11,
    memory: f64::INFINITY,
    overlap: 1.98,
};

/// Microseconds in which blocks that share a tile send each other their accumulators, and add them up. Fitted to half of 49
/// convolutions of few pixels, of which 686 tiles were timed on an H200: the choice is 0.8 % slower than the fastest tile in the
/// mean, 0.9 % for the other half.
fn added_up(tiling: &Tiling) -> f64 {
    // Microseconds in which blocks meet, and bytes of accumulators that a multiprocessor's blocks are sent in one.
    const MEET: f64 = 0.7;
    const SENT: f64 = 40e3;

    if tiling.split == 1 {
        return 0.0;
    }
    let values = tiling.rows() * tiling.width * (tiling.split - 1) / tiling.split;
    MEET + (tiling.occupancy * values * size_of::<f32>()) as f64 / SENT
}

/// Microseconds of a launch that prepares so many bytes of streamed filters: what it added to thirteen convolutions on an H100.
pub(super) fn preparing(bytes: usize) -> f64 {
    const LAUNCH: f64 = 1.8;
    const BYTES: f64 = 1.7e6;

    LAUNCH + bytes as f64 / BYTES
}

impl Work {
    pub(super) fn steps(&self, tiling: &Tiling) -> usize {
        tiling.steps(self.channels, self.taps)
    }

    pub(super) fn filter_steps(&self, tiling: &Tiling) -> usize {
        tiling.filter_steps(self.channels, self.taps)
    }

    pub(super) fn columns(&self, tiling: &Tiling) -> usize {
        self.groups * self.filters.div_ceil(tiling.filters())
    }

    pub(super) fn tiles(&self, tiling: &Tiling) -> usize {
        tiling.tiles_of_pixels(self.images, self.planes, self.lines, self.columns) * self.columns(tiling)
    }

    /// About how many microseconds the kernel takes where TMA loads pixels: what bounds it, at these rates.
    pub(super) fn time(&self, tiling: &Tiling) -> f64 {
        let rates = match tiling.load {
            _ if tiling.tf32x3 => &TF32X3,
            Load::Planes if tiling.copied => &COPIED,
            Load::Planes => &PLANES,
            Load::Packed => &PACKED,
            Load::Lines => &LINES,
            Load::Tma | Load::Halo | Load::Transposed | Load::Runs | Load::Gather => &CHANNELS,
        };
        let (steps, columns) = (self.steps(tiling).div_ceil(tiling.split) as f64, self.columns(tiling));
        let tiles = self.tiles(tiling) * tiling.split;
        let slots = self.units * tiling.occupancy;
        let slots = if tiling.resident { slots / columns * columns } else { slots };
        let rounds = tiles.div_ceil(slots.max(1)) as f64;
        let row = tiling.row() as f64;
        let outputs = (tiling.rows() * tiling.columns_of_parts()) as f64;
        let filter_steps = self.filter_steps(tiling).div_ceil(tiling.split) as f64;
        let filters = filter_steps * tiling.filters() as f64 * row / rates.bytes_in;
        let pixels = if tiling.copied {
            let channel = rates.channel + rates.pixel * tiling.pixels() as f64;
            steps * tiling.depth as f64 * channel
        } else {
            steps * tiling.loaded_pixels() as f64 * row / rates.bytes_in
        };
        let bytes = pixels
            + if tiling.resident { 0.0 } else { filters }
            + outputs * self.element as f64 / rates.bytes_out;
        let times = tiling.products();
        let instructions = filter_steps * (times * tiling.rows() / 64 * tiling.row() / 32) as f64;
        let products = filter_steps * (times * tiling.pixels() * tiling.filters() * tiling.row()) as f64
            / PRODUCTS
            + rates.instruction * instructions;
        // Pixels and filters that loads bring, and what products read, with half of what loads write.
        let brought = steps * tiling.loaded_pixels() as f64
            + if tiling.resident { 0.0 } else { filter_steps * tiling.filters() as f64 };
        // Threads read elements of 16 bits, which takes as long as words.
        let rows = if tiling.load == Load::Packed { 128 } else { 64 };
        let reads = filter_steps * (tiling.rows() / 64 * (rows + times * tiling.width)) as f64;
        // Filters that are split are read and written in two parts.
        let split = if tiling.tf32x3 && !tiling.resident {
            3.0 * filter_steps * tiling.filters() as f64
        } else {
            0.0
        };
        let shared_memory = (reads + split + brought / 2.0) * row / rates.shared;
        let walks = tiling.load == Load::Tma && tiling.leaves_group(self.groups, self.channels);
        let walked = if walks { steps * tiling.pixels() as f64 * WALKED } else { 0.0 };
        let multiply = products.max(bytes).max(shared_memory).max(brought * rates.row).max(walked);
        let finish = rates.part * (tiling.atoms * tiling.columns_of_parts()) as f64 / 64.0;
        // Sums move to the right, and back.
        let moves = if tiling.load == Load::Lines { 2 * (self.taps[2] - 1) - self.pad } else { 0 };
        let moved = rates.moved * (moves * tiling.atoms * tiling.width) as f64 / 64.0;
        // A set's warpgroups wait for their own promotions.
        let promotions = filter_steps * tiling.row().div_ceil(64) as f64;
        let waits = products / tiling.cooperative as f64 + rates.promotion * promotions;
        let alone = if tiling.tf32x3 { multiply.max(waits) } else { multiply } + rates.step * steps;

        // What all consumers of a multiprocessor share, and what one set of them does one after the other.
        let blocks = tiling.occupancy.min(tiles.div_ceil(self.units)) as f64;
        let shared = rounds * blocks * multiply.max(outputs / rates.outputs);
        let one = (rounds / tiling.pingpong as f64).ceil() * (alone + moved + finish);
        let in_turn = if tiling.pingpong > 1 { rounds * alone + moved + finish } else { 0.0 };
        // Stages that a block has in flight come no sooner than they were asked for.
        let filters_of_stage = if tiling.resident { 0 } else { tiling.step_taps() * tiling.filters() };
        let stage = (tiling.loaded_pixels() + filters_of_stage) as f64 * row / rates.block;
        let waited = rounds * steps * (rates.latency + stage) / (tiling.stages as f64 - rates.held);
        let unit = shared.max(one).max(in_turn).max(waited);
        let memory = self.bytes as f64 / rates.memory;
        let kept = match (tiling.resident, tiling.rearranged) {
            (true, true) => {
                let bytes = filter_steps * tiling.filters() as f64 * row * blocks;
                REARRANGED * bytes / (tiling.pingpong * tiling.cooperative) as f64
            }
            (true, false) => rates.kept * filters,
            (false, _) => 0.0,
        };
        let warpgroups = (tiling.pingpong * tiling.cooperative * tiling.occupancy) as f64;
        let work = (unit.powf(rates.overlap) + memory.powf(rates.overlap)).powf(1.0 / rates.overlap);
        rates.launch + rates.group * warpgroups + kept + work + added_up(tiling)
    }

    /// About how many microseconds the kernel takes where TMA loads lines: as [`Work::time`], or where filters are streamed.
    pub(super) fn lines_time(&self, tiling: &Tiling) -> f64 {
        let Some(lines) = tiling.lines.filter(|_| tiling.is_streamed()) else { return self.time(tiling) };
        let (rates, row) = (&STREAMED, tiling.row() as f64);
        let (steps, filter_steps) = (self.steps(tiling) as f64, self.filter_steps(tiling) as f64);
        let tiles = self.tiles(tiling);
        let rounds = tiles.div_ceil(self.units * tiling.occupancy) as f64;
        let outputs = (tiling.rows() * tiling.width.next_multiple_of(64)) as f64;
        let loaded = steps * tiling.loaded_pixels() as f64;
        let brought = loaded + filter_steps * tiling.filters() as f64;
        let bytes = brought * row / rates.bytes_in + outputs * self.element as f64 / rates.bytes_out;
        let products = filter_steps * (tiling.pixels() * tiling.filters() * tiling.row()) as f64 / PRODUCTS;
        let reads = filter_steps * (tiling.cooperative * (64 + tiling.width)) as f64;
        let shared_memory = (reads + brought / 2.0) * row / rates.shared;
        let rows = loaded / lines.block as f64 * tiling.depth as f64;
        let rows = rows * rates.row * (1.0 + rates.crossed * self.crossed(&lines));
        let multiply = products.max(bytes).max(shared_memory).max(rows);
        let alone = multiply + rates.step * filter_steps / self.taps[1] as f64;
        let finish = rates.part * tiling.width.next_multiple_of(64) as f64 / 64.0;
        // Sums move to the right between a tile's products, and back behind them.
        let moved = |times: usize| rates.moved * (times * tiling.width) as f64 / 64.0;
        let (right, left) = (moved(self.taps[2] - 1), moved(self.taps[2] - 1 - self.pad));
        let blocks = tiling.occupancy.min(tiles.div_ceil(self.units)) as f64;
        let shared = rounds * blocks * multiply.max(outputs / rates.outputs);
        let one = (rounds / tiling.pingpong as f64).ceil() * (alone + right + left + finish);
        let in_turn = if tiling.pingpong > 1 { rounds * (alone + right) + left + finish } else { 0.0 };
        let stage = tiling.loaded_pixels() as f64 * row / rates.block;
        let waited = rounds * steps * (rates.latency + stage) / (tiling.stages as f64 - rates.held);
        let unit = shared.max(one).max(in_turn).max(waited);
        let memory = self.bytes as f64 / rates.memory;
        let warpgroups = (tiling.pingpong * tiling.cooperative * tiling.occupancy) as f64;
        let work = (unit.powf(rates.overlap) + memory.powf(rates.overlap)).powf(1.0 / rates.overlap);
        rates.launch + rates.group * warpgroups + work
    }

    /// Bounds between parts of 128 bytes that a row of a box crosses, in the mean.
    fn crossed(&self, lines: &Lines) -> f64 {
        const PART: usize = 128;
        let bytes = lines.block.min(self.image_columns) * self.element;
        let apart = if lines.block < lines.columns { lines.block } else { self.image_columns } * self.element;
        let crossed = (0..64).map(|at| (at * apart % PART + bytes - 1) / PART).sum::<usize>();
        crossed as f64 / 64.0
    }

    /// The time of an execution where pixels are gathered, which is what bounds most.
    pub(super) fn gathering_time(&self, tiling: &Tiling) -> f64 {
        let rates = match self.element {
            _ if tiling.tf32x3 => &GATHERED_TF32X3,
            4 => &GATHERED_TF32,
            _ if self.taps == [1; 3] => &GATHERED_POINTWISE,
            _ => &GATHERED,
        };
        let (steps, columns) = (self.steps(tiling).div_ceil(tiling.split) as f64, self.columns(tiling));
        let tiles = self.tiles(tiling) * tiling.split;
        let slots = if tiling.resident { self.units / columns * columns } else { self.units };
        let rounds = tiles.div_ceil(slots.max(1)) as f64;
        let loads = (tiling.width * tiling.depth) as f64 / (tiling.producers * 128) as f64;
        let gather = rates.tile + steps * (rates.step + rates.load * loads);
        let products = tiling.products();
        let instructions = (products * tiling.rows() / 64 * tiling.row() / 32) as f64;
        let multiplied = (products * tiling.pixels() * tiling.filters() * tiling.row()) as f64;
        let multiply = steps * (multiplied / GATHERED_PRODUCTS + rates.instruction * instructions);
        let parts = (tiling.atoms * tiling.width) as f64 / 64.0;
        let finish = parts * (rates.part + rates.write / self.vector as f64);
        let one = (rounds / tiling.pingpong as f64).ceil() * (multiply + finish);
        let (producers, consumers) = (rounds * gather, one.max(rounds * multiply + finish));
        let bounds = [producers, consumers, self.bytes as f64 / rates.memory];
        let work = bounds.map(|time| time.powf(rates.overlap)).iter().sum::<f64>().powf(1.0 / rates.overlap);
        rates.launch + work + added_up(tiling) + if tiling.resident { rates.kept * steps } else { 0.0 }
    }
}

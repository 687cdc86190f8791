//! What bounds a kernel whose pixels come as runs of planes.

use super::super::runs::By;
use super::super::tiling::Tiling;
use super::{PRODUCTS, Work};

/// Bytes of a block's own filters that its threads bring in a microsecond. Chosen by 8-256-19-19-256 and 16-128-41-41-512, which were 1.05 and
/// 1.02 of the time of prepared filters where nothing was counted.
const OWN_FILTERS: f64 = 25e3;

struct Rates {
    /// Of a multiprocessor in a microsecond: bytes of shared memory, and of the second-level cache, outputs finished.
    shared: f64,
    second: f64,
    outputs: f64,
    /// Bytes of the device's memory in a microsecond.
    memory: f64,
    /// Microseconds of a launch; of a stage of filters; of a box; of 64 pixels times 64 filters in the epilogue of a set of
    /// consumers, and of a residual of these; from asking for a stage until it is there.
    launch: f64,
    step: f64,
    load: f64,
    part: f64,
    residual: f64,
    latency: f64,
    /// Of an instruction, whatever its width; in which a set has no products between those of two intervals, of which sums are promoted, or
    /// for which factors of 16 bits are put together.
    instruction: f64,
    between: f64,
    /// How far what a multiprocessor does and what the memory does overlap.
    overlap: f64,
    /// How much longer a block's products take for each other block of the multiprocessor, and where it has room for the fewest stages: two
    /// of pixels and three of filters.
    crowded: f64,
    few_stages: f64,
}

/// Fitted to timings of half of 58 convolutions on an H100, with a choice that is 0.7 % slower than the fastest timed tile in the mean, 3 % at
/// worst; of the other half 1.1 and 14 %. What the memory gives and how far it overlaps were chosen since by 196 timings of 35 convolutions on
/// an H200: to 11 % in the mean square, each timing weighed by how near it is to the fastest, where it was 19; of 19 others 10 where it was 19.
/// What a stage of filters takes, since taps are unrolled, and what few stages cost was chosen by 65 timings of 13 convolutions on an H200,
/// by which the choice is 0.8 % slower than the fastest timed tile in the mean, 4.5 % at worst, instead of 1.3 and 6.6 %; of MIOpen's
/// thirteen 1.4 and 6.2 % instead of 2.9 and 9.1 %.
const TF32: Rates = Rates {
    shared: 170e3,
    second: 63.4e3,
    outputs: 4.4e3,
    memory: 3.86e6,
    launch: 2.03,
    step: 0.03,
    load: 0.0233,
    part: 0.304,
    residual: 3.99,
    latency: 0.332,
    instruction: 0.0,
    between: 0.0,
    overlap: 2.39,
    crowded: 0.0,
    few_stages: 0.12,
};

/// Fitted to timings of 5 convolutions on an H100, with a choice that is 0.8 % slower than the fastest timed tile in the mean, 4.2 % at worst;
/// of 6 others 1.0 and 5.3 %. What the caches, the memory, a launch, a part and what is between intervals take, and how far that overlaps, was
/// fitted since to 96 timings of 35 convolutions on an H200: to 7 % in the mean square, weighed in the same way, where it was 10; of 19 others
/// 7 where it was 11. What a residual takes is that of TF32.
const TF32X3: Rates = Rates {
    shared: 260e3,
    second: 125e3,
    outputs: 4e3,
    memory: 7.2e6,
    launch: 1.76,
    step: 0.0,
    load: 0.0263,
    part: 3.0,
    residual: 3.5,
    latency: 0.3,
    instruction: 0.01,
    between: 0.18,
    overlap: 1.3,
    crowded: 0.0,
    few_stages: 0.0,
};

/// Of 16 bits. Fitted to timings of half of 58 convolutions on an H100, to 19 % in the mean square, with a choice that is 1.6 % slower than
/// the fastest timed tile in the mean, 10 % at worst; of the other half 14 %, 1.9 and 13 %.
const HALF: Rates = Rates {
    shared: 155e3,
    second: 71.6e3,
    outputs: 8.58e3,
    memory: 3.49e6,
    launch: 2.53,
    step: 0.0,
    load: 0.031,
    part: 0.601,
    residual: 3.21,
    latency: 0.517,
    instruction: 0.00189,
    between: 0.0699,
    overlap: 1.38,
    crowded: 0.0,
    few_stages: 0.0,
};

/// The same of several taps and images, chosen by 20 timings of 10 convolutions of 3x3 on an H200 beside those of lines: what is chosen of the
/// two takes 1.01 of the faster in the mean, 1.04 at worst, instead of 1.02 and 1.14; of 5 others 1.01 as before, by estimates that are off by
/// 11 % in the mean square instead of 20. With one image two of 3x3 were slower by it; of 3x3x3, whatever the images, estimates are 11 %
/// off for six volumes and 13 % for 14 others instead of 13 and 15.
const HALF_TAPS: Rates = Rates { shared: 175e3, ..HALF };

/// What of several taps of TF32 without strides the second-level cache gives where no block has more than one tile: fitted with [`WRITTEN`].
const SECOND_ONCE: f64 = 100e3;

/// What of a single tap of TF32 the second-level cache gives a multiprocessor while at most every other one has a tile, and of several taps
/// in strides; how much longer it takes where all have; and how many times pixels count beside filters, which more blocks ask for at the
/// same time: without strides, with them, and of several taps. On an H200 copies of 16 KB that no other block asks for come at 101 KB
/// a microsecond to each of 66 blocks, which have one multiprocessor of each pair, and at 67 to each of 132; those that all ask
/// for come at 149.
///
/// Chosen by 1,800 timings of 164 convolutions on H200s, every other one to fit to, and by 184 pairs of tiles of 1x1 without strides: a
/// single tap in strides is 12 % off in the mean square of either half where it was 17 and 15, with a choice among tiles that is 2.2 and 1.7 % slower
/// than the fastest timed tile in the mean instead of 7.3 and 6.8, 18 and 10 % at worst instead of 34 and 35; several taps in strides are as far
/// off as before, with 1.8 % for either half instead of 2.4 and 2.5; of two tiles of 1x1 the choice takes 1.5 and 2.1 % longer than the
/// faster instead of 4.4 and 4.7.
const SECOND_OF_POINTS: f64 = 165e3;
const SECOND_OF_STRIDES: f64 = 216e3;
const PAIRED: f64 = 0.6;
const PIXELS_OF_POINTS: f64 = 2.0;
const PIXELS_OF_STRIDED_POINTS: f64 = 2.3;
const PIXELS_OF_STRIDES: f64 = 2.76;

/// What part of the bytes that loads write to shared memory counts beside what products read, of TF32 by several taps without strides.
/// Chosen with [`SECOND_ONCE`] and with the first stage below by 168 timings of 15 convolutions of 3x3 of one image to 64 on an
/// H200: to 11 % in the mean square where it was 15, with a choice that is 1.1 % slower than the fastest timed tile of any solver in the
/// mean, 5 % at worst, instead of 3.6 and 20; of 15 others 12 % where it was 14, and 1.8 and 5 % instead of 3.1 and 16.
const WRITTEN: f64 = 0.5;

/// What a residual of TF32 takes where results are written from where they are summed, and no multiprocessor has more than one tile:
/// chosen by 14 timings on an H200, to 14 % in the mean square where it was 19, of 46 others 12 where it was 17.
const RESIDUAL_ONCE: f64 = 1.2;

/// Microseconds from asking for a stage of TF32 filters until it is there. With two such stages, which is what is left where strides make
/// pixels large, 3x3 takes up to 2.4 times as long as with eight: it was fitted to 51 such timings in strides on an H200, to 15 % in the
/// mean square where it was 20, 15 % of 40 others where it was 19.
const FILTER_STAGE: f64 = 0.62;

/// Several taps of TF32 in strides: of the neighbouring pixels that a warp reads two come from each bank, and a stage of filters comes at a
/// rate as well. Fitted to 16 of 32 convolutions of one image to 64 on an H200 and the 26 that were timed before: to 12 % in the mean
/// square where it was 26 and 18, 14 % of the others where it was 31.
const SHARED_OF_STRIDES: f64 = 225e3;
const FILTERS_OF_STRIDES: f64 = 108e3;

/// TF32 whose results pass through shared memory and are written several at once: an output takes less, by 30 of the 65 timings.
const TF32_VECTORS: Rates = Rates { outputs: 8e3, ..TF32 };

/// TF32 whose results are written from where they are summed: what a part, a residual and an output take was fitted to 78 timings of 13
/// convolutions on an H200, with a choice that is 1.7 % slower than the fastest timed tile in the mean, 9 % at worst, instead of 5.2 and
/// 55; of 16 others 0.8 and 4 % instead of 3.3 and 15, and 15 % off in the mean square instead of 22.
const TF32_ROWS: Rates = Rates { part: 0.39, residual: 2.41, outputs: 5.5e3, ..TF32 };

/// The same by 3xTF32, whose blocks wait for each other as well: fitted to 108 timings of 18 convolutions on an H200, to 14 % in the mean
/// square, with a choice that is 2.7 % slower than the fastest timed tile in the mean, 15 % at worst; of 21 others 13, 3.2 and 23 %, where
/// it was 26, 8.5 and 31. Of 50 that were timed gathered too, with and without strides, what is chosen takes 1.03 of the faster in the mean
/// instead of 1.07. What a part takes was chosen since by 22 timings of 7 others on an H200: for MIOpen's thirteen the choice is 1.5 %
/// slower than the fastest timed tile instead of 2.1.
const TF32X3_ROWS: Rates =
    Rates { shared: 144e3, part: 0.5, residual: 2.7, between: 0.08, crowded: 0.8, ..TF32X3 };

/// 16 bits of a single tap whose results are written as words. These rates were fitted to 166 timings of 14 convolutions on an H200, with a
/// choice that is 3.2 % slower than the fastest timed tile in the mean, 10 % at worst, instead of 5.7 and 23; of 11 others 6.1 and 21 %
/// instead of 7.8 and 21, and of three of MIOpen's thirteen 2.5 and 7 % instead of 7.3 and 15.
const HALF_WORDS: Rates =
    Rates { part: 0.23, outputs: 11.9e3, memory: 3.63e6, between: 0.0424, overlap: 1.25, ..HALF };

/// The same where each tile writes whole sectors. Part, stage and overlap were chosen among 720 such by 92 timings of 11 convolutions on an
/// H200, of tiles of either form: with a choice that is 4.3 % slower than the fastest timed tile in the mean, 12 % at worst; of three of
/// MIOpen's thirteen 3.5 and 6.5 %.
const HALF_SECTORS: Rates = Rates { part: 0.4, step: 0.16, overlap: 1.8, ..HALF_WORDS };

/// Bytes of pixels that come in a microsecond where taps of 3xTF32 see several planes of a volume, which lie far apart: three of these in
/// TF32 took about 1.3, 1.3 and 0.7 times as long on an H100, and 3xTF32 was not timed. In TF32 itself what is chosen of 14 volumes is 1.020
/// of the fastest on an H200 without it and 1.140 with it. Of 16 bits estimates without it are less far off: by 3x1x1 20 % in
/// the mean square of four convolutions where they were 35, and 18 % of six others where they were 50, by 3x3x3 13 % of six and 15 % of 14
/// others where they were 14 and 30.
const OF_VOLUME: f64 = 11e3;

/// How many times as long pixels take to come where every other one is used; and by 3xTF32, chosen by the comparison with gathering.
const STRIDED: f64 = 2.0;
const STRIDED_TF32X3: f64 = 2.5;

impl Work {
    /// Whether it has several taps in each of several planes.
    fn sees_planes(&self) -> bool {
        self.taps[0] > 1 && self.taps[1..] != [1; 2]
    }

    /// About how many microseconds the kernel takes.
    pub(super) fn runs_time(&self, tiling: &Tiling) -> f64 {
        let Some(runs) = tiling.runs else { return f64::INFINITY };
        let rates = match self.element {
            2 if runs.overlap > 0 => &HALF_SECTORS,
            2 if self.taps == [1; 3] && self.writes_words(tiling) => &HALF_WORDS,
            2 if self.sees_planes() || self.taps != [1; 3] && self.images > 1 => &HALF_TAPS,
            2 => &HALF,
            _ if tiling.tf32x3 && self.writes_rows => &TF32X3_ROWS,
            _ if tiling.tf32x3 => &TF32X3,
            _ if self.writes_rows => &TF32_ROWS,
            _ if self.vector > 1 => &TF32_VECTORS,
            _ => &TF32,
        };
        let row = tiling.row() as f64;
        let (steps, filter_steps) = (self.steps(tiling) as f64, self.filter_steps(tiling) as f64);
        let (tiles, times) = (self.tiles(tiling), tiling.products());
        let slots = self.units * tiling.occupancy;
        let columns = self.columns(tiling);
        let slots = if tiling.resident { slots / columns * columns } else { slots };
        let rounds = tiles.div_ceil(slots) as f64;
        // Images that a tile has pixels of, in the mean.
        let plane = self.planes * self.lines * self.columns;
        let images = match runs.by {
            _ if runs.pixels.is_multiple_of(plane) => (runs.pixels / plane) as f64,
            By::Boxes | By::Channels if runs.images == 1 => 1.0,
            _ => 1.0 + (runs.pixels - 1) as f64 / plane as f64,
        };
        let (elements, boxes) = match runs.by {
            By::Boxes => (runs.boxes * runs.columns, runs.boxes * runs.phases),
            By::Channels => (runs.boxes * runs.columns, runs.boxes * tiling.depth),
            By::Planes => (runs.pitch, runs.boxes),
        };
        let is_tf32 = self.element == 4 && !tiling.tf32x3;
        let is_tf32_taps = is_tf32 && self.taps != [1; 3];
        let has_conflicts = is_tf32_taps && self.stride > 1;
        let strided = match self.stride {
            _ if self.stride == 1 || is_tf32 => 1.0,
            _ if tiling.tf32x3 => STRIDED_TF32X3,
            _ => STRIDED,
        };
        let pixels = images * elements as f64 * row * strided;
        let filters = tiling.filters() as f64 * row * if tiling.tf32x3 { 2.0 } else { 1.0 };
        let instructions = filter_steps * (times * tiling.rows() / 64 * tiling.row() / 32) as f64;
        let products = filter_steps * (times * tiling.pixels() * tiling.filters() * tiling.row()) as f64
            / PRODUCTS
            + rates.instruction * instructions;
        // Words of 16 bits have elements of several taps, or of two rows.
        let words = match self.element {
            2 => runs.reads(),
            _ if has_conflicts => 2.0,
            _ => 1.0,
        };
        let reads = tiling.cooperative as f64 * (64.0 * words + (times * tiling.width) as f64) * row;
        let loaded = steps * pixels + filter_steps * filters;
        let written = if is_tf32_taps && !has_conflicts { WRITTEN } else { 1.0 };
        let shared = (filter_steps * reads + written * loaded)
            / if has_conflicts { SHARED_OF_STRIDES } else { rates.shared };
        let at_work = tiles.min(slots).min(self.units) as f64 / self.units as f64;
        let paired = if at_work > 0.5 { 1.0 + PAIRED * at_work } else { 1.0 };
        let (rate, often) = match self.stride {
            _ if has_conflicts => (SECOND_OF_STRIDES / paired, PIXELS_OF_STRIDES),
            _ if is_tf32_taps && rounds <= 1.0 => (SECOND_ONCE, 1.0),
            _ if is_tf32_taps || !is_tf32 => (rates.second, 1.0),
            1 => (SECOND_OF_POINTS / paired, PIXELS_OF_POINTS),
            _ => (SECOND_OF_POINTS / paired, PIXELS_OF_STRIDED_POINTS),
        };
        let second = (often * steps * pixels + filter_steps * filters) / rate;
        let loads = steps * images * boxes as f64 * rates.load * strided;
        let is_short = tiling.stages == 2 && runs.filter_stages == 3;
        let few = 1.0 + if is_short { rates.few_stages } else { 0.0 };
        let blocks = tiling.occupancy.min(tiles.div_ceil(self.units)) as f64;
        let comes = if has_conflicts {
            filter_steps * (FILTER_STAGE + filters / FILTERS_OF_STRIDES)
                / (runs.filter_stages as f64 - 1.0)
                / blocks
        } else {
            0.0
        };
        let multiply = (products.max(shared).max(second).max(loads) * few).max(comes);
        // A set's warpgroups wait for their own.
        let lines = filter_steps / runs.taps as f64;
        let intervals = lines * row / if self.element == 2 { 32.0 } else { 64.0 };
        let crowded = 1.0 + rates.crowded * (blocks - 1.0);
        let waits = crowded * products / tiling.cooperative as f64 + rates.between * intervals;
        let alone = multiply.max(waits * few) + rates.step * lines;
        // Blocks that share a multiprocessor read theirs at the same time.
        let residual = match is_tf32 {
            true if self.writes_rows && tiles <= self.units => RESIDUAL_ONCE,
            true => blocks * rates.residual,
            false => rates.residual,
        };
        let part = rates.part + residual * self.residuals as f64;
        // Parts of whole sectors are about equal, of as many times eight filters.
        let eights = 8 * tiling.width.div_ceil(64);
        let columns = tiling.width.next_multiple_of(if runs.overlap > 0 { eights } else { 32 });
        let finish = part * columns as f64 / 64.0;
        let outputs = (tiling.pixels() * tiling.filters()) as f64;
        // Blocks that share a multiprocessor wait for each stage of filters too, in turn.
        let in_stages = if is_tf32_taps { multiply + rates.step * lines } else { multiply };
        let shared = rounds * blocks * in_stages.max(outputs / rates.outputs);
        let one = (rounds / tiling.pingpong as f64).ceil() * (alone + finish);
        let in_turn = if tiling.pingpong > 1 { rounds * alone + finish } else { 0.0 };
        let is_apart = self.taps[0] > 1 && tiling.tf32x3;
        let apart = if is_apart { pixels / OF_VOLUME } else { 0.0 };
        let waited = rounds * steps * (rates.latency / tiling.stages as f64).max(apart);
        let waited = if is_tf32 && !has_conflicts && !tiling.resident {
            waited.max(rounds * filter_steps * FILTER_STAGE / (runs.filter_stages as f64 - 1.0))
        } else {
            waited
        };
        let unit = shared.max(one).max(in_turn).max(waited);
        let memory = self.bytes as f64 / rates.memory;
        let brought = if tiling.resident { filter_steps * filters / OWN_FILTERS } else { 0.0 };
        // Nothing is multiplied before the first stage of pixels is there, which all blocks ask the memory for at once.
        let first = if is_tf32_taps {
            images * elements as f64 * row * tiles.min(slots) as f64 / rates.memory
        } else {
            0.0
        };
        brought
            + rates.launch
            + first
            + (unit.powf(rates.overlap) + memory.powf(rates.overlap)).powf(1.0 / rates.overlap)
    }
}

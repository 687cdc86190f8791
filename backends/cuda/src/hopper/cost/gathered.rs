//! What bounds a kernel whose pixels are gathered.

use super::super::tiling::Tiling;
use super::{Work, added_up};

/// In microseconds.
struct Rates {
    /// Of a launch; of a step of a producer's thread, and of each of its loads; of a tile; of 64 filters times 64 pixels in the
    /// epilogue, more where few results are written at once, and of a residual of these, more where few are read at once, less of one that
    /// was read before the main loop.
    launch: f64,
    step: f64,
    load: f64,
    tile: f64,
    part: f64,
    write: f64,
    residual: f64,
    read: f64,
    early: f64,
    /// Of an instruction with rows in registers, whatever its width.
    instruction: f64,
    /// A tile's resident filters, and those of a step, are waited for.
    ahead: f64,
    kept: f64,
    /// Bytes of the device's memory in a microsecond.
    memory: f64,
    /// How far producers, consumers and the memory overlap.
    overlap: f64,
}

/// As [`super::PRODUCTS`].
const GATHERED_PRODUCTS: f64 = 6.6e6;

/// Fitted to 165 timings of 33 convolutions, to 9 % in the mean square, with a choice that is 0.5 % slower than the fastest tile
/// in the mean. What residuals take of which few are read at once, and that every other element counts of 1x1 with strides, was fitted, here
/// and behind this, to half of 52 convolutions on an H100: of the other half the times are 11 % off in the mean square, in TF32 12, by 3xTF32
/// 7, where they were 14, 17 and 13.
const GATHERED: Rates = Rates {
    launch: 3.25,
    step: 0.169,
    load: 0.0175,
    tile: 0.677,
    part: 0.585,
    write: 0.663,
    residual: 2.0,
    read: 3.0,
    early: 0.4,
    instruction: 0.0,
    ahead: 0.0,
    kept: 0.53,
    memory: f64::INFINITY,
    overlap: 2.32,
};

/// TF32: the rates of 16 bits, but for a load and the memory, as elements have twice the bytes. These were fitted to the chosen tiles
/// of 13 convolutions on an H100; the memory's was chosen since by those of 35 on an H200, to 10 % in the mean square where it was 19, and
/// 15 % of 19 others where it was 32, most of all of 1x1 with strides. What a step's resident filters take was chosen by ten timings on
/// an H200.
const GATHERED_TF32: Rates =
    Rates { load: 0.0242, residual: 4.0, read: 7.5, early: 1.0, kept: 0.05, memory: 3.3e6, ..GATHERED };

/// The same where a block has one tile. Fitted to 139 timings on an H200 of 55 convolutions of one image and eight, most of 1x1 and 3x3 of
/// up to 17x17 pixels, in networks to fit to, each weighed by how near it is to the fastest: to 7 % in the mean square where it was 35,
/// 12 % of 96 of 33 others where it was 32.
///
/// What resident filters take was chosen by nine pairs of the same tile with and without, on an H200: one's time over the other's is 8 %
/// off in the mean square, of 20 other pairs 11 %. Without strides a third of what they save is counted, so that runs, which took less, are
/// taken; the third was not timed. What a residual takes was chosen by 14 timings: to 6 % instead of 8, of 58 others 14 as before.
const GATHERED_TF32_ONCE: Rates = Rates {
    launch: 1.1,
    step: 0.254,
    load: 0.0175,
    tile: 0.173,
    part: 0.717,
    write: 1.75,
    residual: 3.0,
    ahead: -0.6,
    kept: 0.03,
    memory: 1.74e6,
    overlap: 1.65,
    ..GATHERED_TF32
};

/// The same in strides where a block has several tiles, with a launch and resident filters as where it has one. The others were fitted to
/// 93 timings of 18 convolutions of eight images and 64 on an H200: to 9 % in the mean square where it was 15; of 42 timings of nine
/// others 14 where it was 24.
const GATHERED_TF32_STRIDED: Rates = Rates {
    step: 0.2,
    load: 0.0273,
    tile: 0.177,
    part: 0.322,
    write: 0.663,
    residual: 2.5,
    read: 4.6,
    early: 0.54,
    memory: 2.82e6,
    overlap: 2.04,
    ..GATHERED_TF32_ONCE
};

/// 1x1 of 16 bits: these rates and the memory's, with which they are 9 % from the times of 13 layers on an H100 in the mean square,
/// and 11 % from those of 13 others, where they were 18 and 20 %. Tiles rank as without it; it is for the comparison with copied planes.
const GATHERED_POINTWISE: Rates = Rates { memory: 2.1e6, ..GATHERED };

/// The same in strides. Fitted with the rates of pixels that are reordered to 44 timings of 11 such
/// convolutions of networks to fit to on an H200, of 8 and 64 images: what is chosen of the two takes 1.02 of the faster in the mean, 1.14 at
/// worst, instead of 1.10 and 1.47. Of 7 others 1.08 (1.35) as before, by estimates that are off by 19 % in the mean square instead of 26.
const GATHERED_STRIDED: Rates = Rates {
    launch: 2.4,
    step: 0.2,
    load: 0.0192,
    part: 0.12,
    write: 2.2,
    residual: 2.4,
    memory: 16e6,
    overlap: 2.2,
    ..GATHERED
};

/// Groups of fewer filters than a tile has for all groups, which were timed in small layers: of 10 convolutions of 8 and 16 channels a
/// group on an H200 the time is 0.88 to 1.16 of the estimate where that was 0.53 to 0.88, of 14 others 0.76 to 1.15 and 0.61 to 0.89.
const GATHERED_GROUPS: Rates = Rates { launch: 1.1, ..GATHERED };

/// 3xTF32: fitted to 226 timings of 25 convolutions on an H100, to 6 % in the mean square, with a choice that is 0.2 % slower than
/// the fastest tile in the mean; of 22 others 0.5 %. The memory's rate was chosen since by 10 convolutions without a residual on an H200:
/// to 6 % in the mean square where it was 7, of 8 others 7 where it was 10, of MIOpen's thirteen 4 where it was 6.
const GATHERED_TF32X3: Rates = Rates {
    launch: 2.2,
    step: 0.28,
    load: 0.0213,
    tile: 0.92,
    part: 0.65,
    write: 1.76,
    residual: 4.0,
    read: 7.5,
    early: 1.0,
    instruction: 0.0061,
    ahead: 0.0,
    kept: 0.11,
    memory: 6e6,
    overlap: 1.98,
};

/// How many times as long a load of 1x1 with a stride takes, of which every other element that comes is used, or fewer. In TF32 chosen
/// by 240 timings of 26 convolutions on H200s, for which it makes no difference in the mean square; 22 others are 15 % off where they
/// were 16.
const SKIPPED: f64 = 2.0;
const SKIPPED_TF32: f64 = 2.5;

impl Work {
    /// The time of an execution where pixels are gathered, which is what bounds most.
    pub(super) fn gathered_time(&self, tiling: &Tiling) -> f64 {
        let (steps, columns) = (self.steps(tiling).div_ceil(tiling.split) as f64, self.columns(tiling));
        let tiles = self.tiles(tiling) * tiling.split;
        let slots = if tiling.resident { self.units / columns * columns } else { self.units };
        let rounds = tiles.div_ceil(slots.max(1)) as f64;
        let rates = match self.element {
            _ if tiling.tf32x3 => &GATHERED_TF32X3,
            4 if rounds <= 1.0 => &GATHERED_TF32_ONCE,
            4 if self.stride > 1 => &GATHERED_TF32_STRIDED,
            4 => &GATHERED_TF32,
            _ if self.groups > 1 && self.filters < 32 => &GATHERED_GROUPS,
            _ if self.is_strided_batch() => &GATHERED_STRIDED,
            _ if self.taps == [1; 3] => &GATHERED_POINTWISE,
            _ => &GATHERED,
        };
        let loads = (tiling.width * tiling.depth) as f64 / (tiling.producers * 128) as f64;
        let of_loads = rates.load * loads;
        let of_loads = match self.is_strided_point() {
            false => of_loads,
            true if self.element == 4 && !tiling.tf32x3 => SKIPPED_TF32 * of_loads,
            true => SKIPPED * of_loads,
        };
        let gather = rates.tile + steps * (rates.step + of_loads);
        let products = tiling.products();
        let instructions = (products * tiling.rows() / 64 * tiling.row() / 32) as f64;
        let multiplied = (products * tiling.pixels() * tiling.filters() * tiling.row()) as f64;
        let multiply = steps * (multiplied / GATHERED_PRODUCTS + rates.instruction * instructions);
        let parts = (tiling.atoms * tiling.width) as f64 / 64.0;
        let vector = self.vector as f64;
        // A block's only tile has its residuals in the second-level cache when they are read.
        let later = rates.residual + if rounds > 1.0 { rates.read / vector } else { 0.0 };
        let residual = if self.reads_residuals_early(tiling) { rates.early } else { later };
        // Blocks that share a tile finish a share of its rows each: rates of TF32 where a block has one tile were fitted so, those of
        // 16 bits have it without a refit, by which six layers of one image take 0.90 of the time on an H200 (0.79 to 1.01), and those
        // of 3xTF32 stay as they were fitted, as if each finished all of them.
        let shares = if tiling.tf32x3 { 1.0 } else { tiling.split as f64 };
        let residual = residual * self.in_a_share(shares) * self.residuals as f64;
        let each = rates.part + rates.write / vector + residual;
        let finish = parts * each / shares;
        let one = (rounds / tiling.pingpong as f64).ceil() * (multiply + finish);
        let (producers, consumers) = (rounds * gather, one.max(rounds * multiply + finish));
        // Of 1x1 with a stride some lines are not read; other rates were fitted as if all were.
        let skipped = if self.element == 4 && !tiling.tf32x3 && self.is_strided_point() {
            let image = self.read - self.element * self.groups * self.filters * self.channels;
            image - image / self.stride
        } else {
            0
        };
        let bounds = [producers, consumers, (self.bytes - skipped) as f64 / rates.memory];
        let work = bounds.map(|time| time.powf(rates.overlap)).iter().sum::<f64>().powf(1.0 / rates.overlap);
        // Filters that are there before pixels save what is waited for with each stage, most of all where loads take twice as long: of 16
        // bits as in TF32, whose two numbers of this are taken where a block has one tile. By these, which were not fitted to it, what is
        // chosen takes 1.00 of the fastest timed tile for seven convolutions of one image on an H200, 1.05 (1.22) for 14 of eight, 1.09 (1.21)
        // for seven of 64.
        let once = if self.element == 2 && rounds <= 1.0 { &GATHERED_TF32_ONCE } else { rates };
        let (ahead, kept) = match self.is_strided_point() {
            true => (once.ahead, once.kept),
            false => (rates.ahead / 3.0, rates.kept),
        };
        let kept = if tiling.resident { ahead + kept * steps } else { 0.0 };
        rates.launch + work + added_up(tiling) + kept
    }
}

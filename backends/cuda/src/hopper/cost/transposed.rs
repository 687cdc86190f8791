//! What bounds a kernel whose pixels are transposed.

use super::super::tiling::Tiling;
use super::{PRODUCTS, Work};

struct Rates {
    /// Of a multiprocessor in a microsecond: bytes of shared memory, and of the second-level cache.
    shared: f64,
    second: f64,
    /// Bytes of the device's memory in a microsecond.
    memory: f64,
    /// Microseconds of a launch; of transposing a step, and each eight columns of it; of 64 pixels of a warpgroup in the epilogue, of which
    /// eight results are written at once; from asking for filters until they begin to come.
    launch: f64,
    step: f64,
    eight: f64,
    part: f64,
    latency: f64,
    /// Bytes of filters that a block is brought in a microsecond.
    block: f64,
}

/// Fitted to 90 timings of 15 convolutions of 3x3, 5x5 and 1x3x3 on an H200, of 1 to 64 images of 16x16 to 512x512, to 7 % in the mean
/// square, each weighed by how near it is to the fastest: the choice is 2.0 % slower than the fastest of up to six timed tiles in the mean,
/// 21 % at worst; of 16 others 8, 0.5 and 7 %. The second-level cache's rate is of an earlier fit. What transposing takes, which by the
/// rates bounds no tile of all these, was fitted to 30 timings of six convolutions of 3x1x1, 3x1 and 1x3, to 12 %: the choice is 0.3 %
/// slower than the fastest of five, 1 % at worst; of six others 9, 1.2 and 8 %. Results that are written one by one were timed in four
/// convolutions of 2x2; two and four at once were not.
const RATES: Rates = Rates {
    shared: 192e3,
    second: 62e3,
    memory: 1.95e6,
    launch: 2.29,
    step: 0.2,
    eight: 0.012,
    part: 0.604,
    latency: 0.267,
    block: 36.5e3,
};

impl Work {
    /// About how many microseconds the kernel takes.
    pub(super) fn transposed_time(&self, tiling: &Tiling) -> f64 {
        let Some(tile) = tiling.transposed else { return f64::INFINITY };
        let row = tiling.row() as f64;
        let (steps, filter_steps) = (self.steps(tiling) as f64, self.filter_steps(tiling) as f64);
        let rounds = self.tiles(tiling).div_ceil(self.units) as f64;
        let products = filter_steps * (tiling.pixels() * tiling.filters() * tiling.row()) as f64 / PRODUCTS;
        let (raw, filters) = (tile.raw_bytes() as f64, tiling.filters() as f64 * row);
        let reads = (tiling.cooperative * (64 + tiling.width)) as f64 * row;
        // Pixels are written, read, and written once more.
        let pixels = 1.5 * raw + tiling.loaded_pixels() as f64 * row;
        let shared = (filter_steps * (reads + filters) + steps * pixels) / RATES.shared;
        let second = (steps * raw + filter_steps * filters) / RATES.second;
        // A stage of filters, which are a line of taps', comes no sooner than it was asked for; one stage is not on its way meanwhile.
        let taps = tile.taps as f64;
        let stage = RATES.latency + filters * taps / RATES.block;
        let waited = filter_steps / taps * stage / (tile.filter_stages as f64 - 1.0);
        let shift = (8 - self.pad % 8) % 8;
        let eights = (tile.lines + tile.halo) * (shift + tile.line()).div_ceil(8);
        let transposing = steps * (RATES.step + RATES.eight * eights as f64);
        let multiply = products.max(shared).max(second).max(waited).max(transposing);
        let writes = 8.0 / self.vector as f64;
        let finish = RATES.part * writes * tiling.width.div_ceil(64) as f64;
        let unit =
            ((rounds / tiling.pingpong as f64).ceil() * (multiply + finish)).max(rounds * multiply + finish);
        let memory = self.bytes as f64 / RATES.memory;
        RATES.launch + (unit.powi(3) + memory.powi(3)).cbrt()
    }
}

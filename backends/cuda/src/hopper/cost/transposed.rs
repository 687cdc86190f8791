//! What bounds a kernel whose pixels are transposed.

use super::super::tiling::Tiling;
use super::{PRODUCTS, Work};

struct Rates {
    /// Of a multiprocessor in a microsecond: bytes of shared memory, and of the second-level cache.
    shared: f64,
    second: f64,
    /// Bytes of the device's memory in a microsecond.
    memory: f64,
    /// Microseconds of a launch; of eight columns that are transposed; of 64 pixels of a warpgroup in the epilogue.
    launch: f64,
    eight: f64,
    part: f64,
}

/// Fitted to timings of 5 convolutions on an H100, by a transposition that read pixels one group at a time. Of 10 convolutions timed
/// with today's, five tiles each, those 5 among them, the choice is 4.4 % slower than the fastest in the mean, 22 % at worst.
const RATES: Rates =
    Rates { shared: 150e3, second: 62e3, memory: 1.8e6, launch: 3.3, eight: 0.05, part: 0.25 };

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
        let shift = (8 - self.pad % 8) % 8;
        let eights = (tile.lines + tile.halo) * (shift + tile.line()).div_ceil(8);
        let multiply = products.max(shared).max(second).max(steps * eights as f64 * RATES.eight);
        let finish = RATES.part * tiling.width.div_ceil(64) as f64;
        let unit =
            ((rounds / tiling.pingpong as f64).ceil() * (multiply + finish)).max(rounds * multiply + finish);
        let memory = self.bytes as f64 / RATES.memory;
        RATES.launch + (unit.powi(3) + memory.powi(3)).cbrt()
    }
}

//! What bounds a kernel of lines whose filters are streamed.

use super::super::tiling::{Lines, Tiling};
use super::{PRODUCTS, Work};

struct Rates {
    /// As those of resident filters, but that a step is one of filters.
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
const RATES: Rates = Rates {
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

impl Work {
    /// About how many microseconds the kernel takes.
    pub(super) fn streamed_time(&self, tiling: &Tiling) -> f64 {
        let Some(lines) = tiling.lines else { return f64::INFINITY };
        let (rates, row) = (&RATES, tiling.row() as f64);
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
        let short = self.short_writes(tiling);
        let finish = rates.part * tiling.width.next_multiple_of(64) as f64 / 64.0 + short;
        // Sums move to the right between a tile's products, and back behind them.
        let moved = |times: usize| rates.moved * (times * tiling.width) as f64 / 64.0;
        let (right, left) = (moved(self.taps[2] - 1), moved(self.taps[2] - 1 - self.pad));
        let blocks = tiling.occupancy.min(tiles.div_ceil(self.units)) as f64;
        let shared = rounds * blocks * multiply.max(outputs / rates.outputs).max(short);
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
}

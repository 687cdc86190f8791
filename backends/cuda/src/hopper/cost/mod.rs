//! A model of what bounds a kernel: about how many microseconds it takes with a tile.

use super::tiling::{Load, Tiling};
use super::work::Work;

mod gathered;
mod runs;
mod streamed;
mod tma;
mod transposed;

/// Products of a multiprocessor in a microsecond: bytes of factors times factors.
const PRODUCTS: f64 = 6.64e6;

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

/// How many times a multiprocessor writes results of lines in a microsecond, one, two or four at once. Chosen with what filters that stay
/// take then by 124 tiles of nine convolutions on an H200, each weighed by how near it is to the fastest: with such filters to 8 % in the
/// mean square where it was 63, with streamed ones 10 where it was 13; of 84 tiles of six others 9 where it was 51, and 7 where it was 18.
const WRITES: f64 = 0.9e3;

/// Microseconds of a launch that prepares filters of a tile, so many bytes of them: of 16 bits what it added to thirteen convolutions on an
/// H100; of f32, which is read once for both parts, what it added to MIOpen's thirteen on an H200, and within a microsecond to 28 of 37
/// others.
pub(super) fn preparing(tiling: &Tiling, bytes: usize) -> f64 {
    let (launch, rate) = match tiling.element {
        2 => (1.8, 1.7e6),
        _ if tiling.tf32x3 => (1.3, 2.6e6),
        _ => (1.3, 1.3e6),
    };
    launch + bytes as f64 / rate
}

impl Work {
    /// Whether it is a single tap in strides, which sees every other pixel or fewer.
    fn is_strided_point(&self) -> bool {
        self.stride > 1 && self.taps == [1; 3]
    }

    /// Whether it is such a tap of several images, by eight and 64 of which its rates were chosen.
    fn is_strided_batch(&self) -> bool {
        self.is_strided_point() && self.images > 1
    }

    /// Microseconds of a launch that reorders the image and the filters.
    fn reordering(&self) -> f64 {
        // Bytes that stay in L2, and those of filters of several taps in TF32 that are read and written in a microsecond.
        const CACHE: f64 = 40e6;
        const TAPS: f64 = 2.4e6;

        // Of a launch, and what is read and written in a microsecond, of those bytes and of others: of 16 bits on an H100, but of 1x1 in
        // strides on an H200, of 32 on an H200.
        let (launch, near, far) = match self.element {
            2 if self.is_strided_batch() => (2.28, 6.2e6, 3.3e6),
            2 => (2.0, 3.17e6, 1.93e6),
            _ => (0.86, 4.4e6, 3.06e6),
        };
        let filters = self.groups * self.filters * self.channels * self.taps.iter().product::<usize>();
        let apart = if self.element > 2 && self.taps != [1; 3] {
            2.0 * (filters * self.element) as f64 * (1.0 / TAPS - 1.0 / near)
        } else {
            0.0
        };
        let moved = 2.0 * self.read as f64;
        launch + moved.min(CACHE) / near + (moved - CACHE).max(0.0) / far + apart
    }

    /// Microseconds in which a multiprocessor writes a tile of lines, more than where it writes 16 bytes at once.
    fn short_writes(&self, tiling: &Tiling) -> f64 {
        let results = (self.images * self.planes * self.lines * self.columns) as f64;
        let results = results * (self.groups * self.filters) as f64 / self.tiles(tiling) as f64;
        results * (1.0 / self.vector as f64 - self.element as f64 / 16.0) / WRITES
    }

    /// About how many microseconds the kernel takes.
    pub(super) fn time(&self, tiling: &Tiling) -> f64 {
        match tiling.load {
            Load::Lines if tiling.is_streamed() => self.streamed_time(tiling),
            Load::Tma | Load::Halo | Load::Planes | Load::Packed | Load::Lines => self.tma_time(tiling),
            Load::Runs => self.runs_time(tiling),
            Load::Transposed => self.transposed_time(tiling),
            Load::Reordered => self.reordering() + self.tma_time(tiling),
            Load::Gather => self.gathered_time(tiling),
        }
    }
}

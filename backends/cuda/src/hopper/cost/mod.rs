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

    /// How many times a share of a tile's rows waits for what its residuals take: once, but where lanes read them one at a time in TF32, of
    /// rows of an odd number of pixels, as often as the tile is shared, as few of them are on their way then.
    fn in_a_share(&self, shares: f64) -> f64 {
        if self.element > 2 && self.vector == 1 { shares } else { 1.0 }
    }

    /// Microseconds of a launch that reorders the image and the filters.
    fn reordering(&self, tiling: &Tiling) -> f64 {
        // Bytes that stay in L2.
        const CACHE: f64 = 40e6;

        // Of a launch, and what is read and written in a microsecond, of those bytes and of others: of 16 bits on an H100, but of 1x1 in
        // strides on an H200, of 32 on an H200.
        let (launch, near, far) = match self.element {
            2 if self.is_strided_batch() => (2.28, 6.2e6, 3.3e6),
            2 => (2.0, 3.17e6, 1.93e6),
            _ if self.stride > 1 => (0.49, 6.67e6, 3.56e6),
            _ => (0.86, 4.4e6, 3.06e6),
        };
        let moved = 2.0 * self.read as f64;
        let bytes = moved.min(CACHE) / near + (moved - CACHE).max(0.0) / far;
        launch + if self.element > 2 { bytes.max(self.rounds_of_reordering(tiling)) } else { bytes }
    }

    /// The same of f32 where threads have one thing to copy after another, as `reorder.cuh` has them: a warp 32 pixels of 32 channels, a
    /// thread some words of a filter. They are the tile's blocks', of which there are few: 2048 of 8x8 with eight images are 1,024 such
    /// parts, for which tiles that two blocks of eight warps share have 1,024 warps, and those that four share 992.
    ///
    /// Fitted with `REORDERED_TF32_STRIDED` and the launch to 300 timings of 25 convolutions in strides, of one image to 64 on an H200,
    /// and 96 of six others: of the former to 8 % in the mean square, where bytes alone gave 14; of 252 of 21 others 13 and 16, of 294 of
    /// 42 that no fit has seen 8 and 14. Without strides the launch has bytes besides: of 176 of 11 10 and 11 %.
    fn rounds_of_reordering(&self, tiling: &Tiling) -> f64 {
        // Microseconds of a round: of an image's parts, of filters of a single tap, and of each tap of several.
        const IMAGE: f64 = 0.93;
        const POINT: f64 = 0.79;
        const TAP: f64 = 0.103;

        let (threads, taps) =
            (tiling.slots(self.units) * tiling.threads(), self.taps.iter().product::<usize>());
        let (channels, filters) = (self.groups * self.channels, self.groups * self.filters);
        let of_image = (self.read / self.element).saturating_sub(filters * self.channels * taps);
        let plane = of_image / (self.images * channels);
        let parts = self.images * channels.div_ceil(32) * plane.div_ceil(32);
        let (words, of_round) = if taps == 1 { (4, POINT) } else { (1, TAP * taps as f64) };
        let together = (8 / (taps.min(9) * words)).max(1);
        let copied = filters * self.channels.div_ceil(words);
        IMAGE * parts.div_ceil(threads / 32) as f64 + of_round * copied.div_ceil(together * threads) as f64
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
            Load::Reordered => self.reordering(tiling) + self.tma_time(tiling),
            Load::Gather => self.gathered_time(tiling),
        }
    }
}

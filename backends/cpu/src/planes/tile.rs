//! The micro-kernels: sums of R output channels by V vectors of pixels.
//!
//! Every output is the sum over taps and the channels of its group, in this order, of input times weight, whatever the tile
//! that computes it, as direct convolution's is.

use crate::epilogue::Steps;
use crate::isa::{Kernel, Simd};

/// Vectors of the largest tile.
pub(super) const VECTORS: usize = 8;

/// What a micro-kernel computes: tiles one beside the other. Distances count floats.
pub(super) struct Tile<'a> {
    /// The first pixel's first product.
    pub(super) x: *const f32,
    /// How far from it the other products of the pixel are, in the order of the sum.
    pub(super) offsets: &'a [usize],
    /// The first row's weights, each the beginning of a vector with those of the other rows.
    pub(super) weights: *const f32,
    /// Where the first pixel's sum of the first row is stored, and from there to the next row's.
    pub(super) y: *mut f32,
    pub(super) row: usize,
    /// From one vector of a tile to the next, in `x` and in `y`.
    pub(super) x_vector: usize,
    pub(super) y_vector: usize,
    /// How many tiles there are, from one to the next, and where the last one is at most.
    pub(super) count: usize,
    pub(super) step: usize,
    pub(super) last: usize,
    /// Steps whose front is applied, and the channel: for tiles of one row.
    pub(super) front: Option<(&'a Steps<'a>, usize)>,
}

pub(super) type TileFn = unsafe fn(&Tile<'_>);

/// The micro-kernels of an instruction set: by the rows' power of two, then by their vectors less 1.
#[derive(Clone, Copy)]
pub(super) struct Tiles {
    tiles: [[TileFn; VECTORS]; 4],
    most: [usize; 4],
}

impl Tiles {
    pub(super) fn of<S: Simd>() -> Self {
        macro_rules! vectors {
            ($r:literal: $($v:literal)*) => { [$(tile::<S, $r, $v>),*] };
        }
        let tiles = [
            vectors!(1: 1 2 3 4 5 6 7 8),
            vectors!(2: 1 2 3 4 5 6 7 8),
            vectors!(4: 1 2 3 4 5 6 7 8),
            vectors!(8: 1 2 3 4 5 6 7 8),
        ];
        Tiles { tiles, most: [most::<S>(1), most::<S>(2), most::<S>(4), most::<S>(8)] }
    }

    /// Vectors of the largest tile of so many rows.
    pub(super) fn most(&self, rows: usize) -> usize {
        self.most[rows.ilog2() as usize]
    }

    /// The micro-kernel for tiles of so many rows, a power of two, and vectors.
    pub(super) fn get(&self, rows: usize, vectors: usize) -> TileFn {
        self.tiles[rows.ilog2() as usize][vectors - 1]
    }
}

/// Vectors of the largest tile of so many rows: sums, a vector of each of their pixels and one weight stay in registers.
/// Tiles of one row need not keep the pixels.
const fn most<S: Simd>(rows: usize) -> usize {
    if rows == 1 {
        return VECTORS;
    }
    let registers = 2 * S::ROWS[1] + 4;
    let vectors = (registers - 1) / (rows + 1);
    if vectors < 6 { vectors } else { 6 }
}

/// Rows of the largest tile, a power of two: with fewer than two vectors of pixels most loads would be of weights.
pub(super) const fn rows<S: Simd>() -> usize {
    let mut rows = 8;
    while rows > 1 && most::<S>(rows) < 2 {
        rows /= 2;
    }
    rows
}

/// Reached through a pointer, so that each size has all registers for itself.
///
/// # Safety
/// The CPU has the instruction set; the pixels of all products and their weights are readable, and the sums writable, in whole
/// vectors.
unsafe fn tile<S: Simd, const R: usize, const V: usize>(tile: &Tile<'_>) {
    struct Sum<'a, const R: usize, const V: usize>(&'a Tile<'a>);
    impl<const R: usize, const V: usize> Kernel for Sum<'_, R, V> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let t = self.0;
            for i in 0..t.count {
                let at = (i * t.step).min(t.last);
                let mut sums = [[s.splat(0.0); V]; R];
                let (x, mut weights) = (t.x.wrapping_add(at), t.weights);
                for offset in t.offsets {
                    let x = x.wrapping_add(*offset);
                    let mut pixels = [s.splat(0.0); V];
                    for (v, pixels) in pixels.iter_mut().enumerate() {
                        // SAFETY: `tile`'s caller says that the pixels of every product are readable.
                        *pixels = unsafe { s.load(x.add(v * t.x_vector)) };
                    }
                    for (r, sums) in sums.iter_mut().enumerate() {
                        // SAFETY: `tile`'s caller says that there is a weight of each row for every product.
                        let weight = unsafe { s.load_splat(weights.add(r)) };
                        for (sum, pixels) in sums.iter_mut().zip(pixels) {
                            *sum = s.fma(pixels, weight, *sum);
                        }
                    }
                    weights = weights.wrapping_add(S::LANES);
                }
                if R == 1
                    && let Some((steps, channel)) = t.front
                {
                    let mut row = [[s.splat(0.0)]; V];
                    for (to, sum) in row.iter_mut().zip(sums[0]) {
                        *to = [sum];
                    }
                    // SAFETY: tables have a value for each channel.
                    steps.front(s, &mut row, |table| [s.splat(unsafe { *table.add(channel) })]);
                    for (to, [sum]) in sums[0].iter_mut().zip(row) {
                        *to = sum;
                    }
                }
                for (r, sums) in sums.iter().enumerate() {
                    for (v, &sum) in sums.iter().enumerate() {
                        // SAFETY: `tile`'s caller says that the sums are writable.
                        unsafe { s.store(t.y.add(r * t.row + v * t.y_vector + at), sum) };
                    }
                }
            }
        }
    }
    // Larger tiles than the set has registers for are never asked for; this keeps them from being made.
    if const { R <= rows::<S>() && V <= most::<S>(R) } {
        // SAFETY: the caller says that the CPU has the instruction set.
        unsafe { S::enter(Sum::<R, V>(tile)) }
    }
}

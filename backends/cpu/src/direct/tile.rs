//! The micro-kernels: each computes a register tile of R pixels by V vectors of output channels, BLIS's mr by nr. Pixels
//! come from the input, packed or in place, and channels from a packed panel of weights. Where images are multiplied as they
//! lie (`pointwise`), the two change places: filters are the rows of a tile, and pixels its vectors.
//!
//! Every output is the sum over chunks of channels, depth taps, height taps, width taps and channels, in this order,
//! of input times weight, whatever the tile that computes it. A *dense* tile multiplies one input value, in all
//! lanes, by a vector of weights. A *lane-wise* tile (grouped convolution) multiplies a vector of inputs,
//! each lane having an input of its own group.

use std::hint::black_box;
use std::ops::Range;

use super::ahead::LINE;
use crate::activation::Simple;
use crate::epilogue::Steps;
use crate::isa::{Kernel, Simd};

/// Rows of the largest tile of any instruction set.
const MAX_ROWS: usize = 14;

/// How many floats ahead of their use weights are prefetched.
const AHEAD: usize = 512;

/// What a micro-kernel computes. Distances count floats.
#[derive(Clone, Copy)]
pub(crate) struct Tile<'a> {
    /// The input of the first pixel's first tap, at its first channel.
    pub(crate) x: *const f32,
    /// The packed weights of the first tap: taps, then channels, then V vectors.
    pub(crate) w: *const f32,
    /// Where the first pixel's outputs are stored.
    pub(crate) y: *mut f32,
    /// The distance from one pixel to the next in `x`, and in `y`.
    pub(crate) x_pixel: usize,
    pub(crate) y_pixel: usize,
    /// The distance in `y` from a pixel's first vector to its second.
    pub(crate) y_vector: usize,
    /// How many taps there are in depth, height and width.
    pub(crate) taps: [usize; 3],
    /// The distance from one tap to the next in `x`, in each dimension.
    pub(crate) x_tap: [usize; 3],
    /// The distance from one depth tap to the next in `w`, and from one height tap to the next.
    pub(crate) w_tap: [usize; 2],
    /// What the second-level cache is asked for meanwhile, and the distance from what it is asked for at one product to the next, 0
    /// where there is nothing to ask for.
    pub(crate) ahead: *const f32,
    pub(crate) ahead_step: usize,
    /// How many products each tap has. Their weights follow one another, and so do their inputs.
    pub(crate) depth: usize,
    /// The steps whose front is applied to complete sums, with the parameters of the channels from `channel` on.
    pub(crate) steps: &'a Steps<'a>,
    pub(crate) channel: usize,
    /// What is added to the first pixel's outputs behind that, and lies as they do; null where there is nothing. Then follows
    /// the activation.
    pub(crate) residual: *const f32,
    pub(crate) simple: Simple,
    /// How many lanes of the last vector are stored.
    pub(crate) tail: usize,
    /// Whether the sums are added to those of earlier chunks, which lie at `y` in whole vectors.
    pub(crate) goes_on: bool,
    /// Whether another chunk follows, so that sums are stored as they are.
    pub(crate) incomplete: bool,
}

impl Tile<'_> {
    /// The same without all width taps but `taps`. Each has `channels` products, and each product `vector` weights.
    pub(crate) fn keep(&self, taps: Range<usize>, channels: usize, vector: usize) -> Self {
        let mut kept = *self;
        kept.x = self.x.wrapping_add(taps.start * self.x_tap[2]);
        kept.w = self.w.wrapping_add(taps.start * channels * vector);
        if self.depth == channels {
            kept.taps[2] = taps.len();
        } else {
            // All of them are one long tap.
            kept.depth = taps.len() * channels;
        }
        kept
    }
}

pub(crate) type TileFn = unsafe fn(&Tile<'_>);

/// The micro-kernels of an instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Tiles {
    /// The dense micro-kernels by their vectors less 1, then by their rows less 1.
    dense: [[TileFn; MAX_ROWS]; 2],
    lanewise: [TileFn; MAX_ROWS],
    /// How many rows the largest tile has with one vector and with two.
    pub(crate) rows: [usize; 2],
}

impl Tiles {
    pub(crate) fn of<S: Simd>() -> Self {
        macro_rules! rows {
            ($v:literal, $lanewise:literal: $($r:literal)*) => { [$(tile::<S, $r, $v, $lanewise>),*] };
        }
        Tiles {
            dense: [
                rows!(1, false: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
                rows!(2, false: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
            ],
            lanewise: rows!(1, true: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
            rows: S::ROWS,
        }
    }

    /// The micro-kernel for a tile of so many vectors and rows.
    pub(crate) fn get(&self, lanewise: bool, vectors: usize, rows: usize) -> TileFn {
        if lanewise { self.lanewise[rows - 1] } else { self.dense[vectors - 1][rows - 1] }
    }
}

/// # Safety
/// The CPU has the instruction set, and all that the tile names is readable and writable.
unsafe fn tile<S: Simd, const R: usize, const V: usize, const LANEWISE: bool>(tile: &Tile<'_>) {
    // Larger tiles than the set has registers for are never asked for; this keeps them from being made.
    if const { R <= S::ROWS[V - 1] } {
        // SAFETY: the caller says that the CPU has the instruction set.
        unsafe { S::enter(Sum::<R, V, LANEWISE>(tile)) }
    }
}

struct Sum<'a, const R: usize, const V: usize, const LANEWISE: bool>(&'a Tile<'a>);

impl<const R: usize, const V: usize, const LANEWISE: bool> Kernel for Sum<'_, R, V, LANEWISE> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let t = self.0;
        let mut acc = [[s.splat(0.0); V]; R];
        let step = if LANEWISE { S::LANES } else { 1 };
        for r in 0..R {
            s.prefetch_write(t.y.wrapping_add(r * t.y_pixel));
        }
        // Vectors that are half a line of the cache mostly are of one line, if they are behind each other.
        if V > 1 && (S::LANES >= LINE || t.y_vector != S::LANES) {
            for r in 0..R {
                s.prefetch_write(t.y.wrapping_add(r * t.y_pixel + t.y_vector));
            }
        }
        if !t.residual.is_null() {
            for r in 0..R {
                for v in 0..V {
                    s.prefetch(t.residual.wrapping_add(r * t.y_pixel + v * t.y_vector));
                }
            }
        }
        let (mut x0, mut w, mut ahead) = (t.x, t.w, t.ahead);
        // Taps that are left of all, of a slice's lines and of a line.
        let (mut taps, mut lines, mut columns) = (t.taps[0] * t.taps[1] * t.taps[2], t.taps[1], t.taps[2]);
        while taps > 0 {
            let (mut x, mut left) = (x0, t.depth);
            while left >= S::PRODUCTS {
                for line in 0..(S::PRODUCTS * V * S::LANES).div_ceil(LINE) {
                    s.prefetch(w.wrapping_add(AHEAD + line * LINE));
                }
                // A step of one product takes no longer to ask for nothing than to find out.
                if S::PRODUCTS == 1 || t.ahead_step > 0 {
                    for _ in 0..S::PRODUCTS {
                        s.prefetch_far(ahead);
                        ahead = ahead.wrapping_add(t.ahead_step);
                    }
                }
                for product in 0..S::PRODUCTS {
                    // SAFETY: `tile`'s caller says that the weights and inputs of every product are readable.
                    unsafe {
                        let (x, w) = (x.add(product * step), w.add(product * V * S::LANES));
                        multiply::<S, R, V, LANEWISE>(s, x, t.x_pixel, w, &mut acc);
                    }
                }
                // SAFETY: these are the ends of what was just read, at most.
                (w, x) = unsafe { (w.add(S::PRODUCTS * V * S::LANES), x.add(S::PRODUCTS * step)) };
                left -= S::PRODUCTS;
            }
            for _ in 0..left {
                s.prefetch(w.wrapping_add(AHEAD));
                s.prefetch_far(ahead);
                ahead = ahead.wrapping_add(t.ahead_step);
                // SAFETY: `tile`'s caller says that the weights and inputs of every product are readable.
                unsafe {
                    multiply::<S, R, V, LANEWISE>(s, x, t.x_pixel, w, &mut acc);
                    (w, x) = (w.add(V * S::LANES), x.add(step));
                }
            }
            taps -= 1;
            if taps > 0 {
                // Unknown to the compiler, as it would compute the distances of all tiles, most of which have one tap.
                let t = black_box(t);
                x0 = x0.wrapping_add(t.x_tap[2]);
                columns -= 1;
                if columns == 0 {
                    columns = t.taps[2];
                    x0 = x0.wrapping_add(t.x_tap[1]).wrapping_sub(columns * t.x_tap[2]);
                    w = w.wrapping_add(t.w_tap[1]).wrapping_sub(columns * t.depth * V * S::LANES);
                    lines -= 1;
                    if lines == 0 {
                        lines = t.taps[1];
                        x0 = x0.wrapping_add(t.x_tap[0]).wrapping_sub(lines * t.x_tap[1]);
                        w = w.wrapping_add(t.w_tap[0]).wrapping_sub(lines * t.w_tap[1]);
                    }
                }
            }
        }
        // SAFETY: `tile`'s caller says that the outputs are readable and writable.
        unsafe { store(s, t, acc) }
    }
}

/// Adds a product of R pixels' inputs and V vectors of weights to the sums.
///
/// # Safety
/// The weights at `w` are readable, and an input at each of the pixels, a vector of them where the tile is lane-wise.
#[inline(always)]
unsafe fn multiply<S: Simd, const R: usize, const V: usize, const LANEWISE: bool>(
    s: S,
    x: *const f32,
    x_pixel: usize,
    w: *const f32,
    acc: &mut [[S::V; V]; R],
) {
    // SAFETY: as of this function.
    unsafe {
        let weights: [S::V; V] = std::array::from_fn(|v| s.load(w.add(v * S::LANES)));
        for (r, acc) in acc.iter_mut().enumerate() {
            let pixel = x.add(r * x_pixel);
            let input = if LANEWISE { s.load(pixel) } else { s.load_splat(pixel) };
            for v in 0..V {
                acc[v] = s.fma(input, weights[v], acc[v]);
            }
        }
    }
}

/// Adds the sums to those of the chunks before, or takes complete ones through the front of the epilogue, and stores them.
///
/// # Safety
/// The tile's outputs are writable, and readable where the tile goes on with them.
#[inline(always)]
unsafe fn store<S: Simd, const R: usize, const V: usize>(s: S, t: &Tile<'_>, mut acc: [[S::V; V]; R]) {
    // Behind the loops, so that they begin with zeros and have all registers.
    if t.goes_on {
        for (r, row) in acc.iter_mut().enumerate() {
            for (v, sum) in row.iter_mut().enumerate() {
                // SAFETY: the caller says that the outputs, whole vectors here, are readable.
                *sum = s.add(*sum, unsafe { s.load(t.y.add(r * t.y_pixel + v * t.y_vector)) });
            }
        }
    }
    if !t.incomplete {
        t.steps.front(s, &mut acc, |table| {
            // SAFETY: tables have room for whole tiles behind every channel.
            std::array::from_fn(|v| unsafe { s.load(table.add(t.channel + v * S::LANES)) })
        });
        if !t.residual.is_null() {
            // SAFETY: the caller says that the residual is readable where outputs are writable.
            unsafe { add(s, t, &mut acc) };
        }
    }
    for (r, acc) in acc.iter().enumerate() {
        for (v, &value) in acc.iter().enumerate() {
            // SAFETY: the caller says that the pixel's outputs are writable, `tail` of them in the last vector.
            unsafe {
                let y = t.y.add(r * t.y_pixel + v * t.y_vector);
                if v + 1 < V || t.tail == S::LANES {
                    s.store(y, value);
                } else {
                    s.store_part(y, value, t.tail);
                }
            }
        }
    }
}

/// Adds a tile's residual, and applies the activation behind it.
///
/// # Safety
/// The tile's residual is readable, `tail` lanes of it in the last vector.
#[inline(always)]
unsafe fn add<S: Simd, const R: usize, const V: usize>(s: S, t: &Tile<'_>, acc: &mut [[S::V; V]; R]) {
    for (r, row) in acc.iter_mut().enumerate() {
        for (v, sum) in row.iter_mut().enumerate() {
            let from = t.residual.wrapping_add(r * t.y_pixel + v * t.y_vector);
            // SAFETY: as of this function.
            *sum = s.add(*sum, unsafe {
                if v + 1 < V || t.tail == S::LANES { s.load(from) } else { s.load_part(from, t.tail) }
            });
        }
    }
    macro_rules! each {
        ($simple:expr) => {
            for row in acc.iter_mut() {
                for sum in row {
                    *sum = $simple.apply(s, *sum);
                }
            }
        };
    }
    match t.simple {
        Simple::Identity => {}
        Simple::Slope(slope) => each!(Simple::Slope(slope)),
        Simple::Clip(top) => each!(Simple::Clip(top)),
    }
}

//! Square filters of 3 or 5 taps a side in strides of 1 or 2, and of 7 without strides, none with dilations: a tile is two lines of a few pixels, whose inputs
//! are loaded once for all of them.

use std::marker::PhantomData;
use std::ops::Range;

use super::{Band, PIXELS, finish};
use crate::direct::geometry::Geometry;
use crate::isa::{Kernel, Number, Simd};
use crate::row::RowStart;

/// Lines of the largest tile, and of a band.
pub(super) const LINES: usize = 2;

/// Columns of the largest tile.
pub(super) const COLUMNS: usize = PIXELS / LINES;

/// The least width of an output: its lines are tiles of all columns, or of one less.
const LEAST_WIDTH: usize = (COLUMNS - 1) * (COLUMNS - 2);

/// Whether functions for a filter are so long that there are none but of inputs in f32.
pub(super) fn is_long(g: &Geometry) -> bool {
    g.filters.taps[2] > 3
}

/// Whether there are functions for a convolution's filter.
pub(super) fn takes(g: &Geometry) -> bool {
    let [_, taps, width] = g.filters.taps;
    matches!((taps, g.strides[2]), (3 | 5, 1 | 2) | (7, 1))
        && [g.filters.taps[0], width, g.strides[1]] == [1, taps, g.strides[2]]
        && g.dilations[1..] == [1, 1]
        && [g.pads_before[0], g.pads_after[0]] == [0, 0]
        && g.output.lens[4] >= LEAST_WIDTH
}

/// Channels of a work item, at most so many and whole vectors, such that what is left of all for the last is a vector at least.
pub(super) fn chunk(channels: usize, most: usize, lanes: usize) -> Option<usize> {
    let mut chunks = (1..=most / lanes).rev().map(|vectors| vectors * lanes);
    chunks.find(|chunk| channels.is_multiple_of(*chunk) || channels % chunk >= lanes)
}

/// Computes a band.
///
/// # Safety
/// The CPU has the instruction set; the tensors are the problem's, the input of type `X` and the output of type `T`, to which no
/// tile is written where these differ; the filter is one that is taken, the band has at most [`LINES`] lines, and a vector of
/// channels at least.
pub(super) unsafe fn band<S: Simd, X: Number, T: Number>(band: &Band<'_>) {
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Run::<X, T>(band, PhantomData)) }
}

/// Computes a tile. Reached through a pointer, so that each size has all registers for itself.
type PixelsFn<T> = unsafe fn(&Band<'_>, &Tile<T>);

/// The functions of a filter in a stride: for one line and two, and in each for one column less than [`COLUMNS`] and all.
const fn sizes<S: Simd, T: Number, const TAPS: usize, const STRIDE: usize>() -> [[PixelsFn<T>; 2]; LINES] {
    [
        [pixels::<S, T, TAPS, STRIDE, 1, { COLUMNS - 1 }>, pixels::<S, T, TAPS, STRIDE, 1, COLUMNS>],
        [pixels::<S, T, TAPS, STRIDE, 2, { COLUMNS - 1 }>, pixels::<S, T, TAPS, STRIDE, 2, COLUMNS>],
    ]
}

const fn is_f32<T: Number>() -> bool {
    size_of::<T>() == size_of::<f32>()
}

struct Run<'a, X, T>(&'a Band<'a>, PhantomData<(X, T)>);

impl<X: Number, T: Number> Kernel for Run<'_, X, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let b = self.0;
        let sizes = match (b.geometry.filters.taps[2], b.geometry.strides[2]) {
            (5, 1) if const { is_f32::<X>() } => const { &sizes::<S, X, 5, 1>() },
            (5, _) if const { is_f32::<X>() } => const { &sizes::<S, X, 5, 2>() },
            (7, _) if const { is_f32::<X>() } => const { &sizes::<S, X, 7, 1>() },
            (_, 1) => const { &sizes::<S, X, 3, 1>() },
            _ => const { &sizes::<S, X, 3, 2>() },
        };
        let width = b.geometry.output.lens[4];
        let tiles = width.div_ceil(COLUMNS);
        for tile in 0..tiles {
            let columns = width * tile / tiles..width * (tile + 1) / tiles;
            let size = usize::from(columns.len() == COLUMNS);
            // SAFETY: `band`'s caller says that the tensors are the problem's.
            unsafe { sizes[b.lines.len() - 1][size](b, &b.square(columns.start)) };
            if b.is_left() {
                for (l, line) in b.lines.clone().enumerate() {
                    // SAFETY: the tile's pixels lie inside of the output, and their sums wait there or in scratch.
                    unsafe { finish::<S, T>(b, l * columns.len(), line, columns.clone()) };
                }
            }
        }
    }
}

/// The inputs and outputs of a tile, at channel 0.
struct Tile<T> {
    /// First tap of the first pixel; maybe outside of the input.
    x: *const T,
    y: *mut T,
    /// Which of the tile's input lines and columns are inside of the input.
    lines: Range<usize>,
    columns: Range<usize>,
}

impl Band<'_> {
    /// The tile at a column of the band.
    fn square<T: Number>(&self, column: usize) -> Tile<T> {
        let g = self.geometry;
        let [image, _, slice, line, pixel] = self.input_strides;
        let start = self.lines.start;
        let first = [self.slice, start, column];
        let first: [usize; 3] = std::array::from_fn(|d| first[d] * g.strides[d]);
        let inside = |d: usize| {
            let (pad, extent) = (g.pads_before[d], g.input.lens[2 + d]);
            pad.saturating_sub(first[d])..(extent + pad).saturating_sub(first[d])
        };
        let [_, pad_h, pad_w] = g.pads_before;
        let origin = self.image * image + first[0] * slice + first[1] * line + first[2] * pixel;
        let row = RowStart { channel: 0, ..self.row_start(start, column) };
        Tile {
            x: self.input.cast::<T>().wrapping_add(origin).wrapping_sub(pad_h * line + pad_w * pixel),
            y: self.output.cast::<T>().wrapping_add(row.offset(self.surface)),
            lines: inside(1),
            columns: inside(2),
        }
    }
}

/// Computes L lines of R pixels: to the output where the band says so, else to scratch.
///
/// # Safety
/// The CPU has the instruction set; the tile lies inside of the tensors; the band has a vector of channels at least.
unsafe fn pixels<
    S: Simd,
    T: Number,
    const TAPS: usize,
    const STRIDE: usize,
    const L: usize,
    const R: usize,
>(
    band: &Band<'_>,
    tile: &Tile<T>,
) {
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Pixels::<T, TAPS, STRIDE, L, R>(band, tile)) }
}

struct Pixels<'a, T, const TAPS: usize, const STRIDE: usize, const L: usize, const R: usize>(
    &'a Band<'a>,
    &'a Tile<T>,
);

impl<T: Number, const TAPS: usize, const STRIDE: usize, const L: usize, const R: usize> Kernel
    for Pixels<'_, T, TAPS, STRIDE, L, R>
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let channels = &self.0.channels;
        let last = channels.end - S::LANES;
        let mut c = channels.start;
        loop {
            // SAFETY: `pixels`' caller says that the tile lies inside of the tensors, and that there is a vector of channels.
            unsafe { self.vector(s, c) };
            if c == last {
                return;
            }
            // The last vector begins earlier, with channels that are computed twice: for a part of one all this would be twice as long.
            c = (c + S::LANES).min(last);
        }
    }
}

impl<T: Number, const TAPS: usize, const STRIDE: usize, const L: usize, const R: usize>
    Pixels<'_, T, TAPS, STRIDE, L, R>
{
    /// Computes a vector of channels from `c` on.
    ///
    /// # Safety
    /// As [`pixels`].
    #[inline(always)]
    unsafe fn vector<S: Simd>(&self, s: S, c: usize) {
        let Pixels(b, tile) = self;
        let [.., x_line, x_pixel] = b.input_strides;
        let [.., y_line, y_pixel] = b.surface.strides;
        // SAFETY: packed weights have a whole vector for every tap.
        let weight = |tap: usize| unsafe { s.load(b.weights.add(tap * b.padded + c)) };
        let mut all = [[s.splat(0.0); TAPS]; TAPS];
        if TAPS == 3 {
            for (tap, of) in all.as_flattened_mut().iter_mut().enumerate() {
                *of = weight(tap);
            }
        }
        let mut sums = [[s.splat(0.0); R]; L];
        // Written out, so that sums stay in registers, and an input line after the other, so that only the weights of the filter's
        // lines that it has a part in do.
        macro_rules! input {
            ($i:literal $j:literal $line:ident $weights:ident) => {
                if $i < (R - 1) * STRIDE + TAPS && tile.columns.contains(&$i) {
                    // SAFETY: the caller says that the tile's inputs are readable, of which this is inside of the tensor.
                    let value = unsafe { T::load(s, $line.wrapping_add($i * x_pixel)) };
                    for l in 0..L {
                        for r in 0..R {
                            let (top, left) = (l * STRIDE, r * STRIDE);
                            if $j >= top && $j < top + TAPS && $i >= left && $i < left + TAPS {
                                sums[l][r] = s.fma(value, $weights[l][$i - left], sums[l][r]);
                            }
                        }
                    }
                }
            };
        }
        macro_rules! lines {
            ($($j:literal)*) => {
                $(if $j < (L - 1) * STRIDE + TAPS && tile.lines.contains(&$j) {
                    let line = tile.x.wrapping_add($j * x_line + c);
                    let mut weights = [[s.splat(0.0); TAPS]; L];
                    for l in 0..L {
                        if $j >= l * STRIDE && $j < l * STRIDE + TAPS {
                            for t in 0..TAPS {
                                let k = $j - l * STRIDE;
                                weights[l][t] = if TAPS == 3 { all[k][t] } else { weight(k * TAPS + t) };
                            }
                        }
                    }
                    input!(0 $j line weights);
                    input!(1 $j line weights);
                    input!(2 $j line weights);
                    input!(3 $j line weights);
                    input!(4 $j line weights);
                    input!(5 $j line weights);
                    input!(6 $j line weights);
                    input!(7 $j line weights);
                    input!(8 $j line weights);
                    input!(9 $j line weights);
                    input!(10 $j line weights);
                })*
            };
        }
        lines!(0 1 2 3 4 5 6 7);
        let done = b.ending.is_some();
        // SAFETY: tables have room for whole vectors.
        b.steps.front(s, &mut sums, |table| unsafe { [s.load(table.add(c)); R] });
        if let Some(swish) = b.swish {
            swish.apply(s, c, sums.as_flattened_mut());
        }
        for (l, line) in sums.iter().enumerate() {
            for (r, &value) in line.iter().enumerate() {
                // SAFETY: the caller says that the tile lies inside of the output; scratch has room for it.
                unsafe {
                    if done {
                        T::store(s, tile.y.wrapping_add(l * y_line + r * y_pixel + c), value);
                    } else {
                        s.store(b.row(l * R + r, c), value);
                    }
                }
            }
        }
    }
}

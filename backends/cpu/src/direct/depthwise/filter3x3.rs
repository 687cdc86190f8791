//! Filters of 3x3 taps without strides and dilations: a tile is two lines of a few pixels, whose inputs are
//! loaded once for all of them.

use std::marker::PhantomData;
use std::ops::Range;

use super::{Band, PIXELS};
use crate::direct::geometry::Geometry;
use crate::isa::{Kernel, Number, Simd};
use crate::row::RowStart;

/// Lines of the largest tile, and of a band.
pub(super) const LINES: usize = 2;

/// Columns of the largest tile.
pub(super) const COLUMNS: usize = PIXELS / LINES;

/// Taps along both dimensions.
const TAPS: usize = 3;

/// Whether a convolution has such a filter.
pub(super) fn takes(g: &Geometry) -> bool {
    g.filters.taps == [1, TAPS, TAPS]
        && g.strides[1..] == [1, 1]
        && g.dilations[1..] == [1, 1]
        && [g.pads_before[0], g.pads_after[0]] == [0, 0]
}

/// Computes a band.
///
/// # Safety
/// The CPU has the instruction set; the tensors are the problem's, of type `T`; the filter is one that is
/// taken, the band has at most [`LINES`] lines.
pub(super) unsafe fn band<S: Simd, T: Number>(band: &Band<'_>) {
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Run::<T>(band, PhantomData)) }
}

/// Computes a tile. Reached through a pointer, so that each size has all registers for itself.
type PixelsFn<T> = unsafe fn(&Band<'_>, &Tile<T>);

/// The functions for all sizes of a tile: lines, then columns, less one.
const fn sizes<S: Simd, T: Number>() -> [[PixelsFn<T>; COLUMNS]; LINES] {
    [
        [pixels::<S, T, 1, 1>, pixels::<S, T, 1, 2>, pixels::<S, T, 1, 3>, pixels::<S, T, 1, 4>],
        [pixels::<S, T, 2, 1>, pixels::<S, T, 2, 2>, pixels::<S, T, 2, 3>, pixels::<S, T, 2, 4>],
    ]
}

struct Run<'a, T>(&'a Band<'a>, PhantomData<T>);

impl<T: Number> Kernel for Run<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let b = self.0;
        let sizes = const { &sizes::<S, T>() };
        let width = b.geometry.output.lens[4];
        // As many columns in each tile of the line, or one less.
        let tiles = width.div_ceil(COLUMNS);
        for tile in 0..tiles {
            let columns = width * tile / tiles..width * (tile + 1) / tiles;
            // SAFETY: `band`'s caller says that the tensors are the problem's.
            unsafe { sizes[b.lines.len() - 1][columns.len() - 1](b, &b.tile3x3(columns.start)) };
            if !b.steps.end_in_registers() {
                for (l, line) in b.lines.clone().enumerate() {
                    // SAFETY: the tile's pixels lie inside of the output, and their sums wait there or in scratch.
                    unsafe { b.finish::<S, T>(s, l * columns.len(), line, columns.clone()) };
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
    fn tile3x3<T: Number>(&self, column: usize) -> Tile<T> {
        let g = self.geometry;
        let [image, _, slice, line, pixel] = g.input.strides;
        let inside = |d: usize, at: usize| {
            let (pad, extent) = (g.pads_before[d], g.input.lens[2 + d]);
            pad.saturating_sub(at)..(extent + pad).saturating_sub(at)
        };
        let [_, pad_h, pad_w] = g.pads_before;
        let start = self.lines.start;
        let origin = self.image * image + self.slice * g.strides[0] * slice + start * line + column * pixel;
        let row = RowStart { channel: 0, ..self.row_start(start, column) };
        Tile {
            x: self.input.cast::<T>().wrapping_add(origin).wrapping_sub(pad_h * line + pad_w * pixel),
            y: self.output.cast::<T>().wrapping_add(row.offset(self.surface)),
            lines: inside(1, start),
            columns: inside(2, column),
        }
    }
}

/// Computes L lines of R pixels: to the output where the band says so, else to scratch.
///
/// # Safety
/// The CPU has the instruction set; the tile lies inside of the tensors.
unsafe fn pixels<S: Simd, T: Number, const L: usize, const R: usize>(band: &Band<'_>, tile: &Tile<T>) {
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Pixels::<T, L, R>(band, tile)) }
}

struct Pixels<'a, T, const L: usize, const R: usize>(&'a Band<'a>, &'a Tile<T>);

impl<T: Number, const L: usize, const R: usize> Kernel for Pixels<'_, T, L, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Pixels(b, tile) = self;
        let (start, len) = (b.channels.start, b.channels.len());
        let whole = len / S::LANES * S::LANES;
        // SAFETY: `pixels`' caller says that the tile lies inside of the tensors, and what is left of the channels is loaded
        // and stored as a part of a vector.
        unsafe {
            for c in (start..start + whole).step_by(S::LANES) {
                let load = |p| T::load(s, p);
                vector::<S, T, L, R>(s, b, tile, c, load, |p, value| T::store(s, p, value));
            }
            if whole < len {
                let n = len - whole;
                let load = |p| T::load_part(s, p, n);
                vector::<S, T, L, R>(s, b, tile, start + whole, load, |p, value| {
                    T::store_part(s, p, value, n)
                });
            }
        }
    }
}

/// Computes a vector of channels from `c` on, which `load` and `store` take.
///
/// # Safety
/// As [`pixels`].
#[inline(always)]
unsafe fn vector<S: Simd, T: Number, const L: usize, const R: usize>(
    s: S,
    b: &Band<'_>,
    tile: &Tile<T>,
    c: usize,
    load: impl Fn(*const T) -> S::V,
    store: impl Fn(*mut T, S::V),
) {
    let [.., x_line, x_pixel] = b.geometry.input.strides;
    let [.., y_line, y_pixel] = b.surface.strides;
    let mut weights = [[s.splat(0.0); TAPS]; TAPS];
    for (tap, weight) in weights.as_flattened_mut().iter_mut().enumerate() {
        // SAFETY: packed weights have a whole vector for every tap.
        *weight = unsafe { s.load(b.weights.add(tap * b.padded + c)) };
    }
    let lines: [_; LINES + TAPS - 1] = std::array::from_fn(|j| tile.x.wrapping_add(j * x_line + c));
    let mut sums = [[s.splat(0.0); R]; L];
    // Written out, so that sums stay in registers.
    macro_rules! input {
        ($i:literal $j:literal) => {
            if $j < L + TAPS - 1 && tile.lines.contains(&$j) {
                let value = load(lines[$j].wrapping_add($i * x_pixel));
                for l in 0..L {
                    for r in 0..R {
                        if $j >= l && $j < l + TAPS && $i >= r && $i < r + TAPS {
                            sums[l][r] = s.fma(value, weights[$j - l][$i - r], sums[l][r]);
                        }
                    }
                }
            }
        };
    }
    macro_rules! columns {
        ($($i:literal)*) => {
            $(if $i < R + TAPS - 1 && tile.columns.contains(&$i) {
                input!($i 0);
                input!($i 1);
                input!($i 2);
                input!($i 3);
            })*
        };
    }
    columns!(0 1 2 3 4 5);
    let done = b.ending.is_some();
    // SAFETY: tables have room for whole vectors.
    b.steps.front(s, &mut sums, |table| unsafe { [s.load(table.add(c)); R] });
    for (l, line) in sums.iter().enumerate() {
        for (r, &value) in line.iter().enumerate() {
            if done {
                store(tile.y.wrapping_add(l * y_line + r * y_pixel + c), value);
            } else {
                // SAFETY: the scratch has room for the tile.
                unsafe { s.store(b.row(l * R + r, c), value) };
            }
        }
    }
}

//! Any filter: a tile is a few pixels of one line, with a load for each multiply-add.

use std::marker::PhantomData;

use super::{Band, PIXELS, finish};
use crate::isa::{Kernel, Number, Simd};
use crate::row::RowStart;
use crate::vectors::load;

/// Computes a band.
///
/// # Safety
/// The CPU has the instruction set; the tensors are the problem's, of type `T`.
pub(super) unsafe fn band<S: Simd, T: Number>(band: &Band<'_>) {
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Run::<T>(band, PhantomData)) }
}

struct Run<'a, T>(&'a Band<'a>, PhantomData<T>);

/// A tile's pixels, at their first channel. Distances are in elements.
#[derive(Clone, Copy)]
struct Tile<T> {
    /// First tap of the first pixel.
    x: *const T,
    w: *const f32,
    taps: [usize; 3],
    x_tap: [usize; 3],
    w_tap: [usize; 3],
    x_pixel: usize,
    line: usize,
    column: usize,
}

impl<T: Number> Kernel for Run<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let b = self.0;
        // All lines of a few columns, so that a line's inputs are still in the first-level cache when the
        // next two lines need them.
        let mut column = 0;
        while let Some(rows) = b.rows_at(column) {
            for line in b.lines.clone().filter(|&line| column < b.geometry.width(line)) {
                // The last line of a cut image may end inside of the tile.
                let rows = rows.min(b.geometry.width(line) - column);
                let tile = b.tile::<T>(line, column);
                macro_rules! rows {
                    ($($r:literal)*) => {
                        match rows {
                            // SAFETY: `band`'s caller says that the tensors are the problem's.
                            $($r => unsafe { pixels::<S, T, $r>(s, b, &tile) },)*
                            _ => {}
                        }
                    };
                }
                rows!(1 2 3 4 5 6 7 8);
                if b.is_left() {
                    // SAFETY: the tile's pixels lie inside of the output, and their sums wait there or in scratch.
                    unsafe { finish::<S, T>(b, 0, line, column..column + rows) };
                }
            }
            column += rows;
        }
    }
}

impl Band<'_> {
    /// Pixels of the tile that begins at a column of a full line.
    fn rows_at(&self, column: usize) -> Option<usize> {
        let width = self.geometry.output.lens[4];
        let inner = self.geometry.inner_columns(width);
        if inner.contains(&column) {
            // As many pixels in each tile of the line, or one less.
            let left = inner.end - column;
            return Some(left.div_ceil(left.div_ceil(PIXELS)));
        }
        // A pixel with taps in the padding is alone.
        (column < width).then_some(1)
    }

    /// The tile at a line and a column.
    fn tile<T: Number>(&self, line: usize, column: usize) -> Tile<T> {
        let g = self.geometry;
        let [image, _, slice, line_stride, pixel] = self.input_strides;
        let [_, taps_h, taps_w] = g.filters.taps;
        let (slices, first_slice) = g.taps_inside(0, self.slice);
        let (lines, first_line) = g.taps_inside(1, line);
        let (taps, first) = g.taps_inside(2, column);
        let origin = self.image * image + first_slice * slice + first_line * line_stride + first * pixel;
        let tap = (slices.start * taps_h + lines.start) * taps_w + taps.start;
        Tile {
            x: self.input.cast::<T>().wrapping_add(origin),
            w: self.weights.wrapping_add(tap * self.padded),
            taps: [slices.len(), lines.len(), taps.len()],
            x_tap: [g.dilations[0] * slice, g.dilations[1] * line_stride, g.dilations[2] * pixel],
            w_tap: [taps_h * taps_w * self.padded, taps_w * self.padded, self.padded],
            x_pixel: g.strides[2] * pixel,
            line,
            column,
        }
    }
}

/// Computes channels of a tile's pixels: to the output where the band says so, else to
/// scratch.
///
/// # Safety
/// The tile lies inside of the tensors.
#[inline(always)]
unsafe fn pixels<S: Simd, T: Number, const R: usize>(s: S, b: &Band<'_>, tile: &Tile<T>) {
    let y_pixel = b.surface.strides[4];
    let row = RowStart { channel: 0, ..b.row_start(tile.line, tile.column) };
    let y = b.output.cast::<T>().wrapping_add(row.offset(b.surface));
    let done = b.ending.is_some();
    for c in b.channels.clone().step_by(S::LANES) {
        let n = (b.channels.end - c).min(S::LANES);
        // SAFETY: the caller says that the tile lies inside of the tensors; scratch has room for it, and tables have
        // whole vectors behind every channel.
        unsafe {
            let table = |p: *const f32| [s.load(p.add(c))];
            if n == S::LANES {
                let mut acc: [[S::V; 1]; R] = sums(s, tile, c, S::LANES);
                b.steps.front(s, &mut acc, table);
                if let Some(swish) = b.swish {
                    swish.apply(s, c, acc.as_flattened_mut());
                }
                for (r, &[value]) in acc.iter().enumerate() {
                    if done {
                        T::store(s, y.add(r * y_pixel + c), value);
                    } else {
                        s.store(b.row(r, c), value);
                    }
                }
                continue;
            }
            for r in 0..R {
                let pixel = Tile { x: tile.x.wrapping_add(r * tile.x_pixel), ..*tile };
                let mut acc: [[S::V; 1]; 1] = sums(s, &pixel, c, n);
                b.steps.front(s, &mut acc, table);
                let [[value]] = acc;
                if done {
                    T::store_part(s, y.add(r * y_pixel + c), value, n);
                } else {
                    s.store(b.row(r, c), value);
                }
            }
        }
    }
}

/// The sums of R pixels for the `n` channels from `c`.
///
/// # Safety
/// The inputs of all taps are readable; packed weights have a whole vector for every tap.
#[inline(always)]
unsafe fn sums<S: Simd, T: Number, const R: usize>(
    s: S,
    tile: &Tile<T>,
    c: usize,
    n: usize,
) -> [[S::V; 1]; R] {
    let mut acc = [[s.splat(0.0)]; R];
    let (mut x2, mut w2) = (tile.x.wrapping_add(c), tile.w.wrapping_add(c));
    for _ in 0..tile.taps[0] {
        let (mut x1, mut w1) = (x2, w2);
        for _ in 0..tile.taps[1] {
            // A macro, since a closure that is used several times may not be inlined.
            macro_rules! tap {
                ($tap:expr) => {{
                    let (x, w) =
                        (x1.wrapping_add($tap * tile.x_tap[2]), w1.wrapping_add($tap * tile.w_tap[2]));
                    // SAFETY: the caller says that weights are there.
                    let weight = unsafe { s.load(w) };
                    for (r, [acc]) in acc.iter_mut().enumerate() {
                        // SAFETY: the caller says that the tap's inputs are readable.
                        let input = unsafe { load(s, x.wrapping_add(r * tile.x_pixel), n) };
                        *acc = s.fma(input, weight, *acc);
                    }
                }};
            }
            if tile.taps[2] == 3 {
                // The usual width, without a loop: a tile is short.
                tap!(0);
                tap!(1);
                tap!(2);
            } else {
                for at in 0..tile.taps[2] {
                    tap!(at);
                }
            }
            x1 = x1.wrapping_add(tile.x_tap[1]);
            w1 = w1.wrapping_add(tile.w_tap[1]);
        }
        x2 = x2.wrapping_add(tile.x_tap[0]);
        w2 = w2.wrapping_add(tile.w_tap[0]);
    }
    acc
}

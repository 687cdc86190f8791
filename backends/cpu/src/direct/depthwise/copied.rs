//! Square filters of 5 or 7 taps a side without strides in 16 bits: the lines of the input that a band needs are converted to f32
//! once, where each of a filter's taps would convert them anew, and computed by the functions of f32.

use std::marker::PhantomData;
use std::ops::Range;

use super::{Band, square};
use crate::direct::geometry::Geometry;
use crate::isa::{Kernel, MAX_LANES, Number, Simd};
use crate::vectors::{load, vectors};

/// Channels of a work item, of which a pixel has a few cache lines.
pub(super) const CHUNK: usize = 4 * MAX_LANES;

/// Floats of a band's copy, so that it stays in the second-level cache; the least there is may have twice as many.
const COPY: usize = 48 * 1024;

/// Whether a copy costs less than conversions for each tap, which are fewer for an output in strides of 2, and is not too large for
/// the cache.
pub(super) fn is_worth_it(g: &Geometry) -> bool {
    g.strides[2] == 1 && copy_len(g, square::LINES) <= 2 * COPY
}

/// Lines of a band, whole tiles, of which the copy is as large as it should be, or has the least there is.
pub(super) fn lines(g: &Geometry) -> usize {
    let tiles = 1..=g.output.lens[3].div_ceil(square::LINES);
    let fits = tiles.take_while(|tiles| copy_len(g, tiles * square::LINES) <= COPY).last();
    fits.unwrap_or(1) * square::LINES
}

/// Floats of the copy for so many lines of the output.
pub(super) fn copy_len(g: &Geometry, lines: usize) -> usize {
    let inputs = (lines - 1) * g.strides[1] + g.filters.taps[1];
    inputs.min(g.input.lens[3]) * g.input.lens[4] * CHUNK
}

/// Computes a band.
///
/// # Safety
/// As [`square::band`], of a tensor of type `T` and for any number of lines; the band's copy has [`copy_len`] floats.
pub(super) unsafe fn band<S: Simd, T: Number>(band: &Band<'_>) {
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Copy::<T>(band, PhantomData)) }
    let g = band.geometry;
    let inputs = inputs(band);
    let (pixel, width) = (CHUNK, g.input.lens[4]);
    let line = width * pixel;
    let copied = Band {
        input: band.copy.wrapping_sub(inputs.start * line + band.channels.start).cast_const().cast(),
        input_strides: [0, 1, 0, line, pixel],
        // What follows the front reads sums in scratch, from where it writes elements of the output's type.
        ending: None,
        swish: None,
        ..band.clone()
    };
    for start in band.lines.clone().step_by(square::LINES) {
        let lines = start..(start + square::LINES).min(band.lines.end);
        // SAFETY: as the caller says; the copy has the inputs of all lines.
        unsafe { square::band::<S, f32, T>(&Band { lines, ..copied.clone() }) };
    }
}

/// The lines of the input that a band needs.
fn inputs(band: &Band<'_>) -> Range<usize> {
    let (g, pad) = (band.geometry, band.geometry.pads_before[1]);
    let first = (band.lines.start * g.strides[1]).saturating_sub(pad);
    let end = ((band.lines.end - 1) * g.strides[1] + g.filters.taps[1]).saturating_sub(pad);
    first..end.min(g.input.lens[3]).max(first)
}

/// Converts what a band needs.
struct Copy<'a, T>(&'a Band<'a>, PhantomData<T>);

impl<T: Number> Kernel for Copy<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let b = self.0;
        let [image, _, slice, line, pixel] = b.input_strides;
        let slice = b.slice * b.geometry.strides[0] * slice;
        let from = b.input.cast::<T>().wrapping_add(b.image * image + slice + b.channels.start);
        let mut to = b.copy;
        for l in inputs(b) {
            for w in 0..b.geometry.input_width(l) {
                let from = from.wrapping_add(l * line + w * pixel);
                vectors!(S, b.channels.len(), |c, n| {
                    // SAFETY: `band`'s caller says that the tensors are the problem's and that the copy has room for whole
                    // vectors of the channels of each of these pixels.
                    unsafe { s.store(to.add(c), load(s, from.add(c), n)) };
                });
                to = to.wrapping_add(CHUNK);
            }
            to = to.wrapping_add((b.geometry.input.lens[4] - b.geometry.input_width(l)) * CHUNK);
        }
    }
}

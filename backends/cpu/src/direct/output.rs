//! From a band of sums in scratch to the output: what the epilogue has left, conversion, and a transpose
//! where the output's pixels, not its channels, follow one another.

use std::ops::Range;

use fuseplan_api::volume::Volume;

use crate::epilogue::{AHEAD, Epilogue, Lanes, Rows, Steps};
use crate::isa::{Kernel, MAX_LANES, Number, Simd};
use crate::row::RowStart;
use crate::vectors::store_strided;

/// Pixels that are finished at a time, so that they stay in the first-level cache.
const RUN: usize = 8 * MAX_LANES;

/// Floats of scratch for [`finish`].
pub(crate) const SCRATCH: usize = 2 * MAX_LANES * RUN;

/// Consecutive pixels of one panel of channels.
pub(crate) struct Finish<'a> {
    pub(crate) steps: &'a Steps<'a>,
    /// The sums of `pixels` pixels, `pixel` floats apart, each with `count` channels.
    pub(crate) sums: *mut f32,
    pub(crate) pixel: usize,
    pub(crate) count: usize,
    pub(crate) pixels: usize,
    /// Where the first pixel lies in the output.
    pub(crate) start: RowStart,
    pub(crate) output: *mut std::ffi::c_void,
    pub(crate) surface: &'a Volume,
    pub(crate) lanes: Lanes,
    pub(crate) scratch: *mut f32,
}

pub(crate) type FinishFn = unsafe fn(&Finish<'_>);

/// Finishes a run of pixels by channels that each lie in one block of the output and of every operand of `epilogue`.
///
/// # Safety
/// As of [`FinishFn`]s, for vectors of `lanes` floats; behind the sums a vector is readable.
pub(crate) unsafe fn finish_channels(finish: FinishFn, run: Finish<'_>, epilogue: &Epilogue, lanes: usize) {
    let first = run.start.channel;
    for part in epilogue.parts(first..first + run.count) {
        // Vectors of channels that end within others' sums would finish these, too, so those are only read.
        let is_whole = part.len() == run.count || part.len().is_multiple_of(lanes);
        // SAFETY: these are some of the channels that the caller speaks of.
        unsafe {
            finish(&Finish {
                sums: run.sums.add(part.start - first),
                count: part.len(),
                start: RowStart { channel: part.start, ..run.start },
                lanes: if is_whole { run.lanes } else { Lanes::Width },
                ..run
            });
        }
    }
}

/// Finishes a run of pixels.
///
/// # Safety
/// The CPU has the instruction set; sums and scratch are writable; the run lies inside of the output,
/// which has elements of type `T`.
pub(crate) unsafe fn finish<S: Simd, T: Number>(args: &Finish<'_>) {
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Run::<T>(args, std::marker::PhantomData)) }
}

struct Run<'a, T>(&'a Finish<'a>, std::marker::PhantomData<T>);

impl<T: Number> Kernel for Run<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let f = self.0;
        // SAFETY: `finish`'s caller says that the run begins inside of the output, of type `T`.
        let output = unsafe { f.output.cast::<T>().add(f.start.offset(f.surface)) };
        match f.lanes {
            // SAFETY: `finish`'s caller says what these functions ask for.
            Lanes::Channels => unsafe { channels(s, f, output) },
            // SAFETY: as of the other function.
            Lanes::Width => unsafe { width(s, f, output) },
        }
    }
}

/// Finishes pixel by pixel, with channels in the lanes.
///
/// # Safety
/// As [`finish`]; the run begins at `output`.
#[inline(always)]
unsafe fn channels<S: Simd, T: Number>(s: S, f: &Finish<'_>, output: *mut T) {
    let [_, channel_stride, _, _, column_stride] = f.surface.strides;
    for first in (0..f.pixels).step_by(RUN) {
        let (sums, output) =
            (f.sums.wrapping_add(first * f.pixel), output.wrapping_add(first * column_stride));
        let start = RowStart { column: f.start.column + first, ..f.start };
        let rows = Rows { first: sums, pitch: f.pixel, count: RUN.min(f.pixels - first), len: f.count };
        // SAFETY: the sums have whole vectors for each pixel; the caller says that the pixels lie inside of the output.
        unsafe { f.steps.rest(s, rows, Lanes::Channels, start, output.cast_const()) };
        for i in 0..rows.count {
            let (row, to) = (sums.wrapping_add(i * f.pixel), output.wrapping_add(i * column_stride));
            s.prefetch_write(to.wrapping_add(AHEAD * column_stride).cast());
            for c in (0..f.count).step_by(S::LANES) {
                let n = (f.count - c).min(S::LANES);
                // SAFETY: as of the rest, for the pixel's `n` channels from `c` on.
                unsafe {
                    store_strided(s, to.add(c * channel_stride), s.load(row.add(c)), channel_stride, n);
                }
            }
        }
    }
}

/// Finishes channel by channel, with pixels in the lanes.
///
/// # Safety
/// As [`finish`]; the run begins at `output`.
#[inline(always)]
unsafe fn width<S: Simd, T: Number>(s: S, f: &Finish<'_>, output: *mut T) {
    for first in (0..f.pixels).step_by(RUN) {
        let pixels = first..f.pixels.min(first + RUN);
        // SAFETY: the caller says that these pixels lie inside of the output.
        let output = unsafe { output.add(first * f.surface.strides[4]) };
        if f.steps.end_in_registers() {
            // SAFETY: the caller says that the run lies inside of the output; these are at most RUN of its pixels.
            unsafe { transpose::<S, T, true>(s, f, pixels, output) };
        } else {
            // SAFETY: the caller says that the run lies inside of the output; these are at most RUN of its pixels, for
            // which there is scratch.
            unsafe {
                transpose::<S, T, false>(s, f, pixels.clone(), output);
                finish_rows(s, f, pixels, output);
            }
        }
    }
}

/// Brings the pixels of each channel together: in the output, where nothing is left to be done to them, else in scratch.
///
/// # Safety
/// As [`finish`]; the pixels are at most [`RUN`] of the run's, and begin at `output`.
#[inline(always)]
unsafe fn transpose<S: Simd, T: Number, const DONE: bool>(
    s: S,
    f: &Finish<'_>,
    pixels: Range<usize>,
    output: *mut T,
) {
    let [_, channel_stride, _, _, column_stride] = f.surface.strides;
    for c in (0..f.count).step_by(S::LANES) {
        let channels = (f.count - c).min(S::LANES);
        for i in (0..pixels.len()).step_by(S::LANES) {
            let n = (pixels.len() - i).min(S::LANES);
            let mut square = [s.splat(0.0); MAX_LANES];
            for (j, row) in square[..n].iter_mut().enumerate() {
                // SAFETY: the sums have whole vectors for each pixel.
                *row = unsafe { s.load(f.sums.add((pixels.start + i + j) * f.pixel + c)) };
            }
            s.transpose(&mut square);
            for (j, row) in square[..channels].iter().enumerate() {
                if DONE {
                    // SAFETY: the caller says that channel `c + j` of the `n` pixels from `i` on lies inside of the
                    // output.
                    unsafe {
                        let to = output.add((c + j) * channel_stride + i * column_stride);
                        store_strided(s, to, *row, column_stride, n);
                    }
                } else {
                    // SAFETY: scratch has RUN floats, whole vectors, for each channel of a panel.
                    unsafe { s.store(f.scratch.add((c + j) * RUN + i), *row) };
                }
            }
        }
    }
}

/// Applies what is left of the epilogue to the pixels of each channel, which lie in scratch, and writes them.
///
/// # Safety
/// As [`transpose`].
#[inline(always)]
unsafe fn finish_rows<S: Simd, T: Number>(s: S, f: &Finish<'_>, pixels: Range<usize>, output: *mut T) {
    let [_, channel_stride, _, _, column_stride] = f.surface.strides;
    let start = RowStart { column: f.start.column + pixels.start, ..f.start };
    let rows = Rows { first: f.scratch, pitch: RUN, count: f.count, len: pixels.len() };
    // SAFETY: scratch has RUN floats, a multiple of every vector's lanes, for each channel of a panel; the caller says that the
    // pixels lie inside of the output.
    unsafe { f.steps.rest(s, rows, Lanes::Width, start, output.cast_const()) };
    for c in 0..f.count {
        let (row, to) = (f.scratch.wrapping_add(c * RUN), output.wrapping_add(c * channel_stride));
        for i in (0..rows.len).step_by(S::LANES) {
            let n = (rows.len - i).min(S::LANES);
            // SAFETY: as of the rest, for the channel's `n` pixels from `i` on.
            unsafe {
                store_strided(s, to.add(i * column_stride), s.load(row.add(i)), column_stride, n);
            }
        }
    }
}

//! From a band of sums in scratch to the output: what the epilogue has left, conversion, and a transpose
//! where the output's pixels, not its channels, follow one another.

use crate::epilogue::{Lanes, Place, Steps, store_strided};
use crate::isa::{Kernel, MAX_LANES, Number, Simd};
use crate::volume::Volume;

/// Pixels that are transposed and finished at a time, so that they stay in the first-level cache.
const RUN: usize = 8 * MAX_LANES;

/// Floats of scratch for [`finish`].
pub(super) const SCRATCH: usize = 2 * MAX_LANES * RUN;

/// Consecutive pixels of one block of channels.
pub(super) struct Finish<'a> {
    pub(super) steps: &'a Steps<'a>,
    /// Pixels, `pixel` floats apart, each with `count` channels.
    pub(super) sums: *mut f32,
    pub(super) pixel: usize,
    pub(super) count: usize,
    pub(super) pixels: usize,
    /// The first of them.
    pub(super) place: Place,
    pub(super) output: *mut std::ffi::c_void,
    pub(super) surface: &'a Volume,
    pub(super) lanes: Lanes,
    pub(super) scratch: *mut f32,
}

pub(super) type FinishFn = unsafe fn(&Finish<'_>);

/// Finishes a run of pixels.
///
/// # Safety
/// The CPU has the instruction set; sums and scratch are writable; the run lies inside of the output,
/// which has elements of type `T`.
pub(super) unsafe fn finish<S: Simd, T: Number>(args: &Finish<'_>) {
    // SAFETY: the caller's.
    unsafe { S::enter(Run::<T>(args, std::marker::PhantomData)) }
}

struct Run<'a, T>(&'a Finish<'a>, std::marker::PhantomData<T>);

impl<T: Number> Kernel for Run<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let f = self.0;
        // SAFETY: `finish`'s caller says that all of this is inside of the output and the scratch.
        unsafe {
            let output = f.output.cast::<T>().add(f.surface.at(f.place));
            match f.lanes {
                Lanes::Channels => channels(s, f, output),
                Lanes::Width => width(s, f, output),
            }
        }
    }
}

/// # Safety
/// As [`finish`].
#[inline(always)]
unsafe fn channels<S: Simd, T: Number>(s: S, f: &Finish<'_>, output: *mut T) {
    let [_, channel_stride, _, _, column_stride] = f.surface.strides;
    for i in 0..f.pixels {
        // SAFETY: the caller's.
        unsafe {
            let (row, to) = (f.sums.add(i * f.pixel), output.add(i * column_stride));
            let place = Place { column: f.place.column + i, ..f.place };
            f.steps.rest(s, row, f.count, Lanes::Channels, place, to.cast_const());
            for c in (0..f.count).step_by(S::LANES) {
                let n = (f.count - c).min(S::LANES);
                store_strided(s, to.add(c * channel_stride), s.load(row.add(c)), channel_stride, n);
            }
        }
    }
}

/// # Safety
/// As [`finish`].
#[inline(always)]
unsafe fn width<S: Simd, T: Number>(s: S, f: &Finish<'_>, output: *mut T) {
    let [_, channel_stride, _, _, column_stride] = f.surface.strides;
    let done = f.steps.end_in_registers();
    for start in (0..f.pixels).step_by(RUN) {
        let len = (f.pixels - start).min(RUN);
        // SAFETY: the caller's.
        unsafe {
            let output = output.add(start * column_stride);
            for c in (0..f.count).step_by(S::LANES) {
                let channels = (f.count - c).min(S::LANES);
                for i in (0..len).step_by(S::LANES) {
                    let n = (len - i).min(S::LANES);
                    let mut square = [s.splat(0.0); MAX_LANES];
                    for (j, row) in square[..n].iter_mut().enumerate() {
                        *row = s.load(f.sums.add((start + i + j) * f.pixel + c));
                    }
                    s.transpose(&mut square);
                    for (j, row) in square[..channels].iter().enumerate() {
                        if done {
                            let to = output.add((c + j) * channel_stride + i * column_stride);
                            store_strided(s, to, *row, column_stride, n);
                        } else {
                            s.store(f.scratch.add((c + j) * RUN + i), *row);
                        }
                    }
                }
            }
            if done {
                continue;
            }
            for c in 0..f.count {
                let (row, to) = (f.scratch.add(c * RUN), output.add(c * channel_stride));
                let column = f.place.column + start;
                let place = Place { channel: f.place.channel + c, column, ..f.place };
                f.steps.rest(s, row, len, Lanes::Width, place, to.cast_const());
                for i in (0..len).step_by(S::LANES) {
                    let n = (len - i).min(S::LANES);
                    store_strided(s, to.add(i * column_stride), s.load(row.add(i)), column_stride, n);
                }
            }
        }
    }
}

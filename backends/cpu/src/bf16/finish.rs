//! The front of the epilogue, on sums in memory and in registers.

use std::arch::x86_64::*;
use std::ffi::c_void;

use fuseplan_api::DataType;

use super::product::SIDE;
use super::split::with_features;
use crate::epilogue::Steps;
use crate::isa::{Avx512, Number, Simd};
use crate::vectors::store;

/// Sums of pixels of one line.
pub(super) struct FinishPixels<'a> {
    pub(super) steps: &'a Steps<'a>,
    /// Whole vectors for each pixel.
    pub(super) sums: *mut f32,
    pub(super) vectors: usize,
    /// Output channels, and the first of them.
    pub(super) count: usize,
    pub(super) channel: usize,
    pub(super) pixels: usize,
    /// Where the first pixel lies in the output, and elements from one to the next.
    pub(super) output: *mut c_void,
    pub(super) step: usize,
}

/// Pixels at a time: with two vectors each they leave room for the parameters of channels.
const PIXELS: usize = 8;

/// Where the front's results go.
trait Target {
    /// Writes a pixel's vectors, of `count` channels in all.
    ///
    /// # Safety
    /// The pixel has room for them.
    unsafe fn write<const V: usize>(s: Avx512, f: &FinishPixels<'_>, pixel: usize, values: &[__m512; V]);
}

/// Back to the sums.
pub(super) struct Sums;

impl Target for Sums {
    #[inline(always)]
    unsafe fn write<const V: usize>(s: Avx512, f: &FinishPixels<'_>, pixel: usize, values: &[__m512; V]) {
        for (v, &value) in values.iter().enumerate() {
            // SAFETY: the sums have whole vectors for each pixel.
            unsafe { s.store(f.sums.add((pixel * f.vectors + v) * SIDE), value) }
        }
    }
}

/// To the output, of type `T`, whose channels are neighbours.
pub(super) struct Output<T>(std::marker::PhantomData<T>);

impl<T: Number> Target for Output<T> {
    #[inline(always)]
    unsafe fn write<const V: usize>(s: Avx512, f: &FinishPixels<'_>, pixel: usize, values: &[__m512; V]) {
        let to = f.output.cast::<T>().wrapping_add(pixel * f.step);
        // SAFETY: the caller says that the pixel's channels lie inside of the output.
        unsafe {
            if T::DATA_TYPE == DataType::BFloat16 {
                // The instruction takes denormal numbers for 0, as the one does that parts are made by. Of a single vector the
                // other half is not written.
                let rounded: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(values[V - 1], values[0]));
                if f.count == 2 * SIDE {
                    _mm512_storeu_si512(to.cast(), rounded);
                } else {
                    _mm512_mask_storeu_epi16(to.cast(), (1 << f.count) - 1, rounded);
                }
            } else {
                for (v, &value) in values.iter().enumerate() {
                    store(s, to.wrapping_add(v * SIDE), value, (f.count - v * SIDE).min(SIDE));
                }
            }
        }
    }
}

with_features! {
    /// Applies the front to a line of pixels.
    ///
    /// # Safety
    /// The CPU has the instructions of `Isa::Avx512Bf16`; the sums are complete; the pixels lie inside of the target, which nobody
    /// else touches.
    #[allow(private_bounds, reason = "the targets are this module's")]
    pub(super) unsafe fn finish<T: Target>(f: &FinishPixels<'_>) {
        let whole = f.pixels - f.pixels % PIXELS;
        for at in (0..whole).step_by(PIXELS) {
            // SAFETY: as the caller says.
            unsafe {
                if f.vectors == 2 { rows::<T, PIXELS, 2>(f, at) } else { rows::<T, PIXELS, 1>(f, at) }
            }
        }
        for at in whole..f.pixels {
            // SAFETY: as the caller says.
            unsafe { if f.vectors == 2 { rows::<T, 1, 2>(f, at) } else { rows::<T, 1, 1>(f, at) } }
        }
    }
}

/// # Safety
/// As [`finish`]; the line has R pixels from `at` on, with V vectors each.
#[inline(always)]
unsafe fn rows<T: Target, const R: usize, const V: usize>(f: &FinishPixels<'_>, at: usize) {
    // SAFETY: the caller says that the CPU has the set, and that the sums are complete; as of this function.
    unsafe {
        let s = Avx512::assume();
        let sums =
            std::array::from_fn(|r| std::array::from_fn(|v| s.load(f.sums.add(((at + r) * V + v) * SIDE))));
        registers::<T, R, V>(f, at, sums);
    }
}

/// Applies the front to sums in registers, of R pixels from `at` on with V vectors each.
///
/// # Safety
/// The CPU has the instructions of `Isa::Avx512Bf16`; the pixels lie inside of the target, which nobody else touches.
#[inline(always)]
#[allow(private_bounds, reason = "the targets are this module's")]
pub(super) unsafe fn registers<T: Target, const R: usize, const V: usize>(
    f: &FinishPixels<'_>,
    at: usize,
    mut sums: [[__m512; V]; R],
) {
    // SAFETY: the caller says that the CPU has the set, and that the target has the pixels. Tables have whole vectors behind
    // every channel.
    unsafe {
        let s = Avx512::assume();
        f.steps.front(s, &mut sums, |table| std::array::from_fn(|v| s.load(table.add(f.channel + v * SIDE))));
        for (r, row) in sums.iter().enumerate() {
            T::write(s, f, at + r, row);
        }
    }
}

//! The front of the epilogue, and a residual behind it, on sums in memory and in registers.

use std::arch::x86_64::*;
use std::ffi::c_void;

use fuseplan_api::DataType;

use super::product::SIDE;
use super::split::with_features;
use crate::activation::Simple;
use crate::epilogue::Steps;
use crate::isa::{Avx512, MAX_LANES, Number, Simd};
use crate::vectors::{load, store};

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
    /// Where the first pixel lies in the output, and elements from one to the next, and from one channel to the next.
    pub(super) output: *mut c_void,
    pub(super) step: usize,
    pub(super) plane: usize,
    /// The first pixel of an operand that is added behind the front, and lies as the output does, or null, and the activation behind.
    pub(super) residual: *const c_void,
    pub(super) simple: Simple,
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

with_features! {
    /// Adds the residual to sums that the front was applied to, applies the activation behind, and writes the output.
    ///
    /// # Safety
    /// As [`finish`]; the residual has the pixels, too.
    pub(super) unsafe fn add<T: Number>(f: &FinishPixels<'_>) {
        // SAFETY: as the caller says.
        unsafe { if f.vectors == 2 { add_vectors::<T, 2>(f) } else { add_vectors::<T, 1>(f) } }
    }
}

/// # Safety
/// As [`add`]; the pixels have V vectors each.
#[inline(always)]
unsafe fn add_vectors<T: Number, const V: usize>(f: &FinishPixels<'_>) {
    // SAFETY: the caller says that the CPU has the set, that the sums are complete, and that the pixels' channels lie inside of the
    // residual and the output.
    unsafe {
        let s = Avx512::assume();
        for pixel in 0..f.pixels {
            let residual = f.residual.cast::<T>().wrapping_add(pixel * f.step);
            let mut values = [s.splat(0.0); V];
            for (v, value) in values.iter_mut().enumerate() {
                let sum = s.load(f.sums.add((pixel * V + v) * SIDE));
                let sum =
                    s.add(sum, load(s, residual.wrapping_add(v * SIDE), (f.count - v * SIDE).min(SIDE)));
                *value = f.simple.apply(s, sum);
            }
            Output::<T>::write(s, f, pixel, &values);
        }
    }
}

/// Pairs of pixels whose channels are transposed at a time, and pairs to which the front is applied at a time.
const PAIRS: usize = SIDE;
const FRONT: usize = 4;

with_features! {
    /// Applies the front to pixels and writes them to an output of 16 bits in which they are neighbours: pairs of rounded pixels
    /// are joined and transposed.
    ///
    /// # Safety
    /// As [`finish`].
    pub(super) unsafe fn planes<T: Number>(f: &FinishPixels<'_>) {
        const { assert!(size_of::<T>() == size_of::<u16>()) };
        // SAFETY: the caller says that the CPU has the set, that the sums are complete, and that the pixels lie inside of the
        // output. Tables have whole vectors behind every channel.
        unsafe {
            let s = Avx512::assume();
            let output = f.output.cast::<u16>();
            for first in (0..f.pixels).step_by(2 * PAIRS) {
                let pixels = (f.pixels - first).min(2 * PAIRS);
                let mask = u32::MAX >> (2 * PAIRS - pixels);
                for channel in (0..f.count).step_by(SIDE) {
                    let mut square = [s.splat(0.0); MAX_LANES];
                    for (at, pairs) in square.chunks_exact_mut(FRONT).enumerate() {
                        let mut sums = [[s.splat(0.0)]; 2 * FRONT];
                        for (i, [sum]) in sums.iter_mut().enumerate() {
                            // Behind the last pixel comes this again, which is not written.
                            let pixel = first + (2 * FRONT * at + i).min(pixels - 1);
                            *sum = s.load(f.sums.add(pixel * f.vectors * SIDE + channel));
                        }
                        f.steps.front(s, &mut sums, |table| [s.load(table.add(f.channel + channel))]);
                        for (pair, [[even], [odd]]) in pairs.iter_mut().zip(sums.as_chunks().0) {
                            *pair = joined::<T>(*even, *odd);
                        }
                    }
                    s.transpose(&mut square);
                    for (c, row) in square[..(f.count - channel).min(SIDE)].iter().enumerate() {
                        let to = output.wrapping_add((channel + c) * f.plane + first);
                        _mm512_mask_storeu_epi16(to.cast(), mask, _mm512_castps_si512(*row));
                    }
                }
            }
        }
    }
}

/// The lanes of two vectors, rounded to 16 bits, in turns.
///
/// # Safety
/// The CPU has the instructions of `Isa::Avx512Bf16`.
#[inline(always)]
unsafe fn joined<T: Number>(even: __m512, odd: __m512) -> __m512 {
    // SAFETY: as the caller says; both types are 512 bits without invalid values.
    unsafe {
        let halves: __m512i = if T::DATA_TYPE == DataType::BFloat16 {
            // The instruction takes denormal numbers for 0, as the one does that multiplies.
            std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(odd, even))
        } else {
            let even = _mm512_castsi256_si512(_mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(even));
            _mm512_inserti64x4::<1>(even, _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(odd))
        };
        let turns = _mm512_loadu_si512(IN_TURNS.as_ptr().cast());
        _mm512_castsi512_ps(_mm512_permutexvar_epi16(turns, halves))
    }
}

/// The elements of two halves in turns.
static IN_TURNS: [u16; 2 * SIDE] = {
    let mut order = [0; 2 * SIDE];
    let mut i = 0;
    while i < 2 * SIDE {
        order[i] = (i / 2 + i % 2 * SIDE) as u16;
        i += 1;
    }
    order
};

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::isa::Isa;

    #[test]
    fn two_vectors_are_rounded_and_joined_in_turns() {
        fn check<T: Number>() {
            let mut values = [0.0f32; 2 * SIDE];
            for round in 0u32..4000 {
                for (i, value) in values.iter_mut().enumerate() {
                    // Normal numbers of both types, some of which are halfway between two, and in f16 denormal and infinite ones.
                    let bits = (round * 37 + i as u32).wrapping_mul(2654435761) % (1 << 24);
                    *value = (1.0 + (bits >> 1) as f32 / (1 << 23) as f32) * [1.0, -1.0][i % 2];
                    if round % 8 == 0 {
                        *value = f32::from_bits(value.to_bits() & !0xfff | [0, 0x1000, 0x8000][i % 3]);
                    }
                    *value *= [1.0, 2f32.powi(-20), 2f32.powi(15)][round as usize % 3];
                }
                if round % 5 == 0 {
                    (values[3], values[18], values[30]) = (f32::INFINITY, f32::NAN, -0.0);
                }
                let mut joined = [T::ZERO; 2 * SIDE];
                // SAFETY: the caller has asked for the instructions; the arrays have two vectors, of which the second is a whole one
                // of 16 bits.
                unsafe {
                    let s = Avx512::assume();
                    let [even, odd] = [0, SIDE].map(|at| s.load(values[at..].as_ptr()));
                    _mm512_storeu_ps(joined.as_mut_ptr().cast(), super::joined::<T>(even, odd));
                }
                for (i, joined) in joined.iter().enumerate() {
                    let value = values[i / 2 + i % 2 * SIDE];
                    let (ours, wanted) = (joined.widen(), T::narrow(value).widen());
                    let same = ours.to_bits() == wanted.to_bits() || ours.is_nan() && wanted.is_nan();
                    assert!(same, "{value:e}: {ours:e}, not {wanted:e}");
                }
            }
        }
        if Isa::available().iter().any(|&isa| isa >= Isa::Avx512Bf16) {
            check::<bf16>();
            check::<f16>();
        }
    }
}

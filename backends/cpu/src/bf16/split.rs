//! How factors become products of bf16, which is all that these instructions multiply.
//!
//! A bf16 is a factor as it is. An f16 is the sum of two bf16, an f32 the sum of three: the value rounded to bf16, what that
//! leaves, rounded, and the rest, which is a bf16 to the last bit. A product of two values is then one of sums. Of the nine
//! terms of f32, those left out are below 2^-26 of the whole, less than a quarter of what an f32's rounding loses; of f16
//! none is left out. Terms that are small are summed first, all of them before the first of the large ones, so that they
//! cost the sum no rounding that matters.
//!
//! Where a value is infinite, NaN or rounds to infinity, the sum of its parts is not the value, or a product with a part that
//! is 0 is NaN. Such data is not for this solver ([`is_sum_of_parts`]). The unit takes denormal bf16 for 0, so that of values
//! below 2^-102 the last part may be lost, and of those below 2^-126 all of them: an absolute error of a factor below the
//! smallest normal f32. A product within 2^-7 of the largest f32 may be infinite, since that of the largest parts is.

use std::arch::x86_64::*;
use std::ffi::c_void;

use fuseplan_api::DataType;
use half::{bf16, f16};

use crate::isa::{Avx512, Number};
use crate::vectors::load;

/// Products of a part of the image and a part of the filters, by their numbers, 0 being the largest part.
type Products = [(usize, usize)];

/// A way to multiply elements of a type.
#[derive(Debug)]
pub(super) struct Split {
    /// Parts of a factor.
    pub(super) parts: usize,
    /// The products of a pass over the whole depth, pass by pass. Neighbours share a part, which stays in its registers.
    pub(super) passes: &'static [&'static Products],
}

impl Split {
    pub(super) fn of(data_type: DataType) -> &'static Split {
        match data_type {
            DataType::Half => &Split { parts: 2, passes: &[&[(1, 0), (1, 1), (0, 1)], &[(0, 0)]] },
            DataType::BFloat16 => &Split { parts: 1, passes: &[&[(0, 0)]] },
            DataType::Float | DataType::Double | DataType::Int8 => {
                &Split { parts: 3, passes: &[&[(2, 0), (1, 0), (1, 1), (0, 1), (0, 2)], &[(0, 0)]] }
            }
        }
    }

    /// Products of the unit for one of the sum.
    pub(super) fn products(&self) -> usize {
        self.passes.iter().map(|pass| pass.len()).sum()
    }

    /// Whether some values are not the sum of their parts.
    pub(super) fn has_limits(&self) -> bool {
        self.parts > 1
    }
}

/// The bits of the smallest f32 that rounds to an infinite bf16.
const INFINITE: i32 = 0x7f7f_8000;

/// The bits of an infinite bf16, which those of NaN are above.
pub(super) const INFINITE_PART: i16 = 0x7f80;

/// The features that functions on parts are compiled with; [`Isa::Avx512Bf16`](crate::isa::Isa::Avx512Bf16) stands for all of them.
macro_rules! with_features {
    ($(#[$attribute:meta])* $visibility:vis unsafe fn $($rest:tt)*) => {
        $(#[$attribute])*
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
        $visibility unsafe fn $($rest)*
    };
}
pub(crate) use with_features;

/// An element that is a sum of parts.
pub(super) trait Parts: Number {
    /// The first P parts of the first `n <= 32` elements, in 32 lanes of 16 bits each, then zeros.
    ///
    /// # Safety
    /// `p` is readable for `n` elements; the CPU has the instructions of `Isa::Avx512Bf16`.
    #[inline(always)]
    unsafe fn parts<const P: usize>(s: Avx512, p: *const Self, n: usize) -> [__m512i; P] {
        // SAFETY: as the caller says.
        unsafe {
            let mut rest = pair(s, p, n);
            let mut parts = [_mm512_setzero_si512(); P];
            for part in &mut parts {
                (*part, rest) = round(rest);
            }
            parts
        }
    }
}

impl Parts for f32 {}

impl Parts for f16 {}

impl Parts for bf16 {
    #[inline(always)]
    unsafe fn parts<const P: usize>(_: Avx512, p: *const Self, n: usize) -> [__m512i; P] {
        // SAFETY: the caller says that the CPU has the instructions.
        let mut parts = [unsafe { _mm512_setzero_si512() }; P];
        let mask = if n < 32 { (1u32 << n) - 1 } else { !0 };
        // SAFETY: the caller says that `n` elements are readable, and masked lanes are not touched.
        parts[0] = unsafe { _mm512_maskz_loadu_epi16(mask, p.cast()) };
        parts
    }
}

/// The first `n` elements in two vectors, then zeros.
///
/// # Safety
/// `p` is readable for `n` elements.
#[inline(always)]
unsafe fn pair<T: Number>(s: Avx512, p: *const T, n: usize) -> [__m512; 2] {
    // SAFETY: the caller says that `n` elements are readable.
    unsafe { [load(s, p, n.min(16)), load(s, p.wrapping_add(16), n.saturating_sub(16))] }
}

/// Values rounded to bf16, and what that leaves of them.
///
/// # Safety
/// The CPU has the instructions of `Isa::Avx512Bf16`.
#[inline(always)]
unsafe fn round([low, high]: [__m512; 2]) -> (__m512i, [__m512; 2]) {
    // SAFETY: as the caller says. Both types are 512 bits without invalid values.
    unsafe {
        let rounded: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
        let widen = |half: __m256i| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half)));
        let rest_low = _mm512_sub_ps(low, widen(_mm512_castsi512_si256(rounded)));
        let rest_high = _mm512_sub_ps(high, widen(_mm512_extracti64x4_epi64::<1>(rounded)));
        (rounded, [rest_low, rest_high])
    }
}

/// The bits of lanes' magnitudes, which are in the order of these.
///
/// # Safety
/// The CPU has the instructions of `Isa::Avx512Bf16`.
#[inline(always)]
pub(super) unsafe fn magnitude_bits(v: __m512) -> __m512i {
    // SAFETY: as the caller says.
    unsafe { _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(i32::MAX)) }
}

/// Whether values are sums of their parts, of which these are the bits of the largest magnitudes.
///
/// # Safety
/// The CPU has the instructions of `Isa::Avx512Bf16`.
#[inline(always)]
pub(super) unsafe fn are_sums_of_parts(largest: __m512i) -> bool {
    // SAFETY: as the caller says.
    unsafe { _mm512_reduce_max_epi32(largest) < INFINITE }
}

with_features! {
    /// Whether each of the `n` elements from `p` on, `stride` apart, is the sum of its parts.
    ///
    /// # Safety
    /// They are readable; the CPU has the instructions of `Isa::Avx512Bf16`.
    pub(super) unsafe fn is_sum_of_parts<T: Number>(p: *const c_void, stride: usize, n: usize) -> bool {
        let p = p.cast::<T>();
        // SAFETY: the caller says what this function and the loads ask for.
        unsafe {
            let s = Avx512::assume();
            let mut largest = _mm512_setzero_si512();
            let mut note = |v: __m512| largest = _mm512_max_epi32(largest, magnitude_bits(v));
            let whole = n - n % 16;
            for at in (0..whole).step_by(16) {
                note(crate::vectors::load_strided(s, p.add(at * stride), stride, 16));
            }
            if whole < n {
                note(crate::vectors::load_strided(s, p.add(whole * stride), stride, n - whole));
            }
            are_sums_of_parts(largest)
        }
    }
}

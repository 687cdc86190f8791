//! Packing: image and filters as parts in bf16, in the order in which products read them.

use std::arch::x86_64::*;
use std::ffi::c_void;

use super::product::{DEPTH, FILTERS, SIDE};
use super::split::{INFINITE_PART, Parts, Split, are_sums_of_parts, magnitude_bits, with_features};
use crate::isa::{Avx512, MAX_LANES, Simd};

/// Pixels of a line, whose elements follow one another.
pub(super) struct PackPixels {
    pub(super) source: *const c_void,
    /// Elements from one pixel to the next; where pixels are neighbours ([`planes`]), from one channel to the next.
    pub(super) step: usize,
    /// Elements of a pixel.
    pub(super) count: usize,
    /// Pixels of zeros, pixels from the source, pixels of zeros.
    pub(super) columns: [usize; 3],
    /// Where the first pixel goes, elements from one pixel to the next, and from one of its parts to the next.
    pub(super) target: *mut u16,
    pub(super) pitch: usize,
    pub(super) part: usize,
}

/// How many bytes of elements ahead of their use pixels are prefetched, at least.
const AHEAD: usize = 4096;

pub(super) type PackPixelsFn = unsafe fn(&PackPixels) -> bool;

with_features! {
    /// Packs P parts of pixels, with zeros behind each up to a whole tile's depth. Whether all elements are the sums
    /// of their parts is the result where there are several.
    ///
    /// # Safety
    /// The CPU has the instructions of `Isa::Avx512Bf16`; the elements are readable, of type `T`, and there is room for the pixels.
    pub(super) unsafe fn pixels<T: Parts, const P: usize>(pack: &PackPixels) -> bool {
        let &PackPixels { step, count, columns: [before, inside, after], target, pitch, part, .. } = pack;
        let source = pack.source.cast::<T>();
        let at = |pixel: usize| target.wrapping_add(pixel * pitch);
        for pixel in (0..before).chain(before + inside..before + inside + after) {
            for first in (0..count).step_by(DEPTH) {
                for n in 0..P {
                    // SAFETY: the caller says that there is room for whole steps of each of the pixel's parts.
                    unsafe { _mm512_storeu_si512(at(pixel).add(n * part + first).cast(), _mm512_setzero_si512()) }
                }
            }
        }
        let ahead = AHEAD.div_ceil(count * size_of::<T>()) * step;
        let (mut largest, magnitude) = (_mm512_setzero_si512(), _mm512_set1_epi16(i16::MAX));
        for pixel in 0..inside {
            for first in (0..count).step_by(DEPTH) {
                // SAFETY: the caller says that the pixel's elements are readable, and that there is room for it; prefetching
                // never faults.
                unsafe {
                    let s = Avx512::assume();
                    for line in (0..DEPTH * size_of::<T>()).step_by(64) {
                        let soon = source.wrapping_add(ahead + pixel * step + first).wrapping_byte_add(line);
                        _mm_prefetch::<_MM_HINT_T0>(soon.cast());
                    }
                    let values: [__m512i; P] = T::parts(s, source.add(pixel * step + first), (count - first).min(DEPTH));
                    let target = at(before + pixel).add(first);
                    for (n, value) in values.iter().enumerate() {
                        _mm512_storeu_si512(target.add(n * part).cast(), *value);
                    }
                    largest = _mm512_max_epu16(largest, _mm512_and_si512(values[0], magnitude));
                }
            }
        }
        P == 1 || _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(INFINITE_PART)) == 0
    }
}

with_features! {
    /// Packs pixels of bf16 that are neighbours in each of their channels, which are `step` elements apart: pairs of channels
    /// are joined and transposed.
    ///
    /// # Safety
    /// As [`pixels`].
    pub(super) unsafe fn planes(pack: &PackPixels) {
        let &PackPixels { step, count, columns: [before, inside, after], target, pitch, .. } = pack;
        let source = pack.source.cast::<u16>();
        let at = |pixel: usize| target.wrapping_add(pixel * pitch);
        // SAFETY: the caller says that the CPU has the instructions, that these pixels are readable in each channel, and that
        // there is room for whole steps of all pixels.
        unsafe {
            let s = Avx512::assume();
            for first in (0..count).step_by(DEPTH) {
                for pixel in (0..before).chain(before + inside..before + inside + after) {
                    _mm512_storeu_si512(at(pixel).add(first).cast(), _mm512_setzero_si512());
                }
                for pixel in (0..inside).step_by(SIDE) {
                    let n = (inside - pixel).min(SIDE);
                    let mask = ((1u32 << n) - 1) as __mmask16;
                    let line = |channel: usize| {
                        let mask = if channel < count { mask } else { 0 };
                        let line = source.wrapping_add(channel * step + pixel);
                        _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, line.cast()))
                    };
                    let mut square = [_mm512_setzero_ps(); MAX_LANES];
                    for (pair, row) in square.iter_mut().enumerate() {
                        let channel = first + 2 * pair;
                        let odd = _mm512_slli_epi32::<16>(line(channel + 1));
                        *row = _mm512_castsi512_ps(_mm512_or_si512(line(channel), odd));
                    }
                    s.transpose(&mut square);
                    for (i, row) in square[..n].iter().enumerate() {
                        _mm512_storeu_ps(at(before + pixel + i).add(first).cast(), *row);
                    }
                }
            }
        }
    }
}

/// Filters of a panel: a vector of f32 output channels for each channel of each tap.
pub(super) struct PackFilters<'a> {
    pub(super) split: &'a Split,
    /// Taps, and channels of each.
    pub(super) taps: usize,
    pub(super) channels: usize,
    pub(super) vectors: usize,
    pub(super) source: *const f32,
    /// Where the panel's tiles go: taps, steps, parts, vectors.
    pub(super) target: *mut u16,
}

with_features! {
    /// Packs a panel's filters, with zeros for the channels that a last step lacks; whether all are sums of their parts.
    ///
    /// # Safety
    /// The CPU has the instructions of `Isa::Avx512Bf16`; the filters are readable, and there is room for their tiles.
    pub(super) unsafe fn filters(pack: &PackFilters<'_>) -> bool {
        let &PackFilters { split, taps, channels, vectors, source, target } = pack;
        let mut target = target;
        let mut largest = _mm512_setzero_si512();
        for tap in 0..taps {
            for first in (0..channels).step_by(DEPTH) {
                for vector in 0..vectors {
                    for pair in 0..SIDE {
                        let row = |channel: usize| {
                            let at = (tap * channels + channel) * vectors + vector;
                            // SAFETY: the caller says that the vector of a channel is readable.
                            unsafe { (channel < channels).then(|| _mm512_loadu_ps(source.add(at * SIDE))) }
                        };
                        // SAFETY: the caller says that the CPU has the instructions, and that there is room for the tiles.
                        unsafe {
                            let zero = _mm512_setzero_ps();
                            let even = row(first + 2 * pair).unwrap_or(zero);
                            let odd = row(first + 2 * pair + 1).unwrap_or(zero);
                            largest = _mm512_max_epi32(largest, magnitude_bits(even));
                            largest = _mm512_max_epi32(largest, magnitude_bits(odd));
                            let mut rest = [even, odd];
                            for part in 0..split.parts {
                                let tile = target.add((part * vectors + vector) * FILTERS + pair * DEPTH);
                                rest = split_pair(rest, tile);
                            }
                        }
                    }
                }
                target = target.wrapping_add(split.parts * vectors * FILTERS);
            }
        }
        // SAFETY: the caller says that the CPU has the instructions.
        !split.has_limits() || unsafe { are_sums_of_parts(largest) }
    }
}

/// Rounds two vectors to bf16 and stores them lane by lane beside one another; what that leaves of them.
///
/// # Safety
/// The CPU has the instructions of `Isa::Avx512Bf16`; there is room for a row of a tile.
#[inline(always)]
unsafe fn split_pair([even, odd]: [__m512; 2], row: *mut u16) -> [__m512; 2] {
    // SAFETY: as the caller says. Both types are 256 bits without invalid values.
    unsafe {
        let wide = |v: __m512| {
            let rounded: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(v));
            _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(rounded))
        };
        let (low, high) = (wide(even), wide(odd));
        let pairs = _mm512_or_si512(_mm512_srli_epi32::<16>(low), high);
        _mm512_storeu_si512(row.cast(), pairs);
        [_mm512_sub_ps(even, _mm512_castsi512_ps(low)), _mm512_sub_ps(odd, _mm512_castsi512_ps(high))]
    }
}

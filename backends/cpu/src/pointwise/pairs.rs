//! Pairs of bf16 channels as factors: filters row by row, and pixels vector by vector as products read them.

use std::arch::x86_64::*;

use half::bf16;

use super::kernel::{self, Finish, Functions, PackFilters, PackPixels};
use super::plan::Factors;
use crate::bf16::{STEP, with_features};
use crate::isa::{Avx512, Simd};
use crate::row::RowStart;

/// Pixels of a vector, and of the largest panel.
const LANES: usize = 16;
const PANEL: usize = 2 * LANES;

/// The functions of a processor with AVX512-BF16, by those of bf16 as floats.
pub(super) fn functions(floats: Functions) -> Functions {
    Functions { factors: Factors::Pairs, pack_filters, pack_pixels, finish, ..floats }
}

/// Packs filters as they are, behind the last channel with zeros to the end of its pair.
///
/// # Safety
/// `source` has the filters, of bf16; `target` has their lines.
unsafe fn pack_filters(args: &PackFilters<'_>) {
    let PackFilters { plan, filters, source, target } = args;
    let [output, channel] = plan.filters;
    for filter in filters.clone() {
        let source = source.cast::<u16>().wrapping_add(filter * output);
        let target = target.wrapping_add(filter * plan.pitch).cast::<u16>();
        // SAFETY: the caller says that the filter's values are readable, and that its line has room for whole pairs.
        unsafe {
            for at in 0..plan.inputs {
                *target.add(at) = *source.add(at * channel);
            }
            if plan.inputs % 2 == 1 {
                *target.add(plan.inputs) = 0;
            }
        }
    }
}

with_features! {
    /// Packs a block: panels of vectors, of each the vectors of 16 pairs of channels, one vector's after the other's. Lanes beyond its
    /// pixels, and the second channel of a pair that has one, are 0.
    ///
    /// # Safety
    /// The CPU has the instructions of `Isa::Avx512Bf16`; `source` has the input, of bf16, whose pixels are side by side; `target` has
    /// room for the block.
    unsafe fn pack_pixels(args: &PackPixels<'_>) {
        let &PackPixels { plan, block, group, source, target } = args;
        let pixels = plan.pixels_of(block);
        let [image_stride, channel_stride, ..] = plan.input.strides;
        let order: [u16; PANEL] = std::array::from_fn(|lane| (lane / 2 + lane % 2 * PANEL) as u16);
        // SAFETY: the array has the size of a vector.
        let low = unsafe { _mm512_loadu_si512(order.as_ptr().cast()) };
        let high = _mm512_add_epi16(low, _mm512_set1_epi16(LANES as i16));
        for panel in plan.panels_of(&pixels) {
            let target = target.wrapping_add(panel.start * plan.depth).cast::<__m512i>();
            let vectors = panel.len() / LANES;
            let of_panel = pixels.start + panel.start..pixels.end.min(pixels.start + panel.end);
            // Where the panel's first pixel would be in each image that it has pixels of, and which of its pixels are that image's.
            let mut images = [(0, 0); PANEL];
            let (mut count, mut done) = (0, 0);
            for (image, columns) in plan.segments(of_panel) {
                let first = image * image_stride + group * plan.inputs * channel_stride + columns.start;
                let mask = ((1u64 << columns.len()) - 1) << done;
                images[count] = (first.wrapping_sub(done), mask as __mmask32);
                count += 1;
                done += columns.len();
            }
            for (pair, channel) in (0..plan.inputs).step_by(2).enumerate() {
                let has_odd = channel + 1 < plan.inputs;
                let (mut even, mut odd) = (_mm512_setzero_si512(), _mm512_setzero_si512());
                for &(first, mask) in &images[..count] {
                    let at = source.cast::<i16>().wrapping_add(first.wrapping_add(channel * channel_stride));
                    // SAFETY: the caller says that the image's pixels are readable, and masked lanes are not touched.
                    unsafe {
                        even = _mm512_or_si512(even, _mm512_maskz_loadu_epi16(mask, at));
                        let mask = if has_odd { mask } else { 0 };
                        odd = _mm512_or_si512(odd, _mm512_maskz_loadu_epi16(mask, at.wrapping_add(channel_stride)));
                    }
                }
                let target = target.wrapping_add(pair / STEP * vectors * STEP + pair % STEP);
                // SAFETY: the caller says that there is room for the panel's vectors of whole steps.
                unsafe {
                    _mm512_storeu_si512(target, _mm512_permutex2var_epi16(even, low, odd));
                    if vectors > 1 {
                        _mm512_storeu_si512(target.add(STEP), _mm512_permutex2var_epi16(even, high, odd));
                    }
                }
            }
        }
    }
}

with_features! {
    /// Finishes sums and writes them to the output; where nothing is left behind the front they are rounded by an instruction, which
    /// takes denormal numbers for 0, as the one does that multiplies.
    ///
    /// # Safety
    /// The CPU has the instructions of `Isa::Avx512Bf16`; otherwise as [`kernel::finish`].
    unsafe fn finish(args: &Finish<'_>) {
        let Finish { plan, steps, pixels, channels, .. } = args;
        let surface = steps.output();
        let [_, channel_stride, .., step] = surface.strides;
        if !steps.end_in_registers() || step != 1 {
            // SAFETY: as the caller says.
            return unsafe { kernel::finish::<Avx512, bf16>(args) };
        }
        // SAFETY: the caller says that the CPU has the set.
        let s = unsafe { Avx512::assume() };
        let mut sums = args.sums;
        for (image, columns) in plan.segments(pixels.clone()) {
            let start = RowStart { image, channel: channels.start, line: 0, column: columns.start };
            let output = args.output.cast::<u16>().wrapping_add(start.offset(surface));
            for (row, channel) in channels.clone().enumerate() {
                let (sums, output) = (sums.wrapping_add(row * plan.block), output.wrapping_add(row * channel_stride));
                for at in (0..columns.len()).step_by(PANEL) {
                    let mask = u32::MAX >> (at + PANEL).saturating_sub(columns.len());
                    // SAFETY: the caller says that the sums are complete, and that the pixels lie inside of the output; masked
                    // lanes are not touched, and tables have a value for the channel. Both types are 512 bits without invalid values.
                    unsafe {
                        let half = |v: usize| {
                            _mm512_maskz_loadu_ps((mask >> (v * LANES)) as __mmask16, sums.wrapping_add(at + v * LANES))
                        };
                        let mut values = [[half(0)], [half(1)]];
                        steps.front(s, &mut values, |table| [s.splat(*table.add(channel))]);
                        let [[low], [high]] = values;
                        let rounded: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
                        _mm512_mask_storeu_epi16(output.wrapping_add(at).cast(), mask, rounded);
                    }
                }
            }
            sums = sums.wrapping_add(columns.len());
        }
    }
}

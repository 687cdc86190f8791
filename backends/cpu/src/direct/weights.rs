//! Packed weights, in the order in which micro-kernels read them: panel of output channels, chunk of input channels, tap,
//! input channel, lane.

use std::ops::Range;

use crate::isa::{Kernel, MAX_LANES, Number, Simd};
use crate::vectors::{load, load_strided};

/// The output channels that one register tile computes, with their packed weights.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Panel {
    /// The first of them.
    pub(crate) first: usize,
    /// How many there are; lanes beyond have weights of 0.
    pub(crate) count: usize,
    /// Vectors that hold them.
    pub(crate) vectors: usize,
    /// Where their weights begin, in floats.
    pub(crate) offset: usize,
}

/// How filters lie in memory: K, C/groups, D, H, W.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filters {
    pub(crate) taps: [usize; 3],
    pub(crate) strides: [usize; 5],
}

impl Filters {
    pub(crate) fn tap_count(&self) -> usize {
        self.taps.iter().product()
    }

    /// Filters whose values for so many channels follow one another: whether channels (else taps) are innermost.
    fn innermost_channels(&self, channels: usize) -> Option<bool> {
        let [_, channel, depth, height, width] = self.strides;
        let [d, h, w] = self.taps;
        // Strides of dimensions of length 1 do not matter.
        let fits = |len: usize, stride: usize, expected: usize| len == 1 || stride == expected;
        let spatial =
            |unit: usize| fits(w, width, unit) && fits(h, height, w * unit) && fits(d, depth, h * w * unit);
        if spatial(1) && fits(channels, channel, d * h * w) {
            Some(false)
        } else if spatial(channels) && fits(channels, channel, 1) {
            Some(true)
        } else {
            None
        }
    }

    /// Where a filter's value lies, from its first.
    pub(crate) fn offset(&self, channel: usize, tap: usize) -> usize {
        let [_, h, w] = self.taps;
        channel * self.strides[1]
            + tap / (h * w) * self.strides[2]
            + tap / w % h * self.strides[3]
            + tap % w * self.strides[4]
    }
}

/// What [`pack`] does: one panel's weights for a chunk of input channels.
pub(crate) struct PackWeights<'a> {
    pub(crate) filters: &'a Filters,
    pub(crate) channels: Range<usize>,
    pub(crate) panel: Panel,
    /// The first value of the first filter of all.
    pub(crate) source: *const std::ffi::c_void,
    /// Where the panel's weights begin.
    pub(crate) target: *mut f32,
}

pub(crate) type PackWeightsFn = unsafe fn(&PackWeights<'_>);

/// Packs the weights of a panel.
///
/// # Safety
/// The CPU has the instruction set; `source` has the filters, of type `T`; `target` has room for the
/// panel's weights.
pub(crate) unsafe fn pack<S: Simd, T: Number>(args: &PackWeights<'_>) {
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Pack::<T>(args, std::marker::PhantomData)) }
}

struct Pack<'a, T>(&'a PackWeights<'a>, std::marker::PhantomData<T>);

impl<T: Number> Kernel for Pack<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let &PackWeights { filters, ref channels, panel, source, target } = self.0;
        let (first_channel, channels, taps) = (channels.start, channels.len(), filters.tap_count());
        let (len, width) = (channels * taps, panel.vectors * S::LANES);
        let innermost_channels = filters.innermost_channels(channels);
        for vector in 0..panel.vectors {
            let lanes = panel.count.saturating_sub(vector * S::LANES).min(S::LANES);
            let first = panel.first + vector * S::LANES;
            // SAFETY: the filters from `first` on have this chunk's first channel, and the panel its vectors.
            let (source, target) = unsafe {
                let source = source.cast::<T>();
                (
                    source.add(first * filters.strides[0] + first_channel * filters.strides[1]),
                    target.add(first_channel * taps * width + vector * S::LANES),
                )
            };
            let Some(innermost_channels) = innermost_channels else {
                for i in 0..len {
                    // SAFETY: `pack`'s caller says that the value of each of `lanes` filters is readable, and that
                    // there is room for a vector of them.
                    unsafe {
                        let p = source.add(filters.offset(i % channels, i / channels));
                        let column = load_strided(s, p, filters.strides[0], lanes);
                        s.store(target.add(i * width), column);
                    }
                }
                continue;
            };
            for i in (0..len).step_by(S::LANES) {
                let n = (len - i).min(S::LANES);
                let mut square = [s.splat(0.0); MAX_LANES];
                for (lane, row) in square[..lanes].iter_mut().enumerate() {
                    // SAFETY: the filter's `n` values from `i` on follow one another, and `pack`'s caller says that they
                    // are readable.
                    *row = unsafe { load(s, source.add(lane * filters.strides[0] + i), n) };
                }
                s.transpose(&mut square);
                for (j, column) in square[..n].iter().enumerate() {
                    let at =
                        if innermost_channels { i + j } else { (i + j) % taps * channels + (i + j) / taps };
                    // SAFETY: `pack`'s caller says that there is room for the vectors of all `len` values.
                    unsafe { s.store(target.add(at * width), *column) };
                }
            }
        }
    }
}

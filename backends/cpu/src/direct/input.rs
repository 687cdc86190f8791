//! Packing of the input: the lines that a band of outputs needs, as f32, channels (or, lane-wise, vectors
//! of channels) innermost, columns of zeros for the padding at both ends. The pack stays in the cache
//! while the band is computed; no tensor is ever reordered through memory.

use crate::epilogue::load_strided;
use crate::isa::{Kernel, MAX_LANES, Number, Simd};

/// Which channels a packed pixel holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channels {
    /// This many, one after the other.
    Dense(usize),
    /// For each of `inputs` input channels of a group a vector: lane l has the input of the group to which
    /// output l belongs, where each group has `outputs`.
    Lanewise { inputs: usize, outputs: usize },
}

/// One line of the pack.
pub(super) struct PackLine {
    pub(super) channels: Channels,
    /// Lane-wise: output channels of the block, and where the first is in its group.
    pub(super) count: usize,
    /// First channel, first column of the line.
    pub(super) source: *const std::ffi::c_void,
    /// From one channel, and from one packed column, to the next in the source, in elements.
    pub(super) channel_stride: usize,
    pub(super) column_stride: usize,
    /// The first packed column and its pixel's size in floats.
    pub(super) target: *mut f32,
    pub(super) pixel: usize,
    /// Columns that are zeros, that come from the source, that are zeros.
    pub(super) columns: [usize; 3],
}

pub(super) type PackLineFn = unsafe fn(&PackLine);

/// Packs a line.
///
/// # Safety
/// The CPU has the instruction set; the columns are readable, of type `T`, and there is room for them.
pub(super) unsafe fn pack<S: Simd, T: Number>(line: &PackLine) {
    // SAFETY: the caller's.
    unsafe { S::enter(Pack::<T>(line, std::marker::PhantomData)) }
}

struct Pack<'a, T>(&'a PackLine, std::marker::PhantomData<T>);

impl<T: Number> Kernel for Pack<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let line = self.0;
        let [before, count, after] = line.columns;
        let source = line.source.cast::<T>();
        // SAFETY: `pack`'s caller says that there is room for the columns, and that they are readable.
        unsafe {
            let target = line.target.add(before * line.pixel);
            line.target.write_bytes(0, before * line.pixel);
            target.add(count * line.pixel).write_bytes(0, after * line.pixel);
            match line.channels {
                Channels::Dense(channels) => {
                    pixels(
                        s,
                        source,
                        [line.channel_stride, line.column_stride],
                        target,
                        line.pixel,
                        channels,
                        count,
                    );
                }
                // Depthwise: as many channels as there are lanes, in order.
                Channels::Lanewise { inputs: 1, outputs: 1 } => {
                    pixels(
                        s,
                        source,
                        [line.channel_stride, line.column_stride],
                        target,
                        line.pixel,
                        line.count,
                        count,
                    );
                }
                Channels::Lanewise { inputs, outputs } => {
                    spread(s, line, source, target, inputs, outputs);
                }
            }
        }
    }
}

/// Copies `count` pixels of `channels` channels.
///
/// # Safety
/// They are readable and writable.
#[inline(always)]
unsafe fn pixels<S: Simd, T: Number>(
    s: S,
    source: *const T,
    [channel_stride, column_stride]: [usize; 2],
    target: *mut f32,
    pixel: usize,
    channels: usize,
    count: usize,
) {
    // SAFETY: the caller's.
    unsafe {
        if channel_stride == 1 || channels == 1 {
            // Pixels that follow one another are one run.
            let joined = column_stride == channels && pixel == channels;
            let (runs, len) = if joined { (1, channels * count) } else { (count, channels) };
            for i in 0..runs {
                let (from, to) = (source.add(i * column_stride), target.add(i * pixel));
                for c in (0..len).step_by(S::LANES) {
                    let n = (len - c).min(S::LANES);
                    if n == S::LANES {
                        s.store(to.add(c), T::load(s, from.add(c)));
                    } else {
                        s.store_part(to.add(c), T::load_part(s, from.add(c), n), n);
                    }
                }
            }
        } else if channels < 4 {
            for c in 0..channels {
                for i in 0..count {
                    let x = (*source.add(c * channel_stride + i * column_stride)).widen();
                    target.add(i * pixel + c).write(x);
                }
            }
        } else {
            for c in (0..channels).step_by(S::LANES) {
                let lanes = (channels - c).min(S::LANES);
                for i in (0..count).step_by(S::LANES) {
                    let n = (count - i).min(S::LANES);
                    let from = source.add(c * channel_stride + i * column_stride);
                    let to = target.add(i * pixel + c);
                    let mut square = [s.splat(0.0); MAX_LANES];
                    for (lane, row) in square[..lanes].iter_mut().enumerate() {
                        *row = load_strided(s, from.add(lane * channel_stride), column_stride, n);
                    }
                    s.transpose(&mut square);
                    for (j, column) in square[..n].iter().enumerate() {
                        if lanes == S::LANES {
                            s.store(to.add(j * pixel), *column);
                        } else {
                            s.store_part(to.add(j * pixel), *column, lanes);
                        }
                    }
                }
            }
        }
    }
}

/// Packs a line lane-wise, groups having more than one channel: a few pixels' channels are brought
/// together, then spread to the lanes.
///
/// # Safety
/// As [`pack`].
#[inline(always)]
unsafe fn spread<S: Simd, T: Number>(
    s: S,
    line: &PackLine,
    source: *const T,
    target: *mut f32,
    inputs: usize,
    outputs: usize,
) {
    // The groups of the block's outputs; blocks begin with a group.
    let channels = line.count.div_ceil(outputs) * inputs;
    let mut index = [0u32; MAX_LANES];
    for (lane, i) in index[..line.count].iter_mut().enumerate() {
        *i = (lane / outputs * inputs) as u32;
    }
    let count = line.columns[1];
    let mut together = [0.0f32; MAX_LANES * MAX_LANES];
    // SAFETY: blocks have at most as many outputs as there are lanes, and no more inputs than that (the
    // solver's constraint), so that a pixel's channels fit a vector, and as many pixels a square. The rest
    // is the caller's.
    unsafe {
        for i in (0..count).step_by(S::LANES) {
            let n = (count - i).min(S::LANES);
            let strides = [line.channel_stride, line.column_stride];
            let from = source.add(i * line.column_stride);
            pixels(s, from, strides, together.as_mut_ptr(), S::LANES, channels, n);
            for j in 0..n {
                let pixel = s.load(together.as_ptr().add(j * S::LANES));
                let to = target.add((i + j) * line.pixel);
                let mut lanes = index;
                for c in 0..inputs {
                    s.store(to.add(c * S::LANES), s.permute(pixel, &lanes));
                    for lane in &mut lanes {
                        *lane += 1;
                    }
                }
            }
        }
    }
}

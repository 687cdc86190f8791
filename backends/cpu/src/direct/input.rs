//! Packing of the input: the lines that a band of outputs needs, as f32, channels (or, lane-wise, vectors
//! of channels) innermost, columns of zeros for the padding at both ends. The pack stays in the cache
//! while the band is computed; no tensor is ever reordered through memory.

use std::ops::Range;

use fuseplan_api::volume::Volume;

use crate::isa::{Kernel, MAX_LANES, Number, Simd};
use crate::vectors::{load, load_even, load_strided, store};

/// Which channels a packed pixel holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channels {
    /// So many channels of one group, one after the other.
    Dense(usize),
    /// A vector for each of a group's `inputs` channels. Lane l holds the input of the group that output l belongs to,
    /// where each group has `outputs` outputs.
    Lanewise { inputs: usize, outputs: usize },
}

/// One line of packed input.
pub(crate) struct PackLine {
    pub(crate) channels: Channels,
    /// Lane-wise: output channels of the panel, and where the first is in its group.
    pub(crate) count: usize,
    /// The first channel of the line's first column.
    pub(crate) source: *const std::ffi::c_void,
    /// The distance in the source from one channel to the next, and from one packed column to the next, in elements.
    pub(crate) channel_stride: usize,
    pub(crate) column_stride: usize,
    /// Whether columns are every second element of a line of the source, so that those between them may be read.
    pub(crate) alternate: bool,
    /// Where the first packed column lies, and how many floats each pixel takes.
    pub(crate) target: *mut f32,
    pub(crate) pixel: usize,
    /// How many columns of zeros come first, how many from the source, and how many of zeros behind them.
    pub(crate) columns: [usize; 3],
}

pub(crate) type PackLineFn = unsafe fn(&PackLine);

/// Packs these channels of a line of `input`, whose elements are of `size` bytes, block by block. `line.source` is the first
/// column's channel 0.
///
/// # Safety
/// As of [`PackLineFn`]s, for all channels together.
pub(crate) unsafe fn pack_channels(
    pack: PackLineFn,
    line: PackLine,
    input: &Volume,
    channels: Range<usize>,
    size: usize,
) {
    let mut columns = line.columns;
    let mut target = line.target;
    for part in input.parts(channels) {
        let kind = match line.channels {
            Channels::Dense(_) => Channels::Dense(part.len()),
            lanewise => lanewise,
        };
        let source = line.source.wrapping_byte_add(input.channel_offset(part.start) * size);
        // SAFETY: the part's channels are neighbours from `source` on, and have their places from `target` on in the pixels
        // that the caller says there is room for.
        unsafe { pack(&PackLine { channels: kind, source, target, columns, ..line }) };
        // The zeros are those of all channels.
        target = target.wrapping_add(columns[0] * line.pixel + part.len());
        columns = [0, columns[1], 0];
    }
}

/// Packs a line.
///
/// # Safety
/// The CPU has the instruction set; the columns are readable, of type `T`, and what lies between them if they alternate; there is
/// room for them.
pub(crate) unsafe fn pack<S: Simd, T: Number>(line: &PackLine) {
    // SAFETY: the caller says that the CPU has the instruction set.
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
        // SAFETY: `pack`'s caller says that there is room for all columns, those from `before` on being `count`.
        let target = unsafe {
            let target = line.target.add(before * line.pixel);
            line.target.write_bytes(0, before * line.pixel);
            target.add(count * line.pixel).write_bytes(0, after * line.pixel);
            target
        };
        let channels = match line.channels {
            Channels::Dense(channels) => channels,
            // Depthwise: as many channels as there are lanes, in order, of which a panel's outputs read one each.
            Channels::Lanewise { inputs: 1, outputs: 1 } => line.count,
            Channels::Lanewise { inputs, outputs } => {
                // SAFETY: `pack`'s caller says that these columns are readable and that there is room for them.
                return unsafe { spread(s, line, source, target, inputs, outputs) };
            }
        };
        let all = Pixels { line, source, target, pixel: line.pixel, channels, count };
        // SAFETY: as of the others.
        unsafe { pixels::<S, T>(&all) }
    }
}

/// Copies pixels.
///
/// # Safety
/// The CPU has the instruction set; the source's elements are readable, and what lies between columns that alternate; there is room
/// for the pixels.
unsafe fn pixels<S: Simd, T: Number>(args: &Pixels<'_, T>) {
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(args) }
}

/// `count` pixels of `channels` channels, of a line from `source` on, which are copied to pixels that are `pixel` floats apart.
struct Pixels<'a, T> {
    line: &'a PackLine,
    source: *const T,
    target: *mut f32,
    pixel: usize,
    channels: usize,
    count: usize,
}

impl<T: Number> Kernel for &Pixels<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let &Pixels { line, source, target, pixel, channels, count } = self;
        let &PackLine { channel_stride, column_stride, .. } = line;
        if channel_stride == 1 || channels == 1 {
            // Pixels that follow one another are one run.
            let joined = column_stride == channels && pixel == channels;
            let (runs, len) = if joined { (1, channels * count) } else { (count, channels) };
            for i in 0..runs {
                for c in (0..len).step_by(S::LANES) {
                    let n = (len - c).min(S::LANES);
                    // SAFETY: the `n` channels from `c` on are those of a pixel, or of pixels that follow one another, and
                    // the caller says that they are readable and that there is room for them.
                    unsafe {
                        let value = load(s, source.add(i * column_stride + c), n);
                        store(s, target.add(i * pixel + c), value, n);
                    }
                }
            }
        } else if const { size_of::<T>() == 4 && S::LANES >= 8 }
            && channels == 3
            && column_stride == 1
            && pixel == 3
        {
            // SAFETY: the caller says that three channels of the pixels are readable and that there is room for them.
            unsafe { interleave(s, source, channel_stride, target, count) }
        } else if channels < 4 {
            for c in 0..channels {
                for i in 0..count {
                    // SAFETY: the caller says that channel `c` of pixel `i` is readable and that there is room for it.
                    unsafe {
                        let x = (*source.add(c * channel_stride + i * column_stride)).widen();
                        target.add(i * pixel + c).write(x);
                    }
                }
            }
        } else {
            for c in (0..channels).step_by(S::LANES) {
                let lanes = (channels - c).min(S::LANES);
                for i in (0..count).step_by(S::LANES) {
                    let n = (count - i).min(S::LANES);
                    let mut square = [s.splat(0.0); MAX_LANES];
                    for (lane, row) in square[..lanes].iter_mut().enumerate() {
                        // SAFETY: the caller says that channel `c + lane` of the `n` pixels from `i` on is readable, and
                        // what lies between them if they alternate.
                        *row = unsafe {
                            let from = source.add((c + lane) * channel_stride + i * column_stride);
                            if line.alternate {
                                load_even(s, from, n)
                            } else {
                                load_strided(s, from, column_stride, n)
                            }
                        };
                    }
                    s.transpose(&mut square);
                    for (j, column) in square[..n].iter().enumerate() {
                        // SAFETY: the caller says that there is room for `lanes` channels from `c` on of pixel `i + j`.
                        unsafe { store(s, target.add((i + j) * pixel + c), *column, lanes) };
                    }
                }
            }
        }
    }
}

/// Brings `count` elements of each of three planes, the first of which begins at `source` and the next one `plane` elements behind it,
/// into the order of their places: the first of each plane, then the second of each.
///
/// # Safety
/// The elements are readable, and `3 * count` floats writable.
#[inline(always)]
unsafe fn interleave<S: Simd, T: Number>(
    s: S,
    source: *const T,
    plane: usize,
    target: *mut f32,
    count: usize,
) {
    // Of each of three vectors of results: which element of its plane a lane has, and which plane.
    let mut elements = [[0u32; MAX_LANES]; 3];
    let mut planes = [[0.0f32; MAX_LANES]; 3];
    for at in 0..3 * S::LANES {
        let (v, lane) = (at / S::LANES, at % S::LANES);
        elements[v][lane] = (at / 3) as u32;
        planes[v][lane] = (at % 3) as f32;
    }
    for i in (0..count).step_by(S::LANES) {
        let n = (count - i).min(S::LANES);
        let row = |c: usize| {
            // SAFETY: the caller says that these `n` elements of each plane are readable.
            unsafe { load(s, source.add(c * plane + i), n) }
        };
        let rows = [row(0), row(1), row(2)];
        for v in 0..(3 * n).div_ceil(S::LANES) {
            // SAFETY: there are as many floats as lanes at the least.
            let of = unsafe { s.load(planes[v].as_ptr()) };
            let [first, second, third] = rows;
            let value = s.select(
                s.gt(of, s.splat(0.5)),
                s.select(
                    s.gt(of, s.splat(1.5)),
                    s.permute(third, &elements[v]),
                    s.permute(second, &elements[v]),
                ),
                s.permute(first, &elements[v]),
            );
            let left = (3 * n - v * S::LANES).min(S::LANES);
            // SAFETY: the caller says that the places of these `n` elements of each plane are writable.
            unsafe { store(s, target.add(3 * i + v * S::LANES), value, left) };
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
    // The groups of the panel's outputs; panels begin with a group.
    let channels = line.count.div_ceil(outputs) * inputs;
    let mut index = [0u32; MAX_LANES];
    for (lane, i) in index[..line.count].iter_mut().enumerate() {
        *i = (lane / outputs * inputs) as u32;
    }
    let count = line.columns[1];
    let mut together = [0.0f32; MAX_LANES * MAX_LANES];
    for i in (0..count).step_by(S::LANES) {
        let n = (count - i).min(S::LANES);
        // SAFETY: panels have at most as many outputs as there are lanes, and no more inputs than that (the solver's
        // constraint), so that a pixel's channels fit a vector, and as many pixels a square. The caller says that they
        // are readable.
        unsafe {
            let from = source.add(i * line.column_stride);
            let (pixel, target) = (S::LANES, together.as_mut_ptr());
            pixels::<S, T>(&Pixels { line, source: from, target, pixel, channels, count: n });
        }
        for j in 0..n {
            // SAFETY: the square has a vector for each of `n` pixels.
            let pixel = unsafe { s.load(together.as_ptr().add(j * S::LANES)) };
            let mut lanes = index;
            for c in 0..inputs {
                // SAFETY: the caller says that there is room for the columns, which have a vector for each input.
                unsafe {
                    s.store(target.add((i + j) * line.pixel + c * S::LANES), s.permute(pixel, &lanes));
                }
                for lane in &mut lanes {
                    *lane += 1;
                }
            }
        }
    }
}

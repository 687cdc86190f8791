//! Sums with pixels in the lanes, line by line to the output.

use super::apply::{Lanes, Rows, Steps};
use crate::isa::{Kernel, Number, Simd};
use crate::row::RowStart;
use crate::vectors::{load, store_strided, vectors};

/// Sums of pixels that follow one another in one image: a line of them for each of some channels.
pub(crate) struct Lines<'a> {
    pub(crate) steps: &'a Steps<'a>,
    pub(crate) sums: *const f32,
    /// Scratch for lines of whole vectors.
    pub(crate) scratch: *mut f32,
    /// Floats from one line to the next, here and there.
    pub(crate) pitch: usize,
    /// Channels.
    pub(crate) count: usize,
    /// Pixels.
    pub(crate) len: usize,
    /// The first pixel of the first channel.
    pub(crate) start: RowStart,
}

/// Vectors of sums that the front is applied to at a time.
const AT_ONCE: usize = 4;

impl Lines<'_> {
    /// Applies the whole epilogue and writes the output.
    ///
    /// # Safety
    /// The sums are complete, and have `len` floats a line; scratch has whole vectors for each line; the lines lie inside of
    /// the output, of type `T`, and nobody else touches them; sums, scratch and output share no memory.
    #[inline(always)]
    pub(crate) unsafe fn finish<S: Simd, T: Number>(&self, s: S, output: *mut T) {
        let &Lines { steps, scratch, pitch, count, len, start, .. } = self;
        let surface = steps.output();
        let [_, channel_stride, _, _, step] = surface.strides;
        let output = output.wrapping_add(start.offset(surface));
        let rows = 0..count;
        let sums = |row: usize| self.sums.wrapping_add(row * pitch);
        let line = |row: usize| scratch.wrapping_add(row * pitch);
        let to = |row: usize| output.wrapping_add(row * channel_stride);
        let one = |row: usize| ChannelLines {
            channel: start.channel + row,
            count: 1,
            len,
            sums: sums(row),
            sums_line: 0,
            to: to(row),
            to_line: 0,
            step,
        };
        if steps.end_in_registers() {
            for row in rows {
                // SAFETY: the caller says that the sums are complete, and that the line lies inside of the output, apart from them.
                unsafe { steps.write(s, one(row)) };
            }
            return;
        }
        for row in rows.clone() {
            let ChannelLines { channel, count, len, sums, sums_line, to_line, .. } = one(row);
            let to = line(row);
            // SAFETY: as of the output, but that scratch, apart from the sums too, has room for the line.
            unsafe {
                steps.write(s, ChannelLines { channel, count, len, sums, sums_line, to, to_line, step: 1 })
            };
        }
        let all = Rows { first: scratch, pitch, count, len };
        // SAFETY: scratch has the lines' values, in whole vectors; the caller says that they lie inside of the output.
        unsafe { steps.rest(s, all, Lanes::Width, start, output.cast_const()) };
        for row in rows {
            vectors!(S, len, |at, count| {
                // SAFETY: as of the rest.
                unsafe { store_strided(s, to(row).add(at * step), s.load(line(row).add(at)), step, count) };
            });
        }
    }
}

/// Sums of pixels of one channel in lines, and where they are written.
pub(crate) struct ChannelLines<T> {
    pub(crate) channel: usize,
    /// Lines, and pixels of each.
    pub(crate) count: usize,
    pub(crate) len: usize,
    /// The first line, and how far it is to the next.
    pub(crate) sums: *const f32,
    pub(crate) sums_line: usize,
    /// The first element, and how far it is to the next line's and to the next pixel's.
    pub(crate) to: *mut T,
    pub(crate) to_line: usize,
    pub(crate) step: usize,
}

impl Steps<'_> {
    /// Applies the front to the sums, and writes them.
    ///
    /// # Safety
    /// The sums are readable and the elements writable, and they share no memory; tables have a value for the channel.
    #[inline(always)]
    pub(crate) unsafe fn write<S: Simd, T: Number>(&self, _: S, lines: ChannelLines<T>) {
        // SAFETY: the vocabulary is the proof that the CPU has the set.
        unsafe { S::enter(Write { steps: self, lines }) }
    }
}

/// The arguments of [`Steps::write`]. A function of its own, since it is at the end of many kernels.
struct Write<'a, T> {
    steps: &'a Steps<'a>,
    lines: ChannelLines<T>,
}

impl<T: Number> Kernel for Write<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Write { steps, lines: ChannelLines { channel, count, len, sums, sums_line, to, to_line, step } } =
            self;
        // Vectors at these pixels, of which so many are the line's.
        macro_rules! front {
            ($vectors:literal, $sums:expr, $to:expr, |$v:ident| $at:expr, $lanes:expr) => {{
                let mut values = [[s.splat(0.0)]; $vectors];
                for ($v, [value]) in values.iter_mut().enumerate() {
                    // SAFETY: `write`'s caller says that the sums are readable.
                    *value = unsafe { load(s, $sums.wrapping_add($at), $lanes) };
                }
                // SAFETY: `write`'s caller says that tables have a value for the channel.
                steps.front(s, &mut values, |table| [s.splat(unsafe { *table.add(channel) })]);
                for ($v, &[value]) in values.iter().enumerate() {
                    // SAFETY: `write`'s caller says that the elements are writable.
                    unsafe { store_strided(s, $to.wrapping_add($at * step), value, step, $lanes) };
                }
            }};
        }
        for line in 0..count {
            let (sums, to) = (sums.wrapping_add(line * sums_line), to.wrapping_add(line * to_line));
            if len >= S::LANES {
                // The last vectors end with the line, and compute some pixels again.
                let last = len - S::LANES;
                for first in (0..len).step_by(AT_ONCE * S::LANES) {
                    front!(4, sums, to, |v| (first + v * S::LANES).min(last), S::LANES);
                }
            } else {
                front!(1, sums, to, |v| v, len);
            }
        }
    }
}

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
    /// the output, of type `T`, and nobody else touches them.
    #[inline(always)]
    pub(crate) unsafe fn finish<S: Simd, T: Number>(&self, s: S, output: *mut T) {
        let &Lines { steps, scratch, pitch, count, len, start, .. } = self;
        let surface = steps.epilogue.output();
        let [_, channel_stride, _, _, step] = surface.strides;
        let output = output.wrapping_add(start.offset(surface));
        let rows = 0..count;
        let sums = |row: usize| self.sums.wrapping_add(row * pitch);
        let line = |row: usize| scratch.wrapping_add(row * pitch);
        let to = |row: usize| output.wrapping_add(row * channel_stride);
        if steps.end_in_registers() {
            for row in rows {
                // SAFETY: the caller says that the sums are complete, and that the line lies inside of the output.
                unsafe { steps.line(s, start.channel + row, sums(row), to(row), step, len) };
            }
            return;
        }
        for row in rows.clone() {
            // SAFETY: as of the output, but that scratch has room for the line.
            unsafe { steps.line(s, start.channel + row, sums(row), line(row), 1, len) };
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

impl Steps<'_> {
    /// Applies the front to `len` sums of pixels of a channel, and writes them from `to` on, `step` elements apart.
    ///
    /// # Safety
    /// The sums are readable, and these elements writable; tables have a value for the channel.
    #[inline(always)]
    pub(crate) unsafe fn line<S: Simd, T: Number>(
        &self,
        _: S,
        channel: usize,
        sums: *const f32,
        to: *mut T,
        step: usize,
        len: usize,
    ) {
        // SAFETY: the vocabulary is the proof that the CPU has the set.
        unsafe { S::enter(Line { steps: self, channel, sums, to, step, len }) }
    }
}

/// The arguments of [`Steps::line`]. A function of its own, since it is at the end of many kernels.
struct Line<'a, T> {
    steps: &'a Steps<'a>,
    channel: usize,
    sums: *const f32,
    to: *mut T,
    step: usize,
    len: usize,
}

impl<T: Number> Kernel for Line<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Line { steps, channel, sums, to, step, len } = self;
        // Vectors from element `at` on, of which the first `left` elements are the line's.
        macro_rules! front {
            ($vectors:literal, $at:expr, $left:expr) => {{
                let (at, left) = ($at, $left);
                let count = |v: usize| left.saturating_sub(v * S::LANES).min(S::LANES);
                let mut values = [[s.splat(0.0)]; $vectors];
                for (v, [value]) in values.iter_mut().enumerate() {
                    // SAFETY: `line`'s caller says that the sums are readable.
                    *value = unsafe { load(s, sums.wrapping_add(at + v * S::LANES), count(v)) };
                }
                // SAFETY: `line`'s caller says that tables have a value for the channel.
                steps.front(s, &mut values, |table| [s.splat(unsafe { *table.add(channel) })]);
                for (v, &[value]) in values.iter().enumerate() {
                    // SAFETY: `line`'s caller says that the elements are writable.
                    unsafe {
                        let to = to.wrapping_add((at + v * S::LANES) * step);
                        store_strided(s, to, value, step, count(v));
                    }
                }
            }};
        }
        for at in (0..len).step_by(AT_ONCE * S::LANES) {
            let left = len - at;
            if left >= AT_ONCE * S::LANES {
                front!(4, at, AT_ONCE * S::LANES);
            } else if left > S::LANES {
                front!(4, at, left);
            } else {
                front!(1, at, left);
            }
        }
    }
}

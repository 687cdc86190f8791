//! Sums with pixels in the lanes, line by line to the output.

use super::apply::{Lanes, Rows, Steps};
use crate::isa::{Number, Simd};
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
        let whole = len - len % (AT_ONCE * S::LANES);
        for row in 0..count {
            let to = output.wrapping_add(row * channel_stride);
            for at in (0..whole).step_by(AT_ONCE * S::LANES) {
                // SAFETY: the caller says what this function asks for.
                unsafe { self.front::<S, T, AT_ONCE>(s, row, at, S::LANES, to) };
            }
            vectors!(S, len - whole, |at, count| {
                // SAFETY: as of the other vectors.
                unsafe { self.front::<S, T, 1>(s, row, whole + at, count, to) };
            });
        }
        if steps.end_in_registers() {
            return;
        }
        let rows = Rows { first: scratch, pitch, count, len };
        // SAFETY: scratch has the lines' values, in whole vectors; the caller says that they lie inside of the output.
        unsafe { steps.rest(s, rows, Lanes::Width, start, output.cast_const()) };
        for row in 0..count {
            let (line, to) = (scratch.wrapping_add(row * pitch), output.wrapping_add(row * channel_stride));
            vectors!(S, len, |at, count| {
                // SAFETY: as of the rest.
                unsafe { store_strided(s, to.add(at * step), s.load(line.add(at)), step, count) };
            });
        }
    }

    /// Applies the front to V vectors of a line, from pixel `at` on and with `count` pixels each. They go to the output, in
    /// which the line begins at `to`, if that is all, else to scratch.
    ///
    /// # Safety
    /// As [`Lines::finish`].
    #[inline(always)]
    unsafe fn front<S: Simd, T: Number, const V: usize>(
        &self,
        s: S,
        row: usize,
        at: usize,
        count: usize,
        to: *mut T,
    ) {
        let (steps, channel, step) =
            (self.steps, self.start.channel + row, self.steps.epilogue.output().strides[4]);
        let (sums, line) =
            (self.sums.wrapping_add(row * self.pitch), self.scratch.wrapping_add(row * self.pitch));
        let mut values = [[s.splat(0.0)]; V];
        for (v, [value]) in values.iter_mut().enumerate() {
            // SAFETY: the caller says that the line has these sums.
            *value = unsafe { load(s, sums.add(at + v * S::LANES), count) };
        }
        // SAFETY: tables have a value for each channel.
        steps.front(s, &mut values, |table| [s.splat(unsafe { *table.add(channel) })]);
        for (v, &[value]) in values.iter().enumerate() {
            let at = at + v * S::LANES;
            // SAFETY: the caller says that scratch has whole vectors, and that the line lies inside of the output.
            unsafe {
                if steps.end_in_registers() {
                    store_strided(s, to.add(at * step), value, step, count);
                } else {
                    s.store(line.add(at), value);
                }
            }
        }
    }
}

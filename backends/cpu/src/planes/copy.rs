//! The copy of a work item's input: lines with their padding, widened to f32, pixels of a channel side by side.

use std::marker::PhantomData;
use std::ops::Range;

use super::band::Band;
use super::plan::Phase;
use crate::isa::{Kernel, Number, Simd};
use crate::vectors::{load, load_even, load_strided, transposed, vectors};

pub(super) type CopyFn = unsafe fn(&Band<'_>);

/// Copies the lines of all channels, one channel after the other. Padding is 0, and what vectors have beyond it is some number.
///
/// # Safety
/// The CPU has the instruction set; the input is readable, of type `T`, and scratch as long as the plan says.
pub(super) unsafe fn lines<S: Simd, T: Number>(band: &Band<'_>) {
    struct Run<'a, T>(&'a Band<'a>, PhantomData<T>);
    impl<T: Number> Kernel for Run<'_, T> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let plan = self.0.plan;
            each_line::<S, T>(s, self.0, 1, |line| {
                let Line { source, step, target, before, columns, .. } = line;
                zeros(s, target, 0..before);
                // The last vector has zeros behind its columns.
                let end = before + columns.next_multiple_of(S::LANES);
                if end < plan.line {
                    zeros(s, target, end..plan.line);
                }
                let target = target.wrapping_add(before);
                macro_rules! copy {
                    (|$from:ident, $count:ident| $columns:expr) => {{
                        vectors!(S, columns, |at, $count| {
                            let $from = source.wrapping_add(at * step);
                            // SAFETY: the `count` columns, and what is between them, are a line's of the input, which
                            // `lines`' caller says is readable; what is stored beyond them is written afterwards.
                            unsafe { s.store(target.add(at), $columns) };
                        });
                    }};
                }
                match step {
                    1 => copy!(|from, count| load(s, from, count)),
                    2 => copy!(|from, count| load_even(s, from, count)),
                    _ => copy!(|from, count| load_strided(s, from, step, count)),
                }
            });
        }
    }
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Run::<T>(band, PhantomData)) }
}

/// As [`lines`], line by line of all channels, in squares of pixels and channels, which lie side by side.
///
/// # Safety
/// As [`lines`].
pub(super) unsafe fn squares<S: Simd, T: Number>(band: &Band<'_>) {
    struct Run<'a, T>(&'a Band<'a>, PhantomData<T>);
    impl<T: Number> Kernel for Run<'_, T> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let plan = self.0.plan;
            let channel = plan.input.strides[1];
            each_line::<S, T>(s, self.0, usize::MAX, |line| {
                let Line { source, step, target, before, columns, channels } = line;
                for at in (0..plan.line).step_by(S::LANES) {
                    let inside =
                        before.saturating_sub(at)..(before + columns).saturating_sub(at).min(S::LANES);
                    let source = source.wrapping_add(at.wrapping_sub(before).wrapping_mul(step));
                    vectors!(S, channels, |first, count| {
                        let source = source.wrapping_add(first * channel);
                        let square = transposed(s, inside.clone(), |pixel| {
                            // SAFETY: the columns are a line's of the input, which `squares`' caller says is readable.
                            unsafe { load_strided(s, source.wrapping_add(pixel * step), channel, count) }
                        });
                        let target = target.wrapping_add(first * plan.plane + at);
                        for (channel, row) in square[..S::LANES].iter().enumerate() {
                            if channel < count {
                                // SAFETY: scratch has a plane for each channel; what is stored beyond the line is written
                                // afterwards.
                                unsafe { s.store(target.add(channel * plan.plane), *row) };
                            }
                        }
                    });
                }
            });
        }
    }
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Run::<T>(band, PhantomData)) }
}

/// A line of some channels that lies in the image.
struct Line<T> {
    /// The first of its columns there, and how far it is to the next.
    source: *const T,
    step: usize,
    /// Where the line begins in scratch, how much padding it has there, and how many columns.
    target: *mut f32,
    before: usize,
    columns: usize,
    channels: usize,
}

/// Writes zeros to columns of a line.
#[inline(always)]
fn zeros<S: Simd>(s: S, line: *mut f32, columns: Range<usize>) {
    for at in columns.step_by(S::LANES) {
        // SAFETY: lines follow one another in scratch, with a vector behind the last; what goes beyond these columns is
        // written afterwards.
        unsafe { s.store(line.add(at), s.splat(0.0)) };
    }
}

/// Has `copy` write all lines that lie in the image, with whole vectors, of up to so many channels at a time, and writes the
/// others.
#[inline(always)]
fn each_line<S: Simd, T: Number>(s: S, band: &Band<'_>, together: usize, copy: impl Fn(Line<T>)) {
    let plan = band.plan;
    let [_, _, depth, height, width] = plan.input.lens;
    let [image, channel_stride, slice_stride, line_stride, column_stride] = plan.input.strides;
    let ([pad_slice, pad_line, pad_column], [slice_step, line_step, step]) = (plan.pads, plan.strides);
    let all = band.groups.len() * plan.inputs;
    for first in (0..all).step_by(together) {
        let channels = together.min(all - first);
        let source = band
            .source
            .cast::<T>()
            .wrapping_add(band.image * image + (band.groups.start * plan.inputs + first) * channel_stride);
        for (number, &Phase { slice, line: first_line, column, more }) in plan.phases.iter().enumerate() {
            let target = band.input.wrapping_add(first * plan.plane + number * plan.phase);
            // Column c of the phase is input column c * step + column - pad.
            let until = |end: usize| (end + pad_column).saturating_sub(column).div_ceil(step);
            let before = until(0).min(plan.line);
            let columns = until(width).clamp(before, plan.line) - before;
            let column = (before * step + column).wrapping_sub(pad_column);
            let source = source.wrapping_add(column.wrapping_mul(column_stride));
            let zeros = |line: *mut f32, columns: Range<usize>| {
                for channel in 0..channels {
                    zeros(s, line.wrapping_add(channel * plan.plane), columns.clone());
                }
            };
            let lines = band.lines.len() + more;
            // Line l of the phase is input line l * line_step + first_line - pad_line.
            let first_line = band.lines.start * line_step + first_line;
            let until =
                |end: usize| (end + pad_line).saturating_sub(first_line).div_ceil(line_step).min(lines);
            let slice = (band.slice * slice_step + slice).wrapping_sub(pad_slice);
            let inside = if slice < depth { until(0)..until(height) } else { 0..0 };
            let line = (first_line + inside.start * line_step).wrapping_sub(pad_line);
            let source = source.wrapping_add(slice.wrapping_mul(slice_stride));
            let mut source = source.wrapping_add(line.wrapping_mul(line_stride));
            let step = step * column_stride;
            for l in 0..lines {
                let target = target.wrapping_add(l * plan.line);
                if !inside.contains(&l) {
                    zeros(target, 0..plan.line);
                    continue;
                }
                copy(Line { source, step, target, before, columns, channels });
                source = source.wrapping_add(line_step * line_stride);
            }
            zeros(target.wrapping_add(lines * plan.line), 0..plan.lead);
        }
    }
}

//! The copy of a work item's input: lines with their padding, widened to f32, pixels of a channel side by side.

use std::marker::PhantomData;
use std::ops::Range;

use super::band::Band;
use super::plan::Phase;
use crate::isa::{Kernel, Number, Simd};
use crate::vectors::{SquareRows, load, load_even, load_strided, transposed, vectors};

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
            each_phase::<S, T>(s, self.0, 1, |lines| {
                let PhaseLines { source, source_line, step, target, count, before, columns, .. } = lines;
                let end = before + columns;
                // Vectors of columns, the last of which ends with the line where that is not shorter than a vector.
                macro_rules! copy {
                    ($load:expr) => {
                        for line in 0..count {
                            let source = source.wrapping_add(line.wrapping_mul(source_line));
                            let target = target.wrapping_add(line * plan.line);
                            zeros(s, target, 0..before);
                            let to = target.wrapping_add(before);
                            let lanes = columns.min(S::LANES);
                            for at in (0..columns).step_by(S::LANES) {
                                let at = at.min(columns - lanes);
                                // SAFETY: the `lanes` columns, and what is between them, are a line's of the input, which
                                // `lines`' caller says is readable; what is stored beyond them is written afterwards.
                                unsafe { s.store(to.add(at), $load(s, source.wrapping_add(at.wrapping_mul(step)), lanes)) };
                            }
                            zeros(s, target, end..plan.line);
                        }
                    };
                }
                match (step, columns >= S::LANES) {
                    (1, true) => copy!(|s, from, _| load(s, from, S::LANES)),
                    (1, false) => copy!(|s, from, lanes| load(s, from, lanes)),
                    (2, true) => copy!(|s, from, _| load_even(s, from, S::LANES)),
                    (2, false) => copy!(|s, from, lanes| load_even(s, from, lanes)),
                    _ => copy!(|s, from, lanes| load_strided(s, from, step, lanes)),
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
            each_phase::<S, T>(s, self.0, usize::MAX, |lines| {
                let PhaseLines { source, source_line, step, target, count, before, columns, channels } =
                    lines;
                let vectors = plan.line.div_ceil(S::LANES);
                for (line, at) in (0..count * vectors).map(|n| (n / vectors, n % vectors * S::LANES)) {
                    let inside =
                        before.saturating_sub(at)..(before + columns).saturating_sub(at).min(S::LANES);
                    let source = source.wrapping_add(line.wrapping_mul(source_line));
                    let source = source.wrapping_add(at.wrapping_sub(before).wrapping_mul(step));
                    let target = target.wrapping_add(line * plan.line + at);
                    vectors!(S, channels, |first, count| {
                        let first_row = source.wrapping_add(first * channel);
                        let rows = SquareRows { first: first_row, pitch: step, stride: channel, count };
                        // SAFETY: the columns inside are a line's of the input, which `squares`' caller says is readable.
                        let square = unsafe { transposed(s, inside.clone(), rows) };
                        let target = target.wrapping_add(first * plan.plane);
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

/// Lines of a phase, of some channels, that lie in the image.
struct PhaseLines<T> {
    /// The first of their columns there, and how far it is to the next line's and to the next.
    source: *const T,
    source_line: usize,
    step: usize,
    /// Where the first line begins in scratch, how many lines there are, how much padding each has there, and how many columns.
    target: *mut f32,
    count: usize,
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

/// Has `copy` write all lines that lie in the image, with whole vectors, a phase's of up to so many channels at a time, and
/// writes the others.
#[inline(always)]
fn each_phase<S: Simd, T: Number>(s: S, band: &Band<'_>, together: usize, copy: impl Fn(PhaseLines<T>)) {
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
            let source = source.wrapping_add(line.wrapping_mul(line_stride));
            let all_zeros = |lines: Range<usize>| {
                for line in lines {
                    zeros(target.wrapping_add(line * plan.line), 0..plan.line);
                }
            };
            all_zeros(0..inside.start);
            if !inside.is_empty() {
                let (source_line, step) =
                    (line_step.wrapping_mul(line_stride), step.wrapping_mul(column_stride));
                let (target, count) = (target.wrapping_add(inside.start * plan.line), inside.len());
                copy(PhaseLines { source, source_line, step, target, count, before, columns, channels });
            }
            all_zeros(inside.end..lines);
            zeros(target.wrapping_add(lines * plan.line), 0..plan.lead);
        }
    }
}

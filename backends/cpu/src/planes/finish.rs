//! From sums to the output: what tiles have left of the epilogue, conversion, and a transpose where channels, not pixels, lie
//! side by side.

use std::marker::PhantomData;

use super::band::{Band, Sums};
use crate::epilogue::{ChannelLines, Lanes, Lines, Rows};
use crate::isa::{Kernel, Number, Simd};
use crate::vectors::{SquareRows, store_strided, transposed};

pub(super) type FinishFn = unsafe fn(&Band<'_>, &Sums);

/// Finishes sums in runs of pixels.
///
/// # Safety
/// The CPU has the instruction set; the sums are complete; the output is writable, of type `T`, and nobody else touches the
/// band's lines of it.
pub(super) unsafe fn lines<S: Simd, T: Number>(band: &Band<'_>, sums: &Sums) {
    struct Run<'a, T>(&'a Band<'a>, &'a Sums, PhantomData<T>);
    impl<T: Number> Kernel for Run<'_, T> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let Run(band, Sums { lines, channels }, _) = self;
            let (plan, width) = (band.plan, band.plan.output.lens[4]);
            let start = |channel, line, column| band.row_start(channel, lines.start + line, column);
            // A run goes on over the ends of lines only where the output and all that is added to it do so, too.
            let (runs, pixels) =
                if plan.run == width { (lines.len(), width) } else { (1, lines.len() * width) };
            for (at, channel) in channels.clone().enumerate() {
                let sums = band.sums.wrapping_add(at * plan.sums_plane);
                if band.steps.end_in_registers() {
                    let [_, _, _, line_stride, step] = plan.output.strides;
                    let output =
                        band.output.cast::<T>().wrapping_add(start(channel, 0, 0).offset(&plan.output));
                    let all = ChannelLines {
                        channel,
                        count: runs,
                        len: pixels,
                        sums,
                        sums_line: plan.sums_line,
                        to: output,
                        to_line: line_stride,
                        step,
                    };
                    // SAFETY: `lines`' caller says that the sums are complete, and that the output is writable; sums are scratch.
                    unsafe { band.steps.write(s, all) };
                    continue;
                }
                for line in 0..runs {
                    for column in (0..pixels).step_by(plan.run) {
                        let run = Lines {
                            steps: band.steps,
                            sums: sums.wrapping_add(line * plan.sums_line + column),
                            scratch: band.run,
                            pitch: 0,
                            count: 1,
                            len: plan.run.min(pixels - column),
                            start: start(channel, line, column),
                        };
                        // SAFETY: `lines`' caller says that the sums are complete, and that the output is writable; a run
                        // has room in scratch.
                        unsafe { run.finish(s, band.output.cast::<T>()) };
                    }
                }
            }
        }
    }
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Run::<T>(band, sums, PhantomData)) }
}

/// Rows of channels that the front is applied to at a time.
const AT_ONCE: usize = 4;

/// Finishes sums in squares of pixels and channels.
///
/// # Safety
/// As [`lines`].
pub(super) unsafe fn squares<S: Simd, T: Number>(band: &Band<'_>, sums: &Sums) {
    struct Run<'a, T>(&'a Band<'a>, &'a Sums, PhantomData<T>);
    impl<T: Number> Kernel for Run<'_, T> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let Run(band, sums, _) = self;
            let width = band.plan.output.lens[4];
            for line in 0..sums.lines.len() {
                for column in (0..width).step_by(S::LANES) {
                    let pixels = S::LANES.min(width - column);
                    // SAFETY: `squares`' caller says what this function asks for.
                    unsafe { pixels_of::<S, T>(s, band, sums, line, column, pixels) };
                }
            }
        }
    }
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Run::<T>(band, sums, PhantomData)) }
}

/// Finishes pixels that follow one another in a line of the sums.
///
/// # Safety
/// As [`lines`]; they are at most as many as a vector has lanes.
#[inline(always)]
unsafe fn pixels_of<S: Simd, T: Number>(
    s: S,
    band: &Band<'_>,
    sums: &Sums,
    line: usize,
    column: usize,
    pixels: usize,
) {
    let Sums { lines, channels } = sums;
    let (plan, steps, count) = (band.plan, band.steps, channels.len());
    let [_, channel_stride, _, _, column_stride] = plan.output.strides;
    let is_done = steps.end_in_registers();
    let pitch = count.next_multiple_of(S::LANES);
    let sums = band.sums.wrapping_add(line * plan.sums_line + column);
    let start = band.row_start(channels.start, lines.start + line, column);
    let output = band.output.cast::<T>().wrapping_add(start.offset(&plan.output));
    for first in (0..count).step_by(S::LANES) {
        let lanes = S::LANES.min(count - first);
        let from = sums.wrapping_add(first * plan.sums_plane).cast_const();
        let rows = SquareRows { first: from, pitch: plan.sums_plane, stride: 1, count: S::LANES };
        // SAFETY: the caller says that each channel's sums are there, and they have a vector behind them.
        let square = unsafe { transposed(s, 0..lanes, rows) };
        for pixel in (0..S::LANES).step_by(AT_ONCE) {
            if pixel >= pixels {
                break;
            }
            let mut rows = [[s.splat(0.0)]; AT_ONCE];
            for (to, &row) in rows.iter_mut().zip(&square[pixel..]) {
                *to = [row];
            }
            steps.front(s, &mut rows, |table| {
                // SAFETY: tables have room for whole tiles behind every channel.
                [unsafe { s.load(table.add(channels.start + first)) }]
            });
            for (i, &[row]) in rows.iter().enumerate() {
                if pixel + i < pixels {
                    // SAFETY: the caller says that the channels of the band's pixels are writable; scratch has whole vectors
                    // for each of a vector's pixels.
                    unsafe {
                        if is_done {
                            let to = output.add((pixel + i) * column_stride + first * channel_stride);
                            store_strided(s, to, row, channel_stride, lanes);
                        } else {
                            s.store(band.run.add((pixel + i) * pitch + first), row);
                        }
                    }
                }
            }
        }
    }
    if is_done {
        return;
    }
    let rows = Rows { first: band.run, pitch, count: pixels, len: count };
    // SAFETY: scratch has the pixels' values, in whole vectors; they lie inside of the output.
    unsafe { steps.rest(s, rows, Lanes::Channels, start, output.cast_const()) };
    for pixel in 0..pixels {
        for first in (0..count).step_by(S::LANES) {
            // SAFETY: as of the rest.
            unsafe {
                let row = s.load(band.run.add(pixel * pitch + first));
                let to = output.add(pixel * column_stride + first * channel_stride);
                store_strided(s, to, row, channel_stride, S::LANES.min(count - first));
            }
        }
    }
}

//! A band of lines of one input channel: the copy of its input, tiles, and the way to the output.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;

use super::Plan;
use crate::epilogue::{Lines, Steps};
use crate::isa::{Kernel, Number, Simd};
use crate::row::RowStart;
use crate::vectors::{load_even, load_strided, vectors};

/// Lines of the largest tile: as many sums as keep two multiply-adds busy.
pub(super) const LINES: usize = 8;

/// A work item, a band of lines of some input channels of an image, and a thread's scratch.
pub(super) struct Band<'a> {
    pub(super) plan: &'a Plan,
    pub(super) steps: &'a Steps<'a>,
    pub(super) image: usize,
    /// Input channels.
    pub(super) channels: Range<usize>,
    /// Lines of the output.
    pub(super) lines: Range<usize>,
    /// The tensors' first elements.
    pub(super) source: *const c_void,
    pub(super) filters: *const c_void,
    pub(super) output: *mut c_void,
    /// The copy of the input, sums with one filter of each channel, a run of them while it is finished, and these filters.
    pub(super) input: *mut f32,
    pub(super) sums: *mut f32,
    pub(super) run: *mut f32,
    pub(super) filters_f32: *mut f32,
    /// Whether tiles apply the epilogue, and write the output.
    pub(super) in_registers: bool,
}

pub(super) type BandFn = unsafe fn(&Band<'_>);

/// Makes a [`BandFn`], and says how many lanes it has.
pub(super) struct Collect<T>(pub(super) PhantomData<T>);

impl<T: Number> Kernel for Collect<T> {
    type Output = (BandFn, usize);

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> (BandFn, usize) {
        (band::<S, T>, S::LANES)
    }
}

/// Computes a band.
///
/// # Safety
/// The CPU has the instruction set; the tensors are the problem's, of type `T`; nobody else touches the band's lines of the
/// output; scratch is as long as the plan says.
unsafe fn band<S: Simd, T: Number>(band: &Band<'_>) {
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Run::<T>(band, PhantomData)) }
}

struct Run<'a, T>(&'a Band<'a>, PhantomData<T>);

impl<T: Number> Kernel for Run<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let b = self.0;
        // Each stage for all channels, since what was just stored is not loaded fast in other vectors than its own.
        // SAFETY: `band`'s caller says what these functions ask for; each needs what the ones before it have written.
        unsafe {
            for at in 0..b.channels.len() {
                b.copy::<S, T>(s, at);
            }
            for filter in 0..b.plan.multiplier {
                for at in 0..b.channels.len() {
                    b.widen::<T>(at, filter);
                    b.sums::<S>(at, filter);
                }
                if !b.in_registers {
                    for at in 0..b.channels.len() {
                        b.finish::<S, T>(s, at, filter);
                    }
                }
            }
        }
    }
}

impl Band<'_> {
    /// Copies the lines of the input channel with this number in the band. Padding is 0, and what vectors have beyond it is
    /// some number.
    ///
    /// # Safety
    /// As [`band`].
    #[inline(always)]
    unsafe fn copy<S: Simd, T: Number>(&self, s: S, at: usize) {
        let plan = self.plan;
        let [_, _, _, height, width] = plan.input.lens;
        let [image, channel, _, line_stride, column_stride] = plan.input.strides;
        let source =
            self.source.cast::<T>().wrapping_add(self.image * image + (self.channels.start + at) * channel);
        let ([pad_line, pad_column], step) = (plan.pads, plan.strides[1]);
        let (first, plane) = (self.lines.start * plan.strides[0], self.input.wrapping_add(at * plan.plane()));
        let by_two = step * column_stride == 2;
        for phase in 0..step {
            // Column c of a phase is input column c * step + phase - pad.
            let until = |column: usize| (column + pad_column).saturating_sub(phase).div_ceil(step);
            let before = until(0).min(plan.line);
            let end = until(width).clamp(before, plan.line);
            let column = (before * step + phase).wrapping_sub(pad_column);
            let source = source.wrapping_add(column.wrapping_mul(column_stride));
            for l in 0..plan.lines(self.lines.len()) {
                let inside = (pad_line..pad_line + height).contains(&(first + l));
                let source =
                    source.wrapping_add((first + l).wrapping_sub(pad_line).wrapping_mul(line_stride));
                let target = plane.wrapping_add(phase * plan.phase + l * plan.line);
                let zeros = |columns: Range<usize>| {
                    for at in columns.step_by(S::LANES) {
                        // SAFETY: lines follow one another in scratch, with a vector behind the last; what goes beyond these
                        // columns is written afterwards.
                        unsafe { s.store(target.add(at), s.splat(0.0)) };
                    }
                };
                let end = if inside { end } else { before };
                zeros(0..before);
                vectors!(S, end - before, |at, count| {
                    let from = source.wrapping_add(at * step * column_stride);
                    // SAFETY: the `count` columns, and what is between them, are the line's, which `band`'s caller says is
                    // readable; for the store as of the zeros.
                    unsafe {
                        let columns = if by_two {
                            load_even(s, from, count)
                        } else {
                            load_strided(s, from, step * column_stride, count)
                        };
                        s.store(target.add(before + at), columns);
                    }
                });
                zeros(end..plan.line);
            }
        }
    }

    /// The output channel of one of an input channel's filters.
    fn output_channel(&self, at: usize, filter: usize) -> usize {
        (self.channels.start + at) * self.plan.multiplier + filter
    }

    /// Copies one of the filters of an input channel.
    ///
    /// # Safety
    /// As [`band`].
    #[inline(always)]
    unsafe fn widen<T: Number>(&self, at: usize, filter: usize) {
        let plan = self.plan;
        let [output, line, column] = plan.filters;
        let source = self.filters.cast::<T>().wrapping_add(self.output_channel(at, filter) * output);
        let target = self.filters_f32.wrapping_add(at * plan.offsets.len());
        for tap in 0..plan.offsets.len() {
            let at = tap / plan.taps[1] * line + tap % plan.taps[1] * column;
            // SAFETY: `band`'s caller says that the filters are readable, and that scratch has room for them.
            unsafe { *target.add(tap) = (*source.add(at)).widen() };
        }
    }

    /// Computes the sums of all lines of an input channel with one of its filters: those in scratch follow one another without gaps, and the
    /// last may go on with some numbers up to a whole vector.
    ///
    /// # Safety
    /// As [`band`]; input and filter have been copied.
    #[inline(always)]
    unsafe fn sums<S: Simd>(&self, at: usize, filter: usize) {
        let (plan, lines) = (self.plan, self.lines.len());
        let tiles = lines.div_ceil(LINES);
        let line = |tile: usize| lines * tile / tiles;
        for tile in 0..tiles {
            let first = line(tile);
            let input = at * plan.plane() + first * plan.strides[0] * plan.line;
            let channel = self.output_channel(at, filter);
            let surface = &plan.output;
            let (y, y_line) = if self.in_registers {
                let line = self.lines.start + first;
                let start = RowStart { image: self.image, channel, line, column: 0 };
                (self.output.cast::<f32>().wrapping_add(start.offset(surface)), surface.strides[3])
            } else {
                let width = surface.lens[4];
                (self.sums.wrapping_add((at * lines + first) * width), width)
            };
            let tile_of = Tile {
                plan,
                x: self.input.wrapping_add(input),
                filter: self.filters_f32.wrapping_add(at * plan.offsets.len()),
                y,
                y_line,
                front: self.in_registers.then_some((self.steps, channel)),
            };
            // SAFETY: the caller says that the CPU has the instruction set, which `S` is, and that the lines' inputs are there;
            // sums have room for all lines, and where the output is written lines are whole vectors or more.
            unsafe { (const { sizes::<S>() })[line(tile + 1) - first - 1](&tile_of) };
        }
    }

    /// Finishes the sums of an input channel with one of its filters.
    ///
    /// # Safety
    /// As [`band`]; the sums are complete.
    #[inline(always)]
    unsafe fn finish<S: Simd, T: Number>(&self, s: S, at: usize, filter: usize) {
        let (plan, width) = (self.plan, self.plan.output.lens[4]);
        let pixels = self.lines.len() * width;
        for first in (0..pixels).step_by(plan.run) {
            // A run goes on over the ends of lines only where the output and all that is added to it do so, too.
            let (line, column) = if plan.run == width { (first / width, 0) } else { (0, first) };
            let channel = self.output_channel(at, filter);
            let lines = Lines {
                steps: self.steps,
                sums: self.sums.wrapping_add(at * pixels + first),
                scratch: self.run,
                pitch: 0,
                count: 1,
                len: plan.run.min(pixels - first),
                start: RowStart { image: self.image, channel, line: self.lines.start + line, column },
            };
            // SAFETY: the caller says that the sums are complete; a run has room in scratch; the lines are the band's.
            unsafe { lines.finish(s, self.output.cast::<T>()) };
        }
    }
}

/// Lines of sums.
struct Tile<'a> {
    plan: &'a Plan,
    /// The first tap of the first pixel.
    x: *const f32,
    filter: *const f32,
    y: *mut f32,
    /// From one line to the next there.
    y_line: usize,
    /// Steps whose front is applied, and the channel.
    front: Option<(&'a Steps<'a>, usize)>,
}

/// Computes the lines of a tile. Reached through a pointer, so that each size has all registers for itself.
type TileFn = unsafe fn(&Tile<'_>);

/// The functions for all sizes, less one.
const fn sizes<S: Simd>() -> [TileFn; LINES] {
    [
        tile::<S, 1>,
        tile::<S, 2>,
        tile::<S, 3>,
        tile::<S, 4>,
        tile::<S, 5>,
        tile::<S, 6>,
        tile::<S, 7>,
        tile::<S, 8>,
    ]
}

/// # Safety
/// The CPU has the instruction set; the inputs of all taps are readable, and the sums writable, in whole vectors.
unsafe fn tile<S: Simd, const R: usize>(tile: &Tile<'_>) {
    struct Sum<'a, const R: usize>(&'a Tile<'a>);
    impl<const R: usize> Kernel for Sum<'_, R> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let Tile { plan, x, filter, y, y_line, front } = *self.0;
            let (width, line) = (plan.output.lens[4], plan.strides[0] * plan.line);
            for at in (0..width).step_by(S::LANES) {
                // The last vector ends with the line, where that is not shorter than a vector.
                let at = at.min(width.saturating_sub(S::LANES));
                let mut sums = [[s.splat(0.0)]; R];
                for (tap, offset) in plan.offsets.iter().enumerate() {
                    // SAFETY: `tile`'s caller says that inputs are readable, and there is a value for each tap.
                    let (from, weight) = unsafe { (x.add(at + offset), s.load_splat(filter.add(tap))) };
                    for (r, [sum]) in sums.iter_mut().enumerate() {
                        // SAFETY: as of the tap.
                        *sum = s.fma(unsafe { s.load(from.add(r * line)) }, weight, *sum);
                    }
                }
                if let Some((steps, channel)) = front {
                    // SAFETY: tables have a value for each channel.
                    steps.front(s, &mut sums, |table| [s.splat(unsafe { *table.add(channel) })]);
                }
                for (r, &[sum]) in sums.iter().enumerate() {
                    // What a line has too much is the beginning of the next, which is stored afterwards.
                    // SAFETY: `tile`'s caller says that the sums are writable.
                    unsafe { s.store(y.add(r * y_line + at), sum) };
                }
            }
        }
    }
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Sum::<R>(tile)) }
}

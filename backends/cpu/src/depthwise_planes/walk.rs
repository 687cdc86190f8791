//! A band of lines of some channels: down their columns, a vector or two at a time, and what is left of the epilogue.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;

use super::Plan;
use crate::direct::weights::Filters;
use crate::epilogue::{Lines, Steps};
use crate::isa::{Kernel, MAX_LANES, Number, Simd};
use crate::row::RowStart;

/// A work item, and a thread's scratch.
pub(super) struct Band<'a> {
    pub(super) plan: &'a Plan,
    pub(super) steps: &'a Steps<'a>,
    pub(super) image: usize,
    pub(super) channels: Range<usize>,
    pub(super) lines: Range<usize>,
    /// The tensors' first elements, and the packed weights.
    pub(super) input: *const c_void,
    pub(super) weights: &'a [f32],
    pub(super) output: *mut c_void,
    /// Sums, and what is finished of them.
    pub(super) sums: *mut f32,
    pub(super) run: *mut f32,
}

pub(super) type PlaneFn = unsafe fn(&Band<'_>);

/// The functions of an instruction set and an element type.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) pack: unsafe fn(&Filters, *const c_void, &mut [f32]),
    /// In the order of [`FILTERS`], which [`Collect`] keeps to.
    planes: Option<[PlaneFn; FILTERS.len()]>,
}

/// Taps a side and the stride of the filters that there are functions for.
pub(super) const FILTERS: [[usize; 2]; 5] = [[3, 1], [3, 2], [5, 1], [5, 2], [7, 1]];

impl Functions {
    /// The function of a filter of so many taps a side.
    pub(super) fn plane(&self, taps: usize, stride: usize) -> Option<PlaneFn> {
        FILTERS
            .iter()
            .position(|&filter| filter == [taps, stride])
            .zip(self.planes)
            .map(|(at, planes)| planes[at])
    }
}

/// Makes [`Functions`].
pub(super) struct Collect<T>(pub(super) PhantomData<T>);

impl<T: Number> Kernel for Collect<T> {
    type Output = Functions;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Functions {
        Functions {
            pack: pack::<T>,
            planes: if const { takes::<S, T>() } {
                Some([
                    plane::<S, T, 3, 1, 3, 3>,
                    plane::<S, T, 3, 2, 2, 4>,
                    plane::<S, T, 5, 1, 5, 1>,
                    plane::<S, T, 5, 2, 3, 1>,
                    plane::<S, T, 7, 1, 7, 1>,
                ])
            } else {
                None
            },
        }
    }
}

/// Whether lanes in the padding cost no more than others.
const fn takes<S: Simd, T>() -> bool {
    matches!(S::MASKED, Some(least) if least <= size_of::<T>())
}

/// Packs weights: channels, then taps, in f32.
///
/// # Safety
/// `source` has the filters, of type `T`, of as many channels as `packed` has room for.
unsafe fn pack<T: Number>(filters: &Filters, source: *const c_void, packed: &mut [f32]) {
    for (channel, packed) in packed.chunks_exact_mut(filters.tap_count()).enumerate() {
        let source = source.cast::<T>().wrapping_add(channel * filters.strides[0]);
        for (tap, to) in packed.iter_mut().enumerate() {
            // SAFETY: the caller says that the filters are readable.
            *to = unsafe { source.wrapping_add(filters.offset(0, tap)).read() }.widen();
        }
    }
}

/// Computes a band by a filter of `TAPS` a side, of which a line of outputs needs `STRIDE` more lines than the one before, so that each
/// line of the input has a part in those of `N` steps. `D` lines are finished at a time.
///
/// # Safety
/// The CPU has the instruction set; the tensors are the problem's, of type `T`, with this filter and stride; nobody else touches
/// the band's lines of the output; scratch is as long as the plan says.
unsafe fn plane<
    S: Simd,
    T: Number,
    const TAPS: usize,
    const STRIDE: usize,
    const N: usize,
    const D: usize,
>(
    band: &Band<'_>,
) {
    let width = band.plan.output.lens[4];
    // From the right to the left, so that what a vector has beyond the end of a line is computed and stored afterwards.
    for first in (0..width).step_by(2 * S::LANES).rev() {
        let columns = (width - first).min(2 * S::LANES);
        let ahead = band.ahead::<T>(STRIDE, width - first - columns);
        // SAFETY: as the caller says; the columns lie in the output.
        unsafe {
            if columns > S::LANES || band.channels.len() == 1 {
                S::enter(Walk::<T, TAPS, STRIDE, N, D, false> {
                    band,
                    first,
                    columns,
                    ahead,
                    of: PhantomData,
                });
            } else {
                S::enter(Walk::<T, TAPS, STRIDE, N, D, true> {
                    band,
                    first,
                    columns,
                    ahead,
                    of: PhantomData,
                });
            }
        }
    }
    if !band.steps.end_in_registers() {
        // SAFETY: as the caller says; all sums are there.
        unsafe { S::enter(Finish::<T>(band, PhantomData)) }
    }
}

/// Vectors that go down at the same time: sums of one would wait for each other.
const V: usize = 2;

/// Down `V` vectors of columns, which lie side by side or, `ACROSS` channels, one below the other.
struct Walk<'a, T, const TAPS: usize, const STRIDE: usize, const N: usize, const D: usize, const ACROSS: bool>
{
    band: &'a Band<'a>,
    first: usize,
    columns: usize,
    /// What is asked for meanwhile, line by line of a cache: of the input and of the output.
    ahead: Option<(*const T, *mut T)>,
    of: PhantomData<T>,
}

/// Floats of a line of a cache.
const CACHE_LINE: usize = 16;

/// The most taps of a filter's line.
const MOST: usize = 7;

/// Taps of the smallest filter.
const SMALL: usize = 9;

impl<T: Number, const TAPS: usize, const STRIDE: usize, const N: usize, const D: usize, const ACROSS: bool>
    Kernel for Walk<'_, T, TAPS, STRIDE, N, D, ACROSS>
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        const { assert!(N == TAPS.div_ceil(STRIDE) && (STRIDE == 1 || STRIDE == 2 && TAPS <= 5) && TAPS <= MOST) };
        let Band { plan, steps, .. } = *self.band;
        let (lines, [above, left]) = (self.band.lines.clone(), plan.pads);
        let ([.., height, input_width], [.., width]) = (plan.input.lens, plan.output.lens);
        let [_, plane, _, line, _] = plan.input.strides;
        let to_line = plan.output.strides[3];
        let in_registers = steps.end_in_registers();
        // Lines and columns are counted with the padding.
        let inside_lines = above..above + height;
        let first = self.first * STRIDE;
        let image = self.band.input.cast::<T>().wrapping_add(self.band.image * plan.input.strides[0]);
        let image = image.wrapping_add(first).wrapping_sub(above.wrapping_mul(line).wrapping_add(left));
        // From one vector to the next.
        let (apart, beside) = if ACROSS { (plane, 0) } else { (S::LANES * STRIDE, S::LANES) };
        // Of each vector that is loaded: one at each tap or, where every second column counts, one behind the other.
        let mut inside = [[s.lanes(0..0); MOST]; V];
        for (v, of) in inside.iter_mut().enumerate() {
            for (number, of) in of.iter_mut().enumerate() {
                let at = if STRIDE == 1 { number } else { number * S::LANES };
                let at = first + at + v * beside * STRIDE;
                *of = s.lanes(left.saturating_sub(at)..(left + input_width).saturating_sub(at));
            }
        }

        let y_lines = const { (V * S::LANES * size_of::<T>()).div_ceil(CACHE_LINE * size_of::<f32>()) };
        let x_lines = const { STRIDE * STRIDE } * y_lines;
        let [to_next, sums_next] = if ACROSS { [plan.output.strides[1], plan.sums()] } else { [S::LANES; 2] };
        // Of each vector, its columns, and up to which line it may be stored whole: it goes on into the next where lines follow one
        // another, and that is stored afterwards.
        let is_packed = !in_registers || to_line == width;
        let counts: [usize; V] =
            std::array::from_fn(|v| self.columns.saturating_sub(v * beside).min(S::LANES));
        let whole: [usize; V] = std::array::from_fn(|v| {
            let behind = (self.first + v * beside + S::LANES).div_ceil(width) - 1;
            match counts[v] {
                count if count == S::LANES => lines.end,
                _ if is_packed => lines.end.saturating_sub(behind),
                _ => 0,
            }
        });

        let channels = self.band.channels.clone();
        for channel in channels.clone().step_by(if ACROSS { V } else { 1 }) {
            // The last channels begin earlier, with one that is computed twice.
            let channel = if ACROSS { channel.min(channels.end - V) } else { channel };
            let packed = &self.band.weights[channel * TAPS * TAPS..];
            let packed: [&[f32]; V] =
                std::array::from_fn(|c| &packed[if ACROSS { c * TAPS * TAPS } else { 0 }..][..TAPS * TAPS]);
            // Small filters stay in registers.
            let mut all = [[s.splat(0.0); SMALL]; V];
            if TAPS * TAPS <= SMALL {
                for (all, packed) in all.iter_mut().zip(packed) {
                    for (to, &weight) in all.iter_mut().zip(packed) {
                        *to = s.splat(weight);
                    }
                }
            }
            let weight = |c: usize, tap: usize| {
                if TAPS * TAPS <= SMALL {
                    return all[c][tap];
                }
                // SAFETY: the filter has this tap.
                unsafe { s.load_splat(packed[c].as_ptr().add(tap)) }
            };
            let origin = image.wrapping_add(channel * plane);
            let ahead = self.ahead.map(|(x, y)| {
                let channel = channel - channels.start;
                (x.wrapping_add(channel * plane), y.wrapping_add(channel * plan.output.strides[1]))
            });
            let row = RowStart { image: self.band.image, channel, line: 0, column: self.first };
            let output = self.band.output.cast::<T>().wrapping_add(row.offset(&plan.output));
            let scratch = self.band.scratch(channel, lines.start).wrapping_add(self.first);

            // Sums of outputs, of which the last is complete behind this step.
            let mut sums = [[s.splat(0.0); V]; N];
            let end = lines.end + N - 1;
            let mut step = lines.start;
            while step < end {
                let mut done = [[s.splat(0.0); V]; D];
                for (d, done) in done.iter_mut().enumerate() {
                    if let Some((x, y)) = ahead {
                        let at = step + d - lines.start;
                        for line in at * x_lines..(at + 1) * x_lines {
                            s.prefetch(x.cast::<f32>().wrapping_add(line * CACHE_LINE));
                        }
                        for line in at * y_lines..(at + 1) * y_lines {
                            s.prefetch_write(y.cast::<f32>().wrapping_add(line * CACHE_LINE));
                        }
                    }
                    for k in (1..N).rev() {
                        sums[k] = sums[k - 1];
                    }
                    sums[0] = [s.splat(0.0); V];
                    for q in 0..STRIDE {
                        let at = (step + d) * STRIDE + q;
                        if !inside_lines.contains(&at) {
                            continue;
                        }
                        let x = origin.wrapping_add(at * line);
                        let load = |v: usize, number: usize, at: usize| {
                            // SAFETY: the line is the input's, and only lanes that lie in it are read.
                            unsafe { T::load_lanes(s, x.wrapping_add(v * apart + at), inside[v][number]) }
                        };
                        let mut add = |tap: usize, x: [S::V; V]| {
                            for (k, sums) in sums.iter_mut().enumerate() {
                                let i = k * STRIDE + q;
                                if i < TAPS {
                                    for v in 0..V {
                                        let weight = weight(if ACROSS { v } else { 0 }, i * TAPS + tap);
                                        sums[v] = s.fma(x[v], weight, sums[v]);
                                    }
                                }
                            }
                        };
                        if STRIDE == 1 {
                            for tap in 0..TAPS {
                                add(tap, std::array::from_fn(|v| load(v, tap, tap)));
                            }
                            continue;
                        }
                        // Columns of the even and of the odd taps, and those behind them.
                        let columns: [[[S::V; 2]; 2]; V] = std::array::from_fn(|v| {
                            let [a, b, c] = std::array::from_fn(|number| load(v, number, number * S::LANES));
                            [s.even_odd(a, b), s.even_odd(c, c)]
                        });
                        add(0, columns.map(|[[even, _], _]| even));
                        add(1, columns.map(|[[_, odd], _]| odd));
                        add(2, columns.map(|[[even, _], [more, _]]| s.slide::<1>(even, more)));
                        if TAPS > 3 {
                            add(3, columns.map(|[[_, odd], [_, more]]| s.slide::<1>(odd, more)));
                            add(4, columns.map(|[[even, _], [more, _]]| s.slide::<2>(even, more)));
                        }
                    }
                    *done = sums[N - 1];
                }
                if in_registers {
                    steps.front(s, &mut done, |table| {
                        std::array::from_fn(|v| {
                            let channel = channel + if ACROSS { v } else { 0 };
                            // SAFETY: tables have a value for each channel.
                            s.splat(unsafe { *table.add(channel) })
                        })
                    });
                }
                for (d, values) in done.iter().enumerate() {
                    let at = (step + d).wrapping_sub(N - 1);
                    if !lines.contains(&at) {
                        continue;
                    }
                    let (to, sums) =
                        (output.wrapping_add(at * to_line), scratch.wrapping_add((at - lines.start) * width));
                    for (v, &value) in values.iter().enumerate() {
                        let (to, sums) = (to.wrapping_add(v * to_next), sums.wrapping_add(v * sums_next));
                        if counts[v] == 0 {
                            continue;
                        }
                        // SAFETY: `plane`'s caller says that the band's lines are writable, and that scratch has room for them.
                        unsafe {
                            match (in_registers, at < whole[v]) {
                                (true, true) => T::store(s, to, value),
                                (false, true) => s.store(sums, value),
                                (true, false) => part(s, to, value, counts[v]),
                                (false, false) => part(s, sums, value, counts[v]),
                            }
                        }
                    }
                }
                step += D;
            }
        }
    }
}

/// Stores a part of a vector.
///
/// # Safety
/// `to` is writable for so many elements.
#[inline(always)]
unsafe fn part<S: Simd, T: Number>(s: S, to: *mut T, value: S::V, count: usize) {
    struct Part<T>([f32; MAX_LANES], *mut T, usize);
    impl<T: Number> Kernel for Part<T> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let Part(block, to, count) = self;
            // SAFETY: the block is as long as the widest vector; `part`'s caller answers for the target.
            unsafe { T::store_part(s, to, s.load(block.as_ptr()), count) }
        }
    }
    let mut block = [0.0; MAX_LANES];
    // SAFETY: the block is as long as the widest vector; the vocabulary is the proof that the CPU has the set.
    unsafe {
        s.store(block.as_mut_ptr(), value);
        S::enter(Part(block, to, count));
    }
}

impl Band<'_> {
    /// Where the band in front of this one has its input and output, and in it what so many columns have been asked for before: threads go
    /// through bands from the last to the first.
    fn ahead<T: Number>(&self, stride: usize, columns: usize) -> Option<(*const T, *mut T)> {
        let plan = self.plan;
        if !plan.is_far {
            return None;
        }
        let [image, plane, _, line, _] = plan.input.strides;
        let row =
            RowStart { image: self.image, channel: self.channels.start, line: self.lines.start, column: 0 };
        let x = self.image * image + self.channels.start * plane + self.lines.start * stride * line;
        let x = self.input.cast::<T>().wrapping_add(x).wrapping_sub(plan.band * stride * line);
        let y = self.output.cast::<T>().wrapping_add(row.offset(&plan.output));
        let y = y.wrapping_sub(plan.band * plan.output.strides[3]);
        let share = |all: usize| all * columns / plan.output.lens[4];
        let x = x.wrapping_add(share(plan.band * stride * line));
        Some((x, y.wrapping_add(share(plan.band * plan.output.strides[3]))))
    }

    /// Where the sums of a line of a channel wait.
    fn scratch(&self, channel: usize, line: usize) -> *mut f32 {
        let line = (line - self.lines.start) * self.plan.output.lens[4];
        self.sums.wrapping_add((channel - self.channels.start) * self.plan.sums() + line)
    }
}

/// Pixels that are finished at a time.
pub(super) const RUN: usize = 1024;

/// Finishes the band's sums.
struct Finish<'a, T>(&'a Band<'a>, PhantomData<T>);

impl<T: Number> Kernel for Finish<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Finish(band, _) = self;
        let (width, lines) = (band.plan.output.lens[4], band.lines.len());
        // A run goes on over the ends of lines only where the output and all that is added to it do so, too.
        let (runs, pixels) = if band.steps.is_flat() { (1, lines * width) } else { (lines, width) };
        for (channel, line) in band.channels.clone().flat_map(|c| (0..runs).map(move |line| (c, line))) {
            let line = band.lines.start + line;
            for column in (0..pixels).step_by(RUN) {
                let run = Lines {
                    steps: band.steps,
                    sums: band.scratch(channel, line).wrapping_add(column),
                    scratch: band.run,
                    pitch: 0,
                    count: 1,
                    len: RUN.min(pixels - column),
                    start: RowStart { image: band.image, channel, line, column },
                };
                // SAFETY: the sums are complete; `plane`'s caller says that the output is writable; a run has room in scratch.
                unsafe { run.finish(s, band.output.cast::<T>()) };
            }
        }
    }
}

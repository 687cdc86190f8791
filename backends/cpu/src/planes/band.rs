//! A work item: a band of lines of some groups of an image, from the copy of its input to the output.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;

use super::copy::{self, CopyFn};
use super::finish::{self, FinishFn};
use super::plan::{LINES, Plan, Rows};
use super::tile::{self, Tile, Tiles};
use crate::direct::weights::{self, PackWeightsFn};
use crate::epilogue::{Lanes, Steps};
use crate::isa::{Kernel, Number, Simd};
use crate::row::RowStart;

/// A work item, and a thread's scratch.
pub(super) struct Band<'a> {
    pub(super) plan: &'a Plan,
    pub(super) steps: &'a Steps<'a>,
    pub(super) image: usize,
    /// Slice of the output.
    pub(super) slice: usize,
    pub(super) groups: Range<usize>,
    /// Lines of the slice.
    pub(super) lines: Range<usize>,
    /// The tensors' first elements, and the packed weights.
    pub(super) source: *const c_void,
    pub(super) weights: *const f32,
    pub(super) output: *mut c_void,
    /// The copy of the input, sums, and what is finished of them.
    pub(super) input: *mut f32,
    pub(super) sums: *mut f32,
    pub(super) run: *mut f32,
    /// Whether tiles apply the epilogue, and write the output.
    pub(super) in_registers: bool,
}

/// Sums that wait in scratch.
#[derive(Debug, Clone)]
pub(super) struct Sums {
    /// Lines of the band's slice, and channels.
    pub(super) lines: Range<usize>,
    pub(super) channels: Range<usize>,
}

/// The functions of an instruction set and an element type.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) rows: Rows,
    tiles: Tiles,
    copy_lines: CopyFn,
    copy_squares: CopyFn,
    finish_lines: FinishFn,
    finish_squares: FinishFn,
    pub(super) pack_weights: PackWeightsFn,
}

/// Makes [`Functions`].
pub(super) struct Collect<T>(pub(super) PhantomData<T>);

impl<T: Number> Kernel for Collect<T> {
    type Output = Functions;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Functions {
        Functions {
            rows: Rows { most: tile::rows::<S>(), lanes: S::LANES },
            tiles: Tiles::of::<S>(),
            copy_lines: copy::lines::<S, T>,
            copy_squares: copy::squares::<S, T>,
            finish_lines: finish::lines::<S, T>,
            finish_squares: finish::squares::<S, T>,
            pack_weights: weights::pack::<S, T>,
        }
    }
}

impl Band<'_> {
    /// Computes the band.
    ///
    /// # Safety
    /// The functions are of an instruction set that the CPU has; the tensors are the problem's, of the functions' type; nobody
    /// else touches the band's lines of the output; scratch is as long as the plan says.
    pub(super) unsafe fn compute(&self, functions: &Functions) {
        let plan = self.plan;
        let copy = match plan.reads {
            Lanes::Width => functions.copy_lines,
            Lanes::Channels => functions.copy_squares,
        };
        let finish = match plan.writes {
            Lanes::Width => functions.finish_lines,
            Lanes::Channels => functions.finish_squares,
        };
        // Each stage for several channels, since what was just stored is not loaded fast in other vectors than its own.
        // SAFETY: the caller says what these functions ask for; each needs what the ones before it have written.
        unsafe {
            copy(self);
            for first in self.lines.clone().step_by(plan.part) {
                let lines = first..self.lines.end.min(first + plan.part);
                let channel = self.groups.start * plan.outputs;
                let mut sums = Sums { lines, channels: channel..channel };
                for group in self.groups.clone() {
                    let mut row = 0;
                    while row < plan.outputs {
                        let rows = plan.rows_at(row);
                        self.sums(&functions.tiles, group, &mut sums, rows);
                        row += rows;
                        let is_last = group + 1 == self.groups.end && row == plan.outputs;
                        if sums.channels.len() >= plan.stage || is_last {
                            if !self.in_registers {
                                finish(self, &sums);
                            }
                            sums.channels.start = sums.channels.end;
                        }
                    }
                }
            }
        }
    }

    /// Where a line of the slice goes on from a column.
    pub(super) fn row_start(&self, channel: usize, line: usize, column: usize) -> RowStart {
        let line = self.slice * self.plan.output.lens[3] + line;
        RowStart { image: self.image, channel, line, column }
    }

    /// Computes the sums of these lines of so many more output channels, a group's. Up to whole vectors, they go on with some
    /// numbers.
    ///
    /// # Safety
    /// As [`Band::compute`]; the input has been copied.
    unsafe fn sums(&self, tiles: &Tiles, group: usize, sums: &mut Sums, rows: usize) {
        let (plan, lines) = (self.plan, sums.lines.len());
        let (width, lanes) = (plan.output.lens[4], plan.rows.lanes);
        let (at, channel) = (sums.channels.len(), sums.channels.end);
        sums.channels.end += rows;
        let first_line = (sums.lines.start - self.lines.start) * plan.line;
        let channels = (group - self.groups.start) * plan.inputs;
        let x = self.input.wrapping_add(channels * plan.plane + first_line).cast_const();
        let y = self.sums.wrapping_add(at * plan.sums_plane);
        let tile = Tile {
            x,
            offsets: &plan.offsets,
            weights: self.weights.wrapping_add(plan.weights_of(channel)),
            y,
            row: plan.sums_plane,
            x_vector: lanes,
            y_vector: lanes,
            count: 0,
            step: 0,
            last: usize::MAX,
            front: None,
        };
        if plan.is_flat {
            let vectors = ((lines - 1) * plan.line + width).div_ceil(lanes);
            let count = vectors.div_ceil(tiles.most(rows));
            // Tiles of so many vectors, and behind them smaller ones of one less.
            let large = vectors.div_ceil(count);
            let small = count * large - vectors;
            let split = (count - small) * large * lanes;
            for (vectors, count, at) in [(large, count - small, 0), (large - 1, small, split)] {
                if count > 0 {
                    let (x, y) = (x.wrapping_add(at), y.wrapping_add(at));
                    // SAFETY: the caller says that the CPU has the instruction set, and that the lines' inputs
                    // are there; sums have room for whole vectors.
                    unsafe {
                        tiles.get(rows, vectors)(&Tile { x, y, count, step: vectors * lanes, ..tile });
                    }
                }
            }
            return;
        }
        let tiles_of_lines = lines.div_ceil(LINES);
        let line = |tile: usize| lines * tile / tiles_of_lines;
        for t in 0..tiles_of_lines {
            let first = line(t);
            let (y, y_vector) = if self.in_registers {
                let start = self.row_start(channel, sums.lines.start + first, 0);
                let surface = &plan.output;
                (self.output.cast::<f32>().wrapping_add(start.offset(surface)), surface.strides[3])
            } else {
                (y.wrapping_add(first * width), width)
            };
            let tile = Tile {
                x: x.wrapping_add(first * plan.line),
                y,
                x_vector: plan.line,
                y_vector,
                count: width.div_ceil(lanes),
                step: lanes,
                // The last vector ends with the line, where that is not shorter than a vector; if it is, what is too much is
                // the beginning of the next line, which is stored afterwards.
                last: width.saturating_sub(lanes),
                front: self.in_registers.then_some((self.steps, channel)),
                ..tile
            };
            // SAFETY: as of the flat tiles; where the output is written, lines are whole vectors or more.
            unsafe { tiles.get(1, line(t + 1) - first)(&tile) };
        }
    }
}

//! The steps of a block: its input's tiles to points, products of points, and points to the output's tiles.

use std::ffi::c_void;
use std::ops::Range;

use fuseplan_api::DataType;

use super::Convolution;
use super::kernel::{InputTiles, OutputTiles};
use crate::activation::Simple;
use crate::direct::RESIDENT;
use crate::direct::input::{Channels, PackLine, pack_channels};
use crate::direct::output::{Finish, finish_channels};
use crate::direct::tile::Tile;
use crate::direct::weights::Panel;
use crate::epilogue::{Ending, Lanes, Steps};
use crate::row::RowStart;

/// Floats of a cache line.
const LINE: usize = 16;

/// One execution: what all of its blocks share.
pub(super) struct Work<'a> {
    pub(super) conv: &'a Convolution,
    pub(super) steps: Steps<'a>,
    pub(super) ending: Option<Ending>,
    pub(super) input: *const c_void,
    pub(super) output: *mut c_void,
    /// The transformed filters of all panels.
    pub(super) weights: &'a [f32],
}

// SAFETY: blocks and panels write outputs of their own and only read everything else.
unsafe impl Sync for Work<'_> {}

/// Scratch memory for the output of a panel.
pub(super) struct Scratch<'a> {
    /// Sums of products, at every point of a block's tiles.
    pub(super) sums: &'a mut [f32],
    /// The outputs of a unit, while they wait to be finished.
    pub(super) pixels: &'a mut [f32],
    pub(super) finish: &'a mut [f32],
}

impl Work<'_> {
    /// Transforms a vector of a group's input channels: of a chunk from channel `first` on, the vector from `channel` on.
    /// `units` are of a block whose first tile is `origin`.
    ///
    /// # Safety
    /// The CPU has the instruction set; the input is the problem's; `target` has the plan's transformed input of the block,
    /// of which nobody else touches this vector of these units; `lines` has the plan's length.
    pub(super) unsafe fn transform(
        &self,
        units: Range<usize>,
        origin: usize,
        (group, chunk, channel): (usize, &Range<usize>, usize),
        target: *mut f32,
        lines: &mut [f32],
    ) {
        let Convolution { plan, functions, data_type, .. } = self.conv;
        let lanes = functions.lanes;
        let [tile, point] = plan.input_strides();
        let [image_stride, channel_stride, _, line_stride, column_stride] = plan.input.strides;
        let [.., height, width] = plan.input.lens;
        let count = (chunk.end - channel).min(lanes);
        let line = plan.line_len();
        for unit in units {
            let (image, row, tiles) = plan.place(unit);
            let columns = (tiles.len() - 1) * plan.out + plan.extent;
            let first = tiles.start * plan.out;
            // Column j of the unit is column first + j - pad of the input.
            let before = plan.pads[1].saturating_sub(first).min(columns);
            let end = (width + plan.pads[1]).saturating_sub(first).clamp(before, columns);
            let from = image * image_stride + (first + before).saturating_sub(plan.pads[1]) * column_stride;
            for (i, target) in lines.chunks_exact_mut(line).enumerate() {
                let at = (row * plan.out + i).checked_sub(plan.pads[0]).filter(|&line| line < height);
                let Some(at) = at.filter(|_| before < end) else {
                    target[..columns * lanes].fill(0.0);
                    continue;
                };
                let line = PackLine {
                    channels: Channels::Dense(count),
                    count,
                    source: self.input.wrapping_byte_add((from + at * line_stride) * data_type.size()),
                    channel_stride,
                    column_stride,
                    alternate: false,
                    target: target.as_mut_ptr(),
                    pixel: lanes,
                    columns: [before, end - before, columns - end],
                };
                let channels = group * plan.inputs + channel..group * plan.inputs + channel + count;
                // SAFETY: the functions are of an instruction set that the CPU has, and of the input's type; the columns
                // from `before` to `end` of line `at` lie inside of the input.
                unsafe { pack_channels(functions.pack_line, line, &plan.input, channels, data_type.size()) }
            }
            let index = plan.tiles_of(&(unit..unit + 1)).start - origin;
            // SAFETY: the lines are complete, whatever lies in lanes beyond the channels; the caller says that the target
            // has the block's points.
            unsafe {
                (functions.input)(&InputTiles {
                    lines: lines.as_ptr(),
                    line,
                    tiles: tiles.len(),
                    target: target.add(index * tile + (channel - chunk.start)),
                    tile,
                    point,
                });
            }
        }
    }

    /// Adds up a panel's products for a chunk of input channels, at every point of the tiles of some units. The first tile
    /// that `transformed` has is `origin`.
    ///
    /// # Safety
    /// As [`Work::transform`], whose results `transformed` has for the units.
    unsafe fn products(
        &self,
        tiles: Range<usize>,
        origin: usize,
        panel: Panel,
        chunk: &Range<usize>,
        transformed: *const f32,
        sums: &mut [f32],
    ) {
        let Convolution { plan, functions, .. } = self.conv;
        let width = panel.vectors * functions.lanes;
        let [x_tile, x_point] = plan.input_strides();
        let [y_tile, y_point] = plan.sum_strides();
        let most = functions.tiles.rows[panel.vectors - 1];
        let calls = tiles.len().div_ceil(most);
        // Filters of the next point, to be asked for while this one's products are summed: cache lines for each product.
        let lines = width.div_ceil(LINE * calls);
        for point in 0..plan.points() {
            let x = transformed.wrapping_add(point * x_point + (tiles.start - origin) * x_tile);
            let w = panel.offset + (point * plan.inputs + chunk.start) * width;
            let mut row = 0;
            for call in 0..calls {
                let rows = tiles.len() / calls + usize::from(call < tiles.len() % calls);
                let w = self.weights.as_ptr().wrapping_add(w);
                let asked = call * chunk.len() * lines * LINE;
                let is_left = asked < chunk.len() * width;
                let tile = Tile {
                    x: x.wrapping_add(row * x_tile),
                    w,
                    ahead: if is_left { w.wrapping_add(plan.inputs * width + asked) } else { w },
                    ahead_step: if is_left { lines * LINE } else { 0 },
                    y: sums[point * y_point + row * y_tile..].as_mut_ptr(),
                    x_pixel: x_tile,
                    y_pixel: y_tile,
                    y_vector: functions.lanes,
                    taps: [1; 3],
                    x_tap: [0; 3],
                    w_tap: [0; 2],
                    depth: chunk.len(),
                    steps: &self.steps,
                    channel: panel.first,
                    residual: std::ptr::null(),
                    simple: Simple::Identity,
                    tail: functions.lanes,
                    goes_on: chunk.start > 0,
                    // The epilogue is applied to the output, not to its points.
                    incomplete: true,
                };
                // SAFETY: the functions are of an instruction set that the CPU has; the tiles' points are readable, the
                // panel has its filters for every point and channel, and the sums room for all rows.
                unsafe { functions.tiles.get(false, panel.vectors, rows)(&tile) };
                row += rows;
            }
        }
    }

    /// Computes a panel of a block's units, whose transformed input begins with tile `origin`. Input that is cut into
    /// chunks is transformed here, into `transformed`, by `chunk`.
    ///
    /// # Safety
    /// As [`Work::transform`]; `transformed` has the units' input where it is not cut; nobody else touches these outputs;
    /// `scratch` has the plan's sizes.
    pub(super) unsafe fn panel(
        &self,
        units: Range<usize>,
        origin: usize,
        panel: Panel,
        transformed: *const f32,
        scratch: &mut Scratch<'_>,
        mut chunk: impl FnMut(&Range<usize>),
    ) {
        let plan = &self.conv.plan;
        let tiles = plan.tiles_of(&units);
        for first in (0..plan.inputs).step_by(plan.chunk) {
            let channels = first..plan.inputs.min(first + plan.chunk);
            chunk(&channels);
            // SAFETY: as of this function.
            unsafe {
                self.products(tiles.clone(), origin, panel, &channels, transformed, scratch.sums);
            }
        }
        let mut done = 0;
        for unit in units {
            // SAFETY: as of this function; the sums are complete.
            done += unsafe { self.unit(unit, done, panel, scratch) };
        }
    }

    /// Writes a unit's outputs of a panel, whose sums begin with tile `at`; how many tiles it has.
    ///
    /// # Safety
    /// As [`Work::panel`]; the sums are complete.
    unsafe fn unit(&self, unit: usize, at: usize, panel: Panel, scratch: &mut Scratch<'_>) -> usize {
        let Convolution { plan, functions, epilogue, data_type, .. } = self.conv;
        let lanes = functions.lanes;
        let surface = epilogue.output();
        let [.., height, width] = surface.lens;
        let (image, row, tiles) = plan.place(unit);
        let lines = (height - row * plan.out).min(plan.out);
        let first = tiles.start * plan.out;
        let columns = (width - first).min(tiles.len() * plan.out);
        let start = |line: usize| RowStart {
            image,
            channel: panel.first,
            line: row * plan.out + line,
            column: first,
        };
        let direct = self.conv.lanes == Lanes::Channels
            && surface.strides[1] == 1
            && panel.first / surface.block == (panel.first + panel.count - 1) / surface.block
            && *data_type == DataType::Float;
        // Where sums go straight to the output, and what is left for them then.
        let ending = self.ending.filter(|ending| direct && ending.last.is_none());
        let direct = ending.is_some();
        let Ending { residual, simple, .. } = ending.unwrap_or(Ending::NONE);
        let mut residual = residual.cast::<f32>();
        let vector = panel.vectors * lanes;
        let (target, pixel, line, tail) = if direct {
            let offset = start(0).offset(surface);
            let target = self.output.cast::<f32>().wrapping_add(offset);
            if !residual.is_null() {
                residual = residual.wrapping_add(offset);
            }
            let tail = panel.count - (panel.vectors - 1) * lanes;
            (target, surface.strides[4], surface.strides[3], tail)
        } else {
            (scratch.pixels.as_mut_ptr(), vector, columns * vector, lanes)
        };
        let [tile, point] = plan.sum_strides();
        // SAFETY: the functions are of an instruction set that the CPU has; the sums have the unit's tiles, and the lines
        // and columns lie inside of the output or of scratch.
        unsafe {
            (functions.output)(&OutputTiles {
                points: scratch.sums.as_ptr().add(at * tile),
                tile,
                point,
                tiles: tiles.len(),
                vectors: panel.vectors,
                steps: &self.steps,
                channel: panel.first,
                residual,
                simple,
                target,
                ahead: direct && surface.lens[1..].iter().product::<usize>() * size_of::<f32>() > RESIDENT,
                pixel,
                line,
                lines,
                columns,
                tail,
            });
        }
        if !direct {
            // Lines that follow one another in the output, too, are one run.
            let (runs, pixels) = if self.conv.flat { (1, lines * columns) } else { (lines, columns) };
            for run in 0..runs {
                let finish = Finish {
                    steps: &self.steps,
                    sums: scratch.pixels.as_mut_ptr().wrapping_add(run * columns * vector),
                    pixel: vector,
                    count: panel.count,
                    pixels,
                    start: start(run),
                    output: self.output,
                    surface,
                    lanes: self.conv.lanes,
                    scratch: scratch.finish.as_mut_ptr(),
                };
                // SAFETY: the functions are of an instruction set that the CPU has, and of the output's type; the run
                // lies inside of the output, and scratch has its sums, a vector behind them, and room for `finish`.
                unsafe { finish_channels(functions.finish, finish, epilogue, lanes) }
            }
        }
        tiles.len()
    }
}

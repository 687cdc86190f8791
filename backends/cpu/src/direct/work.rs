//! One work item: a band of output lines of one image and group.

use std::ffi::c_void;
use std::ops::Range;

use super::Convolution;
use super::input::PackLine;
use super::output::Finish;
use super::tile::Tile;
use super::weights::Block;
use crate::epilogue::{Lanes, Place, Steps};
use fuseplan_api::DataType;

/// One execution.
pub(super) struct Work<'a> {
    pub(super) conv: &'a Convolution,
    pub(super) steps: Steps<'a>,
    pub(super) input: *const c_void,
    pub(super) output: *mut c_void,
    /// Packed.
    pub(super) weights: &'a [f32],
}

// SAFETY: items write outputs of their own and only read everything else.
unsafe impl Sync for Work<'_> {}

/// Scratch memory of a thread.
pub(super) struct Scratch<'a> {
    /// A band's input, and the item unit whose it is.
    pub(super) packed: &'a mut [f32],
    pub(super) holds: Option<usize>,
    /// A band's sums for one block.
    pub(super) sums: &'a mut [f32],
    pub(super) finish: &'a mut [f32],
}

/// A band of an image's lines, all of one slice.
struct Band {
    image: usize,
    slice: usize,
    lines: Range<usize>,
}

/// A band's input. Distances are in floats.
struct Source {
    /// First channel and column of the first line.
    base: *const f32,
    slice: usize,
    line: usize,
    pixel: usize,
    /// The input line at `base`, and input lines from one line to the next.
    first_line: usize,
    line_step: usize,
}

impl Work<'_> {
    /// Computes an item.
    ///
    /// # Safety
    /// The CPU has the instruction set; the tensors are the problem's; `scratch` is of the plan's sizes.
    pub(super) unsafe fn item(&self, item: usize, scratch: &mut Scratch<'_>) {
        let Convolution { geometry: g, plan, .. } = self.conv;
        let (part, unit) = (item % plan.parts, item / plan.parts);
        let (band, rest) = (unit % plan.bands, unit / plan.bands);
        let (slice, rest) = (rest % g.output.lens[2], rest / g.output.lens[2]);
        let (group, image) = (rest % plan.groups(), rest / plan.groups());
        let lines = band * plan.band..((band + 1) * plan.band).min(g.output.lens[3]);
        let band = Band { image, slice, lines };
        let blocks = &plan.blocks[group * plan.blocks_per_group..][..plan.blocks_per_group];
        let fresh = scratch.holds.replace(unit) != Some(unit);
        // SAFETY: the caller's.
        unsafe {
            let source = self.source(&band, blocks[0], scratch.packed, fresh);
            let dealt = |part: usize| blocks.len() * part / plan.parts;
            for &block in &blocks[dealt(part)..dealt(part + 1)] {
                self.block(&band, block, &source, scratch);
            }
        }
    }

    /// Where a band's input is; packs it if it must be and is not there yet.
    ///
    /// # Safety
    /// As [`Work::item`].
    unsafe fn source(&self, band: &Band, block: Block, packed: &mut [f32], fresh: bool) -> Source {
        let Convolution { geometry: g, plan, .. } = self.conv;
        let strides = g.input.strides;
        let channel = block.first / g.outputs * g.inputs;
        let (slices, first_slice) = g.taps_inside(0, band.slice);
        let origin = band.image * strides[0] + channel * strides[1] + first_slice * strides[2];
        let Some(pack) = &plan.pack else {
            return Source {
                base: self.input.cast::<f32>().wrapping_add(origin),
                slice: strides[2] * g.dilations[0],
                line: strides[3],
                pixel: strides[4],
                first_line: 0,
                line_step: 1,
            };
        };
        let needed = g.input_lines(band.lines.clone());
        let slice = pack.line * pack.lines;
        if fresh {
            for (s, _) in slices.enumerate() {
                for (l, line) in needed.clone().step_by(pack.line_step).enumerate() {
                    let at = origin + s * g.dilations[0] * strides[2] + line * strides[3];
                    let target = &mut packed[s * slice + l * pack.line..][..pack.line];
                    // SAFETY: the caller's; the line is one of the input's.
                    unsafe { self.pack_line(at, line, block.count, target) };
                }
            }
        }
        let base = packed.as_ptr();
        let (line, pixel, line_step) = (pack.line, pack.pixel, pack.line_step);
        Source { base, slice, line, pixel, first_line: needed.start, line_step }
    }

    /// Packs the input line whose first element is `at`.
    ///
    /// # Safety
    /// As [`Work::item`]; it is a line of the input.
    unsafe fn pack_line(&self, at: usize, line: usize, count: usize, target: &mut [f32]) {
        let Convolution { geometry: g, plan, functions, data_type, .. } = self.conv;
        let Some(pack) = &plan.pack else { return };
        let (step, pad) = (pack.column_step, g.pads[2]);
        // Packed column j is input column j * step - pad.
        let before = pad.div_ceil(step).min(pack.columns);
        let end = (g.input_width(line) + pad).div_ceil(step).clamp(before, pack.columns);
        let column = (before * step).saturating_sub(pad);
        let [_, channel_stride, _, _, column_stride] = g.input.strides;
        let at = at + column * column_stride;
        // SAFETY: the caller's; the columns from `before` to `end` are inside of the input.
        unsafe {
            (functions.pack_line)(&PackLine {
                channels: pack.channels,
                count,
                source: self.input.wrapping_byte_add(at * data_type.size()),
                channel_stride,
                column_stride: step * column_stride,
                target: target.as_mut_ptr(),
                pixel: pack.pixel,
                columns: [before, end - before, pack.columns - end],
            });
        }
    }

    /// Computes and writes a block of a band's output channels.
    ///
    /// # Safety
    /// As [`Work::item`].
    unsafe fn block(&self, band: &Band, block: Block, source: &Source, scratch: &mut Scratch<'_>) {
        let Convolution { geometry: g, plan, functions, epilogue, data_type, flat, .. } = self.conv;
        let lanes = functions.lanes;
        let surface = epilogue.output();
        let place = |line: usize| Place {
            image: band.image,
            channel: block.first,
            line: band.slice * g.output.lens[3] + line,
            column: 0,
        };
        let direct = plan.lanes == Lanes::Channels
            && surface.strides[1] == 1
            && *data_type == DataType::Float
            && self.steps.end_in_registers();
        let vector = block.vectors * lanes;
        let tail = if direct { block.count - (block.vectors - 1) * lanes } else { lanes };
        let mut pixels = 0;
        for line in band.lines.clone() {
            // SAFETY: the line lies inside of the output, and of the sums.
            let (y, y_pixel) = unsafe {
                if direct {
                    (self.output.cast::<f32>().add(surface.at(place(line))), surface.strides[4])
                } else {
                    (scratch.sums.as_mut_ptr().add(pixels * vector), vector)
                }
            };
            let width = g.width(line);
            let first = self.line_tile(band.slice, line, block, source);
            let tiles = width.div_ceil(functions.tiles.rows[block.vectors - 1]);
            let mut column = 0;
            for t in 0..tiles {
                let rows = width / tiles + usize::from(t < width % tiles);
                let kernel = functions.tiles.get(plan.lanewise, block.vectors, rows);
                let x = first.x.wrapping_add(column * first.x_pixel);
                let y = y.wrapping_add(column * y_pixel);
                // SAFETY: the caller's; the tile's pixels are inside of the line.
                unsafe { kernel(&Tile { x, y, y_pixel, tail, ..first }) };
                column += rows;
            }
            pixels += width;
        }
        if direct {
            return;
        }
        let run = |line: usize, start: usize, pixels: usize, scratch: &mut Scratch<'_>| {
            // SAFETY: the caller's; the sums of these pixels are complete.
            unsafe {
                (functions.finish)(&Finish {
                    steps: &self.steps,
                    sums: scratch.sums.as_mut_ptr().add(start * vector),
                    pixel: vector,
                    count: block.count,
                    pixels,
                    place: place(line),
                    output: self.output,
                    surface,
                    lanes: plan.lanes,
                    scratch: scratch.finish.as_mut_ptr(),
                });
            }
        };
        if *flat {
            run(band.lines.start, 0, pixels, scratch);
        } else {
            let mut start = 0;
            for line in band.lines.clone() {
                run(line, start, g.width(line), scratch);
                start += g.width(line);
            }
        }
    }

    /// A line's first tile, its output left out.
    fn line_tile(&self, slice: usize, line: usize, block: Block, source: &Source) -> Tile<'_> {
        let Convolution { geometry: g, plan, functions, .. } = self.conv;
        let (slices, _) = g.taps_inside(0, slice);
        let (lines, first_line) = g.taps_inside(1, line);
        let [_, taps_h, taps_w] = g.filters.taps;
        let product = block.vectors * functions.lanes;
        let w_line = taps_w * g.inputs * product;
        let w_tap = [taps_h * w_line, w_line];
        let step = if plan.lanewise { functions.lanes } else { 1 };
        let x_tap = [
            source.slice,
            source.line * (g.dilations[1] / source.line_step).max(1),
            source.pixel * g.dilations[2],
        ];
        // Width taps whose inputs follow one another are one long tap.
        let (taps_w, depth) =
            if x_tap[2] == g.inputs * step { (1, taps_w * g.inputs) } else { (taps_w, g.inputs) };
        let offset = block.offset + slices.start * w_tap[0] + lines.start * w_tap[1];
        let column_step = plan.pack.map_or(1, |pack| pack.column_step);
        // A line without taps, all padding, names no input line.
        let from_first = first_line.saturating_sub(source.first_line) / source.line_step;
        Tile {
            x: source.base.wrapping_add(from_first * source.line),
            w: self.weights.as_ptr().wrapping_add(offset),
            y: std::ptr::null_mut(),
            x_pixel: source.pixel * g.strides[2] / column_step,
            y_pixel: 0,
            taps: [slices.len(), lines.len(), taps_w],
            x_tap,
            w_tap,
            depth,
            steps: &self.steps,
            channel: block.first,
            tail: 0,
        }
    }
}

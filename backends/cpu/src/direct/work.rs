//! One work item: a band of output lines of one image and group.

use std::ffi::c_void;
use std::ops::Range;

use super::Convolution;
use super::ahead::Ahead;
use super::input::{PackLine, pack_channels};
use super::output::{Finish, finish_channels};
use super::tile::Tile;
use super::weights::Panel;
use crate::activation::{Simple, Vectors};
use crate::epilogue::{Ending, Lanes, Steps};
use crate::row::RowStart;
use fuseplan_api::DataType;

/// One execution: what all of its work items share.
pub(super) struct Work<'a> {
    pub(super) conv: &'a Convolution,
    pub(super) steps: Steps<'a>,
    pub(super) ending: Option<Ending>,
    pub(super) input: *const c_void,
    pub(super) output: *mut c_void,
    /// The packed weights of all panels.
    pub(super) weights: &'a [f32],
}

// SAFETY: items write outputs of their own and only read everything else.
unsafe impl Sync for Work<'_> {}

/// Scratch memory of a thread.
pub(super) struct Scratch<'a> {
    /// The packed input of a band.
    pub(super) packed: &'a mut [f32],
    /// Which band that is: work items that differ only in their panels share it.
    pub(super) holds: Option<usize>,
    /// The sums of a band for one panel, while they wait to be finished.
    pub(super) sums: &'a mut [f32],
    pub(super) finish: &'a mut [f32],
}

/// A band of an image's lines, all of one slice, or a span of their columns.
struct Band {
    image: usize,
    slice: usize,
    lines: Range<usize>,
    columns: Range<usize>,
}

impl Band {
    /// Where its columns end in a line of `width`.
    fn columns(&self, width: usize) -> Range<usize> {
        self.columns.start..self.columns.end.min(width)
    }
}

/// Where micro-kernels find a band's input, packed or in place. Distances are in floats.
struct Source {
    /// First channel and column of the first line.
    base: *const f32,
    slice: usize,
    line: usize,
    /// The distance from one width tap to the next, and from one output's first tap to the next one's.
    tap: usize,
    pixel: usize,
    /// Channels that lie side by side: all of a chunk, or those of a block of an image that is read in place by filters of
    /// one tap, where the distance of taps is that of blocks.
    side_by_side: usize,
    /// The input line that lies at `base`, and how many input lines further the next one is.
    first_line: usize,
    line_step: usize,
}

impl Work<'_> {
    /// Computes a work item: a part of the panels for one band.
    ///
    /// # Safety
    /// The CPU has the instruction set; the tensors are the problem's; `scratch` is of the plan's sizes.
    pub(super) unsafe fn item(&self, item: usize, scratch: &mut Scratch<'_>) {
        let Convolution { geometry: g, plan, .. } = self.conv;
        let (part, unit) = (item % plan.parts, item / plan.parts);
        let (span, rest) = (unit % plan.spans, unit / plan.spans);
        let (band, rest) = (rest % plan.bands, rest / plan.bands);
        let (slice, rest) = (rest % g.output.lens[2], rest / g.output.lens[2]);
        let (group, image) = (rest % plan.groups(), rest / plan.groups());
        let (lines, next_lines) = (plan.lines(band), plan.lines(band + 1));
        let columns = span * plan.span..((span + 1) * plan.span).min(g.output.lens[4]);
        let band = Band { image, slice, lines, columns };
        let panels = &plan.panels[group * plan.panels_per_group..][..plan.panels_per_group];
        let fresh = scratch.holds.replace(unit) != Some(unit);
        let panels_of_part = &panels[plan.shares[part].clone()];
        if plan.chunk < g.inputs {
            // A chunk is packed again for every panel, since only one panel's sums can wait.
            for &panel in panels_of_part {
                for channels in plan.chunks() {
                    // SAFETY: the caller says what these functions ask for; the band and the chunk are the plan's.
                    unsafe {
                        let source = self.source(&band, panel, &channels, scratch.packed, true);
                        self.sums(&band, panel, &channels, &source, Ahead::Nothing, scratch);
                    }
                }
                // SAFETY: as of the sums, which all chunks have been added to.
                unsafe { self.finish(&band, panel, scratch) };
            }
            return;
        }
        let channels = 0..g.inputs;
        // SAFETY: the caller says what this function asks for; the band is the plan's.
        let source = unsafe { self.source(&band, panels[0], &channels, scratch.packed, fresh) };
        let residual = self.residual(image, slice, next_lines);
        // How many panels ask for pixels.
        let for_pixels = usize::from(plan.pack.is_none());
        for (at, &panel) in panels_of_part.iter().enumerate() {
            let ahead = if plan.reads_weights_once {
                panels_of_part.get(at + 1).map_or(Ahead::Nothing, |&next| Ahead::Filters(next))
            } else if at < for_pixels {
                Ahead::Pixels
            } else if let Some((from, len)) = residual {
                Ahead::Floats { from, len, share: [at - for_pixels, panels_of_part.len() - for_pixels] }
            } else {
                Ahead::Nothing
            };
            // SAFETY: as of the source, which all panels of a group read.
            unsafe {
                self.sums(&band, panel, &channels, &source, ahead, scratch);
                self.finish(&band, panel, scratch);
            }
        }
    }

    /// What a residual has for some lines of a slice, if all panels together read that, and it is pixels one behind the other.
    fn residual(&self, image: usize, slice: usize, lines: Range<usize>) -> Option<(*const f32, usize)> {
        let Convolution { geometry: g, plan, data_type, flat, .. } = self.conv;
        let (data, surface) = self.steps.residual()?;
        let all_panels = plan.groups() * plan.parts == 1;
        let follows = *flat && surface.strides[1] == 1 && surface.strides[4] == surface.lens[1];
        if !all_panels || !follows || *data_type != DataType::Float {
            return None;
        }
        let pixels: usize = lines.clone().map(|line| g.width(line)).sum();
        let start = RowStart { image, channel: 0, line: slice * g.output.lens[3] + lines.start, column: 0 };
        let from = data.cast::<f32>().wrapping_add(start.offset(surface));
        (pixels > 0).then_some((from, pixels * surface.strides[4]))
    }

    /// Finds a band's input, which is packed first if it must be and `packed` does not hold it yet, that is if `fresh`.
    ///
    /// # Safety
    /// As [`Work::item`].
    unsafe fn source(
        &self,
        band: &Band,
        panel: Panel,
        channels: &Range<usize>,
        packed: &mut [f32],
        fresh: bool,
    ) -> Source {
        let Convolution { geometry: g, plan, .. } = self.conv;
        let strides = g.input.strides;
        let channel = panel.first / g.outputs * g.inputs + channels.start;
        let (slices, first_slice) = g.taps_inside(0, band.slice);
        let origin = band.image * strides[0] + first_slice * strides[2];
        let Some(pack) = &plan.pack else {
            let first = origin + g.input.channel_offset(channel);
            let (side_by_side, tap) = if channels.len() > g.input.block {
                (g.input.block, g.input.block_stride)
            } else {
                (channels.len(), strides[4] * g.dilations[2])
            };
            return Source {
                base: (self.input.cast::<f32>())
                    .wrapping_add(first + band.columns.start * g.strides[2] * strides[4]),
                slice: strides[2] * g.dilations[0],
                line: strides[3],
                tap,
                pixel: strides[4] * g.strides[2],
                side_by_side,
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
                    let run = pack.columns * pack.pixel;
                    for tap in 0..pack.runs {
                        let first = band.columns.start * g.strides[2] + tap * g.dilations[2];
                        let (target, count) = (&mut target[tap * run..][..run], panel.count);
                        let channels = channel..channel + channels.len();
                        // SAFETY: the caller says that the tensors are the problem's; the line is one of the input's.
                        unsafe { self.pack_run(at, line, first, channels, count, target) };
                    }
                }
            }
        }
        let (tap, pixel) = if pack.runs > 1 {
            (pack.columns * pack.pixel, pack.pixel)
        } else {
            (pack.pixel * g.dilations[2], pack.pixel * g.strides[2] / pack.column_step)
        };
        let (line, line_step) = (pack.line, pack.line_step);
        let (base, first_line, side_by_side) = (packed.as_ptr(), needed.start, channels.len());
        Source { base, slice, line, tap, pixel, side_by_side, first_line, line_step }
    }

    /// Packs columns, from `first` on as counted with the padding, of the input line whose first element, of channel 0, is `at`:
    /// these channels, or for `count` outputs their vectors of them.
    ///
    /// # Safety
    /// As [`Work::item`]; it is a line of the input.
    unsafe fn pack_run(
        &self,
        at: usize,
        line: usize,
        first: usize,
        channels: Range<usize>,
        count: usize,
        target: &mut [f32],
    ) {
        let Convolution { geometry: g, plan, functions, data_type, .. } = self.conv;
        let Some(pack) = &plan.pack else { return };
        let (step, pad) = (pack.column_step, g.pads_before[2]);
        // Packed column j is input column first + j * step - pad.
        let until = |column: usize| (column + pad).saturating_sub(first).div_ceil(step);
        let before = until(0).min(pack.columns);
        let end = until(g.input_width(line)).clamp(before, pack.columns);
        let column = (first + before * step).saturating_sub(pad);
        let [_, channel_stride, _, _, column_stride] = g.input.strides;
        let at = at + column * column_stride;
        let line = PackLine {
            channels: pack.channels,
            count,
            source: self.input.wrapping_byte_add(at * data_type.size()),
            channel_stride,
            column_stride: step * column_stride,
            alternate: step == 2 && column_stride == 1,
            target: target.as_mut_ptr(),
            pixel: pack.pixel,
            columns: [before, end - before, pack.columns - end],
        };
        // SAFETY: the functions are of an instruction set that the CPU has, and of the tensors' type. The columns from
        // `before` to `end` are inside of the line, which the caller says is one of the input's; the target has the
        // length of a run.
        unsafe { pack_channels(functions.pack_line, line, &g.input, channels, data_type.size()) }
    }

    /// What is left behind the front for a panel whose micro-kernels write their sums straight to the output, if they do.
    fn direct(&self, panel: Panel) -> Option<Ending> {
        let Convolution { geometry: g, plan, functions, epilogue, data_type, .. } = self.conv;
        let direct = plan.lanes == Lanes::Channels
            && epilogue.output().strides[1] == 1
            && g.keeps_vectors(functions.lanes)
            && *data_type == DataType::Float
            && plan.chunk == g.inputs;
        let whole = panel.count.is_multiple_of(functions.lanes);
        self.ending.filter(|ending| direct && (whole || ending.last.is_none()))
    }

    /// The first pixel of a band's line.
    fn row(&self, band: &Band, panel: Panel, line: usize) -> RowStart {
        RowStart {
            image: band.image,
            channel: panel.first,
            line: band.slice * self.conv.geometry.output.lens[3] + line,
            column: band.columns.start,
        }
    }

    /// Computes what a chunk of channels adds to a panel of a band's output channels, and with the last chunk the
    /// front of the epilogue.
    ///
    /// # Safety
    /// As [`Work::item`].
    unsafe fn sums(
        &self,
        band: &Band,
        panel: Panel,
        channels: &Range<usize>,
        source: &Source,
        ahead: Ahead,
        scratch: &mut Scratch<'_>,
    ) {
        let Convolution { geometry: g, plan, functions, epilogue, .. } = self.conv;
        let lanes = functions.lanes;
        let surface = epilogue.output();
        let (ending, wide_pads) = (self.direct(panel), g.has_wide_pads());
        let Ending { simple, last, behind, .. } = ending.unwrap_or(Ending::NONE);
        let vector = panel.vectors * lanes;
        let tail = if ending.is_some() { panel.count - (panel.vectors - 1) * lanes } else { lanes };
        let second_vector = surface.channel_offset(panel.first + lanes) - surface.channel_offset(panel.first);
        let mut pixels = 0;
        for line in band.lines.clone() {
            // SAFETY: the line lies inside of the output, and of the sums.
            let (y, y_pixel, y_vector, residual) = unsafe {
                if let Some(Ending { residual, .. }) = ending {
                    let offset = self.row(band, panel, line).offset(surface);
                    let residual = residual.cast::<f32>();
                    let residual = if residual.is_null() { residual } else { residual.add(offset) };
                    (self.output.cast::<f32>().add(offset), surface.strides[4], second_vector, residual)
                } else {
                    (scratch.sums.as_mut_ptr().add(pixels * vector), vector, lanes, std::ptr::null())
                }
            };
            let width = band.columns(g.width(line)).len();
            let tiles = width.div_ceil(functions.tiles.rows[panel.vectors - 1]);
            // As many pixels in each tile of the line, or one less.
            let (least, larger) = (width / tiles.max(1), width % tiles.max(1));
            let first = self.line_tile(band.slice, line, panel, channels, source);
            let lines = [line - band.lines.start, band.lines.len()];
            let asked = ahead.of_line(
                &first,
                least + usize::from(larger > 0),
                lines.map(|lines| lines * tiles),
                self,
            );
            // A tile changes where it goes on, since short sums take less time than making another.
            let mut tile = Tile {
                y,
                y_pixel,
                y_vector,
                residual,
                simple,
                tail,
                ahead: asked.from,
                ahead_step: asked.step,
                ..first
            };
            let mut column = band.columns.start;
            for at in 0..tiles {
                let rows = least + usize::from(at < larger);
                let kernel = functions.tiles.get(plan.lanewise, panel.vectors, rows);
                let kept = wide_pads.then(|| {
                    let taps = g.taps_near(column..column + rows);
                    tile.keep(taps, channels.len(), vector)
                });
                // SAFETY: the functions are of an instruction set that the CPU has. The tile's pixels are inside of the
                // line, its taps inside of the band's input, and its weights inside of the panel's.
                unsafe { kernel(kept.as_ref().unwrap_or(&tile)) };
                if let Some(last) = &last {
                    let runs = panel.vectors;
                    let vectors =
                        Vectors { first: tile.y, pitch: y_pixel, count: rows, run_pitch: y_vector, runs };
                    // SAFETY: as of the kernel, which has just written these vectors.
                    unsafe { (functions.activate)(last, vectors) };
                    if let Some(step) = &behind {
                        for v in 0..runs {
                            let y = tile.y.wrapping_add(v * y_vector);
                            // SAFETY: these are the vectors that the kernel has written; the step is of the plan's channels.
                            unsafe {
                                (functions.fold_vectors)(step, panel.first + v * lanes, y, y_pixel, rows);
                            }
                        }
                    }
                }
                if !residual.is_null() {
                    tile.residual = tile.residual.wrapping_add(rows * y_pixel);
                }
                tile.x = tile.x.wrapping_add(rows * tile.x_pixel);
                tile.y = tile.y.wrapping_add(rows * y_pixel);
                tile.ahead = tile.ahead.wrapping_add(asked.tile);
                column += rows;
            }
            pixels += width;
        }
    }

    /// Writes a panel of a band's output channels from complete sums, unless micro-kernels have done so.
    ///
    /// # Safety
    /// As [`Work::item`].
    unsafe fn finish(&self, band: &Band, panel: Panel, scratch: &mut Scratch<'_>) {
        let Convolution { geometry: g, plan, functions, epilogue, flat, .. } = self.conv;
        if self.direct(panel).is_some() {
            return;
        }
        let vector = panel.vectors * functions.lanes;
        let width = |line: usize| band.columns(g.width(line)).len();
        let run = |line: usize, start: usize, pixels: usize, scratch: &mut Scratch<'_>| {
            let finish = Finish {
                steps: &self.steps,
                sums: scratch.sums.as_mut_ptr().wrapping_add(start * vector),
                pixel: vector,
                count: panel.count,
                pixels,
                start: self.row(band, panel, line),
                output: self.output,
                surface: epilogue.output(),
                lanes: plan.lanes,
                scratch: scratch.finish.as_mut_ptr(),
            };
            // SAFETY: the functions are of an instruction set that the CPU has, and of the output's type. The band lies
            // inside of the output, and scratch has its sums, which are complete, a vector behind them, and room for `finish`.
            unsafe { finish_channels(functions.finish, finish, epilogue, functions.lanes) }
        };
        if *flat {
            let pixels = band.lines.clone().map(width).sum();
            run(band.lines.start, 0, pixels, scratch);
        } else {
            let mut start = 0;
            for line in band.lines.clone() {
                run(line, start, width(line), scratch);
                start += width(line);
            }
        }
    }

    /// The first tile of a line, with no output yet.
    fn line_tile(
        &self,
        slice: usize,
        line: usize,
        panel: Panel,
        channels: &Range<usize>,
        source: &Source,
    ) -> Tile<'_> {
        let Convolution { geometry: g, plan, functions, .. } = self.conv;
        let (slices, _) = g.taps_inside(0, slice);
        let (lines, first_line) = g.taps_inside(1, line);
        let [_, taps_h, taps_w] = g.filters.taps;
        let product = panel.vectors * functions.lanes;
        let inputs = channels.len();
        let w_line = taps_w * inputs * product;
        let w_tap = [taps_h * w_line, w_line];
        let step = if plan.lanewise { functions.lanes } else { 1 };
        let x_tap = [source.slice, source.line * (g.dilations[1] / source.line_step).max(1), source.tap];
        let (taps_w, depth) = if source.side_by_side < inputs {
            (inputs / source.side_by_side, source.side_by_side)
        } else if x_tap[2] == inputs * step {
            // Width taps whose inputs follow one another are one long tap.
            (1, taps_w * inputs)
        } else {
            (taps_w, inputs)
        };
        let chunk = channels.start * g.filters.tap_count() * product;
        let offset = panel.offset + chunk + slices.start * w_tap[0] + lines.start * w_tap[1];
        // A line without taps, all padding, names no input line.
        let from_first = first_line.saturating_sub(source.first_line) / source.line_step;
        let w = self.weights.as_ptr().wrapping_add(offset);
        Tile {
            x: source.base.wrapping_add(from_first * source.line),
            w,
            // Weights are used again and again.
            ahead: w,
            ahead_step: 0,
            y: std::ptr::null_mut(),
            x_pixel: source.pixel,
            y_pixel: 0,
            y_vector: 0,
            taps: [slices.len(), lines.len(), taps_w],
            x_tap,
            w_tap,
            depth,
            steps: &self.steps,
            channel: panel.first,
            residual: std::ptr::null(),
            simple: Simple::Identity,
            tail: 0,
            goes_on: channels.start > 0,
            incomplete: channels.end < g.inputs,
        }
    }
}

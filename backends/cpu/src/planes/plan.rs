//! How the work is cut, and where a work item's input and sums lie in scratch. Distances there are in floats.

use std::ops::Range;

use fuseplan_api::Problem;
use fuseplan_api::volume::{Volume, spatial};

use super::tile::VECTORS;
use crate::direct::geometry::lanes_of;
use crate::direct::weights::{Filters, Panel};
use crate::epilogue::{Epilogue, Lanes};

/// Floats of a group's input, or of a few small groups': it should stay in the first-level cache.
const INPUT: usize = 5 * 1024;

/// Input channels that are copied at a time, where pixels are side by side.
const CHANNELS: usize = 8;

/// Floats of sums that wait: with a group's input they should stay in the first-level cache.
const SUMS: usize = 5 * 1024;

/// Bytes of channels that are transposed at a time, where these are side by side: memory is fast where it is read on and on.
const SIDE_BY_SIDE: usize = 512;

/// Floats of the input of so many channels: it should stay in the second-level cache.
const BLOCK: usize = 64 * 1024;

/// Pixels whose sums are finished at a time.
const RUN: usize = 1024;

/// Fewest lines of a work item, if the image has as many.
pub(super) const LINES: usize = VECTORS;

/// Input lines and columns that one kind of taps needs: those of a depth tap's slice, and where the filter goes in strides,
/// outputs that are neighbours have neighbours for inputs only among every so many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Phase {
    /// How many slices behind that of the first depth tap.
    pub(super) slice: usize,
    /// The first of them, counted with the padding.
    pub(super) line: usize,
    pub(super) column: usize,
    /// How many lines it has beyond those of the output.
    pub(super) more: usize,
}

/// What tiles are of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    /// Output channels of the largest tile.
    pub(super) most: usize,
    pub(super) lanes: usize,
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) input: Volume,
    pub(super) output: Volume,
    pub(super) filters: Filters,
    pub(super) groups: usize,
    /// Input and output channels of a group.
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) pads: [usize; 3],
    pub(super) strides: [usize; 3],
    /// Along which dimension the input is read, and the output written.
    pub(super) reads: Lanes,
    pub(super) writes: Lanes,
    /// Whether vectors of pixels go on over the ends of lines, and sums have the pitch of the input. Else, for depthwise
    /// convolution, tiles have a vector of columns in a few lines, and may write the output.
    pub(super) is_flat: bool,
    /// Lines of a band, and how many bands an image has; groups of a work item, and how many such blocks there are.
    pub(super) band: usize,
    pub(super) bands: usize,
    pub(super) block: usize,
    pub(super) blocks: usize,
    pub(super) phases: Vec<Phase>,
    /// From one line of the input to the next, from the lines of one phase to the next one's, and from one channel to the
    /// next.
    pub(super) line: usize,
    pub(super) phase: usize,
    pub(super) plane: usize,
    /// Columns of zeros that follow the last line of a phase, as they begin every line.
    pub(super) lead: usize,
    /// Where each product of an output is, from its first tap in its first channel on.
    pub(super) offsets: Vec<usize>,
    /// Output channels with sums that wait to be finished, at the least if there are as many, and lines of them.
    pub(super) stage: usize,
    pub(super) part: usize,
    /// From one line of sums to the next, and from one channel's to the next one's.
    pub(super) sums_line: usize,
    pub(super) sums_plane: usize,
    /// Pixels of a run.
    pub(super) run: usize,
    pub(super) rows: Rows,
}

impl Plan {
    pub(super) fn new(problem: &Problem, epilogue: &Epilogue, rows: Rows, threads: usize) -> Self {
        let Some((conv, weights)) = problem.conv() else { unreachable!("a solver accepted no convolution") };
        let weights = Volume::of(weights);
        let (input, output) = (Volume::with_all_strides(&problem.input), *epilogue.output());
        let [all_outputs, inputs, taps @ ..] = weights.lens;
        let (groups, lanes) = (conv.groups(), rows.lanes);
        let outputs = all_outputs / groups;
        let [pads, strides, dilations] =
            [spatial(conv.pads_before(), 0), spatial(conv.strides(), 1), spatial(conv.dilations(), 1)];
        let [_, _, depth, lines, width] = output.lens;
        let is_flat = inputs * outputs > 1;

        let phases = phases(taps, strides, dilations);
        let (step, taps_w) = (strides[2], taps[2]);
        let reach = (taps_w - 1) * dilations[2] / step;
        // The first column of the image among those of a phase.
        let first = |phase: usize| pads[2].saturating_sub(phase).div_ceil(step).min(width);
        let (line, lead) = if is_flat {
            // The padding behind a line is that in front of the next, as far as it goes.
            let of_tap = |tap: usize| {
                let column = tap * dilations[2];
                width + column / step - first(column % step)
            };
            let end = |phase: &Phase| (input.lens[4] + pads[2]).saturating_sub(phase.column).div_ceil(step);
            let widths = (0..taps_w).map(of_tap).chain(phases.iter().map(end));
            let line = widths.fold(width, usize::max).min(width + reach);
            (line, phases.iter().map(|phase| first(phase.column)).max().unwrap_or(0))
        } else {
            // Vectors go beyond the last column.
            ((width.next_multiple_of(lanes) + reach).next_multiple_of(lanes), 0)
        };

        let [reads, writes] = [lanes_of(&input), lanes_of(&output)];
        let more = |of: fn(&Phase) -> usize| phases.iter().map(of).max().unwrap_or(0);
        let more = more(|phase| phase.more);
        let of_line = line * phases.len() * inputs;
        // Slices of images.
        let images = input.lens[0] * depth;
        let is_transposed = [reads, writes].contains(&Lanes::Channels);
        let side_by_side = (SIDE_BY_SIDE / problem.output.data_type().size()).div_ceil(inputs.min(outputs));
        let most = if is_transposed {
            (BLOCK / (of_line * side_by_side.min(groups))).saturating_sub(more).max(LINES / 2)
        } else {
            (INPUT / of_line).saturating_sub(more).max(LINES)
        };
        let bands = lines.div_ceil(most);
        let bands =
            if threads == 1 { bands } else { bands.max((4 * threads).div_ceil(images * groups)).min(lines) };
        let band = lines.div_ceil(bands);
        let bands = lines.div_ceil(band);
        let phase = ((band + more) * line + lead).next_multiple_of(lanes) + lanes;
        // An odd number of cache lines, so that channels are not in the same sets of a cache.
        let plane = ((phase * phases.len()).div_ceil(16) | 1) * 16;
        let block = if is_transposed {
            side_by_side
        } else {
            (INPUT / (plane * inputs)).clamp(1, CHANNELS.div_ceil(inputs))
        };
        let block = block.min((super::MOST / (plane * inputs)).max(1)).min(groups);
        let block =
            if threads == 1 { block } else { block.min((images * groups * bands).div_ceil(4 * threads)) };
        // Equal blocks.
        let block = groups.div_ceil(groups.div_ceil(block));
        let mut offsets = Vec::new();
        for tap in taps_of(taps, dilations) {
            let of_tap = phases.iter().position(|phase| phase.has(tap, strides)).unwrap_or(0);
            let first = of_tap * phase + tap[1] / strides[1] * line + tap[2] / step;
            offsets.extend((0..inputs).map(|channel| channel * plane + first));
        }
        let sums_line = if is_flat { line } else { width };
        let (stage, floats) =
            if writes == Lanes::Channels { (block * outputs, BLOCK / 4) } else { (CHANNELS, SUMS) };
        let waiting = |stage: usize| (stage + rows.most - 1).min(block * outputs);
        let part = if is_flat { (floats / (waiting(stage) * sums_line)).clamp(1, band) } else { band };
        let part = band.div_ceil(band.div_ceil(part));
        let sums_plane = ((part * sums_line + VECTORS * lanes).div_ceil(16) | 1) * 16;
        let stage = stage.min((super::MOST / sums_plane).max(1));
        let run = if epilogue.is_flat() && sums_line == width { RUN } else { width };
        Plan {
            input,
            output,
            filters: Filters { taps, strides: weights.strides },
            groups,
            inputs,
            outputs,
            pads,
            strides,
            reads,
            writes,
            is_flat,
            band,
            bands,
            block,
            blocks: groups.div_ceil(block),
            line,
            phase,
            plane,
            lead,
            offsets,
            phases,
            stage,
            part,
            sums_line,
            sums_plane,
            run,
            rows,
        }
    }

    /// Output channels whose weights share vectors: those of whole groups, or of a part of one.
    fn panel(&self) -> usize {
        let lanes = self.rows.lanes;
        if self.outputs <= lanes { lanes / self.outputs * self.outputs } else { lanes }
    }

    /// How many panels there are.
    pub(super) fn panels(&self) -> usize {
        if self.outputs <= self.rows.lanes {
            (self.groups * self.outputs).div_ceil(self.panel())
        } else {
            self.groups * self.outputs.div_ceil(self.rows.lanes)
        }
    }

    pub(super) fn panel_at(&self, index: usize) -> Panel {
        let (lanes, channels) = (self.rows.lanes, self.groups * self.outputs);
        let (first, end) = if self.outputs <= lanes {
            (index * self.panel(), channels)
        } else {
            let (group, part) = (index / self.outputs.div_ceil(lanes), index % self.outputs.div_ceil(lanes));
            (group * self.outputs + part * lanes, (group + 1) * self.outputs)
        };
        let count = self.panel().min(end - first);
        Panel { first, count, vectors: 1, offset: index * lanes * self.offsets.len() }
    }

    /// Where the weights of an output channel begin.
    pub(super) fn weights_of(&self, channel: usize) -> usize {
        let (lanes, products) = (self.rows.lanes, self.offsets.len());
        let (panel, lane) = if self.outputs <= lanes {
            (channel / self.panel(), channel % self.panel())
        } else {
            let (group, row) = (channel / self.outputs, channel % self.outputs);
            (group * self.outputs.div_ceil(lanes) + row / lanes, row % lanes)
        };
        panel * lanes * products + lane
    }

    /// Floats of all weights.
    pub(super) fn weights(&self) -> usize {
        self.panels() * self.rows.lanes * self.offsets.len()
    }

    /// Rows of the tile that begins with this output channel of a group.
    pub(super) fn rows_at(&self, row: usize) -> usize {
        let left = self.outputs - row;
        self.rows.most.min(1 << left.ilog2())
    }

    /// Floats of scratch for the input of a work item, sums of output channels, each with a vector behind it, and runs or
    /// pixels that are finished.
    pub(super) fn scratch(&self) -> [usize; 3] {
        let lanes = self.rows.lanes;
        let waiting = (self.stage + self.rows.most - 1).min(self.block * self.outputs);
        let pixels = waiting.next_multiple_of(lanes) * lanes;
        [
            self.block * self.inputs * self.plane + lanes,
            waiting * self.sums_plane,
            self.run.next_multiple_of(lanes).max(pixels),
        ]
    }

    /// Work items.
    pub(super) fn items(&self) -> usize {
        self.input.lens[0] * self.blocks * self.output.lens[2] * self.bands
    }

    /// An item's image, slice, groups and lines.
    pub(super) fn item(&self, item: usize) -> (usize, usize, Range<usize>, Range<usize>) {
        let (band, item) = (item % self.bands, item / self.bands);
        let (slice, item) = (item % self.output.lens[2], item / self.output.lens[2]);
        let (block, image) = (item % self.blocks, item / self.blocks);
        let share = |index: usize, size: usize, all: usize| index * size..((index + 1) * size).min(all);
        (image, slice, share(block, self.block, self.groups), share(band, self.band, self.output.lens[3]))
    }
}

impl Phase {
    /// Whether it has what the tap at this distance from the first needs.
    fn has(&self, tap: [usize; 3], strides: [usize; 3]) -> bool {
        [self.slice, self.line, self.column] == [tap[0], tap[1] % strides[1], tap[2] % strides[2]]
    }
}

/// The floats of a group's input for [`LINES`] lines, at most.
pub(super) fn least_input(problem: &Problem, lanes: usize) -> Option<usize> {
    let (conv, weights) = problem.conv()?;
    let (output, weights) = (Volume::of(&problem.output), Volume::of(weights));
    let ([_, _, _, lines, width], [_, inputs, slices, rows, columns]) = (output.lens, weights.lens);
    let ([_, stride, step], [_, dilation, apart]) =
        (spatial(conv.strides(), 1), spatial(conv.dilations(), 1));
    let reach = |taps: usize, dilation: usize, stride: usize| (taps - 1).saturating_mul(dilation) / stride;
    let line = width.saturating_add(reach(columns, apart, step)).saturating_add(2 * lanes);
    let lines = lines.min(LINES).saturating_add(reach(rows, dilation, stride) + 1);
    let phases = stride.min(rows).saturating_mul(step.min(columns)).saturating_mul(slices);
    Some(line.saturating_mul(lines).saturating_mul(phases).saturating_mul(inputs))
}

/// How far each tap is from the first.
fn taps_of([slices, lines, columns]: [usize; 3], by: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    (0..slices * lines * columns).map(move |n| {
        let [slice, line, column] = [n / (lines * columns), n / columns % lines, n % columns];
        [slice * by[0], line * by[1], column * by[2]]
    })
}

/// The phases that some tap needs.
fn phases(taps: [usize; 3], strides: [usize; 3], dilations: [usize; 3]) -> Vec<Phase> {
    let mut phases = Vec::<Phase>::new();
    for tap in taps_of(taps, dilations) {
        let [slice, line, column] = [tap[0], tap[1] % strides[1], tap[2] % strides[2]];
        let more = tap[1] / strides[1];
        match phases.iter_mut().find(|phase| phase.has(tap, strides)) {
            Some(phase) => phase.more = phase.more.max(more),
            None => phases.push(Phase { slice, line, column, more }),
        }
    }
    phases
}

//! The convolution's shape, seen as lines of output pixels.

use std::ops::Range;

use fuseplan_api::Problem;
use fuseplan_api::volume::{Volume, spatial};

use super::weights::Filters;
use crate::epilogue::{Epilogue, Lanes};

/// Into which lines an image is cut where pixels need not know their neighbours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines {
    /// Pixels of the longest line, unless there is no second of at least as many.
    pub(crate) longest: usize,
    /// Pixels of the shortest line that is worth a thread.
    pub(crate) shortest: usize,
    /// Threads that have as many lines each, where lines are few.
    pub(crate) threads: usize,
}

impl Lines {
    /// Lines so long whoever computes them.
    pub(crate) fn of(longest: usize) -> Self {
        Lines { longest, shortest: longest, threads: 1 }
    }

    /// Pixels of each line but the last, which has no more.
    fn len(self, pixels: usize) -> usize {
        let Lines { longest, shortest, threads } = self;
        let lines = pixels.div_ceil(longest);
        if threads > 1 && lines < FEW * threads {
            let lines = lines.next_multiple_of(threads).min(pixels.div_ceil(shortest));
            pixels.div_ceil(lines.max(1))
        } else if pixels < 2 * longest {
            pixels
        } else {
            longest
        }
    }
}

/// Where there are so many work items for each thread, it makes no difference whether all have as many.
pub(super) const FEW: usize = 8;

/// A convolution in the order depth, height, width.
#[derive(Debug, Clone)]
pub(crate) struct Geometry {
    pub(crate) groups: usize,
    /// Input and output channels of a group.
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) input: Volume,
    pub(crate) output: Volume,
    pub(crate) filters: Filters,
    pub(crate) pads_before: [usize; 3],
    pub(crate) pads_after: [usize; 3],
    pub(crate) strides: [usize; 3],
    pub(crate) dilations: [usize; 3],
    /// Columns of the last line, where an image was cut into lines of another length than its own.
    last_width: usize,
}

impl Geometry {
    /// The shape of a problem. Where a filter has one tap, no stride and no padding, pixels need not know
    /// their neighbours: the image, and the batch if it can be, becomes one line that is cut into
    /// `lines`. The epilogue's tensors are reshaped likewise.
    pub(crate) fn new(problem: &Problem, epilogue: &mut Epilogue, lines: Lines) -> Self {
        let Some((conv, weights)) = problem.conv() else { unreachable!("a solver accepted no convolution") };
        let weights = Volume::of(weights);
        let [filters, inputs, taps @ ..] = weights.lens;
        let mut geometry = Geometry {
            groups: conv.groups(),
            inputs,
            outputs: filters / conv.groups(),
            input: Volume::with_all_strides(&problem.input),
            output: *epilogue.output(),
            filters: Filters { taps, strides: weights.strides },
            pads_before: spatial(conv.pads_before(), 0),
            pads_after: spatial(conv.pads_after(), 0),
            strides: spatial(conv.strides(), 1),
            dilations: spatial(conv.dilations(), 1),
            last_width: epilogue.output().lens[4],
        };
        let is_padded = [geometry.pads_before, geometry.pads_after] != [[0; 3]; 2];
        if taps == [1; 3] && geometry.strides == [1; 3] && !is_padded {
            geometry.cut(epilogue, lines);
        }
        geometry
    }

    fn cut(&mut self, epilogue: &mut Epilogue, lines: Lines) {
        if !self.input.is_flat() || !epilogue.is_flat() {
            return;
        }
        let plane = self.output.plane();
        let images = self.output.lens[0];
        if plane == 1 {
            // No distance leads from an image's one pixel to another, so that it can be the one from image to image.
            let line_up = |v: &mut Volume| v.strides[4] = v.strides[0];
            epilogue.surfaces_mut().iter_mut().for_each(line_up);
            line_up(&mut self.input);
        }
        let joins = |v: &Volume| v.strides[0] == plane * v.strides[4];
        let joined = joins(&self.input) && epilogue.surfaces_mut().iter().all(joins);
        let (images, pixels) = if joined { (1, images * plane) } else { (images, plane) };
        let width = lines.len(pixels);
        let lines = pixels.div_ceil(width);
        self.last_width = pixels - (lines - 1) * width;
        let reshape = |v: &mut Volume| {
            let [image, channel, .., column] = v.strides;
            *v = Volume {
                lens: [images, v.lens[1], 1, lines, width],
                strides: [image, channel, 0, width * column, column],
                ..*v
            };
        };
        epilogue.surfaces_mut().iter_mut().for_each(reshape);
        reshape(&mut self.input);
        self.output = *epilogue.output();
    }

    /// Whether the channels that a tile reads lie side by side wherever it begins, or in whole blocks that a filter of one tap
    /// takes for taps.
    pub(crate) fn reads_whole_blocks(&self) -> bool {
        let (block, inputs) = (self.input.block, self.inputs);
        self.groups * inputs <= block
            || block.is_multiple_of(inputs)
            || inputs.is_multiple_of(block) && self.filters.taps == [1; 3]
    }

    /// Whether vectors of output channels, which begin with their group, each lie in one block of the output.
    pub(crate) fn keeps_vectors(&self, lanes: usize) -> bool {
        let block = self.output.block;
        self.groups * self.outputs <= block
            || block.is_multiple_of(lanes) && (self.groups == 1 || self.outputs.is_multiple_of(lanes))
    }

    /// Output columns of a line of a slice.
    pub(crate) fn width(&self, line: usize) -> usize {
        let [_, _, _, lines, width] = self.output.lens;
        if line + 1 == lines { self.last_width } else { width }
    }

    /// Input columns of an input line.
    pub(crate) fn input_width(&self, line: usize) -> usize {
        let [_, _, _, lines, width] = self.output.lens;
        // Only a cut image, whose input is cut likewise, has a shorter last line.
        if self.last_width < width && line + 1 == lines { self.last_width } else { self.input.lens[4] }
    }

    /// Input lines from the first to the last that output lines need.
    pub(crate) fn input_lines(&self, lines: Range<usize>) -> Range<usize> {
        let needed = lines.map(|line| self.taps_inside(1, line)).filter(|(taps, _)| !taps.is_empty());
        let needed = needed.map(|(taps, first)| first..first + (taps.len() - 1) * self.dilations[1] + 1);
        needed.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
    }

    /// Output columns of a line of `width` whose taps are all inside of the input.
    pub(crate) fn inner_columns(&self, width: usize) -> Range<usize> {
        let (stride, pad) = (self.strides[2], self.pads_before[2]);
        let reach = (self.filters.taps[2] - 1) * self.dilations[2];
        let end = (self.input.lens[4] + pad).checked_sub(reach).map_or(0, |room| room.div_ceil(stride));
        let start = pad.div_ceil(stride).min(width);
        start..end.clamp(start, width)
    }

    /// The taps, along dimension `d` (depth, height, width), that lie inside of the input for output `at`, and
    /// the input index of the first.
    pub(crate) fn taps_inside(&self, d: usize, at: usize) -> (Range<usize>, usize) {
        let (start, pad) = (at * self.strides[d], self.pads_before[d]);
        let (dilation, extent) = (self.dilations[d], self.input.lens[2 + d] + pad);
        let first = pad.saturating_sub(start).div_ceil(dilation).min(self.filters.taps[d]);
        let end = extent.saturating_sub(start).div_ceil(dilation).min(self.filters.taps[d]);
        let index = (start + first * dilation).saturating_sub(pad);
        (first..end.max(first), index)
    }

    /// Whether padding to the left or right is so wide that all outputs of a tile may have a tap there.
    pub(crate) fn has_wide_pads(&self) -> bool {
        self.filters.taps[2] > 1 && self.pads_before[2].max(self.pads_after[2]) >= 16
    }

    /// Width taps that lie inside of the input for some of these output columns; others may be among them.
    pub(crate) fn taps_near(&self, columns: Range<usize>) -> Range<usize> {
        let (first, _) = self.taps_inside(2, columns.end - 1);
        let (last, _) = self.taps_inside(2, columns.start);
        first.start.min(last.end)..last.end
    }

    /// Whether some output needs padding to the left or right.
    pub(crate) fn pads_columns(&self) -> bool {
        let width = self.output.lens[4];
        let reach = (width - 1) * self.strides[2] + (self.filters.taps[2] - 1) * self.dilations[2];
        self.pads_before[2] > 0 || reach >= self.input.lens[4]
    }
}

/// Along which dimension of a tensor to go with vectors.
pub(crate) fn lanes_of(volume: &Volume) -> Lanes {
    let [_, channels, _, _, width] = volume.lens;
    let unit = |d: usize| volume.strides[d] == 1;
    if unit(1) && channels > 1 || width == 1 && !unit(4) { Lanes::Channels } else { Lanes::Width }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_as_many_lines() {
        let lens = |pixels: usize, threads: usize| {
            let len = Lines { longest: 112, shortest: 14, threads }.len(pixels);
            (pixels.div_ceil(len), len)
        };
        // 28x28, 14x14 and 7x7 pixels.
        assert_eq!([784, 196, 49].map(|pixels| lens(pixels, 1)), [(7, 112), (1, 196), (1, 49)]);
        assert_eq!([784, 196, 49].map(|pixels| lens(pixels, 2)), [(8, 98), (2, 98), (2, 25)]);
        assert_eq!([784, 196, 49].map(|pixels| lens(pixels, 3)), [(9, 88), (3, 66), (3, 17)]);
        // No line is shorter than a tile for that, and where lines are many they are long.
        assert_eq!(lens(49, 16), (4, 13));
        assert_eq!(lens(1, 2), (1, 1));
        assert_eq!(lens(112 * 17, 2), (17, 112));
    }
}

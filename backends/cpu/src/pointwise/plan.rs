//! How the work is cut: pixels into blocks, blocks into panels of vectors, filters into parts and into the rows of tiles.

use std::ops::Range;

use fuseplan_api::Problem;
use fuseplan_api::volume::Volume;

#[cfg(target_arch = "x86_64")]
use crate::bf16::{RowsOfPairs, STEP};

/// Factors of a block's input: it should stay in the second-level cache.
const BLOCK: usize = 64 * 1024;

/// Pixels of a block: where channels are many, each filter should be read for so many at least, and where they are few the
/// sums of a tile's filters should stay in the first-level cache.
const FEWEST: usize = 64;
const MOST: usize = 512;

/// Filters of a part, if possible: for fewer a block's input is not worth packing.
const PART: usize = 64;

/// What is multiplied: 32 bits each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Factors {
    /// A channel as f32.
    Floats,
    /// Two channels as bf16.
    #[cfg(target_arch = "x86_64")]
    Pairs,
}

impl Factors {
    /// How many there are of so many channels.
    fn count(self, channels: usize) -> usize {
        match self {
            Factors::Floats => channels,
            // As vectors read them, whole steps.
            #[cfg(target_arch = "x86_64")]
            Factors::Pairs => channels.div_ceil(2).next_multiple_of(STEP),
        }
    }

    /// Filters of the next tile of so many, of `rows` at most.
    fn next_rows(self, filters: usize, rows: usize) -> usize {
        match self {
            Factors::Floats => filters.div_ceil(filters.div_ceil(rows)),
            #[cfg(target_arch = "x86_64")]
            Factors::Pairs => RowsOfPairs::next(filters),
        }
    }
}

/// A convolution with 1x1 filters.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) groups: usize,
    /// Input and output channels of a group.
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// Factors that a pixel's input channels, or a filter's, are.
    pub(super) depth: usize,
    /// The input, whose images are lines.
    pub(super) input: Volume,
    /// Strides of the filters' output and input channels.
    pub(super) filters: [usize; 2],
    /// Pixels of all images.
    pub(super) pixels: usize,
    /// Pixels of the largest block, whole panels, and how many blocks there are.
    pub(super) block: usize,
    pub(super) blocks: usize,
    /// What is multiplied, filters of the largest tile, and how many parts a group's filters have.
    pub(super) factors: Factors,
    pub(super) rows: usize,
    pub(super) parts: usize,
    /// Factors from one filter's weights to the next one's, and of all of them.
    pub(super) pitch: usize,
    pub(super) weights: usize,
    lanes: usize,
}

/// Makes one line of an image's positions, which are evenly apart.
pub(super) fn as_line(volume: &mut Volume) {
    let (plane, step) = (volume.plane(), volume.position_stride().unwrap_or(0));
    let [images, channels, ..] = volume.lens;
    let [image, channel, ..] = volume.strides;
    *volume = Volume::new([images, channels, 1, 1, plane], [image, channel, 0, 0, step]);
}

impl Plan {
    pub(super) fn new(
        problem: &Problem,
        lanes: usize,
        factors: Factors,
        rows: usize,
        threads: usize,
    ) -> Self {
        let Some((conv, weights)) = problem.conv() else { unreachable!("a solver accepted no convolution") };
        let weights = Volume::of(weights);
        let groups = conv.groups();
        let ([filters, inputs, ..], [output, channel, ..]) = (weights.lens, weights.strides);
        let outputs = filters / groups;
        let mut input = Volume::with_all_strides(&problem.input);
        as_line(&mut input);
        let pixels = input.pixels();
        let depth = factors.count(inputs);
        let panel = 2 * lanes;
        let most = (BLOCK / depth).clamp(FEWEST, MOST) / panel * panel;
        let panels = pixels.div_ceil(panel);
        let mut blocks = pixels.div_ceil(most);
        // Equal shares of the pixels for the threads, or else of the filters.
        if groups * blocks < 8 * threads {
            blocks = blocks.next_multiple_of(threads).min(pixels.div_ceil(FEWEST.max(panel))).max(blocks);
        }
        let blocks = blocks.min(panels);
        let block = panels.div_ceil(blocks) * panel;
        let parts = (4 * threads).div_ceil(groups * blocks).min(outputs.div_ceil(PART));
        let parts = if threads == 1 { 1 } else { parts };
        // An odd number of cache lines, so that filters are not in the same sets of a cache.
        let pitch = (depth.div_ceil(16) | 1) * 16;
        Plan {
            groups,
            inputs,
            outputs,
            depth,
            input,
            filters: [output, channel],
            pixels,
            block,
            blocks,
            factors,
            rows,
            parts,
            pitch,
            weights: filters * pitch,
            lanes,
        }
    }

    /// The pixels of a block, counted through all images.
    pub(super) fn pixels_of(&self, block: usize) -> Range<usize> {
        let panel = 2 * self.lanes;
        let panels = self.pixels.div_ceil(panel);
        let first = |block: usize| self.pixels.min(panels * block / self.blocks * panel);
        first(block)..first(block + 1)
    }

    /// The lanes of a block of these pixels, cut into panels of two vectors, of which the last may be one.
    pub(super) fn panels_of(&self, pixels: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let lanes = pixels.len().next_multiple_of(self.lanes);
        let panel = 2 * self.lanes;
        (0..lanes).step_by(panel).map(move |first| first..lanes.min(first + panel))
    }

    /// The filters of a part of a group, cut into the rows of tiles.
    pub(super) fn filters_of(&self, part: usize) -> impl Iterator<Item = Range<usize>> {
        let share = |part: usize| self.outputs * part / self.parts;
        let mut rest = share(part)..share(part + 1);
        std::iter::from_fn(move || {
            let first = rest.start;
            rest.start +=
                if rest.is_empty() { return None } else { self.factors.next_rows(rest.len(), self.rows) };
            Some(first..rest.start)
        })
    }

    /// The images' parts of some pixels: image, and columns.
    pub(super) fn segments(&self, pixels: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        let plane = self.input.plane();
        let images = pixels.start / plane..pixels.end.div_ceil(plane);
        images.map(move |image| {
            let (first, end) = (pixels.start.max(image * plane), pixels.end.min((image + 1) * plane));
            (image, first - image * plane..end - image * plane)
        })
    }

    /// Factors of a block's input.
    pub(super) fn packed_len(&self) -> usize {
        self.block * self.depth
    }

    /// Floats of the sums of a block with a tile's filters, a line of whole vectors for each.
    pub(super) fn sums_len(&self) -> usize {
        self.block * self.rows
    }
}

//! How the work is cut: output channels into panels, tiles into units and blocks.
//!
//! A unit is some tiles side by side: those of a line of tiles, or a part of it. Units follow one another through lines
//! and images, and some of them are a block, whose transformed input is in a cache while panels of output channels read
//! it. Blocks are dealt out to threads, which have memory of their own for them. Where there are too few tiles for that,
//! the panels of a block are dealt out too, in parts, and each thread transforms the block's input for itself: that is little
//! beside the products, and takes less time than fetching what another has transformed, line by line, out of its cache.

use std::ops::Range;

use fuseplan_api::Problem;
use fuseplan_api::volume::{Volume, spatial};

use crate::direct::weights::{Filters, Panel};

/// Tiles of the longest unit, so that its lines stay in the first-level cache.
const UNIT: usize = 28;

/// Floats of transformed input that a thread's block may have: most of it should stay in the second-level cache.
const PRIVATE: usize = 160 * 1024;

/// Tiles that should read each of the transformed filters, whatever caches say.
const REUSE: usize = 28;

/// Tiles that each thread has if all read all of the filters, rather than a part each.
const ALONE: usize = 20;

/// Input channels that are transformed at a time, where more would take too much memory.
const CHUNK: usize = 4096;

/// How much is computed at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) unit: usize,
    pub(super) private: usize,
    pub(super) reuse: usize,
    pub(super) alone: usize,
    pub(super) chunk: usize,
}

impl Limits {
    pub(super) const USUAL: Limits =
        Limits { unit: UNIT, private: PRIVATE, reuse: REUSE, alone: ALONE, chunk: CHUNK };
}

/// A convolution by tiles of `out x out` outputs.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) groups: usize,
    /// Input channels of a group.
    pub(super) inputs: usize,
    pub(super) input: Volume,
    pub(super) output: Volume,
    pub(super) filters: Filters,
    /// Padding above and to the left.
    pub(super) pads: [usize; 2],
    /// Extents of a tile of the output, and of one of the input.
    pub(super) out: usize,
    pub(super) extent: usize,
    /// Lines of tiles of an image, and tiles of a line.
    pub(super) tiles: [usize; 2],
    /// Units of a line of tiles.
    pub(super) segments: usize,
    /// Panels of output channels, of all groups.
    pub(super) panels: Vec<Panel>,
    /// Floats of all transformed filters.
    pub(super) weights: usize,
    pub(super) blocks: usize,
    /// Parts of a block that are dealt out, each with some of the panels of a group.
    pub(super) parts: usize,
    /// Input channels that are transformed at a time.
    pub(super) chunk: usize,
    /// Tiles of the largest block and of the largest unit.
    pub(super) most: usize,
    pub(super) unit: usize,
    lanes: usize,
}

/// So that what lies a multiple of it apart is not in the same sets of a cache: an odd number of cache lines.
fn spread(len: usize) -> usize {
    (len.div_ceil(16) | 1) * 16
}

impl Plan {
    pub(super) fn new(problem: &Problem, out: usize, lanes: usize, threads: usize, limits: Limits) -> Self {
        let Some((conv, weights)) = problem.conv() else { unreachable!("a solver accepted no convolution") };
        let weights = Volume::of(weights);
        let [filters, inputs, taps @ ..] = weights.lens;
        let [_, above, left] = spatial(conv.pads_before(), 0);
        let output = Volume::with_all_strides(&problem.output);
        let [images, _, _, height, width] = output.lens;
        let tiles = [height.div_ceil(out), width.div_ceil(out)];
        let extent = out + taps[2] - 1;
        let (groups, points) = (conv.groups(), extent * extent);
        let (panels, floats) = panels(groups, filters / groups, inputs * points, lanes);
        let lines = images * tiles[0];
        let mut segments = tiles[1].div_ceil(limits.unit);
        // Where items are few, all threads should have as many.
        let few = |items: usize| threads > 1 && items < 8 * threads && !items.is_multiple_of(threads);
        let alone = lines * tiles[1] * groups >= limits.alone * threads;
        if alone && few(lines * segments * groups) {
            let even = |s: &usize| (lines * s * groups).is_multiple_of(threads);
            segments = (segments..=tiles[1]).find(even).unwrap_or(segments);
        }
        let units = lines * segments;
        let unit = tiles[1].div_ceil(segments);
        let chunk = inputs.min(limits.chunk);
        // Units of a block.
        let fits = {
            let tiles = (limits.private / (points * (chunk + 16))).max(limits.reuse);
            (tiles / unit).max(1)
        };
        let (mut blocks, mut parts) = (units.div_ceil(fits), 1);
        if few(blocks * groups) && !alone {
            let most = panels.len() / groups;
            parts = (1..=most).find(|p| !few(blocks * groups * p)).unwrap_or(most);
        }
        if few(blocks * groups * parts) {
            blocks = (blocks..=units).find(|b| !few(b * groups * parts)).unwrap_or(units);
        }
        let mut plan = Plan {
            groups,
            inputs,
            input: Volume::with_all_strides(&problem.input),
            output,
            filters: Filters { taps, strides: weights.strides },
            pads: [above, left],
            out,
            extent,
            tiles,
            segments,
            panels,
            weights: floats,
            blocks,
            parts,
            chunk,
            most: 0,
            unit,
            lanes,
        };
        plan.most = (0..blocks).map(|block| plan.tiles_of(&plan.units(block)).len()).max().unwrap_or(0);
        plan
    }

    pub(super) fn points(&self) -> usize {
        self.extent * self.extent
    }

    /// The units of a block.
    pub(super) fn units(&self, block: usize) -> Range<usize> {
        let units = self.output.lens[0] * self.tiles[0] * self.segments;
        units * block / self.blocks..units * (block + 1) / self.blocks
    }

    /// The tiles of some units, counted through lines and images.
    pub(super) fn tiles_of(&self, units: &Range<usize>) -> Range<usize> {
        self.first_tile(units.start)..self.first_tile(units.end)
    }

    fn first_tile(&self, unit: usize) -> usize {
        unit / self.segments * self.tiles[1] + unit % self.segments * self.tiles[1] / self.segments
    }

    /// The image and the line of tiles of a unit, and its tiles within the line.
    pub(super) fn place(&self, unit: usize) -> (usize, usize, Range<usize>) {
        let (line, segment) = (unit / self.segments, unit % self.segments);
        let start = |segment: usize| segment * self.tiles[1] / self.segments;
        (line / self.tiles[0], line % self.tiles[0], start(segment)..start(segment + 1))
    }

    /// The panels of a part, all of which read the same input channels.
    pub(super) fn panels_of(&self, group: usize, part: usize) -> &[Panel] {
        let count = self.panels.len() / self.groups;
        let start = |part: usize| group * count + count * part / self.parts;
        &self.panels[start(part)..start(part + 1)]
    }

    /// Vectors of a chunk's input channels.
    pub(super) fn vectors(&self) -> usize {
        self.chunk.div_ceil(self.lanes)
    }

    /// The distance from a tile to the next in transformed input, and from a point to the next.
    pub(super) fn input_strides(&self) -> [usize; 2] {
        let channels = self.vectors() * self.lanes;
        let tile = if channels.is_multiple_of(128) { channels + 16 } else { channels };
        [tile, spread(tile * self.most)]
    }

    /// Floats of a block's transformed input.
    pub(super) fn input_len(&self) -> usize {
        self.input_strides()[1] * self.points()
    }

    /// The distance from a tile to the next in a panel's sums, and from a point to the next.
    pub(super) fn sum_strides(&self) -> [usize; 2] {
        let tile = 2 * self.lanes;
        [tile, spread(tile * self.most)]
    }

    /// Floats of a panel's sums.
    pub(super) fn sums_len(&self) -> usize {
        self.sum_strides()[1] * self.points()
    }

    /// Floats of the lines under a unit's tiles, of a vector of channels.
    pub(super) fn lines_len(&self) -> usize {
        self.extent * self.line_len()
    }

    /// Floats of one of these lines.
    pub(super) fn line_len(&self) -> usize {
        ((self.unit - 1) * self.out + self.extent) * self.lanes
    }

    /// Floats of a unit's outputs of a panel, and of a vector from the last block of the last pixel.
    pub(super) fn output_len(&self) -> usize {
        (self.out * self.unit * self.out * 2 + 1) * self.lanes
    }
}

/// The panels of all groups, and the floats of their transformed filters.
fn panels(groups: usize, outputs: usize, products: usize, lanes: usize) -> (Vec<Panel>, usize) {
    let (mut panels, mut offset) = (Vec::new(), 0);
    for group in 0..groups {
        for first in (0..outputs).step_by(2 * lanes) {
            let count = (outputs - first).min(2 * lanes);
            let vectors = count.div_ceil(lanes);
            panels.push(Panel { first: group * outputs + first, count, vectors, offset });
            offset += vectors * lanes * products;
        }
    }
    (panels, offset)
}

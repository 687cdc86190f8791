//! How the work is cut: blocks of channels, bands of lines, items for threads.

use super::geometry::{Geometry, lanes_of};
use super::input::Channels;
use super::weights::Block;
use crate::epilogue::Lanes;

/// Floats of packed input that a band may have: with the weights of a block it should stay in the
/// second-level cache.
const PACK: usize = 96 * 1024;

/// Floats of a first-level cache.
const L1: usize = 8 * 1024 + 4 * 1024;

/// Pixels whose sums may wait in scratch for being finished.
const WAITING: usize = 1024;

/// The pack of a band's input.
#[derive(Debug, Clone, Copy)]
pub(super) struct PackPlan {
    pub(super) channels: Channels,
    /// Floats of a pixel and of a line.
    pub(super) pixel: usize,
    pub(super) line: usize,
    pub(super) columns: usize,
    /// Input columns and lines from one packed one to the next. Where there is one tap, only those are
    /// packed that a stride does not leap over.
    pub(super) column_step: usize,
    pub(super) line_step: usize,
    /// The most lines, over all slices, that a band needs.
    pub(super) lines: usize,
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) lanewise: bool,
    pub(super) blocks: Vec<Block>,
    /// Blocks that read the same input channels.
    pub(super) blocks_per_group: usize,
    pub(super) weights: usize,
    pub(super) pack: Option<PackPlan>,
    /// Lines of a band.
    pub(super) band: usize,
    pub(super) bands: usize,
    /// Parts into which the blocks of a group are dealt.
    pub(super) parts: usize,
    /// How the output is written.
    pub(super) lanes: Lanes,
}

impl Plan {
    pub(super) fn new(g: &Geometry, lanewise: bool, float: bool, lanes: usize, threads: usize) -> Self {
        let (blocks, weights) = blocks(g, lanewise, lanes);
        let blocks_per_group = if lanewise { 1 } else { blocks.len() / g.groups };
        let pack = pack(g, lanewise, float, lanes);
        let [images, _, depth, height, width] = g.output.lens;
        let packed_line = g.inputs * if lanewise { lanes } else { 1 } * g.strides[1] * g.strides[2] * width;
        let direct = lanes_of(&g.output) == Lanes::Channels;
        let small =
            direct && g.filters.taps[1] == 1 && g.inputs * g.filters.tap_count() * 2 * lanes <= L1 / 3;
        let pack_limit = if small { L1 / 2 } else { PACK };
        let fits = (pack_limit / packed_line.max(1)).min(WAITING / width).clamp(1, height);
        let groups = blocks.len() / blocks_per_group;
        let (mut bands, mut parts) = (height.div_ceil(fits), 1);
        let items = |bands: usize| images * groups * depth * bands;
        if threads > 1 && !items(bands).is_multiple_of(threads) && items(bands) < 8 * threads {
            // Deal out what is larger: weights, or the input.
            if weights > g.input.plane() * g.inputs && blocks_per_group >= threads {
                parts = threads;
            } else {
                bands = (bands..=height).find(|&b| items(b).is_multiple_of(threads)).unwrap_or(height);
            }
        }
        let band = height.div_ceil(bands);
        let bands = height.div_ceil(band);
        let pack = pack.map(|pack| {
            let lines = if pack.line_step > 1 || g.filters.taps[1] == 1 {
                band
            } else {
                (band - 1) * g.strides[1] + (g.filters.taps[1] - 1) * g.dilations[1] + 1
            };
            PackPlan { lines: lines.min(g.input.lens[3].max(band)), ..pack }
        });
        Plan {
            lanewise,
            blocks,
            blocks_per_group,
            weights,
            pack,
            band,
            bands,
            parts,
            lanes: lanes_of(&g.output),
        }
    }

    /// Floats of a band's packed input.
    pub(super) fn pack_len(&self, g: &Geometry) -> usize {
        self.pack.map_or(0, |pack| pack.line * pack.lines * g.filters.taps[0])
    }

    /// Pixels of a band.
    pub(super) fn pixels(&self, g: &Geometry) -> usize {
        self.band * g.output.lens[4]
    }

    /// Units of blocks that read the same input channels.
    pub(super) fn groups(&self) -> usize {
        self.blocks.len() / self.blocks_per_group
    }

    pub(super) fn items(&self, g: &Geometry) -> usize {
        g.output.lens[0] * self.groups() * g.output.lens[2] * self.bands * self.parts
    }
}

/// The blocks of all groups, and the floats of their packed weights.
fn blocks(g: &Geometry, lanewise: bool, lanes: usize) -> (Vec<Block>, usize) {
    let products = g.inputs * g.filters.tap_count();
    let mut blocks = Vec::new();
    let mut offset = 0;
    let mut add = |first: usize, count: usize| {
        let vectors = count.div_ceil(lanes);
        blocks.push(Block { first, count, vectors, offset });
        offset += vectors * lanes * products;
    };
    if lanewise {
        let channels = g.groups * g.outputs;
        let size = g.outputs * (lanes / g.outputs.max(g.inputs)).max(1);
        (0..channels).step_by(size).for_each(|first| add(first, size.min(channels - first)));
    } else {
        for group in 0..g.groups {
            for first in (0..g.outputs).step_by(2 * lanes) {
                add(group * g.outputs + first, (g.outputs - first).min(2 * lanes));
            }
        }
    }
    (blocks, offset)
}

/// How the input is packed, if it cannot be read where it is.
fn pack(g: &Geometry, lanewise: bool, float: bool, lanes: usize) -> Option<PackPlan> {
    // Pixels at a multiple of this distance share the few places of a cache set.
    const ALIAS: usize = 512;
    let in_place = float
        && !lanewise
        && (g.input.strides[1] == 1 || g.inputs == 1)
        && !g.pads_columns()
        && !(g.input.strides[4] * g.strides[2]).is_multiple_of(ALIAS);
    if in_place {
        return None;
    }
    let (channels, pixel) = if lanewise {
        (Channels::Lanewise { inputs: g.inputs, outputs: g.outputs }, g.inputs * lanes)
    } else {
        let spread = if g.inputs.is_multiple_of(128) { g.inputs + 16 } else { g.inputs };
        (Channels::Dense(g.inputs), spread)
    };
    let [_, taps_h, taps_w] = g.filters.taps;
    let width = g.output.lens[4];
    let (column_step, columns) = if taps_w == 1 {
        (g.strides[2], width)
    } else {
        (1, (width - 1) * g.strides[2] + (taps_w - 1) * g.dilations[2] + 1)
    };
    let line_step = if taps_h == 1 { g.strides[1] } else { 1 };
    let line = (columns * pixel).next_multiple_of(16);
    Some(PackPlan { channels, pixel, line, columns, column_step, line_step, lines: 0 })
}

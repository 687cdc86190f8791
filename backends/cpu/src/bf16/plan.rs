//! How the image lies in scratch, and how the work is cut.
//!
//! A row of a tile is a pixel, and rows are evenly apart in memory. So that those of one tile may be pixels of several lines,
//! what a band of output lines needs is copied such that an output's tap is always the same distance from the output: with
//! strides, input lines and columns are dealt out to *phases*, those whose index leaves the same remainder, and in each phase
//! the image has no strides. Output pixels are then counted through the packed lines; those that fall on the columns between
//! two lines are computed, and left.

use std::ops::Range;

use super::dots::ALL_ROWS;
use super::product::{DEPTH, FILTERS, SIDE, Unit};
use super::split::Split;
use crate::direct::crowds;
use crate::direct::geometry::{Geometry, lanes_of};
use crate::direct::weights::Panel;
use crate::epilogue::Lanes;

/// How large the pieces of work may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Bytes of a band's packed image: beside the filters of a panel it should stay in the second-level cache.
    pub(super) pack: usize,
    /// Pixels of an image whose sums wait to be finished.
    pub(super) waiting: usize,
    /// Columns of a span of a line, and of one that is cut to fit the pack.
    pub(super) span: usize,
    pub(super) least_span: usize,
}

impl Limits {
    pub(super) const USUAL: Limits =
        Limits { pack: 1280 * 1024, waiting: 1024, span: 2 * 1024, least_span: 4 * SIDE };
}

/// The most bytes of the least that is packed at a time, with all that its taps need.
const LIMIT: usize = 8 << 20;

/// Input channels of a line that are brought together at a time where they are not neighbours.
const CHANNELS: usize = 64;

/// Input channels below which the width taps of a pixel are packed side by side.
const NARROW: usize = DEPTH;

/// How one dimension is dealt out to phases: those that a tap is in, whose remainders come again after a period of taps.
#[derive(Debug)]
pub(super) struct Phases {
    taps: usize,
    dilation: usize,
    pub(super) stride: usize,
    period: usize,
}

impl Phases {
    fn new(taps: usize, dilation: usize, stride: usize) -> Self {
        let (mut gcd, mut rest) = (stride, dilation);
        while rest > 0 {
            (gcd, rest) = (rest, gcd % rest);
        }
        Phases { taps, dilation, stride, period: stride / gcd }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.taps.min(self.period)
    }

    /// The remainder of a phase.
    pub(super) fn remainder(&self, phase: usize) -> usize {
        phase * self.dilation % self.stride
    }

    /// A tap's phase, and how many packed lines or columns it lies from the output.
    fn place(&self, tap: usize) -> (usize, usize) {
        (tap % self.period, tap * self.dilation / self.stride)
    }

    /// The packed lines of a phase that `outputs` need for some taps.
    pub(super) fn needed(&self, phase: usize, taps: Range<usize>, outputs: usize) -> Range<usize> {
        let mut own = taps.filter(|tap| tap % self.period == phase);
        let Some(first) = own.next() else { return 0..0 };
        let last = own.next_back().unwrap_or(first);
        self.place(first).1..self.place(last).1 + outputs
    }

    /// Packed lines or columns that `outputs` need.
    fn extent(&self, outputs: usize) -> usize {
        outputs.saturating_add((self.taps - 1).saturating_mul(self.dilation) / self.stride)
    }
}

/// A band of an image's output lines, or of several images', in scratch.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) split: &'static Split,
    pub(super) panels: Vec<Panel>,
    pub(super) panels_per_group: usize,
    /// Elements of all packed filters.
    pub(super) filters: usize,
    /// Whether the image can be multiplied where it is, if a band has a tile of pixels.
    pub(super) in_place: bool,
    /// Whether a packed pixel has its width taps side by side.
    pub(super) merges: bool,
    /// Elements of a pixel's part that are not zeros, all of them, which are whole tiles, and from a pixel to the next.
    pub(super) channels: usize,
    pub(super) depth: usize,
    pub(super) pitch: usize,
    pub(super) height: Phases,
    pub(super) width: Phases,
    /// Taps in depth.
    slices: usize,
    /// Where the taps of a slice lie, in bytes.
    pub(super) taps: Vec<usize>,
    /// Packed lines and columns of a phase.
    pub(super) lines: usize,
    pub(super) columns: usize,
    /// Lines of a band, columns of a span, images of an item, and how many there are.
    pub(super) band: usize,
    pub(super) bands: usize,
    pub(super) span: usize,
    pub(super) spans: usize,
    pub(super) images: usize,
    pub(super) batches: usize,
    /// Parts into which the panels of a group are dealt.
    pub(super) parts: usize,
    /// How the output is written.
    pub(super) lanes: Lanes,
}

impl Plan {
    pub(super) fn new(
        g: &Geometry,
        split: &'static Split,
        unit: Unit,
        threads: usize,
        limits: Limits,
    ) -> Self {
        let [taps_d, taps_h, _] = g.filters.taps;
        let merges = merges(g);
        let channels = channels(g);
        let depth = channels.next_multiple_of(DEPTH);
        let pitch = pitch(depth, split);
        let height = Phases::new(taps_h, g.dilations[1], g.strides[1]);
        let width = width_phases(g);
        let [images, _, slices, lines, columns] = g.output.lens;
        let bytes = |band: usize, span: usize| bytes(g, &height, &width, pitch, [band, span]);
        let mut spans = columns.div_ceil(limits.span);
        let is_large =
            |span: usize| bytes(1, span) > limits.pack || line_len(g, span) * size_of::<f32>() > limits.pack;
        while columns.div_ceil(spans) > limits.least_span && is_large(columns.div_ceil(spans)) {
            spans += 1;
        }
        let span = columns.div_ceil(spans);
        let spans = columns.div_ceil(span);
        let fits =
            |band: usize| bytes(band, span) <= limits.pack && band * width.extent(span) <= limits.waiting;
        let mut bands = lines.div_ceil((1..=lines).take_while(|&band| fits(band)).last().unwrap_or(1));
        let (panels, filters) = panels(g, split, depth);
        let panels_per_group = panels.len() / g.groups;
        let mut batch = 1;
        if bands == 1 && spans == 1 {
            // Small images share what is read of the filters.
            let room = (limits.pack / bytes(lines, span)).min(limits.waiting / (lines * span));
            batch = room.clamp(1, images);
        }
        // Batches of one size, as nearly as can be.
        let even = |batch: usize| images.div_ceil(images.div_ceil(batch));
        batch = even(batch);
        let items = |batch: usize, bands: usize| images.div_ceil(batch) * g.groups * slices * bands * spans;
        let uneven = |items: usize| threads > 1 && !items.is_multiple_of(threads) && items < 8 * threads;
        while batch > 1 && uneven(items(batch, bands)) {
            batch = even(batch - 1);
        }
        let mut parts = 1;
        if uneven(items(batch, bands)) {
            // Deal out what is larger: filters, or the image.
            if filters > g.input.plane() * g.inputs && panels_per_group >= threads {
                parts = threads;
            } else {
                bands = (bands..=lines).find(|&bands| !uneven(items(batch, bands))).unwrap_or(bands);
            }
        }
        let band = lines.div_ceil(bands);
        let mut plan = Plan {
            split,
            panels,
            panels_per_group,
            filters,
            // Lines of the tensor are as far apart as packed ones where they are whole.
            in_place: split.parts == 1 && can_stay(g, unit) && (spans == 1 || band == 1),
            merges,
            channels,
            depth,
            pitch,
            slices: taps_d.min(g.input.lens[2]),
            lines: height.extent(band),
            columns: width.extent(span),
            height,
            width,
            taps: Vec::new(),
            band,
            bands: lines.div_ceil(band),
            span,
            spans,
            images: batch,
            batches: images.div_ceil(batch),
            parts,
            lanes: lanes_of(&g.output),
        };
        let bytes = plan.pitch * size_of::<u16>();
        for (phase_h, line) in (0..taps_h).map(|tap| plan.height.place(tap)) {
            for (phase_w, column) in (0..plan.width.taps).map(|tap| plan.width.place(tap)) {
                plan.taps.push(bytes * plan.pixel(0, [phase_h, phase_w], [line, column]));
            }
        }
        plan
    }

    /// The number of a packed pixel of an image.
    pub(super) fn pixel(&self, slice: usize, [h, w]: [usize; 2], [line, column]: [usize; 2]) -> usize {
        let phases = [self.height.count(), self.width.count()];
        (((slice * phases[0] + h) * phases[1] + w) * self.lines + line) * self.columns + column
    }

    /// Taps of a filter's line.
    pub(super) fn taps_of_line(&self) -> usize {
        self.width.taps
    }

    /// Elements of a slice's packed pixels.
    pub(super) fn slice_len(&self) -> usize {
        self.pixel(1, [0; 2], [0; 2]) * self.pitch
    }

    /// Elements of an image's packed pixels.
    pub(super) fn image_len(&self) -> usize {
        self.slices * self.slice_len()
    }

    /// Elements of an item's packed pixels, with those behind the last that the last tile reads.
    pub(super) fn packed_len(&self) -> usize {
        self.images * self.image_len() + 2 * SIDE * self.pitch
    }

    /// Columns of the input that a span needs.
    pub(super) fn input_columns(&self, g: &Geometry) -> usize {
        input_columns(g, self.span)
    }

    /// Floats of a line whose channels were brought together.
    pub(super) fn line_len(&self, g: &Geometry) -> usize {
        line_len(g, self.span)
    }

    /// Channels that are brought together at a time.
    pub(super) fn chunk(&self, g: &Geometry) -> usize {
        g.inputs.min(CHANNELS)
    }

    /// Sums that wait, whole tiles.
    pub(super) fn sums_len(&self) -> usize {
        (self.band * self.columns).next_multiple_of(2 * SIDE) * 2 * SIDE
    }

    pub(super) fn items(&self, g: &Geometry) -> usize {
        self.batches * g.groups * g.output.lens[2] * self.bands * self.spans * self.parts
    }
}

/// Whether pixels are whole tiles deep and evenly apart in the tensor, and none needs its neighbours. Vectors read a pair of each
/// pixel after the other, the matrix unit a whole line of the cache, which it reads once.
fn can_stay(g: &Geometry, unit: Unit) -> bool {
    let is_padded = [g.pads_before, g.pads_after] != [[0; 3]; 2];
    g.filters.taps == [1; 3]
        && g.strides == [1; 3]
        && !is_padded
        && g.input.is_flat()
        && g.input.strides[1] == 1
        && g.inputs.is_multiple_of(DEPTH)
        && (unit == Unit::Matrix || !crowds(ALL_ROWS, g.input.strides[4] * size_of::<u16>()))
}

/// Whether a packed pixel has its width taps side by side, so that few channels fill a tile's depth.
fn merges(g: &Geometry) -> bool {
    let taps = g.filters.taps[2];
    g.inputs < NARROW
        && taps > 1
        && g.dilations[2] == 1
        && (taps * g.inputs).div_ceil(DEPTH) < taps * g.inputs.div_ceil(DEPTH)
}

/// The phases of columns; where width taps are side by side a pixel has all of them.
fn width_phases(g: &Geometry) -> Phases {
    if merges(g) {
        Phases::new(1, 1, g.strides[2])
    } else {
        Phases::new(g.filters.taps[2], g.dilations[2], g.strides[2])
    }
}

/// Elements of a packed pixel's part, without the zeros behind them.
fn channels(g: &Geometry) -> usize {
    g.inputs * if merges(g) { g.filters.taps[2] } else { 1 }
}

/// Elements from a packed pixel to the next: an odd number of cache lines, so that the rows of a tile are not in the same sets
/// of a cache.
fn pitch(depth: usize, split: &Split) -> usize {
    let lines = depth * split.parts / DEPTH;
    (lines | 1) * DEPTH
}

/// Bytes of an image's packed pixels for so many output lines and columns.
fn bytes(g: &Geometry, height: &Phases, width: &Phases, pitch: usize, [band, span]: [usize; 2]) -> usize {
    let lines = height.count().saturating_mul(height.extent(band));
    let columns = width.count().saturating_mul(width.extent(span));
    let slices = g.filters.taps[0].min(g.input.lens[2]);
    [lines, columns, slices, 2 * pitch].into_iter().fold(1, usize::saturating_mul)
}

/// The panels of all groups, of up to two vectors of output channels, and the elements of their packed filters.
fn panels(g: &Geometry, split: &Split, depth: usize) -> (Vec<Panel>, usize) {
    let [taps_d, taps_h, taps_w] = g.filters.taps;
    let taps = taps_d * taps_h * if merges(g) { 1 } else { taps_w };
    let vector = taps * depth / DEPTH * split.parts * FILTERS;
    let mut offset = 0;
    let mut panels = Vec::new();
    for group in 0..g.groups {
        for first in (0..g.outputs).step_by(2 * SIDE) {
            let count = (g.outputs - first).min(2 * SIDE);
            let vectors = count.div_ceil(SIDE);
            panels.push(Panel { first: group * g.outputs + first, count, vectors, offset });
            offset += vectors * vector;
        }
    }
    (panels, offset)
}

/// Columns of the input that so many outputs of a line need, with those that make its phases equally long.
fn input_columns(g: &Geometry, span: usize) -> usize {
    let reach = (g.filters.taps[2] - 1) * g.dilations[2];
    (span - 1).saturating_mul(g.strides[2]).saturating_add(reach + 1 + g.strides[2])
}

/// Floats of their channels that are brought together at a time, in whole vectors, as the sums lie behind them.
fn line_len(g: &Geometry, span: usize) -> usize {
    input_columns(g, span).saturating_mul(g.inputs.min(CHANNELS)).saturating_add(SIDE - 1) / SIDE * SIDE
}

/// How much the least that can be packed is, if it is too much.
pub(super) fn too_large(g: &Geometry, split: &Split) -> Option<String> {
    let pitch = pitch(channels(g).next_multiple_of(DEPTH), split);
    let height = Phases::new(g.filters.taps[1], g.dilations[1], g.strides[1]);
    let width = width_phases(g);
    let span = g.output.lens[4].min(Limits::USUAL.least_span);
    let line = line_len(g, span).saturating_mul(size_of::<f32>());
    let least = bytes(g, &height, &width, pitch, [1, span]).saturating_add(line);
    (least > LIMIT).then(|| format!("{least} bytes"))
}

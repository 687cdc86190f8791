//! How the work is cut: output channels into panels, lines into bands, and both into items for threads.

use std::ops::Range;

use super::geometry::{FEW, Geometry, lanes_of};
use super::input::Channels;
use super::panels;
use super::weights::Panel;
use crate::epilogue::Lanes;

/// Floats of packed input that a band may have: with the weights of a panel it should stay in the
/// second-level cache.
const PACK: usize = 96 * 1024;

/// Bytes of packed weights that stay in the second-level cache from one band to the next.
pub(crate) const RESIDENT: usize = 1024 * 1024;

/// Floats of a first-level cache.
const L1: usize = 8 * 1024 + 4 * 1024;

/// How many pixels' sums may wait in scratch to be finished.
const WAITING: usize = 1024;

/// How much scratch memory a band may have, whatever the geometry is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Columns of the longest span, so that its sums have a bound.
    pub(super) span: usize,
    /// Columns of the shortest span, as long as there are channels to be cut.
    pub(super) least_span: usize,
    /// Floats of packed input beyond which lines are cut into spans and, where those are short, channels into chunks.
    pub(super) pack: usize,
}

impl Limits {
    /// Layers of known networks stay far below. No tile is wider than the shortest span.
    pub(super) const USUAL: Limits = Limits { span: 8 * 1024, least_span: 16, pack: 4 << 20 };
}

/// The pack of a band's input.
#[derive(Debug, Clone, Copy)]
pub(super) struct PackPlan {
    pub(super) channels: Channels,
    /// How many floats a pixel and a line take.
    pub(super) pixel: usize,
    pub(super) line: usize,
    /// A line has one run of columns that all width taps share, or one run for each tap.
    pub(super) runs: usize,
    /// Columns of a run.
    pub(super) columns: usize,
    /// Input columns and lines from one packed one to the next. Where there is one tap, or each has a run of its own,
    /// only those are packed that a stride does not leap over; of a single line of outputs only those lines that taps
    /// need.
    pub(super) column_step: usize,
    pub(super) line_step: usize,
    /// The most lines and the most slices that a band needs.
    pub(super) lines: usize,
    pub(super) slices: usize,
}

impl PackPlan {
    /// Floats of a band's packed input.
    fn len(&self) -> usize {
        self.line.saturating_mul(self.lines).saturating_mul(self.slices)
    }
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) lanewise: bool,
    pub(super) panels: Vec<Panel>,
    /// Panels that read the same input channels.
    pub(super) panels_per_group: usize,
    pub(super) weights: usize,
    /// Input channels of a group.
    pub(super) inputs: usize,
    /// Input channels of a chunk: those of a group, but where so many are too much to be packed at once.
    pub(super) chunk: usize,
    pub(super) pack: Option<PackPlan>,
    /// Lines of the output, and the bands into which they are dealt.
    height: usize,
    pub(super) bands: usize,
    /// Columns of a band, and into how many spans lines are cut.
    pub(super) span: usize,
    pub(super) spans: usize,
    /// Parts into which the panels of a group are dealt, and which of them each has.
    pub(super) parts: usize,
    pub(super) shares: Vec<Range<usize>>,
    /// Whether a thread reads weights for one band of an image, rather than for several.
    pub(super) reads_weights_once: bool,
    /// How the output is written.
    pub(super) lanes: Lanes,
}

impl Plan {
    pub(super) fn new(
        g: &Geometry,
        lanewise: bool,
        packs: bool,
        lanes: usize,
        threads: usize,
        limits: Limits,
    ) -> Self {
        let [images, _, depth, height, width] = g.output.lens;
        // Lane-wise, a panel is a group of groups.
        let groups = if lanewise { panels::lanewise(g, lanes).len() } else { g.groups };
        let vectors = if lanewise { 1 } else { g.outputs.div_ceil(lanes) };
        let weights = groups * vectors * lanes * g.inputs * g.filters.tap_count();
        let pack_of =
            |span: usize, band: usize, chunk: usize| pack(g, lanewise.then_some(lanes), span, band, chunk);
        let (mut span, mut chunk) = (width.min(limits.span), g.inputs);
        if packs {
            let shorter = |mut span: usize, least: usize, chunk: usize| {
                while span > least && pack_of(span, 1, chunk).len() > limits.pack {
                    span = span.div_ceil(2).max(least);
                }
                span
            };
            span = shorter(span, limits.least_span, chunk);
            let len = pack_of(span, 1, chunk).len();
            if len > limits.pack && !lanewise {
                chunk = (g.inputs / len.div_ceil(limits.pack) / 16 * 16).max(16).min(g.inputs);
            }
            // So many taps that even so few channels are too many.
            span = shorter(span, 1, chunk);
        }
        let spans = width.div_ceil(span);
        let span = width.div_ceil(spans);
        let spans = width.div_ceil(span);
        // A stride leaps over what a single tap does not need.
        let step = |d: usize| if g.filters.taps[d] == 1 { 1 } else { g.strides[d] };
        let packed_line = [if lanewise { lanes } else { 1 }, step(1), step(2), width];
        let packed_line = packed_line.into_iter().fold(g.inputs, usize::saturating_mul);
        let direct = lanes_of(&g.output) == Lanes::Channels;
        let small =
            direct && g.filters.taps[1] == 1 && g.inputs * g.filters.tap_count() * 2 * lanes <= L1 / 3;
        let pack_limit = if small {
            L1 / 2
        } else if weights / groups * size_of::<f32>() > RESIDENT {
            // Each band would read them from memory again.
            2 * PACK
        } else {
            PACK
        };
        let fits = (pack_limit / packed_line.max(1)).min(WAITING / width).clamp(1, height);
        let (mut bands, mut parts) = (height.div_ceil(fits), 1);
        let items = |bands: usize| images * groups * depth * bands * spans;
        if threads > 1 && !items(bands).is_multiple_of(threads) && items(bands) < FEW * threads {
            // Deal out what is larger: weights, or the input. Weights that stay in each core's cache are read by all where lines
            // can be dealt evenly: the layers around this one go by pixels, and find theirs in the cache of their own core.
            let dealt = (bands..=height).find(|&b| items(b).is_multiple_of(threads));
            let stays =
                weights * size_of::<f32>() < RESIDENT && dealt.is_some_and(|b| height.is_multiple_of(b));
            if weights > g.input.plane() * g.inputs && vectors >= 2 * threads && !stays {
                parts = threads;
            } else {
                bands = dealt.unwrap_or(height);
            }
        }
        if packs && pack_of(span, height.div_ceil(bands), chunk).len() > limits.pack {
            bands = height;
        }
        let band = height.div_ceil(bands);
        let shares = panels::shares(vectors, parts);
        let panels = if lanewise { panels::lanewise(g, lanes) } else { panels::dense(g, lanes, parts) };
        let panels_per_group = panels.len() / groups;
        Plan {
            lanewise,
            panels,
            panels_per_group,
            weights,
            inputs: g.inputs,
            chunk,
            pack: packs.then(|| pack_of(span, band, chunk)),
            height,
            bands,
            span,
            spans,
            parts,
            shares,
            reads_weights_once: bands * spans <= threads,
            lanes: lanes_of(&g.output),
        }
    }

    /// Floats of a band's packed input.
    pub(super) fn pack_len(&self) -> usize {
        self.pack.map_or(0, |pack| pack.len())
    }

    /// The input channels of each chunk.
    pub(super) fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (inputs, chunk) = (self.inputs, self.chunk);
        (0..inputs).step_by(chunk).map(move |first| first..inputs.min(first + chunk))
    }

    /// How lines and channels are cut, in words, if they are.
    pub(super) fn cut(&self) -> String {
        let mut text = String::new();
        if self.spans > 1 {
            text += &format!(" in {} spans", self.spans);
        }
        if self.chunk < self.inputs {
            text += &format!(", {} of {} channels at a time", self.chunk, self.inputs);
        }
        text
    }

    /// The lines of a band, as many as any other's or one less; none behind the last band.
    pub(super) fn lines(&self, band: usize) -> Range<usize> {
        let start = |band: usize| self.height * band.min(self.bands) / self.bands;
        start(band)..start(band + 1)
    }

    /// Lines of the largest band.
    pub(super) fn band(&self) -> usize {
        self.height.div_ceil(self.bands)
    }

    /// Pixels of the largest band.
    pub(super) fn pixels(&self) -> usize {
        self.band() * self.span
    }

    /// How many groups of panels there are that read the same input channels.
    pub(super) fn groups(&self) -> usize {
        self.panels.len() / self.panels_per_group
    }

    pub(super) fn items(&self, g: &Geometry) -> usize {
        g.output.lens[0] * self.groups() * g.output.lens[2] * self.bands * self.spans * self.parts
    }
}

/// Whether f32 input can be read where it is, by tiles of so many pixels.
pub(super) fn can_stay(g: &Geometry, rows: usize) -> bool {
    let apart = g.input.strides[4] * g.strides[2] * size_of::<f32>();
    (g.input.strides[1] == 1 || g.inputs == 1)
        && g.reads_whole_blocks()
        && !g.pads_columns()
        && !crowds(rows, apart)
}

/// Whether rows so many bytes apart are more than a set of a first-level cache has lines beside what else is read: an element of each
/// is read after the other, and its neighbours later. The cache is taken to be like those of x86-64's processors.
pub(crate) fn crowds(rows: usize, apart: usize) -> bool {
    // Addresses that are as many powers of two apart are in one set, which has 8 lines at least.
    const PERIOD: u32 = 12;
    const LINES: usize = 7;
    let sets = 1 << (PERIOD - apart.trailing_zeros().min(PERIOD));
    rows.div_ceil(sets) > LINES
}

/// How the input is packed for `span` columns of `band` lines of outputs and `chunk` channels; `lanewise` with vectors
/// of so many lanes.
fn pack(g: &Geometry, lanewise: Option<usize>, span: usize, band: usize, chunk: usize) -> PackPlan {
    let (channels, pixel) = if let Some(lanes) = lanewise {
        (Channels::Lanewise { inputs: g.inputs, outputs: g.outputs }, g.inputs * lanes)
    } else {
        let spread = if chunk.is_multiple_of(128) { chunk + 16 } else { chunk };
        (Channels::Dense(chunk), spread)
    };
    let [taps_d, taps_h, taps_w] = g.filters.taps;
    let [_, stride, column_stride] = g.strides;
    let shared = (span - 1) * column_stride + (taps_w - 1) * g.dilations[2] + 1;
    // A run for each tap where dilation is so wide that most shared columns would not be read.
    let (runs, columns, column_step) = if taps_w == 1 || 2 * span * taps_w < shared {
        (taps_w, span, column_stride)
    } else {
        (1, shared, 1)
    };
    let (line_step, lines) = if taps_h == 1 {
        (stride, band)
    } else if band == 1 {
        (g.dilations[1], taps_h.min(g.input.lens[3]))
    } else {
        (1, ((band - 1) * stride + (taps_h - 1) * g.dilations[1] + 1).min(g.input.lens[3].max(band)))
    };
    let line = (runs * columns).saturating_mul(pixel).saturating_add(15) / 16 * 16;
    let slices = taps_d.min(g.input.lens[2]);
    PackPlan { channels, pixel, line, runs, columns, column_step, line_step, lines, slices }
}

#[cfg(test)]
mod tests {
    use super::crowds;

    #[test]
    fn rows_crowd_a_set_where_it_has_fewer_lines() {
        for (rows, apart, expected) in [
            (14, 4096, true),
            (14, 3 * 4096, true),
            (14, 2048, false),
            (14, 2048 + 64, false),
            (12, 4096, true),
            (6, 4096, false),
            (14, 0, true),
        ] {
            assert_eq!(crowds(rows, apart), expected, "{rows} rows {apart} bytes apart");
        }
    }
}

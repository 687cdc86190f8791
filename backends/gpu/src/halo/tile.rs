//! Blocks' parts of the output and of shared memory: which have room, and how the window is padded.

use std::fmt;
use std::ops::ControlFlow;

use fuseplan_api::Problem;
use fuseplan_api::volume::{Volume, common_power, spatial};

use super::HaloLoop;
use crate::chain::channel_values;

/// Channels that lie side by side in shared memory, those of a group padded with zeros.
pub(super) const QUAD: usize = 4;
/// Most steps of the depth whose offsets lanes keep in registers.
const KEPT: usize = 5;
/// Most filters of a group that a block computes: many, or fewer that leave room for other blocks.
const FILTERS: [usize; 2] = [64, 32];
/// Most filters of a block.
const COLUMNS: usize = 128;

/// A convolution as the kernel sees it; lengths in the order D, H, W.
pub(super) struct Shape {
    pub(super) groups: usize,
    /// Filters and channels of a group.
    pub(super) filters: usize,
    pub(super) channels: usize,
    pub(super) taps: [usize; 3],
    pub(super) strides: [usize; 3],
    pub(super) dilations: [usize; 3],
    /// Extents of the output.
    pub(super) images: usize,
    pub(super) out: [usize; 3],
    /// Bytes of an element, and numbers of an output's channel.
    pub(super) element: usize,
    pub(super) channel_values: usize,
    pub(super) along_k: bool,
    pub(super) channels_last: bool,
}

/// A block's part of the output.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tile {
    pub(super) height: usize,
    pub(super) width: usize,
    /// Pixels of the warps' items that cover height times width.
    pub(super) pixels: usize,
    pub(super) groups: usize,
    /// Filters of each group.
    pub(super) filters: usize,
    pub(super) threads: usize,
    /// Pixels and filters of a group that a warp takes at a time.
    pub(super) item: [usize; 2],
}

/// `8x14, 2 groups, 32 filters, 16x32 a warp, 128 threads`
impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tile { height, width, groups, filters, threads, item: [pixels, of], .. } = self;
        write!(
            f,
            "{height}x{width}, {groups} groups, {filters} filters, {pixels}x{of} a warp, {threads} threads"
        )
    }
}

impl Shape {
    pub(super) fn of(problem: &Problem) -> Option<Self> {
        let (conv, weights) = problem.conv()?;
        let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
        Some(Shape {
            groups: conv.groups(),
            filters: w.lens[0] / conv.groups(),
            channels: w.lens[1],
            taps: [w.lens[2], w.lens[3], w.lens[4]],
            strides: spatial(conv.strides(), 1),
            dilations: spatial(conv.dilations(), 1),
            images: y.lens[0],
            out: [y.lens[2], y.lens[3], y.lens[4]],
            element: problem.output.data_type().size(),
            channel_values: channel_values(problem),
            along_k: y.is_channels_last(),
            channels_last: x.is_channels_last(),
        })
    }

    /// Whether results are written from where they are summed: where a lane of matrix fragments has sums few enough to finish them in
    /// registers, and the four of a pixel write whole sectors. Groups of f32 were slower so.
    pub(super) fn is_direct(&self, main_loop: &HaloLoop, tile: &Tile) -> bool {
        const SECTOR: usize = 32;

        let [pixels, filters] = tile.item;
        let at_once = common_power(16 / self.element, common_power((filters / 4).max(1), tile.filters));
        let is_small = pixels * filters <= 1024 && (self.element == 2 || (self.groups == 1 && pixels <= 32));
        main_loop.matrix && self.along_k && is_small && filters >= 16 && 4 * at_once * self.element >= SECTOR
    }

    /// Quads of a group's channels.
    pub(super) fn quads(&self) -> usize {
        self.channels.div_ceil(QUAD)
    }

    /// Quads of the whole depth.
    pub(super) fn depth(&self) -> usize {
        self.quads() * self.taps.iter().product::<usize>()
    }

    /// The receptive extent of so many neighbouring outputs: the elements of the image from the first to the last that
    /// they see.
    fn window(&self, dim: usize, outputs: usize) -> usize {
        (outputs - 1) * self.strides[dim] + (self.taps[dim] - 1) * self.dilations[dim] + 1
    }

    pub(super) fn windows(&self, tile: &Tile) -> [usize; 3] {
        [self.window(0, 1), self.window(1, tile.height), self.window(2, tile.width)]
    }
}

/// Bytes of a block's parts of shared memory, in their order.
pub(super) struct Layout {
    /// Between neighbouring pixels and rows of the window.
    pub(super) pitch: usize,
    pub(super) row: usize,
    pub(super) window: usize,
    pub(super) weights: usize,
    /// Between neighbouring rows of accumulators, in numbers.
    pub(super) acc_pitch: usize,
    pub(super) acc: usize,
    pub(super) channels: usize,
    pub(super) spots: usize,
    /// Numbers of a table of the depth.
    pub(super) offsets: usize,
}

impl Layout {
    pub(super) fn new(shape: &Shape, main_loop: &HaloLoop, tile: &Tile, [pitch, row]: [usize; 2]) -> Self {
        let [depth, height, width] = shape.windows(tile);
        let quad = QUAD * shape.element;
        let columns = tile.groups * tile.filters;
        let items = tile.groups * tile.filters.div_ceil(tile.item[1]);
        let steps = shape.depth().div_ceil(4);
        let weights = if main_loop.matrix {
            items * (tile.item[1] / 8) * steps * 32 * quad
        } else {
            items * tile.item[1] * shape.depth() * QUAD * size_of::<f32>()
        };
        // Neighbouring rows of a fragment's accumulators are on different banks.
        let (length, rows, rest) =
            if shape.along_k { (columns, tile.pixels, 8) } else { (tile.pixels, columns, 4) };
        // Far more than any multiprocessor has is as good as what a window takes that is larger still.
        let of_window = |last: usize| {
            let bytes = [depth, height, last].into_iter().fold(1, usize::saturating_mul);
            bytes.min(u32::MAX as usize)
        };
        let acc_pitch = length.next_multiple_of(4) + (32 + rest - length.next_multiple_of(4) % 32) % 32;
        Layout {
            pitch,
            row,
            window: of_window(row).next_multiple_of(16),
            weights,
            acc_pitch,
            acc: if shape.is_direct(main_loop, tile) { 0 } else { acc_pitch * rows * size_of::<f32>() },
            channels: (columns * shape.channel_values.max(1) * size_of::<f32>()).next_multiple_of(16),
            spots: of_window(width * 8),
            offsets: if main_loop.matrix && steps > KEPT { steps * 4 } else { 0 },
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.window + self.weights + self.acc + self.channels + self.spots + self.offsets * size_of::<u32>()
    }
}

/// Bytes between pixels and between rows without padding.
pub(super) fn dense(shape: &Shape, tile: &Tile) -> [usize; 2] {
    let pitch = tile.groups * shape.quads() * QUAD * shape.element;
    [pitch, pitch * shape.windows(tile)[2]]
}

/// Bytes between pixels and between rows with the padding with which a warp's reads of the window meet the fewest banks twice.
pub(super) fn padded(shape: &Shape, main_loop: &HaloLoop, tile: &Tile) -> [usize; 2] {
    let quad = QUAD * shape.element;
    let [pitch, _] = dense(shape, tile);
    let width = shape.windows(tile)[2];
    let steps = shape.depth().div_ceil(4);
    // The row and the column of the window, and the bytes behind these, where the quad of a pixel lies.
    let place = |pixel: usize, q: usize| {
        let (tap, c) = (q / shape.quads(), q % shape.quads());
        let [_, taps_h, taps_w] = shape.taps;
        let (h, w) = (tap / taps_w % taps_h * shape.dilations[1], tap % taps_w * shape.dilations[2]);
        let (y, x) = (pixel / tile.width * shape.strides[1], pixel % tile.width * shape.strides[2]);
        [y + h, x + w, c * quad]
    };
    let of_step = |step: usize| {
        std::array::from_fn::<_, 32, _>(|lane| match main_loop.matrix {
            true => place(lane / 4, (step * 4 + lane % 4).min(shape.depth() - 1)),
            false => place(lane, (step * 4).min(shape.depth() - 1)),
        })
    };
    let read: Vec<_> = (0..steps).step_by(steps.div_ceil(3)).map(of_step).collect();
    let cost = |&[pitch, row]: &[usize; 2]| -> usize {
        let addresses = |lanes: &[[usize; 3]; 32]| lanes.map(|[y, x, behind]| y * row + x * pitch + behind);
        read.iter().map(|lanes| wavefronts(&addresses(lanes), quad)).sum()
    };
    let pitches = (0..128 / quad).map(|pad| pitch + pad * quad);
    let all = pitches.flat_map(|pitch| [0, 32, 64, 96].map(|pad| [pitch, pitch * width + pad]));
    let fits =
        |&pitches: &[usize; 2]| Layout::new(shape, main_loop, tile, pitches).bytes() <= main_loop.shared;
    all.filter(fits).min_by_key(|pitches| (cost(pitches), pitches[1])).unwrap_or([pitch, pitch * width])
}

/// How often shared memory is read for as many accesses of `bytes` by the lanes of a warp.
fn wavefronts(addresses: &[usize], bytes: usize) -> usize {
    // What lies at multiples of its own length meets others in all of its banks or in none.
    let columns = 128 / bytes;
    let phase = |lanes: &[usize]| {
        let mut rows = [0; 128 / QUAD];
        for (at, address) in lanes.iter().enumerate() {
            if !lanes[..at].contains(address) {
                rows[address / bytes % columns] += 1;
            }
        }
        rows.into_iter().max().unwrap_or(0)
    };
    addresses.chunks(columns).map(phase).sum()
}

/// Visits every tile that there is room for, with its bytes of shared memory, until one breaks.
pub(super) fn candidates(
    shape: &Shape,
    main_loop: &HaloLoop,
    visit: &mut dyn FnMut(Tile, usize) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let [_, out_h, out_w] = shape.out;
    // Filters of a fragment, or one, of which a warp takes so many at a time.
    let (unit, most, pixels_at_a_time) =
        if main_loop.matrix { (8, 4, [16, 32, 64]) } else { (1, 8, [32, 64, 128]) };
    let part = |parts: usize| {
        if parts == 1 { shape.filters } else { shape.filters.div_ceil(parts).next_multiple_of(8) }
    };
    let mut parts = FILTERS.map(|most| part(shape.filters.div_ceil(most))).to_vec();
    parts.dedup();
    for filters in parts {
        // Blocks of several groups have all of their filters.
        let most_groups = if filters == shape.filters { shape.groups } else { 1 };
        let mut groups_at_once =
            [1, 2, 4, 8, 16, 32, 64].map(|groups: usize| groups.min(most_groups)).to_vec();
        groups_at_once.dedup();
        groups_at_once.retain(|&groups| groups == 1 || groups * filters <= COLUMNS);
        let passes = filters.div_ceil(unit * most);
        let item_filters = filters.div_ceil(unit).div_ceil(passes) * unit;
        for capacity in [32, 64, 128, 256] {
            let fewest = out_w.div_ceil(capacity);
            for across in fewest..=out_w.min(fewest + 15) {
                let width = out_w.div_ceil(across);
                let height = (capacity / width).min(out_h);
                let height = out_h.div_ceil(out_h.div_ceil(height));
                for &groups in &groups_at_once {
                    for item_pixels in pixels_at_a_time {
                        for threads in [128, 256] {
                            // A warp has one part of the pixels.
                            let parts = (height * width).div_ceil(item_pixels).next_power_of_two();
                            if parts > threads / 32 {
                                continue;
                            }
                            let (pixels, item) = (parts * item_pixels, [item_pixels, item_filters]);
                            let tile = Tile { height, width, pixels, groups, filters, threads, item };
                            let bytes = Layout::new(shape, main_loop, &tile, dense(shape, &tile)).bytes();
                            if bytes <= main_loop.shared {
                                visit(tile, bytes)?;
                            }
                        }
                    }
                }
            }
        }
    }
    ControlFlow::Continue(())
}

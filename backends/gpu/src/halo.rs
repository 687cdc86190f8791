//! Convolutions of narrow groups, few filters or few channels: an image's element is read once, with its halo.

use std::fmt;
use std::ops::ControlFlow;

use fuseplan_api::volume::{Volume, common_power, spatial};
use fuseplan_api::{Configuration, Estimate, Problem};

use crate::chain::channel_values;
use crate::configurations::{named, ranked};
use crate::kernel::{Geometry, Kernel, Text};
use crate::volume::reaches_outside;

/// What multiplies: the text behind `halo.cuh`, and what of a tile its warps take at a time.
#[derive(Debug, Clone, Copy)]
pub struct HaloLoop {
    /// Its text.
    pub text: &'static str,
    /// Its name, for people.
    pub name: &'static str,
    /// Most bytes of shared memory of a block.
    pub shared: usize,
    /// Cycles of a multiprocessor for products of 16 pixels, 8 filters and four quads of channels; of 16-bit elements
    /// where matrix instructions make them, which take f32 at half the rate.
    pub cycles: f64,
    /// Whether fragments are those of a matrix instruction: 16 pixels by 8 filters, four quads deep.
    pub matrix: bool,
    /// Threads of a multiprocessor that may have more than 32 accumulators each, so that none of them spills.
    pub threads: usize,
}

/// Multiply-adds in f32.
pub fn halo_fma(name: &'static str) -> HaloLoop {
    let text = include_str!("../kernels/halo_fma.cuh");
    HaloLoop { text, name, shared: 64 << 10, cycles: 16.0, matrix: false, threads: 512 }
}

/// Channels that lie side by side in shared memory, those of a group padded with zeros.
const QUAD: usize = 4;
/// Most steps of the depth whose offsets lanes keep in registers.
const KEPT: usize = 5;
/// Most filters of a group that a block computes: many, or fewer that leave room for other blocks.
const FILTERS: [usize; 2] = [64, 32];
/// Most filters of a block.
const COLUMNS: usize = 128;
/// Bytes of shared memory of a multiprocessor.
const SHARED: usize = 227 << 10;

/// A convolution as the kernel sees it; lengths in the order D, H, W.
struct Shape {
    groups: usize,
    /// Filters and channels of a group.
    filters: usize,
    channels: usize,
    taps: [usize; 3],
    strides: [usize; 3],
    dilations: [usize; 3],
    /// Extents of the output.
    images: usize,
    out: [usize; 3],
    /// Bytes of an element, and numbers of an output's channel.
    element: usize,
    channel_values: usize,
    along_k: bool,
    channels_last: bool,
}

/// A block's part of the output.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Tile {
    height: usize,
    width: usize,
    /// Pixels of the warps' items that cover height times width.
    pixels: usize,
    groups: usize,
    /// Filters of each group.
    filters: usize,
    threads: usize,
    /// Pixels and filters of a group that a warp takes at a time.
    item: [usize; 2],
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
    fn of(problem: &Problem) -> Option<Self> {
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

    /// Quads of a group's channels.
    fn quads(&self) -> usize {
        self.channels.div_ceil(QUAD)
    }

    /// Quads of the whole depth.
    fn depth(&self) -> usize {
        self.quads() * self.taps.iter().product::<usize>()
    }

    /// The receptive extent of so many neighbouring outputs: the elements of the image from the first to the last that
    /// they see.
    fn window(&self, dim: usize, outputs: usize) -> usize {
        (outputs - 1) * self.strides[dim] + (self.taps[dim] - 1) * self.dilations[dim] + 1
    }

    fn windows(&self, tile: &Tile) -> [usize; 3] {
        [self.window(0, 1), self.window(1, tile.height), self.window(2, tile.width)]
    }
}

/// Bytes of a block's parts of shared memory, in their order.
struct Layout {
    /// Between neighbouring pixels and rows of the window.
    pitch: usize,
    row: usize,
    window: usize,
    weights: usize,
    /// Between neighbouring rows of accumulators, in numbers.
    acc_pitch: usize,
    acc: usize,
    channels: usize,
    spots: usize,
    /// Numbers of a table of the depth.
    offsets: usize,
}

impl Layout {
    fn new(shape: &Shape, main_loop: &HaloLoop, tile: &Tile, [pitch, row]: [usize; 2]) -> Self {
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
        let acc_pitch = length.next_multiple_of(4) + (32 + rest - length.next_multiple_of(4) % 32) % 32;
        Layout {
            pitch,
            row,
            window: (depth * height * row).next_multiple_of(16),
            weights,
            acc_pitch,
            acc: acc_pitch * rows * size_of::<f32>(),
            channels: (columns * shape.channel_values.max(1) * size_of::<f32>()).next_multiple_of(16),
            spots: depth * height * width * 8,
            offsets: if main_loop.matrix && steps > KEPT { steps * 4 } else { 0 },
        }
    }

    fn bytes(&self) -> usize {
        self.window + self.weights + self.acc + self.channels + self.spots + self.offsets * size_of::<u32>()
    }
}

/// Bytes between pixels and between rows without padding.
fn dense(shape: &Shape, tile: &Tile) -> [usize; 2] {
    let pitch = tile.groups * shape.quads() * QUAD * shape.element;
    [pitch, pitch * shape.windows(tile)[2]]
}

/// Bytes between pixels and between rows with the padding with which a warp's reads of the window meet the fewest banks twice.
fn padded(shape: &Shape, main_loop: &HaloLoop, tile: &Tile) -> [usize; 2] {
    let quad = QUAD * shape.element;
    let [pitch, _] = dense(shape, tile);
    let width = shape.windows(tile)[2];
    let steps = shape.depth().div_ceil(4);
    let cost = |&[pitch, row]: &[usize; 2]| -> usize {
        let address = |pixel: usize, q: usize| {
            let (tap, c) = (q / shape.quads(), q % shape.quads());
            let [_, taps_h, taps_w] = shape.taps;
            let (h, w) = (tap / taps_w % taps_h * shape.dilations[1], tap % taps_w * shape.dilations[2]);
            let (y, x) = (pixel / tile.width * shape.strides[1], pixel % tile.width * shape.strides[2]);
            (y + h) * row + (x + w) * pitch + c * quad
        };
        let of_step = |step: usize| {
            let lane = |lane: usize| match main_loop.matrix {
                true => address(lane / 4, (step * 4 + lane % 4).min(shape.depth() - 1)),
                false => address(lane, (step * 4).min(shape.depth() - 1)),
            };
            wavefronts(&(0..32).map(lane).collect::<Vec<_>>(), quad)
        };
        (0..steps).step_by(steps.div_ceil(3)).map(of_step).sum()
    };
    let pitches = (0..128 / quad).map(|pad| pitch + pad * quad);
    let all = pitches.flat_map(|pitch| [0, 32, 64, 96].map(|pad| [pitch, pitch * width + pad]));
    let fits =
        |&pitches: &[usize; 2]| Layout::new(shape, main_loop, tile, pitches).bytes() <= main_loop.shared;
    all.filter(fits).min_by_key(|pitches| (cost(pitches), pitches[1])).unwrap_or([pitch, pitch * width])
}

/// How often shared memory is read for as many accesses of `bytes` by the lanes of a warp.
fn wavefronts(addresses: &[usize], bytes: usize) -> usize {
    let phase = |lanes: &[usize]| {
        let words = lanes.iter().flat_map(|at| (at / 4..(at + bytes) / 4).collect::<Vec<_>>());
        let mut words: Vec<usize> = words.collect();
        words.sort_unstable();
        words.dedup();
        (0..32).map(|bank| words.iter().filter(|&word| word % 32 == bank).count()).max().unwrap_or(0)
    };
    addresses.chunks(128 / bytes).map(phase).sum()
}

/// The configurations of [`halo`] for a problem that [`halo_refusal`] accepts: the tiles that have room.
pub fn halo_configurations(
    problem: &Problem,
    main_loop: &HaloLoop,
    units: usize,
) -> Vec<(Configuration, Estimate)> {
    let Some(shape) = Shape::of(problem) else { return Vec::new() };
    let estimate = |cost| Estimate::Cost { cost, unit: "cycles", model: "windows" };
    ranked(timed(&shape, main_loop, units), estimate)
}

/// The tiles that have room, with about how many cycles each takes.
fn timed(shape: &Shape, main_loop: &HaloLoop, units: usize) -> Vec<(Tile, f64)> {
    let mut all = Vec::new();
    let _ = candidates(shape, main_loop, &mut |tile, bytes| {
        all.push((tile, time(shape, main_loop, &tile, bytes, units)));
        ControlFlow::Continue(())
    });
    all
}

/// Visits every tile that there is room for, with its bytes of shared memory, until one breaks.
fn candidates(
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

/// About how many cycles the kernel takes. A multiprocessor's tiles share what issues instructions, reads and writes
/// shared memory, multiplies, and brings bytes; a tile alone waits for one after the other.
fn time(shape: &Shape, main_loop: &HaloLoop, tile: &Tile, bytes: usize, units: usize) -> f64 {
    // Instructions and bytes of a multiprocessor in a cycle: of shared memory, and from and to the caches.
    const ISSUE: f64 = 2.6;
    const BANKS: f64 = 128.0;
    const CACHE: f64 = 32.0;
    // Cycles until what a tile asks for has come; of an instruction behind the one before it.
    const MEMORY: f64 = 1500.0;
    const NEXT: f64 = 5.0;

    let warps = (tile.threads / 32) as f64;
    let (element, quad) = (shape.element as f64, (QUAD * shape.element) as f64);
    // Bringing the window: a load of 16 bytes or less takes so many instructions, elements one by one more.
    let run = (tile.groups * shape.channels) as f64 * element;
    let vector = if shape.channels_last && shape.channels.is_multiple_of(QUAD) {
        // Neighbouring pixels of single quads are padded, and lie at multiples of no more.
        if shape.quads() == 1 || (tile.groups * shape.quads()) % 2 == 1 { quad } else { 16.0 }
    } else {
        0.0
    };
    let pixels = shape.windows(tile).iter().product::<usize>() as f64;
    let brought = pixels * (tile.groups * shape.quads()) as f64 * quad;
    let loads = if vector > 0.0 { brought / vector } else { brought / quad };
    let per_load = if vector > 0.0 { 16.0 } else { 18.0 + 5.0 * shape.channels.min(QUAD) as f64 };
    // Multiplying: what a warp does for an item, and how many of them one after the other.
    let parts = tile.pixels / tile.item[0];
    let items = tile.groups * tile.filters.div_ceil(tile.item[1]);
    let in_turn = items.div_ceil((tile.threads / 32 / parts).max(1)) as f64;
    let steps = shape.depth().div_ceil(4) as f64;
    let [blocks_p, blocks_f] = [tile.item[0] as f64 / 16.0, tile.item[1] as f64 / 8.0];
    let (instructions, reads, products) = if main_loop.matrix {
        let deep = element / 2.0;
        let rounding = if deep > 1.0 { 8.0 * blocks_p } else { 0.0 };
        let instructions = steps * (2.0 * blocks_p + blocks_f + deep * blocks_p * blocks_f + rounding + 3.0)
            + 8.0 * blocks_p * blocks_f;
        let reads = steps * (2.0 * blocks_p * 1.25 + blocks_f) * 32.0 * quad + blocks_p * blocks_f * 512.0;
        (instructions, reads, steps * blocks_p * blocks_f * main_loop.cycles * deep)
    } else {
        let (lanes, filters) = (tile.item[0] as f64 / 32.0, tile.item[1] as f64);
        let quads = shape.depth() as f64;
        let widen = if element < 4.0 { 4.0 } else { 0.0 };
        let instructions =
            quads * (lanes * (1.0 + widen) + filters + 4.0 * lanes * filters + 2.0) + lanes * filters;
        let reads = quads * (lanes * 32.0 * quad * 1.25 + filters * BANKS) + lanes * filters * BANKS;
        (instructions, reads, quads * lanes * filters)
    };
    // Finishing.
    let outputs = (tile.height * tile.width * tile.groups * tile.filters) as f64;
    let wide = (outputs_at_once(shape, tile) as f64).max(1.0);
    let per_output = 24.0 / wide + 4.0;

    let busy = in_turn * warps;
    let issue =
        (loads / 32.0 * per_load + busy * instructions + outputs / 32.0 * per_output + 60.0 * warps) / ISSUE;
    let banks = (brought + busy * reads + outputs * 4.0) / BANKS;
    let multiply = busy * products;
    // Runs that are parts of sectors.
    let sectors = |bytes: f64| (bytes / 32.0).ceil() * 32.0 / bytes;
    let (x_sectors, y_sectors) = (
        if shape.channels_last && tile.groups == shape.groups {
            // Neighbouring pixels follow each other.
            sectors(run * shape.windows(tile)[2] as f64)
        } else if shape.channels_last {
            sectors(run)
        } else {
            sectors(shape.windows(tile)[2] as f64 * element)
        },
        if shape.along_k {
            sectors((tile.groups * tile.filters) as f64 * element)
        } else {
            sectors(tile.width as f64 * element)
        },
    );
    let memory = (pixels * run * x_sectors + outputs * element * y_sectors) / CACHE;
    let shared = [issue, banks, multiply, memory].iter().map(|cycles| cycles.powi(3)).sum::<f64>().cbrt();
    let alone = MEMORY
        + NEXT * (loads / tile.threads as f64 * per_load * 0.5 + in_turn * instructions)
        + NEXT * outputs / tile.threads as f64 * per_output;

    let tiles = tiles(shape, tile) * columns(shape, tile);
    let at_once = at_once(shape, main_loop, tile, bytes).min(tiles.div_ceil(units));
    let rounds = tiles.div_ceil(units * at_once) as f64;
    // Filters are brought once by a block.
    let filters = (tile.groups * tile.filters) as f64 * shape.depth() as f64;
    let start = 2500.0 + NEXT * filters / tile.threads as f64 * 30.0;
    start + rounds * (shared * at_once as f64).max(alone)
}

/// How many outputs lie side by side in a tile, about.
fn outputs_at_once(shape: &Shape, tile: &Tile) -> usize {
    let most = 16 / shape.element;
    if shape.along_k {
        return common_power(most, tile.groups * tile.filters);
    }
    let run = if tile.width == shape.out[2] { tile.height * tile.width } else { tile.width };
    common_power(common_power(most, run), shape.out[1] * shape.out[2])
}

/// Blocks of a multiprocessor.
fn at_once(shape: &Shape, main_loop: &HaloLoop, tile: &Tile, bytes: usize) -> usize {
    (SHARED / (bytes + 1024)).clamp(1, occupancy(shape, main_loop, tile))
}

/// Blocks of a multiprocessor by their registers: accumulators, and what is in flight.
fn occupancy(shape: &Shape, main_loop: &HaloLoop, tile: &Tile) -> usize {
    let wide = main_loop.matrix && shape.element > 2;
    let threads = match tile.item[0] * tile.item[1] / 32 {
        ..=32 if !wide => 640,
        ..=32 => 512,
        _ => main_loop.threads,
    };
    threads / tile.threads
}

/// Tiles of all images, and of all groups and filters.
fn tiles(shape: &Shape, tile: &Tile) -> usize {
    let [d, h, w] = shape.out;
    shape.images * d * h.div_ceil(tile.height) * w.div_ceil(tile.width)
}
fn columns(shape: &Shape, tile: &Tile) -> usize {
    shape.groups.div_ceil(tile.groups) * shape.filters.div_ceil(tile.filters)
}

/// What of a problem has no room: none if it has a tile. No tile is looked at after the first that has room, and none
/// where not even one output has, so that asking costs little.
pub fn halo_refusal(problem: &Problem, main_loop: &HaloLoop) -> Option<String> {
    let Some(shape) = Shape::of(problem) else { return Some("none".into()) };
    let one = Tile { height: 1, width: 1, pixels: 1, groups: 1, filters: 1, threads: 128, item: [1; 2] };
    let least = Layout::new(&shape, main_loop, &one, dense(&shape, &one));
    // The window and its table are the smallest that there are; the other parts are some numbers at least.
    let has_room = least.window + least.spots <= main_loop.shared
        && candidates(&shape, main_loop, &mut |_, _| ControlFlow::Break(())).is_break();
    (!has_room).then(|| {
        let [d, h, w] = shape.windows(&Tile { width: shape.out[2].min(64), ..one });
        format!("{} channels of {d} x {h} x {w} pixels", shape.channels)
    })
}

constants! {
    /// The constants of `halo.cuh` and its main loops.
    struct Constants {
        groups: usize,
        filters: usize,
        channels: usize,
        tile: [usize; 2],
        tile_p: usize,
        tile_g: usize,
        tile_f: usize,
        item_p: usize,
        item_f: usize,
        /// Extents of the window.
        window: [usize; 3],
        /// Bytes between neighbouring pixels and rows of the window.
        x_pitch: usize,
        x_row: usize,
        /// Numbers between neighbouring rows of accumulators.
        acc_pitch: usize,
        /// Offsets in shared memory.
        weights_at: usize,
        acc_at: usize,
        channels_at: usize,
        spots_at: usize,
        offsets_at: usize,
        /// Entries of the table of the depth.
        offsets: usize,
        /// Bytes of shared memory.
        shared: usize,
        /// Whether the window is copied asynchronously.
        copies_async: bool,
        threads: usize,
        /// Blocks of a multiprocessor.
        occupancy: usize,
        x_vector: usize,
        y_vector: usize,
        y_along_k: bool,
        w_k: usize,
        w_c: usize,
        taps: [usize; 3],
        pad: [usize; 3],
        /// Whether a tap may lie outside of the image, before or behind it in depth.
        outside_d: bool,
        stride: [usize; 3],
        dilation: [usize; 3],
        w: [usize; 3],
    }
}

/// Plans a convolution whose blocks keep a window of the image, on a device of about `units` multiprocessors, in one of
/// its configurations; `None` for others. Only for problems that [`halo_refusal`] and [`SPAN`](crate::SPAN) accept.
pub fn halo(
    vendor: &str,
    problem: &Problem,
    main_loop: &HaloLoop,
    units: usize,
    configuration: &Configuration,
) -> Option<Kernel> {
    let ((conv, weights), shape) = (problem.conv()?, Shape::of(problem)?);
    let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
    let tile = named(timed(&shape, main_loop, units), configuration)?;
    let layout = Layout::new(&shape, main_loop, &tile, padded(&shape, main_loop, &tile));
    let chunk = 16 / shape.element;
    // Whole quads that lie side by side as in the window.
    let quads = shape.channels.is_multiple_of(QUAD) && x.is_channels_last();
    let mut runs = vec![tile.groups * shape.channels, x.lens[1]];
    if main_loop.matrix {
        // They are copied as they are.
        runs.extend([layout.pitch / shape.element, layout.row / shape.element]);
    }
    let x_vector = if quads { runs.into_iter().fold(x.alignment(1, chunk), common_power) } else { 1 };
    let x_vector = if x_vector < QUAD { 1 } else { x_vector };
    let whole_rows = tile.width == y.lens[4];
    let y_vector = if shape.along_k {
        // Blocks of several groups have all of their filters.
        let whole = if shape.filters > tile.filters { shape.filters } else { y.lens[1] };
        [tile.groups * tile.filters, whole].into_iter().fold(y.alignment(1, chunk), common_power)
    } else if y.position_stride() == Some(1) {
        let lens = if whole_rows { [tile.height * tile.width, y.plane()] } else { [tile.width, y.lens[4]] };
        let rows = if whole_rows { y.lens[3] * y.lens[4] } else { y.lens[4] };
        [lens[0], lens[1], rows, y.strides[0], y.strides[1]].into_iter().fold(chunk, common_power)
    } else {
        1
    };

    let mut text = Text::default();
    Constants {
        groups: shape.groups,
        filters: shape.filters,
        channels: shape.channels,
        tile: [tile.height, tile.width],
        tile_p: tile.pixels,
        tile_g: tile.groups,
        tile_f: tile.filters,
        item_p: tile.item[0],
        item_f: tile.item[1],
        window: shape.windows(&tile),
        x_pitch: layout.pitch,
        x_row: layout.row,
        acc_pitch: layout.acc_pitch,
        weights_at: layout.window,
        acc_at: layout.window + layout.weights,
        channels_at: layout.window + layout.weights + layout.acc,
        spots_at: layout.window + layout.weights + layout.acc + layout.channels,
        offsets_at: layout.bytes() - layout.offsets * size_of::<u32>(),
        offsets: layout.offsets,
        shared: layout.bytes(),
        copies_async: main_loop.matrix && x_vector > 1,
        threads: tile.threads,
        occupancy: occupancy(&shape, main_loop, &tile),
        x_vector,
        y_vector,
        y_along_k: shape.along_k,
        w_k: w.strides[0],
        w_c: w.strides[1],
        taps: shape.taps,
        pad: spatial(conv.pads_before(), 0),
        outside_d: reaches_outside(conv, &w)[0],
        stride: shape.strides,
        dilation: shape.dilations,
        w: [w.strides[2], w.strides[3], w.strides[4]],
    }
    .write(&mut text);
    let (tiles, columns) = (tiles(&shape, &tile), columns(&shape, &tile));
    text.size("out_h", y.lens[3]).size("out_w", y.lens[4]).strides("x", &x.strides).strides("y", &y.strides);
    text.size("in_d", x.lens[2]).size("in_h", x.lens[3]).size("in_w", x.lens[4]).size("out_d", y.lens[2]);
    text.size("tiles", tiles).size("tiles_h", y.lens[3].div_ceil(tile.height));
    text.size("tiles_w", y.lens[4].div_ceil(tile.width));

    // Blocks keep their filters and walk over as many tiles as leaves every multiprocessor about as much.
    let slots = units * at_once(&shape, main_loop, &tile, layout.bytes());
    let rounds = (tiles * columns).div_ceil(slots).min(tiles);
    let grid = columns * tiles.div_ceil(rounds);
    let geometry =
        Geometry { grid: [grid as u32, 1, 1], block: tile.threads as u32, shared: layout.bytes() as u32 };
    let detail = format!(
        "{}, tile {}x{} x {} groups x {} filters, {} x {} at a time, image read in {}, {y_vector} outputs at a time",
        main_loop.name,
        tile.height,
        tile.width,
        tile.groups,
        tile.filters,
        tile.item[0],
        tile.item[1],
        if x_vector > 1 { format!("{} bytes", x_vector * shape.element) } else { "elements".into() },
    );
    let files =
        [include_str!("../kernels/halo.cuh"), main_loop.text, include_str!("../kernels/halo_kernel.cuh")];
    Some(text.finish(vendor, problem, &files, geometry, detail))
}

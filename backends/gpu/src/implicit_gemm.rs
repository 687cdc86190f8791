//! Convolutions as implicit matrix products.

use fuseplan_api::{ConvolutionDescriptor, Problem};

use crate::kernel::{ALONE, Geometry, Kernel, PLACE, SHARE, Text};
use crate::tiling::{Costs, Target, Tile, Work, choose};
use crate::volume::{Volume, common_power, evenly_apart, spatial};

/// The part of the kernel that multiplies.
#[derive(Debug, Clone, Copy)]
pub struct MainLoop {
    /// Its text.
    pub text: &'static str,
    /// Its name, for people.
    pub name: &'static str,
    /// Its tiles.
    pub tiles: fn(&Access) -> &'static [Tile],
    /// Further constants of its text.
    pub constants: fn(&Tile, &Access) -> Vec<(&'static str, usize)>,
    /// Bytes of shared memory that its operands need.
    pub shared: fn(&Tile, &Access) -> usize,
    /// Pixels of a tile whose sums it leaves in shared memory at once.
    pub part: fn(&Tile) -> usize,
    /// What it takes.
    pub costs: Costs,
}

/// How the layouts let operands be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Bytes of an element.
    pub element: usize,
    /// Whether the image is read in chunks of 16 bytes along the channels.
    pub image_chunks: bool,
    /// Otherwise, how many pixels are neighbours in memory wherever the tile lies: a power of two, at most as
    /// many as 16 bytes hold.
    pub image_run: usize,
    /// Whether filters are read in chunks of 16 bytes along the depth.
    pub filter_chunks: bool,
    /// Channels of a group times taps.
    pub depth: usize,
}

/// Fitted to 241 timings of 16 convolutions of ResNet-50 and MobileNet v2, of 1 and 8 images, on an H200, to 12 % in the
/// mean square. In a later run the choice was 4 to 7 % slower in the mean than the fastest of the tiles timed there, and
/// 2 to 4 % for 16 convolutions of VGG16, Inception v3 and MobileNet v1, which the fit has not seen; the worst 1.5 times.
const COSTS: Costs = Costs {
    launch: 3.74,
    step: 0.57,
    load: 0.003,
    product: 3.6e-4,
    filled: 7.2e-4,
    meet: 1.17,
    crowd: 0.21,
    output: 2.3e-4,
    memory: 2.2e-7,
    cache: 1.2e-7,
};

/// Multiply-adds in f32.
pub fn ffma() -> MainLoop {
    const fn tile(pixels: usize, filters: usize, slices: usize, rate: usize) -> Tile {
        let depth = if slices > 1 { 32 } else { 16 };
        Tile { pixels, filters, depth, threads: pixels * filters / 64 * slices, slices, rate }
    }
    const TILES: [Tile; 6] = [
        tile(128, 128, 1, 100),
        tile(128, 64, 1, 95),
        tile(64, 64, 1, 85),
        tile(64, 64, 2, 85),
        tile(64, 64, 4, 85),
        tile(64, 32, 4, 70),
    ];
    MainLoop {
        text: include_str!("../kernels/ffma.cuh"),
        name: "FFMA",
        // Chunks of the image take more registers than a thread of the largest tile has.
        tiles: |access| &TILES[usize::from(access.image_chunks)..],
        constants: |tile, _| {
            // Registers for the sums and what is on its way.
            let blocks = match tile.threads {
                256 => 2,
                128 => 3,
                _ => 4,
            };
            vec![("OCCUPANCY", blocks), ("UNROLL", tile.depth / tile.slices)]
        },
        shared: |tile, _| {
            let rows = tile.pixels + 4 + tile.filters + 4;
            2 * tile.depth * (rows * size_of::<f32>() + size_of::<[u32; 2]>())
        },
        part: |tile| {
            if tile.pixels * tile.filters * tile.slices > 8192 { tile.pixels / 2 } else { tile.pixels }
        },
        costs: COSTS,
    }
}

/// Whether an output is of the input's place alone.
fn is_pointwise(conv: &ConvolutionDescriptor, weights: &Volume) -> bool {
    weights.plane() == 1
        && conv.pads().iter().all(|&pad| pad == 0)
        && conv.strides().iter().all(|&stride| stride == 1)
}

/// Pixels of a channel of the image that [`implicit_gemm`] reads at once: at most 16 bytes of them, which lie side
/// by side.
pub fn image_run(problem: &Problem) -> usize {
    let Some((conv, weights)) = problem.conv() else { return 1 };
    let x = Volume::of(&problem.input);
    if !is_pointwise(conv, &Volume::of(weights)) || x.place_stride() != Some(1) {
        return 1;
    }
    let planes = common_power(16 / problem.output.data_type().size(), x.plane());
    x.strides[..2].iter().fold(planes, |power, &stride| common_power(power, stride))
}

/// Plans a convolution as an implicit matrix product on a device. Only for problems that meet [`GROUP_COUNT`](crate::GROUP_COUNT) and [`SPAN`](crate::SPAN); worth it for those that meet
/// [`GEMM`](crate::GEMM).
pub fn implicit_gemm(vendor: &str, problem: &Problem, main_loop: &MainLoop, target: &Target) -> Kernel {
    let Some((conv, weights)) = problem.conv() else { unreachable!("a constraint demands a convolution") };
    let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
    let (filters, channels, taps) = (w.lens[0] / conv.groups(), w.lens[1], w.plane());
    let chunk = 16 / problem.output.data_type().size();
    // The depth runs over channels fastest where channels are neighbours.
    let channel_inner = x.is_channels_last();
    let whole = |number: usize| number.is_multiple_of(chunk);
    let x_vector = channel_inner && whole(channels) && x.alignment(1, chunk) == chunk;
    let w_vector = if channel_inner && taps > 1 {
        w.is_channels_last() && whole(channels) && w.alignment(1, chunk) == chunk
    } else {
        let packed = w.place_stride() == Some(1) && (channels == 1 || w.strides[1] == taps);
        packed && whole(channels * taps) && whole(w.strides[0])
    };
    // Whether a filter's elements lie in the order of the depth.
    let order = if channel_inner { [2, 3, 4, 1] } else { [1, 2, 3, 4] };
    let w_linear = evenly_apart(&order.map(|d| w.lens[d]), &order.map(|d| w.strides[d])) == Some(1);
    // Whether places of the output are those of the input, evenly apart.
    let (places, pixels) = (x.place_stride(), x.pixel_stride());
    let one_tap = is_pointwise(conv, &w) && places.is_some();
    let x_run = if x_vector { 1 } else { image_run(problem) };
    let access = Access {
        element: problem.output.data_type().size(),
        image_chunks: x_vector,
        image_run: x_run,
        filter_chunks: w_vector,
        depth: channels * taps,
    };
    let work = Work {
        pixels: y.pixels(),
        filters,
        depth: access.depth,
        groups: conv.groups(),
        loaded: [if x_vector { chunk } else { x_run }, if w_vector { chunk } else { 1 }],
        element: access.element,
        bytes: problem.input.bytes() + weights.bytes() + problem.output.bytes(),
    };
    let (tile, split) = choose((main_loop.tiles)(&access), &work, &main_loop.costs, target);
    let along_k = y.is_channels_last();
    let y_vector = match (along_k, y.place_stride()) {
        (true, _) => common_power(y.alignment(1, chunk), filters),
        (false, Some(1)) => {
            let planes = common_power(chunk, y.plane());
            y.strides[..2].iter().fold(planes, |power, &stride| common_power(power, stride))
        }
        _ => 1,
    };

    let mut text = Text::default();
    text.constant("TILE_P", tile.pixels).constant("TILE_F", tile.filters).constant("TILE_K", tile.depth);
    let part = (main_loop.part)(&tile);
    let operands = (main_loop.shared)(&tile, &access);
    // What other blocks read is never where copies arrive: tools that look for races do not see that these have.
    let sums_at = if split > 1 { operands.next_multiple_of(16) } else { 0 };
    text.constant("PART_P", part)
        .constant("SLICES", tile.slices)
        .constant("SPLIT", split)
        .constant("SUMS_AT", sums_at);
    text.constant("THREADS", tile.threads).constant("FILTERS", filters).constant("CHANNELS", channels);
    for (name, value) in (main_loop.constants)(&tile, &access) {
        text.constant(name, value);
    }
    let numbers = [
        ("TAPS", [w.lens[2], w.lens[3], w.lens[4]]),
        ("PAD", spatial(conv.pads(), 0)),
        ("STRIDE", spatial(conv.strides(), 1)),
        ("DILATION", spatial(conv.dilations(), 1)),
        ("W", [w.strides[2], w.strides[3], w.strides[4]]),
    ];
    for (name, values) in numbers {
        for (dim, value) in ["D", "H", "W"].into_iter().zip(values) {
            text.constant(&format!("{name}_{dim}"), value);
        }
    }
    text.constant("W_K", w.strides[0]).constant("W_C", w.strides[1]);
    text.constant("CHANNEL_INNER", channel_inner.into());
    text.constant("X_VECTOR", x_vector.into()).constant("X_RUN", x_run);
    text.constant("ONE_TAP", one_tap.into()).constant("X_LINEAR", (one_tap && pixels.is_some()).into());
    text.constant("W_VECTOR", w_vector.into()).constant("W_LINEAR", w_linear.into());
    text.constant("Y_ALONG_K", along_k.into()).constant("Y_VECTOR", y_vector);
    text.output(&y).place(&y);
    text.size("in_d", x.lens[2]).size("in_h", x.lens[3]).size("in_w", x.lens[4]);
    text.strides("x", &x.strides).size("x_p", pixels.or(places).unwrap_or(0));

    let pitch = if along_k { tile.filters + 8 } else { part + 4 };
    let sums = tile.slices * pitch * if along_k { part } else { tile.filters } * size_of::<f32>();
    let blocks = y.pixels().div_ceil(tile.pixels) * filters.div_ceil(tile.filters) * split;
    let geometry = Geometry {
        grid: [blocks as u32, 1, conv.groups() as u32],
        block: tile.threads as u32,
        shared: if split > 1 { sums_at + sums } else { sums.max(operands) } as u32,
    };
    let image = match (x_vector, x_run) {
        (true, _) => "16 bytes along channels".into(),
        (false, 1) => "elements".into(),
        (false, run) => format!("{run} pixels at a time"),
    };
    let detail = format!(
        "{}, tile {} pixels x {} filters x {}{}{}, image read in {image}, filters in {}, {y_vector} outputs at a time",
        main_loop.name,
        tile.pixels,
        tile.filters,
        tile.depth,
        if tile.slices > 1 { format!(" in {} slices", tile.slices) } else { String::new() },
        if split > 1 { format!(", shared by {split} blocks") } else { String::new() },
        if w_vector { "16 bytes" } else { "elements" },
    );
    let cluster = target.cluster.filter(|_| split > 1).unwrap_or(ALONE);
    let files = [PLACE, cluster, SHARE, include_str!("../kernels/implicit_gemm.cuh"), main_loop.text];
    text.finish(vendor, problem, &files, geometry, detail)
}

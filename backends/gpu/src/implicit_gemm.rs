//! Convolutions as implicit matrix products.

use fuseplan_api::{ConvolutionDescriptor, Problem};

use crate::kernel::{Geometry, Kernel, PLACE, Text};
use crate::volume::{Volume, common_power, evenly_apart, spatial};

/// A block's part of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Output pixels.
    pub pixels: usize,
    /// Filters.
    pub filters: usize,
    /// Channels times taps of one step.
    pub depth: usize,
    /// Threads of the block.
    pub threads: usize,
    /// How fast blocks that fill a multiprocessor compute a product, in any unit that a list of tiles shares.
    pub rate: usize,
}

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

/// Multiply-adds in f32.
pub fn ffma() -> MainLoop {
    const fn tile(pixels: usize, filters: usize, rate: usize) -> Tile {
        Tile { pixels, filters, depth: 16, threads: pixels * filters / 64, rate }
    }
    const TILES: [Tile; 3] = [tile(128, 128, 100), tile(128, 64, 95), tile(64, 64, 85)];
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
            vec![("OCCUPANCY", blocks), ("UNROLL", tile.depth)]
        },
        shared: |tile, _| {
            let rows = tile.pixels + 4 + tile.filters + 4;
            2 * tile.depth * (rows * size_of::<f32>() + size_of::<[u32; 2]>())
        },
        part: |tile| tile.pixels / 2,
    }
}

/// The tile that is done first: the busiest multiprocessor computes its share of blocks, whether they are full
/// or not.
fn choose(tiles: &[Tile], pixels: usize, filters: usize, groups: usize, units: usize) -> Tile {
    let time = |tile: &&Tile| {
        let blocks = pixels.div_ceil(tile.pixels) * filters.div_ceil(tile.filters) * groups;
        blocks.div_ceil(units) * tile.pixels * tile.filters * 1000 / tile.rate
    };
    tiles.iter().min_by_key(time).copied().unwrap_or(tiles[0])
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

/// Plans a convolution as an implicit matrix product on a device of about `units` multiprocessors. Only for
/// problems that meet [`GROUP_COUNT`](crate::GROUP_COUNT) and [`SPAN`](crate::SPAN); worth it for those that meet
/// [`GEMM`](crate::GEMM).
pub fn implicit_gemm(vendor: &str, problem: &Problem, main_loop: &MainLoop, units: usize) -> Kernel {
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
    let tile = choose((main_loop.tiles)(&access), y.pixels(), filters, conv.groups(), units);
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
    text.constant("PART_P", part);
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
    let sums = pitch * if along_k { part } else { tile.filters } * size_of::<f32>();
    let blocks = y.pixels().div_ceil(tile.pixels) * filters.div_ceil(tile.filters);
    let geometry = Geometry {
        grid: [blocks as u32, 1, conv.groups() as u32],
        block: tile.threads as u32,
        shared: sums.max((main_loop.shared)(&tile, &access)) as u32,
    };
    let image = match (x_vector, x_run) {
        (true, _) => "16 bytes along channels".into(),
        (false, 1) => "elements".into(),
        (false, run) => format!("{run} pixels at a time"),
    };
    let detail = format!(
        "{}, tile {} pixels x {} filters x {}, image read in {image}, filters in {}, {y_vector} outputs at a time",
        main_loop.name,
        tile.pixels,
        tile.filters,
        tile.depth,
        if w_vector { "16 bytes" } else { "elements" },
    );
    let files = [PLACE, include_str!("../kernels/implicit_gemm.cuh"), main_loop.text];
    text.finish(vendor, problem, &files, geometry, detail)
}

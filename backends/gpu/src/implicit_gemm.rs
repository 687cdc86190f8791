//! Convolutions as implicit matrix products.

use fuseplan_api::Problem;

use crate::kernel::{Geometry, Kernel, PLACE, Text};
use crate::volume::{Volume, common_power, spatial};

/// A block's part of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Output pixels.
    pub pixels: usize,
    /// Filters.
    pub filters: usize,
    /// Channels times taps of one step.
    pub depth: usize,
    /// Threads of the block; at least as many as pixels and as filters.
    pub threads: usize,
}

/// The part of the kernel that multiplies.
#[derive(Debug, Clone, Copy)]
pub struct MainLoop {
    /// Its text.
    pub text: &'static str,
    /// Its name, for people.
    pub name: &'static str,
    /// Its tiles, the largest first.
    pub tiles: &'static [Tile],
    /// Further constants of its text.
    pub constants: fn(&Tile) -> Vec<(&'static str, usize)>,
    /// Bytes of shared memory that its operands need.
    pub shared: fn(&Tile) -> usize,
    /// Pixels of a tile whose sums it leaves in shared memory at once.
    pub part: fn(&Tile) -> usize,
}

/// Multiply-adds in f32.
pub fn ffma() -> MainLoop {
    const fn tile(pixels: usize, filters: usize) -> Tile {
        Tile { pixels, filters, depth: 16, threads: pixels * filters / 64 }
    }
    MainLoop {
        text: include_str!("../kernels/ffma.cuh"),
        name: "FFMA",
        tiles: const { &[tile(128, 128), tile(128, 64), tile(64, 64)] },
        constants: |tile| vec![("UNROLL", tile.depth)],
        shared: |tile| 2 * tile.depth * (tile.pixels + 4 + tile.filters + 4) * size_of::<f32>(),
        part: |tile| tile.pixels,
    }
}

/// The largest tile that wastes few filters and gives every multiprocessor work, else the smallest.
fn choose(tiles: &[Tile], pixels: usize, filters: usize, groups: usize, units: usize) -> Tile {
    let suits = |tile: &&Tile| {
        let blocks = pixels.div_ceil(tile.pixels) * filters.div_ceil(tile.filters) * groups;
        let columns = filters.next_multiple_of(tile.filters);
        blocks >= units && 4 * columns <= 5 * filters
    };
    tiles.iter().find(suits).copied().unwrap_or(tiles[tiles.len() - 1])
}

/// Plans a convolution as an implicit matrix product on a device of about `units` multiprocessors. Only for
/// problems that meet [`GEMM`](crate::GEMM) and [`SPAN`](crate::SPAN).
pub fn implicit_gemm(vendor: &str, problem: &Problem, main_loop: &MainLoop, units: usize) -> Kernel {
    let Some((conv, weights)) = problem.conv() else { unreachable!("a constraint demands a convolution") };
    let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
    let (filters, channels, taps) = (w.lens[0] / conv.groups(), w.lens[1], w.plane());
    let chunk = 16 / problem.output.data_type().size();
    let tile = choose(main_loop.tiles, y.pixels(), filters, conv.groups(), units);

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
    for (name, value) in (main_loop.constants)(&tile) {
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
    text.constant("X_VECTOR", x_vector.into()).constant("W_VECTOR", w_vector.into());
    text.constant("Y_ALONG_K", along_k.into()).constant("Y_VECTOR", y_vector);
    text.output(&y).place(&y);
    text.size("in_d", x.lens[2]).size("in_h", x.lens[3]).size("in_w", x.lens[4]);
    text.strides("x", &x.strides);

    let pitch = if along_k { tile.filters + 8 } else { part + 4 };
    let sums = pitch * if along_k { part } else { tile.filters } * size_of::<f32>();
    let blocks = y.pixels().div_ceil(tile.pixels) * filters.div_ceil(tile.filters);
    let geometry = Geometry {
        grid: [blocks as u32, 1, conv.groups() as u32],
        block: tile.threads as u32,
        shared: sums.max((main_loop.shared)(&tile)) as u32,
    };
    let access = |vector| if vector { "16 bytes" } else { "elements" };
    let detail = format!(
        "{}, tile {} pixels x {} filters x {}, image read in {}, filters in {}, {y_vector} outputs at a time",
        main_loop.name,
        tile.pixels,
        tile.filters,
        tile.depth,
        access(x_vector),
        access(w_vector),
    );
    let files = [PLACE, include_str!("../kernels/implicit_gemm.cuh"), main_loop.text];
    text.finish(vendor, problem, &files, geometry, detail)
}

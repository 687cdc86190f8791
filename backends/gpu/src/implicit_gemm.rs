//! Convolutions as implicit matrix products.

use fuseplan_api::volume::{Volume, common_power, evenly_apart, spatial};
use fuseplan_api::{Configuration, ConvolutionDescriptor, Estimate, Problem};

use crate::chain::residuals;
use crate::configurations::{estimate, named, ranked};
use crate::constraint::convolution;
use crate::kernel::{ALONE, COORD, Geometry, Kernel, SHARE, Text};
use crate::tiling::{Costs, Target, Tile, Tiling, Work, tilings};
use crate::volume::reaches_outside;

/// The part of the kernel that multiplies.
#[derive(Debug, Clone, Copy)]
pub struct MainLoop {
    /// Its text, in one file or several.
    pub texts: &'static [&'static str],
    /// Its name, for people.
    pub name: &'static str,
    /// How many pixels of an image that is not read in chunks it reads at once.
    pub image_run: fn(&Problem) -> usize,
    /// Its tiles.
    pub tiles: fn(&Access) -> &'static [Tile],
    /// Adds the constants of its own.
    pub constants: fn(&Tile, &Access, &mut Text),
    /// Bytes of shared memory that its operands need.
    pub shared: fn(&Tile, &Access) -> usize,
    /// Pixels of a tile whose accumulators it leaves in shared memory at once.
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
    /// Otherwise, how many pixels are read at once: a power of two, at most as many as 16 bytes hold.
    pub image_run: usize,
    /// Whether filters are read in chunks of 16 bytes along the depth.
    pub filter_chunks: bool,
    /// Channels of a group times taps.
    pub depth: usize,
}

/// Fitted to 786 timings of every other one of 105 convolutions of networks, of 1, 8 and 64 images in both layouts, on an H100, to 18 % in
/// the mean square, and 18 % of the others too. The choice is 5 % slower in the mean than the fastest of up to twelve tiles, 34 % at
/// worst, and 6 and 47 % for the others. A step of a warp by itself takes four times as long as its multiply-adds, which other warps do not hide as a
/// whole; with the longer of the two times alone these were 16, 106, 17 and 119 %.
const COSTS: Costs = Costs {
    is_fitted: true,
    launch: 1.36,
    block: 3.85,
    step: 0.39,
    load: 0.0187,
    product: 3.2e-4,
    filled: 6.75e-4,
    exposed: 1.0,
    meet: 0.61,
    crowd: 0.224,
    hand_on: 3.0,
    handed_on: 4.4e-7,
    output: 0.0,
    memory: 2.46e-7,
    cache: 9.7e-8,
};

constants! {
    /// The constants of `implicit_gemm.cuh`.
    struct Constants {
        tile_p: usize,
        tile_f: usize,
        tile_k: usize,
        /// Pixels whose accumulators lie in shared memory at once.
        part_p: usize,
        slices: usize,
        split: usize,
        /// Offset of the accumulators in shared memory.
        acc_at: usize,
        threads: usize,
        filters: usize,
        channels: usize,
        taps: [usize; 3],
        pad: [usize; 3],
        /// Whether a tap may lie outside of the image.
        outside: [bool; 3],
        stride: [usize; 3],
        dilation: [usize; 3],
        w: [usize; 3],
        w_k: usize,
        w_c: usize,
        /// Whether the depth runs over channels fastest.
        channel_inner: bool,
        /// Whether the image is read in chunks of 16 bytes, and otherwise how many pixels at once.
        x_vector: bool,
        x_run: usize,
        one_tap: bool,
        x_linear: bool,
        w_vector: bool,
        w_linear: bool,
        y_along_k: bool,
        y_vector: usize,
    }
}

constants! {
    /// The constants of `ffma.cuh`.
    struct FfmaConstants {
        /// Blocks of a multiprocessor.
        occupancy: usize,
        /// Rows of a step that are unrolled.
        unroll: usize,
    }
}

/// Adds the constants of `ffma.cuh`: blocks of a multiprocessor, and rows of a step that are unrolled.
pub fn ffma_constants(occupancy: usize, unroll: usize, text: &mut Text) {
    FfmaConstants { occupancy, unroll }.write(text);
}

/// Multiply-adds in f32.
pub fn ffma() -> MainLoop {
    const fn tile(pixels: usize, filters: usize, slices: usize, rate: usize) -> Tile {
        let depth = if slices > 1 { 32 } else { 16 };
        Tile { pixels, filters, depth, threads: pixels * filters / 64 * slices, slices, rate }
    }
    const TILES: [Tile; 6] = [
        tile(128, 128, 1, 100),
        tile(128, 64, 1, 134),
        tile(64, 64, 1, 126),
        tile(64, 64, 2, 121),
        tile(64, 64, 4, 122),
        tile(64, 32, 4, 144),
    ];
    MainLoop {
        texts: &[kernel_text!("../kernels/ffma.cuh")],
        name: "FFMA",
        image_run,
        // Chunks of the image take more registers than a thread of the largest tile has.
        tiles: |access| &TILES[usize::from(access.image_chunks)..],
        constants: |tile, _, text| {
            // As many blocks as have registers for the accumulators and what is in flight.
            let blocks = match tile.threads {
                256 => 2,
                128 => 3,
                _ => 4,
            };
            ffma_constants(blocks, tile.depth / tile.slices, text);
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

/// Whether an output sees the input's element at the same position alone.
fn is_pointwise(conv: &ConvolutionDescriptor, weights: &Volume) -> bool {
    weights.plane() == 1
        && conv.pads_before().iter().chain(conv.pads_after()).all(|&pad| pad == 0)
        && conv.strides().iter().all(|&stride| stride == 1)
}

/// Pixels of a channel of the image that [`implicit_gemm`] reads at once: at most 16 bytes of them, which lie side
/// by side.
pub fn image_run(problem: &Problem) -> usize {
    let Some((conv, weights)) = problem.conv() else { return 1 };
    let x = Volume::of(&problem.input);
    if !is_pointwise(conv, &Volume::of(weights)) || x.position_stride() != Some(1) {
        return 1;
    }
    let planes = common_power(16 / problem.output.data_type().size(), x.plane());
    x.strides[..2].iter().fold(planes, |power, &stride| common_power(power, stride))
}

/// Two where an even pixel of the output and the next see neighbours in memory, whichever the tap, as those of one line do, or of
/// lines that follow each other in the image as in the output; else one. They may lie at any multiple of an element.
pub fn image_pair(problem: &Problem) -> usize {
    let Some((conv, _)) = problem.conv() else { return 1 };
    let (x, y) = (Volume::of(&problem.input), Volume::of(&problem.output));
    let strides = spatial(conv.strides(), 1);
    let mut length = 1;
    // From the innermost dimension outwards, as long as pixels follow each other.
    for dim in [4, 3, 2] {
        if y.lens[dim] > 1 && (strides[dim - 2] != 1 || x.strides[dim] != length) {
            break;
        }
        if y.lens[dim] % 2 == 0 {
            return 2;
        }
        if x.lens[dim] != y.lens[dim] {
            break;
        }
        length *= x.lens[dim];
    }
    1
}

/// How a convolution's operands can be read.
fn access_of(problem: &Problem, main_loop: &MainLoop) -> Access {
    let (_, weights) = convolution(problem);
    let (x, w) = (Volume::of(&problem.input), Volume::of(weights));
    let (channels, taps) = (w.lens[1], w.plane());
    let chunk = 16 / problem.output.data_type().size();
    // The depth runs over channels fastest where channels are neighbours.
    let channel_inner = x.is_channels_last();
    let whole = |number: usize| number.is_multiple_of(chunk);
    let image_chunks = channel_inner && whole(channels) && x.alignment(1, chunk) == chunk;
    let filter_chunks = if channel_inner && taps > 1 {
        w.is_channels_last() && whole(channels) && w.alignment(1, chunk) == chunk
    } else {
        let packed = w.position_stride() == Some(1) && (channels == 1 || w.strides[1] == taps);
        packed && whole(channels * taps) && whole(w.strides[0])
    };
    Access {
        element: problem.output.data_type().size(),
        image_chunks,
        image_run: if image_chunks { 1 } else { (main_loop.image_run)(problem) },
        filter_chunks,
        depth: channels * taps,
    }
}

/// The tiles of a convolution, with an estimate of each.
fn tiles_of(problem: &Problem, main_loop: &MainLoop, target: &Target) -> Vec<(Tiling, f64)> {
    let (conv, weights) = convolution(problem);
    let access = access_of(problem, main_loop);
    let chunk = 16 / access.element;
    let work = Work {
        pixels: Volume::of(&problem.output).pixels(),
        filters: weights.lens()[0] / conv.groups(),
        depth: access.depth,
        groups: conv.groups(),
        loaded: [
            if access.image_chunks { chunk } else { access.image_run },
            if access.filter_chunks { chunk } else { 1 },
        ],
        element: access.element,
        bytes: problem.input.element_bytes()
            + weights.element_bytes()
            + (1 + residuals(problem)) * problem.output.element_bytes(),
    };
    tilings((main_loop.tiles)(&access), &work, &main_loop.costs, target)
}

/// The configurations of [`implicit_gemm`] for a problem: its tiles. One of them at least does not meet in memory: nobody has timed
/// what does, so that whoever times configurations has something to compare it with.
pub fn gemm_configurations(
    problem: &Problem,
    main_loop: &MainLoop,
    target: &Target,
) -> Vec<(Configuration, Estimate)> {
    let estimate = estimate(main_loop.name, main_loop.costs.is_fitted);
    let all = tiles_of(problem, main_loop, target);
    let mut listed = ranked(all.iter().copied(), estimate);
    let at_once = ranked(all.into_iter().filter(|(tiling, _)| !tiling.in_memory), estimate);
    if let Some(fastest) = at_once.into_iter().next().filter(|fastest| !listed.contains(fastest)) {
        listed.pop();
        listed.push(fastest);
    }
    listed
}

/// Plans a convolution as an implicit matrix product on a device, in one of its configurations; `None` for others. Only
/// for problems that meet [`GROUP_COUNT`](crate::GROUP_COUNT) and [`SPAN`](crate::SPAN); preferred for those that meet
/// [`GEMM`](crate::GEMM).
pub fn implicit_gemm(
    vendor: &str,
    problem: &Problem,
    main_loop: &MainLoop,
    target: &Target,
    configuration: &Configuration,
) -> Option<Kernel> {
    let Tiling { tile, split, in_memory } = named(tiles_of(problem, main_loop, target), configuration)?;
    let (conv, weights) = convolution(problem);
    let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
    let (filters, channels) = (w.lens[0] / conv.groups(), w.lens[1]);
    let access = access_of(problem, main_loop);
    let Access { image_chunks: x_vector, image_run: x_run, filter_chunks: w_vector, .. } = access;
    let chunk = 16 / access.element;
    let channel_inner = x.is_channels_last();
    // Whether a filter's elements lie in the order of the depth.
    let order = if channel_inner { [2, 3, 4, 1] } else { [1, 2, 3, 4] };
    let w_linear = evenly_apart(&order.map(|d| w.lens[d]), &order.map(|d| w.strides[d])) == Some(1);
    // Whether positions of the output are those of the input, evenly apart.
    let (positions, pixels) = (x.position_stride(), x.pixel_stride());
    let one_tap = is_pointwise(conv, &w) && positions.is_some();
    let along_k = y.is_channels_last();
    let y_vector = match (along_k, y.position_stride()) {
        (true, _) => common_power(y.alignment(1, chunk), filters),
        (false, Some(1)) => {
            let planes = common_power(chunk, y.plane());
            y.strides[..2].iter().fold(planes, |power, &stride| common_power(power, stride))
        }
        _ => 1,
    };

    let mut text = Text::default();
    let part = (main_loop.part)(&tile);
    let operands = (main_loop.shared)(&tile, &access);
    // What other blocks read is never where copies arrive: tools that look for races do not see that these have.
    let acc_at = if split > 1 && !in_memory { operands.next_multiple_of(16) } else { 0 };
    Constants {
        tile_p: tile.pixels,
        tile_f: tile.filters,
        tile_k: tile.depth,
        part_p: part,
        slices: tile.slices,
        split,
        acc_at,
        threads: tile.threads,
        filters,
        channels,
        taps: [w.lens[2], w.lens[3], w.lens[4]],
        pad: spatial(conv.pads_before(), 0),
        outside: reaches_outside(conv, &w),
        stride: spatial(conv.strides(), 1),
        dilation: spatial(conv.dilations(), 1),
        w: [w.strides[2], w.strides[3], w.strides[4]],
        w_k: w.strides[0],
        w_c: w.strides[1],
        channel_inner,
        x_vector,
        x_run,
        one_tap,
        x_linear: one_tap && pixels.is_some(),
        w_vector,
        w_linear,
        y_along_k: along_k,
        y_vector,
    }
    .write(&mut text);
    (main_loop.constants)(&tile, &access, &mut text);
    text.output(&y).coord(&y);
    text.size("in_d", x.lens[2]).size("in_h", x.lens[3]).size("in_w", x.lens[4]);
    text.strides("x", &x.strides).size("x_p", pixels.or(positions).unwrap_or(0));

    let pitch = if along_k { tile.filters + 8 } else { part + 4 };
    let acc = tile.slices * pitch * if along_k { part } else { tile.filters } * size_of::<f32>();
    let blocks = y.pixels().div_ceil(tile.pixels) * filters.div_ceil(tile.filters) * split;
    let geometry = Geometry {
        grid: [blocks as u32, 1, conv.groups() as u32],
        block: tile.threads as u32,
        shared: if acc_at > 0 { acc_at + acc } else { acc.max(operands) } as u32,
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
        match split {
            1 => String::new(),
            _ => format!(", shared by {split} blocks{}", if in_memory { " in two launches" } else { "" }),
        },
        if w_vector { "16 bytes" } else { "elements" },
    );
    let gemm = kernel_text!("../kernels/implicit_gemm.cuh");
    if in_memory {
        let parts = tile.pixels / part * pitch * if along_k { part } else { tile.filters };
        text.launched_twice(blocks * conv.groups() * parts * size_of::<f32>());
        let files =
            [&[COORD, SHARE, gemm, kernel_text!("../kernels/tile_in_memory.cuh")], main_loop.texts].concat();
        return Some(text.finish(vendor, problem, &files, geometry, detail));
    }
    let cluster = target.cluster.filter(|_| split > 1).unwrap_or(ALONE);
    let files =
        [&[COORD, cluster, SHARE, gemm, kernel_text!("../kernels/tile_at_once.cuh")], main_loop.texts]
            .concat();
    Some(text.finish(vendor, problem, &files, geometry, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuseplan_api::{DataType, MathMode, Op, TensorDescriptor};

    /// How many pixels of an image with 3x3 filters are a load.
    fn pair(plane: [usize; 2], pads: [usize; 2], strides: [usize; 2]) -> usize {
        let of = |lens| TensorDescriptor::nchw(DataType::Half, lens).unwrap();
        let conv = ConvolutionDescriptor::d2().with_pads(pads).unwrap().with_strides(strides).unwrap();
        let (input, weights) = (of([2, 8, plane[0], plane[1]]), of([8, 8, 3, 3]));
        let output = conv.forward_output(&input, &weights).unwrap();
        image_pair(&Problem {
            input,
            output,
            ops: vec![Op::ConvForward { conv, weights }],
            math: MathMode::Precise,
        })
    }

    #[test]
    fn pairs_of_pixels_are_neighbours_under_every_tap() {
        // Lines of an even length, padded or not.
        assert_eq!([pair([7, 8], [1, 1], [1, 1]), pair([7, 8], [0, 0], [1, 1])], [2, 2]);
        // Odd lines that follow each other, of an even and of an odd number.
        assert_eq!([pair([8, 7], [1, 1], [1, 1]), pair([7, 7], [1, 1], [1, 1])], [2, 1]);
        // Lines that are shorter than the image's, or of which some are left out.
        assert_eq!([pair([8, 9], [1, 0], [1, 1]), pair([8, 7], [1, 1], [2, 1])], [1, 1]);
        assert_eq!([pair([8, 8], [1, 1], [2, 1]), pair([8, 8], [1, 1], [1, 2])], [2, 1]);
    }
}

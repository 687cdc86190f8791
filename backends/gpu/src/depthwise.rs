//! Depthwise convolutions, whose floor is memory.

use fuseplan_api::Problem;
use fuseplan_api::volume::{Volume, common_power, spatial};

use crate::chain::channel_values;
use crate::constraint::convolution;
use crate::kernel::{BRING, Geometry, Kernel, Text};

/// Most threads of a block.
const THREADS: usize = 128;
/// Bytes of neighbouring channels that a block takes at a time: a line of the caches.
const LINE: usize = 128;
/// Bytes that memory moves at once.
const SECTOR: f64 = 32.0;
/// Most bytes of a block's filters and their table of channels: what every compiler grants to a kernel that
/// declares its shared memory. The largest filters that [`DEPTHWISE`](crate::constraint::DEPTHWISE) accepts, behind them as many
/// operators as there can be, need less for each vector of channels.
const SHARED: usize = 48 << 10;
/// Most taps that are unrolled in both dimensions.
const UNROLLED: usize = 49;
/// Most rows or columns of the image between the first and the last tap of a tile.
const WINDOW: usize = 32;

/// Most filters of a thread where channels come last: more of them cost registers that more outputs use better.
const FILTERS: usize = 4;
/// Blocks for each multiprocessor; they walk over the images.
const WAVES: usize = 16;

/// A thread's outputs, and how many blocks at once its registers leave room for.
struct Tile {
    height: usize,
    width: usize,
    blocks: usize,
}

impl Tile {
    /// Large tiles read less, small ones keep more threads waiting for memory at the same time, and no multiprocessor idle where outputs are
    /// few. `waves` is how many blocks each multiprocessor gets with tiles of a height and a width. The rules are from 53 convolutions of
    /// known networks with one, eight and 64 images on an H200.
    fn new(
        channels_last: bool,
        [taps_h, taps_w]: [usize; 2],
        stride_h: usize,
        out_w: usize,
        sixteen_bits: bool,
        waves: impl Fn(usize, usize) -> f64,
    ) -> Self {
        let (small, medium) = (taps_h * taps_w <= 9, taps_h * taps_w <= 25);
        let (height, width, blocks) = match (channels_last, stride_h) {
            (true, 1) if small && sixteen_bits && waves(2, 4) < 1.0 => (1, 2, 4),
            (true, 1) if small => (2, 4, 3),
            (true, 1) if taps_w <= 5 => (1, 8, 3),
            (true, _) if !sixteen_bits || waves(1, 4) < 4.0 => (1, 4, 3),
            (true, _) if small => (2, 4, 3),
            (true, _) if taps_w <= 7 => (1, 8, 3),
            (true, _) => (1, 4, 3),
            (false, _) if out_w < 12 => (1, 4, 5),
            (false, 2..) if waves(2, 4) < 8.0 => (1, 4, 5),
            (false, 1) if medium && waves(4, 4) < 2.0 => (1, 4, 5),
            (false, _) if out_w < 20 => (2, 4, 4),
            (false, _) if !medium && waves(2, 8) < 2.0 => (2, 4, 4),
            (false, 1) if medium => (4, 4, if small { 5 } else { 4 }),
            (false, _) if !medium => (2, 8, 2),
            (false, _) => (4, 8, 3),
        };
        // More rows than one are unrolled with all their taps.
        let height = if taps_h * taps_w > UNROLLED { 1 } else { height };
        Tile { height, width, blocks }
    }
}

/// One dimension of a tile: the outputs of a thread, and the step at which it reads the image.
#[derive(Clone, Copy)]
struct Side {
    tile: usize,
    step: usize,
}

impl Side {
    /// As many of `wanted` outputs as read the image's elements more than once.
    fn new(wanted: usize, out: usize, taps: usize, stride: usize, dilation: usize) -> Self {
        let fits = |tile: &usize| (tile - 1) * stride + (taps - 1) * dilation < WINDOW;
        let tile = (1..=wanted.min(out)).rev().find(fits).unwrap_or(1);
        let apart = |count: usize, step: usize| if count > 1 { step } else { 0 };
        Side { tile, step: gcd(apart(tile, stride), apart(taps, dilation)).max(1) }
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// How a block's lanes (threads for different positions) are spread: along the width, the height, over planes, which
/// are images, or filters where channels come first.
#[derive(Clone, Copy)]
struct Spread {
    strips: usize,
    rows: usize,
    planes: usize,
}

impl Spread {
    /// The one that leaves few lanes idle and shares most of the image between neighbours. `bytes` of a position are
    /// neighbours in memory.
    fn new(
        lanes: usize,
        [strips, rows, planes]: [usize; 3],
        [height, width]: [[usize; 3]; 2],
        bytes: usize,
    ) -> Self {
        let halo = |tiles: usize, [tile, stride, extent]: [usize; 3]| {
            ((tiles * tile - 1) * stride + extent) as f64 / (tiles * tile * stride) as f64
        };
        let cost = |spread: &Spread| {
            let blocks =
                strips.div_ceil(spread.strips) * rows.div_ceil(spread.rows) * planes.div_ceil(spread.planes);
            // Part of a row begins and ends within sectors of memory.
            let run = (spread.strips * width[0] * bytes) as f64;
            let sectors = if spread.strips < strips { 1.0 + SECTOR / run } else { 1.0 };
            let read = halo(spread.rows, height) * halo(spread.strips, width) * sectors;
            (blocks * lanes) as f64 / (strips * rows * planes) as f64 * (1.0 + read)
        };
        let all = (1..=lanes.min(strips)).flat_map(|across| {
            (1..=(lanes / across).min(rows)).map(move |down| Spread {
                strips: across,
                rows: down,
                planes: (lanes / (across * down)).min(planes),
            })
        });
        all.min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(Spread { strips: 1, rows: 1, planes: 1 })
    }
}

constants! {
    /// The constants of `depthwise.cuh`.
    struct Constants {
        channels_last: bool,
        /// Filters of a thread.
        v_max: usize,
        /// Columns of the image and of the output that are read and written at once.
        x_vector: usize,
        y_vector: usize,
        /// Outputs of a thread.
        tile: [usize; 2],
        /// At which a thread reads the image.
        step: [usize; 2],
        taps: [usize; 2],
        pad: [usize; 2],
        stride: [usize; 2],
        dilation: [usize; 2],
        /// Filters of a channel.
        multiplier: usize,
        rows_unrolled: usize,
        channel_threads: usize,
        strips: usize,
        rows: usize,
        planes: usize,
        threads: usize,
        /// Blocks of a multiprocessor.
        blocks: usize,
        x_c: usize,
        x_w: usize,
        y_c: usize,
        y_w: usize,
    }
}

/// Plans a depthwise convolution. Only for problems that meet [`DEPTHWISE`](crate::constraint::DEPTHWISE) and
/// [`SPAN`](crate::SPAN).
pub(crate) fn depthwise(vendor: &str, problem: &Problem, units: usize) -> Kernel {
    let (conv, weights) = convolution(problem);
    let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
    let size = problem.output.data_type().size();
    let [[_, pad_h, pad_w], [_, stride_h, stride_w], [_, dilation_h, dilation_w]] =
        [spatial(conv.pads_before(), 0), spatial(conv.strides(), 1), spatial(conv.dilations(), 1)];
    let [taps_h, taps_w, out_h, out_w] = [w.lens[3], w.lens[4], y.lens[3], y.lens[4]];
    let channels_last = x.is_channels_last() && y.is_channels_last();

    // Elements that are read or written at once: filters, or columns of the image and of the output.
    let most = 16 / size;
    let multiplier = w.lens[0] / conv.groups();
    // All filters of their channels, or all of one channel.
    let suits = |filters: &usize| {
        let channels = (filters / multiplier).max(1);
        (multiplier.is_multiple_of(*filters) || filters.is_multiple_of(multiplier))
            && y.lens[1].is_multiple_of(*filters)
            && (x.alignment(1, channels), y.alignment(1, *filters)) == (channels, *filters)
    };
    let vector = if channels_last { [FILTERS, FILTERS / 2].into_iter().find(suits).unwrap_or(1) } else { 1 };
    let waves = |height: usize, width: usize| {
        let tiles = y.lens[0] * y.lens[1] / vector * out_h.div_ceil(height) * out_w.div_ceil(width);
        tiles as f64 / (units * THREADS) as f64
    };
    let wanted = Tile::new(channels_last, [taps_h, taps_w], stride_h, out_w, size == 2, waves);
    let side_h = Side::new(wanted.height, out_h, taps_h, stride_h, dilation_h);
    // Strips of the same width leave the fewest outputs beyond the edge, but may not be whole vectors.
    let even = out_w.div_ceil(out_w.div_ceil(wanted.width));
    let width = if channels_last { even } else { wanted.width };
    let side_w = Side::new(width, out_w, taps_w, stride_w, dilation_w);
    let at_once = |volume: &Volume, lens: usize, along: usize| {
        let packed = !channels_last && lens > 1 && volume.strides[4] == 1;
        if packed { [along, lens].into_iter().fold(volume.alignment(4, most), common_power) } else { 1 }
    };
    let x_vector = if side_w.step == 1 { at_once(&x, x.lens[4], side_w.tile * stride_w) } else { 1 };
    let y_vector = at_once(&y, out_w, side_w.tile);

    let vectors = y.lens[1] / vector;
    let (strips, rows) = (out_w.div_ceil(side_w.tile), out_h.div_ceil(side_h.tile));
    let lanes = |threads: usize| (THREADS / threads).max(1);
    // Filters that a block has room for, whole vectors of floats; a channel of no numbers has a size too.
    let filter_bytes = (taps_h * taps_w + channel_values(problem).max(1)) * size_of::<f32>();
    let most_filters = (SHARED - size_of::<[f32; 4]>()) / filter_bytes;
    let most_vectors = (LINE / (vector * size)).min(most_filters / vector);
    let columns = if channels_last { vectors.div_ceil(most_vectors) } else { 1 };
    let channel_threads = if channels_last { vectors.div_ceil(columns) } else { 1 };
    let spread = Spread::new(
        lanes(channel_threads),
        [strips, rows, if channels_last { y.lens[0] } else { y.lens[1].min(most_filters) }],
        [
            [side_h.tile, stride_h, (taps_h - 1) * dilation_h + 1],
            [side_w.tile, stride_w, (taps_w - 1) * dilation_w + 1],
        ],
        if channels_last { LINE } else { size },
    );
    let threads = channel_threads * spread.strips * spread.rows * spread.planes;
    let (columns, images_at_once) =
        if channels_last { (columns, spread.planes) } else { (y.lens[1].div_ceil(spread.planes), 1) };
    let blocks = [columns, strips.div_ceil(spread.strips), rows.div_ceil(spread.rows)];
    // A block takes several images where enough blocks are left.
    let of_an_image = blocks.iter().product::<usize>();
    let image_blocks = y.lens[0].div_ceil(images_at_once).min((units * WAVES).div_ceil(of_an_image));

    let mut text = Text::default();
    let unrolled = side_h.tile > 1 || taps_h * taps_w <= UNROLLED;
    Constants {
        channels_last,
        v_max: vector,
        x_vector,
        y_vector,
        tile: [side_h.tile, side_w.tile],
        step: [side_h.step, side_w.step],
        taps: [taps_h, taps_w],
        pad: [pad_h, pad_w],
        stride: [stride_h, stride_w],
        dilation: [dilation_h, dilation_w],
        multiplier,
        rows_unrolled: if unrolled { taps_h + WINDOW } else { 1 },
        channel_threads,
        strips: spread.strips,
        rows: spread.rows,
        planes: spread.planes,
        threads,
        blocks: wanted.blocks,
        x_c: x.strides[1],
        x_w: x.strides[4],
        y_c: y.strides[1],
        y_w: y.strides[4],
    }
    .write(&mut text);
    text.size("out_h", out_h).size("out_w", out_w);
    text.size("x_n", x.strides[0])
        .size("x_h", x.strides[3])
        .size("y_n", y.strides[0])
        .size("y_h", y.strides[3]);
    text.size("w_k", w.strides[0]).size("w_h", w.strides[3]).size("w_w", w.strides[4]);
    text.size("in_h", x.lens[3]).size("in_w", x.lens[4]).size("images", y.lens[0]).size("out_k", y.lens[1]);
    text.size("image_step", image_blocks * images_at_once).divisor("block_columns", blocks[0]);
    text.divisor("block_strips", blocks[1]).divisor("block_rows", blocks[2]);

    let grid = of_an_image * image_blocks;
    let geometry = Geometry { grid: [grid as u32, 1, 1], block: threads as u32, shared: 0 };
    let along = if channels_last { "channels" } else { "columns" };
    let detail = format!(
        "tile {}x{}, {} {along} read and {} written at a time",
        side_h.tile,
        side_w.tile,
        if channels_last { (vector / multiplier).max(1) } else { x_vector },
        if channels_last { vector } else { y_vector },
    );
    text.finish(vendor, problem, &[BRING, kernel_text!("../kernels/depthwise.cuh")], geometry, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuseplan_api::{
        Backend, BatchNormMode, ConvolutionDescriptor, DataType, MathMode, Op, TensorDescriptor, TensorLayout,
    };
    use fuseplan_fakes::NullBackend;

    use crate::constraint::{DEPTHWISE, MAX_OPS};

    fn problem(
        (data_type, layout): (DataType, TensorLayout),
        channels: usize,
        multiplier: usize,
        taps: usize,
        norms: usize,
    ) -> Problem {
        let of = |lens: &[usize]| TensorDescriptor::with_layout(data_type, layout, lens).unwrap();
        let conv = ConvolutionDescriptor::d2();
        let conv = conv.with_groups(channels).unwrap();
        let input = of(&[2, channels, taps + 5, taps + 18]);
        let weights = of(&[channels * multiplier, 1, taps, taps]);
        let output = conv.forward_output(&input, &weights).unwrap();
        let mut ops = vec![Op::ConvForward { conv, weights }];
        ops.resize(
            1 + norms,
            Op::BatchNormInference { mode: BatchNormMode::Spatial, params: DataType::Float },
        );
        Problem { input, output, ops, math: MathMode::Precise }
    }

    #[test]
    fn tiles_are_small_where_multiprocessors_would_be_idle() {
        use TensorLayout::{Nchw, Nhwc};
        for (data_type, layout, taps, of_many, of_one) in [
            (DataType::Half, Nhwc, 3, [1, 2], [2, 4]),
            (DataType::Half, Nhwc, 7, [1, 4], [1, 7]),
            (DataType::Float, Nhwc, 7, [1, 4], [1, 4]),
            (DataType::Float, Nchw, 3, [1, 4], [2, 4]),
        ] {
            let problem = problem((data_type, layout), 64, 1, taps, 0);
            for (units, tile) in [(132, of_many), (1, of_one)] {
                let kernel = depthwise("", &problem, units);
                assert_eq!(
                    ["TILE_H", "TILE_W"].map(|name| kernel.constant(name)),
                    tile,
                    "{layout} {taps} {units}"
                );
            }
        }
    }

    #[test]
    fn every_block_has_room_for_its_filters() {
        let info = NullBackend.target("").unwrap();
        for data_type in [DataType::Float, DataType::Half] {
            for layout in [TensorLayout::Nchw, TensorLayout::Nhwc] {
                for channels in [2, 31, 32, 36, 63, 64, 128, 1000] {
                    for multiplier in [1, 2, 3, 4, 8] {
                        for taps in [1, 3, 5, 7, 10, 14, 16] {
                            for norms in [0, 1, MAX_OPS - 1] {
                                let problem = problem((data_type, layout), channels, multiplier, taps, norms);
                                assert_eq!((DEPTHWISE.check)(&problem, &info), None);
                                let kernel = depthwise("", &problem, 132);
                                let number = |name| kernel.constant(name);
                                let filters = if layout == TensorLayout::Nhwc {
                                    number("CHANNEL_THREADS") * number("V_MAX")
                                } else {
                                    number("PLANES")
                                };
                                // As the text declares them.
                                let weights = (taps * taps * filters).next_multiple_of(4) * size_of::<f32>();
                                let table = filters * (norms * 3 * size_of::<f32>()).max(1);
                                assert!(weights + table <= 48 << 10, "{problem:?}: {filters} filters");
                                assert!(number("THREADS") <= THREADS, "{problem:?}");
                            }
                        }
                    }
                }
            }
        }
    }
}

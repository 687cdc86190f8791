//! Convolutions of narrow groups whose windows go by: warps that walk down columns of the output.

use std::fmt;

use fuseplan_api::volume::common_power;
use fuseplan_api::{Configuration, DataType, Estimate, MathMode, Problem};
use fuseplan_gpu::{Geometry, Kernel, LISTED, Runtime, Text, Volume, constants, kernel_text, spatial};

use crate::context::Cuda;
use crate::mma::{MMA_SYNC, QUADS};
use crate::windows::{LAUNCH_OF_TF32_GROUPS, OF_GROUPS, OF_TF32_GROUPS};

/// Columns of the output, and filters, of a warp.
const COLUMNS: usize = 16;
const OF_WARP: usize = 16;
/// Warps of a block, at most: together they read 128 bytes of a pixel at once, a line of the second-level cache, or two such lines in f32.
/// Of groups of 16 channels in f32 these are two, by which a block's filters leave room for others: a filter's channels through one tap have
/// no more bytes than 128 in all warps together.
const WARPS: usize = 4;
const LINE: usize = 128;
/// Bytes of shared memory of a multiprocessor of Hopper, and those that each block has besides its own. On GPUs that have less there are
/// fewer blocks at once than estimates say.
const OF_ALL_BLOCKS: usize = 227 << 10;
const OF_EACH_BLOCK: usize = 1 << 10;
/// Most taps, whose filters are in registers, and lines of the output whose sums are.
const TAPS: usize = 9;
const SUMS: usize = 3;
/// Most bytes of shared memory of a block.
const SHARED: usize = 96 << 10;

/// How many lines of the output a block goes down.
struct Lines(usize);

impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lines of {COLUMNS} columns", self.0)
    }
}

constants! {
    /// The constants of `columns.cuh`.
    struct Constants {
        /// Channels of a group, and filters.
        channels: usize,
        taps: [usize; 2],
        stride: [usize; 2],
        pad: [usize; 2],
        warps: usize,
        /// Images whose columns a block has, at most.
        segments: usize,
        /// Parts of shared memory, of which all but one are on their way.
        stages: usize,
        shared: usize,
        /// Blocks of a multiprocessor.
        blocks: usize,
        x_vector: usize,
    }
}

/// A convolution as the kernel sees it.
struct Shape {
    x: Volume,
    y: Volume,
    constants: Constants,
    /// Bytes of an element.
    element: usize,
    /// Pixels of a line of a window.
    window: usize,
    /// Products of fragments of a warp in a step.
    products: usize,
    /// Blocks that a multiprocessor has at once, about.
    at_once: usize,
    /// Blocks' parts of the channels and of the columns of all images.
    parts: usize,
    strips: usize,
}

impl Shape {
    /// That of groups of 16 bits or in TF32 with as many filters as channels, 4, 8 or 16, channels innermost and pixels that are copied
    /// 16 bytes at a time, none of these behind their last channel; of taps whose filters and sums have room in registers, and strides
    /// that skip no line and no column.
    fn of(problem: &Problem) -> Option<Shape> {
        let (conv, weights) = problem.conv()?;
        let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
        let [[_, stride_h, stride_w], [_, pad_h, pad_w]] =
            [spatial(conv.strides(), 1), spatial(conv.pads_before(), 0)];
        let ([_, channels, taps_d, taps_h, taps_w], filters) = (w.lens, w.lens[0] / conv.groups());
        let packed = [channels * taps_h * taps_w, 1, 0, channels * taps_w, channels];
        let (data_type, element) = (problem.output.data_type(), problem.output.data_type().size());
        let is_tf32 = data_type == DataType::Float && problem.math == MathMode::AllowTf32;
        let chunk = 16 / element;
        let is_taken = (element == 2 || is_tf32)
            && [4, 8, 16].contains(&channels)
            && filters == channels
            && conv.groups() > 1
            && w.lens[0] >= OF_WARP
            && w.lens[0].is_multiple_of(chunk)
            && x.lens[2] * y.lens[2] * taps_d == 1
            && taps_h * taps_w <= TAPS
            && (stride_h..=SUMS * stride_h).contains(&taps_h)
            && [1, 2, 8 / element].contains(&stride_w)
            && stride_w <= taps_w
            && conv.dilations().iter().all(|&dilation| dilation == 1)
            && [x, y].iter().all(Volume::is_channels_last)
            && [x.alignment(1, chunk), y.alignment(1, 4)] == [chunk, 4]
            && (0..5).all(|dim| w.lens[dim] == 1 || w.strides[dim] == packed[dim]);
        if !is_taken {
            return None;
        }
        let (units, columns) = (w.lens[0].div_ceil(OF_WARP), y.lens[4]);
        let warps = units.next_power_of_two().min(LINE / (channels * element)).min(WARPS);
        let segments = segments(columns);
        let window = COLUMNS * stride_w + (taps_w - stride_w) * segments;
        let pixels = stride_w * window.div_ceil(stride_w);
        let line = (pixels * warps * OF_WARP * element).next_multiple_of(LINE);
        // Lines of the image on their way: three, or four where they come in pairs.
        let stages = if stride_h == 1 { 4 } else { 3 };
        let shared = stages * stride_h * line + warps * OF_WARP * channels * taps_h * taps_w * element;
        if shared > SHARED {
            return None;
        }
        let fragments = if channels < OF_WARP { OF_WARP / channels } else { 2 };
        let products = taps_h * (taps_w * channels).div_ceil(32 / element) * fragments;
        // Registers of filters and sums, with which threads have 128 or 168 registers.
        let kept = 2 * products + 4 * taps_h.div_ceil(stride_h) * fragments;
        let room = OF_ALL_BLOCKS / (shared + OF_EACH_BLOCK);
        let constants = Constants {
            channels,
            taps: [taps_h, taps_w],
            stride: [stride_h, stride_w],
            pad: [pad_h, pad_w],
            warps,
            segments,
            stages,
            shared,
            blocks: ((if kept <= 72 { 16 } else { 12 }) / warps).min(room),
            x_vector: chunk,
        };
        // What the compiler takes besides them, within some registers, of which each of four parts of a multiprocessor has 16384.
        let registers = (kept + 22 + 10 * stride_h + 4 * (element - 2)).next_multiple_of(8);
        let at_once = (4 * (512 / registers) / warps).clamp(1, room);
        let strips = (y.lens[0] * columns).div_ceil(COLUMNS);
        Some(Shape {
            x,
            y,
            constants,
            element,
            window,
            products,
            at_once,
            parts: units.div_ceil(warps),
            strips,
        })
    }

    /// How many lines of the output blocks may go down: as many as leave every block about as many.
    fn lines(&self) -> impl Iterator<Item = usize> + use<> {
        let all = self.y.lens[3];
        (1..=all).filter(move |&lines| all.div_ceil(all.div_ceil(lines)) == lines)
    }

    /// A launch, and what a block waits for, whose stages are on their way together, beside what its multiprocessor does for all blocks that
    /// it has at once: it brings their filters and lines, or takes their steps, whichever is longer. The last blocks have it for themselves
    /// for some time. Fitted to 212 timings of five convolutions of ResNeXt-50 in f16 and as many in TF32 on an H200, of one image, 8 and
    /// 64. A launch counts whole, because `wgmma`'s model, with which this one is compared, has it so: few blocks take up to a microsecond
    /// less than either says.
    fn time(&self, lines: usize, units: usize) -> f64 {
        const LAUNCH: f64 = 2.47;
        const WAIT: f64 = 1.62;
        const LAST: f64 = 0.455;
        const STEP: f64 = 4.46e-3;
        const PRODUCT: f64 = 1.66e-3;
        /// Bytes of a multiprocessor in a microsecond.
        const BYTES: f64 = 55.8e3;

        let Constants { channels, taps: [taps_h, taps_w], stride: [stride_h, _], stages, warps, .. } =
            self.constants;
        let steps = lines + taps_h.div_ceil(stride_h) - 1;
        let blocks = (self.parts * self.strips * self.y.lens[3].div_ceil(lines)).div_ceil(units);
        let at_once = blocks.min(self.at_once) as f64;
        let rounds = blocks as f64 / at_once + if blocks > self.at_once { LAST } else { 0.0 };
        let waits = rounds * WAIT / (stages - 1) as f64 * steps as f64;
        let seen = (lines - 1) * stride_h + taps_h;
        let bytes = warps * OF_WARP * self.element * (channels * taps_h * taps_w + seen * self.window);
        let issued = (STEP + PRODUCT * self.products as f64) * (steps * warps) as f64;
        LAUNCH + waits.hypot(rounds * at_once * issued.max(bytes as f64 / BYTES))
    }

    /// The same in cycles of the windows' model.
    fn cost(&self, lines: usize, units: usize) -> f64 {
        let (launch, rate) =
            if self.element == 2 { (0.0, OF_GROUPS) } else { (LAUNCH_OF_TF32_GROUPS, OF_TF32_GROUPS) };
        (self.time(lines, units) - launch) * rate * 1e-6
    }
}

/// The most images that a block's columns are of, of lines of so many: blocks begin at multiples of their columns.
fn segments(columns: usize) -> usize {
    (columns - common_power(COLUMNS, columns) + COLUMNS - 1) / columns + 1
}

/// Configurations of windows, and those of windows that go by, the smallest estimate first.
pub(crate) fn among(
    problem: &Problem,
    arch: &str,
    mut windows: Vec<(Configuration, Estimate)>,
) -> Vec<(Configuration, Estimate)> {
    let Some(shape) = Shape::of(problem) else { return windows };
    for lines in shape.lines() {
        let cost = shape.cost(lines, Cuda::units(arch));
        let at = windows.iter().take_while(|(_, other)| other.cost() <= cost).count();
        let estimate = Estimate::Cost { cost, unit: "cycles", model: "windows" };
        windows.insert(at, (Configuration::new(Lines(lines).to_string()), estimate));
    }
    windows.truncate(LISTED);
    windows
}

/// Plans one of its configurations; `None` for those of windows.
pub(crate) fn columns(problem: &Problem, configuration: &Configuration) -> Option<Kernel> {
    let shape = Shape::of(problem)?;
    let lines = shape.lines().find(|&lines| configuration.is_of(&Lines(lines)))?;
    let Shape { x, y, constants, parts, strips, .. } = shape;
    let across = constants.stride[1] * y.lens[4] + constants.taps[1] - constants.stride[1];
    let grid = parts * strips * y.lens[3].div_ceil(lines);
    let (warps, shared) = (constants.warps, constants.shared);
    let mut text = Text::default();
    constants.write(&mut text);
    text.divisor("out_w", y.lens[4])
        .divisor("across", across)
        .divisor("parts", parts)
        .divisor("strips", strips);
    text.size("images", y.lens[0]).size("lines", lines).size("out_c", y.lens[1]).size("out_h", y.lens[3]);
    text.size("in_h", x.lens[3]).size("in_w", x.lens[4]);
    text.size("x_n", x.strides[0]).size("x_h", x.strides[3]).size("x_w", x.strides[4]);
    text.size("y_n", y.strides[0]).size("y_h", y.strides[3]).size("y_w", y.strides[4]);
    let geometry = Geometry { grid: [grid as u32, 1, 1], block: (warps * 32) as u32, shared: shared as u32 };
    let detail =
        format!("mma.sync, {} of {} channels, image read in 16 bytes", Lines(lines), warps * OF_WARP);
    Some(text.finish(
        Cuda::VENDOR,
        problem,
        &[MMA_SYNC, QUADS, kernel_text!("../kernels/columns.cuh")],
        geometry,
        detail,
    ))
}

#[cfg(test)]
mod tests {
    use fuseplan_api::{ConvolutionDescriptor, Op, TensorDescriptor, TensorLayout};

    use super::*;

    #[test]
    fn blocks_have_columns_of_as_many_images_as_their_windows_have_room_for() {
        for columns in 1..=100 {
            let of = |block: usize| (block * COLUMNS % columns + COLUMNS - 1) / columns + 1;
            assert_eq!((0..columns).map(of).max(), Some(segments(columns)), "{columns}");
        }
    }

    #[test]
    fn nothing_is_read_behind_the_last_channel_of_a_pixel() {
        let is_taken = |data_type, pixels: [usize; 2], channels: usize| {
            let of =
                |lens: &[usize]| TensorDescriptor::with_layout(data_type, TensorLayout::Nhwc, lens).unwrap();
            let conv =
                ConvolutionDescriptor::d2().with_pads([1, 1]).unwrap().with_groups(channels / 4).unwrap();
            let (input, weights) = (of(&[1, channels, pixels[0], pixels[1]]), of(&[channels, 4, 3, 3]));
            let output = conv.forward_output(&input, &weights).unwrap();
            let ops = vec![Op::ConvForward { conv, weights }];
            Shape::of(&Problem { input, output, ops, math: MathMode::AllowTf32 }).is_some()
        };
        for pixels in [[1, 1], [13, 11]] {
            for (channels, in_halves) in
                [(12, false), (16, true), (20, false), (24, true), (28, false), (88, true)]
            {
                assert_eq!(
                    is_taken(DataType::Half, pixels, channels),
                    in_halves,
                    "{channels} channels, {pixels:?}"
                );
                assert_eq!(
                    is_taken(DataType::Float, pixels, channels),
                    channels >= 16,
                    "{channels}, {pixels:?}"
                );
            }
        }
    }
}

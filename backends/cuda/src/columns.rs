//! Convolutions of narrow groups whose windows go by: warps that walk down columns of the output.

use std::fmt;

use fuseplan_api::volume::common_power;
use fuseplan_api::{Configuration, Estimate, Problem};
use fuseplan_gpu::{Geometry, Kernel, LISTED, Runtime, Text, Volume, constants, kernel_text, spatial};

use crate::context::Cuda;
use crate::mma::QUADS;
use crate::windows::OF_GROUPS;

/// Columns of the output, and channels and filters, of a warp.
const COLUMNS: usize = 16;
const OF_WARP: usize = 16;
/// Warps of a block: together they read 128 bytes of a pixel, a line of the second-level cache.
const WARPS: usize = 4;
/// Warps of a multiprocessor, each of whose threads has 128 registers.
const AT_ONCE: usize = 16;
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
    /// Pixels of a line of a window.
    window: usize,
    /// Blocks' parts of the channels and of the columns of all images.
    parts: usize,
    strips: usize,
}

impl Shape {
    /// That of groups of 16 bits with as many filters as channels, 4, 8 or 16, channels innermost and pixels that are copied 16 bytes at a
    /// time; of taps whose filters and sums have room in registers, and strides that skip no line and no column.
    fn of(problem: &Problem) -> Option<Shape> {
        let (conv, weights) = problem.conv()?;
        let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
        let [[_, stride_h, stride_w], [_, pad_h, pad_w]] =
            [spatial(conv.strides(), 1), spatial(conv.pads_before(), 0)];
        let ([_, channels, taps_d, taps_h, taps_w], filters) = (w.lens, w.lens[0] / conv.groups());
        let packed = [channels * taps_h * taps_w, 1, 0, channels * taps_w, channels];
        let is_taken = problem.output.data_type().size() == 2
            && [4, 8, 16].contains(&channels)
            && filters == channels
            && w.lens[0].is_multiple_of(OF_WARP)
            && x.lens[2] * y.lens[2] * taps_d == 1
            && taps_h * taps_w <= TAPS
            && (stride_h..=SUMS * stride_h).contains(&taps_h)
            && [1, 2, 4].contains(&stride_w)
            && stride_w <= taps_w
            && conv.dilations().iter().all(|&dilation| dilation == 1)
            && [x, y].iter().all(Volume::is_channels_last)
            && [x.alignment(1, 8), y.alignment(1, 4)] == [8, 4]
            && (0..5).all(|dim| w.lens[dim] == 1 || w.strides[dim] == packed[dim]);
        if !is_taken {
            return None;
        }
        let (units, columns) = (w.lens[0] / OF_WARP, y.lens[4]);
        let warps = units.next_power_of_two().min(WARPS);
        let segments = segments(columns);
        let window = COLUMNS * stride_w + (taps_w - stride_w) * segments;
        let line = stride_w * window.div_ceil(stride_w) * (warps * OF_WARP * 2 + 16);
        // Lines of the image on their way: three, or four where they come in pairs.
        let stages = if stride_h == 1 { 4 } else { 3 };
        let constants = Constants {
            channels,
            taps: [taps_h, taps_w],
            stride: [stride_h, stride_w],
            pad: [pad_h, pad_w],
            warps,
            segments,
            stages,
            shared: stages * stride_h * line + warps * OF_WARP * channels * taps_h * taps_w * 2,
            blocks: AT_ONCE / warps,
            x_vector: 8,
        };
        let strips = (y.lens[0] * columns).div_ceil(COLUMNS);
        let shape = Shape { x, y, constants, window, parts: units.div_ceil(warps), strips };
        (shape.constants.shared <= SHARED).then_some(shape)
    }

    /// How many lines of the output blocks may go down: as many as leave every block about as many.
    fn lines(&self) -> impl Iterator<Item = usize> + use<> {
        let all = self.y.lens[3];
        (1..=all).filter(move |&lines| all.div_ceil(all.div_ceil(lines)) == lines)
    }

    /// A launch, and what a block waits for, whose stages are on their way together, beside what its multiprocessor does for all blocks:
    /// it brings their filters and lines, or takes their steps, whichever is longer. Fitted to 189 timings of 10 convolutions of groups of 4, 8 and
    /// 16 channels on H200s, each of one image, 8 and 64, where a launch counted for the part of the multiprocessors that have a block, as
    /// executions that leave others begin sooner. Here it counts whole, because `wgmma`'s model, with which this one is compared, has it so: few
    /// blocks take up to a microsecond less than either says. Of eight images the choice is 3.8 % slower than the fastest timed in the
    /// mean, 10 % at worst, of 11 others 7.6 and 16 %, of 14 of other numbers of images 5.4 and 20 %.
    fn time(&self, lines: usize, units: usize) -> f64 {
        const LAUNCH: f64 = 2.47;
        const WAIT: f64 = 1.26;
        const STEP: f64 = 0.142;
        /// Bytes of a multiprocessor in a microsecond.
        const BYTES: f64 = 38.3e3;
        /// Cycles of the windows' model in a microsecond.
        const CYCLES: f64 = OF_GROUPS * 1e-6;

        let Constants { channels, taps: [taps_h, taps_w], stride: [stride_h, _], stages, warps, .. } =
            self.constants;
        let steps = lines + taps_h.div_ceil(stride_h) - 1;
        let blocks = (self.parts * self.strips * self.y.lens[3].div_ceil(lines)).div_ceil(units) as f64;
        let rounds = (blocks / self.constants.blocks as f64).max(1.0);
        let waits = rounds * WAIT / (stages - 1) as f64 * steps as f64;
        let bytes = warps * OF_WARP * 2 * (channels * taps_h * taps_w + steps * stride_h * self.window);
        let issued = STEP * (steps * warps) as f64 / WARPS as f64;
        CYCLES * (LAUNCH + waits.hypot(blocks * issued.max(bytes as f64 / BYTES)))
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
        let cost = shape.time(lines, Cuda::units(arch));
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
    let (block, shared) = (constants.warps * 32, constants.shared);
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
    let geometry = Geometry { grid: [grid as u32, 1, 1], block: block as u32, shared: shared as u32 };
    let detail = format!("mma.sync, {} of {} channels, image read in 16 bytes", Lines(lines), block / 2);
    Some(text.finish(
        Cuda::VENDOR,
        problem,
        &[QUADS, kernel_text!("../kernels/columns.cuh")],
        geometry,
        detail,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_columns_of_as_many_images_as_their_windows_have_room_for() {
        for columns in 1..=100 {
            let of = |block: usize| (block * COLUMNS % columns + COLUMNS - 1) / columns + 1;
            assert_eq!((0..columns).map(of).max(), Some(segments(columns)), "{columns}");
        }
    }
}

//! The kernel's text and launches.

use std::fmt;

use fuseplan_api::{Configuration, Problem};
use fuseplan_gpu::{
    Geometry, Kernel, Runtime, Volume, common_power, constants, convolution, kernel_text, spatial,
};

use crate::arch;
use crate::context::Cuda;

/// Tiles and filters of a block, points of a tile, threads, stages of the image, and slots for its patches.
pub(super) const TILES: usize = 16;
pub(super) const FILTERS: usize = 64;
const POINTS: usize = 36;
const THREADS: usize = 384;
const IMAGE_STAGES: usize = 4;
const SLOTS: usize = 4;
/// Results of a tile in each direction.
pub(super) const RESULTS: usize = 4;

/// What of the depth a block has in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stages {
    /// Channels of a stage.
    pub(super) channels: usize,
    /// Stages of filters.
    pub(super) filters: usize,
}

/// `4 channels, 2 stages`
impl fmt::Display for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} channels, {} stages", self.channels, self.filters)
    }
}

impl Stages {
    /// In how many parts sums pass through shared memory, and the bytes of it that a block is given; `None` where there is no room.
    fn room(self, problem: &Problem, arch: &str) -> Option<[usize; 2]> {
        let padded = |is_padded| if is_padded { TILES + 4 } else { TILES };
        let is_padded = Volume::of(&problem.input).is_channels_last() && self.channels == 4;
        let filters = self.filters * POINTS * self.channels * FILTERS;
        let image = IMAGE_STAGES * POINTS * self.channels * padded(is_padded);
        let operands = filters + image + SLOTS * POINTS * self.channels * TILES;
        let sums = POINTS * FILTERS * padded(Volume::of(&problem.output).is_channels_last());
        let declared = self.channels * TILES * size_of::<[u32; 2]>() + 2 * IMAGE_STAGES * size_of::<u64>();
        let room = arch::named(arch).map_or(0, |arch| arch.shared);
        let bytes = |parts: usize| operands.max(sums / parts) * size_of::<f32>();
        [1, 2].map(|parts| [parts, bytes(parts)]).into_iter().find(|[_, bytes]| bytes + declared <= room)
    }
}

/// The stages that there is room for, the best first: those of fewer channels are for smaller memories.
pub(super) fn stages(problem: &Problem, arch: &str) -> Vec<Stages> {
    const ALL: [Stages; 2] = [Stages { channels: 4, filters: 2 }, Stages { channels: 2, filters: 3 }];
    ALL.into_iter().filter(|stages| stages.room(problem, arch).is_some()).collect()
}

constants! {
    /// The constants of `winograd.cuh`.
    struct Constants {
        channels: usize,
        filters: usize,
        step_c: usize,
        filter_stages: usize,
        in_h: usize,
        in_w: usize,
        out_h: usize,
        out_w: usize,
        pad_h: usize,
        pad_w: usize,
        x_along_c: bool,
        x_vector: usize,
        x_n: usize,
        x_c: usize,
        x_h: usize,
        x_w: usize,
        w_k: usize,
        w_c: usize,
        w_h: usize,
        w_w: usize,
        y_along_k: bool,
        /// In how many parts sums pass through shared memory.
        y_parts: usize,
        y_vector: usize,
    }
}

/// A kernel, and what it is launched with.
pub(super) struct Winograd {
    /// Its scratch memory is what the first launch transforms filters to.
    pub(super) kernel: Kernel,
    /// What the input's and the output's addresses must be multiples of.
    pub(super) alignment: [usize; 2],
}

/// How many numbers of the image are copied at once.
pub(super) fn x_vector(problem: &Problem, step: usize) -> usize {
    let x = Volume::of(&problem.input);
    if x.is_channels_last() {
        return common_power(x.alignment(1, step), x.lens[1]);
    }
    // Four pixels behind the first of a patch, which a tile begins left of by the padding.
    let pad = spatial(convolution(problem).0.pads_before(), 0)[2];
    let is_row = x.strides[4] == 1 || x.lens[4] == 1;
    let first = (RESULTS + 1).abs_diff(pad % RESULTS);
    if is_row { [x.alignment(4, 4), x.lens[4], first].into_iter().fold(4, common_power) } else { 1 }
}

/// How many results are written at once.
fn y_vector(problem: &Problem) -> usize {
    let y = Volume::of(&problem.output);
    let is_row = !y.is_channels_last() && y.strides[4] == 1;
    if is_row { common_power(y.alignment(4, 4), y.lens[4]) } else { 1 }
}

/// Plans a problem that meets the constraints, in one of its configurations; `None` for others.
pub(super) fn winograd(problem: &Problem, arch: &str, configuration: &Configuration) -> Option<Winograd> {
    let stages = stages(problem, arch).into_iter().find(|stages| configuration.is_of(stages))?;
    let [y_parts, shared] = stages.room(problem, arch)?;
    let (conv, weights) = convolution(problem);
    let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
    let [_, pad_h, pad_w] = spatial(conv.pads_before(), 0);
    let (x_vector, y_vector) = (x_vector(problem, stages.channels), y_vector(problem));
    let mut text = fuseplan_gpu::Text::default();
    Constants {
        channels: x.lens[1],
        filters: w.lens[0],
        step_c: stages.channels,
        filter_stages: stages.filters,
        in_h: x.lens[3],
        in_w: x.lens[4],
        out_h: y.lens[3],
        out_w: y.lens[4],
        pad_h,
        pad_w,
        x_along_c: x.is_channels_last(),
        x_vector,
        x_n: x.strides[0],
        x_c: x.strides[1],
        x_h: x.strides[3],
        x_w: x.strides[4],
        w_k: w.strides[0],
        w_c: w.strides[1],
        w_h: w.strides[3],
        w_w: w.strides[4],
        y_along_k: y.is_channels_last(),
        y_parts,
        y_vector,
    }
    .write(&mut text);
    let tiles = tiles(&y);
    text.size("tiles", tiles);
    for (name, stride) in ["y_n", "y_c", "y_h", "y_w"].into_iter().zip([0, 1, 3, 4].map(|d| y.strides[d])) {
        text.size(name, stride);
    }
    let padded = w.lens[0].next_multiple_of(FILTERS) * x.lens[1].next_multiple_of(stages.channels);
    text.launched_twice(padded * POINTS * size_of::<f32>());
    let geometry = Geometry { grid: [blocks(&y) as u32, 1, 1], block: THREADS as u32, shared: shared as u32 };
    let detail = format!(
        "FFMA, F(4x4), {TILES} tiles x {FILTERS} filters x {}, {} stages of filters, image read in {} bytes, {y_vector} outputs at a time",
        stages.channels,
        stages.filters,
        x_vector * size_of::<f32>(),
    );
    let files = [kernel_text!("../../kernels/winograd.cuh")];
    let kernel = text.finish(Cuda::VENDOR, problem, &files, geometry, detail);
    let alignment = [x_vector, y_vector].map(|vector| vector * size_of::<f32>());
    Some(Winograd { kernel, alignment })
}

/// Tiles of an output.
fn tiles(y: &Volume) -> usize {
    y.lens[0] * y.lens[3].div_ceil(RESULTS) * y.lens[4].div_ceil(RESULTS)
}

/// Blocks of an output.
pub(super) fn blocks(y: &Volume) -> usize {
    tiles(y).div_ceil(TILES) * y.lens[1].div_ceil(FILTERS)
}

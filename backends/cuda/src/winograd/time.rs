//! What the kernel takes. Fitted to timings on an H200, the only device on which it was timed.

use fuseplan_api::Problem;
use fuseplan_gpu::{Runtime, Volume, convolution};

use super::kernel::{Stages, blocks, x_vector};
use crate::context::Cuda;

/// A launch, in microseconds.
const LAUNCH: f64 = 2.0;

/// What a block takes besides its channels, and what a channel takes.
struct Costs {
    block: f64,
    channel: f64,
}

/// In the order of stages of four and of two channels: of images whose channels are neighbours, and of others by how many pixels are
/// copied at once, as of images whose channels are neighbours it was fitted to multiples of four channels alone. Of ten convolutions in both
/// layouts, to which it was fitted, it has 0.93 to 1.09 of the time, of ten others 0.95 to 1.10; with four channels 0.97 to 1.03, and 0.96 to
/// 1.07. These times are of the text that is built in, on another card than those of the documents, beside which it has 0.95 to 1.13.
const OF_CHANNELS: [Costs; 2] = [Costs { block: 7.2, channel: 0.271 }, Costs { block: 9.1, channel: 0.380 }];
const OF_FOUR: [Costs; 2] = [Costs { block: 5.2, channel: 0.264 }, Costs { block: 5.0, channel: 0.293 }];
const OF_TWO: [Costs; 2] = [Costs { block: 5.2, channel: 0.273 }, Costs { block: 5.0, channel: 0.304 }];
const OF_ONE: [Costs; 2] = [Costs { block: 10.7, channel: 0.293 }, Costs { block: 9.7, channel: 0.323 }];

/// The launch that transforms filters, and a byte that it writes.
const PREPARE: f64 = 3.3;
const PREPARED: f64 = 0.38e-6;

/// Microseconds of a problem with filters that are transformed, by a device of an architecture.
pub(super) fn time(problem: &Problem, arch: &str, stages: Stages) -> f64 {
    let (x, y) = (Volume::of(&problem.input), Volume::of(&problem.output));
    let costs = match (x.is_channels_last(), x_vector(problem, stages.channels)) {
        (true, _) => &OF_CHANNELS,
        (false, 4) => &OF_FOUR,
        (false, 2) => &OF_TWO,
        _ => &OF_ONE,
    };
    let Costs { block, channel } = costs[usize::from(stages.channels < 4)];
    let rounds = blocks(&y).div_ceil(Cuda::units(arch)) as f64;
    let depth = x.lens[1].next_multiple_of(stages.channels) as f64;
    LAUNCH + rounds * (block + channel * depth)
}

/// Microseconds of the launch that transforms filters.
pub(super) fn preparing(problem: &Problem) -> f64 {
    let w = Volume::of(convolution(problem).1);
    PREPARE + PREPARED * (w.lens[0] * w.lens[1] * 36 * size_of::<f32>()) as f64
}

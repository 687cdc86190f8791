//! What copied windows of the image take on Hopper, where they were timed beside what TMA loads.

use fuseplan_api::{Configuration, DataType, Estimate, MathMode, Problem};
use fuseplan_gpu::Volume;

use crate::hopper::HOPPER;

/// The most channels of a stem, which windows compute unless tiles of elements take less time.
pub(crate) const STEM: usize = 4;

/// Cycles of the windows' model in a second, for one group with channels innermost. With 1700e6 a convolution of 128 channels to 3 filters at
/// 512x512 in f16 would be copied: 68 µs instead of 37.
const OF_CHANNELS: f64 = 1300e6;
/// The same with columns innermost, where nine convolutions of few filters took 2.0 to 2.8 times as long on an H100 as the model has it, which
/// compares tiles. With 800e6 a convolution of 128 channels to 3 filters at 512x512 in f16 would be copied: 112 µs instead of 90.
const OF_COLUMNS: f64 = 780e6;
/// The same of groups of 16 bits, channels innermost: of 16 convolutions of 16 to 24 filters a group on an H200, from one image to 64, the
/// faster of windows and `wgmma` is chosen by it, but for two at 1.07 and 1.10. Copied windows alone are at up to 2.14.
pub(crate) const OF_GROUPS: f64 = 900e6;

/// The same of groups of 16 bits, columns innermost: 24 convolutions of 8 to 24 channels a group on an H200, of one image, 8 and 64, took
/// 0.79 to 1.34 of the estimate by it.
const OF_GROUPS_OF_COLUMNS: f64 = 1100e6;

/// The same of stems of 16 bits, columns innermost: of 16 of 3 channels on an H200, of 8 and 64 images, 0.77 to 1.26 of the estimate by it.
const OF_STEMS: f64 = 1000e6;

/// The same of groups in TF32, channels innermost, and microseconds of a launch: chosen by ten convolutions in networks to fit to on an
/// H200, of one image and eight, with which what is taken of windows and `wgmma` is 1.05 of the fastest tile in the mean, 1.18 at
/// worst, instead of 1.23 and 2.49; of 13 others 1.04 and 1.23 instead of 1.35 and 1.87. Of 15 more that are computed otherwise by them
/// 13 take 0.39 to 0.94 of the time, two of 8 channels 1.09 and 1.11.
pub(crate) const OF_TF32_GROUPS: f64 = 1200e6;
pub(crate) const LAUNCH_OF_TF32_GROUPS: f64 = 2.3;

/// Configurations with seconds instead of cycles where these are known.
pub(crate) fn timed(
    problem: &Problem,
    arch: &str,
    configurations: Vec<(Configuration, Estimate)>,
) -> Vec<(Configuration, Estimate)> {
    let Some((launch, rate)) = rate(problem).filter(|_| arch == HOPPER) else { return configurations };
    let time = |estimate: Estimate| {
        let seconds = launch * 1e-6 + estimate.cost() / rate;
        Estimate::Time { seconds, model: "windows" }
    };
    configurations.into_iter().map(|(configuration, estimate)| (configuration, time(estimate))).collect()
}

/// Microseconds of a launch beside them, and cycles in a second: none for other stems and for other groups, of which no layer was timed for
/// it. Those of many filters have the rate of few.
fn rate(problem: &Problem) -> Option<(f64, f64)> {
    let (conv, weights) = problem.conv()?;
    let is_innermost = Volume::of(&problem.input).strides[1] == 1;
    let is_half = problem.output.data_type().size() == 2;
    match (conv.groups(), is_innermost) {
        (1, false) if weights.lens()[1] <= STEM && is_half => Some((0.0, OF_STEMS)),
        (1, _) if weights.lens()[1] <= STEM => None,
        (1, true) => Some((0.0, OF_CHANNELS)),
        (1, false) => Some((0.0, OF_COLUMNS)),
        (_, true) if is_half => Some((0.0, OF_GROUPS)),
        (_, false) if is_half && weights.lens()[1] > STEM => Some((0.0, OF_GROUPS_OF_COLUMNS)),
        (_, true) if is_groups_of_tf32(problem) => Some((LAUNCH_OF_TF32_GROUPS, OF_TF32_GROUPS)),
        _ => None,
    }
}

/// Whether groups in TF32 see at least eight channels each. Of four `wgmma` takes 2.4 times as long as its model has it, where windows,
/// which take less, would be expected to take longer.
pub(crate) fn is_groups_of_tf32(problem: &Problem) -> bool {
    let Some((conv, weights)) = problem.conv() else { return false };
    let is_tf32 = problem.output.data_type() == DataType::Float && problem.math == MathMode::AllowTf32;
    is_tf32 && conv.groups() > 1 && weights.lens()[1] >= 8
}

//! What `wgmma` is preferred for.

use std::cell::RefCell;

use fuseplan_api::{DataType, DeviceInfo, Estimate, Preference, Problem, Solver};
use fuseplan_gpu::{Runtime, Volume, image_run};

use super::candidates;
use super::constraints::{GATHERED_LAYOUT, TAPS};
use super::layout::{is_addressable, is_tf32x3};
use super::tiling::Load;
use super::{WGMMA, WGMMA_GATHER, WGMMA_LINES, WGMMA_PLANES, WGMMA_RUNS, WGMMA_TRANSPOSED};
use crate::context::Cuda;
use crate::solvers::{HALO_FFMA, HALO_MMA, MMA};
use crate::windows::{STEM, is_groups_of_tf32};

/// The depth (channels of a group times taps) below which little is multiplied of what is loaded.
pub(crate) const SHALLOW: usize = 48;

/// Filters enough to be worth a matrix product.
const FILTERS: Preference = Preference {
    property: "convolution",
    prefers: "at least 16 filters a group",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let filters = weights.lens()[0] / conv.groups();
        (filters < 16).then(|| format!("{filters} filters a group"))
    },
};

/// The same, or few of them that windows, which TMA loads as well, are multiplied by in less time.
pub(crate) const FILTERS_OF_PIXELS: Preference = Preference {
    property: "convolution",
    prefers: FEW_FILTERS,
    check: |problem, device| few_filters(Load::Tma, problem, device),
};

/// The same of planes, of lines and of transposed pixels.
pub(crate) const FILTERS_OF_PLANES: Preference =
    Preference { check: |problem, device| few_filters(Load::Planes, problem, device), ..FILTERS_OF_PIXELS };
pub(crate) const FILTERS_OF_LINES: Preference =
    Preference { check: |problem, device| few_filters(Load::Lines, problem, device), ..FILTERS_OF_PIXELS };
pub(crate) const FILTERS_OF_RECTANGLES: Preference = Preference {
    check: |problem, device| few_filters(Load::Transposed, problem, device),
    ..FILTERS_OF_PIXELS
};

const FEW_FILTERS: &str = "at least 16 filters a group, or of fewer filters one group of more than 4 channels, or in TF32 several of at \
                           least 8, and less time than by threads that copy windows of the image, as the models of both have it";

/// Why few filters are left to others. Of 1x1 in TF32 with channels innermost the model of what TMA loads is about 1.4 times
/// too long, and that of windows is not known to be: between these windows are preferred, though they may take longer.
fn few_filters(load: Load, problem: &Problem, device: &DeviceInfo) -> Option<String> {
    let found = (FILTERS.check)(problem, device)?;
    let (conv, weights) = problem.conv()?;
    let takes_groups = load == Load::Tma && is_groups_of_tf32(problem);
    if conv.groups() > 1 && !takes_groups || weights.lens()[1] <= STEM {
        return Some(found);
    }
    let other = if is_tf32x3(problem) { &HALO_FFMA } else { &HALO_MMA };
    if other.applies(problem, device).is_err() {
        return None;
    }
    let (ours, theirs) = (least(load, problem, device), estimated_time(other, problem, device)?);
    (ours >= theirs).then(|| format!("{found}, {ours:.1} and {theirs:.1} us"))
}

/// Why groups of 16 bits or in TF32 are left to `wgmma`: the microseconds of pixels that TMA loads or that are gathered, and of copied
/// windows, where the former are fewer.
pub(crate) fn sooner_than_windows(problem: &Problem, device: &DeviceInfo) -> Option<String> {
    let is_known = problem.output.data_type().size() == 2 || is_groups_of_tf32(problem);
    let gathered = || by(&WGMMA_GATHER, Load::Gather, problem, device);
    let ours = if is_known { by(&WGMMA, Load::Tma, problem, device).min(gathered()) } else { f64::INFINITY };
    let windows = if ours.is_finite() { estimated_time(&HALO_MMA, problem, device)? } else { return None };
    (ours < windows).then(|| format!("{ours:.1} and {windows:.1} us"))
}

/// Why a stem in strides is left to tiles of elements: the microseconds of these and of copied windows, where the former are fewer by a
/// margin. Of ten convolutions of 3 channels by 3x3 on an H200, of 8 images and 64, what is taken so is 1 % slower than
/// the faster of both in the mean, 7 % at worst, windows alone 20 and 46 %. A depth of 48 or more, and what has no
/// strides, takes longer by tiles than their model has it.
pub(crate) fn sooner_by_tiles(problem: &Problem, device: &DeviceInfo) -> Option<String> {
    const MARGIN: f64 = 0.96;

    let (conv, weights) = problem.conv()?;
    let weights = Volume::of(weights);
    let is_strided = conv.strides().iter().any(|&stride| stride > 1);
    if problem.output.data_type().size() > 2 || !is_strided || weights.lens[1] * weights.plane() >= SHALLOW {
        return None;
    }
    let (tiles, windows) =
        (estimated_time(&MMA, problem, device)?, estimated_time(&HALO_MMA, problem, device)?);
    (tiles < MARGIN * windows).then(|| format!("{tiles:.1} and {windows:.1} us"))
}

/// Microseconds of a solver in its best configuration, where such were timed.
pub(crate) fn estimated_time(solver: &dyn Solver, problem: &Problem, device: &DeviceInfo) -> Option<f64> {
    once(Asked::Solver(solver.id()), problem, device, || {
        match solver.configurations(problem, device).first()?.estimate {
            Estimate::Time { seconds, .. } => Some(seconds * 1e6),
            Estimate::Cost { .. } | Estimate::Order => None,
        }
    })
}

/// Microseconds of the fastest tile by a load's model; infinite where there is none. No model has a time that is no number.
pub(super) fn least(load: Load, problem: &Problem, device: &DeviceInfo) -> f64 {
    let least = once(Asked::Load(load), problem, device, || {
        let tilings = candidates::tilings(load, problem, Cuda::units(&device.arch));
        debug_assert!(tilings.iter().all(|(_, time)| !time.is_nan()), "{load:?} of {problem:?}");
        tilings.into_iter().map(|(_, time)| time).min_by(f64::total_cmp)
    });
    least.unwrap_or(f64::INFINITY)
}

/// Whose least time was asked for.
#[derive(Clone, Copy, PartialEq)]
enum Asked {
    Load(Load),
    Solver(&'static str),
}

/// A problem, an architecture, and the least times that are known of these.
type Answers = (Problem, String, Vec<(Asked, Option<f64>)>);

/// The least time, which is computed once for all that ask for it while a thread is busy with one problem: constraints and preferences of
/// several solvers do, and hundreds of tiles are enumerated for each.
fn once(
    asked: Asked,
    problem: &Problem,
    device: &DeviceInfo,
    least: impl FnOnce() -> Option<f64>,
) -> Option<f64> {
    thread_local! {
        static LAST: RefCell<Option<Answers>> = const { RefCell::new(None) };
    }
    let is_last = |(last, arch, _): &Answers| last == problem && *arch == device.arch;
    let known = LAST.with_borrow(|last| {
        let (.., answers) = last.as_ref().filter(|last| is_last(last))?;
        answers.iter().find(|(of, _)| *of == asked).map(|(_, least)| *least)
    });
    // Nothing is borrowed here, as this may ask for other times.
    known.unwrap_or_else(|| {
        let least = least();
        LAST.with_borrow_mut(|last| match last.as_mut().filter(|last| is_last(last)) {
            Some((.., answers)) => answers.push((asked, least)),
            None => *last = Some((problem.clone(), device.arch.clone(), vec![(asked, least)])),
        });
        least
    })
}

/// Microseconds of the fastest of these kernels with three products of TF32 for one of f32; infinite where none takes the problem.
pub(crate) fn least_of_tf32x3(problem: &Problem, device: &DeviceInfo) -> f64 {
    let loads: [(&dyn Solver, Load); 3] =
        [(&WGMMA, Load::Tma), (&WGMMA_RUNS, Load::Runs), (&WGMMA_GATHER, Load::Gather)];
    loads.map(|(solver, load)| by(solver, load, problem, device)).into_iter().fold(f64::INFINITY, f64::min)
}

/// f32 products that three of TF32 are as exact as: sums of less depth have more error than FFMA's. They are faster as well: of a hundred
/// convolutions on H100s FFMA had 0.91 of their time at best.
pub(crate) const F32: Preference = Preference {
    property: "convolution",
    prefers: "of f32 products: a depth (channels of a group times taps) of at least 64",
    check: |problem, _| {
        if !is_tf32x3(problem) {
            return None;
        }
        let w = Volume::of(problem.conv()?.1);
        let depth = w.lens[1] * w.plane();
        (depth < 64).then(|| format!("depth {depth}"))
    },
};

/// Images large enough that filters are brought in a small part of the time.
pub(crate) const LINES: Preference = Preference {
    property: "convolution",
    prefers: "less time by lines than by gathering pixels or by runs of planes, as the models have it",
    check: |problem, device| {
        let [lines, gathered] = [Load::Lines, Load::Gather].map(|load| least(load, problem, device));
        let other = gathered.min(by(&WGMMA_RUNS, Load::Runs, problem, device));
        (lines >= other).then(|| format!("{lines:.1} and {other:.1} us"))
    },
};

/// Whether a solver takes a problem without a reservation.
pub(crate) fn is_preferred(solver: &dyn Solver, problem: &Problem, device: &DeviceInfo) -> bool {
    solver.applies(problem, device).is_ok() && solver.reservation(problem, device).is_none()
}

/// Microseconds by another solver, where it would be taken.
fn by(solver: &dyn Solver, load: Load, problem: &Problem, device: &DeviceInfo) -> f64 {
    if is_preferred(solver, problem, device) { least(load, problem, device) } else { f64::INFINITY }
}

/// What part of the time by lines or by runs of planes is asked for: that by which the choice of fifteen convolutions on an H200 was best.
/// It takes 1.028 of the fastest in the mean, 1.21 at worst, with 1 for it 1.037; of sixteen others 1.018 (1.23) and 1.026.
const SOONER_TRANSPOSED: f64 = 0.85;

/// The same of several taps in each of several planes, whose runs take 0.96 of their estimates: by it the choice of ten volumes by 3x3x3 on
/// an H200 was best, and one of 14 others is another, 0.86 of the time of runs.
const SOONER_IN_PLANES: f64 = 0.92;

/// Images that are sooner transposed than loaded by lines or by runs, or gathered.
pub(crate) const TRANSPOSED: Preference = Preference {
    property: "convolution",
    prefers: "less time with transposed pixels than by gathering them, and less than 0.85 of that by lines or by runs of planes (0.92 of \
              several taps in each of several planes), as the models have it",
    check: |problem, device| {
        let lines = by(&WGMMA_LINES, Load::Lines, problem, device);
        let loaded = lines.min(by(&WGMMA_RUNS, Load::Runs, problem, device));
        let [_, _, planes, taps @ ..] = Volume::of(problem.conv()?.1).lens;
        let is_of_planes = planes > 1 && taps != [1; 2];
        let sooner = if is_of_planes { SOONER_IN_PLANES } else { SOONER_TRANSPOSED };
        let other = (sooner * loaded).min(least(Load::Gather, problem, device));
        let transposed = least(Load::Transposed, problem, device);
        (transposed >= other).then(|| format!("{transposed:.1} and {other:.1} us"))
    },
};

/// What part of the time of those without it an execution that copies the image has to be expected in.
pub(super) const WORTH_A_COPY: f64 = 0.95;

/// Images that are sooner copied and loaded than loaded in any other way: by a twentieth, as the copy takes memory.
pub(crate) const REORDERED: Preference = Preference {
    property: "convolution",
    prefers: "what pixels would be gathered for of a depth of at least 48, and less than 0.95 of the time of those that load or gather \
              pixels without a copy, as the models have it",
    check: |problem, device| {
        if let Some(reason) = (SIZE.check)(problem, device).or_else(|| little_depth(problem, SHALLOW)) {
            return Some(reason);
        }
        let others: [(&dyn Solver, Load); 5] = [
            (&WGMMA_PLANES, Load::Planes),
            (&WGMMA_LINES, Load::Lines),
            (&WGMMA_TRANSPOSED, Load::Transposed),
            (&WGMMA_RUNS, Load::Runs),
            (&WGMMA_GATHER, Load::Gather),
        ];
        let times = others.map(|(solver, load)| by(solver, load, problem, device));
        let other = WORTH_A_COPY * times.into_iter().fold(f64::INFINITY, f64::min);
        if other.is_infinite() {
            return Some("none without a copy".into());
        }
        let reordered = least(Load::Reordered, problem, device);
        (reordered >= other).then(|| format!("{reordered:.1} and {other:.1} us"))
    },
};

/// Whether 16 bits of less depth than [`SHALLOW`] come in runs as well: of 1x1 without strides, with as many pixels of an image and no more
/// filters than what was timed. Of fifteen convolutions of 16 to 40 channels and 16 to 240 filters on an H200, of one image of at least
/// 28x28, 8 and 64, runs take 0.42 to 0.96 of the time of `conv_mma`, which would be chosen for planes that TMA cannot address, and 1.02 in
/// one of these 45.
fn is_point_of_halves(problem: &Problem) -> bool {
    let Some((conv, weights)) = problem.conv() else { return false };
    let (w, is_half) = (Volume::of(weights), problem.output.data_type().size() == 2);
    let is_point = conv.groups() == 1 && w.plane() == 1 && conv.strides().iter().all(|&stride| stride == 1);
    is_half
        && is_point
        && (16..=240).contains(&w.lens[0])
        && w.lens[1] >= 16
        && Volume::of(&problem.output).plane() >= 28 * 28
}

/// Runs that come sooner than what pixels would be gathered for.
pub(crate) const RUNS_OF_PLANES: Preference = Preference {
    property: "convolution",
    prefers: "what pixels would be gathered for, or 1x1 of one group with any number of filters; of 16 bits one group, and 1x1 without \
              strides of images of 784 pixels or more, and 16 to 240 filters, with a depth of at least 16; less time by runs of planes than by \
              gathering; in TF32 of 1x1, with a depth below 48 and 16 to 31 filters, than by `conv_mma` instead, in strides than by the \
              slower of both, as the models have it",
    check: |problem, device| {
        let (conv, weights) = problem.conv()?;
        let groups = conv.groups();
        if problem.output.data_type().size() == 2 && groups > 1 {
            return Some(format!("{groups} groups"));
        }
        let enough = match groups == 1 && Volume::of(weights).plane() == 1 {
            true if is_point_of_halves(problem) => |_: &Problem, _: &DeviceInfo| None,
            true => DEPTH.check,
            false => SIZE.check,
        };
        let checks = [GATHERED_LAYOUT.check, TAPS.check, enough, F32.check];
        if let Some(reason) = checks.into_iter().find_map(|check| check(problem, device)) {
            return Some(reason);
        }
        let runs = least(Load::Runs, problem, device);
        // Where gathering is left out, as of fewer than 32 filters, `conv_mma` would be taken. Where its model has less than that of runs
        // it takes 0.85 to 0.87 of the time without strides, but 1.02 to 1.42 in strides, of ten such layers with a residual on an H200.
        let is_little = is_tf32_point(problem) && little_depth(problem, SHALLOW).is_some();
        let mma = if is_little && !is_preferred(&WGMMA_GATHER, problem, device) {
            estimated_time(&MMA, problem, device)
        } else {
            None
        };
        let is_strided = conv.strides().iter().any(|&stride| stride > 1);
        let gathered = || least(Load::Gather, problem, device);
        let other = match mma {
            Some(mma) if is_strided => mma.max(gathered()),
            Some(mma) => mma,
            None => gathered(),
        };
        (runs >= other).then(|| format!("{runs:.1} and {other:.1} us"))
    },
};

/// Planes that TMA can address, or that are sooner copied than gathered.
pub(crate) const PLANES: Preference = Preference {
    property: "convolution",
    prefers: "of planes that TMA cannot address: what pixels would be gathered for, and less time by copying planes, as the \
              models of both have it",
    check: |problem, device| {
        let x = Volume::of(&problem.input);
        if is_addressable(&x, x.plane(), &[1, 0]) {
            return None;
        }
        let checks = [GATHERED_LAYOUT.check, SIZE.check];
        if let Some(reason) = checks.into_iter().find_map(|check| check(problem, device)) {
            return Some(reason);
        }
        let [copied, gathered] = [Load::Planes, Load::Gather].map(|load| least(load, problem, device));
        (copied >= gathered).then(|| format!("{copied:.1} and {gathered:.1} us"))
    },
};

/// Depth enough to be worth a matrix product of pixels that come in runs or are gathered. Of 50 convolutions in TF32 of a
/// single tap, of 8 to 44 channels, 16 filters or more, and 1, 8 and 64 images, on an H200, `conv_mma`, which would be
/// chosen, takes 1.08 to 2.0 times as long as the faster of the two in its fastest of four tiles, 2.5 at worst in the one
/// that was chosen. The bounds of 8 channels and 16 filters are the edges of this sample: what lies beyond was not timed.
/// With a single tap windows of the image are of no use either: of 12 convolutions of 1 to 24 filters for which others
/// were chosen runs take 0.34 to 0.91 of the time in eleven, and 1.11 in one.
const DEPTH: Preference = Preference {
    property: "convolution",
    prefers: "a depth (channels of a group times taps) of at least 48, in TF32 of one group and tap with 16 filters or more of at \
              least 8",
    check: |problem, _| little_depth(problem, if is_tf32_point(problem) { 8 } else { SHALLOW }),
};

/// Why a problem of less depth than this is left to others.
fn little_depth(problem: &Problem, least: usize) -> Option<String> {
    let depth: usize = problem.conv()?.1.lens()[1..].iter().product();
    (depth < least).then(|| format!("depth {depth}"))
}

/// Whether products are in TF32, of one group and tap with 16 filters or more.
fn is_tf32_point(problem: &Problem) -> bool {
    let Some((conv, weights)) = problem.conv() else { return false };
    let w = Volume::of(weights);
    let is_tf32 = problem.output.data_type() == DataType::Float && !is_tf32x3(problem);
    is_tf32 && conv.groups() == 1 && w.plane() == 1 && w.lens[0] >= 16
}

/// Filters and depth enough to be worth a matrix product of gathered pixels.
pub(crate) const SIZE: Preference = Preference {
    property: "convolution",
    prefers: "at least 32 filters a group (24 by 3xTF32) and a depth (channels of a group times taps) of at least 48, in TF32 of one \
              group and tap of at least 8",
    check: |problem, device| {
        let (conv, weights) = problem.conv()?;
        let filters = weights.lens()[0] / conv.groups();
        let fewest = if is_tf32x3(problem) { 24 } else { 32 };
        let few = (filters < fewest).then(|| format!("{filters} filters a group"));
        few.or_else(|| (DEPTH.check)(problem, device))
    },
};

/// As [`SIZE`], or few filters of groups that windows, which would be copied, take more time for. Of 24 convolutions of 3x3 of 8 to 24
/// channels and filters a group on an H200, most of one image, twelve are gathered by it, eleven in 0.70 to 1.01 of the time and one in
/// 1.12.
pub(crate) const GATHERED: Preference = Preference {
    property: "convolution",
    prefers: "at least 32 filters a group (24 by 3xTF32) and a depth (channels of a group times taps) of at least 48, in TF32 of one \
              group and tap of at least 8; or, with that depth, of 16 bits several taps of groups of at least 8 filters, and less \
              time than by threads that copy windows of the image, as the models of both have it",
    check: |problem, device| {
        let found = (SIZE.check)(problem, device)?;
        let (conv, weights) = problem.conv()?;
        let (groups, is_half) = (conv.groups(), problem.output.data_type().size() == 2);
        let is_timed =
            is_half && groups > 1 && weights.lens()[0] / groups >= 8 && Volume::of(weights).plane() > 1;
        if !is_timed || (DEPTH.check)(problem, device).is_some() {
            return Some(found);
        }
        let gathered = least(Load::Gather, problem, device);
        let windows = estimated_time(&HALO_MMA, problem, device).unwrap_or(0.0);
        (gathered >= windows).then(|| format!("{found}, {gathered:.1} and {windows:.1} us"))
    },
};

/// Filters enough to be worth gathering elements, where `conv_mma` reads 8 pixels at once: with fewer it takes 0.8 to
/// 0.9 of the time on an H200.
pub(crate) const RUNS: Preference = Preference {
    property: "convolution",
    prefers: "of images that are read 8 pixels at once (1x1, without padding and strides): more than 64 filters a \
              group, or a depth of at most 64",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let (filters, depth) = (weights.lens()[0] / conv.groups(), weights.lens()[1]);
        let narrow = filters <= 64 && depth > 64 && image_run(problem) == 8;
        narrow.then(|| format!("{filters} filters a group, depth {depth}"))
    },
};

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::CudaBackend;
    use fuseplan_api::{Backend, ConvolutionDescriptor, MathMode, Op, TensorDescriptor};

    /// What is remembered of the last problem and architecture is what a thread computes that remembers nothing.
    #[test]
    fn least_times_are_those_of_their_problem_and_architecture() {
        let problem = |channels: usize, math| {
            let of = |lens: [usize; 4]| TensorDescriptor::nchw(DataType::Float, lens).unwrap();
            let (input, weights) = (of([64, channels, 28, 28]), of([128, channels, 1, 1]));
            let conv = ConvolutionDescriptor::d2();
            let output = conv.forward_output(&input, &weights).unwrap();
            Problem { input, output, ops: vec![Op::ConvForward { conv, weights }], math }
        };
        let problems = [(64, MathMode::AllowTf32), (64, MathMode::Precise), (512, MathMode::AllowTf32)]
            .map(|(channels, math)| problem(channels, math));
        let targets = ["sm_90a", "sm_86"].map(|arch| CudaBackend.target(arch).unwrap());
        let times = |problem: &Problem, target: &DeviceInfo| {
            let loads = [Load::Runs, Load::Gather].map(|load| least(load, problem, target));
            let solvers: [&dyn Solver; 2] = [&MMA, &WGMMA_RUNS];
            (loads, solvers.map(|solver| estimated_time(solver, problem, target)))
        };
        let all = || problems.iter().flat_map(|problem| targets.iter().map(move |target| (problem, target)));
        let fresh: Vec<_> = all()
            .map(|(problem, target)| {
                thread::scope(|scope| scope.spawn(|| times(problem, target)).join().unwrap())
            })
            .collect();
        for (at, found) in fresh.iter().enumerate() {
            assert!(!fresh[..at].contains(found), "{found:?}");
        }
        for ((problem, target), fresh) in all().zip(&fresh) {
            assert_eq!([times(problem, target), times(problem, target)], [*fresh; 2]);
        }
    }
}

//! What the layout of a problem's tensors allows: to TMA, to bulk copies and to vectors.

use fuseplan_api::{DataType, MathMode, Problem};
use fuseplan_gpu::{Volume, common_power, has_exponentials, reads_elements};

use super::runs::Sight;
use super::tiling::{COPIED, Load, Tiling};

/// Whether groups can be a dimension of an image's map: images have two dimensions, and groups begin at multiples of 16 bytes.
pub(super) fn groups_apart(problem: &Problem) -> bool {
    let channels = problem.conv().map_or(0, |(_, weights)| weights.lens()[1]);
    problem.input.spatial().len() == 2 && (channels * problem.input.data_type().size()).is_multiple_of(16)
}

/// The same where TMA walks over pixels, with the limits of its im2col mode in three dimensions: groups are the offsets of taps.
pub(super) fn groups_walked(problem: &Problem) -> bool {
    let Some((conv, weights)) = problem.conv().filter(|_| groups_apart(problem)) else { return false };
    let taps = &weights.lens()[2..];
    let fits = (0..conv.spatial_dims()).all(|d| {
        let last_tap = (taps[d] - 1) * conv.dilations()[d];
        let [before, after] = [conv.pads_before()[d], conv.pads_after()[d]];
        before <= 15 && after.abs_diff(last_tap) <= 15 && last_tap <= 31
    });
    conv.groups() <= 16 && fits
}

/// Whether a problem's products are 3xTF32: those of f32 that its plan does not allow to be TF32.
pub(super) fn is_tf32x3(problem: &Problem) -> bool {
    problem.output.data_type() == DataType::Float && problem.math != MathMode::AllowTf32
}

/// Whether a load has products of 3xTF32 for the problem.
pub(super) fn takes_tf32x3(load: Load, problem: &Problem) -> bool {
    is_tf32x3(problem) && load != Load::Reordered
}

/// Results that lie side by side in memory, at most 16 bytes of them: of channels, or of positions where rows of the
/// product are filters.
pub(super) fn outputs_at_once(load: Load, problem: &Problem) -> usize {
    let (y, most) = (Volume::of(&problem.output), 16 / problem.output.data_type().size());
    match load {
        Load::Tma | Load::Halo => {
            let groups = problem.conv().map_or(1, |(conv, _)| conv.groups());
            common_power(y.alignment(1, most), y.lens[1] / groups)
        }
        Load::Planes
        | Load::Packed
        | Load::Lines
        | Load::Transposed
        | Load::Runs
        | Load::Reordered
        | Load::Gather => {
            // A tile's line ends where the output's does.
            let run = if matches!(load, Load::Lines | Load::Transposed) { y.lens[4] } else { y.plane() };
            y.strides[..2].iter().fold(common_power(most, run), |power, &stride| common_power(power, stride))
        }
    }
}

/// How many parts of a tile an epilogue along channels has unrolled, if it has no more: text of exponentials is long.
pub(super) fn unrolled_parts(problem: &Problem) -> usize {
    if has_exponentials(problem) { 2 } else { 8 }
}

/// The same of a tile. Where its rows are pixels, a lane has one, or two that are neighbours, or of runs as many as planes are multiples
/// of; of whole planes 16 bytes of images as they lie in memory, or as many neighbours as it has; of runs that pass through shared memory
/// [`SPANNED`]; of f32 only in TF32, where neighbouring rows are neighbouring pixels and results pass through shared memory.
pub(super) fn outputs_of(tiling: &Tiling, problem: &Problem) -> usize {
    let vector = outputs_at_once(tiling.load, problem);
    match () {
        () if writes_images(tiling, problem) => {
            if fills_images(tiling, images_follow(problem)) {
                8
            } else if tiling.load == Load::Runs {
                vector
            } else {
                neighbours(tiling, problem)
            }
        }
        () if writes_words(tiling, problem) => 2,
        () if tiling.load == Load::Packed => 1,
        () if tiling.load == Load::Runs && tiling.element == 4 => {
            let is_odd = Sight::of(problem).is_none_or(|sight| sight.is_odd());
            if tiling.tf32x3 || is_odd || writes_rows(tiling.load, problem) { 1 } else { vector }
        }
        () if tiling.runs.is_some_and(|runs| runs.paired) => vector.min(2),
        () => vector,
    }
}

/// Whether results of 16 bits pass through shared memory to be written along planes as words, wherever planes begin, where threads read
/// pixels: those of runs of an odd number of pixels, and of whole planes that are not [`writes_images`]', behind which no operator reads a
/// number for each.
pub(super) fn writes_words(tiling: &Tiling, problem: &Problem) -> bool {
    !writes_images(tiling, problem) && takes_words(tiling, results_are_odd(problem), reads_elements(problem))
}

/// Results of 16 bits that lie side by side where those of runs pass through shared memory to be written by as many: pairs of lanes are no
/// whole sectors of 32 bytes there. Of planes of whole sectors 64-128-28-28-128-3x3 took 1.05 of the time so.
const SPANNED: usize = 4;

/// Pixels of a channel that lie side by side in a lane's rows where pixels come in whole planes, or in runs of pairs: as many as it has rows,
/// if planes and what lies between them in memory are whole numbers of these, a step is equal shares for its atoms, and no operator reads a
/// number for each result.
pub(super) fn neighbours(tiling: &Tiling, problem: &Problem) -> usize {
    neighbours_of(tiling, outputs_at_once(tiling.load, problem), reads_elements(problem))
}

/// The same of a tile by what of a problem decides it: how many results lie side by side, and whether an operator reads a number for each.
pub(super) fn neighbours_of(tiling: &Tiling, vector: usize, reads_elements: bool) -> usize {
    let rows = 2 * tiling.atoms;
    let of_load = match tiling.load {
        Load::Packed => tiling.depth.is_multiple_of(16 * tiling.atoms),
        Load::Runs => vector == SPANNED && tiling.runs.is_some_and(|runs| runs.paired && runs.overlap == 0),
        _ => false,
    };
    if of_load && tiling.split == 1 && !reads_elements && vector.is_multiple_of(rows) { rows } else { 1 }
}

/// Whether results pass through shared memory to be written as vectors: of images as they lie in memory, or of neighbours.
pub(super) fn writes_images(tiling: &Tiling, problem: &Problem) -> bool {
    let vector = outputs_at_once(tiling.load, problem);
    takes_images(tiling, vector, reads_elements(problem), images_follow(problem))
}

/// The same of a tile by what of a problem decides it, which [`neighbours_of`] and [`fills_images`] name.
pub(super) fn takes_images(
    tiling: &Tiling,
    vector: usize,
    reads_elements: bool,
    images_follow: bool,
) -> bool {
    let is_direct = matches!(tiling.load, Load::Packed | Load::Runs) && tiling.split == 1 && !reads_elements;
    is_direct && (fills_images(tiling, images_follow) || neighbours_of(tiling, vector, reads_elements) > 1)
}

/// Whether a tile has whole images, of an output whose images follow.
pub(super) fn fills_images(tiling: &Tiling, images_follow: bool) -> bool {
    images_follow && tiling.packed.is_some_and(|packed| packed.pixels.is_multiple_of(packed.plane))
}

/// Whether an output's planes follow one another without gaps, and all images and groups begin at multiples of 16 bytes.
pub(super) fn images_follow(problem: &Problem) -> bool {
    let y = Volume::of(&problem.output);
    let groups = problem.conv().map_or(1, |(conv, _)| conv.groups());
    let chunk = 16 / problem.output.data_type().size();
    y.strides[1] == y.plane()
        && y.strides[0].is_multiple_of(chunk)
        && (y.lens[1] / groups * y.plane()).is_multiple_of(chunk)
}

/// Whether results that are written along pixels, several at once, pass through shared memory as they are written, where planes come by
/// TMA or are copied, and no operator reads a number for each. In bf16 registers are spilled where pixels are gathered or reordered.
pub(super) fn writes_filters(tiling: &Tiling, problem: &Problem) -> bool {
    takes_filters(tiling, outputs_at_once(tiling.load, problem), reads_elements(problem))
}

/// The same of a tile by what of a problem decides it, as of [`neighbours_of`].
pub(super) fn takes_filters(tiling: &Tiling, vector: usize, reads_elements: bool) -> bool {
    tiling.load == Load::Planes && tiling.split == 1 && !reads_elements && vector > 1
}

/// The same of a tile by what of a problem decides it: whether [`results_are_odd`], and whether an operator reads a number for each result.
pub(super) fn takes_words(tiling: &Tiling, are_odd: bool, reads_elements: bool) -> bool {
    let loads = match tiling.load {
        Load::Packed => tiling.split == 1,
        Load::Runs => tiling.element == 2 && are_odd,
        _ => false,
    };
    loads && !reads_elements
}

/// Whether results of runs of f32 are written from where they are summed: neighbouring rows are neighbouring pixels, and in TF32, which
/// waits for stores, planes are whole sectors of 32 bytes and there are several taps, or an operator reads a number for each result. Of
/// 14x14 without one 64-256-14-14-1024 took 1.17 of the time, with one 64-512-14-14-1024 0.86. By way of shared memory, four pixels at a
/// time, 64-128-28-28-512 takes 0.94 of the time, 64-128-28-28-128-3x3 1.03.
pub(super) fn writes_rows(load: Load, problem: &Problem) -> bool {
    const SECTOR: usize = 8;

    let y = Volume::of(&problem.output);
    let whole = y.strides[..2].iter().all(|stride| stride.is_multiple_of(SECTOR));
    load == Load::Runs
        && problem.output.data_type() == DataType::Float
        && Sight::of(problem).is_some_and(|sight| !sight.is_odd())
        && (whole && has_taps(problem) || is_tf32x3(problem) || reads_elements(problem))
}

/// Whether filters have several taps.
fn has_taps(problem: &Problem) -> bool {
    problem.conv().is_some_and(|(_, weights)| Volume::of(weights).plane() > 1)
}

/// Whether planes or images of the output do not all begin at even elements of it.
pub(super) fn results_are_odd(problem: &Problem) -> bool {
    let y = Volume::of(&problem.output);
    y.strides[1] % 2 == 1 || y.strides[0] % 2 == 1
}

/// Whether TMA can address a tensor of 16 bits by boxes of these dimensions, given innermost first, the first of which has no
/// gaps.
pub(super) fn is_addressable(volume: &Volume, first: usize, dims: &[usize]) -> bool {
    const CHUNK: usize = 8;
    let mut least = first;
    dims.iter().filter(|&&d| volume.lens[d] > 1).all(|&d| {
        let fits = volume.strides[d] >= least && volume.strides[d].is_multiple_of(CHUNK);
        least = volume.strides[d] * volume.lens[d];
        fits
    })
}

/// Whether planes of 16 bits begin and end at multiples of [`COPIED`] bytes.
pub(super) fn is_copyable(x: &Volume) -> bool {
    let strides = [0, 1].into_iter().filter(|&d| x.lens[d] > 1).map(|d| x.strides[d]);
    strides.chain([x.plane()]).all(|count| (count * 2).is_multiple_of(COPIED))
}

/// Whether planes of 16 bits follow one another without gaps, and bulk copies can bring those of all channels of a group: whole
/// numbers of 16 bytes, at multiples of as many.
pub(super) fn is_packed(x: &Volume, channels: usize) -> bool {
    const CHUNK: usize = 8;
    let follow = x.lens[1] == 1 || x.strides[1] == x.plane();
    let images = x.lens[0] == 1 || x.strides[0].is_multiple_of(CHUNK);
    follow && images && (channels * x.plane()).is_multiple_of(CHUNK) && channels.is_multiple_of(2)
}

/// Whether a filter's taps lie side by side, and its channels one behind the other.
pub(super) fn has_taps_innermost(weights: &Volume) -> bool {
    let follow = weights.lens[1] == 1 || weights.strides[1] == weights.plane();
    weights.position_stride() == Some(1) && follow
}

/// Whether filters can come in the order in which lanes have columns: TMA loads those that begin runs of lanes together, and taps as one
/// dimension.
pub(super) fn orders_filters(problem: &Problem) -> bool {
    let Some((conv, weights)) = problem.conv() else { return false };
    let weights = Volume::of(weights);
    (weights.lens[0] / conv.groups()).is_multiple_of(8) && weights.position_stride().is_some()
}

/// Whether a tile's filters come in that order.
pub(super) fn filters_by_lane(problem: &Problem, tiling: &Tiling) -> bool {
    tiling.takes_filters_by_lane() && orders_filters(problem)
}

/// Elements of packed filters that are read at once: 16 bytes of filters that are whole numbers of these, else one.
pub(super) fn filters_at_once(weights: &Volume, element: usize) -> usize {
    let depth = weights.lens[1] * weights.plane();
    let whole = [depth, weights.strides[0]].into_iter().all(|count| (count * element).is_multiple_of(16));
    if whole { 16 / element } else { 1 }
}

/// Columns behind the end of a tile's line onto which sums move.
pub(super) fn columns_behind(columns: usize, taps: usize, pad: usize, line: usize) -> usize {
    (columns + taps - 1 - pad).saturating_sub(line)
}

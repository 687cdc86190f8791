//! The tensor maps by which TMA loads pixels and filters.

use fuseplan_api::{DataType, Problem};
use fuseplan_gpu::{Volume, convolution, spatial};

use super::layout::filters_by_lane;
use super::runs::{By, Runs};
use super::tensor_map::{Part, TensorMap};
use super::tiling::{BOX, Load, Tiling, Window};

/// The maps of a problem's input and filters, of those that TMA loads as they are.
pub(super) fn of(problem: &Problem, tiling: &Tiling) -> (Option<TensorMap>, Option<TensorMap>) {
    let (conv, weights) = convolution(problem);
    let (load, dims, groups) = (tiling.load, conv.spatial_dims(), conv.groups());
    let (x, w) = (Volume::of(&problem.input), Volume::of(weights));
    let (channels, taps) = (w.lens[1], w.plane());
    let data_type = problem.output.data_type();
    let [before, after] = [conv.pads_before(), conv.pads_after()].map(|pads| spatial(pads, 0));
    let [strides, dilations] = [conv.strides(), conv.dilations()].map(|list| spatial(list, 1));
    // A filter's depth is one row.
    let filter_rows = || {
        if tiling.rearranged {
            return None;
        }
        let depth = channels * taps;
        let pitch = if w.lens[0] > 1 { w.strides[0] } else { depth.next_multiple_of(8) };
        Some(TensorMap {
            data_type,
            rounds: !tiling.tf32x3,
            lens: vec![depth as u64, w.lens[0] as u64],
            strides: vec![(pitch * data_type.size()) as u64],
            innermost: tiling.depth as u32,
            row: tiling.row(),
            part: Part::Tile { extents: vec![tiling.filters() as u32] },
        })
    };
    match load {
        Load::Tma | Load::Reordered | Load::Halo => {
            let tile = |lens: &[(usize, usize)]| {
                let mut extents = vec![1; dims + 1];
                lens.iter().for_each(|&(at, len)| extents[at] = len as u32);
                Part::Tile { extents }
            };
            let pixels = if let Some(Window { columns, lines, halo, .. }) = tiling.window {
                tile(&[(0, columns + halo[0]), (1, lines + halo[1])])
            } else {
                let inner_first = || (0..3).rev().take(dims);
                let reach = |d: usize| ((w.lens[2 + d] - 1) * dilations[d]) as i32;
                Part::Pixels {
                    pixels: tiling.pixels() as u32,
                    strides: inner_first().map(|d| strides[d] as u32).collect(),
                    lower: inner_first().map(|d| -(before[d] as i32)).collect(),
                    upper: inner_first().map(|d| after[d] as i32 - reach(d)).collect(),
                }
            };
            let filters = tile(&[(dims, tiling.filters())]);
            let map = |of, part| {
                Some(TensorMap { rounds: !tiling.tf32x3, ..tensor_map(of, dims, tiling, data_type, part) })
            };
            let image = map(&x, pixels);
            let image = if tiling.leaves_group(groups, channels) {
                image.map(|image| grouped(image, groups))
            } else {
                image
            };
            let is_by_lane = filters_by_lane(problem, tiling);
            (image, map(&w, filters).map(|map| if is_by_lane { by_lane(map, &w) } else { map }))
        }
        Load::Planes if tiling.copied => (None, filter_rows()),
        Load::Planes => (Some(planes(&x, tiling.depth, data_type)), filter_rows()),
        Load::Lines => (Some(lines(&x, tiling, data_type)), None),
        Load::Transposed => (Some(rectangles(&x, dims, tiling, data_type)), None),
        Load::Runs => {
            let filters = if tiling.takes_filter_rows() { filter_rows() } else { None };
            (tiling.runs.and_then(|tile| runs(&x, tiling, &tile, data_type)), filters)
        }
        Load::Packed | Load::Gather => (None, filter_rows()),
    }
}

/// A tensor of `dims` spatial dimensions for loads of a step's channels.
fn tensor_map(volume: &Volume, dims: usize, tiling: &Tiling, data_type: DataType, part: Part) -> TensorMap {
    let order = [4, 3, 2].into_iter().take(dims).chain([0]);
    let mut strides = Vec::new();
    // Dimensions of length 1 have no stride; any that is aligned does.
    let mut packed = volume.lens[1].next_multiple_of(8);
    for d in order.clone() {
        let stride = if volume.lens[d] > 1 { volume.strides[d] } else { packed };
        packed = stride * volume.lens[d];
        strides.push((stride * data_type.size()) as u64);
    }
    let lens = [1].into_iter().chain(order).map(|d| volume.lens[d] as u64).collect();
    TensorMap {
        data_type,
        rounds: true,
        lens,
        strides,
        innermost: tiling.depth as u32,
        row: tiling.row(),
        part,
    }
}

/// The map of filters for loads of four lanes' runs of 16 bytes of filters, whose dimensions are the order in which
/// lanes have them: channels, two neighbours, the first filters of runs, every other one of a run, taps.
fn by_lane(map: TensorMap, volume: &Volume) -> TensorMap {
    let run = 16 / map.data_type.size();
    let any = volume.lens[1].next_multiple_of(8);
    let tap = if volume.plane() > 1 { volume.position_stride().unwrap_or(any) } else { any };
    let filter = if volume.lens[0] > 1 { volume.strides[0] } else { any };
    let bytes = |stride: usize| (stride * map.data_type.size()) as u64;
    TensorMap {
        lens: [volume.lens[1], 2, volume.lens[0] / run, run / 2, volume.plane()].map(|len| len as u64).into(),
        strides: [filter, run * filter, 2 * filter, tap].map(bytes).into(),
        part: Part::Tile { extents: vec![2, 4, run as u32 / 2, 1] },
        ..map
    }
}

/// The map with groups as a dimension, of which a load has one: by its coordinate, or by an offset where pixels are walked over.
fn grouped(mut map: TensorMap, groups: usize) -> TensorMap {
    let channels = map.lens[0] / groups as u64;
    map.lens.splice(..1, [channels, groups as u64]);
    map.strides.insert(0, channels * map.data_type.size() as u64);
    match &mut map.part {
        Part::Tile { extents } => extents.insert(0, 1),
        Part::Pixels { strides, lower, upper, .. } => {
            strides.insert(0, 1);
            lower.insert(0, 0);
            upper.insert(0, 1 - groups as i32);
        }
    }
    map
}

/// Images whose positions are neighbours, for loads of a box of positions of `channels` channels.
fn planes(volume: &Volume, channels: usize, data_type: DataType) -> TensorMap {
    let mut packed = volume.plane().next_multiple_of(8);
    // As above, dimensions of length 1 have any stride.
    let strides = [1, 0].map(|d| {
        let stride = if volume.lens[d] > 1 { volume.strides[d] } else { packed };
        packed = stride * volume.lens[d];
        (stride * data_type.size()) as u64
    });
    TensorMap {
        data_type,
        rounds: true,
        lens: [volume.plane(), volume.lens[1], volume.lens[0]].map(|len| len as u64).into(),
        strides: strides.into(),
        innermost: BOX as u32,
        row: BOX * data_type.size(),
        part: Part::Tile { extents: vec![channels as u32, 1] },
    }
}

/// Planes, for loads of some of their elements in a step's channels, or all elements as one line; `None` where bulk copies bring
/// them.
fn runs(volume: &Volume, tiling: &Tiling, runs: &Runs, data_type: DataType) -> Option<TensorMap> {
    if runs.by == By::Planes && tiling.element == 2 {
        return None;
    }
    // The planes of all phases are one line.
    let phases = runs.phases as u64;
    let mut map = planes(volume, tiling.depth / runs.phases, data_type);
    map.lens[0] *= phases;
    map.lens[1] /= phases;
    map.strides[0] *= phases;
    let map = TensorMap {
        rounds: !tiling.tf32x3,
        innermost: runs.columns as u32,
        row: runs.columns * data_type.size(),
        ..map
    };
    if runs.by == By::Boxes {
        return Some(map);
    }
    let reach = |d: usize| (volume.lens[d] - 1) * volume.strides[d];
    let elements = reach(0) + reach(1) + volume.plane();
    Some(TensorMap {
        lens: vec![elements as u64],
        strides: Vec::new(),
        part: Part::Tile { extents: Vec::new() },
        ..map
    })
}

/// Images whose lines have no gaps, for loads of the lines that a tile sees.
fn lines(volume: &Volume, tiling: &Tiling, data_type: DataType) -> TensorMap {
    let Some(lines) = tiling.lines else { unreachable!("a tile of lines has some") };
    let [images, channels, _, height, width] = volume.lens;
    let blocks = lines.columns / lines.block;
    let mut packed = width.next_multiple_of(8);
    let [line, channel, image] = [3, 1, 0].map(|d| {
        let stride = if volume.lens[d] > 1 { volume.strides[d] } else { packed };
        packed = stride * volume.lens[d];
        stride
    });
    let bytes = |stride: usize| (stride * data_type.size()) as u64;
    TensorMap {
        data_type,
        rounds: true,
        lens: [width.min(lines.block), channels, blocks, height, images].map(|len| len as u64).into(),
        strides: [channel, lines.block, line, image].map(bytes).into(),
        innermost: lines.block as u32,
        row: lines.block * data_type.size(),
        part: Part::Tile {
            extents: [tiling.depth, blocks, lines.count + lines.halo, 1].map(|extent| extent as u32).into(),
        },
    }
}

/// Images whose columns have no gaps, for loads of a box of columns of the lines that a tile sees.
fn rectangles(volume: &Volume, dims: usize, tiling: &Tiling, data_type: DataType) -> TensorMap {
    let Some(tile) = tiling.transposed else { unreachable!("a tile of a rectangle has one") };
    let order = [1, 3, 2, 0].into_iter().filter(|&d| dims == 3 || d != 2);
    let any = volume.lens[4].next_multiple_of(8);
    // Dimensions of length 1 have any stride.
    let stride = |d: usize| if volume.lens[d] > 1 { volume.strides[d] } else { any };
    let mut extents = vec![tiling.depth as u32, (tile.lines + tile.halo) as u32];
    extents.resize(dims + 1, 1);
    TensorMap {
        data_type,
        rounds: true,
        lens: [4].into_iter().chain(order.clone()).map(|d| volume.lens[d] as u64).collect(),
        strides: order.map(|d| (stride(d) * data_type.size()) as u64).collect(),
        innermost: BOX as u32,
        row: BOX * data_type.size(),
        part: Part::Tile { extents },
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernel::wgmma_kernel;
    use super::super::{WGMMA, candidates, constraints};
    use super::*;
    use crate::CudaBackend;
    use fuseplan_api::{
        Backend, ConvolutionDescriptor, DataType, MathMode, Op, Solver, TensorDescriptor, TensorLayout,
    };

    /// One dimension of a convolution: length, taps, padding before and after, stride, dilation.
    type Side = [usize; 6];

    /// A convolution with these sides, the width last; `None` where the filter does not fit.
    fn problem(sides: &[Side]) -> Option<Problem> {
        let of = |i: usize| sides.iter().map(|side| side[i]).collect::<Vec<_>>();
        let layout = if sides.len() == 3 { TensorLayout::Ndhwc } else { TensorLayout::Nhwc };
        let tensor = |[a, b]: [usize; 2], lens: Vec<usize>| {
            TensorDescriptor::with_layout(DataType::Half, layout, &[&[a, b][..], &lens].concat()).unwrap()
        };
        let conv = ConvolutionDescriptor::of_dims(sides.len()).unwrap();
        let conv = conv.with_asymmetric_pads(of(2), of(3)).unwrap().with_strides(of(4)).unwrap();
        let conv = conv.with_dilations(of(5)).unwrap();
        let (input, weights) = (tensor([2, 16], of(0)), tensor([24, 16], of(1)));
        let output = conv.forward_output(&input, &weights).ok()?;
        let ops = vec![Op::ConvForward { conv, weights }];
        Some(Problem { input, output, ops, math: MathMode::Precise })
    }

    /// What is cut off of a factor is its low part with 3xTF32, so TMA must not round.
    #[test]
    fn only_tf32_is_rounded_while_it_is_loaded() {
        let half = problem(&[[9, 3, 1, 1, 1, 1]; 2]).unwrap();
        let float = |tensor: &TensorDescriptor| {
            TensorDescriptor::with_layout(DataType::Float, TensorLayout::Nhwc, tensor.lens()).unwrap()
        };
        let (conv, weights) = half.conv().unwrap();
        let ops = vec![Op::ConvForward { conv: *conv, weights: float(weights) }];
        for math in [MathMode::Precise, MathMode::AllowTf32] {
            let (input, output) = (float(&half.input), float(&half.output));
            let problem = Problem { input, output, ops: ops.clone(), math };
            let (tiling, _) = candidates::tilings(Load::Tma, &problem, 132).remove(0);
            let planned = wgmma_kernel(&problem, "sm_90a", &tiling);
            let rounds = [planned.input, planned.filters].map(|map| map.unwrap().rounds);
            assert_eq!(
                (tiling.tf32x3, rounds),
                (math == MathMode::Precise, [math == MathMode::AllowTf32; 2])
            );
        }
    }

    /// Groups of 24 channels, of which a step has room for more: a dimension of the map has 24, and the next one the groups, of
    /// which a load has one.
    #[test]
    fn groups_that_a_step_leaves_are_a_dimension() {
        let target = CudaBackend.target("sm_90a").unwrap();
        for (stride, groups, channels, dimension) in
            [(1, 2, 24, true), (2, 2, 24, true), (1, 40, 24, true), (2, 40, 24, false), (2, 2, 32, false)]
        {
            let of = |lens: [usize; 4]| TensorDescriptor::nhwc(DataType::Half, lens).unwrap();
            let conv =
                ConvolutionDescriptor::d2().with_pads([1, 1]).unwrap().with_strides([stride; 2]).unwrap();
            let conv = conv.with_groups(groups).unwrap();
            let (input, weights) = (of([2, groups * channels, 9, 9]), of([groups * 16, channels, 3, 3]));
            let output = conv.forward_output(&input, &weights).unwrap();
            let ops = vec![Op::ConvForward { conv, weights }];
            let problem = Problem { input, output, ops, math: MathMode::Precise };
            let refused = groups == 40 && stride == 2;
            assert_eq!(WGMMA.applies(&problem, &target).is_err(), refused);
            for (tiling, _) in candidates::tilings(Load::Tma, &problem, 132) {
                let map = wgmma_kernel(&problem, "sm_90a", &tiling).input.unwrap();
                let apart = tiling.leaves_group(groups, channels);
                assert_eq!(apart, dimension && tiling.depth > 8);
                if apart {
                    assert_eq!(map.lens, [channels as u64, groups as u64, 9, 9, 2]);
                    assert_eq!(map.strides[..2], [2 * channels as u64, 2 * (groups * channels) as u64]);
                    match map.part {
                        Part::Tile { extents } => assert_eq!((extents.len(), extents[0]), (4, 1)),
                        Part::Pixels { lower, upper, strides, .. } => {
                            assert_eq!((lower, upper), (vec![0, -1, -1], vec![1 - groups as i32, -1, -1]));
                            assert_eq!(strides, [1, stride as u32, stride as u32]);
                        }
                    }
                }
            }
        }
    }

    /// Lane j of four has the columns 8 o + 2 j + e of as many eights as give it a run of R filters, 16 bytes, which
    /// are R j + 2 o + e. Other filters come in their order.
    #[test]
    fn filters_come_in_the_order_in_which_lanes_have_columns() {
        let target = CudaBackend.target("sm_90a").unwrap();
        let problem = |data_type: DataType, filters: usize, gap: bool| {
            let of = |lens: [usize; 4]| TensorDescriptor::nhwc(data_type, lens).unwrap();
            let (input, packed) = (of([2, 16, 9, 9]), of([filters, 16, 3, 3]));
            let gaps = [3 * 56, 1, 56, 16];
            let weights = TensorDescriptor::new(data_type, &[filters, 16, 3, 3], &gaps).unwrap();
            let weights = if gap { weights } else { packed };
            let conv = ConvolutionDescriptor::d2().with_pads([1, 1]).unwrap();
            let output = conv.forward_output(&input, &weights).unwrap();
            let ops = vec![Op::ConvForward { conv, weights }];
            Problem { input, output, ops, math: MathMode::AllowTf32 }
        };
        let (mut by_lane, mut in_order) = ([0; 2], 0);
        let types = [DataType::Half, DataType::Float];
        let cases = [(64, false), (72, false), (36, false), (64, true)];
        for (data_type, (filters, gap)) in types.into_iter().flat_map(|of| cases.map(|case| (of, case))) {
            let problem = problem(data_type, filters, gap);
            let size = data_type.size();
            let run = 16 / size;
            assert!(WGMMA.applies(&problem, &target).is_ok());
            for (tiling, _) in candidates::tilings(Load::Tma, &problem, 132) {
                let planned = wgmma_kernel(&problem, "sm_90a", &tiling);
                let map = planned.filters.unwrap();
                let Part::Tile { extents } = map.part else { panic!("a box of filters") };
                let ordered = tiling.filters().is_multiple_of(4 * run) && filters.is_multiple_of(8) && !gap;
                let takes = ordered && (size == 2 || tiling.resident);
                let constant = format!("FILTERS_BY_LANE{{{}}}", u8::from(takes));
                assert!(planned.kernel.source.contains(&constant), "{constant} of {tiling}");
                if !takes {
                    in_order += 1;
                    assert_eq!(extents.last(), Some(&(tiling.filters() as u32)), "{tiling}");
                    continue;
                }
                by_lane[size / 4] += 1;
                let lens = [16, 2, filters / run, run / 2, 9].map(|len| len as u64);
                assert_eq!((map.lens, extents), (lens.into(), vec![2, 4, run as u32 / 2, 1]));
                let filter_at = |e: usize, j: usize, o: usize| {
                    let [e, j, o] = [e, j, o].map(|at| at as u64);
                    let bytes = e * map.strides[0] + j * map.strides[1] + o * map.strides[2];
                    bytes as usize / (size * 9 * 16)
                };
                for row in 0..4 * run {
                    let (o, j, e) = (row / 8, row % 8 / 2, row % 2);
                    assert_eq!(filter_at(e, j, o), run * j + 2 * o + e);
                }
                assert_eq!(map.strides[3], (size * 16) as u64);
            }
        }
        assert!(by_lane[0] > 10 && by_lane[1] > 5 && in_order > 10, "{by_lane:?} and {in_order}");
    }

    const PADS: [[usize; 2]; 11] =
        [[0, 0], [0, 1], [1, 0], [2, 2], [4, 0], [0, 9], [15, 3], [16, 0], [0, 16], [1, 18], [0, 130]];

    /// TMA walks from the lower corner to the upper one, which is given by its distance from the image's last element. It has
    /// to come by every output's first tap, and to end there.
    #[test]
    fn boxes_hold_the_first_taps_of_all_outputs() {
        let target = CudaBackend.target("sm_90a").unwrap();
        let mut all = Vec::new();
        for (width, taps) in [1, 2, 9].into_iter().flat_map(|width| [1, 2, 3, 5].map(|taps| (width, taps))) {
            for ([before, after], [stride, dilation]) in
                PADS.into_iter().flat_map(|pads| [[1, 1], [2, 1], [3, 4]].map(|steps| (pads, steps)))
            {
                let side = [width, taps, before, after, stride, dilation];
                all.extend([vec![[5, 3, 1, 1, 1, 1], side], vec![side, [4, 1, 0, 1, 1, 1], side]]);
            }
        }
        let (mut boxes, mut refused) = (0, 0);
        for sides in all {
            let Some(problem) = problem(&sides) else { continue };
            if WGMMA.applies(&problem, &target).is_err() {
                assert!((constraints::RECEPTIVE_EXTENT.check)(&problem, &target).is_some());
                refused += 1;
                continue;
            }
            let (tiling, _) = candidates::tilings(Load::Tma, &problem, 132).remove(0);
            let planned = wgmma_kernel(&problem, "sm_90a", &tiling);
            let Some(TensorMap { part: Part::Pixels { lower, upper, strides, .. }, .. }) = planned.input
            else {
                panic!("TMA loads pixels")
            };
            let fields = if sides.len() == 3 { -16..16 } else { -128..128 };
            let outputs = problem.output.spatial().iter().rev();
            for (i, (side, &outputs)) in sides.iter().rev().zip(outputs).enumerate() {
                let (first, last) = (lower[i], side[0] as i32 - 1 + upper[i]);
                let walked = (first..=last).step_by(strides[i] as usize).count();
                assert_eq!((walked, strides[i] as usize), (outputs, side[4]), "{side:?}");
                assert!(fields.contains(&lower[i]) && fields.contains(&upper[i]), "{side:?}");
                let pad = format!("PAD_{}{{{}}}", ["W", "H", "D"][i], -first);
                assert!(planned.kernel.source.contains(&pad), "{side:?}");
                boxes += 1;
            }
        }
        assert!(boxes > 500 && refused > 20, "{boxes} boxes, {refused} refused");
    }
}

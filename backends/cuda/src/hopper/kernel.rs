//! The kernel's text, and the tensor maps that it is launched with.

use fuseplan_api::Problem;
use fuseplan_gpu::{ALONE, COORD, Geometry, Kernel, Runtime, SHARE, Text, Volume, channel_values, spatial};

use super::ALIGNMENT;
use super::constants::{
    FiltersConstants, GroupConstants, LinesConstants, PackedConstants, RunsConstants, StreamedConstants,
    StrideConstants, TapConstants, TransposedConstants, WgmmaConstants, WindowConstants,
};
use super::instruction::{Rows, wgmma};
use super::maps;
use super::runs::{By, Sight};
use super::tensor_map::{Part, TensorMap};
use super::tiling::{self, COPIED, Load, Packed, Tiling, Window};
use crate::context::Cuda;
use crate::runtime::CLUSTER;

const TMA_PRODUCER: &str = include_str!("../../kernels/tma_producer.cuh");

const TF32X3: &str = include_str!("../../kernels/tf32x3.cuh");

/// What stands for `tf32x3.cuh` where factors have one part.
const ONE_PART: &str = "\
template <class E> DEVICE unsigned low_word_of(const E*) { return 0; }
template <int N> DEVICE bool are_finite(const float (&)[N]) { return true; }
DEVICE float sum_of_products(const Args&, int, int, int) { return 0.f; }
";

/// What stands for `filters.cuh` where threads do not bring filters.
const NOT_REARRANGED: &str = "DEVICE void rearrange_filters(const Args&, char*, float*) {}\n";

/// What stands for `streamed_filters.cuh` where filters are not prepared.
const NOT_STREAMED: &str = "\
DEVICE void prepare_filters(const Launch&) {}
DEVICE void stream_filters(const Launch&, unsigned, const Barriers&) {}
";

/// A kernel and the tensor maps that it is launched with.
#[derive(Debug)]
pub(crate) struct WgmmaKernel {
    pub(crate) kernel: Kernel,
    /// Of the input, where TMA loads it.
    pub(crate) input: Option<TensorMap>,
    /// Of the filters, where TMA loads them.
    pub(crate) filters: Option<TensorMap>,
    /// What the input's address must be a multiple of.
    pub(crate) input_alignment: usize,
    /// What the filters' address must be a multiple of.
    pub(crate) filter_alignment: usize,
    /// What the output's address must be a multiple of.
    pub(crate) output_alignment: usize,
    /// Bytes that filters are prepared to, where they are streamed.
    pub(crate) prepared: Option<usize>,
    pub(super) tiling: Tiling,
    tiles: usize,
    /// Tiles side by side that cover all filters of all groups.
    columns: usize,
}

impl WgmmaKernel {
    /// Blocks for a device of as many multiprocessors. They are persistent: as many as the device holds at once, but no
    /// more than tiles. Blocks that share a tile have no other.
    pub(crate) fn blocks(&self, units: usize) -> u32 {
        if self.tiling.split > 1 {
            return (self.tiles * self.tiling.split) as u32;
        }
        let blocks = self.tiles.min(units * self.tiling.occupancy);
        // Blocks with resident filters walk down a column of tiles.
        let whole = if self.tiling.resident { (blocks / self.columns).max(1) * self.columns } else { blocks };
        whole as u32
    }
}

/// The kernel of a problem that meets the solver's constraints, with a tile.
pub(crate) fn wgmma_kernel(problem: &Problem, arch: &str, tiling: &Tiling) -> WgmmaKernel {
    let Some((conv, weights)) = problem.conv() else { unreachable!("a constraint demands a convolution") };
    let load = tiling.load;
    let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
    let groups = conv.groups();
    let (filters, channels) = (w.lens[0] / groups, w.lens[1]);
    let taps = w.plane();
    let each = [w.lens[2], w.lens[3], w.lens[4]];
    let (steps, filter_steps) = (tiling.steps(channels, each), tiling.filter_steps(channels, each));
    let columns = groups * filters.div_ceil(tiling.filters());
    let tiles = tiling.tiles_of_pixels(y.lens[0], y.lens[2], y.lens[3], y.lens[4]) * columns;
    let shared = tiling.shared(filter_steps, taps, channel_values(problem));
    let (producer, consumer) = tiling.registers();
    let dims = conv.spatial_dims();
    let y_vector = tiling::outputs_at_once(load, problem);
    // Arrivals that complete a stage's full barrier, and threads that load the parameters of channels.
    let (arrivals, channel_producers) = match load {
        // Another warp issues the loads of filters.
        Load::Lines if tiling.is_streamed() => (1, 64),
        Load::Runs => (1, 64),
        // Two warps transpose.
        Load::Transposed => (2, 64),
        Load::Tma | Load::Halo | Load::Planes | Load::Packed | Load::Lines if !tiling.copied => (1, 96),
        _ => (tiling.producers * 4 + usize::from(!tiling.resident), tiling.producers * 128),
    };

    let data_type = problem.output.data_type();
    let sight = tiling.runs.and_then(|_| Sight::of(problem));
    let mut text = Text::default();
    let [before, after] = [conv.pads_before(), conv.pads_after()].map(|pads| spatial(pads, 0));
    let [strides, dilations] = [conv.strides(), conv.dilations()].map(|list| spatial(list, 1));
    WgmmaConstants {
        dims,
        groups,
        filters,
        channels,
        channel_values: channel_values(problem),
        steps,
        split: tiling.split,
        producers: tiling.producers,
        filter_steps,
        filter_room: tiling.filter_room(filter_steps),
        filter_stages: tiling.filter_stages(),
        raw_stages: tiling.raw_stages(),
        raw_bytes: tiling.transposed.map_or(0, |tile| tile.raw_bytes()),
        rectangle: tiling
            .window
            .map_or(tiling.transposed.map_or(0, |tile| tile.columns), |window| window.columns),
        full_arrivals: arrivals,
        channel_producers,
        table_bytes: tiling.table(taps),
        pingpong: tiling.pingpong,
        cooperative: tiling.cooperative,
        channel_stages: tiling.channel_stages(),
        atoms: tiling.atoms,
        pixels_are_rows: tiling.pixels_are_rows(),
        pixels_innermost: matches!(load, Load::Planes | Load::Lines)
            || tiling.runs.is_some_and(|runs| runs.images == 1 && runs.by != By::Planes),
        interleaved: match () {
            () if sight.is_some_and(|sight| sight.is_odd()) => 4,
            () if tiling.packed.is_some_and(|packed| !packed.plane.is_multiple_of(2)) => 8,
            () => 1,
        },
        block_p: tiling.block(),
        lines: tiling.lines.map_or(tiling.transposed.map_or(0, |tile| tile.lines), |lines| lines.count),
        loaded_p: tiling.loaded_pixels(),
        tile_p: tiling.pixels(),
        covered_p: tiling
            .packed
            .map(|packed| packed.pixels)
            .or(tiling.runs.map(|runs| runs.pixels))
            .unwrap_or(tiling.pixels()),
        tile_f: tiling.filters(),
        tile_k: tiling.depth,
        row: tiling.row(),
        stages: tiling.stages,
        occupancy: tiling.occupancy,
        resident: tiling.resident,
        rearranged: tiling.rearranged,
        streamed: tiling.is_streamed(),
        tf32x3: tiling.tf32x3,
        shared,
        producer_registers: producer,
        consumer_registers: consumer,
        y_vector,
        taps: each,
    }
    .write(&mut text);
    if tiling.is_streamed() {
        StreamedConstants { streamed_taps: tiling.streamed_taps(each), by_planes: load != Load::Lines }
            .write(&mut text);
    }
    if tiling.window.is_some() {
        WindowConstants { step_taps: tiling.step_taps() }.write(&mut text);
    }
    if let Some(lines) = tiling.lines {
        let behind = tiling::columns_behind(y.lens[4], w.lens[4], before[2], lines.columns);
        LinesConstants { keep: lines.keep, behind, pad_h: before[1], pad_w: before[2] }.write(&mut text);
    }
    if let Some(packed @ Packed { plane, .. }) = tiling.packed {
        PackedConstants { plane, images: packed.images() }.write(&mut text);
        text.size("x_n", x.strides[0]);
    }
    if let Some(tile) = tiling.transposed {
        TransposedConstants { boxes: tile.boxes, pad: before }.write(&mut text);
    }
    if let (Some(runs), Some(sight)) = (tiling.runs, sight) {
        let Sight { image, output, padded, pads, dilations, strides, .. } = sight;
        RunsConstants {
            channel_pitch: runs.pitch,
            by_boxes: runs.by == By::Boxes,
            columns_of_box: runs.columns,
            boxes: runs.boxes,
            images: runs.images,
            whole: runs.by == By::Planes,
            guard: runs.guard,
            image,
            output,
            padded,
            pad: pads,
            dilation: dilations,
            stride: strides,
        }
        .write(&mut text);
        if !tiling.tf32x3 {
            text.size("x_n", x.strides[0]);
        }
    }
    if matches!(load, Load::Tma | Load::Halo | Load::Gather) {
        TapConstants { pad: before, dilation: dilations }.write(&mut text);
    }
    let of_groups = tiling.leaves_group(groups, channels);
    if matches!(load, Load::Tma | Load::Halo) {
        GroupConstants { of_groups }.write(&mut text);
    }
    if matches!(load, Load::Tma | Load::Gather) {
        StrideConstants { stride: strides }.write(&mut text);
    }
    text.output(&y).coord(&y);
    if load == Load::Gather || tiling.tf32x3 {
        text.size("in_d", x.lens[2]).size("in_h", x.lens[3]).size("in_w", x.lens[4]).strides("x", &x.strides);
    }
    if tiling.copied {
        text.size("x_n", x.strides[0]).size("x_c", x.strides[1]);
    }
    if tiling.tf32x3 {
        for (name, stride) in ["w_k", "w_c", "w_d", "w_h", "w_w"].into_iter().zip(w.strides) {
            text.size(name, stride);
        }
    }
    if tiling.rearranged {
        FiltersConstants { w_vector: tiling::filters_at_once(&w, data_type.size()) }.write(&mut text);
    }
    if (tiling.rearranged || tiling.is_streamed()) && !tiling.tf32x3 {
        text.size("w_k", w.strides[0]);
    }
    let geometry = Geometry { grid: [1; 3], block: tiling.threads() as u32, shared: shared as u32 };
    let detail = format!(
        "wgmma{}, pixels {}, tile {} pixels x {} filters x {}, {} ping-pong x {} cooperative warpgroups, {} stages, \
         {y_vector} outputs at a time{}{}",
        if tiling.tf32x3 { " of 3xTF32" } else { "" },
        match load {
            Load::Tma => "by TMA",
            Load::Halo => "by TMA with their halo",
            Load::Planes if tiling.copied => "copied from planes",
            Load::Planes => "by TMA from planes",
            Load::Packed => "by bulk copies of planes",
            Load::Lines => "by TMA by lines",
            Load::Transposed => "by TMA from planes, transposed",
            Load::Runs => "by runs of planes",
            Load::Gather => "gathered",
        },
        tiling.pixels(),
        tiling.filters(),
        tiling.depth,
        tiling.pingpong,
        tiling.cooperative,
        tiling.stages,
        match () {
            () if tiling.is_streamed() => ", filters streamed",
            () if tiling.resident => ", filters resident",
            () => "",
        },
        if tiling.split > 1 { format!(", shared by {} blocks", tiling.split) } else { String::new() },
    );
    let hopper = include_str!("../../kernels/hopper.cuh");
    let rows = if tiling.tf32x3 || matches!(load, Load::Packed | Load::Runs) {
        Rows::InRegisters
    } else {
        Rows::InMemory
    };
    let wgmma = wgmma(tiling.width, data_type, rows, matches!(load, Load::Planes | Load::Lines));
    let parts = if tiling.tf32x3 {
        [TF32X3, include_str!("../../kernels/tf32x3_interval.cuh")]
    } else {
        [ONE_PART, ""]
    };
    let main = include_str!("../../kernels/wgmma.cuh");
    let (loads, producer) = match load {
        Load::Tma if tiling.tf32x3 => {
            (include_str!("../../kernels/im2col.cuh"), include_str!("../../kernels/tf32x3_producer.cuh"))
        }
        Load::Tma => (include_str!("../../kernels/im2col.cuh"), TMA_PRODUCER),
        Load::Halo => (include_str!("../../kernels/window.cuh"), TMA_PRODUCER),
        Load::Planes if tiling.copied => (include_str!("../../kernels/copied_planes.cuh"), ""),
        Load::Planes => (include_str!("../../kernels/planes.cuh"), TMA_PRODUCER),
        Load::Packed => (include_str!("../../kernels/packed_planes.cuh"), TMA_PRODUCER),
        Load::Lines => (include_str!("../../kernels/lines.cuh"), TMA_PRODUCER),
        Load::Transposed => (include_str!("../../kernels/transposed.cuh"), ""),
        Load::Runs => (include_str!("../../kernels/runs.cuh"), include_str!("../../kernels/runs_rows.cuh")),
        Load::Gather => (include_str!("../../kernels/gather.cuh"), ""),
    };
    let mainloop = match load {
        Load::Runs if tiling.tf32x3 => include_str!("../../kernels/runs_tf32x3_mainloop.cuh"),
        Load::Runs => include_str!("../../kernels/runs_mainloop.cuh"),
        _ if tiling.tf32x3 => include_str!("../../kernels/tf32x3_mainloop.cuh"),
        Load::Tma | Load::Planes | Load::Gather => include_str!("../../kernels/mainloop.cuh"),
        Load::Halo => include_str!("../../kernels/window_mainloop.cuh"),
        Load::Packed => include_str!("../../kernels/packed_mainloop.cuh"),
        Load::Lines => include_str!("../../kernels/lines_mainloop.cuh"),
        Load::Transposed => include_str!("../../kernels/transposed_mainloop.cuh"),
    };
    let parts_of_rows = include_str!("../../kernels/parts.cuh");
    let residuals_along_pixels = include_str!("../../kernels/residuals_along_pixels.cuh");
    let epilogue = match load {
        Load::Tma | Load::Halo => [parts_of_rows, "", include_str!("../../kernels/along_channels.cuh")],
        Load::Packed | Load::Runs => {
            ["", residuals_along_pixels, include_str!("../../kernels/packed_epilogue.cuh")]
        }
        Load::Lines | Load::Transposed => {
            ["", residuals_along_pixels, include_str!("../../kernels/along_lines.cuh")]
        }
        Load::Planes | Load::Gather => {
            [parts_of_rows, residuals_along_pixels, include_str!("../../kernels/along_pixels.cuh")]
        }
    };
    let filters = match () {
        () if tiling.is_streamed() => [NOT_REARRANGED, include_str!("../../kernels/streamed_filters.cuh")],
        () if tiling.rearranged => [include_str!("../../kernels/filters.cuh"), NOT_STREAMED],
        () => [NOT_REARRANGED, NOT_STREAMED],
    };
    let cluster = if tiling.split > 1 { CLUSTER } else { ALONE };
    let split = include_str!("../../kernels/wgmma_split.cuh");
    let files = [
        COORD,
        cluster,
        SHARE,
        hopper,
        &wgmma,
        main,
        parts[0],
        parts[1],
        filters[0],
        filters[1],
        loads,
        producer,
        mainloop,
        epilogue[0],
        epilogue[1],
        epilogue[2],
        split,
    ];
    let kernel = text.finish(Cuda::VENDOR, problem, &files, geometry, detail);

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
            part: Part::Tile { extents: vec![tiling.filters() as u32] },
        })
    };
    let (input, filters) = match load {
        Load::Tma | Load::Halo => {
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
                Some(TensorMap {
                    rounds: !tiling.tf32x3,
                    ..maps::tensor_map(of, dims, tiling.depth, data_type, part)
                })
            };
            let image = map(&x, pixels);
            let image = if of_groups { image.map(|image| maps::grouped(image, groups)) } else { image };
            (image, map(&w, filters))
        }
        Load::Planes if tiling.copied => (None, filter_rows()),
        Load::Planes => (Some(maps::planes(&x, tiling.depth, data_type)), filter_rows()),
        Load::Lines => (Some(maps::lines(&x, tiling, data_type)), None),
        Load::Transposed => (Some(maps::rectangles(&x, dims, tiling, data_type)), None),
        Load::Runs => (tiling.runs.map(|runs| maps::runs(&x, tiling, &runs)), None),
        Load::Packed | Load::Gather => (None, filter_rows()),
    };
    let output_alignment = y_vector * data_type.size();
    let input_alignment = match load {
        Load::Planes if tiling.copied => COPIED,
        Load::Gather => data_type.size(),
        Load::Tma
        | Load::Halo
        | Load::Planes
        | Load::Packed
        | Load::Lines
        | Load::Transposed
        | Load::Runs => ALIGNMENT,
    };
    let filter_alignment = if tiling.is_streamed() {
        data_type.size()
    } else if tiling.rearranged {
        tiling::filters_at_once(&w, data_type.size()) * data_type.size()
    } else {
        ALIGNMENT
    };
    let mut planned = WgmmaKernel {
        kernel,
        input,
        filters,
        input_alignment,
        filter_alignment,
        output_alignment,
        prepared: tiling.is_streamed().then(|| {
            columns * filter_steps * tiling.filters() * tiling.row() * if tiling.tf32x3 { 2 } else { 1 }
        }),
        tiling: *tiling,
        tiles,
        columns,
    };
    planned.kernel.geometry.grid[0] = planned.blocks(Cuda::units(arch));
    planned
}

#[cfg(test)]
mod tests {
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

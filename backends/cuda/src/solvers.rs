//! The solvers.

use fuseplan_api::volume::Volume;
use fuseplan_api::{Algorithm, DataType, MathMode, Preference, Solver};
use fuseplan_gpu::{
    CONVOLUTION, DATA_TYPE, FEW_FILTERS, FEW_PIXELS, GEMM, GROUP_COUNT, INFERENCE, InParts, JitSolver,
    Kernels, OPERATOR_COUNT, Planner, Runtime, SPAN, WINDOW, ffma, gemm_configurations, halo,
    halo_configurations, halo_fma, implicit_gemm, upcast,
};

use crate::columns;
use crate::context::Cuda;
use crate::hopper;
use crate::hopper::preferences::{estimated_time, is_preferred};
use crate::mma::{self, NARROW, TENSOR_CORES, halo_mma, mma, tensor_core_accuracy};
use crate::windows;
use crate::winograd::WINOGRAD;

/// Solvers, best first; the direct kernel takes every plan for inference.
pub(crate) const PLANNERS: [&dyn Planner; 17] = [
    &DEPTHWISE_CONV,
    &GEMV,
    &HALO_MMA,
    &WINOGRAD,
    &hopper::WGMMA,
    &hopper::WGMMA_REORDERED,
    &hopper::WGMMA_PLANES,
    &hopper::WGMMA_TRANSPOSED,
    &hopper::WGMMA_LINES,
    &hopper::WGMMA_RUNS,
    &hopper::WGMMA_GATHER,
    &MMA,
    &HALO_FFMA,
    &FFMA,
    &ELEMENT_WISE,
    &BATCH_NORM,
    &DIRECT,
];

/// [`PLANNERS`] as solvers, for callers that have no use for kernels.
pub(crate) static SOLVERS: [&dyn Solver; 17] = upcast(PLANNERS);

static DEPTHWISE_CONV: InParts<JitSolver<Cuda>> = InParts(JitSolver::depthwise("cuda.conv_depthwise.v1"));

static GEMV: InParts<JitSolver<Cuda>> = InParts(
    JitSolver::gemv("cuda.conv_gemv.v1").with_preferences(&[FEW_PIXELS_OR_ODD_CHANNELS, FEW_PIXELS_OF_TF32]),
);

/// [`FEW_PIXELS`], or images of one pixel whose channels of 16 bits come to matrix units one by one, with at least four times as many
/// filters, as where a network excites what it has squeezed. Of seven such convolutions of 64 images on an H200, of 4 to 110 channels
/// in f16, these take 0.71 of the time of the tile that `mma`'s model chooses in the geometric mean, 0.89 at worst, and 0.87 (1.08) of that of its
/// fastest of four.
///
/// Or up to 8 pixels of 16 bits that see eight times as many elements as there are filters, as where it squeezes: of the field list's eleven
/// such convolutions of eight images on an H200, of 336 elements to 2,688, these take 0.89 of the time of `wgmma`, 1.02 at worst.
const FEW_PIXELS_OR_ODD_CHANNELS: Preference = Preference {
    property: "convolution",
    prefers: "at most 16 pixels of all images together in f32; in 16 bits at most 2, or at most 4 that see at least 256 elements each, \
              or at most 8 that see at least 320 and eight times as many as there are filters, or at most 64 images of one pixel by \
              filters of one group and one tap, whose channels are no multiple of 8, at most 49152 elements in all, and a quarter of the \
              filters at most",
    check: |problem, device| {
        let reason = (FEW_PIXELS.check)(problem, device)?;
        let (conv, weights) = problem.conv()?;
        let (w, y) = (Volume::of(weights), Volume::of(&problem.output));
        let [filters, channels, taps @ ..] = w.lens;
        let (is_half, depth) = (problem.output.data_type().size() == 2, channels * w.plane());
        if is_half && y.pixels() <= 8 && depth >= (8 * filters).max(320) {
            return None;
        }
        let come_one_by_one = is_half && !channels.is_multiple_of(8);
        let is_preferred = come_one_by_one
            && (conv.groups(), taps, y.plane()) == (1, [1; 3], 1)
            && y.lens[0] <= 64
            && filters >= 4 * channels
            && filters * channels <= 48 << 10;
        (!is_preferred).then_some(reason)
    },
};

/// Pixels so few that tensor cores in TF32 are no faster. Of 50 convolutions of 2 to 16 pixels on an H200, by which this was found, the 24
/// that it prefers whatever models say take 0.80 of the time of what else computes them in the mean, 1.06 at worst. Of eight pixels that see 128
/// to 255 elements and no fewer than there are filters the field list has seven, which take 0.82 of the time by wgmma on an H200, 0.91 at worst.
///
/// Models decide about channels that TMA cannot load, of which five convolutions of exactly 8 pixels were timed, on an H200: these take
/// 0.44 to 0.62 of the time by `conv_mma`. Fewer pixels were not timed: of them a matrix and vectors have less to read and `conv_mma` has
/// as many tiles, so that by the models what holds for 8 holds for them. With channels that TMA can load, 8 pixels take 0.81 to 1.70 of
/// the time by wgmma, and nothing was timed beside windows of the image or on another architecture: these are left to others.
const FEW_PIXELS_OF_TF32: Preference = Preference {
    property: "convolution",
    prefers: "in TF32 at most 2 pixels of all images together, or at most 8 that see at least 128 elements each and no fewer than there are \
              filters, or on Hopper at most 8 that neither wgmma takes nor windows of the image are copied for, and that take less time \
              than by `conv_mma`, as the models of both have it",
    check: |problem, device| {
        let (_, weights) = problem.conv()?;
        let (filters, depth) = (weights.lens()[0], weights.lens()[1..].iter().product::<usize>());
        let pixels = Volume::of(&problem.output).pixels();
        let sees_much = pixels <= 8 && depth >= filters.max(128);
        let is_tf32 = problem.output.data_type() == DataType::Float
            && problem.math == MathMode::AllowTf32
            && (TENSOR_CORES.check)(problem, device).is_none();
        if !is_tf32 || pixels <= 2 || sees_much {
            return None;
        }
        let found = format!("{pixels} pixels that see {depth} elements each, {filters} filters");
        let wgmma: [&dyn Solver; 4] =
            [&hopper::WGMMA, &hopper::WGMMA_REORDERED, &hopper::WGMMA_RUNS, &hopper::WGMMA_GATHER];
        let is_left = pixels > 8
            || device.arch != hopper::HOPPER
            || wgmma.iter().any(|solver| solver.applies(problem, device).is_ok())
            || is_preferred(&HALO_MMA, problem, device);
        if is_left {
            return Some(found);
        }
        let times = [&GEMV as &dyn Solver, &MMA].map(|solver| estimated_time(solver, problem, device));
        let [Some(vectors), Some(tiles)] = times else { return Some(found) };
        (vectors >= tiles).then(|| format!("{found}, {vectors:.1} and {tiles:.1} us"))
    },
};

pub(crate) static MMA: InParts<JitSolver<Cuda>> = InParts(
    JitSolver::new(
        "cuda.conv_mma.v1",
        Algorithm::ImplicitGemm,
        &[CONVOLUTION, DATA_TYPE, TENSOR_CORES, INFERENCE, OPERATOR_COUNT, GROUP_COUNT, SPAN],
        Kernels::Several {
            configurations: |problem, arch| gemm_configurations(problem, &mma(problem), &Cuda::target(arch)),
            kernel: |problem, arch, configuration| {
                implicit_gemm(Cuda::VENDOR, problem, &mma(problem), &Cuda::target(arch), configuration)
            },
        },
    )
    .with_preferences(&[GEMM])
    .with_accuracy(tensor_core_accuracy),
);

pub(crate) static HALO_MMA: InParts<JitSolver<Cuda>> = InParts(
    JitSolver::new(
        "cuda.conv_halo_mma.v1",
        Algorithm::Direct,
        &[CONVOLUTION, DATA_TYPE, TENSOR_CORES, INFERENCE, OPERATOR_COUNT, SPAN, mma::WINDOW],
        Kernels::Several {
            configurations: |problem, arch| {
                let found = halo_configurations(problem, &halo_mma(arch), Cuda::units(arch));
                windows::timed(problem, arch, columns::among(problem, arch, found))
            },
            kernel: |problem, arch, configuration| {
                columns::columns(problem, configuration).or_else(|| {
                    halo(Cuda::VENDOR, problem, &halo_mma(arch), Cuda::units(arch), configuration)
                })
            },
        },
    )
    .with_preferences(&[NARROW, WINDOWS])
    .with_accuracy(tensor_core_accuracy),
);

pub(crate) static HALO_FFMA: InParts<JitSolver<Cuda>> = InParts(
    JitSolver::new(
        "cuda.conv_halo_ffma.v1",
        Algorithm::Direct,
        &[CONVOLUTION, DATA_TYPE, INFERENCE, OPERATOR_COUNT, SPAN, WINDOW],
        Kernels::Several {
            configurations: |problem, arch| {
                let found = halo_configurations(problem, &halo_fma("FFMA"), Cuda::units(arch));
                windows::timed(problem, arch, found)
            },
            kernel: |problem, arch, configuration| {
                halo(Cuda::VENDOR, problem, &halo_fma("FFMA"), Cuda::units(arch), configuration)
            },
        },
    )
    .with_preferences(&[LITTLE_WORK, NARROW_POINTS, WINDOWS]),
);

/// Too little for the tiles of a matrix product in f32: few filters, or few products of points. The latter was found on an H200, and has been
/// timed on no other device: of 19 convolutions of one image `conv_ffma` takes 1.11 to 1.46 of the time in the six that it prefers, 0.69 to 1.57 in
/// others.
const LITTLE_WORK: Preference = Preference {
    property: "convolution",
    prefers: "at most 32 filters a group, or in f32 with columns innermost 1x1 of one group, of fewer than 64 channels, with at most 12 million products",
    check: |problem, device| {
        let found = (FEW_FILTERS.check)(problem, device)?;
        let (conv, weights) = problem.conv()?;
        let products = Volume::of(&problem.output).pixels() * weights.lens().iter().product::<usize>();
        let points = conv.groups() == 1 && Volume::of(weights).plane() == 1;
        let is_plane = Volume::of(&problem.input).strides[4] == 1;
        let is_shallow = problem.output.data_type() == DataType::Float && weights.lens()[1] < 64;
        let few = points && is_plane && is_shallow && products <= 12_000_000;
        (!few).then(|| format!("{found}, {products} products"))
    },
};

/// Work enough for windows to be worth making: 1x1 from 4 to 4 channels of an image of 64x64 takes `direct` 0.6 to 0.7 of the time on an H100,
/// 64 such images 2.3 times as long.
const WINDOWS: Preference = Preference {
    property: "convolution",
    prefers: "more than 32768 results, or a depth (channels of a group times taps) of more than 8",
    check: |problem, _| {
        let (_, weights) = problem.conv()?;
        let results: usize = problem.output.lens().iter().product();
        let depth: usize = weights.lens()[1..].iter().product();
        (results <= 1 << 15 && depth <= 8).then(|| format!("{results} results, depth {depth}"))
    },
};

/// A window is of no use to a single tap: with 24 and 32 filters of 96 and 192 channels `conv_ffma` takes 0.6 to 0.8 of the time on an H100.
const NARROW_POINTS: Preference = Preference {
    property: "convolution",
    prefers: "of 1x1 fewer than 24 filters or 96 channels a group",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let (filters, channels, taps) =
            (weights.lens()[0] / conv.groups(), weights.lens()[1], &weights.lens()[2..]);
        let found = filters >= 24 && channels >= 96 && taps.iter().all(|&taps| taps == 1);
        found.then(|| format!("{filters} filters and {channels} channels a group"))
    },
};

pub(crate) static FFMA: InParts<JitSolver<Cuda>> = InParts(
    JitSolver::new(
        "cuda.conv_ffma.v1",
        Algorithm::ImplicitGemm,
        &[CONVOLUTION, DATA_TYPE, INFERENCE, OPERATOR_COUNT, GROUP_COUNT, SPAN],
        Kernels::Several {
            configurations: |problem, arch| gemm_configurations(problem, &ffma(), &Cuda::target(arch)),
            kernel: |problem, arch, configuration| {
                implicit_gemm(Cuda::VENDOR, problem, &ffma(), &Cuda::target(arch), configuration)
            },
        },
    )
    .with_preferences(&[GEMM]),
);

static ELEMENT_WISE: JitSolver<Cuda> = JitSolver::element_wise("cuda.element_wise.v1");

static BATCH_NORM: JitSolver<Cuda> = JitSolver::batch_norm("cuda.batch_norm_training.v1");

static DIRECT: JitSolver<Cuda> = JitSolver::direct("cuda.direct.v1");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CudaBackend;
    use fuseplan_api::{
        ActivationMode, Backend, ConvolutionDescriptor, DataType, MathMode, Op, Problem, TensorDescriptor,
        TensorLayout,
    };

    /// The solvers that take a 3x3 convolution of as many channels, with ReLU behind it.
    fn takers(layout: TensorLayout, lens: [usize; 4], groups: usize, pad: usize) -> Vec<&'static str> {
        let of = |lens: [usize; 4]| TensorDescriptor::with_layout(DataType::Half, layout, &lens).unwrap();
        let conv = ConvolutionDescriptor::d2().with_pads([pad, 1]).unwrap().with_dilations([pad, 1]).unwrap();
        let conv = conv.with_groups(groups).unwrap();
        let (input, weights) = (of(lens), of([lens[1], lens[1] / groups, 3, 3]));
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops =
            vec![Op::ConvForward { conv, weights }, Op::ActivationForward { mode: ActivationMode::Relu }];
        let problem = Problem { input, output, ops, math: MathMode::Precise };
        let target = CudaBackend.target("sm_90a").unwrap();
        let takes = |solver: &&&dyn Solver| solver.applies(&problem, &target).is_ok();
        SOLVERS.iter().filter(takes).map(|solver| solver.id()).collect()
    }

    /// The solver that is chosen for a convolution in f16 of so many filters.
    fn chosen(
        layout: TensorLayout,
        lens: &[usize],
        filters: usize,
        groups: usize,
        taps: &[usize],
        pads: &[usize],
    ) -> &'static str {
        let target = CudaBackend.target("sm_90a").unwrap();
        let of = |lens: &[usize]| TensorDescriptor::with_layout(DataType::Half, layout, lens).unwrap();
        let (input, weights) = (of(lens), of(&[&[filters, lens[1] / groups], taps].concat()));
        let conv = ConvolutionDescriptor::of_dims(taps.len()).unwrap().with_pads(pads).unwrap();
        let conv = conv.with_groups(groups).unwrap();
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops = vec![Op::ConvForward { conv, weights }];
        let problem = Problem { input, output, ops, math: MathMode::Precise };
        let id = |solver: &&dyn Solver| solver.id();
        SOLVERS.iter().find(|solver| is_preferred(**solver, &problem, &target)).map(id).unwrap()
    }

    /// Taps of several planes come in runs, are reordered or transposed, as the models have it, and lines of which few results are written
    /// at once are left to others.
    #[test]
    fn models_choose_for_taps_of_several_planes_and_short_writes() {
        let volume = |lens: [usize; 5], filters, taps: [usize; 3]| {
            chosen(TensorLayout::Ncdhw, &lens, filters, 1, &taps, &taps.map(|taps| taps / 2))
        };
        let [runs, reordered, transposed] =
            [hopper::WGMMA_RUNS.id(), hopper::WGMMA_REORDERED.id(), hopper::WGMMA_TRANSPOSED.id()];
        assert_eq!(volume([2, 128, 8, 32, 32], 256, [3, 1, 1]), runs);
        assert_eq!(volume([1, 384, 3, 60, 104], 768, [3, 1, 1]), reordered);
        assert_eq!(volume([1, 128, 4, 32, 32], 128, [3, 3, 3]), runs);
        assert_eq!(volume([8, 256, 4, 14, 14], 256, [3, 3, 3]), runs);
        assert_eq!(volume([8, 64, 16, 56, 56], 64, [3, 3, 3]), transposed);
        assert_eq!(volume([2, 48, 8, 64, 64], 64, [3, 3, 3]), transposed);
        let image = |lens: [usize; 4], filters, pad| {
            chosen(TensorLayout::Nchw, &lens, filters, 1, &[2; 2], &[pad; 2])
        };
        assert_eq!(image([1, 256, 64, 64], 256, 0), runs);
        assert_eq!(image([4, 64, 56, 56], 128, 1), hopper::WGMMA_GATHER.id());
    }

    /// Few filters of groups in NCHW are gathered or multiplied by windows, as the models have it.
    #[test]
    fn models_choose_for_few_filters_of_groups() {
        let chosen =
            |lens: [usize; 4], groups| chosen(TensorLayout::Nchw, &lens, lens[1], groups, &[3; 2], &[1; 2]);
        assert_eq!(chosen([1, 512, 14, 14], 32), hopper::WGMMA_GATHER.id());
        assert_eq!(chosen([1, 440, 7, 7], 55), hopper::WGMMA_GATHER.id());
        assert_eq!(chosen([8, 512, 14, 14], 32), HALO_MMA.id());
        assert_eq!(chosen([1, 208, 28, 28], 26), HALO_MMA.id());
    }

    /// Points of little depth come in runs where TMA cannot address planes, but for few pixels.
    #[test]
    fn points_of_little_depth_come_in_runs() {
        let chosen =
            |lens: [usize; 4], filters| chosen(TensorLayout::Nchw, &lens, filters, 1, &[1; 2], &[0; 2]);
        for images in [1, 8, 64] {
            for (channels, size, filters) in [(24, 190, 24), (24, 190, 144), (32, 95, 192)] {
                let id = chosen([images, channels, size, size], filters);
                assert_eq!(id, hopper::WGMMA_RUNS.id(), "{images} images of {channels} channels");
            }
        }
        assert_ne!(chosen([1, 24, 7, 7], 24), hopper::WGMMA_RUNS.id());
    }

    /// Lines, which gathering would take less time than, do not keep 24 filters from transposed pixels, as gathering wants 32 of them.
    #[test]
    fn few_filters_are_multiplied_by_tensor_cores() {
        let chosen = |lens: [usize; 4], taps: [usize; 2]| {
            chosen(TensorLayout::Nchw, &lens, 24, 1, &taps, &taps.map(|taps| taps / 2))
        };
        assert_eq!(chosen([1, 512, 32, 32], [1, 3]), hopper::WGMMA_TRANSPOSED.id());
        for (images, channels, size) in [(1, 512, 32), (1, 64, 64), (8, 128, 56), (64, 256, 16), (2, 32, 224)]
        {
            for taps in [[3, 3], [1, 3], [3, 1], [5, 5]] {
                let id = chosen([images, channels, size, size], taps);
                let cores = id.contains("wgmma") || [MMA.id(), HALO_MMA.id()].contains(&id);
                assert!(cores, "{images} {channels} {size} {taps:?}: {id}");
            }
        }
    }

    #[test]
    fn only_the_direct_kernel_takes_offsets_beyond_32_bits() {
        let takers = |lens, groups, pad| takers(TensorLayout::Nchw, lens, groups, pad);
        let direct = [DIRECT.id()];
        let near = [DEPTHWISE_CONV.id(), HALO_MMA.id(), MMA.id(), HALO_FFMA.id(), FFMA.id(), DIRECT.id()];
        assert_eq!(takers([1, 32, 100, 10000], 32, 1), near);
        assert_eq!(takers([1, 2, 65536, 65536], 2, 1), direct);
        assert_eq!(takers([1, 32, 100, 10000], 32, 300_000), direct);
        assert!(takers([1, 32, 100, 10000], 1, 1).len() > 2);
        assert_eq!(takers([1, 32, 100, 10000], 1, 300_000), direct);
    }

    /// Few pixels in TF32 whose depth is little are a matrix and vectors where those were timed beside what would be taken instead.
    #[test]
    fn few_shallow_pixels_are_preferred_where_they_were_timed() {
        let prefers = |arch, [pixels, channels, filters]: [usize; 3], groups| {
            let of = |lens: [usize; 4]| TensorDescriptor::nchw(DataType::Float, lens).unwrap();
            let (input, weights) = (of([pixels, channels * groups, 1, 1]), of([filters, channels, 1, 1]));
            let conv = ConvolutionDescriptor::d2().with_groups(groups).unwrap();
            let output = conv.forward_output(&input, &weights).unwrap();
            let ops = vec![Op::ConvForward { conv, weights }];
            let problem = Problem { input, output, ops, math: MathMode::AllowTf32 };
            is_preferred(&GEMV, &problem, &CudaBackend.target(arch).unwrap())
        };
        for pixels in 3..=8 {
            assert!(prefers("sm_90a", [pixels, 10, 240], 1), "{pixels}");
        }
        assert!(!prefers("sm_90a", [9, 10, 240], 1));
        // On another architecture, by wgmma, and by windows.
        assert!(!prefers("sm_80", [8, 10, 240], 1));
        assert!(!prefers("sm_90a", [8, 12, 240], 1));
        assert!(!prefers("sm_90a", [8, 10, 14], 1));
        assert!(!prefers("sm_90a", [8, 10, 40], 2));
    }

    /// Also those on Hopper's tensor cores, which carry one of the others.
    #[test]
    fn matrix_kernels_take_as_many_groups_as_a_launch() {
        let best: [(_, &[_]); 2] = [
            (TensorLayout::Nhwc, &[hopper::WGMMA.id()]),
            (
                TensorLayout::Nchw,
                &[hopper::WGMMA_REORDERED.id(), hopper::WGMMA_RUNS.id(), hopper::WGMMA_GATHER.id()],
            ),
        ];
        for (layout, best) in best {
            let takers = |groups: usize| takers(layout, [1, groups * 32, 2, 2], groups, 1);
            let halo = [HALO_MMA.id(), HALO_FFMA.id()];
            let others = [MMA.id(), halo[1], FFMA.id(), DIRECT.id()];
            assert_eq!(takers(65_535), [&halo[..1], best, &others].concat());
            assert_eq!(takers(65_536), [halo[0], halo[1], DIRECT.id()]);
        }
    }
}

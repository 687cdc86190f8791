//! The solvers.

use fuseplan_api::{Algorithm, Solver};
use fuseplan_gpu::{
    CONVOLUTION, DATA_TYPE, FEW_PIXELS, GEMM, GROUP_COUNT, INFERENCE, InParts, JitSolver, Kernels, MainLoop,
    NARROW, OPERATOR_COUNT, Planner, Runtime, SIXTEEN_BITS, SPAN, Tile, WINDOW, ffma, ffma_constants,
    gemm_configurations, halo, halo_configurations, halo_fma, implicit_gemm, upcast,
};

use crate::context::Rocm;
use crate::matrix::{COSTS, HAS_MFMA, HAS_WMMA, mfma, wmma};

/// Solvers, best first; the direct kernel takes every plan for inference.
pub(crate) const PLANNERS: [&dyn Planner; 9] =
    [&DEPTHWISE_CONV, &GEMV, &HALO_FMA, &MFMA, &WMMA, &FFMA, &ELEMENT_WISE, &BATCH_NORM, &DIRECT];

/// [`PLANNERS`] as solvers, for callers that have no use for kernels.
pub(crate) static SOLVERS: [&dyn Solver; 9] = upcast(PLANNERS);

static DEPTHWISE_CONV: InParts<JitSolver<Rocm>> = InParts(JitSolver::depthwise("rocm.conv_depthwise.v1"));

static GEMV: InParts<JitSolver<Rocm>> =
    InParts(JitSolver::gemv("rocm.conv_gemv.v1").with_preferences(&[FEW_PIXELS]));

static MFMA: InParts<JitSolver<Rocm>> = InParts(
    JitSolver::new(
        "rocm.conv_mfma.v1",
        Algorithm::ImplicitGemm,
        &[HAS_MFMA, CONVOLUTION, DATA_TYPE, INFERENCE, OPERATOR_COUNT, GROUP_COUNT, SPAN],
        Kernels::Several {
            configurations: |problem, arch| gemm_configurations(problem, &mfma(), &Rocm::target(arch)),
            kernel: |problem, arch, configuration| {
                implicit_gemm(Rocm::VENDOR, problem, &mfma(), &Rocm::target(arch), configuration)
            },
        },
    )
    .with_preferences(&[GEMM]),
);

static WMMA: InParts<JitSolver<Rocm>> = InParts(
    JitSolver::new(
        "rocm.conv_wmma.v1",
        Algorithm::ImplicitGemm,
        &[HAS_WMMA, CONVOLUTION, SIXTEEN_BITS, INFERENCE, OPERATOR_COUNT, GROUP_COUNT, SPAN],
        Kernels::Several {
            configurations: |problem, arch| gemm_configurations(problem, &wmma(), &Rocm::target(arch)),
            kernel: |problem, arch, configuration| {
                implicit_gemm(Rocm::VENDOR, problem, &wmma(), &Rocm::target(arch), configuration)
            },
        },
    )
    .with_preferences(&[GEMM]),
);

static HALO_FMA: InParts<JitSolver<Rocm>> = InParts(
    JitSolver::new(
        "rocm.conv_halo_fma.v1",
        Algorithm::Direct,
        &[CONVOLUTION, DATA_TYPE, INFERENCE, OPERATOR_COUNT, SPAN, WINDOW],
        Kernels::Several {
            configurations: |problem, arch| halo_configurations(problem, &halo_fma("FMA"), Rocm::units(arch)),
            kernel: |problem, arch, configuration| {
                halo(Rocm::VENDOR, problem, &halo_fma("FMA"), Rocm::units(arch), configuration)
            },
        },
    )
    .with_preferences(&[NARROW]),
);

static FFMA: InParts<JitSolver<Rocm>> = InParts(
    JitSolver::new(
        "rocm.conv_ffma.v1",
        Algorithm::ImplicitGemm,
        &[CONVOLUTION, DATA_TYPE, INFERENCE, OPERATOR_COUNT, GROUP_COUNT, SPAN],
        Kernels::Several {
            configurations: |problem, arch| gemm_configurations(problem, &fma(), &Rocm::target(arch)),
            kernel: |problem, arch, configuration| {
                implicit_gemm(Rocm::VENDOR, problem, &fma(), &Rocm::target(arch), configuration)
            },
        },
    )
    .with_preferences(&[GEMM]),
);

static ELEMENT_WISE: JitSolver<Rocm> = JitSolver::element_wise("rocm.element_wise.v1");

static BATCH_NORM: JitSolver<Rocm> = JitSolver::batch_norm("rocm.batch_norm_training.v1");

static DIRECT: JitSolver<Rocm> = JitSolver::direct("rocm.direct.v1");

/// The shared main loop in f32; its accumulators of a tile fit 64 KiB of shared memory.
fn fma() -> MainLoop {
    const fn tile(pixels: usize, filters: usize, rate: usize) -> Tile {
        Tile { pixels, filters, depth: 16, threads: pixels * filters / 64, slices: 1, rate }
    }
    MainLoop {
        name: "FMA",
        tiles: |_| const { &[tile(128, 64, 95), tile(64, 64, 85)] },
        // Of a whole step the compiler reads all operands at once, and has no registers left.
        constants: |_, _, text| ffma_constants(3, 4, text),
        part: |tile| tile.pixels,
        costs: COSTS,
        ..ffma()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RocmBackend;
    use fuseplan_api::{
        ActivationMode, Backend, Candidate, ConvolutionDescriptor, DataType, MathMode, Op, Problem,
        TensorDescriptor,
    };

    /// The solvers that take a convolution of as many channels, with ReLU behind it.
    fn takers(lens: [usize; 4], groups: usize, pad: usize) -> Vec<&'static str> {
        let of = |lens| TensorDescriptor::nchw(DataType::Half, lens).unwrap();
        let conv = ConvolutionDescriptor::d2().with_pads([pad, 1]).unwrap().with_dilations([pad, 1]).unwrap();
        let conv = conv.with_groups(groups).unwrap();
        let (input, weights) = (of(lens), of([lens[1], lens[1] / groups, 3, 3]));
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops =
            vec![Op::ConvForward { conv, weights }, Op::ActivationForward { mode: ActivationMode::Relu }];
        let problem = Problem { input, output, ops, math: MathMode::Precise };
        let target = RocmBackend.target("gfx942").unwrap();
        let takes = |solver: &&&dyn Solver| solver.applies(&problem, &target).is_ok();
        SOLVERS.iter().filter(takes).map(|solver| solver.id()).collect()
    }

    /// Whether blocks share the depth of a 1x1 convolution with 512 filters of so many channels and 7x7 pixels of so many images, for each
    /// solver that multiplies matrices.
    fn shares(arch: &str, images: usize, channels: usize) -> Vec<bool> {
        let of = |lens| TensorDescriptor::nhwc(DataType::Half, lens).unwrap();
        let (input, weights) = (of([images, channels, 7, 7]), of([512, channels, 1, 1]));
        let conv = ConvolutionDescriptor::d2();
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops = vec![Op::ConvForward { conv, weights }];
        let problem = Problem { input, output, ops, math: MathMode::Precise };
        let target = RocmBackend.target(arch).unwrap();
        let solvers: [&dyn Solver; 3] = [&MFMA, &WMMA, &FFMA];
        let taken = solvers.into_iter().filter(|solver| solver.applies(&problem, &target).is_ok());
        let in_memory = |of: &Candidate| of.configuration.as_str().ends_with(" in memory");
        let first_shares = |solver: &dyn Solver| {
            let all = solver.configurations(&problem, &target);
            assert!(!all.iter().all(in_memory), "nothing to compare with");
            in_memory(&all[0])
        };
        taken.map(first_shares).collect()
    }

    #[test]
    fn blocks_share_the_depth_of_few_pixels() {
        for (arch, solvers) in [("gfx942", 2), ("gfx1100", 2), ("gfx1030", 1)] {
            assert_eq!(shares(arch, 1, 2048), vec![true; solvers], "{arch}");
            // Sums that end before another launch would begin, and blocks for all compute units.
            assert_eq!(shares(arch, 1, 256), vec![false; solvers], "{arch}");
            assert_eq!(shares(arch, 1024, 2048), vec![false; solvers], "{arch}");
        }
    }

    #[test]
    fn only_the_direct_kernel_takes_offsets_beyond_32_bits() {
        let direct = [DIRECT.id()];
        let near = [DEPTHWISE_CONV.id(), HALO_FMA.id(), MFMA.id(), FFMA.id(), DIRECT.id()];
        assert_eq!(takers([1, 32, 100, 10000], 32, 1), near);
        assert_eq!(takers([1, 2, 65536, 65536], 2, 1), direct);
        assert_eq!(takers([1, 32, 100, 10000], 32, 300_000), direct);
        assert!(takers([1, 32, 100, 10000], 1, 1).len() > 2);
        assert_eq!(takers([1, 32, 100, 10000], 1, 300_000), direct);
    }
}

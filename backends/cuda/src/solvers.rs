//! The solvers.

use fuseplan_api::{Algorithm, Solver};
use fuseplan_gpu::{
    DATA_TYPE, FEW_FILTERS, GEMM, GROUP_COUNT, INFERENCE, JitSolver, OPERATOR_COUNT, Planner, Runtime, SPAN,
    Target, WINDOW, ffma, halo, halo_fma, implicit_gemm, upcast,
};

use crate::arch;
use crate::function::Cuda;
use crate::hopper;
use crate::mma::{self, NARROW, TENSOR_CORE_TYPES, TENSOR_CORES, halo_mma, mma};

/// Solvers, best first; the direct kernel takes every plan for inference.
pub(crate) const PLANNERS: [&dyn Planner; 10] = [
    &DEPTHWISE_CONV,
    &HALO_MMA,
    &hopper::COPIED,
    &hopper::GATHERED,
    &MMA,
    &HALO_FFMA,
    &FFMA,
    &ELEMENT_WISE,
    &BATCH_NORM,
    &DIRECT,
];

/// The same for whoever has no use for kernels.
pub(crate) static SOLVERS: [&dyn Solver; 10] = upcast(PLANNERS);

static DEPTHWISE_CONV: JitSolver<Cuda> = JitSolver::depthwise("cuda.conv_depthwise.v1");

pub(crate) static MMA: JitSolver<Cuda> = JitSolver::new(
    "cuda.conv_mma.v1",
    Algorithm::ImplicitGemm,
    &[TENSOR_CORE_TYPES, TENSOR_CORES, INFERENCE, OPERATOR_COUNT, GEMM, GROUP_COUNT, SPAN],
    |problem, arch| {
        let element = problem.output.data_type().size();
        implicit_gemm(Cuda::VENDOR, problem, &mma(element), &target(arch))
    },
);

static HALO_MMA: JitSolver<Cuda> = JitSolver::new(
    "cuda.conv_halo_mma.v1",
    Algorithm::Direct,
    &[TENSOR_CORE_TYPES, TENSOR_CORES, INFERENCE, OPERATOR_COUNT, NARROW, SPAN, mma::WINDOW],
    |problem, arch| halo(Cuda::VENDOR, problem, &halo_mma(arch), Cuda::units(arch)),
);

static HALO_FFMA: JitSolver<Cuda> = JitSolver::new(
    "cuda.conv_halo_ffma.v1",
    Algorithm::Direct,
    &[DATA_TYPE, INFERENCE, OPERATOR_COUNT, FEW_FILTERS, SPAN, WINDOW],
    |problem, arch| halo(Cuda::VENDOR, problem, &halo_fma("FFMA"), Cuda::units(arch)),
);

/// The part of a text that makes blocks which share a tile a cluster.
pub(crate) const CLUSTER: &str = include_str!("../kernels/cluster.cuh");

/// What products are planned for. Only the data centres' architectures are known to have clusters of any size.
fn target(arch: &str) -> Target {
    let clusters = arch::named(arch).is_some_and(|arch| (9..=10).contains(&arch.capability.0));
    let cluster = clusters.then_some(CLUSTER);
    Target { units: Cuda::units(arch), cluster }
}

static FFMA: JitSolver<Cuda> = JitSolver::new(
    "cuda.conv_ffma.v1",
    Algorithm::ImplicitGemm,
    &[DATA_TYPE, INFERENCE, OPERATOR_COUNT, GEMM, GROUP_COUNT, SPAN],
    |problem, arch| implicit_gemm(Cuda::VENDOR, problem, &ffma(), &target(arch)),
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
        let conv = ConvolutionDescriptor::new_2d([pad, 1], [1, 1], [pad, 1]).unwrap();
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

    #[test]
    fn only_the_direct_kernel_takes_offsets_beyond_32_bits() {
        let takers = |lens, groups, pad| takers(TensorLayout::Nchw, lens, groups, pad);
        let direct = [DIRECT.id()];
        let near = [DEPTHWISE_CONV.id(), HALO_MMA.id(), HALO_FFMA.id(), DIRECT.id()];
        assert_eq!(takers([1, 32, 100, 10000], 32, 1), near);
        assert_eq!(takers([1, 2, 65536, 65536], 2, 1), direct);
        assert_eq!(takers([1, 32, 100, 10000], 32, 300_000), direct);
        assert!(takers([1, 32, 100, 10000], 1, 1).len() > 2);
        assert_eq!(takers([1, 32, 100, 10000], 1, 300_000), direct);
    }

    /// Also those on Hopper's tensor cores, which carry one of the others.
    #[test]
    fn matrix_kernels_take_as_many_groups_as_a_launch() {
        for (layout, best) in [(TensorLayout::Nhwc, &hopper::COPIED), (TensorLayout::Nchw, &hopper::GATHERED)]
        {
            let takers = |groups: usize| takers(layout, [1, groups * 32, 2, 2], groups, 1);
            let halo_ffma = HALO_FFMA.id();
            assert_eq!(takers(65_535), [best.id(), MMA.id(), halo_ffma, FFMA.id(), DIRECT.id()]);
            assert_eq!(takers(65_536), [halo_ffma, DIRECT.id()]);
        }
    }
}

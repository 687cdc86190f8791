//! Which other kernel computes what one for Hopper does not take.

use fuseplan_api::{Configuration, DeviceInfo, Problem, Solver};
use fuseplan_gpu::Runtime;

use super::kernel::WgmmaKernel;
use super::layout::is_tf32x3;
use super::tiling::{Load, Tiling};
use super::{WGMMA_GATHER, WGMMA_LINES, WGMMA_REORDERED, WGMMA_RUNS, candidates, cost, preferences};
use crate::context::Cuda;
use crate::solvers::{FFMA, MMA};

/// What computes what a kernel does not take: any of these problems, as exactly.
pub(super) struct Other {
    pub(super) solver: &'static dyn Solver,
    pub(super) configuration: Configuration,
    /// Whether it is sooner done than preparing filters that are not constant, and so takes those as well.
    pub(super) reads_filters: bool,
}

impl Other {
    fn preferred(solver: &'static dyn Solver, problem: &Problem, target: &DeviceInfo) -> Self {
        Other { solver, configuration: solver.preferred(problem, target), reads_filters: false }
    }

    /// Pointers are what TMA takes, or else left to solvers without it; filters that are streamed are prepared, or left to the
    /// kernel of the least time that reads them as they are, also by TMA, or reorders them each time.
    pub(super) fn of(problem: &Problem, target: &DeviceInfo, planned: &WgmmaKernel, time: f64) -> Self {
        let solver: &'static dyn Solver = if is_tf32x3(problem) { &FFMA } else { &MMA };
        let plain = || Other::preferred(solver, problem, target);
        let Some(bytes) = planned.prepared else { return plain() };
        // The models err by a tenth in 16 bits. Those of f32 err less: half a microsecond leaves to gathering what runs were slower at.
        let doubted = if problem.output.data_type().size() == 2 { 0.1 * time } else { 0.5 };
        let preparing = cost::preparing(&planned.tiling, bytes);
        let prepared = time + doubted + preparing;
        let takes_lines = WGMMA_LINES.applies(problem, target).is_ok();
        let lines = takes_lines.then(|| candidates::tilings(Load::Lines, problem, Cuda::units(&target.arch)));
        let lines = lines.unwrap_or_default().into_iter().filter(|(tiling, _)| !tiling.is_streamed());
        let lines = lines.min_by(|(_, a), (_, b)| a.total_cmp(b));
        let least = |solver: &dyn Solver, load| {
            let takes =
                solver.applies(problem, target).is_ok() && solver.accuracy(problem) <= problem.math.allows();
            if takes { preferences::least(load, problem, target) } else { f64::INFINITY }
        };
        let gathered = least(&WGMMA_GATHER, Load::Gather);
        let reordered = least(&WGMMA_REORDERED, Load::Reordered);
        let are_runs = planned.tiling.load == Load::Runs;
        let least_of_rows = || candidates::least_with_filter_rows(problem, Cuda::units(&target.arch));
        let rows = are_runs.then(least_of_rows).flatten();
        let by_rows = rows.as_ref().map_or(f64::INFINITY, |(_, time)| *time);
        let reads_filters =
            |solver| Other { reads_filters: true, ..Other::preferred(solver, problem, target) };
        let of_tile = |solver, tiling: &Tiling| Other {
            solver,
            configuration: Configuration::new(tiling.to_string()),
            reads_filters: true,
        };
        let runs = by_rows.min(time + preparing);
        match (lines, rows) {
            (Some((tiling, time)), _) if time < gathered.min(reordered).min(prepared) => {
                of_tile(&WGMMA_LINES, &tiling)
            }
            _ if reordered < preferences::WORTH_A_COPY * gathered.min(runs) => {
                reads_filters(&WGMMA_REORDERED)
            }
            (_, Some((tiling, time))) if time + doubted < gathered.min(prepared) => {
                of_tile(&WGMMA_RUNS, &tiling)
            }
            _ if gathered < prepared => reads_filters(&WGMMA_GATHER),
            _ => plain(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::WGMMA_RUNS;
    use super::*;
    use crate::CudaBackend;
    use fuseplan_api::{Backend, ConvolutionDescriptor, DataType, MathMode, Op, TensorDescriptor};

    /// Of 3x3 in strides of two to 14x14 pixels, whose image is sooner reordered than filters are prepared, in TF32 where that is allowed.
    #[test]
    fn it_is_as_exact_as_the_problem_asks_for() {
        let target = CudaBackend.target("sm_90a").unwrap();
        let other = |math| {
            let of = |lens: [usize; 4]| TensorDescriptor::nchw(DataType::Float, lens).unwrap();
            let (input, weights) = (of([8, 256, 28, 28]), of([256, 256, 3, 3]));
            let conv = ConvolutionDescriptor::d2().with_pads([1, 1]).unwrap().with_strides([2, 2]).unwrap();
            let output = conv.forward_output(&input, &weights).unwrap();
            let problem = Problem { input, output, ops: vec![Op::ConvForward { conv, weights }], math };
            let (tiling, time) = candidates::tilings(Load::Runs, &problem, 132).remove(0);
            assert!(WGMMA_RUNS.applies(&problem, &target).is_ok());
            let planned = super::super::kernel::wgmma_kernel(&problem, "sm_90a", &tiling);
            let other = Other::of(&problem, &target, &planned, time);
            assert!(other.solver.accuracy(&problem) <= math.allows());
            other.solver.id()
        };
        assert_eq!(other(MathMode::AllowTf32), WGMMA_REORDERED.id());
        assert_ne!(other(MathMode::Precise), WGMMA_REORDERED.id());
    }

    /// Of 1x1 in TF32 TMA brings filters that may change as they are; those of 3xTF32 have two parts, and are prepared. Those of 16 bits are
    /// brought by each block's threads, where these are few.
    #[test]
    fn rows_of_filters_are_not_prepared() {
        let target = CudaBackend.target("sm_90a").unwrap();
        let other = |data_type, lens: [usize; 4], filters: usize, math| {
            let of = |lens: [usize; 4]| TensorDescriptor::nchw(data_type, lens).unwrap();
            let (input, weights) = (of(lens), of([filters, lens[1], 1, 1]));
            let conv = ConvolutionDescriptor::d2();
            let output = conv.forward_output(&input, &weights).unwrap();
            let problem = Problem { input, output, ops: vec![Op::ConvForward { conv, weights }], math };
            let (tiling, time) = candidates::tilings(Load::Runs, &problem, 132).remove(0);
            let planned = super::super::kernel::wgmma_kernel(&problem, "sm_90a", &tiling);
            assert!(planned.prepared.is_some());
            let other = Other::of(&problem, &target, &planned, time);
            (other.solver.id(), other.configuration.to_string())
        };
        let (solver, configuration) = other(DataType::Float, [64, 256, 14, 14], 1024, MathMode::AllowTf32);
        assert!(solver == WGMMA_RUNS.id() && configuration.contains("rows of filters"), "{configuration}");
        let (_, configuration) = other(DataType::Float, [8, 128, 18, 16], 256, MathMode::AllowTf32);
        assert!(configuration.contains("rows of filters"), "{configuration}");
        let (_, configuration) = other(DataType::Float, [64, 256, 14, 14], 1024, MathMode::Precise);
        assert!(!configuration.contains("rows of filters"), "{configuration}");
        let half = |lens, filters| other(DataType::Half, lens, filters, MathMode::Precise);
        for (lens, filters) in [([64, 256, 55, 55], 64), ([64, 64, 55, 55], 256), ([9, 64, 17, 15], 72)] {
            let (solver, configuration) = half(lens, filters);
            assert!(
                solver == WGMMA_RUNS.id() && configuration.contains("rows of filters"),
                "{configuration}"
            );
        }
        let (_, configuration) = half([8, 1024, 19, 19], 256);
        assert!(!configuration.contains("rows of filters"), "{configuration}");
    }
}

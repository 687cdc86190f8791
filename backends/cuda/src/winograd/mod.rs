//! Winograd's convolution by multiply-adds in f32: F(4x4, 3x3) with everything behind it in one kernel.
//!
//! Filters are transformed by a launch of their own: once with constant operands, in memory that is kept beside these, and else before
//! each launch, unless that takes longer than reading them as they are. For those, and for addresses that the kernel's vectors do not lie
//! at, the binary carries the kernel of [`FFMA`] too.

mod executable;
mod kernel;
mod time;

use std::fmt::Write;
use std::sync::Arc;

use fuseplan_api::{
    Accuracy, Algorithm, Binary, BuildError, Candidate, Configuration, Constraint, DataType, Device,
    DeviceInfo, Estimate, Executable, MathMode, Preference, Problem, Solver,
};
use fuseplan_gpu::{
    CONVOLUTION, Geometry, INFERENCE, InParts, Kernel, OPERATOR_COUNT, Planner, SPAN, binary, load,
    no_configuration, ranked,
};

use crate::both::{compile_both, split};
use crate::context::Cuda;
use crate::hopper::preferences::{estimated_time, least_of_tf32x3};
use crate::mma::TENSOR_CORES;
use crate::prepared::Preparation;
use crate::solvers::FFMA;

use executable::WinogradExecutable;
use kernel::{Winograd, stages};

/// The solver.
#[derive(Debug)]
pub(crate) struct WinogradSolver;

pub(crate) static WINOGRAD: InParts<WinogradSolver> = InParts(WinogradSolver);

const F32: Constraint = Constraint {
    property: "data type",
    accepts: "f32",
    check: |problem, _| {
        let data_type = problem.output.data_type();
        (data_type != DataType::Float).then(|| data_type.to_string())
    },
};

const THREE_BY_THREE: Constraint = Constraint {
    property: "convolution",
    accepts: "2-D, 3 x 3 taps, one group, no strides and dilations",
    check: |problem, _| {
        let Some((conv, weights)) = problem.conv() else { return Some("none".into()) };
        let taps = &weights.lens()[2..];
        let is_plain = conv.strides().iter().chain(conv.dilations()).all(|&step| step == 1);
        let fits = taps == [3, 3] && conv.groups() == 1 && is_plain;
        (!fits).then(|| format!("{conv}, filters {weights}"))
    },
};

/// What part of the time of others is asked for, as its error is larger. Of twenty convolutions on an H200, all of which were looked at for
/// this, the four in NCHW for which it is preferred to 3xTF32 took 0.89 to 0.97 of that time by a text before this one, which takes 1.00 to
/// 1.05 of it. With 0.9 there would be two more, at 0.97 and 1.00, and one in NHWC at 0.95, with 0.97 one at 1.18.
const MARGIN: f64 = 0.87;

const PREFERENCES: &[Preference] = &[Preference {
    property: "convolution",
    prefers: "more than 32 filters, where TF32 is not allowed; less than 0.87 of the time by conv_ffma, and on sm_90a of that by \
              wgmma with three products of TF32 for one, as the models of all have it",
    check: |problem, device| {
        let filters = problem.conv()?.1.lens()[0];
        if filters <= 32 || problem.math == MathMode::AllowTf32 {
            return Some(format!("{filters} filters, math {:?}", problem.math));
        }
        let ours = least(problem, &device.arch);
        let ffma = estimated_time(&FFMA, problem, device).unwrap_or(f64::INFINITY);
        let other = ffma.min(least_of_tf32x3(problem, device));
        (ours >= MARGIN * other).then(|| format!("{ours:.1} and {other:.1} us"))
    },
}];

/// Microseconds of the best configuration.
fn least(problem: &Problem, arch: &str) -> f64 {
    let times = stages(problem, arch).into_iter().map(|stages| time::time(problem, arch, stages));
    times.fold(f64::INFINITY, f64::min)
}

/// The configurations, that of the smallest estimate first.
fn configurations(problem: &Problem, arch: &str) -> Vec<(Configuration, Estimate)> {
    let all = stages(problem, arch).into_iter().map(|stages| (stages, time::time(problem, arch, stages)));
    ranked(all, |time| Estimate::Time { seconds: time * 1e-6, model: "Winograd's by FFMA" })
}

impl WinogradSolver {
    fn winograd(
        &self,
        problem: &Problem,
        arch: &str,
        configuration: &Configuration,
    ) -> Result<Winograd, BuildError> {
        kernel::winograd(problem, arch, configuration)
            .ok_or_else(|| no_configuration(self.id(), configuration))
    }
}

impl Planner for WinogradSolver {
    fn kernel_in(&self, problem: &Problem, arch: &str, configuration: &Configuration) -> Option<Kernel> {
        Some(kernel::winograd(problem, arch, configuration)?.kernel)
    }

    fn kernel(&self, problem: &Problem, arch: &str) -> Kernel {
        let first = configurations(problem, arch).into_iter().next();
        let kernel = first.and_then(|(configuration, _)| self.kernel_in(problem, arch, &configuration));
        kernel.unwrap_or_else(|| unreachable!("a problem that meets the constraints has a kernel"))
    }
}

impl Solver for WinogradSolver {
    fn id(&self) -> &'static str {
        "cuda.conv_winograd.v1"
    }

    fn algorithm(&self) -> Algorithm {
        Algorithm::Winograd
    }

    fn constraints(&self) -> &'static [Constraint] {
        &[CONVOLUTION, F32, TENSOR_CORES, THREE_BY_THREE, INFERENCE, OPERATOR_COUNT, SPAN]
    }

    fn preferences(&self) -> &'static [Preference] {
        PREFERENCES
    }

    fn accuracy(&self, _: &Problem) -> Accuracy {
        Accuracy::Transformed
    }

    fn configurations(&self, problem: &Problem, target: &DeviceInfo) -> Vec<Candidate> {
        let candidate = |(configuration, estimate)| Candidate {
            configuration,
            estimate,
            accuracy: Accuracy::Transformed,
        };
        configurations(problem, &target.arch).into_iter().map(candidate).collect()
    }

    fn cache_key(
        &self,
        problem: &Problem,
        target: &DeviceInfo,
        configuration: &Configuration,
    ) -> Option<Vec<u8>> {
        let text = self.winograd(problem, &target.arch, configuration).ok()?.kernel.source;
        let other = FFMA.cache_key(problem, target, &FFMA.preferred(problem, target))?;
        Some([binary::cache_key(configuration, &text), other].concat())
    }

    fn compile(
        &self,
        problem: &Problem,
        target: &DeviceInfo,
        configuration: &Configuration,
    ) -> Result<Binary, BuildError> {
        let text = self.winograd(problem, &target.arch, configuration)?.kernel.source;
        let others = FFMA.preferred(problem, target);
        compile_both(self.id(), (problem, target), (configuration, &text), (&FFMA, &others))
    }

    fn load(
        &self,
        problem: &Problem,
        device: &Arc<dyn Device>,
        binary: &Binary,
    ) -> Result<Arc<dyn Executable>, BuildError> {
        let DeviceInfo { arch, compute_units, .. } = device.info();
        let configuration = binary::configuration(self.id(), arch, binary)?;
        let Winograd { kernel, alignment } = self.winograd(problem, arch, &configuration)?;
        let images = binary::open(self.id(), arch, &kernel.source, binary)?;
        let (image, other) = split(self.id(), arch, &FFMA, images)?;
        let other = FFMA.load(problem, device, &other)?;
        let (function, mut info) = load::<Cuda>(self.id(), self.algorithm(), &**device, &kernel, image)?;
        // Filters that do not change are transformed once.
        info.kernels = 1;
        let ffma = estimated_time(&FFMA, problem, device.info()).unwrap_or(f64::INFINITY);
        let each_time = least(problem, arch) + time::preparing(problem) < ffma;
        let when = if each_time { "" } else { "filters that are not constant, and " };
        let carried = other.info();
        // Writing to a string cannot fail.
        let _ = write!(
            info.detail,
            "; for {when}addresses that are not multiples of {} and {} bytes: {}, {}",
            alignment[0], alignment[1], carried.solver, carried.detail
        );
        if let Some(resources) = carried.resources {
            let _ = write!(info.detail, ", {resources}");
        }
        let Kernel { geometry, arguments, scratch, .. } = kernel;
        Ok(Arc::new(WinogradExecutable {
            info,
            function,
            geometry,
            preparing: Geometry { grid: [*compute_units, 1, 1], ..geometry },
            arguments,
            alignment,
            filters: Preparation::new(scratch, each_time, device),
            other,
        }))
    }
}

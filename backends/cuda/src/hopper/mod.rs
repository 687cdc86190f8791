//! Convolution on Hopper's tensor cores: persistent, warp-specialised kernels by TMA and `wgmma`.
//!
//! TMA reads tensors by maps that hold their addresses, so maps are encoded at every execution, on the host and from
//! numbers alone. Addresses must be multiples of 16 bytes. For others the binary carries the kernel of
//! [`MMA`](crate::solvers::MMA) too, or of [`FFMA`](crate::solvers::FFMA) where TF32 is not exact enough. They compute any of
//! these problems, also those too small for it to be worth it.
//!
//! Filters that are streamed are prepared by a launch of their own: once with constant operands, in memory that is kept beside these,
//! and else before each launch. Where that would take longer than reading them as they are, the binary carries the kernel that
//! would have been chosen otherwise, or one of the same kind whose filters TMA brings as they are. Image and filters that are
//! reordered are so before each launch, from any address.

mod candidates;
mod constants;
mod constraints;
mod cost;
mod executable;
mod files;
mod instruction;
mod kernel;
mod layout;
mod maps;
mod other;
pub(crate) mod preferences;
mod reordered;
mod runs;
mod tensor_map;
mod text;
mod tiling;
mod work;

use std::fmt::Write;
use std::sync::Arc;

use fuseplan_api::{
    Accuracy, Algorithm, Binary, BuildError, Candidate, Configuration, Constraint, Device, DeviceInfo,
    Estimate, Executable, Preference, Problem, Solver,
};
use fuseplan_gpu::{
    CONVOLUTION, DATA_TYPE, GROUP_COUNT, Geometry, INFERENCE, InParts, Kernel, OPERATOR_COUNT, Planner,
    Runtime, SIXTEEN_BITS, SPAN, binary, load, no_configuration, ranked,
};

use crate::both::{compile_both, split};
use crate::context::Cuda;
use crate::mma::tensor_core_accuracy;
use crate::prepared::Preparation;

use executable::{HopperExecutable, Prepares};
use kernel::WgmmaKernel;
use layout::takes_tf32x3;
use other::Other;
use tiling::{Load, Tiling};

/// The architecture whose instructions these kernels have.
pub(crate) const HOPPER: &str = "sm_90a";

/// A solver: pixels are loaded in one of the ways.
#[derive(Debug)]
pub(crate) struct Hopper {
    id: &'static str,
    constraints: &'static [Constraint],
    preferences: &'static [Preference],
    load: Load,
}

/// Channels innermost: TMA loads the image.
pub(crate) static WGMMA: InParts<Hopper> = InParts(Hopper {
    id: "cuda.conv_wgmma.v1",
    constraints: &[
        constraints::ARCHITECTURE,
        CONVOLUTION,
        DATA_TYPE,
        INFERENCE,
        OPERATOR_COUNT,
        constraints::CHANNEL_VALUES,
        constraints::LAYOUT,
        constraints::GROUPS_OF_PIXELS,
        constraints::RECEPTIVE_EXTENT,
        GROUP_COUNT,
        SPAN,
    ],
    preferences: &[preferences::FILTERS_OF_PIXELS, preferences::F32],
    load: Load::Tma,
});

/// 1x1 on images whose positions are innermost: TMA loads planes; of those that it cannot address threads copy parts, or bulk
/// copies bring them as a whole.
pub(crate) static WGMMA_PLANES: InParts<Hopper> = InParts(Hopper {
    id: "cuda.conv_wgmma_planes.v1",
    constraints: &[
        constraints::ARCHITECTURE,
        CONVOLUTION,
        SIXTEEN_BITS,
        INFERENCE,
        OPERATOR_COUNT,
        constraints::CHANNEL_VALUES,
        constraints::POINTWISE,
        constraints::PLANES_LAYOUT,
        constraints::GROUPS,
        GROUP_COUNT,
        SPAN,
        constraints::PLANES_ROOM,
    ],
    preferences: &[preferences::FILTERS_OF_PLANES, preferences::PLANES],
    load: Load::Planes,
});

/// Several taps on images whose lines are innermost: TMA loads lines.
pub(crate) static WGMMA_LINES: InParts<Hopper> = InParts(Hopper {
    id: "cuda.conv_wgmma_lines.v1",
    constraints: &[
        constraints::ARCHITECTURE,
        CONVOLUTION,
        SIXTEEN_BITS,
        INFERENCE,
        OPERATOR_COUNT,
        constraints::CHANNEL_VALUES,
        constraints::LINES,
        constraints::LINES_LAYOUT,
        constraints::GROUPS,
        GROUP_COUNT,
        SPAN,
        constraints::LINES_ROOM,
    ],
    preferences: &[preferences::FILTERS_OF_LINES, preferences::LINES],
    load: Load::Lines,
});

/// Several taps on images whose columns are innermost, also of volumes: TMA loads rectangles, which threads transpose.
pub(crate) static WGMMA_TRANSPOSED: InParts<Hopper> = InParts(Hopper {
    id: "cuda.conv_wgmma_transposed.v1",
    constraints: &[
        constraints::ARCHITECTURE,
        CONVOLUTION,
        SIXTEEN_BITS,
        INFERENCE,
        OPERATOR_COUNT,
        constraints::CHANNEL_VALUES,
        constraints::RECTANGLES,
        constraints::RECTANGLES_LAYOUT,
        constraints::TRANSPOSED_GROUPS,
        GROUP_COUNT,
        SPAN,
        constraints::TRANSPOSED_ROOM,
    ],
    preferences: &[preferences::FILTERS_OF_RECTANGLES, preferences::TRANSPOSED],
    load: Load::Transposed,
});

/// Planes without gaps: TMA brings runs of them, which threads read to registers.
pub(crate) static WGMMA_RUNS: InParts<Hopper> = InParts(Hopper {
    id: "cuda.conv_wgmma_runs.v1",
    constraints: &[
        constraints::ARCHITECTURE,
        CONVOLUTION,
        DATA_TYPE,
        INFERENCE,
        OPERATOR_COUNT,
        constraints::CHANNEL_VALUES,
        constraints::RUNS,
        constraints::RUNS_GROUPS,
        GROUP_COUNT,
        SPAN,
        constraints::RUNS_ROOM,
    ],
    preferences: &[preferences::RUNS_OF_PLANES],
    load: Load::Runs,
});

/// Images whose channels are not innermost: an earlier launch copies them, and TMA loads the copy.
pub(crate) static WGMMA_REORDERED: InParts<Hopper> = InParts(Hopper {
    id: "cuda.conv_wgmma_reordered.v1",
    constraints: &[
        constraints::ARCHITECTURE,
        CONVOLUTION,
        DATA_TYPE,
        INFERENCE,
        OPERATOR_COUNT,
        constraints::CHANNEL_VALUES,
        constraints::REORDERED_LAYOUT,
        constraints::GROUPS,
        constraints::RECEPTIVE_EXTENT,
        GROUP_COUNT,
        SPAN,
        constraints::MEMORY,
    ],
    preferences: &[preferences::REORDERED],
    load: Load::Reordered,
});

/// Any other layout: threads gather the image.
pub(crate) static WGMMA_GATHER: InParts<Hopper> = InParts(Hopper {
    id: "cuda.conv_wgmma_gather.v1",
    constraints: &[
        constraints::ARCHITECTURE,
        CONVOLUTION,
        DATA_TYPE,
        INFERENCE,
        OPERATOR_COUNT,
        constraints::CHANNEL_VALUES,
        constraints::GATHERED_LAYOUT,
        constraints::TAPS,
        GROUP_COUNT,
        SPAN,
    ],
    preferences: &[preferences::GATHERED, preferences::RUNS, preferences::F32],
    load: Load::Gather,
});

impl Hopper {
    /// The kernel of a problem that meets the constraints, in one of its configurations, and its microseconds by the model.
    fn wgmma_kernel(
        &self,
        problem: &Problem,
        arch: &str,
        configuration: &Configuration,
    ) -> Result<(WgmmaKernel, f64), BuildError> {
        let units = Cuda::units(arch);
        let found =
            |tilings: Vec<(Tiling, f64)>| tilings.into_iter().find(|(tiling, _)| configuration.is_of(tiling));
        let found = found(candidates::tilings(self.load, problem, units)).or_else(|| {
            let is_of_runs = self.load == Load::Runs;
            if is_of_runs { found(candidates::with_filter_rows(problem, units)) } else { None }
        });
        let (tiling, time) = found.ok_or_else(|| no_configuration(self.id, configuration))?;
        Ok((kernel::wgmma_kernel(problem, arch, &tiling), time))
    }

    fn ranked(&self, problem: &Problem, arch: &str) -> Vec<(Configuration, Estimate)> {
        let model = match self.load {
            Load::Tma | Load::Halo => "wgmma with TMA",
            Load::Planes | Load::Packed => "wgmma from planes",
            Load::Lines => "wgmma with TMA by lines",
            Load::Transposed => "wgmma with transposed pixels",
            Load::Runs => "wgmma with runs of planes",
            Load::Reordered => "wgmma with reordered pixels",
            Load::Gather => "wgmma with gathered pixels",
        };
        let tilings = candidates::tilings(self.load, problem, Cuda::units(arch));
        ranked(tilings, |cost| Estimate::Time { seconds: cost * 1e-6, model })
    }
}

/// The kernel of runs whose filters TMA brings as they are, in the tile of the least time; `None` where there is none.
pub(crate) fn kernel_with_filter_rows(problem: &Problem, arch: &str) -> Option<Kernel> {
    let (tiling, _) = candidates::least_with_filter_rows(problem, Cuda::units(arch))?;
    Some(kernel::wgmma_kernel(problem, arch, &tiling).kernel)
}

/// TMA reads addresses that are multiples of this.
const ALIGNMENT: usize = 16;

impl Planner for Hopper {
    fn kernel_in(&self, problem: &Problem, arch: &str, configuration: &Configuration) -> Option<Kernel> {
        Some(self.wgmma_kernel(problem, arch, configuration).ok()?.0.kernel)
    }

    fn kernel(&self, problem: &Problem, arch: &str) -> Kernel {
        let first = self.ranked(problem, arch).into_iter().next();
        let kernel = first.and_then(|(configuration, _)| self.kernel_in(problem, arch, &configuration));
        kernel.unwrap_or_else(|| unreachable!("a problem that meets the constraints has a kernel"))
    }
}

impl Solver for Hopper {
    fn id(&self) -> &'static str {
        self.id
    }

    fn algorithm(&self) -> Algorithm {
        Algorithm::ImplicitGemm
    }

    fn constraints(&self) -> &'static [Constraint] {
        self.constraints
    }

    fn preferences(&self) -> &'static [Preference] {
        self.preferences
    }

    fn accuracy(&self, problem: &Problem) -> Accuracy {
        if takes_tf32x3(self.load, problem) { Accuracy::Tf32x3 } else { tensor_core_accuracy(problem) }
    }

    fn configurations(&self, problem: &Problem, target: &DeviceInfo) -> Vec<Candidate> {
        let accuracy = self.accuracy(problem);
        let candidate = |(configuration, estimate)| Candidate { configuration, estimate, accuracy };
        self.ranked(problem, &target.arch).into_iter().map(candidate).collect()
    }

    fn cache_key(
        &self,
        problem: &Problem,
        target: &DeviceInfo,
        configuration: &Configuration,
    ) -> Option<Vec<u8>> {
        let (planned, time) = self.wgmma_kernel(problem, &target.arch, configuration).ok()?;
        let other = Other::of(problem, target, &planned, time);
        let other = other.solver.cache_key(problem, target, &other.configuration)?;
        Some([binary::cache_key(configuration, &planned.kernel.source), other].concat())
    }

    fn compile(
        &self,
        problem: &Problem,
        target: &DeviceInfo,
        configuration: &Configuration,
    ) -> Result<Binary, BuildError> {
        let (planned, time) = self.wgmma_kernel(problem, &target.arch, configuration)?;
        let Other { solver, configuration: others, .. } = Other::of(problem, target, &planned, time);
        let text = &planned.kernel.source;
        compile_both(self.id, (problem, target), (configuration, text), (solver, &others))
    }

    fn load(
        &self,
        problem: &Problem,
        device: &Arc<dyn Device>,
        binary: &Binary,
    ) -> Result<Arc<dyn Executable>, BuildError> {
        let arch = &device.info().arch;
        let configuration = binary::configuration(self.id, arch, binary)?;
        let (planned, time) = self.wgmma_kernel(problem, arch, &configuration)?;
        let units = device.info().compute_units as usize;
        let (blocks, slots) = (planned.blocks(units), planned.slots(units));
        let Other { solver, reads_filters, .. } = Other::of(problem, device.info(), &planned, time);
        let WgmmaKernel {
            mut kernel,
            input,
            filters,
            input_alignment,
            output_alignment,
            filter_alignment,
            prepared,
            reordered,
            ..
        } = planned;
        let images = binary::open(self.id, arch, &kernel.source, binary)?;
        let (image, other) = split(self.id, arch, solver, images)?;
        let executable = solver.load(problem, device, &other)?;
        kernel.geometry.grid[0] = blocks;
        let (function, mut info) = load::<Cuda>(self.id, self.algorithm(), &**device, &kernel, image)?;
        info.kernels += u32::from(reordered.is_some());
        let other = executable.info();
        // Writing to a string cannot fail.
        let when = match (&reordered, reads_filters) {
            (Some(_), _) => "a device without memory, and other addresses of the output".to_owned(),
            (None, true) => format!(
                "filters that are not constant, and addresses that are not multiples of {ALIGNMENT} bytes"
            ),
            (None, false) => format!("addresses that are not multiples of {ALIGNMENT} bytes"),
        };
        let _ = write!(info.detail, "; for {when}: {}, {}", other.solver, other.detail);
        if let Some(resources) = other.resources {
            let _ = write!(info.detail, ", {resources}");
        }
        Ok(Arc::new(HopperExecutable {
            info,
            function,
            geometry: kernel.geometry,
            preparing: Geometry { grid: [slots, 1, 1], ..kernel.geometry },
            arguments: kernel.arguments,
            input,
            filters,
            input_alignment,
            output_alignment,
            filter_alignment,
            prepares: match (prepared, reordered) {
                (Some(bytes), _) => Prepares::Filters(Preparation::new(bytes, !reads_filters, device)),
                (None, Some(operands)) => Prepares::Operands(operands),
                (None, None) => Prepares::Nothing,
            },
            other: executable,
        }))
    }
}

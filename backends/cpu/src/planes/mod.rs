//! Convolution of narrow groups with pixels in the lanes.
//!
//! A work item is a band of lines of a few groups. Their input is copied to the cache with its padding, widened to f32,
//! pixels of a channel side by side, transposed if need be; where the filter goes in strides, the lines and columns of each
//! phase of the stride lie side by side there. So every product of an output is a load of neighbours, and a tile is some
//! output channels of a group by some vectors of pixels, which go on over the ends of lines: the padding between two lines
//! costs less than vectors that are not full. Sums are finished in runs of pixels, or transposed.

mod band;
mod copy;
mod finish;
mod plan;
#[cfg(test)]
mod tests;
mod tile;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;

use fuseplan_api::volume::Volume;
use fuseplan_api::{
    Accuracy, Algorithm, Constraint, DataType, Executable, ExecutableInfo, Preference, Problem, RawStream,
    RunArgs, RunError,
};

use crate::arena::with_scratch;
use crate::constraint;
use crate::device::CpuDevice;
use crate::direct::prepared::{self, Owner};
use crate::direct::weights::PackWeights;
use crate::direct::{CONVOLUTION, Shared};
use crate::element::with_value_type;
use crate::epilogue::{self, Epilogue, Steps};
use crate::pool::{Locked, Pool};
use crate::solver::{self, CpuSolver};
use band::{Band, Collect, Functions};
use plan::Plan;

pub(crate) static PLANES: CpuSolver = CpuSolver {
    id: "cpu.planes.v1",
    algorithm: Algorithm::Direct,
    constraints: &[
        CONVOLUTION,
        constraint::SIZE,
        constraint::DATA_TYPE,
        constraint::INFERENCE,
        epilogue::LENGTH,
        REACH,
    ],
    preferences: &[NARROW, SIDE_BY_SIDE, WIDTH],
    any_layout: false,
    is_reference: false,
    accuracy: Accuracy::Exact,
    configurations: solver::one,
    load: |solver, problem, device, _| Arc::new(Convolution::new(solver, problem, device)),
};

/// The most floats of a work item's input.
const MOST: usize = 256 * 1024;

/// A work item has no fewer lines than a tile, and a copy of all that they need.
const REACH: Constraint = Constraint {
    property: "input of 8 lines of a group",
    accepts: "at most 262144 values with the padding",
    check: |problem, device| {
        let values = plan::least_input(problem, device.lanes as usize)?;
        (values > MOST).then(|| values.to_string())
    },
};

/// Elsewhere direct convolution has a group's outputs in the lanes, and one group is a convolution like any other. With 3x3
/// filters of 12 outputs for 16 lanes it takes 1.37 to 1.44 times as long in NCHW, 1.18 to 1.23 in NHWC, with 13 still 1.20 to
/// 1.28 and 1.03 to 1.05, with 15 and 16 0.90 to 1.05 and 0.81 to 0.92. A vector of four is too short for that: with four
/// outputs a group, direct took 1.8 times as long in NCHW by portable instructions, and 0.83 in NHWC.
const NARROW: Preference = Preference {
    property: "channels per group",
    prefers: "two or more groups, whose outputs fit three quarters of a vector or are at most four",
    check: |problem, device| {
        let (conv, weights) = problem.conv()?;
        let outputs = weights.lens()[0] / conv.groups();
        let is_narrow = conv.groups() > 1 && outputs <= (device.lanes as usize * 3 / 4).max(4);
        (!is_narrow).then(|| format!("{outputs} outputs in {} groups", conv.groups()))
    },
};

/// Two transposes take as long as so many products.
const PRODUCTS: usize = 16;

/// Elsewhere channels fill the lanes without a copy.
const SIDE_BY_SIDE: Preference = Preference {
    property: "layout",
    prefers: "columns side by side in input and output, or at least 16 products an output",
    check: |problem, _| {
        let (_, weights) = problem.conv()?;
        let strides =
            [Volume::of(&problem.input), Volume::of(&problem.output)].map(|tensor| tensor.strides[4]);
        let is_apart = strides.iter().any(|&stride| stride > 1);
        (is_apart && weights.lens()[1..].iter().product::<usize>() < PRODUCTS)
            .then(|| format!("column strides {} and {}", strides[0], strides[1]))
    },
};

/// Depthwise tiles are computed in whole vectors of a line.
const WIDTH: Preference = Preference {
    property: "width",
    prefers: "several inputs a group, or lines of the output of at least one and a half vectors",
    check: |problem, device| {
        let (_, weights) = problem.conv()?;
        let width = Volume::of(&problem.output).lens[4];
        (weights.lens()[1] == 1 && 2 * width < 3 * device.lanes as usize).then(|| width.to_string())
    },
};

/// A convolution ready to run.
struct Convolution {
    info: ExecutableInfo,
    epilogue: Epilogue,
    plan: Plan,
    functions: Functions,
    /// Whether the tensors are f32.
    is_float: bool,
    pool: Arc<Pool>,
    owner: Owner,
}

impl std::fmt::Debug for Convolution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Convolution").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Convolution {
    fn new(solver: &CpuSolver, problem: &Problem, device: &CpuDevice) -> Self {
        let (isa, pool) = (device.isa(), Arc::clone(device.pool()));
        let functions: Functions =
            with_value_type!(problem.output.data_type(), T => isa.run(Collect::<T>(PhantomData)));
        let epilogue = Epilogue::new(problem, isa);
        let plan = Plan::new(problem, &epilogue, functions.rows, pool.threads());
        let info = solver.info(format!(
            "{}, {} channels by {}, {} bands of {} lines, {} groups at a time, {} threads",
            isa.name(),
            plan.rows.most.min(1 << plan.outputs.ilog2()),
            if plan.is_flat { "runs of pixels" } else { "columns of lines" },
            plan.bands,
            plan.band,
            plan.block,
            pool.threads(),
        ));
        let is_float = problem.output.data_type() == DataType::Float;
        Convolution { info, epilogue, plan, functions, is_float, pool, owner: Owner::new() }
    }

    /// Packs all weights.
    ///
    /// # Safety
    /// `source` has the filters; `target` has `plan.weights()` floats.
    unsafe fn pack_weights(
        &self,
        source: *const c_void,
        target: &mut [f32],
        locked: Locked,
    ) -> Result<(), RunError> {
        let (target, source) = (Shared(target.as_mut_ptr()), Shared(source.cast_mut()));
        let plan = &self.plan;
        let pack = |index: usize| {
            let panel = plan.panel_at(index);
            let (filters, channels) = (&plan.filters, 0..plan.inputs);
            let target = target.get().wrapping_add(panel.offset);
            let args = PackWeights { filters, channels, panel, source: source.get(), target };
            // SAFETY: the functions are of an instruction set that the CPU has, and of the filters' type; the caller says that
            // the filters are readable. Panels have weights of their own in the target, which is as long as all of them.
            unsafe { (self.functions.pack_weights)(&args) }
        };
        self.pool.for_each_locked(locked, plan.panels(), &pack)
    }

    /// Computes a band of some groups.
    ///
    /// # Safety
    /// As [`Executable::run`]; nobody else touches these lines of the output; scratch has the plan's sizes.
    unsafe fn item(
        &self,
        item: usize,
        steps: &Steps<'_>,
        (source, weights, output): (*const c_void, &[f32], *mut c_void),
        scratch: &mut [f32],
    ) {
        let plan = &self.plan;
        let [input, sums, _] = plan.scratch();
        let (input, scratch) = scratch.split_at_mut(input);
        let (sums, run) = scratch.split_at_mut(sums);
        let (image, slice, groups, lines) = plan.item(item);
        let band = Band {
            plan,
            steps,
            image,
            slice,
            groups,
            lines,
            source,
            weights: weights.as_ptr(),
            output,
            input: input.as_mut_ptr(),
            sums: sums.as_mut_ptr(),
            run: run.as_mut_ptr(),
            in_registers: !plan.is_flat
                && self.is_float
                && steps.end_in_registers()
                && plan.output.strides[4] == 1
                && plan.output.lens[4] >= plan.rows.lanes,
        };
        // SAFETY: the functions are of an instruction set that the CPU has, and of the tensors' type; the caller answers for
        // the tensors, and the parts of scratch are as long as the plan says.
        unsafe { band.compute(&self.functions) }
    }

    /// # Safety
    /// As [`Executable::run`]; `weights` are packed.
    unsafe fn compute(&self, args: &RunArgs<'_>, weights: &[f32]) -> Result<(), RunError> {
        let (input, output) = (Shared(args.input.cast_mut()), Shared(args.output));
        with_scratch(self.epilogue.table_len(), |tables| {
            // SAFETY: the caller says that the arguments keep what `RunArgs` promises; the tables live as long as the steps.
            let steps = unsafe { self.epilogue.bind(args.ops, tables) };
            let len = self.plan.scratch().iter().sum();
            self.pool.for_each_with_scratch(Locked::No, self.plan.items(), len, &|scratch, items| {
                for item in items {
                    let tensors = (input.get().cast_const(), weights, output.get());
                    // SAFETY: the caller keeps what `RunArgs` promises; items have lines of their own.
                    unsafe { self.item(item, &steps, tensors, scratch) };
                }
            })
        })?
    }
}

impl Executable for Convolution {
    fn info(&self) -> &ExecutableInfo {
        &self.info
    }

    unsafe fn run(&self, _stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError> {
        let pack = |weights, packed: &mut [f32], locked| {
            // SAFETY: `RunArgs` promises the problem's filters; `packed` is as long as the plan says.
            unsafe { self.pack_weights(weights, packed, locked) }
        };
        prepared::with_packed(args, self.owner, self.plan.weights(), pack, |packed| {
            // SAFETY: the caller keeps what `RunArgs` promises for this problem.
            unsafe { self.compute(args, packed) }
        })
    }
}

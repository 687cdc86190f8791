//! Winograd's convolution with 3x3 and 5x5 filters, fused with everything behind it.
//!
//! The input's tiles, which overlap by a filter's extent less one, are transformed to points; at each point, a product of a
//! matrix of tiles by channels with one of channels by filters sums over the channels, by direct convolution's
//! micro-kernels; and the sums are transformed to the output's tiles. Blocks of tiles go through all of that in the caches
//! ([`plan`]), so nothing as large as a tensor is ever written but the output. A 4x4 tile costs 36 products a channel where
//! the sum costs 144, a 2x2 tile 16 where it costs 36, and with 5x5 filters 36 where it costs 100.
//!
//! An output's error depends on the largest elements of its tile, not only on those that it is a sum of, and what is not
//! finite reaches the whole tile: the error class is [`Accuracy::Transformed`].

mod choice;
mod kernel;
mod plan;
mod transform;
mod work;

#[cfg(test)]
mod tests;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use fuseplan_api::{
    Accuracy, Algorithm, Configuration, Constraint, DataType, Device, DeviceInfo, Executable, ExecutableInfo,
    Problem, RawStream, RunArgs, RunError,
};

use crate::arena::with_scratch;
use crate::constraint;
use crate::device::CpuDevice;
use crate::direct::geometry::lanes_of;
use crate::direct::prepared::{self, Owner};
use crate::direct::weights::PackWeights;
use crate::direct::{CONVOLUTION, DIRECT, Shared, output};
use crate::element::with_value_type;
use crate::epilogue::{self, Epilogue, Lanes};
use crate::pool::{Items, Locked, Pool};
use crate::solver::CpuSolver;
use choice::Size;
use kernel::{Collect, Functions, PanelFilters};
use plan::{Limits, Plan};
use transform::{F2x2, F2x2Of5, F4x4};
use work::{Scratch, Work};

pub(crate) static WINOGRAD: CpuSolver = CpuSolver {
    id: "cpu.winograd.v1",
    algorithm: Algorithm::Winograd,
    constraints: &[
        CONVOLUTION,
        constraint::SIZE,
        constraint::DATA_TYPE,
        constraint::INFERENCE,
        epilogue::LENGTH,
        FILTER,
        constraint::STRIDES,
        constraint::DILATIONS,
    ],
    preferences: &[choice::FEWER_PRODUCTS],
    any_layout: true,
    is_reference: false,
    accuracy: Accuracy::Transformed,
    configurations: choice::configurations,
    load: |solver, problem, device, configuration| {
        let size = Size::of(configuration);
        Arc::new(Convolution::new(solver, problem, size, device, Limits::USUAL))
    },
};

const FILTER: Constraint = Constraint {
    property: "filter",
    accepts: "3x3 and 5x5 in two dimensions",
    check: |problem, _| {
        let (_, weights) = problem.conv()?;
        let taps = &weights.lens()[2..];
        let text = || taps.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
        (!matches!(taps, [3, 3] | [5, 5])).then(text)
    },
};

/// What a model says of the cost of Winograd's convolution over direct convolution's, if the solver takes the problem.
pub(crate) fn cost_over_direct(problem: &Problem, device: &DeviceInfo) -> Option<f64> {
    let takes = WINOGRAD.constraints.iter().all(|constraint| (constraint.check)(problem, device).is_none());
    takes.then(|| choice::cost_over_direct(problem, device)).flatten()
}

/// Input channels whose filters are transformed at a time, so that they stay in the first-level cache.
const FILTERS: usize = 16;

/// A convolution ready to run.
struct Convolution {
    info: ExecutableInfo,
    epilogue: Epilogue,
    plan: Plan,
    functions: Functions,
    /// Along which dimension the output is written.
    lanes: Lanes,
    /// Whether runs of pixels may go on over the end of a line.
    flat: bool,
    data_type: DataType,
    pool: Arc<Pool>,
    owner: Owner,
    /// Direct convolution, which takes less time where filters that may change would be transformed in each call.
    changing: Option<Arc<dyn Executable>>,
}

impl std::fmt::Debug for Convolution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Convolution").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Convolution {
    fn new(solver: &CpuSolver, problem: &Problem, size: Size, device: &CpuDevice, limits: Limits) -> Self {
        let (isa, pool) = (device.isa(), Arc::clone(device.pool()));
        let data_type = problem.output.data_type();
        let functions: Functions = with_value_type!(data_type, T => match size {
            Size::Two => isa.run(Collect::<T, F2x2>(PhantomData)),
            Size::Four => isa.run(Collect::<T, F4x4>(PhantomData)),
            Size::TwoOf5 => isa.run(Collect::<T, F2x2Of5>(PhantomData)),
        });
        let epilogue = Epilogue::new(problem, isa);
        let plan = Plan::new(problem, size.out(), functions.lanes, pool.threads(), limits);
        let changing: Option<Arc<dyn Executable>> = choice::wants_constant_filters(problem, device.info())
            .then(|| (DIRECT.load)(&DIRECT, problem, device, &Configuration::default()));
        let mut info = solver.info(format!(
            "{}, {size}, {} blocks of {} tiles, {} parts, {} threads",
            isa.name(),
            plan.blocks,
            plan.most,
            plan.parts,
            pool.threads(),
        ));
        if let Some(direct) = &changing {
            let ExecutableInfo { solver, detail, .. } = direct.info();
            info.detail += &format!("; for filters that are not constant: {solver}, {detail}");
        }
        let lanes = lanes_of(epilogue.output());
        let flat = epilogue.is_flat() && plan.segments == 1;
        let owner = Owner::new();
        Convolution { info, epilogue, plan, functions, lanes, flat, data_type, pool, owner, changing }
    }

    /// Transforms all filters.
    ///
    /// # Safety
    /// `source` has the filters; `target` has `plan.weights` floats.
    unsafe fn transform_filters(
        &self,
        source: *const c_void,
        target: &mut [f32],
        locked: Locked,
    ) -> Result<(), RunError> {
        let (target, source) = (Shared(target.as_mut_ptr()), Shared(source.cast_mut()));
        let (Plan { filters, inputs, panels, .. }, functions) = (&self.plan, &self.functions);
        let largest = panels.iter().map(|panel| panel.vectors).max().unwrap_or(0);
        let transform = |packed: &mut [f32], indices: Items<'_>| {
            for index in indices {
                let panel = panels[index];
                let width = panel.vectors * functions.lanes;
                for first in (0..*inputs).step_by(FILTERS) {
                    let channels = (inputs - first).min(FILTERS);
                    let chunk = first * filters.strides[1] * self.data_type.size();
                    let (source, packed) = (source.get().wrapping_byte_add(chunk), packed.as_mut_ptr());
                    let target = target.get().wrapping_add(panel.offset + first * width);
                    let vectors = panel.vectors;
                    let pack = PackWeights { filters, channels: 0..channels, panel, source, target: packed };
                    // SAFETY: the functions are of an instruction set that the CPU has, and of the filters' type; the
                    // caller says that the filters are readable. Scratch has room for a chunk of a panel. Panels have
                    // filters of their own in the target, which the plan made as long as all of them together.
                    unsafe {
                        (functions.pack_weights)(&pack);
                        (functions.filters)(&PanelFilters {
                            packed,
                            channels,
                            inputs: *inputs,
                            vectors,
                            target,
                        });
                    }
                }
            }
        };
        let len = FILTERS * filters.tap_count() * largest * functions.lanes;
        self.pool.for_each_with_scratch(locked, panels.len(), len, &transform)
    }

    /// # Safety
    /// As [`Executable::run`]; `weights` are transformed.
    unsafe fn compute(&self, args: &RunArgs<'_>, weights: &[f32]) -> Result<(), RunError> {
        with_scratch(self.epilogue.table_len(), |tables| {
            // SAFETY: the caller says that the arguments keep what `RunArgs` promises; the tables live as long as the steps.
            let steps = unsafe { self.epilogue.bind(args.ops, tables) };
            let ending = steps.ending();
            let work = Work { conv: self, steps, ending, input: args.input, output: args.output, weights };
            let plan = &self.plan;
            let (items, len) = (
                plan.blocks * plan.groups * plan.parts,
                plan.input_len() + self.panel_len() + plan.lines_len(),
            );
            self.pool.for_each_with_scratch(Locked::No, items, len, &|scratch, items| {
                // SAFETY: the caller says that the tensors are the problem's; scratch has the plan's sizes.
                unsafe { self.items(&work, scratch, items) }
            })
        })?
    }

    /// Computes parts of blocks. Parts of one block that follow one another share its transformed input.
    ///
    /// # Safety
    /// The tensors are the problem's; `scratch` has the plan's sizes.
    unsafe fn items(&self, work: &Work<'_>, scratch: &mut [f32], items: Items<'_>) {
        let plan = &self.plan;
        let (transformed, scratch) = scratch.split_at_mut(plan.input_len());
        let (scratch, lines) = scratch.split_at_mut(self.panel_len());
        let (transformed, mut scratch) = (transformed.as_mut_ptr(), self.panel_scratch(scratch));
        let cut = plan.chunk < plan.inputs;
        let mut holds = None;
        for item in items {
            let (part, whole) = (item % plan.parts, item / plan.parts);
            let (group, block) = (whole % plan.groups, whole / plan.groups);
            let units = plan.units(block);
            let origin = plan.tiles_of(&units).start;
            let mut transform = |chunk: &Range<usize>| {
                for channel in chunk.clone().step_by(self.functions.lanes) {
                    let place = (group, chunk, channel);
                    // SAFETY: the functions are of an instruction set that the CPU has; the caller says that the
                    // tensors are the problem's; scratch has the plan's sizes, and is this thread's own.
                    unsafe { work.transform(units.clone(), origin, place, transformed, lines) };
                }
            };
            if !cut && holds.replace(whole) != Some(whole) {
                transform(&(0..plan.inputs));
            }
            for &panel in plan.panels_of(group, part) {
                let chunk = |chunk: &Range<usize>| {
                    if cut {
                        transform(chunk);
                    }
                };
                // SAFETY: as of the transform; blocks and panels have outputs of their own.
                unsafe {
                    work.panel(units.clone(), origin, panel, transformed, &mut scratch, chunk);
                }
            }
        }
    }

    /// Floats of scratch for the output of a panel.
    fn panel_len(&self) -> usize {
        self.plan.sums_len() + self.plan.output_len() + output::SCRATCH
    }

    /// So many floats as scratch.
    fn panel_scratch<'a>(&self, scratch: &'a mut [f32]) -> Scratch<'a> {
        let (sums, scratch) = scratch.split_at_mut(self.plan.sums_len());
        let (pixels, finish) = scratch.split_at_mut(self.plan.output_len());
        Scratch { sums, pixels, finish }
    }
}

impl Executable for Convolution {
    fn info(&self) -> &ExecutableInfo {
        &self.info
    }

    unsafe fn run(&self, stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError> {
        if let (Some(direct), None) = (&self.changing, &args.ops[0].prepared) {
            // SAFETY: the caller keeps what `RunArgs` promises for this problem, which is the executable's.
            return unsafe { direct.run(stream, args) };
        }
        let transform = |filters, target: &mut [f32], locked| {
            // SAFETY: `RunArgs` promises the problem's filters; `target` is as long as the plan says.
            unsafe { self.transform_filters(filters, target, locked) }
        };
        prepared::with_packed(args, self.owner, self.plan.weights, transform, |weights| {
            // SAFETY: the caller keeps what `RunArgs` promises for this problem.
            unsafe { self.compute(args, weights) }
        })
    }
}

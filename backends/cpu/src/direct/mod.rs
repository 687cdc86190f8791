//! Direct convolution with output channels in the lanes, fused with everything behind it.
//!
//! A work item is a band of output lines of one image and one group. Its input is read in place where
//! that is possible (f32, channels innermost, no padding), otherwise packed into the cache. For each panel
//! of output channels the band's tiles are computed from packed weights; sums go straight to the output
//! where its channels are innermost, otherwise they wait in scratch until the band is complete and are then
//! transposed. Filter taps above and below the image are left out; taps to its left and right meet zeros.
//!
//! Scratch memory has a bound whatever the geometry is: long lines are cut into spans, wide dilations have their
//! taps packed and not what lies between them, and where a few pixels have more channels than can be packed, these
//! are cut into chunks, whose sums wait in scratch for those of the next.

mod ahead;
mod depthwise;
pub(crate) mod geometry;
pub(crate) mod input;
pub(crate) mod output;
mod panels;
mod plan;
pub(crate) mod prepared;
pub(crate) mod tile;
pub(crate) mod weights;
mod work;

#[cfg(test)]
pub(crate) mod tests;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;

use fuseplan_api::{
    Accuracy, Algorithm, Constraint, DataType, Executable, ExecutableInfo, Preference, Problem, RawStream,
    RunArgs, RunError,
};

use crate::activation::{ActivateFn, activate};
use crate::arena::with_scratch;
use crate::constraint;
use crate::device::CpuDevice;
use crate::element::with_value_type;
use crate::epilogue::{self, Epilogue, FoldVectorsFn, fold_vectors};
use crate::isa::{Isa, Kernel, Number, Simd};
use crate::pool::{Locked, Pool};
use crate::solver::{self, CpuSolver};
use geometry::{Geometry, Lines};
use input::PackLineFn;
use output::FinishFn;
use plan::{Limits, Plan};
use prepared::Owner;
use tile::Tiles;
use weights::{PackWeights, PackWeightsFn};
use work::{Scratch, Work};

pub(crate) use depthwise::{DEPTHWISE, ONE_CHANNEL};
pub(crate) use plan::RESIDENT;
#[cfg(target_arch = "x86_64")]
pub(crate) use plan::crowds;

/// Direct convolution whose micro-kernels multiply each input value by vectors of weights.
pub(crate) static DIRECT: CpuSolver = CpuSolver {
    id: "cpu.direct.v1",
    algorithm: Algorithm::Direct,
    constraints: &[
        CONVOLUTION,
        constraint::SIZE,
        constraint::DATA_TYPE,
        constraint::INFERENCE,
        epilogue::LENGTH,
    ],
    preferences: &[],
    any_layout: true,
    is_reference: false,
    accuracy: Accuracy::Exact,
    configurations: solver::one,
    load: |solver, problem, device, _| {
        Arc::new(Convolution::new(solver, problem, false, device, Limits::USUAL))
    },
};

/// Direct convolution of narrow groups, which share a vector: each lane has an input of its own.
pub(crate) static DIRECT_GROUPED: CpuSolver = CpuSolver {
    id: "cpu.direct_grouped.v1",
    algorithm: Algorithm::Direct,
    constraints: &[
        CONVOLUTION,
        constraint::SIZE,
        constraint::DATA_TYPE,
        constraint::INFERENCE,
        epilogue::LENGTH,
        NARROW_GROUPS,
    ],
    preferences: &[SEVERAL_IN_A_VECTOR],
    any_layout: false,
    is_reference: false,
    accuracy: Accuracy::Exact,
    configurations: solver::one,
    load: |solver, problem, device, _| {
        Arc::new(Convolution::new(solver, problem, true, device, Limits::USUAL))
    },
};

pub(crate) const CONVOLUTION: Constraint = Constraint {
    property: "first operator",
    accepts: "ConvForward",
    check: |problem, _| problem.conv().is_none().then(|| problem.chain()),
};

const NARROW_GROUPS: Constraint = Constraint {
    property: "channels per group",
    accepts: "inputs and outputs that each fit a vector",
    check: |problem, device| {
        let (conv, weights) = problem.conv()?;
        let (outputs, inputs) = (weights.lens()[0] / conv.groups(), weights.lens()[1]);
        let lanes = device.lanes as usize;
        (outputs.max(inputs) > lanes).then(|| format!("{inputs} to {outputs}"))
    },
};

/// Groups that share a vector: where one fills more than half of it, its inputs are better broadcast.
const SEVERAL_IN_A_VECTOR: Preference = Preference {
    property: "channels per group",
    prefers: "two or more groups, whose outputs fit half a vector",
    check: |problem, device| {
        let (conv, weights) = problem.conv()?;
        let outputs = weights.lens()[0] / conv.groups();
        let several = conv.groups() > 1 && 2 * outputs <= device.lanes as usize;
        (!several).then(|| format!("{outputs} outputs in {} groups", conv.groups()))
    },
};

/// The functions of an instruction set and an element type.
#[derive(Clone, Copy)]
struct Functions {
    tiles: Tiles,
    pack_line: PackLineFn,
    pack_weights: PackWeightsFn,
    finish: FinishFn,
    activate: ActivateFn,
    fold_vectors: FoldVectorsFn,
    lanes: usize,
}

impl Functions {
    fn of(isa: Isa, data_type: DataType) -> Self {
        with_value_type!(data_type, T => isa.run(Collect::<T>(PhantomData)))
    }
}

struct Collect<T>(PhantomData<T>);

impl<T: Number> Kernel for Collect<T> {
    type Output = Functions;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Functions {
        Functions {
            tiles: Tiles::of::<S>(),
            pack_line: input::pack::<S, T>,
            pack_weights: weights::pack::<S, T>,
            finish: output::finish::<S, T>,
            activate: activate::<S>,
            fold_vectors: fold_vectors::<S>,
            lanes: S::LANES,
        }
    }
}

/// A convolution ready to run.
struct Convolution {
    info: ExecutableInfo,
    geometry: Geometry,
    epilogue: Epilogue,
    plan: Plan,
    functions: Functions,
    /// Whether runs of pixels may go on over the end of a line.
    flat: bool,
    data_type: DataType,
    pool: Arc<Pool>,
    owner: Owner,
}

impl std::fmt::Debug for Convolution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Convolution").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Convolution {
    fn new(
        solver: &CpuSolver,
        problem: &Problem,
        lanewise: bool,
        device: &CpuDevice,
        limits: Limits,
    ) -> Self {
        let (isa, pool) = (device.isa(), Arc::clone(device.pool()));
        let data_type = problem.output.data_type();
        let functions = Functions::of(isa, data_type);
        let mut epilogue = Epilogue::new(problem, isa);
        let vectors = if lanewise { 1 } else { 2 };
        let rows = functions.tiles.rows[vectors - 1];
        let lines = Lines { longest: 8 * rows, shortest: rows, threads: pool.threads() };
        let geometry = Geometry::new(problem, &mut epilogue, lines);
        // Panels of one vector have tiles of more rows than others with some instruction sets.
        let most_rows = functions.tiles.rows[0].max(rows);
        let packs = lanewise || data_type != DataType::Float || !plan::can_stay(&geometry, most_rows);
        let plan = Plan::new(&geometry, lanewise, packs, functions.lanes, pool.threads(), limits);
        let info = solver.info(format!(
            "{}, tiles of {}x{vectors} vectors, {} bands of {} lines{}, {} parts, input {}, {} threads",
            isa.name(),
            rows,
            plan.bands,
            plan.band(),
            plan.cut(),
            plan.parts,
            if plan.pack.is_some() { "packed" } else { "in place" },
            pool.threads(),
        ));
        let owner = Owner::new();
        let flat = epilogue.is_flat() && plan.spans == 1;
        Convolution { info, geometry, epilogue, plan, functions, flat, data_type, pool, owner }
    }

    /// Packs all weights.
    ///
    /// # Safety
    /// `source` has the filters; `target` has `plan.weights` floats.
    unsafe fn pack_weights(
        &self,
        source: *const c_void,
        target: &mut [f32],
        locked: Locked,
    ) -> Result<(), RunError> {
        let target = Shared(target.as_mut_ptr());
        let source = Shared(source.cast_mut());
        let pack = |index: usize| {
            let panel = self.plan.panels[index];
            let target = target.get().wrapping_add(panel.offset);
            let filters = &self.geometry.filters;
            for channels in self.plan.chunks() {
                let args = PackWeights { filters, channels, panel, source: source.get(), target };
                // SAFETY: the functions are of an instruction set that the CPU has, and of the filters' type; the
                // caller says that the filters are readable. Panels have weights of their own in the target, which
                // the plan made as long as all of them together.
                unsafe { (self.functions.pack_weights)(&args) }
            }
        };
        self.pool.for_each_locked(locked, self.plan.panels.len(), &pack)
    }

    /// # Safety
    /// As [`Executable::run`]; `weights` are packed.
    unsafe fn compute(&self, args: &RunArgs<'_>, weights: &[f32]) -> Result<(), RunError> {
        let (g, plan) = (&self.geometry, &self.plan);
        // A vector from the last block of the last pixel may go on behind all sums.
        let (pack, sums) = (plan.pack_len(), (plan.pixels() * 2 + 1) * self.functions.lanes);
        with_scratch(self.epilogue.table_len(), |tables| {
            // SAFETY: the caller says that the arguments keep what `RunArgs` promises; the tables live as long as the steps.
            let steps = unsafe { self.epilogue.bind(args.ops, tables) };
            let ending = steps.ending();
            let work = Work { conv: self, steps, ending, input: args.input, output: args.output, weights };
            let len = pack + sums + output::SCRATCH;
            self.pool.for_each_with_scratch(Locked::No, plan.items(g), len, &|scratch, items| {
                let (packed, scratch) = scratch.split_at_mut(pack);
                let (sums, scratch) = scratch.split_at_mut(sums);
                let mut scratch = Scratch { packed, holds: None, sums, finish: scratch };
                for item in items {
                    // SAFETY: the functions are of an instruction set that the CPU has, and the caller says that the
                    // tensors are the problem's. Items have outputs of their own, and scratch has the plan's sizes.
                    unsafe { work.item(item, &mut scratch) };
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
        prepared::with_packed(args, self.owner, self.plan.weights, pack, |packed| {
            // SAFETY: the caller keeps what `RunArgs` promises for this problem.
            unsafe { self.compute(args, packed) }
        })
    }
}

/// A pointer that threads share, each using its own part of what it points to.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(pub(crate) *mut T);

// SAFETY: only an address; who uses it answers for the access.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn get(&self) -> *mut T {
        self.0
    }
}

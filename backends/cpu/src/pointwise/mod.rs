//! Convolution with 1x1 filters where an image's pixels lie side by side, fused with everything behind it.
//!
//! It is a matrix product: pixels by input channels times input channels by filters. Direct convolution has output channels
//! in the lanes and transposes such images on the way in and out; here pixels are in the lanes, by the same micro-kernels
//! with the roles of image and filters exchanged. A block of pixels is copied to the cache, vectors of them for each channel,
//! and multiplied by some filters at a time, whose sums are finished line by line. Pixels of all images follow one another,
//! so that small images fill vectors, too.

mod kernel;
#[cfg(target_arch = "x86_64")]
mod pairs;
mod plan;
#[cfg(test)]
mod tests;

use std::ffi::c_void;
use std::sync::Arc;

use fuseplan_api::volume::Volume;
use fuseplan_api::{
    Accuracy, Algorithm, Constraint, DataType, Executable, ExecutableInfo, Op, Preference, Problem,
    RawStream, RunArgs, RunError,
};

use crate::activation::Simple;
use crate::arena::with_scratch;
#[cfg(target_arch = "x86_64")]
use crate::bf16;
use crate::constraint;
use crate::device::CpuDevice;
use crate::direct::prepared::{self, Owner};
use crate::direct::tile::Tile;
use crate::direct::{CONVOLUTION, Shared};
use crate::epilogue::{self, Epilogue, Steps};
use crate::pool::{Locked, Pool};
use crate::solver::{self, CpuSolver};
use kernel::{Finish, Functions, PackFilters, PackPixels};
use plan::Plan;

pub(crate) static POINTWISE: CpuSolver = CpuSolver {
    id: "cpu.pointwise.v1",
    algorithm: Algorithm::ImplicitGemm,
    constraints: &[
        CONVOLUTION,
        constraint::SIZE,
        constraint::DATA_TYPE,
        constraint::INFERENCE,
        epilogue::LENGTH,
        FILTER,
        constraint::STRIDES,
        PADS,
        POSITIONS,
    ],
    preferences: &[SIDE_BY_SIDE, PIXELS],
    any_layout: false,
    is_reference: false,
    accuracy: Accuracy::Exact,
    configurations: solver::one,
    load: |solver, problem, device, _| {
        let functions = Functions::of(device.isa(), problem.output.data_type());
        Arc::new(Convolution::new(solver, problem, device, functions))
    },
};

/// The same with factors of bf16, pairs of which an instruction multiplies.
#[cfg(target_arch = "x86_64")]
pub(crate) static POINTWISE_BF16: CpuSolver = CpuSolver {
    id: "cpu.pointwise_bf16.v1",
    constraints: &[
        CONVOLUTION,
        constraint::SIZE,
        bf16::BF16,
        constraint::INFERENCE,
        epilogue::LENGTH,
        bf16::VECTORS,
        FILTER,
        constraint::STRIDES,
        PADS,
        POSITIONS,
        PIXELS_SIDE_BY_SIDE,
    ],
    preferences: &[bf16::NO_MATRIX_UNIT, SIDE_BY_SIDE, FILLED],
    load: |solver, problem, device, _| {
        let floats = Functions::of(device.isa(), DataType::BFloat16);
        Arc::new(Convolution::new(solver, problem, device, pairs::functions(floats)))
    },
    ..POINTWISE
};

const FILTER: Constraint = Constraint {
    property: "filter",
    accepts: "1x1, in 3-D 1x1x1",
    check: |problem, _| {
        let (_, weights) = problem.conv()?;
        let taps = &weights.lens()[2..];
        let text = || taps.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
        taps.iter().any(|&taps| taps != 1).then(text)
    },
};

const PADS: Constraint = Constraint {
    property: "padding",
    accepts: "none",
    check: |problem, _| {
        let (conv, _) = problem.conv()?;
        let mut pads = conv.pads_before().iter().chain(conv.pads_after());
        pads.find(|&&pad| pad != 0).map(ToString::to_string)
    },
};

/// A line of pixels goes on through lines and planes.
const POSITIONS: Constraint = Constraint {
    property: "layout",
    accepts: "positions of an image evenly apart, in input, output and residuals",
    check: |problem, _| {
        let residuals = problem.ops.iter().filter_map(Op::residual);
        let mut all = [&problem.input, &problem.output].into_iter().chain(residuals);
        all.find(|tensor| Volume::of(tensor).position_stride().is_none()).map(ToString::to_string)
    },
};

/// Pairs of channels are joined vector by vector.
#[cfg(target_arch = "x86_64")]
const PIXELS_SIDE_BY_SIDE: Constraint = Constraint {
    property: "layout",
    accepts: "pixels side by side in the input",
    check: |problem, _| {
        let apart = Volume::of(&problem.input).position_stride() != Some(1);
        apart.then(|| problem.input.to_string())
    },
};

/// Elsewhere direct convolution reads channels in place.
const SIDE_BY_SIDE: Preference = Preference {
    property: "layout",
    prefers: "pixels side by side in input and output",
    check: |problem, _| {
        let apart = |volume: &Volume| volume.position_stride() != Some(1);
        let all = [Volume::of(&problem.input), Volume::of(&problem.output)];
        all.iter().any(apart).then(|| problem.input.to_string())
    },
};

/// Where pixels are few, the last of them leave much of a vector empty, and each filter's weights are read for few; small
/// images are copied in small parts. What direct convolution transposes is more than what it multiplies if most channels are the
/// input's, those of all groups: of 64 pixels and more that fill their vectors it then took 1.02 to 1.6 times as long with AVX-512. In
/// f32 that is about as long as 15 more filters take, or the lanes that are left of the last vector.
const PIXELS: Preference = Preference {
    property: "pixels",
    prefers: "at least 32 vectors, and 4 in an image; of an image 64, where there are twice as many input as output channels and \
              the last vector lacks less than 15 filters' work",
    check: |problem, device| {
        let (_, weights) = problem.conv()?;
        let (output, lanes) = (Volume::of(&problem.output), device.lanes as usize);
        let (pixels, filters) = (output.pixels(), weights.lens()[0]);
        let fills = lacks(pixels, lanes) * filters < pixels.saturating_mul(15);
        let narrows = output.plane() >= 64 && problem.input.lens()[1] >= 2 * filters && fills;
        let few = pixels < 32 * lanes || output.plane() < 4 * lanes;
        (few && !narrows).then(|| format!("{pixels} in {} images", output.lens[0]))
    },
};

/// Where output channels are in the lanes instead, pixels are transposed on the way in and out, which took 0.99 to 2.2 times as long
/// on one thread where these fill their vectors, in images of 4 pixels and more, 0.97 to 1.09 where they fill 0.94 to 0.96 of the
/// lanes, and 0.92 to 1.03 where they fill 0.89.
#[cfg(target_arch = "x86_64")]
const FILLED: Preference = Preference {
    property: "pixels",
    prefers: "at least 15 of 16 lanes of all vectors, and 4 in an image",
    check: |problem, device| {
        let (output, lanes) = (Volume::of(&problem.output), device.lanes as usize);
        let pixels = output.pixels();
        let fills = 15 * lacks(pixels, lanes) <= pixels;
        (!fills || output.plane() < 4).then(|| format!("{pixels} in {} images", output.lens[0]))
    },
};

/// How many lanes of the last vector have no pixel.
fn lacks(pixels: usize, lanes: usize) -> usize {
    pixels.next_multiple_of(lanes) - pixels
}

/// A convolution ready to run.
struct Convolution {
    info: ExecutableInfo,
    epilogue: Epilogue,
    plan: Plan,
    functions: Functions,
    pool: Arc<Pool>,
    owner: Owner,
}

impl std::fmt::Debug for Convolution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Convolution").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Convolution {
    fn new(solver: &CpuSolver, problem: &Problem, device: &CpuDevice, functions: Functions) -> Self {
        let (isa, pool) = (device.isa(), Arc::clone(device.pool()));
        let mut epilogue = Epilogue::new(problem, isa);
        epilogue.surfaces_mut().iter_mut().for_each(plan::as_line);
        let Functions { lanes, factors, .. } = functions;
        let plan = Plan::new(problem, lanes, factors, functions.rows(), pool.threads());
        let info = solver.info(format!(
            "{}, {} filters by {} pixels, {} blocks of {} pixels, {} parts, {} threads",
            isa.name(),
            plan.rows,
            2 * functions.lanes,
            plan.blocks,
            plan.block,
            plan.parts,
            pool.threads(),
        ));
        Convolution { info, epilogue, plan, functions, pool, owner: Owner::new() }
    }

    /// Packs all filters, each in a line of its own.
    ///
    /// # Safety
    /// `source` has the filters; `target` has room for `plan.weights` factors.
    unsafe fn pack_filters(
        &self,
        source: *const c_void,
        target: &mut [f32],
        locked: Locked,
    ) -> Result<(), RunError> {
        let (target, source) = (Shared(target.as_mut_ptr()), Shared(source.cast_mut()));
        let plan = &self.plan;
        let filters = plan.groups * plan.outputs;
        let parts = self.pool.threads().min(filters);
        let pack = |part: usize| {
            let filters = filters * part / parts..filters * (part + 1) / parts;
            let (source, target) = (source.get().cast_const(), target.get());
            // SAFETY: the functions are of an instruction set that the CPU has, and of the filters' type; the caller says
            // that the filters are readable, and that each has its line in the target, which is in one part.
            unsafe { (self.functions.pack_filters)(&PackFilters { plan, filters, source, target }) }
        };
        self.pool.for_each_locked(locked, parts, &pack)
    }

    /// # Safety
    /// As [`Executable::run`]; `weights` are copied.
    unsafe fn compute(&self, args: &RunArgs<'_>, weights: &[f32]) -> Result<(), RunError> {
        let plan = &self.plan;
        with_scratch(self.epilogue.table_len(), |tables| {
            // SAFETY: the caller says that the arguments keep what `RunArgs` promises; the tables live as long as the steps.
            let steps = unsafe { self.epilogue.bind(args.ops, tables) };
            let (input, output) = (Shared(args.input.cast_mut()), Shared(args.output));
            let items = plan.groups * plan.blocks * plan.parts;
            let len = plan.packed_len() + 2 * plan.sums_len();
            self.pool.for_each_with_scratch(Locked::No, items, len, &|scratch, items| {
                let (packed, scratch) = scratch.split_at_mut(plan.packed_len());
                let (sums, lines) = scratch.split_at_mut(plan.sums_len());
                let mut holds = None;
                for item in items {
                    let (block, part) = (item / plan.parts, item % plan.parts);
                    let (block, group) = (block / plan.groups, block % plan.groups);
                    if holds != Some((block, group)) {
                        let (source, target) = (input.get(), packed.as_mut_ptr());
                        let pixels = PackPixels { plan, block, group, source, target };
                        // SAFETY: the functions are of an instruction set that the CPU has, and of the input's type;
                        // the caller says that the input is the problem's; scratch has room for a block.
                        unsafe { (self.functions.pack_pixels)(&pixels) }
                        holds = Some((block, group));
                    }
                    let place = (block, group, part);
                    // SAFETY: as of the pixels; items have outputs of their own.
                    unsafe { self.part(&steps, place, packed, weights, sums, lines, output.get()) };
                }
            })
        })?
    }

    /// Multiplies a group's packed block of pixels by a part of the filters.
    ///
    /// # Safety
    /// The CPU has the instruction set; the output is the problem's, and nobody else touches this part of it; scratch has
    /// the plan's sizes.
    #[expect(clippy::too_many_arguments, reason = "scratch has three parts of its own")]
    unsafe fn part(
        &self,
        steps: &Steps<'_>,
        (block, group, part): (usize, usize, usize),
        packed: &[f32],
        weights: &[f32],
        sums: &mut [f32],
        lines: &mut [f32],
        output: *mut c_void,
    ) {
        let Convolution { plan, functions, .. } = self;
        let pixels = plan.pixels_of(block);
        for filters in plan.filters_of(part) {
            let first = group * plan.outputs + filters.start;
            for panel in plan.panels_of(&pixels) {
                let vectors = panel.len() / functions.lanes;
                let (x, w) =
                    (weights[first * plan.pitch..].as_ptr(), packed[panel.start * plan.depth..].as_ptr());
                #[cfg(target_arch = "x86_64")]
                if plan.factors == plan::Factors::Pairs {
                    let rows = bf16::RowsOfPairs {
                        first: x.cast(),
                        pitch: plan.pitch * size_of::<f32>(),
                        count: filters.len(),
                        pairs: plan.inputs.div_ceil(2),
                        vectors,
                        lanes: w.cast(),
                        sums: sums[panel.start..].as_mut_ptr(),
                        sums_pitch: plan.block,
                    };
                    // SAFETY: the CPU has the instructions, as the solver asks for them; filters and block have whole steps
                    // of pairs, and the sums a line for each filter.
                    unsafe { rows.multiply() };
                    continue;
                }
                let tile = Tile {
                    x,
                    w,
                    // The pixels are in the cache already.
                    ahead: w,
                    ahead_step: 0,
                    y: sums[panel.start..].as_mut_ptr(),
                    x_pixel: plan.pitch,
                    y_pixel: plan.block,
                    y_vector: functions.lanes,
                    taps: [1; 3],
                    x_tap: [0; 3],
                    w_tap: [0; 2],
                    depth: plan.inputs,
                    steps,
                    channel: 0,
                    residual: std::ptr::null(),
                    simple: Simple::Identity,
                    tail: functions.lanes,
                    goes_on: false,
                    // Lanes are pixels, and the epilogue is that of a line.
                    incomplete: true,
                };
                // SAFETY: the functions are of an instruction set that the CPU has; each of the filters has a line of
                // weights, the block its vectors of every channel, and the sums a line for each filter.
                unsafe { functions.tiles.get(false, vectors, filters.len())(&tile) };
            }
            let finish = Finish {
                plan,
                steps,
                sums: sums.as_mut_ptr(),
                lines: lines.as_mut_ptr(),
                pixels: pixels.clone(),
                channels: first..first + filters.len(),
                output,
            };
            // SAFETY: as of the tiles, whose sums are complete; the pixels lie in the output, of the functions' type.
            unsafe { (functions.finish)(&finish) }
        }
    }
}

impl Executable for Convolution {
    fn info(&self) -> &ExecutableInfo {
        &self.info
    }

    unsafe fn run(&self, _stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError> {
        let pack = |filters, target: &mut [f32], locked| {
            // SAFETY: `RunArgs` promises the problem's filters; `target` is as long as the plan says.
            unsafe { self.pack_filters(filters, target, locked) }
        };
        prepared::with_packed(args, self.owner, self.plan.weights, pack, |weights| {
            // SAFETY: the caller keeps what `RunArgs` promises for this problem.
            unsafe { self.compute(args, weights) }
        })
    }
}

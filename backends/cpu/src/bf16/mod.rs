//! Convolution by instructions that multiply bf16 and sum in f32, fused with everything behind it: those of the processor's
//! matrix unit (AMX), and of vectors (AVX512-BF16).
//!
//! Tensors of bf16 are these instructions' own. For the matrix unit, which is so much faster, values of the other types are sums
//! of two or three bf16 ([`split`]), and products of them sums of four or six. Either way an output is the sum of its own
//! products, with an error of the order of a sum of f32 products.
//!
//! A work item is a band of output lines of one image, or some small images, and one group. What it needs of the image is
//! packed ([`plan`], [`image`], [`pack`]), multiplied by a panel of 32 output channels after the other ([`product`]), and finished while
//! sums are in the first-level cache ([`work`], [`outputs`]).

mod choice;
mod dots;
mod finish;
mod image;
mod outputs;
mod pack;
mod plan;
mod product;
mod split;
#[cfg(test)]
mod tests;
mod tiles;
mod work;

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuseplan_api::{
    Accuracy, Algorithm, Configuration, Constraint, DataType, DeviceInfo, Executable, ExecutableInfo,
    Problem, RawStream, RunArgs, RunError,
};

use half::{bf16, f16};

use crate::arena::with_scratch;
use crate::constraint;
use crate::device::CpuDevice;
use crate::direct::geometry::{Geometry, Lines};
use crate::direct::input::{self, PackLineFn};
use crate::direct::output::{self, FinishFn};
use crate::direct::prepared::{self, Owner};
use crate::direct::weights::{self, PackWeights, PackWeightsFn};
use crate::direct::{CONVOLUTION, DIRECT, RESIDENT, Shared};
use crate::element::with_value_type;
use crate::epilogue::{self, Epilogue};
use crate::isa::{Avx512, Isa};
use crate::pool::{Items, Locked, Pool};
use crate::solver::{self, CpuSolver};
pub(crate) use choice::NO_MATRIX_UNIT;
use dots::Dots;
pub(crate) use dots::{RowsOfPairs, STEP};
use finish::{FinishPixels, Output, Sums};
use image::Soon;
use pack::{PackFilters, PackPixelsFn};
use plan::{Limits, Plan};
use product::{DEPTH, SIDE, Unit};
use split::Split;
pub(crate) use split::with_features;
use tiles::Tiles;
use work::{Scratch, Work};

pub(crate) static AMX: CpuSolver = CpuSolver {
    id: "cpu.amx.v1",
    algorithm: Algorithm::ImplicitGemm,
    constraints: &[
        CONVOLUTION,
        constraint::SIZE,
        constraint::DATA_TYPE,
        constraint::INFERENCE,
        epilogue::LENGTH,
        MATRIX_UNIT,
        PACKED_LINE,
    ],
    preferences: &[choice::LESS],
    any_layout: false,
    is_reference: false,
    accuracy: Accuracy::Exact,
    configurations: solver::one,
    load: |solver, problem, device, _| {
        Arc::new(Convolution::new(solver, problem, device, Unit::Matrix, Limits::USUAL))
    },
};

pub(crate) static AVX512_BF16: CpuSolver = CpuSolver {
    id: "cpu.avx512_bf16.v1",
    constraints: &[
        CONVOLUTION,
        constraint::SIZE,
        BF16,
        constraint::INFERENCE,
        epilogue::LENGTH,
        VECTORS,
        PACKED_LINE,
    ],
    preferences: &[choice::NO_MATRIX_UNIT, choice::LESS_BY_VECTORS],
    load: |solver, problem, device, _| {
        Arc::new(Convolution::new(solver, problem, device, Unit::Vector, Limits::USUAL))
    },
    ..AMX
};

const MATRIX_UNIT: Constraint = Constraint {
    property: "instructions",
    accepts: "AMX",
    check: |_, device| (!has_matrix_unit(device)).then(|| device.arch.clone()),
};

pub(crate) const VECTORS: Constraint = Constraint {
    property: "instructions",
    accepts: "AVX512-BF16",
    check: |_, device| {
        (!has_matrix_unit(device) && !device.arch.ends_with("+avx512-bf16")).then(|| device.arch.clone())
    },
};

/// Whether a device's threads have the matrix unit.
fn has_matrix_unit(device: &DeviceInfo) -> bool {
    device.arch.ends_with("+amx")
}

pub(crate) const BF16: Constraint = Constraint {
    property: "data type",
    accepts: "bf16",
    check: |problem, _| {
        let data_type = problem.output.data_type();
        (data_type != DataType::BFloat16).then(|| data_type.to_string())
    },
};

const PACKED_LINE: Constraint = Constraint {
    property: "packed input",
    accepts: "at most 8 MiB for 64 outputs of a line",
    check: |problem, _| {
        let mut epilogue = Epilogue::new(problem, Isa::Portable);
        let geometry = Geometry::new(problem, &mut epilogue, Lines::of(LINE));
        plan::too_large(&geometry, Split::of(problem.output.data_type()))
    },
};

/// Products of a tile whose instructions are done before memory brings the lines that it is written to.
const SHORT: usize = 4;

/// Pixels of the lines into which images are cut where a pixel need not know its neighbours.
const LINE: usize = 8 * SIDE;

/// The functions of an element type.
#[derive(Clone, Copy)]
struct Functions {
    /// Of the bf16 parts of pixels whose channels are neighbours, and of f32 that were brought together.
    pixels: PackPixelsFn,
    floats: PackPixelsFn,
    /// Direct convolution's, for AVX-512.
    pack_line: PackLineFn,
    pack_weights: PackWeightsFn,
    output: FinishFn,
    /// The front of the epilogue, to the output or back to the sums; of 16 bits also to an output whose pixels are neighbours.
    finish: unsafe fn(&FinishPixels<'_>),
    front: unsafe fn(&FinishPixels<'_>),
    /// What adds a residual to the sums behind the front, and writes the output.
    add: unsafe fn(&FinishPixels<'_>),
    planes: Option<unsafe fn(&FinishPixels<'_>)>,
    is_sum_of_parts: unsafe fn(*const c_void, usize, usize) -> bool,
}

impl Functions {
    fn of(data_type: DataType) -> Self {
        let (pixels, floats): (PackPixelsFn, PackPixelsFn) = match data_type {
            DataType::BFloat16 => (pack::pixels::<bf16, 1>, pack::pixels::<f32, 1>),
            DataType::Half => (pack::pixels::<f16, 2>, pack::pixels::<f32, 2>),
            DataType::Float | DataType::Double | DataType::Int8 => {
                (pack::pixels::<f32, 3>, pack::pixels::<f32, 3>)
            }
        };
        let planes: Option<unsafe fn(&FinishPixels<'_>)> = match data_type {
            DataType::BFloat16 => Some(finish::planes::<bf16>),
            DataType::Half => Some(finish::planes::<f16>),
            DataType::Float | DataType::Double | DataType::Int8 => None,
        };
        with_value_type!(data_type, T => Functions {
            planes,
            pixels,
            floats,
            pack_line: input::pack::<Avx512, T>,
            pack_weights: weights::pack::<Avx512, T>,
            output: output::finish::<Avx512, T>,
            finish: finish::finish::<Output<T>>,
            front: finish::finish::<Sums>,
            add: finish::add::<T>,
            is_sum_of_parts: split::is_sum_of_parts::<T>,
        })
    }
}

/// Products of bf16 for one of a type's, by the instructions of a set, if a solver computes the type by them.
pub(crate) fn products(isa: Isa, data_type: DataType) -> Option<usize> {
    let products = Split::of(data_type).products();
    match isa {
        Isa::Amx => Some(products),
        Isa::Avx512Bf16 if products == 1 => Some(products),
        _ => None,
    }
}

/// Does nothing but multiply, by the fastest instructions of a set; the operations on bf16 that were done.
///
/// # Safety
/// The CPU has the instructions, of `Isa::Avx512Bf16` at least.
pub(crate) unsafe fn multiply_registers(isa: Isa) -> f64 {
    const ROUNDS: usize = 1 << 10;
    // SAFETY: the caller says so.
    unsafe {
        if isa == Isa::Amx {
            Tiles::configure().multiply_registers(ROUNDS);
            (ROUNDS * 4 * 2 * SIDE * SIDE * DEPTH) as f64
        } else {
            Dots::assume().multiply_registers(8 * ROUNDS)
        }
    }
}

/// A convolution ready to run.
struct Convolution {
    info: ExecutableInfo,
    geometry: Geometry,
    epilogue: Epilogue,
    plan: Plan,
    unit: Unit,
    functions: Functions,
    /// Whether runs of pixels may go on over the end of a line.
    flat: bool,
    data_type: DataType,
    pool: Arc<Pool>,
    owner: Owner,
    /// What computes data that is no sum of parts, if there is such data.
    beyond: Option<Arc<dyn Executable>>,
}

impl std::fmt::Debug for Convolution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Convolution").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Convolution {
    fn new(solver: &CpuSolver, problem: &Problem, device: &CpuDevice, unit: Unit, limits: Limits) -> Self {
        let pool = Arc::clone(device.pool());
        let data_type = problem.output.data_type();
        let split = Split::of(data_type);
        let mut epilogue = Epilogue::new(problem, device.isa());
        let geometry = Geometry::new(problem, &mut epilogue, Lines::of(LINE));
        let plan = Plan::new(&geometry, split, unit, pool.threads(), limits);
        let info = solver.info(format!(
            "{}, {} products of bf16, {} batches of {} images, {} bands of {} lines{}, {} parts, {} threads",
            device.isa().name(),
            split.products(),
            plan.batches,
            plan.images,
            plan.bands,
            plan.band,
            if plan.spans > 1 { format!(" in {} spans", plan.spans) } else { String::new() },
            plan.parts,
            pool.threads(),
        ));
        let flat = epilogue.is_flat() && plan.spans == 1 && plan.columns == plan.span;
        let beyond =
            split.has_limits().then(|| (DIRECT.load)(&DIRECT, problem, device, &Configuration::default()));
        let (functions, owner) = (Functions::of(data_type), Owner::new());
        Convolution { info, geometry, epilogue, plan, unit, functions, flat, data_type, pool, owner, beyond }
    }

    /// Floats of the packed filters, and of what is said of them behind.
    fn filters_len(&self) -> usize {
        self.plan.filters / 2 + SIDE
    }

    /// Packs all filters, and says behind them whether they are sums of their parts.
    ///
    /// # Safety
    /// `source` has the filters; `target` has [`Convolution::filters_len`] floats.
    unsafe fn pack_filters(
        &self,
        source: *const c_void,
        target: &mut [f32],
        locked: Locked,
    ) -> Result<(), RunError> {
        let (Geometry { filters, inputs, .. }, plan) = (&self.geometry, &self.plan);
        let (target, flag) = target.split_at_mut(plan.filters / 2);
        let (source, target) = (Shared(source.cast_mut()), Shared(target.as_mut_ptr().cast::<u16>()));
        let complete = AtomicBool::new(true);
        let products = filters.tap_count() * inputs;
        let largest = plan.panels.iter().map(|panel| panel.vectors).max().unwrap_or(0);
        let pack = |floats: &mut [f32], indices: Items<'_>| {
            for index in indices {
                let panel = plan.panels[index];
                let (source, channels) = (source.get().cast_const(), 0..*inputs);
                let together = PackWeights { filters, channels, panel, source, target: floats.as_mut_ptr() };
                let merged = if plan.merges { filters.taps[2] } else { 1 };
                let tiles = PackFilters {
                    split: plan.split,
                    taps: filters.tap_count() / merged,
                    channels: inputs * merged,
                    vectors: panel.vectors,
                    source: floats.as_ptr(),
                    target: target.get().wrapping_add(panel.offset),
                };
                // SAFETY: the CPU has the instructions, as the solver asks for them; the functions are of the filters' type,
                // and the caller says that these are readable. Panels have tiles of their own in the target.
                unsafe {
                    (self.functions.pack_weights)(&together);
                    if !pack::filters(&tiles) {
                        complete.store(false, Ordering::Relaxed);
                    }
                }
            }
        };
        let len = products * largest * SIDE;
        self.pool.for_each_with_scratch(locked, plan.panels.len(), len, &pack)?;
        flag[0] = if complete.into_inner() { 1.0 } else { 0.0 };
        Ok(())
    }

    /// Whether all elements of the image are sums of their parts.
    ///
    /// # Safety
    /// `input` has the problem's.
    unsafe fn is_sum_of_parts(&self, input: *const c_void) -> Result<bool, RunError> {
        let volume = &self.geometry.input;
        let [images, channels, depth, height, width] = volume.lens;
        let [image, channel, slice, line, column] = volume.strides;
        let input = Shared(input.cast_mut());
        let complete = AtomicBool::new(true);
        let check = |at: usize, stride: usize, len: usize| {
            let from = input.get().wrapping_byte_add(at * self.data_type.size());
            // SAFETY: the CPU has the instructions, as the solver asks for them; the caller says that these elements are
            // the input's.
            if !unsafe { (self.functions.is_sum_of_parts)(from, stride, len) } {
                complete.store(false, Ordering::Relaxed);
            }
        };
        self.pool.for_each(images * depth * height, &|index| {
            let (at, l) = (index / height, index % height);
            let at = at / depth * image + at % depth * slice + l * line;
            let width = if l + 1 == height { self.geometry.input_width(l) } else { width };
            if channel == 1 && column == channels {
                check(at, 1, width * channels);
            } else if channel == 1 {
                (0..width).for_each(|w| check(at + w * column, 1, channels));
            } else {
                (0..channels).for_each(|c| check(at + c * channel, column, width));
            }
        })?;
        Ok(complete.into_inner())
    }

    /// Whether the image was the sum of its parts; where it was not, the outputs are not the convolution's.
    ///
    /// # Safety
    /// As [`Executable::run`]; `filters` are packed.
    unsafe fn compute(&self, args: &RunArgs<'_>, filters: &[f32]) -> Result<bool, RunError> {
        let (g, plan) = (&self.geometry, &self.plan);
        let packed = plan.packed_len().div_ceil(2);
        let line = plan.line_len(g);
        with_scratch(self.epilogue.table_len(), |tables| {
            // SAFETY: the caller says that the arguments keep what `RunArgs` promises; the tables live as long as the steps.
            let steps = unsafe { self.epilogue.bind(args.ops, tables) };
            let ending = steps.ending_in_registers();
            let output = self.epilogue.output().lens[1..].iter().product::<usize>() * self.data_type.size();
            let adds = ending.is_some_and(|ending| !ending.residual.is_null());
            let taps = g.filters.taps[0] * plan.taps.len();
            let products = plan.split.products() * taps * plan.depth / DEPTH;
            let work = Work {
                conv: self,
                steps,
                ending,
                asks: self.unit == Unit::Matrix && !adds && products > SHORT && output > 2 * RESIDENT,
                input: args.input,
                output: args.output,
                filters: filters.as_ptr().cast(),
                complete: AtomicBool::new(true),
            };
            let len = packed + line + plan.sums_len() + output::SCRATCH;
            self.pool.for_each_with_scratch(Locked::No, plan.items(g), len, &|scratch, items| {
                let (packed, scratch) = scratch.split_at_mut(packed);
                let (line, scratch) = scratch.split_at_mut(line);
                let (sums, finish) = scratch.split_at_mut(plan.sums_len());
                let packed = packed.as_mut_ptr().cast();
                let mut scratch = Scratch { packed, holds: None, soon: Soon::default(), line, sums, finish };
                // SAFETY: the CPU has the instructions, as the solver asks for them.
                let unit = unsafe { self.unit.start() };
                for item in items {
                    // SAFETY: the CPU has the instructions, and the caller says that the tensors are the problem's.
                    // Items have outputs of their own, and scratch has the plan's sizes.
                    unsafe { work.item(item, &unit, &mut scratch) };
                }
            })?;
            Ok(work.complete.into_inner())
        })?
    }
}

impl Executable for Convolution {
    fn info(&self) -> &ExecutableInfo {
        &self.info
    }

    unsafe fn run(&self, stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError> {
        let pack = |weights, packed: &mut [f32], locked| {
            // SAFETY: `RunArgs` promises the problem's filters; `packed` is as long as they ask for.
            unsafe { self.pack_filters(weights, packed, locked) }
        };
        prepared::with_packed(args, self.owner, self.filters_len(), pack, |filters| {
            // An output that is added to cannot be computed anew.
            let is_added_to = args.ops.last().is_some_and(|last| last.beta != 0.0);
            // SAFETY: the caller keeps what `RunArgs` promises for this problem.
            unsafe {
                let computed = match &self.beyond {
                    Some(_) if filters[self.plan.filters / 2] == 0.0 => false,
                    Some(_) if is_added_to && !self.is_sum_of_parts(args.input)? => false,
                    _ => self.compute(args, filters)?,
                };
                match &self.beyond {
                    Some(beyond) if !computed => beyond.run(stream, args),
                    _ => Ok(()),
                }
            }
        })
    }
}

//! Depthwise convolution with pixels in the lanes: where an image's pixels, not its channels, lie side by side.
//!
//! A work item is a band of lines of a few input channels. They are copied to the cache with their padding, widened to f32; where
//! the filter goes in strides, the columns of each phase of the stride lie side by side there. So every tap is a load of
//! neighbours, and a tile is a vector of columns in a few lines. Sums are finished in runs of pixels.

mod kernel;
#[cfg(test)]
mod tests;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use fuseplan_api::operands::ConvForward;
use fuseplan_api::volume::{Volume, spatial};
use fuseplan_api::{
    Accuracy, Algorithm, Constraint, DataType, Executable, ExecutableInfo, Preference, Problem, RawStream,
    RunArgs, RunError,
};

use crate::arena::with_scratch;
use crate::constraint;
use crate::device::CpuDevice;
use crate::direct::{CONVOLUTION, Shared};
use crate::element::with_value_type;
use crate::epilogue::{self, Epilogue, Steps};
use crate::pool::{Locked, Pool};
use crate::solver::{self, CpuSolver};
use kernel::{Band, BandFn, Collect};

pub(crate) static DEPTHWISE_PLANES: CpuSolver = CpuSolver {
    id: "cpu.depthwise_planes.v1",
    algorithm: Algorithm::Direct,
    constraints: &[
        CONVOLUTION,
        constraint::DATA_TYPE,
        constraint::INFERENCE,
        epilogue::LENGTH,
        ONE_CHANNEL,
        DIMENSIONS,
        REACH,
    ],
    preferences: &[GROUPS, SIDE_BY_SIDE, WIDTH],
    is_reference: false,
    accuracy: Accuracy::Exact,
    configurations: solver::one,
    load: |solver, problem, device, _| Arc::new(Convolution::new(solver, problem, device)),
};

const ONE_CHANNEL: Constraint = Constraint {
    property: "channels per group",
    accepts: "one input",
    check: |problem, _| {
        let (_, weights) = problem.conv()?;
        (weights.lens()[1] != 1).then(|| format!("{} inputs", weights.lens()[1]))
    },
};

const DIMENSIONS: Constraint = Constraint {
    property: "dimensions",
    accepts: "two",
    check: |problem, _| (problem.input.rank() != 4).then(|| (problem.input.rank() - 2).to_string()),
};

/// A work item has no fewer lines than a tile, and a copy of all that they need.
const REACH: Constraint = Constraint {
    property: "input of 8 lines",
    accepts: "at most 262144 values with the padding",
    check: |problem, device| {
        let (conv, weights) = problem.conv()?;
        let (&[_, _, lines, width], &[_, _, rows, columns]) = (problem.output.lens(), weights.lens()) else {
            return None;
        };
        let (&[stride, step], &[dilation, apart]) = (conv.strides(), conv.dilations()) else { return None };
        let line = width.saturating_add((columns - 1).saturating_mul(apart) / step);
        let line = line.saturating_add(2 * device.lanes as usize).saturating_mul(step);
        let values = input_lines(lines.min(kernel::LINES), stride, rows, dilation).saturating_mul(line);
        (values > 256 * 1024).then(|| values.to_string())
    },
};

/// One group is a convolution like any other.
const GROUPS: Preference = Preference {
    property: "groups",
    prefers: "two or more",
    check: |problem, _| {
        let (conv, _) = problem.conv()?;
        (conv.groups() == 1).then(|| "1".into())
    },
};

/// Elsewhere channels fill the lanes without a copy.
const SIDE_BY_SIDE: Preference = Preference {
    property: "layout",
    prefers: "columns side by side in input and output",
    check: |problem, _| {
        let strides = [&problem.input, &problem.output].map(|tensor| tensor.strides()[3]);
        (strides != [1, 1]).then(|| format!("column strides {} and {}", strides[0], strides[1]))
    },
};

/// Lines are copied, and tiles computed, in whole vectors.
const WIDTH: Preference = Preference {
    property: "width",
    prefers: "lines of the output of at least one and a half vectors",
    check: |problem, device| {
        let width = problem.output.lens()[3];
        (2 * width < 3 * device.lanes as usize).then(|| width.to_string())
    },
};

/// Floats of a work item's input: it should stay in the first-level cache.
const INPUT: usize = 5 * 1024;

/// Input channels of the largest work item.
const CHANNELS: usize = 8;

/// Pixels whose sums are finished at a time.
const RUN: usize = 1024;

/// How the work is cut, and where a band's input lies in scratch. Distances there are in floats.
#[derive(Debug)]
struct Plan {
    input: Volume,
    output: Volume,
    /// Filters of an input channel.
    multiplier: usize,
    /// Strides of the filters' output channels, lines and columns; how many lines and columns they have.
    filters: [usize; 3],
    taps: [usize; 2],
    pads: [usize; 2],
    strides: [usize; 2],
    dilations: [usize; 2],
    /// Lines of a band, and how many bands an image has; input channels of a work item, and how many such blocks there are.
    band: usize,
    bands: usize,
    block: usize,
    blocks: usize,
    /// From one line of the input to the next, and from the lines of one phase of the stride to the next one's.
    line: usize,
    phase: usize,
    /// Where each tap of an output is, from its first one on.
    offsets: Vec<usize>,
    /// Pixels of a run.
    run: usize,
}

impl Plan {
    fn new(problem: &Problem, epilogue: &Epilogue, lanes: usize, threads: usize) -> Self {
        let Some((conv, filters)) = problem.conv() else { unreachable!("a solver accepted no convolution") };
        let filters = Volume::of(filters);
        let (input, output) = (Volume::with_all_strides(&problem.input), *epilogue.output());
        let last = |of: [usize; 3]| [of[1], of[2]];
        let strides = last(spatial(conv.strides(), 1));
        let dilations = last(spatial(conv.dilations(), 1));
        let [_, _, _, taps @ ..] = filters.lens;
        let [_, _, _, lines, width] = output.lens;
        // Vectors go beyond the last column.
        let reach = (taps[1] - 1) * dilations[1] / strides[1];
        let line = (width.next_multiple_of(lanes) + reach).next_multiple_of(lanes);
        let most = (INPUT / (line * strides[1])).saturating_sub((taps[0] - 1) * dilations[0]) / strides[0];
        let bands = lines.div_ceil(most.max(kernel::LINES));
        let planes = input.lens[0] * input.lens[1];
        let bands = if threads == 1 { bands } else { bands.max((4 * threads).div_ceil(planes)).min(lines) };
        let band = lines.div_ceil(bands);
        let phase = input_lines(band, strides[0], taps[0], dilations[0]) * line;
        let block = (INPUT / (phase * strides[1])).clamp(1, CHANNELS).min(input.lens[1]);
        let block = block.min((planes * bands).div_ceil(4 * threads));
        let offset = |tap: usize| {
            let (i, j) = (tap / taps[1] * dilations[0], tap % taps[1] * dilations[1]);
            i * line + j % strides[1] * phase + j / strides[1]
        };
        Plan {
            input,
            output,
            multiplier: filters.lens[0] / conv.groups(),
            filters: [filters.strides[0], filters.strides[3], filters.strides[4]],
            taps,
            pads: last(spatial(conv.pads_before(), 0)),
            strides,
            dilations,
            band,
            bands: lines.div_ceil(band),
            block,
            blocks: input.lens[1].div_ceil(block),
            line,
            phase,
            offsets: (0..taps[0] * taps[1]).map(offset).collect(),
            run: if epilogue.is_flat() { RUN } else { width },
        }
    }

    /// Input lines, counted with the padding, that a number of output lines needs.
    fn lines(&self, outputs: usize) -> usize {
        input_lines(outputs, self.strides[0], self.taps[0], self.dilations[0])
    }

    /// Floats of an input channel.
    fn plane(&self) -> usize {
        self.phase * self.strides[1]
    }

    /// Floats of scratch for the input and the sums of a work item, each with a vector behind it, a run of sums, and filters.
    fn scratch(&self, lanes: usize) -> [usize; 4] {
        [
            self.block * self.plane() + lanes,
            self.block * self.band * self.output.lens[4] + lanes,
            self.run.next_multiple_of(lanes),
            self.block * self.offsets.len(),
        ]
    }
}

/// Input lines that a number of output lines needs.
fn input_lines(outputs: usize, stride: usize, taps: usize, dilation: usize) -> usize {
    (outputs - 1).saturating_mul(stride).saturating_add((taps - 1).saturating_mul(dilation)).saturating_add(1)
}

/// A convolution ready to run.
struct Convolution {
    info: ExecutableInfo,
    epilogue: Epilogue,
    plan: Plan,
    band: BandFn,
    lanes: usize,
    /// Whether the tensors are f32.
    is_float: bool,
    pool: Arc<Pool>,
}

impl std::fmt::Debug for Convolution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Convolution").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Convolution {
    fn new(solver: &CpuSolver, problem: &Problem, device: &CpuDevice) -> Self {
        let (isa, pool) = (device.isa(), Arc::clone(device.pool()));
        let (band, lanes) =
            with_value_type!(problem.output.data_type(), T => isa.run(Collect::<T>(PhantomData)));
        let epilogue = Epilogue::new(problem, isa);
        let plan = Plan::new(problem, &epilogue, lanes, pool.threads());
        let info = solver.info(format!(
            "{}, tiles of {}x{lanes} pixels, {} bands of {} lines, {} threads",
            isa.name(),
            kernel::LINES,
            plan.bands,
            plan.band,
            pool.threads(),
        ));
        let is_float = problem.output.data_type() == DataType::Float;
        Convolution { info, epilogue, plan, band, lanes, is_float, pool }
    }

    /// Computes a band of some input channels, with all their filters.
    ///
    /// # Safety
    /// As [`Executable::run`]; nobody else touches these lines of the output; scratch has the plan's sizes.
    unsafe fn item(
        &self,
        item: usize,
        steps: &Steps<'_>,
        tensors: (*const c_void, *const c_void, *mut c_void),
        scratch: &mut [f32],
    ) {
        let plan = &self.plan;
        let [input, sums, run, _] = plan.scratch(self.lanes);
        let (input, scratch) = scratch.split_at_mut(input);
        let (sums, scratch) = scratch.split_at_mut(sums);
        let (run, filters) = scratch.split_at_mut(run);
        let (band, item) = (item % plan.bands, item / plan.bands);
        let (first, image) = (item % plan.blocks * plan.block, item / plan.blocks);
        let lines: Range<usize> = band * plan.band..((band + 1) * plan.band).min(plan.output.lens[3]);
        let band = Band {
            plan,
            steps,
            image,
            channels: first..(first + plan.block).min(plan.input.lens[1]),
            lines,
            source: tensors.0,
            filters: tensors.1,
            output: tensors.2,
            input: input.as_mut_ptr(),
            sums: sums.as_mut_ptr(),
            run: run.as_mut_ptr(),
            filters_f32: filters.as_mut_ptr(),
            in_registers: self.is_float
                && steps.end_in_registers()
                && plan.output.strides[4] == 1
                && plan.output.lens[4] >= self.lanes,
        };
        // SAFETY: the function is of an instruction set that the CPU has, and of the tensors' type; the caller answers for
        // the tensors, and the parts of scratch are as long as the plan says.
        unsafe { (self.band)(&band) }
    }
}

impl Executable for Convolution {
    fn info(&self) -> &ExecutableInfo {
        &self.info
    }

    unsafe fn run(&self, _stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError> {
        let plan = &self.plan;
        let filters = Shared(ConvForward::of(&args.ops[0]).weights.cast_mut());
        let (input, output) = (Shared(args.input.cast_mut()), Shared(args.output));
        with_scratch(self.epilogue.table_len(), |tables| {
            // SAFETY: the caller says that the arguments keep what `RunArgs` promises; the tables live as long as the steps.
            let steps = unsafe { self.epilogue.bind(args.ops, tables) };
            let items = plan.input.lens[0] * plan.blocks * plan.bands;
            let len = plan.scratch(self.lanes).iter().sum();
            self.pool.for_each_with_scratch(Locked::No, items, len, &|scratch, items| {
                for item in items {
                    let tensors = (input.get().cast_const(), filters.get().cast_const(), output.get());
                    // SAFETY: the caller keeps what `RunArgs` promises; items have lines of their own.
                    unsafe { self.item(item, &steps, tensors, scratch) };
                }
            })
        })?
    }
}

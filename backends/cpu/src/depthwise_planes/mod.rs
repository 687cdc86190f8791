//! Depthwise convolution of tensors whose columns are side by side, with columns in the lanes.
//!
//! Two vectors of columns go down a channel's plane, or one each down those of two channels, line of the input by line, read
//! where it is: lanes in the padding are masked. A line has a part in as many outputs as the filter has lines, or half as many in
//! strides of 2, whose sums stay in registers while the next lines come. So a line is loaded once for each of the filter's columns,
//! in strides of 2 one and a half times, and no copy of it is made.

#[cfg(test)]
mod tests;
mod walk;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;

use fuseplan_api::volume::{Volume, spatial};
use fuseplan_api::{
    Accuracy, Algorithm, Constraint, Executable, ExecutableInfo, Preference, Problem, RawStream, RunArgs,
    RunError,
};

use crate::arena::with_scratch;
use crate::constraint;
use crate::device::{CpuDevice, isa_of};
use crate::direct::prepared::{self, Owner};
use crate::direct::weights::Filters;
use crate::direct::{CONVOLUTION, ONE_CHANNEL, Shared};
use crate::element::with_value_type;
use crate::epilogue::{self, Epilogue, Steps};
use crate::pool::{Locked, Pool, mirrored};
use crate::solver::{self, CpuSolver};
use walk::{Band, Collect, Functions, PlaneFn};

pub(crate) static DEPTHWISE_PLANES: CpuSolver = CpuSolver {
    id: "cpu.depthwise_planes.v2",
    algorithm: Algorithm::Direct,
    constraints: &[
        CONVOLUTION,
        constraint::SIZE,
        constraint::DATA_TYPE,
        constraint::INFERENCE,
        epilogue::LENGTH,
        ONE_CHANNEL,
        FILTER,
        constraint::DILATIONS,
        COLUMNS_INNERMOST,
        INSTRUCTIONS,
    ],
    preferences: &[WIDTH],
    any_layout: false,
    is_reference: false,
    accuracy: Accuracy::Exact,
    configurations: solver::one,
    load: |solver, problem, device, _| Arc::new(Convolution::new(solver, problem, device)),
};

const FILTER: Constraint = Constraint {
    property: "filter",
    accepts: "3x3 and 5x5 in two dimensions in strides of 1 or 2, the same in both, and 7x7 in strides of 1",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let (taps, strides) = (&weights.lens()[2..], conv.strides());
        let is_taken = matches!((taps, strides), (&[taps, b], &[stride, d])
            if taps == b && stride == d && walk::FILTERS.contains(&[taps, stride]));
        (!is_taken).then(|| {
            let text = |of: &[usize]| of.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
            format!("{} in strides of {}", text(taps), text(strides))
        })
    },
};

const COLUMNS_INNERMOST: Constraint = Constraint {
    property: "layout",
    accepts: "columns side by side in input and output",
    check: |problem, _| {
        let volumes = [&problem.input, &problem.output].map(Volume::with_all_strides);
        let strides = volumes.map(|volume| volume.strides[4]);
        (strides != [1, 1]).then(|| format!("column strides {} and {}", strides[0], strides[1]))
    },
};

const INSTRUCTIONS: Constraint = Constraint {
    property: "instructions",
    accepts: "loads of some lanes of a vector: AVX-512, in f32 AVX2 too",
    check: |problem, device| {
        let size = problem.output.data_type().size();
        let takes = isa_of(&device.arch).is_ok_and(|isa| isa.loads_lanes(size));
        (!takes).then(|| format!("{} of {}", device.arch, problem.output.data_type()))
    },
};

/// A vector of short lines is mostly padding: with 49 taps direct convolution, which fills it with channels of other groups, is faster. AVX2
/// has no registers for the sums and the weights of 3x3: for long lines `cpu.planes.v1` is.
const WIDTH: Preference = Preference {
    property: "width",
    prefers: "with filters of 7x7 at least 8; with 3x3 in strides of 1, by vectors of 8 lanes, at most 56",
    check: |problem, device| {
        let (conv, weights) = problem.conv()?;
        let (taps, stride) = (weights.lens()[2], conv.strides()[0]);
        let width = Volume::of(&problem.output).lens[4];
        let (is_short, is_long) = (taps == 7 && width < 8, [taps, stride] == [3, 1] && width > 56);
        (is_short || is_long && device.lanes <= 8).then(|| width.to_string())
    },
};

/// Bytes of the input lines that a work item has, about: the columns of a line that the first vectors leave should stay in a cache.
const BAND: usize = 64 * 1024;

/// Bytes of an image's input and output beyond which they come from memory: no core asks by itself for columns of lines, which lie
/// apart.
const FAR: usize = 8 << 20;

/// Lines of a work item at the least, unless there are too few for all threads: each reads the lines of the filter's reach once more.
const LINES: usize = 16;

/// Outputs of the channels that a work item has, about.
const OUTPUTS: usize = 2 * 1024;

/// How the work is cut, and where everything lies.
#[derive(Debug)]
struct Plan {
    input: Volume,
    output: Volume,
    filters: Filters,
    /// Padding above and to the left.
    pads: [usize; 2],
    channels: usize,
    /// Lines of a work item, and how many such bands an image has; channels of a work item, and how many such blocks there are.
    band: usize,
    bands: usize,
    block: usize,
    blocks: usize,
    /// Whether a thread asks for its next band ahead.
    is_far: bool,
}

impl Plan {
    fn new(problem: &Problem, output: Volume, threads: usize) -> Self {
        let Some((conv, weights)) = problem.conv() else { unreachable!("a solver accepted no convolution") };
        let weights = Volume::of(weights);
        let [_, above, left] = spatial(conv.pads_before(), 0);
        let [_, stride, _] = spatial(conv.strides(), 1);
        let input = Volume::with_all_strides(&problem.input);
        let [images, channels, _, lines, width] = output.lens;
        // A few items for each thread, so that a late one does not hold up the rest.
        let dealt = if threads == 1 { 1 } else { (4 * threads).div_ceil(images * channels) };
        let size = problem.input.data_type().size();
        let line = input.lens[4] * size * stride;
        let most = (BAND / line.max(1)).max(LINES);
        let bands = lines.div_ceil(most).max(dealt).min(lines);
        let bytes = (lines * width + input.lens[3] * input.lens[4]) * channels * size;
        let band = lines.div_ceil(bands);
        let is_far = bands > 1 && bytes > FAR;
        // Two channels share the vectors of short lines, and of the end of others.
        let least = if is_far { 1 } else { 2 };
        let block = (OUTPUTS / (band * width)).max(least).min(channels);
        let block =
            if threads == 1 { block } else { block.min((images * channels * bands).div_ceil(4 * threads)) };
        Plan {
            input,
            output,
            filters: Filters { taps: [1, weights.lens[3], weights.lens[4]], strides: weights.strides },
            pads: [above, left],
            channels,
            band,
            bands: lines.div_ceil(band),
            block,
            blocks: channels.div_ceil(block),
            is_far,
        }
    }

    /// Floats of a channel's packed weights.
    fn taps(&self) -> usize {
        self.filters.tap_count()
    }

    /// Work items.
    fn items(&self) -> usize {
        self.output.lens[0] * self.blocks * self.bands
    }

    /// Floats of a band's sums of a channel.
    fn sums(&self) -> usize {
        self.band * self.output.lens[4]
    }

    /// Floats of a work item's sums that wait, and of a run that is finished: none where steps end in registers.
    fn scratch(&self, steps: &Steps<'_>) -> [usize; 2] {
        if steps.end_in_registers() { [0; 2] } else { [self.block * self.sums(), walk::RUN] }
    }
}

/// A convolution ready to run.
struct Convolution {
    info: ExecutableInfo,
    epilogue: Epilogue,
    plan: Plan,
    functions: Functions,
    plane: PlaneFn,
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
        let Some((conv, _)) = problem.conv() else { unreachable!("a solver accepted no convolution") };
        let (data_type, width) = (problem.output.data_type(), Volume::of(&problem.output).lens[4]);
        let narrow = device.isa().of_width(width);
        let isa = if narrow.loads_lanes(data_type.size()) { narrow } else { device.isa() };
        let pool = Arc::clone(device.pool());
        let functions: Functions = with_value_type!(data_type, T => isa.run(Collect::<T>(PhantomData)));
        let epilogue = Epilogue::new(problem, isa);
        let plan = Plan::new(problem, *epilogue.output(), pool.threads());
        let Some(plane) = functions.plane(plan.filters.taps[2], conv.strides()[1]) else {
            unreachable!("a solver accepted other instructions")
        };
        let info = solver.info(format!(
            "{}, {} bands of {} lines, {} channels at a time, {} threads",
            isa.name(),
            plan.bands,
            plan.band,
            plan.block,
            pool.threads(),
        ));
        Convolution { info, epilogue, plan, functions, plane, pool, owner: Owner::new() }
    }

    /// Computes a band of some channels.
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
        let (band, item) = (item % plan.bands, item / plan.bands);
        let (block, image) = (item % plan.blocks, item / plan.blocks);
        let lines = band * plan.band..((band + 1) * plan.band).min(plan.output.lens[3]);
        let [sums, _] = plan.scratch(steps);
        let (sums, run) = scratch.split_at_mut(sums);
        let band = Band {
            plan,
            steps,
            image,
            channels: block * plan.block..((block + 1) * plan.block).min(plan.channels),
            lines,
            input: source,
            weights,
            output,
            sums: sums.as_mut_ptr(),
            run: run.as_mut_ptr(),
        };
        // SAFETY: the function is of an instruction set that the CPU has, and of the tensors' type, filter and stride; the caller
        // answers for the tensors, and the parts of scratch are as long as the plan says.
        unsafe { (self.plane)(&band) }
    }

    /// # Safety
    /// As [`Executable::run`]; `weights` are packed.
    unsafe fn compute(&self, args: &RunArgs<'_>, weights: &[f32]) -> Result<(), RunError> {
        let (input, output) = (Shared(args.input.cast_mut()), Shared(args.output));
        with_scratch(self.epilogue.table_len(), |tables| {
            // SAFETY: the caller says that the arguments keep what `RunArgs` promises; the tables live as long as the steps.
            let steps = unsafe { self.epilogue.bind(args.ops, tables) };
            let (count, len) = (self.plan.items(), self.plan.scratch(&steps).iter().sum());
            self.pool.for_each_with_scratch(Locked::No, count, len, &|scratch, items| {
                for item in items {
                    // From the last to the first: what the layer in front of this one wrote last is still in its thread's cache.
                    let item = mirrored(item, count, self.pool.threads());
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
        let pack = |weights, packed: &mut [f32], _| {
            // SAFETY: `RunArgs` promises the problem's filters; `packed` is as long as those of all channels.
            unsafe { (self.functions.pack)(&self.plan.filters, weights, packed) }
            Ok(())
        };
        let len = self.plan.channels * self.plan.taps();
        prepared::with_packed(args, self.owner, len, pack, |packed| {
            // SAFETY: the caller keeps what `RunArgs` promises for this problem.
            unsafe { self.compute(args, packed) }
        })
    }
}

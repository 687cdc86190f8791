//! The operators behind a convolution, applied in their declared order while their operand is still in registers or in
//! the first-level cache.
//!
//! What is known before run time is an [`Epilogue`]. An execution [binds](Epilogue::bind) its arguments to it, which
//! folds neighbouring operators with one value a channel (`bind.rs`, by the rules of `channels.rs`), and gets [`Steps`]
//! (`apply.rs`). Their front, one folded step and one [simple](crate::activation::Simple) activation or PReLU, is
//! made for registers. What remains behind it is for rows in scratch memory. Kernels with pixels in the lanes leave all of it, and
//! the way to the output, to `lines.rs`.

mod apply;
mod bind;
mod lines;

use std::ops::Range;

use fuseplan_api::volume::Volume;
use fuseplan_api::{ActivationMode, BatchNormMode, Constraint, DataType, Op, Problem};

use crate::channels::{LISTS, TABLES};
use crate::isa::{Isa, MAX_LANES};

pub(crate) use apply::{AHEAD, ChannelStep, Ending, FoldVectorsFn, Lanes, Rows, Steps, fold_vectors};
pub(crate) use lines::{ChannelLines, Lines};

/// The most operators behind the convolution.
const MAX_OPS: usize = 16;

/// The most steps of an execution: one for each operator, a folded one between each two, one in front of all, and the
/// output's previous contents.
const MAX_STEPS: usize = 2 * MAX_OPS + 2;

/// Solvers that use [`Epilogue`] have this constraint.
pub(crate) const LENGTH: Constraint = Constraint {
    property: "number of operators",
    accepts: "at most 16 behind the convolution",
    check: |problem, _| {
        let count = problem.epilogue().len();
        (count > MAX_OPS).then(|| count.to_string())
    },
};

/// What is known of the operators before run time.
#[derive(Debug)]
pub(crate) struct Epilogue {
    ops: Vec<Kind>,
    /// Index of the first operator's arguments.
    first: usize,
    channels: usize,
    data_type: DataType,
    /// The output, then every operand that has one value an element.
    surfaces: Vec<Volume>,
    /// The instructions that parameters are folded with.
    isa: Isa,
}

/// An operator, with what is known of its operands.
#[derive(Debug)]
enum Kind {
    /// A bias with one value a channel, `stride` elements apart.
    Bias { data_type: DataType, stride: usize },
    /// A PReLU with one slope a channel, `stride` elements apart, or one for all, with a stride of 0.
    PRelu { data_type: DataType, stride: usize },
    /// A bias with one value an element.
    Residual { surface: usize },
    /// A batch-norm with parameters of this type for each channel.
    Spatial(DataType),
    /// A batch-norm with parameters for each element of an image.
    PerActivation { data_type: DataType, surface: usize },
    /// An activation.
    Activation(ActivationMode),
}

/// Channels beyond the last that tables of per-channel values have room for.
pub(crate) const TABLE_SLACK: usize = 4 * MAX_LANES;

impl Epilogue {
    /// The operators behind `problem`'s convolution, for kernels with the instructions of `isa`.
    pub(crate) fn new(problem: &Problem, isa: Isa) -> Self {
        let output = Volume::with_all_strides(&problem.output);
        let mut surfaces = vec![output];
        let mut add = |surface: Volume| {
            surfaces.push(surface);
            surfaces.len() - 1
        };
        let ops = problem.epilogue().iter().map(|op| match op {
            Op::BiasForward { bias } if op.is_residual() => {
                Kind::Residual { surface: add(Volume::with_all_strides(bias)) }
            }
            Op::BiasForward { bias } => {
                Kind::Bias { data_type: bias.data_type(), stride: Volume::of(bias).strides[1] }
            }
            Op::PReluForward { slope } => {
                Kind::PRelu { data_type: slope.data_type(), stride: Volume::of(slope).strides[1] }
            }
            Op::BatchNormInference { mode: BatchNormMode::Spatial, params } => Kind::Spatial(*params),
            Op::BatchNormInference { mode: BatchNormMode::PerActivation, params } => {
                // Packed, the same for every image.
                let [_, _, depth, height, width] = output.lens;
                let strides = [0, depth * height * width, height * width, width, 1];
                let surface = add(Volume::new(output.lens, strides));
                Kind::PerActivation { data_type: *params, surface }
            }
            Op::ActivationForward { mode } => Kind::Activation(*mode),
            other @ (Op::ConvForward { .. }
            | Op::BatchNormForward { .. }
            | Op::BatchNormBackward { .. }
            | Op::ActivationBackward { .. }) => unreachable!("a solver accepted {other} in an epilogue"),
        });
        let ops = ops.collect();
        Epilogue {
            ops,
            first: usize::from(problem.conv().is_some()),
            channels: output.lens[1],
            data_type: problem.output.data_type(),
            surfaces,
            isa,
        }
    }

    /// The output and all operands with one value an element, so that a solver can give them another shape
    /// (the same one for all) over the same memory.
    pub(crate) fn surfaces_mut(&mut self) -> &mut [Volume] {
        &mut self.surfaces
    }

    /// The output, in the shape given to it last.
    pub(crate) fn output(&self) -> &Volume {
        &self.surfaces[0]
    }

    /// Whether in every operand a line follows the one before it as a column does, so that a row may go on
    /// over the end of a line.
    pub(crate) fn is_flat(&self) -> bool {
        self.surfaces.iter().all(Volume::is_flat)
    }

    /// Channels of the smallest block of an operand with one value an element, the output among them; a number larger than
    /// any of channels where none has blocks.
    pub(crate) fn block(&self) -> usize {
        self.surfaces.iter().map(|surface| surface.block).min().unwrap_or(usize::MAX)
    }

    /// Channels in parts that each lie in one block of every operand with one value an element, the output among them: all of
    /// them at once where none has blocks.
    pub(crate) fn parts(&self, channels: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        // Blocks are powers of two, so that the ends of the smallest are those of all.
        let smallest = self.surfaces.iter().min_by_key(|surface| surface.block).copied();
        smallest.into_iter().flat_map(move |surface| surface.parts(channels.clone()))
    }

    /// Floats of scratch that [`Epilogue::bind`] needs: the tables of the most folded steps that there can be, and the
    /// lists that one is folded from.
    pub(crate) fn table_len(&self) -> usize {
        let of = |op: &Kind| match op {
            // It folds into the step that it follows.
            Kind::Bias { .. } => 0,
            // Its slopes, and what follows it.
            Kind::PRelu { .. } => 2,
            Kind::Residual { .. } | Kind::Spatial(_) | Kind::PerActivation { .. } | Kind::Activation(_) => 1,
        };
        let steps = 1 + self.ops.iter().map(of).sum::<usize>();
        (steps * TABLES + LISTS) * self.table_stride()
    }

    /// Entries of a table.
    fn table_stride(&self) -> usize {
        (self.channels + TABLE_SLACK).next_multiple_of(MAX_LANES)
    }
}

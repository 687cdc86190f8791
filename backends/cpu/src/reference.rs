//! The oracle and last resort: every plan without training operators, any strides, computed in f64.
//!
//! Each output is summed in the order channel, depth, height, width of the filter, passed through the
//! operators in their declared order, and rounded once. Padding takes no part in the sum, so an infinite
//! weight over padding adds nothing.

use std::ops::Range;
use std::sync::Arc;

use fuseplan_api::operands::{ActivationForward, BatchNormInference, BiasForward, ConvForward, PReluForward};
use fuseplan_api::volume::{Index, Volume, spatial};
use fuseplan_api::{
    Accuracy, Algorithm, BatchNormMode, DataType, Executable, ExecutableInfo, Op, OpArgs, Problem, RawStream,
    RunArgs, RunError,
};

use crate::constraint;
use crate::element::{Value, with_value_type};
use crate::pool::Pool;
use crate::solver::{self, CpuSolver};

pub(crate) static REFERENCE: CpuSolver = CpuSolver {
    id: "cpu.reference.v1",
    algorithm: Algorithm::Direct,
    constraints: &[constraint::DATA_TYPE, constraint::INFERENCE],
    preferences: &[],
    any_layout: true,
    is_reference: true,
    accuracy: Accuracy::Exact,
    configurations: solver::one,
    load: |solver, problem, device, _| {
        Arc::new(ReferenceExecutable {
            info: solver.info(format!("f64 sums, {} threads", device.threads())),
            output: Volume::of(&problem.output),
            problem: problem.clone(),
            pool: device.pool().clone(),
        })
    },
};

#[derive(Debug)]
struct ReferenceExecutable {
    info: ExecutableInfo,
    output: Volume,
    problem: Problem,
    pool: Arc<Pool>,
}

impl Executable for ReferenceExecutable {
    fn info(&self) -> &ExecutableInfo {
        &self.info
    }

    unsafe fn run(&self, _stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError> {
        let [images, channels, ..] = self.output.lens;
        with_value_type!(self.problem.output.data_type(), T => {
            let kernel = Kernel::<T>::new(self, args);
            self.pool.for_each(images * channels, &|plane| {
                // SAFETY: the caller keeps what `RunArgs` promises for this problem, and each plane is
                // computed once.
                unsafe { kernel.plane(plane / channels, plane % channels) }
            })
        })
    }
}

/// Outputs that are summed at once; lets the compiler keep several sums going.
const COLUMNS: usize = 32;

struct Kernel<'a, T> {
    input: (*const T, Volume),
    output: (*mut T, Volume),
    conv: Option<Conv<T>>,
    operators: Operators<'a>,
}

/// What is behind the sums, which is the same for all types of elements.
struct Operators<'a> {
    ops: &'a [Op],
    args: &'a [OpArgs],
    output: Volume,
    data_type: DataType,
}

// SAFETY: threads write different planes of the output, and only read everything else.
unsafe impl<T: Value> Sync for Kernel<'_, T> {}

struct Conv<T> {
    weights: (*const T, Volume),
    pads_before: [usize; 3],
    strides: [usize; 3],
    dilations: [usize; 3],
    filters_per_group: usize,
}

impl<'a, T: Value> Kernel<'a, T> {
    fn new(executable: &'a ReferenceExecutable, args: &RunArgs<'a>) -> Self {
        let problem = &executable.problem;
        let conv = problem.conv().map(|(conv, weights)| {
            let ConvForward { weights: pointer } = ConvForward::of(&args.ops[0]);
            Conv {
                weights: (pointer.cast(), Volume::of(weights)),
                pads_before: spatial(conv.pads_before(), 0),
                strides: spatial(conv.strides(), 1),
                dilations: spatial(conv.dilations(), 1),
                filters_per_group: weights.lens()[0] / conv.groups(),
            }
        });
        let (output, data_type) = (executable.output, problem.output.data_type());
        Kernel {
            input: (args.input.cast(), Volume::of(&problem.input)),
            output: (args.output.cast(), output),
            conv,
            operators: Operators { ops: &problem.ops, args: args.ops, output, data_type },
        }
    }

    /// Computes channel `k` of image `n`.
    ///
    /// # Safety
    /// The arguments are what `RunArgs` promises; nobody else touches this plane of the output.
    unsafe fn plane(&self, n: usize, k: usize) {
        let [_, _, depth, height, width] = self.output.1.lens;
        for (d, h) in (0..depth).flat_map(|d| (0..height).map(move |h| (d, h))) {
            for w in (0..width).step_by(COLUMNS) {
                let columns = w..width.min(w + COLUMNS);
                // SAFETY: the caller says that the arguments keep their promise; the indices lie within this plane.
                unsafe { self.columns([n, k, d, h, 0], columns) }
            }
        }
    }

    /// Computes some columns of a row.
    ///
    /// # Safety
    /// As of `plane`, for indices within the output.
    unsafe fn columns(&self, row: Index, columns: Range<usize>) {
        let mut values = [0.0; COLUMNS];
        let values = &mut values[..columns.len()];
        match &self.conv {
            // SAFETY: the input and the weights are the convolution's, and the row lies within its output.
            Some(conv) => unsafe { conv.sum(self.input, row, columns.clone(), values) },
            None => {
                for (value, w) in values.iter_mut().zip(columns.clone()) {
                    // SAFETY: without a convolution, the input has the output's indices.
                    *value = unsafe { load(self.input, with_column(row, w)) };
                }
            }
        }
        for (value, w) in values.iter().zip(columns) {
            let at = with_column(row, w);
            // SAFETY: the arguments keep their promise, and `at` lies within the output.
            let mut value = unsafe { self.operators.apply(*value, at) };
            // SAFETY: `at` lies within the output.
            let element = unsafe { self.output.0.add(self.output.1.offset(at)) };
            if let Some(beta) = self.operators.args.last().map(|last| last.beta).filter(|&beta| beta != 0.0) {
                // SAFETY: the element lies within the output; a non-zero beta promises initialised contents.
                value += f64::from(beta) * unsafe { element.read() }.to_f64();
            }
            // SAFETY: the element lies within the output, and nobody else touches its plane.
            unsafe { element.write(T::from_f64(value)) };
        }
    }
}

impl Operators<'_> {
    /// What the operators make of a sum.
    ///
    /// # Safety
    /// The arguments are what `RunArgs` promises, and the index lies within the output.
    unsafe fn apply(&self, sum: f64, at: Index) -> f64 {
        self.ops.iter().zip(self.args).fold(sum, |value, (op, args)| {
            // SAFETY: as the caller says.
            f64::from(args.alpha) * unsafe { self.result(op, args, value, at) }
        })
    }

    /// The result of an operator on `x`, before its alpha.
    ///
    /// # Safety
    /// As of `apply`.
    unsafe fn result(&self, op: &Op, args: &OpArgs, x: f64, at: Index) -> f64 {
        match op {
            Op::ConvForward { .. } => x,
            Op::BiasForward { bias } => {
                let BiasForward { bias: pointer } = BiasForward::of(args);
                // SAFETY: a bias has the output's lengths, or 1 where one element serves all.
                x + with_value_type!(bias.data_type(), P => unsafe {
                    load((pointer.cast::<P>(), Volume::of(bias)), at)
                })
            }
            Op::PReluForward { slope } => {
                let PReluForward { slope: pointer } = PReluForward::of(args);
                // SAFETY: a slope has one element for each channel, or one that serves all.
                let slope = with_value_type!(slope.data_type(), P => unsafe {
                    load((pointer.cast::<P>(), Volume::of(slope)), at)
                });
                if x > 0.0 { x } else { slope * x }
            }
            Op::BatchNormInference { mode, params } => {
                let BatchNormInference { scale, bias, mean, variance, epsilon } =
                    BatchNormInference::of(args);
                let at = parameter(&self.output, *mode, at);
                let values = [scale, bias, mean, variance];
                let [scale, bias, mean, variance] = with_value_type!(*params, P => {
                    // SAFETY: parameters are packed, with one element for each index of `parameter`.
                    values.map(|p| unsafe { p.cast::<P>().add(at).read() }.to_f64())
                });
                scale * (x - mean) / (variance + epsilon).sqrt() + bias
            }
            Op::ActivationForward { mode } => {
                mode.with(&ActivationForward::of(args).params()).forward(self.data_type, x)
            }
            Op::BatchNormForward { .. } | Op::BatchNormBackward { .. } | Op::ActivationBackward { .. } => {
                unreachable!("a constraint refuses {op}")
            }
        }
    }
}

impl<T: Value> Conv<T> {
    /// The sums of some columns of a row of the output, added to `sums`.
    ///
    /// # Safety
    /// `input` and the weights are tensors of the convolution whose output has these indices.
    unsafe fn sum(&self, input: (*const T, Volume), row: Index, columns: Range<usize>, sums: &mut [f64]) {
        let [n, k, d, h, _] = row;
        let [_, channels, taps_d, taps_h, taps_w] = self.weights.1.lens;
        let first_channel = k / self.filters_per_group * channels;
        let step = self.strides[2] * input.1.strides[4];
        for c in 0..channels {
            for tap_d in self.taps_inside(0, d, taps_d, input.1.lens[2]) {
                let Some(d) = self.input_index(0, d, tap_d, input.1.lens[2]) else { continue };
                for tap_h in self.taps_inside(1, h, taps_h, input.1.lens[3]) {
                    let Some(h) = self.input_index(1, h, tap_h, input.1.lens[3]) else { continue };
                    for tap_w in 0..taps_w {
                        let inside = self.outputs_inside(2, tap_w, input.1.lens[4]);
                        let first = columns.start.max(inside.start);
                        let end = columns.end.min(inside.end);
                        let Some(w) = self.input_index(2, first, tap_w, input.1.lens[4]) else { continue };
                        // SAFETY: the index lies within the weights.
                        let weight = unsafe { load(self.weights, [k, c, tap_d, tap_h, tap_w]) };
                        let from = input.1.offset([n, first_channel + c, d, h, w]);
                        for column in first..end {
                            // SAFETY: `outputs_inside` are those whose tap lies within the input.
                            let x = unsafe { input.0.add(from + (column - first) * step).read() };
                            sums[column - columns.start] += weight * x.to_f64();
                        }
                    }
                }
            }
        }
    }

    /// Where in spatial dimension `dim` of the input a tap of the filter lies for an output, `None` for
    /// padding.
    fn input_index(&self, dim: usize, output: usize, tap: usize, len: usize) -> Option<usize> {
        let padded = output * self.strides[dim] + tap * self.dilations[dim];
        padded.checked_sub(self.pads_before[dim]).filter(|&at| at < len)
    }

    /// The taps of so many in spatial dimension `dim` that lie within the input for an output.
    fn taps_inside(&self, dim: usize, output: usize, taps: usize, len: usize) -> Range<usize> {
        let start = output * self.strides[dim];
        let taps_before = |end: usize| end.saturating_sub(start).div_ceil(self.dilations[dim]).min(taps);
        taps_before(self.pads_before[dim])..taps_before(self.pads_before[dim] + len)
    }

    /// The outputs in spatial dimension `dim` for which a tap lies within the input.
    fn outputs_inside(&self, dim: usize, tap: usize, len: usize) -> Range<usize> {
        let reach = tap * self.dilations[dim];
        let outputs_before = |end: usize| end.saturating_sub(reach).div_ceil(self.strides[dim]);
        outputs_before(self.pads_before[dim])..outputs_before(self.pads_before[dim] + len)
    }
}

fn with_column([n, c, d, h, _]: Index, w: usize) -> Index {
    [n, c, d, h, w]
}

/// The index of a batch-norm parameter, which is packed in the order C, D, H, W.
pub(crate) fn parameter(tensor: &Volume, mode: BatchNormMode, [_, c, d, h, w]: Index) -> usize {
    let [_, _, depth, height, width] = tensor.lens;
    match mode {
        BatchNormMode::Spatial => c,
        BatchNormMode::PerActivation => ((c * depth + d) * height + h) * width + w,
    }
}

/// # Safety
/// The index lies within the tensor, or has any value where the tensor's length is 1.
pub(crate) unsafe fn load<T: Value>((pointer, tensor): (*const T, Volume), at: Index) -> f64 {
    // SAFETY: the caller says that the index lies within the tensor; a dimension of length 1 has stride 0, so that any
    // index names its only element.
    unsafe { pointer.add(tensor.offset(at)).read() }.to_f64()
}

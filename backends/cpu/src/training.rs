//! Batch-norm for training: forward with the statistics of this batch, and its gradient.
//!
//! All sums are f64 and run over one group of elements (a channel, or one position of all images) from first
//! to last, so results do not depend on the number of threads.
//!
//! Forward: mean and variance (biased, in two passes) of each group; `y = scale · (x − mean) /
//! sqrt(variance + ε) + bias`. Running statistics become `(1 − f) · running + f · batch`, with the unbiased
//! variance `n / (n − 1)`; of a single element, which has none, the biased one.
//!
//! Backward, with x̂ = (x − mean) · invstd from the saved statistics and dy′ the gradient behind the
//! activation: `dbias = Σ dy′`, `dscale = Σ dy′ · x̂`, `dx = scale · invstd / n · (n · dy′ − dbias −
//! x̂ · dscale)`. The activation's input is remade as `scale · x̂ + bias`; its output is given. The alpha of
//! the activation's gradient scales dy′; that of the batch-norm scales dx, not the parameters' gradients.

use std::sync::Arc;

use fuseplan_api::operands::{ActivationBackward, ActivationForward, BatchNormBackward, BatchNormForward};
use fuseplan_api::volume::{Index, Volume};
use fuseplan_api::{
    Accuracy, Activation, Algorithm, BatchNormMode, DataType, Executable, ExecutableInfo, OpArgs, RawStream,
    RunArgs, RunError, Training,
};

use crate::constraint;
use crate::element::{Value, with_value_type};
use crate::pool::Pool;
use crate::solver::{self, CpuSolver};

pub(crate) static BATCH_NORM_TRAINING: CpuSolver = CpuSolver {
    id: "cpu.batch_norm_training.v1",
    algorithm: Algorithm::BatchNorm,
    constraints: &[constraint::DATA_TYPE, constraint::TRAINING],
    preferences: &[],
    any_layout: false,
    is_reference: false,
    accuracy: Accuracy::Exact,
    configurations: solver::one,
    load: |solver, problem, device, _| {
        let Some(training) = problem.training() else {
            unreachable!("the constraint asks for batch-norm first, not {}", problem.chain())
        };
        let [input, output] = [&problem.input, &problem.output].map(Volume::of);
        Arc::new(TrainingExecutable {
            info: solver.info(format!("f64 sums, {} threads", device.threads())),
            training,
            data_type: problem.input.data_type(),
            input,
            output,
            pool: device.pool().clone(),
        })
    },
};

#[derive(Debug)]
struct TrainingExecutable {
    info: ExecutableInfo,
    training: Training,
    data_type: DataType,
    input: Volume,
    output: Volume,
    pool: Arc<Pool>,
}

impl Executable for TrainingExecutable {
    fn info(&self) -> &ExecutableInfo {
        &self.info
    }

    unsafe fn run(&self, _stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError> {
        let [_, channels, ..] = self.input.lens;
        let groups = match self.training.mode {
            BatchNormMode::Spatial => channels,
            BatchNormMode::PerActivation => channels * self.input.plane(),
        };
        with_value_type!(self.data_type, T => {
            let kernel = Kernel::<T>::new(self, args);
            self.pool.for_each(groups, &|group| {
                // SAFETY: the caller keeps what `RunArgs` promises for this problem, and each group is
                // computed once.
                unsafe { kernel.group(group) }
            })
        })
    }
}

struct Kernel<'a, T> {
    mode: BatchNormMode,
    input: (*const T, Volume),
    output: (*mut T, Volume),
    ops: &'a [OpArgs],
    is_backward: bool,
    activation: Option<(Activation, f64)>,
    data_type: DataType,
}

// SAFETY: threads write what belongs to different groups, and only read everything else.
unsafe impl<T: Value> Sync for Kernel<'_, T> {}

/// What normalises a group of elements.
struct Statistics {
    mean: f64,
    inv_std: f64,
    scale: f64,
    bias: f64,
}

impl Statistics {
    fn normalised(&self, x: f64) -> f64 {
        (x - self.mean) * self.inv_std
    }
}

impl<'a, T: Value> Kernel<'a, T> {
    fn new(executable: &'a TrainingExecutable, args: &RunArgs<'a>) -> Self {
        let Training { mode, is_backward, activation } = executable.training;
        let activation = activation.map(|mode| {
            let args = &args.ops[1];
            let params = match is_backward {
                true => ActivationBackward::of(args).params(),
                false => ActivationForward::of(args).params(),
            };
            (mode.with(&params), f64::from(args.alpha))
        });
        Kernel {
            mode,
            input: (args.input.cast(), executable.input),
            output: (args.output.cast(), executable.output),
            ops: args.ops,
            is_backward,
            activation,
            data_type: executable.data_type,
        }
    }

    /// The indices of the elements that share one mean, variance, scale and bias.
    fn elements(&self, group: usize) -> impl Iterator<Item = Index> + use<T> {
        let [images, _, depth, height, width] = self.input.1.lens;
        let (c, ds, hs, ws) = match self.mode {
            BatchNormMode::Spatial => (group, 0..depth, 0..height, 0..width),
            BatchNormMode::PerActivation => {
                let [_, c, d, h, w] = self.input.1.index_of(group);
                (c, d..d + 1, h..h + 1, w..w + 1)
            }
        };
        let rows = (0..images).flat_map(move |n| ds.clone().map(move |d| (n, d)));
        let rows = rows.flat_map(move |(n, d)| hs.clone().map(move |h| (n, d, h)));
        rows.flat_map(move |(n, d, h)| ws.clone().map(move |w| [n, c, d, h, w]))
    }

    /// Computes one group of elements and the parameters that belong to it.
    ///
    /// # Safety
    /// The arguments are what `RunArgs` promises; nobody else touches this group.
    unsafe fn group(&self, group: usize) {
        // SAFETY: the caller says that the arguments keep their promise and that this group is this thread's.
        unsafe { if self.is_backward { self.backward(group) } else { self.forward(group) } }
    }

    /// # Safety
    /// As of `group`.
    unsafe fn forward(&self, group: usize) {
        let BatchNormForward {
            scale,
            bias,
            saved_mean,
            saved_inv_variance,
            running_mean,
            running_variance,
            exp_avg_factor,
            epsilon,
        } = BatchNormForward::of(&self.ops[0]);
        // SAFETY: `elements` lie within the input.
        let x = |at: Index| unsafe { self.input.0.add(self.input.1.offset(at)).read() }.to_f64();
        let count = self.elements(group).count() as f64;
        let mean = self.elements(group).map(x).sum::<f64>() / count;
        let variance = self.elements(group).map(|at| (x(at) - mean).powi(2)).sum::<f64>() / count;
        let inv_std = 1.0 / (variance + epsilon).sqrt();

        // SAFETY: there is one scale and one bias for each group.
        let [scale, bias] = [scale, bias].map(|p| f64::from(unsafe { p.add(group).read() }));
        // SAFETY: where they are wanted, there is one of each for each group.
        unsafe {
            if !saved_mean.is_null() {
                saved_mean.add(group).write(mean as f32);
            }
            if !saved_inv_variance.is_null() {
                saved_inv_variance.add(group).write(inv_std as f32);
            }
            if !running_mean.is_null() {
                blend(running_mean.add(group), mean, exp_avg_factor);
            }
            if !running_variance.is_null() {
                let unbiased = if count > 1.0 { variance * count / (count - 1.0) } else { variance };
                blend(running_variance.add(group), unbiased, exp_avg_factor);
            }
        }

        let statistics = Statistics { mean, inv_std, scale, bias };
        let alpha = f64::from(self.ops[0].alpha);
        for at in self.elements(group) {
            let mut y = alpha * (scale * statistics.normalised(x(at)) + bias);
            if let Some((activation, alpha)) = &self.activation {
                y = alpha * activation.forward(self.data_type, y);
            }
            // SAFETY: the output has the input's lengths, and the caller says that this group of it is this thread's.
            unsafe { self.store(at, y) }
        }
    }

    /// # Safety
    /// As of `group`.
    unsafe fn backward(&self, group: usize) {
        let BatchNormBackward { x, scale, bias, saved_mean, saved_inv_variance, scale_diff, bias_diff } =
            BatchNormBackward::of(&self.ops[0]);
        let y = self.ops.get(1).map(|args| ActivationBackward::of(args).y.cast::<T>());
        // SAFETY: there is one of each for each group.
        let [mean, inv_std, scale, bias] =
            [saved_mean, saved_inv_variance, scale, bias].map(|p| f64::from(unsafe { p.add(group).read() }));
        let statistics = Statistics { mean, inv_std, scale, bias };
        // SAFETY: `elements` lie within dy, x and y, which all have the input's descriptor.
        let element = |p: *const T, at| unsafe { p.add(self.input.1.offset(at)).read() }.to_f64();
        // x̂ and the gradient behind the activation.
        let gradient = |at: Index| {
            let normalised = statistics.normalised(element(x.cast(), at));
            let mut dy = element(self.input.0, at);
            if let Some(((activation, alpha), y)) = self.activation.as_ref().zip(y) {
                let remade = statistics.scale * normalised + statistics.bias;
                dy = alpha * activation.backward(self.data_type, remade, element(y, at), dy);
            }
            (normalised, dy)
        };

        let (mut count, mut dscale, mut dbias) = (0.0, 0.0, 0.0);
        for (normalised, dy) in self.elements(group).map(gradient) {
            count += 1.0;
            dscale += dy * normalised;
            dbias += dy;
        }
        // SAFETY: there is one of each for each group.
        unsafe {
            scale_diff.add(group).write(dscale as f32);
            bias_diff.add(group).write(dbias as f32);
        }
        let alpha = f64::from(self.ops[0].alpha);
        for at in self.elements(group) {
            let (normalised, dy) = gradient(at);
            let dx = scale * inv_std / count * (count * dy - dbias - normalised * dscale);
            // SAFETY: the output has the input's lengths, and the caller says that this group of it is this thread's.
            unsafe { self.store(at, alpha * dx) }
        }
    }

    /// Rounds `value` into the output, blended with what is there by the last operator's beta.
    ///
    /// # Safety
    /// As of `group`, for an index within the output.
    unsafe fn store(&self, at: Index, mut value: f64) {
        // SAFETY: the caller says that the index lies within the output.
        let element = unsafe { self.output.0.add(self.output.1.offset(at)) };
        if let Some(beta) = self.ops.last().map(|last| last.beta).filter(|&beta| beta != 0.0) {
            // SAFETY: the element lies within the output; a non-zero beta promises initialised contents.
            value += f64::from(beta) * unsafe { element.read() }.to_f64();
        }
        // SAFETY: the element lies within the output, and belongs to this thread's group.
        unsafe { element.write(T::from_f64(value)) }
    }
}

/// # Safety
/// `running` may be read and written.
unsafe fn blend(running: *mut f32, batch: f64, factor: f64) {
    // SAFETY: the caller says that it may be read.
    let prior = f64::from(unsafe { running.read() });
    // SAFETY: the caller says that it may be written.
    unsafe { running.write(((1.0 - factor) * prior + factor * batch) as f32) }
}

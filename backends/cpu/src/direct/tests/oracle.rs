//! Cases, their data, and what must come out.

use std::ffi::c_void;
use std::sync::Arc;

use fuseplan_api::operands::{ActivationForward, BatchNormInference, BiasForward, ConvForward, PReluForward};
use fuseplan_api::{
    ActivationMode, ActivationParams, BatchNormMode, ConvolutionDescriptor, DataType, Device, Executable, Op,
    OpArgs, OpKind, Prepared, Problem, RunArgs, Solver, TensorDescriptor, TensorLayout,
};
use half::{bf16, f16};

use crate::device::CpuDevice;

/// An operator behind the convolution.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Link {
    Bias,
    PRelu,
    Residual,
    Norm(BatchNormMode),
    Act(ActivationMode),
}

/// A problem with the seed of its data.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) problem: Problem,
    /// Small integers instead of fractions.
    integers: bool,
    /// α on every operator, β on the last.
    scaled: bool,
}

const EPSILON: f64 = 1e-3;
const PARAMS: ActivationParams = ActivationParams::new(0.5, 1.5, 2.0);

/// Deterministic numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    /// Integers in -2..=2, or fractions in -1..1 that the type can hold.
    fn value(&mut self, case: &Case) -> f64 {
        let r = self.next();
        if case.integers {
            (r % 5) as f64 - 2.0
        } else {
            round((r % 4096) as f64 / 2048.0 - 1.0, case.data_type())
        }
    }
}

fn round(x: f64, data_type: DataType) -> f64 {
    match data_type {
        DataType::Half => f16::from_f64(x).to_f64(),
        DataType::BFloat16 => bf16::from_f64(x).to_f64(),
        DataType::Float => f64::from(x as f32),
        DataType::Double | DataType::Int8 => panic!("no {data_type} in these tests"),
    }
}

/// A tensor's memory, in elements of its type.
#[derive(Clone, PartialEq)]
pub(crate) enum Memory {
    Wide(Vec<u32>),
    Narrow(Vec<u16>),
}

impl Memory {
    fn filled(len: usize, data_type: DataType, x: f64) -> Self {
        match data_type {
            DataType::Float => Memory::Wide(vec![(x as f32).to_bits(); len]),
            DataType::Half => Memory::Narrow(vec![f16::from_f64(x).to_bits(); len]),
            DataType::BFloat16 => Memory::Narrow(vec![bf16::from_f64(x).to_bits(); len]),
            DataType::Double | DataType::Int8 => panic!("no {data_type} in these tests"),
        }
    }

    fn pointer(&self) -> *const c_void {
        match self {
            Memory::Wide(v) => v.as_ptr().cast(),
            Memory::Narrow(v) => v.as_ptr().cast(),
        }
    }

    fn pointer_mut(&mut self, at: usize) -> *mut c_void {
        match self {
            Memory::Wide(v) => v[at..].as_mut_ptr().cast(),
            Memory::Narrow(v) => v[at..].as_mut_ptr().cast(),
        }
    }

    fn set(&mut self, at: usize, x: f64, data_type: DataType) {
        match self {
            Memory::Wide(v) => v[at] = (x as f32).to_bits(),
            Memory::Narrow(v) if data_type == DataType::Half => v[at] = f16::from_f64(x).to_bits(),
            Memory::Narrow(v) => v[at] = bf16::from_f64(x).to_bits(),
        }
    }

    fn get(&self, at: usize, data_type: DataType) -> f64 {
        match self {
            Memory::Wide(v) => f32::from_bits(v[at]).into(),
            Memory::Narrow(v) if data_type == DataType::Half => f16::from_bits(v[at]).to_f64(),
            Memory::Narrow(v) => bf16::from_bits(v[at]).to_f64(),
        }
    }
}

/// Every index of a shape, and where it lies.
fn indices(tensor: &TensorDescriptor) -> impl Iterator<Item = (Vec<usize>, usize)> + '_ {
    (0..tensor.element_count()).map(|mut i| {
        let mut index = vec![0; tensor.rank()];
        for d in (0..tensor.rank()).rev() {
            (index[d], i) = (i % tensor.lens()[d], i / tensor.lens()[d]);
        }
        let at = index.iter().zip(tensor.strides().unwrap()).map(|(i, s)| i * s).sum();
        (index, at)
    })
}

/// Elements on both sides of the output that nobody may touch.
const CANARY: usize = 64;

impl Case {
    pub(crate) fn new(
        data_type: DataType,
        layout: TensorLayout,
        x: &[usize],
        w: &[usize],
        conv: ConvolutionDescriptor,
    ) -> Self {
        let input = TensorDescriptor::with_layout(data_type, layout, x).unwrap();
        let weights = TensorDescriptor::with_layout(data_type, layout, w).unwrap();
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops = vec![Op::ConvForward { conv, weights }];
        let problem = Problem { input, output, ops, math: Default::default() };
        Case { problem, integers: false, scaled: false }
    }

    pub(crate) fn link(mut self, link: Link) -> Self {
        let output = &self.problem.output;
        let mut per_channel = vec![1; output.rank()];
        per_channel[1] = output.lens()[1];
        self.problem.ops.push(match link {
            Link::Bias => {
                Op::BiasForward { bias: TensorDescriptor::packed(self.data_type(), &per_channel).unwrap() }
            }
            Link::PRelu => {
                Op::PReluForward { slope: TensorDescriptor::packed(self.data_type(), &per_channel).unwrap() }
            }
            Link::Residual => Op::BiasForward { bias: *output },
            Link::Norm(mode) => Op::BatchNormInference { mode, params: DataType::Float },
            Link::Act(mode) => Op::ActivationForward { mode },
        });
        self
    }

    pub(crate) fn integers(self) -> Self {
        Case { integers: true, ..self }
    }

    pub(crate) fn scaled(self) -> Self {
        Case { scaled: true, ..self }
    }

    fn restrided(mut self, f: impl Fn(&TensorDescriptor) -> TensorDescriptor) -> Self {
        self.problem.input = f(&self.problem.input);
        self.problem.output = f(&self.problem.output);
        for op in &mut self.problem.ops {
            match op {
                Op::ConvForward { weights, .. } => *weights = f(weights),
                Op::BiasForward { bias: own } | Op::PReluForward { slope: own } => *own = f(own),
                Op::BatchNormInference { .. } | Op::ActivationForward { .. } => {}
                Op::BatchNormForward { .. }
                | Op::BatchNormBackward { .. }
                | Op::ActivationBackward { .. } => panic!("no case has a {op}"),
            }
        }
        self
    }

    /// Gaps behind lines and images: the two outermost strides grow.
    pub(crate) fn spread(self) -> Self {
        self.restrided(|t| {
            let mut strides = t.strides().unwrap().to_vec();
            let mut order: Vec<usize> = (0..t.rank()).collect();
            order.sort_by_key(|&d| std::cmp::Reverse(strides[d]));
            strides[order[0]] += 2 * strides[order[1]] + 3;
            TensorDescriptor::new(t.data_type(), t.lens(), &strides).unwrap()
        })
    }

    /// Gaps behind every line of four-dimensional tensors with columns innermost.
    pub(crate) fn lines_apart(self) -> Self {
        self.restrided(|t| {
            let &[_, channels, height, width] = t.lens() else { panic!("{t} has no four dimensions") };
            let line = width + 3;
            let strides = [channels * height * line, height * line, line, 1];
            TensorDescriptor::new(t.data_type(), t.lens(), &strides).unwrap()
        })
    }

    /// Elements three apart: no dimension is contiguous.
    pub(crate) fn scattered(self) -> Self {
        self.restrided(|t| {
            let strides: Vec<_> = t.strides().unwrap().iter().map(|s| 3 * s).collect();
            TensorDescriptor::new(t.data_type(), t.lens(), &strides).unwrap()
        })
    }

    fn data_type(&self) -> DataType {
        self.problem.output.data_type()
    }

    pub(crate) fn is_taken(&self, solver: &dyn Solver, device: &CpuDevice) -> bool {
        solver.applies(&self.problem, device.info()).is_ok()
    }

    fn tensor(&self, tensor: &TensorDescriptor, seed: u64) -> Memory {
        let mut random = Random(seed * 0x9e37_79b9 + 1);
        let mut memory = Memory::filled(tensor.span(), self.data_type(), f64::NAN);
        for (_, at) in indices(tensor) {
            memory.set(at, random.value(self), self.data_type());
        }
        memory
    }

    fn alpha(&self, op: usize) -> f32 {
        if self.scaled { [1.5, 0.75, -1.25][op % 3] } else { 1.0 }
    }

    fn beta(&self, op: usize) -> f32 {
        if self.scaled && op + 1 == self.problem.ops.len() { 0.5 } else { 0.0 }
    }

    pub(crate) fn load(&self, solver: &dyn Solver, device: &Arc<CpuDevice>) -> Arc<dyn Executable> {
        solver.applies(&self.problem, device.info()).unwrap();
        let binary = solver.compile_preferred(&self.problem, device.info()).unwrap();
        let device: Arc<dyn Device> = device.clone();
        solver.load(&self.problem, &device, &binary).unwrap()
    }
}

/// A case with its operands and the expected outputs.
pub(crate) struct Ready {
    pub(crate) case: Case,
    input: Memory,
    /// Weights, then the operands of each operator behind the convolution.
    operands: Vec<Vec<Memory>>,
    prepared: Arc<Prepared>,
    prior: Memory,
    /// Output index, exact value, bound of the error.
    expected: Vec<(usize, f64, f64)>,
}

impl Ready {
    pub(crate) fn new(case: &Case) -> Self {
        let operands = case.problem.ops.iter().enumerate().map(|(i, op)| {
            let seed = 10 * i as u64 + 3;
            match op {
                Op::ConvForward { weights: t, .. }
                | Op::BiasForward { bias: t }
                | Op::PReluForward { slope: t } => vec![case.tensor(t, seed)],
                Op::BatchNormInference { mode, .. } => {
                    let t = mode.derive(&case.problem.output).unwrap();
                    let float =
                        Case { problem: Problem { output: t, ..case.problem.clone() }, ..case.clone() };
                    let mut parameters: Vec<_> = (0..4).map(|j| float.tensor(&t, seed + j)).collect();
                    for at in 0..t.span() {
                        let variance = parameters[3].get(at, DataType::Float);
                        parameters[3].set(at, variance.abs() + 0.5, DataType::Float);
                    }
                    parameters
                }
                Op::ActivationForward { .. } => vec![],
                Op::BatchNormForward { .. }
                | Op::BatchNormBackward { .. }
                | Op::ActivationBackward { .. } => panic!("no case has a {op}"),
            }
        });
        let operands = operands.collect();
        let input = case.tensor(&case.problem.input, 1);
        let mut prior = Memory::filled(case.problem.output.span() + 2 * CANARY, case.data_type(), f64::NAN);
        if case.scaled {
            let mut random = Random(99);
            for (_, at) in indices(&case.problem.output) {
                prior.set(CANARY + at, random.value(case), case.data_type());
            }
        }
        let prepared = Arc::default();
        let mut ready = Ready { case: case.clone(), input, operands, prepared, prior, expected: vec![] };
        ready.expected = ready.expect();
        ready
    }

    /// With another value in the input's memory, or the weights', which is not expected of results.
    pub(crate) fn with(mut self, of_weights: bool, at: usize, value: f64) -> Self {
        let memory = if of_weights { &mut self.operands[0][0] } else { &mut self.input };
        memory.set(at, value, self.case.data_type());
        self
    }

    /// The outputs, each as a number.
    pub(crate) fn outputs(&self, executable: &dyn Executable, constant: bool) -> Vec<f64> {
        let memory = self.run(executable, constant);
        self.expected.iter().map(|&(at, ..)| memory.get(CANARY + at, self.case.data_type())).collect()
    }

    /// The output's memory.
    pub(crate) fn run(&self, executable: &dyn Executable, constant: bool) -> Memory {
        let case = &self.case;
        let mut output = self.prior.clone();
        let ops = case.problem.ops.iter().enumerate().map(|(i, op)| {
            let p = |j: usize| self.operands[i][j].pointer();
            let args: OpArgs = match op.kind() {
                OpKind::ConvForward => ConvForward { weights: p(0) }.into(),
                OpKind::BiasForward => BiasForward { bias: p(0) }.into(),
                OpKind::PReluForward => PReluForward { slope: p(0) }.into(),
                OpKind::BatchNormInference => BatchNormInference {
                    scale: p(0),
                    bias: p(1),
                    mean: p(2),
                    variance: p(3),
                    epsilon: EPSILON,
                }
                .into(),
                OpKind::ActivationForward => ActivationForward::from(PARAMS).into(),
                OpKind::BatchNormForward | OpKind::BatchNormBackward | OpKind::ActivationBackward => {
                    panic!("no case has a {op}")
                }
            };
            let prepared = (i == 0 && constant).then(|| self.prepared.clone());
            OpArgs { alpha: case.alpha(i), beta: case.beta(i), prepared, ..args }
        });
        let ops: Vec<_> = ops.collect();
        let (input, output_pointer) = (self.input.pointer(), output.pointer_mut(CANARY));
        let args = RunArgs { input, output: output_pointer, ops: &ops, workspace: std::ptr::null_mut() };
        // SAFETY: all operands have the size of their descriptors and live; the output is this call's own.
        unsafe { executable.run(std::ptr::null_mut(), &args) }.unwrap();
        output
    }

    pub(crate) fn check(&self, solver: &dyn Solver, device: &Arc<CpuDevice>, exact: bool) {
        let executable = self.case.load(solver, device);
        let context = || format!("{} on {}: {}", solver.id(), device.info().arch, self.case.problem);
        for constant in [false, true, true] {
            self.compare(&self.run(&*executable, constant), exact, &context());
        }
    }

    /// As [`Ready::check`], where results may be `slack` farther off than the rounding of a sum explains.
    pub(crate) fn check_near(&self, solver: &dyn Solver, device: &Arc<CpuDevice>, slack: f64) {
        let executable = self.case.load(solver, device);
        let context = || format!("{} on {}: {}", solver.id(), device.info().arch, self.case.problem);
        for constant in [false, true, true] {
            self.compare_within(&self.run(&*executable, constant), false, slack, &context());
        }
    }

    /// The largest difference from the expected results.
    pub(crate) fn largest_error(&self, solver: &dyn Solver, device: &Arc<CpuDevice>) -> f64 {
        let output = self.run(&*self.case.load(solver, device), true);
        let errors = self
            .expected
            .iter()
            .map(|&(at, expected, _)| (output.get(CANARY + at, self.case.data_type()) - expected).abs());
        errors.fold(0.0, f64::max)
    }

    pub(crate) fn compare(&self, output: &Memory, exact: bool, context: &str) {
        self.compare_within(output, exact, 0.0, context);
    }

    fn compare_within(&self, output: &Memory, exact: bool, slack: f64, context: &str) {
        let case = &self.case;
        let mut untouched = output.clone();
        for &(at, expected, bound) in &self.expected {
            let got = output.get(CANARY + at, case.data_type());
            let rounded = round(expected, case.data_type());
            let near = (got - expected).abs() <= slack + bound + case.data_type().epsilon() * expected.abs();
            assert!(
                if exact { got == rounded } else { near },
                "{got}, not {expected} ± {bound}, at {at}; {context}"
            );
            untouched.set(CANARY + at, self.prior.get(CANARY + at, case.data_type()), case.data_type());
        }
        assert!(untouched == self.prior, "written beside the output; {context}");
    }

    /// The convolution's sum and the sum of magnitudes.
    fn sum(&self, taps: &[(Vec<usize>, usize)], index: &[usize]) -> (f64, f64) {
        let case = &self.case;
        let (conv, weights) = case.problem.conv().unwrap();
        let input = &case.problem.input;
        let filters_per_group = weights.lens()[0] / conv.groups();
        let mut sums = (0.0, 0.0);
        for (tap, at) in taps {
            let channel = index[1] / filters_per_group * weights.lens()[1] + tap[0];
            let mut from = index[0] * input.strides().unwrap()[0] + channel * input.strides().unwrap()[1];
            let inside = (0..conv.spatial_dims()).all(|d| {
                let i = (index[2 + d] * conv.strides()[d] + tap[1 + d] * conv.dilations()[d])
                    .checked_sub(conv.pads_before()[d]);
                let i = i.filter(|&i| i < input.spatial()[d]);
                from += i.unwrap_or(0) * input.strides().unwrap()[2 + d];
                i.is_some()
            });
            if inside {
                let w =
                    self.operands[0][0].get(index[1] * weights.strides().unwrap()[0] + at, case.data_type());
                let product = w * self.input.get(from, case.data_type());
                sums = (sums.0 + product, sums.1 + product.abs());
            }
        }
        sums
    }

    fn expect(&self) -> Vec<(usize, f64, f64)> {
        let case = &self.case;
        let weights = case.problem.conv().unwrap().1;
        let filter =
            TensorDescriptor::new(case.data_type(), &weights.lens()[1..], &weights.strides().unwrap()[1..])
                .unwrap();
        let taps: Vec<_> = indices(&filter).collect();
        let u = f64::from(f32::EPSILON) / 2.0;
        let count = case.problem.conv().unwrap().1.lens()[1..].iter().product::<usize>() as f64;
        indices(&case.problem.output)
            .map(|(index, at)| {
                let (mut y, magnitudes) = self.sum(&taps, &index);
                let mut error = (count + 2.0) * u * magnitudes;
                for (i, op) in case.problem.ops.iter().enumerate() {
                    let operand = |j: usize, t: &TensorDescriptor| {
                        let place = index.iter().zip(t.lens()).zip(t.strides().unwrap());
                        let at = place.map(|((i, &len), s)| if len == 1 { 0 } else { i * s }).sum();
                        self.operands[i][j].get(at, t.data_type())
                    };
                    match op {
                        Op::BiasForward { bias } => {
                            let b = operand(0, bias);
                            error += u * (y.abs() + b.abs());
                            y += b;
                        }
                        Op::PReluForward { slope } => {
                            let slope = operand(0, slope);
                            y = if y > 0.0 { y } else { slope * y };
                            error = slope.abs().max(1.0) * error + u * y.abs();
                        }
                        Op::BatchNormInference { mode, .. } => {
                            let t = mode.derive(&case.problem.output).unwrap();
                            let by = operand(0, &t) / (operand(3, &t) + EPSILON).sqrt();
                            let (mean, bias) = (operand(2, &t), operand(1, &t));
                            error =
                                by.abs() * error + 8.0 * u * (by.abs() * (y.abs() + mean.abs()) + bias.abs());
                            y = by * (y - mean) + bias;
                        }
                        Op::ActivationForward { mode } => {
                            // None of the functions is steeper than this here.
                            let slope = if let ActivationMode::Power = mode {
                                3.0 * (0.5 + 1.5 * y.abs())
                            } else {
                                1.0
                            };
                            y = mode.with(&PARAMS).forward(DataType::Float, y);
                            error = slope * error + 4.0 * u * (1.0 + y.abs());
                        }
                        Op::ConvForward { .. } => {}
                        Op::BatchNormForward { .. }
                        | Op::BatchNormBackward { .. }
                        | Op::ActivationBackward { .. } => panic!("no case has a {op}"),
                    }
                    let alpha = f64::from(case.alpha(i));
                    (y, error) = (alpha * y, alpha.abs() * error + 2.0 * u * y.abs());
                    if case.beta(i) != 0.0 {
                        let prior = f64::from(case.beta(i)) * self.prior.get(CANARY + at, case.data_type());
                        error += u * (y.abs() + prior.abs());
                        y += prior;
                    }
                }
                (at, y, error)
            })
            .collect()
    }
}

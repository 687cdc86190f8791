//! Plans with their operands, run through a solver with guarded, poisoned buffers, and an oracle that
//! computes them in another way than any solver.
#![allow(dead_code, reason = "each test program uses a part")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use fuseplan_api::operands::{ActivationForward, BatchNormInference, BiasForward, ConvForward};
use fuseplan_api::*;
use fuseplan_cpu::{CpuBackend, CpuDevice, open_with_threads};

/// A sequence of numbers that is the same in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    /// A whole number in 0..bound.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// A whole number from `-most` to `most`.
    pub(crate) fn integer(&mut self, most: usize) -> f64 {
        self.below(2 * most + 1) as f64 - most as f64
    }

    /// A number from -1 to 1.
    pub(crate) fn real(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// The bytes of a tensor between two guards. What is not an element of the tensor must never change.
pub(crate) struct Buffer {
    desc: TensorDescriptor,
    bytes: Vec<u128>,
}

/// A NaN of every data type.
const POISON: u8 = 0xFF;
const GUARD: usize = 256;

impl Buffer {
    /// All NaN.
    pub(crate) fn poisoned(desc: &TensorDescriptor) -> Self {
        let poison = u128::from_ne_bytes([POISON; 16]);
        Buffer { desc: *desc, bytes: vec![poison; (desc.bytes() + 2 * GUARD).div_ceil(16)] }
    }

    /// With these elements, in the order N, C, (D,) H, W.
    pub(crate) fn filled(desc: &TensorDescriptor, values: &[f64]) -> Self {
        assert_eq!(values.len(), desc.element_count());
        let mut buffer = Self::poisoned(desc);
        for (place, &value) in values.iter().enumerate() {
            let element = buffer.element(place);
            // SAFETY: `element` lies within the buffer.
            unsafe {
                match desc.data_type() {
                    DataType::Float => element.cast::<f32>().write(value as f32),
                    DataType::Half => element.cast::<half::f16>().write(half::f16::from_f32(value as f32)),
                    DataType::BFloat16 => {
                        element.cast::<half::bf16>().write(half::bf16::from_f32(value as f32))
                    }
                    other @ (DataType::Double | DataType::Int8) => panic!("no {other} in these tests"),
                }
            }
        }
        buffer
    }

    pub(crate) fn pointer(&mut self) -> *mut c_void {
        self.bytes.as_mut_ptr().cast::<u8>().wrapping_add(GUARD).cast()
    }

    fn element(&mut self, place: usize) -> *mut u8 {
        let at = offset(&self.desc, place) * self.desc.data_type().size();
        self.pointer().cast::<u8>().wrapping_add(at)
    }

    /// The elements in the order N, C, (D,) H, W.
    pub(crate) fn values(&mut self) -> Vec<f64> {
        let (data_type, count) = (self.desc.data_type(), self.desc.element_count());
        let read = |place| {
            let element = self.element(place);
            // SAFETY: `element` lies within the buffer.
            unsafe {
                match data_type {
                    DataType::Float => element.cast::<f32>().read().into(),
                    DataType::Half => element.cast::<half::f16>().read().into(),
                    DataType::BFloat16 => element.cast::<half::bf16>().read().into(),
                    other @ (DataType::Double | DataType::Int8) => panic!("no {other} in these tests"),
                }
            }
        };
        (0..count).map(read).collect()
    }

    /// Panics where a byte that is not of an element has changed.
    pub(crate) fn assert_gaps_untouched(&mut self) {
        let size = self.desc.data_type().size();
        let mut is_element = vec![false; self.bytes.len() * 16];
        for place in 0..self.desc.element_count() {
            let at = GUARD + offset(&self.desc, place) * size;
            is_element[at..at + size].fill(true);
        }
        let bytes = self.bytes.iter().flat_map(|chunk| chunk.to_ne_bytes());
        for (at, (byte, is_element)) in bytes.zip(is_element).enumerate() {
            assert!(is_element || byte == POISON, "byte {at} of {:?} was written", self.desc);
        }
    }
}

/// Where element `place`, counted in the order N, C, (D,) H, W, lies.
fn offset(desc: &TensorDescriptor, mut place: usize) -> usize {
    let mut at = 0;
    for (&len, &stride) in desc.lens().iter().zip(desc.strides().unwrap()).rev() {
        at += place % len * stride;
        place /= len;
    }
    at
}

/// A tensor's values as its data type holds them, in the order N, C, (D,) H, W.
#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) desc: TensorDescriptor,
    pub(crate) values: Vec<f64>,
}

impl Tensor {
    pub(crate) fn new(desc: TensorDescriptor, mut value: impl FnMut() -> f64) -> Self {
        let values: Vec<f64> = (0..desc.element_count()).map(|_| value()).collect();
        Tensor { desc, values: Buffer::filled(&desc, &values).values() }
    }
}

/// An operator with its operands.
#[derive(Clone)]
pub(crate) enum Step {
    Conv {
        conv: ConvolutionDescriptor,
        weights: Tensor,
    },
    Bias(Tensor),
    BatchNorm {
        mode: BatchNormMode,
        scale: Vec<f32>,
        bias: Vec<f32>,
        mean: Vec<f32>,
        variance: Vec<f32>,
        epsilon: f64,
    },
    Activation(ActivationMode, ActivationParams),
}

pub(crate) const EPSILON: f64 = 1e-5;

/// A plan for inference with its operands.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) input: Tensor,
    pub(crate) output: TensorDescriptor,
    /// Operators and their alphas.
    pub(crate) steps: Vec<(Step, f32)>,
    /// The last operator's beta, and what the output holds before.
    pub(crate) prior: Option<(f32, Vec<f64>)>,
}

impl Plan {
    /// A plan whose output is like its input until a convolution is appended.
    pub(crate) fn new(input: Tensor) -> Self {
        Plan { output: input.desc, input, steps: Vec::new(), prior: None }
    }

    pub(crate) fn then(mut self, step: Step) -> Self {
        if let Step::Conv { conv, weights } = &step {
            self.output = conv.forward_output(&self.input.desc, &weights.desc).unwrap();
        }
        self.steps.push((step, 1.0));
        self
    }

    /// Batch-norm with parameters made from random numbers.
    pub(crate) fn then_batch_norm(self, mode: BatchNormMode, random: &mut Random) -> Self {
        let count = mode.derive(&self.output).unwrap().element_count();
        let mut list =
            |least: f64| -> Vec<f32> { (0..count).map(|_| (random.real() + least) as f32).collect() };
        let (scale, bias, mean, variance) = (list(0.0), list(0.0), list(0.0), list(1.5));
        self.then(Step::BatchNorm { mode, scale, bias, mean, variance, epsilon: EPSILON })
    }

    /// A bias for each channel.
    pub(crate) fn then_bias(self, value: impl FnMut() -> f64) -> Self {
        let mut lens = vec![1; self.output.rank()];
        lens[1] = self.output.lens()[1];
        let desc = TensorDescriptor::packed(self.output.data_type(), &lens).unwrap();
        self.then(Step::Bias(Tensor::new(desc, value)))
    }

    pub(crate) fn problem(&self) -> Problem {
        let op = |step: &Step| match step {
            Step::Conv { conv, weights } => Op::ConvForward { conv: *conv, weights: weights.desc },
            Step::Bias(bias) => Op::BiasForward { bias: bias.desc },
            Step::BatchNorm { mode, .. } => Op::BatchNormInference { mode: *mode, params: DataType::Float },
            Step::Activation(mode, _) => Op::ActivationForward { mode: *mode },
        };
        Problem {
            input: self.input.desc,
            output: self.output,
            ops: self.steps.iter().map(|(step, _)| op(step)).collect(),
            math: MathMode::Precise,
        }
    }

    /// Runs the plan on this many threads in buffers whose gaps are checked; the output's elements.
    pub(crate) fn run(&self, solver: &str, threads: usize) -> Vec<f64> {
        self.run_on(solver, &open_with_threads(threads).unwrap())
    }

    /// As `run`, on a device.
    pub(crate) fn run_on(&self, solver: &str, device: &Arc<dyn Device>) -> Vec<f64> {
        let executable = load(&self.problem(), solver, device);
        let mut input = Buffer::filled(&self.input.desc, &self.input.values);
        let mut output = match &self.prior {
            Some((_, values)) => Buffer::filled(&self.output, values),
            None => Buffer::poisoned(&self.output),
        };
        let (from, to) = (input.pointer(), output.pointer());
        self.run_between(&*executable, from, to);
        input.assert_gaps_untouched();
        assert!(same_bits(&input.values(), &self.input.values), "the input was written");
        output.assert_gaps_untouched();
        output.values()
    }

    /// Runs the plan with one buffer as input and output.
    pub(crate) fn run_in_place(&self, solver: &str, device: &Arc<dyn Device>) -> Vec<f64> {
        let executable = load(&self.problem(), solver, device);
        let mut data = Buffer::filled(&self.input.desc, &self.input.values);
        let pointer = data.pointer();
        self.run_between(&*executable, pointer, pointer);
        data.assert_gaps_untouched();
        data.values()
    }

    fn run_between(&self, executable: &dyn Executable, input: *const c_void, output: *mut c_void) {
        let mut kept = Vec::new();
        let mut ops = Vec::new();
        for (step, alpha) in &self.steps {
            let mut keep = |tensor: &Tensor| {
                let mut buffer = Buffer::filled(&tensor.desc, &tensor.values);
                let pointer: *const c_void = buffer.pointer();
                kept.push(buffer);
                pointer
            };
            let args: OpArgs = match step {
                Step::Conv { weights, .. } => ConvForward { weights: keep(weights) }.into(),
                Step::Bias(bias) => BiasForward { bias: keep(bias) }.into(),
                Step::BatchNorm { scale, bias, mean, variance, epsilon, .. } => BatchNormInference {
                    scale: scale.as_ptr().cast(),
                    bias: bias.as_ptr().cast(),
                    mean: mean.as_ptr().cast(),
                    variance: variance.as_ptr().cast(),
                    epsilon: *epsilon,
                }
                .into(),
                Step::Activation(_, params) => ActivationForward::from(*params).into(),
            };
            ops.push(OpArgs { alpha: *alpha, ..args });
        }
        if let (Some((beta, _)), Some(last)) = (&self.prior, ops.last_mut()) {
            last.beta = *beta;
        }
        run(executable, input, output, &ops);
    }

    /// What the plan computes: every input element scattered to the outputs that it reaches, on packed
    /// copies, then each element through the operators.
    pub(crate) fn oracle(&self) -> Exact {
        let [_, channels, depth, height, width] = five(&self.output);
        let plane = depth * height * width;
        let mut magnitudes: Vec<f64> = self.input.values.iter().map(|v| v.abs()).collect();
        let mut values = self.input.values.clone();
        let mut products = 0;
        if let Some((Step::Conv { conv, weights }, _)) = self.steps.first() {
            (values, magnitudes) = scatter(conv, &self.input, weights, five(&self.output));
            products = weights.desc.lens()[1..].iter().product();
        }
        let mut errors = Vec::new();
        for (i, value) in values.iter_mut().enumerate() {
            let (c, place) = (i / plane % channels, i % (channels * plane));
            let mut element = Element { value: *value, magnitude: magnitudes[i], error: 0.0 };
            element.rounded(products as f64);
            for (step, alpha) in &self.steps {
                element.apply(step, self.output.data_type(), i, c, place);
                element.scale((*alpha).into());
                element.rounded(if *alpha == 1.0 { 0.0 } else { 1.0 });
            }
            if let Some((beta, prior)) = &self.prior {
                element.add(f64::from(*beta) * prior[i]);
                element.rounded(2.0);
            }
            *value = element.value;
            let data_type = self.output.data_type();
            let least = if data_type == DataType::Half { 3e-8 } else { 1e-40 };
            errors.push(
                element.error + data_type.epsilon() / 2.0 * (element.value.abs() + element.error) + least,
            );
        }
        Exact { values, magnitudes, errors }
    }
}

/// What a plan computes.
pub(crate) struct Exact {
    pub(crate) values: Vec<f64>,
    /// The sum of the magnitudes that a convolution adds up for each element.
    pub(crate) magnitudes: Vec<f64>,
    /// How far a result may be off that was computed in f32, in any order, with neighbouring affine
    /// operators folded, activations within 4 ulp, and rounded to the data type at the end.
    pub(crate) errors: Vec<f64>,
}

impl Exact {
    /// Panics where a result is further off than it may be.
    #[track_caller]
    pub(crate) fn assert_holds(&self, found: &[f64], problem: &Problem) {
        assert_eq!(found.len(), self.values.len());
        for (i, (y, exact)) in found.iter().zip(&self.values).enumerate() {
            let off = (y - exact).abs();
            assert!(off <= self.errors[i], "{i}: {y} for {exact} ± {} in {problem}", self.errors[i]);
        }
    }
}

/// The rounding error of a half ulp of f32, relative.
const U: f64 = 1.0 / (1 << 24) as f64;

/// An element on its way through the operators.
struct Element {
    value: f64,
    /// What the value could have been without cancellation since the last activation.
    magnitude: f64,
    error: f64,
}

impl Element {
    /// Accounts for some roundings.
    fn rounded(&mut self, count: f64) {
        self.error += count * U / (1.0 - count * U) * self.magnitude;
    }

    fn scale(&mut self, by: f64) {
        self.value *= by;
        self.magnitude *= by.abs();
        self.error *= by.abs();
    }

    fn add(&mut self, value: f64) {
        self.value += value;
        self.magnitude += value.abs();
    }

    fn apply(&mut self, step: &Step, data_type: DataType, i: usize, c: usize, place: usize) {
        match step {
            Step::Conv { .. } => {}
            Step::Bias(bias) => {
                let per_channel =
                    bias.desc.lens()[2..].iter().all(|&len| len == 1) && bias.desc.lens()[0] == 1;
                self.add(bias.values[if per_channel { c } else { i }]);
                self.rounded(2.0);
            }
            Step::BatchNorm { mode, scale, bias, mean, variance, epsilon } => {
                let at = if *mode == BatchNormMode::Spatial { c } else { place };
                let of = |list: &[f32]| f64::from(list[at]);
                self.add(-of(mean));
                self.scale(1.0 / (of(variance) + epsilon).sqrt());
                self.scale(of(scale));
                self.add(of(bias));
                self.rounded(8.0);
            }
            Step::Activation(mode, params) => {
                let of = |x| mode.with(params).forward(data_type, x);
                // The argument of TANH and the base of POWER are rounded before the function is taken.
                let offset = if params.beta == 0.0 { 0.0 } else { (params.alpha / params.beta).abs() };
                let error = self.error + 2.0 * U * (self.value.abs() + offset);
                let value = of(self.value);
                let off = [of(self.value - error), of(self.value + error)].map(|y| (y - value).abs());
                *self = Element { value, magnitude: value.abs(), error: off[0].max(off[1]) };
                self.rounded(8.0);
            }
        }
    }
}

/// Lengths N, C, D, H, W.
fn five(desc: &TensorDescriptor) -> [usize; 5] {
    match *desc.lens() {
        [n, c, h, w] => [n, c, 1, h, w],
        [n, c, d, h, w] => [n, c, d, h, w],
        _ => unreachable!(),
    }
}

fn scatter(
    conv: &ConvolutionDescriptor,
    input: &Tensor,
    weights: &Tensor,
    [_, _, out_d, out_h, out_w]: [usize; 5],
) -> (Vec<f64>, Vec<f64>) {
    let [images, channels, depth, height, width] = five(&input.desc);
    let [filters, per_group, taps_d, taps_h, taps_w] = five(&weights.desc);
    let three = |list: &[usize], without: usize| match *list {
        [h, w] => [without, h, w],
        [d, h, w] => [d, h, w],
        _ => unreachable!(),
    };
    let (pads, strides) = (three(conv.pads_before(), 0), three(conv.strides(), 1));
    let dilations = three(conv.dilations(), 1);
    // The output that input `at` reaches through `tap`.
    let reached = |dim: usize, at: usize, tap: usize, outputs: usize| {
        let distance = (at + pads[dim]).checked_sub(tap * dilations[dim])?;
        (distance % strides[dim] == 0 && distance / strides[dim] < outputs).then_some(distance / strides[dim])
    };
    let mut sums = vec![0.0; images * filters * out_d * out_h * out_w];
    let mut magnitudes = sums.clone();
    let mut place = 0;
    for n in 0..images {
        for c in 0..channels {
            let group = c / per_group;
            let of_group = filters / conv.groups();
            for (d, h, w) in grid(depth, height, width) {
                let x = input.values[place];
                place += 1;
                for (td, th, tw) in grid(taps_d, taps_h, taps_w) {
                    let (Some(od), Some(oh), Some(ow)) =
                        (reached(0, d, td, out_d), reached(1, h, th, out_h), reached(2, w, tw, out_w))
                    else {
                        continue;
                    };
                    for k in group * of_group..(group + 1) * of_group {
                        let at =
                            (((k * per_group + c % per_group) * taps_d + td) * taps_h + th) * taps_w + tw;
                        let product = x * weights.values[at];
                        let to = (((n * filters + k) * out_d + od) * out_h + oh) * out_w + ow;
                        sums[to] += product;
                        magnitudes[to] += product.abs();
                    }
                }
            }
        }
    }
    (sums, magnitudes)
}

fn grid(depth: usize, height: usize, width: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..depth * height * width).map(move |i| (i / (height * width), i / width % height, i % width))
}

/// Whether two lists have the same numbers, NaN for NaN and sign for sign.
pub(crate) fn same_bits(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan())
}

/// The solver with this id.
pub(crate) fn solver(id: &str) -> &'static dyn Solver {
    *CpuBackend.solvers().iter().find(|solver| solver.id() == id).unwrap_or_else(|| panic!("no solver {id}"))
}

/// A device for each architecture that this processor can be, with three threads.
pub(crate) fn devices() -> Vec<Arc<dyn Device>> {
    let open = |arch: String| -> Arc<dyn Device> { Arc::new(CpuDevice::with_arch(3, &arch).unwrap()) };
    CpuDevice::architectures().into_iter().map(open).collect()
}

/// Compiles a problem with a solver and loads it on a device.
pub(crate) fn load(problem: &Problem, id: &str, device: &Arc<dyn Device>) -> Arc<dyn Executable> {
    let solver = solver(id);
    solver.applies(problem, device.info()).unwrap();
    let binary = solver.compile_preferred(problem, device.info()).unwrap();
    let executable = solver.load(problem, device, &binary).unwrap();
    assert_eq!(executable.info().solver, id);
    assert_eq!(executable.info().kernels, 1);
    assert_eq!(executable.info().workspace, 0);
    executable
}

/// Runs an executable that needs no workspace.
pub(crate) fn run(executable: &dyn Executable, input: *const c_void, output: *mut c_void, ops: &[OpArgs]) {
    assert_eq!(executable.info().workspace, 0);
    let args = RunArgs { input, output, ops, workspace: ptr::null_mut() };
    // SAFETY: callers pass buffers of the executable's problem.
    unsafe { executable.run(ptr::null_mut(), &args).unwrap() }
}

/// Packed layouts, padded rows, and an order of dimensions that is no layout.
pub(crate) fn arrangements(data_type: DataType, lens: &[usize]) -> Vec<TensorDescriptor> {
    let mut all: Vec<_> = TensorLayout::of_rank(lens.len())
        .iter()
        .map(|&layout| TensorDescriptor::with_layout(data_type, layout, lens).unwrap())
        .collect();
    let mut arranged = |order: &[usize], gap: usize| {
        let mut strides = vec![0; lens.len()];
        let mut next = 1;
        for (i, &d) in order.iter().rev().enumerate() {
            strides[d] = next;
            next = next * lens[d] + if i == 0 { gap } else { 0 };
        }
        all.push(TensorDescriptor::new(data_type, lens, &strides).unwrap());
    };
    if lens.len() == 4 {
        arranged(&[0, 1, 2, 3], 3); // padded rows
        arranged(&[1, 2, 3, 0], 0); // CHWN
        arranged(&[3, 0, 2, 1], 2); // WNHC with a gap behind the channels
    } else {
        arranged(&[0, 1, 2, 3, 4], 5);
        arranged(&[1, 4, 3, 2, 0], 1);
    }
    all
}

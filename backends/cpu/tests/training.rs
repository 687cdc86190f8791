//! `cpu.batch_norm_training.v1`: values computed by hand, the definition of the statistics, and the
//! gradient as a slope.

mod common;

use std::ptr;

use common::*;
use fuseplan_api::operands::{ActivationBackward, ActivationForward, BatchNormBackward, BatchNormForward};
use fuseplan_api::*;
use fuseplan_cpu::open_with_threads;

const TRAINING: &str = "cpu.batch_norm_training.v1";

/// A forward pass with its operands, and what it wrote.
struct Forward {
    mode: BatchNormMode,
    x: Tensor,
    scale: Vec<f32>,
    bias: Vec<f32>,
    activation: Option<(ActivationMode, ActivationParams)>,
    saved: [Vec<f32>; 2],
    running: Option<[Vec<f32>; 2]>,
    factor: f64,
    alpha: f32,
    prior: Option<(f32, Vec<f64>)>,
}

impl Forward {
    fn new(mode: BatchNormMode, x: Tensor, random: &mut Random) -> Self {
        let count = mode.derive(&x.desc).unwrap().element_count();
        let mut list = || -> Vec<f32> { (0..count).map(|_| random.real() as f32 + 0.25).collect() };
        let (scale, bias) = (list(), list());
        let saved = [vec![f32::NAN; count], vec![f32::NAN; count]];
        Forward {
            mode,
            x,
            scale,
            bias,
            activation: None,
            saved,
            running: None,
            factor: 0.1,
            alpha: 1.0,
            prior: None,
        }
    }

    fn run(&mut self, output: &TensorDescriptor, threads: usize) -> Vec<f64> {
        let mut ops = vec![Op::BatchNormForward { mode: self.mode, running: self.running.is_some() }];
        ops.extend(self.activation.map(|(mode, _)| Op::ActivationForward { mode }));
        let problem = Problem { input: self.x.desc, output: *output, ops, math: MathMode::Precise };
        let [mean, inv_variance] = self.saved.each_mut().map(|list| list.as_mut_ptr());
        let [running_mean, running_variance] = self
            .running
            .as_mut()
            .map_or([ptr::null_mut(); 2], |r| r.each_mut().map(|list| list.as_mut_ptr()));
        let wanted = |list: &[f32], p: *mut f32| if list.is_empty() { ptr::null_mut() } else { p };
        let operands = BatchNormForward {
            scale: self.scale.as_ptr(),
            bias: self.bias.as_ptr(),
            saved_mean: wanted(&self.saved[0], mean),
            saved_inv_variance: wanted(&self.saved[1], inv_variance),
            running_mean,
            running_variance,
            exp_avg_factor: self.factor,
            epsilon: EPSILON,
        };
        let mut args = vec![OpArgs { alpha: self.alpha, ..operands.into() }];
        if let Some((_, params)) = self.activation {
            args.push(ActivationForward::from(params).into());
        }
        let mut y = Buffer::poisoned(output);
        if let Some((beta, values)) = &self.prior {
            y = Buffer::filled(output, values);
            args.last_mut().unwrap().beta = *beta;
        }
        let mut x = Buffer::filled(&self.x.desc, &self.x.values);
        run(
            &*load(&problem, TRAINING, &open_with_threads(threads).unwrap()),
            x.pointer(),
            y.pointer(),
            &args,
        );
        y.assert_gaps_untouched();
        y.values()
    }
}

/// What a backward pass writes.
#[derive(Debug, PartialEq)]
struct Gradients {
    dx: Vec<f64>,
    scale: Vec<f32>,
    bias: Vec<f32>,
}

/// The gradients of `forward`, whose output was `y`; alphas of batch-norm and activation.
fn backward(
    forward: &Forward,
    y: &Tensor,
    dy: &Tensor,
    output: &TensorDescriptor,
    alphas: [f32; 2],
) -> Gradients {
    let mut ops = vec![Op::BatchNormBackward { mode: forward.mode }];
    ops.extend(forward.activation.map(|(mode, _)| Op::ActivationBackward { mode }));
    let problem = Problem { input: dy.desc, output: *output, ops, math: MathMode::Precise };
    let buffer = |tensor: &Tensor| Buffer::filled(&tensor.desc, &tensor.values);
    let (mut x, mut y, mut dy, mut dx) =
        (buffer(&forward.x), buffer(y), buffer(dy), Buffer::poisoned(output));
    let mut scale = vec![f32::NAN; forward.scale.len()];
    let mut bias = scale.clone();
    let operands = BatchNormBackward {
        x: x.pointer(),
        scale: forward.scale.as_ptr(),
        bias: forward.bias.as_ptr(),
        scale_diff: scale.as_mut_ptr(),
        bias_diff: bias.as_mut_ptr(),
        saved_mean: forward.saved[0].as_ptr(),
        saved_inv_variance: forward.saved[1].as_ptr(),
    };
    let mut args = vec![OpArgs { alpha: alphas[0], ..operands.into() }];
    if let Some((_, params)) = forward.activation {
        let operands = ActivationBackward::new(y.pointer(), params);
        args.push(OpArgs { alpha: alphas[1], ..operands.into() });
    }
    run(&*load(&problem, TRAINING, &open_with_threads(2).unwrap()), dy.pointer(), dx.pointer(), &args);
    dx.assert_gaps_untouched();
    Gradients { dx: dx.values(), scale, bias }
}

fn tensor(lens: [usize; 4], values: &[f64]) -> Tensor {
    let mut values = values.iter();
    Tensor::new(TensorDescriptor::nchw(DataType::Float, lens).unwrap(), || *values.next().unwrap())
}

fn close(found: &[f64], expected: &[f64], bound: f64) {
    assert_eq!(found.len(), expected.len());
    for (f, e) in found.iter().zip(expected) {
        assert!((f - e).abs() <= bound * (1.0 + e.abs()), "{found:?} is not {expected:?}");
    }
}

fn wide(list: &[f32]) -> Vec<f64> {
    list.iter().map(|&v| v.into()).collect()
}

#[test]
fn forward_has_the_values_computed_by_hand() {
    // Mean 5, biased variance 5, unbiased 20/3.
    let mut random = Random::new(1);
    let x = tensor([2, 1, 1, 2], &[2.0, 4.0, 6.0, 8.0]);
    let mut forward = Forward::new(BatchNormMode::Spatial, x.clone(), &mut random);
    (forward.scale, forward.bias) = (vec![2.0], vec![1.0]);
    forward.running = Some([vec![1.0], vec![10.0]]);
    forward.factor = 0.25;
    let y = forward.run(&x.desc, 1);
    let inv_std = 1.0 / (5.0 + EPSILON).sqrt();
    let expected = [-3.0, -1.0, 1.0, 3.0].map(|distance| 2.0 * distance * inv_std + 1.0);
    close(&y, &expected, 1e-7);
    assert_eq!(forward.saved[0], [5.0]);
    assert_eq!(forward.saved[1], [inv_std as f32]);
    assert_eq!(
        forward.running,
        Some([vec![0.75 * 1.0 + 0.25 * 5.0], vec![0.75 * 10.0 + (0.25 * 20.0 / 3.0) as f32]])
    );

    // Per activation: two groups, (2, 6) and (4, 8), both of variance 4 and unbiased variance 8.
    let mut forward = Forward::new(BatchNormMode::PerActivation, x.clone(), &mut random);
    (forward.scale, forward.bias) = (vec![1.0, 3.0], vec![0.0, -1.0]);
    forward.running = Some([vec![0.0; 2], vec![0.0; 2]]);
    forward.factor = 1.0;
    forward.activation = Some((ActivationMode::Relu, ActivationParams::default()));
    let inv_std = 1.0 / (4.0 + EPSILON).sqrt();
    close(&forward.run(&x.desc, 1), &[0.0, 0.0, 2.0 * inv_std, 3.0 * 2.0 * inv_std - 1.0], 1e-7);
    assert_eq!(forward.running, Some([vec![4.0, 6.0], vec![8.0, 8.0]]));
}

#[test]
fn one_element_has_the_biased_variance() {
    let x = tensor([1, 2, 1, 1], &[3.0, -1.0]);
    for mode in BatchNormMode::ALL {
        let mut forward = Forward::new(mode, x.clone(), &mut Random::new(2));
        forward.running = Some([vec![1.0, 1.0], vec![2.0, 2.0]]);
        forward.factor = 0.5;
        let bias = wide(&forward.bias);
        assert_eq!(forward.run(&x.desc, 1), bias);
        assert_eq!(forward.running, Some([vec![2.0, 0.0], vec![1.0, 1.0]]));
    }
}

#[test]
fn what_is_not_wanted_is_not_written_and_beta_blends() {
    let x = tensor([2, 1, 1, 2], &[2.0, 4.0, 6.0, 8.0]);
    let mut forward = Forward::new(BatchNormMode::Spatial, x.clone(), &mut Random::new(3));
    let plain = forward.run(&x.desc, 1);
    forward.saved = [Vec::new(), Vec::new()];
    assert_eq!(forward.run(&x.desc, 1), plain);
    forward.alpha = 2.0;
    forward.prior = Some((-1.0, vec![1.0, 2.0, 3.0, 4.0]));
    let expected: Vec<f64> = plain.iter().zip(1..).map(|(y, prior)| 2.0 * y - f64::from(prior)).collect();
    close(&forward.run(&x.desc, 1), &expected, 1e-6);
}

#[test]
fn forward_agrees_with_the_definition_for_all_types_and_strides() {
    let mut random = Random::new(4);
    for (data_type, mode) in [DataType::Float, DataType::Half, DataType::BFloat16]
        .into_iter()
        .flat_map(|data_type| BatchNormMode::ALL.map(|mode| (data_type, mode)))
    {
        for lens in [vec![3, 4, 5, 2], vec![4, 2, 1, 1], vec![3, 2, 2, 3, 4]] {
            let arranged = arrangements(data_type, &lens);
            for (i, &desc) in arranged.iter().enumerate() {
                let x = Tensor::new(desc, || random.real() + 0.5);
                let mut forward = Forward::new(mode, x, &mut random);
                let params = ActivationParams::new(0.5, 1.5, 2.0);
                forward.activation = (i > 0).then_some((ActivationMode::Tanh, params));
                let y = forward.run(&arranged[(i + 1) % arranged.len()], 1);

                let groups = forward.scale.len();
                let plane = lens[2..].iter().product::<usize>();
                let group = |place: usize| match mode {
                    BatchNormMode::Spatial => place / plane % lens[1],
                    BatchNormMode::PerActivation => place % (lens[1] * plane),
                };
                let (mut sums, mut squares, mut counts) =
                    (vec![0.0; groups], vec![0.0; groups], vec![0.0; groups]);
                for (place, x) in forward.x.values.iter().enumerate() {
                    sums[group(place)] += x;
                    squares[group(place)] += x * x;
                    counts[group(place)] += 1.0;
                }
                for (place, x) in forward.x.values.iter().enumerate() {
                    let g = group(place);
                    let mean = sums[g] / counts[g];
                    let inv_std = (squares[g] / counts[g] - mean * mean + EPSILON).sqrt().recip();
                    let mut exact =
                        (x - mean) * inv_std * f64::from(forward.scale[g]) + f64::from(forward.bias[g]);
                    if let Some((mode, params)) = &forward.activation {
                        exact = mode.with(params).forward(data_type, exact);
                    }
                    let bound = data_type.epsilon() / 2.0 * exact.abs() + 1e-7;
                    assert!((y[place] - exact).abs() <= bound, "{} for {exact}, {desc:?} {mode}", y[place]);
                    assert!((f64::from(forward.saved[0][g]) - mean).abs() < 1e-6);
                    assert!((f64::from(forward.saved[1][g]) - inv_std).abs() < 1e-6 * inv_std);
                }
            }
        }
    }
}

#[test]
fn backward_has_the_values_computed_by_hand() {
    // mean 0, invstd 1: x̂ = (−1, 1, −1, 1); dy = (1, 2, 3, 6): dbias 12, dscale −1 + 2 − 3 + 6 = 4;
    // dx = 2 / 4 · (4 · dy − 12 − 4 · x̂)
    let x = tensor([1, 1, 2, 2], &[-1.0, 1.0, -1.0, 1.0]);
    let dy = tensor([1, 1, 2, 2], &[1.0, 2.0, 3.0, 6.0]);
    let mut forward = Forward::new(BatchNormMode::Spatial, x.clone(), &mut Random::new(5));
    (forward.scale, forward.bias, forward.saved) = (vec![2.0], vec![0.5], [vec![0.0], vec![1.0]]);
    let found = backward(&forward, &x, &dy, &x.desc, [1.0; 2]);
    assert_eq!(found, Gradients { dx: vec![-2.0, -4.0, 2.0, 4.0], scale: vec![4.0], bias: vec![12.0] });
    // Alpha scales dx alone.
    let found = backward(&forward, &x, &dy, &x.desc, [-3.0, 1.0]);
    assert_eq!(found, Gradients { dx: vec![6.0, 12.0, -6.0, -12.0], scale: vec![4.0], bias: vec![12.0] });
    // RELU of 2 · x̂ + 0.5 lets the second and the fourth through: dbias 8, dscale 8.
    // dx = 2 / 4 · (4 · dy′ − 8 − 8 · x̂)
    forward.activation = Some((ActivationMode::Relu, ActivationParams::default()));
    let found = backward(&forward, &x, &dy, &x.desc, [1.0; 2]);
    assert_eq!(found, Gradients { dx: vec![0.0, -4.0, 0.0, 4.0], scale: vec![8.0], bias: vec![8.0] });
    // Half of dy′ is half of everything.
    let found = backward(&forward, &x, &dy, &x.desc, [1.0, 0.5]);
    assert_eq!(found, Gradients { dx: vec![0.0, -2.0, 0.0, 2.0], scale: vec![4.0], bias: vec![4.0] });
}

/// Σ weight · y of a forward pass, which has `dy = weight`.
fn loss(forward: &mut Forward, weight: &[f64]) -> f64 {
    let output = forward.x.desc;
    forward.run(&output, 1).iter().zip(weight).map(|(y, w)| y * w).sum()
}

#[test]
fn backward_is_the_slope_of_forward() {
    let mut random = Random::new(6);
    for mode in BatchNormMode::ALL {
        for act in
            [None, Some(ActivationMode::Tanh), Some(ActivationMode::Logistic), Some(ActivationMode::SoftRelu)]
        {
            let desc = TensorDescriptor::nhwc(DataType::Float, [4, 2, 3, 1]).unwrap();
            // Images far apart, so that no variance is small and slopes stay straight.
            let mut place = 0..desc.element_count();
            let x = Tensor::new(desc, || random.real() + place.next().map_or(0.0, |p| (p / 6 * 3) as f64));
            let dy = Tensor::new(desc, || random.real());
            let mut forward = Forward::new(mode, x, &mut random);
            forward.activation = act.map(|act| (act, ActivationParams::new(0.75, 1.25, 0.0)));
            let values = forward.run(&desc, 1);
            let y = Tensor { desc, values };
            let found = backward(&forward, &y, &dy, &desc, [1.0; 2]);
            let h = 1.0 / 64.0;
            let mut slope = |change: &mut dyn FnMut(&mut Forward, f64)| {
                change(&mut forward, h);
                let up = loss(&mut forward, &dy.values);
                change(&mut forward, -2.0 * h);
                let down = loss(&mut forward, &dy.values);
                change(&mut forward, h);
                (up - down) / (2.0 * h)
            };
            for place in 0..found.dx.len() {
                let slope = slope(&mut |forward, by| forward.x.values[place] += by);
                assert!(
                    (found.dx[place] - slope).abs() < 0.01,
                    "{} is not {slope}: {mode} {act:?}",
                    found.dx[place]
                );
            }
            for group in 0..found.scale.len() {
                let of_scale = slope(&mut |forward, by| forward.scale[group] += by as f32);
                let of_bias = slope(&mut |forward, by| forward.bias[group] += by as f32);
                assert!((f64::from(found.scale[group]) - of_scale).abs() < 2e-3, "{mode} {act:?}");
                assert!((f64::from(found.bias[group]) - of_bias).abs() < 2e-3, "{mode} {act:?}");
            }
        }
    }
}

#[test]
fn strides_and_threads_change_nothing() {
    let mut random = Random::new(7);
    for mode in BatchNormMode::ALL {
        for lens in [vec![3, 5, 4, 2], vec![2, 3, 2, 2, 3]] {
            let packed = TensorDescriptor::packed(DataType::Half, &lens).unwrap();
            let x = Tensor::new(packed, || random.real());
            let dy = Tensor::new(packed, || random.real());
            let mut forward = Forward::new(mode, x.clone(), &mut random);
            forward.activation = Some((ActivationMode::LeakyRelu, ActivationParams::new(0.5, 0.0, 0.0)));
            let y = forward.run(&packed, 1);
            let saved = forward.saved.clone();
            let gradients =
                backward(&forward, &Tensor { desc: packed, values: y.clone() }, &dy, &packed, [1.0; 2]);
            for desc in arrangements(DataType::Half, &lens) {
                let arrange = |values: &[f64]| Tensor { desc, values: values.to_vec() };
                forward.x = arrange(&x.values);
                assert!(same_bits(&forward.run(&packed, 3), &y), "{desc:?}");
                assert_eq!(forward.saved, saved);
                assert_eq!(
                    backward(&forward, &arrange(&y), &arrange(&dy.values), &desc, [1.0; 2]),
                    gradients
                );
            }
        }
    }
}

#[test]
fn other_chains_are_refused() {
    let x = TensorDescriptor::nchw(DataType::Float, [1, 2, 3, 4]).unwrap();
    let device = open_with_threads(1).unwrap();
    let relu = Op::ActivationForward { mode: ActivationMode::Relu };
    let batch_norm = Op::BatchNormForward { mode: BatchNormMode::Spatial, running: false };
    let refusal = |ops: &[Op]| {
        let problem = Problem { input: x, output: x, ops: ops.to_vec(), math: MathMode::Precise };
        solver(TRAINING).applies(&problem, device.info())
    };
    assert!(refusal(&[batch_norm.clone(), relu.clone()]).is_ok());
    let refused = refusal(&[relu.clone(), batch_norm.clone()]).unwrap_err();
    assert_eq!(
        (refused.property, refused.found.as_str()),
        ("operators", "ActivationForward+BatchNormForward")
    );
    assert!(refusal(&[batch_norm, relu.clone(), relu]).is_err());
}

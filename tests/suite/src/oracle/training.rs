//! Batch-norm for training, forward and backward.
//!
//! Bounds hold for f32 sums in any order, also for the variance as mean of squares less squared mean.

use super::{EXP_AVG_FACTOR, Field, Operands, activation};
use crate::case::{ActivationSpec, Case, OpSpec};

/// γₙ, with some roundings to spare.
fn gamma(n: f64, u: f64) -> f64 {
    (n + 8.0) * u / (1.0 - (n + 8.0) * u)
}

/// The output, then in MIOpen's order of arguments what the operator writes besides.
pub(super) fn expect(case: &Case, input: Field, operands: &Operands, u: f64) -> Vec<Field> {
    let mut results = match &case.ops[0] {
        OpSpec::BatchNormForward(norm) => {
            let index = |i| input.parameter(norm.mode, i);
            forward(case, &input, &operands.ops[0], norm.running, index, u)
        }
        OpSpec::BatchNormBackward(norm) => {
            let index = |i| input.parameter(norm.mode, i);
            let activation = match case.ops.get(1) {
                Some(OpSpec::ActivationBackward(spec)) => Some((spec, operands.ops[1][0].as_slice())),
                _ => None,
            };
            backward(case, &input, &operands.ops[0], activation, index, u)
        }
        OpSpec::Conv(_)
        | OpSpec::Bias(_)
        | OpSpec::Residual(_)
        | OpSpec::PRelu(_)
        | OpSpec::BatchNorm(_)
        | OpSpec::Activation(_)
        | OpSpec::ActivationBackward(_) => panic!("{}: not the first training operator", case.id),
    };
    if case.beta != 0.0 {
        results[0].add(&operands.prior, f64::from(case.beta), u, |i| i);
    }
    results
}

/// Sums over each group of elements that share a parameter.
fn sums(groups: usize, terms: impl Iterator<Item = (usize, f64)>) -> Vec<f64> {
    let mut sums = vec![0.0; groups];
    terms.for_each(|(group, term)| sums[group] += term);
    sums
}

fn forward(
    case: &Case,
    x: &Field,
    params: &[Vec<f64>],
    running: bool,
    index: impl Fn(usize) -> usize,
    u: f64,
) -> Vec<Field> {
    let (scale, bias) = (&params[0], &params[1]);
    let groups = scale.len();
    let count = (x.value.len() / groups) as f64;
    let gamma = gamma(count, u);
    let each = |f: &dyn Fn(f64, usize) -> f64| {
        sums(groups, x.value.iter().enumerate().map(|(i, &v)| (index(i), f(v, index(i)) / count)))
    };
    let mean = each(&|v, _| v);
    let size = each(&|v, _| v.abs());
    let square = each(&|v, _| v * v);
    let variance = each(&|v, g| (v - mean[g]) * (v - mean[g]));
    let inverse: Vec<_> = variance.iter().map(|v| (v + case.epsilon).sqrt().recip()).collect();
    let mean_error: Vec<_> = size.iter().map(|size| gamma * size).collect();
    let variance_error: Vec<_> = square.iter().map(|square| 3.0 * gamma * square).collect();
    // The slope of (v + ε)^(−1/2), at the end of the interval where it is steepest.
    let inverse_error: Vec<_> = (0..groups)
        .map(|g| {
            let least = (variance[g] - variance_error[g]).max(0.0) + case.epsilon;
            0.5 * variance_error[g] * least.powf(-1.5) + 4.0 * u * inverse[g]
        })
        .collect();

    let alpha = f64::from(case.alpha[0]);
    let mut y = x.clone();
    for i in 0..y.value.len() {
        let (g, v) = (index(i), x.value[i]);
        let offset = v.abs() + mean[g].abs();
        y.value[i] = alpha * (scale[g] * (v - mean[g]) * inverse[g] + bias[g]);
        y.reach[i] = alpha.abs() * (scale[g].abs() * offset * inverse[g] + bias[g].abs());
        let statistics = scale[g].abs() * (inverse[g] * mean_error[g] + offset * inverse_error[g]);
        y.error[i] = alpha.abs() * statistics + 8.0 * u * y.reach[i];
    }
    if let Some(OpSpec::Activation(spec)) = case.ops.get(1) {
        activation::forward(spec, case.data_type, &mut y, u);
        y.scale(f64::from(case.alpha[1]), u);
    }
    let mut results =
        vec![y, Field::bounded(mean.clone(), mean_error.clone()), Field::bounded(inverse, inverse_error)];
    if running {
        let unbiased = if count > 1.0 { count / (count - 1.0) } else { 1.0 };
        let blend = |prior: &[f64], batch: &[f64], error: &[f64], factor: f64| {
            let blended = |g: usize| (1.0 - EXP_AVG_FACTOR) * prior[g] + EXP_AVG_FACTOR * factor * batch[g];
            let size = |g: usize| prior[g].abs() + factor * batch[g].abs();
            let bound = |g: usize| EXP_AVG_FACTOR * factor * error[g] + 8.0 * u * size(g);
            Field::bounded((0..groups).map(blended).collect(), (0..groups).map(bound).collect())
        };
        results.push(blend(&params[2], &mean, &mean_error, 1.0));
        results.push(blend(&params[3], &variance, &variance_error, unbiased));
    }
    results
}

fn backward(
    case: &Case,
    dy: &Field,
    operands: &[Vec<f64>],
    activation: Option<(&ActivationSpec, &[f64])>,
    index: impl Fn(usize) -> usize,
    u: f64,
) -> Vec<Field> {
    let [x, scale, bias, mean, inverse] = operands else { panic!("five operands") };
    let groups = scale.len();
    let count = (x.len() / groups) as f64;
    let gamma = gamma(count, u);
    // x̂ and the gradient behind the activation, each with its bound.
    let elements: Vec<[f64; 4]> = (0..x.len())
        .map(|i| {
            let g = index(i);
            let normalised = (x[i] - mean[g]) * inverse[g];
            let error = 4.0 * u * (x[i].abs() + mean[g].abs()) * inverse[g].abs();
            let Some((spec, y)) = activation else { return [normalised, error, dy.value[i], 0.0] };
            let remade = scale[g] * normalised + bias[g];
            let slack = scale[g].abs() * error + 4.0 * u * ((scale[g] * normalised).abs() + bias[g].abs());
            let (value, error_behind) =
                activation::gradient(spec, case.data_type, remade, slack, y[i], dy.value[i], u);
            let alpha = f64::from(case.alpha[1]);
            [normalised, error, alpha * value, alpha.abs() * error_behind + u * (alpha * value).abs()]
        })
        .collect();
    let each = |f: &dyn Fn(&[f64; 4]) -> f64| {
        sums(groups, elements.iter().enumerate().map(|(i, element)| (index(i), f(element))))
    };
    let bias_diff = each(&|[_, _, d, _]| *d);
    let bias_error = each(&|[_, _, d, e]| gamma * d.abs() + e);
    let scale_diff = each(&|[n, _, d, _]| n * d);
    let scale_error = each(&|[n, ne, d, e]| gamma * (n * d).abs() + n.abs() * e + ne * d.abs() + ne * e);
    // Some kernels sum x·dy and take the mean out afterwards.
    let offset = sums(
        groups,
        (0..x.len()).map(|i| {
            let g = index(i);
            (g, gamma * (x[i].abs() + mean[g].abs()) * inverse[g].abs() * elements[i][2].abs())
        }),
    );
    let scale_error: Vec<_> = scale_error.iter().zip(&offset).map(|(a, b)| a + b).collect();

    let alpha = f64::from(case.alpha[0]);
    let mut dx = dy.clone();
    for (i, &[n, ne, d, e]) in elements.iter().enumerate() {
        let g = index(i);
        let factor = (alpha * scale[g] * inverse[g]).abs();
        dx.value[i] = alpha * scale[g] * inverse[g] / count * (count * d - bias_diff[g] - n * scale_diff[g]);
        dx.reach[i] = factor * (d.abs() + (bias_diff[g].abs() + (n * scale_diff[g]).abs()) / count);
        let sums = bias_error[g] + n.abs() * scale_error[g] + ne * (scale_diff[g].abs() + scale_error[g]);
        dx.error[i] = factor * (e + sums / count) + 12.0 * u * dx.reach[i];
    }
    vec![dx, Field::bounded(scale_diff, scale_error), Field::bounded(bias_diff, bias_error)]
}

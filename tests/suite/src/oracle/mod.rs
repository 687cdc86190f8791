//! The oracle: what a plan's results are, in f64, and how far from them a right kernel may be.
//!
//! Written from the formulas, with nothing in common with any backend. Every element carries three numbers
//! through the chain: its value, a bound of the error that a kernel may have made so far when it computes
//! in f32 with any order of sums, and the magnitude of the terms that it is the sum of. With unit roundoff
//! u: a convolution of n products adds γₙ·Σ|x||w|, γₙ = n·u / (1 − n·u), or nothing where every sum in any order is
//! one that f32 holds; an affine operator adds a few u of the magnitude, which also covers factors folded into weights;
//! a batch-norm is `(x − mean) · k + bias` with k in f32, so it adds a few u of that product and of the bias, but
//! none of the mean; an activation maps the interval, and adds 4 units in the last place of f32 where it is
//! transcendental. With u = 0 every bound is 0: the exact tier.

pub(crate) mod activation;
mod convolution;
mod training;

use fuseplan::BatchNormMode;

use crate::case::{Case, ConvSpec, OpSpec};
use crate::number::{lowest_bit, round};

/// Values of a case's operands, in the order N, C, (D,) H, W, and exactly representable in their types.
#[derive(Debug, Clone)]
pub struct Operands {
    /// The plan's input.
    pub input: Vec<f64>,
    /// Those of each operator, in the order of [`Case::operands`].
    pub ops: Vec<Vec<Vec<f64>>>,
    /// The output's previous contents.
    pub prior: Vec<f64>,
}

/// The factor by which running statistics move to those of the batch.
pub const EXP_AVG_FACTOR: f64 = 0.25;

/// The unit roundoff of f32, in which kernels accumulate.
pub const F32_ROUNDOFF: f64 = 1.0 / (1 << 24) as f64;

/// How far products are off, relatively, whose factors are rounded to TF32, which has ten bits of fraction.
pub const TF32_PRODUCT: f64 = 2.0 / (1 << 11) as f64 + 1.0 / (1 << 22) as f64;

/// The same of products that are three of TF32: of each factor a bit of f32 may be cut off, 2^-23 of it, and the product of
/// what TF32 has no room for in both is left out.
pub const TF32X3_PRODUCT: f64 = 2.0 / (1 << 23) as f64 + 1.0 / (1 << 22) as f64;

/// A result with its bounds.
#[derive(Debug, Clone)]
pub struct Field {
    /// N, C, D, H, W.
    pub lens: [usize; 5],
    /// The values.
    pub value: Vec<f64>,
    /// How far a kernel may be off before it rounds to the result's type.
    pub error: Vec<f64>,
    /// Sum of the magnitudes of the terms since the last batch-norm or operator that was not affine.
    reach: Vec<f64>,
    /// A power of two of which every intermediate is a multiple.
    grid: f64,
}

/// N, C, D, H, W of N, C, (D,) H, W.
pub fn five(lens: &[usize]) -> [usize; 5] {
    match *lens {
        [n, c, d, h, w] => [n, c, d, h, w],
        [n, c, h, w] => [n, c, 1, h, w],
        _ => [1; 5],
    }
}

impl Field {
    fn exact(lens: [usize; 5], value: Vec<f64>) -> Self {
        let reach = value.iter().map(|v| v.abs()).collect();
        let grid = grid(&value);
        Field { lens, error: vec![0.0; value.len()], value, reach, grid }
    }

    /// Results with their bounds, of no particular shape.
    fn bounded(value: Vec<f64>, error: Vec<f64>) -> Self {
        let reach = value.iter().map(|v| v.abs()).collect();
        Field { lens: [1, value.len(), 1, 1, 1], value, error, reach, grid: 0.0 }
    }

    /// N, C, D, H, W of element `i`.
    pub fn place(&self, i: usize) -> [usize; 5] {
        let (mut place, mut rest) = ([0; 5], i);
        for (index, len) in place.iter_mut().zip(self.lens).rev() {
            *index = rest % len;
            rest /= len;
        }
        place
    }

    /// Elements of one image's channel.
    fn plane(&self) -> usize {
        self.lens[2..].iter().product()
    }

    /// The index of the parameter that belongs to element `i`.
    fn parameter(&self, mode: BatchNormMode, i: usize) -> usize {
        match mode {
            BatchNormMode::Spatial => i / self.plane() % self.lens[1],
            BatchNormMode::PerActivation => i % (self.plane() * self.lens[1]),
        }
    }

    fn scale(&mut self, alpha: f64, u: f64) {
        if alpha == 1.0 {
            return;
        }
        for i in 0..self.value.len() {
            self.value[i] *= alpha;
            self.reach[i] *= alpha.abs();
            self.error[i] = alpha.abs() * self.error[i] + u * self.reach[i];
        }
        self.grid *= lowest_bit(alpha).min(1.0);
    }

    /// Adds `factor` times the term that `index` picks for each element.
    fn add(&mut self, term: &[f64], factor: f64, u: f64, index: impl Fn(usize) -> usize) {
        for i in 0..self.value.len() {
            let term = factor * term[index(i)];
            self.value[i] += term;
            self.reach[i] += term.abs();
            self.error[i] += 2.0 * u * self.reach[i];
        }
        self.grid = self.grid.min(grid(term) * lowest_bit(factor).min(1.0));
    }

    fn batch_norm(&mut self, params: &[Vec<f64>], epsilon: f64, mode: BatchNormMode, u: f64) {
        let [scale, bias, mean, variance] = params else { panic!("four parameters") };
        let mut grid = f64::INFINITY;
        for i in 0..self.value.len() {
            let p = self.parameter(mode, i);
            let factor = scale[p] / (variance[p] + epsilon).sqrt();
            let apart = self.value[i] - mean[p];
            self.value[i] = factor * apart + bias[p];
            self.reach[i] = (factor * apart).abs() + bias[p].abs();
            self.error[i] = factor.abs() * self.error[i] + 6.0 * u * self.reach[i];
            grid = grid
                .min(lowest_bit(factor) * self.grid)
                .min(lowest_bit(factor * mean[p]))
                .min(lowest_bit(bias[p]));
        }
        self.grid = grid;
    }

    /// One slope a channel, or one for all.
    fn prelu(&mut self, slopes: &[f64], u: f64) {
        let (plane, channels) = (self.plane(), self.lens[1]);
        for i in 0..self.value.len() {
            let slope = slopes[i / plane % channels % slopes.len()];
            let x = self.value[i];
            self.value[i] = if x > 0.0 { x } else { slope * x };
            self.reach[i] = self.value[i].abs();
            // What is near 0 may have had the other sign.
            self.error[i] = slope.abs().max(1.0) * self.error[i] + u * self.reach[i];
        }
        self.grid *= slopes.iter().map(|&slope| lowest_bit(slope)).fold(1.0, f64::min);
    }

    /// Whether f32 holds every intermediate exactly.
    fn is_exact(&self) -> bool {
        let largest = self.reach.iter().fold(0.0, |a: f64, &b| a.max(b));
        largest == 0.0 || largest / self.grid <= 1.0 / F32_ROUNDOFF
    }

    /// The least and the greatest result of the type that a right kernel may give for element `i`. Results
    /// too small for a normal f32 may be flushed to zero. What is not finite must be just that.
    pub fn accepted(&self, i: usize, data_type: fuseplan::DataType) -> (f64, f64) {
        let error = if self.value[i].is_finite() { self.error[i] } else { 0.0 };
        let error = if error == 0.0 { 0.0 } else { error + f64::from(f32::MIN_POSITIVE) };
        (round(self.value[i] - error, data_type), round(self.value[i] + error, data_type))
    }
}

fn grid(values: &[f64]) -> f64 {
    values.iter().map(|&v| lowest_bit(v)).fold(f64::INFINITY, f64::min)
}

/// What a case computes: the output, then whatever else its operators write. `u` is the unit roundoff of the
/// sums, `product` the relative error of a convolution's products.
///
/// # Errors
/// With `u` 0: data with which f32 is not exact. Operators that no plan has in this order.
pub fn expect(case: &Case, operands: &Operands, u: f64, product: f64) -> Result<Vec<Field>, String> {
    expect_of(case, operands, u, |conv, x, weights| convolution::forward(conv, x, weights, u, product))
}

/// As [`expect`] of a kernel whose convolution transforms its factors, as Winograd's does.
///
/// # Errors
/// Operators that no plan has in this order.
pub fn expect_transformed(case: &Case, operands: &Operands, u: f64) -> Result<Vec<Field>, String> {
    expect_of(case, operands, u, |conv, x, weights| convolution::transformed(conv, x, weights, u))
}

fn expect_of(
    case: &Case,
    operands: &Operands,
    u: f64,
    convolution: impl Fn(&ConvSpec, &Field, &[f64]) -> Field,
) -> Result<Vec<Field>, String> {
    let input = Field::exact(five(&case.input), operands.input.clone());
    if case.is_training() {
        return Ok(training::expect(case, input, operands, u));
    }
    let mut y = input;
    let inexact = |y: &Field, at: &str| {
        if u == 0.0 && !y.is_exact() {
            Err(format!("f32 is not exact with these data at {at}"))
        } else {
            Ok(())
        }
    };
    for (i, op) in case.ops.iter().enumerate() {
        let values = &operands.ops[i];
        match op {
            OpSpec::Conv(conv) => y = convolution(conv, &y, &values[0]),
            OpSpec::Bias(_) => {
                let (plane, channels) = (y.plane(), y.lens[1]);
                y.add(&values[0], 1.0, u, |i| i / plane % channels);
            }
            OpSpec::Residual(_) => y.add(&values[0], 1.0, u, |i| i),
            OpSpec::PRelu(_) => y.prelu(&values[0], u),
            OpSpec::BatchNorm(norm) => y.batch_norm(values, case.epsilon, norm.mode, u),
            OpSpec::Activation(spec) => activation::forward(spec, case.data_type, &mut y, u),
            OpSpec::BatchNormForward(_) | OpSpec::BatchNormBackward(_) | OpSpec::ActivationBackward(_) => {
                return Err(format!("operator {i} is a training operator behind another"));
            }
        }
        inexact(&y, &format!("operator {i}"))?;
        y.scale(f64::from(case.alpha[i]), u);
    }
    if case.beta != 0.0 {
        y.add(&operands.prior, f64::from(case.beta), u, |i| i);
    }
    inexact(&y, "the output")?;
    Ok(vec![y])
}

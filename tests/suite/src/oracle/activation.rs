//! What the suite knows of an activation: MIOpen's or PyTorch's formula on intervals, its gradient, its accuracy, and the
//! parameters that random cases give it.

use std::f64::consts::PI;

use fuseplan::{ActivationMode, DataType};

use super::Field;
use crate::case::ActivationSpec;

/// Below which MIOpen takes a base of `POWER`, or the β of `TANH`'s gradient, for zero.
fn zero(data_type: DataType) -> f64 {
    if data_type == DataType::Float { 1e-6 } else { 1e-4 }
}

/// Parameters that random cases pick from.
pub(crate) fn samples(mode: ActivationMode) -> [[f64; 3]; 3] {
    match mode {
        ActivationMode::Power => [[3.0, 0.5, 2.0], [1.0, 1.0, 0.5], [4.0, 0.25, -1.0]],
        ActivationMode::Clamp => [[-1.0, 1.0, 0.0], [0.0, 6.0, 0.0], [-0.5, 0.5, 0.0]],
        ActivationMode::ClippedRelu => [[6.0, 0.0, 0.0], [0.5, 0.0, 0.0], [1.0, 0.0, 0.0]],
        ActivationMode::Pasthru
        | ActivationMode::Logistic
        | ActivationMode::Tanh
        | ActivationMode::Relu
        | ActivationMode::SoftRelu
        | ActivationMode::Abs
        | ActivationMode::LeakyRelu
        | ActivationMode::Elu
        | ActivationMode::Silu
        | ActivationMode::HardSwish
        | ActivationMode::HardSigmoid
        | ActivationMode::Gelu
        | ActivationMode::GeluTanh
        | ActivationMode::Mish => [[0.5, 0.5, 0.5], [0.25, 1.0, 1.0], [0.1, 1.5, 0.3]],
    }
}

/// Whether results are exact in f32, given few digits of data and parameters.
pub(crate) fn is_exact(spec: &ActivationSpec) -> bool {
    let simple = |value: f64| (value * 16.0).fract() == 0.0 && value.abs() <= 16.0;
    let [alpha, beta, _] = spec.params;
    match spec.mode {
        ActivationMode::Pasthru | ActivationMode::Relu | ActivationMode::Abs => true,
        ActivationMode::ClippedRelu | ActivationMode::LeakyRelu => simple(alpha),
        ActivationMode::Clamp => simple(alpha) && simple(beta),
        ActivationMode::Logistic
        | ActivationMode::Tanh
        | ActivationMode::SoftRelu
        | ActivationMode::Power
        | ActivationMode::Elu
        | ActivationMode::Silu
        | ActivationMode::HardSwish
        | ActivationMode::HardSigmoid
        | ActivationMode::Gelu
        | ActivationMode::GeluTanh
        | ActivationMode::Mish => false,
    }
}

/// The activation of `x`.
fn apply(mode: ActivationMode, [alpha, beta, gamma]: [f64; 3], zero: f64, x: f64) -> f64 {
    match mode {
        ActivationMode::Pasthru => x,
        ActivationMode::Logistic => (1.0 + (-x).exp()).recip(),
        ActivationMode::Tanh => beta * (alpha * x).tanh(),
        ActivationMode::Relu if x > 0.0 => x,
        ActivationMode::Relu => 0.0,
        // ln(1 + eˣ) = x + ln(1 + e⁻ˣ), of which the one that does not overflow is taken.
        ActivationMode::SoftRelu if x > 0.0 => x + (-x).exp().ln_1p(),
        ActivationMode::SoftRelu => x.exp().ln_1p(),
        ActivationMode::Abs => x.abs(),
        ActivationMode::Power if alpha + beta * x <= zero => 0.0,
        ActivationMode::Power => (alpha + beta * x).powf(gamma),
        ActivationMode::ClippedRelu => x.max(0.0).min(alpha),
        ActivationMode::LeakyRelu if x > 0.0 => x,
        ActivationMode::LeakyRelu => alpha * x,
        ActivationMode::Elu if x > 0.0 => x,
        ActivationMode::Elu => alpha * x.exp_m1(),
        ActivationMode::Clamp => x.min(beta).max(alpha),
        // ∞ · 0 is what PyTorch's products are at −∞.
        ActivationMode::Silu => x * logistic(x),
        ActivationMode::HardSwish => x * hard_sigmoid(x),
        ActivationMode::HardSigmoid => hard_sigmoid(x),
        ActivationMode::Gelu => x * normal(x),
        ActivationMode::GeluTanh => x * logistic(2.0 * tanh_argument(x)),
        ActivationMode::Mish if x > 0.0 => x * (x + (-x).exp().ln_1p()).tanh(),
        ActivationMode::Mish => x * x.exp().ln_1p().tanh(),
    }
}

/// The logistic function by exponentials that do not overflow.
fn logistic(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    (if x > 0.0 { 1.0 } else { e }) / (1.0 + e)
}

fn hard_sigmoid(x: f64) -> f64 {
    if x <= -3.0 {
        0.0
    } else if x >= 3.0 {
        1.0
    } else {
        x / 6.0 + 0.5
    }
}

/// √(2/π) · (x + 0.044715 x³)
fn tanh_argument(x: f64) -> f64 {
    (2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))
}

/// The distribution function of the normal distribution, ½ erfc(−x / √2): near 0 by the alternating series of erf,
/// elsewhere by the trapezoidal rule for erfc(z) = (z/π) e^(−z²) ∫ e^(−t²) / (t² + z²) dt, whose error is far below
/// roundoff at this step, but for the pole at t = iz, which is added.
fn normal(x: f64) -> f64 {
    let z = x.abs() / 2f64.sqrt();
    if z < 2.0 {
        let mut power = x / 2f64.sqrt();
        let mut sum = power;
        for n in 1..60 {
            let n = f64::from(n);
            power *= -z * z / n;
            sum += power / (2.0 * n + 1.0);
        }
        return 0.5 + sum / PI.sqrt();
    }
    if z > 40.0 {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    let step = 0.5;
    let at = |t: f64| (-t * t).exp() / (t * t + z * z);
    let sum = at(0.0) + 2.0 * (1..14).map(|n| at(f64::from(n) * step)).sum::<f64>();
    let pole = 2.0 / (1.0 - (2.0 * PI * z / step).exp());
    let pole = if z < PI / step { pole } else { 0.0 };
    let tail = (step * z / PI * (-z * z).exp() * sum + pole) / 2.0;
    if x > 0.0 { 1.0 - tail } else { tail }
}

/// Where functions that fall and rise again are least, to a few digits.
fn lowest(mode: ActivationMode) -> Option<f64> {
    match mode {
        ActivationMode::Silu => Some(-1.278_464_5),
        ActivationMode::HardSwish => Some(-1.5),
        ActivationMode::Gelu => Some(-0.751_791_5),
        ActivationMode::GeluTanh => Some(-0.752_461_4),
        ActivationMode::Mish => Some(-1.192_431_2),
        ActivationMode::Pasthru
        | ActivationMode::Logistic
        | ActivationMode::Tanh
        | ActivationMode::Relu
        | ActivationMode::SoftRelu
        | ActivationMode::Abs
        | ActivationMode::Power
        | ActivationMode::ClippedRelu
        | ActivationMode::LeakyRelu
        | ActivationMode::Elu
        | ActivationMode::Clamp
        | ActivationMode::HardSigmoid => None,
    }
}

/// How far the argument may be off because scalars are rounded to f32, and how many units of f32's roundoff the
/// result may have.
fn accuracy(mode: ActivationMode, data_type: DataType, [alpha, beta, _]: [f64; 3], x: f64) -> (f64, f64) {
    match mode {
        ActivationMode::Pasthru | ActivationMode::Relu | ActivationMode::Abs => (0.0, 0.0),
        ActivationMode::ClippedRelu | ActivationMode::Clamp => (0.0, 1.0),
        ActivationMode::LeakyRelu => (0.0, 2.0),
        ActivationMode::Tanh => (2.0 * x.abs(), 8.0),
        ActivationMode::Power => (3.0 * (x.abs() + (alpha / beta).abs()), 8.0),
        ActivationMode::Logistic | ActivationMode::SoftRelu | ActivationMode::Elu => (0.0, 8.0),
        ActivationMode::Silu | ActivationMode::HardSwish | ActivationMode::HardSigmoid => (0.0, 8.0),
        // Two quotients' terms, each of an exponential.
        ActivationMode::Mish => (0.0, 12.0),
        // Vendors promise at most 16 units of roundoff for erfc, in the tail.
        ActivationMode::Gelu if data_type == DataType::Float => (0.0, 18.0),
        // GPUs' polynomial for 16 bits has a relative error of 2e-5, and their fast exponential rounds its argument, −x²/2.
        ActivationMode::Gelu => (0.0, 2e-5 / f64::from(f32::EPSILON / 2.0) + 20.0 + 2.0 * x * x),
        // The cubic argument is rounded before the exponential is taken.
        ActivationMode::GeluTanh => (3.0 * x.abs(), 8.0),
    }
}

/// Applies the activation to every element. Where a mode is monotone the ends of an interval bound its image, and so
/// they do for `ABS`, as the interval is symmetric about the value; others have one least value, which counts too.
pub(super) fn forward(spec: &ActivationSpec, data_type: DataType, y: &mut Field, u: f64) {
    let ActivationSpec { mode, params } = *spec;
    let zero = zero(data_type);
    let f = |x| apply(mode, params, zero, x);
    for i in 0..y.value.len() {
        let x = y.value[i];
        let value = f(x);
        let (slack, roundings) = accuracy(mode, data_type, params, x);
        // Infinities have no error.
        let error =
            if x.is_finite() { y.error[i] + if slack.is_finite() { slack * u } else { 0.0 } } else { 0.0 };
        let mut spread = (f(x + error) - value).abs().max((f(x - error) - value).abs());
        if let Some(least) = lowest(mode).filter(|least| (x - least).abs() <= error) {
            spread = spread.max((f(least) - value).abs());
        }
        let [alpha, beta, gamma] = params;
        let base = alpha + beta * x;
        if mode == ActivationMode::Power && (base - zero).abs() <= (beta * error).abs() {
            // Either side of the jump to zero.
            spread = spread.max(zero.powf(gamma)).max(value);
        }
        y.value[i] = value;
        y.error[i] = spread + roundings * u * value.abs();
        if mode != ActivationMode::Pasthru {
            y.reach[i] = value.abs() + y.error[i];
        }
    }
    if u == 0.0 {
        y.grid = y.grid.min(super::grid(&y.value));
    }
}

/// The gradient of an activation at `x`, which may be off by `error`, and a bound of how far the gradient may be
/// off; `y` is the activation's result, `dy` the gradient behind it.
pub(super) fn gradient(
    spec: &ActivationSpec,
    data_type: DataType,
    x: f64,
    error: f64,
    y: f64,
    dy: f64,
    u: f64,
) -> (f64, f64) {
    let zero = zero(data_type);
    let at = |x| gradient_at(spec, zero, x, y, dy);
    let value = at(x);
    let [alpha, beta, gamma] = spec.params;
    let (slack, _) = accuracy(spec.mode, data_type, spec.params, x);
    let error = error + if slack.is_finite() { slack * u } else { 0.0 };
    let mut spread = (at(x + error) - value).abs().max((at(x - error) - value).abs());
    if spec.mode == ActivationMode::Power && (alpha + beta * x - zero).abs() <= (beta * error).abs() {
        // Either side of the pole, which is cut off.
        spread = spread.max((beta * gamma * y / zero).abs()).max(value.abs());
    }
    // The terms of the longest formula, alpha · (beta − y²/beta), may cancel.
    let term = dy.abs() * (1.0 + alpha.abs()) * (1.0 + beta.abs() + y.abs() + y * y / beta.abs().max(1e-3));
    (value, spread + 8.0 * u * (value.abs() + term))
}

/// The formula. `POWER` leaves `dy` out, as MIOpen does.
fn gradient_at(spec: &ActivationSpec, zero: f64, x: f64, y: f64, dy: f64) -> f64 {
    let [alpha, beta, gamma] = spec.params;
    let positive = x > 0.0;
    match spec.mode {
        ActivationMode::Pasthru => dy,
        ActivationMode::Logistic => dy * y * (1.0 - y),
        ActivationMode::Tanh if beta.abs() <= zero => 0.0,
        ActivationMode::Tanh => dy * alpha * (beta - y * y / beta),
        ActivationMode::Relu => {
            if positive {
                dy
            } else {
                0.0
            }
        }
        ActivationMode::SoftRelu => dy * (x.min(50.0).exp() / (1.0 + x.min(50.0).exp())),
        ActivationMode::Abs => {
            if positive {
                dy
            } else {
                -dy
            }
        }
        ActivationMode::Power if alpha + beta * x <= zero => 0.0,
        ActivationMode::Power => beta * gamma * y / (alpha + beta * x),
        ActivationMode::ClippedRelu => {
            if positive && x <= alpha {
                dy
            } else {
                0.0
            }
        }
        ActivationMode::LeakyRelu => {
            if positive {
                dy
            } else {
                alpha * dy
            }
        }
        ActivationMode::Elu => {
            if positive {
                dy
            } else {
                dy * (y + alpha)
            }
        }
        ActivationMode::Clamp => {
            if x > alpha && x <= beta {
                dy
            } else {
                0.0
            }
        }
        // (x · g)' = g + x · g'
        ActivationMode::Silu => dy * (logistic(x) + x * logistic(x) * logistic(-x)),
        ActivationMode::HardSwish if x <= -3.0 => 0.0,
        ActivationMode::HardSwish if x < 3.0 => dy * (2.0 * x + 3.0) / 6.0,
        ActivationMode::HardSwish => dy,
        ActivationMode::HardSigmoid if x.abs() < 3.0 => dy / 6.0,
        ActivationMode::HardSigmoid => 0.0,
        ActivationMode::Gelu => dy * (normal(x) + x * (-x * x / 2.0).exp() / (2.0 * PI).sqrt()),
        ActivationMode::GeluTanh => {
            let u = tanh_argument(x);
            let slope = (2.0 / PI).sqrt() * (1.0 + 3.0 * 0.044715 * x * x);
            dy * (logistic(2.0 * u) + x / 2.0 * slope / u.cosh().powi(2))
        }
        ActivationMode::Mish => {
            let t = apply(ActivationMode::SoftRelu, [0.0; 3], 0.0, x).tanh();
            dy * (t + x * (1.0 - t) * (1.0 + t) * logistic(x))
        }
    }
}

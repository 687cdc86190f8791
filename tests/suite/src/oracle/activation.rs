//! Activations and their gradients: MIOpen's formulas on intervals.

use fuseplan::{ActivationMode, DataType};

use super::Field;
use crate::case::ActivationSpec;

/// Below which MIOpen takes a base of `POWER`, or the β of `TANH`'s gradient, for zero.
fn zero(data_type: DataType) -> f64 {
    if data_type == DataType::Float { 1e-6 } else { 1e-4 }
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
        other => panic!("{other} has no formula here"),
    }
}

/// How far the argument may be off because scalars are rounded to f32, and how many units of roundoff the
/// result may have.
fn accuracy(mode: ActivationMode, [alpha, beta, _]: [f64; 3], x: f64) -> (f64, f64) {
    match mode {
        ActivationMode::Pasthru | ActivationMode::Relu | ActivationMode::Abs => (0.0, 0.0),
        ActivationMode::ClippedRelu | ActivationMode::Clamp => (0.0, 1.0),
        ActivationMode::LeakyRelu => (0.0, 2.0),
        ActivationMode::Tanh => (2.0 * x.abs(), 8.0),
        ActivationMode::Power => (3.0 * (x.abs() + (alpha / beta).abs()), 8.0),
        _ => (0.0, 8.0),
    }
}

/// Applies the activation to every element. All modes but `ABS` are monotone, so the ends of an interval
/// bound its image; so they do for `ABS`, as the interval is symmetric about the value.
pub(super) fn forward(spec: &ActivationSpec, data_type: DataType, y: &mut Field, u: f64) {
    let ActivationSpec { mode, params } = *spec;
    let zero = zero(data_type);
    let f = |x| apply(mode, params, zero, x);
    for i in 0..y.value.len() {
        let x = y.value[i];
        let value = f(x);
        let (slack, roundings) = accuracy(mode, params, x);
        // Infinities have no error.
        let error =
            if x.is_finite() { y.error[i] + if slack.is_finite() { slack * u } else { 0.0 } } else { 0.0 };
        let mut spread = (f(x + error) - value).abs().max((f(x - error) - value).abs());
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
    let (slack, _) = accuracy(spec.mode, spec.params, x);
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
        other => panic!("{other} has no formula here"),
    }
}

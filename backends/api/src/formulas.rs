//! Activations and their gradients in f64, one element at a time: MIOpen's formulas, word for word.

use crate::{ActivationMode, ActivationParams, DataType};

/// What MIOpen's kernels take for zero in [`ActivationMode::Power`] and in the gradient of
/// [`ActivationMode::Tanh`]: more of 16-bit data.
fn zero(data_type: DataType) -> f64 {
    if data_type == DataType::Float { 1e-6 } else { 1e-4 }
}

impl ActivationMode {
    /// The activation of `x`, an element of a tensor of this type, by the mode's formula as MIOpen has it.
    ///
    /// Where the formula's words are `min` and `max`, a NaN gives the other operand, as C's `fmin` and `fmax` do.
    pub fn forward(self, params: &ActivationParams, data_type: DataType, x: f64) -> f64 {
        let ActivationParams { alpha, beta, gamma } = *params;
        match self {
            ActivationMode::Pasthru => x,
            ActivationMode::Logistic => 1.0 / (1.0 + (-x).exp()),
            ActivationMode::Tanh => beta * (alpha * x).tanh(),
            ActivationMode::Relu => {
                if x > 0.0 {
                    x
                } else {
                    0.0
                }
            }
            ActivationMode::SoftRelu => x.max(0.0) + (-x.abs()).exp().ln_1p(),
            ActivationMode::Abs => x.abs(),
            ActivationMode::Power => {
                let base = alpha + beta * x;
                if base <= zero(data_type) { 0.0 } else { base.powf(gamma) }
            }
            ActivationMode::ClippedRelu => alpha.min(x.max(0.0)),
            ActivationMode::LeakyRelu => {
                if x > 0.0 {
                    x
                } else {
                    alpha * x
                }
            }
            ActivationMode::Elu => {
                if x > 0.0 {
                    x
                } else {
                    alpha * x.exp_m1()
                }
            }
            ActivationMode::Clamp => alpha.max(beta.min(x)),
        }
    }

    /// The gradient with respect to `x`, the activation's input, an element of a tensor of this type, given `y`, its
    /// output, and `dy`, the gradient with respect to `y`.
    ///
    /// As in MIOpen, the gradient of [`ActivationMode::Power`] leaves `dy` out: it is the bare derivative
    /// `β·γ·y / (α + β·x)`. That is MIOpen's fault, kept so that both compute the same numbers.
    pub fn backward(self, params: &ActivationParams, data_type: DataType, x: f64, y: f64, dy: f64) -> f64 {
        let ActivationParams { alpha, beta, gamma } = *params;
        match self {
            ActivationMode::Pasthru => dy,
            ActivationMode::Logistic => dy * y * (1.0 - y),
            ActivationMode::Tanh => {
                if beta.abs() <= zero(data_type) {
                    0.0
                } else {
                    dy * alpha * (beta - y * y / beta)
                }
            }
            ActivationMode::Relu => {
                if x > 0.0 {
                    dy
                } else {
                    0.0
                }
            }
            ActivationMode::SoftRelu => {
                let e = x.min(50.0).exp();
                dy * e / (1.0 + e)
            }
            ActivationMode::Abs => {
                if x > 0.0 {
                    dy
                } else {
                    -dy
                }
            }
            ActivationMode::Power => {
                let base = alpha + beta * x;
                if base <= zero(data_type) { 0.0 } else { beta * gamma * y / base }
            }
            ActivationMode::ClippedRelu => {
                if x > 0.0 && x <= alpha {
                    dy
                } else {
                    0.0
                }
            }
            ActivationMode::LeakyRelu => {
                if x > 0.0 {
                    dy
                } else {
                    alpha * dy
                }
            }
            ActivationMode::Elu => {
                if x > 0.0 {
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INF: f64 = f64::INFINITY;

    fn check(mode: ActivationMode, [alpha, beta, gamma]: [f64; 3], pairs: &[(f64, f64)]) {
        for &(x, y) in pairs {
            let found = mode.forward(&ActivationParams::new(alpha, beta, gamma), DataType::Float, x);
            let close = (found - y).abs() <= 4.0 * f64::EPSILON * y.abs();
            assert!(close || found == y || found.is_nan() && y.is_nan(), "{mode}({x}) = {found}, not {y}");
        }
    }

    #[test]
    fn activations_have_the_values_computed_by_hand() {
        use ActivationMode::*;
        let e = std::f64::consts::E;
        let ln2 = std::f64::consts::LN_2;
        check(Pasthru, [9.0; 3], &[(-2.5, -2.5), (0.0, 0.0), (INF, INF), (f64::NAN, f64::NAN)]);
        check(Logistic, [9.0; 3], &[(0.0, 0.5), (1.0, e / (e + 1.0)), (-1.0, 1.0 / (e + 1.0))]);
        check(Logistic, [9.0; 3], &[(-INF, 0.0), (INF, 1.0), (ln2, 2.0 / 3.0), (-1000.0, 0.0)]);
        // tanh(ln 2) = (4 − 1) / (4 + 1)
        check(Tanh, [2.0, 10.0, 9.0], &[(ln2 / 2.0, 6.0), (-ln2 / 2.0, -6.0), (0.0, 0.0), (INF, 10.0)]);
        check(Relu, [9.0; 3], &[(3.0, 3.0), (-3.0, 0.0), (0.0, 0.0), (INF, INF), (f64::NAN, 0.0)]);
        check(SoftRelu, [9.0; 3], &[(0.0, ln2), (ln2, 3f64.ln()), (-ln2, 1.5f64.ln())]);
        check(SoftRelu, [9.0; 3], &[(1000.0, 1000.0), (-1000.0, 0.0), (INF, INF), (f64::NAN, f64::NAN)]);
        check(Abs, [9.0; 3], &[(-2.0, 2.0), (2.0, 2.0), (-INF, INF), (f64::NAN, f64::NAN)]);
        check(Power, [1.0, 2.0, 3.0], &[(1.0, 27.0), (0.0, 1.0), (-0.5, 0.0), (-3.0, 0.0), (INF, INF)]);
        check(Power, [1e-6, 1.0, 0.0], &[(0.0, 0.0), (1e-6, 1.0)]);
        check(
            ClippedRelu,
            [6.0, 9.0, 9.0],
            &[(-1.0, 0.0), (3.0, 3.0), (7.0, 6.0), (INF, 6.0), (f64::NAN, 0.0)],
        );
        check(LeakyRelu, [0.25, 9.0, 9.0], &[(4.0, 4.0), (-4.0, -1.0), (-INF, -INF), (f64::NAN, f64::NAN)]);
        check(Elu, [2.0, 9.0, 9.0], &[(3.0, 3.0), (-ln2, -1.0), (-INF, -2.0), (f64::NAN, f64::NAN)]);
        check(
            Clamp,
            [-1.0, 6.0, 9.0],
            &[(-2.0, -1.0), (0.5, 0.5), (8.0, 6.0), (-INF, -1.0), (f64::NAN, 6.0)],
        );
    }

    #[test]
    fn sixteen_bit_data_has_the_coarser_threshold() {
        let power = |data_type| {
            let params = ActivationParams::new(0.0, 1.0, 1.0);
            ActivationMode::Power.forward(&params, data_type, 5e-5)
        };
        assert_eq!(power(DataType::Float), 5e-5);
        assert_eq!(power(DataType::Half), 0.0);
        assert_eq!(power(DataType::BFloat16), 0.0);
    }

    #[test]
    fn gradients_are_the_derivatives() {
        let params = ActivationParams::new(0.75, 1.5, 2.5);
        for mode in ActivationMode::ALL {
            // Away from the corners at 0, α, β and where POWER starts.
            for x in [-2.0, -0.3, 0.4, 0.6, 1.1, 1.4, 2.0] {
                let y = |x| mode.forward(&params, DataType::Float, x);
                let h = 1e-6;
                let slope = (y(x + h) - y(x - h)) / (2.0 * h);
                // POWER's has no dy, as in MIOpen.
                let dy = if mode == ActivationMode::Power { 1.0 } else { -3.0 };
                let found = mode.backward(&params, DataType::Float, x, y(x), dy);
                assert!((found - dy * slope).abs() < 1e-7, "{mode}'({x}) = {found}, not {}", dy * slope);
            }
        }
    }

    #[test]
    fn gradients_at_corners_are_miopens() {
        let at = |mode: ActivationMode, alpha, beta, x| {
            mode.backward(&ActivationParams::new(alpha, beta, 2.0), DataType::Float, x, 0.5, 7.0)
        };
        assert_eq!(at(ActivationMode::Relu, 0.0, 0.0, 0.0), 0.0);
        assert_eq!(at(ActivationMode::Abs, 0.0, 0.0, 0.0), -7.0);
        assert_eq!(at(ActivationMode::LeakyRelu, 0.5, 0.0, 0.0), 3.5);
        assert_eq!(at(ActivationMode::ClippedRelu, 6.0, 0.0, 6.0), 7.0);
        assert_eq!(at(ActivationMode::ClippedRelu, 6.0, 0.0, 0.0), 0.0);
        assert_eq!(at(ActivationMode::Clamp, -1.0, 6.0, -1.0), 0.0);
        assert_eq!(at(ActivationMode::Clamp, -1.0, 6.0, 6.0), 7.0);
        assert_eq!(at(ActivationMode::Tanh, 2.0, 1e-7, 1.0), 0.0);
        assert_eq!(at(ActivationMode::Power, 1.0, -1.0, 1.0), 0.0);
        // β·γ·y / (α + β·x), without dy
        assert_eq!(at(ActivationMode::Power, 1.0, 4.0, 1.0), 4.0 * 2.0 * 0.5 / 5.0);
        assert_eq!(at(ActivationMode::SoftRelu, 0.0, 0.0, 1000.0), 7.0);
    }
}

//! The formulas of activations and of their gradients in f64, one element at a time. MIOpen's are word for word as MIOpen
//! has them; the others are PyTorch's.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use super::Activation;
use crate::DataType;

/// What MIOpen's kernels take for zero in [`Activation::Power`] and in the gradient of [`Activation::Tanh`]: more of 16-bit
/// data.
fn zero(data_type: DataType) -> f64 {
    if data_type == DataType::Float { 1e-6 } else { 1e-4 }
}

impl Activation {
    /// The activation of `x`, an element of a tensor of this type, by the formula.
    ///
    /// Where MIOpen's formula has `min` and `max`, a NaN gives the other operand, as C's `fmin` and `fmax` do.
    pub fn forward(&self, data_type: DataType, x: f64) -> f64 {
        match *self {
            Activation::Pasthru => x,
            Activation::Logistic => 1.0 / (1.0 + (-x).exp()),
            Activation::Tanh { alpha, beta } => beta * (alpha * x).tanh(),
            Activation::Relu => {
                if x > 0.0 {
                    x
                } else {
                    0.0
                }
            }
            Activation::SoftRelu => x.max(0.0) + (-x.abs()).exp().ln_1p(),
            Activation::Abs => x.abs(),
            Activation::Power { alpha, beta, gamma } => {
                let base = alpha + beta * x;
                if base <= zero(data_type) { 0.0 } else { base.powf(gamma) }
            }
            Activation::ClippedRelu { max } => max.min(x.max(0.0)),
            Activation::LeakyRelu { slope } => {
                if x > 0.0 {
                    x
                } else {
                    slope * x
                }
            }
            Activation::Elu { alpha } => {
                if x > 0.0 {
                    x
                } else {
                    alpha * x.exp_m1()
                }
            }
            Activation::Clamp { min, max } => min.max(max.min(x)),
            Activation::Silu => x / (1.0 + (-x).exp()),
            // `clamp` hands NaN on.
            Activation::HardSwish => x * ((x + 3.0).clamp(0.0, 6.0) / 6.0),
            Activation::HardSigmoid => (x + 3.0).clamp(0.0, 6.0) / 6.0,
            Activation::Gelu => x * normal_cdf(x),
            // ½ (1 + tanh u) = 1 / (1 + e^−2u), which does not cancel.
            Activation::GeluTanh => x / (1.0 + (-gelu_argument(x)).exp()),
            Activation::Mish => x * x.exp().ln_1p().tanh(),
        }
    }

    /// The gradient with respect to `x`, the activation's input, an element of a tensor of this type, given `y`, its
    /// output, and `dy`, the gradient with respect to `y`.
    ///
    /// As in MIOpen, the gradient of [`Activation::Power`] leaves `dy` out: it is the bare derivative
    /// `β·γ·y / (α + β·x)`. That is MIOpen's fault, kept so that both compute the same numbers.
    pub fn backward(&self, data_type: DataType, x: f64, y: f64, dy: f64) -> f64 {
        match *self {
            Activation::Pasthru => dy,
            Activation::Logistic => dy * y * (1.0 - y),
            Activation::Tanh { alpha, beta } => {
                if beta.abs() <= zero(data_type) {
                    0.0
                } else {
                    dy * alpha * (beta - y * y / beta)
                }
            }
            Activation::Relu => {
                if x > 0.0 {
                    dy
                } else {
                    0.0
                }
            }
            Activation::SoftRelu => {
                let e = x.min(50.0).exp();
                dy * e / (1.0 + e)
            }
            Activation::Abs => {
                if x > 0.0 {
                    dy
                } else {
                    -dy
                }
            }
            Activation::Power { alpha, beta, gamma } => {
                let base = alpha + beta * x;
                if base <= zero(data_type) { 0.0 } else { beta * gamma * y / base }
            }
            Activation::ClippedRelu { max } => {
                if x > 0.0 && x <= max {
                    dy
                } else {
                    0.0
                }
            }
            Activation::LeakyRelu { slope } => {
                if x > 0.0 {
                    dy
                } else {
                    slope * dy
                }
            }
            Activation::Elu { alpha } => {
                if x > 0.0 {
                    dy
                } else {
                    dy * (y + alpha)
                }
            }
            Activation::Clamp { min, max } => {
                if x > min && x <= max {
                    dy
                } else {
                    0.0
                }
            }
            Activation::Silu => {
                let sigmoid = 1.0 / (1.0 + (-x).exp());
                dy * sigmoid * (1.0 + x * (1.0 - sigmoid))
            }
            Activation::HardSwish => {
                if x <= -3.0 {
                    0.0
                } else if x < 3.0 {
                    dy * (x / 3.0 + 0.5)
                } else {
                    dy
                }
            }
            Activation::HardSigmoid => {
                if x > -3.0 && x < 3.0 {
                    dy / 6.0
                } else {
                    0.0
                }
            }
            Activation::Gelu => {
                let density = FRAC_1_SQRT_2 / 2.0 * FRAC_2_SQRT_PI * (-x * x / 2.0).exp();
                dy * (normal_cdf(x) + x * density)
            }
            Activation::GeluTanh => {
                let sigmoid = 1.0 / (1.0 + (-gelu_argument(x)).exp());
                // The slope counts where the sigmoid is not 0 or 1: elsewhere it may overflow.
                let near = x.clamp(-16.0, 16.0);
                let slope = 2.0 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI * (1.0 + 3.0 * 0.044_715 * near * near);
                dy * (sigmoid + x * sigmoid * (1.0 - sigmoid) * slope)
            }
            Activation::Mish => {
                let t = x.exp().ln_1p().tanh();
                dy * (t + x / (1.0 + (-x).exp()) * (1.0 - t * t))
            }
        }
    }
}

/// Twice the argument of the tanh in [`Activation::GeluTanh`], `2 √(2/π) · (x + 0.044715 x³)`.
fn gelu_argument(x: f64) -> f64 {
    2.0 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI * (x + 0.044_715 * x * x * x)
}

/// `½ (1 + erf(x / √2))`, the distribution function of the normal distribution, with at least 12 digits in both tails.
fn normal_cdf(x: f64) -> f64 {
    let z = x.abs() * FRAC_1_SQRT_2;
    let density = FRAC_2_SQRT_PI * (-z * z).exp();
    // ½ erfc(z): by a series of positive terms, or by the continued fraction of Laplace.
    let tail = if z < 2.5 {
        let (mut term, mut sum, mut n) = (z, z, 1.0);
        while term > sum * f64::EPSILON / 2.0 {
            term *= 2.0 * z * z / (2.0 * n + 1.0);
            sum += term;
            n += 1.0;
        }
        0.5 - density / 2.0 * sum
    } else {
        let fraction = (1..=80).rev().fold(z, |rest, n| z + f64::from(n) / 2.0 / rest);
        density / 4.0 / fraction
    };
    if x > 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::super::{ActivationMode, ActivationParams};
    use super::*;

    const INF: f64 = f64::INFINITY;

    fn check(mode: ActivationMode, [alpha, beta, gamma]: [f64; 3], pairs: &[(f64, f64)]) {
        for &(x, y) in pairs {
            let found = mode.with(&ActivationParams::new(alpha, beta, gamma)).forward(DataType::Float, x);
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
    fn activations_have_the_values_of_pytorch() {
        use ActivationMode::*;
        let e = std::f64::consts::E;
        let ln2 = std::f64::consts::LN_2;
        check(Silu, [9.0; 3], &[(0.0, 0.0), (1.0, e / (e + 1.0)), (-1.0, -1.0 / (e + 1.0)), (-1000.0, 0.0)]);
        check(
            HardSwish,
            [9.0; 3],
            &[(1.0, 2.0 / 3.0), (-1.0, -1.0 / 3.0), (3.0, 3.0), (-3.0, 0.0), (1e30, 1e30)],
        );
        check(
            HardSigmoid,
            [9.0; 3],
            &[(0.0, 0.5), (1.5, 0.75), (3.0, 1.0), (-3.0, 0.0), (INF, 1.0), (-INF, 0.0)],
        );
        let normal = [
            (1.0, 0.841_344_746_068_542_9),
            (3.0, 0.998_650_101_968_369_9),
            (-1.0, 0.158_655_253_931_457_05),
        ];
        check(Gelu, [9.0; 3], &normal.map(|(x, p)| (x, x * p)));
        check(Gelu, [9.0; 3], &[(0.0, 0.0), (100.0, 100.0), (-100.0, 0.0)]);
        for (x, p) in [
            (-2.5, 0.006_209_665_325_776_132),
            (-5.0, 2.866_515_718_791_939e-7),
            (-9.0, 1.128_588_405_953_840_6e-19),
        ] {
            assert!((normal_cdf(x) / p - 1.0).abs() < 1e-12, "{x}");
        }
        check(GeluTanh, [9.0; 3], &[(0.0, 0.0), (1.0, 0.841_191_990_608_276_8), (1e30, 1e30), (-1e30, 0.0)]);
        check(Mish, [9.0; 3], &[(0.0, 0.0), (ln2, 0.8 * ln2), (-ln2, -ln2 * 1.25 / 3.25), (1000.0, 1000.0)]);
        for mode in [Silu, HardSwish, Gelu, GeluTanh, Mish] {
            check(mode, [9.0; 3], &[(INF, INF), (-INF, f64::NAN), (f64::NAN, f64::NAN)]);
        }
        check(HardSigmoid, [9.0; 3], &[(f64::NAN, f64::NAN)]);
    }

    #[test]
    fn sixteen_bit_data_has_the_coarser_threshold() {
        let power = |data_type| {
            let params = ActivationParams::new(0.0, 1.0, 1.0);
            ActivationMode::Power.with(&params).forward(data_type, 5e-5)
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
                let activation = mode.with(&params);
                let y = |x| activation.forward(DataType::Float, x);
                let h = 1e-6;
                let slope = (y(x + h) - y(x - h)) / (2.0 * h);
                // POWER's has no dy, as in MIOpen.
                let dy = if mode == ActivationMode::Power { 1.0 } else { -3.0 };
                let found = activation.backward(DataType::Float, x, y(x), dy);
                assert!((found - dy * slope).abs() < 1e-7, "{mode}'({x}) = {found}, not {}", dy * slope);
            }
        }
    }

    #[test]
    fn gradients_at_corners_are_miopens() {
        let at = |mode: ActivationMode, alpha, beta, x| {
            mode.with(&ActivationParams::new(alpha, beta, 2.0)).backward(DataType::Float, x, 0.5, 7.0)
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
        for (mode, [low, high]) in
            [(ActivationMode::HardSwish, [0.0, 7.0]), (ActivationMode::HardSigmoid, [0.0; 2])]
        {
            assert_eq!([at(mode, 0.0, 0.0, -3.0), at(mode, 0.0, 0.0, 3.0)], [low, high]);
        }
        for mode in
            [ActivationMode::Silu, ActivationMode::Gelu, ActivationMode::GeluTanh, ActivationMode::Mish]
        {
            assert_eq!([-1e30, 1e30].map(|x| at(mode, 0.0, 0.0, x)), [0.0, 7.0], "{mode}");
        }
    }
}

//! Activations: their modes and their parameters.

mod formula;

use std::fmt;

/// Which function an activation applies, without its parameters: what a plan is compiled for. The parameters are given at
/// run time, by the [`Activation`] of the same name, which has the formula.
///
/// The first are MIOpen's; those from SiLU on are fuseplan's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ActivationMode {
    /// The identity: [`Activation::Pasthru`].
    Pasthru,
    /// The logistic function, also called sigmoid: [`Activation::Logistic`].
    Logistic,
    /// The hyperbolic tangent, with factors: [`Activation::Tanh`].
    Tanh,
    /// The rectified linear unit: [`Activation::Relu`].
    Relu,
    /// The soft rectified linear unit, also called softplus: [`Activation::SoftRelu`].
    SoftRelu,
    /// The absolute value: [`Activation::Abs`].
    Abs,
    /// The power of a line: [`Activation::Power`].
    Power,
    /// ReLU with an upper bound, such as ReLU6: [`Activation::ClippedRelu`].
    ClippedRelu,
    /// ReLU with a slope for what is negative: [`Activation::LeakyRelu`].
    LeakyRelu,
    /// The exponential linear unit: [`Activation::Elu`].
    Elu,
    /// The nearest number within bounds: [`Activation::Clamp`].
    Clamp,
    /// The sigmoid linear unit, also called swish: [`Activation::Silu`].
    Silu = 1000,
    /// The hard swish, made of lines and a parabola: [`Activation::HardSwish`].
    HardSwish,
    /// The hard sigmoid, made of lines: [`Activation::HardSigmoid`].
    HardSigmoid,
    /// The Gaussian error linear unit: [`Activation::Gelu`].
    Gelu,
    /// The approximation of GELU by a hyperbolic tangent: [`Activation::GeluTanh`].
    GeluTanh,
    /// Mish: [`Activation::Mish`].
    Mish,
}

impl ActivationMode {
    /// Every mode, in the order of [`Self::miopen_value`].
    pub const ALL: [ActivationMode; 17] = [
        ActivationMode::Pasthru,
        ActivationMode::Logistic,
        ActivationMode::Tanh,
        ActivationMode::Relu,
        ActivationMode::SoftRelu,
        ActivationMode::Abs,
        ActivationMode::Power,
        ActivationMode::ClippedRelu,
        ActivationMode::LeakyRelu,
        ActivationMode::Elu,
        ActivationMode::Clamp,
        ActivationMode::Silu,
        ActivationMode::HardSwish,
        ActivationMode::HardSigmoid,
        ActivationMode::Gelu,
        ActivationMode::GeluTanh,
        ActivationMode::Mish,
    ];

    /// The value in C: of MIOpen's `miopenActivationMode_t`, or of `fuseplanActivationMode_t` in `<miopen/fuseplan.h>`.
    pub fn miopen_value(self) -> u32 {
        self as u32
    }

    /// The mode with this value in C; see [`Self::miopen_value`].
    pub fn from_miopen_value(value: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.miopen_value() == value)
    }

    /// Whether the function is made of exponentials, logarithms or powers, and takes so much longer than the others.
    pub const fn has_exponentials(self) -> bool {
        match self {
            ActivationMode::Logistic
            | ActivationMode::Tanh
            | ActivationMode::SoftRelu
            | ActivationMode::Power
            | ActivationMode::Elu
            | ActivationMode::Silu
            | ActivationMode::Gelu
            | ActivationMode::GeluTanh
            | ActivationMode::Mish => true,
            ActivationMode::Pasthru
            | ActivationMode::Relu
            | ActivationMode::Abs
            | ActivationMode::ClippedRelu
            | ActivationMode::LeakyRelu
            | ActivationMode::Clamp
            | ActivationMode::HardSwish
            | ActivationMode::HardSigmoid => false,
        }
    }
}

impl fmt::Display for ActivationMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ActivationMode::Pasthru => "PASTHRU",
            ActivationMode::Logistic => "LOGISTIC",
            ActivationMode::Tanh => "TANH",
            ActivationMode::Relu => "RELU",
            ActivationMode::SoftRelu => "SOFTRELU",
            ActivationMode::Abs => "ABS",
            ActivationMode::Power => "POWER",
            ActivationMode::ClippedRelu => "CLIPPEDRELU",
            ActivationMode::LeakyRelu => "LEAKYRELU",
            ActivationMode::Elu => "ELU",
            ActivationMode::Clamp => "CLAMP",
            ActivationMode::Silu => "SILU",
            ActivationMode::HardSwish => "HARDSWISH",
            ActivationMode::HardSigmoid => "HARDSIGMOID",
            ActivationMode::Gelu => "GELU",
            ActivationMode::GeluTanh => "GELUTANH",
            ActivationMode::Mish => "MISH",
        })
    }
}

/// Three scalars, as MIOpen and kernels have them for every activation. Modes that do not read one ignore it;
/// [`Activation`] has for each mode exactly those that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ActivationParams {
    /// α in the mode's formula.
    pub alpha: f64,
    /// β in the mode's formula.
    pub beta: f64,
    /// γ in the mode's formula.
    pub gamma: f64,
}

impl ActivationParams {
    /// α, β and γ.
    pub const fn new(alpha: f64, beta: f64, gamma: f64) -> Self {
        ActivationParams { alpha, beta, gamma }
    }
}

/// An activation with exactly the parameters that its formula reads.
///
/// The first have the formulas of MIOpen's kernels (`activation_functions`) and host reference. Those from SiLU on have
/// PyTorch's, without parameters. Of these, NaN gives NaN, and −∞ gives NaN where the formula multiplies x by what goes to
/// 0, as it does in PyTorch; all finite numbers give the limit that the formula has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// `x`
    Pasthru,
    /// `1 / (1 + e^-x)`
    Logistic,
    /// `beta · tanh(alpha · x)`
    Tanh {
        /// What `x` is multiplied by.
        alpha: f64,
        /// What the tangent is multiplied by.
        beta: f64,
    },
    /// `x > 0 ? x : 0`; NaN gives 0
    Relu,
    /// `ln(1 + e^x)`, in a form that does not overflow
    SoftRelu,
    /// `|x|`
    Abs,
    /// `(alpha + beta · x)^gamma`, and 0 where `alpha + beta · x ≤ 1e-6` (1e-4 for 16-bit data)
    Power {
        /// What is added.
        alpha: f64,
        /// What `x` is multiplied by.
        beta: f64,
        /// The exponent.
        gamma: f64,
    },
    /// `min(max, max(0, x))`
    ClippedRelu {
        /// The upper bound: 6 in ReLU6. MIOpen's α.
        max: f64,
    },
    /// `x > 0 ? x : slope · x`
    LeakyRelu {
        /// The slope for what is negative. MIOpen's α.
        slope: f64,
    },
    /// `x > 0 ? x : alpha · (e^x − 1)`
    Elu {
        /// The limit at −∞ is `-alpha`.
        alpha: f64,
    },
    /// `max(min, min(max, x))`
    Clamp {
        /// The lower bound. MIOpen's α.
        min: f64,
        /// The upper bound. MIOpen's β.
        max: f64,
    },
    /// `x / (1 + e^-x)`, also called swish
    Silu,
    /// `x · min(6, max(0, x + 3)) / 6`
    HardSwish,
    /// `min(6, max(0, x + 3)) / 6`, which is 0 at −∞
    HardSigmoid,
    /// `½ x · (1 + erf(x / √2))`
    Gelu,
    /// `½ x · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`, the approximation of GELU
    GeluTanh,
    /// `x · tanh(ln(1 + e^x))`
    Mish,
}

impl ActivationMode {
    /// The activation of this mode with those of the three scalars that its formula reads.
    pub const fn with(self, params: &ActivationParams) -> Activation {
        let ActivationParams { alpha, beta, gamma } = *params;
        match self {
            ActivationMode::Pasthru => Activation::Pasthru,
            ActivationMode::Logistic => Activation::Logistic,
            ActivationMode::Tanh => Activation::Tanh { alpha, beta },
            ActivationMode::Relu => Activation::Relu,
            ActivationMode::SoftRelu => Activation::SoftRelu,
            ActivationMode::Abs => Activation::Abs,
            ActivationMode::Power => Activation::Power { alpha, beta, gamma },
            ActivationMode::ClippedRelu => Activation::ClippedRelu { max: alpha },
            ActivationMode::LeakyRelu => Activation::LeakyRelu { slope: alpha },
            ActivationMode::Elu => Activation::Elu { alpha },
            ActivationMode::Clamp => Activation::Clamp { min: alpha, max: beta },
            ActivationMode::Silu => Activation::Silu,
            ActivationMode::HardSwish => Activation::HardSwish,
            ActivationMode::HardSigmoid => Activation::HardSigmoid,
            ActivationMode::Gelu => Activation::Gelu,
            ActivationMode::GeluTanh => Activation::GeluTanh,
            ActivationMode::Mish => Activation::Mish,
        }
    }
}

impl Activation {
    /// Which function it is.
    pub const fn mode(&self) -> ActivationMode {
        match self {
            Activation::Pasthru => ActivationMode::Pasthru,
            Activation::Logistic => ActivationMode::Logistic,
            Activation::Tanh { .. } => ActivationMode::Tanh,
            Activation::Relu => ActivationMode::Relu,
            Activation::SoftRelu => ActivationMode::SoftRelu,
            Activation::Abs => ActivationMode::Abs,
            Activation::Power { .. } => ActivationMode::Power,
            Activation::ClippedRelu { .. } => ActivationMode::ClippedRelu,
            Activation::LeakyRelu { .. } => ActivationMode::LeakyRelu,
            Activation::Elu { .. } => ActivationMode::Elu,
            Activation::Clamp { .. } => ActivationMode::Clamp,
            Activation::Silu => ActivationMode::Silu,
            Activation::HardSwish => ActivationMode::HardSwish,
            Activation::HardSigmoid => ActivationMode::HardSigmoid,
            Activation::Gelu => ActivationMode::Gelu,
            Activation::GeluTanh => ActivationMode::GeluTanh,
            Activation::Mish => ActivationMode::Mish,
        }
    }

    /// The parameters as three scalars, 0 where the formula does not read one.
    pub const fn params(&self) -> ActivationParams {
        match *self {
            Activation::Tanh { alpha, beta } => ActivationParams::new(alpha, beta, 0.0),
            Activation::Power { alpha, beta, gamma } => ActivationParams::new(alpha, beta, gamma),
            Activation::ClippedRelu { max } => ActivationParams::new(max, 0.0, 0.0),
            Activation::LeakyRelu { slope } => ActivationParams::new(slope, 0.0, 0.0),
            Activation::Elu { alpha } => ActivationParams::new(alpha, 0.0, 0.0),
            Activation::Clamp { min, max } => ActivationParams::new(min, max, 0.0),
            Activation::Pasthru
            | Activation::Logistic
            | Activation::Relu
            | Activation::SoftRelu
            | Activation::Abs
            | Activation::Silu
            | Activation::HardSwish
            | Activation::HardSigmoid
            | Activation::Gelu
            | Activation::GeluTanh
            | Activation::Mish => ActivationParams::new(0.0, 0.0, 0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DataType;

    #[test]
    fn values_in_c_are_found_again() {
        for mode in ActivationMode::ALL {
            assert_eq!(ActivationMode::from_miopen_value(mode.miopen_value()), Some(mode));
        }
        assert_eq!(ActivationMode::Mish.miopen_value(), 1005);
        for unknown in [11, 999, 1006, u32::MAX] {
            assert_eq!(ActivationMode::from_miopen_value(unknown), None);
        }
    }

    #[test]
    fn an_activation_has_what_its_mode_reads_and_nothing_else() {
        let all = ActivationParams::new(0.75, 1.5, 2.5);
        for mode in ActivationMode::ALL {
            let activation = mode.with(&all);
            assert_eq!(activation.mode(), mode);
            let read = activation.params();
            assert_eq!(mode.with(&read), activation);
            for x in [-2.0, 0.4, 3.0] {
                let of = |params| mode.with(&params).forward(DataType::Float, x);
                assert_eq!(of(read), of(all), "{mode}({x})");
            }
        }
        let read = ActivationMode::Clamp.with(&all).params();
        assert_eq!(read, ActivationParams::new(0.75, 1.5, 0.0));
        assert_eq!(ActivationMode::Relu.with(&all).params(), ActivationParams::default());
    }
}

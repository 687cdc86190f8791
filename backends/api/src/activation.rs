//! Activation modes with MIOpen's names and formulas.

use std::fmt;

/// Which function an activation applies. α, β and γ are the [`ActivationParams`] given at run time.
///
/// Formulas are MIOpen's (the kernels' `activation_functions` and the host reference).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ActivationMode {
    /// `x`
    Pasthru,
    /// `1 / (1 + e^-x)`
    Logistic,
    /// `β · tanh(α · x)`
    Tanh,
    /// `x > 0 ? x : 0`; parameters are not used, NaN gives 0.
    Relu,
    /// `ln(1 + e^x)`, in a form that does not overflow
    SoftRelu,
    /// `|x|`
    Abs,
    /// `(α + β · x)^γ`, and 0 where `α + β · x ≤ 1e-6` (1e-4 for 16-bit data)
    Power,
    /// `min(α, max(0, x))`
    ClippedRelu,
    /// `x > 0 ? x : α · x`
    LeakyRelu,
    /// `x > 0 ? x : α · (e^x − 1)`
    Elu,
    /// `max(α, min(β, x))`
    Clamp,
}

impl ActivationMode {
    /// Every mode, in the order of MIOpen's enumeration.
    pub const ALL: [ActivationMode; 11] = [
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
    ];

    /// The value in MIOpen's `miopenActivationMode_t`.
    pub fn miopen_value(self) -> u32 {
        self as u32
    }

    /// The mode with this value in MIOpen's `miopenActivationMode_t`.
    pub fn from_miopen_value(value: u32) -> Option<Self> {
        Self::ALL.get(value as usize).copied()
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
        })
    }
}

/// The scalars of an activation, given at run time. Modes that do not use one ignore it.
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

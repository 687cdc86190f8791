//! MIOpenDriver's fusion modes.

use std::fmt;

/// An operator of a fusion mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Convolution,
    Bias,
    BatchNorm,
    Activation,
}

/// A list of operators, by MIOpenDriver's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FusionMode {
    Cbna,
    Cna,
    Na,
    Cn,
    Cba,
    Ca,
    Cb,
}

impl FusionMode {
    /// Every mode, by its number.
    pub(crate) const ALL: [FusionMode; 7] = [
        FusionMode::Cbna,
        FusionMode::Cna,
        FusionMode::Na,
        FusionMode::Cn,
        FusionMode::Cba,
        FusionMode::Ca,
        FusionMode::Cb,
    ];

    /// The operators, in order.
    pub(crate) fn parts(self) -> &'static [Part] {
        use Part::*;
        match self {
            FusionMode::Cbna => &[Convolution, Bias, BatchNorm, Activation],
            FusionMode::Cna => &[Convolution, BatchNorm, Activation],
            FusionMode::Na => &[BatchNorm, Activation],
            FusionMode::Cn => &[Convolution, BatchNorm],
            FusionMode::Cba => &[Convolution, Bias, Activation],
            FusionMode::Ca => &[Convolution, Activation],
            FusionMode::Cb => &[Convolution, Bias],
        }
    }

    /// What MIOpenDriver says of a plan that it cannot run.
    pub(crate) fn refusal(self) -> String {
        let name = match self {
            FusionMode::Na => "BatchNormActivInference".into(),
            FusionMode::Ca => "ConvActivInference".into(),
            FusionMode::Cb => "ConvBiasInference".into(),
            _ => self.to_string(),
        };
        format!("{name} plan not supported.")
    }
}

/// `Convolution+Bias+Activation`
impl fmt::Display for FusionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.parts().iter().map(|part| format!("{part:?}")).collect();
        f.pad(&parts.join("+"))
    }
}

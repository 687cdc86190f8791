//! A plan as text: what the log and the command print, and what the command runs.
//!
//! ```text
//! plan     = tensor ["math" ("strict" | "tf32")] {"->" operator}
//! tensor   = type lengths [strides]
//! strides  = "NCHW" | "NHWC" | "NCDHW" | "NDHWC" | "strides" lengths
//! operator = "conv" filters taps {"pad" pads | "stride" lengths | "dilation" lengths | "output-pad" lengths
//!                                 | "groups" number | "weights" strides | "output" strides}
//!          | "bias" [type] [strides]
//!          | "residual" [strides]
//!          | "prelu" ["one"] [type] [strides]
//!          | "batch-norm" [mode] [type]
//!          | activation {parameter number}
//!          | "batch-norm-forward" [mode] ["running"]
//!          | "batch-norm-backward" [mode]
//!          | activation"-backward" {parameter number}
//! lengths  = number {"x" number}
//! pads     = pad {"x" pad}, where pad = number | number ":" number, before and after a dimension
//! mode     = "spatial" | "per-activation"
//! ```
//!
//! Lengths are in the order N, C, (D,) H, W, as everywhere. A single number stands for all spatial dimensions. What is not
//! said: tensors are channels first; padding is 0, strides, dilations and groups are 1; weights lie packed in the memory
//! order of the input, a bias and slopes are packed, a residual has the descriptor of the tensor that it is added to; a batch-norm is
//! spatial. A printed plan leaves out what is so. Upper and lower case are the same.

mod parse;

use std::fmt;
use std::str::FromStr;

use fuseplan_api::{Activation, ActivationMode, ActivationParams, DataType, MathMode, Op, TensorDescriptor};

use super::FusionPlan;

/// A plan with the parameters of its activations, which are arguments of its executions: what a
/// [text](FusionPlan#text) can say.
///
/// ```
/// use fuseplan::{Activation, FusionPlan, PlanText};
/// let text: PlanText = "f16 1x64x56x56 NHWC -> conv 64 3x3 pad 1 -> bias -> leakyrelu slope 0.1".parse()?;
/// assert_eq!(text.plan.output().lens(), [1, 64, 56, 56]);
/// assert_eq!(text.activations[2], Some(Activation::LeakyRelu { slope: 0.1 }));
/// let error = "f16 1x64x56x56 NHWC -> conf 64 3x3".parse::<FusionPlan>().unwrap_err();
/// assert_eq!(&error.text[error.at..][..4], "conf");
/// assert!(error.accepted.starts_with("conv, bias, residual, prelu, batch-norm, "));
/// # Ok::<(), fuseplan::error::PlanTextError>(())
/// ```
#[derive(Debug, Clone)]
pub struct PlanText {
    /// The plan, for any device.
    pub plan: FusionPlan,
    /// For each operator the activation, with 1 for parameters that are not written; `None` where none are, or it is no
    /// activation.
    pub activations: Vec<Option<Activation>>,
}

/// Why a text is no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanTextError {
    /// The text.
    pub text: String,
    /// Where in the text: the byte at which the word begins that is wrong; the text's length where one is missing.
    pub at: usize,
    /// What is wrong there.
    pub reason: String,
    /// What would have been accepted there.
    pub accepted: String,
}

/// `conf at 25: no operator has this name; accepted: conv, bias, …`
impl fmt::Display for PlanTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.text.get(self.at..).and_then(|rest| rest.split_whitespace().next());
        match word {
            Some(word) => write!(f, "`{word}` at {}", self.at)?,
            None => write!(f, "at the end")?,
        }
        write!(f, ": {}", self.reason)?;
        if !self.accepted.is_empty() {
            write!(f, "; accepted: {}", self.accepted)?;
        }
        Ok(())
    }
}

impl std::error::Error for PlanTextError {}

impl FromStr for PlanText {
    type Err = PlanTextError;

    fn from_str(text: &str) -> Result<Self, PlanTextError> {
        parse::parse(text)
    }
}

/// A text without parameters of activations, which are arguments of an execution and no part of a plan.
impl FromStr for FusionPlan {
    type Err = PlanTextError;

    fn from_str(text: &str) -> Result<Self, PlanTextError> {
        parse::parse_plan(text)
    }
}

impl fmt::Display for PlanText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_plan(f, &self.plan, &self.activations)
    }
}

/// The plan as [text](FusionPlan#text).
impl fmt::Display for FusionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_plan(f, self, &[])
    }
}

fn write_plan(
    f: &mut fmt::Formatter<'_>,
    plan: &FusionPlan,
    activations: &[Option<Activation>],
) -> fmt::Result {
    write!(f, "{}", plan.input)?;
    match plan.math {
        MathMode::Precise => {}
        MathMode::Strict => write!(f, " math strict")?,
        MathMode::AllowTf32 => write!(f, " math tf32")?,
    }
    for (index, op) in plan.ops.iter().enumerate() {
        write!(f, " -> ")?;
        write_operator(f, plan, op)?;
        if let Some(Some(activation)) = activations.get(index) {
            let ActivationParams { alpha, beta, gamma } = activation.params();
            for (name, value) in parameters(activation.mode()).iter().zip([alpha, beta, gamma]) {
                write!(f, " {name} {value}")?;
            }
        }
    }
    Ok(())
}

fn write_operator(f: &mut fmt::Formatter<'_>, plan: &FusionPlan, op: &Op) -> fmt::Result {
    // A convolution is the first operator, and no other changes the shape.
    let running = &plan.output;
    match op {
        Op::ConvForward { conv, weights } => {
            write!(f, "conv {} {}", weights.lens()[0], joined(weights.spatial()))?;
            if conv.pads_before().iter().chain(conv.pads_after()).any(|&pad| pad != 0) {
                let pad = |(before, after): (&usize, &usize)| {
                    if before == after { before.to_string() } else { format!("{before}:{after}") }
                };
                let pads: Vec<_> = conv.pads_before().iter().zip(conv.pads_after()).map(pad).collect();
                write!(f, " pad {}", shortened(&pads))?;
            }
            let lists = [
                ("stride", conv.strides(), 1),
                ("dilation", conv.dilations(), 1),
                ("output-pad", conv.output_pads(), 0),
                ("groups", &[conv.groups()], 1),
            ];
            for (name, list, usual) in lists {
                if list.iter().any(|&number| number != usual) {
                    write!(f, " {name} {}", shortened(list))?;
                }
            }
            if plan.input.filters_like(weights.lens()).as_ref() != Ok(weights) {
                write!(f, " weights{}", Strides(weights))?;
            }
            if plan.input.like(running.lens()).as_ref() != Ok(running) {
                write!(f, " output{}", Strides(running))?;
            }
            Ok(())
        }
        Op::BiasForward { bias } if op.is_residual() => {
            write!(f, "residual")?;
            if bias != running { write!(f, "{}", Strides(bias)) } else { Ok(()) }
        }
        Op::BiasForward { bias } => {
            write!(f, "bias")?;
            if bias.data_type() != running.data_type() {
                write!(f, " {}", bias.data_type())?;
            }
            if bias.layout().is_none() { write!(f, "{}", Strides(bias)) } else { Ok(()) }
        }
        Op::PReluForward { slope } => {
            write!(f, "prelu{}", if slope.lens()[1] < running.lens()[1] { " one" } else { "" })?;
            if slope.data_type() != running.data_type() {
                write!(f, " {}", slope.data_type())?;
            }
            if slope.layout().is_none() { write!(f, "{}", Strides(slope)) } else { Ok(()) }
        }
        Op::BatchNormInference { mode, params: DataType::Float } => write!(f, "batch-norm {mode}"),
        Op::BatchNormInference { mode, params } => write!(f, "batch-norm {mode} {params}"),
        Op::ActivationForward { mode } => write!(f, "{}", activation(*mode)),
        Op::BatchNormForward { mode, running } => {
            write!(f, "batch-norm-forward {mode}{}", if *running { " running" } else { "" })
        }
        Op::BatchNormBackward { mode } => write!(f, "batch-norm-backward {mode}"),
        Op::ActivationBackward { mode } => write!(f, "{}-backward", activation(*mode)),
    }
}

/// The names of an activation's parameters, which are MIOpen's α, β and γ in this order.
const fn parameters(mode: ActivationMode) -> &'static [&'static str] {
    match mode {
        ActivationMode::Tanh => &["alpha", "beta"],
        ActivationMode::Power => &["alpha", "beta", "gamma"],
        ActivationMode::ClippedRelu => &["max"],
        ActivationMode::LeakyRelu => &["slope"],
        ActivationMode::Elu => &["alpha"],
        ActivationMode::Clamp => &["min", "max"],
        ActivationMode::Pasthru
        | ActivationMode::Logistic
        | ActivationMode::Relu
        | ActivationMode::SoftRelu
        | ActivationMode::Abs
        | ActivationMode::Silu
        | ActivationMode::HardSwish
        | ActivationMode::HardSigmoid
        | ActivationMode::Gelu
        | ActivationMode::GeluTanh
        | ActivationMode::Mish => &[],
    }
}

/// The word for an activation.
fn activation(mode: ActivationMode) -> String {
    mode.to_string().to_ascii_lowercase()
}

fn joined<T: ToString>(list: &[T]) -> String {
    list.iter().map(T::to_string).collect::<Vec<_>>().join("x")
}

/// One entry for a list of the same entries.
fn shortened<T: ToString + PartialEq>(list: &[T]) -> String {
    let is_one = list.windows(2).all(|pair| pair[0] == pair[1]);
    if is_one { joined(&list[..1]) } else { joined(list) }
}

/// A descriptor's strides with a space before them.
struct Strides<'a>(&'a TensorDescriptor);

impl fmt::Display for Strides<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.layout() {
            Some(layout) => write!(f, " {layout}"),
            None => write!(f, " strides {}", joined(self.0.strides().unwrap_or_default())),
        }
    }
}

#[cfg(test)]
mod tests;

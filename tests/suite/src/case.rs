//! A case: one plan in one data type and layout, and whether it is to be computed or refused.

use fuseplan::{ActivationMode, BatchNormMode, DataType};
use serde::{Deserialize, Deserializer};

use crate::layout::Layout;
use crate::oracle::activation::is_exact;

/// A plan to be computed, or to be refused.
#[derive(Debug, Clone)]
pub struct Case {
    /// The stable name, `conv.3x3s2.relu.f16.nhwc`.
    pub id: String,
    /// Of input, output, weights and biases.
    pub data_type: DataType,
    /// Of the input.
    pub layout: Layout,
    /// N, C, (D,) H, W.
    pub input: Vec<usize>,
    /// The operators in the order in which they are appended.
    pub ops: Vec<OpSpec>,
    /// One for each operator.
    pub alpha: Vec<f32>,
    /// Of the last operator.
    pub beta: f32,
    /// Of every batch-norm.
    pub epsilon: f64,
    /// What the values at the first batch-norm are like, in the bound tier; near 0 and about 1 apart where it is `None`.
    pub statistics: Option<Statistics>,
    /// Whether the output is written over the input.
    pub in_place: bool,
    /// Whether the case is in the special tier too.
    pub special: bool,
    /// Whether the plan is made for the backend's device, which then rejects at the append.
    pub for_device: bool,
    /// `None` for plans that must be computed.
    pub refused: Option<Refused>,
}

/// Where the values at the first batch-norm of a case lie, as do the means that it is given.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statistics {
    /// About where, in units of a filter's sum behind a convolution.
    pub mean: f64,
    /// How far apart, about. With 0 they are the mean and its neighbours among the integers, and all variances are 0.
    pub deviation: f64,
}

/// An operator.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum OpSpec {
    /// Convolution.
    Conv(ConvSpec),
    /// One value a channel.
    Bias(BiasSpec),
    /// One value an element.
    Residual(ResidualSpec),
    /// PReLU.
    #[serde(rename = "prelu")]
    PRelu(PReluSpec),
    /// Batch-norm inference.
    BatchNorm(BatchNormSpec),
    /// An activation.
    Activation(ActivationSpec),
    /// Batch-norm training, forward.
    BatchNormForward(BatchNormForwardSpec),
    /// Batch-norm training, backward.
    BatchNormBackward(BatchNormSpec),
    /// The gradient of an activation.
    ActivationBackward(ActivationSpec),
}

/// A convolution; lists are in the order (D,) H, W.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvSpec {
    /// Number of filters, K.
    pub filters: usize,
    /// Extent of a filter.
    pub filter: Vec<usize>,
    /// 0 where left out.
    #[serde(default)]
    pub pad: Vec<usize>,
    /// Padding behind the last elements; `pad` where left out.
    pub pad_after: Option<Vec<usize>>,
    /// 1 where left out.
    #[serde(default)]
    pub stride: Vec<usize>,
    /// 1 where left out.
    #[serde(default)]
    pub dilation: Vec<usize>,
    /// Number of groups.
    #[serde(default = "one")]
    pub groups: usize,
    /// Layout of the weights; that of the input, packed, where left out, and NCHW where the input's channels lie in blocks.
    pub weights: Option<Layout>,
    /// Layout of the output; that of the input, packed, where left out.
    pub output: Option<Box<Layout>>,
    /// Channels of a filter, to be wrong on purpose; those of the input over the groups where left out.
    pub channels: Option<usize>,
    /// The weights' data type, to be wrong on purpose.
    #[serde(default, deserialize_with = "optional_data_type")]
    pub data_type: Option<DataType>,
    /// Whether it is a transposed convolution.
    #[serde(default)]
    pub transpose: bool,
}

/// A bias.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BiasSpec {
    /// An explicit descriptor's lengths; none is given where left out.
    pub lens: Option<Vec<usize>>,
    /// Its data type; the plan's where left out.
    #[serde(default, deserialize_with = "optional_data_type")]
    pub data_type: Option<DataType>,
}

/// A residual.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResidualSpec {
    /// An explicit descriptor's layout; the running tensor's own where left out.
    pub layout: Option<Layout>,
    /// The descriptor's data type, to be wrong on purpose.
    #[serde(default, deserialize_with = "optional_data_type")]
    pub data_type: Option<DataType>,
}

/// A PReLU.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PReluSpec {
    /// An explicit descriptor's lengths; one slope a channel where left out.
    pub lens: Option<Vec<usize>>,
    /// Its data type; the plan's where left out.
    #[serde(default, deserialize_with = "optional_data_type")]
    pub data_type: Option<DataType>,
}

/// A batch-norm.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchNormSpec {
    /// Over what the parameters run.
    #[serde(deserialize_with = "batch_norm_mode")]
    pub mode: BatchNormMode,
    /// An explicit parameter descriptor's lengths; the derived ones where left out.
    pub params: Option<Vec<usize>>,
    /// The parameters' data type; f32 where left out.
    #[serde(default, deserialize_with = "optional_data_type")]
    pub data_type: Option<DataType>,
}

/// A batch-norm with the statistics of the batch.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchNormForwardSpec {
    /// Over what statistics are taken.
    #[serde(deserialize_with = "batch_norm_mode")]
    pub mode: BatchNormMode,
    /// Whether running statistics are updated.
    #[serde(default)]
    pub running: bool,
}

/// An activation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActivationSpec {
    /// Which function.
    #[serde(deserialize_with = "activation_mode")]
    pub mode: ActivationMode,
    /// α, β, γ.
    #[serde(default)]
    pub params: [f64; 3],
}

/// The refusal that a case expects. It says nothing of how far the rest of the plan would come.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// Where.
    pub stage: Stage,
    /// The operator that is refused.
    #[serde(default)]
    pub at: usize,
    /// The name of the error's or reason's variant.
    pub reason: String,
    /// What the sentence contains.
    pub says: Vec<String>,
    /// What the nearest accepted contains; only of the append.
    #[serde(default)]
    pub accepts: Vec<String>,
}

/// Where a refusal comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// A descriptor cannot be made.
    Descriptor,
    /// The plan cannot be made.
    Plan,
    /// The operator is rejected.
    Append,
    /// No solver takes the plan.
    Compile,
}

/// An operand of a case: its shape, and what its values stand for.
#[derive(Debug, Clone)]
pub struct OperandSpec {
    /// The operand's name.
    pub role: Role,
    /// N, C, (D,) H, W of the tensor.
    pub lens: Vec<usize>,
    /// Where its elements lie; as those of the plan's output where it is `None`.
    pub layout: Option<Layout>,
    /// Its type.
    pub data_type: DataType,
}

/// What the values of an operand stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Filters.
    Weights,
    /// A bias or residual, a batch-norm's bias.
    Bias,
    /// Slope of a PReLU.
    Slope,
    /// Factor of a batch-norm.
    Scale,
    /// Mean of a batch-norm.
    Mean,
    /// Variance of a batch-norm.
    Variance,
    /// `1 / sqrt(variance + ε)`.
    InverseVariance,
    /// A tensor of the plan's shape.
    Tensor,
}

impl Case {
    /// The output's lengths, from the formula `(before + in + after − (dilation·(k−1) + 1)) / stride + 1`.
    pub fn output_lens(&self) -> Vec<usize> {
        let mut lens = self.input.clone();
        if let Some(conv) = self.conv() {
            lens[1] = conv.filters;
            for d in 0..conv.filter.len() {
                let reach = conv.dilation(d) * (conv.filter[d] - 1) + 1;
                lens[2 + d] = (conv.padded(d, self.input[2 + d]) - reach) / conv.stride(d) + 1;
            }
        }
        lens
    }

    /// The lengths of a list with one value a channel of the output.
    pub fn channel_lens(&self) -> Vec<usize> {
        let output = self.output_lens();
        (0..output.len()).map(|d| if d == 1 { output[1] } else { 1 }).collect()
    }

    /// The layout of the output: packed behind a convolution, which may choose another, else the input's.
    pub fn output_layout(&self) -> Layout {
        match self.conv() {
            Some(conv) => conv.output.as_deref().cloned().unwrap_or_else(|| self.layout.packed()),
            None => self.layout.clone(),
        }
    }

    /// The layouts of the output and of residuals that have their own, all of which have the output's lengths.
    fn output_layouts(&self) -> impl Iterator<Item = Layout> {
        let residual = |op: &OpSpec| match op {
            OpSpec::Residual(spec) => spec.layout.clone(),
            _ => None,
        };
        [self.output_layout()].into_iter().chain(self.ops.iter().filter_map(residual))
    }

    /// Whether a layout is named that has blocks, or the output is to lie in another order than the input.
    pub fn names_any_layout(&self) -> bool {
        self.layout.block().is_some()
            || self.output_layouts().any(|layout| layout.block().is_some())
            || self.output_layout().packed() != self.layout.packed()
    }

    /// The same where strides do not say it as well.
    pub fn needs_any_layout(&self) -> bool {
        // One block, or blocks of one pixel, lie as channels-last ones do.
        let lies_in_blocks =
            |block: usize, lens: &[usize]| lens[1] > block && lens[2..].iter().any(|&len| len > 1);
        let output = self.output_lens();
        // A tensor of one channel or one pixel lies in either order of them.
        let is_ordered = [&self.input, &output]
            .into_iter()
            .all(|lens| lens[1] > 1 && lens[2..].iter().any(|&len| len > 1));
        let last = if self.input.len() == 4 { "nhwc" } else { "ndhwc" };
        let strided = |layout: Layout| if layout.block().is_some() { Layout::named(last) } else { layout };
        self.layout.block().is_some_and(|block| lies_in_blocks(block, &self.input))
            || self
                .output_layouts()
                .any(|layout| layout.block().is_some_and(|block| lies_in_blocks(block, &output)))
            || is_ordered && strided(self.output_layout()).packed() != strided(self.layout.clone()).packed()
    }

    /// The convolution, if it begins with one.
    pub fn conv(&self) -> Option<&ConvSpec> {
        match self.ops.first() {
            Some(OpSpec::Conv(conv)) => Some(conv),
            _ => None,
        }
    }

    /// Whether it starts with one of the operators for training.
    pub fn is_training(&self) -> bool {
        matches!(self.ops.first(), Some(OpSpec::BatchNormForward(_) | OpSpec::BatchNormBackward(_)))
    }

    /// The operands that each operator reads, in the order of its arguments.
    pub fn operands(&self) -> Vec<Vec<OperandSpec>> {
        let output = self.output_lens();
        let packed = Layout::named(if self.input.len() == 5 { "ncdhw" } else { "nchw" });
        let params = |mode, data_type: Option<DataType>, roles: &[Role]| -> Vec<OperandSpec> {
            let mut lens = self.channel_lens();
            if mode == BatchNormMode::PerActivation {
                lens[2..].copy_from_slice(&output[2..]);
            }
            let spec = |&role| OperandSpec {
                role,
                lens: lens.clone(),
                layout: Some(packed.clone()),
                data_type: data_type.unwrap_or(DataType::Float),
            };
            roles.iter().map(spec).collect()
        };
        let data_type = self.data_type;
        let tensor = |role, layout: Option<&Layout>| OperandSpec {
            role,
            lens: output.clone(),
            layout: layout.cloned(),
            data_type,
        };
        let operands = |op: &OpSpec| match op {
            OpSpec::Conv(conv) => {
                vec![OperandSpec {
                    role: Role::Weights,
                    lens: conv.weight_lens(self.input[1]),
                    layout: Some(conv.weights.clone().unwrap_or_else(|| self.layout.filters())),
                    data_type,
                }]
            }
            OpSpec::Bias(bias) => {
                let (lens, data_type) = (self.channel_lens(), bias.data_type.unwrap_or(data_type));
                vec![OperandSpec { role: Role::Bias, lens, layout: Some(packed.clone()), data_type }]
            }
            OpSpec::PRelu(prelu) => vec![OperandSpec {
                role: Role::Slope,
                lens: prelu.lens.clone().unwrap_or_else(|| self.channel_lens()),
                layout: Some(packed.clone()),
                data_type: prelu.data_type.unwrap_or(data_type),
            }],
            OpSpec::Residual(residual) => vec![tensor(Role::Bias, residual.layout.as_ref())],
            OpSpec::BatchNorm(norm) => {
                params(norm.mode, norm.data_type, &[Role::Scale, Role::Bias, Role::Mean, Role::Variance])
            }
            OpSpec::Activation(_) => Vec::new(),
            OpSpec::BatchNormForward(norm) => {
                let mut roles = vec![Role::Scale, Role::Bias];
                if norm.running {
                    roles.extend([Role::Mean, Role::Variance]);
                }
                params(norm.mode, None, &roles)
            }
            OpSpec::BatchNormBackward(norm) => {
                let mut list = vec![tensor(Role::Tensor, Some(&self.layout))];
                let roles = [Role::Scale, Role::Bias, Role::Mean, Role::InverseVariance];
                list.extend(params(norm.mode, None, &roles));
                list
            }
            OpSpec::ActivationBackward(_) => vec![tensor(Role::Tensor, Some(&self.layout))],
        };
        self.ops.iter().map(operands).collect()
    }

    /// Whether every result is exact in f32, given data that is: no operator rounds but the last, once.
    pub fn can_be_exact(&self) -> bool {
        let simple = |value: f64| (value * 16.0).fract() == 0.0 && value.abs() <= 16.0;
        let exact = |op: &OpSpec| match op {
            OpSpec::Activation(spec) => is_exact(spec),
            _ => true,
        };
        !self.is_training()
            && self.ops.iter().all(exact)
            && self.alpha.iter().chain([&self.beta]).all(|&value| simple(f64::from(value)))
    }
}

impl ConvSpec {
    /// Padding before the first element of spatial dimension `d`.
    pub fn pad(&self, d: usize) -> usize {
        self.pad.get(d).copied().unwrap_or(0)
    }

    /// Padding behind the last element of spatial dimension `d`.
    pub fn pad_after(&self, d: usize) -> usize {
        self.pad_after.as_ref().unwrap_or(&self.pad).get(d).copied().unwrap_or(0)
    }

    /// Whether padding is the same on both sides, which is all that MIOpen's own functions can say.
    pub fn is_symmetric(&self) -> bool {
        (0..self.filter.len()).all(|d| self.pad(d) == self.pad_after(d))
    }

    /// So many elements of spatial dimension `d` with the padding on both sides.
    pub fn padded(&self, d: usize, extent: usize) -> usize {
        self.pad(d) + extent + self.pad_after(d)
    }

    /// Stride of spatial dimension `d`.
    pub fn stride(&self, d: usize) -> usize {
        self.stride.get(d).copied().unwrap_or(1)
    }

    /// Dilation of spatial dimension `d`.
    pub fn dilation(&self, d: usize) -> usize {
        self.dilation.get(d).copied().unwrap_or(1)
    }

    /// K, C/groups, (D,) H, W.
    pub fn weight_lens(&self, channels: usize) -> Vec<usize> {
        let per_group = self.channels.unwrap_or(channels / self.groups.max(1));
        [&[self.filters, per_group][..], &self.filter].concat()
    }
}

fn one() -> usize {
    1
}

/// The one of `all` that is displayed as `name`, in any case.
fn by_name<T: Copy + ToString>(all: &[T], name: &str) -> Result<T, String> {
    let found = all.iter().find(|item| item.to_string().eq_ignore_ascii_case(name));
    found.copied().ok_or_else(|| format!("unknown name `{name}`"))
}

/// The data type with this name.
///
/// # Errors
/// Unknown names.
pub fn data_type(name: &str) -> Result<DataType, String> {
    by_name(&DataType::ALL, name)
}

fn activation_mode<'de, D: Deserializer<'de>>(from: D) -> Result<ActivationMode, D::Error> {
    by_name(&ActivationMode::ALL, &String::deserialize(from)?).map_err(serde::de::Error::custom)
}

fn batch_norm_mode<'de, D: Deserializer<'de>>(from: D) -> Result<BatchNormMode, D::Error> {
    by_name(&BatchNormMode::ALL, &String::deserialize(from)?).map_err(serde::de::Error::custom)
}

fn optional_data_type<'de, D: Deserializer<'de>>(from: D) -> Result<Option<DataType>, D::Error> {
    data_type(&String::deserialize(from)?).map(Some).map_err(serde::de::Error::custom)
}

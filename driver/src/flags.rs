//! MIOpenDriver's flags of the fusion primitives, with its names, letters and defaults, and what they
//! describe.

use clap::Args;
use fuseplan::{
    ActivationMode, BatchNormMode, CompileOptions, ConvolutionDescriptor, DataType, Error, FindMode,
    TensorDescriptor, TensorLayout, error::DescriptorError, raw::ActivationParams,
};

use crate::chain::{Chain, Step};
use crate::device::DeviceFlags;
use crate::element::{Math, Precision};
use crate::failure::Failure;
use crate::fusion_mode::{FusionMode, Part};

/// A primitive with its flags.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) precision: Precision,
    pub(crate) flags: FusionFlags,
}

/// Every flag takes a value: `--name value` or `-c value`, also `--name=value` and `-cvalue`. A flag that is
/// given again overrides.
#[derive(Debug, Args)]
#[command(rename_all = "snake_case", next_help_heading = "MIOpen Driver Input Flags")]
pub(crate) struct FusionFlags {
    /// Convolution spatial dimensions, 2 or 3
    #[arg(short = '_', long, value_name = "INT", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=3))]
    spatial_dim: u8,
    /// Input layout: NCHW, NHWC, NCHWc4, NCHWc8 or NCHWc16, NCDHW or NDHWC; the first of them if not given
    #[arg(short = 'I', long, value_name = "LAYOUT", value_parser = layout)]
    in_layout: Option<TensorLayout>,
    /// Output layout of a fusion with a convolution; the input's if not given
    #[arg(short = 'O', long, value_name = "LAYOUT", value_parser = layout)]
    out_layout: Option<TensorLayout>,
    /// Filter layout
    #[arg(short = 'f', long, value_name = "LAYOUT", value_parser = layout)]
    fil_layout: Option<TensorLayout>,
    /// Mini-batch size
    #[arg(short = 'n', long, value_name = "INT", default_value_t = 32)]
    batchsize: usize,
    /// Number of input channels
    #[arg(short = 'c', long, value_name = "INT", default_value_t = 3)]
    in_channels: usize,
    /// Input depth
    #[arg(short = '!', long, value_name = "INT", default_value_t = 1)]
    in_d: usize,
    /// Input height
    #[arg(short = 'H', long, value_name = "INT", default_value_t = 32)]
    in_h: usize,
    /// Input width
    #[arg(short = 'W', long, value_name = "INT", default_value_t = 32)]
    in_w: usize,
    /// Number of output channels
    #[arg(short = 'k', long, value_name = "INT", default_value_t = 32)]
    out_channels: usize,
    /// Number of groups in the convolution
    #[arg(short = 'g', long, value_name = "INT", default_value_t = 1)]
    group_count: usize,
    /// Filter depth
    #[arg(short = '@', long, value_name = "INT", default_value_t = 3)]
    fil_d: usize,
    /// Filter height
    #[arg(short = 'y', long, value_name = "INT", default_value_t = 3)]
    fil_h: usize,
    /// Filter width
    #[arg(short = 'x', long, value_name = "INT", default_value_t = 3)]
    fil_w: usize,
    /// Convolution stride, depth
    #[arg(short = '#', long, value_name = "INT", default_value_t = 1)]
    conv_stride_d: usize,
    /// Convolution stride, vertical
    #[arg(short = 'u', long, value_name = "INT", default_value_t = 1)]
    conv_stride_h: usize,
    /// Convolution stride, horizontal
    #[arg(short = 'v', long, value_name = "INT", default_value_t = 1)]
    conv_stride_w: usize,
    /// Zero padding, depth
    #[arg(short = '$', long, value_name = "INT", default_value_t = 0)]
    pad_d: usize,
    /// Zero padding, height
    #[arg(short = 'p', long, value_name = "INT", default_value_t = 0)]
    pad_h: usize,
    /// Zero padding, width
    #[arg(short = 'q', long, value_name = "INT", default_value_t = 0)]
    pad_w: usize,
    /// Padding value; only 0 is supported
    #[arg(short = 'r', long, value_name = "INT", default_value_t = 0, allow_negative_numbers = true)]
    pad_val: i64,
    /// Activation alpha
    #[arg(short = 'A', long, value_name = "FLOAT", default_value_t = 1.0, allow_negative_numbers = true)]
    alpha: f64,
    /// Activation beta
    #[arg(short = 'B', long, value_name = "FLOAT", default_value_t = 0.0, allow_negative_numbers = true)]
    beta: f64,
    /// Activation gamma
    #[arg(short = 'G', long, value_name = "FLOAT", default_value_t = 1.0, allow_negative_numbers = true)]
    gamma: f64,
    /// Number of iterations
    #[arg(short = 'i', long, value_name = "INT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iter: u32,
    /// Verify against the CPU reference: 0 or 1
    #[arg(short = 'V', long, value_name = "INT", default_value_t = 1)]
    pub(crate) verify: i64,
    /// Print kernel times: 0 or 1
    #[arg(short = 't', long, value_name = "INT", default_value_t = 0)]
    pub(crate) time: i64,
    /// Print wall-clock time: 0 or 1
    #[arg(short = 'w', long, value_name = "INT", default_value_t = 0)]
    pub(crate) wall: i64,
    /// Activation mode, a value of miopenActivationMode_t: 0 pasthru, 1 logistic, 2 tanh, 3 relu, 4 softrelu,
    /// 5 abs, 6 power, 7 clipped relu, 8 leaky relu, 9 elu, 10 clamp; or the name of any mode, such as silu or gelu
    #[arg(short = 'm', long = "activMode", value_name = "MODE", default_value = "3", value_parser = activation)]
    activ_mode: ActivationMode,
    /// Normalization mode: 0 per activation, 1 spatial
    #[arg(short = 'M', long = "bnMode", value_name = "INT", default_value = "0", value_parser = batch_norm)]
    bn_mode: BatchNormMode,
    /// Dilation of the filter, depth
    #[arg(short = '^', long, value_name = "INT", default_value_t = 1)]
    dilation_d: usize,
    /// Dilation of the filter, height
    #[arg(short = 'l', long, value_name = "INT", default_value_t = 1)]
    dilation_h: usize,
    /// Dilation of the filter, width
    #[arg(short = 'j', long, value_name = "INT", default_value_t = 1)]
    dilation_w: usize,
    /// Padding mode: conv or default for the padding flags, same, valid
    #[arg(short = 'z', long, value_name = "MODE", default_value = "conv", value_parser = padding)]
    pad_mode: PaddingMode,
    /// Fusion mode: 0 cbna, 1 cna, 2 na, 3 cn, 4 cba, 5 ca, 6 cb
    #[arg(short = 'F', visible_short_alias = 'J', long, value_name = "INT", default_value = "0", value_parser = fusion_mode)]
    pub(crate) fusion_mode: FusionMode,
    /// Accepted and ignored: there is no metadata graph
    #[arg(short = 'D', long, value_name = "FILE", hide = true)]
    dot_graph: Option<String>,

    /// How products may be rounded
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Math::Precise, help_heading = OWN)]
    pub(crate) math: Math,
    #[command(flatten)]
    pub(crate) own: OwnFlags,
}

/// The heading of flags that MIOpenDriver does not have.
const OWN: &str = "fuseplan's own flags";

/// What MIOpenDriver does not have.
#[derive(Debug, Args)]
#[command(next_help_heading = OWN)]
pub(crate) struct OwnFlags {
    #[command(flatten)]
    pub(crate) device: DeviceFlags,
    /// Only this solver, such as cpu.reference.v1
    #[arg(long, value_name = "ID")]
    solver: Option<String>,
    /// Time every solver that takes the plan and use the fastest; what is found is stored
    #[arg(long, conflicts_with = "solver")]
    find: bool,
    /// Seed of the random data; 0 for a different one each time
    #[arg(long, value_name = "INT", default_value_t = DEFAULT_SEED, env = "MIOPEN_DEBUG_DRIVER_PRNG_SEED")]
    pub(crate) seed: u64,
    /// The greatest error that passes, instead of 80 epsilon of the data type
    #[arg(long, value_name = "FLOAT", hide = true, allow_negative_numbers = true)]
    pub(crate) tolerance: Option<f64>,
}

/// MIOpenDriver's seed.
pub(crate) const DEFAULT_SEED: u64 = 12345678;

impl OwnFlags {
    /// Whether any of those was given that have no default.
    pub(crate) fn is_given(&self) -> bool {
        self.device.is_given() || self.is_of_one_plan()
    }

    /// Whether any of those was given that say how one plan is run.
    pub(crate) fn is_of_one_plan(&self) -> bool {
        self.solver.is_some() || self.find || self.tolerance.is_some()
    }

    /// How plans are to be compiled.
    pub(crate) fn compile_options(&self) -> CompileOptions {
        let options = CompileOptions::default();
        match &self.solver {
            Some(id) => options.with_solver(id),
            None if self.find => options.with_find(FindMode::Normal),
            None => options,
        }
    }
}

/// How padding is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PaddingMode {
    /// As the flags say.
    Given,
    /// As much as gives `ceil(in / stride)` outputs, half of it on each side, as MIOpen counts.
    Same,
    /// None.
    Valid,
}

fn layout(text: &str) -> Result<TensorLayout, String> {
    TensorLayout::ALL.into_iter().find(|layout| layout.to_string() == text).ok_or_else(|| {
        let known = TensorLayout::ALL.map(|layout| layout.to_string()).join(", ");
        format!("Invalid Layout Parameter Value; known: {known}")
    })
}

fn numbered<T: Copy>(text: &str, all: &[T], what: &str) -> Result<T, String> {
    let found = text.parse::<usize>().ok().and_then(|index| all.get(index));
    found.copied().ok_or_else(|| format!("{what}; known: 0 to {}", all.len() - 1))
}

fn activation(text: &str) -> Result<ActivationMode, String> {
    let is_meant = |mode: &ActivationMode| match text.parse::<u32>() {
        Ok(value) => mode.miopen_value() == value,
        Err(_) => mode.to_string().eq_ignore_ascii_case(text),
    };
    ActivationMode::ALL.into_iter().find(is_meant).ok_or_else(|| {
        let known = ActivationMode::ALL.map(|mode| format!("{} {mode}", mode.miopen_value())).join(", ");
        format!("Unknown activation mode; known: {known}")
    })
}

fn batch_norm(text: &str) -> Result<BatchNormMode, String> {
    numbered(text, &BatchNormMode::ALL, "Incorrect Batch Normalization Mode")
}

fn fusion_mode(text: &str) -> Result<FusionMode, String> {
    numbered(text, &FusionMode::ALL, "Fusion mode out of range")
}

fn padding(text: &str) -> Result<PaddingMode, String> {
    match text {
        "conv" | "default" => Ok(PaddingMode::Given),
        "same" => Ok(PaddingMode::Same),
        "valid" => Ok(PaddingMode::Valid),
        _ => Err("known: conv, default, same, valid".into()),
    }
}

impl FusionFlags {
    /// What the flags describe.
    pub(crate) fn chain(&self, precision: Precision) -> Result<Chain, Failure> {
        let rank = usize::from(self.spatial_dim) + 2;
        let (strided, all) = (TensorLayout::of_rank(rank), TensorLayout::all_of_rank(rank));
        let layout = self.layout("in_layout", self.in_layout, all)?.unwrap_or(all[0]);
        let output = self.layout("out_layout", self.out_layout, all)?.filter(|&output| output != layout);
        let has_convolution = self.fusion_mode.parts().contains(&Part::Convolution);
        if let Some(output) = output.filter(|_| !has_convolution) {
            let text = format!(
                "the output layout is {output}; accepted without a convolution: {layout}, the input's"
            );
            return Err(Failure::Unsupported(text));
        }
        let filters = self.layout("fil_layout", self.fil_layout, strided)?.unwrap_or(strided[0]);
        if self.pad_val != 0 {
            let text = format!("the padding value is {}; accepted: 0", self.pad_val);
            return Err(Failure::Unsupported(text));
        }
        self.describe(precision.data_type(), layout, filters, output)
            .map_err(|error| Error::from(error).into())
    }

    /// A layout, which has to be among those accepted.
    fn layout(
        &self,
        name: &str,
        given: Option<TensorLayout>,
        accepted: &[TensorLayout],
    ) -> Result<Option<TensorLayout>, Failure> {
        match given.filter(|layout| !accepted.contains(layout)) {
            None => Ok(given),
            Some(layout) => {
                let accepted: Vec<_> = accepted.iter().map(ToString::to_string).collect();
                Err(Failure::Usage(format!(
                    "--{name} {layout} does not go with --spatial_dim {}; accepted: {}",
                    self.spatial_dim,
                    accepted.join(", ")
                )))
            }
        }
    }

    fn describe(
        &self,
        data_type: DataType,
        layout: TensorLayout,
        filters: TensorLayout,
        output: Option<TensorLayout>,
    ) -> Result<Chain, DescriptorError> {
        let lens = [vec![self.batchsize, self.in_channels], self.spatial(self.in_d, self.in_h, self.in_w)];
        let input = TensorDescriptor::with_layout(data_type, layout, &lens.concat())?;
        let params = ActivationParams::new(self.alpha, self.beta, self.gamma);
        let step = |part: &Part| {
            Ok(match part {
                Part::Convolution => self.convolution(data_type, filters, output)?,
                Part::Bias => Step::Bias,
                Part::BatchNorm => Step::BatchNorm(self.bn_mode),
                Part::Activation => Step::Activation(self.activ_mode.with(&params)),
            })
        };
        let steps = self.fusion_mode.parts().iter().map(step).collect::<Result<_, DescriptorError>>()?;
        Ok(Chain { input, steps, math: self.math.mode() })
    }

    /// The last two, or all three, of the numbers for D, H and W.
    fn spatial<T>(&self, d: T, h: T, w: T) -> Vec<T> {
        if self.spatial_dim == 3 { vec![d, h, w] } else { vec![h, w] }
    }

    fn convolution(
        &self,
        data_type: DataType,
        layout: TensorLayout,
        output: Option<TensorLayout>,
    ) -> Result<Step, DescriptorError> {
        let groups = self.group_count.max(1);
        let extents = self.spatial(self.in_d, self.in_h, self.in_w);
        let taps = self.spatial(self.fil_d, self.fil_h, self.fil_w);
        let strides = self.spatial(self.conv_stride_d, self.conv_stride_h, self.conv_stride_w);
        let dilations = self.spatial(self.dilation_d, self.dilation_h, self.dilation_w);
        let mut pads = self.spatial(self.pad_d, self.pad_h, self.pad_w);
        // The other padding modes are for filters without dilation, as in MIOpen.
        if dilations.iter().all(|&d| d == 1) || taps.iter().all(|&t| t == 1) {
            for (d, pad) in pads.iter_mut().enumerate() {
                match self.pad_mode {
                    PaddingMode::Given => {}
                    PaddingMode::Same => *pad = same_padding(extents[d], taps[d], strides[d]),
                    PaddingMode::Valid => *pad = 0,
                }
            }
        }
        let conv = ConvolutionDescriptor::of_dims(pads.len())?
            .with_pads(&pads)?
            .with_strides(&strides)?
            .with_dilations(&dilations)?
            .with_groups(groups)?;
        // At least 1, so that the plan can say which number of groups does not fit.
        let per_group = (self.in_channels / groups).max(1);
        let lens = [vec![self.out_channels, per_group], taps].concat();
        Ok(Step::Convolution(conv, TensorDescriptor::with_layout(data_type, layout, &lens)?, output))
    }
}

/// The padding of a side for `ceil(extent / stride)` outputs, rounded down as MIOpen rounds it.
fn same_padding(extent: usize, taps: usize, stride: usize) -> usize {
    let rest = extent.checked_rem(stride).unwrap_or(0);
    taps.saturating_sub(if rest == 0 { stride } else { rest }) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    #[command(args_override_self = true)]
    struct Line {
        #[command(flatten)]
        flags: FusionFlags,
    }

    fn parse(line: &str) -> FusionFlags {
        Line::try_parse_from([&["fuseplan"][..], &line.split_whitespace().collect::<Vec<_>>()].concat())
            .unwrap_or_else(|error| panic!("{line}: {error}"))
            .flags
    }

    fn chain(line: &str) -> Chain {
        parse(line).chain(Precision::Fp32).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    fn convolution(line: &str) -> (ConvolutionDescriptor, TensorDescriptor) {
        match chain(line).steps[0] {
            Step::Convolution(conv, weights, _) => (conv, weights),
            ref other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn defaults_are_those_of_miopendriver() {
        let chain = chain("");
        assert_eq!(chain.input.to_string(), "f32 32x3x32x32 NCHW");
        let Step::Convolution(conv, weights, _) = chain.steps[0] else { panic!("{:?}", chain.steps) };
        assert_eq!(conv.to_string(), "pad 0x0 stride 1x1");
        assert_eq!(weights.to_string(), "f32 32x3x3x3 NCHW");
        assert_eq!(chain.steps[1], Step::Bias);
        assert_eq!(chain.steps[2], Step::BatchNorm(BatchNormMode::PerActivation));
        let relu = Step::Activation(fuseplan::Activation::Relu);
        assert_eq!(chain.steps[3], relu);
        let flags = parse("");
        assert_eq!((flags.iter, flags.verify, flags.time, flags.wall), (1, 1, 0, 0));
    }

    /// Every flag, by letter and by name, in every form of giving its value.
    #[test]
    fn every_flag_is_read_in_every_form() {
        type Read = fn(&FusionFlags) -> String;
        let flags: [(char, &str, &str, Read); 33] = [
            ('_', "spatial_dim", "3", |f| f.spatial_dim.to_string()),
            ('I', "in_layout", "NHWC", |f| f.in_layout.unwrap().to_string()),
            ('O', "out_layout", "NHWC", |f| f.out_layout.unwrap().to_string()),
            ('f', "fil_layout", "NDHWC", |f| f.fil_layout.unwrap().to_string()),
            ('n', "batchsize", "64", |f| f.batchsize.to_string()),
            ('c', "in_channels", "5", |f| f.in_channels.to_string()),
            ('!', "in_d", "7", |f| f.in_d.to_string()),
            ('H', "in_h", "8", |f| f.in_h.to_string()),
            ('W', "in_w", "9", |f| f.in_w.to_string()),
            ('k', "out_channels", "6", |f| f.out_channels.to_string()),
            ('g', "group_count", "2", |f| f.group_count.to_string()),
            ('@', "fil_d", "4", |f| f.fil_d.to_string()),
            ('y', "fil_h", "5", |f| f.fil_h.to_string()),
            ('x', "fil_w", "7", |f| f.fil_w.to_string()),
            ('#', "conv_stride_d", "2", |f| f.conv_stride_d.to_string()),
            ('u', "conv_stride_h", "3", |f| f.conv_stride_h.to_string()),
            ('v', "conv_stride_w", "4", |f| f.conv_stride_w.to_string()),
            ('$', "pad_d", "1", |f| f.pad_d.to_string()),
            ('p', "pad_h", "2", |f| f.pad_h.to_string()),
            ('q', "pad_w", "3", |f| f.pad_w.to_string()),
            ('r', "pad_val", "-4", |f| f.pad_val.to_string()),
            ('A', "alpha", "-0.5", |f| f.alpha.to_string()),
            ('B', "beta", "0.25", |f| f.beta.to_string()),
            ('G', "gamma", "1.5", |f| f.gamma.to_string()),
            ('i', "iter", "10", |f| f.iter.to_string()),
            ('V', "verify", "0", |f| f.verify.to_string()),
            ('t', "time", "1", |f| f.time.to_string()),
            ('w', "wall", "1", |f| f.wall.to_string()),
            ('M', "bnMode", "1", |f| {
                BatchNormMode::ALL.iter().position(|m| *m == f.bn_mode).unwrap().to_string()
            }),
            ('^', "dilation_d", "2", |f| f.dilation_d.to_string()),
            ('l', "dilation_h", "3", |f| f.dilation_h.to_string()),
            ('j', "dilation_w", "4", |f| f.dilation_w.to_string()),
            ('D', "dot_graph", "graph.dot", |f| f.dot_graph.clone().unwrap()),
        ];
        for (short, long, value, read) in flags {
            for line in [
                format!("-{short} {value}"),
                format!("-{short}{value}"),
                format!("--{long} {value}"),
                format!("--{long}={value}"),
                format!("--{long} 1 --{long} {value}")
                    .replace("layout 1", "layout NCHW")
                    .replace("dim 1", "dim 2"),
            ] {
                assert_eq!(read(&parse(&line)), value, "{line}");
            }
        }
        for mode in ActivationMode::ALL {
            let value = mode.miopen_value();
            assert_eq!(parse(&format!("-m {value}")).activ_mode, mode);
            assert_eq!(parse(&format!("--activMode {value}")).activ_mode, mode);
            assert_eq!(parse(&format!("-m {}", mode.to_string().to_lowercase())).activ_mode, mode);
        }
    }

    #[test]
    fn fusion_modes_are_those_of_miopendriver() {
        for (index, text) in [
            "Convolution+Bias+BatchNorm+Activation",
            "Convolution+BatchNorm+Activation",
            "BatchNorm+Activation",
            "Convolution+BatchNorm",
            "Convolution+Bias+Activation",
            "Convolution+Activation",
            "Convolution+Bias",
        ]
        .into_iter()
        .enumerate()
        {
            for line in [format!("-F {index}"), format!("-J {index}"), format!("--fusion_mode {index}")] {
                assert_eq!(parse(&line).fusion_mode.to_string(), text, "{line}");
                assert_eq!(chain(&line).steps.len(), text.split('+').count(), "{line}");
            }
        }
    }

    #[test]
    fn two_and_three_dimensions_are_described() {
        let (conv, weights) =
            convolution("-c 12 -k 8 -g 4 -y 5 -x 7 -u 2 -v 3 -p 1 -q 2 -l 4 -j 5 -f NHWC -I NHWC");
        assert_eq!(conv.to_string(), "pad 1x2 stride 2x3 dilation 4x5 groups 4");
        assert_eq!(weights.to_string(), "f32 8x3x5x7 NHWC");
        let line = "-_ 3 -c 4 -! 6 -@ 2 -# 3 -$ 1 -^ 2 -H 10 -W 11 -I NDHWC";
        assert_eq!(chain(line).input.to_string(), "f32 32x4x6x10x11 NDHWC");
        let (conv, weights) = convolution(line);
        assert_eq!(conv.to_string(), "pad 1x0x0 stride 3x1x1 dilation 2x1x1");
        assert_eq!(weights.to_string(), "f32 32x4x2x3x3 NCDHW");
    }

    #[test]
    fn padding_modes_count_as_miopen_does() {
        let pads = |line: &str| convolution(line).0.pads_before().to_vec();
        assert_eq!(pads("-p 2 -q 1 -z conv"), [2, 1]);
        assert_eq!(pads("-p 2 -q 1 -z default"), [2, 1]);
        assert_eq!(pads("-p 2 -q 1 -z valid"), [0, 0]);
        assert_eq!(pads("-z same"), [1, 1]);
        assert_eq!(pads("-z same -y 7 -x 5 -u 2 -v 2 -H 224 -W 225"), [2, 2]);
        assert_eq!(pads("-z same -y 1 -x 1 -u 2 -v 2"), [0, 0]);
        // With dilation the mode has no effect.
        assert_eq!(pads("-z same -l 2 -p 2"), [2, 0]);
    }

    #[test]
    fn nonsense_is_refused_with_the_numbers() {
        let error = |line: &str| match parse(line).chain(Precision::Fp32) {
            Err(failure) => failure.to_string(),
            Ok(chain) => panic!("{line}: {chain:?}"),
        };
        assert_eq!(error("-n 0"), "tensor length 0 is zero; it must be at least 1");
        assert_eq!(error("-u 0"), "convolution stride 0 is zero; it must be at least 1");
        assert!(
            error("-I NCDHW")
                .contains("does not go with --spatial_dim 2; accepted: NCHW, NHWC, NCHWc4, NCHWc8, NCHWc16")
        );
        assert!(error("-_ 3 -f NHWC").contains("--fil_layout NHWC does not go with --spatial_dim 3"));
        assert!(
            error("-f NCHWc8")
                .contains("--fil_layout NCHWc8 does not go with --spatial_dim 2; accepted: NCHW, NHWC")
        );
        assert!(error("-c 12 -I NCHWc8").contains("NCHWc8 has blocks of 8 channels"));
        let output = "the output layout is NCHW; accepted without a convolution: NHWC, the input's";
        assert_eq!(error("-F 2 -I NHWC -O NCHW"), output);
        assert_eq!(error("-r 1"), "the padding value is 1; accepted: 0");
        for line in
            ["-F 7", "-J -1", "-M 2", "-m 11", "-z full", "-I NWHC", "-n many", "-i 0", "-_ 1", "-e 1", "-n"]
        {
            let words = [&["fuseplan"][..], &line.split_whitespace().collect::<Vec<_>>()].concat();
            assert!(Line::try_parse_from(words).is_err(), "{line}");
        }
    }
}

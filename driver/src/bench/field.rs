//! The field list: the convolution layers of known networks, as `benches/layers/field.py` takes them from the
//! networks' definitions.

use std::sync::LazyLock;

use fuseplan::{
    Activation, ConvolutionDescriptor, DataType, MathMode, TensorDescriptor, TensorLayout,
    error::DescriptorError,
};

use crate::chain::{Chain, Step};

/// The list, a line a layer, below a line of names.
const TEXT: &str = include_str!("field.tsv");

/// All layers, in the order of the file.
pub(crate) static LAYERS: LazyLock<Vec<Layer>> = LazyLock::new(|| {
    // The file is part of the program, and a test reads it.
    let lines = TEXT.lines().skip(1);
    lines.map(|line| Layer::parse(line).unwrap_or_else(|| panic!("field.tsv: {line}"))).collect()
});

/// Which networks are for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    /// Choices may be fitted to it.
    Fit,
    /// Choices are judged by it.
    Judge,
}

impl Half {
    /// The name in the file and on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Half::Fit => "fit",
            Half::Judge => "judge",
        }
    }
}

/// What is added behind the products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shift {
    None,
    Bias,
    /// In inference folded into the filters and a bias.
    BatchNorm,
}

/// A kind of layer of a network.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    pub(crate) network: &'static str,
    pub(crate) half: Half,
    /// How many layers of the network are alike.
    pub(crate) count: usize,
    channels: usize,
    /// (D,) H, W, like all lists below.
    image: Vec<usize>,
    filters: usize,
    taps: Vec<usize>,
    strides: Vec<usize>,
    pads: Vec<usize>,
    dilations: Vec<usize>,
    groups: usize,
    shift: Shift,
    /// As the network has it; [`Layer::activation`] says what of it there is.
    activation: &'static str,
    residual: bool,
}

impl Layer {
    /// The layer of a line; none of one that is not like the others.
    pub(super) fn parse(line: &'static str) -> Option<Self> {
        let [
            network,
            half,
            count,
            dims,
            channels,
            image,
            filters,
            taps,
            strides,
            pads,
            dilations,
            groups,
            shift,
            activation,
            residual,
        ] = <[&str; 15]>::try_from(line.split('\t').collect::<Vec<_>>()).ok()?;
        let number = |text: &str| text.parse::<usize>().ok();
        let dims = number(dims)?;
        let list = |text: &str| {
            let list = text.split('x').map(number).collect::<Option<Vec<_>>>()?;
            (list.len() == dims).then_some(list)
        };
        Some(Layer {
            network,
            half: match half {
                "fit" => Half::Fit,
                "judge" => Half::Judge,
                _ => return None,
            },
            count: number(count)?,
            channels: number(channels)?,
            image: list(image)?,
            filters: number(filters)?,
            taps: list(taps)?,
            strides: list(strides)?,
            pads: list(pads)?,
            dilations: list(dilations)?,
            groups: number(groups)?,
            shift: match shift {
                "none" => Shift::None,
                "bias" => Shift::Bias,
                "bn" => Shift::BatchNorm,
                _ => return None,
            },
            activation,
            residual: match residual {
                "yes" => true,
                "no" => false,
                _ => return None,
            },
        })
    }

    /// The layer's numbers behind its network's name: `resnet50:64-56x56-64-3x3-1x1-s2-d2-g32+r`, of which stride,
    /// dilation and groups are left out where they are 1.
    pub(crate) fn label(&self) -> String {
        let by = |list: &[usize]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
        let mut label = format!(
            "{}:{}-{}-{}-{}-{}",
            self.network,
            self.channels,
            by(&self.image),
            self.filters,
            by(&self.taps),
            by(&self.pads)
        );
        let more = [("s", by(&self.strides)), ("d", by(&self.dilations)), ("g", self.groups.to_string())];
        for (letter, text) in more {
            if text.chars().any(|digit| !matches!(digit, '1' | 'x')) || text == "11" {
                label += &format!("-{letter}{text}");
            }
        }
        label += match self.shift {
            Shift::None => "",
            Shift::Bias | Shift::BatchNorm => "+b",
        };
        if self.residual {
            label += "+r";
        }
        match self.activation {
            "none" => label,
            activation => format!("{label}+{activation}"),
        }
    }

    /// The batch: autoencoders, whose images are large, are run on one at a time.
    pub(crate) fn batch(&self, asked: usize) -> usize {
        if self.network.ends_with("vae") { 1 } else { asked }
    }

    /// The network's activation, by PyTorch's name, if there is one.
    fn activation(&self) -> Option<Activation> {
        Some(match self.activation {
            "relu" => Activation::Relu,
            "relu6" => Activation::ClippedRelu { max: 6.0 },
            "sigmoid" => Activation::Logistic,
            // PyTorch's has no factors.
            "tanh" => Activation::Tanh { alpha: 1.0, beta: 1.0 },
            "silu" => Activation::Silu,
            "hardswish" => Activation::HardSwish,
            "hardsigmoid" => Activation::HardSigmoid,
            "gelu" => Activation::Gelu,
            _ => return None,
        })
    }

    /// The layer with its operators: a batch-norm as the bias that it folds into.
    pub(crate) fn chain(
        &self,
        data_type: DataType,
        layout: TensorLayout,
        batch: usize,
        math: MathMode,
    ) -> Result<Chain, DescriptorError> {
        let last = [TensorLayout::Nhwc, TensorLayout::Ndhwc].contains(&layout);
        let layouts = TensorLayout::of_rank(2 + self.image.len());
        let layout = layouts.get(usize::from(last)).copied().unwrap_or(layout);
        let tensor = |first: usize, second: usize, extents: &[usize]| {
            TensorDescriptor::with_layout(data_type, layout, &[&[first, second][..], extents].concat())
        };
        let conv = ConvolutionDescriptor::of_dims(self.pads.len())?
            .with_pads(&self.pads)?
            .with_strides(&self.strides)?
            .with_dilations(&self.dilations)?;
        let conv = conv.with_groups(self.groups)?;
        let weights = tensor(self.filters, self.channels / self.groups, &self.taps)?;
        let mut steps = vec![Step::Convolution(conv, weights, None)];
        if self.shift != Shift::None {
            steps.push(Step::Bias);
        }
        if self.residual {
            steps.push(Step::Residual);
        }
        steps.extend(self.activation().map(Step::Activation));
        Ok(Chain { input: tensor(self.batch(batch), self.channels, &self.image)?, steps, math })
    }
}

#[cfg(test)]
mod tests {
    use fuseplan::device::Target;

    use super::*;

    impl Layer {
        /// Multiplications with an addition, for one image, of all layers that are alike.
        fn multiply_adds(&self) -> f64 {
            let outputs: usize = (0..self.image.len())
                .map(|d| {
                    let reach = self.dilations[d] * (self.taps[d] - 1) + 1;
                    (self.image[d] + 2 * self.pads[d] - reach) / self.strides[d] + 1
                })
                .product();
            let taps: usize = self.taps.iter().product();
            (self.count * outputs * self.filters * self.channels / self.groups * taps) as f64
        }
    }

    /// Numbers of convolutions, 1x1 by linear layers on pixels included; billions of multiply-adds as published, and
    /// those of them that are linear layers behind the convolutions. Published by torchvision, with its weights; of
    /// MobileNet v1 by its paper; of the detector by its authors as 28.6 billion operations.
    #[rustfmt::skip]
    const PUBLISHED: [(&str, usize, f64, f64); 17] = [
        ("resnet18", 20, 1.814, 0.000512), ("resnet50", 53, 4.089, 0.002048), ("resnet152", 155, 11.514, 0.002048),
        ("resnext50", 53, 4.23, 0.002048), ("resnext101", 104, 16.414, 0.002048),
        ("regnety400mf", 85, 0.402, 0.00044), ("regnety8gf", 90, 8.473, 0.002016), ("vgg16", 13, 15.47, 0.123633664),
        ("densenet121", 120, 2.834, 0.001024), ("inceptionv3", 94, 5.713, 0.002048),
        ("mobilenetv1", 27, 0.569, 0.001024), ("mobilenetv2", 52, 0.301, 0.00128), ("mobilenetv3", 62, 0.217, 0.0025088),
        ("efficientnetb0", 81, 0.386, 0.00128), ("efficientnetb4", 160, 4.394, 0.001792),
        ("convnext", 58, 4.456, 0.000768), ("detector", 63, 14.3, 0.0),
    ];

    /// Of these nobody has published such numbers: layers, counted in the definitions in `benches/layers/small.py`.
    const COUNTED: [(&str, usize); 3] = [("unet", 19), ("imagevae", 36), ("videovae", 37)];

    #[test]
    fn lines_are_read_and_labelled_and_others_are_not() {
        let line = "net\tjudge\t2\t2\t6\t7x5\t8\t3x1\t2x1\t1x0\t1x1\t2\tbn\trelu6\tyes";
        let layer = Layer::parse(line).unwrap();
        assert_eq!(layer.label(), "net:6-7x5-8-3x1-1x0-s2x1-g2+b+r+relu6");
        // 4 x 5 outputs of 8 filters, 3 channels and 3 taps, twice.
        assert_eq!(layer.multiply_adds(), (2 * 4 * 5 * 8 * 3 * 3) as f64);
        let chain = layer.chain(DataType::Half, TensorLayout::Nhwc, 8, MathMode::Precise).unwrap();
        assert_eq!((chain.input.lens(), chain.steps.len()), (&[8, 6, 7, 5][..], 4));
        for (from, to) in
            [("judge", "other"), ("7x5", "7x5x1"), ("yes", "maybe"), ("\tbn", ""), ("\t8", "\t-8")]
        {
            let wrong = line.replace(from, to);
            assert!(Layer::parse(wrong.leak()).is_none(), "{from} as {to}");
        }
    }

    #[test]
    fn networks_have_the_published_numbers_of_layers_and_multiply_adds() {
        for (network, count, published, linear) in PUBLISHED {
            let layers = || LAYERS.iter().filter(|layer| layer.network == network);
            assert_eq!(layers().map(|layer| layer.count).sum::<usize>(), count, "{network}");
            let found = layers().map(Layer::multiply_adds).sum::<f64>() * 1e-9;
            let ratio = found / (published - linear);
            assert!((ratio - 1.0).abs() < 0.01, "{network}: {found}, published {published}");
        }
        for (network, count) in COUNTED {
            let layers = LAYERS.iter().filter(|layer| layer.network == network);
            assert_eq!(layers.map(|layer| layer.count).sum::<usize>(), count, "{network}");
        }
        assert_eq!(PUBLISHED.len() + COUNTED.len(), super::super::lists::List::Field.networks().len());
    }

    #[test]
    fn both_halves_have_ten_networks_and_every_layer_a_label_of_its_own() {
        let mut networks: Vec<_> =
            LAYERS.iter().map(|layer| (layer.network, layer.half == Half::Fit)).collect();
        networks.dedup();
        assert_eq!(networks.len(), 20, "{networks:?}");
        assert_eq!(networks.iter().filter(|(_, fit)| *fit).count(), 10);
        let mut labels: Vec<_> = LAYERS.iter().map(Layer::label).collect();
        let count = labels.len();
        labels.sort();
        labels.dedup();
        assert_eq!(labels.len(), count);
    }

    /// All but one that has hardly any products, 4 channels to 4, for which windows of the image are not worth making.
    #[test]
    fn no_layer_is_left_to_the_plain_kernel_of_a_gpu() {
        let kinds = [
            (DataType::Half, TensorLayout::Nhwc, MathMode::Precise),
            (DataType::Half, TensorLayout::Nchw, MathMode::Precise),
            (DataType::Float, TensorLayout::Nchw, MathMode::Precise),
            (DataType::Float, TensorLayout::Nhwc, MathMode::AllowTf32),
        ];
        for arch in ["sm_90a", "sm_80"] {
            let target = Target::new("cuda", arch).unwrap();
            // A part of the list, of each kind another one, as models of every tile are asked.
            for (kind, (data_type, layout, math)) in kinds.into_iter().enumerate() {
                for layer in LAYERS.iter().skip(kind).step_by(16) {
                    let chain = layer.chain(data_type, layout, 8, math).unwrap();
                    let answers = crate::chain::Plan::of(&chain).unwrap().plan.answers(&target).unwrap();
                    let is_small = layer.channels * layer.filters <= 16;
                    assert!(
                        !answers[0].solver.starts_with("cuda.direct.") || is_small,
                        "{arch} {}",
                        layer.label()
                    );
                }
            }
        }
    }

    #[test]
    fn every_layer_is_a_plan_in_both_layouts() {
        for (layer, layout) in
            LAYERS.iter().flat_map(|layer| [TensorLayout::Nchw, TensorLayout::Nhwc].map(|l| (layer, l)))
        {
            let chain = layer.chain(DataType::Half, layout, 8, MathMode::Precise).unwrap();
            crate::chain::Plan::of(&chain).unwrap_or_else(|error| panic!("{}: {error}", layer.label()));
        }
    }
}

//! The named lists of configurations.

use clap::ValueEnum;
use fuseplan::{
    Activation, BatchNormMode, ConvolutionDescriptor, TensorDescriptor, TensorLayout, device::DeviceInfo,
    error::DescriptorError,
};

use super::field::{Half, LAYERS, Layer};
use super::report::Setting;
use crate::chain::{Chain, Step};
use crate::element::Math;

/// A list of configurations by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum List {
    /// Convolution+bias+activation: the 13 of MIOpen's chart
    Cba,
    /// Batch-norm+activation: the 8 of MIOpen's chart
    Na,
    /// Convolution+bias+activation: the 23 of ResNet-50 in MIOpen's tests (GetNetwork1)
    Resnet50,
    /// The convolutions of twenty known networks with the operators behind them
    Field,
}

/// A square convolution: C, H = W, K, filter extent, padding, stride.
type Square = [usize; 6];

#[rustfmt::skip]
const CBA: [Square; 13] = [
    [2048, 7, 512, 1, 0, 1], [512, 7, 2048, 1, 0, 1], [512, 7, 512, 3, 1, 1], [1024, 14, 256, 1, 0, 1],
    [256, 14, 1024, 1, 0, 1], [256, 14, 256, 3, 1, 1], [128, 28, 128, 3, 1, 1], [128, 28, 512, 1, 0, 1],
    [512, 28, 128, 1, 0, 1], [256, 55, 64, 1, 0, 1], [64, 55, 256, 1, 0, 1], [64, 55, 64, 1, 0, 1],
    [64, 55, 64, 3, 1, 1],
];

#[rustfmt::skip]
const RESNET50: [Square; 23] = [
    [1024, 14, 2048, 1, 0, 2], [1024, 14, 256, 1, 0, 1], [1024, 14, 512, 1, 0, 1], [128, 28, 128, 3, 1, 1],
    [128, 28, 512, 1, 0, 1], [128, 56, 128, 3, 1, 2], [2048, 7, 512, 1, 0, 1], [256, 14, 1024, 1, 0, 1],
    [256, 14, 256, 3, 1, 1], [256, 28, 256, 3, 1, 2], [256, 56, 128, 1, 0, 1], [256, 56, 512, 1, 0, 2],
    [256, 56, 64, 1, 0, 1], [3, 224, 64, 7, 3, 2], [512, 14, 512, 3, 1, 2], [512, 28, 1024, 1, 0, 2],
    [512, 28, 128, 1, 0, 1], [512, 28, 256, 1, 0, 1], [512, 7, 2048, 1, 0, 1], [512, 7, 512, 3, 1, 1],
    [64, 56, 256, 1, 0, 1], [64, 56, 64, 1, 0, 1], [64, 56, 64, 3, 1, 1],
];

/// C, H = W.
const NA: [[usize; 2]; 8] =
    [[512, 7], [2048, 7], [256, 14], [1024, 14], [128, 28], [512, 28], [64, 55], [256, 55]];

/// A configuration of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Case {
    /// Convolution, bias, ReLU.
    Cba(Square),
    /// Spatial batch-norm, ReLU.
    Na([usize; 2]),
    /// A layer of a network.
    Field(&'static Layer),
}

impl List {
    /// The configurations, in the order of the chart.
    pub(crate) fn cases(self) -> Vec<Case> {
        match self {
            List::Cba => CBA.map(Case::Cba).to_vec(),
            List::Na => NA.map(Case::Na).to_vec(),
            List::Resnet50 => RESNET50.map(Case::Cba).to_vec(),
            List::Field => LAYERS.iter().map(Case::Field).collect(),
        }
    }

    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            List::Cba => "cba",
            List::Na => "na",
            List::Resnet50 => "resnet50",
            List::Field => "field",
        }
    }

    /// What is fused, and of what.
    pub(crate) fn title(self) -> &'static str {
        match self {
            List::Cba => "Convolution + bias + activation",
            List::Na => "Batch-norm + activation",
            List::Resnet50 => "Convolution + bias + activation, the layers of ResNet-50",
            List::Field => "The convolutions of known networks",
        }
    }

    /// What the numbers of a label are.
    pub(crate) fn label_form(self) -> &'static str {
        match self {
            List::Cba => "C-H-W-K-fx-fy-px-py",
            List::Na => "C-H-W",
            List::Resnet50 => "C-H-W-K-fx-fy-px-py, s2: stride 2",
            List::Field => {
                "network:C-image-K-taps-pads, s: strides, d: dilations, g: groups, b: bias, r: residual, activation"
            }
        }
    }

    /// The names of the list's networks.
    pub(crate) fn networks(self) -> Vec<&'static str> {
        let mut names: Vec<_> =
            self.cases().iter().filter_map(Case::layer).map(|layer| layer.network).collect();
        names.dedup();
        names
    }
}

impl Case {
    /// The layer of a network that it is, if it is one.
    pub(crate) fn layer(&self) -> Option<&'static Layer> {
        match self {
            Case::Field(layer) => Some(layer),
            _ => None,
        }
    }

    /// Whether it is of a network, or of a half of the networks.
    pub(crate) fn is_of(&self, network: &str) -> bool {
        self.layer().is_some_and(|layer| match network {
            "fit" => layer.half == Half::Fit,
            "judge" => layer.half == Half::Judge,
            name => layer.network == name,
        })
    }

    /// As in MIOpen's charts: `C-H-W-K-fx-fy-px-py`, with a stride other than 1 behind it, or `C-H-W`.
    pub(crate) fn label(&self) -> String {
        match *self {
            Case::Cba([c, h, k, f, p, 1]) => format!("{c}-{h}-{h}-{k}-{f}-{f}-{p}-{p}"),
            Case::Cba([c, h, k, f, p, s]) => format!("{c}-{h}-{h}-{k}-{f}-{f}-{p}-{p}-s{s}"),
            Case::Na([c, h]) => format!("{c}-{h}-{h}"),
            Case::Field(layer) => layer.label(),
        }
    }

    /// The operators on the input.
    pub(crate) fn chain(&self, setting: &Setting) -> Result<Chain, DescriptorError> {
        let data_type = setting.precision.data_type();
        let tensor = |lens: [usize; 4]| TensorDescriptor::with_layout(data_type, setting.layout, &lens);
        let relu = Step::Activation(Activation::Relu);
        match *self {
            Case::Cba([c, h, k, f, p, s]) => {
                let conv = ConvolutionDescriptor::d2().with_pads([p, p])?.with_strides([s, s])?;
                let steps = vec![Step::Convolution(conv, tensor([k, c, f, f])?, None), Step::Bias, relu];
                Ok(Chain { input: tensor([setting.batch, c, h, h])?, steps, math: setting.math.mode() })
            }
            Case::Na([c, h]) => {
                let steps = vec![Step::BatchNorm(BatchNormMode::Spatial), relu];
                Ok(Chain { input: tensor([setting.batch, c, h, h])?, steps, math: setting.math.mode() })
            }
            Case::Field(layer) => layer.chain(data_type, setting.layout, setting.batch, setting.math.mode()),
        }
    }

    /// The command that runs this configuration alone.
    pub(crate) fn command(&self, setting: &Setting) -> String {
        let primitive = format!("fuseplan CBAInfer{}", setting.precision.suffix());
        let shape = match *self {
            Case::Cba([c, h, k, f, p, s]) => {
                format!("-F 4 -c {c} -H {h} -W {h} -k {k} -y {f} -x {f} -p {p} -q {p} -u {s} -v {s}")
            }
            Case::Na([c, h]) => format!("-F 2 -M 1 -c {c} -H {h} -W {h}"),
            Case::Field(layer) => return self.bench(layer, setting),
        };
        let layout = match setting.layout {
            TensorLayout::Nchw => String::new(),
            layout => format!(" -I {layout} -f {layout}"),
        };
        format!("{primitive} {shape} -n {}{layout}{}", setting.batch, place(setting))
    }

    /// A layer with a residual, or behind other layouts, has no command line of MIOpenDriver's.
    fn bench(&self, layer: &Layer, setting: &Setting) -> String {
        let (precision, layout) = (setting.precision.data_type(), setting.layout);
        let batch = layer.batch(setting.batch);
        format!(
            "fuseplan bench field --only {} --batch {batch} --dtype {precision} --layout {layout}{}",
            self.label(),
            place(setting)
        )
    }
}

/// The flags that say where a configuration runs, and how its products are rounded.
fn place(setting: &Setting) -> String {
    let DeviceInfo { backend, ordinal, .. } = &setting.device;
    let device = if *ordinal == 0 { String::new() } else { format!(" --device {ordinal}") };
    let math = match setting.math {
        Math::Precise => String::new(),
        math => format!(" --math {}", math.name()),
    };
    format!("{math} --backend {backend}{device}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_distinct_and_labelled_as_in_the_charts() {
        for (list, count) in [(List::Cba, 13), (List::Na, 8), (List::Resnet50, 23)] {
            let mut labels: Vec<_> = list.cases().iter().map(Case::label).collect();
            labels.sort();
            labels.dedup();
            assert_eq!(labels.len(), count, "{list:?}");
        }
        assert_eq!(List::Cba.cases()[2].label(), "512-7-7-512-3-3-1-1");
        assert_eq!(List::Na.cases()[7].label(), "256-55-55");
        assert_eq!(List::Resnet50.cases()[13].label(), "3-224-224-64-7-7-3-3-s2");
    }
}

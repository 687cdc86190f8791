//! A network's files: `examples/data/README.md` says what is in them.

use std::collections::HashMap;
use std::error::Error;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use fuseplan::TensorLayout;
use half::f16;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use super::HostTensor;

/// A network as described in its `network.json`, with its weights, its picture and the stored outputs.
#[derive(Debug, Deserialize)]
pub(crate) struct Network {
    pub(crate) title: String,
    /// What the stored outputs were computed with.
    pub(crate) reference: String,
    pub(crate) nodes: Vec<Node>,
    /// The node whose output is a picture, if there is one.
    pub(crate) picture: Option<String>,
    image: Image,
    #[serde(skip)]
    pub(crate) weights: HashMap<String, Weights>,
    #[serde(skip)]
    pub(crate) expected: HashMap<String, Weights>,
    #[serde(skip)]
    pixels: Vec<u8>,
    #[serde(skip)]
    extent: [usize; 2],
}

/// How pixels become the network's input: `(pixel − offset) · scale`.
#[derive(Debug, Deserialize)]
struct Image {
    file: String,
    /// Whether the network takes blue first.
    bgr: bool,
    offset: f32,
    scale: f32,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) input: String,
    #[serde(flatten)]
    pub(crate) work: Work,
    /// The stored output has every n-th value.
    #[serde(default)]
    pub(crate) every: usize,
}

/// What a node does with its input.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Work {
    /// One fusion plan.
    Plan(Block),
    HardSwish,
    Mean,
    Gate {
        gate: String,
    },
    PixelShuffle,
}

/// Convolution, then what is present of bias, batch-norm, residual, activation.
#[derive(Debug, Deserialize)]
pub(crate) struct Block {
    pub(crate) pads: [usize; 2],
    pub(crate) strides: [usize; 2],
    pub(crate) groups: usize,
    #[serde(default)]
    pub(crate) bias: bool,
    /// Of the batch-norm.
    pub(crate) epsilon: Option<f64>,
    /// The node that is added.
    pub(crate) residual: Option<String>,
    pub(crate) activation: Option<Activation>,
}

/// An activation by MIOpen's name.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(tag = "mode", rename_all = "UPPERCASE")]
pub(crate) enum Activation {
    Relu,
    LeakyRelu {
        #[serde(rename = "alpha")]
        slope: f64,
    },
}

impl From<Activation> for fuseplan::Activation {
    fn from(activation: Activation) -> Self {
        match activation {
            Activation::Relu => fuseplan::Activation::Relu,
            Activation::LeakyRelu { slope } => fuseplan::Activation::LeakyRelu { slope },
        }
    }
}

/// A stored tensor as f32.
#[derive(Debug, Clone)]
pub(crate) struct Weights {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

impl Network {
    /// Reads the network in `examples/data/<name>`.
    pub(crate) fn load(name: &str) -> Result<Self, Box<dyn Error>> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data").join(name);
        let mut network: Network = serde_json::from_slice(&fs::read(directory.join("network.json"))?)?;
        network.weights = read_tensors(&directory.join("weights.safetensors"))?;
        network.expected = read_tensors(&directory.join("expected.safetensors"))?;
        let picture = png::Decoder::new(BufReader::new(File::open(directory.join(&network.image.file))?));
        let mut reader = picture.read_info()?;
        if reader.output_color_type() != (png::ColorType::Rgb, png::BitDepth::Eight) {
            return Err(format!("{}: not 8-bit RGB", network.image.file).into());
        }
        network.pixels = vec![0; reader.output_buffer_size().ok_or("the picture is too large")?];
        let info = reader.next_frame(&mut network.pixels)?;
        network.extent = [info.height as usize, info.width as usize];
        Ok(network)
    }

    /// The picture as the network takes it.
    pub(crate) fn input(&self, layout: TensorLayout) -> Result<HostTensor, Box<dyn Error>> {
        let [height, width] = self.extent;
        let Image { bgr, offset, scale, .. } = self.image;
        HostTensor::from_fn(layout, [1, 3, height, width], |[_, c, y, x]| {
            let channel = if bgr { 2 - c } else { c };
            (f32::from(self.pixels[(y * width + x) * 3 + channel]) - offset) * scale
        })
    }

    /// The values of a stored weight.
    pub(crate) fn weights(&self, node: &str, part: &str) -> Result<&Weights, Box<dyn Error>> {
        let name = format!("{node}.{part}");
        self.weights.get(&name).ok_or_else(|| format!("no weights {name}").into())
    }
}

/// Every tensor of a file, widened to f32.
fn read_tensors(path: &Path) -> Result<HashMap<String, Weights>, Box<dyn Error>> {
    let bytes = fs::read(path)?;
    let mut tensors = HashMap::new();
    for (name, view) in SafeTensors::deserialize(&bytes)?.iter() {
        let values = match view.dtype() {
            Dtype::F32 => {
                view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
            }
            Dtype::F16 => {
                view.data().chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
            }
            other => return Err(format!("{name} is {other:?}; expected F32 or F16").into()),
        };
        tensors.insert(name.to_string(), Weights { shape: view.shape().to_vec(), values });
    }
    Ok(tensors)
}

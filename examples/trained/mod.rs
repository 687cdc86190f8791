//! Small trained networks from files, run node by node, every block of layers as one fusion plan.

mod network;
mod tensor;

use std::collections::HashMap;
use std::error::Error;
use std::time::{Duration, Instant};

use fuseplan::error::CompileError;
use fuseplan::*;
pub(crate) use network::Network;
use network::{Block, Node, Work};
pub(crate) use tensor::HostTensor;

/// The networks in `examples/data`.
pub(crate) const NETWORKS: [&str; 2] = ["upconv7", "textline"];

/// How far a layer may be from the stored output, relative to the output's largest magnitude.
///
/// Both sides compute in f32 (unit roundoff 6e-8) but add in different orders, over up to 2,304 products a
/// value and through up to 53 layers in a row. A sum of n products differs by about `sqrt(n) · 6e-8` of their
/// magnitudes, here up to 3e-6. ONNX Runtime differs from itself by up to 9e-7 when its graph optimisations are
/// on; the f64 reference solver differs from the stored outputs by up to 1.3e-6. One depthwise tap or one
/// batch-norm parameter that is off by 5 % is beyond the bound (`tests/trained_layers.rs`).
pub(crate) const BOUND: f64 = 1e-5;

/// What became of a node.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) name: String,
    pub(crate) output: HostTensor,
    /// What ran; `None` for what lies between plans.
    pub(crate) plan: Option<CompiledPlan>,
    /// The shortest execution, and what the compiles took: the first, and again with the same shapes.
    pub(crate) time: Duration,
    pub(crate) compile: [Duration; 2],
    /// The largest difference from the stored output, relative to that output's largest magnitude. `None`
    /// where nothing is stored.
    pub(crate) error: Option<f64>,
}

/// Runs a network on its picture, every layer on the output of our own layer before, `repetitions` times
/// each plan, and compares with the stored outputs.
pub(crate) fn run(
    network: &Network,
    handle: &Handle,
    layout: TensorLayout,
    repetitions: usize,
) -> Result<Vec<Layer>, Box<dyn Error>> {
    let image = network.input(layout)?;
    let mut layers: Vec<Layer> = Vec::with_capacity(network.nodes.len());
    let mut index: HashMap<&str, usize> = HashMap::new();
    for node in &network.nodes {
        let find = |name: &str| match index.get(name) {
            Some(&i) => Ok(&layers[i].output),
            None if name == "image" => Ok(&image),
            None => Err(format!("{}: there is no node {name} before it", node.name)),
        };
        let input = find(&node.input)?;
        let host = |output| Layer {
            name: node.name.clone(),
            output,
            plan: None,
            time: Duration::ZERO,
            compile: [Duration::ZERO; 2],
            error: None,
        };
        let mut layer = match &node.work {
            Work::Plan(block) => {
                let residual = block.residual.as_deref().map(find).transpose()?;
                run_plan(network, node, block, handle, input, residual, repetitions)?
            }
            Work::HardSwish => host(input.clone().hard_swish()),
            Work::Mean => host(input.mean()?),
            Work::Gate { gate } => host(input.gated(find(gate)?)?),
            Work::PixelShuffle => host(input.pixel_shuffle()?),
        };
        if let Some(expected) = network.expected.get(&node.name) {
            layer.error = Some(difference(layer.output.nchw().step_by(node.every), &expected.values)?);
        }
        index.insert(node.name.as_str(), layers.len());
        layers.push(layer);
    }
    Ok(layers)
}

/// Describes, compiles and executes one block of layers.
fn run_plan(
    network: &Network,
    node: &Node,
    block: &Block,
    handle: &Handle,
    input: &HostTensor,
    residual: Option<&HostTensor>,
    repetitions: usize,
) -> Result<Layer, Box<dyn Error>> {
    let part = |part| network.weights(&node.name, part);
    let filters = part("weights")?;
    let lens = <[usize; 4]>::try_from(filters.shape.as_slice())?;
    let filters = HostTensor::from_nchw(input.layout, lens, &filters.values)?;

    let mut plan = FusionPlan::for_device(handle, input.descriptor)?;
    let mut args = OperatorArgs::new();

    let conv = ConvolutionDescriptor::d2()
        .with_pads(block.pads)?
        .with_strides(block.strides)?
        .with_groups(block.groups)?;
    let op = plan.append(ConvForward::new(conv, filters.descriptor))?;
    args.set(op, ConvForwardArgs::new(&filters.data));
    if block.bias {
        let op = plan.append(BiasForward::new())?;
        args.set(op, BiasForwardArgs::new(&part("bias")?.values));
    }
    if let Some(epsilon) = block.epsilon {
        let op = plan.append(BatchNormInference::new(BatchNormMode::Spatial))?;
        let [scale, shift, mean, variance] = ["scale", "shift", "mean", "variance"].map(part);
        let (scale, shift) = (&scale?.values, &shift?.values);
        let norm = BatchNormInferenceArgs::new()
            .scale(scale)
            .bias(shift)
            .mean(&mean?.values)
            .variance(&variance?.values)
            .epsilon(epsilon);
        args.set(op, norm);
    }
    if let Some(residual) = residual {
        let op = plan.append(BiasForward::residual())?;
        args.set(op, BiasForwardArgs::new(&residual.data));
    }
    if let Some(activation) = block.activation.map(Activation::from) {
        let op = plan.append(ActivationForward::new(activation.mode()))?;
        args.set(op, activation);
    }

    let compile = || -> Result<_, CompileError> {
        let start = Instant::now();
        let compiled = plan.compile(handle)?;
        Ok((compiled, start.elapsed()))
    };
    let (compiled, first) = compile()?;
    let (again, second) = compile()?;
    if !std::ptr::eq(compiled.info(), again.info()) {
        return Err(
            format!("{}: a second compile with the same shapes built a second kernel", node.name).into()
        );
    }

    let mut output = HostTensor::poisoned(input.layout, *compiled.output());
    let x = DeviceBuffer::from_slice(handle, &input.data)?;
    let mut y = DeviceBuffer::from_slice(handle, &output.data)?;
    let mut time = Duration::MAX;
    for _ in 0..repetitions.max(1) {
        let (x, y) = (Tensor::new(&input.descriptor, &x), TensorMut::new(compiled.output(), &mut y));
        let (elapsed, result) = handle.time(|| compiled.execute(handle, x, y, &args))?;
        result?;
        time = time.min(elapsed);
    }
    y.copy_to(&mut output.data)?;
    Ok(Layer {
        name: node.name.clone(),
        output,
        plan: Some(compiled),
        time,
        compile: [first, second],
        error: None,
    })
}

/// The largest difference, relative to the largest magnitude expected; infinite where a value is no number.
pub(crate) fn difference(found: impl Iterator<Item = f32>, expected: &[f32]) -> Result<f64, Box<dyn Error>> {
    let found: Vec<f32> = found.collect();
    if found.len() != expected.len() {
        return Err(format!("{} values, expected {}", found.len(), expected.len()).into());
    }
    let (mut worst, mut largest) = (0.0f64, f64::MIN_POSITIVE);
    for (found, expected) in found.into_iter().zip(expected) {
        let distance = f64::from(found - expected).abs();
        worst = worst.max(if distance.is_nan() { f64::INFINITY } else { distance });
        largest = largest.max(f64::from(expected.abs()));
    }
    Ok(worst / largest)
}

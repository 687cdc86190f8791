//! Times each convolution of a network in NHWC where it stands: behind the layer in front of it, with filters that the
//! others' may have pushed out of the caches. Beside each time, the median and the least, are what its products take at 240 GFLOP/s a
//! thread, and its bytes at 20 GB/s.
//!
//! `cargo run --release -p fuseplan-cpu --example network_speed -- NETWORK [threads] [rounds] [solvers] [cold|warm] [detail|brief]
//! [f32|f16|bf16]`
//!
//! Networks are mobilenetv2, resnet50, vgg16, detector, convnext, mobile: separable convolutions with hard swishes, and linear: fully connected
//! layers.
//! Solvers are parts of ids with commas between
//! them, `chosen,direct.v1,amx`: one column each, in which a layer that the solver does not take is computed by the chosen one. With
//! `cold`, 64 MiB are read in front of each round. With `detail`, what each executable says of itself follows.

use std::error::Error;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use fuseplan_api::operands::{ActivationForward, BiasForward, ConvForward};
use fuseplan_api::*;
use half::{bf16, f16};

/// A convolution with a bias of a square image, padded so that without a stride its extent stays.
#[derive(Clone, Copy)]
struct Layer {
    inputs: usize,
    outputs: usize,
    extent: usize,
    filter: usize,
    stride: usize,
    groups: usize,
    residual: bool,
    activation: Option<ActivationMode>,
}

impl Layer {
    fn point(inputs: usize, outputs: usize, extent: usize, activation: Option<ActivationMode>) -> Self {
        Layer { inputs, outputs, extent, filter: 1, stride: 1, groups: 1, residual: false, activation }
    }

    fn output_extent(&self) -> usize {
        self.extent.div_ceil(self.stride)
    }

    fn weights(&self) -> usize {
        self.outputs * self.inputs / self.groups * self.filter * self.filter
    }

    fn operations(&self) -> f64 {
        (2 * self.output_extent().pow(2) * self.weights()) as f64
    }

    fn bytes(&self, data_type: DataType) -> f64 {
        let outputs = self.output_extent().pow(2) * self.outputs * if self.residual { 2 } else { 1 };
        (data_type.size() * (self.extent.pow(2) * self.inputs + outputs + self.weights())) as f64
    }

    fn name(&self) -> String {
        let Layer { inputs, outputs, extent, filter, stride, groups, residual, .. } = *self;
        let groups = if groups > 1 { format!("g{groups}_") } else { String::new() };
        let stride = if stride > 1 { format!("s{stride}") } else { String::new() };
        let residual = if residual { "+residual" } else { "" };
        format!("{groups}{filter}x{filter}{stride}_{inputs}-{outputs}@{extent}{residual}")
    }

    fn problem(&self, data_type: DataType) -> Result<Problem, DescriptorError> {
        let conv = ConvolutionDescriptor::d2()
            .with_pads([self.filter / 2; 2])?
            .with_strides([self.stride; 2])?
            .with_groups(self.groups)?;
        let image = [1, self.inputs, self.extent, self.extent];
        let input = TensorDescriptor::with_layout(data_type, TensorLayout::Nhwc, &image)?;
        let filters = [self.outputs, self.inputs / self.groups, self.filter, self.filter];
        let weights = TensorDescriptor::nchw(data_type, filters)?;
        let output = conv.forward_output(&input, &weights)?;
        let bias = TensorDescriptor::nchw(data_type, [1, self.outputs, 1, 1])?;
        let mut ops = vec![Op::ConvForward { conv, weights }, Op::BiasForward { bias }];
        ops.extend(self.residual.then_some(Op::BiasForward { bias: output }));
        ops.extend(self.activation.map(|mode| Op::ActivationForward { mode }));
        Ok(Problem { input, output, ops, math: MathMode::Precise })
    }
}

fn mobilenetv2() -> Vec<Layer> {
    let relu6 = Some(ActivationMode::ClippedRelu);
    let mut layers = vec![Layer { filter: 3, stride: 2, ..Layer::point(3, 32, 224, relu6) }];
    let (mut extent, mut channels) = (112, 32);
    // Expansion, outputs, how often, first stride.
    let blocks = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ];
    for (expansion, outputs, count, first) in blocks {
        for stride in std::iter::once(first).chain(std::iter::repeat_n(1, count - 1)) {
            let hidden = channels * expansion;
            if expansion > 1 {
                layers.push(Layer::point(channels, hidden, extent, relu6));
            }
            let depthwise = Layer::point(hidden, hidden, extent, relu6);
            layers.push(Layer { filter: 3, stride, groups: hidden, ..depthwise });
            extent = depthwise.extent.div_ceil(stride);
            let residual = stride == 1 && channels == outputs;
            layers.push(Layer { residual, ..Layer::point(hidden, outputs, extent, None) });
            channels = outputs;
        }
    }
    layers.push(Layer::point(320, 1280, extent, relu6));
    layers
}

/// Separable convolutions with hard swishes, as PP-OCR's detection has them at 640x640.
fn mobile() -> Vec<Layer> {
    let swish = Some(ActivationMode::HardSwish);
    let mut layers = vec![Layer { filter: 3, stride: 2, ..Layer::point(3, 16, 640, swish) }];
    let mut extent = 320;
    // Inputs, outputs, filter, stride.
    let blocks = [
        (16, 32, 3, 1),
        (32, 48, 3, 2),
        (48, 48, 3, 1),
        (48, 96, 3, 2),
        (96, 96, 3, 1),
        (96, 192, 3, 2),
        (192, 192, 5, 1),
        (192, 192, 5, 1),
        (192, 384, 5, 2),
        (384, 384, 5, 1),
    ];
    for (inputs, outputs, filter, stride) in blocks {
        layers.push(Layer { filter, stride, groups: inputs, ..Layer::point(inputs, inputs, extent, swish) });
        extent = extent.div_ceil(stride);
        layers.push(Layer::point(inputs, outputs, extent, swish));
    }
    layers
}

/// The blocks of ConvNeXt-T at 224x224, whose layer norms stand behind the depthwise layers.
fn convnext() -> Vec<Layer> {
    let mut layers = Vec::new();
    for (channels, extent, count) in [(96, 56, 3), (192, 28, 3), (384, 14, 9), (768, 7, 3)] {
        for _ in 0..count {
            layers.push(Layer {
                filter: 7,
                groups: channels,
                ..Layer::point(channels, channels, extent, None)
            });
            layers.push(Layer::point(channels, 4 * channels, extent, Some(ActivationMode::Gelu)));
            layers.push(Layer::point(4 * channels, channels, extent, None));
        }
    }
    layers
}

fn vgg16() -> Vec<Layer> {
    let relu = Some(ActivationMode::Relu);
    let (mut layers, mut channels) = (Vec::new(), 3);
    for (stage, (width, count)) in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)].into_iter().enumerate() {
        for _ in 0..count {
            layers.push(Layer { filter: 3, ..Layer::point(channels, width, 224 >> stage, relu) });
            channels = width;
        }
    }
    layers
}

/// Fully connected layers of one image: those of VGG16, and the last of ResNet-50 and MobileNetV2.
fn linear() -> Vec<Layer> {
    [(25088, 4096), (4096, 4096), (4096, 1000), (2048, 1000), (1280, 1000)]
        .map(|(inputs, outputs)| Layer::point(inputs, outputs, 1, None))
        .to_vec()
}

/// The layers of YOLOv8-s for 80 classes at 640x640.
fn detector() -> Vec<Layer> {
    let silu =
        Some(if std::env::var_os("FP_RELU").is_some() { ActivationMode::Relu } else { ActivationMode::Silu });
    let three = |inputs, outputs, extent| Layer { filter: 3, ..Layer::point(inputs, outputs, extent, silu) };
    let down = |inputs, outputs, extent| Layer { stride: 2, ..three(inputs, outputs, extent) };
    let point = |inputs, outputs, extent| Layer::point(inputs, outputs, extent, silu);
    let mut layers = vec![down(3, 32, 640), down(32, 64, 320)];
    let split = |layers: &mut Vec<Layer>, inputs: usize, outputs: usize, pairs: usize, extent: usize| {
        layers.push(point(inputs, outputs, extent));
        layers.extend(std::iter::repeat_n(three(outputs / 2, outputs / 2, extent), 2 * pairs));
        layers.push(point((2 + pairs) * outputs / 2, outputs, extent));
    };
    split(&mut layers, 64, 64, 1, 160);
    layers.push(down(64, 128, 160));
    split(&mut layers, 128, 128, 2, 80);
    layers.push(down(128, 256, 80));
    split(&mut layers, 256, 256, 2, 40);
    layers.push(down(256, 512, 40));
    split(&mut layers, 512, 512, 1, 20);
    layers.extend([point(512, 256, 20), point(1024, 512, 20)]);
    split(&mut layers, 768, 256, 1, 40);
    split(&mut layers, 384, 128, 1, 80);
    layers.push(down(128, 128, 80));
    split(&mut layers, 384, 256, 1, 40);
    layers.push(down(256, 256, 40));
    split(&mut layers, 768, 512, 1, 20);
    for (width, outputs) in [(64, 64), (128, 80)] {
        for (channels, extent) in [(128, 80), (256, 40), (512, 20)] {
            layers.extend([three(channels, width, extent), three(width, width, extent)]);
            layers.push(Layer::point(width, outputs, extent, None));
        }
    }
    layers
}

fn resnet50() -> Vec<Layer> {
    let relu = Some(ActivationMode::Relu);
    let mut layers = vec![Layer { filter: 7, stride: 2, ..Layer::point(3, 64, 224, relu) }];
    let (mut extent, mut channels) = (56, 64);
    for (width, count, first) in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)] {
        for at in 0..count {
            let stride = if at == 0 { first } else { 1 };
            layers.push(Layer::point(channels, width, extent, relu));
            layers.push(Layer { filter: 3, stride, ..Layer::point(width, width, extent, relu) });
            if at == 0 {
                layers.push(Layer { stride, ..Layer::point(channels, 4 * width, extent, None) });
            }
            extent = extent.div_ceil(stride);
            layers.push(Layer { residual: true, ..Layer::point(width, 4 * width, extent, relu) });
            channels = 4 * width;
        }
    }
    layers
}

/// A layer that is ready to run, and how long it took each time, in microseconds.
struct Ready {
    executable: Arc<dyn Executable>,
    input: *mut f32,
    output: *mut f32,
    ops: Vec<OpArgs>,
    times: Vec<f64>,
    /// Filters and bias.
    _parameters: [Vec<f32>; 2],
}

/// Activations lie in a few buffers in turns, as memory that is used again does, and residuals in one more.
const BUFFERS: usize = 4;
const RESIDUAL: usize = BUFFERS - 1;

/// As many numbers as f32, each of them of the type, two of 16 bits in the place of one of f32.
fn numbers(data_type: DataType, value: f32, len: usize) -> Vec<f32> {
    let twice = |bits: u16| f32::from_bits(u32::from(bits) << 16 | u32::from(bits));
    let number = match data_type {
        DataType::Half => twice(f16::from_f32(value).to_bits()),
        DataType::BFloat16 => twice(bf16::from_f32(value).to_bits()),
        DataType::Float | DataType::Double | DataType::Int8 => value,
    };
    vec![number; len]
}

fn ready(
    layer: &Layer,
    data_type: DataType,
    at: usize,
    wanted: &str,
    buffers: &[*mut f32],
    device: &Arc<dyn Device>,
) -> Result<Ready, Box<dyn Error>> {
    let problem = layer.problem(data_type)?;
    let backend = fuseplan_cpu::CpuBackend;
    let solvers = backend.solvers().iter().filter(|solver| solver.applies(&problem, device.info()).is_ok());
    // As plans choose: the first without reservations.
    let has_reservations =
        |s: &dyn Solver| s.preferences().iter().any(|p| (p.check)(&problem, device.info()).is_some());
    let solver = solvers
        .min_by_key(|solver| (!solver.id().contains(wanted), has_reservations(**solver)))
        .ok_or("no solver takes the layer")?;
    let executable = solver.load(&problem, device, &solver.compile_preferred(&problem, device.info())?)?;
    // Sums of filters are 1, so that activations stay as small as they are.
    let filters = numbers(data_type, layer.outputs as f32 / layer.weights() as f32, layer.weights());
    let parameters = [filters, vec![0.0; layer.outputs]];
    let [weights, bias] = parameters.each_ref().map(|values| values.as_ptr().cast::<c_void>());
    let mut ops = vec![
        OpArgs { prepared: Some(Arc::default()), ..ConvForward { weights }.into() },
        BiasForward { bias }.into(),
    ];
    if layer.residual {
        ops.push(BiasForward { bias: buffers[RESIDUAL].cast_const().cast() }.into());
    }
    if layer.activation.is_some() {
        ops.push(ActivationForward::from(ActivationParams::new(6.0, 0.0, 0.0)).into());
    }
    let [input, output] = [at, at + 1].map(|at| buffers[at % RESIDUAL]);
    Ok(Ready { executable, input, output, ops, times: Vec::new(), _parameters: parameters })
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let word = |i: usize, default: &'static str| args.get(i).map_or(default, String::as_str);
    let layers = match word(0, "mobilenetv2") {
        "mobilenetv2" => mobilenetv2(),
        "resnet50" => resnet50(),
        "vgg16" => vgg16(),
        "detector" => detector(),
        "convnext" => convnext(),
        "mobile" => mobile(),
        "linear" => linear(),
        other => {
            let accepted = "mobilenetv2, resnet50, vgg16, detector, convnext, mobile, linear";
            return Err(format!("the network is {other:?}; accepted: {accepted}").into());
        }
    };
    let (threads, rounds): (usize, usize) = (word(1, "1").parse()?, word(2, "30").parse()?);
    let sides: Vec<&str> =
        word(3, "chosen").split(',').map(|id| if id == "chosen" { "" } else { id }).collect();
    let data_type = match word(6, "f32") {
        "f16" => DataType::Half,
        "bf16" => DataType::BFloat16,
        _ => DataType::Float,
    };
    let device = fuseplan_cpu::open_with_threads(threads)?;
    let largest = layers.iter().map(|l| l.extent.pow(2) * l.inputs.max(l.outputs)).max().unwrap_or(0);
    let mut memory: Vec<_> = (0..BUFFERS).map(|_| numbers(data_type, 0.01, largest + 1024)).collect();
    let from_page = |values: &mut Vec<f32>| {
        let start = values.as_ptr().align_offset(4096);
        values[start..].as_mut_ptr()
    };
    let buffers: Vec<_> = memory.iter_mut().map(from_page).collect();
    let pushes = vec![1.0f32; if word(4, "") == "cold" { 16 << 20 } else { 0 }];
    let mut columns = Vec::new();
    for side in sides {
        let all =
            layers.iter().enumerate().map(|(at, layer)| ready(layer, data_type, at, side, &buffers, &device));
        columns.push(all.collect::<Result<Vec<_>, _>>()?);
    }
    for round in 0..rounds + 2 {
        for column in &mut columns {
            std::hint::black_box(pushes.iter().sum::<f32>());
            for ready in column {
                let (input, output) = (ready.input.cast_const().cast(), ready.output.cast());
                let args = RunArgs { input, output, ops: &ready.ops, workspace: std::ptr::null_mut() };
                let start = Instant::now();
                // SAFETY: the buffers have room for the largest tensor, and parameters the sizes of their descriptors; all live.
                unsafe { ready.executable.run(std::ptr::null_mut(), &args)? };
                // The first rounds pack filters.
                if round > 1 {
                    ready.times.push(start.elapsed().as_secs_f64() * 1e6);
                }
            }
        }
    }
    let mut sums = vec![0.0; columns.len()];
    for (at, layer) in layers.iter().enumerate() {
        let products = layer.operations() / (240e3 * threads as f64);
        print!("{:30} {products:7.1} {:7.1}", layer.name(), layer.bytes(data_type) / 20e3);
        for (column, sum) in columns.iter_mut().zip(&mut sums) {
            let Ready { times, executable, .. } = &mut column[at];
            times.sort_by(f64::total_cmp);
            let median = times[times.len() / 2];
            *sum += median;
            print!("  {median:7.1} {:7.1} {:24}", times[0], executable.info().solver);
            if word(5, "") == "detail" {
                print!(" {}", executable.info().detail);
            }
        }
        println!();
    }
    println!("sum {sums:.0?} microseconds");
    Ok(())
}

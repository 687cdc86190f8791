//! Trained networks on a photograph, every block of layers as one fusion plan.
//!
//! Two small networks from `examples/data`: an upscaler for photographs (7 × convolution + bias + leaky ReLU)
//! and the trunk of a text classifier (53 convolutions, depthwise ones among them, with batch-norm, residual
//! adds and ReLU). Each layer runs on our own output of the layer before and is compared with what ONNX Runtime
//! computed from the same picture; then everything runs again in the other layout, NHWC, and is compared with
//! ONNX Runtime and with the first run. Every plan is compiled twice: the second time costs a look into the
//! cache. Prints a line for each layer, writes the upscaled picture beside the program, and exits with an error
//! if any layer disagrees.
//!
//! ```text
//! cargo run --release --example trained_layers
//! ```

mod trained;

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use fuseplan::{Handle, TensorLayout};
use trained::{BOUND, HostTensor, Layer, NETWORKS, Network, difference};

/// Executions of each plan; the shortest is shown.
const REPETITIONS: usize = 10;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let handle = Handle::new()?;
    println!("{}", handle.device_info().name);
    let mut wrong = 0;
    for name in NETWORKS {
        let network = Network::load(name)?;
        println!("\n{}\nreference: {}", network.title, network.reference);
        let mut first = None;
        for layout in [TensorLayout::Nchw, TensorLayout::Nhwc] {
            let layers = trained::run(&network, &handle, layout, REPETITIONS)?;
            println!("\n{name}, {layout}");
            wrong += print_table(&layers);
            match &first {
                None => first = Some(layers),
                Some(first) => wrong += compare_layouts(first, &layers)?,
            }
        }
        let picture = first.iter().flatten().find(|layer| Some(&layer.name) == network.picture.as_ref());
        if let Some(layer) = picture {
            let path = std::env::current_exe()?.with_file_name(format!("{name}.png"));
            write_picture(&layer.output, &path)?;
            println!("the picture: {}", path.display());
        }
    }
    if wrong > 0 {
        println!("\n{wrong} comparisons FAILED");
        return Ok(ExitCode::FAILURE);
    }
    println!(
        "\nevery layer agrees: the largest difference is below {BOUND:.0e} of the layer's largest magnitude"
    );
    Ok(ExitCode::SUCCESS)
}

/// Prints what became of each plan, and returns how many layers are beyond the bound.
fn print_table(layers: &[Layer]) -> usize {
    println!("{:<22}{:>18}  {:<28}{:>10}{:>10}  difference", "layer", "output", "solver", "µs", "GFLOP/s");
    let mut wrong = 0;
    let (mut time, mut flops, mut compile) = (Duration::ZERO, 0.0, [Duration::ZERO; 2]);
    for layer in layers {
        if layer.plan.is_none() && layer.error.is_none() {
            continue;
        }
        let shape = layer.output.lens().map(|l| l.to_string()).join("x");
        print!("{:<22}{shape:>18}  ", layer.name);
        match &layer.plan {
            Some(plan) => {
                let seconds = layer.time.as_secs_f64();
                let rate = plan.problem().flops() / seconds * 1e-9;
                print!("{:<28}{:>10.1}{rate:>10.1}", plan.info().solver, seconds * 1e6);
                time += layer.time;
                flops += plan.problem().flops();
                compile = [0, 1].map(|i| compile[i] + layer.compile[i]);
            }
            None => print!("{:<28}{:>10}{:>10}", "(no plan)", "", ""),
        }
        match layer.error {
            Some(error) if error <= BOUND => println!("  {error:.1e}"),
            Some(error) => {
                wrong += 1;
                println!("  {error:.1e}  FAILED");
            }
            None => println!("  in the next line"),
        }
    }
    let seconds = time.as_secs_f64();
    println!("all plans: {:.1} µs, {:.1} GFLOP/s", seconds * 1e6, flops / seconds * 1e-9);
    println!("compiles: {:?} the first time, {:?} again", compile[0], compile[1]);
    wrong
}

/// Compares every value of every node between the layouts, and returns how many nodes are beyond the bound.
fn compare_layouts(nchw: &[Layer], nhwc: &[Layer]) -> Result<usize, Box<dyn Error>> {
    let (mut worst, mut wrong) = (0.0f64, 0);
    for (a, b) in nchw.iter().zip(nhwc) {
        let expected: Vec<f32> = a.output.nchw().collect();
        let error = difference(b.output.nchw(), &expected)?;
        worst = worst.max(error);
        wrong += usize::from(error > BOUND);
    }
    println!("NCHW and NHWC, all values of {} nodes: {worst:.1e}", nchw.len());
    Ok(wrong)
}

/// Writes a tensor 1x3xHxW of values from 0 to 1.
fn write_picture(tensor: &HostTensor, path: &Path) -> Result<(), Box<dyn Error>> {
    let [_, _, height, width] = tensor.lens();
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    let places = (0..height).flat_map(|y| (0..width).flat_map(move |x| (0..3).map(move |c| [0, c, y, x])));
    let pixels: Vec<u8> = places.map(|place| (tensor.at(place) * 255.0).round() as u8).collect();
    encoder.write_header()?.write_image_data(&pixels)?;
    Ok(())
}

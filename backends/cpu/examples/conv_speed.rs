//! Times a convolution solver on ResNet-like shapes, as a fraction of the processor's
//! fused-multiply-add peak in f32, measured in the same run, since clocks move.
//!
//! `cargo run --release -p fuseplan-cpu --example conv_speed -- [names] [threads] [batch] [solver id] [f32|f16|bf16] [layout]`
//!
//! Names are parts of the names below, or shapes written as there, `g32_3x3s2_256-256@56`, with commas between them.

use std::error::Error;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use fuseplan_api::operands::{ActivationForward, BiasForward, ConvForward};
use fuseplan_api::*;

type Shape<'a> = (&'a str, usize, usize, usize, usize, usize, usize, usize, usize);

/// Name, C, H = W, K, filter, stride, padding, dilation, groups.
const SHAPES: &[Shape<'static>] = &[
    ("r7x7s2_3-64@224", 3, 224, 64, 7, 2, 3, 1, 1),
    ("1x1_64-256@56", 64, 56, 256, 1, 1, 0, 1, 1),
    ("3x3_64-64@56", 64, 56, 64, 3, 1, 1, 1, 1),
    ("3x3_128-128@28", 128, 28, 128, 3, 1, 1, 1, 1),
    ("3x3_256-256@14", 256, 14, 256, 3, 1, 1, 1, 1),
    ("3x3_512-512@7", 512, 7, 512, 3, 1, 1, 1, 1),
    ("1x1s2_256-512@56", 256, 56, 512, 1, 2, 0, 1, 1),
    ("1x1_1024-256@14", 1024, 14, 256, 1, 1, 0, 1, 1),
    ("1x1_2048-512@7", 2048, 7, 512, 1, 1, 0, 1, 1),
    ("vgg3x3_64-64@224", 64, 224, 64, 3, 1, 1, 1, 1),
    ("3x3_256-256@56", 256, 56, 256, 3, 1, 1, 1, 1),
    ("5x5_32-64@28", 32, 28, 64, 5, 1, 2, 1, 1),
    ("g32_3x3_128-128@56", 128, 56, 128, 3, 1, 1, 1, 32),
    ("dw3x3_256@28", 256, 28, 256, 3, 1, 1, 1, 256),
    ("dil2_3x3_128-128@28", 128, 28, 128, 3, 1, 2, 2, 1),
];

/// The shape that a name describes: `[g<groups>_]<filter>x<filter>[s<stride>]_<C>-<K>@<H>`, padded so that its extent stays.
fn described(name: &str) -> Option<Shape<'_>> {
    let number = |text: &str| text.parse::<usize>().ok();
    let (groups, rest) = match name.strip_prefix('g').and_then(|rest| rest.split_once('_')) {
        Some((groups, rest)) => (number(groups)?, rest),
        None => (1, name),
    };
    let (filter, sizes) = rest.split_once('_')?;
    let (filter, stride) = filter.split_once('s').unwrap_or((filter, "1"));
    let filter = number(filter.split_once('x')?.0)?;
    let (channels, extent) = sizes.split_once('@')?;
    let (inputs, outputs) = channels.split_once('-')?;
    let extent = number(extent)?;
    Some((name, number(inputs)?, extent, number(outputs)?, filter, number(stride)?, filter / 2, 1, groups))
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let part = args.first().map_or("", String::as_str);
    let number = |i: usize| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(1);
    let (threads, batch) = (number(1), number(2));
    let data_type = match args.get(4).map(String::as_str) {
        Some("f16") => DataType::Half,
        Some("bf16") => DataType::BFloat16,
        _ => DataType::Float,
    };
    let device = fuseplan_cpu::open_with_threads(threads)?;
    println!(
        "{}, {threads} threads, batch {batch}; fractions of the peak, best of rounds",
        device.info().arch
    );
    let shapes = part.split(',').flat_map(|part| {
        let known: Vec<_> = SHAPES.iter().filter(|shape| shape.0.contains(part)).copied().collect();
        if known.is_empty() { described(part).into_iter().collect() } else { known }
    });
    for shape in shapes {
        print!("{:22}", shape.0);
        for layout in [TensorLayout::Nchw, TensorLayout::Nhwc, TensorLayout::Nchwc16] {
            if layout
                .block()
                .is_some_and(|block| !(shape.1.is_multiple_of(block) && shape.3.is_multiple_of(block)))
            {
                continue;
            }
            if args.get(5).is_some_and(|wanted| layout.to_string() != *wanted) {
                continue;
            }
            let problem = problem(&shape, data_type, batch, layout)?;
            let Some((rate, peak, detail)) = measure(&problem, &device, args.get(3).map(String::as_str))?
            else {
                print!("  {layout} no such solver");
                continue;
            };
            print!("  {layout} {:6.1} GF/s {:5.2}", rate / 1e9, rate / peak);
            if !part.is_empty() {
                print!(" ({detail})");
            }
        }
        println!();
    }
    Ok(())
}

fn problem(
    shape: &Shape<'_>,
    data_type: DataType,
    batch: usize,
    layout: TensorLayout,
) -> Result<Problem, DescriptorError> {
    let &(_, c, hw, k, filter, stride, pad, dilation, groups) = shape;
    let conv = ConvolutionDescriptor::d2()
        .with_pads([pad; 2])?
        .with_strides([stride; 2])?
        .with_dilations([dilation; 2])?
        .with_groups(groups)?;
    let input = TensorDescriptor::with_layout(data_type, layout, &[batch, c, hw, hw])?;
    let weights = TensorDescriptor::nchw(data_type, [k, c / groups, filter, filter])?;
    let output = conv.forward_output(&input, &weights)?;
    let bias = TensorDescriptor::nchw(data_type, [1, k, 1, 1])?;
    let ops = vec![
        Op::ConvForward { conv, weights },
        Op::BiasForward { bias },
        Op::ActivationForward { mode: ActivationMode::Relu },
    ];
    Ok(Problem { input, output, ops, math: MathMode::Precise })
}

/// Operations a second of the best round, the best peak, the solver's words.
type Measured = (f64, f64, String);

/// Times the solver, if it takes the problem.
fn measure(
    problem: &Problem,
    device: &Arc<dyn Device>,
    wanted: Option<&str>,
) -> Result<Option<Measured>, Box<dyn Error>> {
    let backend = fuseplan_cpu::CpuBackend;
    let takes =
        |s: &&&dyn Solver| wanted.is_none_or(|id| s.id() == id) && s.applies(problem, device.info()).is_ok();
    // As plans choose: the first without reservations.
    let has_reservations =
        |s: &&&dyn Solver| s.preferences().iter().any(|p| (p.check)(problem, device.info()).is_some());
    let mut solvers: Vec<_> = backend.solvers().iter().filter(takes).collect();
    solvers.sort_by_key(has_reservations);
    let Some(solver) = solvers.first() else { return Ok(None) };
    let executable = solver.load(problem, device, &solver.compile_preferred(problem, device.info())?)?;
    let Some((_, weights)) = problem.conv() else { return Err("no convolution".into()) };
    // Tensors begin on a page: a vector that crosses cache lines costs two accesses.
    let filled = |t: &TensorDescriptor| {
        // As f32 0.01; as f16 and bf16 two small numbers in turns.
        let memory = vec![f32::from_bits(0x3c23_3c24); t.span() + 1024];
        let start = memory.as_ptr().align_offset(4096);
        (memory, start)
    };
    let ((x, x_start), (w, _), (mut y, y_start)) =
        (filled(&problem.input), filled(weights), filled(&problem.output));
    let bias = vec![0.5f32; weights.lens()[0]];
    let pointer = |v: &[f32]| v.as_ptr().cast::<c_void>();
    let ops = [
        OpArgs { prepared: Some(Arc::default()), ..ConvForward { weights: pointer(&w) }.into() },
        BiasForward { bias: pointer(&bias) }.into(),
        ActivationForward::from(ActivationParams::default()).into(),
    ];
    let (input, output) = (pointer(&x[x_start..]), y[y_start..].as_mut_ptr().cast());
    let args = RunArgs { input, output, ops: &ops, workspace: std::ptr::null_mut() };
    // SAFETY: the vectors have the sizes of their descriptors, and live.
    let run = || unsafe { executable.run(std::ptr::null_mut(), &args) };
    run()?;
    let flops = 2.0
        * problem.output.element_count() as f64
        * weights.lens()[1..].iter().map(|&l| l as f64).product::<f64>();
    let start = Instant::now();
    run()?;
    let calls = (0.001 / start.elapsed().as_secs_f64()).clamp(1.0, 1000.0) as usize;
    let (mut best, mut peak) = (0.0f64, 0.0f64);
    for _ in 0..60 {
        let start = Instant::now();
        for _ in 0..calls {
            run()?;
        }
        best = best.max(flops * calls as f64 / start.elapsed().as_secs_f64());
        peak = peak.max(fma_rate() * device.info().compute_units as f64);
    }
    Ok(Some((best, peak, format!("{} {}", executable.info().solver, executable.info().detail))))
}

/// Operations a second of one thread that does nothing but fused multiply-adds.
fn fma_rate() -> f64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        const TURNS: usize = 20_000;
        let start = Instant::now();
        // SAFETY: the processor has the instructions.
        unsafe { fma_avx512(TURNS) };
        return (TURNS * 16 * 32) as f64 / start.elapsed().as_secs_f64();
    }
    f64::NAN
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn fma_avx512(turns: usize) {
    use std::arch::x86_64::*;
    let mut acc = [_mm512_setzero_ps(); 16];
    let (a, b) = (_mm512_set1_ps(1.0), _mm512_set1_ps(std::hint::black_box(0.5)));
    for _ in 0..turns {
        for acc in &mut acc {
            *acc = _mm512_fmadd_ps(a, b, *acc);
        }
    }
    std::hint::black_box(acc);
}

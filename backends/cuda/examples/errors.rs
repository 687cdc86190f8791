//! Errors of f32 convolutions by 3xTF32 and by FFMA beside sums in f64: root mean square and largest of 4,000 outputs, in
//! units of 2^-24, and their ratio.
//!
//! ```sh
//! cargo run --release -p fuseplan-cuda --example errors -- [nhwc|nchw] [N-C-H-W-K-EXTENT-PAD-STRIDE-GROUPS,…]
//! ```
//!
//! The data are normal, or uniform from 0 to 1, or normal with negative inputs set to 0.

use std::error::Error;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use fuseplan_api::operands::MAX_SCALARS;
use fuseplan_api::*;
use fuseplan_cuda::CudaBackend;

/// Depths from 16 to 4608.
const CONVOLUTIONS: &str = "32-16-28-28-64-1-0-1-1,32-32-28-28-64-1-0-1-1,32-64-28-28-64-1-0-1-1,32-128-28-28-64-1-0-1-1,\
    32-256-28-28-64-1-0-1-1,32-64-28-28-128-3-1-1-1,16-128-28-28-256-3-1-1-1,32-512-14-14-512-3-1-1-1";

const SAMPLES: usize = 4000;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Normal,
    Uniform,
    Relu,
}

/// Knuth's linear congruential generator, whose upper bits are mixed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd) >> 11
    }

    fn below(&mut self, count: usize) -> usize {
        self.next() as usize % count
    }

    fn uniform(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.uniform()).ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    fn input(&mut self, kind: Kind) -> f32 {
        match kind {
            Kind::Normal => self.normal() as f32,
            Kind::Uniform => self.uniform() as f32,
            Kind::Relu => self.normal().max(0.0) as f32,
        }
    }

    fn weight(&mut self, kind: Kind) -> f32 {
        match kind {
            Kind::Uniform => self.uniform() as f32,
            Kind::Normal | Kind::Relu => self.normal() as f32,
        }
    }
}

/// Memory of the device with these numbers.
fn memory(device: &Arc<dyn Device>, stream: &Stream, values: &[f32]) -> Result<*mut c_void, BackendError> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let memory = device.memory().allocate(bytes.len())?;
    // SAFETY: the memory has as many bytes.
    unsafe { device.memory().copy_in(memory, &bytes, stream) }?;
    Ok(memory)
}

/// What a solver makes of the operands.
fn outputs(
    device: &Arc<dyn Device>,
    id: &str,
    problem: &Problem,
    x: &[f32],
    w: &[f32],
) -> Result<Vec<f32>, Box<dyn Error>> {
    let solver = CudaBackend.solvers().iter().find(|solver| solver.id() == id).ok_or("no such solver")?;
    solver.applies(problem, device.info()).map_err(|refusal| refusal.to_string())?;
    let binary = solver.compile_preferred(problem, device.info())?;
    let executable = solver.load(problem, device, &binary)?;
    let stream = device.create_stream()?;
    let mut bytes = vec![0; problem.output.bytes()];
    let (x, w) = (memory(device, &stream, x)?, memory(device, &stream, w)?);
    let y = memory(device, &stream, &vec![f32::NAN; bytes.len() / 4])?;
    let mut op = OpArgs { scalars: [1.0; MAX_SCALARS], ..OpArgs::default() };
    op.pointers[0] = w;
    let args = RunArgs { input: x, output: y, ops: &[op], workspace: ptr::null_mut() };
    // SAFETY: memory of the problem's descriptors on this device, which lives until the copy has waited.
    unsafe { executable.run(stream.raw(), &args) }?;
    // SAFETY: the output has as many bytes, and was written.
    unsafe { device.memory().copy_out(&mut bytes, y, &stream) }?;
    for (pointer, bytes) in [(x, problem.input.bytes()), (w, 4 * w_count(problem)), (y, bytes.len())] {
        // SAFETY: allocated above, once, and the copy has waited.
        unsafe { device.memory().free(pointer, bytes) };
    }
    let chunks = bytes.chunks_exact(4);
    Ok(chunks.map(|chunk| f32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]])).collect())
}

fn w_count(problem: &Problem) -> usize {
    problem.conv().map_or(0, |(_, weights)| weights.bytes() / 4)
}

/// Root mean square and largest of the errors.
fn errors(found: &[f32], exact: &[(usize, f64)]) -> (f64, f64) {
    let errors = exact.iter().map(|&(at, sum)| (f64::from(found[at]) - sum).abs() * f64::from(1 << 24));
    let (squares, largest) = errors.fold((0.0, 0.0), |(sum, most), e: f64| (sum + e * e, e.max(most)));
    ((squares / exact.len() as f64).sqrt(), largest)
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let is_nchw = words.first().is_some_and(|word| word == "nchw");
    let (layout, three) = if is_nchw {
        (TensorLayout::Nchw, "cuda.conv_wgmma_gather.v1")
    } else {
        (TensorLayout::Nhwc, "cuda.conv_wgmma.v1")
    };
    let device = CudaBackend.open(0)?;
    println!(
        "{}: convolution, depth, data; FFMA's root mean square and largest, 3xTF32's, ratios",
        device.info().name
    );
    for name in words.get(1).map_or(CONVOLUTIONS, String::as_str).split(',') {
        let numbers: Vec<usize> = name.split('-').map(str::parse).collect::<Result<_, _>>()?;
        let [n, c, h, w, k, extent, pad, stride, groups] =
            numbers.try_into().map_err(|_| format!("{name} has not nine numbers"))?;
        let of = |lens: [usize; 4]| TensorDescriptor::with_layout(DataType::Float, layout, &lens);
        let (input, weights) = (of([n, c, h, w])?, of([k, c / groups.max(1), extent, extent])?);
        let conv = ConvolutionDescriptor::d2()
            .with_pads([pad; 2])?
            .with_strides([stride; 2])?
            .with_groups(groups)?;
        let output = conv.forward_output(&input, &weights)?;
        let ops = vec![Op::ConvForward { conv, weights }];
        let problem = Problem { input, output, ops, math: MathMode::Precise };
        for kind in [Kind::Normal, Kind::Uniform, Kind::Relu] {
            let mut random = Random(7);
            let x: Vec<f32> = (0..input.bytes() / 4).map(|_| random.input(kind)).collect();
            let f: Vec<f32> = (0..weights.bytes() / 4).map(|_| random.weight(kind)).collect();
            let at = |strides: &[usize], index: [usize; 4]| -> usize {
                strides.iter().zip(index).map(|(stride, index)| stride * index).sum()
            };
            let sample = |random: &mut Random| {
                let place: [usize; 4] = std::array::from_fn(|d| random.below(output.lens()[d]));
                let [image, filter, row, column] = place;
                let mut sum = 0.0;
                for (channel, th, tw) in (0..c / groups)
                    .flat_map(|channel| (0..extent * extent).map(move |t| (channel, t / extent, t % extent)))
                {
                    let (ih, iw) =
                        ((row * stride + th).wrapping_sub(pad), (column * stride + tw).wrapping_sub(pad));
                    if ih < h && iw < w {
                        let of_group = filter / (k / groups) * (c / groups) + channel;
                        sum += f64::from(x[at(input.strides().unwrap(), [image, of_group, ih, iw])])
                            * f64::from(f[at(weights.strides().unwrap(), [filter, channel, th, tw])]);
                    }
                }
                (at(output.strides().unwrap(), place), sum)
            };
            let exact: Vec<_> = (0..SAMPLES).map(|_| sample(&mut random)).collect();
            let of = |id| Ok::<_, Box<dyn Error>>(errors(&outputs(&device, id, &problem, &x, &f)?, &exact));
            let (one, three) = (of("cuda.conv_ffma.v1")?, of(three)?);
            println!(
                "{name} {:5} {kind:8?} {:9.1} {:9.1}  {:9.1} {:9.1}  {:.2} {:.2}",
                c / groups * extent * extent,
                one.0,
                one.1,
                three.0,
                three.1,
                three.0 / one.0,
                three.1 / one.1
            );
        }
    }
    Ok(())
}

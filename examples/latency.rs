//! What plans cost besides their kernels' work: the compile in a fresh process, with and without a stored binary, a
//! compile that finds the kernel in memory, and an execution on buffers up to its return, and up to its end.
//!
//! ```text
//! cargo run --release --example latency [backend]
//! ```
//!
//! One small plan for each way in which a backend convolves: on Hopper the two kernels of asynchronous matrix
//! products, and that of `mma.sync`.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use fuseplan::error::CompileError;
use fuseplan::traits::Element;
use fuseplan::*;
use half::f16;

/// In the environment of the processes that this program starts: the number of a plan.
const CHILD: &str = "FUSEPLAN_LATENCY_CHILD";
/// How many processes find the stored binary.
const PROCESSES: usize = 5;
/// Compiles from memory.
const COMPILES: u32 = 1000;
/// Executions of a round: few enough that no queue of a driver is full.
const EXECUTIONS: u32 = 100;
const ROUNDS: usize = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let handle = match env::args().nth(1) {
        Some(backend) => Handle::of_backend(&backend)?,
        None => Handle::new()?,
    };
    let plans = plans()?;
    if let Some(number) = env::var_os(CHILD) {
        let number: usize = number.to_string_lossy().parse()?;
        let (_, plan) = plans.get(number).ok_or("no such plan")?;
        println!("{}", compile(plan, &handle)?.0.as_nanos());
        return Ok(());
    }
    let device = handle.device_info();
    println!("{} ({}); stored: median of {PROCESSES} processes\n", device.name, device.toolchain);
    let columns = ["compile, ms", "stored, ms", "in memory, us", "execute, us", "passed, us"];
    print!("{:<32} {:<28}", "plan", "solver");
    columns.iter().for_each(|column| print!("{column:>15}"));
    println!();
    for (number, (name, plan)) in plans.iter().enumerate() {
        // A directory of this program's own, so that nothing is stored there yet.
        let directory = env::temp_dir().join(format!("fuseplan-latency-{}-{number}", std::process::id()));
        let processes = in_processes(number, &directory, device.backend);
        let _ = fs::remove_dir_all(&directory);
        let (cold, stored) = processes?;
        let (_, compiled) = compile(plan, &handle)?;
        let start = Instant::now();
        for _ in 0..COMPILES {
            plan.compile(&handle)?;
        }
        let in_memory = start.elapsed() / COMPILES;
        let (returned, passed) = match plan.input().data_type() {
            DataType::Half => executions::<f16>(plan, &compiled, &handle)?,
            DataType::Float => executions::<f32>(plan, &compiled, &handle)?,
            other @ (DataType::BFloat16 | DataType::Double | DataType::Int8) => {
                return Err(format!("{name} is of {other}, which is not timed here").into());
            }
        };
        print!("{name:<32} {:<28}", compiled.info().solver);
        [cold, stored].iter().for_each(|time| print!("{:>15.3}", time.as_secs_f64() * 1e3));
        [in_memory, returned, passed].iter().for_each(|time| print!("{:>15.3}", time.as_secs_f64() * 1e6));
        println!();
    }
    Ok(())
}

const CHANNELS: usize = 32;

/// Plans whose kernels have next to nothing to do, with their names.
fn plans() -> Result<[(&'static str, FusionPlan); 5], fuseplan::Error> {
    use DataType::{Float, Half};
    use TensorLayout::{Nchw, Nhwc};
    let of = |data_type, layout, lens: [usize; 4]| TensorDescriptor::with_layout(data_type, layout, &lens);
    let convolution = |data_type, layout, math| -> Result<FusionPlan, fuseplan::Error> {
        let x = of(data_type, layout, [1, CHANNELS, 8, 8])?;
        let weights = of(data_type, layout, [CHANNELS, CHANNELS, 3, 3])?;
        let mut plan = FusionPlan::new(x)?;
        let conv = ConvolutionDescriptor::d2().with_pads([1, 1])?;
        plan.append(ConvForward::new(conv, weights))?;
        plan.append(BiasForward::new())?;
        plan.append(ActivationForward::new(ActivationMode::Relu))?;
        plan.set_math_mode(math);
        Ok(plan)
    };
    let mut norm = FusionPlan::new(of(Float, Nchw, [1, CHANNELS, 4, 4])?)?;
    norm.append(BatchNormInference::new(BatchNormMode::Spatial))?;
    norm.append(ActivationForward::new(ActivationMode::Relu))?;
    Ok([
        ("batch-norm, ReLU f32 NCHW", norm),
        ("conv, bias, ReLU f16 NHWC", convolution(Half, Nhwc, MathMode::Precise)?),
        ("conv, bias, ReLU f16 NCHW", convolution(Half, Nchw, MathMode::Precise)?),
        ("conv, bias, ReLU f32 NHWC, TF32", convolution(Float, Nhwc, MathMode::AllowTf32)?),
        ("conv, bias, ReLU f32 NCHW", convolution(Float, Nchw, MathMode::Precise)?),
    ])
}

fn compile(plan: &FusionPlan, handle: &Handle) -> Result<(Duration, CompiledPlan), CompileError> {
    let start = Instant::now();
    let compiled = plan.compile(handle)?;
    Ok((start.elapsed(), compiled))
}

/// The time of a compile in a process that finds nothing, and the median of those that find a binary.
fn in_processes(
    number: usize,
    directory: &Path,
    backend: &str,
) -> Result<(Duration, Duration), Box<dyn Error>> {
    let run = || -> Result<Duration, Box<dyn Error>> {
        let mut command = Command::new(env::current_exe()?);
        command.arg(backend).env(CHILD, number.to_string()).env("MIOPEN_CUSTOM_CACHE_DIR", directory);
        // NVIDIA's and AMD's compilers keep what they made, too.
        command.env("CUDA_CACHE_DISABLE", "1").env("AMD_COMGR_CACHE", "0");
        let output = command.env_remove("MIOPEN_DISABLE_CACHE").output()?;
        let text = String::from_utf8(output.stdout)?;
        let nanoseconds = text.trim().parse().map_err(|_| String::from_utf8_lossy(&output.stderr))?;
        Ok(Duration::from_nanos(nanoseconds))
    };
    let cold = run()?;
    let mut stored = (0..PROCESSES).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
    Ok((cold, median(&mut stored)))
}

/// Medians of what an execution takes until it returns, and until it has passed when one comes behind the other.
fn executions<T: Element>(
    plan: &FusionPlan,
    compiled: &CompiledPlan,
    handle: &Handle,
) -> Result<(Duration, Duration), Box<dyn Error>> {
    let (x, y) = (*compiled.input(), *compiled.output());
    let input = DeviceBuffer::<T>::zeroed(handle, x.span())?;
    let mut output = DeviceBuffer::<T>::zeroed(handle, y.span())?;
    let weights = DeviceBuffer::<T>::zeroed(handle, CHANNELS * CHANNELS * 9)?;
    let bias = DeviceBuffer::<T>::zeroed(handle, CHANNELS)?;
    let parameters = DeviceBuffer::from_slice(handle, &[1.0f32; CHANNELS])?;
    let mut args = OperatorArgs::new();
    for at in 0..plan.problem().ops.len() {
        if let Some(id) = plan.op_id::<ConvForward>(at) {
            args.set(id, ConvForwardArgs::new(&weights));
        } else if let Some(id) = plan.op_id::<BiasForward>(at) {
            args.set(id, BiasForwardArgs::new(&bias));
        } else if let Some(id) = plan.op_id::<BatchNormInference>(at) {
            let own = BatchNormInferenceArgs::new()
                .scale(&parameters)
                .bias(&parameters)
                .mean(&parameters)
                .variance(&parameters);
            args.set(id, own);
        } else if let Some(id) = plan.op_id::<ActivationForward>(at) {
            args.set(id, Activation::Relu);
        }
    }
    let (mut returned, mut passed) = (Vec::new(), Vec::new());
    // The first round is not counted.
    for _ in 0..=ROUNDS {
        handle.synchronize()?;
        let start = Instant::now();
        for _ in 0..EXECUTIONS {
            compiled.execute(handle, Tensor::new(&x, &input), TensorMut::new(&y, &mut output), &args)?;
        }
        returned.push(start.elapsed() / EXECUTIONS);
        handle.synchronize()?;
        passed.push(start.elapsed() / EXECUTIONS);
    }
    Ok((median(&mut returned[1..]), median(&mut passed[1..])))
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

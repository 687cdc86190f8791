//! What a plan costs besides its kernel: the compile in a fresh process, with and without a stored binary, a
//! compile that finds the kernel in memory, and an execution on buffers up to its return.
//!
//! ```text
//! cargo run --release --example latency [backend]
//! ```

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use fuseplan::*;

/// In the environment of the processes that this program starts.
const CHILD: &str = "FUSEPLAN_LATENCY_CHILD";
/// How many processes find the stored binary.
const PROCESSES: usize = 5;
/// Compiles from memory, and executions of a round.
const REPEATS: u32 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let handle = match env::args().nth(1) {
        Some(backend) => Handle::of_backend(&backend)?,
        None => Handle::new()?,
    };
    let plan = plan()?;
    if env::var_os(CHILD).is_some() {
        println!("{}", compile(&plan, &handle)?.0.as_nanos());
        return Ok(());
    }
    println!("{} ({})\n{}\n", handle.device_info().name, handle.device_info().toolchain, plan.problem());

    // A directory of this program's own, so that nothing is stored there yet.
    let directory = env::temp_dir().join(format!("fuseplan-latency-{}", std::process::id()));
    let processes = in_processes(&directory, handle.device_info().backend);
    let _ = fs::remove_dir_all(&directory);
    let (cold, stored) = processes?;
    println!("compile, nothing stored       {:>10.3} ms", milliseconds(cold));
    println!(
        "compile, stored               {:>10.3} ms, median of {PROCESSES} processes",
        milliseconds(stored)
    );

    let (_, compiled) = compile(&plan, &handle)?;
    let start = Instant::now();
    for _ in 0..REPEATS {
        plan.compile(&handle)?;
    }
    println!("compile, in memory            {:>10.3} us", microseconds(start.elapsed() / REPEATS));

    let (x, y) = (*compiled.input(), *compiled.output());
    let input = DeviceBuffer::<f32>::zeroed(&handle, x.span())?;
    let mut output = DeviceBuffer::<f32>::zeroed(&handle, y.span())?;
    let parameters = [1.0f32; CHANNELS];
    let mut args = OperatorArgs::new();
    let [norm, relu] = [0, 1];
    let norm = plan.op_id(norm).ok_or("batch-norm")?;
    let own = BatchNormInferenceArgs::new(&parameters, &parameters, &parameters, &parameters, 1e-5);
    args.set::<BatchNormInference>(norm, own);
    let relu = plan.op_id(relu).ok_or("activation")?;
    args.set::<ActivationForward>(relu, ActivationForwardArgs::new(0.0, 0.0, 0.0));
    let mut returned = Vec::new();
    let mut passed = Vec::new();
    // Few enough launches that no queue of a driver is full. The first round uploads the parameters.
    for _ in 0..=20 {
        handle.synchronize()?;
        let start = Instant::now();
        for _ in 0..REPEATS / 10 {
            compiled.execute(&handle, Tensor::new(&x, &input), TensorMut::new(&y, &mut output), &args)?;
        }
        returned.push(start.elapsed() / (REPEATS / 10));
        handle.synchronize()?;
        passed.push(start.elapsed() / (REPEATS / 10));
    }
    println!("execute, until it returns     {:>10.3} us", microseconds(median(&mut returned[1..])));
    println!(
        "execute, until it has passed  {:>10.3} us, one after the other",
        microseconds(median(&mut passed[1..]))
    );
    Ok(())
}

const CHANNELS: usize = 8;

/// A plan whose kernel has next to nothing to do.
fn plan() -> Result<FusionPlan, fuseplan::Error> {
    let x = TensorDescriptor::nchw(DataType::Float, [1, CHANNELS, 4, 4])?;
    let mut plan = FusionPlan::new(FusionDirection::Vertical, x)?;
    plan.append(BatchNormInference::new(BatchNormMode::Spatial))?;
    plan.append(ActivationForward::new(ActivationMode::Relu))?;
    Ok(plan)
}

fn compile(plan: &FusionPlan, handle: &Handle) -> Result<(Duration, CompiledPlan), CompileError> {
    let start = Instant::now();
    let compiled = plan.compile(handle)?;
    Ok((start.elapsed(), compiled))
}

/// The time of a compile in a process that finds nothing, and the median of those that find a binary.
fn in_processes(directory: &Path, backend: &str) -> Result<(Duration, Duration), Box<dyn Error>> {
    let run = || -> Result<Duration, Box<dyn Error>> {
        let mut command = Command::new(env::current_exe()?);
        command.arg(backend).env(CHILD, "1").env("MIOPEN_CUSTOM_CACHE_DIR", directory);
        let output = command.env_remove("MIOPEN_DISABLE_CACHE").output()?;
        let text = String::from_utf8(output.stdout)?;
        let nanoseconds = text.trim().parse().map_err(|_| String::from_utf8_lossy(&output.stderr))?;
        Ok(Duration::from_nanos(nanoseconds))
    };
    let cold = run()?;
    let mut stored = (0..PROCESSES).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
    Ok((cold, median(&mut stored)))
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

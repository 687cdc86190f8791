//! The fusion primitives: run, time, verify, in MIOpenDriver's words.

use std::io::{self, Write};
use std::time::Instant;

use fuseplan::{BatchNormMode, CompiledPlan, Error, Handle};
use serde_json::{Value, json};

use crate::chain::{Chain, Operands, Plan, Step, Written};
use crate::element::{Random, Scalar, for_precision};
use crate::failure::Failure;
use crate::flags::{FusionFlags, Request};
use crate::output::Output;
use crate::sequence::Sequence;
use crate::verify::{self, Verdict};

/// Runs a primitive.
pub(crate) fn run(request: &Request, output: &Output) -> Result<(), Failure> {
    output.line(format!("MIOpenDriver {}", command_line()))?;
    let handle = request.flags.own.device.handle()?;
    let result = request.flags.chain(request.precision).and_then(|chain| {
        for_precision!(request.precision, run_chain(&request.flags, &chain, &handle, output))
    });
    if let Err(Failure::Unsupported(_)) = &result {
        // Where nobody reads this, the error is still the plan's.
        let _ = writeln!(io::stderr(), "{}", request.flags.fusion_mode.refusal());
    }
    result
}

/// The arguments as given.
fn command_line() -> String {
    let words: Vec<_> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    words.join(" ")
}

fn run_chain<T: Scalar>(
    flags: &FusionFlags,
    chain: &Chain,
    handle: &Handle,
    output: &Output,
) -> Result<(), Failure> {
    let mut random = Random::new(flags.own.seed);
    output.line(format!("PRNG seed: {}", random.seed()))?;
    output.line(format!("Running fusion: {}", flags.fusion_mode))?;

    let plan = Plan::of(chain)?;
    let input: Vec<T> = random.numbers(chain.input.span(), 0.0)?;
    let operands = Operands::random(&plan.plan, &mut random, 0.0)?;
    let options = flags.own.compile_options();
    let mut written = Written::new(&plan.plan, handle)?;
    let mut fused = Sequence::fused(chain, handle, &options, &input, &operands, &mut written)?;
    let times = Times::measure(&mut fused, handle, flags.iter)?;
    let result = fused.output()?;
    if flags.wall != 0 {
        let (wall, count) = times.average(|run| run.wall);
        output.line(format!("Wall-clock Time Elapsed: {wall:.6} ms, for {count} iterations."))?;
    }
    if flags.time == 1 {
        output.line(format!("GPU Fused Kernel Min Time Elapsed: {:.6} ms", times.min()))?;
        if flags.iter > 1 {
            let (average, count) = times.average(|run| run.kernel);
            output.line(format!(
                "GPU Fused Kernel Avg Time Elapsed: {average:.6} ms, for {count} iterations."
            ))?;
        }
    }
    let runs_on_reference = fused.compiled().any(|compiled| compiled.info().solver == verify::REFERENCE);
    if flags.verify != 0 && runs_on_reference {
        let reference = verify::REFERENCE;
        writeln!(io::stderr(), "note: the plan ran on {reference}, so its result is compared with itself")?;
    }
    let verdict = match flags.verify {
        0 => None,
        _ => Some(verify_result(flags, chain, &input, &operands, &result, output)?),
    };
    for compiled in fused.compiled() {
        output.object("run", report(flags, &random, compiled, &times, verdict))?;
    }
    match verdict {
        Some(verdict) if !verdict.passes() => Err(Failure::WrongResult(format!(
            "the result differs from the reference's; to run it again: fuseplan {}",
            command_line()
        ))),
        _ => Ok(()),
    }
}

fn verify_result<T: Scalar>(
    flags: &FusionFlags,
    chain: &Chain,
    input: &[T],
    operands: &Operands<T>,
    result: &[T],
    output: &Output,
) -> Result<Verdict, Failure> {
    for step in &chain.steps {
        match step {
            Step::Convolution(..) => output.line("Running CPU fwd convolution and/or bias.")?,
            Step::Bias | Step::Residual | Step::Described(_) => {}
            Step::BatchNorm(mode)
            | Step::TypedBatchNorm(mode, _)
            | Step::BatchNormForward(mode, _)
            | Step::BatchNormBackward(mode) => {
                output.line("Running CPU fwd batch normalization.")?;
                output.line(match mode {
                    BatchNormMode::PerActivation => "Running CPU per activation BN.",
                    BatchNormMode::Spatial => "Running CPU spatial BN.",
                })?;
            }
            Step::PRelu(_) | Step::Activation(..) | Step::ActivationBackward(..) => {
                output.line("Running CPU fwd activation.")?
            }
        }
    }
    let reference = verify::reference(chain, input, operands)?;
    let tolerance = flags.own.tolerance.unwrap_or(verify::tolerance(chain.input.data_type(), chain.math));
    let verdict = Verdict::new(&reference.output, result, tolerance);
    output.line(verdict)?;
    Ok(verdict)
}

fn report(
    flags: &FusionFlags,
    random: &Random,
    compiled: &CompiledPlan,
    times: &Times,
    verdict: Option<Verdict>,
) -> Value {
    json!({
        "command": command_line(),
        "fusion": flags.fusion_mode.to_string(),
        "math": flags.math.name(),
        "problem": compiled.plan().to_string(),
        "device": compiled.target().to_string(),
        "solver": compiled.info().solver,
        "kernels": compiled.info().kernels,
        "seed": random.seed(),
        "iterations": flags.iter,
        "kernel_min_ms": times.min(),
        "kernel_avg_ms": times.average(|run| run.kernel).0,
        "wall_avg_ms": times.average(|run| run.wall).0,
        "verified": verdict.map(|verdict| verdict.passes()),
        "error": verdict.map(|verdict| verdict.error),
        "tolerance": verdict.map(|verdict| verdict.tolerance),
    })
}

/// Milliseconds of one execution: on the device, and as seen by the caller.
#[derive(Debug, Clone, Copy)]
struct Run {
    kernel: f64,
    wall: f64,
}

/// The times of all executions.
#[derive(Debug)]
struct Times(Vec<Run>);

impl Times {
    fn measure<T: Scalar>(
        fused: &mut Sequence<'_, T>,
        handle: &Handle,
        iterations: u32,
    ) -> Result<Self, Error> {
        let mut runs = Vec::new();
        for _ in 0..iterations {
            let start = Instant::now();
            let (kernel, executed) = handle.time(|| fused.run())?;
            executed?;
            let milliseconds = |time: std::time::Duration| time.as_secs_f64() * 1e3;
            runs.push(Run { kernel: milliseconds(kernel), wall: milliseconds(start.elapsed()) });
        }
        Ok(Times(runs))
    }

    fn min(&self) -> f64 {
        self.0.iter().map(|run| run.kernel).fold(f64::INFINITY, f64::min)
    }

    /// The average and of how many; the first of several executions is left out, as MIOpenDriver does.
    fn average(&self, which: fn(&Run) -> f64) -> (f64, usize) {
        let counted = if self.0.len() > 1 { &self.0[1..] } else { &self.0[..] };
        (counted.iter().map(which).sum::<f64>() / counted.len() as f64, counted.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_several_executions_is_left_out() {
        let times =
            |kernels: &[f64]| Times(kernels.iter().map(|&kernel| Run { kernel, wall: 1.0 }).collect());
        assert_eq!(times(&[4.0]).average(|run| run.kernel), (4.0, 1));
        assert_eq!(times(&[9.0, 1.0, 2.0]).average(|run| run.kernel), (1.5, 2));
        assert_eq!(times(&[9.0, 1.0, 2.0]).min(), 1.0);
    }
}

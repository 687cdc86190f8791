//! Plans as text: any plan that the library prints is run, timed and, if asked for, verified.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use fuseplan::error::PlanTextError;
use fuseplan::{CompiledPlan, Error, Handle, PlanText, TensorDescriptor};
use serde_json::json;

use crate::chain::{Chain, Operands, Plan, Written};
use crate::element::{Precision, Random, Scalar, for_precision};
use crate::failure::Failure;
use crate::flags::OwnFlags;
use crate::measure;
use crate::onnx;
use crate::output::{Output, general};
use crate::sequence::{Rotation, Sequence};
use crate::verify::{self, Verdict};

/// How long a plan is timed.
const BUDGET: Duration = Duration::from_millis(500);

/// A plan as text, and how to run it.
#[derive(Debug, Args)]
pub(crate) struct PlanFlags {
    /// The plan in one word, such as "f16 1x64x56x56 NHWC -> conv 64 3x3 pad 1 -> bias -> relu"
    #[arg(value_name = "PLAN", required = true)]
    text: Option<String>,
    #[command(flatten)]
    pub(crate) own: OwnFlags,
}

impl PlanFlags {
    /// Whether anything was given.
    pub(crate) fn is_given(&self) -> bool {
        self.text.is_some() || self.own.is_given()
    }

    /// The network that is named instead of a plan, if one is.
    pub(crate) fn network(&self) -> Option<&Path> {
        self.text.as_deref().filter(|text| onnx::is_file(text)).map(Path::new)
    }

    /// What the text describes, with the type of its elements.
    pub(crate) fn chain(&self) -> Result<(Chain, Precision), Failure> {
        let text: PlanText = self.text.as_deref().unwrap_or_default().parse().map_err(|e| usage(&e))?;
        let chain = Chain::of(&text);
        let data_type = chain.input.data_type();
        let accepted =
            || Failure::Unsupported(format!("the data type is {data_type}; accepted: f32, f16, bf16"));
        Ok((chain, Precision::of(data_type).ok_or_else(accepted)?))
    }
}

/// The error with its place pointed at.
fn usage(error: &PlanTextError) -> Failure {
    let column = error.text[..error.at].chars().count();
    Failure::Usage(format!("{error}\n  {}\n  {:column$}^", error.text, ""))
}

/// Runs a plan.
pub(crate) fn run(flags: &PlanFlags, verifies: bool, output: &Output) -> Result<(), Failure> {
    let (chain, precision) = flags.chain()?;
    let handle = flags.own.device.handle()?;
    for_precision!(precision, run_chain(&flags.own, &chain, &handle, verifies, output))
}

fn run_chain<T: Scalar>(
    flags: &OwnFlags,
    chain: &Chain,
    handle: &Handle,
    verifies: bool,
    output: &Output,
) -> Result<(), Failure> {
    let plan = Plan::of(chain)?;
    // Data of both signs, so that the activation cuts.
    let mut random = Random::new(flags.seed);
    let input: Vec<T> = random.numbers(chain.input.span(), -0.5)?;
    let operands = Operands::random(&plan.plan, &mut random, -0.5)?;
    let options = flags.compile_options();
    let compiled = plan.plan.compile_with(handle, &options).map_err(Error::from)?;
    output.line(&plan.plan)?;
    output.line(format!("device     {}", compiled.target()))?;
    output.line(format!("solver     {} ({})", compiled.info().solver, compiled.info().algorithm))?;

    let verdict = match verifies {
        // Before the plan is timed: what it updates changes with each execution.
        true => Some(verify_once(flags, chain, handle, &input, &operands)?),
        false => None,
    };
    let count = Rotation::<T>::sets(handle, compiled.problem().bytes());
    let mut written = Written::sets(&plan.plan, handle, count)?;
    let mut sets = Rotation::new(&mut written, |written| {
        Sequence::fused(chain, handle, &options, &input, &operands, written)
    })?;
    let mut work = || sets.run();
    work().map_err(Error::from)?;
    let times = measure::interleaved(handle, BUDGET, &mut [&mut work])?.remove(0);
    let seconds = measure::median(&times) / count as f64;
    output.line(format!("time       {:.3} ms, median of {}", seconds * 1e3, times.len()))?;
    if let Some(verdict) = verdict {
        let (error, tolerance) = (general(verdict.error), general(verdict.tolerance));
        let word = if verdict.passes() { "verified" } else { "wrong   " };
        output.line(format!("{word}   error {error}, at most {tolerance}"))?;
    }
    report(flags, &random, &compiled, seconds, times.len(), verdict, output)?;
    match verdict {
        Some(verdict) if !verdict.passes() => {
            Err(Failure::WrongResult("the result differs from the reference's".into()))
        }
        _ => Ok(()),
    }
}

/// The worst verdict on the output and on all that operators write besides, after one execution.
fn verify_once<T: Scalar>(
    flags: &OwnFlags,
    chain: &Chain,
    handle: &Handle,
    input: &[T],
    operands: &Operands<T>,
) -> Result<Verdict, Failure> {
    let plan = Plan::of(chain)?;
    let mut written = Written::new(&plan.plan, handle)?;
    let mut sequence =
        Sequence::fused(chain, handle, &flags.compile_options(), input, operands, &mut written)?;
    sequence.run().map_err(Error::from)?;
    let result = sequence.output()?;
    let solver = sequence.compiled().map(|compiled| compiled.info().solver).next();
    drop(sequence);
    let reference = verify::reference(chain, input, operands)?;
    if solver == Some(reference.solver) {
        let solver = reference.solver;
        writeln!(io::stderr(), "note: the plan ran on {solver}, so its result is compared with itself")?;
    }
    let tolerance = flags.tolerance.unwrap_or(verify::tolerance(chain.input.data_type(), chain.math));
    let shape = plan.plan.output();
    let mut worst = Verdict::new(&elements(shape, reference.output), &elements(shape, result), tolerance);
    for (reference, result) in reference.written.iter().zip(written.values()?) {
        let verdict = Verdict::new(reference, &result, tolerance);
        if verdict.error > worst.error || verdict.error.is_nan() {
            worst = verdict;
        }
    }
    Ok(worst)
}

/// A tensor's elements without the gaps between them, which nobody writes.
fn elements<T: Copy>(of: &TensorDescriptor, data: Vec<T>) -> Vec<T> {
    if of.is_packed() {
        return data;
    }
    let mut offsets = vec![0];
    // Only strides leave gaps.
    for (&len, &stride) in of.lens().iter().zip(of.strides().unwrap_or_default()) {
        offsets = offsets.iter().flat_map(|offset| (0..len).map(move |i| offset + i * stride)).collect();
    }
    offsets.into_iter().map(|offset| data[offset]).collect()
}

fn report(
    flags: &OwnFlags,
    random: &Random,
    compiled: &CompiledPlan,
    seconds: f64,
    runs: usize,
    verdict: Option<Verdict>,
    output: &Output,
) -> Result<(), Failure> {
    let object = json!({
        "plan": compiled.plan().to_string(),
        "device": compiled.target().to_string(),
        "solver": compiled.info().solver,
        "kernels": compiled.info().kernels,
        "found": flags.compile_options().find.is_some(),
        "seed": random.seed(),
        "time_ms": seconds * 1e3,
        "runs": runs,
        "verified": verdict.map(|verdict| verdict.passes()),
        "error": verdict.map(|verdict| verdict.error),
        "tolerance": verdict.map(|verdict| verdict.tolerance),
    });
    Ok(output.object("plan", object)?)
}

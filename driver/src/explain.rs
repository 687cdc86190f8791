//! Why a fusion runs as it does: solvers, reasons, and how far it is from what the device can do.

use std::time::Duration;

use fuseplan::{
    CompiledPlan, DataType, Error, Handle, MathMode,
    choice::{Answer, Candidate, Chosen, Configuration, Estimate, Measured, Refusal, Resources},
    device::Peaks,
    error::CompileError,
};
use serde_json::{Value, json};

use crate::amd;
use crate::chain::{Chain, Operands, Plan, Written};
use crate::element::{Random, Scalar, for_precision};
use crate::failure::Failure;
use crate::flags::{OwnFlags, Request};
use crate::measure::{self, Floor};
use crate::onnx::{self, NetworkFlags};
use crate::output::Output;
use crate::run::PlanFlags;
use crate::sequence::{Rotation, Sequence};

/// How long a fusion is measured.
const BUDGET: Duration = Duration::from_millis(500);

/// Explains a primitive; with the device's floor if `measures` that.
pub(crate) fn primitive(request: &Request, measures: bool, output: &Output) -> Result<(), Failure> {
    let handle = request.flags.own.device.handle()?;
    let chain = request.flags.chain(request.precision)?;
    for_precision!(request.precision, explain(&request.flags.own, &chain, &handle, measures, output))
}

/// Explains a plan that is written as text, or a network in a file.
pub(crate) fn given(
    flags: &PlanFlags,
    network: &NetworkFlags,
    measures: bool,
    output: &Output,
) -> Result<(), Failure> {
    if let Some(path) = flags.network() {
        if flags.own.is_of_one_plan() {
            return Err(Failure::Usage(
                "--solver, --find and --error are for a plan, not for a network".into(),
            ));
        }
        return onnx::explain(&network.request(path), &flags.own.device.handle()?, output);
    }
    if network.is_given() {
        let text = "--shape, --batch, --dtype and --layout are for a network: a plan says its own";
        return Err(Failure::Usage(text.into()));
    }
    let (chain, precision) = flags.chain()?;
    let handle = flags.own.device.handle()?;
    for_precision!(precision, explain(&flags.own, &chain, &handle, measures, output))
}

fn explain<T: Scalar>(
    flags: &OwnFlags,
    chain: &Chain,
    handle: &Handle,
    measures: bool,
    output: &Output,
) -> Result<(), Failure> {
    let plan = Plan::of(chain)?;
    let mut random = Random::new(flags.seed);
    let input: Vec<T> = random.numbers(chain.input.span(), 0.0)?;
    let operands = Operands::<T>::random(&plan.plan, &mut random, 0.0)?;
    let options = flags.compile_options();
    let compiled = match plan.plan.compile_with(handle, &options).map_err(Error::from) {
        Ok(compiled) => compiled,
        Err(Error::Compile(CompileError::NoSolver { device, chain: operators, refusals })) => {
            output.line(&plan.plan)?;
            output.line(format!("device     {device}"))?;
            for refusal in &refusals {
                output.line(format!("refused    {refusal}"))?;
            }
            let problem = plan.plan.to_string();
            let refused = refusals_json(&refusals);
            output.object("explain", json!({ "problem": problem, "device": device, "refused": refused }))?;
            return Err(Failure::Unsupported(format!("no solver of {device} takes {operators}")));
        }
        Err(error) => return Err(error.into()),
    };
    output.line(&compiled)?;
    let answers = plan.plan.answers(handle).map_err(Error::from)?;
    choices(&compiled, &answers, output)?;

    let count = Rotation::<T>::sets(handle, compiled.problem().bytes());
    let mut written = Written::sets(&plan.plan, handle, count)?;
    let mut sets = Rotation::new(&mut written, |written| {
        Sequence::fused(chain, handle, &options, &input, &operands, written)
    })?;
    let mut work = || sets.run();
    work().map_err(Error::from)?;
    let times = measure::interleaved(handle, BUDGET, &mut [&mut work])?;
    let seconds = measure::median(&times[0]) / count as f64;
    // A device that cannot measure its limits is still explained.
    let peaks = match measures {
        true => handle.peaks(chain.input.data_type()).map_err(|error| error.to_string()),
        false => Err("--no-peaks".into()),
    };
    report(&compiled, &answers, seconds, times[0].len(), peaks, output)
}

fn report(
    compiled: &CompiledPlan,
    answers: &[Answer],
    seconds: f64,
    runs: usize,
    peaks: Result<Peaks, String>,
    output: &Output,
) -> Result<(), Failure> {
    let problem = compiled.problem();
    let (flops, bytes) = (problem.flops(), problem.bytes());
    let rates =
        |seconds: f64| format!("{:.1} GFLOP/s, {:.1} GB/s", flops / seconds * 1e-9, bytes / seconds * 1e-9);
    output.line(format!("work       {:.3} GFLOP, {:.3} MB", flops * 1e-9, bytes * 1e-6))?;
    output.line(format!("time       {:.3} ms, median of {runs}", seconds * 1e3))?;
    output.line(format!("achieved   {}", rates(seconds)))?;
    let floor = match &peaks {
        Ok(peaks) => {
            let floor = Floor::new(problem, peaks);
            let (flops, bytes) = (peaks.flops * 1e-9, peaks.bytes * 1e-9);
            let is_tf32 = problem.math == MathMode::AllowTf32 && problem.input.data_type() == DataType::Float;
            let tf32 = if is_tf32 { " with f32 products; TF32's can be faster" } else { "" };
            output.line(format!("peaks      {flops:.1} GFLOP/s, {bytes:.1} GB/s, measured{tf32}"))?;
            output.line(format!(
                "floor      {:.3} ms (compute {:.3} ms, memory {:.3} ms)",
                floor.seconds() * 1e3,
                floor.compute * 1e3,
                floor.memory * 1e3
            ))?;
            output.line(format!("of floor   {:.0} %", floor.seconds() / seconds * 100.0))?;
            Some(floor)
        }
        Err(reason) => {
            output.line(format!("floor      not known: {reason}"))?;
            None
        }
    };
    let info = compiled.info();
    let paper = amd::floor(problem, compiled.target().info(), info.solver);
    if let Some(paper) = paper {
        let (time, chip, limit) = (paper.seconds * 1e6, paper.chip, paper.limit);
        output.line(format!("on paper   at least {time:.1} us on {chip} by {limit}, in AMD's figures"))?;
    }
    output.object(
        "explain",
        json!({
            "problem": compiled.plan().to_string(),
            "device": compiled.target().to_string(),
            "solver": info.solver,
            "algorithm": info.algorithm.to_string(),
            "chosen": chosen_json(compiled.chosen()),
            "kernels": info.kernels,
            "workspace": info.workspace,
            "detail": info.detail,
            "resources": info.resources.map(resources_json),
            "candidates": candidates_json(compiled, answers),
            "refused": refusals_json(&refusals(answers)),
            "flops": flops,
            "bytes": bytes,
            "time_ms": seconds * 1e3,
            "runs": runs,
            "achieved_flops": flops / seconds,
            "achieved_bytes": bytes / seconds,
            "peak_flops": peaks.as_ref().ok().map(|peaks| peaks.flops),
            "peak_bytes": peaks.as_ref().ok().map(|peaks| peaks.bytes),
            "floor_compute_ms": floor.map(|floor| floor.compute * 1e3),
            "floor_memory_ms": floor.map(|floor| floor.memory * 1e3),
            "floor_ms": floor.map(|floor| floor.seconds() * 1e3),
            "floor_on_paper_ms": paper.map(|paper| paper.seconds * 1e3),
            "of_floor": floor.map(|floor| floor.seconds() / seconds),
        }),
    )?;
    Ok(())
}

/// Configurations of a solver that are printed.
const PRINTED: usize = 4;

/// The first configurations of every solver that can compute the plan, in the order in which they are preferred, with
/// what is known of their time; then why solvers behind the chosen one cannot.
fn choices(compiled: &CompiledPlan, answers: &[Answer], output: &Output) -> Result<(), Failure> {
    for answer in answers {
        let Ok(candidates) = &answer.candidates else { continue };
        for candidate in candidates.iter().take(PRINTED) {
            let Candidate { configuration, estimate, accuracy } = candidate;
            let words = if configuration.as_str().is_empty() { "" } else { " " };
            let mut line = format!("can        {}{words}{configuration}: {estimate}", answer.solver);
            if let Some(time) = measured(compiled, answer.solver, configuration) {
                line += &format!(", measured {:.1} µs", time.as_secs_f64() * 1e6);
            }
            line += &format!(", {accuracy}");
            if let Some(reservation) = &answer.reservation {
                line += &format!("; not preferred: {reservation}");
            }
            output.line(line)?;
        }
        if candidates.len() > PRINTED {
            output.line(format!("can        {} {} more", answer.solver, candidates.len() - PRINTED))?;
        }
    }
    for refusal in refusals(answers).iter().filter(|refusal| !compiled.refusals().contains(refusal)) {
        output.line(format!("refused    {refusal}"))?;
    }
    Ok(())
}

fn measured(compiled: &CompiledPlan, solver: &str, configuration: &Configuration) -> Option<Duration> {
    let Chosen::Measured { times, .. } = compiled.chosen() else { return None };
    let of = |time: &&Measured| time.solver == solver && time.configuration == *configuration;
    times.iter().find(of).map(|measured| measured.time)
}

fn refusals(answers: &[Answer]) -> Vec<Refusal> {
    answers.iter().filter_map(|answer| answer.candidates.as_ref().err().cloned()).collect()
}

fn candidates_json(compiled: &CompiledPlan, answers: &[Answer]) -> Value {
    let candidates = answers.iter().flat_map(|answer| {
        let candidates = answer.candidates.iter().flatten();
        candidates.map(move |candidate| {
            let (cost, unit, model) = match candidate.estimate {
                Estimate::Order => (None, None, None),
                Estimate::Time { seconds, model } => (Some(seconds * 1e3), Some("ms"), Some(model)),
                Estimate::Cost { cost, unit, model } => (Some(cost), Some(unit), Some(model)),
            };
            let time = measured(compiled, answer.solver, &candidate.configuration);
            json!({
                "solver": answer.solver,
                "configuration": candidate.configuration.as_str(),
                "estimate": cost,
                "unit": unit,
                "model": model,
                "accuracy": candidate.accuracy.to_string(),
                "not_preferred": answer.reservation,
                "time_ms": time.map(|time| time.as_secs_f64() * 1e3),
            })
        })
    });
    candidates.collect()
}

fn resources_json(resources: Resources) -> Value {
    json!({
        "blocks": resources.blocks,
        "threads": resources.threads,
        "registers": resources.registers,
        "local_bytes": resources.local,
        "spills": resources.spills(),
        "shared_bytes": resources.shared,
        "resident_blocks": resources.resident,
    })
}

fn chosen_json(chosen: &Chosen) -> Value {
    match chosen {
        Chosen::Measured { times, stored } => {
            let time = |measured: &Measured| {
                json!({
                    "solver": measured.solver,
                    "configuration": measured.configuration.as_str(),
                    "time_ms": measured.time.as_secs_f64() * 1e3,
                })
            };
            json!({ "by": "time", "stored": stored, "times": times.iter().map(time).collect::<Value>() })
        }
        Chosen::Requested => json!({ "by": "request" }),
        _ => json!({ "by": "preference" }),
    }
}

fn refusals_json(refusals: &[Refusal]) -> Value {
    let object = |refusal: &Refusal| {
        json!({
            "solver": refusal.solver,
            "property": refusal.property,
            "found": refusal.found,
            "accepts": refusal.accepts,
        })
    };
    refusals.iter().map(object).collect()
}

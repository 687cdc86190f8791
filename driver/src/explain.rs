//! Why a fusion runs as it does: solvers, reasons, and how far it is from what the device can do.

use std::time::Duration;

use fuseplan::{
    Ceilings, Chosen, CompileError, CompiledPlan, DataType, Error, Handle, MathMode, Refusal, Resources,
};
use serde_json::{Value, json};

use crate::chain::{Chain, Operands, Plan};
use crate::element::{Random, Scalar, for_precision};
use crate::failure::Failure;
use crate::flags::{FusionFlags, Request};
use crate::measure::{self, Floor};
use crate::output::Output;
use crate::sequence::{Rotation, Sequence};

/// How long a fusion is measured.
const BUDGET: Duration = Duration::from_millis(500);

/// Explains a primitive; with the device's floor if `measures` that.
pub(crate) fn run(request: &Request, measures: bool, output: &Output) -> Result<(), Failure> {
    let handle = request.flags.own.device.handle()?;
    let chain = request.flags.chain(request.precision)?;
    for_precision!(request.precision, explain(&request.flags, &chain, &handle, measures, output))
}

fn explain<T: Scalar>(
    flags: &FusionFlags,
    chain: &Chain,
    handle: &Handle,
    measures: bool,
    output: &Output,
) -> Result<(), Failure> {
    let plan = Plan::of(chain)?;
    let mut random = Random::new(flags.own.seed);
    let input: Vec<T> = random.numbers(chain.input.span(), 0.0)?;
    let operands = Operands::<T>::random(chain, plan.plan.output(), &mut random, 0.0)?;
    let options = flags.own.compile_options();
    let compiled = match plan.plan.compile_with(handle, &options).map_err(Error::from) {
        Ok(compiled) => compiled,
        Err(Error::Compile(CompileError::NoSolver { device, chain: operators, refusals })) => {
            output.line(plan.plan.problem())?;
            output.line(format!("device     {device}"))?;
            for refusal in &refusals {
                output.line(format!("refused    {refusal}"))?;
            }
            let problem = plan.plan.problem().to_string();
            let refused = refusals_json(&refusals);
            output.object("explain", json!({ "problem": problem, "device": device, "refused": refused }))?;
            return Err(Failure::Unsupported(format!("no solver of {device} takes {operators}")));
        }
        Err(error) => return Err(error.into()),
    };
    output.line(&compiled)?;

    let count = Rotation::<T>::sets(handle, compiled.problem().bytes());
    let mut sets = Rotation::new(count, || Sequence::fused(chain, handle, &options, &input, &operands))?;
    let mut work = || sets.run();
    work().map_err(Error::from)?;
    let times = measure::interleaved(handle, BUDGET, &mut [&mut work])?;
    let seconds = measure::median(&times[0]) / count as f64;
    // A device that cannot measure its limits is still explained.
    let ceilings = match measures {
        true => handle.ceilings(chain.input.data_type()).map_err(|error| error.to_string()),
        false => Err("--no-ceilings".into()),
    };
    report(&compiled, seconds, times[0].len(), ceilings, output)
}

fn report(
    compiled: &CompiledPlan,
    seconds: f64,
    runs: usize,
    ceilings: Result<Ceilings, String>,
    output: &Output,
) -> Result<(), Failure> {
    let problem = compiled.problem();
    let (flops, bytes) = (problem.flops(), problem.bytes());
    let rates =
        |seconds: f64| format!("{:.1} GFLOP/s, {:.1} GB/s", flops / seconds * 1e-9, bytes / seconds * 1e-9);
    output.line(format!("work       {:.3} GFLOP, {:.3} MB", flops * 1e-9, bytes * 1e-6))?;
    output.line(format!("time       {:.3} ms, median of {runs}", seconds * 1e3))?;
    output.line(format!("achieved   {}", rates(seconds)))?;
    let floor = match &ceilings {
        Ok(ceilings) => {
            let floor = Floor::new(problem, ceilings);
            let (flops, bytes) = (ceilings.flops * 1e-9, ceilings.bytes * 1e-9);
            let is_tf32 = problem.math == MathMode::AllowTf32 && problem.input.data_type() == DataType::Float;
            let tf32 = if is_tf32 { " with f32 products; TF32's can be faster" } else { "" };
            output.line(format!("ceilings   {flops:.1} GFLOP/s, {bytes:.1} GB/s, measured{tf32}"))?;
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
    output.object(
        "explain",
        json!({
            "problem": problem.to_string(),
            "device": compiled.target().to_string(),
            "solver": info.solver,
            "algorithm": info.algorithm.to_string(),
            "chosen": chosen_json(compiled.chosen()),
            "kernels": info.kernels,
            "workspace": info.workspace,
            "detail": info.detail,
            "resources": info.resources.map(resources_json),
            "refused": refusals_json(compiled.refusals()),
            "flops": flops,
            "bytes": bytes,
            "time_ms": seconds * 1e3,
            "runs": runs,
            "achieved_flops": flops / seconds,
            "achieved_bytes": bytes / seconds,
            "ceiling_flops": ceilings.as_ref().ok().map(|ceilings| ceilings.flops),
            "ceiling_bytes": ceilings.as_ref().ok().map(|ceilings| ceilings.bytes),
            "floor_compute_ms": floor.map(|floor| floor.compute * 1e3),
            "floor_memory_ms": floor.map(|floor| floor.memory * 1e3),
            "floor_ms": floor.map(|floor| floor.seconds() * 1e3),
            "of_floor": floor.map(|floor| floor.seconds() / seconds),
        }),
    )?;
    Ok(())
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
            let time = |(solver, time): &(&str, Duration)| json!({ "solver": solver, "time_ms": time.as_secs_f64() * 1e3 });
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

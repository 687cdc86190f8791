//! Each chain of a network as one plan and as one plan for each operator: verified, timed in turns, summed.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use fuseplan::chains::StepKind;
use fuseplan::{Handle, PlanText};
use serde_json::{Value, json};

use super::explain::{self, file_name};
use super::html;
use super::network::{Found, Network, Request};
use crate::bench::{self, Outcome, Subject, measure};
use crate::chain::{Chain, Plan, Step};
use crate::element::{Math, Precision, for_precision};
use crate::failure::Failure;
use crate::output::Output;

/// How a network is measured.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) math: Math,
    /// Only chains whose plan or convolution contains this.
    pub(crate) only: &'a str,
    pub(crate) budget: Duration,
    pub(crate) seed: u64,
    /// Where the report is to be written.
    pub(crate) html: Option<&'a Path>,
}

/// A plan of a network, measured.
#[derive(Debug)]
pub(crate) struct Row {
    /// The first convolution whose chain it is.
    pub(crate) name: String,
    /// How many chains it is the plan of.
    pub(crate) count: usize,
    pub(crate) plan: String,
    pub(crate) outcome: Outcome,
}

impl Row {
    /// Seconds of all its chains as plans.
    pub(crate) fn fused(&self) -> f64 {
        self.count as f64 * self.outcome.fused
    }

    /// Seconds of all its chains as one plan for each operator.
    pub(crate) fn unfused(&self) -> f64 {
        self.count as f64 * self.outcome.unfused
    }
}

/// The times of all chains.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sums {
    pub(crate) fused: f64,
    pub(crate) unfused: f64,
    pub(crate) chains: usize,
}

impl Sums {
    pub(crate) fn of(rows: &[Row]) -> Self {
        Sums {
            fused: rows.iter().map(Row::fused).sum(),
            unfused: rows.iter().map(Row::unfused).sum(),
            chains: rows.iter().map(|row| row.count).sum(),
        }
    }

    pub(crate) fn speed_up(&self) -> f64 {
        self.unfused / self.fused
    }
}

/// Measures a network.
pub(crate) fn run(
    request: &Request<'_>,
    settings: &Settings<'_>,
    handle: &Handle,
    output: &Output,
) -> Result<(), Failure> {
    let network = Network::read(request, handle.target())?;
    let plans = plans(&network, settings)?;
    if plans.is_empty() {
        return Err(Failure::Unsupported(match settings.only {
            "" => format!("{}: no convolution is the beginning of a chain", request.path.display()),
            only => format!("--only: no chain of {} contains `{only}`", request.path.display()),
        }));
    }
    let bar = bench::progress(plans.len(), output);
    bar.suspend(|| explain::head(&network, handle, output))?;
    bar.suspend(|| {
        output.line("\n| chain | times | fused ms | unfused ms | speed-up | of floor | verified | plan |")?;
        output.line("|---|---:|---:|---:|---:|---:|---|---|")
    })?;
    let mut rows: Vec<Row> = Vec::new();
    for Distinct { name, count, plan, chain } in plans {
        bar.set_message(name.clone());
        let data_type = chain.input.data_type();
        let refused = || Failure::Unsupported(format!("{name}: tensors of {data_type} are not run here"));
        let precision = Precision::of(data_type).ok_or_else(refused)?;
        let subject = Subject {
            label: name.clone(),
            command: format!("{} run \"{plan}\" --verify", crate::cli::NAME),
            layer: None,
        };
        let measured =
            for_precision!(precision, measure(&chain, subject, handle, settings.budget, settings.seed));
        let outcome = measured.inspect_err(|_| {
            // What failed is said by the error; where not even that can be written, by the exit code.
            let _ = bar.suspend(|| writeln!(io::stderr(), "{name}: {plan} failed"));
        })?;
        let row = Row { name, count, plan, outcome };
        bar.suspend(|| output.line(line(&row)))?;
        output.object("onnx_bench", object(&row))?;
        rows.push(row);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let sums = Sums::of(&rows);
    output.line(format!("\n{}", sentence(&sums)))?;
    let mut summary = explain::summary(&network, handle);
    summary["measured_chains"] = sums.chains.into();
    summary["fused_ms"] = (sums.fused * 1e3).into();
    summary["unfused_ms"] = (sums.unfused * 1e3).into();
    summary["speed_up"] = sums.speed_up().into();
    output.object("onnx_bench_summary", summary)?;
    if let Some(path) = settings.html {
        let page = html::page(&network, &rows, handle);
        let unwritable =
            |error| Failure::Usage(format!("--html: {} cannot be written: {error}", path.display()));
        fs::write(path, page).map_err(unwritable)?;
        output.line(format!("wrote {}", path.display()))?;
    }
    let outcomes: Vec<_> = rows.into_iter().map(|row| row.outcome).collect();
    bench::verdict(&outcomes)
}

/// The totals in words.
fn sentence(sums: &Sums) -> String {
    format!(
        "{} chains: {:.3} ms fused, {:.3} ms as one kernel for each operator: {:.2} times as fast. What is in no chain is not timed.",
        sums.chains,
        sums.fused * 1e3,
        sums.unfused * 1e3,
        sums.speed_up()
    )
}

/// A plan that some chains of a network have.
struct Distinct {
    name: String,
    count: usize,
    plan: String,
    chain: Chain,
}

/// The plans of a network, each once.
fn plans(network: &Network, settings: &Settings<'_>) -> Result<Vec<Distinct>, Failure> {
    let mut plans: Vec<Distinct> = Vec::new();
    for found in &network.chains {
        let chain = chain(found, settings.math);
        let plan = Plan::of(&chain)?.plan;
        let plan = PlanText { plan, activations: found.text.activations.clone() }.to_string();
        if !plan.contains(settings.only) && !found.name.contains(settings.only) {
            continue;
        }
        match plans.iter_mut().find(|known| known.plan == plan) {
            Some(known) => known.count += 1,
            None => plans.push(Distinct { name: found.name.clone(), count: 1, plan, chain }),
        }
    }
    Ok(plans)
}

/// The operators of a chain, with the residuals told from other biases.
fn chain(found: &Found, math: Math) -> Chain {
    let mut chain = Chain { math: math.mode(), ..Chain::of(&found.text) };
    for (step, of) in chain.steps.iter_mut().zip(&found.chain.steps) {
        if of.kind == StepKind::Residual {
            *step = Step::Residual;
        }
    }
    chain
}

fn line(row: &Row) -> String {
    let Row { name, count, plan, outcome } = row;
    let floor = outcome.of_floor().map_or("unknown".into(), |of| format!("{:.0} %", 100.0 * of));
    format!(
        "| {name} | {count} | {:.4} | {:.4} | {:.2} | {floor} | {} | {plan} |",
        outcome.fused * 1e3,
        outcome.unfused * 1e3,
        outcome.speed_up(),
        if outcome.passes() { "yes" } else { "WRONG" },
    )
}

fn object(row: &Row) -> Value {
    let outcome = &row.outcome;
    json!({
        "name": row.name,
        "count": row.count,
        "plan": row.plan,
        "fused_ms": outcome.fused * 1e3,
        "unfused_ms": outcome.unfused * 1e3,
        "speed_up": outcome.speed_up(),
        "floor_ms": outcome.floor.map(|floor| floor * 1e3),
        "of_floor": outcome.of_floor(),
        "rounds": outcome.rounds,
        "solver": outcome.solver,
        "unfused_solvers": outcome.unfused_solvers,
        "fused_error": outcome.fused_verdict.error,
        "unfused_error": outcome.unfused_verdict.error,
        "tolerance": outcome.fused_verdict.tolerance,
        "verified": outcome.passes(),
    })
}

/// The title of a report on a network.
pub(crate) fn title(network: &Network) -> String {
    format!("{}: fused against unfused", file_name(&network.path))
}

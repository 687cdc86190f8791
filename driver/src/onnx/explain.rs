//! What of a network is computed as fused plans, what is not, and why.

use std::path::Path;

use fuseplan::Handle;
use serde_json::json;

use super::network::{Found, Network, Request, Rest, Totals};
use crate::failure::Failure;
use crate::output::Output;

/// Explains a network.
pub(crate) fn run(request: &Request<'_>, handle: &Handle, output: &Output) -> Result<(), Failure> {
    let network = Network::read(request, handle.target())?;
    let totals = network.totals();
    head(&network, handle, output)?;
    output.line("\nchains")?;
    for found in &network.chains {
        chain(found, &totals, output)?;
    }
    output.line("\nin no chain")?;
    for found in &network.rest {
        rest(found, &totals, output)?;
    }
    output.object("onnx_summary", summary(&network, handle))?;
    Ok(())
}

/// What the network is, and where its arithmetic is.
pub(crate) fn head(network: &Network, handle: &Handle, output: &Output) -> Result<(), Failure> {
    let totals = network.totals();
    let percent = |part| format!("{:.1} %", 100.0 * totals.share(part));
    output.line(format!("network    {}, {} nodes", file_name(&network.path), network.nodes))?;
    output.line(format!("inputs     {}", network.inputs.join(", ")))?;
    output.line(format!("device     {}", handle.target()))?;
    output.line(format!("chains     {}", network.begun()))?;
    output.line(format!("work       {} in all", operations(totals.all())))?;
    output.line(format!("fused      {} of it, in plans of several operators", percent(totals.fused)))?;
    output.line(format!("alone      {}, in plans that nothing is fused in", percent(totals.alone)))?;
    output.line(format!("in none    {}, in {} nodes", percent(totals.rest), nodes(&network.rest)))?;
    if totals.unknown > 0 {
        output
            .line(format!("unknown    the work of {} nodes, whose lengths are not known", totals.unknown))?;
    }
    Ok(())
}

/// A number of operations, in the unit that it is readable in.
pub(crate) fn operations(flops: f64) -> String {
    let units = [(1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP")];
    let (unit, name) = units.into_iter().find(|&(unit, _)| flops >= unit).unwrap_or((1.0, "FLOP"));
    format!("{:.*} {name}", if unit > 1.0 { 3 } else { 0 }, flops / unit)
}

/// How many nodes these are.
pub(crate) fn nodes(rest: &[Rest]) -> usize {
    rest.iter().map(|rest| rest.count).sum()
}

/// The file's name without its folder.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn chain(found: &Found, totals: &Totals, output: &Output) -> Result<(), Failure> {
    let share = totals.share(found.flops);
    output.line(format!("  {}: {}", found.name, found.text))?;
    output.line(format!(
        "    {}, {:.1} %; ends since {}",
        operations(found.flops),
        100.0 * share,
        found.chain.end
    ))?;
    let object = json!({
        "name": found.name,
        "plan": found.text.to_string(),
        "operators": found.chain.steps.len(),
        "flops": found.flops,
        "share": share,
        "end": found.chain.end.to_string(),
    });
    Ok(output.object("onnx_chain", object)?)
}

fn rest(found: &Rest, totals: &Totals, output: &Output) -> Result<(), Failure> {
    let share = totals.share(found.flops);
    let work = match (found.flops, found.unknown) {
        (0.0, 0) => "no arithmetic".into(),
        (0.0, _) => "unknown arithmetic".into(),
        (flops, _) => format!("{}, {:.1} %", operations(flops), 100.0 * share),
    };
    output.line(format!("  {} {}, {work}: {}", found.count, found.op, found.reason))?;
    let object = json!({
        "operator": found.op,
        "nodes": found.count,
        "first": found.first,
        "flops": found.flops,
        "unknown": found.unknown,
        "share": share,
        "reason": found.reason,
    });
    Ok(output.object("onnx_rest", object)?)
}

/// The totals as an object's members.
pub(crate) fn summary(network: &Network, handle: &Handle) -> serde_json::Value {
    let totals = network.totals();
    json!({
        "file": file_name(&network.path),
        "inputs": network.inputs,
        "device": handle.target().to_string(),
        "nodes": network.nodes,
        "convolutions": network.convolutions,
        "layers": network.layers,
        "chains": network.chains.len(),
        "flops": totals.all(),
        "fused_flops": totals.fused,
        "alone_flops": totals.alone,
        "rest_flops": totals.rest,
        "unknown_nodes": totals.unknown,
        "fused_share": totals.share(totals.fused),
    })
}

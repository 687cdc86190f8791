//! A report on a network as one page: charts as SVG, tables, no script and nothing from elsewhere.

use std::fmt::Write;

use fuseplan::Handle;

use super::bench::{self, Row, Sums};
use super::explain::{self, operations};
use super::network::{Network, Totals};
use crate::bench::escape;

/// Looks, for light and dark screens.
const STYLE: &str = "
:root { --ink: #1d2330; --dim: #5f6570; --page: #fff; --line: #dfe3ea; --fused: #2f6db5; --unfused: #b9c1cf; --alone: #e0a63c; --slow: #c8553d }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --dim: #a0a7b4; --page: #14171d; --line: #2c323d; --fused: #5b9be6; --unfused: #566072; --alone: #d2a24c; --slow: #e07a63 }
}
body { margin: 2rem auto; max-width: 68rem; padding: 0 1rem; background: var(--page); color: var(--ink); font: 15px/1.5 Helvetica, Arial, sans-serif }
h1 { font-size: 1.5rem; margin-bottom: 0; overflow-wrap: anywhere }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .4rem }
p { margin: .3rem 0; color: var(--dim) }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0 .8rem }
.cards div { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem 1rem; flex: 1 1 9rem }
.cards b { display: block; font-size: 1.5rem }
.cards span { color: var(--dim); font-size: .85rem }
svg { display: block; width: 100%; height: auto }
svg text { fill: var(--ink); font-size: 13px }
svg .dim { fill: var(--dim) }
.key { display: inline-block; margin-left: 1rem }
.key i { display: inline-block; width: .8rem; height: .8rem; border-radius: .15rem; margin-right: .3rem }
.scroll svg { min-width: 44rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .85rem }
th, td { padding: .3rem .6rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top }
th { color: var(--dim); font-weight: normal }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
td.name { white-space: nowrap }
code { font-size: .95em }
.wrong { color: var(--slow); font-weight: bold }
";

/// Writing into a string cannot fail.
macro_rules! put {
    ($page:expr, $($argument:tt)*) => {{
        let _ = writeln!($page, $($argument)*);
    }};
}

/// The page.
pub(crate) fn page(network: &Network, rows: &[Row], handle: &Handle) -> String {
    let (totals, sums) = (network.totals(), Sums::of(rows));
    let title = escape(&bench::title(network));
    let mut page = String::new();
    put!(page, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">");
    put!(page, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    put!(page, "<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>");
    let device = handle.device_info();
    put!(
        page,
        "<p>{} nodes, inputs {}; on {} ({}), fuseplan {}</p>",
        network.nodes,
        escape(&network.inputs.join(", ")),
        escape(&device.name),
        escape(&handle.target().to_string()),
        env!("CARGO_PKG_VERSION")
    );
    cards(&mut page, network, &totals, &sums);
    arithmetic(&mut page, &totals);
    times(&mut page, rows);
    table(&mut page, rows);
    rest(&mut page, network, &totals);
    put!(page, "</body>\n</html>");
    page
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn cards(page: &mut String, network: &Network, totals: &Totals, sums: &Sums) {
    put!(page, "<div class=\"cards\">");
    let card = |page: &mut String, number: &str, text: &str| {
        put!(page, "<div><b>{}</b><span>{}</span></div>", escape(number), escape(text));
    };
    card(page, &format!("{:.2}", sums.speed_up()), "times as fast as one kernel for each operator");
    card(page, &format!("{:.3} ms", sums.fused * 1e3), "the chains, fused");
    card(page, &format!("{:.3} ms", sums.unfused * 1e3), "the same, one kernel for each operator");
    card(page, &percent(totals.share(totals.fused)), "of the arithmetic is fused");
    let begin = match network.layers {
        0 => "convolutions begin a chain",
        _ => "convolutions and fully connected layers begin a chain",
    };
    card(page, &format!("{} of {}", network.chains.len(), network.convolutions + network.layers), begin);
    put!(page, "</div>");
    put!(page, "<p>{} chains were timed. What is in no chain was not.</p>", sums.chains);
}

/// One bar of all arithmetic, by what computes it.
fn arithmetic(page: &mut String, totals: &Totals) {
    put!(page, "<h2>Where the arithmetic is</h2>");
    let parts = [
        ("--fused", "in plans of several operators", totals.fused),
        ("--alone", "in convolutions that nothing is fused with", totals.alone),
        ("--unfused", "in no chain", totals.rest),
    ];
    put!(page, "<svg viewBox=\"0 0 1000 34\" role=\"img\" aria-label=\"Shares of the arithmetic\">");
    let mut x = 0.0;
    for (color, name, part) in parts {
        let width = 1000.0 * totals.share(part);
        put!(
            page,
            "<rect x=\"{x:.1}\" y=\"0\" width=\"{width:.1}\" height=\"34\" style=\"fill: var({color})\"><title>{name}: {}, {}</title></rect>",
            operations(part),
            percent(totals.share(part))
        );
        x += width;
    }
    put!(page, "</svg>\n<p>{} in all:", operations(totals.all()));
    for (color, name, part) in parts {
        let share = percent(totals.share(part));
        key(page, color, &format!("{share} {name}"));
    }
    put!(page, "</p>");
    if totals.unknown > 0 {
        put!(page, "<p>The work of {} nodes is not known, since their lengths are not.</p>", totals.unknown);
    }
}

/// Sizes of the chart of times.
const NAMES: f64 = 300.0;
const BARS: f64 = 500.0;
const SLOT: f64 = 34.0;
const BAR: f64 = 12.0;
/// Characters of a name that there is room for.
const LONGEST: usize = 40;

/// Two bars for each plan: fused and unfused, all chains that have the plan together.
fn times(page: &mut String, rows: &[Row]) {
    put!(page, "<h2>Time of the chains</h2>\n<p>All chains of the same plan together, longest first.");
    put!(page, "Beside the bars the speed-up, and milliseconds fused / unfused.<br>");
    key(page, "--fused", "fused");
    key(page, "--unfused", "one kernel for each operator");
    key(page, "--slow", "fused, and slower");
    put!(page, "</p>\n<div class=\"scroll\">");
    let mut sorted: Vec<&Row> = rows.iter().collect();
    let longer = |row: &Row| row.unfused().max(row.fused());
    sorted.sort_by(|a, b| longer(b).total_cmp(&longer(a)));
    let longest = sorted.first().map_or(1.0, |row| longer(row));
    let height = SLOT * sorted.len() as f64 + 4.0;
    put!(page, "<svg viewBox=\"0 0 1000 {height:.0}\" role=\"img\" aria-label=\"Times of the chains\">");
    put!(
        page,
        "<line x1=\"{NAMES}\" y1=\"0\" x2=\"{NAMES}\" y2=\"{height:.0}\" style=\"stroke: var(--line)\"/>"
    );
    for (index, row) in sorted.iter().enumerate() {
        let y = SLOT * index as f64 + 4.0;
        let middle = y + BAR + 4.0;
        let length = |seconds: f64| (BARS * seconds / longest).max(1.0);
        let times = if row.count > 1 { format!(" × {}", row.count) } else { String::new() };
        let name = escape(&(shortened(&row.name) + &times));
        let hint = escape(&format!("{}: {}", row.name, row.plan));
        put!(
            page,
            "<g><title>{hint}</title><text x=\"{:.0}\" y=\"{middle:.1}\" text-anchor=\"end\">{name}</text>",
            NAMES - 8.0
        );
        let is_slower = row.outcome.speed_up() < 0.995;
        let color = if is_slower { "--slow" } else { "--fused" };
        for (at, seconds, color) in [(y, row.fused(), color), (y + BAR + 1.0, row.unfused(), "--unfused")] {
            put!(
                page,
                "<rect x=\"{NAMES}\" y=\"{at:.1}\" width=\"{:.1}\" height=\"{BAR}\" style=\"fill: var({color})\"/>",
                length(seconds)
            );
        }
        put!(
            page,
            "<text x=\"{:.1}\" y=\"{middle:.1}\">{:.2}<tspan class=\"dim\" dx=\"10\">{:.3} / {:.3}</tspan></text></g>",
            NAMES + length(longer(row)) + 8.0,
            row.outcome.speed_up(),
            row.fused() * 1e3,
            row.unfused() * 1e3
        );
    }
    put!(page, "</svg></div>");
}

/// What a colour stands for.
fn key(page: &mut String, color: &str, text: &str) {
    put!(page, "<span class=\"key\"><i style=\"background: var({color})\"></i>{}</span>", escape(text));
}

/// A name that fits beside its bars: its end, which differs most.
fn shortened(name: &str) -> String {
    let length = name.chars().count();
    if length <= LONGEST {
        return name.into();
    }
    format!("…{}", name.chars().skip(length - LONGEST + 1).collect::<String>())
}

fn table(page: &mut String, rows: &[Row]) {
    put!(page, "<h2>Plans</h2>\n<div class=\"scroll\"><table>\n<tr><th>first chain</th>");
    for head in ["times", "fused ms", "unfused ms", "speed-up", "of floor"] {
        put!(page, "<th class=\"number\">{head}</th>");
    }
    put!(page, "<th>solver</th><th>verified</th><th>plan</th></tr>");
    for Row { name, count, plan, outcome } in rows {
        let floor = outcome.of_floor().map_or("unknown".into(), |of| format!("{:.0} %", 100.0 * of));
        let (class, verified) = if outcome.passes() { ("", "yes") } else { (" class=\"wrong\"", "WRONG") };
        put!(page, "<tr><td class=\"name\">{}</td>", escape(name));
        for number in [
            count.to_string(),
            format!("{:.4}", outcome.fused * 1e3),
            format!("{:.4}", outcome.unfused * 1e3),
            format!("{:.2}", outcome.speed_up()),
            floor,
        ] {
            put!(page, "<td class=\"number\">{number}</td>");
        }
        put!(
            page,
            "<td>{}</td><td{class}>{verified}</td><td><code>{}</code></td></tr>",
            escape(&outcome.solver),
            escape(plan)
        );
    }
    put!(page, "</table></div>");
    put!(
        page,
        "<p>Times are of one execution. The floor is what the device needs at least, by its measured limits.</p>"
    );
}

fn rest(page: &mut String, network: &Network, totals: &Totals) {
    put!(
        page,
        "<h2>What is in no chain</h2>\n<p>{} nodes, with the reasons.</p>",
        explain::nodes(&network.rest)
    );
    put!(page, "<div class=\"scroll\"><table>\n<tr><th class=\"number\">nodes</th><th>operator</th>");
    put!(
        page,
        "<th class=\"number\">arithmetic</th><th class=\"number\">share</th><th>reason</th><th>first</th></tr>"
    );
    for rest in &network.rest {
        let work = match rest.unknown {
            0 => operations(rest.flops),
            unknown => format!("{}, {unknown} not known", operations(rest.flops)),
        };
        put!(
            page,
            "<tr><td class=\"number\">{}</td><td>{}</td><td class=\"number\">{work}</td><td class=\"number\">{}</td><td>{}</td><td>{}</td></tr>",
            rest.count,
            escape(&rest.op),
            percent(totals.share(rest.flops)),
            escape(&rest.reason),
            escape(&rest.first)
        );
    }
    put!(page, "</table></div>");
    put!(page, "<h2>Where chains end</h2>\n<div class=\"scroll\"><table>");
    put!(
        page,
        "<tr><th>chain</th><th class=\"number\">operators</th><th class=\"number\">share</th><th>ends since</th></tr>"
    );
    for found in &network.chains {
        put!(
            page,
            "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td>{}</td></tr>",
            escape(&found.name),
            found.chain.steps.len(),
            percent(totals.share(found.flops)),
            escape(&found.chain.end.to_string())
        );
    }
    put!(page, "</table></div>");
}

//! Fused against unfused over named lists: each configuration verified, timed interleaved, compared with
//! the device's floor; a table, a chart.

mod chart;
mod field;
mod lists;
mod report;
mod trial;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use fuseplan::{Handle, TensorLayout};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::device::DeviceFlags;
use crate::element::{Math, Precision, Scalar, for_precision};
use crate::failure::Failure;
use crate::flags::DEFAULT_SEED;
use crate::onnx::{self, ShapeFlags};
use crate::output::Output;
use lists::List;
use report::{Report, Setting};

pub(crate) use chart::escape;
pub(crate) use trial::{Outcome, Subject, measure};

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A list of configurations: cba, na, resnet50 or field; or a network as an ONNX file
    #[arg(value_name = "LIST", value_parser = what)]
    what: What,
    #[command(flatten)]
    device: DeviceFlags,
    /// Only the layers of this network, of the field list; fit or judge: of that half of the networks
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Number of images; if not given, 64 for a list, and as the file says or 1 for a network. Autoencoders of the field
    /// list are given one
    #[arg(long, value_name = "INT", value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,
    /// Data type; if not given, fp32 for a list, and the file's for a network
    #[arg(long, value_name = "TYPE")]
    dtype: Option<Precision>,
    /// How products may be rounded
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Math::Precise)]
    math: Math,
    /// Layout of tensors and filters
    #[arg(long, value_name = "LAYOUT", default_value = "NCHW", value_parser = layout)]
    layout: TensorLayout,
    /// Only configurations whose name contains this, such as 28-28
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Seconds of measuring for each configuration; at least three rounds are made unless they are very slow
    #[arg(long, value_name = "FLOAT", default_value = "2", value_parser = seconds)]
    seconds: Duration,
    /// Seed of the random data; 0 for a different one each time
    #[arg(long, value_name = "INT", default_value_t = DEFAULT_SEED)]
    seed: u64,
    /// Write the table (Markdown and CSV) and the chart (SVG) of a list into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    shapes: ShapeFlags,
    /// Write a report with charts into this file, which needs nothing else to be read in a browser
    #[arg(long, value_name = "FILE", help_heading = "Of a network")]
    html: Option<PathBuf>,
}

/// What is measured.
#[derive(Debug, Clone)]
enum What {
    List(List),
    Network(PathBuf),
}

fn what(text: &str) -> Result<What, String> {
    if onnx::is_file(text) {
        return Ok(What::Network(text.into()));
    }
    let lists = List::value_variants().iter().map(|list| list.name()).collect::<Vec<_>>().join(", ");
    List::from_str(text, false)
        .map(What::List)
        .map_err(|_| format!("known: {lists}, or a file whose name ends with .onnx"))
}

/// A layout by its name.
pub(crate) fn layout(text: &str) -> Result<TensorLayout, String> {
    let found = TensorLayout::of_rank(4).iter().find(|layout| layout.to_string() == text);
    found.copied().ok_or_else(|| "known: NCHW, NHWC".into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "a number of seconds is needed".into())
}

/// Measures a list or a network.
pub(crate) fn run(options: &Options, output: &Output) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure::Usage(text.into()));
    match &options.what {
        What::List(_) if !options.shapes.shape.is_empty() || options.html.is_some() => usage(
            "--shape and --html are for a network in an ONNX file; --out DIR has tables and a chart of a list",
        ),
        What::Network(_) if options.network.is_some() || options.out.is_some() => {
            usage("--network and --out are for a list; --html FILE has the report on a network")
        }
        &What::List(list) => {
            let precision = options.dtype.unwrap_or(Precision::Fp32);
            let handle = options.device.handle()?;
            for_precision!(precision, measure_list(list, precision, options, &handle, output))
        }
        What::Network(path) => measure_network(path, options, output),
    }
}

fn measure_network(path: &Path, options: &Options, output: &Output) -> Result<(), Failure> {
    let request = onnx::Request {
        path,
        shapes: &options.shapes.shape,
        batch: options.batch.map(|batch| batch as usize),
        precision: options.dtype,
        layout: options.layout,
    };
    let settings = onnx::Settings {
        math: options.math,
        only: &options.only,
        budget: options.seconds,
        seed: options.seed,
        html: options.html.as_deref(),
    };
    onnx::bench(&request, &settings, &options.device.handle()?, output)
}

fn measure_list<T: Scalar>(
    list: List,
    precision: Precision,
    options: &Options,
    handle: &Handle,
    output: &Output,
) -> Result<(), Failure> {
    if let Some(directory) = &options.out {
        fs::create_dir_all(directory).map_err(|error| unwritable(directory, &error))?;
    }
    let setting = Setting {
        list,
        precision,
        layout: options.layout,
        math: options.math,
        batch: options.batch.unwrap_or(64) as usize,
        device: handle.device_info().clone(),
    };
    let mut cases = list.cases();
    if let Some(network) = &options.network {
        cases.retain(|case| case.is_of(network));
        if cases.is_empty() {
            let networks = list.networks();
            let known =
                if networks.is_empty() { "only the field list has them".into() } else { networks.join(", ") };
            return Err(Failure::Usage(format!("--network: no network `{network}`; known: {known}")));
        }
    }
    cases.retain(|case| case.label().contains(&options.only));
    if cases.is_empty() {
        let text = format!("--only: no configuration of {} contains `{}`", list.name(), options.only);
        return Err(Failure::Usage(text));
    }
    let mut report = Report::new(setting, &cases);
    let bar = progress(cases.len(), output);
    bar.suspend(|| output.line(report.head()))?;
    for case in &cases {
        bar.set_message(case.label());
        let outcome = trial::run::<T>(case, report.setting(), handle, options.seconds, options.seed)
            .inspect_err(|_| {
                // What failed is said by the error; where not even that can be written, by the exit code.
                let _ = bar.suspend(|| writeln!(io::stderr(), "{} failed", case.label()));
            })?;
        bar.suspend(|| output.line(report.row(&outcome)))?;
        output.object("bench", report.object(&outcome))?;
        report.outcomes.push(outcome);
        bar.inc(1);
    }
    bar.finish_and_clear();
    output.line(report.foot())?;
    output.object("bench_summary", report.summary())?;
    if let Some(directory) = &options.out {
        for (extension, text) in
            [("md", report.markdown()), ("csv", report.csv()), ("svg", chart::speed_ups(&report))]
        {
            let path = directory.join(format!("{}.{extension}", report.setting().file_stem()));
            fs::write(&path, text).map_err(|error| unwritable(&path, &error))?;
            output.line(format!("wrote {}", path.display()))?;
        }
    }
    verdict(&report.outcomes)
}

fn unwritable(path: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("--out: {} cannot be written: {error}", path.display()))
}

/// A bar on standard error, where that is a terminal that somebody watches.
pub(crate) fn progress(length: usize, output: &Output) -> ProgressBar {
    let target = if output.is_json() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("[{elapsed}] {bar:30} {pos}/{len} {msg}");
    ProgressBar::with_draw_target(Some(length as u64), target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// An error that names the commands of all wrong configurations.
pub(crate) fn verdict(outcomes: &[Outcome]) -> Result<(), Failure> {
    let wrong: Vec<_> = outcomes.iter().filter(|outcome| !outcome.passes()).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let commands: String = wrong.iter().map(|outcome| format!("\n  {}", outcome.command)).collect();
    Err(Failure::WrongResult(format!(
        "{} of {} configurations differ from the reference; to look closer:{commands}",
        wrong.len(),
        outcomes.len()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Verdict;

    fn outcome(error: f64) -> Outcome {
        let verdict = |error| Verdict { error, tolerance: 1e-5 };
        Outcome {
            label: "512-7-7".into(),
            command: format!("fuseplan CBAInfer --error {error}"),
            solver: "cpu.some.v1".into(),
            unfused_solvers: Vec::new(),
            fused: 1e-3,
            unfused: 2e-3,
            layer: None,
            batch: 64,
            rounds: 3,
            sets: 1,
            floor: None,
            flops: 1e6,
            bytes: 1e6,
            fused_verdict: verdict(0.0),
            unfused_verdict: verdict(error),
        }
    }

    #[test]
    fn wrong_configurations_fail_with_their_commands() {
        assert!(verdict(&[outcome(0.0), outcome(1e-6)]).is_ok());
        let Err(Failure::WrongResult(text)) = verdict(&[outcome(0.0), outcome(0.25), outcome(f64::NAN)])
        else {
            panic!("not found");
        };
        assert!(text.starts_with("2 of 3 configurations differ"), "{text}");
        assert!(
            text.ends_with("\n  fuseplan CBAInfer --error 0.25\n  fuseplan CBAInfer --error NaN"),
            "{text}"
        );
    }

    #[test]
    fn reports_tell_wrong_results_and_unknown_floors() {
        let device = Handle::cpu().device_info().clone();
        let setting = Setting {
            list: List::Na,
            precision: Precision::Fp32,
            layout: TensorLayout::Nchw,
            math: Math::Precise,
            batch: 64,
            device,
        };
        let mut report = Report::new(setting, &List::Na.cases());
        report.outcomes = vec![outcome(0.0), outcome(0.25)];
        let cells = |index: usize| {
            let row = report.row(&report.outcomes[index]);
            row.split('|').map(|cell| cell.trim().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            cells(0)[1..],
            ["512-7-7", "1.000", "2.000", "2.00", "unknown", "unknown", "1.0", "yes", "cpu.some.v1", ""]
        );
        assert_eq!(cells(1)[8], "WRONG");
        assert!(report.foot().contains("Geometric mean of the speed-ups: 2.00"));
        assert!(report.csv().ends_with(
            "512-7-7,1.000000,2.000000,2.000000,,,1.000,1.000,3,cpu.some.v1,0e0,2.5e-1,1e-5,false\n"
        ));
        assert_eq!(report.summary()["verified"], 1);
    }
}

//! The outcomes as a table: Markdown, CSV, objects.

use fuseplan::{DataType, TensorLayout, device::DeviceInfo};
use serde_json::{Value, json};

use super::lists::{Case, List};
use super::trial::Outcome;
use crate::element::{Math, Precision};
use crate::verify::REFERENCE;

/// What is the same for all configurations.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) list: List,
    pub(crate) precision: Precision,
    pub(crate) layout: TensorLayout,
    pub(crate) math: Math,
    pub(crate) batch: usize,
    pub(crate) device: DeviceInfo,
}

impl Setting {
    /// `cba-f32-nchw-n64`
    pub(crate) fn file_stem(&self) -> String {
        let layout = self.layout.to_string().to_lowercase();
        let (list, data_type) = (self.list.name(), self.precision.data_type());
        let math = match self.math {
            Math::Strict => "-strict",
            Math::Precise => "",
            Math::Tf32 => "-tf32",
        };
        format!("{list}-{data_type}{math}-{layout}-n{}", self.batch)
    }

    /// `f32, NCHW, batch 64, on …`
    pub(crate) fn describe(&self) -> String {
        let DeviceInfo { backend, name, arch, compute_units, .. } = &self.device;
        format!(
            "{}{}, {}, batch {}, on {backend}: {name} ({arch}, {compute_units} compute units), fuseplan {}",
            self.precision.data_type(),
            match self.math {
                Math::Strict => " (strict)",
                Math::Precise => "",
                Math::Tf32 => " (TF32 allowed)",
            },
            self.layout,
            self.batch,
            env!("CARGO_PKG_VERSION")
        )
    }
}

/// The outcomes of a list.
#[derive(Debug)]
pub(crate) struct Report {
    setting: Setting,
    /// Width of the column of labels.
    width: usize,
    pub(crate) outcomes: Vec<Outcome>,
}

const COLUMNS: [&str; 7] =
    ["fused ms", "unfused ms", "speed-up", "floor ms", "of floor", "GFLOP/s", "verified"];

impl Report {
    pub(crate) fn new(setting: Setting, cases: &[Case]) -> Self {
        let labels = cases.iter().map(|case| case.label().len());
        let width = labels.max().unwrap_or(0).max("configuration".len());
        Report { setting, width, outcomes: Vec::new() }
    }

    pub(crate) fn setting(&self) -> &Setting {
        &self.setting
    }

    /// What stands above the rows.
    pub(crate) fn head(&self) -> String {
        let list = self.setting.list;
        let columns: String = COLUMNS.iter().map(|column| format!(" {column:>10} |")).collect();
        let rule: String = COLUMNS.iter().map(|_| format!("{}:|", "-".repeat(11))).collect();
        format!(
            "# {}: fused against unfused\n\n{}.\nConfigurations are {}.\n\n| {:width$} |{columns} solver |\n|{}|{rule}---|",
            list.title(),
            self.setting.describe(),
            list.label_form(),
            "configuration",
            "-".repeat(self.width + 2),
            width = self.width
        )
    }

    /// A row of the table.
    pub(crate) fn row(&self, outcome: &Outcome) -> String {
        // GPUs need a few microseconds.
        let milliseconds = |seconds: f64| match seconds * 1e3 {
            long if long >= 1.0 => format!("{long:.3}"),
            short => format!("{short:.4}"),
        };
        let unknown = || "unknown".to_string();
        let cells = [
            milliseconds(outcome.fused),
            milliseconds(outcome.unfused),
            format!("{:.2}", outcome.speed_up()),
            outcome.floor.map_or_else(unknown, milliseconds),
            outcome.of_floor().map_or_else(unknown, |part| format!("{:.0} %", part * 100.0)),
            format!("{:.1}", outcome.flops / outcome.fused * 1e-9),
            if outcome.passes() { "yes" } else { "WRONG" }.to_string(),
        ];
        let cells: String = cells.iter().map(|cell| format!(" {cell:>10} |")).collect();
        format!("| {:width$} |{cells} {} |", outcome.label, outcome.solver, width = self.width)
    }

    /// What stands below the rows: the mean, and how everything was measured.
    pub(crate) fn foot(&self) -> String {
        let rounds = self.outcomes.iter().map(|outcome| outcome.rounds);
        let (fewest, most) = (rounds.clone().min().unwrap_or(0), rounds.max().unwrap_or(0));
        let images = match self.setting.batch {
            1 => "the image",
            2 => "both images",
            _ => "the first and the last image of the batch",
        };
        let rotated = match self.outcomes.iter().map(|outcome| outcome.sets).max().unwrap_or(1) {
            1 => "",
            _ => {
                ", over sets of operands that take turns, so that caches hold nothing (256 MB, 64 sets at most)"
            }
        };
        let itself = match self.outcomes.iter().filter(|outcome| outcome.solver == REFERENCE).count() {
            0 => String::new(),
            count => format!(" {count} of the fused plans ran on that solver itself."),
        };
        let (products, digits) = match (self.setting.math, self.setting.precision.data_type()) {
            (Math::Tf32, DataType::Float) => (" with f32 products (TF32's can be faster)", " of f16"),
            _ => ("", ""),
        };
        format!(
            "{}\nGeometric mean of the speed-ups: {:.2}\n\n\
             - Unfused: the same operators as one plan each, one after the other through tensors in between.\n\
             - Times are medians of {fewest} to {most} rounds, fused and unfused in turn{rotated}.\n\
             - Floor: the larger of operations over the device's measured rate{products} and bytes over its measured \
             bandwidth, each byte read or written once; data that stay in the caches can be faster.\n\
             - Verified: {images}, fused and unfused, against {REFERENCE} within 80 epsilon{digits}.{itself}",
            self.networks(),
            self.mean()
        )
    }

    /// A table of whole networks: the times of all their layers, those that are alike counted as often as there are.
    fn networks(&self) -> String {
        let mut rows: Vec<(String, [f64; 2], Option<f64>)> = Vec::new();
        for outcome in &self.outcomes {
            let Some(layer) = outcome.layer else { continue };
            let count = layer.count as f64;
            let name = format!("{} ({})", layer.network, layer.half.name());
            if rows.last().is_none_or(|row| row.0 != name) {
                rows.push((name, [0.0; 2], Some(0.0)));
            }
            let Some((_, times, floor)) = rows.last_mut() else { continue };
            times[0] += count * outcome.fused;
            times[1] += count * outcome.unfused;
            *floor = floor.zip(outcome.floor).map(|(sum, floor)| sum + count * floor);
        }
        if rows.is_empty() {
            return String::new();
        }
        let head =
            "\n| all layers of | fused ms | unfused ms | speed-up | of floor |\n|---|---:|---:|---:|---:|\n";
        let row = |(name, [fused, unfused], floor): &(String, [f64; 2], Option<f64>)| {
            let of_floor = floor.map_or("unknown".into(), |floor| format!("{:.0} %", floor / fused * 100.0));
            let (fused_ms, unfused_ms) = (fused * 1e3, unfused * 1e3);
            format!("| {name} | {fused_ms:.3} | {unfused_ms:.3} | {:.2} | {of_floor} |\n", unfused / fused)
        };
        head.to_owned() + &rows.iter().map(row).collect::<String>()
    }

    /// The geometric mean of the speed-ups.
    pub(crate) fn mean(&self) -> f64 {
        let logarithms: f64 = self.outcomes.iter().map(|outcome| outcome.speed_up().ln()).sum();
        (logarithms / self.outcomes.len() as f64).exp()
    }

    /// The whole table.
    pub(crate) fn markdown(&self) -> String {
        let rows: String = self.outcomes.iter().map(|outcome| self.row(outcome) + "\n").collect();
        format!("{}\n{rows}{}\n", self.head(), self.foot())
    }

    /// The table for spreadsheets.
    pub(crate) fn csv(&self) -> String {
        let mut text = String::from(
            "configuration,fused_ms,unfused_ms,speed_up,floor_ms,of_floor,gflops,gbytes,rounds,solver,\
             fused_error,unfused_error,tolerance,verified\n",
        );
        let optional = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.6}"));
        for outcome in &self.outcomes {
            text += &format!(
                "{},{:.6},{:.6},{:.6},{},{},{:.3},{:.3},{},{},{:e},{:e},{:e},{}\n",
                outcome.label,
                outcome.fused * 1e3,
                outcome.unfused * 1e3,
                outcome.speed_up(),
                optional(outcome.floor.map(|floor| floor * 1e3)),
                optional(outcome.of_floor()),
                outcome.flops / outcome.fused * 1e-9,
                outcome.bytes / outcome.fused * 1e-9,
                outcome.rounds,
                outcome.solver,
                outcome.fused_verdict.error,
                outcome.unfused_verdict.error,
                outcome.fused_verdict.tolerance,
                outcome.passes()
            );
        }
        text
    }

    /// A row for programs.
    pub(crate) fn object(&self, outcome: &Outcome) -> Value {
        json!({
            "list": self.setting.list.name(),
            "configuration": outcome.label,
            "command": outcome.command,
            "solver": outcome.solver,
            "unfused_solvers": outcome.unfused_solvers,
            "fused_ms": outcome.fused * 1e3,
            "unfused_ms": outcome.unfused * 1e3,
            "speed_up": outcome.speed_up(),
            "rounds": outcome.rounds,
            "sets": outcome.sets,
            "floor_ms": outcome.floor.map(|floor| floor * 1e3),
            "of_floor": outcome.of_floor(),
            "flops": outcome.flops,
            "bytes": outcome.bytes,
            "verified": outcome.passes(),
            "network": outcome.layer.map(|layer| layer.network),
            "half": outcome.layer.map(|layer| layer.half.name()),
            "count": outcome.layer.map(|layer| layer.count),
            "batch": outcome.batch,
            "verified_images": outcome.batch.min(2),
            "fused_error": outcome.fused_verdict.error,
            "unfused_error": outcome.unfused_verdict.error,
            "tolerance": outcome.fused_verdict.tolerance,
        })
    }

    /// The whole list for programs.
    pub(crate) fn summary(&self) -> Value {
        json!({
            "list": self.setting.list.name(),
            "dtype": self.setting.precision.data_type().to_string(),
            "layout": self.setting.layout.to_string(),
            "batch": self.setting.batch,
            "backend": self.setting.device.backend,
            "device": self.setting.device.name,
            "arch": self.setting.device.arch,
            "compute_units": self.setting.device.compute_units,
            "configurations": self.outcomes.len(),
            "verified": self.outcomes.iter().filter(|outcome| outcome.passes()).count(),
            "speed_up_geometric_mean": self.mean(),
        })
    }
}

//! What MIOpen fuses, for comparison: its solvers' conditions as of 2026 (`projects/miopen` of rocm-libraries),
//! asked about the same samples as the table of what is supported.
//!
//! Where a condition is not known exactly it is taken as MIOpen's favour: a combination counts as fused if any
//! plan of the sample's kind may be.

use std::fmt;

use fuseplan_api::DataType::{self, BFloat16, Float, Half};

use super::{Sample, samples};
use crate::Error;
use crate::handle::Target;

/// One of MIOpen's solvers: what it fuses, on architectures whose names begin with one of these.
struct Fused {
    archs: &'static [&'static str],
    operators: &'static [&'static str],
    data_types: &'static [DataType],
    layouts: &'static [&'static str],
    /// Kinds of convolution; none for plans without one.
    convolutions: &'static [&'static str],
}

/// Architectures of Composable Kernel's instances.
const CK: &[&str] = &["gfx908", "gfx90a", "gfx942", "gfx950"];
const ANY: &[&str] = &["gfx"];
const PACKED: &[&str] = &["NCHW", "NHWC", "NCDHW", "NDHWC"];
const CHANNELS_LAST: &[&str] = &["NHWC", "NDHWC"];
const ALL: &[&str] = &["1x1", "3x3", "7x7", "strided", "dilated", "grouped", "depthwise", "3-D"];

/// ConvBiasActivAsm1x1U; ConvHipDirectFwdFused; the grouped and the residual solvers of Composable Kernel;
/// Winograd: F(2,3), Rage, Fury without and with groups (neither has ReLU); batch-norm with activation for
/// inference and for training.
const FUSED: [Fused; 10] = [
    Fused {
        archs: &["gfx9"],
        operators: &["CB", "CA", "CBA"],
        data_types: &[Float, Half],
        layouts: &["NCHW"],
        convolutions: &["1x1"],
    },
    Fused {
        archs: &["gfx90", "gfx103"],
        operators: &["C", "CB", "CA", "CN", "CBA", "CBN", "CNA", "CBNA"],
        data_types: &[Float],
        layouts: &["NCHW"],
        convolutions: &["3x3", "7x7", "strided"],
    },
    Fused {
        archs: CK,
        operators: &["CA", "CBA"],
        data_types: &[Float, Half, BFloat16],
        layouts: PACKED,
        convolutions: ALL,
    },
    Fused {
        archs: CK,
        operators: &["CRBA"],
        data_types: &[Float, Half, BFloat16],
        layouts: CHANNELS_LAST,
        convolutions: ALL,
    },
    Fused {
        archs: &["gfx9", "gfx10", "gfx11"],
        operators: &["C", "CB", "CA", "CBA"],
        data_types: &[Float],
        layouts: &["NCHW"],
        convolutions: &["1x1", "3x3", "7x7", "strided"],
    },
    Fused {
        archs: &["gfx942"],
        operators: &["C", "CB", "CA", "CBA"],
        data_types: &[Half],
        layouts: &["NCHW"],
        convolutions: &["1x1", "3x3", "7x7"],
    },
    Fused {
        archs: &["gfx11", "gfx12"],
        operators: &["C", "CB"],
        data_types: &[Half],
        layouts: &["NCHW", "NHWC"],
        convolutions: &["1x1", "3x3"],
    },
    Fused {
        archs: &["gfx12"],
        operators: &["C", "CB"],
        data_types: &[Half],
        layouts: &["NCHW", "NHWC"],
        convolutions: &["grouped", "depthwise"],
    },
    Fused {
        archs: ANY,
        operators: &["NA"],
        data_types: &[Float, Half, BFloat16],
        layouts: &["NCHW", "NHWC"],
        convolutions: &[],
    },
    Fused {
        archs: ANY,
        operators: &["FA", "GH"],
        data_types: &[Float, Half],
        layouts: &["NCHW"],
        convolutions: &[],
    },
];

impl Fused {
    fn takes(&self, sample: &Sample, arch: &str) -> bool {
        self.archs.iter().any(|prefix| arch.starts_with(prefix))
            && self.operators.contains(&sample.operators)
            && self.data_types.contains(&sample.data_type)
            && self.layouts.contains(&sample.layout.as_str())
            && sample.convolution.is_none_or(|kind| self.convolutions.contains(&kind))
    }
}

/// A sequence of operators, by what fuses it on an AMD GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparisonRow {
    /// The sequence, in the letters of [`SupportTable::LEGEND`](crate::SupportTable::LEGEND).
    pub operators: &'static str,
    /// Combinations of data type, layout and kind of convolution that both fuse, written shortly.
    pub both: Vec<String>,
    /// Combinations that only fuseplan fuses.
    pub ours: Vec<String>,
    /// Combinations that only MIOpen fuses.
    pub theirs: Vec<String>,
}

/// fuseplan beside MIOpen on an AMD GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// The device or architecture.
    pub target: String,
    /// One row for each sequence of operators.
    pub rows: Vec<ComparisonRow>,
}

/// What MIOpen fuses of what is supported on a target of the ROCm backend; `None` for other backends, on whose
/// devices MIOpen fuses nothing.
///
/// # Errors
/// None of the samples could be described; does not happen.
pub fn beside_miopen(target: &Target) -> Result<Option<Comparison>, Error> {
    let info = target.info();
    if info.backend != "rocm" {
        return Ok(None);
    }
    let mut rows: Vec<ComparisonRow> = Vec::new();
    for sample in samples()? {
        let takes_ours = target.backend.solvers().iter().any(|s| s.applies(&sample.problem, info).is_ok());
        let takes_theirs = FUSED.iter().any(|fused| fused.takes(&sample, &info.arch));
        let operators = sample.operators;
        let at = rows.iter().position(|row| row.operators == operators).unwrap_or_else(|| {
            rows.push(ComparisonRow { operators, both: Vec::new(), ours: Vec::new(), theirs: Vec::new() });
            rows.len() - 1
        });
        match (takes_ours, takes_theirs) {
            (true, true) => add(&mut rows[at].both, &sample),
            (true, false) => add(&mut rows[at].ours, &sample),
            (false, true) => add(&mut rows[at].theirs, &sample),
            (false, false) => {}
        }
    }
    Ok(Some(Comparison { target: target.to_string(), rows }))
}

/// Adds `f32 NCHW: 1x1`; kinds of convolution of one type and layout share an entry.
fn add(list: &mut Vec<String>, sample: &Sample) {
    let mut entry = format!("{} {}", sample.data_type, sample.layout);
    let Some(kind) = sample.convolution else { return list.push(entry) };
    entry.push(':');
    match list.last_mut().filter(|last| last.starts_with(&entry)) {
        Some(last) => *last = format!("{last} {kind}"),
        None => list.push(format!("{entry} {kind}")),
    }
}

impl Comparison {
    /// The columns of the table.
    pub const COLUMNS: [&'static str; 4] = ["operators", "both", "fuseplan alone", "MIOpen alone"];

    /// The cells of each row, as text.
    pub fn cells(&self) -> impl Iterator<Item = [String; 4]> + '_ {
        self.rows.iter().map(|row| {
            [row.operators.to_string(), row.both.join("; "), row.ours.join("; "), row.theirs.join("; ")]
        })
    }
}

/// The table in Markdown.
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "One kernel by fuseplan and by MIOpen (its solvers of 2026) on {}, in combinations of data type, \
             layout and kind of convolution:\n",
            self.target
        )?;
        writeln!(f, "| {} |", Self::COLUMNS.join(" | "))?;
        write!(f, "|{}", "---|".repeat(Self::COLUMNS.len()))?;
        for cells in self.cells() {
            write!(f, "\n| {} |", cells.join(" | "))?;
        }
        Ok(())
    }
}

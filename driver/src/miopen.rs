//! What MIOpen fuses on AMD GPUs, beside what fuseplan does.
//!
//! MIOpen has no table of what it fuses: each of its solvers decides in a function `IsApplicable`. The rows below retell
//! these functions for the plans that stand in fuseplan's table of what is supported, with ReLU as the activation. Where
//! a condition depends on sizes it is taken in MIOpen's favour: a combination counts as fused if any plan of its kind is.

use std::fmt;

use fuseplan::DataType::{self, BFloat16, Float, Half};
use fuseplan::{
    device::Target,
    support::{Sample, Table},
};

/// The version of MIOpen whose solvers were read, of `projects/miopen` in <https://github.com/ROCm/rocm-libraries>.
const VERSION: &str = "3.5.2";

/// A solver of MIOpen that computes a fused plan by one kernel.
struct Solver {
    /// The class whose `IsApplicable` decides.
    class: &'static str,
    /// The file of that function, in MIOpen's `src/solver`.
    file: &'static str,
    /// What the names of its architectures begin with.
    archs: &'static [&'static str],
    operators: &'static [&'static str],
    data_types: &'static [DataType],
    layouts: &'static [&'static str],
    /// Kinds of convolution; none for plans without one.
    convolutions: &'static [&'static str],
}

/// The architectures that Composable Kernel has instances for.
const CK: &[&str] = &["gfx908", "gfx90a", "gfx942", "gfx950"];
const CHANNELS_FIRST: &[&str] = &["NCHW"];
const PACKED: &[&str] = &["NCHW", "NHWC", "NCDHW", "NDHWC"];
const CHANNELS_LAST: &[&str] = &["NHWC", "NDHWC"];
const TWO_D: &[&str] = &["1x1", "3x3", "7x7", "strided", "dilated", "grouped", "depthwise"];
const ALL: &[&str] = &["1x1", "3x3", "7x7", "strided", "dilated", "grouped", "depthwise", "3-D"];

/// Every solver of MIOpen that takes a fused plan.
const SOLVERS: [Solver; 12] = [
    Solver {
        class: "ConvBiasActivAsm1x1U",
        file: "conv_asm_1x1u_bias_activ_fused.cpp",
        archs: &["gfx9"],
        operators: &["CB", "CA", "CBA"],
        data_types: &[Float, Half],
        layouts: CHANNELS_FIRST,
        convolutions: &["1x1"],
    },
    Solver {
        class: "ConvHipDirectFwdFused",
        file: "conv_hip_dir2Dfwd_fused.cpp",
        archs: &["gfx90", "gfx103"],
        operators: &["C", "CB", "CA", "CN", "CBA", "CBN", "CNA", "CBNA"],
        data_types: &[Float],
        layouts: CHANNELS_FIRST,
        convolutions: &["3x3", "7x7", "strided"],
    },
    Solver {
        class: "ConvCKIgemmGrpFwdActivFused",
        file: "conv_ck_igemm_grp_fwd_activ_fused.cpp",
        archs: CK,
        operators: &["CA"],
        data_types: &[Float, Half, BFloat16],
        layouts: PACKED,
        convolutions: ALL,
    },
    Solver {
        class: "ConvCKIgemmGrpFwdBiasActivFused",
        file: "conv_ck_igemm_grp_fwd_bias_activ_fused.cpp",
        archs: CK,
        operators: &["CBA"],
        data_types: &[Float, Half, BFloat16],
        layouts: PACKED,
        convolutions: ALL,
    },
    Solver {
        class: "ConvCKIgemmFwdBiasResAddActivFused",
        file: "conv_ck_igemm_fwd_bias_res_add_activ_fused.cpp",
        archs: CK,
        operators: &["CRBA"],
        data_types: &[Float, Half, BFloat16],
        layouts: CHANNELS_LAST,
        convolutions: ALL,
    },
    Solver {
        class: "ConvBinWinogradRxSf2x3g1Fused",
        file: "conv_winoRxS_fused.cpp",
        archs: &["gfx9", "gfx10", "gfx11"],
        operators: &["C", "CB", "CA", "CBA"],
        data_types: &[Float],
        layouts: CHANNELS_FIRST,
        convolutions: &["1x1", "3x3", "7x7", "strided"],
    },
    Solver {
        class: "ConvWinoRageRxSFused",
        file: "conv/conv_wino_rage_RxS.cpp",
        archs: &["gfx942"],
        operators: &["C", "CB", "CA", "CBA"],
        data_types: &[Half],
        layouts: CHANNELS_FIRST,
        convolutions: &["1x1", "3x3", "7x7"],
    },
    // Fury has no ReLU; its kernels for gfx12 alone take groups (`ShaderModelV2` and `ShaderModelV4`).
    Solver {
        class: "ConvWinoFuryRxSFused",
        file: "conv/conv_wino_fury_RxS.cpp",
        archs: &["gfx11"],
        operators: &["C", "CB"],
        data_types: &[Half],
        layouts: &["NCHW", "NHWC"],
        convolutions: &["1x1", "3x3"],
    },
    Solver {
        class: "ConvWinoFuryRxSFused",
        file: "conv/conv_wino_fury_RxS.cpp",
        archs: &["gfx12"],
        operators: &["C", "CB"],
        data_types: &[Half],
        layouts: &["NCHW", "NHWC"],
        convolutions: &["1x1", "3x3", "grouped", "depthwise"],
    },
    Solver {
        class: "BnFwdInferActivationFused",
        file: "batchnorm/forward_inference_fused.cpp",
        archs: &["gfx"],
        operators: &["NA"],
        data_types: &[Float, Half, BFloat16],
        layouts: &["NCHW", "NHWC"],
        convolutions: &[],
    },
    Solver {
        class: "BnFwdTrgActivationFused",
        file: "batchnorm/forward_per_activation_fused.cpp",
        archs: &["gfx"],
        operators: &["FA"],
        data_types: &[Float, Half],
        layouts: CHANNELS_FIRST,
        convolutions: &[],
    },
    Solver {
        class: "BnBwdTrgActivationFused",
        file: "batchnorm/backward_per_activation_fused.cpp",
        archs: &["gfx"],
        operators: &["GH"],
        data_types: &[Float, Half],
        layouts: CHANNELS_FIRST,
        convolutions: &[],
    },
];

impl Solver {
    fn takes(&self, sample: &Sample, arch: &str) -> bool {
        self.archs.iter().any(|prefix| arch.starts_with(prefix))
            && self.operators.contains(&sample.operators)
            && self.data_types.contains(&sample.data_type)
            && self.layouts.contains(&sample.layout.as_str())
            && sample.convolution.is_none_or(|kind| self.convolutions.contains(&kind))
    }
}

/// Plans of one sequence of operators and some data types, by what fuses them: layouts, and kinds of convolution in
/// them, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// The sequence, in the letters of [`Table::LEGEND`].
    pub(crate) operators: &'static str,
    /// The data types for which the rest of the row is the same.
    pub(crate) data_types: Vec<DataType>,
    /// What both libraries fuse.
    pub(crate) both: Vec<String>,
    /// What fuseplan alone fuses.
    pub(crate) fuseplan: Vec<String>,
    /// What MIOpen alone fuses.
    pub(crate) miopen: Vec<String>,
}

/// fuseplan beside MIOpen on an AMD GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// The device or architecture.
    pub(crate) target: String,
    /// The sequences in the order of the table of what is supported.
    pub(crate) rows: Vec<Row>,
}

/// Compares a table of what is supported with MIOpen's solvers. MIOpen fuses nothing on devices of other backends than
/// ROCm's, so there is no comparison for those.
pub(crate) fn beside(table: &Table, target: &Target) -> Option<Comparison> {
    let info = target.info();
    if info.backend != "rocm" {
        return None;
    }
    let mut rows: Vec<Row> = Vec::new();
    // Samples lie by data type and layout; rows are by operators.
    let mut sequences: Vec<&'static str> = Vec::new();
    for sample in &table.samples {
        if !sequences.contains(&sample.operators) {
            sequences.push(sample.operators);
        }
    }
    for operators in sequences {
        let first = rows.len();
        for data_type in DataType::ALL {
            let [mut both, mut ours, mut theirs] = [const { Vec::new() }; 3];
            let of_row = |sample: &&Sample| sample.operators == operators && sample.data_type == data_type;
            for sample in table.samples.iter().filter(of_row) {
                let takes_ours = table.rows.iter().any(|row| row.samples.contains(sample));
                let takes_theirs = SOLVERS.iter().any(|solver| solver.takes(sample, &info.arch));
                match (takes_ours, takes_theirs) {
                    (true, true) => both.push(sample),
                    (true, false) => ours.push(sample),
                    (false, true) => theirs.push(sample),
                    (false, false) => {}
                }
            }
            let [both, fuseplan, miopen] = [both, ours, theirs].map(|samples| summary(&samples));
            if both.is_empty() && fuseplan.is_empty() && miopen.is_empty() {
                continue;
            }
            let same =
                |row: &&mut Row| (&row.both, &row.fuseplan, &row.miopen) == (&both, &fuseplan, &miopen);
            match rows[first..].iter_mut().find(same) {
                Some(row) => row.data_types.push(data_type),
                None => rows.push(Row { operators, data_types: vec![data_type], both, fuseplan, miopen }),
            }
        }
    }
    Some(Comparison { target: table.target.clone(), rows })
}

/// Layouts with the same kinds of convolution share an entry: `NCHW NHWC: 1x1 3x3`.
fn summary(samples: &[&Sample]) -> Vec<String> {
    let mut layouts: Vec<(&str, Vec<&str>)> = Vec::new();
    for sample in samples {
        match layouts.last_mut().filter(|(layout, _)| *layout == sample.layout) {
            Some((_, kinds)) => kinds.extend(sample.convolution),
            None => layouts.push((&sample.layout, sample.convolution.into_iter().collect())),
        }
    }
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for (layout, kinds) in layouts {
        match groups.iter_mut().find(|(_, of_group)| *of_group == kinds) {
            Some((names, _)) => *names = format!("{names} {layout}"),
            None => groups.push((layout.into(), kinds)),
        }
    }
    let entry = |(layouts, kinds): (String, Vec<&str>)| match kinds.as_slice() {
        [] => layouts,
        TWO_D => format!("{layouts}: every 2-D"),
        kinds => format!("{layouts}: {}", kinds.join(" ")),
    };
    groups.into_iter().map(entry).collect()
}

/// The tables in Markdown: what is fused, and which functions of MIOpen say so.
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "One kernel by fuseplan and by MIOpen {VERSION} on {}:\n", self.target)?;
        writeln!(f, "| operators | data types | both | fuseplan alone | MIOpen alone |")?;
        writeln!(f, "|---|---|---|---|---|")?;
        for row in &self.rows {
            let types: Vec<_> = row.data_types.iter().map(ToString::to_string).collect();
            let lists = [&row.both, &row.fuseplan, &row.miopen].map(|list| list.join("; "));
            writeln!(f, "| {} | {} | {} |", row.operators, types.join(" "), lists.join(" | "))?;
        }
        writeln!(
            f,
            "\nMIOpen's solvers; `IsApplicable` in the file of `src/solver` says what each takes:\n"
        )?;
        writeln!(f, "| solver | file | architectures | operators | data types | layouts | convolutions |")?;
        write!(f, "|---|---|---|---|---|---|---|")?;
        for solver in &SOLVERS {
            let types: Vec<_> = solver.data_types.iter().map(ToString::to_string).collect();
            let [archs, operators, layouts, kinds] =
                [solver.archs, solver.operators, solver.layouts, solver.convolutions]
                    .map(|list| list.join(" "));
            let (class, file, types) = (solver.class, solver.file, types.join(" "));
            write!(f, "\n| `{class}` | `{file}` | {archs} | {operators} | {types} | {layouts} | {kinds} |")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(backend: &str, arch: &str) -> Option<Comparison> {
        let target = Target::new(backend, arch).unwrap();
        beside(&Table::of_target(&target).unwrap(), &target)
    }

    #[test]
    fn all_that_miopen_fuses_is_fused() {
        for arch in ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"] {
            let comparison = on("rocm", arch).unwrap();
            for row in &comparison.rows {
                assert_eq!(row.miopen, [""; 0], "{arch} {}", row.operators);
                assert!(!row.fuseplan.is_empty(), "{arch} {}", row.operators);
            }
            for operators in ["NA", "FA", "GH"] {
                let both = |row: &Row| row.operators == operators && !row.both.is_empty();
                assert!(comparison.rows.iter().any(both), "{arch} {operators}");
            }
        }
        assert_eq!(on("cuda", "sm_90a"), None);
    }

    #[test]
    fn rows_say_for_which_layouts_and_convolutions_they_are() {
        let rows = on("rocm", "gfx942").unwrap().rows;
        let row = |operators, data_type| {
            rows.iter().find(|row| row.operators == operators && row.data_types.contains(&data_type)).unwrap()
        };
        assert_eq!(row("C", Half).both, ["NCHW: 1x1 3x3 7x7"]);
        assert_eq!(row("CRBA", Float).both, ["NHWC: every 2-D", "NDHWC: 3-D"]);
        assert_eq!(row("CRBA", Float), row("CRBA", BFloat16));
        assert_eq!(row("NA", Half).both, ["NCHW NHWC"]);
    }

    #[test]
    fn the_documentation_has_these_very_tables() {
        let rows = |text: &str| -> Vec<String> {
            text.lines().filter(|line| line.starts_with('|')).map(String::from).collect()
        };
        let expected = on("rocm", "gfx942:sramecc+:xnack-").unwrap().to_string();
        let found = rows(include_str!("../../docs/beside-miopen.md"));
        assert_eq!(
            found,
            rows(&expected),
            "docs/beside-miopen.md is out of date; `fuseplan supported` prints it"
        );
    }
}

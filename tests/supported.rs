//! The table of what is supported holds what compiles and nothing else.

use std::collections::BTreeSet;

use fuseplan::{ActivationMode, BatchNormMode, DataType, device::Target, support::Table};
use fuseplan_suite::case::{
    ActivationSpec, BatchNormForwardSpec, BatchNormSpec, BiasSpec, Case, ConvSpec, OpSpec, PReluSpec,
    ResidualSpec,
};
use fuseplan_suite::layout::Layout;
use fuseplan_suite::library::Library;

/// The table's names of layouts, with one of the suite's.
const LAYOUTS: [(&str, &str); 8] = [
    ("NCHW", "nchw"),
    ("NHWC", "nhwc"),
    ("NCHWc4", "nchwc4"),
    ("NCHWc8", "nchwc8"),
    ("NCHWc16", "nchwc16"),
    ("NCDHW", "ncdhw"),
    ("NDHWC", "ndhwc"),
    ("strided", "nchw-gap2"),
];

/// The table's names of convolutions: extent, padding, stride, dilation, groups of 32 channels.
const CONVOLUTIONS: [(&str, [usize; 5]); 8] = [
    ("1x1", [1, 0, 1, 1, 1]),
    ("3x3", [3, 1, 1, 1, 1]),
    ("7x7", [7, 3, 1, 1, 1]),
    ("strided", [3, 1, 2, 1, 1]),
    ("dilated", [3, 2, 1, 2, 1]),
    ("grouped", [3, 1, 1, 1, 4]),
    ("depthwise", [3, 1, 1, 1, 32]),
    ("3-D", [3, 1, 1, 1, 1]),
];

fn operator(letter: char, [extent, pad, stride, dilation, groups]: [usize; 5], layout: &Layout) -> OpSpec {
    let dims = layout.filters().name().len() - 2;
    let mode = BatchNormMode::Spatial;
    let relu = ActivationSpec { mode: ActivationMode::Relu, params: [0.0; 3] };
    match letter {
        'C' => OpSpec::Conv(ConvSpec {
            filters: 32,
            filter: vec![extent; dims],
            pad: vec![pad; dims],
            pad_after: None,
            stride: vec![stride; dims],
            dilation: vec![dilation; dims],
            groups,
            weights: Some(layout.filters()),
            output: None,
            channels: None,
            data_type: None,
            transpose: false,
        }),
        'B' => OpSpec::Bias(BiasSpec::default()),
        'P' => OpSpec::PRelu(PReluSpec::default()),
        'R' => OpSpec::Residual(ResidualSpec::default()),
        'N' => OpSpec::BatchNorm(BatchNormSpec { mode, params: None, data_type: None }),
        'A' => OpSpec::Activation(relu),
        'F' => OpSpec::BatchNormForward(BatchNormForwardSpec { mode, running: true }),
        'G' => OpSpec::BatchNormBackward(BatchNormSpec { mode, params: None, data_type: None }),
        'H' => OpSpec::ActivationBackward(relu),
        other => panic!("the legend has no {other}"),
    }
}

/// What one solver takes, found by compiling.
#[derive(Debug, Default, PartialEq)]
struct Taken {
    operators: BTreeSet<String>,
    data_types: BTreeSet<DataType>,
    layouts: BTreeSet<String>,
    convolutions: BTreeSet<String>,
}

#[test]
fn every_claim_compiles_and_what_is_not_claimed_does_not() {
    let library = Library::open("cpu").unwrap();
    let table = Table::of_backend("cpu").unwrap();
    assert_eq!(table.rows.iter().map(|row| row.solver).collect::<Vec<_>>(), library.solvers());
    let mut taken: Vec<Taken> = table.rows.iter().map(|_| Taken::default()).collect();
    // Every sequence that any row claims is tried on all of them, in every type, layout and convolution.
    let sequences: BTreeSet<&str> = table.rows.iter().flat_map(|row| row.operators.iter().copied()).collect();
    assert!(sequences.len() >= 20, "{sequences:?}");
    for sequence in sequences {
        for data_type in DataType::ALL {
            for (layout, name) in LAYOUTS {
                let packed = Layout::named(name).packed();
                let dims = packed.filters().name().len() - 2;
                let fitting = |kind: &str| (kind == "3-D") == (dims == 3);
                let kinds = CONVOLUTIONS.iter().filter(|(kind, _)| fitting(kind));
                for (kind, numbers) in kinds.take(if sequence.starts_with('C') { 8 } else { 1 }) {
                    let ops: Vec<_> = sequence.chars().map(|c| operator(c, *numbers, &packed)).collect();
                    let case = Case {
                        id: format!("{sequence} {data_type} {layout} {kind}"),
                        data_type,
                        layout: Layout::named(name),
                        input: [2, 32, 8, 8, 8][..2 + dims].to_vec(),
                        alpha: vec![1.0; ops.len()],
                        beta: 0.0,
                        epsilon: 1e-5,
                        statistics: None,
                        in_place: false,
                        special: false,
                        for_device: false,
                        refused: None,
                        ops,
                    };
                    let built = library.build(&case).unwrap();
                    for ((solver, taken), row) in library.solvers().iter().zip(&mut taken).zip(&table.rows) {
                        match library.compile(&built, Some(solver)) {
                            Ok(compiled) => {
                                assert_eq!(compiled.info().solver, *solver);
                                assert_eq!(compiled.info().algorithm, row.algorithm);
                                taken.operators.insert(sequence.into());
                                taken.data_types.insert(data_type);
                                taken.layouts.insert(layout.into());
                                if sequence.starts_with('C') {
                                    taken.convolutions.insert((*kind).into());
                                }
                            }
                            Err(refusal) => {
                                // By a constraint that the row names.
                                assert_eq!(refusal.reason, "NoSolver", "{}: {}", case.id, refusal.sentence);
                                let named = |(property, accepts): &(&str, &str)| {
                                    refusal.sentence.contains(property) && refusal.sentence.ends_with(accepts)
                                };
                                assert!(
                                    row.constraints.iter().any(named),
                                    "{}: {}",
                                    case.id,
                                    refusal.sentence
                                );
                            }
                        }
                    }
                }
            }
        }
    }
    for (row, taken) in table.rows.iter().zip(taken) {
        let claimed = Taken {
            operators: row.operators.iter().map(ToString::to_string).collect(),
            data_types: row.data_types.iter().copied().collect(),
            layouts: row.layouts.iter().cloned().collect(),
            convolutions: row.convolutions.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(claimed, taken, "{}", row.solver);
    }
}

#[test]
fn the_whole_backend_takes_the_superset_of_what_miopen_fuses() {
    let table = Table::of_backend("cpu").unwrap();
    let some = |test: &dyn Fn(&fuseplan::support::Row) -> bool| table.rows.iter().any(test);
    for sequence in ["C", "CB", "CA", "CBA", "CN", "CBN", "CNA", "CBNA", "CRBA", "NA", "FA", "GH"] {
        assert!(some(&|row| row.operators.contains(&sequence)), "{sequence}");
    }
    for data_type in [DataType::Float, DataType::Half, DataType::BFloat16] {
        assert!(some(&|row| row.data_types.contains(&data_type)), "{data_type}");
    }
    for (layout, _) in LAYOUTS {
        assert!(some(&|row| row.layouts.iter().any(|name| name == layout)), "{layout}");
    }
    for (kind, _) in CONVOLUTIONS {
        assert!(some(&|row| row.convolutions.contains(&kind)), "{kind}");
    }
}

#[test]
fn the_printed_table_has_every_cell() {
    let table = Table::of_backend("cpu").unwrap();
    let text = table.to_string();
    for cells in table.cells() {
        let (_, cells) = cells.split_last().unwrap();
        for cell in cells {
            assert!(text.contains(&cell.replace('|', "\\|")), "{cell}");
        }
    }
    for (property, accepts) in table.rows.iter().flat_map(|row| &row.constraints) {
        assert!(text.contains(&format!("  - {property}: {accepts}\n")), "{property}");
    }
    assert!(text.contains(fuseplan::support::Table::LEGEND));
    assert!(Table::of_backend("tpu").is_err());
}

/// The rows of tables in Markdown, and the items of lists.
fn rows(text: &str) -> Vec<String> {
    let is_of_a_table = |line: &&str| line.starts_with(['|', '-']) || line.starts_with("  -");
    text.lines().filter(is_of_a_table).map(String::from).collect()
}

#[test]
#[cfg(all(feature = "cuda", feature = "rocm", target_arch = "x86_64"))]
fn the_documentation_has_these_very_tables() {
    let on = |backend, arch| Table::of_target(&Target::new(backend, arch).unwrap()).unwrap().to_string();
    // The lists of constraints are those of the backend.
    let table =
        |text: String| text.lines().filter(|line| line.starts_with('|')).collect::<Vec<_>>().join("\n");
    let tables = [
        on("cpu", "x86-64+amx"),
        on("cuda", "sm_90a"),
        table(on("cuda", "sm_86")),
        on("rocm", "gfx942:sramecc+:xnack-"),
    ];
    let (found, expected) = (rows(include_str!("../docs/supported.md")), rows(&tables.join("\n")));
    assert_eq!(found, expected, "docs/supported.md is out of date; `fuseplan supported` prints the tables");
}

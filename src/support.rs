//! The table of what is supported. It is made by asking the rules: each cell is there because a plan with
//! that property was put to the solver and taken, and the constraints are the solver's own.

mod miopen;

use std::fmt;

use fuseplan_api::{
    ActivationMode, Algorithm, BackendError, BatchNormMode, ConvolutionDescriptor, DataType, DescriptorError,
    Problem, Solver, TensorDescriptor, TensorLayout, call,
};

use crate::Error;
use crate::handle::{self, Target};
use crate::operator::{
    ActivationBackward, ActivationForward, BatchNormBackward, BatchNormForward, BatchNormInference,
    BiasForward, ConvForward,
};
use crate::plan::{FusionDirection, FusionPlan};

pub use miopen::{Comparison, ComparisonRow, beside_miopen};

/// What one solver takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupportRow {
    /// The backend's name.
    pub backend: &'static str,
    /// The solver's id. Solvers are listed in the order in which they are tried.
    pub solver: &'static str,
    /// Its algorithm.
    pub algorithm: Algorithm,
    /// Sequences of operators of which some plan is taken; see [`SupportTable::LEGEND`].
    pub operators: Vec<&'static str>,
    /// Data types of which some plan is taken.
    pub data_types: Vec<DataType>,
    /// Layouts of which some plan is taken; `strided` stands for any other positive strides.
    pub layouts: Vec<String>,
    /// Kinds of convolution of which some plan is taken.
    pub convolutions: Vec<&'static str>,
    /// Every constraint that the solver puts on plans: property and what is accepted.
    pub constraints: Vec<(&'static str, &'static str)>,
}

/// What a backend's solvers take on a device or architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupportTable {
    /// The device or architecture.
    pub target: String,
    /// One row for each solver, in the order in which they are tried.
    pub rows: Vec<SupportRow>,
}

/// The supported table of a backend's first device on this machine.
///
/// # Errors
/// Unknown backends, and backends without a device here; for those name an architecture with
/// [`supported_on`].
pub fn supported(backend: &str) -> Result<SupportTable, Error> {
    let discovery = handle::discover(backend)?;
    let device = discovery.devices.first().ok_or_else(|| BackendError::Unavailable {
        backend: "fuseplan",
        reason: format!("{backend} has no device on this machine: {}", discovery.notes.join("; ")),
    })?;
    supported_on(&Target::new(backend, &device.arch)?)
}

/// The supported table of an architecture.
///
/// # Errors
/// None of the samples could be described; does not happen.
pub fn supported_on(target: &Target) -> Result<SupportTable, Error> {
    let samples = samples()?;
    let row = |solver: &&'static dyn Solver| call(|| row(*solver, target, &samples));
    let rows = target.backend.solvers().iter().map(row).collect();
    Ok(SupportTable { target: target.to_string(), rows })
}

/// A plan that stands for others of its kind.
struct Sample {
    operators: &'static str,
    convolution: Option<&'static str>,
    data_type: DataType,
    layout: String,
    problem: Problem,
}

/// Sequences of operators in the letters of the legend; those with `C` for every kind of convolution.
const SEQUENCES: [&str; 20] = [
    "C", "CB", "CA", "CBA", "CN", "CBN", "CNA", "CBNA", "CRA", "CBRA", "CRBA", "CAN", "N", "NA", "BA", "RA",
    "F", "FA", "G", "GH",
];

/// Kinds of convolution: name, filter extent, padding, stride, dilation, groups of 32 channels, dimensions.
const CONVOLUTIONS: [(&str, [usize; 5], usize); 8] = [
    ("1x1", [1, 0, 1, 1, 1], 2),
    ("3x3", [3, 1, 1, 1, 1], 2),
    ("7x7", [7, 3, 1, 1, 1], 2),
    ("strided", [3, 1, 2, 1, 1], 2),
    ("dilated", [3, 2, 1, 2, 1], 2),
    ("grouped", [3, 1, 1, 1, 4], 2),
    ("depthwise", [3, 1, 1, 1, 32], 2),
    ("3-D", [3, 1, 1, 1, 1], 3),
];

const CHANNELS: usize = 32;

fn samples() -> Result<Vec<Sample>, Error> {
    let mut samples = Vec::new();
    for data_type in DataType::ALL {
        for (layout, input, dims) in inputs(data_type)? {
            for operators in SEQUENCES {
                let mut sample =
                    |convolution: Option<(&'static str, [usize; 5], usize)>| -> Result<(), Error> {
                        let problem = plan(operators, input, convolution)?.problem();
                        let convolution = convolution.map(|(name, ..)| name);
                        samples.push(Sample {
                            operators,
                            convolution,
                            data_type,
                            layout: layout.clone(),
                            problem,
                        });
                        Ok(())
                    };
                if !operators.starts_with('C') {
                    sample(None)?;
                    continue;
                }
                for convolution in CONVOLUTIONS.into_iter().filter(|(_, _, d)| *d == dims) {
                    sample(Some(convolution))?;
                }
            }
        }
    }
    Ok(samples)
}

/// One input for each layout, with its number of spatial dimensions.
fn inputs(data_type: DataType) -> Result<Vec<(String, TensorDescriptor, usize)>, DescriptorError> {
    let mut inputs = Vec::new();
    for layout in [TensorLayout::Nchw, TensorLayout::Nhwc, TensorLayout::Ncdhw, TensorLayout::Ndhwc] {
        let lens = &[2, CHANNELS, 8, 8, 8][..layout.rank()];
        let input = TensorDescriptor::with_layout(data_type, layout, lens)?;
        inputs.push((layout.to_string(), input, layout.rank() - 2));
    }
    let strided = TensorDescriptor::new(data_type, &[2, CHANNELS, 8, 8], &[CHANNELS * 80, 80, 10, 1])?;
    inputs.push(("strided".into(), strided, 2));
    Ok(inputs)
}

fn plan(
    operators: &str,
    input: TensorDescriptor,
    convolution: Option<(&'static str, [usize; 5], usize)>,
) -> Result<FusionPlan, Error> {
    let mut plan = FusionPlan::new(FusionDirection::Vertical, input)?;
    for letter in operators.chars() {
        match letter {
            'C' => {
                let (_, [extent, pad, stride, dilation, groups], dims) =
                    convolution.unwrap_or(CONVOLUTIONS[0]);
                let of = |value| vec![value; dims];
                let conv = ConvolutionDescriptor::new(&of(pad), &of(stride), &of(dilation))?;
                let lens = [&[CHANNELS, CHANNELS / groups][..], &of(extent)[..]].concat();
                // Filters are laid out as tensors are; where these are strided, they are packed.
                let weights = match input.layout() {
                    Some(layout) => TensorDescriptor::with_layout(input.data_type(), layout, &lens)?,
                    None => TensorDescriptor::packed(input.data_type(), &lens)?,
                };
                plan.append(ConvForward::new(conv.with_groups(groups)?, weights)).map(drop)
            }
            'B' => plan.append(BiasForward::new()).map(drop),
            'R' => plan.append(BiasForward::residual()).map(drop),
            'N' => plan.append(BatchNormInference::new(BatchNormMode::Spatial)).map(drop),
            'A' => plan.append(ActivationForward::new(ActivationMode::Relu)).map(drop),
            'F' => plan.append(BatchNormForward::new(BatchNormMode::Spatial, true)).map(drop),
            'G' => plan.append(BatchNormBackward::new(BatchNormMode::Spatial)).map(drop),
            _ => plan.append(ActivationBackward::new(ActivationMode::Relu)).map(drop),
        }?;
    }
    Ok(plan)
}

fn row(solver: &dyn Solver, target: &Target, samples: &[Sample]) -> SupportRow {
    let mut row = SupportRow {
        backend: target.info().backend,
        solver: solver.id(),
        algorithm: solver.algorithm(),
        operators: Vec::new(),
        data_types: Vec::new(),
        layouts: Vec::new(),
        convolutions: Vec::new(),
        constraints: solver.constraints().iter().map(|c| (c.property, c.accepts)).collect(),
    };
    for sample in samples.iter().filter(|s| solver.applies(&s.problem, target.info()).is_ok()) {
        add(&mut row.operators, sample.operators);
        add(&mut row.data_types, sample.data_type);
        add(&mut row.layouts, sample.layout.clone());
        if let Some(convolution) = sample.convolution {
            add(&mut row.convolutions, convolution);
        }
    }
    row
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

impl SupportTable {
    /// What the letters of [`SupportRow::operators`] mean.
    pub const LEGEND: &'static str = "C ConvForward, B BiasForward (per channel), R BiasForward (residual), \
        N BatchNormInference, A ActivationForward, F BatchNormForward, G BatchNormBackward, \
        H ActivationBackward. The sequences are samples: after a convolution, and in plans without one, any \
        order and number of B, R, N and A is computed as declared.";

    /// The columns of the table.
    pub const COLUMNS: [&'static str; 7] =
        ["solver", "algorithm", "operators", "data types", "layouts", "convolutions", "constraints"];

    /// The cells of each row, as text.
    pub fn cells(&self) -> impl Iterator<Item = [String; 7]> + '_ {
        self.rows.iter().map(|row| {
            let types: Vec<_> = row.data_types.iter().map(ToString::to_string).collect();
            let constraints: Vec<_> = row.constraints.iter().map(|(p, a)| format!("{p}: {a}")).collect();
            [
                row.solver.to_string(),
                row.algorithm.to_string(),
                row.operators.join(" "),
                types.join(" "),
                row.layouts.join(" "),
                row.convolutions.join(" "),
                constraints.join("; "),
            ]
        })
    }
}

/// The table in Markdown, with its legend.
impl fmt::Display for SupportTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Supported on {}, solvers in the order in which they are tried:\n", self.target)?;
        writeln!(f, "| {} |", Self::COLUMNS.join(" | "))?;
        writeln!(f, "|{}", "---|".repeat(Self::COLUMNS.len()))?;
        for cells in self.cells() {
            writeln!(f, "| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))?;
        }
        write!(f, "\n{}", Self::LEGEND)
    }
}

//! The table of what is supported. It is made by asking the rules: each cell is there because a plan with
//! that property was put to the solver and taken, and the constraints are the solver's own.

use std::fmt;

use fuseplan_api::{
    ActivationMode, Algorithm, BackendError, BatchNormMode, ConvolutionDescriptor, DataType, DescriptorError,
    Problem, Solver, TensorDescriptor, TensorLayout, call,
};

use crate::Error;
use crate::backends;
use crate::operator::{
    ActivationBackward, ActivationForward, BatchNormBackward, BatchNormForward, BatchNormInference,
    BiasForward, ConvForward, PReluForward,
};
use crate::plan::FusionPlan;
use crate::target::Target;

/// A plan that stands for others of its kind: 32 channels, small images, ReLU.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sample {
    /// The sequence of operators; see [`Table::LEGEND`].
    pub operators: &'static str,
    /// The kind of convolution, in plans that have one.
    pub convolution: Option<&'static str>,
    /// The data type of every tensor.
    pub data_type: DataType,
    /// The layout of the input and of filters.
    pub layout: String,
}

/// What one solver takes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// The backend's name.
    pub backend: &'static str,
    /// The solver's id. Solvers are listed in the backend's order of preference.
    pub solver: &'static str,
    /// The solver's algorithm.
    pub algorithm: Algorithm,
    /// Sequences of operators of which some plan is taken; see [`Table::LEGEND`].
    pub operators: Vec<&'static str>,
    /// Data types of which some plan is taken.
    pub data_types: Vec<DataType>,
    /// Data types of which plans are taken only where they allow TF32 products.
    pub tf32: Vec<DataType>,
    /// Layouts of which some plan is taken; `strided` stands for any other positive strides.
    pub layouts: Vec<String>,
    /// Kinds of convolution of which some plan is taken.
    pub convolutions: Vec<&'static str>,
    /// Every constraint that the solver puts on plans: property and what is accepted.
    pub constraints: Vec<(&'static str, &'static str)>,
    /// The samples that are taken.
    pub samples: Vec<Sample>,
}

/// What a backend's solvers take on a device or architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Table {
    /// The device or architecture.
    pub target: String,
    /// One row for each solver, in the backend's order of preference.
    pub rows: Vec<Row>,
    /// The samples that were put to every solver.
    pub samples: Vec<Sample>,
}

impl Table {
    /// The table of a backend's first device on this machine.
    ///
    /// # Errors
    /// Unknown backends, and backends without a device here; for those name an architecture with [`Table::of_target`].
    pub fn of_backend(backend: &str) -> Result<Self, Error> {
        let discovery = backends::discover(backend)?;
        let device = discovery.devices.first().ok_or_else(|| BackendError::Unavailable {
            backend: "fuseplan",
            reason: format!("{backend} has no device on this machine: {}", discovery.notes.join("; ")),
        })?;
        Self::of_target(&Target::new(backend, &device.arch)?)
    }

    /// The table of an architecture.
    ///
    /// # Errors
    /// None of the samples could be described; does not happen.
    pub fn of_target(target: &Target) -> Result<Self, Error> {
        let samples = samples()?;
        let row = |solver: &&'static dyn Solver| call(|| row(*solver, target, &samples));
        let rows = target.backend.solvers().iter().map(row).collect();
        let samples = samples.into_iter().map(|(sample, _)| sample).collect();
        Ok(Table { target: target.to_string(), rows, samples })
    }
}

/// Sequences of operators in the letters of the legend; those with `C` for every kind of convolution.
const SEQUENCES: [&str; 22] = [
    "C", "CB", "CA", "CBA", "CN", "CBN", "CNA", "CBNA", "CRA", "CBRA", "CRBA", "CAN", "CBP", "N", "NA", "BA",
    "P", "RA", "F", "FA", "G", "GH",
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

fn samples() -> Result<Vec<(Sample, Problem)>, Error> {
    let mut samples = Vec::new();
    for data_type in DataType::ALL {
        for (layout, input, dims) in inputs(data_type)? {
            for operators in SEQUENCES {
                let mut sample =
                    |convolution: Option<(&'static str, [usize; 5], usize)>| -> Result<(), Error> {
                        let problem = plan(operators, input, convolution)?.problem();
                        let convolution = convolution.map(|(name, ..)| name);
                        let layout = layout.clone();
                        samples.push((Sample { operators, convolution, data_type, layout }, problem));
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
    for layout in TensorLayout::ALL {
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
    let mut plan = FusionPlan::new(input)?;
    for letter in operators.chars() {
        match letter {
            'C' => {
                let (_, [extent, pad, stride, dilation, groups], dims) =
                    convolution.unwrap_or(CONVOLUTIONS[0]);
                let of = |value| vec![value; dims];
                let conv = ConvolutionDescriptor::of_dims(dims)?.with_pads(of(pad))?;
                let conv = conv.with_strides(of(stride))?.with_dilations(of(dilation))?;
                let lens = [&[CHANNELS, CHANNELS / groups][..], &of(extent)[..]].concat();
                // Filters are laid out as tensors are; where these are strided, they are packed.
                let weights = match input.layout() {
                    Some(_) => input.filters_like(&lens)?,
                    None => TensorDescriptor::packed(input.data_type(), &lens)?,
                };
                plan.append(ConvForward::new(conv.with_groups(groups)?, weights)).map(drop)
            }
            'B' => plan.append(BiasForward::new()).map(drop),
            'P' => plan.append(PReluForward::new()).map(drop),
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

fn row(solver: &dyn Solver, target: &Target, samples: &[(Sample, Problem)]) -> Row {
    let mut row = Row {
        backend: target.info().backend,
        solver: solver.id(),
        algorithm: solver.algorithm(),
        operators: Vec::new(),
        data_types: Vec::new(),
        tf32: Vec::new(),
        layouts: Vec::new(),
        convolutions: Vec::new(),
        constraints: solver.all_constraints().iter().map(|c| (c.property, c.accepts)).collect(),
        samples: Vec::new(),
    };
    for (sample, problem) in
        samples.iter().filter(|(_, problem)| solver.applies(problem, target.info()).is_ok())
    {
        if solver.accuracy(problem) > problem.math.allows() {
            add(&mut row.tf32, sample.data_type);
            continue;
        }
        add(&mut row.data_types, sample.data_type);
        add(&mut row.operators, sample.operators);
        add(&mut row.layouts, sample.layout.clone());
        if let Some(convolution) = sample.convolution {
            add(&mut row.convolutions, convolution);
        }
        row.samples.push(sample.clone());
    }
    row
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

impl Table {
    /// What the letters of [`Row::operators`] mean.
    pub const LEGEND: &'static str = "C ConvForward, B BiasForward (per channel), R BiasForward (residual), \
        P PReluForward, N BatchNormInference, A ActivationForward, F BatchNormForward, G BatchNormBackward, \
        H ActivationBackward. The sequences are samples: after a convolution, and in plans without one, any \
        order and number of B, R, P, N and A is computed as declared.";

    /// The columns of the table.
    pub const COLUMNS: [&'static str; 7] =
        ["solver", "algorithm", "operators", "data types", "layouts", "convolutions", "constraints"];

    /// The cells of each row, as text.
    pub fn cells(&self) -> impl Iterator<Item = [String; 7]> + '_ {
        self.rows.iter().map(|row| {
            let exact = row.data_types.iter().map(ToString::to_string);
            let types: Vec<_> = exact.chain(row.tf32.iter().map(|t| format!("{t}-as-TF32"))).collect();
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

/// The table in Markdown with its legend, then a list of every solver's constraints.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, columns) = Self::COLUMNS.split_last().unwrap_or((&"", &[]));
        writeln!(f, "Supported on {}, solvers in the order in which they are preferred:\n", self.target)?;
        writeln!(f, "| {} |", columns.join(" | "))?;
        writeln!(f, "|{}", "---|".repeat(columns.len()))?;
        for cells in self.cells() {
            let cells = cells.map(|cell| cell.replace('|', "\\|"));
            writeln!(f, "| {} |", cells[..columns.len()].join(" | "))?;
        }
        writeln!(f, "\n{}\n\nWhat each of them can compute:\n", Self::LEGEND)?;
        for row in &self.rows {
            writeln!(f, "- **{}**", row.solver)?;
            for (property, accepts) in &row.constraints {
                writeln!(f, "  - {property}: {accepts}")?;
            }
        }
        Ok(())
    }
}

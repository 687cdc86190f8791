//! A network from a file, with the chains that were found in it and what is in none.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use clap::Args;
use fuseplan::chains::{self, Chain, End, Operation, StepKind};
use fuseplan::device::Target;
use fuseplan::{PlanText, TensorLayout};

use super::graph::{self, Graph, Input};
use super::lower::{self, Form, Lowered};
use super::shapes::Shapes;
use super::tensor::Known;
use super::work;
use crate::bench;
use crate::element::Precision;
use crate::failure::Failure;

/// What an ONNX file leaves open.
#[derive(Debug, Args)]
#[command(next_help_heading = "Of a network")]
pub(crate) struct ShapeFlags {
    /// The lengths of a network's input, such as x=1x3x224x224; without the name where there is one input. Once for each
    #[arg(long, value_name = "NAME=LENGTHS")]
    pub(crate) shape: Vec<String>,
}

/// How a network is to be described.
#[derive(Debug, Args)]
#[command(next_help_heading = "Of a network")]
pub(crate) struct NetworkFlags {
    #[command(flatten)]
    shapes: ShapeFlags,
    /// Number of images; if not given, as the file says, or 1
    #[arg(long, value_name = "INT", value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,
    /// Data type; if not given, the file's
    #[arg(long, value_name = "TYPE")]
    dtype: Option<Precision>,
    /// Layout of images and filters; if not given, NCHW
    #[arg(long, value_name = "LAYOUT", value_parser = bench::layout)]
    layout: Option<TensorLayout>,
}

impl NetworkFlags {
    /// Whether any of them was given.
    pub(crate) fn is_given(&self) -> bool {
        let NetworkFlags { shapes, batch, dtype, layout } = self;
        !shapes.shape.is_empty() || batch.is_some() || dtype.is_some() || layout.is_some()
    }

    /// The network of a file, as these flags describe it.
    pub(crate) fn request<'a>(&'a self, path: &'a Path) -> Request<'a> {
        Request {
            path,
            shapes: &self.shapes.shape,
            batch: self.batch.map(|batch| batch as usize),
            precision: self.dtype,
            layout: self.layout.unwrap_or(TensorLayout::Nchw),
        }
    }
}

/// A network and how it is to be described.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) path: &'a Path,
    pub(crate) shapes: &'a [String],
    /// Images, instead of as many as the file says.
    pub(crate) batch: Option<usize>,
    /// The type of tensors, instead of the file's.
    pub(crate) precision: Option<Precision>,
    pub(crate) layout: TensorLayout,
}

/// A network taken apart.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) path: PathBuf,
    /// Its inputs with their lengths.
    pub(crate) inputs: Vec<String>,
    pub(crate) nodes: usize,
    pub(crate) convolutions: usize,
    /// Fully connected layers.
    pub(crate) layers: usize,
    pub(crate) chains: Vec<Found>,
    pub(crate) rest: Vec<Rest>,
}

/// A chain with what is reported of it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) chain: Chain,
    /// The label of the node that it begins with.
    pub(crate) name: String,
    /// The plan, with the activations' parameters.
    pub(crate) text: PlanText,
    /// Operations of all its nodes.
    pub(crate) flops: f64,
}

/// Nodes that are in no chain, of one operator and for one reason.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) op: String,
    pub(crate) count: usize,
    /// Operations of those whose lengths are known.
    pub(crate) flops: f64,
    /// How many there are whose operations are not known.
    pub(crate) unknown: usize,
    pub(crate) reason: String,
    /// The label of the first.
    pub(crate) first: String,
}

/// The arithmetic of a network, in operations.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    /// In chains of several operators.
    pub(crate) fused: f64,
    /// In convolutions and fully connected layers that nothing is fused with.
    pub(crate) alone: f64,
    /// In no chain.
    pub(crate) rest: f64,
    /// Nodes whose operations are not known.
    pub(crate) unknown: usize,
}

impl Totals {
    pub(crate) fn all(&self) -> f64 {
        self.fused + self.alone + self.rest
    }

    /// A part of all, 0 of nothing.
    pub(crate) fn share(&self, part: f64) -> f64 {
        if self.all() > 0.0 { part / self.all() } else { 0.0 }
    }
}

/// Whether a word names an ONNX file.
pub(crate) fn is_file(word: &str) -> bool {
    Path::new(word).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("onnx"))
}

impl Network {
    /// Reads a file and finds the chains that a device can compute.
    pub(crate) fn read(request: &Request<'_>, target: &Target) -> Result<Self, Failure> {
        let usage = |why: String| Failure::Usage(format!("{}: {why}", request.path.display()));
        let graph = graph::read(request.path).map_err(usage)?;
        let (inputs, notes_hold) = inputs(&graph, request).map_err(usage)?;
        let described = graph.inputs.iter().zip(&inputs).map(|(input, known)| {
            format!("{} {}", graph.values[input.value].name, by(known.dims.as_deref().unwrap_or(&[])))
        });
        let described = described.collect();
        let shapes = Shapes::infer(&graph, inputs, notes_hold);
        let form = Form { data_type: request.precision.map(Precision::data_type), layout: request.layout };
        let lowered = lower::lower(&graph, &shapes, form);
        let found = chains::find(&lowered.nodes, Some(target));
        let apart = Apart { graph: &graph, shapes: &shapes, lowered: &lowered, found: &found };
        let is_convolution = |node: &&graph::Node| node.op == "Conv" || node.op == "ConvTranspose";
        Ok(Network {
            path: request.path.into(),
            inputs: described,
            nodes: graph.nodes.len(),
            convolutions: graph.nodes.iter().filter(is_convolution).count(),
            layers: graph.nodes.iter().filter(|node| lower::is_layer(node, &shapes)).count(),
            rest: apart.rest(),
            chains: apart.chains(),
        })
    }

    /// Of what plans could begin with how much they do, in words.
    pub(crate) fn begun(&self) -> String {
        let begins = |chain: &&Found| matches!(chain.chain.steps[0].kind, StepKind::Linear);
        let layers = self.chains.iter().filter(begins).count();
        let convolutions = format!("{} of {} convolutions", self.chains.len() - layers, self.convolutions);
        match self.layers {
            0 => convolutions,
            all => format!("{convolutions}, {layers} of {all} fully connected layers"),
        }
    }

    /// Where its arithmetic is.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for chain in &self.chains {
            match chain.chain.steps.len() {
                1 => totals.alone += chain.flops,
                _ => totals.fused += chain.flops,
            }
        }
        for rest in &self.rest {
            totals.rest += rest.flops;
            totals.unknown += rest.unknown;
        }
        totals
    }
}

/// Lengths as `1x3x224x224`.
pub(crate) fn by(dims: &[usize]) -> String {
    dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
}

/// What the network is given, in the order of its inputs; and whether all lengths of the file stand.
fn inputs(graph: &Graph, request: &Request<'_>) -> Result<(Vec<Known>, bool), String> {
    let names: Vec<&str> = graph.inputs.iter().map(|input| graph.values[input.value].name.as_str()).collect();
    let mut given = vec![None; names.len()];
    for text in request.shapes {
        let (index, lengths) = match text.rsplit_once('=') {
            Some((name, lengths)) => (names.iter().position(|known| *known == name), lengths),
            None => ((names.len() == 1).then_some(0), text.as_str()),
        };
        let known = || format!("--shape {text}: the network's inputs are {}", names.join(", "));
        let lengths =
            lengths.split('x').map(|length| length.parse().ok().filter(|&length: &usize| length > 0));
        let lengths: Option<Vec<_>> = lengths.collect();
        let lengths = lengths.ok_or_else(|| format!("--shape {text}: accepted: NAME=1x3x224x224"))?;
        given[index.ok_or_else(known)?] = Some(lengths);
    }
    let mut knowns = Vec::new();
    let mut notes_hold = true;
    for ((input, name), given) in graph.inputs.iter().zip(&names).zip(given) {
        let dims = lengths(input, name, given, request.batch)?;
        let file = input.dims.as_deref().unwrap_or(&[]);
        notes_hold &= file.iter().zip(&dims).all(|(file, &length)| file.is_none_or(|file| file == length));
        knowns.push(Known::new(input.elem, dims));
    }
    Ok((knowns, notes_hold))
}

/// The lengths of an input.
fn lengths(
    input: &Input,
    name: &str,
    given: Option<Vec<usize>>,
    batch: Option<usize>,
) -> Result<Vec<usize>, String> {
    let file = input.dims.as_ref();
    if let Some(given) = given {
        return match file {
            Some(file) if file.len() != given.len() => {
                Err(format!("input `{name}` has {} dimensions, --shape gives {}", file.len(), given.len()))
            }
            _ => Ok(given),
        };
    }
    let open = || {
        let length = |length: &Option<usize>| length.map_or("?".into(), |length| length.to_string());
        let have = file.map_or("any".into(), |file| file.iter().map(length).collect::<Vec<_>>().join("x"));
        let example = |(d, length): (usize, &Option<usize>)| length.unwrap_or(if d == 0 { 1 } else { 224 });
        let example =
            file.map_or(vec![1, 3, 224, 224], |file| file.iter().enumerate().map(example).collect());
        format!(
            "input `{name}` has lengths {have}, which the file leaves open; give them, as in --shape {name}={}",
            by(&example)
        )
    };
    let mut lengths = file.ok_or_else(open)?.clone();
    if let Some(first) = lengths.first_mut() {
        *first = batch.or(*first).or(Some(1));
    }
    lengths.into_iter().collect::<Option<Vec<_>>>().ok_or_else(open)
}

/// A graph with the finder's answer.
struct Apart<'a> {
    graph: &'a Graph,
    shapes: &'a Shapes,
    lowered: &'a Lowered,
    found: &'a chains::Found,
}

impl Apart<'_> {
    fn chains(&self) -> Vec<Found> {
        let found = |chain: &Chain| {
            let activations = chain.steps.iter().map(|step| match step.kind {
                StepKind::Activation(activation) => Some(activation),
                _ => None,
            });
            let text = PlanText { plan: chain.plan.clone(), activations: activations.collect() };
            let first = chain.steps.first().map_or("", |step| &self.lowered.nodes[step.node].name);
            let flops = self.covered(chain).into_iter().filter_map(|node| self.flops(node)).sum();
            Found { chain: chain.clone(), name: first.into(), text, flops }
        };
        self.found.chains.iter().map(found).collect()
    }

    fn flops(&self, node: usize) -> Option<f64> {
        work::of(&self.graph.nodes[node], self.shapes)
    }

    /// The nodes of the file that a chain computes.
    fn covered(&self, chain: &Chain) -> HashSet<usize> {
        let mut covered = HashSet::new();
        for step in &chain.steps {
            let nodes = step.within.iter().chain([&step.node]);
            covered.extend(nodes.flat_map(|&node| &self.lowered.of[node]));
        }
        covered
    }

    fn rest(&self) -> Vec<Rest> {
        let covered: HashSet<usize> =
            self.found.chains.iter().flat_map(|chain| self.covered(chain)).collect();
        let mut rest: Vec<Rest> = Vec::new();
        for (place, nodes) in self.lowered.of.iter().enumerate() {
            for &index in nodes.iter().filter(|index| !covered.contains(index)) {
                let node = &self.graph.nodes[index];
                let flops = self.flops(index);
                let reason = self.reason(place, node).replace(&node.label, &node.op);
                let (count, first) = (1, node.label.clone());
                match rest.iter_mut().find(|rest| rest.op == node.op && rest.reason == reason) {
                    Some(rest) => {
                        rest.count += 1;
                        rest.flops += flops.unwrap_or(0.0);
                        rest.unknown += usize::from(flops.is_none());
                    }
                    None => rest.push(Rest {
                        op: node.op.clone(),
                        count,
                        flops: flops.unwrap_or(0.0),
                        unknown: usize::from(flops.is_none()),
                        reason,
                        first,
                    }),
                }
            }
        }
        rest.sort_by(|a, b| b.flops.total_cmp(&a.flops));
        rest
    }

    /// Why a node is in no chain.
    fn reason(&self, place: usize, node: &graph::Node) -> String {
        if let Some(reason) = &self.lowered.reasons[place] {
            return reason.clone();
        }
        let inputs = node.inputs.iter().flatten().chain(node.outputs.iter().flatten());
        for &value in inputs {
            if let Err(unknown) = &self.shapes.0[value].dims {
                return format!("its lengths are not known: at {unknown}");
            }
        }
        if let Some(unfused) = self.found.unfused.iter().find(|unfused| unfused.node == place) {
            return unfused.reason.to_string();
        }
        let lowered = &self.lowered.nodes[place];
        let before = |chain: &&Chain| lowered.inputs.contains(&chain.tail());
        if let Some(chain) = self.found.chains.iter().find(before) {
            return chain.end.to_string();
        }
        match lowered.operation {
            Operation::Other => End::Operator { name: node.label.clone() }.to_string(),
            _ => "no chain leads to it".into(),
        }
    }
}

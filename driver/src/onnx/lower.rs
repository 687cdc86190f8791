//! ONNX's graph as the nodes that the library's finder of chains reads.

use fuseplan::chains::{self, Node, Operation};
use fuseplan::{
    Activation, ConvolutionDescriptor, ConvolutionMode, DataType, TensorDescriptor, TensorLayout,
};

use super::graph::{self, Graph};
use super::idioms::{self, ScaleShift};
use super::shapes::Shapes;
use super::tensor::Known;
use super::window::Window;

/// How tensors are described.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    /// The type of numbers with fractions, if not the file's.
    pub(crate) data_type: Option<DataType>,
    /// Of images, and of filters.
    pub(crate) layout: TensorLayout,
}

/// A graph for the finder.
#[derive(Debug, Default)]
pub(crate) struct Lowered {
    pub(crate) nodes: Vec<Node>,
    /// Of each node, the nodes of ONNX's graph whose work it is.
    pub(crate) of: Vec<Vec<usize>>,
    /// Of each node that could not be what it is called, the reason.
    pub(crate) reasons: Vec<Option<String>>,
}

/// Writes a graph down.
pub(crate) fn lower(graph: &Graph, shapes: &Shapes, form: Form) -> Lowered {
    let plain = with_scaled(graph, shapes, form, &vec![None; graph.nodes.len()], &[]);
    let mut is_inner = vec![false; graph.nodes.len()];
    let mut scaled: Vec<Option<ScaleShift>> = vec![None; graph.nodes.len()];
    // Products inside of an activation are its own.
    let mut is_taken = vec![false; graph.nodes.len()];
    let spelled = chains::spelled_out(&plain.nodes).into_iter().zip(&plain.of);
    spelled
        .filter(|(is_part, _)| *is_part)
        .for_each(|(_, of)| of.iter().for_each(|&node| is_taken[node] = true));
    for index in 0..graph.nodes.len() {
        let Some(found) = idioms::scaled_at(index, graph, shapes) else { continue };
        if found.nodes.iter().any(|&node| is_taken[node]) {
            continue;
        }
        for &inner in found.nodes.iter().filter(|&&inner| inner != index) {
            (scaled[inner], is_inner[inner]) = (None, true);
        }
        scaled[index] = Some(found);
    }
    with_scaled(graph, shapes, form, &scaled, &is_inner)
}

/// Writes a graph down in which nodes are scales and shifts, and others inside of these.
fn with_scaled(
    graph: &Graph,
    shapes: &Shapes,
    form: Form,
    scaled: &[Option<ScaleShift>],
    is_inner: &[bool],
) -> Lowered {
    let places = vec![None; graph.values.len()];
    let mut lowering = Lowering { graph, shapes, form, places, lowered: Lowered::default() };
    for (value, about) in graph.values.iter().enumerate().filter(|(_, value)| value.maker.is_none()) {
        let operation = if shapes.0[value].is_constant { Operation::Constant } else { Operation::Other };
        let node = lowering.put(about.name.clone(), operation, Vec::new(), Some(value), Vec::new());
        lowering.places[value] = Some(node);
    }
    for (index, node) in graph
        .nodes
        .iter()
        .enumerate()
        .filter(|&(index, _)| !is_inner.get(index).is_some_and(|&is_inner| is_inner))
    {
        match &scaled[index] {
            Some(scaled) => lowering.scaled(node, scaled),
            None => lowering.node(index, node),
        }
    }
    lowering.lowered
}

struct Lowering<'a> {
    graph: &'a Graph,
    shapes: &'a Shapes,
    form: Form,
    /// The node that stands for each value.
    places: Vec<Option<usize>>,
    lowered: Lowered,
}

/// What a node is to the finder, on which values.
struct Meaning {
    operation: Operation,
    inputs: Vec<usize>,
}

impl Lowering<'_> {
    fn put(
        &mut self,
        name: String,
        operation: Operation,
        inputs: Vec<usize>,
        value: Option<usize>,
        of: Vec<usize>,
    ) -> usize {
        let lowered = &mut self.lowered;
        let about = value.map(|value| (&self.shapes.0[value], self.graph.values[value].is_result));
        let (descriptor, is_result) = match about {
            Some((known, is_result)) => (describe(known, self.form), is_result),
            None => (None, false),
        };
        lowered.nodes.push(Node { name, operation, inputs, value: descriptor, is_result });
        lowered.of.push(of);
        lowered.reasons.push(None);
        lowered.nodes.len() - 1
    }

    /// The nodes that stand for values.
    fn places(&self, values: &[usize]) -> Vec<usize> {
        values.iter().filter_map(|&value| self.places[value]).collect()
    }

    fn node(&mut self, index: usize, node: &graph::Node) {
        let all: Vec<usize> = node.inputs.iter().copied().flatten().collect();
        let is_constant = node.outputs.iter().flatten().all(|&value| self.shapes.0[value].is_constant);
        let (meaning, reason) = if is_constant {
            (Operation::Constant.of(&[]), None)
        } else if is_identity(node) && node.input(0).is_some() {
            return self.same(node);
        } else {
            match meaning(node, self.shapes) {
                Ok(meaning) => (meaning.unwrap_or(Operation::Other.of(&all)), None),
                Err(reason) => (Operation::Other.of(&all), Some(reason)),
            }
        };
        let of = if is_constant { Vec::new() } else { vec![index] };
        let mut inputs = self.places(&meaning.inputs);
        inputs.extend(self.captured(index, &all));
        if matches!(meaning.operation, Operation::Add | Operation::PRelu | Operation::Convolution(_)) {
            self.line_up(node, &mut inputs);
        }
        if meaning.operation == Operation::Linear {
            self.matrix(node, &mut inputs);
        }
        let first = self.put(node.label.clone(), meaning.operation, inputs, node.output(), of);
        self.lowered.reasons[first] = reason;
        for (number, &output) in node.outputs.iter().enumerate() {
            let Some(value) = output else { continue };
            self.places[value] = Some(match number {
                0 => first,
                // The node is one reader of what it reads, however many values it makes.
                _ if is_constant => {
                    self.put(node.label.clone(), Operation::Constant, Vec::new(), output, Vec::new())
                }
                _ => self.put(node.label.clone(), Operation::Other, vec![first], output, Vec::new()),
            });
        }
    }

    /// A scale and shift, as the batch-norm that it is.
    fn scaled(&mut self, node: &graph::Node, scaled: &ScaleShift) {
        let known = &self.shapes.0[scaled.scale];
        let list =
            Known { dims: Ok(vec![scaled.channels]), is_constant: true, numbers: None, elem: known.elem };
        let value = describe(&list, self.form);
        let mut inputs = self.places(&[scaled.of]);
        for name in ["scale", "shift", "mean", "variance"] {
            let name = format!("{name} of {}", node.label);
            let place = self.put(name, Operation::Constant, Vec::new(), None, Vec::new());
            self.lowered.nodes[place].value = value;
            inputs.push(place);
        }
        let operation = Operation::BatchNorm { epsilon: 0.0 };
        let place = self.put(node.label.clone(), operation, inputs, node.output(), scaled.nodes.clone());
        if let Some(value) = node.output() {
            self.places[value] = Some(place);
        }
    }

    /// A node that hands its input on: both values are one.
    fn same(&mut self, node: &graph::Node) {
        let Some(place) = node.input(0).and_then(|value| self.places[value]) else { return };
        for &value in node.outputs.iter().flatten() {
            self.places[value] = Some(place);
            self.lowered.nodes[place].is_result |= self.graph.values[value].is_result;
        }
    }

    /// The nodes whose values a node reads in graphs of its own.
    fn captured(&self, index: usize, read: &[usize]) -> Vec<usize> {
        if !self.graph.nodes[index].has_graphs() {
            return Vec::new();
        }
        let values = self.graph.values.iter().enumerate();
        let captured =
            values.filter(|(value, about)| about.readers.contains(&index) && !read.contains(value));
        captured.filter_map(|(value, _)| self.places[value]).collect()
    }

    /// The matrix of a layer as the finder has it, `[outputs, features]`, where the file has it otherwise: it is a constant, which
    /// is brought into any order before the first execution.
    fn matrix(&mut self, node: &graph::Node, inputs: &mut [usize]) {
        let Some(value) = node.input(1).filter(|_| node.int("transB", 0) == 0) else { return };
        let mut known = self.shapes.0[value].clone();
        known.dims.iter_mut().for_each(|dims| dims.reverse());
        let mut copy = self.lowered.nodes[inputs[1]].clone();
        copy.value = describe(&known, self.form);
        inputs[1] = self.lowered.nodes.len();
        self.lowered.nodes.push(copy);
        self.lowered.of.push(Vec::new());
        self.lowered.reasons.push(None);
    }

    /// Operands as the finder lines them up: by the last dimension, and images of one dimension as rows.
    fn line_up(&mut self, node: &graph::Node, inputs: &mut [usize]) {
        let dims =
            |value: Option<usize>| value.and_then(|value| self.shapes.dims(value)).map(<[usize]>::to_vec);
        let Some(rank) = dims(node.output()).map(|dims| dims.len()) else { return };
        let is_filters = matches!(node.op.as_str(), "Conv" | "ConvTranspose");
        let operands = if is_filters { 1..2 } else { 0..2 };
        for index in operands {
            let (Some(mut seen), Some(&place)) = (dims(node.input(index)), inputs.get(index)) else {
                continue;
            };
            if self.lowered.nodes[place].operation != Operation::Constant {
                continue;
            }
            let own = seen.clone();
            // Version 6 and older line up the second operand by a dimension that they name.
            if index == 1 && !is_filters && node.int("broadcast", 0) != 0 {
                let axis = usize::try_from(node.int("axis", 0)).ok().filter(|_| node.has("axis"));
                let behind = axis.and_then(|axis| rank.checked_sub(own.len() + axis));
                seen.extend(vec![1; behind.unwrap_or(0)]);
            }
            if rank == 3 && seen.len() > 1 {
                seen.insert(seen.len() - 1, 1);
            }
            if seen != own {
                let known =
                    node.input(index).map(|value| Known { dims: Ok(seen), ..self.shapes.0[value].clone() });
                let mut copy = self.lowered.nodes[place].clone();
                copy.value = known.and_then(|known| describe(&known, self.form));
                inputs[index] = self.lowered.nodes.len();
                self.lowered.nodes.push(copy);
                self.lowered.of.push(Vec::new());
                self.lowered.reasons.push(None);
            }
        }
    }
}

trait Of {
    /// The operation on values.
    fn of(self, inputs: &[usize]) -> Meaning;
}

impl Of for Operation {
    fn of(self, inputs: &[usize]) -> Meaning {
        Meaning { operation: self, inputs: inputs.to_vec() }
    }
}

/// Whether inference gets out what went in.
fn is_identity(node: &graph::Node) -> bool {
    match node.op.as_str() {
        "Identity" => true,
        // Training mode is the third input since version 12, and an attribute before.
        "Dropout" => node.input(2).is_none() && node.int("is_test", 1) != 0,
        _ => false,
    }
}

/// What the finder knows a node as; `None` where it knows nothing like it, a reason where it nearly does.
fn meaning(node: &graph::Node, shapes: &Shapes) -> Result<Option<Meaning>, String> {
    let Some(x) = node.input(0) else { return Ok(None) };
    let inputs: Vec<usize> = node.inputs.iter().copied().flatten().collect();
    let is_whole = inputs.len() == node.inputs.len();
    if let Some((x, scale, shift)) = idioms::affine(node, shapes) {
        return Ok(Some(Operation::Affine { scale, shift }.of(&[x])));
    }
    Ok(Some(match node.op.as_str() {
        "Gemm" | "MatMul" if is_layer(node, shapes) => Operation::Linear.of(&inputs),
        "Max" if is_whole && inputs.len() == 2 => Operation::Maximum.of(&inputs),
        "Erf" => Operation::Erf.of(&[x]),
        "Pow" if inputs.len() == 2 && shapes.0[inputs[1]].scalar() == Some(3.0) => Operation::Cube.of(&[x]),
        "Conv" | "ConvTranspose" if is_whole || node.inputs.len() == 3 => {
            let Some(w) = node.input(1) else { return Ok(None) };
            Operation::Convolution(convolution(node, x, w, shapes)?).of(&inputs)
        }
        "BatchNormalization" if inputs.len() == 5 => {
            if node.int("training_mode", 0) != 0 || node.int("spatial", 1) == 0 {
                return Err(format!("{}: it is not one of given statistics for each channel", node.label));
            }
            Operation::BatchNorm { epsilon: node.float("epsilon", 1e-5) }.of(&inputs)
        }
        "Add" | "Sum" if is_whole && inputs.len() == 2 => Operation::Add.of(&inputs),
        "Mul" if is_whole && inputs.len() == 2 => Operation::Multiply.of(&inputs),
        "PRelu" if is_whole && inputs.len() == 2 => match idioms::per_channel(x, inputs[1], shapes) {
            Some(_) => Operation::PRelu.of(&inputs),
            None => {
                let accepted = "a constant of one slope a channel, or of one";
                return Err(format!("{}: its slopes are others; accepted: {accepted}", node.label));
            }
        },
        _ => match activation(node, shapes)? {
            Some(activation) => Operation::Activation(activation).of(&[x]),
            None => return Ok(None),
        },
    }))
}

/// Whether a node is a fully connected layer: a product with a constant matrix.
pub(crate) fn is_layer(node: &graph::Node, shapes: &Shapes) -> bool {
    let is_matrix =
        |value: usize| shapes.0[value].is_constant && shapes.dims(value).is_some_and(|dims| dims.len() == 2);
    let is_plain =
        node.float("alpha", 1.0) == 1.0 && node.float("beta", 1.0) == 1.0 && node.int("transA", 0) == 0;
    matches!(node.op.as_str(), "Gemm" | "MatMul")
        && is_plain
        && node.input(0).is_some_and(|x| !shapes.0[x].is_constant)
        && node.input(1).is_some_and(is_matrix)
}

fn convolution(
    node: &graph::Node,
    x: usize,
    w: usize,
    shapes: &Shapes,
) -> Result<ConvolutionDescriptor, String> {
    let unknown = |value: usize| match &shapes.0[value].dims {
        Ok(dims) => Ok(dims.as_slice()),
        Err(unknown) => Err(format!("its lengths are not known: at {unknown}")),
    };
    let (input, filters) = (unknown(x)?, unknown(w)?);
    let window = Window::of_convolution(node, input, filters).map_err(|miss| match miss {
        super::shapes::Miss::Here(why) => why,
        super::shapes::Miss::Behind(unknown) => unknown.to_string(),
    })?;
    let pads = |list: &[i64]| list.iter().map(|&pad| usize::try_from(pad)).collect::<Result<Vec<_>, _>>();
    let (Ok(before), Ok(behind)) = (pads(&window.before), pads(&window.behind)) else {
        return Err(format!("its padding cuts off: {:?} and {:?}", window.before, window.behind));
    };
    // One image dimension is described as rows of which there is one.
    let rows = |list: Vec<usize>, row: usize| if list.len() == 1 { vec![row, list[0]] } else { list };
    let groups = usize::try_from(node.int("group", 1)).unwrap_or(0);
    let made = ConvolutionDescriptor::of_dims(window.taps.len().max(2))
        .and_then(|conv| conv.with_asymmetric_pads(rows(before, 0), rows(behind, 0)))
        .and_then(|conv| conv.with_strides(rows(window.strides, 1)))
        .and_then(|conv| conv.with_dilations(rows(window.dilations, 1)))
        .and_then(|conv| conv.with_groups(groups));
    let conv = made.map_err(|error| error.to_string())?;
    Ok(if node.op == "ConvTranspose" { conv.with_mode(ConvolutionMode::Transpose) } else { conv })
}

/// The activation that a node is; a reason where it is one with parameters that plans do not have.
fn activation(node: &graph::Node, shapes: &Shapes) -> Result<Option<Activation>, String> {
    let near = |number: f64, to: f64| (number - to).abs() <= 1e-3;
    let refused = |what: String, accepted: &str| Err(format!("{}: {what}; accepted: {accepted}", node.label));
    Ok(Some(match node.op.as_str() {
        "Relu" => Activation::Relu,
        "LeakyRelu" => Activation::LeakyRelu { slope: node.float("alpha", 0.01) },
        "Clip" => match idioms::bounds(node, shapes) {
            Some((Some(0.0), None)) => Activation::Relu,
            Some((Some(0.0), Some(max))) => Activation::ClippedRelu { max },
            Some((Some(min), Some(max))) => Activation::Clamp { min, max },
            Some((min, max)) => {
                let largest = f64::from(f32::MAX);
                Activation::Clamp { min: min.unwrap_or(-largest), max: max.unwrap_or(largest) }
            }
            None => return refused("its bounds are computed".into(), "constant ones"),
        },
        "Sigmoid" => Activation::Logistic,
        "Tanh" => Activation::Tanh { alpha: 1.0, beta: 1.0 },
        "Elu" => Activation::Elu { alpha: node.float("alpha", 1.0) },
        "Softplus" => Activation::SoftRelu,
        "Abs" => Activation::Abs,
        "HardSwish" => Activation::HardSwish,
        "HardSigmoid" => match (node.float("alpha", 0.2), node.float("beta", 0.5)) {
            (alpha, beta) if near(alpha, 1.0 / 6.0) && near(beta, 0.5) => Activation::HardSigmoid,
            (alpha, beta) => {
                return refused(format!("alpha is {alpha:.4} and beta {beta:.4}"), "1/6 and 1/2");
            }
        },
        "Gelu" | "com.microsoft.Gelu" => match node.word("approximate") {
            "tanh" => Activation::GeluTanh,
            _ => Activation::Gelu,
        },
        "com.microsoft.FastGelu" if node.input(1).is_none() => Activation::GeluTanh,
        "Swish" => match node.float("alpha", 1.0) {
            1.0 => Activation::Silu,
            alpha => return refused(format!("alpha is {alpha}"), "1"),
        },
        "Mish" => Activation::Mish,
        _ => return Ok(None),
    }))
}

/// The tensor that a value is, if plans could have such a one.
fn describe(known: &Known, form: Form) -> Option<TensorDescriptor> {
    let dims = known.dims.as_deref().ok()?;
    let own = known.elem.data_type()?;
    let data_type = match form.data_type {
        Some(asked) if [DataType::Float, DataType::Half, DataType::BFloat16].contains(&own) => asked,
        _ => own,
    };
    let dims = match *dims {
        [] => vec![1],
        // An image of one dimension is one of one row.
        [n, c, length] if !known.is_constant => vec![n, c, 1, length],
        ref dims => dims.to_vec(),
    };
    let layouts = TensorLayout::of_rank(dims.len());
    let is_last = form.layout == TensorLayout::Nhwc;
    match layouts.get(usize::from(is_last)) {
        Some(&layout) => TensorDescriptor::with_layout(data_type, layout, &dims).ok(),
        None => TensorDescriptor::packed(data_type, &dims).ok(),
    }
}

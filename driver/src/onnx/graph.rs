//! An ONNX file read: nodes whose inputs and outputs are numbers of values, constants with their contents.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use prost::Message;
use prost::bytes::Bytes;

use super::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use super::tensor::{Elem, Known, Numbers};

/// A graph of operators, each behind those whose values it reads.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) values: Vec<Value>,
    pub(crate) nodes: Vec<Node>,
    /// What the caller of the network gives, with its shape as the file has it.
    pub(crate) inputs: Vec<Input>,
}

/// What a node makes, or the network is given.
#[derive(Debug, Default)]
pub(crate) struct Value {
    pub(crate) name: String,
    /// The node that makes it.
    pub(crate) maker: Option<usize>,
    /// The nodes that read it, once for each time, those whose subgraphs do included.
    pub(crate) readers: Vec<usize>,
    pub(crate) is_result: bool,
    /// The file's constant of this name.
    pub(crate) initializer: Option<Known>,
    /// Type and lengths as the file notes them, where all are numbers.
    pub(crate) noted: Option<(Elem, Vec<usize>)>,
}

/// What the network is given.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) value: usize,
    pub(crate) elem: Elem,
    /// Its lengths, `None` those that are known at run time only; none where the file does not even say how many.
    pub(crate) dims: Option<Vec<Option<usize>>>,
}

/// An operator.
#[derive(Debug)]
pub(crate) struct Node {
    /// The operator's name, with the domain in front where that is not ONNX's own.
    pub(crate) op: String,
    /// The operator's name and the node's own.
    pub(crate) label: String,
    /// The values that it reads; `None` where an optional one is left out.
    pub(crate) inputs: Vec<Option<usize>>,
    /// The values that it makes; `None` where nobody wants one.
    pub(crate) outputs: Vec<Option<usize>>,
    attributes: HashMap<String, AttributeProto>,
}

impl Node {
    /// Whether it has this attribute.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.attributes.contains_key(name)
    }

    /// An attribute that is a number.
    pub(crate) fn int(&self, name: &str, default: i64) -> i64 {
        self.attributes.get(name).map_or(default, |attribute| attribute.i)
    }

    /// An attribute that is a number with a fraction.
    pub(crate) fn float(&self, name: &str, default: f64) -> f64 {
        self.attributes.get(name).map_or(default, |attribute| attribute.f.into())
    }

    /// An attribute that is a list of numbers.
    pub(crate) fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attributes.get(name).map(|attribute| attribute.ints.as_slice())
    }

    /// An attribute that is a list of numbers with fractions.
    pub(crate) fn floats(&self, name: &str) -> Option<&[f32]> {
        self.attributes.get(name).map(|attribute| attribute.floats.as_slice())
    }

    /// An attribute that is a word; empty where there is none.
    pub(crate) fn word(&self, name: &str) -> &str {
        let word = self.attributes.get(name).and_then(|attribute| str::from_utf8(&attribute.s).ok());
        word.unwrap_or_default()
    }

    /// An attribute that is a tensor.
    pub(crate) fn tensor(&self, name: &str) -> Option<Result<Known, String>> {
        self.attributes.get(name)?.t.as_ref().map(constant)
    }

    /// The value that it reads at a place, if it reads one there.
    pub(crate) fn input(&self, index: usize) -> Option<usize> {
        self.inputs.get(index).copied().flatten()
    }

    /// The value that it makes first.
    pub(crate) fn output(&self) -> Option<usize> {
        self.outputs.first().copied().flatten()
    }

    /// Whether some of its work is a graph of its own: branches and loops.
    pub(crate) fn has_graphs(&self) -> bool {
        self.attributes.values().any(|attribute| attribute.g.is_some() || !attribute.graphs.is_empty())
    }
}

/// The graph in a file.
///
/// # Errors
/// A file that cannot be read, or is no ONNX model that makes sense: what is wrong.
pub(crate) fn read(path: &Path) -> Result<Graph, String> {
    let bytes = fs::read(path).map_err(|error| format!("it cannot be read: {error}"))?;
    parse(bytes)
}

/// The graph in the bytes of a file.
///
/// # Errors
/// As of [`read`].
pub(crate) fn parse(bytes: Vec<u8>) -> Result<Graph, String> {
    let model = ModelProto::decode(Bytes::from(bytes)).map_err(|error| format!("no ONNX model: {error}"))?;
    let graph = model.graph.ok_or("no ONNX model: it has no graph")?;
    if graph.node.is_empty() {
        return Err("no ONNX model: its graph has no node".into());
    }
    Reader::default().graph(graph)
}

#[derive(Default)]
struct Reader {
    graph: Graph,
    names: HashMap<String, usize>,
}

impl Reader {
    fn graph(mut self, proto: GraphProto) -> Result<Graph, String> {
        for tensor in &proto.initializer {
            let value = self.make(&tensor.name, None)?;
            let known = constant(tensor).map_err(|why| format!("constant `{}`: {why}", tensor.name))?;
            self.graph.values[value].initializer = Some(known);
        }
        // Older files list their constants among the inputs.
        for input in &proto.input {
            if self.names.contains_key(&input.name) {
                continue;
            }
            let value = self.make(&input.name, None)?;
            let (elem, dims) = noted(input).map_err(|why| format!("input `{}`: {why}", input.name))?;
            self.graph.inputs.push(Input { value, elem, dims });
        }
        for node in proto.node {
            self.node(node)?;
        }
        for output in &proto.output {
            let Some(&value) = self.names.get(&output.name) else {
                return Err(format!("result `{}` is made by no node", output.name));
            };
            self.graph.values[value].is_result = true;
        }
        for info in proto.value_info.iter().chain(&proto.output) {
            let (Some(&value), Ok((elem, Some(dims)))) = (self.names.get(&info.name), noted(info)) else {
                continue;
            };
            let dims: Option<Vec<_>> = dims.into_iter().collect();
            self.graph.values[value].noted = dims.map(|dims| (elem, dims));
        }
        Ok(self.graph)
    }

    /// A value of this name, which there must not be yet.
    fn make(&mut self, name: &str, maker: Option<usize>) -> Result<usize, String> {
        let value = self.graph.values.len();
        if self.names.insert(name.into(), value).is_some() {
            return Err(format!("the value `{name}` is made twice"));
        }
        self.graph.values.push(Value { name: name.into(), maker, ..Value::default() });
        Ok(value)
    }

    fn node(&mut self, proto: NodeProto) -> Result<(), String> {
        let index = self.graph.nodes.len();
        let op = match proto.domain.as_str() {
            "" | "ai.onnx" => proto.op_type,
            domain => format!("{domain}.{}", proto.op_type),
        };
        let output = proto.output.first().map_or("", String::as_str);
        let name = if proto.name.is_empty() { output } else { &proto.name };
        // Most exporters have the operator in the name.
        let label = if name.contains(&op) { name.to_string() } else { format!("{op} {name}") };
        let mut inputs = Vec::new();
        for name in &proto.input {
            let value =
                match name.as_str() {
                    "" => None,
                    name => {
                        let value = self.names.get(name).copied();
                        Some(value.ok_or_else(|| {
                            format!("{label} reads `{name}`, which no node before it makes")
                        })?)
                    }
                };
            inputs.push(value);
        }
        let graphs = proto.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs));
        let mut captured = Vec::new();
        graphs.for_each(|graph| self.captured(graph, &mut captured));
        for &value in inputs.iter().flatten().chain(&captured) {
            self.graph.values[value].readers.push(index);
        }
        let mut outputs = Vec::new();
        for name in &proto.output {
            outputs.push(match name.as_str() {
                "" => None,
                name => Some(self.make(name, Some(index))?),
            });
        }
        let attributes = proto.attribute.into_iter().map(|attribute| (attribute.name.clone(), attribute));
        self.graph.nodes.push(Node { op, label, inputs, outputs, attributes: attributes.collect() });
        Ok(())
    }

    /// The values of this graph that a node's own graph reads.
    fn captured(&self, graph: &GraphProto, found: &mut Vec<usize>) {
        for node in &graph.node {
            found.extend(node.input.iter().filter_map(|name| self.names.get(name)));
            let graphs =
                node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs));
            graphs.for_each(|graph| self.captured(graph, found));
        }
    }
}

type Noted = (Elem, Option<Vec<Option<usize>>>);

/// Type and lengths as the file has them.
fn noted(info: &ValueInfoProto) -> Result<Noted, String> {
    let Some(tensor) = info.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref()) else {
        return Ok((Elem::NONE, None));
    };
    let length = |value: Option<i64>| match value {
        // What is known at run time only; some exporters write -1 or 0.
        None | Some(-1 | 0) => Ok(None),
        Some(value) => usize::try_from(value).map(Some).map_err(|_| format!("its length is {value}")),
    };
    let dims = tensor.shape.as_ref().map(|shape| {
        shape.dim.iter().map(|dimension| length(dimension.dim_value)).collect::<Result<Vec<_>, _>>()
    });
    Ok((Elem(tensor.elem_type), dims.transpose()?))
}

/// The most elements of a constant whose contents are looked at: shapes, factors, bounds.
const CONTENTS: usize = 1024;

/// A constant with its shape and, where it is small, its contents.
fn constant(tensor: &TensorProto) -> Result<Known, String> {
    let dims = tensor.dims.iter().map(|&length| usize::try_from(length));
    let dims: Vec<_> =
        dims.collect::<Result<_, _>>().map_err(|_| format!("its lengths are {:?}", tensor.dims))?;
    let elem = Elem(tensor.data_type);
    let count = dims.iter().try_fold(1usize, |count, &length| count.checked_mul(length));
    let Some(count) = count else { return Err(format!("its lengths are {dims:?}, which no memory has")) };
    let numbers = if count <= CONTENTS { contents(tensor, elem, count) } else { None };
    Ok(Known { elem, dims: Ok(dims), numbers, is_constant: true })
}

/// The numbers of a small constant; none of one that lies in another file, or whose type has none.
fn contents(tensor: &TensorProto, elem: Elem, count: usize) -> Option<Numbers> {
    let raw = &tensor.raw_data;
    macro_rules! words {
        ($kind:ty) => {
            raw.chunks_exact(size_of::<$kind>()).map(|word| {
                let mut bytes = [0; size_of::<$kind>()];
                bytes.copy_from_slice(word);
                <$kind>::from_le_bytes(bytes)
            })
        };
    }
    let is_raw = !raw.is_empty();
    let numbers = match elem {
        Elem::F32 if is_raw => Numbers::Floats(words!(f32).map(f64::from).collect()),
        Elem::F32 => Numbers::Floats(tensor.float_data.iter().copied().map(f64::from).collect()),
        Elem::F64 if is_raw => Numbers::Floats(words!(f64).collect()),
        Elem::F64 => Numbers::Floats(tensor.double_data.clone()),
        Elem::F16 | Elem::BF16 => {
            let bits: Vec<u16> = match is_raw {
                true => words!(u16).collect(),
                false => tensor.int32_data.iter().map(|&bits| bits as u16).collect(),
            };
            let wide = |bits: u16| match elem {
                Elem::F16 => half::f16::from_bits(bits).to_f64(),
                _ => half::bf16::from_bits(bits).to_f64(),
            };
            Numbers::Floats(bits.into_iter().map(wide).collect())
        }
        Elem::I64 if is_raw => Numbers::Ints(words!(i64).collect()),
        Elem::I64 => Numbers::Ints(tensor.int64_data.clone()),
        Elem::I32 if is_raw => Numbers::Ints(words!(i32).map(i64::from).collect()),
        Elem::BOOL if is_raw => Numbers::Ints(raw.iter().map(|&byte| byte.into()).collect()),
        Elem::I32 | Elem::BOOL => Numbers::Ints(tensor.int32_data.iter().copied().map(i64::from).collect()),
        _ => return None,
    };
    (numbers.len() == count).then_some(numbers)
}

//! Lengths against those that the package `onnx` notes, lowering, and files that are damaged.

use std::fs;
use std::path::PathBuf;

use fuseplan::chains::{self, Operation, StepKind};
use fuseplan::{Activation, TensorLayout};
use prost::Message;

use super::graph::{self, Graph};
use super::lower::{self, Form, Lowered};
use super::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, TensorTypeProto,
    TypeProto, ValueInfoProto,
};
use super::shapes::Shapes;
use super::tensor::{Elem, Known};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/onnx").join(name)
}

fn inferred(graph: &Graph) -> Shapes {
    let inputs = graph.inputs.iter().map(|input| {
        let dims = input.dims.as_ref().unwrap().iter().map(|length| length.unwrap_or(1));
        Known::new(input.elem, dims.collect())
    });
    Shapes::infer(graph, inputs.collect(), false)
}

fn lowered(graph: &Graph) -> Lowered {
    lower::lower(graph, &inferred(graph), Form { data_type: None, layout: TensorLayout::Nchw })
}

#[test]
fn lengths_are_those_that_the_package_onnx_infers() {
    for (name, least) in [("shapes.onnx", 75), ("mobile.onnx", 20)] {
        let graph = graph::read(&file(name)).unwrap();
        let shapes = inferred(&graph);
        let mut compared = 0;
        for (value, known) in graph.values.iter().zip(&shapes.0) {
            let Some((elem, dims)) = &value.noted else { continue };
            assert_eq!(known.dims.as_ref(), Ok(dims), "{name}: {}", value.name);
            assert_eq!(known.elem, *elem, "{name}: {}", value.name);
            compared += 1;
        }
        assert!(compared >= least, "{name}: {compared}");
        for (value, known) in graph.values.iter().zip(&shapes.0) {
            assert!(known.dims.is_ok(), "{name}: {}: {:?}", value.name, known.dims);
        }
    }
}

#[test]
fn activations_that_are_spelled_out_are_found() {
    let graph = graph::read(&file("mobile.onnx")).unwrap();
    let lowered = lowered(&graph);
    let found = chains::find(&lowered.nodes, None);
    let activations: Vec<_> = found
        .chains
        .iter()
        .map(|chain| match chain.steps.last().unwrap().kind {
            StepKind::Activation(activation) => Some(activation),
            _ => None,
        })
        .collect();
    let relu6 = Activation::ClippedRelu { max: 6.0 };
    let expected = [
        Some(Activation::HardSwish),
        Some(Activation::Silu),
        None,
        Some(Activation::Mish),
        Some(Activation::Gelu),
        Some(relu6),
    ];
    assert_eq!(activations, expected);
    // TensorFlow's padding of an image of 15 x 16 with a stride of 2.
    let StepKind::Convolution(conv) = found.chains[0].steps[0].kind else { panic!() };
    assert_eq!((conv.pads_before(), conv.pads_after()), (&[1, 0][..], &[1, 1][..]));
    // Parameters that plans do not have are a reason.
    let reasons: Vec<_> = lowered.reasons.iter().flatten().collect();
    assert_eq!(reasons, ["HardSigmoid g2: alpha is 0.2000 and beta 0.5000; accepted: 1/6 and 1/2"]);
}

#[test]
fn a_swish_with_a_factor_is_silu_where_the_factor_is_one() {
    for (factor, expected) in [(1.0f32, " -> silu"), (2.0, "")] {
        let nodes = vec![
            node("Conv", &["x", "w"], "c", vec![]),
            node("Mul", &["c", "f"], "m", vec![]),
            node("Sigmoid", &["m"], "s", vec![]),
            node("Mul", &["c", "s"], "y", vec![]),
        ];
        let factor = TensorProto { float_data: vec![factor], ..constant("f", &[1]) };
        let graph = graph_of(nodes, &[2, 6, 9, 4], vec![constant("w", &[4, 6, 1, 1]), factor], "y").unwrap();
        let found = chains::find(&lowered(&graph).nodes, None);
        assert_eq!(found.chains[0].plan.to_string().split_once(" 1x1").unwrap().1, expected);
    }
}

#[test]
fn idioms_whose_inner_values_are_wanted_stay_as_they_are() {
    let bytes = fs::read(file("mobile.onnx")).unwrap();
    let mut model = ModelProto::decode(bytes.as_slice()).unwrap();
    let output = ValueInfoProto { name: "h2".into(), ..ValueInfoProto::default() };
    model.graph.as_mut().unwrap().output.push(output);
    let graph = graph::parse(model.encode_to_vec()).unwrap();
    let lowered = lowered(&graph);
    let hard_swish = Operation::Activation(Activation::HardSwish);
    assert!(lowered.nodes.iter().all(|node| node.operation != hard_swish));
}

/// What the finder makes of a convolution, a product and a sum with constants of these lengths, and a ReLU.
fn scaled(scale: &[i64], shift: &[i64]) -> String {
    let nodes = vec![
        node("Conv", &["x", "w"], "c", vec![]),
        node("Mul", &["s", "c"], "m", vec![]),
        node("Add", &["m", "b"], "a", vec![]),
        node("Relu", &["a"], "y", vec![]),
    ];
    let constants = vec![constant("w", &[4, 6, 1, 1]), constant("s", scale), constant("b", shift)];
    let graph = graph_of(nodes, &[2, 6, 9, 4], constants, "y").unwrap();
    let found = chains::find(&lowered(&graph).nodes, None);
    found.chains[0].plan.to_string().split_once(" 1x1").unwrap().1.to_string()
}

#[test]
fn a_factor_and_a_summand_for_each_channel_are_a_batch_norm() {
    for (scale, shift) in [(&[4, 1, 1][..], &[4, 1, 1][..]), (&[1], &[]), (&[1, 4, 1, 1], &[1])] {
        assert_eq!(scaled(scale, shift), " -> batch-norm spatial -> relu", "{scale:?} {shift:?}");
    }
    // Four values are lined up with the four columns of an image, and a plane's worth with a plane.
    for (scale, shift) in [(&[4][..], &[1][..]), (&[9, 4], &[1])] {
        assert_eq!(scaled(scale, shift), "", "{scale:?}");
    }
    // What is added is nothing for each channel, but what it is added to is.
    assert_eq!(scaled(&[4, 1, 1], &[4]), " -> batch-norm spatial");
}

#[test]
fn slopes_of_channels_are_told_from_slopes_of_columns() {
    let plan = |slope: &[i64]| {
        let nodes = vec![node("Conv", &["x", "w"], "c", vec![]), node("PRelu", &["c", "s"], "y", vec![])];
        let constants = vec![constant("w", &[4, 6, 1, 1]), constant("s", slope)];
        let graph = graph_of(nodes, &[2, 6, 9, 4], constants, "y").unwrap();
        let found = chains::find(&lowered(&graph).nodes, None);
        found.chains[0].plan.to_string().split_once(" 1x1").unwrap().1.to_string()
    };
    assert!(plan(&[4, 1, 1]).starts_with(" -> prelu"), "{}", plan(&[4, 1, 1]));
    assert!(plan(&[1]).starts_with(" -> prelu"), "{}", plan(&[1]));
    assert_eq!(plan(&[4]), "");
}

/// A tensor's type.
fn info(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dim =
        dims.iter().map(|&length| super::proto::DimensionProto { dim_value: Some(length), dim_param: None });
    let shape = Some(TensorShapeProto { dim: dim.collect() });
    let tensor_type = Some(TensorTypeProto { elem_type: Elem::F32.0, shape });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type }) }
}

fn node(op: &str, inputs: &[&str], output: &str, attribute: Vec<AttributeProto>) -> NodeProto {
    NodeProto {
        op_type: op.into(),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: vec![output.into()],
        attribute,
        ..NodeProto::default()
    }
}

fn constant(name: &str, dims: &[i64]) -> TensorProto {
    TensorProto { name: name.into(), dims: dims.to_vec(), data_type: Elem::F32.0, ..TensorProto::default() }
}

fn graph_of(
    nodes: Vec<NodeProto>,
    x: &[i64],
    initializer: Vec<TensorProto>,
    output: &str,
) -> Result<Graph, String> {
    let output = ValueInfoProto { name: output.into(), ..ValueInfoProto::default() };
    let graph = GraphProto {
        node: nodes,
        initializer,
        input: vec![info("x", x)],
        output: vec![output],
        value_info: vec![],
    };
    graph::parse(ModelProto { graph: Some(graph) }.encode_to_vec())
}

#[test]
fn an_image_of_one_dimension_is_one_of_one_row() {
    let nodes = vec![node("Conv", &["x", "w"], "c", vec![]), node("Add", &["c", "b"], "y", vec![])];
    let graph =
        graph_of(nodes, &[2, 6, 9], vec![constant("w", &[4, 6, 3]), constant("b", &[4, 1])], "y").unwrap();
    let found = chains::find(&lowered(&graph).nodes, None);
    assert_eq!(found.chains[0].plan.to_string(), "f32 2x6x1x9 NCHW -> conv 4 1x3 -> bias");
}

#[test]
fn old_versions_line_up_by_the_dimension_that_they_name() {
    let attribute = |name: &str, i| AttributeProto { name: name.into(), i, ..AttributeProto::default() };
    let by = vec![attribute("broadcast", 1), attribute("axis", 1)];
    let nodes = vec![node("Conv", &["x", "w"], "c", vec![]), node("Add", &["c", "b"], "y", by)];
    let graph =
        graph_of(nodes, &[2, 6, 9, 9], vec![constant("w", &[4, 6, 3, 3]), constant("b", &[4])], "y").unwrap();
    let found = chains::find(&lowered(&graph).nodes, None);
    assert_eq!(found.chains[0].plan.to_string(), "f32 2x6x9x9 NCHW -> conv 4 3x3 -> bias");
}

#[test]
fn values_that_another_graph_reads_are_read() {
    let inner = GraphProto { node: vec![node("Neg", &["c"], "n", vec![])], ..GraphProto::default() };
    let branch = AttributeProto { name: "then_branch".into(), g: Some(inner), ..AttributeProto::default() };
    let nodes = vec![
        node("Conv", &["x", "w"], "c", vec![]),
        node("If", &["flag"], "i", vec![branch]),
        node("Relu", &["c"], "y", vec![]),
    ];
    let constants = vec![constant("w", &[4, 6, 3, 3]), constant("flag", &[])];
    let graph = graph_of(nodes, &[2, 6, 9, 9], constants, "y").unwrap();
    let found = chains::find(&lowered(&graph).nodes, None);
    assert_eq!(found.chains[0].end.to_string(), "the value is read 2 times");
}

#[test]
fn lengths_that_are_lost_say_where_first() {
    let nodes = vec![
        node("NonZero", &["x"], "n", vec![]),
        node("NonZero", &["n"], "m", vec![]),
        node("Relu", &["m"], "r", vec![]),
        node("DynamicQuantizeLinear", &["x"], "y", vec![]),
    ];
    let graph = graph_of(nodes, &[2, 6], vec![], "y").unwrap();
    let shapes = inferred(&graph);
    for name in ["n", "m", "r"] {
        let value = graph.values.iter().position(|value| value.name == name).unwrap();
        let unknown = shapes.0[value].dims.as_ref().unwrap_err();
        assert_eq!(unknown.to_string(), "NonZero n: NonZero is an operator of unknown shape here", "{name}");
    }
    assert_eq!(shapes.0.last().unwrap().dims.as_deref(), Ok(&[2, 6][..]));
}

#[test]
fn graphs_that_make_no_sense_are_refused_in_words() {
    let relu = |input: &str, output: &str| node("Relu", &[input], output, vec![]);
    let error = |nodes, output| graph_of(nodes, &[1], vec![], output).unwrap_err();
    assert_eq!(error(vec![relu("z", "y")], "y"), "Relu y reads `z`, which no node before it makes");
    assert_eq!(error(vec![relu("x", "y"), relu("x", "y")], "y"), "the value `y` is made twice");
    assert_eq!(error(vec![relu("x", "y")], "q"), "result `q` is made by no node");
    assert_eq!(error(vec![], "x"), "no ONNX model: its graph has no node");
    assert_eq!(graph::parse(Vec::new()).unwrap_err(), "no ONNX model: it has no graph");
    let negative = graph_of(vec![relu("x", "y")], &[1], vec![constant("w", &[-3])], "y").unwrap_err();
    assert_eq!(negative, "constant `w`: its lengths are [-3]");
}

/// Everything that reads a file, up to the finder.
fn read(bytes: Vec<u8>) {
    let Ok(graph) = graph::parse(bytes) else { return };
    let inputs = graph.inputs.iter().map(|input| {
        let dims = input.dims.iter().flatten().map(|length| length.unwrap_or(1));
        Known::new(input.elem, dims.collect())
    });
    let inputs = inputs.collect();
    let shapes = Shapes::infer(&graph, inputs, true);
    let lowered = lower::lower(&graph, &shapes, Form { data_type: None, layout: TensorLayout::Nhwc });
    let found = chains::find(&lowered.nodes, None);
    let work: f64 = graph.nodes.iter().filter_map(|node| super::work::of(node, &shapes)).sum();
    assert!(found.chains.len() <= graph.nodes.len() && !work.is_nan());
}

#[test]
fn damaged_files_are_errors_and_never_a_panic() {
    let cases: usize = std::env::var("FUSEPLAN_TEST_CASES").map_or(3000, |cases| cases.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(7);
    for name in ["residual.onnx", "mobile.onnx", "lost.onnx", "shapes.onnx"] {
        let bytes = fs::read(file(name)).unwrap();
        for length in (0..bytes.len()).step_by(bytes.len() / 200 + 1) {
            read(bytes[..length].to_vec());
        }
        for _ in 0..cases {
            let mut damaged = bytes.clone();
            for _ in 0..random.usize(1..8) {
                let at = random.usize(..damaged.len());
                match random.u8(..4) {
                    0 => damaged[at] = random.u8(..),
                    1 => damaged[at] ^= 1 << random.u8(..8),
                    2 => drop(damaged.remove(at)),
                    // Large numbers are what lengths overflow with.
                    _ => drop(damaged.splice(at..at, [0xff; 9])),
                }
            }
            read(damaged);
        }
    }
    for _ in 0..cases {
        let length = random.usize(..200);
        read((0..length).map(|_| random.u8(..)).collect());
    }
}

/// Numbers of a model that make sense to the format and to no network: each is put in the place of every number there is.
#[test]
fn absurd_numbers_are_errors_and_never_a_panic() {
    for name in ["shapes.onnx", "mobile.onnx"] {
        let bytes = fs::read(file(name)).unwrap();
        let model = ModelProto::decode(bytes.as_slice()).unwrap();
        for number in [i64::MIN, i64::MIN + 1, -1, 0, 1, 1 << 31, 1 << 62, i64::MAX] {
            let attributes = |model: &mut ModelProto, index: usize| {
                let nodes = &mut model.graph.as_mut().unwrap().node;
                let mut all = nodes.iter_mut().flat_map(|node| &mut node.attribute);
                let Some(attribute) = all.nth(index) else { return false };
                attribute.i = number;
                attribute.ints.fill(number);
                true
            };
            for index in 0.. {
                let mut changed = model.clone();
                if !attributes(&mut changed, index) {
                    break;
                }
                read(changed.encode_to_vec());
            }
            let graph = model.graph.as_ref().unwrap();
            for index in 0..graph.initializer.len() {
                let mut changed = model.clone();
                let tensor = &mut changed.graph.as_mut().unwrap().initializer[index];
                if tensor.data_type == Elem::I64.0 {
                    tensor.raw_data = number.to_le_bytes().repeat(tensor.raw_data.len() / 8).into();
                } else {
                    tensor.dims.fill(number);
                }
                read(changed.encode_to_vec());
            }
            for index in 0..graph.input.len() {
                let mut changed = model.clone();
                let input = &mut changed.graph.as_mut().unwrap().input[index];
                let tensor = input.r#type.as_mut().unwrap().tensor_type.as_mut().unwrap();
                tensor.shape.as_mut().unwrap().dim[0].dim_value = Some(number);
                read(changed.encode_to_vec());
            }
        }
    }
}

/// What nests deeper than any network, or names more bytes than there are.
#[test]
fn nesting_and_lengths_are_bounded() {
    let mut graph = GraphProto::default();
    for _ in 0..200 {
        let attribute = AttributeProto { g: Some(graph), ..AttributeProto::default() };
        graph = GraphProto { node: vec![node("If", &[], "y", vec![attribute])], ..GraphProto::default() };
    }
    let deep = ModelProto { graph: Some(graph) }.encode_to_vec();
    assert!(graph::parse(deep).unwrap_err().contains("recursion limit"));
    // A graph of 2^50 bytes whose constant has 2^48.
    let huge = [
        58, 128, 128, 128, 128, 128, 128, 128, 2, 42, 128, 128, 128, 128, 128, 128, 64, 74, 128, 128, 128,
        128, 128, 64,
    ];
    assert!(graph::parse(huge.to_vec()).unwrap_err().starts_with("no ONNX model"));
    // A field that is skipped, of a negative length.
    let back = [154, 6, 244, 255, 255, 255, 255, 255, 255, 255, 255, 1];
    assert!(graph::parse(back.to_vec()).unwrap_err().starts_with("no ONNX model"));
}

/// What the finder makes of a layer on `x` and what follows, as plans, or why it is none.
fn layers(nodes: Vec<NodeProto>, x: &[i64], constants: Vec<TensorProto>) -> String {
    let graph = graph_of(nodes, x, constants, "y").unwrap();
    let lowered = lowered(&graph);
    let found = chains::find(&lowered.nodes, None);
    let chains = found.chains.iter().map(|chain| chain.plan.to_string());
    let unfused = found.unfused.iter().map(|unfused| unfused.reason.to_string());
    chains.chain(unfused).collect::<Vec<_>>().join("; ")
}

#[test]
fn products_with_constant_matrices_are_fully_connected_layers() {
    let int = |name: &str, i: i64| AttributeProto { name: name.into(), i, ..AttributeProto::default() };
    let float = |name: &str, f: f32| AttributeProto { name: name.into(), f, ..AttributeProto::default() };
    let gemm =
        |attributes| vec![node("Gemm", &["x", "w", "b"], "g", attributes), node("Relu", &["g"], "y", vec![])];
    let constants = |w: &[i64], b: &[i64]| vec![constant("w", w), constant("b", b)];
    let plan = "f32 3x6x1x1 NHWC -> conv 4 1x1 -> bias -> relu";
    for (w, b, attributes) in [
        (&[6, 4][..], &[4][..], vec![]),
        (&[4, 6], &[4], vec![int("transB", 1)]),
        (&[4, 6], &[1, 4], vec![int("transB", 1), float("alpha", 1.0)]),
    ] {
        assert_eq!(layers(gemm(attributes), &[3, 6], constants(w, b)), plan);
    }
    // Another product than that of the rows, and one value a row.
    for attributes in [vec![float("alpha", 2.0)], vec![float("beta", 0.5)]] {
        assert_eq!(layers(gemm(attributes), &[3, 6], constants(&[6, 4], &[4])), "");
    }
    assert_eq!(layers(gemm(vec![int("transA", 1)]), &[6, 3], constants(&[6, 4], &[4])), "");
    let found = layers(gemm(vec![]), &[3, 6], constants(&[6, 4], &[3, 1]));
    assert!(found.ends_with("accepted: a constant of 4 values, one a channel"), "{found}");
    // What transformers have: more dimensions, the bias behind, a sum.
    let mat_mul = |bias: &[i64]| {
        let nodes = vec![
            node("MatMul", &["x", "w"], "m", vec![]),
            node("Add", &["b", "m"], "a", vec![]),
            node("Add", &["a", "x"], "y", vec![]),
        ];
        layers(nodes, &[2, 5, 6], constants(&[6, 6], bias))
    };
    assert_eq!(mat_mul(&[6]), "f32 10x6x1x1 NHWC -> conv 6 1x1 -> bias -> residual");
    assert_eq!(mat_mul(&[5, 1]), "f32 10x6x1x1 NHWC -> conv 6 1x1");
    // Neither is a layer: both factors depend on the input; matrices for each image.
    let nodes = vec![node("MatMul", &["x", "x"], "y", vec![])];
    assert_eq!(layers(nodes, &[4, 4], vec![]), "");
    let nodes = vec![node("MatMul", &["x", "w"], "y", vec![])];
    assert_eq!(layers(nodes, &[2, 5, 6], vec![constant("w", &[2, 6, 4])]), "");
}

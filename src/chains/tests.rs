//! Graphs by hand, and the chains in them.

use fuseplan_api::DataType;

use super::*;

/// A graph that grows node by node; tensors are 1x4x6x6 unless said otherwise.
#[derive(Default)]
struct Builder(Vec<Node>);

impl Builder {
    fn push(&mut self, operation: Operation, inputs: &[usize], lens: &[usize]) -> usize {
        let value = TensorDescriptor::packed(DataType::Float, lens).ok();
        let (name, inputs) = (format!("n{}", self.0.len()), inputs.to_vec());
        self.0.push(Node { name, operation, inputs, value, is_result: false });
        self.0.len() - 1
    }

    fn image(&mut self, operation: Operation, inputs: &[usize]) -> usize {
        self.push(operation, inputs, &[1, 4, 6, 6])
    }

    fn input(&mut self) -> usize {
        self.image(Operation::Other, &[])
    }

    fn vector(&mut self) -> usize {
        self.push(Operation::Constant, &[], &[4])
    }

    fn conv(&mut self, x: usize) -> usize {
        let weights = self.push(Operation::Constant, &[], &[4, 4, 1, 1]);
        self.image(Operation::Convolution(ConvolutionDescriptor::d2()), &[x, weights])
    }

    fn batch_norm(&mut self, x: usize) -> usize {
        let [a, b, c, d] = std::array::from_fn(|_| self.vector());
        self.image(Operation::BatchNorm { epsilon: 1e-3 }, &[x, a, b, c, d])
    }

    fn relu(&mut self, x: usize) -> usize {
        self.image(Operation::Activation(Activation::Relu), &[x])
    }

    fn add(&mut self, a: usize, b: usize) -> usize {
        self.image(Operation::Add, &[a, b])
    }

    /// The chains' nodes, and why each ends, where `result` is the graph's.
    fn find(&mut self, result: usize) -> Vec<(Vec<usize>, String)> {
        self.0[result].is_result = true;
        let found = find(&self.0, None);
        assert!(found.unfused.is_empty());
        let chains = found.chains.iter();
        chains.map(|chain| (chain.steps.iter().map(|s| s.node).collect(), chain.end.to_string())).collect()
    }
}

#[test]
fn a_residual_block_is_two_chains() {
    let mut graph = Builder::default();
    let x = graph.input();
    let first = graph.conv(x);
    let first_norm = graph.batch_norm(first);
    let relu = graph.relu(first_norm);
    let second = graph.conv(relu);
    let second_norm = graph.batch_norm(second);
    let sum = graph.add(second_norm, x);
    let last = graph.relu(sum);
    assert_eq!(
        graph.find(last),
        [
            (vec![first, first_norm, relu], format!("n{second} begins a chain of its own")),
            (vec![second, second_norm, sum, last], "the value is a result of the graph".into()),
        ]
    );
    let found = find(&graph.0, None);
    assert_eq!(
        found.chains[1].steps[2],
        Step { node: sum, kind: StepKind::Residual, operands: vec![x], within: vec![] }
    );
    assert_eq!(found.chains[1].plan.ops().len(), 4);
    assert_eq!(found.chains[1].tail(), last);
}

#[test]
fn a_sum_of_two_chains_is_computed_by_one_of_them() {
    let mut graph = Builder::default();
    let x = graph.input();
    let (a, b) = (graph.conv(x), graph.conv(x));
    let sum = graph.add(a, b);
    assert_eq!(
        graph.find(sum),
        [
            (vec![a, sum], "the value is a result of the graph".into()),
            (vec![b], format!("n{sum} is computed by the chain of its other operand")),
        ]
    );
}

#[test]
fn a_convolution_that_no_plan_takes_begins_no_chain() {
    let mut graph = Builder::default();
    let x = graph.input();
    let first = graph.conv(x);
    let second = graph.conv(first);
    // Plans have no tensor of its weights.
    graph.0[second - 1].value = None;
    let found = find(&graph.0, None);
    assert_eq!(found.chains[0].end, End::Operator { name: format!("n{second}") });
    assert_eq!((found.chains.len(), found.unfused[0].node), (1, second));
}

#[test]
fn a_value_that_is_read_again_has_to_be_written() {
    let mut graph = Builder::default();
    let x = graph.input();
    let conv = graph.conv(x);
    let relu = graph.relu(conv);
    let sum = graph.add(relu, conv);
    assert_eq!(graph.find(sum), [(vec![conv], "the value is read 2 times".into())]);

    let mut graph = Builder::default();
    let x = graph.input();
    let conv = graph.conv(x);
    let doubled = graph.add(conv, conv);
    assert_eq!(graph.find(doubled), [(vec![conv], "the value is read 2 times".into())]);
}

#[test]
fn a_product_with_its_own_sigmoid_is_an_activation() {
    for (gate, expected) in
        [(Activation::Logistic, Activation::Silu), (Activation::HardSigmoid, Activation::HardSwish)]
    {
        let mut graph = Builder::default();
        let x = graph.input();
        let conv = graph.conv(x);
        let sigmoid = graph.image(Operation::Activation(gate), &[conv]);
        let product = graph.image(Operation::Multiply, &[sigmoid, conv]);
        assert_eq!(graph.find(product)[0].0, [conv, product]);
        let found = find(&graph.0, None);
        assert_eq!(found.chains[0].steps[1].kind, StepKind::Activation(expected));
        // Read elsewhere, the gate has to be computed by itself.
        graph.0[sigmoid].is_result = true;
        assert_eq!(graph.find(product)[0].0, [conv]);
    }
}

#[test]
fn prelu_has_one_slope_a_channel_or_one_for_all() {
    for (lens, slopes) in [(&[4][..], 4), (&[1], 1), (&[4, 1, 1], 4), (&[1, 1, 1, 1], 1)] {
        let mut graph = Builder::default();
        let x = graph.input();
        let conv = graph.conv(x);
        let slope = graph.push(Operation::Constant, &[], lens);
        let prelu = graph.image(Operation::PRelu, &[conv, slope]);
        assert_eq!(graph.find(prelu)[0].0, [conv, prelu], "{lens:?}");
        let chain = find(&graph.0, None).chains.remove(0);
        assert_eq!(
            chain.steps[1],
            Step { node: prelu, kind: StepKind::PRelu, operands: vec![slope], within: vec![] }
        );
        let operand = chain.plan.ops()[1].operands(chain.plan.output()).next().unwrap();
        assert_eq!(operand.descriptor.lens(), [1, slopes, 1, 1]);
    }
    for (operation, lens, found) in [
        (Operation::Constant, &[3][..], "3"),
        (Operation::Constant, &[1, 4, 6, 6], "1x4x6x6"),
        (Operation::Other, &[4], "not a constant"),
    ] {
        let mut graph = Builder::default();
        let x = graph.input();
        let conv = graph.conv(x);
        let slope = graph.push(operation, &[], lens);
        let prelu = graph.image(Operation::PRelu, &[conv, slope]);
        let (nodes, end) = graph.find(prelu).remove(0);
        assert_eq!(nodes, [conv]);
        assert!(end.contains(found), "{end}");
        assert!(end.ends_with("accepted: a constant of 4 values, one a channel, or of one"), "{end}");
    }
    // The convolution's result as the slope.
    let mut graph = Builder::default();
    let x = graph.input();
    let conv = graph.conv(x);
    let prelu = graph.image(Operation::PRelu, &[x, conv]);
    assert_eq!(graph.find(prelu), [(vec![conv], format!("n{prelu} is no operator of a plan"))]);
}

#[test]
fn operands_that_no_plan_takes_end_a_chain() {
    let mut graph = Builder::default();
    let x = graph.input();
    let conv = graph.conv(x);
    let gate = graph.push(Operation::Other, &[], &[1, 4, 1, 1]);
    let sum = graph.add(conv, gate);
    let (nodes, end) = graph.find(sum).remove(0);
    assert_eq!(nodes, [conv]);
    assert!(end.ends_with("not a constant; accepted: a constant of 4 values, one a channel"), "{end}");

    let mut graph = Builder::default();
    let x = graph.input();
    let conv = graph.conv(x);
    let shift = graph.push(Operation::Constant, &[], &[1, 4, 1, 1]);
    let sum = graph.add(shift, conv);
    let norm = graph.batch_norm(sum);
    graph.0[norm - 1].value = TensorDescriptor::packed(DataType::Half, &[4]).ok();
    let (nodes, end) = graph.find(norm).remove(0);
    assert_eq!(nodes, [conv, sum]);
    assert!(end.contains("as the scale is"), "{end}");
}

#[test]
fn a_convolution_that_no_plan_takes_is_named_with_the_reason() {
    let mut graph = Builder::default();
    let x = graph.push(Operation::Other, &[], &[1, 4, 6, 6]);
    let w = graph.push(Operation::Constant, &[], &[4, 3, 1, 1]);
    let conv = graph.image(Operation::Convolution(ConvolutionDescriptor::d2()), &[x, w]);
    let found = find(&graph.0, None);
    assert!(found.chains.is_empty());
    assert_eq!(found.unfused[0].node, conv);
    let reason = found.unfused[0].reason.to_string();
    assert!(reason.contains("weights have 3 input channels, the plan's tensor has 4"), "{reason}");
    graph.0[x].value = None;
    assert_eq!(find(&graph.0, None).unfused[0].reason, End::Tensor);
}

/// A vector that is added goes along the last dimension, as in NumPy, and a bias along channels.
#[test]
fn what_is_added_is_lined_up_by_its_last_dimension() {
    for (lens, is_bias) in [(&[4][..], false), (&[4, 1, 1], true), (&[1, 4, 1, 1], true), (&[4, 1], false)] {
        let mut graph = Builder::default();
        let x = graph.input();
        let conv = graph.conv(x);
        let shift = graph.push(Operation::Constant, &[], lens);
        let sum = graph.add(conv, shift);
        assert_eq!(graph.find(sum)[0].0.len(), if is_bias { 2 } else { 1 }, "{lens:?}");
    }
}

#[test]
fn what_is_added_to_one_pixel_is_a_bias_where_it_is_constant() {
    for (operation, kind) in [(Operation::Constant, StepKind::Bias), (Operation::Other, StepKind::Residual)] {
        let mut graph = Builder::default();
        let lens = [1, 4, 1, 1];
        let x = graph.push(Operation::Other, &[], &lens);
        let weights = graph.push(Operation::Constant, &[], &[4, 4, 1, 1]);
        let conv = graph.push(Operation::Convolution(ConvolutionDescriptor::d2()), &[x, weights], &lens);
        let other = graph.push(operation, &[], &lens);
        let sum = graph.push(Operation::Add, &[conv, other], &lens);
        graph.0[sum].is_result = true;
        let found = find(&graph.0, None);
        assert_eq!(found.chains[0].steps[1], Step { node: sum, kind, operands: vec![other], within: vec![] });
    }
}

/// Nodes that name values behind them, or that do not exist, have no such input.
#[test]
fn nonsense_does_no_harm() {
    let mut graph = Builder::default();
    let conv = graph.image(Operation::Convolution(ConvolutionDescriptor::d2()), &[0, 7]);
    let sum = graph.add(conv, 9);
    graph.image(Operation::Multiply, &[sum, 12]);
    assert_eq!(find(&graph.0, None).unfused.len(), 1);
    assert!(find(&[], None).chains.is_empty());
}

/// A sum whose other operand is beyond the list, the sum itself or behind it, of an image, and of one pixel, where what is
/// added has the lengths of a bias.
#[test]
fn operands_that_are_not_before_their_reader_are_no_tensors() {
    for lens in [[1, 4, 6, 6], [1, 4, 1, 1]] {
        for other in [usize::MAX, 99, 5, 4, 3] {
            for is_first in [false, true] {
                let mut graph = Builder::default();
                let x = graph.push(Operation::Other, &[], &lens);
                let weights = graph.push(Operation::Constant, &[], &[4, 4, 1, 1]);
                let conv = Operation::Convolution(ConvolutionDescriptor::d2());
                let conv = graph.push(conv, &[x, weights], &lens);
                let inputs = if is_first { [other, conv] } else { [conv, other] };
                let sum = graph.push(Operation::Add, &inputs, &lens);
                graph.push(Operation::Constant, &[], &lens);
                let (name, found) = (format!("n{sum}"), "no tensor".into());
                let accepted = "a constant of 4 values, one a channel".into();
                let chains = find(&graph.0, None).chains;
                assert_eq!(chains.len(), 1);
                assert_eq!(chains[0].tail(), conv, "{lens:?} {inputs:?}");
                assert_eq!(chains[0].end, End::Operand { name, found, accepted }, "{lens:?} {inputs:?}");
            }
        }
    }
    let mut graph = Builder::default();
    let x = graph.input();
    let conv = graph.conv(x);
    // The weights are behind their reader.
    graph.0.swap(conv - 1, conv);
    graph.0[conv - 1].inputs = vec![x, conv];
    assert_eq!(find(&graph.0, None).unfused[0].reason, End::Tensor);
}

/// The plan of a layer on a tensor, as text, and what it ends with; or why there is none.
fn layer(x: TensorDescriptor, behind: impl FnOnce(&mut Builder, usize, &[usize]) -> usize) -> String {
    let mut graph = Builder::default();
    let image = graph.push(Operation::Other, &[], &[1]);
    graph.0[image].value = Some(x);
    let features = *x.lens().last().unwrap();
    let matrix = graph.push(Operation::Constant, &[], &[5, features]);
    let mut lens = x.lens().to_vec();
    *lens.last_mut().unwrap() = 5;
    let bias = graph.push(Operation::Constant, &[], &[5]);
    let linear = graph.push(Operation::Linear, &[image, matrix, bias], &lens);
    let result = behind(&mut graph, linear, &lens);
    graph.0[result].is_result = true;
    let found = find(&graph.0, None);
    match (found.chains.as_slice(), found.unfused.as_slice()) {
        ([chain], []) => format!("{}; {}", chain.plan, chain.end),
        ([], [unfused]) => unfused.reason.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_layer_is_a_convolution_of_its_rows() {
    let plan =
        layer(TensorDescriptor::packed(DataType::Float, &[2, 3, 7]).unwrap(), |graph, linear, lens| {
            let other = graph.push(Operation::Other, &[], lens);
            let sum = graph.push(Operation::Add, &[other, linear], lens);
            graph.push(Operation::Activation(Activation::Gelu), &[sum], lens)
        });
    let expected =
        "f32 6x7x1x1 NHWC -> conv 5 1x1 -> bias -> residual -> gelu; the value is a result of the graph";
    assert_eq!(plan, expected);
}

#[test]
fn parameters_of_a_layer_are_lined_up_by_its_features() {
    let x = |lens: &[usize]| TensorDescriptor::packed(DataType::Float, lens).unwrap();
    let with = |lens: &[usize], operation: Operation, parameter: &[usize]| {
        let count = if matches!(operation, Operation::BatchNorm { .. }) { 4 } else { 1 };
        layer(x(lens), |graph, linear, lens| {
            let parameters = [(); 4].map(|()| graph.push(Operation::Constant, &[], parameter));
            let mut inputs = vec![linear];
            inputs.extend(&parameters[..count]);
            graph.push(operation, &inputs, lens)
        })
    };
    let normed = Operation::BatchNorm { epsilon: 1e-5 };
    for (lens, operation, parameter, expected) in [
        (&[4, 7][..], Operation::Add, &[5][..], "bias -> bias;"),
        (&[4, 6, 7], Operation::Add, &[1, 1, 5], "bias -> bias;"),
        // One value a row is none a feature.
        (&[4, 7], Operation::Add, &[4, 1], "bias; n5: an operand is"),
        (&[4, 7], normed.clone(), &[5], "bias -> batch-norm spatial;"),
        (&[4, 7], Operation::PRelu, &[5], "bias -> prelu;"),
        (&[4, 6, 7], Operation::PRelu, &[1], "bias -> prelu one;"),
        // The second dimension is what a vector belongs to, and not the features.
        (&[4, 5, 7], normed, &[5], "bias; n8: an operand is"),
        (&[4, 5, 7], Operation::PRelu, &[5], "bias; n8: an operand is"),
    ] {
        let found = with(lens, operation.clone(), parameter);
        let (_, behind) = found.split_once("1x1 -> ").unwrap();
        let is_refusal = expected.ends_with("operand is");
        let expected = if is_refusal { "bias; n8: an operand is" } else { expected };
        assert!(behind.starts_with(expected), "{lens:?} {operation:?} {parameter:?}: {found}");
    }
}

#[test]
fn rows_are_where_strides_say_so() {
    let tensor =
        |lens: &[usize], strides: &[usize]| TensorDescriptor::new(DataType::Half, lens, strides).unwrap();
    for (lens, strides, expected) in [
        (&[7][..], &[1][..], Some(([1, 7], 7))),
        (&[2, 3, 7], &[21, 7, 1], Some(([6, 7], 7))),
        (&[2, 3, 7], &[30, 10, 1], Some(([6, 7], 10))),
        (&[2, 1, 3, 1, 7], &[30, 999, 10, 0, 1], Some(([6, 7], 10))),
        (&[3, 1], &[4, 9], Some(([3, 1], 4))),
        // Rows at two distances, features with gaps, rows that overlap.
        (&[2, 3, 7], &[40, 10, 1], None),
        (&[2, 3, 7], &[1, 2, 6], None),
        (&[2, 7], &[6, 1], None),
    ] {
        let found = rows(&tensor(lens, strides));
        let described = found.map(|of| ([of.lens()[0], of.lens()[1]], of.strides().unwrap()[0]));
        assert_eq!(described, expected, "{lens:?} {strides:?}");
        assert!(found.is_none_or(|of| of.lens()[2..] == [1, 1] && of.strides().unwrap()[1] == 1));
    }
    let reason = layer(tensor(&[2, 3, 7], &[40, 10, 1]), |_, linear, _| linear);
    assert!(reason.ends_with("accepted: features side by side, in rows at one distance"), "{reason}");
}

const HALF_ROOT: f64 = std::f64::consts::FRAC_1_SQRT_2;

impl Builder {
    fn affine(&mut self, x: usize, scale: f64, shift: f64) -> usize {
        self.image(Operation::Affine { scale, shift }, &[x])
    }

    fn activation(&mut self, x: usize, activation: Activation) -> usize {
        self.image(Operation::Activation(activation), &[x])
    }

    fn product(&mut self, a: usize, b: usize) -> usize {
        self.image(Operation::Multiply, &[a, b])
    }

    fn clip(&mut self, x: usize, max: f64) -> usize {
        self.activation(x, Activation::Clamp { min: 0.0, max })
    }

    /// `1 + erf(x / √2)`
    fn error_function(&mut self, x: usize) -> usize {
        let inner = self.affine(x, HALF_ROOT, 0.0);
        let erf = self.image(Operation::Erf, &[inner]);
        self.affine(erf, 1.0, 1.0)
    }

    /// `1 + tanh(√(2/π) (x + more · x³))` of a cube.
    fn tangent(&mut self, x: usize, cube: usize, more: f64) -> usize {
        let third = self.affine(cube, more, 0.0);
        let sum = self.add(third, x);
        let inner = self.affine(sum, 0.797_884_56, 0.0);
        let tanh = self.activation(inner, Activation::Tanh { alpha: 1.0, beta: 1.0 });
        self.affine(tanh, 1.0, 1.0)
    }
}

type Written = fn(&mut Builder, usize) -> usize;

const WRITTEN: &[(Activation, Written)] = &[
    // x · (clip(x + 3, 0, 6) / 6), (x · clip(x + 3, 0, 6)) / 6, and with ReLU6
    (Activation::HardSwish, |g, x| {
        let three = g.affine(x, 1.0, 3.0);
        let clip = g.clip(three, 6.0);
        let sixth = g.affine(clip, 1.0 / 6.0, 0.0);
        g.product(x, sixth)
    }),
    (Activation::HardSwish, |g, x| {
        let three = g.affine(x, 1.0, 3.0);
        let clip = g.activation(three, Activation::ClippedRelu { max: 6.0 });
        let product = g.product(clip, x);
        g.affine(product, 0.166_67, 0.0)
    }),
    (Activation::HardSwish, |g, x| {
        let three = g.affine(x, 1.0, 3.0);
        let clip = g.clip(three, 6.0);
        let sixth = g.affine(x, 1.0 / 6.0, 0.0);
        g.product(sixth, clip)
    }),
    (Activation::HardSigmoid, |g, x| {
        let three = g.affine(x, 1.0, 3.0);
        let clip = g.clip(three, 6.0);
        g.affine(clip, 1.0 / 6.0, 0.0)
    }),
    (Activation::HardSigmoid, |g, x| {
        let sixth = g.affine(x, 1.0 / 6.0, 0.0);
        let sum = g.affine(sixth, 1.0, 0.5);
        g.clip(sum, 1.0)
    }),
    (Activation::Silu, |g, x| {
        let one = g.affine(x, 1.0, 0.0);
        let gate = g.activation(one, Activation::Logistic);
        g.product(gate, x)
    }),
    (Activation::Mish, |g, x| {
        let soft = g.activation(x, Activation::SoftRelu);
        let tanh = g.activation(soft, Activation::Tanh { alpha: 1.0, beta: 1.0 });
        g.product(x, tanh)
    }),
    // GELU with the half behind all, at x, and at the sum
    (Activation::Gelu, |g, x| {
        let sum = g.error_function(x);
        let product = g.product(x, sum);
        g.affine(product, 0.5, 0.0)
    }),
    (Activation::Gelu, |g, x| {
        let (sum, half) = (g.error_function(x), g.affine(x, 0.5, 0.0));
        g.product(sum, half)
    }),
    (Activation::Gelu, |g, x| {
        let sum = g.error_function(x);
        let half = g.affine(sum, 0.5, 0.0);
        g.product(x, half)
    }),
    (Activation::GeluTanh, |g, x| {
        let cube = g.image(Operation::Cube, &[x]);
        let (sum, half) = (g.tangent(x, cube, 0.044715), g.affine(x, 0.5, 0.0));
        g.product(half, sum)
    }),
    (Activation::GeluTanh, |g, x| {
        let square = g.product(x, x);
        let cube = g.product(square, x);
        let sum = g.tangent(x, cube, 0.044715);
        let product = g.product(sum, x);
        g.affine(product, 0.5, 0.0)
    }),
    (Activation::LeakyRelu { slope: 0.1 }, |g, x| {
        let part = g.affine(x, 0.1, 0.0);
        g.image(Operation::Maximum, &[part, x])
    }),
];

#[test]
fn activations_that_are_written_as_several_nodes_are_found() {
    for (number, &(activation, write)) in WRITTEN.iter().enumerate() {
        let mut graph = Builder::default();
        let x = graph.input();
        let conv = graph.conv(x);
        let last = write(&mut graph, conv);
        assert_eq!(graph.find(last)[0].0, [conv, last], "{number}");
        let step = find(&graph.0, None).chains[0].steps[1].clone();
        assert_eq!(step.kind, StepKind::Activation(activation), "{number}");
        let inner: Vec<_> = (conv + 1..last).collect();
        assert_eq!(step.within, inner, "{number}");
        assert!(spelled_out(&graph.0)[conv + 1..=last].iter().all(|&is_part| is_part), "{number}");
        // A value on the way that is read elsewhere has to be there.
        for at in inner {
            graph.0[at].is_result = true;
            let steps = find(&graph.0, None).chains[0].steps.clone();
            assert!(steps.iter().all(|step| step.kind != StepKind::Activation(activation)), "{number} {at}");
            graph.0[at].is_result = false;
        }
    }
}

#[test]
fn what_is_nearly_an_activation_is_none() {
    let nearly: &[Written] = &[
        |g, x| {
            let four = g.affine(x, 1.0, 4.0);
            let clip = g.clip(four, 6.0);
            let sixth = g.affine(clip, 1.0 / 6.0, 0.0);
            g.product(x, sixth)
        },
        |g, x| {
            let three = g.affine(x, 1.0, 3.0);
            let clip = g.clip(three, 6.0);
            g.product(x, clip)
        },
        |g, x| {
            let more = g.affine(x, 1.702, 0.0);
            let gate = g.activation(more, Activation::Logistic);
            g.product(x, gate)
        },
        |g, x| {
            let sum = g.error_function(x);
            g.product(x, sum)
        },
        |g, x| {
            let cube = g.image(Operation::Cube, &[x]);
            let (sum, half) = (g.tangent(x, cube, 0.05), g.affine(x, 0.5, 0.0));
            g.product(half, sum)
        },
        |g, x| {
            let part = g.affine(x, 1.5, 0.0);
            g.image(Operation::Maximum, &[x, part])
        },
    ];
    for (number, write) in nearly.iter().enumerate() {
        let mut graph = Builder::default();
        let x = graph.input();
        let conv = graph.conv(x);
        let last = write(&mut graph, conv);
        assert_eq!(graph.find(last)[0].0, [conv], "{number}");
        assert!(!spelled_out(&graph.0).contains(&true), "{number}");
    }
}

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
    assert_eq!(found.chains[1].steps[2], Step { node: sum, kind: StepKind::Residual, operands: vec![x] });
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
        assert_eq!(chain.steps[1], Step { node: prelu, kind: StepKind::PRelu, operands: vec![slope] });
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
        assert_eq!(found.chains[0].steps[1], Step { node: sum, kind, operands: vec![other] });
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

//! What exporters spell out in several operators beside activations, which the library's finder knows: a factor and a summand for
//! each channel. And what sums and products with constants are.

use super::graph::{Graph, Node};
use super::shapes::Shapes;

/// `x · scale + shift`, both one constant a channel or one for all: a batch-norm of mean 0 and variance 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScaleShift {
    pub(crate) of: usize,
    /// Channels of x.
    pub(crate) channels: usize,
    /// The elements' type, by the value of the scale.
    pub(crate) scale: usize,
    /// Its nodes; the last makes its value.
    pub(crate) nodes: Vec<usize>,
}

/// The scale and shift that end with a node, if they do; the shift may be missing.
pub(crate) fn scaled_at(index: usize, graph: &Graph, shapes: &Shapes) -> Option<ScaleShift> {
    let found = Match { graph, shapes };
    let node = graph.nodes.get(index)?;
    if node.op == "Mul" {
        return found.scaled(index, node);
    }
    let add = found.node(index, "Add")?;
    Match::both(add).into_iter().find_map(|(product, shift)| {
        let (inner, mul) = found.maker(product, "Mul")?;
        let mut scaled = found.scaled(inner, mul)?;
        scaled.nodes.push(index);
        let is_per_channel = per_channel(product, shift, shapes).is_some();
        (is_per_channel && found.is_closed(&scaled.nodes)).then_some(scaled)
    })
}

struct Match<'a> {
    graph: &'a Graph,
    shapes: &'a Shapes,
}

impl<'a> Match<'a> {
    fn node(&self, index: usize, op: &str) -> Option<&'a Node> {
        self.graph.nodes.get(index).filter(|node| node.op == op)
    }

    /// The node of this operator that makes a value.
    fn maker(&self, value: usize, op: &str) -> Option<(usize, &'a Node)> {
        let index = self.graph.values[value].maker?;
        Some((index, self.node(index, op)?))
    }

    /// The operands of a node that commutes, in both orders.
    fn both(node: &Node) -> Vec<(usize, usize)> {
        match (node.input(0), node.input(1)) {
            (Some(a), Some(b)) if node.inputs.len() == 2 => vec![(a, b), (b, a)],
            _ => Vec::new(),
        }
    }

    /// A product with one constant a channel, or one for all.
    fn scaled(&self, index: usize, mul: &Node) -> Option<ScaleShift> {
        Self::both(mul).into_iter().find_map(|(of, scale)| {
            let channels = per_channel(of, scale, self.shapes)?;
            Some(ScaleShift { of, channels, scale, nodes: vec![index] })
        })
    }

    /// Nobody but the idiom reads what it computes on the way.
    fn is_closed(&self, nodes: &[usize]) -> bool {
        let Some((_, inner)) = nodes.split_last() else { return false };
        inner.iter().all(|&index| {
            self.graph.nodes[index].outputs.iter().flatten().all(|&value| {
                let value = &self.graph.values[value];
                !value.is_result && value.readers.iter().all(|reader| nodes.contains(reader))
            })
        })
    }
}

/// The channels of x, where a constant lines up with one value for each of them, or is one value.
pub(crate) fn per_channel(x: usize, constant: usize, shapes: &Shapes) -> Option<usize> {
    let (dims, of) = (shapes.dims(constant)?, shapes.dims(x)?);
    let (is_changing, is_constant) = (!shapes.0[x].is_constant, shapes.0[constant].is_constant);
    let skipped = of.len().checked_sub(dims.len())?;
    let channels = *of.get(1).filter(|_| of.len() > 2)?;
    let fits = |(d, &length): (usize, &usize)| length == 1 || (skipped + d == 1 && length == channels);
    (is_changing && is_constant && dims.iter().enumerate().all(fits)).then_some(channels)
}

/// Scale and shift, where a node adds a number to one value or multiplies it by one.
pub(crate) fn affine(node: &Node, shapes: &Shapes) -> Option<(usize, f64, f64)> {
    let (a, b) = (node.input(0)?, node.input(1).filter(|_| node.inputs.len() == 2));
    let number = |value: Option<usize>| value.and_then(|value| shapes.0[value].scalar());
    let (x, by, is_first) = match (number(Some(a)), number(b)) {
        (None, Some(by)) => (a, by, true),
        (Some(by), None) => (b?, by, false),
        _ => return None,
    };
    let (scale, shift) = match (node.op.as_str(), is_first) {
        ("Add", _) => (1.0, by),
        ("Sub", true) => (1.0, -by),
        ("Sub", false) => (-1.0, by),
        ("Mul", _) => (by, 0.0),
        ("Div", true) if by != 0.0 => (1.0 / by, 0.0),
        _ => return None,
    };
    // A list of one number may have more dimensions.
    (shapes.dims(x)? == shapes.dims(node.output()?)?).then_some((x, scale, shift))
}

/// The bounds of a Clip, attributes or inputs; `None` where one is computed when the network runs.
pub(crate) fn bounds(node: &Node, shapes: &Shapes) -> Option<(Option<f64>, Option<f64>)> {
    let bound = |attribute: &str, index: usize| match node.input(index) {
        Some(value) => shapes.0[value].scalar().map(Some),
        None => Some(node.has(attribute).then(|| node.float(attribute, 0.0))),
    };
    // The number that every number is inside of is no bound.
    let real = |bound: Option<f64>| bound.filter(|bound| bound.abs() < f64::from(f32::MAX));
    Some((real(bound("min", 1)?), real(bound("max", 2)?)))
}

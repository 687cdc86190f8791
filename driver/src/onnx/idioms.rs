//! What exporters spell out in several operators: activations that ONNX, or an older version of it, has no operator of, and
//! a factor and a summand for each channel.

use super::graph::{Graph, Node};
use super::shapes::Shapes;
use fuseplan::Activation;

/// An activation written as several nodes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Idiom {
    pub(crate) activation: Activation,
    /// The value that it is a function of.
    pub(crate) of: usize,
    /// Its nodes; the last makes its value, and nothing else reads the values of the others.
    pub(crate) nodes: Vec<usize>,
}

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

/// The idiom that ends with a node, if one does.
pub(crate) fn ending_at(index: usize, graph: &Graph, shapes: &Shapes) -> Option<Idiom> {
    let found = Match { graph, shapes };
    [
        found.silu(index),
        found.hard_swish(index),
        found.hard_sigmoid(index),
        found.mish(index),
        found.gelu(index),
    ]
    .into_iter()
    .flatten()
    .find(|idiom| found.is_closed(&idiom.nodes))
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

    /// Whether a value is one number, up to how exporters round it.
    fn is(&self, value: usize, number: f64) -> bool {
        let known = &self.shapes.0[value];
        known.scalar().is_some_and(|found| (found - number).abs() <= 1e-3 * number.abs())
    }

    /// The operands of a node that commutes, in both orders.
    fn both(node: &Node) -> Vec<(usize, usize)> {
        match (node.input(0), node.input(1)) {
            (Some(a), Some(b)) if node.inputs.len() == 2 => vec![(a, b), (b, a)],
            _ => Vec::new(),
        }
    }

    /// The other operand where one is this number.
    fn with_number(&self, node: &Node, number: f64) -> Option<usize> {
        Self::both(node).into_iter().find(|&(_, b)| self.is(b, number)).map(|(a, _)| a)
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

    /// `clip(x + 3, 0, 6)`: x and the nodes.
    fn clipped(&self, value: usize) -> Option<(usize, Vec<usize>)> {
        let (index, clip) = self.maker(value, "Clip")?;
        if bounds(clip, self.shapes)? != (Some(0.0), Some(6.0)) {
            return None;
        }
        let (sum, add) = self.maker(clip.input(0)?, "Add")?;
        Some((self.with_number(add, 3.0)?, vec![sum, index]))
    }

    /// A sixth of a value: the value and the node.
    fn sixth(&self, index: usize) -> Option<usize> {
        match self.node(index, "Div") {
            Some(div) => div.input(0).filter(|_| div.input(1).is_some_and(|by| self.is(by, 6.0))),
            None => self.with_number(self.node(index, "Mul")?, 1.0 / 6.0),
        }
    }

    /// `clip(x + 3, 0, 6) / 6`
    fn hard_sigmoid(&self, index: usize) -> Option<Idiom> {
        let (of, mut nodes) = self.clipped(self.sixth(index)?)?;
        nodes.push(index);
        Some(Idiom { activation: Activation::HardSigmoid, of, nodes })
    }

    /// `x · clip(x + 3, 0, 6) / 6`; where the sixth is taken first, the finder knows the product.
    fn hard_swish(&self, index: usize) -> Option<Idiom> {
        let (product, mul) = self.maker(self.sixth(index)?, "Mul")?;
        Self::both(mul).into_iter().find_map(|(x, gate)| {
            let (of, mut nodes) = self.clipped(gate)?;
            nodes.extend([product, index]);
            (of == x).then_some(Idiom { activation: Activation::HardSwish, of, nodes })
        })
    }

    /// `x · sigmoid(1 · x)`, as Paddle writes a swish; without the factor the finder knows the product.
    fn silu(&self, index: usize) -> Option<Idiom> {
        Self::both(self.node(index, "Mul")?).into_iter().find_map(|(x, gate)| {
            let (sigmoid, node) = self.maker(gate, "Sigmoid")?;
            let (factor, mul) = self.maker(node.input(0)?, "Mul")?;
            let nodes = vec![factor, sigmoid, index];
            (self.with_number(mul, 1.0)? == x).then_some(Idiom { activation: Activation::Silu, of: x, nodes })
        })
    }

    /// `x · tanh(softplus(x))`
    fn mish(&self, index: usize) -> Option<Idiom> {
        Self::both(self.node(index, "Mul")?).into_iter().find_map(|(x, gate)| {
            let (tanh, node) = self.maker(gate, "Tanh")?;
            let (softplus, node) = self.maker(node.input(0)?, "Softplus")?;
            let nodes = vec![softplus, tanh, index];
            (node.input(0)? == x).then_some(Idiom { activation: Activation::Mish, of: x, nodes })
        })
    }

    /// `½ x (1 + erf(x / √2))`, whichever product comes first.
    fn gelu(&self, index: usize) -> Option<Idiom> {
        let last = self.node(index, "Mul")?;
        let whole = |x: usize, sum: usize, more: usize| {
            let (of, mut nodes) = self.error_function(sum)?;
            nodes.extend([more, index]);
            (of == x).then_some(Idiom { activation: Activation::Gelu, of, nodes })
        };
        // (x · (1 + erf)) · ½
        let halved = self.with_number(last, 0.5).and_then(|product| {
            let (more, mul) = self.maker(product, "Mul")?;
            Self::both(mul).into_iter().find_map(|(x, sum)| whole(x, sum, more))
        });
        // (½ x) · (1 + erf), or x · (½ (1 + erf))
        halved.or_else(|| {
            Self::both(last).into_iter().find_map(|(a, b)| {
                let (more, mul) = self.maker(a, "Mul")?;
                let inner = self.with_number(mul, 0.5)?;
                whole(inner, b, more).or_else(|| whole(b, inner, more))
            })
        })
    }

    /// `1 + erf(x / √2)`: x and the nodes.
    fn error_function(&self, value: usize) -> Option<(usize, Vec<usize>)> {
        let (sum, add) = self.maker(value, "Add")?;
        let (erf, node) = self.maker(self.with_number(add, 1.0)?, "Erf")?;
        let inner = node.input(0)?;
        let root = std::f64::consts::SQRT_2;
        let divided = self.maker(inner, "Div").and_then(|(index, div)| {
            Some((index, div.input(0).filter(|_| div.input(1).is_some_and(|by| self.is(by, root)))?))
        });
        let (scale, of) = divided.or_else(|| {
            let (index, mul) = self.maker(inner, "Mul")?;
            Some((index, self.with_number(mul, 1.0 / root)?))
        })?;
        Some((of, vec![scale, erf, sum]))
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

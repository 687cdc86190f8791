//! Activations that are written as several nodes: what exporters and authors of networks make of functions that their operators
//! do not have.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

use fuseplan_api::Activation;

use super::{Node, Operation};

/// What nodes compute of which values.
pub(super) type Operations = Vec<(Operation, Vec<usize>)>;

/// An activation, and the nodes that write it.
struct Spelled {
    activation: Activation,
    /// The value that it is a function of.
    of: usize,
    /// The nodes before the one that makes its value.
    inner: Vec<usize>,
}

/// Puts the activation in the place of the last node of each that is written out; the others compute nothing any more. The
/// result has of each node those that are part of it.
pub(super) fn spell(nodes: &[Node], operations: &mut Operations, readers: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut within = vec![Vec::new(); nodes.len()];
    for index in 0..nodes.len() {
        let found = Match { nodes, operations, readers };
        let Some(Spelled { activation, of, mut inner }) = found.ending_at(index) else { continue };
        operations[index] = (Operation::Activation(activation), vec![of]);
        for at in inner.clone() {
            operations[at].1.clear();
            // A shorter one inside of this one.
            inner.append(&mut within[at]);
        }
        inner.sort_unstable();
        within[index] = inner;
    }
    within
}

/// `scale · base + shift`, with the nodes that multiply and add.
#[derive(Clone)]
struct Scaled {
    base: usize,
    scale: f64,
    shift: f64,
    nodes: Vec<usize>,
}

impl Scaled {
    /// Whether these are the numbers, up to how exporters round them.
    fn is(&self, scale: f64, shift: f64) -> bool {
        let near = |found: f64, wanted: f64| (found - wanted).abs() <= 1e-3 * wanted.abs();
        near(self.scale, scale) && near(self.shift, shift)
    }
}

struct Match<'a> {
    nodes: &'a [Node],
    operations: &'a Operations,
    readers: &'a [Vec<usize>],
}

impl Match<'_> {
    fn ending_at(&self, index: usize) -> Option<Spelled> {
        let found = self.product(index).or_else(|| self.alone(index)).or_else(|| self.maximum(index))?;
        let mut inner = found.inner;
        inner.retain(|&node| node != index);
        inner.sort_unstable();
        inner.dedup();
        // Nobody else reads what is computed on the way, and all of it has one shape.
        let lens = |node: usize| self.nodes[node].value.as_ref().map(|value| value.lens());
        let is_own = |&node: &usize| {
            let is_read_inside = |reader: &usize| *reader == index || inner.contains(reader);
            !self.nodes[node].is_result && self.readers[node].iter().all(is_read_inside)
        };
        let is_one_shape = inner.iter().chain([&index]).all(|&node| lens(node) == lens(found.of));
        let is_found = !inner.is_empty() && inner.iter().all(is_own) && is_one_shape;
        is_found.then_some(Spelled { inner, ..found })
    }

    fn operation(&self, node: usize) -> Option<(&Operation, &[usize])> {
        self.operations.get(node).map(|(operation, inputs)| (operation, inputs.as_slice()))
    }

    /// The two operands of a node, in both orders.
    fn both(&self, node: usize, wanted: &Operation) -> Vec<(usize, usize)> {
        match self.operation(node) {
            Some((operation, &[a, b])) if operation == wanted && a < node && b < node => vec![(a, b), (b, a)],
            _ => Vec::new(),
        }
    }

    /// The input of a node that has one, if it is this operation.
    fn input(&self, node: usize, is_wanted: impl Fn(&Operation) -> bool) -> Option<usize> {
        match self.operation(node) {
            Some((operation, &[x])) if is_wanted(operation) && x < node => Some(x),
            _ => None,
        }
    }

    /// A value as a multiple of each that it is a multiple of, itself first.
    fn scaled(&self, node: usize) -> Vec<Scaled> {
        let mut found = vec![Scaled { base: node, scale: 1.0, shift: 0.0, nodes: Vec::new() }];
        while let Some(last) = found.last()
            && let Some((&Operation::Affine { scale, shift }, &[x])) = self.operation(last.base)
            && x < last.base
        {
            let mut next = last.clone();
            next.nodes.push(last.base);
            (next.base, next.scale, next.shift) = (x, last.scale * scale, last.shift + last.scale * shift);
            found.push(next);
        }
        found
    }

    /// The nodes of `scale · x + shift`, if a value is that.
    fn is_scaled(&self, node: usize, x: usize, scale: f64, shift: f64) -> Option<Vec<usize>> {
        let found = self.scaled(node).into_iter().find(|of| of.base == x && of.is(scale, shift));
        found.map(|of| of.nodes)
    }

    /// `x` times a function of x, with whatever factors where.
    fn product(&self, index: usize) -> Option<Spelled> {
        self.scaled(index).into_iter().filter(|whole| whole.shift == 0.0).find_map(|whole| {
            self.both(whole.base, &Operation::Multiply).into_iter().find_map(|(a, b)| {
                let factors = self.scaled(a).into_iter().filter(|factor| factor.shift == 0.0);
                factors.into_iter().find_map(|factor| {
                    self.scaled(b).into_iter().find_map(|gate| {
                        let by = whole.scale * factor.scale;
                        let gate = Scaled { scale: by * gate.scale, shift: by * gate.shift, ..gate };
                        let (activation, inner) = self.gated(factor.base, &gate)?;
                        let mut nodes =
                            [inner, gate.nodes, factor.nodes.clone(), whole.nodes.clone()].concat();
                        nodes.extend([gate.base, whole.base]);
                        Some(Spelled { activation, of: factor.base, inner: nodes })
                    })
                })
            })
        })
    }

    /// The activation that x times a gate is, and the nodes between x and the gate's function.
    fn gated(&self, x: usize, gate: &Scaled) -> Option<(Activation, Vec<usize>)> {
        let (operation, &[of]) = self.operation(gate.base)? else { return None };
        match operation {
            Operation::Activation(Activation::Logistic) if gate.is(1.0, 0.0) => {
                Some((Activation::Silu, self.is_scaled(of, x, 1.0, 0.0)?))
            }
            Operation::Activation(Activation::HardSigmoid) if gate.is(1.0, 0.0) && of == x => {
                Some((Activation::HardSwish, Vec::new()))
            }
            Operation::Activation(clip) if is_clip(clip, 6.0) && gate.is(1.0 / 6.0, 0.0) => {
                Some((Activation::HardSwish, self.is_scaled(of, x, 1.0, 3.0)?))
            }
            Operation::Activation(Activation::Tanh { alpha: 1.0, beta: 1.0 }) if gate.is(1.0, 0.0) => {
                let inner = self.input(of, |of| *of == Operation::Activation(Activation::SoftRelu))?;
                (inner == x).then(|| (Activation::Mish, vec![of]))
            }
            Operation::Activation(Activation::Tanh { alpha: 1.0, beta: 1.0 }) if gate.is(0.5, 0.5) => {
                Some((Activation::GeluTanh, self.cubic(of, x)?))
            }
            Operation::Erf if gate.is(0.5, 0.5) => {
                Some((Activation::Gelu, self.is_scaled(of, x, FRAC_1_SQRT_2, 0.0)?))
            }
            _ => None,
        }
    }

    /// The nodes of `√(2/π) · (x + 0.044715 x³)`.
    fn cubic(&self, node: usize, x: usize) -> Option<Vec<usize>> {
        self.scaled(node).into_iter().filter(|sum| sum.is(FRAC_2_PI.sqrt(), 0.0)).find_map(|sum| {
            self.both(sum.base, &Operation::Add).into_iter().filter(|&(a, _)| a == x).find_map(|(_, more)| {
                let mut cubes = self.scaled(more).into_iter().filter(|cube| cube.is(0.044715, 0.0));
                cubes.find_map(|cube| {
                    let mut nodes = self.cube(cube.base, x)?;
                    nodes.extend(cube.nodes);
                    nodes.extend(sum.nodes.iter().chain([&sum.base]));
                    Some(nodes)
                })
            })
        })
    }

    /// The nodes of x³.
    fn cube(&self, node: usize, x: usize) -> Option<Vec<usize>> {
        if self.input(node, |of| *of == Operation::Cube) == Some(x) {
            return Some(vec![node]);
        }
        let square =
            |&(a, b): &(usize, usize)| a == x && self.both(b, &Operation::Multiply).contains(&(x, x));
        self.both(node, &Operation::Multiply).into_iter().find(square).map(|(_, square)| vec![square, node])
    }

    /// A hard sigmoid: `clip(x + 3, 0, 6) / 6`, or `clip(x / 6 + ½, 0, 1)`.
    fn alone(&self, index: usize) -> Option<Spelled> {
        self.scaled(index).into_iter().find_map(|whole| {
            [(6.0, 1.0, 3.0), (1.0, 1.0 / 6.0, 0.5)].into_iter().find_map(|(max, scale, shift)| {
                let is_clip =
                    |of: &Operation| matches!(of, Operation::Activation(clip) if is_clip(clip, max));
                let x = self.input(whole.base, is_clip).filter(|_| whole.is(1.0 / max, 0.0))?;
                let inner = self.scaled(x).into_iter().find(|inner| inner.is(scale, shift))?;
                let mut nodes = [inner.nodes, whole.nodes.clone()].concat();
                nodes.push(whole.base);
                Some(Spelled { activation: Activation::HardSigmoid, of: inner.base, inner: nodes })
            })
        })
    }

    /// A leaky ReLU: `max(x, slope · x)` with a slope from 0 to 1.
    fn maximum(&self, index: usize) -> Option<Spelled> {
        self.both(index, &Operation::Maximum).into_iter().find_map(|(x, other)| {
            let is_slope = |of: &Scaled| of.base == x && of.shift == 0.0 && (0.0..=1.0).contains(&of.scale);
            let of = self.scaled(other).into_iter().find(is_slope)?;
            Some(Spelled { activation: Activation::LeakyRelu { slope: of.scale }, of: x, inner: of.nodes })
        })
    }
}

/// Whether an activation is `min(max, max(0, x))`.
fn is_clip(activation: &Activation, wanted: f64) -> bool {
    match *activation {
        Activation::ClippedRelu { max } | Activation::Clamp { min: 0.0, max } => max == wanted,
        _ => false,
    }
}

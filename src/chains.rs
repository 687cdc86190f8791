//! Which operators of a graph can be computed as plans: the one finder of chains, whatever the graph came from.
//!
//! Whoever has a graph (PyTorch's, ONNX's) writes it down as [`Node`]s, gets the [`Chain`]s back, and replaces the nodes of
//! each by one execution. A chain is a convolution and what is computed on its result alone. What a plan takes is not
//! decided here but asked of it ([`FusionPlan::append`]); what ends a chain is said in words.

use std::fmt;

use fuseplan_api::{
    Activation, BatchNormMode, ConvolutionDescriptor, DescriptorError, MAX_RANK, TensorDescriptor,
};

use crate::error::AppendError;
use crate::operator::{ActivationForward, BatchNormInference, BiasForward, ConvForward, PReluForward};
use crate::plan::FusionPlan;
use crate::target::Target;

const ONES: [usize; MAX_RANK] = [1; MAX_RANK];

/// A node of a graph, which makes one value of the values before it and changes none of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What reasons call it.
    pub name: String,
    /// What it computes.
    pub operation: Operation,
    /// The nodes whose values it reads, all before this one.
    pub inputs: Vec<usize>,
    /// Its value; `None` where that is no tensor that plans could have.
    pub value: Option<TensorDescriptor>,
    /// Whether the value is a result of the graph.
    pub is_result: bool,
}

/// What a node computes.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Nothing: the value does not change from execution to execution.
    Constant,
    /// A convolution of the first input with the second; a third is a bias.
    Convolution(ConvolutionDescriptor),
    /// `scale · (x − mean) / sqrt(variance + ε) + bias` with one parameter a channel, of five inputs in this order: x, scale,
    /// bias, mean, variance.
    BatchNorm {
        /// Added to the variance.
        epsilon: f64,
    },
    /// The sum of two inputs.
    Add,
    /// The product of two inputs.
    Multiply,
    /// A function of each element.
    Activation(Activation),
    /// `x > 0 ? x : slope · x`, of two inputs: x, and one slope a channel or one for all.
    PRelu,
    /// Anything else.
    Other,
}

/// An operator of a chain.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The node that computes it.
    pub node: usize,
    /// What it is.
    pub kind: StepKind,
    /// The nodes whose values are its operands, beside the tensor that it works on.
    pub operands: Vec<usize>,
}

/// Which operator of a plan a step is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StepKind {
    /// The convolution; its operand is the weights.
    Convolution(ConvolutionDescriptor),
    /// One value a channel.
    Bias,
    /// One value an element.
    Residual,
    /// Batch-norm with given statistics; its operands are scale, bias, mean and variance.
    BatchNorm {
        /// Added to the variance.
        epsilon: f64,
    },
    /// An activation.
    Activation(Activation),
    /// PReLU; its operand is the slope, one a channel or one for all.
    PRelu,
}

/// A part of a graph that one plan computes.
#[derive(Debug, Clone)]
pub struct Chain {
    /// The operators, in their order.
    pub steps: Vec<Step>,
    /// The plan of them, for the tensors that the graph describes.
    pub plan: FusionPlan,
    /// Why it has no further operator.
    pub end: End,
}

impl Chain {
    /// The node whose value the chain computes.
    pub fn tail(&self) -> usize {
        self.steps.last().map_or(0, |step| step.node)
    }
}

/// A convolution that is part of no plan.
#[derive(Debug, Clone)]
pub struct Unfused {
    /// The node.
    pub node: usize,
    /// Why.
    pub reason: End,
}

/// Why a chain ends, or does not begin.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum End {
    /// Nothing reads the value.
    Unread,
    /// The value is a result of the graph.
    Result,
    /// Several nodes read the value, so that it has to be written.
    Read {
        /// How many read it.
        times: usize,
    },
    /// What follows is no operator of a plan.
    Operator {
        /// The node that follows.
        name: String,
    },
    /// What follows is a convolution, with which another chain begins.
    OwnChain {
        /// The convolution that follows.
        name: String,
    },
    /// A sum that another chain computes already.
    OtherChain {
        /// The node that follows.
        name: String,
    },
    /// An operand that is neither one value a channel nor one an element.
    Operand {
        /// The node that follows.
        name: String,
        /// The operand's lengths, or what else is wrong with it.
        found: String,
        /// What would be accepted.
        accepted: String,
    },
    /// A convolution whose tensors plans do not have.
    Tensor,
    /// The plan refuses it.
    Refused {
        /// The node that was refused.
        name: String,
        /// Why.
        error: AppendError,
    },
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Unread => f.write_str("nothing reads the value"),
            End::Result => f.write_str("the value is a result of the graph"),
            End::Read { times } => write!(f, "the value is read {times} times"),
            End::Operator { name } => write!(f, "{name} is no operator of a plan"),
            End::OwnChain { name } => write!(f, "{name} begins a chain of its own"),
            End::OtherChain { name } => write!(f, "{name} is computed by the chain of its other operand"),
            End::Operand { name, found, accepted } => {
                write!(f, "{name}: an operand is {found}; accepted: {accepted}")
            }
            End::Tensor => f.write_str("its tensors are of no type or shape that plans have"),
            End::Refused { name, error } => write!(f, "{name}: {error}"),
        }
    }
}

/// What was found in a graph.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The chains, by their convolutions' order.
    pub chains: Vec<Chain>,
    /// The convolutions that no plan takes.
    pub unfused: Vec<Unfused>,
}

/// Finds the chains of a graph, whose nodes are in an order in which they can be computed. With a target, only what that
/// can compute is part of a chain.
///
/// ```
/// use fuseplan::chains::{self, Node, Operation};
/// use fuseplan::{Activation, ConvolutionDescriptor, DataType, TensorDescriptor};
/// # fn main() -> Result<(), fuseplan::Error> {
/// let tensor = |lens| TensorDescriptor::nchw(DataType::Float, lens);
/// let node = |name: &str, operation, inputs: &[usize], value| Node {
///     name: name.into(),
///     operation,
///     inputs: inputs.to_vec(),
///     value: Some(value),
///     is_result: name == "relu",
/// };
/// let conv = ConvolutionDescriptor::d2();
/// let found = chains::find(
///     &[
///         node("x", Operation::Other, &[], tensor([1, 3, 8, 8])?),
///         node("w", Operation::Constant, &[], tensor([4, 3, 1, 1])?),
///         node("conv", Operation::Convolution(conv), &[0, 1], tensor([1, 4, 8, 8])?),
///         node("relu", Operation::Activation(Activation::Relu), &[2], tensor([1, 4, 8, 8])?),
///     ],
///     None,
/// );
/// assert_eq!(found.chains[0].steps.len(), 2);
/// assert_eq!(found.chains[0].end.to_string(), "the value is a result of the graph");
/// # Ok(())
/// # }
/// ```
pub fn find(nodes: &[Node], target: Option<&Target>) -> Found {
    let graph = Graph::of(nodes);
    let mut taken = vec![false; nodes.len()];
    let mut found = Found::default();
    for (index, node) in nodes.iter().enumerate() {
        let Operation::Convolution(conv) = node.operation else { continue };
        match graph.chain(index, conv, target, &taken) {
            Ok(chain) => {
                chain.steps.iter().for_each(|step| taken[step.node] = true);
                found.chains.push(chain);
            }
            Err(reason) => found.unfused.push(Unfused { node: index, reason }),
        }
    }
    // A convolution comes after what it reads, so that whether it begins a chain is known only now.
    let begins: Vec<_> = found.chains.iter().map(|chain| chain.steps[0].node).collect();
    for chain in &mut found.chains {
        if let (End::Operator { name }, [reader]) = (&chain.end, graph.readers[chain.tail()].as_slice())
            && begins.binary_search(reader).is_ok()
        {
            chain.end = End::OwnChain { name: name.clone() };
        }
    }
    found
}

/// The nodes, with activations that are written as products, and who reads each value.
struct Graph<'n> {
    nodes: &'n [Node],
    /// What each computes of which values.
    operations: Vec<(Operation, Vec<usize>)>,
    readers: Vec<Vec<usize>>,
}

impl<'n> Graph<'n> {
    fn of(nodes: &'n [Node]) -> Self {
        let operations: Vec<_> =
            nodes.iter().map(|node| (node.operation.clone(), node.inputs.clone())).collect();
        let mut graph = Graph { nodes, operations, readers: Vec::new() };
        graph.readers = graph.read();
        for index in 0..nodes.len() {
            let Some((activation, gate, x)) = graph.gated(index) else { continue };
            graph.operations[index] = (Operation::Activation(activation), vec![x]);
            graph.operations[gate].1.clear();
        }
        graph.readers = graph.read();
        graph
    }

    fn read(&self) -> Vec<Vec<usize>> {
        let mut readers = vec![Vec::new(); self.nodes.len()];
        for (index, (_, inputs)) in self.operations.iter().enumerate() {
            inputs.iter().filter(|&&input| input < index).for_each(|&input| readers[input].push(index));
        }
        readers
    }

    /// The activation that a product of x and a function of x is, with the function's node, which nothing else reads.
    fn gated(&self, index: usize) -> Option<(Activation, usize, usize)> {
        let (Operation::Multiply, inputs) = &self.operations[index] else { return None };
        let &[a, b] = inputs.as_slice() else { return None };
        [(a, b), (b, a)].into_iter().find_map(|(x, gate)| {
            let (operation, of) = self.operations.get(gate)?;
            let alone = self.readers.get(gate)?.len() == 1 && !self.nodes[gate].is_result;
            let activation = match operation {
                Operation::Activation(Activation::Logistic) => Activation::Silu,
                Operation::Activation(Activation::HardSigmoid) => Activation::HardSwish,
                _ => return None,
            };
            (alone && of.as_slice() == [x]).then_some((activation, gate, x))
        })
    }

    fn value(&self, index: usize) -> Option<&TensorDescriptor> {
        self.nodes.get(index)?.value.as_ref()
    }

    /// The chain that begins with a convolution.
    fn chain(
        &self,
        index: usize,
        conv: ConvolutionDescriptor,
        target: Option<&Target>,
        taken: &[bool],
    ) -> Result<Chain, End> {
        let inputs = &self.operations[index].1;
        let tensors = inputs.first().zip(inputs.get(1));
        let tensors = tensors.and_then(|(&x, &w)| Some((w, *self.value(x)?, *self.value(w)?)));
        let (weights, x, w) = tensors.ok_or(End::Tensor)?;
        let plan = match target {
            Some(target) => FusionPlan::for_device(target, x),
            None => FusionPlan::new(x),
        };
        let mut plan = plan.map_err(|_| End::Tensor)?;
        let refused = |error| End::Refused { name: self.nodes[index].name.clone(), error };
        plan.append(ConvForward::new(conv, w)).map_err(refused)?;
        let convolution = StepKind::Convolution(conv);
        let mut steps = vec![Step { node: index, kind: convolution, operands: vec![weights] }];
        if let Some(&bias) = inputs.get(2) {
            self.append(&mut plan, index, StepKind::Bias, &[bias])?;
            steps.push(Step { node: index, kind: StepKind::Bias, operands: vec![bias] });
        }
        let mut last = index;
        let end = loop {
            match self.next(last, &mut plan, taken) {
                Ok(step) => {
                    last = step.node;
                    steps.push(step);
                }
                Err(end) => break end,
            }
        };
        Ok(Chain { steps, plan, end })
    }

    /// The operator behind the value of a node, appended to the plan.
    fn next(&self, last: usize, plan: &mut FusionPlan, taken: &[bool]) -> Result<Step, End> {
        if self.nodes[last].is_result {
            return Err(End::Result);
        }
        let node = match self.readers[last].as_slice() {
            [] => return Err(End::Unread),
            &[reader] => reader,
            readers => return Err(End::Read { times: readers.len() }),
        };
        let (operation, inputs) = &self.operations[node];
        let name = self.nodes[node].name.clone();
        if taken[node] {
            return Err(End::OtherChain { name });
        }
        let (kind, operands) = match operation {
            &Operation::Activation(activation) => (StepKind::Activation(activation), Vec::new()),
            &Operation::BatchNorm { epsilon } if inputs.len() == 5 && inputs[0] == last => {
                (StepKind::BatchNorm { epsilon }, inputs[1..].to_vec())
            }
            Operation::PRelu if inputs.len() == 2 && inputs[0] == last => {
                (StepKind::PRelu, inputs[1..].to_vec())
            }
            Operation::Add if inputs.len() == 2 => {
                let other = if inputs[0] == last { inputs[1] } else { inputs[0] };
                let output = plan.output();
                let is_whole = self.value(other).is_some_and(|value| value.lens() == output.lens());
                // One image of one pixel has the lengths of a bias.
                let is_vector = output.element_count() == output.lens()[1]
                    && self.nodes[other].operation == Operation::Constant;
                (if is_whole && !is_vector { StepKind::Residual } else { StepKind::Bias }, vec![other])
            }
            Operation::Convolution(_)
            | Operation::Constant
            | Operation::BatchNorm { .. }
            | Operation::Add
            | Operation::Multiply
            | Operation::PRelu
            | Operation::Other => return Err(End::Operator { name }),
        };
        self.append(plan, node, kind, &operands)?;
        Ok(Step { node, kind, operands })
    }

    /// Appends the operator that a node computes behind a convolution.
    fn append(
        &self,
        plan: &mut FusionPlan,
        node: usize,
        kind: StepKind,
        operands: &[usize],
    ) -> Result<(), End> {
        let name = &self.nodes[node].name;
        let running = *plan.output();
        let mut per_channel = ONES;
        per_channel[1] = running.lens()[1];
        let per_channel = &per_channel[..running.rank()];
        let wrong = |found: String, accepted: String| End::Operand { name: name.clone(), found, accepted };
        let described = |made: Result<TensorDescriptor, DescriptorError>| {
            made.map_err(|error| wrong(error.to_string(), "a smaller tensor".into()))
        };
        // One value a channel: as a vector, or with the rank of the tensor. What is added is lined up by its last dimension.
        let is_added = self.operations[node].0 == Operation::Add;
        let may_be_one = kind == StepKind::PRelu;
        let parameters = |operand: usize| {
            let accepted = || {
                let or_one = if may_be_one { ", or of one" } else { "" };
                format!("a constant of {} values, one a channel{or_one}", per_channel[1])
            };
            let Some(value) = self.value(operand) else { return Err(wrong("no tensor".into(), accepted())) };
            if self.nodes[operand].operation != Operation::Constant {
                return Err(wrong(format!("{value}, not a constant"), accepted()));
            }
            if may_be_one && value.element_count() == 1 {
                return described(TensorDescriptor::packed(value.data_type(), &ONES[..running.rank()]));
            }
            let (lens, rank) = (value.lens(), value.rank().min(running.rank()));
            let (outer, inner) = per_channel.split_at(running.rank() - rank);
            let lines_up = lens == inner && outer.iter().all(|&len| len == 1);
            let is_vector = lens == &per_channel[1..2];
            if !lines_up && (is_added || !is_vector) {
                return Err(wrong(format!("{value}"), accepted()));
            }
            described(TensorDescriptor::packed(value.data_type(), per_channel))
        };
        let appended = match kind {
            StepKind::Bias => {
                let bias = parameters(operands[0])?;
                plan.append(BiasForward::with_descriptor(bias)).map(drop)
            }
            StepKind::PRelu => {
                let slope = parameters(operands[0])?;
                plan.append(PReluForward::with_descriptor(slope)).map(drop)
            }
            StepKind::Residual => {
                let like = self.value(operands[0]).map_or(running.data_type(), TensorDescriptor::data_type);
                let residual = described(running.with_data_type(like))?;
                plan.append(BiasForward::with_descriptor(residual)).map(drop)
            }
            StepKind::BatchNorm { .. } => {
                let mut found = operands.iter().map(|&operand| parameters(operand));
                let first = found.next().unwrap_or(Ok(running))?;
                if let Some(other) = found.find(|other| other.as_ref() != Ok(&first)) {
                    return Err(wrong(format!("{}", other?), format!("{first}, as the scale is")));
                }
                plan.append(BatchNormInference::with_descriptor(BatchNormMode::Spatial, first)).map(drop)
            }
            StepKind::Activation(activation) => {
                plan.append(ActivationForward::new(activation.mode())).map(drop)
            }
            // Never behind a convolution: a plan refuses it.
            StepKind::Convolution(conv) => plan.append(ConvForward::new(conv, running)).map(drop),
        };
        appended.map_err(|error| End::Refused { name: name.clone(), error })
    }
}

#[cfg(test)]
mod tests;

//! Which operators of a graph can be computed as plans: the one finder of chains, whatever the graph came from.
//!
//! Whoever has a graph (PyTorch's, ONNX's) writes it down as [`Node`]s, gets the [`Chain`]s back, and replaces the nodes of
//! each by one execution. A chain is a convolution, or a fully connected layer, and what is computed on its result alone.
//! The latter is a convolution of images of one pixel ([`rows`]). What a plan takes is not decided here but asked of it ([`FusionPlan::append`]); what ends a chain is said in words.

use std::fmt;

use fuseplan_api::{Activation, ConvolutionDescriptor, TensorDescriptor};

use crate::error::AppendError;
use crate::plan::FusionPlan;
use crate::target::Target;

use graph::Graph;
pub use rows::{ROWS, rows};

mod graph;
mod rows;
mod spelled;

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
#[non_exhaustive]
pub enum Operation {
    /// Nothing: the value does not change from execution to execution.
    Constant,
    /// A convolution of the first input with the second; a third is a bias.
    Convolution(ConvolutionDescriptor),
    /// The product of the first input, whose last dimension has the features, with the second, a matrix `[outputs, features]`;
    /// a third is a bias.
    Linear,
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
    /// The greater of two inputs.
    Maximum,
    /// `scale · x + shift`, with numbers.
    Affine {
        /// What x is multiplied by.
        scale: f64,
        /// What is added.
        shift: f64,
    },
    /// The error function of each element.
    Erf,
    /// The third power of each element.
    Cube,
    /// A function of each element. One that is written as several of these nodes is found as well, wherever plans have it: SiLU, hard
    /// swish, hard sigmoid, Mish, both forms of GELU, leaky ReLU.
    Activation(Activation),
    /// `x > 0 ? x : slope · x`, of two inputs: x, and one slope a channel or one for all.
    PRelu,
    /// Anything else.
    Other,
}

/// An operator of a chain.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Step {
    /// The node that computes it.
    pub node: usize,
    /// What it is.
    pub kind: StepKind,
    /// The nodes whose values are its operands, beside the tensor that it works on.
    pub operands: Vec<usize>,
    /// The nodes before it that are part of it, of an activation that is written as several.
    pub within: Vec<usize>,
}

/// Which operator of a plan a step is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StepKind {
    /// The convolution; its operand is the weights.
    Convolution(ConvolutionDescriptor),
    /// The fully connected layer; its operand is the matrix. To it and what is behind it features are channels.
    Linear,
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
#[non_exhaustive]
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

/// A convolution or a fully connected layer that is part of no plan.
#[derive(Debug, Clone)]
#[non_exhaustive]
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
    /// What follows is what another chain begins with.
    OwnChain {
        /// The node that follows.
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
    /// What would begin a chain has tensors that plans do not have.
    Tensor,
    /// A fully connected layer whose tensors do not lie in rows.
    Rows {
        /// The node.
        name: String,
        /// The tensor.
        found: TensorDescriptor,
    },
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
            End::Tensor => f.write_str("its tensors are of no type, shape or strides that plans have"),
            End::Rows { name, found } => {
                write!(f, "{name}: an operand is {found}; accepted: {ROWS}")
            }
            End::Refused { name, error } => write!(f, "{name}: {error}"),
        }
    }
}

/// What was found in a graph.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Found {
    /// The chains, by the order of what they begin with.
    pub chains: Vec<Chain>,
    /// The convolutions and fully connected layers that no plan takes.
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
        let begins = match node.operation {
            Operation::Convolution(conv) => StepKind::Convolution(conv),
            Operation::Linear => StepKind::Linear,
            Operation::Constant
            | Operation::BatchNorm { .. }
            | Operation::Add
            | Operation::Multiply
            | Operation::Maximum
            | Operation::Affine { .. }
            | Operation::Erf
            | Operation::Cube
            | Operation::Activation(_)
            | Operation::PRelu
            | Operation::Other => continue,
        };
        match graph.chain(index, begins, target, &taken) {
            Ok(chain) => {
                chain.steps.iter().for_each(|step| taken[step.node] = true);
                found.chains.push(chain);
            }
            Err(reason) => found.unfused.push(Unfused { node: index, reason }),
        }
    }
    // What begins a chain comes after what it reads, so that whether it begins a chain is known only now.
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

/// Of each node whether it is part of an activation that is written as several.
pub fn spelled_out(nodes: &[Node]) -> Vec<bool> {
    Graph::of(nodes).spelled_out()
}

#[cfg(test)]
mod tests;

//! A graph's nodes with their readers, and the chain that begins with one.

use fuseplan_api::{BatchNormMode, ConvolutionDescriptor, DescriptorError, MAX_RANK, TensorDescriptor};

use super::spelled::{Operations, spell};
use super::{Chain, End, Node, Operation, Step, StepKind, rows};
use crate::operator::{ActivationForward, BatchNormInference, BiasForward, ConvForward, PReluForward};
use crate::plan::FusionPlan;
use crate::target::Target;

const ONES: [usize; MAX_RANK] = [1; MAX_RANK];

/// The nodes, with activations that are written as several of them, and who reads each value.
pub(super) struct Graph<'n> {
    nodes: &'n [Node],
    /// What each computes of which values.
    operations: Operations,
    pub(super) readers: Vec<Vec<usize>>,
    /// The nodes before each that are part of it.
    within: Vec<Vec<usize>>,
}

/// A plan that grows, and how nodes' values are its tensors.
struct Growing {
    plan: FusionPlan,
    /// Lengths of the values.
    lens: Vec<usize>,
    /// Which of their dimensions has the channels: the last where the plan has them as rows.
    channels: usize,
    is_rows: bool,
}

impl Growing {
    /// The lengths of what has one value a channel, with all dimensions.
    fn per_channel(&self) -> Vec<usize> {
        let len = |(d, &len)| if d == self.channels { len } else { 1 };
        self.lens.iter().enumerate().map(len).collect()
    }
}

impl<'n> Graph<'n> {
    pub(super) fn of(nodes: &'n [Node]) -> Self {
        let operations: Vec<_> =
            nodes.iter().map(|node| (node.operation.clone(), node.inputs.clone())).collect();
        let mut graph = Graph { nodes, operations, readers: Vec::new(), within: Vec::new() };
        graph.readers = graph.read();
        graph.within = spell(nodes, &mut graph.operations, &graph.readers);
        graph.readers = graph.read();
        graph
    }

    pub(super) fn spelled_out(&self) -> Vec<bool> {
        let mut found = vec![false; self.nodes.len()];
        for (index, within) in self.within.iter().enumerate().filter(|(_, within)| !within.is_empty()) {
            within.iter().chain([&index]).for_each(|&node| found[node] = true);
        }
        found
    }

    fn read(&self) -> Vec<Vec<usize>> {
        let mut readers = vec![Vec::new(); self.nodes.len()];
        for (index, (_, inputs)) in self.operations.iter().enumerate() {
            inputs.iter().filter(|&&input| input < index).for_each(|&input| readers[input].push(index));
        }
        readers
    }

    /// A node whose value another reads: `None` where that is not before the reader, or does not exist.
    fn input(&self, reader: usize, index: usize) -> Option<&Node> {
        self.nodes.get(..reader)?.get(index)
    }

    fn value(&self, reader: usize, index: usize) -> Option<&TensorDescriptor> {
        self.input(reader, index)?.value.as_ref()
    }

    /// The chain that begins with a convolution or a fully connected layer.
    pub(super) fn chain(
        &self,
        index: usize,
        begins: StepKind,
        target: Option<&Target>,
        taken: &[bool],
    ) -> Result<Chain, End> {
        let inputs = &self.operations[index].1;
        let tensors = inputs.first().zip(inputs.get(1));
        let tensors = tensors.and_then(|(&x, &w)| Some((w, *self.value(index, x)?, *self.value(index, w)?)));
        let (weights, mut x, mut w) = tensors.ok_or(End::Tensor)?;
        let conv = match begins {
            StepKind::Convolution(conv) => conv,
            _ => {
                (x, w) = (self.rows(index, &x)?, self.rows(index, &w)?);
                ConvolutionDescriptor::d2()
            }
        };
        let plan = match target {
            Some(target) => FusionPlan::for_device(target, x),
            None => FusionPlan::new(x),
        };
        let mut plan = plan.map_err(|_| End::Tensor)?;
        let refused = |error| End::Refused { name: self.nodes[index].name.clone(), error };
        plan.append(ConvForward::new(conv, w)).map_err(refused)?;
        let mut growing = match begins {
            StepKind::Linear => {
                let lens = self.nodes[index].value.ok_or(End::Tensor)?.lens().to_vec();
                Growing { plan, channels: lens.len() - 1, lens, is_rows: true }
            }
            _ => Growing { lens: plan.output().lens().to_vec(), plan, channels: 1, is_rows: false },
        };
        let step = |kind, operand| Step { node: index, kind, operands: vec![operand], within: Vec::new() };
        let mut steps = vec![step(begins, weights)];
        if let Some(&bias) = inputs.get(2) {
            self.append(&mut growing, index, StepKind::Bias, &[bias])?;
            steps.push(step(StepKind::Bias, bias));
        }
        let mut last = index;
        let end = loop {
            match self.next(last, &mut growing, taken) {
                Ok(step) => {
                    last = step.node;
                    steps.push(step);
                }
                Err(end) => break end,
            }
        };
        Ok(Chain { steps, plan: growing.plan, end })
    }

    /// The rows of a tensor that a node reads.
    fn rows(&self, node: usize, tensor: &TensorDescriptor) -> Result<TensorDescriptor, End> {
        rows(tensor).ok_or_else(|| End::Rows { name: self.nodes[node].name.clone(), found: *tensor })
    }

    /// The operator behind the value of a node, appended to the plan.
    fn next(&self, last: usize, growing: &mut Growing, taken: &[bool]) -> Result<Step, End> {
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
                let lens = &growing.lens;
                let input = self.input(node, other);
                let value = input.and_then(|input| input.value.as_ref());
                let is_whole = value.is_some_and(|value| value.lens() == lens);
                // One image of one pixel has the lengths of a bias.
                let is_vector = lens.iter().product::<usize>() == lens[growing.channels]
                    && input.is_some_and(|input| input.operation == Operation::Constant);
                (if is_whole && !is_vector { StepKind::Residual } else { StepKind::Bias }, vec![other])
            }
            Operation::Convolution(_)
            | Operation::Linear
            | Operation::Constant
            | Operation::BatchNorm { .. }
            | Operation::Add
            | Operation::Multiply
            | Operation::Maximum
            | Operation::Affine { .. }
            | Operation::Erf
            | Operation::Cube
            | Operation::PRelu
            | Operation::Other => return Err(End::Operator { name }),
        };
        self.append(growing, node, kind, &operands)?;
        Ok(Step { node, kind, operands, within: self.within[node].clone() })
    }

    /// Appends an operator that a node computes behind the first.
    fn append(
        &self,
        growing: &mut Growing,
        node: usize,
        kind: StepKind,
        operands: &[usize],
    ) -> Result<(), End> {
        let name = &self.nodes[node].name;
        let running = *growing.plan.output();
        let per_channel = growing.per_channel();
        let channels = per_channel[growing.channels];
        let mut of_plan = ONES;
        of_plan[1] = channels;
        let of_plan = &of_plan[..running.rank()];
        let wrong = |found: String, accepted: String| End::Operand { name: name.clone(), found, accepted };
        let described = |made: Result<TensorDescriptor, DescriptorError>| {
            made.map_err(|error| wrong(error.to_string(), "a smaller tensor".into()))
        };
        // One value a channel: as a vector, or with the rank of the tensor. What is added is lined up by its last dimension, and
        // a vector of something else by the second.
        let is_added = matches!(self.operations[node].0, Operation::Add | Operation::Linear);
        let is_second = growing.channels == 1;
        let may_be_one = kind == StepKind::PRelu;
        let parameters = |operand: usize| {
            let accepted = || {
                let or_one = if may_be_one { ", or of one" } else { "" };
                format!("a constant of {channels} values, one a channel{or_one}")
            };
            let input = self.input(node, operand);
            let Some((input, value)) = input.and_then(|input| Some((input, input.value.as_ref()?))) else {
                return Err(wrong("no tensor".into(), accepted()));
            };
            if input.operation != Operation::Constant {
                return Err(wrong(format!("{value}, not a constant"), accepted()));
            }
            if may_be_one && value.element_count() == 1 {
                return described(TensorDescriptor::packed(value.data_type(), &ONES[..running.rank()]));
            }
            let (lens, rank) = (value.lens(), value.rank().min(per_channel.len()));
            let (outer, inner) = per_channel.split_at(per_channel.len() - rank);
            let lines_up = lens == inner && outer.iter().all(|&len| len == 1);
            let is_vector = lens == [channels];
            let is_one_a_channel = if is_added { lines_up } else { is_second && (lines_up || is_vector) };
            if !is_one_a_channel {
                return Err(wrong(format!("{value}"), accepted()));
            }
            described(TensorDescriptor::packed(value.data_type(), of_plan))
        };
        if kind == StepKind::Residual && growing.is_rows {
            self.value(node, operands[0]).map_or(Err(End::Tensor), |value| self.rows(node, value))?;
        }
        let plan = &mut growing.plan;
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
                let like = self.value(node, operands[0]);
                let like = like.map_or(running.data_type(), TensorDescriptor::data_type);
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
            // Never behind another operator: a plan refuses it.
            StepKind::Convolution(conv) => plan.append(ConvForward::new(conv, running)).map(drop),
            StepKind::Linear => plan.append(ConvForward::new(ConvolutionDescriptor::d2(), running)).map(drop),
        };
        appended.map_err(|error| End::Refused { name: name.clone(), error })
    }
}

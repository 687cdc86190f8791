//! The finder of chains, for graphs that Python programs write down.

use fuseplan::chains::{self, Chain, Node, Operation, StepKind};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::handle::Handle;
use crate::tensor::TensorDescriptor;
use crate::{names, spatial};

/// A node: name, operation, inputs, value, whether it is a result, and the operation's parameters.
type Given<'py> =
    (String, String, Vec<usize>, Option<Bound<'py, TensorDescriptor>>, bool, Bound<'py, PyDict>);

/// Chains, and the convolutions and fully connected layers that are in none, by node with the reason.
type Found<'py> = (Bound<'py, PyList>, Vec<(usize, String)>);

/// The chains of a graph, each a dictionary, and the convolutions and fully connected layers that no plan takes with the reasons.
#[pyfunction]
#[pyo3(signature = (nodes, device=None, *, times=false, tf32=false))]
pub(crate) fn find_chains<'py>(
    py: Python<'py>,
    nodes: Vec<Given<'py>>,
    device: Option<Py<Handle>>,
    times: bool,
    tf32: bool,
) -> PyResult<Found<'py>> {
    let nodes = nodes.into_iter().map(node).collect::<PyResult<Vec<_>>>()?;
    let target = device.as_ref().map(|device| device.get().inner.target());
    let math = names::math(None, tf32)?;
    let (found, expected) = py.detach(|| {
        let found = chains::find(&nodes, target);
        let time = |chain: &Chain| {
            let mut plan = chain.plan.clone();
            plan.set_math_mode(math);
            plan.expected_time(target.filter(|_| times)?).ok().flatten()
        };
        let expected: Vec<_> = found.chains.iter().map(time).collect();
        (found, expected)
    });
    let chains = PyList::empty(py);
    for (chain, time) in found.chains.iter().zip(expected) {
        let described = describe(py, chain)?;
        if times {
            described.set_item("expected_seconds", time.map(|time| time.as_secs_f64()))?;
        }
        chains.append(described)?;
    }
    let unfused = found.unfused.iter().map(|unfused| (unfused.node, unfused.reason.to_string()));
    Ok((chains, unfused.collect()))
}

/// Of each node whether it is part of an activation that is written as several.
#[pyfunction]
pub(crate) fn spelled_out(py: Python<'_>, nodes: Vec<Given<'_>>) -> PyResult<Vec<bool>> {
    let nodes = nodes.into_iter().map(node).collect::<PyResult<Vec<_>>>()?;
    Ok(py.detach(|| chains::spelled_out(&nodes)))
}

fn node(given: Given<'_>) -> PyResult<Node> {
    let (name, operation, inputs, value, is_result, parameters) = given;
    let parameter = |key: &str| {
        let missing = || PyKeyError::new_err(format!("{name}: {operation} needs {key}"));
        parameters.get_item(key)?.ok_or_else(missing)
    };
    let value = value.map(|value| value.get().0);
    let operation = match operation.as_str() {
        "constant" => Operation::Constant,
        "conv" => {
            let pads: Vec<(usize, usize)> = parameter("padding")?.extract()?;
            let is_transposed = parameters.get_item("transposed")?.map_or(Ok(false), |is| is.is_truthy())?;
            let (strides, dilations): (Vec<usize>, Vec<usize>) =
                (parameter("stride")?.extract()?, parameter("dilation")?.extract()?);
            match spatial::convolution(&strides, &pads, &dilations, parameter("groups")?.extract()?) {
                Ok(conv) if is_transposed => {
                    Operation::Convolution(conv.with_mode(fuseplan::ConvolutionMode::Transpose))
                }
                Ok(conv) => Operation::Convolution(conv),
                // The graph's own program will say what is wrong with it.
                Err(_) => Operation::Other,
            }
        }
        "linear" => Operation::Linear,
        "batch_norm" => Operation::BatchNorm { epsilon: parameter("eps")?.extract()? },
        "add" => Operation::Add,
        "multiply" => Operation::Multiply,
        "maximum" => Operation::Maximum,
        "affine" => {
            Operation::Affine { scale: parameter("scale")?.extract()?, shift: parameter("shift")?.extract()? }
        }
        "erf" => Operation::Erf,
        "cube" => Operation::Cube,
        "activation" => {
            let mode: String = parameter("mode")?.extract()?;
            let parameters = parameters.copy()?;
            parameters.del_item("mode")?;
            Operation::Activation(names::activation(&mode, Some(&parameters))?)
        }
        "prelu" => Operation::PRelu,
        "other" => Operation::Other,
        _ => return Err(PyValueError::new_err(format!("{name}: there is no operation {operation}"))),
    };
    Ok(Node { name, operation, inputs, value, is_result })
}

fn describe<'py>(py: Python<'py>, chain: &Chain) -> PyResult<Bound<'py, PyDict>> {
    let steps = PyList::empty(py);
    for step in &chain.steps {
        let parameters = PyDict::new(py);
        let kind = match step.kind {
            StepKind::Convolution(_) => "conv",
            StepKind::Linear => "linear",
            StepKind::Bias => "bias",
            StepKind::Residual => "residual",
            StepKind::BatchNorm { epsilon } => {
                parameters.set_item("eps", epsilon)?;
                "batch_norm"
            }
            StepKind::PRelu => "prelu",
            StepKind::Activation(activation) => names::describe_activation(&activation, &parameters)?,
        };
        steps.append((kind, step.node, &step.operands, parameters))?;
    }
    let described = PyDict::new(py);
    described.set_item("steps", steps)?;
    described.set_item("tail", chain.tail())?;
    described.set_item("end", chain.end.to_string())?;
    Ok(described)
}

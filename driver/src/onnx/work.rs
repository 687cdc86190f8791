//! How much arithmetic a node is: additions, multiplications and functions of an element, each counted as one, a
//! multiply-add as two.

use super::graph::Node;
use super::shapes::Shapes;
use super::tensor;

/// The operations of one execution of a node; `None` where lengths that decide them are not known.
pub(crate) fn of(node: &Node, shapes: &Shapes) -> Option<f64> {
    let input = |index: usize| node.input(index).and_then(|value| shapes.dims(value));
    let output = || node.output().and_then(|value| shapes.dims(value)).map(tensor::count);
    let taps = |filters: &[usize]| tensor::count(filters.get(1..).unwrap_or(&[]));
    Some(match node.op.as_str() {
        "Conv" | "com.microsoft.FusedConv" | "ConvInteger" => {
            let bias = if node.input(2).is_some() { 1.0 } else { 0.0 };
            output()? * (2.0 * taps(input(1)?) + bias)
        }
        "QLinearConv" => output()? * 2.0 * taps(input(3)?),
        // Each input meets every tap of its group's filters once.
        "ConvTranspose" => 2.0 * tensor::count(input(0)?) * taps(input(1)?),
        "Gemm" | "MatMul" | "com.microsoft.FusedMatMul" | "MatMulInteger" | "QLinearMatMul" => {
            let a = input(0)?;
            let depth = match node.int("transA", 0) {
                0 => a.last(),
                _ => a.first(),
            };
            2.0 * output()? * *depth? as f64
        }
        "MaxPool" | "AveragePool" | "LpPool" => {
            let window = node.ints("kernel_shape")?.iter().map(|&taps| taps as f64).product::<f64>();
            output()? * window
        }
        "LSTM" | "GRU" | "RNN" => {
            // For each step and each sequence all weights, of both matrices.
            let steps = input(0)?.get(..2)?.iter().map(|&length| length as f64).product::<f64>();
            2.0 * steps * (tensor::count(input(1)?) + tensor::count(input(2)?))
        }
        "BatchNormalization" => 2.0 * output()?,
        "Sum" | "Max" | "Min" | "Mean" => output()? * (node.inputs.len().max(2) - 1) as f64,
        op if MOVES.contains(&op) => 0.0,
        // What makes one number of many looks at each of them once.
        op if op.starts_with("Reduce") || op.starts_with("Global") || op.starts_with("Arg") => {
            tensor::count(input(0)?)
        }
        _ => output()?,
    })
}

/// Operators that move elements and compute nothing.
#[rustfmt::skip]
const MOVES: [&str; 26] = [
    "Cast", "Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather",
    "GatherElements", "GatherND", "Identity", "Pad", "Range", "Reshape", "Resize", "ScatterND", "Shape", "Size", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
];

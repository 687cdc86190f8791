//! The problems that the tests of kernel compilers are about.

use fuseplan_api::*;

/// A convolution with square filters, padded so that without a stride its output has the extents of its input, and
/// what follows it.
#[allow(clippy::too_many_arguments, reason = "numbers of a convolution")]
pub(crate) fn strided(
    data_type: DataType,
    layout: TensorLayout,
    lens: &[usize],
    filters: usize,
    taps: usize,
    groups: usize,
    stride: usize,
    chain: Vec<Op>,
) -> Problem {
    let of = |value| vec![value; lens.len() - 2];
    let conv = ConvolutionDescriptor::of_dims(lens.len() - 2).unwrap();
    let conv = conv.with_pads(of(taps / 2)).unwrap().with_strides(of(stride)).unwrap();
    let conv = conv.with_groups(groups).unwrap();
    let input = TensorDescriptor::with_layout(data_type, layout, lens).unwrap();
    let weights = [&[filters, lens[1] / groups][..], &of(taps)[..]].concat();
    let weights = TensorDescriptor::with_layout(data_type, layout, &weights).unwrap();
    let output = conv.forward_output(&input, &weights).unwrap();
    let ops = [vec![Op::ConvForward { conv, weights }], chain].concat();
    Problem { input, output, ops, math: MathMode::Precise }
}

/// The same without a stride.
pub(crate) fn conv(
    data_type: DataType,
    layout: TensorLayout,
    lens: &[usize],
    filters: usize,
    taps: usize,
    groups: usize,
    chain: Vec<Op>,
) -> Problem {
    strided(data_type, layout, lens, filters, taps, groups, 1, chain)
}

/// A depthwise convolution with bias and ReLU.
pub(crate) fn depthwise(
    data_type: DataType,
    layout: TensorLayout,
    lens: [usize; 4],
    multiplier: usize,
    taps: usize,
    stride: usize,
) -> Problem {
    let filters = lens[1] * multiplier;
    let bias = TensorDescriptor::with_layout(data_type, layout, &[1, filters, 1, 1]).unwrap();
    let chain = vec![Op::BiasForward { bias }, Op::ActivationForward { mode: ActivationMode::Relu }];
    strided(data_type, layout, &lens, filters, taps, lens[1], stride, chain)
}

/// Bias, batch-norm, residual, activation of a convolution's `output`.
pub(crate) fn chain(
    output: &[usize],
    data_type: DataType,
    layout: TensorLayout,
    mode: ActivationMode,
) -> Vec<Op> {
    let bias = |lens: &[usize]| Op::BiasForward {
        bias: TensorDescriptor::with_layout(data_type, layout, lens).unwrap(),
    };
    let mut channels = vec![1; output.len()];
    channels[1] = output[1];
    vec![
        bias(&channels),
        Op::BatchNormInference { mode: BatchNormMode::Spatial, params: DataType::Float },
        bias(output),
        Op::ActivationForward { mode },
    ]
}

/// Operators that leave the tensor's extents as they are.
pub(crate) fn element_wise(
    data_type: DataType,
    layout: TensorLayout,
    lens: [usize; 4],
    ops: Vec<Op>,
) -> Problem {
    let x = TensorDescriptor::with_layout(data_type, layout, &lens).unwrap();
    Problem { input: x, output: x, ops, math: MathMode::Precise }
}

/// Batch-norm for inference and ReLU.
pub(crate) fn norm_relu(mode: BatchNormMode) -> Vec<Op> {
    vec![
        Op::BatchNormInference { mode, params: DataType::Float },
        Op::ActivationForward { mode: ActivationMode::Relu },
    ]
}

/// Batch-norm for training with its activation.
pub(crate) fn training(
    data_type: DataType,
    layout: TensorLayout,
    lens: [usize; 4],
    mode: BatchNormMode,
    act: ActivationMode,
    backward: bool,
) -> Problem {
    let ops = if backward {
        vec![Op::BatchNormBackward { mode }, Op::ActivationBackward { mode: act }]
    } else {
        vec![Op::BatchNormForward { mode, running: true }, Op::ActivationForward { mode: act }]
    };
    element_wise(data_type, layout, lens, ops)
}

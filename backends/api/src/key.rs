//! The text by which a problem is known outside of this process: in the names of cached files, and in exported
//! binaries.

use std::fmt::Write;

use crate::{BatchNormMode, ConvolutionMode, DataType, MathMode, Op, Problem, TensorDescriptor};

impl Problem {
    /// The problem as text that has every property, so that equal problems have equal texts and others have not.
    /// What is stored is found by this text: a change of it is a change of the format of what is stored.
    pub fn key(&self) -> String {
        let mut text = String::from("input ");
        tensor(&mut text, &self.input);
        for op in &self.ops {
            text += "; ";
            operator(&mut text, op);
        }
        text += "; output ";
        tensor(&mut text, &self.output);
        text += match self.math {
            MathMode::Strict => "; math strict",
            MathMode::Precise => "; math precise",
            MathMode::AllowTf32 => "; math tf32",
        };
        text
    }
}

fn operator(text: &mut String, op: &Op) {
    match op {
        Op::ConvForward { conv, weights } => {
            *text += match conv.mode() {
                ConvolutionMode::Convolution => "convolution",
                ConvolutionMode::Transpose => "transposed convolution",
            };
            let (before, after) = (conv.pads_before(), conv.pads_after());
            if before == after {
                *text += " pads ";
                numbers(text, before);
            } else {
                *text += " pads before ";
                numbers(text, before);
                *text += " after ";
                numbers(text, after);
            }
            let lists = [
                (" strides ", conv.strides()),
                (" dilations ", conv.dilations()),
                (" output pads ", conv.output_pads()),
            ];
            for (name, list) in lists {
                *text += name;
                numbers(text, list);
            }
            *text += " groups ";
            numbers(text, &[conv.groups()]);
            *text += " weights ";
            tensor(text, weights);
        }
        Op::BiasForward { bias } => {
            *text += "bias ";
            tensor(text, bias);
        }
        Op::PReluForward { slope } => {
            *text += "prelu ";
            tensor(text, slope);
        }
        Op::BatchNormInference { mode, params } => {
            *text += "batch-norm inference ";
            *text += norm(*mode);
            // f32 goes without saying.
            if *params != DataType::Float {
                *text += " ";
                *text += element(*params);
            }
        }
        Op::ActivationForward { mode } => {
            *text += "activation ";
            numbers(text, &[mode.miopen_value() as usize]);
        }
        Op::BatchNormForward { mode, running } => {
            *text += "batch-norm forward ";
            *text += norm(*mode);
            if *running {
                *text += " running";
            }
        }
        Op::BatchNormBackward { mode } => {
            *text += "batch-norm backward ";
            *text += norm(*mode);
        }
        Op::ActivationBackward { mode } => {
            *text += "activation backward ";
            numbers(text, &[mode.miopen_value() as usize]);
        }
    }
}

fn norm(mode: BatchNormMode) -> &'static str {
    match mode {
        BatchNormMode::PerActivation => "per-activation",
        BatchNormMode::Spatial => "spatial",
    }
}

fn element(data_type: DataType) -> &'static str {
    match data_type {
        DataType::Half => "f16",
        DataType::BFloat16 => "bf16",
        DataType::Float => "f32",
        DataType::Double => "f64",
        DataType::Int8 => "i8",
    }
}

fn tensor(text: &mut String, tensor: &TensorDescriptor) {
    *text += element(tensor.data_type());
    *text += " ";
    numbers(text, tensor.lens());
    match tensor.strides() {
        Some(strides) => {
            *text += " strides ";
            numbers(text, strides);
        }
        // A tensor with blocks of channels is packed, and the problem's is canonical: the blocks say the rest.
        None => {
            *text += " blocks of ";
            numbers(text, &[tensor.blocks().map_or(0, |blocks| blocks.channels)]);
        }
    }
}

/// The numbers with an `x` between them.
fn numbers(text: &mut String, list: &[usize]) {
    for (index, number) in list.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{}{number}", if index == 0 { "" } else { "x" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ActivationMode, ConvolutionDescriptor};

    /// Files that were stored are found by these very bytes.
    #[test]
    fn the_texts_do_not_change() {
        let x = TensorDescriptor::nhwc(DataType::Half, [2, 8, 9, 9]).unwrap();
        let weights = TensorDescriptor::nhwc(DataType::Half, [16, 4, 3, 3]).unwrap();
        let conv = ConvolutionDescriptor::d2()
            .with_pads([1, 0])
            .unwrap()
            .with_strides([2, 1])
            .unwrap()
            .with_dilations([1, 3])
            .unwrap()
            .with_groups(2)
            .unwrap();
        let output = conv.forward_output(&x, &weights).unwrap();
        let bias = TensorDescriptor::nchw(DataType::Half, [1, 16, 1, 1]).unwrap();
        let ops = vec![
            Op::ConvForward { conv, weights },
            Op::BiasForward { bias },
            Op::BatchNormInference { mode: BatchNormMode::PerActivation, params: DataType::Float },
            Op::BatchNormInference { mode: BatchNormMode::Spatial, params: DataType::Half },
            Op::ActivationForward { mode: ActivationMode::LeakyRelu },
            Op::PReluForward { slope: bias },
        ];
        let problem = Problem { input: x, output, ops, math: MathMode::AllowTf32 };
        assert_eq!(
            problem.key(),
            "input f16 2x8x9x9 strides 648x1x72x8; convolution pads 1x0 strides 2x1 dilations 1x3 output pads 0x0 \
             groups 2 weights f16 16x4x3x3 strides 36x1x12x4; bias f16 1x16x1x1 strides 16x1x1x1; batch-norm \
             inference per-activation; batch-norm inference spatial f16; activation 8; prelu f16 1x16x1x1 strides 16x1x1x1; \
             output f16 2x16x5x3 strides 240x1x48x16; math tf32"
        );
        let conv = ConvolutionDescriptor::d2().with_asymmetric_pads([0, 1], [1, 2]).unwrap();
        let output = conv.forward_output(&x, &x).unwrap();
        let ops = vec![Op::ConvForward { conv, weights: x }];
        assert_eq!(
            Problem { input: x, output, ops, math: MathMode::Precise }.key(),
            "input f16 2x8x9x9 strides 648x1x72x8; convolution pads before 0x1 after 1x2 strides 1x1 dilations 1x1 \
             output pads 0x0 groups 1 weights f16 2x8x9x9 strides 648x1x72x8; output f16 2x2x2x4 strides 16x1x8x2; \
             math precise"
        );
        let x = TensorDescriptor::nchwc(DataType::Half, [2, 8, 9, 9], 4).unwrap();
        let ops = vec![Op::BiasForward { bias: x }];
        assert_eq!(
            Problem { input: x, output: x, ops, math: MathMode::Precise }.key(),
            "input f16 2x8x9x9 blocks of 4; bias f16 2x8x9x9 blocks of 4; output f16 2x8x9x9 blocks of 4; math precise"
        );
        let x = TensorDescriptor::nchw(DataType::Float, [2, 3, 4, 5]).unwrap();
        let training = |ops| Problem { input: x, output: x, ops, math: MathMode::Precise }.key();
        let mode = BatchNormMode::Spatial;
        assert_eq!(
            training(vec![
                Op::BatchNormForward { mode, running: true },
                Op::ActivationForward { mode: ActivationMode::Relu }
            ]),
            "input f32 2x3x4x5 strides 60x20x5x1; batch-norm forward spatial running; activation 3; output f32 \
             2x3x4x5 strides 60x20x5x1; math precise"
        );
        assert_eq!(
            training(vec![
                Op::BatchNormBackward { mode },
                Op::ActivationBackward { mode: ActivationMode::Tanh }
            ]),
            "input f32 2x3x4x5 strides 60x20x5x1; batch-norm backward spatial; activation backward 2; output f32 \
             2x3x4x5 strides 60x20x5x1; math precise"
        );
    }
}

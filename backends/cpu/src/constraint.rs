//! Conditions that several solvers put on problems.

use fuseplan_api::{Constraint, OpKind, Problem};

use crate::element::DATA_TYPES;

/// The element types that the CPU's kernels know.
pub(crate) const DATA_TYPE: Constraint = Constraint {
    property: "data type",
    accepts: "f32, f16, bf16",
    check: |problem, _| {
        let data_type = problem.output.data_type();
        (!DATA_TYPES.contains(&data_type)).then(|| data_type.to_string())
    },
};

const INFERENCE_KINDS: [OpKind; 5] = [
    OpKind::ConvForward,
    OpKind::BiasForward,
    OpKind::PReluForward,
    OpKind::BatchNormInference,
    OpKind::ActivationForward,
];

/// Forward operators with given statistics.
pub(crate) const INFERENCE: Constraint = Constraint {
    property: "operators",
    accepts: "ConvForward first or not at all, BiasForward, PReluForward, BatchNormInference, \
              ActivationForward in any order",
    check: |problem, _| problem.beyond(&INFERENCE_KINDS),
};

/// Channels on either side, and positions along a dimension, of which no plan's sums and products overflow, and whose lists of panels
/// are small beside the tensors.
const CHANNELS: usize = 1 << 24;
const POSITIONS: usize = 1 << 31;

/// Convolutions that are not larger than memory will be.
pub(crate) const SIZE: Constraint = Constraint {
    property: "size",
    accepts: "at most 2^24 channels of input and output each, and 2^31 positions along a dimension, padding, strides and the \
              filter's reach each",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let channels = problem.input.lens()[1].max(weights.lens()[0]);
        if channels > CHANNELS {
            return Some(format!("{channels} channels"));
        }
        let pads = conv.pads_before().iter().zip(conv.pads_after());
        let padded = problem.input.lens()[2..].iter().zip(pads).map(|(len, (before, after))| {
            let pads = before.saturating_add(*after);
            len.saturating_add(pads)
        });
        let reach = weights.lens()[2..].iter().zip(conv.dilations());
        let reach = reach.map(|(taps, dilation)| (taps - 1).saturating_mul(*dilation));
        let images = problem.input.lens()[0];
        let all = padded.chain(reach).chain(conv.strides().iter().copied()).chain([images]);
        all.max().filter(|&most| most > POSITIONS).map(|most| most.to_string())
    },
};

/// Convolutions whose outputs are neighbours' where their inputs are.
pub(crate) const STRIDES: Constraint = Constraint {
    property: "strides",
    accepts: "1",
    check: |problem, _| {
        let (conv, _) = problem.conv()?;
        conv.strides().iter().find(|&&stride| stride != 1).map(ToString::to_string)
    },
};

/// Convolutions whose taps are neighbours.
pub(crate) const DILATIONS: Constraint = Constraint {
    property: "dilations",
    accepts: "1",
    check: |problem, _| {
        let (conv, _) = problem.conv()?;
        conv.dilations().iter().find(|&&dilation| dilation != 1).map(ToString::to_string)
    },
};

/// Plans that only touch each element.
pub(crate) const ELEMENT_WISE: Constraint = Constraint {
    property: "operators",
    accepts: "BiasForward, PReluForward, BatchNormInference, \
              ActivationForward in any order",
    check: |problem, _| problem.beyond(&INFERENCE_KINDS[1..]),
};

/// Tensors that one walk through memory visits element by element.
pub(crate) const ONE_LAYOUT: Constraint = Constraint {
    property: "layout",
    accepts: "packed NCHW, NHWC, NCHWc, NCDHW, NDHWC, the same for input, output and residuals",
    check: |problem, _| {
        let tensors = || [&problem.input, &problem.output].into_iter().chain(problem.residuals());
        let is_packed = tensors().all(|tensor| tensor.layout().is_some());
        let is_one = tensors().all(|tensor| *tensor == problem.output);
        (!is_packed || !is_one).then(|| tensors().map(|tensor| tensor.order()).collect::<Vec<_>>().join(", "))
    },
};

/// One operator for training, alone or with its activation.
pub(crate) const TRAINING: Constraint = Constraint {
    property: "operators",
    accepts: "BatchNormForward alone or followed by ActivationForward, BatchNormBackward alone or followed by \
              ActivationBackward",
    check: |problem, _| (!is_training_chain(problem)).then(|| problem.chain()),
};

fn is_training_chain(problem: &Problem) -> bool {
    use fuseplan_api::Op::*;
    matches!(
        problem.ops.as_slice(),
        [BatchNormForward { .. }]
            | [BatchNormForward { .. }, ActivationForward { .. }]
            | [BatchNormBackward { .. }]
            | [BatchNormBackward { .. }, ActivationBackward { .. }]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_is_checked() {
        assert_eq!(DATA_TYPE.accepts, DATA_TYPES.map(|data_type| data_type.to_string()).join(", "));
        let kinds = INFERENCE_KINDS.map(|kind| kind.to_string());
        for (constraint, kinds) in [(&INFERENCE, &kinds[..]), (&ELEMENT_WISE, &kinds[1..])] {
            let named = constraint.accepts.replace(" first or not at all", "").replace(" in any order", "");
            assert_eq!(named, kinds.join(", "));
        }
    }
}

//! Conditions that solvers put on problems.

use fuseplan_api::{Constraint, DataType, Problem};

use crate::halo::{halo_fma, halo_refusal};
use crate::volume::{Volume, is_wide};

/// The element types that kernels know.
pub const DATA_TYPE: Constraint = Constraint {
    property: "data type",
    accepts: "f32, f16, bf16",
    check: |problem, _| {
        let data_type = problem.output.data_type();
        let known = matches!(data_type, DataType::Float | DataType::Half | DataType::BFloat16);
        (!known).then(|| data_type.to_string())
    },
};

/// What the matrix units of every architecture that has them multiply.
pub const SIXTEEN_BITS: Constraint = Constraint {
    property: "data type",
    accepts: "f16, bf16",
    check: |problem, _| {
        let data_type = problem.output.data_type();
        let known = matches!(data_type, DataType::Half | DataType::BFloat16);
        (!known).then(|| data_type.to_string())
    },
};

/// Forward operators with given statistics.
pub const INFERENCE: Constraint = Constraint {
    property: "operators",
    accepts: "ConvForward first or not at all, BiasForward, BatchNormInference, ActivationForward in any order",
    check: |problem, _| problem.is_training().then(|| problem.chain()),
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

/// Most operators whose arguments fit the 4096 bytes that a kernel's arguments may have.
pub(crate) const MAX_OPS: usize = 32;

/// As many operators as a kernel's arguments have room for.
pub const OPERATOR_COUNT: Constraint = Constraint {
    property: "number of operators",
    accepts: "at most 32",
    check: |problem, _| (problem.ops.len() > MAX_OPS).then(|| problem.ops.len().to_string()),
};

/// No convolution, tensors without gaps.
pub(crate) const PACKED: Constraint = Constraint {
    property: "element-wise layout",
    accepts: "no convolution; input and output of the same packed layout",
    check: |problem, _| {
        if problem.conv().is_some() {
            return Some("a convolution".into());
        }
        let like = problem.input == problem.output && problem.output.layout().is_some();
        (!like).then(|| format!("{} to {}", problem.input, problem.output))
    },
};

/// A launch of an element-wise kernel whose threads HIP counts in 32 bits.
pub(crate) const ELEMENTS: Constraint = Constraint {
    property: "extent",
    accepts: "less than 2^35 elements",
    check: |problem, _| (problem.output.element_count() >> 35 != 0).then(|| problem.output.to_string()),
};

/// The same for training, where a block has some of the parameters.
pub(crate) const PARAMETERS: Constraint = Constraint {
    property: "extent",
    accepts: "less than 2^23 channels; for batch-norm per activation less than 2^31 elements of an image",
    check: |problem, _| {
        use fuseplan_api::{BatchNormMode::PerActivation, Op::*};
        let lens = problem.output.lens();
        let fits = match problem.ops[0] {
            BatchNormForward { mode: PerActivation, .. } | BatchNormBackward { mode: PerActivation } => {
                lens[1..].iter().product::<usize>() < 1 << 31
            }
            _ => lens[1] < 1 << 23,
        };
        (!fits).then(|| problem.output.to_string())
    },
};

/// Offsets that fit 32 bits.
pub const SPAN: Constraint = Constraint {
    property: "extent",
    accepts: "tensors, and the input with its padding, that span less than 2^30 elements",
    check: |problem, _| {
        is_wide(problem).then(|| {
            let conv = problem.conv().map(|(conv, _)| format!(", {conv}")).unwrap_or_default();
            format!("{} to {}{conv}", problem.input, problem.output)
        })
    },
};

/// Products enough to be worth a tile of a matrix product, most of which may be empty.
pub const GEMM: Constraint = Constraint {
    property: "convolution",
    accepts: "at least 128 products of a group for a pixel (filters times channels of a group times taps)",
    check: |problem, _| {
        let Some((conv, weights)) = problem.conv() else { return Some("none".into()) };
        let weights = Volume::of(weights);
        let (filters, depth) = (weights.lens[0] / conv.groups(), weights.lens[1..].iter().product::<usize>());
        (filters.saturating_mul(depth) < 128).then(|| format!("{filters} filters a group, depth {depth}"))
    },
};

/// Filters too few for the tiles of a matrix product in f32.
pub const FEW_FILTERS: Constraint = Constraint {
    property: "convolution",
    accepts: "at most 32 filters a group",
    check: |problem, _| {
        let Some((conv, weights)) = problem.conv() else { return Some("none".into()) };
        let filters = weights.lens()[0] / conv.groups();
        (filters > 32).then(|| format!("{filters} filters a group"))
    },
};

/// Filters or groups too narrow for the tiles of matrix units.
pub const NARROW: Constraint = Constraint {
    property: "convolution",
    accepts: "fewer than 16 filters a group, or two or more groups of at most 24 filters",
    check: |problem, _| {
        let Some((conv, weights)) = problem.conv() else { return Some("none".into()) };
        let (groups, filters) = (conv.groups(), weights.lens()[0] / conv.groups());
        let narrow = filters < 16 || (groups > 1 && filters <= 24);
        (!narrow).then(|| format!("{groups} groups of {filters} filters"))
    },
};

/// What a block of [`halo_fma`] keeps.
pub const WINDOW: Constraint = Constraint {
    property: "shared memory",
    accepts: "filters of a group, and what of its channels some outputs see, that fit 64 KiB",
    check: |problem, _| halo_refusal(problem, &halo_fma("")),
};

/// As many groups as a launch of [`implicit_gemm`](crate::implicit_gemm) takes side by side.
pub const GROUP_COUNT: Constraint = Constraint {
    property: "groups",
    accepts: "at most 65535",
    check: |problem, _| {
        let groups = problem.conv()?.0.groups();
        (groups > 65535).then(|| groups.to_string())
    },
};

/// Most filters of a channel, and most taps in each dimension, of a depthwise kernel.
const DEPTHWISE_LIMITS: (usize, usize) = (8, 16);

/// One channel a group.
pub(crate) const DEPTHWISE: Constraint = Constraint {
    property: "convolution",
    accepts: "2-D, one channel a group, at most 8 filters a group, at most 16 x 16 taps",
    check: |problem, _| {
        let Some((conv, weights)) = problem.conv() else { return Some("none".into()) };
        let (dims, groups, lens) = (conv.pads().len(), conv.groups(), weights.lens());
        let (filters, channels, taps) = (lens[0] / groups, lens[1], &lens[2..]);
        let (most_filters, most_taps) = DEPTHWISE_LIMITS;
        let fits =
            dims == 2 && channels == 1 && filters <= most_filters && taps.iter().all(|&n| n <= most_taps);
        let taps = taps.iter().map(ToString::to_string).collect::<Vec<_>>().join(" x ");
        (!fits).then(|| format!("{dims}-D, {channels} channels and {filters} filters a group, {taps} taps"))
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use fuseplan_api::null::NullBackend;
    use fuseplan_api::{Backend, BatchNormMode, ConvolutionDescriptor, MathMode, Op, TensorDescriptor};

    fn refuses(constraint: &Constraint, problem: &Problem) -> bool {
        (constraint.check)(problem, &NullBackend.target("").unwrap()).is_some()
    }

    fn conv([h, w]: [usize; 2], pad: usize, stride: usize) -> Problem {
        let of = |lens| TensorDescriptor::nchw(DataType::Half, lens).unwrap();
        let conv = ConvolutionDescriptor::new_2d([pad, 1], [stride, 1], [pad.max(1), 1]).unwrap();
        let (input, weights) = (of([1, 2, h, w]), of([2, 2, 3, 3]));
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops = vec![Op::ConvForward { conv, weights }];
        Problem { input, output, ops, math: MathMode::Precise }
    }

    #[test]
    fn offsets_of_32_bits_reach_every_place_of_the_padded_input() {
        for (problem, refused) in [
            (conv([1 << 14, (1 << 15) - 2], 1, 1), false),
            (conv([1 << 15, 1 << 14], 1, 1), true),
            (conv([1 << 16, 1 << 16], 1, 1 << 15), true),
            (conv([100, 10000], 53000, 1), false),
            (conv([100, 10000], 54000, 1), true),
            (conv([100, 10000], 300_000, 1), true),
            (conv([100, 2], 1 << 29, 1), true),
        ] {
            assert_eq!(refuses(&SPAN, &problem), refused, "{problem:?}");
        }
    }

    #[test]
    fn threads_of_a_launch_are_counted_in_32_bits() {
        let plan = |lens, op| {
            let x = TensorDescriptor::nchw(DataType::Half, lens).unwrap();
            Problem { input: x, output: x, ops: vec![op], math: MathMode::Precise }
        };
        let norm = |lens, mode| plan(lens, Op::BatchNormBackward { mode });
        let (spatial, each) = (BatchNormMode::Spatial, BatchNormMode::PerActivation);
        for (constraint, problem, refused) in [
            (&ELEMENTS, plan([1 << 24, 1, 1, 1 << 10], Op::BatchNormInference { mode: spatial }), false),
            (&ELEMENTS, plan([1 << 24, 1, 1, 1 << 11], Op::BatchNormInference { mode: spatial }), true),
            (&PARAMETERS, norm([9, (1 << 23) - 1, 1, 1], spatial), false),
            (&PARAMETERS, norm([9, 1 << 23, 1, 1], spatial), true),
            (&PARAMETERS, norm([9, 1 << 23, 1, 1], each), false),
            (&PARAMETERS, norm([9, 1 << 23, 1, 1 << 8], each), true),
        ] {
            assert_eq!(refuses(constraint, &problem), refused, "{problem:?}");
        }
    }
}

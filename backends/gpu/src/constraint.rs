//! Conditions that solvers put on problems.

use fuseplan_api::volume::Volume;
use fuseplan_api::{
    BatchNormMode, Constraint, ConvolutionDescriptor, DataType, OpKind, Problem, TensorDescriptor,
};

use crate::element_wise::threads;
use crate::halo::{halo_fma, halo_refusal};
use crate::parts::part_of;

/// The element types that kernels know; all but the first have 16 bits.
const DATA_TYPES: [DataType; 3] = [DataType::Float, DataType::Half, DataType::BFloat16];

/// A convolution, which can only be first.
pub const CONVOLUTION: Constraint = Constraint {
    property: "first operator",
    accepts: "ConvForward",
    check: |problem, _| problem.conv().is_none().then(|| problem.chain()),
};

/// The convolution of a problem that meets [`CONVOLUTION`], and its weights.
pub fn convolution(problem: &Problem) -> (&ConvolutionDescriptor, &TensorDescriptor) {
    problem.conv().unwrap_or_else(|| unreachable!("a constraint demands a convolution"))
}

/// The element types that kernels know.
pub const DATA_TYPE: Constraint = Constraint {
    property: "data type",
    accepts: "f32, f16, bf16",
    check: |problem, _| {
        let data_type = problem.output.data_type();
        (!DATA_TYPES.contains(&data_type)).then(|| data_type.to_string())
    },
};

/// What the matrix units of every architecture that has them multiply.
pub const SIXTEEN_BITS: Constraint = Constraint {
    property: "data type",
    accepts: "f16, bf16",
    check: |problem, _| {
        let data_type = problem.output.data_type();
        (!DATA_TYPES[1..].contains(&data_type)).then(|| data_type.to_string())
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
pub const INFERENCE: Constraint = Constraint {
    property: "operators",
    accepts: "ConvForward first or not at all, BiasForward, PReluForward, BatchNormInference, \
              ActivationForward in any order",
    check: |problem, _| problem.beyond(&INFERENCE_KINDS),
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
    accepts: "less than 2^32 threads, each of which has at most 48 bytes of a tensor, and less where channels are innermost and few",
    check: |problem, _| (threads(problem) >> 32 != 0).then(|| problem.output.to_string()),
};

/// A launch of a training kernel whose threads HIP counts in 32 bits, where a block has some of the parameters.
pub(crate) const PARAMETERS: Constraint = Constraint {
    property: "extent",
    accepts: "less than 2^23 channels; for batch-norm per activation less than 2^31 elements of an image",
    check: |problem, _| {
        let lens = problem.output.lens();
        let fits = match problem.training().map(|training| training.mode) {
            Some(BatchNormMode::PerActivation) => lens[1..].iter().product::<usize>() < 1 << 31,
            Some(BatchNormMode::Spatial) | None => lens[1] < 1 << 23,
        };
        (!fits).then(|| problem.output.to_string())
    },
};

/// Offsets that fit 32 bits, of some images at least.
pub const SPAN: Constraint = Constraint {
    property: "extent",
    accepts: "filters, an image with its padding, and its output, that span less than 2^30 elements (what spans more as a whole is \
              computed some images after others, in at most 2^20 parts)",
    check: |problem, _| {
        part_of(problem).is_none().then(|| {
            let conv = problem.conv().map(|(conv, _)| format!(", {conv}")).unwrap_or_default();
            format!("{} to {}{conv}", problem.input, problem.output)
        })
    },
};

/// What a block of [`halo_fma`] keeps.
pub const WINDOW: Constraint = Constraint {
    property: "shared memory",
    accepts: "filters of a group, and what of its channels some outputs see, that fit 64 KiB",
    check: |problem, _| halo_refusal(problem, &halo_fma("")),
};

/// A launch of [`gemv`](crate::gemv::gemv) whose threads HIP counts in 32 bits, with the filters that [`SPAN`] leaves room for.
pub(crate) const PIXEL_COUNT: Constraint = Constraint {
    property: "extent",
    accepts: "at most 2^26 pixels of all images together",
    check: |problem, _| (Volume::of(&problem.output).pixels() > 1 << 26).then(|| problem.output.to_string()),
};

/// Taps that never lie beside the image.
pub(crate) const UNPADDED: Constraint = Constraint {
    property: "padding",
    accepts: "none",
    check: |problem, _| {
        let (conv, _) = problem.conv()?;
        let mut pads = conv.pads_before().iter().chain(conv.pads_after());
        pads.any(|&pad| pad != 0).then(|| conv.to_string())
    },
};

/// As many groups as a launch takes side by side, in its last dimension.
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
        let (dims, groups, lens) = (conv.spatial_dims(), conv.groups(), weights.lens());
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
    use fuseplan_api::{Backend, BatchNormMode, ConvolutionDescriptor, MathMode, Op, TensorDescriptor};
    use fuseplan_fakes::NullBackend;

    #[test]
    fn words_are_what_is_checked() {
        let types = DATA_TYPES.map(|data_type| data_type.to_string());
        assert_eq!((DATA_TYPE.accepts, SIXTEEN_BITS.accepts), (&*types.join(", "), &*types[1..].join(", ")));
        assert!(DATA_TYPES.iter().all(|data_type| crate::element(*data_type).is_some()));
        let named = INFERENCE.accepts.replace(" first or not at all", "").replace(" in any order", "");
        assert_eq!(named, INFERENCE_KINDS.map(|kind| kind.to_string()).join(", "));
    }

    fn refuses(constraint: &Constraint, problem: &Problem) -> bool {
        (constraint.check)(problem, &NullBackend.target("").unwrap()).is_some()
    }

    fn conv([h, w]: [usize; 2], pad: usize, stride: usize) -> Problem {
        let of = |lens| TensorDescriptor::nchw(DataType::Half, lens).unwrap();
        let conv = ConvolutionDescriptor::d2()
            .with_pads([pad, 1])
            .unwrap()
            .with_strides([stride, 1])
            .unwrap()
            .with_dilations([pad.max(1), 1])
            .unwrap();
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
    fn padding_is_told_from_none() {
        let mut problem = conv([9, 9], 1, 1);
        assert!(refuses(&UNPADDED, &problem));
        if let Op::ConvForward { conv, .. } = &mut problem.ops[0] {
            *conv = ConvolutionDescriptor::d2();
        }
        assert!(!refuses(&UNPADDED, &problem));
    }

    #[test]
    fn threads_of_a_launch_are_counted_in_32_bits() {
        let plan = |lens, op| {
            let x = TensorDescriptor::nchw(DataType::Half, lens).unwrap();
            Problem { input: x, output: x, ops: vec![op], math: MathMode::Precise }
        };
        let norm = |lens, mode| plan(lens, Op::BatchNormBackward { mode });
        let applied = |make: fn(_, _) -> Result<TensorDescriptor, _>, lens: [usize; 4]| {
            let x: TensorDescriptor = make(DataType::Half, lens).unwrap();
            let ops = vec![Op::BatchNormInference { mode: BatchNormMode::Spatial, params: DataType::Float }];
            Problem { input: x, output: x, ops, math: MathMode::Precise }
        };
        let (spatial, each) = (BatchNormMode::Spatial, BatchNormMode::PerActivation);
        for (constraint, problem, refused) in [
            (&ELEMENTS, applied(TensorDescriptor::nchw, [1 << 24, 1, 1, 1 << 10]), false),
            (&ELEMENTS, applied(TensorDescriptor::nchw, [1 << 24, 1, 1, 1 << 13]), true),
            // Threads of three channels have an element at a time, three of them.
            (&ELEMENTS, applied(TensorDescriptor::nhwc, [1 << 12, 3, 1 << 10, 1 << 9]), false),
            (&ELEMENTS, applied(TensorDescriptor::nhwc, [1 << 13, 3, 1 << 10, 1 << 9]), true),
            (&PIXEL_COUNT, norm([1 << 14, 9, 1 << 12, 1], spatial), false),
            (&PIXEL_COUNT, norm([1 << 14, 9, (1 << 12) + 1, 1], spatial), true),
            (&PARAMETERS, norm([9, (1 << 23) - 1, 1, 1], spatial), false),
            (&PARAMETERS, norm([9, 1 << 23, 1, 1], spatial), true),
            (&PARAMETERS, norm([9, 1 << 23, 1, 1], each), false),
            (&PARAMETERS, norm([9, 1 << 23, 1, 1 << 8], each), true),
        ] {
            assert_eq!(refuses(constraint, &problem), refused, "{problem:?}");
        }
    }
}

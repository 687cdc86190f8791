//! Solvers that every vendor has, but for their ids.

use fuseplan_api::Algorithm;

use crate::batch_norm::{batch_norm, batch_norm_configurations};
use crate::constraint::{
    CONVOLUTION, DATA_TYPE, DEPTHWISE, ELEMENTS, GROUP_COUNT, INFERENCE, OPERATOR_COUNT, PACKED, PARAMETERS,
    PIXEL_COUNT, SPAN, TRAINING, UNPADDED,
};
use crate::depthwise::depthwise;
use crate::direct::direct;
use crate::element_wise::element_wise;
use crate::gemv::{AS_FILTERS, gemv, gemv_configurations};
use crate::{JitSolver, Kernels, Runtime};

impl<R: Runtime> JitSolver<R> {
    /// Depthwise convolutions.
    pub const fn depthwise(id: &'static str) -> Self {
        Self::new(
            id,
            Algorithm::Direct,
            &[DATA_TYPE, INFERENCE, OPERATOR_COUNT, DEPTHWISE, SPAN],
            Kernels::One(|problem, arch| depthwise(R::VENDOR, problem, R::units(arch))),
        )
    }

    /// Convolutions as products of the filters' matrix and vectors.
    pub const fn gemv(id: &'static str) -> Self {
        Self::new(
            id,
            Algorithm::ImplicitGemm,
            &[
                CONVOLUTION,
                DATA_TYPE,
                INFERENCE,
                OPERATOR_COUNT,
                GROUP_COUNT,
                PIXEL_COUNT,
                SPAN,
                UNPADDED,
                AS_FILTERS,
            ],
            Kernels::Several {
                configurations: |problem, arch| gemv_configurations(problem, R::units(arch), R::IS_FITTED),
                kernel: |problem, _, configuration| gemv(R::VENDOR, problem, configuration),
            },
        )
    }

    /// Packed element-wise plans.
    pub const fn element_wise(id: &'static str) -> Self {
        Self::new(
            id,
            Algorithm::ElementWise,
            &[DATA_TYPE, INFERENCE, OPERATOR_COUNT, PACKED, ELEMENTS],
            Kernels::One(|problem, arch| element_wise(R::VENDOR, problem, R::units(arch))),
        )
    }

    /// Batch-norm for training.
    pub const fn batch_norm(id: &'static str) -> Self {
        Self::new(
            id,
            Algorithm::BatchNorm,
            &[DATA_TYPE, TRAINING, PARAMETERS],
            Kernels::Several {
                configurations: |problem, arch| batch_norm_configurations(problem, &R::target(arch)),
                kernel: |problem, arch, configuration| {
                    batch_norm(R::VENDOR, problem, &R::target(arch), configuration)
                },
            },
        )
    }

    /// Every plan for inference, an output at a time.
    pub const fn direct(id: &'static str) -> Self {
        Self::new(
            id,
            Algorithm::Direct,
            &[DATA_TYPE, INFERENCE, OPERATOR_COUNT],
            Kernels::One(|problem, _| direct(R::VENDOR, problem)),
        )
    }
}

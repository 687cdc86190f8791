//! Conditions that several solvers put on problems.

use fuseplan_api::{Constraint, Problem};

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

/// Forward operators with given statistics.
pub(crate) const INFERENCE: Constraint = Constraint {
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

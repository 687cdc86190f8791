//! Which operator may follow which, whatever the backend.

use fuseplan_api::{Op, OpGroup, OpKind};

use super::Reason;

/// Whether `next` may be appended behind `ops`.
///
/// A plan is a convolution or nothing, followed by any sequence of element-wise operators; or one of the training
/// pairs `BatchNormForward [ActivationForward]` and `BatchNormBackward [ActivationBackward]`. The operators are computed in this very order.
pub(super) fn may_follow(ops: &[Op], next: OpKind) -> Result<(), Reason> {
    let Some(first) = ops.first().map(Op::kind) else {
        let follows = next == OpKind::ActivationBackward;
        return if follows { Err(Reason::NotAfterBatchNormBackward) } else { Ok(()) };
    };
    match (first, next) {
        (OpKind::ConvForward, OpKind::ConvForward) => Err(Reason::SecondConvolution),
        (_, OpKind::ConvForward) => Err(Reason::ConvolutionNotFirst { first }),
        (_, OpKind::BatchNormForward | OpKind::BatchNormBackward) => Err(Reason::NotFirst { first }),
        (OpKind::BatchNormForward, next) => only(first, ops, OpKind::ActivationForward, next),
        (OpKind::BatchNormBackward, next) => only(first, ops, OpKind::ActivationBackward, next),
        (_, next) => match next.group() {
            OpGroup::ElementWise => Ok(()),
            // The first operator of a plan for training is one of those above.
            OpGroup::Convolution | OpGroup::Training => Err(Reason::NotAfterBatchNormBackward),
        },
    }
}

/// A training plan takes one operator of one kind behind its first.
fn only(first: OpKind, ops: &[Op], takes: OpKind, next: OpKind) -> Result<(), Reason> {
    let takes = (ops.len() == 1).then_some(takes);
    if takes == Some(next) { Ok(()) } else { Err(Reason::AfterTraining { first, takes }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuseplan_api::{ActivationMode, BatchNormMode};
    use fuseplan_api::{ConvolutionDescriptor, DataType, TensorDescriptor};

    fn op(kind: OpKind) -> Op {
        let mode = BatchNormMode::Spatial;
        let bias = TensorDescriptor::nchw(DataType::Float, [1, 4, 1, 1]).unwrap();
        match kind {
            OpKind::ConvForward => Op::ConvForward {
                conv: ConvolutionDescriptor::d2(),
                weights: TensorDescriptor::nchw(DataType::Float, [4, 4, 1, 1]).unwrap(),
            },
            OpKind::BiasForward => Op::BiasForward { bias },
            OpKind::PReluForward => Op::PReluForward { slope: bias },
            OpKind::BatchNormInference => Op::BatchNormInference { mode, params: DataType::Float },
            OpKind::ActivationForward => Op::ActivationForward { mode: ActivationMode::Relu },
            OpKind::BatchNormForward => Op::BatchNormForward { mode, running: false },
            OpKind::BatchNormBackward => Op::BatchNormBackward { mode },
            OpKind::ActivationBackward => Op::ActivationBackward { mode: ActivationMode::Relu },
        }
    }

    #[test]
    fn every_pair_of_kinds_is_decided() {
        use OpKind::*;
        let kinds = OpKind::ALL;
        let forward = [BiasForward, PReluForward, BatchNormInference, ActivationForward];
        for first in kinds {
            assert_eq!(may_follow(&[], first).is_ok(), first != ActivationBackward, "{first} first");
            for next in kinds {
                let expected = match first {
                    BatchNormForward => next == ActivationForward,
                    BatchNormBackward => next == ActivationBackward,
                    ConvForward | BiasForward | PReluForward | BatchNormInference | ActivationForward => {
                        forward.contains(&next)
                    }
                    ActivationBackward => continue, // never first, so never asked
                };
                assert_eq!(may_follow(&[op(first)], next).is_ok(), expected, "{next} behind {first}");
            }
        }
    }

    #[test]
    fn training_pairs_end_a_plan() {
        let pair = [op(OpKind::BatchNormForward), op(OpKind::ActivationForward)];
        let reason = may_follow(&pair, OpKind::ActivationForward).unwrap_err();
        assert_eq!(reason, Reason::AfterTraining { first: OpKind::BatchNormForward, takes: None });
        assert_eq!(reason.to_string(), "a plan that starts with BatchNormForward takes nothing behind it");
    }
}

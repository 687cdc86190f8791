//! Operators of a plan: the "Operators" section of the header, and those of `<miopen/fuseplan.h>`.

use fuseplan::{
    ActivationBackward, ActivationForward, BatchNormBackward, BatchNormForward, BatchNormInference,
    BatchNormMode, BiasForward, ConvForward, FusionPlan, PReluForward, TensorDescriptor, problem::OpKind,
    traits::Operator,
};

use crate::abi::{Bool, Out, export, miopenActivationMode_t, miopenBatchNormMode_t};
use crate::activation::mode;
use crate::convolution::miopenConvolutionDescriptor_t;
use crate::plan::miopenFusionPlanDescriptor_t;
use crate::status::Failure;
use crate::table::{Ref, object};
use crate::tensor::{batch_norm_mode, miopenTensorDescriptor_t};

/// What a `miopenFusionOpDescriptor_t` names: what setting arguments needs to know of an operator.
#[derive(Debug, Clone, Copy)]
pub struct OpObject {
    /// Its position in its plan.
    pub(crate) index: usize,
    pub(crate) kind: OpKind,
    /// Whether it is a batch-norm that updates running statistics.
    pub(crate) running: bool,
}
object!(OpObject, Op, |op| Some(format!("{} (operator {})", op.kind, op.index)));

/// C's `miopenFusionOpDescriptor_t`.
#[allow(non_camel_case_types, reason = "MIOpen's own name")]
pub type miopenFusionOpDescriptor_t = Ref<OpObject>;

/// Appends the operator that `make` makes for the plan. Whatever of it fails, for a plan that there is, makes the plan
/// incomplete, so everything that can fail happens in there.
fn append<O: Operator>(
    plan: miopenFusionPlanDescriptor_t,
    out: Out<miopenFusionOpDescriptor_t>,
    running: bool,
    make: impl FnOnce(&FusionPlan) -> Result<O, Failure>,
) -> Result<(), Failure> {
    let plan = plan.get()?;
    let handle = plan.state().append(running, |plan| {
        out.required("the operator")?;
        make(plan)
    })?;
    out.set(handle);
    Ok(())
}

/// The bias that a descriptor means: one value a channel where batch and spatial lengths are 1, whatever
/// its channels say (callers get those wrong); else what the plan makes of it.
pub(crate) fn bias(descriptor: TensorDescriptor, running: &TensorDescriptor) -> Result<BiasForward, Failure> {
    let others = descriptor.lens().iter().enumerate().filter(|&(dimension, _)| dimension != 1);
    if others.into_iter().any(|(_, &length)| length != 1) {
        return Ok(BiasForward::with_descriptor(descriptor));
    }
    let mut lens = vec![1; running.rank()];
    lens[1] = running.lens()[1];
    Ok(BiasForward::with_descriptor(TensorDescriptor::packed(descriptor.data_type(), &lens)?))
}

/// The batch-norm that a descriptor means. What the mode derives from the plan's tensor is what it should be. MIOpen
/// does not look at it, and callers hand in what they derive from the plan's input, before the convolution: where the
/// mode is spatial, that is one value a channel all the same, of as many channels as the plan's tensor has. The parameters'
/// data type is the descriptor's.
fn batch_norm(
    mode: BatchNormMode,
    parameters: TensorDescriptor,
    plan: &FusionPlan,
) -> Result<BatchNormInference, Failure> {
    let data_type = parameters.data_type();
    let derive = |mode: BatchNormMode, from: &TensorDescriptor| mode.derive(from)?.with_data_type(data_type);
    let is_derived =
        |mode: BatchNormMode, from: &TensorDescriptor| derive(mode, from).is_ok_and(|d| d == parameters);
    let has_channels = parameters.lens().get(1) == Some(&plan.output().lens()[1]);
    let is_certain = mode == BatchNormMode::Spatial
        && (is_derived(mode, plan.input())
            || has_channels && is_derived(BatchNormMode::PerActivation, plan.input())
            || is_derived(BatchNormMode::PerActivation, plan.output()));
    let parameters = if is_certain { derive(mode, plan.output())? } else { parameters };
    Ok(BatchNormInference::with_descriptor(mode, parameters))
}

export! {
    fn miopenCreateOpConvForward(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        convOp: Out<miopenFusionOpDescriptor_t>,
        convDesc: miopenConvolutionDescriptor_t,
        wDesc: miopenTensorDescriptor_t,
    ) {
        append(fusePlanDesc, convOp, false, |_| {
            Ok(ConvForward::new(convDesc.descriptor()?, wDesc.descriptor()?))
        })?;
    }

    fn miopenCreateOpBiasForward(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        biasOp: Out<miopenFusionOpDescriptor_t>,
        bDesc: miopenTensorDescriptor_t,
    ) {
        append(fusePlanDesc, biasOp, false, |plan| bias(bDesc.descriptor()?, plan.output()))?;
    }

    fn fuseplanCreateOpPReluForward(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        preluOp: Out<miopenFusionOpDescriptor_t>,
        slopeDesc: miopenTensorDescriptor_t,
    ) {
        append(fusePlanDesc, preluOp, false, |_| Ok(PReluForward::with_descriptor(slopeDesc.descriptor()?)))?;
    }

    fn miopenCreateOpActivationForward(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        activFwdOp: Out<miopenFusionOpDescriptor_t>,
        mode: miopenActivationMode_t,
    ) {
        append(fusePlanDesc, activFwdOp, false, |_| Ok(ActivationForward::new(self::mode(mode)?)))?;
    }

    fn miopenCreateOpActivationBackward(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        activBwdOp: Out<miopenFusionOpDescriptor_t>,
        mode: miopenActivationMode_t,
    ) {
        append(fusePlanDesc, activBwdOp, false, |_| Ok(ActivationBackward::new(self::mode(mode)?)))?;
    }

    fn miopenCreateOpBatchNormInference(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        bnOp: Out<miopenFusionOpDescriptor_t>,
        bn_mode: miopenBatchNormMode_t,
        bnScaleBiasMeanVarDesc: miopenTensorDescriptor_t,
    ) {
        append(fusePlanDesc, bnOp, false, |plan| {
            batch_norm(batch_norm_mode(bn_mode)?, bnScaleBiasMeanVarDesc.descriptor()?, plan)
        })?;
    }

    fn miopenCreateOpBatchNormForward(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        bnFwdOp: Out<miopenFusionOpDescriptor_t>,
        bn_mode: miopenBatchNormMode_t,
        runningMeanVariance: Bool,
    ) {
        let running = runningMeanVariance.get();
        append(fusePlanDesc, bnFwdOp, running, |_| Ok(BatchNormForward::new(batch_norm_mode(bn_mode)?, running)))?;
    }

    fn miopenCreateOpBatchNormBackward(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        bnBwdOp: Out<miopenFusionOpDescriptor_t>,
        bn_mode: miopenBatchNormMode_t,
    ) {
        append(fusePlanDesc, bnBwdOp, false, |_| Ok(BatchNormBackward::new(batch_norm_mode(bn_mode)?)))?;
    }
}

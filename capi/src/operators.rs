//! Operators of a plan: the "Operators" section of the header.

use fuseplan::{
    ActivationBackward, ActivationForward, AppendError, BatchNormBackward, BatchNormForward,
    BatchNormInference, BiasForward, ConvForward, OpKind, Operator, TensorDescriptor,
};

use crate::abi::{Bool, Out, export, miopenActivationMode_t, miopenBatchNormMode_t};
use crate::activation::mode;
use crate::convolution::miopenConvolutionDescriptor_t;
use crate::plan::miopenFusionPlanDescriptor_t;
use crate::status::{Failure, bad_parm};
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
object!(OpObject, Op);

/// C's `miopenFusionOpDescriptor_t`.
#[allow(non_camel_case_types, reason = "MIOpen's own name")]
pub type miopenFusionOpDescriptor_t = Ref<OpObject>;

/// Appends the operator that `make` makes for the plan's tensor.
fn append<O: Operator>(
    plan: miopenFusionPlanDescriptor_t,
    out: Out<miopenFusionOpDescriptor_t>,
    running: bool,
    make: impl FnOnce(&TensorDescriptor) -> Result<O, Failure>,
) -> Result<(), Failure> {
    let plan = plan.get()?;
    let out = out.required("the operator")?;
    let mut state = plan.state();
    let op = OpObject { index: state.plan.ops().len(), kind: O::KIND, running };
    let handle = state.append(op, |plan| {
        let operator = make(plan.output())?;
        plan.append(operator).map(drop).map_err(|error: AppendError| error.into())
    })?;
    out.set(handle);
    Ok(())
}

/// The bias that a descriptor means: one value a channel where batch and spatial lengths are 1, whatever
/// its channels say (callers get those wrong); else what the plan makes of it.
pub(crate) fn bias(descriptor: TensorDescriptor, running: &TensorDescriptor) -> Result<BiasForward, Failure> {
    if descriptor.data_type() != running.data_type() {
        return Err(bad_parm(format!(
            "the bias is {}, the plan's tensor is {}",
            descriptor.data_type(),
            running.data_type()
        )));
    }
    let others = descriptor.lens().iter().enumerate().filter(|&(dimension, _)| dimension != 1);
    if others.into_iter().all(|(_, &length)| length == 1) {
        return Ok(BiasForward::new());
    }
    Ok(BiasForward::with_descriptor(descriptor))
}

export! {
    fn miopenCreateOpConvForward(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        convOp: Out<miopenFusionOpDescriptor_t>,
        convDesc: miopenConvolutionDescriptor_t,
        wDesc: miopenTensorDescriptor_t,
    ) {
        let operator = ConvForward::new(convDesc.descriptor()?, wDesc.descriptor()?);
        append(fusePlanDesc, convOp, false, |_| Ok(operator))?;
    }

    fn miopenCreateOpBiasForward(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        biasOp: Out<miopenFusionOpDescriptor_t>,
        bDesc: miopenTensorDescriptor_t,
    ) {
        let descriptor = bDesc.descriptor()?;
        append(fusePlanDesc, biasOp, false, |running| bias(descriptor, running))?;
    }

    fn miopenCreateOpActivationForward(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        activFwdOp: Out<miopenFusionOpDescriptor_t>,
        mode: miopenActivationMode_t,
    ) {
        let operator = ActivationForward::new(self::mode(mode)?);
        append(fusePlanDesc, activFwdOp, false, |_| Ok(operator))?;
    }

    fn miopenCreateOpActivationBackward(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        activBwdOp: Out<miopenFusionOpDescriptor_t>,
        mode: miopenActivationMode_t,
    ) {
        let operator = ActivationBackward::new(self::mode(mode)?);
        append(fusePlanDesc, activBwdOp, false, |_| Ok(operator))?;
    }

    fn miopenCreateOpBatchNormInference(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        bnOp: Out<miopenFusionOpDescriptor_t>,
        bn_mode: miopenBatchNormMode_t,
        bnScaleBiasMeanVarDesc: miopenTensorDescriptor_t,
    ) {
        let parameters = bnScaleBiasMeanVarDesc.descriptor()?;
        let operator = BatchNormInference::with_descriptor(batch_norm_mode(bn_mode)?, parameters);
        append(fusePlanDesc, bnOp, false, |_| Ok(operator))?;
    }

    fn miopenCreateOpBatchNormForward(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        bnFwdOp: Out<miopenFusionOpDescriptor_t>,
        bn_mode: miopenBatchNormMode_t,
        runningMeanVariance: Bool,
    ) {
        let running = runningMeanVariance.get();
        let operator = BatchNormForward::new(batch_norm_mode(bn_mode)?, running);
        append(fusePlanDesc, bnFwdOp, running, |_| Ok(operator))?;
    }

    fn miopenCreateOpBatchNormBackward(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        bnBwdOp: Out<miopenFusionOpDescriptor_t>,
        bn_mode: miopenBatchNormMode_t,
    ) {
        let operator = BatchNormBackward::new(batch_norm_mode(bn_mode)?);
        append(fusePlanDesc, bnBwdOp, false, |_| Ok(operator))?;
    }
}

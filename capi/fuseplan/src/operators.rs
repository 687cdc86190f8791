//! Operators of a plan: the functions of the header that append.

use std::ffi::c_int;
use std::ptr::{null, null_mut};

use fuseplan::raw::{ActivationParams, operands};
use fuseplan::traits::Operator;
use fuseplan::{
    ActivationBackward, ActivationForward, ActivationMode, BatchNormBackward, BatchNormForward,
    BatchNormInference, BatchNormMode, BiasForward, ConvForward, ConvolutionDescriptor, DataType, FusionPlan,
    PReluForward, TensorDescriptor,
};

use crate::abi::{
    In, Out, fuseplan_activation_t, fuseplan_batch_norm_mode_t, fuseplan_data_type_t, fuseplan_layout_t,
};
use crate::boundary::export::export;
use crate::boundary::failure::{Failure, bad_parm};
use crate::plan::fuseplan_plan_t;
use crate::tensor::{data_type, fuseplan_tensor_t, layout, list};

/// What is added to a variance if nothing else is set.
const EPSILON: f64 = 1e-5;

/// The factor by which a batch counts among running statistics if nothing else is set.
const EXP_AVG_FACTOR: f64 = 0.1;

/// Appends the operator that `make` makes for the plan.
fn append<O: Operator>(
    plan: fuseplan_plan_t,
    op: Out<usize>,
    defaults: O::Operands,
    make: impl FnOnce(&FusionPlan) -> Result<O, Failure>,
) -> Result<(), Failure> {
    let plan = plan.get()?;
    let index = plan.state().append(defaults, make)?;
    op.set(index);
    Ok(())
}

/// One number for each spatial dimension of the plan.
struct Spatial {
    strides: In<usize>,
    dilations: In<usize>,
    pads_before: In<usize>,
    pads_after: In<usize>,
}

impl Spatial {
    fn convolution(&self, plan: &FusionPlan, groups: usize) -> Result<ConvolutionDescriptor, Failure> {
        let dims = plan.input().spatial().len();
        let list =
            |numbers: In<usize>, default: usize| numbers.list(dims).unwrap_or_else(|| vec![default; dims]);
        let before = list(self.pads_before, 0);
        let after = self.pads_after.list(dims).unwrap_or_else(|| before.clone());
        let conv = ConvolutionDescriptor::of_dims(dims)?.with_asymmetric_pads(before, after)?;
        let conv = conv.with_strides(list(self.strides, 1))?.with_dilations(list(self.dilations, 1))?;
        Ok(conv.with_groups(groups)?)
    }
}

/// Appends a convolution whose output lies as `place` has it, which is told the plan's number of dimensions.
fn append_convolution(
    plan: fuseplan_plan_t,
    op: Out<usize>,
    weights: fuseplan_tensor_t,
    spatial: &Spatial,
    groups: usize,
    place: impl FnOnce(ConvForward, usize) -> Result<ConvForward, Failure>,
) -> Result<(), Failure> {
    let weights = weights.descriptor()?;
    append(plan, op, operands::ConvForward { weights: null() }, |plan| {
        place(ConvForward::new(spatial.convolution(plan, groups)?, weights), plan.input().rank())
    })
}

fn batch_norm_mode(number: fuseplan_batch_norm_mode_t) -> Result<BatchNormMode, Failure> {
    BatchNormMode::ALL.into_iter().find(|&mode| mode as u32 == number).ok_or_else(|| {
        bad_parm(format!(
            "{number} is no batch-norm mode; accepted: 0 (FUSEPLAN_BATCH_NORM_PER_ACTIVATION), \
             1 (FUSEPLAN_BATCH_NORM_SPATIAL)"
        ))
    })
}

fn activation(number: fuseplan_activation_t) -> Result<ActivationMode, Failure> {
    ActivationMode::from_miopen_value(number).ok_or_else(|| {
        let known = ActivationMode::ALL.map(|mode| format!("{} ({mode})", mode.miopen_value())).join(", ");
        bad_parm(format!("{number} is no activation; accepted: {known}"))
    })
}

/// One value of a data type for each channel of the plan's tensor.
fn per_channel(data_type: DataType, plan: &FusionPlan) -> Result<TensorDescriptor, Failure> {
    let running = plan.output();
    let mut lens = vec![1; running.rank()];
    lens[1] = running.lens()[1];
    Ok(TensorDescriptor::packed(data_type, &lens)?)
}

export! {
    fn fuseplan_plan_append_convolution(
        plan: fuseplan_plan_t,
        weights: fuseplan_tensor_t,
        strides: In<usize>,
        dilations: In<usize>,
        pads_before: In<usize>,
        pads_after: In<usize>,
        groups: usize,
        op: Out<usize>,
    ) {
        let spatial = Spatial { strides, dilations, pads_before, pads_after };
        append_convolution(plan, op, weights, &spatial, groups, |conv, _| Ok(conv))?;
    }

    fn fuseplan_plan_append_convolution_to(
        plan: fuseplan_plan_t,
        weights: fuseplan_tensor_t,
        strides: In<usize>,
        dilations: In<usize>,
        pads_before: In<usize>,
        pads_after: In<usize>,
        groups: usize,
        output: fuseplan_layout_t,
        op: Out<usize>,
    ) {
        let spatial = Spatial { strides, dilations, pads_before, pads_after };
        append_convolution(plan, op, weights, &spatial, groups, |conv, rank| {
            Ok(conv.with_output_layout(layout(output, rank)?))
        })?;
    }

    fn fuseplan_plan_append_convolution_into(
        plan: fuseplan_plan_t,
        weights: fuseplan_tensor_t,
        strides: In<usize>,
        dilations: In<usize>,
        pads_before: In<usize>,
        pads_after: In<usize>,
        groups: usize,
        output_strides: In<usize>,
        op: Out<usize>,
    ) {
        let spatial = Spatial { strides, dilations, pads_before, pads_after };
        append_convolution(plan, op, weights, &spatial, groups, |conv, rank| {
            Ok(conv.with_output_strides(&list(output_strides, rank, "output_strides")?))
        })?;
    }

    fn fuseplan_plan_append_bias(
        plan: fuseplan_plan_t,
        data_type: fuseplan_data_type_t,
        op: Out<usize>,
    ) {
        let data_type = self::data_type(data_type)?;
        append(plan, op, operands::BiasForward { bias: null() }, |plan| {
            Ok(BiasForward::with_descriptor(per_channel(data_type, plan)?))
        })?;
    }

    fn fuseplan_plan_append_prelu(
        plan: fuseplan_plan_t,
        data_type: fuseplan_data_type_t,
        slopes: usize,
        op: Out<usize>,
    ) {
        let data_type = self::data_type(data_type)?;
        append(plan, op, operands::PReluForward { slope: null() }, |plan| {
            let mut lens = vec![1; plan.output().rank()];
            lens[1] = slopes;
            Ok(PReluForward::with_descriptor(TensorDescriptor::packed(data_type, &lens)?))
        })?;
    }

    fn fuseplan_plan_append_residual(
        plan: fuseplan_plan_t,
        residual: fuseplan_tensor_t,
        op: Out<usize>,
    ) {
        append(plan, op, operands::BiasForward { bias: null() }, |plan| {
            if residual.is_null() {
                return Ok(BiasForward::residual());
            }
            let residual = residual.descriptor()?;
            if residual.lens() != plan.output().lens() {
                return Err(bad_parm(format!(
                    "the residual is {residual}, the plan's tensor is {}; accepted: the same lengths",
                    plan.output()
                )));
            }
            Ok(BiasForward::with_descriptor(residual))
        })?;
    }

    fn fuseplan_plan_append_batch_norm(
        plan: fuseplan_plan_t,
        mode: fuseplan_batch_norm_mode_t,
        data_type: fuseplan_data_type_t,
        op: Out<usize>,
    ) {
        let (mode, data_type) = (batch_norm_mode(mode)?, self::data_type(data_type)?);
        let defaults = operands::BatchNormInference {
            scale: null(),
            bias: null(),
            mean: null(),
            variance: null(),
            epsilon: EPSILON,
        };
        append(plan, op, defaults, |plan| {
            let params = mode.derive(plan.output())?.with_data_type(data_type)?;
            Ok(BatchNormInference::with_descriptor(mode, params))
        })?;
    }

    fn fuseplan_plan_append_activation(
        plan: fuseplan_plan_t,
        activation: fuseplan_activation_t,
        alpha: f64,
        beta: f64,
        gamma: f64,
        op: Out<usize>,
    ) {
        let mode = self::activation(activation)?;
        let defaults = ActivationParams::new(alpha, beta, gamma).into();
        append(plan, op, defaults, |_| Ok(ActivationForward::new(mode)))?;
    }

    fn fuseplan_plan_append_batch_norm_training(
        plan: fuseplan_plan_t,
        mode: fuseplan_batch_norm_mode_t,
        running: c_int,
        op: Out<usize>,
    ) {
        let mode = batch_norm_mode(mode)?;
        let defaults = operands::BatchNormForward {
            scale: null(),
            bias: null(),
            saved_mean: null_mut(),
            saved_inv_variance: null_mut(),
            running_mean: null_mut(),
            running_variance: null_mut(),
            epsilon: EPSILON,
            exp_avg_factor: EXP_AVG_FACTOR,
        };
        append(plan, op, defaults, |_| Ok(BatchNormForward::new(mode, running != 0)))?;
    }

    fn fuseplan_plan_append_batch_norm_backward(
        plan: fuseplan_plan_t,
        mode: fuseplan_batch_norm_mode_t,
        op: Out<usize>,
    ) {
        let mode = batch_norm_mode(mode)?;
        let defaults = operands::BatchNormBackward {
            x: null(),
            scale: null(),
            bias: null(),
            saved_mean: null(),
            saved_inv_variance: null(),
            scale_diff: null_mut(),
            bias_diff: null_mut(),
        };
        append(plan, op, defaults, |_| Ok(BatchNormBackward::new(mode)))?;
    }

    fn fuseplan_plan_append_activation_backward(
        plan: fuseplan_plan_t,
        activation: fuseplan_activation_t,
        alpha: f64,
        beta: f64,
        gamma: f64,
        op: Out<usize>,
    ) {
        let mode = self::activation(activation)?;
        let params = ActivationParams::new(alpha, beta, gamma);
        let defaults = operands::ActivationBackward::new(null(), params);
        append(plan, op, defaults, |_| Ok(ActivationBackward::new(mode)))?;
    }
}

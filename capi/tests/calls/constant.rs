//! Filters that are declared constant: kernels keep what they make of them.
//!
//! What was kept shows when filters change against the promise: results are then those of the old ones.

use std::ffi::c_void;

use MIOpen::*;

use crate::common::{convolution, cpu, last_error, none, out, tensor};

const CHANNELS: usize = 32;
const PIXELS: usize = 8 * 8;

/// A convolution by 1x1 filters, of an input of ones.
struct Layer {
    handle: miopenHandle_t,
    plan: miopenFusionPlanDescriptor_t,
    conv: miopenFusionOpDescriptor_t,
    args: miopenOperatorArgs_t,
    x: miopenTensorDescriptor_t,
    weights: Vec<f32>,
}

impl Layer {
    fn new() -> Self {
        let channels = CHANNELS as i32;
        let x = tensor([1, channels, 8, 8]);
        let plan = create!(miopenCreateFusionPlan(0, x));
        let mut conv = Ref::NULL;
        let filters = tensor([channels, channels, 1, 1]);
        call!(miopenCreateOpConvForward(plan, out(&mut conv), convolution(0), filters));
        let handle = cpu();
        call!(miopenCompileFusionPlan(handle, plan));
        let args = create!(miopenCreateOperatorArgs());
        Layer { handle, plan, conv, args, x, weights: vec![1.0; CHANNELS * CHANNELS] }
    }

    fn set(&self) {
        let weights = self.weights.as_ptr().cast::<c_void>();
        call!(miopenSetOpArgsConvForward(self.args, self.conv, none(), none(), weights));
    }

    fn declare(&self) {
        call!(fuseplanSetOpArgsConstant(self.args, self.conv));
    }

    /// Every element of the output, which are all the same.
    fn output(&self) -> f32 {
        let input = vec![1.0f32; CHANNELS * PIXELS];
        let mut output = vec![f32::NAN; CHANNELS * PIXELS];
        let (x, input, y) = (self.x, input.as_ptr().cast(), output.as_mut_ptr().cast());
        call!(miopenExecuteFusionPlan(self.handle, self.plan, x, input, x, y, self.args));
        assert!(output.iter().all(|element| *element == output[0]));
        output[0]
    }
}

#[test]
fn constant_filters_are_prepared_once_for_each_declaration() {
    let mut layer = Layer::new();
    layer.set();
    assert_eq!(layer.output(), 32.0);
    layer.weights.fill(2.0);
    assert_eq!(layer.output(), 64.0, "nothing was promised");

    layer.declare();
    assert_eq!(layer.output(), 64.0);
    layer.weights.fill(3.0);
    assert_eq!(layer.output(), 64.0, "what was prepared is kept");
    layer.declare();
    assert_eq!(layer.output(), 96.0, "declaring again prepares anew");

    layer.weights.fill(4.0);
    layer.set();
    assert_eq!(layer.output(), 128.0, "setting again takes the promise back");
    layer.weights.fill(5.0);
    assert_eq!(layer.output(), 160.0);
}

#[test]
fn only_arguments_that_were_set_are_declared_constant() {
    let layer = Layer::new();
    assert_ne!(status!(fuseplanSetOpArgsConstant(layer.args, layer.conv)), 0);
    assert!(last_error().ends_with("ConvForward (operator 0) has no arguments"), "{}", last_error());

    // An operator of another kind at the same place of another plan.
    layer.set();
    let plan = create!(miopenCreateFusionPlan(0, layer.x));
    let mut relu = Ref::NULL;
    call!(miopenCreateOpActivationForward(plan, out(&mut relu), 3));
    assert_ne!(status!(fuseplanSetOpArgsConstant(layer.args, relu)), 0);
    assert!(last_error().contains("is a ActivationForward"), "{}", last_error());

    // It reads nothing that could change.
    call!(miopenSetOpArgsActivForward(layer.args, relu, none(), none(), 0.0, 0.0, 0.0));
    call!(fuseplanSetOpArgsConstant(layer.args, relu));
}

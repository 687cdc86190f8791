//! Executing a plan through the C library allocates nothing on the heap after the first times.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering;

#[path = "calls/common.rs"]
#[macro_use]
#[allow(dead_code, reason = "other test programs use the rest")]
mod common;
#[path = "../../tests/common/counting.rs"]
#[allow(dead_code, reason = "other test programs use the rest")]
mod counting;

use MIOpen::abi::Bool;
use MIOpen::*;
use common::{any, convolution, cpu, none, tensor};
use counting::{ALLOCATIONS, comes_to_allocate_nothing};

const LENS: [i32; 4] = [2, 8, 6, 7];

/// Memory of every operand: large enough for each, and apart from the others'.
struct Memory(Vec<Vec<f32>>);

impl Memory {
    fn next(&mut self) -> *mut c_void {
        self.0.push(vec![1.0; 8 * 8 * 9 * 2]);
        let last = self.0.len() - 1;
        self.0[last].as_mut_ptr().cast()
    }
}

/// The handle of an operator that is appended to a plan.
macro_rules! append {
    ($function:ident($plan:expr, $($argument:expr),*)) => {{
        let mut op = MIOpen::Ref::NULL;
        call!($function($plan, common::out(&mut op), $($argument),*));
        op
    }};
}

/// A compiled plan with its arguments.
struct Plan {
    plan: miopenFusionPlanDescriptor_t,
    args: miopenOperatorArgs_t,
    y: miopenTensorDescriptor_t,
}

fn plan(
    handle: miopenHandle_t,
    append: impl FnOnce(miopenFusionPlanDescriptor_t, miopenOperatorArgs_t),
) -> Plan {
    let plan = create!(miopenCreateFusionPlan(0, tensor(LENS)));
    let args = create!(miopenCreateOperatorArgs());
    append(plan, args);
    call!(miopenCompileFusionPlan(handle, plan));
    let y = create!(miopenCreateTensorDescriptor());
    call!(fuseplanGetOutputDescriptor(plan, y));
    Plan { plan, args, y }
}

/// Convolution, bias, batch-norm, ReLU; the last scaled.
fn inference(handle: miopenHandle_t, memory: &mut Memory) -> Plan {
    plan(handle, |plan, args| {
        let conv = append!(miopenCreateOpConvForward(plan, convolution(1), tensor([8, 8, 3, 3])));
        let bias = append!(miopenCreateOpBiasForward(plan, tensor([1, 8, 1, 1])));
        let norm = append!(miopenCreateOpBatchNormInference(plan, 1, tensor([1, 8, 1, 1])));
        let relu = append!(miopenCreateOpActivationForward(plan, 3));
        call!(miopenSetOpArgsConvForward(args, conv, none(), none(), memory.next()));
        call!(miopenSetOpArgsBiasForward(args, bias, none(), none(), memory.next()));
        let [scale, shift, mean, variance] = [(); 4].map(|()| memory.next().cast_const());
        call!(miopenSetOpArgsBatchNormInference(
            args,
            norm,
            none(),
            none(),
            scale,
            shift,
            mean,
            variance,
            1e-5
        ));
        call!(miopenSetOpArgsActivForward(args, relu, any(&[2.0]), any(&[0.5]), 0.0, 0.0, 0.0));
    })
}

/// Convolution and bias, whose contents are declared constant.
fn constant(handle: miopenHandle_t, memory: &mut Memory) -> Plan {
    plan(handle, |plan, args| {
        let conv = append!(miopenCreateOpConvForward(plan, convolution(1), tensor([8, 8, 3, 3])));
        let bias = append!(miopenCreateOpBiasForward(plan, tensor([1, 8, 1, 1])));
        call!(miopenSetOpArgsConvForward(args, conv, none(), none(), memory.next()));
        call!(miopenSetOpArgsBiasForward(args, bias, none(), none(), memory.next()));
        call!(fuseplanSetOpArgsConstant(args, conv));
        call!(fuseplanSetOpArgsConstant(args, bias));
    })
}

/// Batch-norm for training with all that it keeps, ReLU.
fn training(handle: miopenHandle_t, memory: &mut Memory) -> Plan {
    plan(handle, |plan, args| {
        let norm = append!(miopenCreateOpBatchNormForward(plan, 1, Bool::from(true)));
        let relu = append!(miopenCreateOpActivationForward(plan, 3));
        let [scale, bias] = [(); 2].map(|()| memory.next().cast_const());
        let [mean, inverse, running_mean, running_variance] = [(); 4].map(|()| memory.next());
        call!(miopenSetOpArgsBatchNormForward(
            args,
            norm,
            none(),
            none(),
            scale,
            bias,
            mean,
            inverse,
            running_mean,
            running_variance,
            0.1,
            1e-5
        ));
        call!(miopenSetOpArgsActivForward(args, relu, none(), none(), 0.0, 0.0, 0.0));
    })
}

/// The gradients of batch-norm and ReLU.
fn gradient(handle: miopenHandle_t, memory: &mut Memory) -> Plan {
    plan(handle, |plan, args| {
        let norm = append!(miopenCreateOpBatchNormBackward(plan, 1));
        let relu = append!(miopenCreateOpActivationBackward(plan, 3));
        let [x, scale, bias, mean, inverse, y] = [(); 6].map(|()| memory.next().cast_const());
        let [scale_diff, bias_diff] = [(); 2].map(|()| memory.next());
        call!(miopenSetOpArgsBatchNormBackward(
            args,
            norm,
            none(),
            none(),
            x,
            scale,
            bias,
            scale_diff,
            bias_diff,
            mean,
            inverse
        ));
        call!(miopenSetOpArgsActivBackward(args, relu, none(), none(), y, null(), 0.0, 0.0, 0.0));
    })
}

// One test, so that nothing else runs and allocates in this process.
#[test]
fn no_heap_allocation_after_the_first_executions() {
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    drop(std::hint::black_box(vec![0u8; 100]));
    assert!(ALLOCATIONS.load(Ordering::SeqCst) > before, "allocations are not counted");
    // Alpha and beta are read where arguments are set while any handle honours them.
    let [plain, honoring] = [cpu(), cpu()];
    call!(fuseplanSetHonorAlphaBeta(honoring, Bool::from(true)));
    let x = tensor(LENS);
    for (name, make) in [
        ("inference", inference as fn(miopenHandle_t, &mut Memory) -> Plan),
        ("constant", constant),
        ("training", training),
        ("gradient", gradient),
    ] {
        for (handle, honors) in [(plain, false), (honoring, true)] {
            let mut memory = Memory(Vec::new());
            let Plan { plan, args, y } = make(handle, &mut memory);
            let (input, output) = (memory.next().cast_const(), memory.next());
            let run = || {
                call!(miopenExecuteFusionPlan(handle, plan, x, input, y, output, args));
                call!(miopenExecuteFusionPlan_v2(handle, plan, x, input, y, output, args, null_mut(), 0));
            };
            assert!(
                comes_to_allocate_nothing(run),
                "{name}, alpha and beta honoured: {honors}: executions allocate again and again"
            );
        }
    }
}

//! Calls of every function that the C library implements, in any order, with handles that live, that are destroyed,
//! that are of another kind, NULL or any number, and with numbers that nobody expects. Every call has to come back
//! with a status, nothing may be left behind, and a plan has to compute right numbers in the middle of it.
//!
//! Environment: `FUSEPLAN_TEST_SEED` (a number, 0 by default) draws other calls, `FUSEPLAN_TEST_CASES` says how many.
//! The same numbers give the same calls; `MIOPEN_ENABLE_LOGGING=1` names them as they are made.
#![cfg(unix)]

mod caller;
mod draw;

use std::ffi::c_void;

use MIOpen::abi::{In, Out};
use MIOpen::*;

use caller::Caller;

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[test]
fn every_call_comes_back_with_a_status_and_nothing_is_left_behind() {
    // Failing calls are the point here; their lines on stderr are not.
    // SAFETY: no other thread of this process reads the environment yet.
    unsafe {
        std::env::set_var("MIOPEN_LOG_LEVEL", "1");
        std::env::set_var("FUSEPLAN_BACKEND", "cpu");
    }
    let calls = number("FUSEPLAN_TEST_CASES", if cfg!(miri) { 200 } else { 30_000 });
    let mut caller = Caller::new(number("FUSEPLAN_TEST_SEED", 0));
    for call in 0..calls {
        caller.step();
        if call % 5000 == 0 {
            good_plan();
        }
    }
    let succeeded = caller.end();
    good_plan();
    let left = [
        live::<HandleObject>(),
        live::<TensorObject>(),
        live::<ConvolutionObject>(),
        live::<ActivationObject>(),
        live::<PlanObject>(),
        live::<OpObject>(),
        live::<ArgsObject>(),
        live::<ProblemObject>(),
        live::<FindOptionsObject>(),
    ];
    assert_eq!(left, [0; 9], "objects that nobody has a handle of");
    // A storm in which everything fails tests little.
    let never: Vec<&str> =
        succeeded.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect();
    assert!(calls < 30_000 || never.is_empty(), "never succeeded: {never:?}");
}

/// Convolution, bias and ReLU of small integers.
fn good_plan() {
    macro_rules! call {
        ($function:ident($($argument:expr),* $(,)?)) => {
            // SAFETY: handles of this function, and pointers to its locals.
            assert_eq!(unsafe { $function($($argument),*) }, 0, stringify!($function))
        };
    }
    macro_rules! create {
        ($function:ident($($argument:expr),*)) => {{
            let mut handle = Ref::NULL;
            call!($function(Out::new(&mut handle) $(, $argument)*));
            handle
        }};
    }
    // SAFETY: NULL is allowed.
    let none = || unsafe { In::new(std::ptr::null()) };
    let handle = create!(miopenCreate());
    let [x, w, b, y] = [[1, 2, 2, 2], [3, 2, 1, 1], [1, 3, 1, 1], [1, 3, 2, 2]].map(|[n, c, h, w]| {
        let tensor = create!(miopenCreateTensorDescriptor());
        call!(miopenSet4dTensorDescriptor(tensor, 1, n, c, h, w));
        tensor
    });
    let conv = create!(miopenCreateConvolutionDescriptor());
    let plan = create!(miopenCreateFusionPlan(0, x));
    let (mut first, mut second, mut third) = (Ref::NULL, Ref::NULL, Ref::NULL);
    call!(miopenCreateOpConvForward(plan, Out::new(&mut first), conv, w));
    call!(miopenCreateOpBiasForward(plan, Out::new(&mut second), b));
    call!(miopenCreateOpActivationForward(plan, Out::new(&mut third), 3));
    call!(miopenCompileFusionPlan(handle, plan));
    let (input, weights) = ([1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [1.0f32, 2.0, -1.0, 1.0, 2.0, -3.0]);
    let (bias, mut output) = ([-20.0f32, 0.5, 10.0], [f32::NAN; 12]);
    let pointer = |data: &[f32]| data.as_ptr().cast::<c_void>();
    let args = create!(miopenCreateOperatorArgs());
    call!(miopenSetOpArgsConvForward(args, first, none(), none(), pointer(&weights)));
    call!(miopenSetOpArgsBiasForward(args, second, none(), none(), pointer(&bias)));
    call!(miopenSetOpArgsActivForward(args, third, none(), none(), 0.0, 0.0, 0.0));
    let to: *mut c_void = output.as_mut_ptr().cast();
    call!(miopenExecuteFusionPlan(handle, plan, x, pointer(&input), y, to, args));
    assert_eq!(output, [0.0, 0.0, 0.0, 0.0, 4.5, 4.5, 4.5, 4.5, 0.0, 0.0, 0.0, 0.0]);
    call!(miopenDestroyOperatorArgs(args));
    call!(miopenDestroyFusionPlan(plan));
    call!(miopenDestroyConvolutionDescriptor(conv));
    for tensor in [x, w, b, y] {
        call!(miopenDestroyTensorDescriptor(tensor));
    }
    call!(miopenDestroy(handle));
}

//! A refused operator: whoever looks at the compile's status only must not get numbers without the operator.

use std::ffi::c_void;

use MIOpen::*;

use crate::common::{convolution, cpu, discarded, last_error, none, out, tensor};

const BAD_PARM: u32 = 3;
const UNSUPPORTED: u32 = 8;

/// A plan, its tensor of 1x2x3x3, and arguments.
struct World {
    handle: miopenHandle_t,
    x: miopenTensorDescriptor_t,
    plan: miopenFusionPlanDescriptor_t,
    args: miopenOperatorArgs_t,
}

impl World {
    fn new() -> Self {
        let x = tensor([1, 2, 3, 3]);
        let plan = create!(miopenCreateFusionPlan(0, x));
        World { handle: cpu(), x, plan, args: create!(miopenCreateOperatorArgs()) }
    }

    fn relu(&self) {
        let mut op = Ref::NULL;
        call!(miopenCreateOpActivationForward(self.plan, out(&mut op), 3));
        call!(miopenSetOpArgsActivForward(self.args, op, none(), none(), 0.0, 0.0, 0.0));
    }

    fn execute(&self) -> (u32, [f32; 18]) {
        let (input, mut output) = ([-1.0f32; 18], [f32::NAN; 18]);
        let (from, to): (*const c_void, *mut c_void) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        let status =
            status!(miopenExecuteFusionPlan(self.handle, self.plan, self.x, from, self.x, to, self.args));
        (status, output)
    }

    /// Neither compile nor execute, nor another operator, succeeds any more; all say why.
    fn is_refused(&self, status: u32, reason: &str) {
        let check = |found: u32| {
            assert_eq!(found, status, "{}", last_error());
            assert!(last_error().contains(reason), "{} instead of {reason}", last_error());
        };
        let (mut op, mut bytes) = (Ref::NULL, 77);
        for _ in 0..2 {
            check(status!(miopenCompileFusionPlan(self.handle, self.plan)));
            let (found, output) = self.execute();
            check(found);
            assert!(output.iter().all(|value| value.is_nan()), "something was written");
            check(status!(miopenCreateOpActivationForward(self.plan, out(&mut op), 3)));
            check(status!(miopenFusionPlanGetWorkSpaceSize(self.handle, self.plan, out(&mut bytes), 1)));
            check(status!(fuseplanGetOutputDescriptor(self.plan, tensor([1, 1, 1, 1]))));
        }
        assert_eq!((op, bytes), (Ref::NULL, 77));
    }
}

#[test]
fn a_plan_with_a_refused_operator_computes_nothing() {
    let mut op = Ref::NULL;
    // A second convolution, behind an operator.
    let world = World::new();
    world.relu();
    call!(miopenCompileFusionPlan(world.handle, world.plan));
    assert_eq!(world.execute(), (0, [0.0; 18]));
    let (conv, w) = (convolution(0), tensor([2, 2, 1, 1]));
    let status = status!(miopenCreateOpConvForward(world.plan, out(&mut op), conv, w));
    assert_eq!(status, UNSUPPORTED);
    world.is_refused(UNSUPPORTED, "a convolution can only be the first operator of a plan");

    // Filters that do not fit.
    let world = World::new();
    let status = status!(miopenCreateOpConvForward(world.plan, out(&mut op), conv, tensor([2, 5, 1, 1])));
    assert_eq!(status, BAD_PARM);
    world.is_refused(BAD_PARM, "weights have 5 input channels, the plan's tensor has 2");
    assert_eq!(op, Ref::NULL);
}

/// Whatever it was that the call did not like: the operator is not in the plan.
#[test]
fn bad_arguments_refuse_the_operator_too() {
    let mut op = Ref::NULL;
    let nowhere = || {
        // SAFETY: NULL, which is refused.
        unsafe { abi::Out::new(std::ptr::null_mut()) }
    };
    /// A reason, and the call that is refused for it.
    type Refusal<'a> = (&'a str, &'a mut dyn FnMut(&World) -> u32);
    let refusals: [Refusal<'_>; 5] = [
        ("is NULL", &mut |world| status!(miopenCreateOpActivationForward(world.plan, nowhere(), 3))),
        ("no activation mode", &mut |world| {
            status!(miopenCreateOpActivationForward(world.plan, out(&mut op), 99))
        }),
        ("the tensor descriptor is NULL", &mut |world| {
            status!(miopenCreateOpBiasForward(world.plan, discarded(), Ref::NULL))
        }),
        ("no batch-norm mode", &mut |world| {
            status!(miopenCreateOpBatchNormInference(world.plan, discarded(), 7, world.x))
        }),
        ("convolution descriptor is a handle of another kind", &mut |world| {
            let other = Ref::from_bits(world.x.bits());
            status!(miopenCreateOpConvForward(world.plan, discarded(), other, world.x))
        }),
    ];
    for (reason, refuse) in refusals {
        let world = World::new();
        world.relu();
        assert_eq!(refuse(&world), BAD_PARM, "{reason}");
        world.is_refused(BAD_PARM, reason);
    }
}

#[test]
fn another_plan_is_not_concerned() {
    let (refused, world) = (World::new(), World::new());
    assert_ne!(status!(miopenCreateOpActivationForward(refused.plan, discarded(), 99)), 0);
    world.relu();
    call!(miopenCompileFusionPlan(world.handle, world.plan));
    assert_eq!(world.execute(), (0, [0.0; 18]));
    // A destroyed plan is destroyed, however it was.
    call!(miopenDestroyFusionPlan(refused.plan));
    assert_eq!(status!(miopenCompileFusionPlan(refused.handle, refused.plan)), BAD_PARM);
    assert!(last_error().contains("was destroyed"), "{}", last_error());
}

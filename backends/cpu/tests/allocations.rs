//! Runs after the first allocate nothing. A program of its own, because it counts the allocations of all
//! threads.

mod common;
#[path = "../../../tests/common/counting.rs"]
mod counting;

use std::sync::atomic::Ordering;

use common::*;
use counting::ALLOCATIONS;
use fuseplan_api::operands::{ActivationForward, BatchNormInference};
use fuseplan_api::*;
use fuseplan_cpu::open_with_threads;

#[test]
fn runs_after_the_first_allocate_nothing() {
    let mut random = Random::new(1);
    let desc = TensorDescriptor::nchw(DataType::Half, [4, 8, 40, 40]).unwrap();
    let params = ActivationParams::new(0.5, 2.0, 1.5);
    let plan = Plan::new(Tensor::new(desc, || random.real()))
        .then_batch_norm(BatchNormMode::Spatial, &mut random)
        .then(Step::Activation(ActivationMode::Tanh, params))
        .then_batch_norm(BatchNormMode::Spatial, &mut random);
    let Step::BatchNorm { scale, bias, mean, variance, epsilon, .. } = &plan.steps[0].0 else {
        unreachable!()
    };
    let [scale, bias, mean, variance] = [scale, bias, mean, variance].map(|list| list.as_ptr().cast());
    let batch_norm = BatchNormInference { scale, bias, mean, variance, epsilon: *epsilon };
    let args = [batch_norm.into(), ActivationForward::from(params).into(), batch_norm.into()];
    let (mut x, mut y) = (Buffer::filled(&desc, &plan.input.values), Buffer::poisoned(&desc));
    for solver in ["cpu.element_wise.v1", "cpu.reference.v1"] {
        let executable = load(&plan.problem(), solver, &open_with_threads(2).unwrap());
        // Which thread takes an item is left to chance: on a busy machine a thread's first item, for which it
        // allocates, may come late.
        let mut quiet = 0;
        for _ in 0..200 {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            run(&*executable, x.pointer(), y.pointer(), &args);
            quiet = if ALLOCATIONS.load(Ordering::Relaxed) == before { quiet + 1 } else { 0 };
            if quiet == 10 {
                break;
            }
        }
        assert_eq!(quiet, 10, "{solver} allocates again and again");
    }
}

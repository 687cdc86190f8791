//! Executing allocates nothing on the heap after the first time on a thread.

use std::sync::atomic::Ordering;

#[path = "common/counting.rs"]
mod counting;

use counting::{ALLOCATIONS, comes_to_allocate_nothing};
use fuseplan::error::CompileError;
use fuseplan::memory::Operand;
use fuseplan::support::Table;
use fuseplan::traits::Element;
use fuseplan::*;
use half::{bf16, f16};

/// A convolution in `groups`, with bias, batch-norm and ReLU; or without the convolution for no groups.
fn check<T: Element + Default>(
    layout: TensorLayout,
    filter: usize,
    groups: usize,
    constant: bool,
    solvers: &[&str],
) {
    let handle = Handle::cpu();
    let channels = 32;
    let x = TensorDescriptor::with_layout(T::DATA_TYPE, layout, &[1, channels, 5, 7]).unwrap();
    let mut plan = FusionPlan::new(x).unwrap();
    let lens = [channels, channels / groups.max(1), filter, filter];
    let w = TensorDescriptor::with_layout(T::DATA_TYPE, layout, &lens).unwrap();
    let pad = filter / 2;
    let descriptor = ConvolutionDescriptor::d2().with_pads([pad, pad]).unwrap();
    let conv = (groups > 0)
        .then(|| plan.append(ConvForward::new(descriptor.with_groups(groups).unwrap(), w)).unwrap());
    let bias = plan.append(BiasForward::new()).unwrap();
    let norm = plan.append(BatchNormInference::new(BatchNormMode::Spatial)).unwrap();
    let relu = plan.append(ActivationForward::new(ActivationMode::Relu)).unwrap();
    let (weights, shift) = (vec![T::default(); w.span()], vec![T::default(); channels]);
    let params = vec![1.0f32; channels];
    let mut args = OperatorArgs::new();
    if let Some(conv) = conv {
        // SAFETY: `weights` outlive the arguments and do not change.
        let operand = unsafe { Operand::from_raw(weights.as_ptr().cast(), Some(w.bytes())) };
        args.set(conv, ConvForwardArgs::new(if constant { Operand::from(&weights) } else { operand }));
    }
    args.set(bias, BiasForwardArgs::new(&shift))
        .set(norm, BatchNormInferenceArgs::new().scale(&params).bias(&params).mean(&params).variance(&params))
        .set(relu, Activation::Relu);
    let input = vec![T::default(); x.span()];
    let mut output = vec![T::default(); plan.output().span()];
    let mut executed = 0;
    for solver in solvers {
        let options = CompileOptions::default().with_solver(*solver);
        let compiled = match plan.compile_with(&handle, &options) {
            Ok(compiled) => compiled,
            // The solver is not for this plan; any other failure is one of the test.
            Err(CompileError::NoSolver { .. }) => continue,
            Err(error) => panic!("{solver}: {error}"),
        };
        executed += 1;
        let run = || {
            let y = TensorMut::new(plan.output(), &mut output);
            compiled.execute(&handle, Tensor::new(&x, &input), y, &args).unwrap();
        };
        let what = format!("{} {layout} {filter}x{filter} groups {groups} constant {constant}", T::DATA_TYPE);
        assert!(comes_to_allocate_nothing(run), "{solver} allocates again and again on {what}");
    }
    assert!(executed > 1, "{executed} solvers took the plan");
}

// One test, so that nothing else runs and allocates in this process.
#[test]
fn no_heap_allocation_after_the_first_execution() {
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    drop(std::hint::black_box(vec![0u8; 100]));
    assert!(ALLOCATIONS.load(Ordering::SeqCst) > before, "allocations are not counted");
    let solvers: Vec<_> = Table::of_backend("cpu").unwrap().rows.iter().map(|row| row.solver).collect();
    for layout in [TensorLayout::Nchw, TensorLayout::Nhwc] {
        for (filter, groups) in [(3, 1), (1, 1), (3, 4), (3, 32), (3, 0)] {
            for constant in [true, false] {
                check::<f32>(layout, filter, groups, constant, &solvers);
                check::<f16>(layout, filter, groups, constant, &solvers);
                check::<bf16>(layout, filter, groups, constant, &solvers);
            }
        }
    }
}

//! Executing: arguments, operands and memory, on the typed and the raw path.

use std::ffi::c_void;

use fuseplan::error::ExecuteError;
use fuseplan::memory::{Operand, OperandMut};
use fuseplan::problem::OpKind;
use fuseplan::raw::{self, OpArgs, operands};
use fuseplan::*;
use fuseplan_suite::sample::Sample;

fn sample() -> Sample {
    Sample::new(3).unwrap()
}

/// What both paths say of these arguments; they must agree, and write nothing.
fn refused(sample: &Sample, args: &OperatorArgs<'_>) -> ExecuteError {
    let handle = Handle::cpu();
    let compiled = sample.plan.compile(&handle).unwrap();
    let mut output = vec![f32::NAN; compiled.output().span()];
    let y = TensorMut::new(compiled.output(), &mut output);
    let typed = compiled.execute(&handle, Tensor::new(compiled.input(), &sample.input), y, args).unwrap_err();
    let (x, y) = (sample.input.as_ptr().cast(), output.as_mut_ptr().cast());
    let raw = on_pointers(&compiled, &handle, x, y, args).unwrap_err();
    assert_eq!(typed, raw);
    assert!(output.iter().all(|value| value.is_nan()), "something was written");
    typed
}

/// Executes on raw pointers to input and output. `x` and `y` are null, misaligned, or memory of the plan's extents.
fn on_pointers(
    compiled: &CompiledPlan,
    handle: &Handle,
    x: *const c_void,
    y: *mut c_void,
    args: &OperatorArgs<'_>,
) -> Result<(), ExecuteError> {
    let (input, output) = (compiled.input(), compiled.output());
    // SAFETY: the pointers are as this function's description says; bad ones are refused before use.
    let (x, y) = unsafe { (Operand::from_raw(x, None), OperandMut::from_raw(y, None)) };
    compiled.execute(handle, Tensor::new(input, x), TensorMut::new(output, y), args)
}

#[test]
fn bare_pointers_compute_the_same_and_are_checked() {
    let (sample, handle) = (sample(), Handle::cpu());
    let compiled = sample.plan.compile(&handle).unwrap();
    let (weights, bias) = (sample.weights.as_ptr().cast(), sample.shift.as_ptr().cast());
    // What stands behind the plan's operators is not looked at.
    let mut ops: Vec<OpArgs> = vec![
        operands::ConvForward { weights }.into(),
        operands::BiasForward { bias }.into(),
        operands::ActivationForward::from(Activation::Relu.params()).into(),
        OpArgs { beta: 7.0, ..OpArgs::default() },
    ];
    let mut output = vec![f32::NAN; compiled.output().span()];
    let x = || Tensor::new(compiled.input(), &sample.input);
    // SAFETY: each entry has the pointers and scalars of the plan's operator, whose memory lives.
    let args = unsafe { raw::Args::new(&ops) };
    compiled.check(&handle, x(), TensorMut::new(compiled.output(), &mut output), args).unwrap();
    assert!(output.iter().all(|value| value.is_nan()), "a check wrote something");
    compiled.execute(&handle, x(), TensorMut::new(compiled.output(), &mut output), args).unwrap();
    assert_eq!(output, sample.expected());

    ops[1] = OpArgs::default();
    let null = ExecuteError::Null { operand: "BiasForward (operator 1): bias".into() };
    // SAFETY: every operand but the null pointer, which is refused, is what its operator says.
    let args = unsafe { raw::Args::new(&ops) };
    let y = || TensorMut::new(compiled.output(), OperandMut::none());
    assert_eq!(compiled.check(&handle, x(), y(), args).unwrap_err().to_string(), "the output is null");
    let mut untouched = output.clone();
    let y = TensorMut::new(compiled.output(), &mut untouched);
    assert_eq!(compiled.execute(&handle, x(), y, args), Err(null));
    // SAFETY: every operand is what its operator says, and too few of them are refused.
    let args = unsafe { raw::Args::new(&ops[..1]) };
    let y = TensorMut::new(compiled.output(), &mut untouched);
    let missing = ExecuteError::Missing { index: 1, kind: OpKind::BiasForward };
    assert_eq!(compiled.execute(&handle, x(), y, args), Err(missing));
    assert_eq!(untouched, output);
}

#[test]
fn an_operand_that_was_not_set_is_named() {
    let x = TensorDescriptor::nchw(DataType::Float, [1, 2, 2, 2]).unwrap();
    let mut plan = FusionPlan::new(x).unwrap();
    let norm = plan.append(BatchNormInference::new(BatchNormMode::Spatial)).unwrap();
    let (compiled, values, params) = (plan.compile(&Handle::cpu()).unwrap(), [1.0f32; 8], [1.0f32; 2]);
    let run = |own: BatchNormInferenceArgs<'_>| {
        let (mut args, mut output) = (OperatorArgs::new(), [f32::NAN; 8]);
        args.set(norm, own);
        let y = TensorMut::new(&x, &mut output);
        compiled.execute(&Handle::cpu(), Tensor::new(&x, &values), y, &args).map(|()| output)
    };
    let three = || BatchNormInferenceArgs::new().scale(&params).mean(&params).variance(&params);
    let null = |name| ExecuteError::Null { operand: format!("BatchNormInference (operator 0): {name}") };
    assert_eq!(run(three()).unwrap_err(), null("bias"));
    assert_eq!(run(BatchNormInferenceArgs::default()).unwrap_err(), null("scale"));
    // All is 1 and the mean is 1, so what is left is the bias, whatever epsilon is.
    assert_eq!(run(three().bias(&[7.0f32, 8.0])).unwrap(), [7.0, 7.0, 7.0, 7.0, 8.0, 8.0, 8.0, 8.0]);
}

#[test]
fn slices_and_raw_pointers_compute_the_same() {
    let (sample, handle) = (sample(), Handle::cpu());
    let compiled = sample.plan.compile(&handle).unwrap();
    let args = sample.args();
    assert_eq!(sample.run(&compiled, &handle, &args).unwrap(), sample.expected());
    let mut output = vec![f32::NAN; compiled.output().span()];
    on_pointers(&compiled, &handle, sample.input.as_ptr().cast(), output.as_mut_ptr().cast(), &args).unwrap();
    assert_eq!(output, sample.expected());
}

#[test]
fn arguments_are_set_before_or_after_the_compile_in_any_order_and_again() {
    let (mut sample, handle) = (sample(), Handle::cpu());
    let expected = sample.expected();
    let wrong = vec![9.0f32; sample.weights.len()];
    let mut args = OperatorArgs::new();
    args.set(sample.relu, Activation::Relu).set(sample.conv, ConvForwardArgs::new(&wrong));
    let compiled = sample.plan.compile(&handle).unwrap();
    args.set(sample.bias, BiasForwardArgs::new(&sample.shift));
    assert_ne!(sample.run(&compiled, &handle, &args).unwrap(), expected);
    // The last one counts.
    args.set(sample.conv, ConvForwardArgs::new(&sample.weights));
    for _ in 0..3 {
        assert_eq!(sample.run(&compiled, &handle, &args).unwrap(), expected);
    }
    // The same arguments for another compile of the plan, and other data for the same compile.
    let options = CompileOptions::default().with_solver("cpu.reference.v1");
    let reference = sample.plan.compile_with(&handle, &options).unwrap();
    assert_eq!(sample.run(&reference, &handle, &args).unwrap(), expected);
    drop(args);
    sample.input.reverse();
    assert_eq!(sample.run(&compiled, &handle, &sample.args()).unwrap(), sample.expected());
}

#[test]
fn weights_that_change_between_arguments_are_seen() {
    let (mut sample, handle) = (sample(), Handle::cpu());
    let compiled = sample.plan.compile(&handle).unwrap();
    for round in 0..4 {
        sample.weights.rotate_left(round);
        sample.shift.rotate_left(1);
        assert_eq!(sample.run(&compiled, &handle, &sample.args()).unwrap(), sample.expected());
    }
    // Raw weights without the promise may be rewritten while the arguments live.
    let mut weights = sample.weights.clone();
    let pointer = weights.as_mut_ptr();
    let mut args = OperatorArgs::new();
    // SAFETY: the pointer is to `weights`, which outlive `args` and are not written while a plan runs.
    let operand = unsafe { Operand::from_raw(pointer.cast(), Some(size_of_val(weights.as_slice()))) };
    args.set(sample.conv, ConvForwardArgs::new(operand))
        .set(sample.bias, BiasForwardArgs::new(&sample.shift))
        .set(sample.relu, Activation::Relu);
    assert_eq!(sample.run(&compiled, &handle, &args).unwrap(), sample.expected());
    for i in 0..sample.weights.len() {
        // SAFETY: within `weights`; no plan is running.
        unsafe { pointer.add(i).write(-sample.weights[i]) };
    }
    let negated = sample.run(&compiled, &handle, &args).unwrap();
    drop(args);
    sample.weights.iter_mut().for_each(|weight| *weight = -*weight);
    assert_eq!(negated, sample.expected());
}

#[test]
fn missing_extra_and_foreign_arguments_name_the_operator() {
    let sample = sample();
    let error = refused(&sample, &OperatorArgs::new());
    assert_eq!(error, ExecuteError::Missing { index: 0, kind: OpKind::ConvForward });

    let mut args = OperatorArgs::new();
    args.set(sample.conv, ConvForwardArgs::new(&sample.weights)).set(sample.relu, Activation::Relu);
    let error = refused(&sample, &args);
    assert_eq!(error, ExecuteError::Missing { index: 1, kind: OpKind::BiasForward });
    assert_eq!(error.to_string(), "BiasForward (operator 1) has no arguments");

    let mut longer = sample.plan.clone();
    let fourth = longer.append(ActivationForward::new(ActivationMode::Abs)).unwrap();
    let mut args = sample.args();
    args.set(fourth, Activation::Abs);
    let error = refused(&sample, &args);
    assert_eq!(error, ExecuteError::Extra { index: 3, kind: OpKind::ActivationForward, count: 3 });
    assert!(error.to_string().contains("operator 3") && error.to_string().contains("3 operators"));

    let mut args = sample.args();
    args.set(sample.relu, Activation::LeakyRelu { slope: 0.1 });
    let error = refused(&sample, &args);
    let (found, expected) = (ActivationMode::LeakyRelu, ActivationMode::Relu);
    let kind = OpKind::ActivationForward;
    assert_eq!(error, ExecuteError::Activation { index: 2, kind, found, expected });
    assert_eq!(
        error.to_string(),
        "ActivationForward (operator 2) was appended with RELU, its arguments are of LEAKYRELU"
    );

    let other = self::sample();
    let mut args = sample.args();
    args.set(other.bias, BiasForwardArgs::new(&other.shift));
    let error = refused(&sample, &args);
    assert_eq!(error, ExecuteError::Foreign { index: 1, kind: OpKind::BiasForward });
    assert!(error.to_string().contains("another plan"));
}

#[test]
fn beta_belongs_to_the_last_operator() {
    let (sample, handle) = (sample(), Handle::cpu());
    let mut args = sample.args();
    args.set(sample.bias, BiasForwardArgs::new(&sample.shift).beta(1.0));
    let error = refused(&sample, &args);
    let expected = ExecuteError::Beta { index: 1, kind: OpKind::BiasForward, beta: "1".into(), last: 2 };
    assert_eq!(error, expected);
    assert!(error.to_string().contains("only the last operator, 2,"), "{error}");
    args.set(sample.bias, BiasForwardArgs::new(&sample.shift).beta(f32::NAN));
    assert!(matches!(refused(&sample, &args), ExecuteError::Beta { .. }));

    let mut args = sample.args();
    args.set(sample.relu, ActivationForwardArgs::new(Activation::Relu).alpha(2.0).beta(-1.0));
    let compiled = sample.plan.compile(&handle).unwrap();
    let mut output = vec![10.0; compiled.output().span()];
    let y = TensorMut::new(compiled.output(), &mut output);
    compiled.execute(&handle, Tensor::new(compiled.input(), &sample.input), y, &args).unwrap();
    let blended: Vec<_> = sample.expected().iter().map(|y| 2.0 * y - 10.0).collect();
    assert_eq!(output, blended);
}

#[test]
fn operands_of_other_types_or_too_small_are_refused() {
    let sample = sample();
    let halves = vec![half::f16::ONE; sample.weights.len()];
    let mut args = sample.args();
    args.set(sample.conv, ConvForwardArgs::new(&halves));
    let error = refused(&sample, &args);
    let operand = "ConvForward (operator 0): weights".to_string();
    let expected =
        ExecuteError::DataType { operand: operand.clone(), found: DataType::Half, expected: DataType::Float };
    assert_eq!(error, expected);

    let mut args = sample.args();
    args.set(sample.conv, ConvForwardArgs::new(&sample.weights[1..]));
    let (found, needed) = (sample.weights.len() * 4 - 4, sample.weights.len() * 4);
    assert_eq!(refused(&sample, &args), ExecuteError::TooSmall { operand, found, needed });

    let mut args = sample.args();
    args.set(sample.bias, BiasForwardArgs::new(&sample.shift[..3]));
    assert!(matches!(refused(&sample, &args), ExecuteError::TooSmall { found: 12, needed: 16, .. }));
}

#[test]
fn null_and_misaligned_operands_are_refused() {
    let (sample, handle) = (sample(), Handle::cpu());
    let compiled = sample.plan.compile(&handle).unwrap();
    let mut args = sample.args();
    // SAFETY: null operands are refused before use.
    args.set(sample.bias, BiasForwardArgs::new(unsafe { Operand::from_raw(std::ptr::null(), None) }));
    let operand = "BiasForward (operator 1): bias".to_string();
    assert_eq!(refused(&sample, &args), ExecuteError::Null { operand: operand.clone() });
    let odd = sample.shift.as_ptr().wrapping_byte_add(1).cast();
    // SAFETY: misaligned operands are refused before use.
    args.set(sample.bias, BiasForwardArgs::new(unsafe { Operand::from_raw(odd, None) }));
    assert_eq!(refused(&sample, &args), ExecuteError::Misaligned { operand, size: 4 });

    let args = sample.args();
    let mut output = vec![f32::NAN; compiled.output().span()];
    let (x, y) = (sample.input.as_ptr().cast::<c_void>(), output.as_mut_ptr().cast::<c_void>());
    let null = |operand: &str| Err(ExecuteError::Null { operand: operand.into() });
    let misaligned = |operand: &str| Err(ExecuteError::Misaligned { operand: operand.into(), size: 4 });
    assert_eq!(on_pointers(&compiled, &handle, std::ptr::null(), y, &args), null("the input"));
    assert_eq!(on_pointers(&compiled, &handle, x, std::ptr::null_mut(), &args), null("the output"));
    assert_eq!(on_pointers(&compiled, &handle, x.wrapping_byte_add(2), y, &args), misaligned("the input"));
    assert_eq!(on_pointers(&compiled, &handle, x, y.wrapping_byte_add(3), &args), misaligned("the output"));
    assert!(output.iter().all(|value| value.is_nan()));
}

#[test]
fn tensors_must_have_the_plans_descriptors_and_room() {
    let (sample, handle) = (sample(), Handle::cpu());
    let compiled = sample.plan.compile(&handle).unwrap();
    let args = sample.args();
    let mut output = vec![f32::NAN; compiled.output().span()];
    let mut run = |x: &TensorDescriptor, y: &TensorDescriptor, inputs: usize, outputs: usize| {
        let (input, output) = (&sample.input[..inputs], &mut output[..outputs]);
        compiled.execute(&handle, Tensor::new(x, input), TensorMut::new(y, output), &args).unwrap_err()
    };
    let (x, y) = (*compiled.input(), *compiled.output());
    let (inputs, outputs) = (x.span(), y.span());
    let nhwc = TensorDescriptor::nhwc(DataType::Float, [2, 4, 6, 5]).unwrap();
    // The output is looked at first, as in MIOpen.
    assert!(matches!(run(&y, &nhwc, inputs, outputs), ExecuteError::Output { .. }));
    assert!(matches!(run(&y, &y, inputs, outputs), ExecuteError::Input { .. }));
    let text = run(&x, &nhwc, inputs, outputs).to_string();
    assert!(text.contains("f32 2x4x6x5 NHWC") && text.contains("f32 2x4x6x5 NCHW"), "{text}");
    let error = run(&x, &y, inputs - 1, outputs);
    assert_eq!(
        error,
        ExecuteError::TooSmall { operand: "the input".into(), found: inputs * 4 - 4, needed: inputs * 4 }
    );
    assert!(matches!(run(&x, &y, inputs, outputs - 1), ExecuteError::TooSmall { .. }));

    let halves = vec![half::f16::ONE; inputs];
    let mut half_output = vec![half::f16::ONE; outputs];
    let y = TensorMut::new(&y, &mut half_output);
    let error = compiled.execute(&handle, Tensor::new(&x, &halves), y, &args).unwrap_err();
    assert!(matches!(error, ExecuteError::DataType { found: DataType::Half, .. }), "{error}");
}

/// One filter in NHWC, whose channel stride nothing depends on, in every place where descriptors are compared.
#[test]
fn strides_of_single_elements_are_not_compared() {
    let new =
        |lens: &[usize], strides: &[usize]| TensorDescriptor::new(DataType::Float, lens, strides).unwrap();
    let handle = Handle::cpu();
    let run = |junk: usize| {
        let x = new(&[1, 2, 8, 11], &[junk, 1, 22, 2]);
        let w = new(&[1, 2, 1, 1], &[junk, 1, junk, junk]);
        let mut plan = FusionPlan::for_device(&handle, x).unwrap();
        let conv = ConvolutionDescriptor::d2();
        let conv = plan.append(ConvForward::new(conv, w)).unwrap();
        let residual = new(&[1, 1, 8, 11], &[junk, junk, 11, 1]);
        let residual = plan.append(BiasForward::with_descriptor(residual)).unwrap();
        let compiled = plan.compile(&handle).unwrap();
        let input: Vec<f32> = (0..176).map(|i| (i % 13) as f32).collect();
        let rest: Vec<f32> = (0..88).map(|i| (i % 5) as f32).collect();
        let mut args = OperatorArgs::new();
        args.set(conv, ConvForwardArgs::new(&[2.0f32, 3.0])).set(residual, BiasForwardArgs::new(&rest));
        let expected: Vec<f32> =
            (0..88).map(|i| 2.0 * input[2 * i] + 3.0 * input[2 * i + 1] + rest[i]).collect();
        for other in [0, 1, 7, 88, 1 << 40] {
            let (x, y) = (new(x.lens(), &[other, 1, 22, 2]), new(&[1, 1, 8, 11], &[other, other, 11, 1]));
            let mut output = [f32::NAN; 88];
            let (from, to) = (Tensor::new(&x, &input), TensorMut::new(&y, &mut output));
            compiled.execute(&handle, from, to, &args).unwrap();
            assert_eq!(output, *expected, "plan {junk}, execution {other}");
        }
        compiled
    };
    let first = run(1);
    for junk in [0, 2, 11, 88, 1 << 40] {
        let other = run(junk);
        assert_eq!(other.problem(), first.problem());
        assert_eq!(other.problem().to_string(), first.problem().to_string());
        assert_eq!(other.info().solver, first.info().solver);
    }
}

#[test]
fn another_handles_device_is_refused() {
    let (sample, handle) = (sample(), Handle::cpu());
    let other = Handle::cpu_with_threads(1).unwrap();
    let compiled = sample.plan.compile(&handle).unwrap();
    let error = sample.run(&compiled, &other, &sample.args()).unwrap_err();
    assert!(matches!(error, ExecuteError::OtherDevice { .. }), "{error}");
    assert!(error.to_string().contains("the handle is of another opening of cpu 0"), "{error}");
    // A clone, and another handle of the same device, are as good.
    for same in [handle.clone(), Handle::open("cpu", 0).unwrap()] {
        assert_eq!(sample.run(&compiled, &same, &sample.args()).unwrap(), sample.expected());
    }
}

#[test]
fn what_is_written_overlaps_nothing() {
    let (sample, handle) = (sample(), Handle::cpu());
    let compiled = sample.plan.compile(&handle).unwrap();
    let mut memory = vec![1.0f32; 1000];
    let base = memory.as_mut_ptr();
    let run = |y: usize, weights: usize| {
        let mut args = OperatorArgs::new();
        let at = |offset: usize| base.wrapping_add(offset).cast::<c_void>();
        // SAFETY: within `memory`; overlaps with the output are refused before use.
        let weights = unsafe { Operand::from_raw(at(weights), None) };
        args.set(sample.conv, ConvForwardArgs::new(weights))
            .set(sample.bias, BiasForwardArgs::new(&sample.shift))
            .set(sample.relu, Activation::Relu);
        on_pointers(&compiled, &handle, at(0), at(y), &args)
    };
    // Input 0..180, output of 240, weights of 108.
    run(180, 420).unwrap();
    for (y, weights, other) in [
        (0, 420, "the input"),
        (179, 500, "the input"),
        (300, 193, "ConvForward (operator 0): weights"),
        (300, 539, "ConvForward (operator 0): weights"),
    ] {
        let error = run(y, weights).unwrap_err();
        let expected =
            ExecuteError::Overlap { written: "the output".into(), other: other.into(), element_wise: false };
        assert_eq!(error, expected, "output at {y}, weights at {weights}");
    }
    run(300, 192).unwrap();
    run(300, 540).unwrap();
    let y = TensorMut::new(compiled.output(), &mut memory);
    let error = compiled.execute_in_place(&handle, y, &sample.args()).unwrap_err();
    assert_eq!(error, ExecuteError::InPlace { first: OpKind::ConvForward });
}

#[test]
fn element_wise_plans_run_in_place() {
    let handle = Handle::cpu();
    let x = TensorDescriptor::nhwc(DataType::Float, [2, 3, 4, 5]).unwrap();
    let mut plan = FusionPlan::new(x).unwrap();
    let residual = plan.append(BiasForward::residual()).unwrap();
    let relu = plan.append(ActivationForward::new(ActivationMode::Relu)).unwrap();
    let compiled = plan.compile(&handle).unwrap();
    let values: Vec<f32> = (0..120).map(|i| i as f32 - 60.0).collect();
    let terms: Vec<f32> = (0..120).map(|i| (i % 7) as f32).collect();
    let expected: Vec<_> = values.iter().zip(&terms).map(|(a, b)| (a + b).max(0.0)).collect();

    let mut memory = values.clone();
    let mut args = OperatorArgs::new();
    args.set(residual, BiasForwardArgs::new(&terms)).set(relu, Activation::Relu);
    compiled.execute_in_place(&handle, TensorMut::new(&x, &mut memory), &args).unwrap();
    assert_eq!(memory, expected);

    // Over the residual, which has the output's descriptor.
    let mut memory = terms.clone();
    let y = memory.as_mut_ptr().cast::<c_void>();
    let mut args = OperatorArgs::new();
    // SAFETY: the residual is `memory`, which the plan also writes, in place.
    args.set(residual, BiasForwardArgs::new(unsafe { Operand::from_raw(y, None) }))
        .set(relu, Activation::Relu);
    on_pointers(&compiled, &handle, values.as_ptr().cast(), y, &args).unwrap();
    assert_eq!(memory, expected);

    // Beside it by one element is no place to run in.
    let mut memory = vec![1.0f32; 121];
    let base = memory.as_mut_ptr();
    let mut args = OperatorArgs::new();
    args.set(residual, BiasForwardArgs::new(&terms)).set(relu, Activation::Relu);
    let error = on_pointers(&compiled, &handle, base.cast(), base.wrapping_add(1).cast(), &args).unwrap_err();
    assert!(matches!(error, ExecuteError::Overlap { element_wise: true, .. }), "{error}");
    assert!(error.to_string().contains("in place only"), "{error}");
}

#[test]
fn training_operands_are_wanted_or_left_out_as_the_operator_says() {
    let handle = Handle::cpu();
    let x = TensorDescriptor::nchw(DataType::Float, [4, 2, 3, 3]).unwrap();
    let values: Vec<f32> = (0..72).map(|i| (i % 5) as f32).collect();
    let (scale, bias) = ([1.0f32, 2.0], [0.0f32, 1.0]);
    let run = |running: bool, give_running: bool, give_saved: bool| {
        let mut plan = FusionPlan::new(x).unwrap();
        let norm = plan.append(BatchNormForward::new(BatchNormMode::Spatial, running)).unwrap();
        let compiled = plan.compile(&handle).unwrap();
        let mut written = [[f32::NAN; 2], [f32::NAN; 2], [0.0; 2], [1.0; 2]];
        let [mean, inverse, running_mean, running_variance] = &mut written;
        let give = |wanted: bool, memory: &mut [f32; 2]| {
            if !wanted {
                return OperandMut::none();
            }
            // SAFETY: `written` outlives the arguments, and nobody else uses it.
            unsafe { OperandMut::from_raw(memory.as_mut_ptr().cast(), Some(8)) }
        };
        let mut args = OperatorArgs::new();
        let new = BatchNormForwardArgs::new()
            .scale(&scale)
            .bias(&bias)
            .saved_mean(give(give_saved, mean))
            .saved_inv_variance(give(give_saved, inverse))
            .running_mean(give(give_running, running_mean))
            .running_variance(give(give_running, running_variance))
            .exp_avg_factor(0.5);
        args.set(norm, new);
        let mut output = vec![f32::NAN; 72];
        let y = TensorMut::new(&x, &mut output);
        compiled.execute(&handle, Tensor::new(&x, &values), y, &args).map(|()| written)
    };
    let [mean, _, running_mean, _] = run(true, true, true).unwrap();
    assert!(mean.iter().all(|mean| (1.5..2.5).contains(mean)));
    assert_eq!(running_mean, mean.map(|mean| mean / 2.0));
    let [mean, inverse, ..] = run(true, true, false).unwrap();
    assert!(mean.iter().chain(&inverse).all(|value| value.is_nan()));
    let missing = run(true, false, true).unwrap_err();
    assert_eq!(missing, ExecuteError::Null { operand: "BatchNormForward (operator 0): running_mean".into() });
    let given = run(false, true, true).unwrap_err();
    assert_eq!(
        given.to_string(),
        "BatchNormForward (operator 0): running_mean is given; it must be none, as the operator was appended without it"
    );
    run(false, false, true).unwrap();
}

#[test]
fn channels_of_one_tensor_are_read_and_written() {
    let handle = Handle::cpu();
    let whole = TensorDescriptor::nhwc(DataType::Float, [1, 5, 2, 3]).unwrap();
    let strides = whole.strides().unwrap();
    let x = TensorDescriptor::new(DataType::Float, &[1, 2, 2, 3], strides).unwrap();
    let weights = TensorDescriptor::nchw(DataType::Float, [2, 2, 1, 1]).unwrap();
    let mut plan = FusionPlan::new(x).unwrap();
    let conv = ConvForward::new(ConvolutionDescriptor::d2(), weights).with_output_strides(strides);
    let conv = plan.append(conv).unwrap();
    let compiled = plan.compile(&handle).unwrap();
    let again: FusionPlan = plan.to_string().parse().unwrap();
    assert_eq!(again.problem(), plan.problem());
    let binary = plan.compile_for(&handle, &CompileOptions::default()).unwrap();
    let loaded = plan.load(&handle, &binary).unwrap();
    for compiled in [compiled, loaded] {
        let mut memory: Vec<f32> = (0..30).map(|value| value as f32).collect();
        let mut args = OperatorArgs::new();
        let weights = [1.0f32, 1.0, 1.0, -1.0];
        args.set(conv, ConvForwardArgs::new(&weights));
        let base = memory.as_mut_ptr().cast::<c_void>();
        let run =
            |first: usize| on_pointers(&compiled, &handle, base, base.wrapping_byte_add(4 * first), &args);
        // The second channel of the input, and the first of the next pixel's.
        for first in [1, 4] {
            let error = run(first).unwrap_err();
            assert!(matches!(&error, ExecuteError::Overlap { other, .. } if other == "the input"), "{error}");
        }
        run(3).unwrap();
        run(2).unwrap();
        for (pixel, values) in memory.chunks(5).enumerate() {
            let first = 5.0 * pixel as f32;
            // The sum, the difference, and what was written by the first of these executions.
            assert_eq!(values, [first, first + 1.0, 2.0 * first + 1.0, -1.0, -1.0]);
        }
    }
}

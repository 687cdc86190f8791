//! `cpu.reference.v1` against an oracle that is written another way.

mod common;

use common::*;
use fuseplan_api::*;

const REFERENCE: &str = "cpu.reference.v1";
const DATA_TYPES: [DataType; 3] = [DataType::Float, DataType::Half, DataType::BFloat16];

/// Input and weights lengths, pads, strides, dilations, groups.
type Shape =
    (&'static [usize], &'static [usize], &'static [usize], &'static [usize], &'static [usize], usize);

const SHAPES: &[Shape] = &[
    (&[1, 1, 1, 1], &[1, 1, 1, 1], &[0, 0], &[1, 1], &[1, 1], 1),
    (&[2, 3, 7, 5], &[4, 3, 3, 3], &[1, 1], &[1, 1], &[1, 1], 1),
    (&[1, 4, 9, 6], &[6, 2, 3, 2], &[2, 0], &[2, 1], &[1, 2], 2),
    (&[2, 5, 6, 1], &[5, 1, 5, 3], &[2, 1], &[1, 1], &[1, 1], 5),
    (&[1, 3, 4, 75], &[2, 3, 1, 7], &[0, 9], &[3, 2], &[1, 3], 1),
    (&[1, 2, 3, 3], &[3, 2, 5, 5], &[4, 4], &[1, 1], &[2, 2], 1),
    (&[2, 2, 3, 4, 5], &[4, 2, 2, 3, 3], &[0, 1, 1], &[1, 2, 1], &[1, 1, 1], 1),
    (&[1, 4, 5, 3, 2], &[4, 2, 3, 1, 2], &[1, 0, 1], &[2, 1, 1], &[2, 1, 1], 2),
];

fn convolution(
    shape: &Shape,
    data_type: DataType,
    arrangement: usize,
    mut value: impl FnMut() -> f64,
) -> Plan {
    let (input, weights, pads, strides, dilations, groups) = shape;
    let conv = ConvolutionDescriptor::of_dims(pads.len())
        .unwrap()
        .with_pads(pads)
        .unwrap()
        .with_strides(strides)
        .unwrap()
        .with_dilations(dilations)
        .unwrap()
        .with_groups(*groups)
        .unwrap();
    let pick = |lens: &[usize], skip: usize| {
        let all = arrangements(data_type, lens);
        all[(arrangement + skip) % all.len()]
    };
    let input = Tensor::new(pick(input, 0), &mut value);
    let weights = Tensor::new(pick(weights, 2), &mut value);
    Plan::new(input).then(Step::Conv { conv, weights })
}

/// The plan with an output of other strides.
fn arranged(mut plan: Plan, arrangement: usize) -> Plan {
    let all = arrangements(plan.output.data_type(), plan.output.lens());
    plan.output = all[arrangement % all.len()];
    plan
}

#[test]
fn integers_are_exact_whatever_the_strides() {
    let mut random = Random::new(1);
    for (shape, data_type) in SHAPES.iter().flat_map(|s| DATA_TYPES.map(|t| (s, t))) {
        for arrangement in 0..5 {
            // At most 75 products of at most 1, bias and residual: exact in 8 bits.
            let plan = convolution(shape, data_type, arrangement, || random.integer(1));
            let plan = arranged(plan, arrangement + 1).then_bias(|| random.integer(4));
            let residuals = arrangements(data_type, plan.output.lens());
            let residual = Tensor::new(residuals[(arrangement + 3) % residuals.len()], || random.integer(4));
            let params = ActivationParams::new(0.5, 0.0, 0.0);
            let plan =
                plan.then(Step::Activation(ActivationMode::LeakyRelu, params)).then(Step::Bias(residual));
            assert_eq!(plan.run(REFERENCE, 1), plan.oracle().values, "{}", plan.problem());
        }
    }
}

#[test]
fn every_element_is_rounded_once() {
    let mut random = Random::new(2);
    for (shape, data_type) in SHAPES.iter().flat_map(|s| DATA_TYPES.map(|t| (s, t))) {
        for (mode, activation) in
            BatchNormMode::ALL.into_iter().flat_map(|m| ActivationMode::ALL.map(|a| (m, a)))
        {
            let plan = arranged(convolution(shape, data_type, 1, || random.real()), 2);
            let params = ActivationParams::new(0.5, 0.75, 1.5);
            let mut plan = plan
                .then_bias(|| random.real())
                .then(Step::Activation(activation, params))
                .then_batch_norm(mode, &mut random);
            for (_, alpha) in &mut plan.steps {
                *alpha = 1.0 + random.real() as f32 / 4.0;
            }
            let count = plan.output.element_count();
            plan.prior = Some((-0.5, (0..count).map(|_| random.integer(3)).collect()));
            let Exact { values: exact, magnitudes, .. } = plan.oracle();
            let least = if data_type == DataType::Half { 6e-8 } else { 1e-40 };
            for (i, y) in plan.run(REFERENCE, 2).into_iter().enumerate() {
                // Half a step of the data type, and what two orders of f64 sums may differ by.
                let bound =
                    data_type.epsilon() / 2.0 * exact[i].abs() + least + 1e-12 * (1.0 + magnitudes[i]);
                assert!((y - exact[i]).abs() <= bound, "{i}: {y} for {} in {}", exact[i], plan.problem());
            }
        }
    }
}

#[test]
fn operators_are_applied_in_their_order_with_their_alphas() {
    // x = 2, weight 3: 6 · 0.5 = 3; + 1 = 4, · 2 = 8; clipped at 5, · −1 = −5; + 10 · −5 of before = −55.
    let one = TensorDescriptor::nchw(DataType::Float, [1, 1, 1, 1]).unwrap();
    let constant = |value: f64| Tensor::new(one, || value);
    let conv = ConvolutionDescriptor::d2();
    let clipped = Step::Activation(ActivationMode::ClippedRelu, ActivationParams::new(5.0, 0.0, 0.0));
    let mut plan = Plan::new(constant(2.0))
        .then(Step::Conv { conv, weights: constant(3.0) })
        .then(Step::Bias(constant(1.0)))
        .then(clipped);
    for ((_, alpha), value) in plan.steps.iter_mut().zip([0.5, 2.0, -1.0]) {
        *alpha = value;
    }
    plan.prior = Some((10.0, vec![-5.0]));
    assert_eq!(plan.run(REFERENCE, 1), [-55.0]);
    // The activation before the bias: 3 → 3, · −1 = −3; + 1 = −2, · 2 = −4; − 50.
    plan.steps.swap(1, 2);
    assert_eq!(plan.run(REFERENCE, 1), [-54.0]);
}

#[test]
fn nan_and_infinity_go_through_the_sums_and_only_where_they_belong() {
    let desc = TensorDescriptor::nchw(DataType::Float, [1, 1, 1, 5]).unwrap();
    let mut values = [1.0, f64::NAN, 1.0, 1.0, f64::INFINITY].into_iter();
    let input = Tensor::new(desc, || values.next().unwrap());
    let weights = Tensor::new(TensorDescriptor::nchw(DataType::Float, [1, 1, 1, 2]).unwrap(), || 1.0);
    let conv = ConvolutionDescriptor::d2().with_pads([0, 1]).unwrap();
    let plan = Plan::new(input).then(Step::Conv { conv, weights });
    let y = plan.run(REFERENCE, 1);
    let expected = [1.0, f64::NAN, f64::NAN, 2.0, f64::INFINITY, f64::INFINITY];
    assert!(same_bits(&y, &expected), "{y:?}");
    // RELU's NaN is 0.
    let plan = plan.then(Step::Activation(ActivationMode::Relu, ActivationParams::default()));
    assert_eq!(plan.run(REFERENCE, 1), [1.0, 0.0, 0.0, 2.0, f64::INFINITY, f64::INFINITY]);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let mut random = Random::new(3);
    for shape in SHAPES {
        let plan = convolution(shape, DataType::Float, 0, || random.real());
        let plan = plan.then_batch_norm(BatchNormMode::PerActivation, &mut random);
        let once = plan.run(REFERENCE, 1);
        for threads in [2, 3, 8] {
            assert!(same_bits(&once, &plan.run(REFERENCE, threads)), "{threads}: {}", plan.problem());
        }
    }
}

#[test]
fn element_wise_plans_may_run_in_place() {
    let mut random = Random::new(4);
    for desc in arrangements(DataType::BFloat16, &[2, 3, 4, 5]) {
        let plan = Plan::new(Tensor::new(desc, || random.real()))
            .then_batch_norm(BatchNormMode::Spatial, &mut random)
            .then(Step::Activation(ActivationMode::Tanh, ActivationParams::new(1.0, 2.0, 0.0)));
        assert_eq!(
            plan.run_in_place(REFERENCE, &fuseplan_cpu::open_with_threads(2).unwrap()),
            plan.run(REFERENCE, 1)
        );
    }
}

#[test]
fn refusals_name_the_property_and_what_is_accepted() {
    let device = fuseplan_cpu::open_with_threads(1).unwrap();
    let problem = |data_type, op: Op| {
        let x = TensorDescriptor::nchw(data_type, [1, 2, 3, 4]).unwrap();
        Problem { input: x, output: x, ops: vec![op], math: MathMode::Precise }
    };
    let refusal =
        |problem: &Problem| solver(REFERENCE).applies(problem, device.info()).unwrap_err().to_string();
    for (data_type, name) in [(DataType::Double, "f64"), (DataType::Int8, "i8")] {
        let text = refusal(&problem(data_type, Op::ActivationForward { mode: ActivationMode::Relu }));
        assert_eq!(text, format!("{REFERENCE}: data type is {name}, accepted: f32, f16, bf16"));
    }
    let text = refusal(&problem(DataType::Float, Op::BatchNormBackward { mode: BatchNormMode::Spatial }));
    assert!(text.starts_with("cpu.reference.v1: operators is BatchNormBackward, accepted: "), "{text}");
}

#[test]
fn foreign_binaries_are_refused() {
    let x = TensorDescriptor::nchw(DataType::Float, [1, 2, 3, 4]).unwrap();
    let ops = vec![Op::ActivationForward { mode: ActivationMode::Relu }];
    let problem = Problem { input: x, output: x, ops, math: MathMode::Precise };
    let device = fuseplan_cpu::open_with_threads(1).unwrap();
    let good = solver(REFERENCE).compile_preferred(&problem, device.info()).unwrap();
    for binary in [
        Binary { solver: "cpu.other.v1".into(), ..good.clone() },
        Binary { arch: "sm_90a".into(), ..good.clone() },
        Binary { bytes: vec![1], ..good.clone() },
    ] {
        let error = solver(REFERENCE).load(&problem, &device, &binary).unwrap_err();
        assert!(matches!(error, BuildError::Binary { solver: REFERENCE, .. }), "{error}");
    }
}

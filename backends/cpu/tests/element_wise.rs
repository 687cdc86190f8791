//! `cpu.element_wise.v1` against the oracle, on every instruction set that this machine has.

mod common;

use common::*;
use fuseplan_api::operands::{ActivationForward, BatchNormInference, BiasForward};
use fuseplan_api::*;
use fuseplan_cpu::open_with_threads;

const ELEMENT_WISE: &str = "cpu.element_wise.v1";
const DATA_TYPES: [DataType; 3] = [DataType::Float, DataType::Half, DataType::BFloat16];

/// Where each SIMD path begins or ends: single elements, tails of vectors, more channels than a block, planes longer than a block and an item,
/// planes shorter than a vector, volumes.
const SHAPES: &[&[usize]] = &[
    &[1, 1, 1, 1],
    &[2, 3, 7, 5],
    &[3, 17, 1, 1],
    &[5, 20, 3, 3],
    &[2, 3, 33, 37],
    &[2, 1100, 2, 1],
    &[1, 2, 130, 131],
    &[9, 64, 4, 2],
    &[2, 3, 2, 3, 4],
    &[1, 5, 3, 5, 7],
];

fn packed(data_type: DataType) -> impl Iterator<Item = TensorDescriptor> {
    let layouts =
        |lens: &'static [usize]| TensorLayout::of_rank(lens.len()).iter().map(move |&layout| (layout, lens));
    let all = SHAPES.iter().flat_map(move |&lens| layouts(lens));
    all.map(move |(layout, lens)| TensorDescriptor::with_layout(data_type, layout, lens).unwrap())
}

fn act(mode: ActivationMode) -> Step {
    let alpha = if mode == ActivationMode::Clamp { -0.25 } else { 1.25 };
    Step::Activation(mode, ActivationParams::new(alpha, 0.5, 1.5))
}

fn residual(plan: &Plan, value: impl FnMut() -> f64) -> Step {
    Step::Bias(Tensor::new(plan.output, value))
}

/// Chains that lead through every kind of stage, in registers and in blocks.
fn chains(input: &Tensor, random: &mut Random) -> Vec<Plan> {
    use ActivationMode::*;
    use BatchNormMode::*;
    let plan = || Plan::new(input.clone());
    let add = residual(&plan(), || random.real());
    vec![
        plan().then_batch_norm(Spatial, random).then(act(Relu)),
        plan().then_batch_norm(PerActivation, random).then(act(LeakyRelu)),
        plan().then_bias(|| random.real()),
        plan().then_bias(|| random.real()).then_batch_norm(Spatial, random).then(act(Pasthru)),
        plan().then(add.clone()).then(act(ClippedRelu)),
        plan().then(act(Abs)).then(add.clone()).then_batch_norm(Spatial, random),
        plan()
            .then_bias(|| random.real())
            .then(act(Elu))
            .then_batch_norm(PerActivation, random)
            .then(add)
            .then_batch_norm(Spatial, random)
            .then(act(Tanh)),
    ]
}

fn scaled(mut plan: Plan, random: &mut Random) -> Plan {
    for (_, alpha) in &mut plan.steps {
        *alpha = 1.0 + random.real() as f32 / 2.0;
    }
    plan
}

#[test]
fn chains_hold_their_bounds_in_all_types_and_layouts() {
    let mut random = Random::new(1);
    let devices = devices();
    for (case, desc) in DATA_TYPES.into_iter().flat_map(packed).enumerate() {
        let devices = &devices[case % devices.len()..];
        let input = Tensor::new(desc, || 2.0 * random.real());
        for plan in chains(&input, &mut random) {
            let mut plan = if case % 2 == 0 { plan } else { scaled(plan, &mut random) };
            if case % 3 == 0 {
                plan.prior = Some((-0.75, Tensor::new(desc, || random.real()).values));
            }
            let exact = plan.oracle();
            for device in devices {
                exact.assert_holds(&plan.run_on(ELEMENT_WISE, device), &plan.problem());
            }
        }
    }
}

#[test]
fn activations_hold_their_bounds() {
    let mut random = Random::new(2);
    let devices = devices();
    for data_type in DATA_TYPES {
        let desc = TensorDescriptor::nhwc(data_type, [3, 37, 3, 5]).unwrap();
        let input = Tensor::new(desc, || 4.0 * random.real());
        for mode in ActivationMode::ALL {
            let plan = Plan::new(input.clone()).then(act(mode));
            let exact = plan.oracle();
            for device in &devices {
                exact.assert_holds(&plan.run_on(ELEMENT_WISE, device), &plan.problem());
            }
        }
    }
}

#[test]
fn integers_are_exact() {
    let mut random = Random::new(3);
    let devices = devices();
    for desc in DATA_TYPES.into_iter().flat_map(packed) {
        for mode in BatchNormMode::ALL {
            let count = mode.derive(&desc).unwrap().element_count();
            let mut pick = |from: &[f32]| (0..count).map(|_| from[random.below(from.len())]).collect();
            let batch_norm = Step::BatchNorm {
                mode,
                scale: pick(&[-2.0, 1.0, 4.0]),
                bias: pick(&[-3.0, 0.0, 2.0]),
                mean: pick(&[-2.0, 0.0, 1.0]),
                variance: pick(&[0.25, 1.0, 4.0]),
                epsilon: 0.0,
            };
            let input = Tensor::new(desc, || random.integer(4));
            let plan = Plan::new(input).then(batch_norm);
            let add = residual(&plan, || random.integer(8));
            let leaky = Step::Activation(ActivationMode::LeakyRelu, ActivationParams::new(0.5, 0.0, 0.0));
            let mut plan = plan.then_bias(|| random.integer(5)).then(add).then(leaky);
            plan.prior = Some((2.0, (0..desc.element_count()).map(|_| random.integer(3)).collect()));
            let exact = plan.oracle().values;
            for device in &devices {
                assert_eq!(plan.run_on(ELEMENT_WISE, device), exact, "{}", plan.problem());
            }
        }
    }
}

#[test]
fn threads_and_place_change_nothing() {
    let mut random = Random::new(4);
    let [one, two, five] = [1, 2, 5].map(|threads| open_with_threads(threads).unwrap());
    for desc in packed(DataType::Float).chain(packed(DataType::BFloat16)) {
        let input = Tensor::new(desc, || random.real());
        for plan in chains(&input, &mut random) {
            let once = plan.run_on(ELEMENT_WISE, &one);
            for device in [&two, &five] {
                assert!(same_bits(&once, &plan.run_on(ELEMENT_WISE, device)), "{}", plan.problem());
            }
            assert!(same_bits(&once, &plan.run_in_place(ELEMENT_WISE, &two)), "in place: {}", plan.problem());
        }
    }
}

#[test]
fn the_output_may_be_the_residual() {
    let mut random = Random::new(5);
    for desc in packed(DataType::Half) {
        let plan = Plan::new(Tensor::new(desc, || random.real()))
            .then_batch_norm(BatchNormMode::Spatial, &mut random);
        let Step::BatchNorm { scale, bias, mean, variance, epsilon, .. } = plan.steps[0].0.clone() else {
            unreachable!()
        };
        let add = Tensor::new(desc, || random.real());
        let plan = plan.then(Step::Bias(add.clone())).then(act(ActivationMode::Relu));
        let mut input = Buffer::filled(&desc, &plan.input.values);
        let mut shared = Buffer::filled(&desc, &add.values);
        let output = shared.pointer();
        let [scale, bias, mean, variance] =
            [&scale, &bias, &mean, &variance].map(|list| list.as_ptr().cast());
        let args = [
            BatchNormInference { scale, bias, mean, variance, epsilon }.into(),
            BiasForward { bias: output }.into(),
            ActivationForward::from(ActivationParams::default()).into(),
        ];
        let executable = load(&plan.problem(), ELEMENT_WISE, &open_with_threads(2).unwrap());
        run(&*executable, input.pointer(), output, &args);
        shared.assert_gaps_untouched();
        plan.oracle().assert_holds(&shared.values(), &plan.problem());
    }
}

#[test]
fn nan_and_infinity_reach_their_own_element_only() {
    let desc = TensorDescriptor::nchw(DataType::Float, [1, 2, 5, 10]).unwrap();
    let devices = devices();
    for mode in ActivationMode::ALL {
        for (special, at) in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].into_iter().zip([3, 49, 60]) {
            let mut place = 0..100;
            let input = Tensor::new(desc, || if place.next() == Some(at) { special } else { 0.25 });
            // x · 1 + 0, so that special values stay what they are.
            let plan = Plan::new(input).then_bias(|| 0.0).then(act(mode)).then_bias(|| 0.0);
            let oracle = plan.oracle();
            for device in &devices {
                let y = plan.run_on(ELEMENT_WISE, device);
                for (i, (y, exact)) in y.iter().zip(&oracle.values).enumerate() {
                    let expected = match mode {
                        ActivationMode::Relu | ActivationMode::ClippedRelu if i == at && special.is_nan() => {
                            0.0
                        }
                        ActivationMode::Clamp if i == at && special.is_nan() => 0.5,
                        _ => *exact,
                    };
                    let close = (y - expected).abs() <= 1e-6 * (1.0 + expected.abs());
                    assert!(
                        close || *y == expected || y.is_nan() && expected.is_nan(),
                        "{mode}({special}): {y} at {i}"
                    );
                }
            }
        }
    }
}

#[test]
fn batch_norm_has_the_values_computed_by_hand() {
    // Channel 0: (x − 1) · 4 / √4 + 0.5; channel 1: (x + 2) · −3 / √9 + 1.
    let desc = TensorDescriptor::nhwc(DataType::Float, [1, 2, 1, 2]).unwrap();
    let mut values = [1.0, 2.0, -2.0, 5.0].into_iter();
    let plan = Plan::new(Tensor::new(desc, || values.next().unwrap())).then(Step::BatchNorm {
        mode: BatchNormMode::Spatial,
        scale: vec![4.0, -3.0],
        bias: vec![0.5, 1.0],
        mean: vec![1.0, -2.0],
        variance: vec![3.0, 8.0],
        epsilon: 1.0,
    });
    assert_eq!(plan.run(ELEMENT_WISE, 1), [0.5, 2.5, 1.0, -6.0]);
    // Per activation the parameters are in the order C, H, W, though the data are in the order H, W, C.
    let mut values = [1.0, 2.0, -2.0, 5.0].into_iter();
    let plan = Plan::new(Tensor::new(desc, || values.next().unwrap())).then(Step::BatchNorm {
        mode: BatchNormMode::PerActivation,
        scale: vec![1.0, 10.0, 100.0, 1000.0],
        bias: vec![0.0; 4],
        mean: vec![0.0, 0.0, 0.0, 1.0],
        variance: vec![1.0; 4],
        epsilon: 0.0,
    });
    assert_eq!(plan.run(ELEMENT_WISE, 1), [1.0, 20.0, -200.0, 4000.0]);
}

#[test]
fn what_is_not_one_packed_layout_is_refused() {
    let device = open_with_threads(1).unwrap();
    let nchw = TensorDescriptor::nchw(DataType::Float, [2, 3, 4, 5]).unwrap();
    let nhwc = TensorDescriptor::nhwc(DataType::Float, [2, 3, 4, 5]).unwrap();
    let refusal = |input, output, op| {
        let problem = Problem { input, output, ops: vec![op], math: MathMode::Precise };
        solver(ELEMENT_WISE).applies(&problem, device.info()).map_err(|refusal| refusal.to_string())
    };
    let relu = || Op::ActivationForward { mode: ActivationMode::Relu };
    let expected = |found: &str| {
        Err(format!(
            "cpu.element_wise.v1: layout is {found}, accepted: packed NCHW, NHWC, NCHWc, NCDHW, NDHWC, the same for \
             input, output and residuals"
        ))
    };
    assert_eq!(refusal(nhwc, nhwc, relu()), Ok(()));
    assert_eq!(refusal(nchw, nhwc, relu()), expected("NCHW, NHWC"));
    assert_eq!(refusal(nchw, nchw, Op::BiasForward { bias: nhwc }), expected("NCHW, NCHW, NHWC"));
    let rows = TensorDescriptor::new(DataType::Float, &[2, 3, 4, 5], &[96, 32, 8, 1]).unwrap();
    assert_eq!(refusal(rows, nchw, relu()), expected("strides [96, 32, 8, 1], NCHW"));
    // A layout is what the strides of dimensions longer than 1 say.
    let one = |strides| TensorDescriptor::new(DataType::Float, &[2, 3, 1, 1], strides).unwrap();
    assert_eq!(refusal(one(&[3, 1, 1, 1]), one(&[3, 1, 7, 9]), relu()), Ok(()));
}

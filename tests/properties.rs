//! What must hold between plans, whatever the numbers: on integers bit for bit.
//!
//! 256 cases each; `PROPTEST_CASES` says otherwise.

use std::sync::LazyLock;

use fuseplan::{ActivationMode, BatchNormMode, DataType, MathMode};
use fuseplan_suite::case::{ActivationSpec, BatchNormSpec, BiasSpec, Case, ConvSpec, OpSpec, ResidualSpec};
use fuseplan_suite::data::{self, EXACT_EPSILON, Tier};
use fuseplan_suite::image::Alignment;
use fuseplan_suite::layout::Layout;
use fuseplan_suite::library::Library;
use fuseplan_suite::oracle::{self, F32_ROUNDOFF, Operands};
use proptest::prelude::*;

static LIBRARY: LazyLock<Library> = LazyLock::new(|| Library::open("cpu").unwrap());

/// The output of a case.
fn run(case: &Case, operands: &Operands) -> Vec<f64> {
    let mut built = LIBRARY.build(case).unwrap();
    // Properties of sums.
    built.plan.set_math_mode(MathMode::Strict);
    let compiled = LIBRARY.compile(&built, None).unwrap();
    let outcome = LIBRARY.execute(case, &built, &compiled, operands, Alignment::Full).unwrap();
    assert!(outcome.faults.is_empty(), "{:?}", outcome.faults);
    outcome.results.into_iter().next().unwrap().1
}

fn case(data_type: DataType, layout: &str, input: Vec<usize>, ops: Vec<OpSpec>) -> Case {
    Case {
        id: "property".into(),
        data_type,
        layout: Layout::named(layout),
        input,
        alpha: vec![1.0; ops.len()],
        beta: 0.0,
        epsilon: EXACT_EPSILON,
        statistics: None,
        in_place: false,
        special: false,
        for_device: false,
        refused: None,
        ops,
    }
}

fn conv(case: &Case) -> &ConvSpec {
    case.conv().unwrap()
}

prop_compose! {
    /// A convolution whose filter may or may not fit, of 1 to 3 groups.
    fn any_convolution()(
        data_type in prop::sample::select(vec![DataType::Float, DataType::Half, DataType::BFloat16]),
        layout in prop::sample::select(vec!["nchw", "nhwc"]),
        [images, groups, inputs, filters] in [1usize..4, 1..4, 1..18, 1..18],
        spatial in [1usize..14, 1..14],
        filter in [1usize..6, 1..6],
        [pad, pad_after] in [[0usize..4, 0..4], [0..4, 0..4]],
        stride in [1usize..4, 1..4],
        dilation in [1usize..4, 1..4],
    ) -> Case {
        let spec = ConvSpec {
            filters: filters * groups,
            filter: filter.to_vec(),
            pad: pad.to_vec(),
            pad_after: Some(pad_after.to_vec()),
            stride: stride.to_vec(),
            dilation: dilation.to_vec(),
            groups,
            weights: None,
            output: None,
            channels: None,
            data_type: None,
            transpose: false,
        };
        let input = vec![images, inputs * groups, spatial[0], spatial[1]];
        case(data_type, layout, input, vec![OpSpec::Conv(spec)])
    }
}

/// The output's extent in spatial dimension `d`: how often the filter can be laid down.
fn placements(case: &Case, d: usize) -> usize {
    let (conv, extent) = (conv(case), conv(case).padded(d, case.input[2 + d]));
    (0..extent)
        .step_by(conv.stride(d))
        .filter(|start| start + conv.dilation(d) * (conv.filter[d] - 1) < extent)
        .count()
}

/// A convolution whose filter fits.
fn convolution() -> impl Strategy<Value = Case> {
    any_convolution().prop_filter("the filter fits", |case| (0..2).all(|d| placements(case, d) > 0))
}

fn operator() -> impl Strategy<Value = OpSpec> {
    let modes = vec![BatchNormMode::Spatial, BatchNormMode::PerActivation];
    let activations = vec![
        (ActivationMode::Relu, [0.0; 3]),
        (ActivationMode::Abs, [0.0; 3]),
        (ActivationMode::LeakyRelu, [0.5, 0.0, 0.0]),
        (ActivationMode::Clamp, [-8.0, 8.0, 0.0]),
    ];
    prop_oneof![
        Just(OpSpec::Bias(BiasSpec::default())),
        Just(OpSpec::Residual(ResidualSpec::default())),
        prop::sample::select(modes).prop_map(|mode| OpSpec::BatchNorm(BatchNormSpec {
            mode,
            params: None,
            data_type: None
        })),
        prop::sample::select(activations)
            .prop_map(|(mode, params)| OpSpec::Activation(ActivationSpec { mode, params })),
    ]
}

/// The elements of a tensor for which `keep` holds of the index n, c, h, w.
fn select(lens: &[usize], values: &[f64], keep: impl Fn([usize; 4]) -> bool) -> Vec<f64> {
    let [_, c, h, w] = [lens[0], lens[1], lens[2], lens[3]];
    let index = |i: usize| [i / (c * h * w), i / (h * w) % c, i / w % h, i % w];
    (0..values.len()).filter(|&i| keep(index(i))).map(|i| values[i]).collect()
}

proptest! {
    #[test]
    fn shapes_are_counted(case in any_convolution()) {
        let counted: Vec<_> = (0..2).map(|d| placements(&case, d)).collect();
        match LIBRARY.build(&case) {
            Ok(built) => {
                let expected = [case.input[0], conv(&case).filters, counted[0], counted[1]];
                prop_assert_eq!(built.plan.output().lens(), expected);
                prop_assert_eq!(case.output_lens(), expected);
            }
            Err(refusal) => {
                prop_assert!(counted.contains(&0), "{}", refusal.sentence);
                prop_assert_eq!(refusal.reason, "Shape");
            }
        }
    }

    #[test]
    fn images_do_not_know_of_one_another(case in convolution(), seed: u64) {
        let operands = data::operands(&case, Tier::Exact, seed);
        let whole = run(&case, &operands);
        let one = Case { input: [&[1], &case.input[1..]].concat(), ..case.clone() };
        let image = operands.input.len() / case.input[0];
        let alone: Vec<_> = operands.input.chunks(image).rev().map(|image| {
            run(&one, &Operands { input: image.to_vec(), ..operands.clone() })
        }).collect();
        let restored: Vec<_> = alone.into_iter().rev().flatten().collect();
        prop_assert_eq!(&whole, &restored);
        // The batch in another order gives the outputs in that order.
        let mut turned = operands.clone();
        turned.input.rotate_left(image);
        let mut expected = whole;
        let step = expected.len() / case.input[0];
        expected.rotate_left(step);
        prop_assert_eq!(run(&case, &turned), expected);
    }

    #[test]
    fn layouts_do_not_matter(case in convolution(), seed: u64) {
        let operands = data::operands(&case, Tier::Exact, seed);
        let of = |layout: &str| run(&Case { layout: Layout::named(layout), ..case.clone() }, &operands);
        let nchw = of("nchw");
        for layout in ["nhwc", "chwn", "nhwc-gap3"] {
            prop_assert_eq!(&of(layout), &nchw, "{}", layout);
        }
    }

    #[test]
    fn groups_are_convolutions_of_their_own(case in convolution(), seed: u64) {
        let operands = data::operands(&case, Tier::Exact, seed);
        let whole = run(&case, &operands);
        let groups = conv(&case).groups;
        let (inputs, filters) = (case.input[1] / groups, conv(&case).filters / groups);
        for group in 0..groups {
            let of = |channel: usize, each: usize| channel / each == group;
            let mut part = case.clone();
            part.input[1] = inputs;
            part.ops = vec![OpSpec::Conv(ConvSpec { groups: 1, filters, ..conv(&case).clone() })];
            let weights = &operands.ops[0][0];
            let size = weights.len() / groups;
            let alone = Operands {
                input: select(&case.input, &operands.input, |[_, c, ..]| of(c, inputs)),
                ops: vec![vec![weights[group * size..(group + 1) * size].to_vec()]],
                prior: operands.prior.clone(),
            };
            let expected = select(&case.output_lens(), &whole, |[_, k, ..]| of(k, filters));
            prop_assert_eq!(run(&part, &alone), expected, "group {}", group);
        }
    }

    #[test]
    fn padding_is_a_border_of_zeros(case in convolution(), seed: u64) {
        let operands = data::operands(&case, Tier::Exact, seed);
        let pads = [conv(&case).pad(0), conv(&case).pad(1)];
        let (h, w) = (case.input[2], case.input[3]);
        let mut bordered = case.clone();
        bordered.input[2] = conv(&case).padded(0, h);
        bordered.input[3] = conv(&case).padded(1, w);
        bordered.ops = vec![OpSpec::Conv(ConvSpec { pad: Vec::new(), pad_after: None, ..conv(&case).clone() })];
        let (rows, columns) = (bordered.input[2], bordered.input[3]);
        let input = (0..bordered.input.iter().product::<usize>()).map(|i| {
            let (plane, row, column) = (i / (rows * columns), i / columns % rows, i % columns);
            match (row.checked_sub(pads[0]), column.checked_sub(pads[1])) {
                (Some(row), Some(column)) if row < h && column < w => operands.input[(plane * h + row) * w + column],
                _ => 0.0,
            }
        });
        let with_border = Operands { input: input.collect(), ..operands.clone() };
        prop_assert_eq!(run(&case, &operands), run(&bordered, &with_border));
    }

    #[test]
    fn a_plan_is_the_chain_of_its_operators(
        first in convolution(),
        rest in prop::collection::vec(operator(), 1..5),
        exact: bool,
        seed: u64,
    ) {
        // 16-bit plans round once, chains of 16-bit plans between operators.
        let mut whole = Case { data_type: DataType::Float, ..first };
        whole.ops.extend(rest);
        whole.alpha = vec![1.0; whole.ops.len()];
        let (tier, roundoff) = if exact { (Tier::Exact, 0.0) } else { (Tier::Bound, F32_ROUNDOFF) };
        let operands = data::operands(&whole, tier, seed);
        let bounds = &oracle::expect(&whole, &operands, roundoff, 0.0).unwrap()[0];
        let mut running = operands.input.clone();
        for (i, op) in whole.ops.iter().enumerate() {
            let input = if i == 0 { whole.input.clone() } else { whole.output_lens() };
            let one = Case { ops: vec![op.clone()], alpha: vec![1.0], input, ..whole.clone() };
            let alone = Operands { input: running, ops: vec![operands.ops[i].clone()], prior: Vec::new() };
            running = run(&one, &alone);
        }
        for (i, (fused, chained)) in run(&whole, &operands).into_iter().zip(running).enumerate() {
            let (least, greatest) = bounds.accepted(i, DataType::Float);
            prop_assert!((least..=greatest).contains(&fused), "fused {} not in {}..={}", fused, least, greatest);
            prop_assert!((fused - chained).abs() <= greatest - least, "{} and {} at {}", fused, chained, i);
        }
    }

    #[test]
    fn results_are_linear_in_the_weights(case in convolution(), seed: u64, factor in -3i32..4) {
        let case = Case { data_type: DataType::Float, ..case };
        let operands = data::operands(&case, Tier::Exact, seed);
        let others = data::operands(&case, Tier::Exact, !seed);
        let factor = f64::from(factor);
        let with = |weights: Vec<f64>| run(&case, &Operands { ops: vec![vec![weights]], ..operands.clone() });
        let combine = |a: &[f64], b: &[f64]| -> Vec<f64> {
            a.iter().zip(b).map(|(a, b)| factor * a + b).collect()
        };
        let (a, b) = (&operands.ops[0][0], &others.ops[0][0]);
        prop_assert_eq!(with(combine(a, b)), combine(&with(a.clone()), &with(b.clone())));
    }

    #[test]
    fn a_bias_of_zero_is_nothing(case in convolution(), seed: u64) {
        let mut operands = data::operands(&case, Tier::Bound, seed);
        let plain = run(&case, &operands);
        let mut biased = case.clone();
        biased.ops.push(OpSpec::Bias(BiasSpec::default()));
        biased.alpha.push(1.0);
        operands.ops.push(vec![vec![0.0; conv(&case).filters]]);
        prop_assert_eq!(run(&biased, &operands), plain);
    }
}

//! Cases drawn at random, the same for the same seed.

use fastrand::Rng;
use fuseplan::{ActivationMode, BatchNormMode, DataType};

use crate::case::{
    ActivationSpec, BatchNormForwardSpec, BatchNormSpec, BiasSpec, Case, ConvSpec, OpSpec, PReluSpec,
    ResidualSpec,
};
use crate::layout::Layout;
use crate::oracle::activation::samples;

/// The most products of a random convolution.
const PRODUCTS: usize = 200_000;

/// Extents where kernels go wrong: ones, primes, a vector's width and its neighbours.
const CHANNELS: [usize; 18] = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 64, 65];
const EXTENTS: [usize; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 28, 33];

/// Case number `number` of a seed.
pub fn case(seed: u64, number: usize) -> Case {
    // Neighbouring seeds must not share cases, so numbers are counted from somewhere else for each.
    let start = Rng::with_seed(seed).u64(..);
    let random = &mut Rng::with_seed(start.wrapping_add((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let data_type = pick(random, &[DataType::Float, DataType::Half, DataType::BFloat16]);
    let deep = random.u8(..8) == 0;
    let names: &[&str] = if deep {
        &["ncdhw", "ndhwc"]
    } else {
        &["nchw", "nhwc", "nchw", "nhwc", "nchw-gap3", "nhwc-gap5", "chwn"]
    };
    let layout = Layout::named(pick(random, names));
    let kind = random.u8(..8);
    // What is drawn above keeps its share whatever does not fit below.
    loop {
        let dims = if deep { 3 } else { 2 };
        let spatial: Vec<_> =
            (0..dims).map(|_| pick(random, if deep { &EXTENTS[..9] } else { &EXTENTS })).collect();
        let (batch, channels, ops) = match kind {
            0 => (pick(random, &[1, 2, 3, 5, 9, 33]), pick(random, &CHANNELS), training(random)),
            1 | 2 => {
                (pick(random, &[1, 2, 5]), pick(random, &CHANNELS), epilogues(random, 1, data_type, &layout))
            }
            _ => {
                let (channels, conv) = convolution(random, &spatial, &layout);
                let mut ops = vec![OpSpec::Conv(conv)];
                ops.extend(epilogues(random, 0, data_type, &layout));
                (pick(random, &[1, 1, 2, 3]), channels, ops)
            }
        };
        let input = [&[batch, channels][..], &spatial].concat();
        let alpha =
            ops.iter().map(|_| if random.u8(..8) == 0 { pick(random, &[2.0, 0.5, -1.0]) } else { 1.0 });
        let mut case = Case {
            id: format!("random.{number}.{data_type}.{}", layout.name()),
            data_type,
            input,
            alpha: alpha.collect(),
            beta: if random.u8(..8) == 0 { 0.5 } else { 0.0 },
            epsilon: 1e-5,
            statistics: None,
            in_place: false,
            special: false,
            for_device: random.bool(),
            refused: None,
            layout: layout.clone(),
            ops,
        };
        if fits(&case) && products(&case) <= PRODUCTS {
            if random.u8(..6) == 0 {
                rearrange(random, &mut case);
            } else if random.u8(..4) == 0 {
                slice(random, &mut case);
            }
            return case;
        }
    }
}

/// Puts channels in blocks, or an output in another order than the input's, where the case can have that.
fn rearrange(random: &mut Rng, case: &mut Case) {
    if case.is_training() || !["nchw", "nhwc"].contains(&case.layout.name()) {
        return;
    }
    let mut draw = |channels: usize| {
        let names = ["nchwc4", "nchwc8", "nchwc16", "nchw", "nhwc"].map(Layout::named);
        let fits = |layout: &&Layout| layout.block().is_none_or(|block| channels.is_multiple_of(block));
        let fitting: Vec<&Layout> = names.iter().filter(fits).collect();
        fitting[random.usize(..fitting.len())].clone()
    };
    case.layout = draw(case.input[1]);
    if let Some(OpSpec::Conv(conv)) = case.ops.first_mut() {
        conv.output = Some(Box::new(draw(conv.filters)));
    }
    let (id, _) = case.id.rsplit_once('.').unwrap_or_default();
    case.id = format!("{id}.{}", case.layout.name());
}

/// Has a convolution write to some of the channels of a larger tensor.
fn slice(random: &mut Rng, case: &mut Case) {
    let order = case.layout.packed();
    if let Some(OpSpec::Conv(conv)) = case.ops.first_mut() {
        let whole = conv.filters + pick(random, &[1, 3, 8, 16, 32]);
        conv.output = Some(Box::new(Layout::named(&format!("{}-of{whole}", order.name()))));
    }
}

fn pick<T: Copy>(random: &mut Rng, from: &[T]) -> T {
    from[random.usize(..from.len())]
}

/// A convolution with the number of its input channels.
fn convolution(random: &mut Rng, spatial: &[usize], layout: &Layout) -> (usize, ConvSpec) {
    let channels = pick(random, &CHANNELS);
    let divisors: Vec<_> = (1..=channels).filter(|&groups| channels.is_multiple_of(groups)).collect();
    let groups = match random.u8(..6) {
        0 => channels,
        1 => pick(random, &divisors),
        _ => 1,
    };
    let filters = match groups {
        1 => pick(random, &CHANNELS),
        _ => groups * pick(random, &[1, 1, 2, 3]),
    };
    let mut each = |from: &[usize]| -> Vec<usize> {
        if random.bool() {
            vec![pick(random, from); spatial.len()]
        } else {
            spatial.iter().map(|_| pick(random, from)).collect()
        }
    };
    let filter = each(&[1, 1, 2, 3, 3, 3, 4, 5, 7]);
    let pad = each(&[0, 0, 1, 1, 2, 3]);
    let stride = each(&[1, 1, 1, 2, 2, 3]);
    let dilation = each(&[1, 1, 1, 1, 2, 3]);
    let weights = (random.u8(..4) == 0).then(|| {
        let mirrored = ["nchw", "nhwc", "ncdhw", "ndhwc"];
        let fitting: Vec<_> =
            mirrored.into_iter().filter(|name| name.len() == layout.packed().name().len()).collect();
        Layout::named(pick(random, &fitting))
    });
    (
        channels,
        ConvSpec {
            filters,
            filter,
            pad,
            pad_after: None,
            stride,
            dilation,
            groups,
            weights,
            output: None,
            channels: None,
            data_type: None,
            transpose: false,
        },
    )
}

/// Batch-norm with the statistics of the batch, or its gradient, alone or with an activation.
fn training(random: &mut Rng) -> Vec<OpSpec> {
    let mode = norm_mode(random);
    let forward = random.bool();
    let activation = random.bool().then(|| match activation(random) {
        // The gradient has a pole, next to which the worst element is all that a mean over elements shows.
        ActivationSpec { mode: mode @ ActivationMode::Power, .. } if !forward => {
            ActivationSpec { mode, params: pick(random, &[[8.0, 0.5, 2.0], [4.0, 0.25, -1.0]]) }
        }
        spec => spec,
    });
    if forward {
        let norm = OpSpec::BatchNormForward(BatchNormForwardSpec { mode, running: random.bool() });
        [norm].into_iter().chain(activation.map(OpSpec::Activation)).collect()
    } else {
        let norm = OpSpec::BatchNormBackward(BatchNormSpec { mode, params: None, data_type: None });
        [norm].into_iter().chain(activation.map(OpSpec::ActivationBackward)).collect()
    }
}

/// At least so many operators and at most four, none of which has to be the first.
fn epilogues(random: &mut Rng, least: usize, data_type: DataType, layout: &Layout) -> Vec<OpSpec> {
    (0..random.usize(least..5)).map(|_| epilogue(random, data_type, layout)).collect()
}

fn epilogue(random: &mut Rng, data_type: DataType, layout: &Layout) -> OpSpec {
    // Parameters of the data's type, of f32, or of what goes without saying.
    let params = pick(random, &[None, None, Some(data_type), Some(DataType::Float)]);
    match random.u8(..9) {
        0..2 => OpSpec::Bias(BiasSpec { lens: None, data_type: params }),
        2 => {
            let layout = (random.u8(..3) == 0).then(|| layout.packed());
            OpSpec::Residual(ResidualSpec { layout, data_type: None })
        }
        3..5 => OpSpec::BatchNorm(BatchNormSpec { mode: norm_mode(random), params: None, data_type: params }),
        5 => {
            // One slope for all has lengths of 1.
            let one = (random.u8(..4) == 0).then(|| vec![1; layout.packed().name().len()]);
            OpSpec::PRelu(PReluSpec { lens: one, data_type: params })
        }
        _ => OpSpec::Activation(activation(random)),
    }
}

fn norm_mode(random: &mut Rng) -> BatchNormMode {
    pick(random, &[BatchNormMode::Spatial, BatchNormMode::Spatial, BatchNormMode::PerActivation])
}

fn activation(random: &mut Rng) -> ActivationSpec {
    let mode = if random.bool() { ActivationMode::Relu } else { pick(random, &ActivationMode::ALL) };
    ActivationSpec { mode, params: pick(random, &samples(mode)) }
}

/// Whether the filter fits into the padded input.
fn fits(case: &Case) -> bool {
    case.conv().is_none_or(|conv| {
        (0..conv.filter.len())
            .all(|d| conv.dilation(d) * (conv.filter[d] - 1) < conv.padded(d, case.input[2 + d]))
    })
}

fn products(case: &Case) -> usize {
    let outputs = case.output_lens().iter().product::<usize>();
    outputs * case.conv().map_or(1, |conv| conv.weight_lens(case.input[1])[1..].iter().product())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_cases_and_another_gives_others() {
        let describe = |seed, number| format!("{:?}", case(seed, number));
        for number in 0..50 {
            assert_eq!(describe(7, number), describe(7, number));
        }
        // Without their numbers: another seed's cases are not this one's in another order.
        let drawn = |seed| -> HashSet<String> {
            (0..200).map(|number| format!("{:?}", Case { id: String::new(), ..case(seed, number) })).collect()
        };
        assert!(drawn(7).intersection(&drawn(8)).count() < 20);
    }

    #[test]
    fn every_kind_of_thing_is_drawn() {
        let cases: Vec<_> = (0..2000).map(|number| case(0, number)).collect();
        let some = |test: &dyn Fn(&Case) -> bool| cases.iter().filter(|case| test(case)).count() > 10;
        for data_type in [DataType::Float, DataType::Half, DataType::BFloat16] {
            assert!(some(&|case| case.data_type == data_type));
        }
        for layout in ["nchw", "nhwc", "ncdhw", "nchw-gap3", "chwn"] {
            assert!(some(&|case| case.layout.name() == layout), "{layout}");
        }
        assert!(some(&|case| case.conv().is_none()));
        assert!(some(&|case| case.conv().is_some_and(|conv| conv.groups > 1)));
        assert!(some(&|case| case.conv().is_some_and(|conv| conv.pad(0) != conv.pad(1))));
        assert!(some(&|case| case.ops.len() > 3 && case.can_be_exact()));
        assert!(some(&|case| case.beta != 0.0));
        let trained = cases.iter().filter(|case| case.is_training()).count();
        assert!((200..300).contains(&trained), "{trained} of 2000");
        for (mode, activation) in BatchNormMode::ALL.iter().flat_map(|&mode| [(mode, false), (mode, true)]) {
            let drawn = |case: &Case, test: &dyn Fn(&OpSpec) -> bool| {
                test(&case.ops[0]) && activation == (case.ops.len() == 2)
            };
            assert!(some(&|case| drawn(case, &|op| {
                matches!(op, OpSpec::BatchNormForward(norm) if norm.mode == mode)
            })));
            assert!(some(&|case| drawn(case, &|op| {
                matches!(op, OpSpec::BatchNormBackward(norm) if norm.mode == mode)
            })));
        }
    }
}

//! Values for a case's operands.

use fastrand::Rng;
use fuseplan::DataType;

use crate::case::{Case, OpSpec, OperandSpec, Role, Statistics};
use crate::number::round;
use crate::oracle::Operands;

/// Which values, and so how a result is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Small integers and halves of them, weights sparse, so that f32 sums are exact in any order: a right
    /// kernel gives the oracle's value rounded once, bit for bit.
    Exact,
    /// Random numbers; each element is within the oracle's bound, and all together within MIOpen's.
    Bound,
    /// Not numbers, infinities, zeros of both signs and large numbers among small ones, in the input only.
    Special,
}

/// What the input of the special tier is drawn from.
const SPECIAL: [f64; 12] =
    [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0, 0.5, -3.0, 90.0, 1e4, -1e4];

/// The ε at which exact variances plus ε are powers of four. The variances are numbers of every type.
pub const EXACT_EPSILON: f64 = 1.0 / 8.0;

/// Values of a tier, the same for the same seed.
pub fn operands(case: &Case, tier: Tier, seed: u64) -> Operands {
    let mut random = Rng::with_seed(seed);
    let count = |lens: &[usize]| lens.iter().product::<usize>();
    let tensor = |lens: &[usize], random: &mut Rng| -> Vec<f64> {
        (0..count(lens)).map(|_| value(Role::Tensor, case.data_type, tier, 0.0, random)).collect()
    };
    let input = match tier {
        Tier::Special => (0..count(&case.input)).map(|_| SPECIAL[random.usize(..12)]).collect(),
        _ => tensor(&case.input, &mut random),
    };
    let input: Vec<f64> = input.into_iter().map(|value| round(value, case.data_type)).collect();
    let ops = case.operands().iter().map(|specs| op(specs, tier, &mut random)).collect();
    let prior = tensor(&case.output_lens(), &mut random);
    let mut operands = Operands { input, ops, prior };
    if let (Tier::Bound, Some(statistics)) = (tier, case.statistics) {
        place(case, statistics, &mut operands, &mut random);
    }
    operands
}

/// Gives the first batch-norm of a case values with these statistics: input near the mean, filters of small integers,
/// so that f32 sums of integers are exact, and parameters that are theirs.
fn place(case: &Case, Statistics { mean, deviation }: Statistics, operands: &mut Operands, random: &mut Rng) {
    let whole = case.conv().is_some() || deviation == 0.0;
    let apart = if deviation == 0.0 { 1 } else { 4 };
    for value in &mut operands.input {
        let offset = if whole { f64::from(random.i32(-apart..=apart)) } else { deviation * 2.0 * *value };
        *value = round(mean + offset, case.data_type);
    }
    let mut means = vec![mean];
    if let Some(conv) = case.conv() {
        let weights = &mut operands.ops[0][0];
        weights.iter_mut().for_each(|weight| *weight = f64::from(random.i32(-2..=2)));
        let filters = weights.chunks(weights.len() / conv.filters);
        means = filters.map(|filter| mean * filter.iter().sum::<f64>()).collect();
    }
    let norm = case.ops.iter().position(|op| matches!(op, OpSpec::BatchNorm(_)));
    let Some([_, _, mean, variance]) = norm.map(|at| operands.ops[at].as_mut_slice()) else {
        assert!(case.is_training(), "{} has statistics but no batch-norm", case.id);
        return;
    };
    let each = mean.len().div_ceil(means.len());
    for (i, (mean, variance)) in mean.iter_mut().zip(variance).enumerate() {
        *mean = round(means[i / each] + deviation * *mean, DataType::Float);
        *variance = round(*variance * deviation * deviation, DataType::Float);
    }
}

fn op(specs: &[OperandSpec], tier: Tier, random: &mut Rng) -> Vec<Vec<f64>> {
    let mut lists: Vec<Vec<f64>> = Vec::new();
    for spec in specs {
        let count = spec.lens.iter().product::<usize>();
        // A few tens of products that are not zero; dense where a filter is no longer than that.
        let sparse = 1.0 - (32.0 / spec.lens[1..].iter().product::<usize>() as f64).min(1.0);
        lists.push((0..count).map(|_| value(spec.role, spec.data_type, tier, sparse, random)).collect());
    }
    let variance = specs.iter().position(|spec| spec.role == Role::Variance);
    if let (Tier::Exact, Some(variance)) = (tier, variance) {
        // Scales that undo the deviation but for a sign and at most one factor of two, so that a long chain
        // of batch-norms stays exact.
        for i in 0..lists[variance].len() {
            let deviation = (lists[variance][i] + EXACT_EPSILON).sqrt();
            lists[0][i] = deviation * [1.0, -1.0, 2.0, 0.5][random.usize(..4)];
        }
    }
    lists
}

fn value(role: Role, data_type: DataType, tier: Tier, sparse: f64, random: &mut Rng) -> f64 {
    let integer = |random: &mut Rng, largest: i32| f64::from(random.i32(-largest..=largest));
    let real = |random: &mut Rng, least: f64, greatest: f64| least + (greatest - least) * random.f64();
    let value = match (tier, role) {
        (Tier::Exact, Role::Weights) if random.f64() < sparse => 0.0,
        (Tier::Exact, Role::Weights) => integer(random, 2),
        (Tier::Exact, Role::Variance) => [1.0, 4.0, 0.25][random.usize(..3)] - EXACT_EPSILON,
        (Tier::Exact, Role::Scale) => 1.0,
        (Tier::Exact, Role::Slope) => [0.0, 0.25, 0.5, 2.0, -1.0][random.usize(..5)],
        (Tier::Exact, _) => integer(random, 4),
        (_, Role::Variance) => real(random, 0.05, 2.0),
        (_, Role::InverseVariance) => real(random, 0.5, 4.0),
        (_, Role::Scale) => real(random, 0.25, 1.5) * if random.bool() { 1.0 } else { -1.0 },
        (_, _) => real(random, -1.0, 1.0),
    };
    round(value, data_type)
}

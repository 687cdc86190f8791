//! Values for a case's operands.

use fastrand::Rng;
use fuseplan::DataType;

use crate::case::{Case, OperandSpec, Role};
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
}

/// The ε at which exact variances plus ε are powers of four.
pub const EXACT_EPSILON: f64 = 1.0 / 1024.0;

/// Values of a tier, the same for the same seed.
pub fn operands(case: &Case, tier: Tier, seed: u64) -> Operands {
    let mut random = Rng::with_seed(seed);
    let count = |lens: &[usize]| lens.iter().product::<usize>();
    let tensor = |lens: &[usize], random: &mut Rng| -> Vec<f64> {
        (0..count(lens)).map(|_| value(Role::Tensor, case.data_type, tier, 0.0, random)).collect()
    };
    let input = tensor(&case.input, &mut random);
    let ops = case.operands().iter().map(|specs| op(specs, tier, &mut random)).collect();
    let prior = tensor(&case.output_lens(), &mut random);
    Operands { input, ops, prior }
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
        (Tier::Exact, _) => integer(random, 4),
        (Tier::Bound, Role::Variance) => real(random, 0.05, 2.0),
        (Tier::Bound, Role::InverseVariance) => real(random, 0.5, 4.0),
        (Tier::Bound, Role::Scale) => real(random, 0.25, 1.5) * if random.bool() { 1.0 } else { -1.0 },
        (Tier::Bound, _) => real(random, -1.0, 1.0),
    };
    round(value, data_type)
}

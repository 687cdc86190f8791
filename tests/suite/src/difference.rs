//! How far the results of two devices are apart, by operator and data type.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fuseplan::{BatchNormMode, DataType, MathMode};

use crate::case::{Case, ConvSpec, OpSpec};
use crate::oracle::Field;

/// The columns of the table.
const COLUMNS: [&str; 4] = ["f32", "f32 with TF32", "f16", "bf16"];

/// How far two devices' results of one operand are apart at most.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Distance {
    /// In units of what both bounds allow together.
    of_bounds: f64,
    /// Over the largest magnitude that the oracle's result has.
    of_largest: f64,
}

impl Distance {
    /// Takes the larger of both.
    pub(crate) fn widen(&mut self, other: Distance) {
        self.of_bounds = self.of_bounds.max(other.of_bounds);
        self.of_largest = self.of_largest.max(other.of_largest);
    }
}

/// The distance between two devices' results, each of which the oracle's bound allows to be off; they may be as far
/// from each other as both bounds together. What is no number or infinite must be just that on both.
///
/// # Errors
/// The first element that is farther off.
pub(crate) fn within_both_bounds(
    data_type: DataType,
    (a, b): (&[f64], &[f64]),
    want: &Field,
) -> Result<Distance, String> {
    let largest = want.value.iter().filter(|value| value.is_finite()).fold(0.0, |l: f64, v| l.max(v.abs()));
    let mut distance = Distance::default();
    for i in 0..want.value.len() {
        if same(a[i], b[i]) {
            continue;
        }
        let (least, greatest) = want.accepted(i, data_type);
        // Each may be off by the farther end, so both together by twice that.
        let bounds = 2.0 * (greatest - want.value[i]).max(want.value[i] - least);
        let apart = (a[i] - b[i]).abs();
        // An output type's infinity may lie within the bounds of a number near its largest.
        if bounds == f64::INFINITY && !apart.is_nan() {
            continue;
        }
        let right = apart <= bounds * (1.0 + 4.0 * f64::EPSILON);
        if !right {
            return Err(format!(
                "element {:?} (N, C, D, H, W): {} and {}, {apart:e} apart, both bounds allow {bounds:e} around {}",
                want.place(i),
                a[i],
                b[i],
                want.value[i]
            ));
        }
        distance.widen(Distance {
            of_bounds: if apart == 0.0 { 0.0 } else { apart / bounds },
            of_largest: if apart == 0.0 { 0.0 } else { apart / largest },
        });
    }
    Ok(distance)
}

/// Holds two devices' results to being the same bits, but for what a NaN says and for a zero's sign, which a sum of
/// zeros and the greater of two zeros leave open. How many zeros have the one sign here and the other there.
///
/// # Errors
/// The first element that is not the same.
pub(crate) fn equal(a: &[f64], b: &[f64], want: &Field) -> Result<usize, String> {
    match (0..want.value.len()).find(|&i| !same(a[i], b[i]) && a[i] != b[i]) {
        Some(i) => Err(format!(
            "element {:?} (N, C, D, H, W): {} and {}, which must have the same bits",
            want.place(i),
            a[i],
            b[i]
        )),
        None => Ok(a.iter().zip(b).filter(|(a, b)| !same(**a, **b)).count()),
    }
}

fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// A cell of the table.
#[derive(Debug, Clone, Default, PartialEq)]
struct Cell {
    cases: u64,
    distance: Distance,
    /// The case that is farthest in units of the bounds.
    farthest: String,
}

/// What a run has found.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Differences {
    /// By operator and column.
    cells: BTreeMap<(String, usize), Cell>,
    /// Elements that were computed exactly on both devices.
    exact: u64,
    /// Those of them that are zeros of different signs.
    signs: u64,
    /// Elements of which both gave a rounded result.
    rounded: u64,
}

impl Differences {
    /// Notes that so many elements had the same bits, but for the signs of some zeros among them.
    pub(crate) fn add_exact(&mut self, elements: usize, signs: usize) {
        self.exact += elements as u64;
        self.signs += signs as u64;
    }

    /// Notes the largest distance among a case's results, for each kind of operator that the case has.
    pub(crate) fn add(&mut self, case: &Case, math: MathMode, elements: usize, distance: Distance) {
        self.rounded += elements as u64;
        let column = match (case.data_type, math) {
            (DataType::Half, _) => 2,
            (DataType::BFloat16, _) => 3,
            (DataType::Float | DataType::Double | DataType::Int8, MathMode::Strict | MathMode::Precise) => 0,
            (DataType::Float | DataType::Double | DataType::Int8, MathMode::AllowTf32) => 1,
        };
        for kind in kinds(case) {
            let cell = Cell { cases: 1, distance, farthest: case.id.clone() };
            self.merge_cell((kind, column), cell);
        }
    }

    fn merge_cell(&mut self, key: (String, usize), cell: Cell) {
        let mine = self.cells.entry(key).or_default();
        if mine.farthest.is_empty() || cell.distance.of_bounds > mine.distance.of_bounds {
            mine.farthest = cell.farthest;
        }
        mine.cases += cell.cases;
        mine.distance.widen(cell.distance);
    }

    /// Adds what another has found.
    pub(crate) fn merge(&mut self, other: Differences) {
        self.exact += other.exact;
        self.signs += other.signs;
        self.rounded += other.rounded;
        other.cells.into_iter().for_each(|(key, cell)| self.merge_cell(key, cell));
    }

    /// Lines for [`Differences::from_lines`].
    pub(crate) fn lines(&self) -> String {
        let mut lines = format!("{}\t{}\t{}\n", self.exact, self.signs, self.rounded);
        for ((kind, column), Cell { cases, distance, farthest }) in &self.cells {
            let Distance { of_bounds, of_largest } = distance;
            lines += &format!("{kind}\t{column}\t{cases}\t{of_bounds:e}\t{of_largest:e}\t{farthest}\n");
        }
        lines
    }

    /// What [`Differences::lines`] wrote; nothing of what it did not.
    pub(crate) fn from_lines(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let counts = lines.next()?.split('\t').map(|count| count.parse().ok());
        let [exact, signs, rounded] = <[u64; 3]>::try_from(counts.collect::<Option<Vec<_>>>()?).ok()?;
        let mut all = Differences { exact, signs, rounded, ..Default::default() };
        for line in lines {
            let [kind, column, cases, of_bounds, of_largest, farthest] =
                <[&str; 6]>::try_from(line.split('\t').collect::<Vec<_>>()).ok()?;
            let distance =
                Distance { of_bounds: of_bounds.parse().ok()?, of_largest: of_largest.parse().ok()? };
            let cell = Cell { cases: cases.parse().ok()?, distance, farthest: farthest.into() };
            all.cells.insert((kind.into(), column.parse().ok()?), cell);
        }
        Some(all)
    }

    /// The table in Markdown, under the names of the two devices.
    pub(crate) fn table(&self, a: &str, b: &str) -> String {
        let mut text = format!("### {a} and {b}\n\n");
        let [exact, signs, rounded] = [self.exact, self.signs, self.rounded].map(thousands);
        let _ =
            writeln!(text, "Exact data: {exact} pairs of elements, every one the same bits on both, but for");
        let _ = writeln!(text, "{signs} zeros of different signs.\n");
        let _ = writeln!(
            text,
            "Random data: {rounded} pairs of elements, every one within both bounds together. The largest"
        );
        text += "differences, in units of both bounds and over the largest magnitude of the result:\n\n";
        let _ = writeln!(text, "| operator | plans | {} | farthest |", COLUMNS.join(" | "));
        text += &"|---".repeat(3 + COLUMNS.len());
        text += "|\n";
        let mut kinds: Vec<&String> = self.cells.keys().map(|(kind, _)| kind).collect();
        kinds.dedup();
        for kind in kinds {
            let of = |column| self.cells.get(&(kind.clone(), column));
            let number = |column| {
                of(column).map_or("–".into(), |Cell { distance, .. }: &Cell| match distance.of_bounds {
                    0.0 => "0".into(),
                    of_bounds if of_bounds < 0.005 => format!("< 0.01, {:.0e}", distance.of_largest),
                    of_bounds => format!("{of_bounds:.2}, {:.0e}", distance.of_largest),
                })
            };
            let cells: Vec<String> = (0..COLUMNS.len()).map(number).collect();
            // Plans that allow TF32 are those that do not, once more.
            let cases: u64 = [0, 2, 3].iter().filter_map(|&column| of(column)).map(|cell| cell.cases).sum();
            let farthest = (0..COLUMNS.len())
                .filter_map(of)
                .max_by(|a, b| a.distance.of_bounds.total_cmp(&b.distance.of_bounds))
                .map_or("", |cell| &cell.farthest);
            let _ = writeln!(text, "| {kind} | {cases} | {} | `{farthest}` |", cells.join(" | "));
        }
        text
    }
}

/// A number with a comma between thousands.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// The kinds of operators that a case has, each once.
fn kinds(case: &Case) -> Vec<String> {
    let mode = |mode| if mode == BatchNormMode::Spatial { "spatial" } else { "per activation" };
    let kind = |op: &OpSpec| match op {
        OpSpec::Conv(conv) => format!("ConvForward, {}", filters(conv, case.input[1])),
        OpSpec::Bias(_) => "BiasForward".into(),
        OpSpec::Residual(_) => "BiasForward, residual".into(),
        OpSpec::PRelu(_) => "PReluForward".into(),
        OpSpec::BatchNorm(norm) => format!("BatchNormInference, {}", mode(norm.mode)),
        OpSpec::Activation(spec) => format!("ActivationForward, {}", spec.mode),
        OpSpec::BatchNormForward(norm) => format!("BatchNormForward, {}", mode(norm.mode)),
        OpSpec::BatchNormBackward(norm) => format!("BatchNormBackward, {}", mode(norm.mode)),
        OpSpec::ActivationBackward(spec) => format!("ActivationBackward, {}", spec.mode),
    };
    let mut kinds: Vec<_> = case.ops.iter().map(kind).collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

fn filters(conv: &ConvSpec, channels: usize) -> &'static str {
    match conv.groups {
        1 if conv.filter.iter().all(|&extent| extent == 1) => "1x1",
        1 if conv.filter.len() == 3 => "three dimensions",
        1 => "two dimensions",
        groups if groups == channels => "depthwise",
        _ => "groups",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{self, Tier};
    use crate::number::round;
    use crate::oracle::{self, F32_ROUNDOFF};
    use crate::random;

    /// A case, its results with their bounds, and what a kernel that rounds once gives.
    fn asked(number: usize, roundoff: f64, tier: Tier) -> Option<(Case, Field, Vec<f64>)> {
        let case = random::case(11, number);
        let case = Case { epsilon: data::EXACT_EPSILON, ..case };
        if case.is_training() || (tier == Tier::Exact && !case.can_be_exact()) {
            return None;
        }
        let operands = data::operands(&case, tier, number as u64);
        let want = oracle::expect(&case, &operands, roundoff, 0.0).unwrap().swap_remove(0);
        let found = want.value.iter().map(|&value| round(value, case.data_type)).collect();
        Some((case, want, found))
    }

    #[test]
    fn two_results_are_as_far_apart_as_both_bounds_and_no_farther() {
        let mut tried = 0;
        for (case, want, found) in (0..100).filter_map(|n| asked(n, F32_ROUNDOFF, Tier::Bound)) {
            let data_type = case.data_type;
            assert_eq!(within_both_bounds(data_type, (&found, &found), &want), Ok(Distance::default()));
            let i = found.len() / 2;
            let (least, greatest) = want.accepted(i, data_type);
            let with = |value: f64| {
                let mut other = found.clone();
                other[i] = value;
                other
            };
            let ends = within_both_bounds(data_type, (&with(least), &with(greatest)), &want).unwrap();
            assert!(least == greatest || (ends.of_bounds > 0.4 && ends.of_bounds <= 1.0), "{ends:?}");
            let bound = (greatest - want.value[i]).max(want.value[i] - least);
            for wrong in [greatest + 1.001 * (2.0 * bound - (greatest - least)) + 1e-3, f64::NAN] {
                let text = within_both_bounds(data_type, (&with(least), &with(wrong)), &want).unwrap_err();
                assert!(text.contains("both bounds allow"), "{text}");
            }
            tried += 1;
        }
        assert!(tried > 50, "{tried}");
    }

    #[test]
    fn exact_results_must_have_the_same_bits() {
        let mut tried = 0;
        for (_, want, found) in (0..100).filter_map(|n| asked(n, 0.0, Tier::Exact)) {
            assert_eq!(equal(&found, &found, &want), Ok(0));
            let negated: Vec<_> = found.iter().map(|&v| if v == 0.0 { -v } else { v }).collect();
            let zeros = found.iter().filter(|&&v| v == 0.0).count();
            assert_eq!(equal(&found, &negated, &want), Ok(zeros));
            let mut other = found.clone();
            let last = other.last_mut().unwrap();
            *last = f64::from_bits(last.to_bits() ^ 1);
            equal(&found, &other, &want).unwrap_err();
            tried += 1;
        }
        assert!(tried > 20, "{tried}");
    }

    #[test]
    fn the_table_has_the_largest_of_every_operator_and_type_whatever_process_found_it() {
        let distance = |of_bounds, of_largest| Distance { of_bounds, of_largest };
        let cases: Vec<_> = (0..300).map(|number| random::case(2, number)).collect();
        let halves = cases.chunks(150).map(|cases| {
            let mut half = Differences::default();
            for (i, case) in cases.iter().enumerate() {
                half.add_exact(10, 1);
                half.add(case, MathMode::Precise, 10, distance(i as f64 / 300.0, i as f64 * 1e-9));
                if case.data_type == DataType::Float {
                    half.add(case, MathMode::AllowTf32, 10, distance(0.75, 1e-4));
                }
            }
            half
        });
        let mut all = Differences::default();
        for half in halves {
            assert_eq!(Differences::from_lines(&half.lines()).as_ref(), Some(&half));
            all.merge(half);
        }
        let relu = |case: &&Case| {
            case.data_type == DataType::Half
                && kinds(case).iter().any(|kind| kind == "ActivationForward, RELU")
        };
        let farthest = (0..300).filter(|&i| relu(&&cases[i])).map(|i| i % 150).max().unwrap();
        let table = all.table("one", "two");
        let row = table.lines().find(|line| line.starts_with("| ActivationForward, RELU |")).unwrap();
        let cells: Vec<_> = row.split(" | ").collect();
        assert_eq!(cells.len(), 7, "{row}");
        assert!(cells[3].starts_with("0.75, 1e-4"), "{row}");
        let want = format!("{:.2}, {:.0e}", farthest as f64 / 300.0, farthest as f64 * 1e-9);
        assert_eq!(cells[4], want, "{row}");
        assert!(table.contains("Exact data: 3,000 pairs") && table.contains("300 zeros of"), "{table}");
        assert_eq!(Differences::from_lines("1\t2\t3\nConvForward\t0"), None);
    }
}

//! Whether what a case gave is what it had to give.

use std::sync::OnceLock;

use fuseplan::choice::Accuracy;
use fuseplan::{DataType, MathMode, TensorDescriptor};

use crate::case::{Case, Refused, Stage};
use crate::command;
use crate::data::{self, EXACT_EPSILON, Tier};
use crate::hash;
use crate::image::Alignment;
use crate::library::{Library, Refusal};
use crate::number::round;
use crate::oracle::{self, F32_ROUNDOFF, Field, TF32_PRODUCT, TF32X3_PRODUCT, five};

/// MIOpen's limit of the root mean square error over the range, in units of the type's epsilon.
const MIOPEN_TOLERANCE: f64 = 80.0;

/// So few outputs have no mean.
const FEW: usize = 16;

/// Which of the solvers that take a case have to compute it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solvers {
    /// Every one.
    All,
    /// The one that a plan gets.
    Chosen,
}

/// A case with the data of a tier, and what has to come of them.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) case: Case,
    pub(crate) tier: Tier,
    pub(crate) math: MathMode,
    /// The results, with their bounds.
    pub(crate) expected: Vec<Field>,
    /// The same with the bounds of solvers whose products are 3xTF32, and of those that transform factors.
    tf32x3: OnceLock<Vec<Field>>,
    transformed: OnceLock<Vec<Field>>,
    operands: oracle::Operands,
    seed: u64,
}

/// What a solver gave, and was right.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) solver: &'static str,
    pub(crate) accuracy: Accuracy,
    pub(crate) alignment: Alignment,
    /// As many as the question expects, in the same order.
    pub(crate) results: Vec<(DataType, Vec<f64>)>,
}

impl Answer {
    /// Whether another answer to the same question is the same, bit for bit.
    pub(crate) fn has_bits_of(&self, other: &Answer) -> bool {
        let bits = |answer: &Answer| -> Vec<u64> {
            answer.results.iter().flat_map(|(_, values)| values.iter().map(|v| v.to_bits())).collect()
        };
        bits(self) == bits(other)
    }
}

impl Question {
    /// The questions that a case is: every tier that it is in, with every kind of products that matters to it. None
    /// if it is to be refused.
    ///
    /// # Errors
    /// Data that the oracle cannot answer for.
    pub(crate) fn all(case: &Case, seed: u64) -> impl Iterator<Item = Result<Question, String>> {
        let mut tiers = vec![(Tier::Bound, MathMode::Precise)];
        if case.can_be_exact() {
            tiers.push((Tier::Exact, MathMode::Precise));
        }
        if case.special {
            tiers.push((Tier::Special, MathMode::Precise));
        }
        // Small integers are exact in TF32 too.
        if case.data_type == DataType::Float && case.conv().is_some() {
            let tf32 = |tier: &(Tier, _)| (tier.0 != Tier::Special).then_some((tier.0, MathMode::AllowTf32));
            tiers.extend(tiers.clone().iter().filter_map(tf32));
        }
        if case.refused.is_some() {
            tiers.clear();
        }
        tiers.into_iter().map(move |(tier, math)| Question::new(case, tier, math, seed))
    }

    fn new(case: &Case, tier: Tier, math: MathMode, seed: u64) -> Result<Question, String> {
        let mut case = case.clone();
        let mut roundoff = F32_ROUNDOFF;
        let mut product = if math == MathMode::Precise { 0.0 } else { TF32_PRODUCT };
        if tier == Tier::Exact {
            (case.epsilon, roundoff, product) = (EXACT_EPSILON, 0.0, 0.0);
        }
        let operands = data::operands(&case, tier, seed ^ hash(&case.id));
        let expected = oracle::expect(&case, &operands, roundoff, product)
            .map_err(|text| format!("{}: {text}", case.id))?;
        Ok(Question {
            case,
            tier,
            math,
            expected,
            tf32x3: OnceLock::new(),
            transformed: OnceLock::new(),
            operands,
            seed,
        })
    }

    /// The results with the bounds of an error class; none of data that solvers of the class are not made for.
    pub(crate) fn expected_of(&self, accuracy: Accuracy) -> Result<Option<&[Field]>, String> {
        match (accuracy, self.tier) {
            (Accuracy::Exact | Accuracy::Tf32, _) | (Accuracy::Tf32x3, Tier::Exact | Tier::Special) => {
                Ok(Some(&self.expected))
            }
            (Accuracy::Tf32x3, Tier::Bound) => {
                if let Some(fields) = self.tf32x3.get() {
                    return Ok(Some(fields));
                }
                let fields = oracle::expect(&self.case, &self.operands, F32_ROUNDOFF, TF32X3_PRODUCT)?;
                Ok(Some(self.tf32x3.get_or_init(|| fields)))
            }
            // What is exact, and what is not finite, is so in sums alone.
            (Accuracy::Transformed, Tier::Exact | Tier::Special) => Ok(None),
            (Accuracy::Transformed, Tier::Bound) => {
                // A batch-norm without variance tells sums that are its mean from those that are nearly so.
                if self.expected.iter().flat_map(|field| &field.value).any(|value| !value.is_finite()) {
                    return Ok(None);
                }
                if let Some(fields) = self.transformed.get() {
                    return Ok(Some(fields));
                }
                let fields = oracle::expect_transformed(&self.case, &self.operands, F32_ROUNDOFF)?;
                Ok(Some(self.transformed.get_or_init(|| fields)))
            }
        }
    }

    /// Puts the question to the solvers that take it, and shows each right answer to `see`.
    ///
    /// # Errors
    /// What is wrong, with the first bad element and how to see it again; what `see` says.
    pub(crate) fn ask(
        &self,
        library: &Library,
        solvers: Solvers,
        mut see: impl FnMut(Answer) -> Result<(), String>,
    ) -> Result<(), String> {
        let Question { case, operands, tier, math, seed, .. } = self;
        // With TF32 allowed only the solver that is chosen for it is of interest.
        let solvers = if *math == MathMode::Precise { solvers } else { Solvers::Chosen };
        let mut built = library.build(case).map_err(|refusal| unexpected(case, "", &refusal))?;
        built.plan.set_math_mode(*math);
        check_output(case, built.plan.output())?;
        let chosen = library.compile(&built, None).map_err(|refusal| unexpected(case, "", &refusal))?;
        let answers = built.plan.answers(library.handle());
        let answers = answers.map_err(|error| format!("{}: no answers: {error}", case.id))?;
        // Of those that take it the first, and the first without reservations.
        let (mut first, mut preferred) = (None, None);
        for solver in library.solvers() {
            if solvers == Solvers::Chosen && *solver != chosen.info().solver {
                continue;
            }
            let compiled = match library.compile(&built, Some(solver)) {
                Err(refusal) if refusal.reason == "NoSolver" => continue,
                other => other.map_err(|refusal| unexpected(case, solver, &refusal))?,
            };
            first = first.or(Some(*solver));
            let answer = answers.iter().find(|answer| answer.solver == *solver);
            if answer.is_some_and(|answer| answer.reservation.is_none()) {
                preferred = preferred.or(Some(*solver));
            }
            let candidate = answer.and_then(|answer| answer.candidates.as_ref().ok()?.first());
            let accuracy = candidate.map_or(Accuracy::Exact, |candidate| candidate.accuracy);
            let Some(expected) = self.expected_of(accuracy)? else { continue };
            for alignment in [Alignment::Full, Alignment::Element] {
                let repeat = |text: String| report(case, solver, (*tier, *math, alignment), *seed, &text);
                let outcome =
                    library.execute(case, &built, &compiled, operands, alignment).map_err(repeat)?;
                if let Some(fault) = outcome.faults.first() {
                    return Err(repeat(fault.clone()));
                }
                if outcome.results.len() != expected.len() {
                    return Err(repeat(format!(
                        "{} results, want {}",
                        outcome.results.len(),
                        expected.len()
                    )));
                }
                let all = [Some(&outcome.results), outcome.changing.as_ref()].into_iter().flatten();
                let all = all.flat_map(|results| results.iter().zip(expected).enumerate());
                for (at, ((data_type, found), field)) in all {
                    compare(*data_type, found, field)
                        .and_then(|()| match (tier, math, at) {
                            // A mean over the output says something; a sum or two of many terms may cancel, and
                            // what comes of that may lie beside an activation's pole.
                            (Tier::Bound, MathMode::Precise, 0) if found.len() >= FEW => {
                                compatible(*data_type, found, field)
                            }
                            _ => Ok(()),
                        })
                        .map_err(|text| repeat(format!("result {at}: {text}")))?;
                }
                see(Answer { solver, accuracy, alignment, results: outcome.results })?;
            }
        }
        let expected = preferred.or(first);
        if expected != Some(chosen.info().solver) {
            let chosen = chosen.info().solver;
            return Err(format!("{}: {chosen} was chosen, the preferred one is {expected:?}", case.id));
        }
        Ok(())
    }
}

/// Puts a case through the solvers that take it, in every tier that it is in; or through its refusal.
///
/// # Errors
/// What is wrong, with the first bad element and how to see it again.
pub fn judge(library: &Library, case: &Case, seed: u64, solvers: Solvers) -> Result<(), String> {
    if let Some(refused) = &case.refused {
        return judge_refusal(library, case, refused, seed);
    }
    if case.needs_any_layout() && !library.has_any_layout() {
        return judge_layout(library, case);
    }
    Question::all(case, seed).try_for_each(|question| question?.ask(library, solvers, |_| Ok(())))
}

/// A device whose solvers address tensors by strides alone says so of a case in other layouts.
fn judge_layout(library: &Library, case: &Case) -> Result<(), String> {
    let refusal = match library.build(case).and_then(|built| library.compile(&built, None)) {
        Ok(compiled) => return Err(format!("{}: {} took it", case.id, compiled.info().solver)),
        Err(refusal) => refusal,
    };
    if refusal.reason != "NoSolver" || !refusal.sentence.contains("layout is") {
        return Err(format!("{}: refused as {}: {}", case.id, refusal.reason, refusal.sentence));
    }
    Ok(())
}

/// The output has the lengths of the formula and, where its layout was chosen or the input's has a name, that layout.
fn check_output(case: &Case, output: &TensorDescriptor) -> Result<(), String> {
    let lens = case.output_lens();
    let layout = case.output_layout();
    let is_chosen = case.conv().is_some_and(|conv| conv.output.is_some());
    // An image of one element lies in every layout.
    let is_named = is_chosen || case.layout.library().is_some() && case.input[1..].iter().any(|&len| len > 1);
    let wanted = layout.describe(case.data_type, &lens);
    let is_wanted = wanted
        .as_ref()
        .is_ok_and(|want| want.strides() == output.strides() && want.blocks() == output.blocks());
    if output.lens() == lens && (!is_named || is_wanted) {
        return Ok(());
    }
    Err(format!(
        "{}: the plan's output is {output:?}, want {lens:?} in the layout {}",
        case.id,
        layout.name()
    ))
}

/// Every element within its bounds.
fn compare(data_type: DataType, found: &[f64], want: &Field) -> Result<(), String> {
    let bad = |i: &usize| {
        let (least, greatest) = want.accepted(*i, data_type);
        let right =
            (least..=greatest).contains(&found[*i]) || (want.value[*i].is_nan() && found[*i].is_nan());
        !right
    };
    let mut wrong = (0..found.len()).filter(bad);
    let Some(i) = wrong.next() else { return Ok(()) };
    let place = want.place(i);
    let (least, greatest) = want.accepted(i, data_type);
    Err(format!(
        "element {place:?} (N, C, D, H, W) is {}, want {} rounded to {data_type} (accepted: {least} to {greatest}); \
         {} of {} elements are wrong",
        found[i],
        want.value[i],
        1 + wrong.count(),
        found.len()
    ))
}

/// MIOpen's own measure: root mean square error over the greatest magnitude.
fn compatible(data_type: DataType, found: &[f64], want: &Field) -> Result<(), String> {
    // What is not finite has been compared for being just that.
    let pairs = || found.iter().zip(&want.value).map(|(&a, &b)| (a, round(b, data_type)));
    let pairs = || pairs().filter(|(_, b)| b.is_finite());
    let range = pairs().fold(f64::MIN_POSITIVE, |range, (a, b)| range.max(a.abs()).max(b.abs()));
    let sum: f64 = pairs().filter(|(a, b)| a != b).map(|(a, b)| ((a - b) / range).powi(2)).sum();
    let error = (sum / found.len() as f64).sqrt();
    let allowed = MIOPEN_TOLERANCE * data_type.epsilon();
    if error < allowed {
        Ok(())
    } else {
        Err(format!("MIOpen's RMS error is {error:e}, allowed {allowed:e}"))
    }
}

fn judge_refusal(library: &Library, case: &Case, want: &Refused, seed: u64) -> Result<(), String> {
    let refusal = match library.build(case) {
        Err(refusal) => refusal,
        Ok(built) => match library.compile(&built, None) {
            Err(refusal) => refusal,
            Ok(compiled) => {
                return Err(format!("{}: {} took it, want {want:?}", case.id, compiled.info().solver));
            }
        },
    };
    let contains = |text: &str, words: &[String]| words.iter().all(|word| text.contains(word.as_str()));
    let same = refusal.stage == want.stage
        && refusal.at == want.at
        && refusal.reason == want.reason
        && contains(&refusal.sentence, &want.says)
        && contains(&refusal.accepts, &want.accepts);
    if !same {
        return Err(format!("{}: found {refusal:?}\n  want {want:?}", case.id));
    }
    // A plan is as usable behind a rejected append as before.
    let (Stage::Append, 1.., Some(built)) = (refusal.stage, refusal.at, &refusal.rest) else {
        return Ok(());
    };
    let mut rest = case.clone();
    rest.ops.truncate(refusal.at);
    rest.alpha.truncate(refusal.at);
    let operands = data::operands(&rest, Tier::Bound, seed);
    let expected = oracle::expect(&rest, &operands, F32_ROUNDOFF, 0.0)?;
    let compiled = library.compile(built, None).map_err(|refusal| unexpected(&rest, "", &refusal))?;
    let outcome = library.execute(&rest, built, &compiled, &operands, Alignment::Element)?;
    let (data_type, found) = &outcome.results[0];
    compare(*data_type, found, &expected[0])
        .map_err(|text| format!("{}: behind the rejection: {text}", case.id))
}

fn unexpected(case: &Case, solver: &str, refusal: &Refusal) -> String {
    format!(
        "{}: {solver} refused: {:?}: {} (operator {})",
        case.id, refusal.stage, refusal.sentence, refusal.at
    )
}

/// A failure with all that is needed to see it again.
fn report(
    case: &Case,
    solver: &str,
    (tier, math, alignment): (Tier, MathMode, Alignment),
    seed: u64,
    text: &str,
) -> String {
    let mut report = format!(
        "{} on {solver}, tier {tier:?}, products {math:?}, alignment {alignment:?}, seed {seed}: {text}\n",
        case.id
    );
    report += &format!(
        "  {} {:?} {} -> {:?}, operators {:?}, alpha {:?}, beta {}\n",
        case.data_type,
        five(&case.input),
        case.layout.name(),
        case.output_lens(),
        case.ops,
        case.alpha,
        case.beta
    );
    report +=
        &format!("  again: FUSEPLAN_TEST_SEED={seed} cargo test --test <backend> -- --exact {}\n", case.id);
    if let Some(line) = command::driver(case) {
        report += &format!("  driver: {line}\n");
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    /// What a kernel that computes in f64 and rounds once would give.
    fn right(field: &Field, data_type: DataType) -> Vec<f64> {
        field.value.iter().map(|&value| round(value, data_type)).collect()
    }

    #[test]
    fn a_right_result_passes_and_one_wrong_element_fails() {
        let mut tried = [0, 0];
        for case in (0..200).map(|number| random::case(3, number)).filter(|case| !case.is_training()) {
            for (tier, roundoff) in [(Tier::Exact, 0.0), (Tier::Bound, F32_ROUNDOFF)] {
                if tier == Tier::Exact && !case.can_be_exact() {
                    continue;
                }
                let exact = Case { epsilon: EXACT_EPSILON, ..case.clone() };
                let case = if tier == Tier::Exact { &exact } else { &case };
                let operands = data::operands(case, tier, hash(&case.id));
                let want = &oracle::expect(case, &operands, roundoff, 0.0).unwrap()[0];
                let found = right(want, case.data_type);
                compare(case.data_type, &found, want).unwrap();
                compatible(case.data_type, &found, want).unwrap();
                let middle = found.len() / 2;
                // Off by four units of the type in a normal number, and where sums have bounds by as much as they
                // may leave; and not written at all.
                let step = 4.0 * case.data_type.epsilon() * found[middle].abs().max(1.0);
                let largest = found.iter().fold(1.0, |largest: f64, value| largest.max(value.abs()));
                let slack = if tier == Tier::Exact { 0.0 } else { 0.01 * largest };
                for wrong in [found[middle] + step + slack, f64::NAN] {
                    let mut found = found.clone();
                    found[middle] = wrong;
                    let text = compare(case.data_type, &found, want).unwrap_err();
                    assert!(text.contains("1 of "), "{text}");
                }
                tried[usize::from(tier == Tier::Exact)] += 1;
            }
        }
        assert!(tried[0] > 150 && tried[1] > 50, "{tried:?}");
    }

    /// The statistics of a few elements may be anything, so a bound is not tight for each of them.
    #[test]
    fn right_training_passes_and_nearly_every_result_that_is_one_percent_off_fails() {
        let (mut tried, mut passed) = (0, 0);
        for case in (0..1000).map(|number| random::case(5, number)).filter(Case::is_training) {
            let operands = data::operands(&case, Tier::Bound, hash(&case.id));
            for (at, want) in oracle::expect(&case, &operands, F32_ROUNDOFF, 0.0).unwrap().iter().enumerate()
            {
                let data_type = if at == 0 { case.data_type } else { DataType::Float };
                let found = right(want, data_type);
                compare(data_type, &found, want).unwrap();
                compatible(data_type, &found, want).unwrap();
                let middle = found.len() / 2;
                let largest = found.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
                let mut off = found.clone();
                off[middle] += 0.01 * largest;
                tried += 1;
                passed += usize::from(largest == 0.0 || compare(data_type, &off, want).is_ok());
                let mut unwritten = found;
                unwritten[middle] = f64::NAN;
                compare(data_type, &unwritten, want).unwrap_err();
            }
        }
        assert!(tried > 300 && passed * 20 < tried, "{passed} of {tried} passed");
    }

    #[test]
    fn the_compatibility_tier_is_miopens() {
        let case = Case { input: vec![1, 1, 1, 4], ..random::case(0, 0) };
        let case = Case { ops: Vec::new(), alpha: Vec::new(), beta: 0.0, ..case };
        let operands =
            oracle::Operands { input: vec![1.0, 2.0, 3.0, 4.0], ops: Vec::new(), prior: Vec::new() };
        let want = &oracle::expect(&case, &operands, 0.0, 0.0).unwrap()[0];
        let found = |off: f64| [1.0, 2.0, 3.0 + off, 4.0];
        // sqrt(off²) / (sqrt(4) · 4) against 80 ε.
        let limit = 8.0 * 80.0 * DataType::Float.epsilon();
        compatible(DataType::Float, &found(limit * 0.99), want).unwrap();
        compatible(DataType::Float, &found(limit * 1.01), want).unwrap_err();
    }
}

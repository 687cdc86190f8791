//! A plan's text is the plan: what is printed parses to an equal plan, for every case of the corpus and for random ones.

use std::sync::LazyLock;

use fuseplan::{FusionPlan, PlanText};
use fuseplan_suite::case::Case;
use fuseplan_suite::corpus;
use fuseplan_suite::library::Library;
use fuseplan_suite::random;
use proptest::prelude::*;

static LIBRARY: LazyLock<Library> = LazyLock::new(|| Library::open("cpu").unwrap());

/// The plan of a case, as far as its operators are accepted.
fn plan(case: &Case) -> Option<FusionPlan> {
    match LIBRARY.build(case) {
        Ok(built) => Some(built.plan),
        Err(refusal) => refusal.rest.map(|rest| rest.plan),
    }
}

fn check(plan: &FusionPlan) {
    let text = plan.to_string();
    let parsed: FusionPlan = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(parsed.problem(), plan.problem(), "{text}");
    assert_eq!((parsed.input(), parsed.output()), (plan.input(), plan.output()), "{text}");
    assert_eq!(parsed.to_string(), text);
}

#[test]
fn every_plan_of_the_corpus_is_its_text() {
    let plans: Vec<_> = corpus::load().unwrap().iter().filter_map(plan).collect();
    assert!(plans.len() > 3000, "{} plans", plans.len());
    plans.iter().for_each(check);
}

#[test]
fn random_plans_are_their_texts() {
    for number in 0..2000 {
        check(&plan(&random::case(11, number)).unwrap());
    }
}

proptest! {
    /// Whatever is written is a plan, or an error at one of its words.
    #[test]
    fn damaged_texts_are_refused_at_a_place(
        number in 0..500usize,
        at in 0..200usize,
        removed in 0..4usize,
        put in "[ -~é]{0,3}",
    ) {
        let text: Vec<char> = plan(&random::case(12, number)).unwrap().to_string().chars().collect();
        let at = at % text.len();
        let end = (at + removed).min(text.len());
        let damaged: String = text[..at].iter().copied().chain(put.chars()).chain(text[end..].iter().copied()).collect();
        match damaged.parse::<PlanText>() {
            Ok(parsed) => {
                let again: PlanText = parsed.to_string().parse().unwrap();
                prop_assert_eq!(again.plan.problem(), parsed.plan.problem());
                prop_assert_eq!(again.activations, parsed.activations);
            }
            Err(error) => {
                prop_assert!(damaged.is_char_boundary(error.at), "{}", error);
                prop_assert!(!damaged[error.at..].starts_with(char::is_whitespace) && !error.reason.is_empty(), "{}", error);
            }
        }
    }
}

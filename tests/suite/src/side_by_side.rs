//! The same plans on two devices: each right by the oracle, and no farther from each other than both bounds.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::{env, fs};

use fuseplan::choice::Accuracy;
use fuseplan::{DataType, MathMode};
use libtest_mimic::{Arguments, Trial};

use crate::case::Case;
use crate::data::Tier;
use crate::difference::{Differences, Distance, equal, within_both_bounds};
use crate::judge::{Answer, Question, Solvers, judge};
use crate::library::Library;
use crate::share::{self, Share};
use crate::{missing, terse};

/// Where the table goes; to the terminal where it names no file.
const TABLE: &str = "FUSEPLAN_TEST_TABLE";

/// Runs every case of the corpus, then random cases, on two backends' first devices, and compares what every solver
/// of the one gave with what every solver of the other gave. In the exact tier all bits are the same, zeros' signs
/// excepted; else elements are at most as far apart as the oracle's bounds of both together.
///
/// Environment: that of [`crate::run`]; besides, `FUSEPLAN_TEST_TABLE` names a file for the table of the largest
/// differences, and `FUSEPLAN_TEST_PROCESSES` says how many processes share the cases.
pub fn run(first: &str, second: &str) -> ExitCode {
    match share::in_processes() {
        Ok(None) => {}
        Ok(Some((findings, succeeded))) => return together(first, second, &findings, succeeded),
        Err(error) => {
            eprintln!("the processes: {error}");
            return ExitCode::FAILURE;
        }
    }
    let arguments = terse(Arguments::from_args());
    let name = format!("{first}-{second}");
    let pair = match open(first, second) {
        Ok(pair) => Arc::new(pair),
        Err((backend, reason)) => {
            return libtest_mimic::run(&arguments, vec![missing(&backend, &name, &reason)]).exit_code();
        }
    };
    let trials = match Share::of_environment() {
        Ok(share) => trials(&pair, &name, share),
        Err(error) => vec![Trial::test(name, || Err(error.into()))],
    };
    let count = trials.len();
    let code = libtest_mimic::run(&arguments, trials).exit_code();
    let found = pair.found.lock().unwrap_or_else(PoisonError::into_inner);
    let written = match share::findings_file() {
        Some(file) => fs::write(file, found.lines()),
        None if arguments.list || count == 0 => Ok(()),
        None => publish(&found, &pair.names()),
    };
    finish(written, code == ExitCode::SUCCESS)
}

/// What several processes found, in one table.
fn together(first: &str, second: &str, findings: &[String], succeeded: bool) -> ExitCode {
    let (mut found, mut read) = (Differences::default(), true);
    for text in findings.iter().filter(|text| !text.is_empty()) {
        match Differences::from_lines(text) {
            Some(part) => found.merge(part),
            None => read = false,
        }
    }
    match open(first, second) {
        // The processes have said so.
        Err(_) => finish(Ok(()), succeeded),
        Ok(pair) => finish(publish(&found, &pair.names()), succeeded && read),
    }
}

fn publish(found: &Differences, [a, b]: &[String; 2]) -> std::io::Result<()> {
    let table = found.table(a, b);
    match env::var_os(TABLE) {
        Some(file) => fs::write(file, table),
        None => {
            println!("{table}");
            Ok(())
        }
    }
}

fn finish(written: std::io::Result<()>, succeeded: bool) -> ExitCode {
    if let Err(error) = &written {
        eprintln!("the table of differences: {error}");
    }
    if written.is_ok() && succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Two devices and what was found on them.
#[derive(Debug)]
struct Pair {
    libraries: [Library; 2],
    found: Mutex<Differences>,
}

fn open(first: &str, second: &str) -> Result<Pair, (String, String)> {
    let open = |backend: &str| Library::open(backend).map_err(|reason| (backend.to_owned(), reason));
    Ok(Pair { libraries: [open(first)?, open(second)?], found: Mutex::default() })
}

fn trials(pair: &Arc<Pair>, name: &str, Share { seed, solvers, cases }: Share) -> Vec<Trial> {
    let trial = |case: Case| {
        let pair = pair.clone();
        Trial::test(format!("{name}.{}", case.id), move || Ok(pair.judge(&case, seed, solvers)?))
    };
    cases.into_iter().map(trial).collect()
}

impl Pair {
    /// What the devices are, in words.
    fn names(&self) -> [String; 2] {
        self.libraries.each_ref().map(|library| {
            let info = library.handle().device_info();
            let tools = if info.toolchain.is_empty() { "" } else { ", " };
            format!("{} ({}, {}{tools}{})", info.backend, info.name.trim(), info.arch, info.toolchain)
        })
    }

    /// Puts a case to both devices; a refusal must be the same on both, but for layouts that one of them has no solver for.
    fn judge(&self, case: &Case, seed: u64, solvers: Solvers) -> Result<(), String> {
        let has_layout = |library: &Library| !case.needs_any_layout() || library.has_any_layout();
        if case.refused.is_some() || !self.libraries.iter().all(has_layout) {
            return self.libraries.iter().try_for_each(|library| judge(library, case, seed, solvers));
        }
        Question::all(case, seed).try_for_each(|question| self.ask(&question?, solvers))
    }

    fn ask(&self, question: &Question, solvers: Solvers) -> Result<(), String> {
        let [first, second] = &self.libraries;
        let mut answers: Vec<Answer> = Vec::new();
        question.ask(first, solvers, |answer| {
            // Its bounds are others than a sum's, and it has kept to them.
            if answer.accuracy == Accuracy::Transformed {
                return Ok(());
            }
            // Mostly the bits do not depend on where operands lie.
            if answers.last().is_none_or(|last| !last.has_bits_of(&answer)) {
                answers.push(answer);
            }
            Ok(())
        })?;
        let (mut elements, mut signs, mut distance) = (0, 0, Distance::default());
        question.ask(second, solvers, |answer| {
            for other in &answers {
                signs += compare(question, other, &answer, &mut distance)?;
                elements += answer.results.iter().map(|(_, values)| values.len()).sum::<usize>();
            }
            Ok(())
        })?;
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match question.tier {
            Tier::Exact => found.add_exact(elements, signs),
            Tier::Bound => found.add(&question.case, question.math, elements, distance),
            Tier::Special => {}
        }
        Ok(())
    }
}

/// Widens a distance to that between two answers to a question; how many zeros differ in sign where that is all that
/// may differ.
fn compare(question: &Question, a: &Answer, b: &Answer, distance: &mut Distance) -> Result<usize, String> {
    let mut signs = 0;
    // The bounds of both are those of the less exact.
    let expected = question.expected_of(a.accuracy.max(b.accuracy))?.unwrap_or(&question.expected);
    for (at, want) in expected.iter().enumerate() {
        let ((data_type, left), (_, right)) = (&a.results[at], &b.results[at]);
        let compared = match question.tier {
            Tier::Exact => equal(left, right, want).map(|zeros| signs += zeros),
            _ => within_both_bounds(*data_type, (left, right), want).map(|found| distance.widen(found)),
        };
        compared.map_err(|text| sentence(question, a, b, *data_type, at, &text))?;
    }
    Ok(signs)
}

fn sentence(question: &Question, a: &Answer, b: &Answer, of: DataType, at: usize, text: &str) -> String {
    let Question { case, tier, math, .. } = question;
    let products = if *math == MathMode::Precise { "" } else { ", TF32 allowed" };
    format!(
        "{}, tier {tier:?}{products}: {} ({:?}) and {} ({:?}), result {at} of type {of}: {text}",
        case.id, a.solver, a.alignment, b.solver, b.alignment
    )
}

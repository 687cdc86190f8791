//! No kernel reads or writes beyond an operand: random plans whose operands lie at pages that fault, those that are only
//! read in memory that cannot be written, give the bits that they give in ordinary memory.
//!
//! `FUSEPLAN_TEST_CASES` and `FUSEPLAN_TEST_SEED` say how many plans for each instruction set, and which.
#![cfg(unix)]

use std::process::Command;

use fuseplan::Handle;
use fuseplan_suite::case::Case;
use fuseplan_suite::data::{self, Tier};
use fuseplan_suite::guard_pages::{Edge, Reporter};
use fuseplan_suite::image::Alignment;
use fuseplan_suite::library::{Built, Library};
use fuseplan_suite::oracle::Operands;
use fuseplan_suite::{number, random};

/// Plans for each instruction set, if `FUSEPLAN_TEST_CASES` does not say otherwise.
const CASES: u64 = 100;

/// In a process of one instruction set.
const ONE: &str = "FUSEPLAN_TEST_ONE_ISA";

/// The bits of all that a case gives on a solver, `None` where the solver does not take it.
fn bits(
    library: &Library,
    (case, built, operands): (&Case, &Built, &Operands),
    solver: &str,
    alignment: Alignment,
) -> Option<Vec<u64>> {
    let compiled = library.compile(built, Some(solver)).ok()?;
    let outcome = library.execute(case, built, &compiled, operands, alignment).unwrap();
    assert_eq!(outcome.faults, Vec::<String>::new(), "{} on {solver}", case.id);
    let values = outcome.results.iter().flat_map(|(_, values)| values);
    Some(values.map(|value| value.to_bits()).collect())
}

fn library() -> Library {
    Library::on(Handle::cpu()).unwrap()
}

#[test]
fn operands_at_pages_that_fault_give_the_same_bits() {
    if std::env::var_os(ONE).is_some() {
        return one_instruction_set();
    }
    for arch in fuseplan_cpu::CpuDevice::architectures() {
        let isa = arch.rsplit('+').next().unwrap_or_default();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("operands_at_pages_that_fault").arg("--nocapture");
        let output = command.env(ONE, "1").env("FUSEPLAN_ISA", isa).output().unwrap();
        let [text, error] =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(output.status.success(), "{arch}: {}\n{text}\n{error}", output.status);
        assert!(text.contains(&format!("plans on {arch}")), "{arch}: {text}");
    }
}

fn one_instruction_set() {
    let seed = number("FUSEPLAN_TEST_SEED", 0);
    let cases = usize::try_from(number("FUSEPLAN_TEST_CASES", CASES)).unwrap();
    let (ordinary, reporter) = (library(), Reporter::default());
    let guarded = [Edge::Start, Edge::End].map(|edge| (edge, library().on_guard_pages(edge)));
    let mut executions = 0;
    for case in (0..cases).map(|number| random::case(seed, number)) {
        let operands = data::operands(&case, Tier::Bound, seed);
        let built = ordinary.build(&case).unwrap();
        for solver in ordinary.solvers() {
            let of = (&case, &built, &operands);
            let Some(expected) = bits(&ordinary, of, solver, Alignment::Full) else { continue };
            for (edge, library) in &guarded {
                let what = format!("{} on {solver}, seed {seed}, {edge:?}", case.id);
                reporter.doing(&what);
                assert!(
                    bits(library, of, solver, Alignment::Bare).is_some_and(|found| found == expected),
                    "{what}"
                );
                executions += 2;
            }
        }
    }
    println!("{executions} executions of {cases} plans on {}", ordinary.handle().device_info().arch);
}

#[test]
fn a_byte_beyond_either_end_is_a_fault() {
    const FAULT: &str = "FUSEPLAN_TEST_FAULT";
    if let Ok(which) = std::env::var(FAULT) {
        let (edge, beyond) = if which == "start" { (Edge::Start, -1) } else { (Edge::End, 6) };
        let reporter = Reporter::default();
        reporter.doing("a test of itself");
        library().on_guard_pages(edge).touch(6, beyond);
        return;
    }
    for which in ["start", "end"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("a_byte_beyond").arg("--nocapture").env(FAULT, which);
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{which}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("memory fault in a test of itself"),
            "{which}"
        );
    }
}

//! The same bits from run to run, from thread to thread, and for any number of threads.

use fuseplan::{DataType, Handle};
use fuseplan_suite::case::Case;
use fuseplan_suite::corpus;
use fuseplan_suite::data::{self, Tier};
use fuseplan_suite::image::Alignment;
use fuseplan_suite::library::Library;
use fuseplan_suite::oracle::Operands;
use fuseplan_suite::sample::Sample;

/// One case of each kind of kernel.
const CASES: [&str; 9] = [
    "conv.3x3p1.relu.f32.nchw",
    "conv.3x3s2.relu.bf16.nhwc",
    "conv.deep.1x1.f32.nhwc",
    "conv.7x7s2p3.f16.nchw",
    "groups.depthwise.3x3.f32.nchw",
    "groups.g8.d2.bf16.nchw",
    "batch_norm.per-activation.relu.f16.nhwc",
    "activation.tanh.plain.f32.nchw",
    "training.forward.spatial.relu.f32.nchw",
];

fn cases() -> Vec<(Case, Operands)> {
    let corpus = corpus::load().unwrap();
    let find = |id: &&str| corpus.iter().find(|case| case.id == *id).unwrap_or_else(|| panic!("no {id}"));
    let with_data = |case: &Case| (case.clone(), data::operands(case, Tier::Bound, 1));
    CASES.iter().map(find).map(with_data).collect()
}

/// The bits of everything that a case gives on each solver that takes it.
fn bits(library: &Library, (case, operands): &(Case, Operands)) -> Vec<(&'static str, Vec<u64>)> {
    let built = library.build(case).unwrap();
    let mut all = Vec::new();
    for solver in library.solvers() {
        let Ok(compiled) = library.compile(&built, Some(solver)) else { continue };
        let outcome = library.execute(case, &built, &compiled, operands, Alignment::Full).unwrap();
        let values = outcome.results.iter().flat_map(|(_, values)| values);
        all.push((*solver, values.map(|value| value.to_bits()).collect()));
    }
    assert!(!all.is_empty());
    all
}

#[test]
fn the_number_of_threads_does_not_matter() {
    let libraries: Vec<_> =
        (1..=3).map(|threads| Library::on(Handle::cpu_with_threads(threads).unwrap()).unwrap()).collect();
    for case in cases() {
        let one = bits(&libraries[0], &case);
        for library in &libraries[1..] {
            assert_eq!(bits(library, &case), one, "{}", case.0.id);
        }
    }
}

#[test]
fn a_hundred_runs_give_the_same_bits() {
    let library = Library::open("cpu").unwrap();
    for case in cases() {
        let first = bits(&library, &case);
        // Every execution of the suite is two runs.
        for _ in 1..50 {
            assert_eq!(bits(&library, &case), first, "{}", case.0.id);
        }
    }
}

#[test]
fn eight_threads_share_one_compiled_plan() {
    let handle = Handle::cpu();
    let sample = Sample::new(17).unwrap();
    assert_eq!(sample.plan.input().data_type(), DataType::Float);
    let compiled = sample.plan.compile(&handle).unwrap();
    let (args, expected) = (sample.args(), sample.expected());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(sample.run(&compiled, &handle, &args).unwrap(), expected);
                }
            });
        }
    });
}

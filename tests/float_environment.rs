//! Results do not depend on the caller's floating-point environment, which a call leaves as it was.
#![cfg(target_arch = "x86_64")]

use std::arch::asm;
use std::cell::Cell;

use fuseplan::Handle;
use fuseplan_suite::case::Case;
use fuseplan_suite::corpus;
use fuseplan_suite::data::{self, Tier};
use fuseplan_suite::image::Alignment;
use fuseplan_suite::library::Library;
use fuseplan_suite::number::round;
use fuseplan_suite::oracle::Operands;

/// One case of each kind of kernel, and of each kind of arithmetic outside of kernels.
const CASES: [&str; 8] = [
    "conv.3x3p1.relu.f32.nchw",
    "conv.3x3s2.relu.bf16.nhwc",
    "groups.depthwise.3x3.f32.nchw",
    "groups.g8.d2.bf16.nchw",
    "batch_norm.per-activation.relu.f16.nhwc",
    "activation.tanh.plain.f32.nchw",
    "training.forward.spatial.relu.f32.nchw",
    "conv.7x7s2p3.f16.nchw",
];

const DEFAULT: u32 = 0x1f80;

/// Values of MXCSR: flush-to-zero with and without denormals-are-zero, the three other rounding modes, every
/// exception unmasked, all of it; in some, exceptions that have occurred.
const ENVIRONMENTS: [u32; 8] = [0x9f80, 0x9fc0, 0x3f82, 0x5f80, 0x7fa0, 0x0000, 0x0010, 0xe041];

thread_local! {
    /// What a caller has set.
    static CALLERS: Cell<u32> = const { Cell::new(DEFAULT) };
}

fn read() -> u32 {
    let mut state = 0u32;
    // SAFETY: it stores four bytes, for which there is room.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut state, options(nostack)) };
    state
}

fn write(state: u32) {
    // SAFETY: it loads four bytes that are a valid state, in which nothing but the library's call is run.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const state, options(nostack)) };
}

/// Calls in the environment of `CALLERS`, and holds the call to leaving it as it was.
fn around(call: &mut dyn FnMut()) {
    let (callers, own) = (CALLERS.get(), read());
    write(callers);
    call();
    let after = read();
    write(own);
    assert_eq!(after, callers, "{after:#x} where the caller had {callers:#x}");
}

/// The data as it is, and so small that products with it are denormal.
fn operands(case: &Case) -> [Operands; 2] {
    let usual = data::operands(case, Tier::Bound, 1);
    let mut small = usual.clone();
    let least = if case.data_type == fuseplan::DataType::Half { 2f64.powi(-16) } else { 2f64.powi(-131) };
    small.input.iter_mut().for_each(|x| *x = round(*x * least, case.data_type));
    [usual, small]
}

/// The bits of everything that a case gives on each solver that takes it.
fn bits(library: &Library, case: &Case, operands: &Operands) -> Vec<(&'static str, Vec<u64>)> {
    let built = library.build(case).unwrap();
    let mut all = Vec::new();
    for solver in library.solvers() {
        let Ok(compiled) = library.compile(&built, Some(solver)) else { continue };
        let outcome = library.execute(case, &built, &compiled, operands, Alignment::Full).unwrap();
        assert_eq!(outcome.faults, Vec::<String>::new(), "{} {solver}", case.id);
        let values = outcome.results.iter().flat_map(|(_, values)| values);
        all.push((*solver, values.map(|value| value.to_bits()).collect()));
    }
    assert!(!all.is_empty());
    all
}

#[test]
fn results_do_not_depend_on_the_callers_environment() {
    let corpus = corpus::load().unwrap();
    let find = |id: &&str| corpus.iter().find(|case| case.id == *id).unwrap_or_else(|| panic!("no {id}"));
    let cases: Vec<_> = CASES.iter().map(find).map(|case| (case, operands(case))).collect();
    for threads in [1, 3] {
        let library = || Library::on(Handle::cpu_with_threads(threads).unwrap()).unwrap().within(around);
        // The second one's threads are started by a caller with another environment; they take turns.
        let plain = library();
        let mut flushed = None;
        CALLERS.set(ENVIRONMENTS[1]);
        around(&mut || flushed = Some(library()));
        let libraries = [plain, flushed.unwrap()];
        for (case, data) in &cases {
            for operands in data {
                CALLERS.set(DEFAULT);
                let expected = bits(&libraries[0], case, operands);
                for (callers, library) in ENVIRONMENTS.into_iter().zip(libraries.iter().cycle()) {
                    CALLERS.set(callers);
                    let found = bits(library, case, operands);
                    assert!(found == expected, "{}, {threads} threads, MXCSR {callers:#x}", case.id);
                }
            }
        }
    }
}

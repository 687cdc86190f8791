//! A fake backend whose binaries are worth storing.

use fuseplan_api::Problem;
use fuseplan_fakes::{FakeBackend, FakeSolver};

use super::payload;
use crate::{ActivationForward, ActivationMode, DataType, FusionPlan, TensorDescriptor};

pub(super) static BACKEND: FakeBackend =
    FakeBackend { name: "fake", arch: "fake_90", toolchain: "fakec 12.4", solvers: &[&SOLVER] };

pub(super) static SOLVER: FakeSolver = FakeSolver {
    cache_key: |problem| Some(format!("{problem:?} kernel text").into_bytes()),
    compile: |problem| {
        record(problem);
        Ok(binary(problem))
    },
    load: |problem, stored| assert!(stored == binary(problem), "a wrong or torn binary was loaded"),
    ..FakeSolver::new("fake.copy.v1")
};

pub(super) fn problem(number: usize) -> Problem {
    plan(number).problem()
}

/// A plan by number: an activation over that many channels.
pub(super) fn plan(number: usize) -> FusionPlan {
    let x = TensorDescriptor::nchw(DataType::Float, [1, number + 1, 2, 2]).unwrap();
    let mut plan = FusionPlan::new(x).unwrap();
    plan.append(ActivationForward::new(ActivationMode::Relu)).unwrap();
    plan
}

/// The one right binary of a problem.
pub(super) fn binary(problem: &Problem) -> Vec<u8> {
    payload(problem.input.lens()[1] as u64, 3000)
}

/// Where compiles are recorded, one file each, if anywhere.
pub(super) const RECORDS: &str = "FUSEPLAN_TEST_RECORDS";

fn record(problem: &Problem) {
    if let Some(directory) = std::env::var_os(RECORDS) {
        let channels = problem.input.lens()[1];
        let file = std::path::Path::new(&directory).join(format!("{channels}.{}", std::process::id()));
        std::fs::File::create_new(file).expect("one process compiled a problem twice");
        // As long as a compiler takes, or the race is over before it begins.
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

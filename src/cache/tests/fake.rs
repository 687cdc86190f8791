//! A backend whose binaries are worth storing.

use std::sync::Arc;

use fuseplan_api::null::NullBackend;
use fuseplan_api::{
    Algorithm, Backend, BackendError, Binary, BuildError, Constraint, Device, DeviceInfo, Discovery,
    Executable, Problem, Solver,
};

use super::payload;
use crate::{ActivationForward, ActivationMode, DataType, FusionDirection, FusionPlan, TensorDescriptor};

#[derive(Debug)]
pub(super) struct FakeBackend;

#[derive(Debug)]
pub(super) struct FakeSolver;

static SOLVERS: [&dyn Solver; 1] = [&FakeSolver];

pub(super) fn info() -> DeviceInfo {
    DeviceInfo { arch: "fake_90".into(), toolchain: "fakec 12.4".into(), ..NullBackend.target("").unwrap() }
}

pub(super) fn problem(number: usize) -> Problem {
    plan(number).problem()
}

/// A plan by number: an activation over that many channels.
pub(super) fn plan(number: usize) -> FusionPlan {
    let x = TensorDescriptor::nchw(DataType::Float, [1, number + 1, 2, 2]).unwrap();
    let mut plan = FusionPlan::new(FusionDirection::Vertical, x).unwrap();
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

impl Backend for FakeBackend {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn discover(&self) -> Discovery {
        Discovery { devices: vec![info()], notes: Vec::new() }
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, BackendError> {
        NullBackend.open(ordinal)
    }

    fn target(&self, _arch: &str) -> Result<DeviceInfo, BackendError> {
        Ok(info())
    }

    fn solvers(&self) -> &'static [&'static dyn Solver] {
        &SOLVERS
    }
}

impl Solver for FakeSolver {
    fn id(&self) -> &'static str {
        "fake.copy.v1"
    }

    fn algorithm(&self) -> Algorithm {
        Algorithm::ElementWise
    }

    fn constraints(&self) -> &'static [Constraint] {
        &[]
    }

    fn cache_key(&self, problem: &Problem, _target: &DeviceInfo) -> Option<Vec<u8>> {
        Some(format!("{problem:?} kernel text").into_bytes())
    }

    fn compile(&self, problem: &Problem, target: &DeviceInfo) -> Result<Binary, BuildError> {
        record(problem);
        Ok(Binary { solver: self.id().into(), arch: target.arch.clone(), bytes: binary(problem) })
    }

    fn load(
        &self,
        problem: &Problem,
        device: &Arc<dyn Device>,
        stored: &Binary,
    ) -> Result<Arc<dyn Executable>, BuildError> {
        assert!(stored.bytes == binary(problem), "a wrong or torn binary was loaded");
        let null = NullBackend.solvers()[0];
        null.load(problem, device, stored)
    }
}

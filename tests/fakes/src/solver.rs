//! A backend with the solvers that a test gives it, and solvers whose compiler a test writes.

use std::sync::Arc;

use fuseplan_api::{
    Accuracy, Algorithm, Backend, BackendError, Binary, BuildError, Candidate, Configuration, Constraint,
    Device, DeviceInfo, Discovery, Executable, Preference, Problem, Solver,
};

use crate::NullBackend;

/// A backend with these solvers, whose only device is the null backend's under another name.
#[derive(Debug, Clone, Copy)]
pub struct FakeBackend {
    /// The backend's name.
    pub name: &'static str,
    /// The architecture of its device.
    pub arch: &'static str,
    /// The compiler's name and version.
    pub toolchain: &'static str,
    /// The solvers, in the order in which they are tried.
    pub solvers: &'static [&'static dyn Solver],
}

impl FakeBackend {
    /// The device that the backend says it has.
    pub fn info(&self) -> DeviceInfo {
        let null = NullBackend.discover().devices.swap_remove(0);
        DeviceInfo { arch: self.arch.into(), toolchain: self.toolchain.into(), ..null }
    }
}

impl Backend for FakeBackend {
    fn name(&self) -> &'static str {
        self.name
    }

    fn discover(&self) -> Discovery {
        Discovery { devices: vec![self.info()], notes: Vec::new() }
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, BackendError> {
        NullBackend.open(ordinal)
    }

    fn target(&self, _arch: &str) -> Result<DeviceInfo, BackendError> {
        Ok(self.info())
    }

    fn solvers(&self) -> &'static [&'static dyn Solver] {
        self.solvers
    }
}

/// A solver that takes every problem, compiles it by a function of the test, and loads executables that compute
/// nothing.
#[derive(Debug, Clone, Copy)]
pub struct FakeSolver {
    /// The solver's id.
    pub id: &'static str,
    /// What problems are preferred.
    pub preferences: &'static [Preference],
    /// The configurations.
    pub configurations: fn() -> Vec<Candidate>,
    /// What decides the binary, if binaries are worth storing.
    pub cache_key: fn(&Problem) -> Option<Vec<u8>>,
    /// The bytes of a binary, or the compiler's log.
    pub compile: fn(&Problem) -> Result<Vec<u8>, String>,
    /// Looks at the binary that is loaded.
    pub load: fn(&Problem, &[u8]),
}

impl FakeSolver {
    /// A solver with one configuration, whose binaries are empty and are not stored.
    pub const fn new(id: &'static str) -> Self {
        FakeSolver {
            id,
            preferences: &[],
            configurations: || vec![Candidate::only()],
            cache_key: |_| None,
            compile: |_| Ok(Vec::new()),
            load: |_, _| (),
        }
    }
}

impl Solver for FakeSolver {
    fn id(&self) -> &'static str {
        self.id
    }

    fn algorithm(&self) -> Algorithm {
        Algorithm::ElementWise
    }

    fn constraints(&self) -> &'static [Constraint] {
        &[]
    }

    fn preferences(&self) -> &'static [Preference] {
        self.preferences
    }

    fn accuracy(&self, _problem: &Problem) -> Accuracy {
        let classes = (self.configurations)().into_iter().map(|candidate| candidate.accuracy);
        classes.min().unwrap_or(Accuracy::Exact)
    }

    fn configurations(&self, _problem: &Problem, _target: &DeviceInfo) -> Vec<Candidate> {
        (self.configurations)()
    }

    fn cache_key(
        &self,
        problem: &Problem,
        _target: &DeviceInfo,
        _configuration: &Configuration,
    ) -> Option<Vec<u8>> {
        (self.cache_key)(problem)
    }

    fn compile(
        &self,
        problem: &Problem,
        target: &DeviceInfo,
        _configuration: &Configuration,
    ) -> Result<Binary, BuildError> {
        let compiled = (self.compile)(problem);
        let bytes = compiled.map_err(|log| BuildError::Compiler { solver: self.id, log })?;
        Ok(Binary { solver: self.id.into(), arch: target.arch.clone(), bytes })
    }

    fn load(
        &self,
        problem: &Problem,
        device: &Arc<dyn Device>,
        binary: &Binary,
    ) -> Result<Arc<dyn Executable>, BuildError> {
        (self.load)(problem, &binary.bytes);
        NullBackend.solvers()[0].load(problem, device, binary)
    }
}

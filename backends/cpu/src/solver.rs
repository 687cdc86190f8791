//! What this backend's solvers have in common: their kernels are part of the library, so there is nothing to compile.

use std::sync::Arc;

use fuseplan_api::{
    Accuracy, Algorithm, BackendError, Binary, BuildError, Candidate, Configuration, Constraint, Device,
    DeviceInfo, Executable, ExecutableInfo, Preference, Problem, Solver,
};

use crate::device::{BACKEND, CpuDevice};

/// A solver: constraints, and what runs the problems that meet them.
#[derive(Debug)]
pub(crate) struct CpuSolver {
    pub(crate) id: &'static str,
    pub(crate) algorithm: Algorithm,
    pub(crate) constraints: &'static [Constraint],
    /// Whether it finds channels in blocks, and writes an output in another order than the input's.
    pub(crate) any_layout: bool,
    pub(crate) preferences: &'static [Preference],
    pub(crate) is_reference: bool,
    /// The error class of all configurations.
    pub(crate) accuracy: Accuracy,
    /// The configurations of a problem that meets the constraints, the one of the smallest estimate first.
    pub(crate) configurations: fn(&Problem, &DeviceInfo) -> Vec<Candidate>,
    pub(crate) load: fn(&CpuSolver, &Problem, &CpuDevice, &Configuration) -> Arc<dyn Executable>,
}

/// The configurations of a solver that has one way.
pub(crate) fn one(_: &Problem, _: &DeviceInfo) -> Vec<Candidate> {
    vec![Candidate::only()]
}

impl CpuSolver {
    fn has(&self, configuration: &Configuration, problem: &Problem, target: &DeviceInfo) -> bool {
        (self.configurations)(problem, target)
            .iter()
            .any(|candidate| candidate.configuration == *configuration)
    }

    /// What an executable of this solver says of itself.
    pub(crate) fn info(&self, detail: String) -> ExecutableInfo {
        let (solver, algorithm) = (self.id, self.algorithm);
        ExecutableInfo { solver, algorithm, kernels: 1, workspace: 0, detail, resources: None }
    }
}

impl Solver for CpuSolver {
    fn id(&self) -> &'static str {
        self.id
    }

    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    fn constraints(&self) -> &'static [Constraint] {
        self.constraints
    }

    fn addresses_any_layout(&self) -> bool {
        self.any_layout
    }

    fn preferences(&self) -> &'static [Preference] {
        self.preferences
    }

    fn is_reference(&self) -> bool {
        self.is_reference
    }

    fn accuracy(&self, _problem: &Problem) -> Accuracy {
        self.accuracy
    }

    fn configurations(&self, problem: &Problem, target: &DeviceInfo) -> Vec<Candidate> {
        (self.configurations)(problem, target)
    }

    /// The binary holds the configuration's words.
    fn compile(
        &self,
        problem: &Problem,
        target: &DeviceInfo,
        configuration: &Configuration,
    ) -> Result<Binary, BuildError> {
        if !self.has(configuration, problem, target) {
            let configuration = configuration.to_string();
            return Err(BuildError::Configuration { solver: self.id, configuration });
        }

        let bytes = configuration.as_str().as_bytes().to_vec();
        Ok(Binary { solver: self.id.into(), arch: target.arch.clone(), bytes })
    }

    fn load(
        &self,
        problem: &Problem,
        device: &Arc<dyn Device>,
        binary: &Binary,
    ) -> Result<Arc<dyn Executable>, BuildError> {
        let refuse = |reason: String| Err(BuildError::Binary { solver: self.id, reason });
        let arch = &device.info().arch;
        if binary.solver != self.id {
            return refuse(format!("it was made by {}", binary.solver));
        }
        if binary.arch != *arch {
            return refuse(format!("it was made for {}, the device is {arch}", binary.arch));
        }
        let words = std::str::from_utf8(&binary.bytes).map(Configuration::new);
        let Some(configuration) = words.ok().filter(|words| self.has(words, problem, device.info())) else {
            return refuse(format!(
                "its {} bytes name none of the solver's configurations",
                binary.bytes.len()
            ));
        };
        let device = device
            .as_any()
            .downcast_ref()
            .ok_or(BackendError::Unsupported { backend: BACKEND, what: "a device of another backend" })?;
        Ok((self.load)(self, problem, device, &configuration))
    }
}

//! What this backend's solvers have in common: their kernels are part of the library, so there is nothing to compile.

use std::sync::Arc;

use fuseplan_api::{
    Algorithm, BackendError, Binary, BuildError, Configuration, Constraint, Device, DeviceInfo, Executable,
    ExecutableInfo, Preference, Problem, Solver,
};

use crate::device::{BACKEND, CpuDevice};

/// A solver: constraints, and what runs the problems that meet them.
#[derive(Debug)]
pub(crate) struct CpuSolver {
    pub(crate) id: &'static str,
    pub(crate) algorithm: Algorithm,
    pub(crate) constraints: &'static [Constraint],
    pub(crate) preferences: &'static [Preference],
    pub(crate) is_reference: bool,
    pub(crate) load: fn(&CpuSolver, &Problem, &CpuDevice) -> Arc<dyn Executable>,
}

impl CpuSolver {
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

    fn preferences(&self) -> &'static [Preference] {
        self.preferences
    }

    fn is_reference(&self) -> bool {
        self.is_reference
    }

    fn compile(
        &self,
        _problem: &Problem,
        target: &DeviceInfo,
        configuration: &Configuration,
    ) -> Result<Binary, BuildError> {
        if !configuration.as_str().is_empty() {
            let configuration = configuration.to_string();
            return Err(BuildError::Configuration { solver: self.id, configuration });
        }

        Ok(Binary { solver: self.id.into(), arch: target.arch.clone(), bytes: Vec::new() })
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
        if !binary.bytes.is_empty() {
            return refuse(format!("it holds {} bytes where none belong", binary.bytes.len()));
        }
        let device = device
            .as_any()
            .downcast_ref()
            .ok_or(BackendError::Unsupported { backend: BACKEND, what: "a device of another backend" })?;
        Ok((self.load)(self, problem, device))
    }
}

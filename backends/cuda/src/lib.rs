//! fuseplan's CUDA backend.
//!
//! Nothing of CUDA is needed to build this, and its absence at run time is an ordinary state: the driver
//! (`libcuda`) and the run-time compiler (NVRTC) are loaded when they are first wanted, and what was looked
//! for is part of [`Backend::discover`]'s notes and of errors.
//!
//! NVRTC is looked for by the system's loader, then in the folders that [`FOLDERS`] names.

mod arch;
mod ceilings;
mod compiler;
mod device;
mod driver;
mod function;
mod graph;
mod hopper;
mod library;
mod mma;
mod modules;
mod solvers;
mod sys;

use std::sync::Arc;

use fuseplan_api::{Backend, BackendError, Device, DeviceInfo, Discovery, Problem, Solver};
use fuseplan_gpu::{CompileFailure, Kernel};

pub use device::{CudaDevice, current_device};
pub use fuseplan_gpu::Compiled;
pub use library::FOLDERS;

/// The backend's name.
const BACKEND: &str = "cuda";

/// NVIDIA GPUs of compute capability 7.0 and later.
#[derive(Debug, Default, Clone, Copy)]
pub struct CudaBackend;

impl Backend for CudaBackend {
    fn name(&self) -> &'static str {
        BACKEND
    }

    fn discover(&self) -> Discovery {
        let mut discovery = match device::all() {
            Ok((devices, notes)) => Discovery { devices, notes },
            Err(error) => Discovery { devices: Vec::new(), notes: vec![error.to_string()] },
        };
        if let Err(error) = library::nvrtc() {
            discovery.notes.push(error.to_string());
        }
        discovery
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, BackendError> {
        Ok(Arc::new(CudaDevice::open(ordinal)?))
    }

    fn target(&self, arch: &str) -> Result<DeviceInfo, BackendError> {
        arch::target(arch)
    }

    fn solvers(&self) -> &'static [&'static dyn Solver] {
        &solvers::SOLVERS
    }
}

/// The text of a solver's kernel for a problem, and what the compiler makes of it for an architecture: for looking
/// at kernels with no device. `None` for an id that is no solver's, an architecture that is not known, or a problem
/// that the solver does not take.
///
/// # Errors
/// NVRTC is missing, or refuses.
pub fn inspect(
    solver: &str,
    problem: &Problem,
    arch: &str,
) -> Option<Result<(Kernel, Compiled), CompileFailure>> {
    let planner = solvers::PLANNERS.into_iter().find(|planner| planner.id() == solver)?;
    planner.applies(problem, &arch::target(arch).ok()?).ok()?;
    let kernel = planner.kernel(problem, arch);
    let compiled = compiler::compile(&kernel.source, arch);
    Some(compiled.map(|compiled| (kernel, compiled)))
}

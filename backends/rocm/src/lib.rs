//! fuseplan's ROCm backend.
//!
//! Nothing of ROCm is needed to build this, and its absence at run time is an ordinary state: the HIP runtime
//! (`libamdhip64`) and its compiler (`libhiprtc`) are loaded when they are first wanted, and what was looked
//! for is part of [`Backend::discover`]'s notes and of errors. HIP 6 and 7 are supported.
//!
//! Kernels are compiled for the full name that a device gives itself, such as `gfx942:sramecc+:xnack-`.

mod arch;
mod compiler;
mod context;
mod device;
mod driver;
mod matrix;
mod peaks;
mod runtime;
mod solvers;

use std::sync::Arc;

use fuseplan_api::{Backend, BackendError, DataType, Device, DeviceInfo, Discovery, Problem, Solver};
use fuseplan_gpu::{CompileFailure, Compiled, GpuDevice, Kernel, Probe, discover, kernel_of};
use fuseplan_hip_sys::{self as sys, LoadError};

pub use sys::FOLDERS;

use context::Rocm;

/// The backend's name.
const BACKEND: &str = "rocm";

fn unavailable(error: LoadError) -> BackendError {
    BackendError::Unavailable { backend: BACKEND, reason: error.to_string() }
}

/// AMD GPUs.
#[derive(Debug, Default, Clone, Copy)]
pub struct RocmBackend;

impl Backend for RocmBackend {
    fn name(&self) -> &'static str {
        BACKEND
    }

    fn discover(&self) -> Discovery {
        let mut discovery = discover::<Rocm>();
        if discovery.devices.is_empty() && discovery.notes.is_empty() {
            discovery.notes.push(format!("{BACKEND}: {} finds no device", compiler::runtime()));
        }
        // Without the runtime there is one note, not two.
        if sys::version().is_ok() {
            discovery.notes.extend(sys::hiprtc().err().map(|error| unavailable(error).to_string()));
        }
        discovery
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, BackendError> {
        Ok(Arc::new(GpuDevice::<Rocm>::open(ordinal)?))
    }

    fn current_device(&self) -> Option<u32> {
        device::current_device()
    }

    fn target(&self, arch: &str) -> Result<DeviceInfo, BackendError> {
        arch::target(arch)
    }

    fn solvers(&self) -> &'static [&'static dyn Solver] {
        &solvers::SOLVERS
    }
}

/// The kernel with which a solver computes a problem on an architecture: its text and its launch. `None` for an id that
/// is no solver's, an architecture that is not known, or a problem that the solver does not take.
pub fn kernel(solver: &str, problem: &Problem, arch: &str) -> Option<Kernel> {
    kernel_of(&solvers::PLANNERS, solver, problem, &arch::target(arch).ok()?)
}

/// The text of a solver's kernel for a problem, and what the compiler makes of it for an architecture: for looking
/// at kernels with no device. `None` for an id that is no solver's, an architecture that is not known, or a problem
/// that the solver does not take.
///
/// # Errors
/// hiprtc is missing, or refuses.
pub fn inspect(
    solver: &str,
    problem: &Problem,
    arch: &str,
) -> Option<Result<(Kernel, Compiled), CompileFailure>> {
    let kernel = kernel(solver, problem, arch)?;
    let compiled = compiler::compile(&kernel.source, arch);
    Some(compiled.map(|compiled| (kernel, compiled)))
}

/// The kernels by which [`Device::peaks`] measures an architecture, and what the compiler makes of them: a copy,
/// and what computes in f32, f16, bf16.
///
/// # Errors
/// hiprtc is missing, or refuses.
pub fn inspect_peaks(arch: &str) -> Result<Vec<(Probe, Compiled)>, CompileFailure> {
    let products = [DataType::Float, DataType::Half, DataType::BFloat16].map(|t| peaks::products(t, arch));
    let probes = std::iter::once(Probe::copy::<Rocm>()).chain(products);
    probes.map(|probe| compiler::compile(&probe.source, arch).map(|compiled| (probe, compiled))).collect()
}

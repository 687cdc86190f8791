//! fuseplan's CUDA backend.
//!
//! Nothing of CUDA is needed to build this, and its absence at run time is an ordinary state: the driver
//! (`libcuda`) and the run-time compiler (NVRTC) are loaded when they are first wanted, and what was looked
//! for is part of [`Backend::discover`]'s notes and of errors.
//!
//! NVRTC is looked for by the system's loader, then in the folders that [`FOLDERS`] names.

mod arch;
mod both;
mod columns;
mod compiler;
mod context;
mod device;
mod driver;
mod hopper;
mod library;
mod mma;
mod peaks;
mod prepared;
mod runtime;
mod solvers;
mod sys;
mod windows;
mod winograd;

use std::ffi::c_void;
use std::sync::Arc;

use fuseplan_api::{Backend, BackendError, Device, DeviceInfo, Discovery, Problem, Solver};
use fuseplan_gpu::{CompileFailure, GpuDevice, Kernel, discover, kernel_of};

use context::Cuda;

pub use fuseplan_gpu::Compiled;
pub use library::FOLDERS;

/// The backend's name.
const BACKEND: &str = "cuda";

/// NVIDIA GPUs of compute capability 7.0 and later.
#[derive(Debug, Default, Clone, Copy)]
pub struct CudaBackend;

impl CudaBackend {
    /// The device of a caller's context (`CUcontext`), in which all work runs then; null is the context that
    /// is the thread's current one. The context is used, never destroyed.
    ///
    /// # Errors
    /// There is no driver, no current context, or the device is not supported.
    ///
    /// # Safety
    /// The context is null or live, and lives until the result, and everything that was made of it, is gone.
    pub unsafe fn adopt(context: *mut c_void) -> Result<Arc<dyn Device>, BackendError> {
        driver::initialise()?;
        // SAFETY: as promised by the caller.
        let context = unsafe { Cuda::adopt(context) }?;
        let Some(ordinal) = device::ordinal_of(&context)? else {
            let reason = "the context is of a device that the driver does not list".into();
            return Err(BackendError::Unavailable { backend: BACKEND, reason });
        };
        Ok(Arc::new(GpuDevice::new(device::describe(ordinal)?, context)))
    }

    /// The context (`CUcontext`) that a device of this backend works in.
    pub fn context_of(device: &dyn Device) -> Option<*mut c_void> {
        GpuDevice::<Cuda>::of(device).ok().map(|device| device.driver().raw())
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &'static str {
        BACKEND
    }

    fn discover(&self) -> Discovery {
        let mut discovery = discover::<Cuda>();
        if let Err(error) = library::nvrtc() {
            discovery.notes.push(error.to_string());
        }
        discovery
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, BackendError> {
        Ok(Arc::new(GpuDevice::<Cuda>::open(ordinal)?))
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

/// The kernel of `cuda.conv_wgmma_runs.v1` for filters that may change, whose binary carries it where TMA can bring these as they are and
/// that is sooner done than preparing them; `None` where TMA cannot.
pub fn kernel_with_filter_rows(problem: &Problem, arch: &str) -> Option<Kernel> {
    hopper::kernel_with_filter_rows(problem, arch)
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
    Some(compiled(kernel(solver, problem, arch)?, arch))
}

/// The same of [`kernel_with_filter_rows`].
///
/// # Errors
/// NVRTC is missing, or refuses.
pub fn inspect_with_filter_rows(
    problem: &Problem,
    arch: &str,
) -> Option<Result<(Kernel, Compiled), CompileFailure>> {
    Some(compiled(kernel_with_filter_rows(problem, arch)?, arch))
}

fn compiled(kernel: Kernel, arch: &str) -> Result<(Kernel, Compiled), CompileFailure> {
    let compiled = compiler::compile(&kernel.source, arch)?;
    Ok((kernel, compiled))
}

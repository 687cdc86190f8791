//! fuseplan's CPU backend: SIMD kernels chosen at run time, and the reference that they are judged by.

mod activation;
mod arena;
#[cfg(target_arch = "x86_64")]
mod bf16;
mod channels;
mod constraint;
mod depthwise_planes;
mod device;
mod direct;
mod element;
mod element_wise;
mod elementary;
mod epilogue;
mod isa;
mod peaks;
mod planes;
mod pointwise;
mod pool;
mod reference;
mod row;
mod solver;
mod system;
mod training;
mod vectors;
mod winograd;

use std::sync::Arc;

use fuseplan_api::{Backend, BackendError, Device, DeviceInfo, Discovery, Solver};

use isa::Isa;

pub use device::CpuDevice;
pub use pool::ParallelFor;

/// Solvers, best first; the reference takes what the others do not.
static SOLVERS: &[&dyn Solver] = &[
    &direct::DEPTHWISE,
    &depthwise_planes::DEPTHWISE_PLANES,
    &planes::PLANES,
    &direct::DIRECT_GROUPED,
    #[cfg(target_arch = "x86_64")]
    &bf16::AMX,
    #[cfg(target_arch = "x86_64")]
    &pointwise::POINTWISE_BF16,
    #[cfg(target_arch = "x86_64")]
    &bf16::AVX512_BF16,
    &winograd::WINOGRAD,
    &pointwise::POINTWISE,
    &direct::DIRECT,
    &element_wise::ELEMENT_WISE,
    &training::BATCH_NORM_TRAINING,
    &reference::REFERENCE,
];

/// The processor of this machine, as one device.
///
/// It uses as many threads as the system offers to the process, or as the environment variable
/// `FUSEPLAN_NUM_THREADS` says: a whole number from 1 to 1024. It uses the best vector instructions there
/// are, or the weaker ones that `FUSEPLAN_ISA` names (`amx`, `avx512-bf16`, `avx512`, `avx2`, `neon`, `portable`). Other
/// values are ignored, and [`Backend::discover`] notes them. Results are bitwise the same for any number of
/// threads.
#[derive(Debug, Default, Clone, Copy)]
pub struct CpuBackend;

impl Backend for CpuBackend {
    fn name(&self) -> &'static str {
        device::BACKEND
    }

    fn discover(&self) -> Discovery {
        let (threads, threads_note) = system::default_threads();
        let isa = Isa::detect();
        let isa_note =
            Isa::VARIABLE.text().filter(|wanted| !wanted.is_empty() && wanted != isa.name()).map(|wanted| {
                format!(
                    "{}={wanted:?} is ignored: this processor does not have it; using {}",
                    Isa::VARIABLE,
                    isa.name()
                )
            });
        Discovery {
            devices: vec![device::this_machine(threads, isa)],
            notes: threads_note.into_iter().chain(isa_note).collect(),
        }
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, BackendError> {
        match ordinal {
            0 => Ok(default_device()),
            _ => Err(BackendError::NoDevice { backend: device::BACKEND, ordinal, count: 1 }),
        }
    }

    fn target(&self, arch: &str) -> Result<DeviceInfo, BackendError> {
        device::target(arch)
    }

    fn solvers(&self) -> &'static [&'static dyn Solver] {
        SOLVERS
    }
}

/// Opens the processor with a number of threads of its own, whatever the environment says.
///
/// # Errors
/// As [`CpuDevice::new`].
pub fn open_with_threads(threads: usize) -> Result<Arc<dyn Device>, BackendError> {
    Ok(Arc::new(CpuDevice::new(threads)?))
}

/// Opens the processor with the caller's threads.
///
/// # Errors
/// As [`CpuDevice::with_parallel_for`].
pub fn open_with_parallel_for(pool: Arc<dyn ParallelFor>) -> Result<Arc<dyn Device>, BackendError> {
    Ok(Arc::new(CpuDevice::with_parallel_for(pool)?))
}

/// Opens the processor with the default number of threads; see [`CpuBackend`].
pub fn default_device() -> Arc<dyn Device> {
    Arc::new(CpuDevice::start(system::default_threads().0, Isa::detect()))
}

//! What a vendor provides: a compiler for a driver's devices, and numbers for planning.

use fuseplan_api::{BackendError, DataType};

use crate::{Compiled, Driver, Probe, Target};

/// A vendor's compiler, and the driver that its images are for.
pub trait Runtime: Driver {
    /// What the shared kernels need of the vendor's C++.
    const VENDOR: &'static str;

    /// Whether models of shared kernels that were fitted to timings were fitted to those of this vendor's devices.
    const IS_FITTED: bool;

    /// About how many compute units devices of an architecture have.
    fn units(arch: &str) -> usize;

    /// The text that makes blocks of an architecture a cluster; `None` where they cannot be.
    fn cluster(arch: &str) -> Option<&'static str>;

    /// Whether the driver has memory that one launch hands on to the next.
    const SCRATCH: bool;

    /// What kernels are planned for.
    fn target(arch: &str) -> Target {
        Target { units: Self::units(arch), cluster: Self::cluster(arch), scratch: Self::SCRATCH }
    }

    /// What computes in f32, f16 or bf16 on an architecture, by the instruction that the backend's kernels use.
    fn products(data_type: DataType, arch: &str) -> Probe;

    /// Compiles a kernel's text for an architecture; no device is needed.
    ///
    /// # Errors
    /// The compiler is missing, or refuses the text.
    fn compile(source: &str, arch: &str) -> Result<Compiled, CompileFailure>;
}

/// Why a text was not compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompileFailure {
    /// There is no compiler, or it does not work.
    Backend(BackendError),
    /// The compiler's log about the text.
    Log(String),
}

impl From<BackendError> for CompileFailure {
    fn from(error: BackendError) -> Self {
        CompileFailure::Backend(error)
    }
}

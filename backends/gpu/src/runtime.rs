//! What a vendor provides: a compiler, and functions that can be launched.

use std::fmt::Debug;
use std::sync::Arc;

use fuseplan_api::{BackendError, DataType, Device, Problem, RawStream, Resources};

use crate::{Geometry, Probe};

/// A vendor's compiler and loader.
pub trait Runtime: Debug + Send + Sync + 'static {
    /// A kernel on a device.
    type Function: Function;

    /// What the shared kernels need of the vendor's C++.
    const VENDOR: &'static str;

    /// About how many compute units devices of an architecture have.
    fn units(arch: &str) -> usize;

    /// What computes in f32, f16 or bf16 on an architecture, by the instruction that the backend's kernels use.
    fn products(data_type: DataType, arch: &str) -> Probe;

    /// What is expected of a solver's kernel on paper, to be told with it and labelled as an estimate.
    fn estimate(_solver: &'static str, _problem: &Problem, _arch: &str) -> Option<String> {
        None
    }

    /// Compiles a kernel's text for an architecture; no device is needed.
    ///
    /// # Errors
    /// The compiler is missing, or refuses the text.
    fn compile(source: &str, arch: &str) -> Result<Arc<[u8]>, CompileFailure>;

    /// Loads what `compile` made for this device's architecture. `geometry` is what it will be launched with.
    ///
    /// # Errors
    /// A device of another backend; the driver refuses.
    fn load(device: &dyn Device, image: &[u8], geometry: &Geometry) -> Result<Self::Function, BackendError>;
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

/// A kernel on a device.
pub trait Function: Debug + Send + Sync + 'static {
    /// The launch that it was loaded for, and what that takes.
    fn resources(&self) -> Resources;

    /// Launches with the kernel's argument, a structure of `arguments.len()` words, which is copied.
    ///
    /// # Errors
    /// The driver refuses.
    ///
    /// # Safety
    /// The kernel may run with this argument: its pointers are what the kernel expects, and stay so until
    /// the stream has passed it. `stream` is a live stream of the function's device.
    unsafe fn launch(
        &self,
        stream: RawStream,
        geometry: &Geometry,
        arguments: &[u64],
    ) -> Result<(), BackendError>;
}

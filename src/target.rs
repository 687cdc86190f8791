//! Targets: what plans are compiled for.

use std::fmt;

use fuseplan_api::{Backend, BackendError, DeviceInfo, call};

use crate::backends;

/// What plans are compiled for: a device, or an architecture with no such device present.
#[derive(Debug, Clone)]
pub struct Target {
    pub(crate) backend: &'static dyn Backend,
    info: DeviceInfo,
}

impl Target {
    /// An architecture by its backend's and its own name, such as `cuda`, `sm_90a`.
    ///
    /// # Errors
    /// Unknown names, with the known ones.
    pub fn new(backend_name: &str, arch: &str) -> Result<Self, BackendError> {
        let backend = backends::named(backend_name)?;
        Ok(Self::of(backend, call(|| backend.target(arch))?))
    }

    pub(crate) fn of(backend: &'static dyn Backend, info: DeviceInfo) -> Self {
        Target { backend, info }
    }

    /// What it is.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Whether what is compiled for this target runs on `other`.
    pub(crate) fn covers(&self, other: &Target) -> bool {
        self.info.backend == other.info.backend && self.info.arch == other.info.arch
    }
}

impl AsRef<Target> for Target {
    fn as_ref(&self) -> &Target {
        self
    }
}

/// `cpu 0 (x86-64+avx512)`
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.info.backend, self.info.ordinal, self.info.arch)
    }
}

//! Contexts: an opened device and what was built for it, which its handles share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fuseplan_api::{Backend, BackendError, Device, Memory, Problem};

use crate::cache::Cache;
use crate::choice::Built;
use crate::options::CompileOptions;
use crate::target::Target;

/// An opened device and the kernels compiled for it.
#[derive(Debug)]
pub(crate) struct Context {
    target: Target,
    device: Arc<dyn Device>,
    built: Cache<(Problem, CompileOptions), Built>,
}

impl Context {
    pub(crate) fn new(backend: &'static dyn Backend, device: Arc<dyn Device>) -> Arc<Self> {
        let target = Target::of(backend, device.info().clone());
        Arc::new(Context { target, device, built: Cache::default() })
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    pub(crate) fn memory(&self) -> &dyn Memory {
        self.device.memory()
    }

    /// What was built for the device.
    pub(crate) fn built(&self) -> &Cache<(Problem, CompileOptions), Built> {
        &self.built
    }
}

/// Contexts by backend name and ordinal.
type Contexts = HashMap<(&'static str, u32), Arc<Context>>;

/// The process-wide context of a device, opened if it is not yet.
pub(crate) fn share(
    key: (&'static str, u32),
    open: impl FnOnce() -> Result<Arc<Context>, BackendError>,
) -> Result<Arc<Context>, BackendError> {
    static SHARED: OnceLock<Mutex<Contexts>> = OnceLock::new();
    let mut shared = SHARED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(context) = shared.get(&key) {
        return Ok(context.clone());
    }
    let context = open()?;
    shared.insert(key, context.clone());
    Ok(context)
}

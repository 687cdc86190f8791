//! The flags that say where to run.

use clap::Args;
use fuseplan::Handle;

use crate::failure::Failure;

/// Where to run.
#[derive(Debug, Args)]
pub(crate) struct DeviceFlags {
    /// The backend; if not given, FUSEPLAN_BACKEND, else the best that has a device
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Number of threads of the cpu backend
    #[arg(long, value_name = "INT")]
    threads: Option<usize>,
}

impl DeviceFlags {
    /// The handle to run on.
    pub(crate) fn handle(&self) -> Result<Handle, Failure> {
        let handle = match (self.backend.as_deref(), self.threads) {
            (None, None) => Handle::new(),
            (Some(name), None) => Handle::of_backend(name),
            (None | Some("cpu"), Some(threads)) => Handle::cpu_with_threads(threads),
            (Some(name), Some(_)) => {
                return Err(Failure::Usage(format!("--threads is for the cpu backend, not for {name}")));
            }
        };
        handle.map_err(|error| Failure::NoDevice(error.to_string()))
    }
}

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
    /// The backend's device by its number in `fuseplan devices`; if not given, the first. Needs --backend
    #[arg(long, value_name = "N", requires = "backend", conflicts_with = "threads")]
    device: Option<u32>,
    /// Number of threads of the cpu backend
    #[arg(long, value_name = "INT")]
    threads: Option<usize>,
}

impl DeviceFlags {
    /// Whether any of them was given.
    pub(crate) fn is_given(&self) -> bool {
        self.backend.is_some() || self.device.is_some() || self.threads.is_some()
    }

    /// The handle to run on.
    pub(crate) fn handle(&self) -> Result<Handle, Failure> {
        let handle = match (self.backend.as_deref(), self.device, self.threads) {
            (None, _, None) => Handle::new(),
            (Some(name), Some(ordinal), _) => Handle::open(name, ordinal),
            (Some(name), None, None) => Handle::of_backend(name),
            (None | Some("cpu"), _, Some(threads)) => Handle::cpu_with_threads(threads),
            (Some(name), _, Some(_)) => {
                return Err(Failure::Usage(format!("--threads is for the cpu backend, not for {name}")));
            }
        };
        handle.map_err(|error| Failure::NoDevice(error.to_string()))
    }
}

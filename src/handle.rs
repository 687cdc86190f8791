//! Handles: a device, a stream and the kernels compiled for the device.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use fuseplan_api::{
    Backend, BackendError, Binary, Ceilings, DataType, Device, DeviceInfo, Discovery, Memory, MemoryKind,
    Problem, RawStream, RunError, Stream, call, fork,
};

use crate::cache::{self, Cache};
use crate::env;
use crate::find;
use crate::select::{self, Built, CompileError, CompileOptions};

/// The backends of this build, the preferred first.
pub fn backends() -> &'static [&'static dyn Backend] {
    static BACKENDS: &[&dyn Backend] = &[
        #[cfg(feature = "cuda")]
        &fuseplan_cuda::CudaBackend,
        #[cfg(feature = "rocm")]
        &fuseplan_rocm::RocmBackend,
        &fuseplan_cpu::CpuBackend,
    ];
    BACKENDS
}

fn backend(name: &str) -> Result<&'static dyn Backend, BackendError> {
    let found = backends().iter().find(|backend| backend.name() == name).copied();
    found.ok_or_else(|| BackendError::Unavailable {
        backend: "fuseplan",
        reason: format!(
            "there is no backend `{name}`; this build has {}",
            backends().iter().map(|backend| backend.name()).collect::<Vec<_>>().join(", ")
        ),
    })
}

/// The device that the calling thread has chosen by the vendor's own means, if any.
fn current_device(backend: &str) -> Option<u32> {
    match backend {
        #[cfg(feature = "cuda")]
        "cuda" => fuseplan_cuda::current_device(),
        #[cfg(feature = "rocm")]
        "rocm" => fuseplan_rocm::current_device(),
        _ => None,
    }
}

/// The ordinal of the device to open: the current one if it can be used, else the first that can. Where there is
/// none, opening says why.
fn choose_device(discovery: &Discovery, current: Option<u32>) -> u32 {
    let mut usable = discovery.devices.iter().map(|device| device.ordinal);
    let Some(first) = usable.clone().next() else { return current.unwrap_or(0) };
    match current {
        Some(current) if usable.any(|ordinal| ordinal == current) => current,
        None => first,
        Some(current) => {
            let notes = discovery.notes.join("; ");
            tracing::warn!(target: "fuseplan::handle", "the current device, {current}, cannot be used, {first} is: {notes}");
            first
        }
    }
}

/// What a backend found on this machine.
///
/// # Errors
/// A name that is no backend of this build.
pub fn discover(name: &str) -> Result<Discovery, BackendError> {
    let backend = backend(name)?;
    Ok(call(|| backend.discover()))
}

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
        let backend = backend(backend_name)?;
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

/// An opened device and the kernels compiled for it.
#[derive(Debug)]
pub(crate) struct Context {
    target: Target,
    device: Arc<dyn Device>,
    cache: Cache,
}

impl Context {
    fn new(backend: &'static dyn Backend, device: Arc<dyn Device>) -> Arc<Self> {
        let target = Target::of(backend, device.info().clone());
        Arc::new(Context { target, device, cache: Cache::default() })
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

    pub(crate) fn build(
        self: &Arc<Self>,
        problem: &Problem,
        options: &CompileOptions,
    ) -> Result<Built, CompileError> {
        let options = options.resolved();
        self.cache.get_or_build(problem, &options, || {
            if options.times_solvers() {
                // On a stream of its own, which nothing else waits for.
                let handle = Handle::on(self.clone());
                let found = handle.ok().and_then(|handle| find::fastest(&handle, problem, cache::disk()));
                if let Some(built) = found {
                    return Ok(built);
                }
            }
            select::build(&self.target, &self.device, problem, &options)
        })
    }

    pub(crate) fn load(&self, problem: &Problem, binary: &Binary) -> Result<Built, CompileError> {
        select::load(&self.target, &self.device, problem, binary)
    }
}

/// A device and a stream to run plans on.
///
/// Cheap to clone; may be used by several threads at once. Handles of the same device share what is
/// compiled for it.
#[derive(Debug, Clone)]
pub struct Handle {
    context: Arc<Context>,
    stream: Stream,
    /// Shared by the clones, which are all that launch into the stream.
    life: Arc<()>,
}

impl Handle {
    /// The backend that the environment variable `FUSEPLAN_BACKEND` names, else the best that has a device
    /// and can compile for it on this machine; the CPU always has and can. Of several devices the one that
    /// the calling thread has chosen ([`Handle::of_backend`]).
    ///
    /// # Errors
    /// The variable names no backend of this build, or a backend without a device; the driver refuses.
    pub fn new() -> Result<Self, BackendError> {
        call(|| fork::usable().and_then(|()| Self::best()))
    }

    fn best() -> Result<Self, BackendError> {
        if let Some(name) = env::backend() {
            return Self::of_backend(&name);
        }
        // A device without a toolchain runs only what was compiled before.
        let compiles = |backend: &&&dyn Backend| {
            let devices = backend.discover().devices;
            let compiles = devices.iter().any(|device| !device.toolchain.is_empty());
            if let Some(device) = devices.first().filter(|_| !compiles) {
                let (backend, device) = (backend.name(), &device.name);
                tracing::warn!(target: "fuseplan::handle", "{backend}: {device} is passed over, as there is no compiler for it; FUSEPLAN_BACKEND={backend} uses it for what was compiled before");
            }
            compiles
        };
        Self::of_backend(backends().iter().find(compiles).map_or("cpu", |backend| backend.name()))
    }

    /// A backend's device that the calling thread has chosen by the vendor's own means (`cudaSetDevice`, the
    /// current context's device), else the first that is supported.
    ///
    /// # Errors
    /// No such backend, no device, or the driver refuses.
    pub fn of_backend(name: &str) -> Result<Self, BackendError> {
        call(|| {
            fork::usable()?;
            let discovery = discover(name)?;
            Self::open(name, choose_device(&discovery, current_device(name)))
        })
    }

    /// The CPU with all its cores, shared by the whole process.
    pub fn cpu() -> Self {
        static CPU: OnceLock<Arc<Context>> = OnceLock::new();
        let open = || Context::new(&fuseplan_cpu::CpuBackend, fuseplan_cpu::default_device());
        let context = call(|| CPU.get_or_init(open));
        Handle::with(context.clone(), Stream::borrowed(std::ptr::null_mut()))
    }

    /// The CPU with this many threads, its caches its own.
    ///
    /// # Errors
    /// No threads, or more than the system grants.
    pub fn cpu_with_threads(threads: usize) -> Result<Self, BackendError> {
        call(|| {
            fork::usable()?;
            let device = fuseplan_cpu::open_with_threads(threads)?;
            Self::on(Context::new(&fuseplan_cpu::CpuBackend, device))
        })
    }

    /// A device by backend name and ordinal.
    ///
    /// # Errors
    /// No such backend or device, or the driver refuses.
    pub fn open(name: &str, ordinal: u32) -> Result<Self, BackendError> {
        let backend = backend(name)?;
        if (backend.name(), ordinal) == ("cpu", 0) {
            return Ok(Self::cpu());
        }
        let open = || Ok(Context::new(backend, backend.open(ordinal)?));
        call(|| {
            fork::usable()?;
            Self::on(share((backend.name(), ordinal), open)?)
        })
    }

    /// A device that is opened already.
    #[cfg(any(test, feature = "cuda"))]
    pub(crate) fn of(backend: &'static dyn Backend, device: Arc<dyn Device>) -> Result<Self, BackendError> {
        Self::on(Context::new(backend, device))
    }

    fn on(context: Arc<Context>) -> Result<Self, BackendError> {
        let stream = context.device.create_stream()?;
        Ok(Handle::with(context, stream))
    }

    fn with(context: Arc<Context>, stream: Stream) -> Self {
        Handle { context, stream, life: Arc::default() }
    }

    /// The same device with a stream of the caller's: a `cudaStream_t` or `hipStream_t`, null for the
    /// backend's default stream. CPUs ignore it.
    ///
    /// # Safety
    /// The stream belongs to this handle's device; it outlives the result, its clones, and the buffers and
    /// arguments that are used with them; it is the same one for every thread (`CU_STREAM_PER_THREAD` is not).
    pub unsafe fn with_stream(&self, stream: RawStream) -> Self {
        Handle::with(self.context.clone(), Stream::borrowed(stream))
    }

    /// The same device with another stream of it.
    pub(crate) fn on_stream(&self, stream: Stream) -> Self {
        Handle::with(self.context.clone(), stream)
    }

    /// The stream that plans run on.
    pub fn stream(&self) -> RawStream {
        self.stream.raw()
    }

    /// The same with what keeps it alive.
    pub(crate) fn stream_owner(&self) -> &Stream {
        &self.stream
    }

    /// What lives as long as this handle or a clone.
    pub(crate) fn life(&self) -> &Arc<()> {
        &self.life
    }

    /// Whether the device reads host memory, or has memory of its own.
    pub fn memory_kind(&self) -> MemoryKind {
        self.context.memory().kind()
    }

    /// What the device is.
    pub fn device_info(&self) -> &DeviceInfo {
        self.context.device.info()
    }

    /// The device as a target of plans.
    pub fn target(&self) -> &Target {
        &self.context.target
    }

    /// Waits until everything in the stream has run.
    ///
    /// # Errors
    /// The driver refuses, or reports the failure of an earlier launch.
    pub fn synchronize(&self) -> Result<(), BackendError> {
        // No call: it computes and locks nothing, and a fork need not wait for the stream.
        self.context.device.synchronize(&self.stream)
    }

    /// Runs `work`, which executes plans on this handle, and waits: the time that the device took.
    ///
    /// # Errors
    /// The driver refuses. What `work` returns is passed through.
    pub fn time<E>(
        &self,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<(Duration, Result<(), E>), RunError> {
        let (mut work, mut result) = (Some(work), Ok(()));
        let mut work = || {
            if let Some(work) = work.take() {
                result = work();
            }
            Ok(())
        };
        let elapsed = call(|| self.context.device.time(&self.stream, &mut work))?;
        Ok((elapsed, result))
    }

    /// The device's measured limits for arithmetic in `data_type`.
    ///
    /// # Errors
    /// The device refuses.
    pub fn ceilings(&self, data_type: DataType) -> Result<Ceilings, BackendError> {
        call(|| self.context.device.ceilings(data_type))
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Whether both handles are of the same opened device.
    pub fn is_same_device(&self, other: &Handle) -> bool {
        Arc::ptr_eq(&self.context, &other.context)
    }
}

impl AsRef<Target> for Handle {
    fn as_ref(&self) -> &Target {
        self.target()
    }
}

/// Contexts by backend name and ordinal.
type Contexts = HashMap<(&'static str, u32), Arc<Context>>;

/// The process-wide context of a device.
fn share(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_cannot_be_used_is_passed_over() {
        let device = |ordinal| DeviceInfo { ordinal, ..Handle::cpu().device_info().clone() };
        let of = |ordinals: &[u32]| Discovery {
            devices: ordinals.iter().copied().map(device).collect(),
            notes: vec!["device 0 is too old".into()],
        };
        assert_eq!(choose_device(&of(&[0, 1]), None), 0);
        assert_eq!(choose_device(&of(&[0, 1]), Some(1)), 1);
        assert_eq!(choose_device(&of(&[1, 2]), None), 1);
        assert_eq!(choose_device(&of(&[1, 2]), Some(0)), 1);
        assert_eq!(choose_device(&of(&[1, 2]), Some(2)), 2);
        assert_eq!((choose_device(&of(&[]), None), choose_device(&of(&[]), Some(3))), (0, 3));
    }
}

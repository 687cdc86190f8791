//! Handles: an opened device and a stream to run plans on.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[cfg(any(test, feature = "cuda"))]
use fuseplan_api::{Backend, Device};
use fuseplan_api::{
    BackendError, DataType, DeviceInfo, MemoryKind, Peaks, RawStream, RunError, Stream, call, fork,
};
use fuseplan_cpu::ParallelFor;

use crate::backends;
use crate::context::{self, Context};
use crate::env;
use crate::target::Target;

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
        call(|| {
            fork::usable()?;
            match env::backend() {
                Some(name) => Self::of_backend(&name),
                None => Self::of_backend(backends::best()),
            }
        })
    }

    /// A backend's device that the calling thread has chosen by the vendor's own means (`cudaSetDevice`, the
    /// current context's device), else the first that is supported.
    ///
    /// # Errors
    /// No such backend, no device, or the driver refuses.
    pub fn of_backend(name: &str) -> Result<Self, BackendError> {
        call(|| {
            fork::usable()?;
            Self::open(name, backends::chosen_device(name)?)
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

    /// The CPU on threads of the caller's, such as a framework's pool, in place of threads of the library's own;
    /// its caches are its own. Results are bitwise the same.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::thread;
    ///
    /// use fuseplan::{Handle, device::ParallelFor};
    ///
    /// /// Stands for a framework's pool: threads that are started for each loop.
    /// struct Scoped(usize);
    ///
    /// impl ParallelFor for Scoped {
    ///     fn threads(&self) -> usize {
    ///         self.0
    ///     }
    ///
    ///     fn run(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
    ///         thread::scope(|scope| {
    ///             for index in 1..count {
    ///                 scope.spawn(move || work(index));
    ///             }
    ///             work(0);
    ///         });
    ///     }
    /// }
    ///
    /// let handle = Handle::cpu_with_parallel_for(Arc::new(Scoped(2)))?;
    /// assert_eq!(handle.device_info().compute_units, 2);
    /// # Ok::<(), fuseplan::error::BackendError>(())
    /// ```
    ///
    /// # Errors
    /// A number of threads outside of 1..=1024.
    pub fn cpu_with_parallel_for(pool: Arc<dyn ParallelFor>) -> Result<Self, BackendError> {
        call(|| {
            fork::usable()?;
            let device = fuseplan_cpu::open_with_parallel_for(pool)?;
            Self::on(Context::new(&fuseplan_cpu::CpuBackend, device))
        })
    }

    /// A device by backend name and ordinal.
    ///
    /// # Errors
    /// No such backend or device, or the driver refuses.
    pub fn open(name: &str, ordinal: u32) -> Result<Self, BackendError> {
        let backend = backends::named(name)?;
        if (backend.name(), ordinal) == ("cpu", 0) {
            return Ok(Self::cpu());
        }
        let open = || Ok(Context::new(backend, backend.open(ordinal)?));
        call(|| {
            fork::usable()?;
            Self::on(context::share((backend.name(), ordinal), open)?)
        })
    }

    /// A device that is opened already.
    #[cfg(any(test, feature = "cuda"))]
    pub(crate) fn of(backend: &'static dyn Backend, device: Arc<dyn Device>) -> Result<Self, BackendError> {
        Self::on(Context::new(backend, device))
    }

    /// A stream of its own on an opened device.
    pub(crate) fn on(context: Arc<Context>) -> Result<Self, BackendError> {
        let stream = context.device().create_stream()?;
        Ok(Handle::with(context, stream))
    }

    fn with(context: Arc<Context>, stream: Stream) -> Self {
        Handle { context, stream, life: Arc::default() }
    }

    /// A handle of this device on a stream of the caller's: a `cudaStream_t` or `hipStream_t`, null for the
    /// backend's default stream. CPUs ignore it.
    ///
    /// # Safety
    /// The stream belongs to this handle's device; it outlives the result, its clones, and the buffers and
    /// arguments that are used with them; it is the same one for every thread (`CU_STREAM_PER_THREAD` is not).
    pub unsafe fn with_stream(&self, stream: RawStream) -> Self {
        Handle::with(self.context.clone(), Stream::borrowed(stream))
    }

    /// A handle of this device on another stream of it.
    pub(crate) fn on_stream(&self, stream: Stream) -> Self {
        Handle::with(self.context.clone(), stream)
    }

    /// The stream that plans run on.
    pub fn stream(&self) -> RawStream {
        self.stream.raw()
    }

    /// The stream with what keeps it alive.
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
        self.context.device().info()
    }

    /// The device as a target of plans.
    pub fn target(&self) -> &Target {
        self.context.target()
    }

    /// Waits until everything in the stream has run.
    ///
    /// # Errors
    /// The driver refuses, or reports the failure of an earlier launch.
    pub fn synchronize(&self) -> Result<(), BackendError> {
        // No call: it computes and locks nothing, and a fork need not wait for the stream.
        self.context.device().synchronize(&self.stream)
    }

    /// Calls `f` once with each number below `items`, on the threads that a CPU's plans are computed on, and waits: for what a
    /// program computes between plans. A thread takes a contiguous range first, as it does of a plan's pixels.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// let sum = AtomicUsize::new(0);
    /// fuseplan::Handle::cpu().for_each(10, &|item| {
    ///     sum.fetch_add(item, Ordering::Relaxed);
    /// })?;
    /// assert_eq!(sum.into_inner(), 45);
    /// # Ok::<(), fuseplan::error::RunError>(())
    /// ```
    ///
    /// # Errors
    /// The device is no CPU; `f` panicked, on whichever thread, and some items may be left out.
    pub fn for_each(&self, items: usize, f: &(dyn Fn(usize) + Sync)) -> Result<(), RunError> {
        let device = self.context.device();
        let Some(device) = device.as_any().downcast_ref::<fuseplan_cpu::CpuDevice>() else {
            let backend = device.info().backend;
            return Err(BackendError::Unsupported { backend, what: "calling functions of the host" }.into());
        };
        call(|| device.for_each(items, f))
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
        let elapsed = call(|| self.context.device().time(&self.stream, &mut work))?;
        Ok((elapsed, result))
    }

    /// The device's peaks for arithmetic in `data_type`, measured the first time.
    ///
    /// # Errors
    /// The device refuses.
    pub fn peaks(&self, data_type: DataType) -> Result<Peaks, BackendError> {
        call(|| self.context.device().peaks(data_type))
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

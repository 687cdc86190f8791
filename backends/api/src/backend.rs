//! Backends, devices, memory, streams.

use std::any::Any;
use std::ffi::c_void;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::{BackendError, DataType, GraphDriver, RunError, Solver};

/// A family of devices that share solvers.
pub trait Backend: Debug + Send + Sync {
    /// `cpu`, `cuda` or `rocm`.
    fn name(&self) -> &'static str;

    /// The devices of this machine. A missing driver is an empty list with a note, not an error.
    fn discover(&self) -> Discovery;

    /// Opens a device by its ordinal in [`Backend::discover`].
    ///
    /// # Errors
    /// No such device, or the driver refuses.
    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, BackendError>;

    /// The ordinal of the device that the calling thread has chosen by the vendor's own means (`cudaSetDevice`,
    /// `hipSetDevice`, a current context), where there are such means and it has.
    fn current_device(&self) -> Option<u32> {
        None
    }

    /// Describes an architecture by its name with no such device present, for compiling ahead.
    ///
    /// # Errors
    /// A name that the backend's compiler does not know.
    fn target(&self, arch: &str) -> Result<DeviceInfo, BackendError>;

    /// Solvers, best first; the last is the one that takes everything the backend supports at all.
    fn solvers(&self) -> &'static [&'static dyn Solver];
}

/// What a look for devices found.
#[derive(Debug, Clone, Default)]
pub struct Discovery {
    /// The devices, by ordinal.
    pub devices: Vec<DeviceInfo>,
    /// What was looked for and where, in particular why nothing was found.
    pub notes: Vec<String>,
}

/// What solvers and caches need to know of a device or an architecture.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeviceInfo {
    /// The backend's name.
    pub backend: &'static str,
    /// The device's number in its backend; 0 for an architecture.
    pub ordinal: u32,
    /// The maker's name of the device.
    pub name: String,
    /// What kernels are compiled for: `x86-64+avx512`, `sm_90a`, `gfx942:sramecc+:xnack-`.
    pub arch: String,
    /// The compiler and its version, which shape a binary; empty where there is none, and stored binaries of
    /// any have to do.
    pub toolchain: String,
    /// Cores, multiprocessors or compute units.
    pub compute_units: u32,
    /// Threads that run in lockstep, or f32 lanes of a vector register.
    pub lanes: u32,
    /// Bytes of memory that a work-group shares; the size of the first-level data cache on a CPU.
    pub local_memory: usize,
    /// Bytes of memory.
    pub memory: u64,
}

/// The measured peaks of a device: the two lines of its roofline, which a kernel is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peaks {
    /// Floating-point operations a second.
    pub flops: f64,
    /// Bytes read plus written a second.
    pub bytes: f64,
}

/// The backend's own stream (`cudaStream_t`, `hipStream_t`); null is its default stream. Ignored on CPUs.
pub type RawStream = *mut c_void;

/// A stream and what keeps it alive.
#[derive(Debug, Clone)]
pub struct Stream {
    raw: RawStream,
    _owner: Option<Arc<dyn StreamOwner>>,
}

/// Something whose drop ends a stream.
pub trait StreamOwner: Debug + Send + Sync {}

impl Stream {
    /// A stream that ends when the last copy of the result is dropped.
    pub fn owned(raw: RawStream, owner: Arc<dyn StreamOwner>) -> Self {
        Stream { raw, _owner: Some(owner) }
    }

    /// A stream that somebody else owns; it is used, never ended.
    pub fn borrowed(raw: RawStream) -> Self {
        Stream { raw, _owner: None }
    }

    /// The backend's own stream.
    pub fn raw(&self) -> RawStream {
        self.raw
    }
}

// SAFETY: a stream is an address that only the backend's driver dereferences, and drivers accept a stream
// from any thread.
unsafe impl Send for Stream {}
// SAFETY: a shared stream gives a copy of its address, which drivers take from several threads at once.
unsafe impl Sync for Stream {}

/// An opened device.
pub trait Device: Debug + Send + Sync {
    /// What it is.
    fn info(&self) -> &DeviceInfo;

    /// Its memory.
    fn memory(&self) -> &dyn Memory;

    /// A new stream of its own.
    ///
    /// # Errors
    /// The driver refuses.
    fn create_stream(&self) -> Result<Stream, BackendError>;

    /// Waits until everything in `stream` has run.
    ///
    /// # Errors
    /// The driver refuses, or reports the failure of an earlier launch.
    fn synchronize(&self, stream: &Stream) -> Result<(), BackendError>;

    /// Runs `work`, which launches into `stream`, and waits: the time that the device took.
    ///
    /// # Errors
    /// What `work` returns, or the driver refuses.
    fn time(
        &self,
        stream: &Stream,
        work: &mut dyn FnMut() -> Result<(), RunError>,
    ) -> Result<Duration, RunError>;

    /// The device's peaks for arithmetic in `data_type`, measured the first time (well under a second).
    ///
    /// # Errors
    /// The device refuses.
    fn peaks(&self, data_type: DataType) -> Result<Peaks, BackendError>;

    /// What records executions as graphs; none on devices that have no such thing.
    fn graphs(&self) -> Option<Arc<dyn GraphDriver>> {
        None
    }

    /// For a backend's own solvers to find their device again.
    fn as_any(&self) -> &dyn Any;
}

/// Where a device's pointers point to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// Memory that Rust slices live in.
    Host,
    /// Memory that only the device's driver may touch.
    Device,
}

/// A device's memory. All copies and fills are ordered with `stream`.
pub trait Memory: Debug + Send + Sync {
    /// Whether host slices can be used directly.
    fn kind(&self) -> MemoryKind;

    /// At least `bytes` bytes, aligned to 256. Zero bytes give a pointer that may be freed.
    ///
    /// # Errors
    /// Out of memory.
    fn allocate(&self, bytes: usize) -> Result<*mut c_void, BackendError>;

    /// Gives memory back.
    ///
    /// # Safety
    /// `pointer` came from `allocate(bytes)` of this memory, is given back once, and nothing uses it.
    unsafe fn free(&self, pointer: *mut c_void, bytes: usize);

    /// Copies from the host; `source` may be reused on return.
    ///
    /// # Errors
    /// The driver refuses.
    ///
    /// # Safety
    /// `target` has room for `source.len()` bytes of this memory.
    unsafe fn copy_in(&self, target: *mut c_void, source: &[u8], stream: &Stream)
    -> Result<(), BackendError>;

    /// Overwrites with zeros.
    ///
    /// # Errors
    /// The driver refuses.
    ///
    /// # Safety
    /// `target` has room for `bytes` bytes of this memory.
    unsafe fn zero(&self, target: *mut c_void, bytes: usize, stream: &Stream) -> Result<(), BackendError>;

    /// Copies to the host and waits.
    ///
    /// # Errors
    /// The driver refuses.
    ///
    /// # Safety
    /// `source` has `target.len()` initialised bytes of this memory.
    unsafe fn copy_out(
        &self,
        target: &mut [u8],
        source: *const c_void,
        stream: &Stream,
    ) -> Result<(), BackendError>;
}

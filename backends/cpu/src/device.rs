//! The processor as a device: its description, its threads, host memory.

use std::alloc::{Layout, alloc, dealloc};
use std::any::Any;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fuseplan_api::{BackendError, DataType, Device, DeviceInfo, Memory, MemoryKind, Peaks, RunError, Stream};

use crate::element::DATA_TYPES;
use crate::isa::Isa;
use crate::peaks::{self, Measured};
use crate::pool::{ParallelFor, Pool};
use crate::system::{self, MAX_THREADS};

/// The backend's name.
pub(crate) const BACKEND: &str = "cpu";

/// The name of the architecture whose kernels use these instructions, `x86-64+avx512`.
fn arch_of(isa: Isa) -> String {
    let family = if cfg!(target_arch = "x86_64") { "x86-64" } else { std::env::consts::ARCH };
    format!("{family}+{}", isa.name())
}

/// The instructions that an architecture's kernels use.
pub(crate) fn isa_of(arch: &str) -> Result<Isa, BackendError> {
    Isa::ALL.iter().copied().find(|&isa| arch_of(isa) == arch).ok_or_else(|| BackendError::UnknownArch {
        backend: BACKEND,
        arch: arch.into(),
        known: Isa::ALL.iter().map(|&isa| arch_of(isa)).collect::<Vec<_>>().join(", "),
    })
}

/// Describes this machine as a device with `threads` threads that use the instructions of `isa`.
pub(crate) fn this_machine(threads: usize, isa: Isa) -> DeviceInfo {
    DeviceInfo {
        backend: BACKEND,
        ordinal: 0,
        name: system::processor(),
        arch: arch_of(isa),
        toolchain: concat!("fuseplan-cpu ", env!("CARGO_PKG_VERSION")).into(),
        compute_units: threads as u32,
        lanes: isa.lanes() as u32,
        local_memory: system::caches().first,
        memory: system::memory(),
    }
}

/// Describes a processor by the name of its architecture: one thread, and nothing known of its memory.
pub(crate) fn target(arch: &str) -> Result<DeviceInfo, BackendError> {
    Ok(DeviceInfo { name: arch.into(), memory: 0, ..this_machine(1, isa_of(arch)?) })
}

fn check_threads(threads: usize) -> Result<(), BackendError> {
    if (1..=MAX_THREADS).contains(&threads) {
        return Ok(());
    }
    Err(BackendError::Driver {
        backend: BACKEND,
        call: "opening a device",
        text: format!("{threads} threads asked for; 1 to {MAX_THREADS} are possible"),
    })
}

/// An opened processor: threads that wait for work, and the host's memory.
#[derive(Debug)]
pub struct CpuDevice {
    info: DeviceInfo,
    isa: Isa,
    pool: Arc<Pool>,
    peaks: Mutex<Option<Measured>>,
}

impl CpuDevice {
    /// Opens the processor with `threads` threads, the calling one included. Where the system refuses a
    /// thread there are fewer, as [`CpuDevice::threads`] tells.
    ///
    /// # Errors
    /// A number of threads outside of 1..=1024.
    pub fn new(threads: usize) -> Result<Self, BackendError> {
        Self::with_isa(threads, Isa::detect())
    }

    /// Opens the processor as one of a weaker architecture, by a name that
    /// [`Backend::target`](fuseplan_api::Backend::target) accepts: its results are those of such a
    /// processor.
    ///
    /// # Errors
    /// As [`CpuDevice::new`], an unknown name, or instructions that this processor does not have.
    pub fn with_arch(threads: usize, arch: &str) -> Result<Self, BackendError> {
        let isa = isa_of(arch)?;
        if !Isa::available().contains(&isa) {
            return Err(BackendError::Unavailable {
                backend: BACKEND,
                reason: format!("this processor does not have the instructions of {arch}"),
            });
        }
        Self::with_isa(threads, isa)
    }

    /// Opens the processor with the caller's threads.
    ///
    /// # Errors
    /// A number of threads outside of 1..=1024.
    pub fn with_parallel_for(pool: Arc<dyn ParallelFor>) -> Result<Self, BackendError> {
        let threads = pool.threads();
        check_threads(threads)?;
        Ok(Self::of(Pool::of_caller(pool, threads), Isa::detect()))
    }

    /// The names of the architectures that this processor can be, weakest first.
    pub fn architectures() -> Vec<String> {
        Isa::available().iter().map(|&isa| arch_of(isa)).collect()
    }

    fn with_isa(threads: usize, isa: Isa) -> Result<Self, BackendError> {
        check_threads(threads)?;
        Ok(Self::start(threads, isa))
    }

    /// `threads` is in range and the processor has the instructions.
    pub(crate) fn start(threads: usize, isa: Isa) -> Self {
        Self::of(Pool::new(threads), isa)
    }

    fn of(pool: Pool, isa: Isa) -> Self {
        let pool = Arc::new(pool);
        let info = this_machine(pool.threads(), isa);
        CpuDevice { info, isa, pool, peaks: Mutex::new(None) }
    }

    /// The number of threads that an execution uses, the calling one included.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Calls `f` once with each number below `items`, shared out to the threads, and waits. Does not allocate.
    ///
    /// # Errors
    /// `f` panicked, or the caller's pool did, on whichever thread; some items may then be left out.
    pub fn for_each(&self, items: usize, f: &(dyn Fn(usize) + Sync)) -> Result<(), RunError> {
        self.pool.for_each(items, f)
    }

    /// The threads.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The vector instructions that kernels use.
    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }
}

impl Device for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> &dyn Memory {
        &HostMemory
    }

    /// Executions are complete when they return, so all streams are the null one.
    fn create_stream(&self) -> Result<Stream, BackendError> {
        Ok(Stream::borrowed(ptr::null_mut()))
    }

    fn synchronize(&self, _stream: &Stream) -> Result<(), BackendError> {
        Ok(())
    }

    fn time(
        &self,
        _stream: &Stream,
        work: &mut dyn FnMut() -> Result<(), RunError>,
    ) -> Result<Duration, RunError> {
        let start = Instant::now();
        work().map(|()| start.elapsed())
    }

    /// Multiply-adds in f32, in which vectors of 16-bit data are computed too, or products of bf16 where these are faster, and copies
    /// of memory, on all threads; measured once, for about a second at most.
    fn peaks(&self, data_type: DataType) -> Result<Peaks, BackendError> {
        if !DATA_TYPES.contains(&data_type) {
            return Err(BackendError::Unsupported { backend: BACKEND, what: "arithmetic in this data type" });
        }
        let mut measured = self.peaks.lock().unwrap_or_else(PoisonError::into_inner);
        let measured = match *measured {
            Some(measured) => measured,
            None => *measured.insert(peaks::measure(&self.pool, self.isa)?),
        };
        Ok(measured.of(data_type))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The host's memory.
#[derive(Debug)]
struct HostMemory;

const ALIGNMENT: usize = 256;

impl Memory for HostMemory {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn allocate(&self, bytes: usize) -> Result<*mut c_void, BackendError> {
        if bytes == 0 {
            return Ok(ptr::without_provenance_mut(ALIGNMENT));
        }
        let out_of_memory = BackendError::OutOfMemory { backend: BACKEND, bytes };
        let Ok(layout) = Layout::from_size_align(bytes, ALIGNMENT) else { return Err(out_of_memory) };
        // SAFETY: the layout has a size.
        let pointer = unsafe { alloc(layout) };
        if pointer.is_null() { Err(out_of_memory) } else { Ok(pointer.cast()) }
    }

    unsafe fn free(&self, pointer: *mut c_void, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // SAFETY: the caller got the pointer from `allocate(bytes)`, which checked this very layout.
        unsafe { dealloc(pointer.cast(), Layout::from_size_align_unchecked(bytes, ALIGNMENT)) }
    }

    unsafe fn copy_in(
        &self,
        target: *mut c_void,
        source: &[u8],
        _stream: &Stream,
    ) -> Result<(), BackendError> {
        // SAFETY: the caller gives room for as many bytes as the source has.
        unsafe { ptr::copy(source.as_ptr(), target.cast(), source.len()) };
        Ok(())
    }

    unsafe fn zero(&self, target: *mut c_void, bytes: usize, _stream: &Stream) -> Result<(), BackendError> {
        // SAFETY: the caller gives room for as many bytes.
        unsafe { ptr::write_bytes(target.cast::<u8>(), 0, bytes) };
        Ok(())
    }

    unsafe fn copy_out(
        &self,
        target: &mut [u8],
        source: *const c_void,
        _stream: &Stream,
    ) -> Result<(), BackendError> {
        // SAFETY: the caller gives as many initialised bytes as the target has room for.
        unsafe { ptr::copy(source.cast(), target.as_mut_ptr(), target.len()) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_its_end_is_an_error() {
        let stream = Stream::borrowed(ptr::null_mut());
        for bytes in [0, 1, 255, 4096] {
            let memory = HostMemory.allocate(bytes).unwrap();
            assert_eq!(memory as usize % ALIGNMENT, 0);
            let source: Vec<u8> = (0..bytes).map(|i| i as u8).collect();
            let mut back = vec![0; bytes];
            // SAFETY: the memory has as many bytes as both slices, and is freed once.
            unsafe {
                HostMemory.copy_in(memory, &source, &stream).unwrap();
                HostMemory.copy_out(&mut back, memory, &stream).unwrap();
                HostMemory.free(memory, bytes);
            }
            assert_eq!(source, back);
        }
        for bytes in [isize::MAX as usize - 4096, usize::MAX] {
            assert_eq!(
                HostMemory.allocate(bytes),
                Err(BackendError::OutOfMemory { backend: BACKEND, bytes })
            );
        }
    }

    #[test]
    fn peaks_are_measured_once() {
        let device = CpuDevice::new(1).unwrap();
        let peaks = device.peaks(DataType::Float).unwrap();
        assert!(peaks.flops > 1e8 && peaks.bytes > 1e8, "{peaks:?}");
        let again = Instant::now();
        let half = device.peaks(DataType::Half).unwrap();
        let bf16 = device.peaks(DataType::BFloat16).unwrap();
        assert_eq!((half.bytes, bf16.bytes), (peaks.bytes, peaks.bytes));
        match device.isa().name() {
            // Four products of bf16, and one, instead of six.
            "amx" => {
                assert!((1.4..1.6).contains(&(half.flops / peaks.flops)), "{half:?}, {peaks:?}");
                assert!((5.9..6.1).contains(&(bf16.flops / peaks.flops)), "{bf16:?}, {peaks:?}");
            }
            "avx512-bf16" => {
                assert_eq!(half, peaks);
                assert!(bf16.flops >= peaks.flops, "{bf16:?}, {peaks:?}");
            }
            _ => assert_eq!((half, bf16), (peaks, peaks)),
        }
        assert!(again.elapsed() < Duration::from_millis(10));
        assert!(device.peaks(DataType::Double).is_err());
    }

    #[test]
    fn architectures_are_found_by_their_names() {
        for &isa in Isa::ALL {
            let info = target(&arch_of(isa)).unwrap();
            assert_eq!((info.arch, info.lanes), (arch_of(isa), isa.lanes() as u32));
            let device = CpuDevice::with_arch(2, &arch_of(isa));
            assert_eq!(device.is_ok(), Isa::available().contains(&isa));
            if let Ok(device) = device {
                assert_eq!((device.isa(), device.threads()), (isa, 2));
            }
        }
        let error = target("sm_90a").unwrap_err().to_string();
        assert!(
            error.starts_with("cpu: unknown architecture `sm_90a`; known: ") && error.contains("+portable")
        );
    }

    #[test]
    fn absurd_numbers_of_threads_are_refused() {
        for threads in [0, MAX_THREADS + 1, usize::MAX] {
            let error = CpuDevice::new(threads).unwrap_err().to_string();
            assert!(
                error.contains(&format!("{threads} threads asked for; 1 to 1024 are possible")),
                "{error}"
            );
        }
    }
}

//! Devices, their memory, streams and events.

use std::any::Any;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use fuseplan_api::{
    BackendError, Ceilings, DataType, Device, DeviceInfo, GraphDriver, Memory, MemoryKind, RunError, Stream,
    StreamOwner,
};

use fuseplan_gpu::Measured;

use crate::driver::{self, Context, call, status};
use crate::function::Cuda;
use crate::sys::{self, CUdevice, CUdeviceptr, Opaque, Status};
use crate::{BACKEND, arch, compiler};

/// Describes every device, and says of those that cannot be used why.
pub(crate) fn all() -> Result<(Vec<DeviceInfo>, Vec<String>), BackendError> {
    driver::initialise()?;
    let described: Vec<_> = (0..count()?).map(describe).collect();
    let (mut devices, mut notes) = (Vec::new(), Vec::new());
    for device in described {
        match device {
            Ok(info) => devices.push(info),
            Err(error) => notes.push(error.to_string()),
        }
    }
    Ok((devices, notes))
}

fn count() -> Result<u32, BackendError> {
    let mut count = 0;
    // SAFETY: the driver is initialised and writes the number.
    unsafe { call!(cuDeviceGetCount(&mut count)) }?;
    Ok(count.max(0) as u32)
}

fn handle(ordinal: u32) -> Result<CUdevice, BackendError> {
    let mut device = 0;
    // SAFETY: the driver is initialised and writes the device.
    unsafe { call!(cuDeviceGet(&mut device, ordinal as c_int)) }?;
    Ok(device)
}

/// The ordinal of a context's device.
fn ordinal_of(context: &Context) -> Result<Option<u32>, BackendError> {
    for ordinal in 0..count()? {
        if handle(ordinal)? == context.device() {
            return Ok(Some(ordinal));
        }
    }
    Ok(None)
}

/// The ordinal of the device of the calling thread's current context, if there is one.
pub fn current_device() -> Option<u32> {
    driver::initialise().ok()?;
    // SAFETY: null asks for the context that is current now; the result does not leave this function.
    let context = unsafe { Context::adopt(ptr::null_mut()) }.ok()?;
    ordinal_of(&context).ok()?
}

/// A device of the initialised driver.
fn describe(ordinal: u32) -> Result<DeviceInfo, BackendError> {
    let device = handle(ordinal)?;
    let attribute = |which| -> Result<u32, BackendError> {
        let mut value = 0;
        // SAFETY: the driver writes the number.
        unsafe { call!(cuDeviceGetAttribute(&mut value, which, device)) }?;
        Ok(value.max(0) as u32)
    };
    let mut name = [0; 256];
    let mut memory = 0;
    // SAFETY: the driver writes at most as many bytes as it is told, with a final zero, and the numbers.
    unsafe {
        call!(cuDeviceGetName(name.as_mut_ptr().cast::<c_char>(), name.len() as c_int, device))?;
        call!(cuDeviceTotalMem_v2(&mut memory, device))?;
    }
    let name: Vec<u8> = name.into_iter().take_while(|&byte| byte != 0).collect();
    let capability = (
        attribute(sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    let name = String::from_utf8_lossy(&name).into_owned();
    let Some(arch) = arch::of_capability(capability) else {
        let (major, minor) = capability;
        return Err(BackendError::Unavailable {
            backend: BACKEND,
            reason: format!(
                "device {ordinal}, {name}, has compute capability {major}.{minor}; 7.0 and later that \
                             this version knows are supported"
            ),
        });
    };
    Ok(DeviceInfo {
        backend: BACKEND,
        ordinal,
        name,
        arch: arch.name.into(),
        toolchain: compiler::version(),
        compute_units: attribute(sys::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        lanes: attribute(sys::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
        local_memory: attribute(sys::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize,
        memory: memory as u64,
    })
}

/// An opened GPU. Work runs in its primary context, the one that the CUDA runtime uses, or in one that was
/// [adopted](CudaDevice::adopt).
#[derive(Debug)]
pub struct CudaDevice {
    info: DeviceInfo,
    memory: DeviceMemory,
    measured: Measured,
}

impl CudaDevice {
    /// The device of a caller's context (`CUcontext`), in which all work runs then; null is the context that
    /// is the thread's current one. The context is used, never destroyed.
    ///
    /// # Errors
    /// There is no driver, no current context, or the device is not supported.
    ///
    /// # Safety
    /// The context is null or live, and lives until the result, and everything that was made of it, is gone.
    pub unsafe fn adopt(context: *mut c_void) -> Result<Self, BackendError> {
        driver::initialise()?;
        // SAFETY: as promised by the caller.
        let context = unsafe { Context::adopt(context) }?;
        let Some(ordinal) = ordinal_of(&context)? else {
            let reason = "the context is of a device that the driver does not list".into();
            return Err(BackendError::Unavailable { backend: BACKEND, reason });
        };
        Ok(Self::new(describe(ordinal)?, context))
    }

    pub(crate) fn open(ordinal: u32) -> Result<Self, BackendError> {
        driver::initialise()?;
        let count = count()?;
        if ordinal >= count {
            return Err(BackendError::NoDevice { backend: BACKEND, ordinal, count: count as usize });
        }
        let info = describe(ordinal)?;
        Ok(Self::new(info, Context::retain(handle(ordinal)?)?))
    }

    fn new(info: DeviceInfo, context: Context) -> Self {
        let memory = DeviceMemory { context: Arc::new(context) };
        CudaDevice { info, memory, measured: Measured::default() }
    }

    /// The context that work runs in (`CUcontext`).
    pub fn raw_context(&self) -> *mut c_void {
        self.memory.context.raw()
    }

    /// The device behind the contract.
    pub(crate) fn of(device: &dyn Device) -> Result<&Self, BackendError> {
        let foreign = BackendError::Unsupported { backend: BACKEND, what: "a device of another backend" };
        device.as_any().downcast_ref().ok_or(foreign)
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.memory.context
    }
}

impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> &dyn Memory {
        &self.memory
    }

    /// A stream that does not wait for the default stream.
    fn create_stream(&self) -> Result<Stream, BackendError> {
        let _entered = self.context().enter()?;
        let mut raw = ptr::null_mut();
        let flags = sys::CU_STREAM_NON_BLOCKING;
        // SAFETY: the driver writes the stream.
        unsafe { call!(cuStreamCreate(&mut raw, flags)) }?;
        let owner = OwnedStream { raw, context: self.context().clone() };
        Ok(Stream::owned(raw, Arc::new(owner)))
    }

    fn synchronize(&self, stream: &Stream) -> Result<(), BackendError> {
        let _entered = self.context().enter()?;
        // SAFETY: streams that reach a device are its own or were promised to be.
        unsafe { call!(cuStreamSynchronize(stream.raw())) }
    }

    fn time(
        &self,
        stream: &Stream,
        work: &mut dyn FnMut() -> Result<(), RunError>,
    ) -> Result<Duration, RunError> {
        let _entered = self.context().enter()?;
        let (start, end) = (Event::new()?, Event::new()?);
        start.record(stream)?;
        work()?;
        end.record(stream)?;
        Ok(end.since(&start)?)
    }

    fn ceilings(&self, data_type: DataType) -> Result<Ceilings, BackendError> {
        self.measured.get::<Cuda>(self, data_type)
    }

    fn graphs(&self) -> Option<Arc<dyn GraphDriver>> {
        Some(self.context().clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug)]
struct OwnedStream {
    raw: Opaque,
    context: Arc<Context>,
}

// SAFETY: a stream is an address that only the driver dereferences, which takes it from any thread.
unsafe impl Send for OwnedStream {}
// SAFETY: as above.
unsafe impl Sync for OwnedStream {}

impl StreamOwner for OwnedStream {}

impl Drop for OwnedStream {
    fn drop(&mut self) {
        // A stream knows its context; the current one matters to errors only.
        let _entered = self.context.enter();
        // SAFETY: the stream was made by `create_stream` and ends once; work in it still runs to its end.
        let _ = unsafe { call!(cuStreamDestroy_v2(self.raw)) };
    }
}

/// An event of the current context.
struct Event(Opaque);

impl Event {
    fn new() -> Result<Self, BackendError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the driver writes the event.
        unsafe { call!(cuEventCreate(&mut raw, sys::CU_EVENT_DEFAULT)) }?;
        Ok(Event(raw))
    }

    fn record(&self, stream: &Stream) -> Result<(), BackendError> {
        // SAFETY: both are live and of the current context.
        unsafe { call!(cuEventRecord(self.0, stream.raw())) }
    }

    /// Waits for this event; the time since `start`.
    fn since(&self, start: &Event) -> Result<Duration, BackendError> {
        let mut milliseconds = 0.0;
        // SAFETY: both events were recorded; the driver writes the number.
        unsafe {
            call!(cuEventSynchronize(self.0))?;
            call!(cuEventElapsedTime(&mut milliseconds, start.0, self.0))?;
        }
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is live and destroyed once.
        let _ = unsafe { call!(cuEventDestroy_v2(self.0)) };
    }
}

/// Memory of a device.
#[derive(Debug)]
struct DeviceMemory {
    context: Arc<Context>,
}

/// What the contract asks of allocations; the driver's are aligned to more.
const ALIGNMENT: usize = 256;

impl Memory for DeviceMemory {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Device
    }

    fn allocate(&self, bytes: usize) -> Result<*mut c_void, BackendError> {
        if bytes == 0 {
            return Ok(ptr::without_provenance_mut(ALIGNMENT));
        }
        let _entered = self.context.enter()?;
        let mut address = 0;
        // SAFETY: the driver writes the address.
        match unsafe { status!(cuMemAlloc_v2(&mut address, bytes)) }? {
            Status::OUT_OF_MEMORY => Err(BackendError::OutOfMemory { backend: BACKEND, bytes }),
            status => driver::check("cuMemAlloc_v2", status).map(|()| pointer(address)),
        }
    }

    unsafe fn free(&self, pointer: *mut c_void, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let _entered = self.context.enter();
        // SAFETY: the caller got the pointer from `allocate` and gives it back once.
        let _ = unsafe { call!(cuMemFree_v2(pointer as u64)) };
    }

    unsafe fn copy_in(
        &self,
        target: *mut c_void,
        source: &[u8],
        stream: &Stream,
    ) -> Result<(), BackendError> {
        if source.is_empty() {
            return Ok(());
        }
        let _entered = self.context.enter()?;
        let stream = stream.raw();
        // SAFETY: the caller gives room for as many bytes as the source has; waiting keeps the source
        // borrowed until it has been read, pinned or not.
        unsafe {
            call!(cuMemcpyHtoDAsync_v2(target as u64, source.as_ptr().cast(), source.len(), stream))?;
            call!(cuStreamSynchronize(stream))
        }
    }

    unsafe fn zero(&self, target: *mut c_void, bytes: usize, stream: &Stream) -> Result<(), BackendError> {
        if bytes == 0 {
            return Ok(());
        }
        let _entered = self.context.enter()?;
        // SAFETY: the caller gives room for as many bytes.
        unsafe { call!(cuMemsetD8Async(target as u64, 0, bytes, stream.raw())) }
    }

    unsafe fn copy_out(
        &self,
        target: &mut [u8],
        source: *const c_void,
        stream: &Stream,
    ) -> Result<(), BackendError> {
        if target.is_empty() {
            return Ok(());
        }
        let _entered = self.context.enter()?;
        let stream = stream.raw();
        // SAFETY: the caller gives as many initialised bytes as the target has room for; waiting keeps the
        // target borrowed until it has been written.
        unsafe {
            call!(cuMemcpyDtoHAsync_v2(target.as_mut_ptr().cast(), source as u64, target.len(), stream))?;
            call!(cuStreamSynchronize(stream))
        }
    }
}

/// A device's address as a pointer, which nothing on the host dereferences.
fn pointer(address: CUdeviceptr) -> *mut c_void {
    ptr::without_provenance_mut(address as usize)
}

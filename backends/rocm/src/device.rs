//! Devices, their memory, streams and events.

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fuseplan_api::{
    BackendError, Ceilings, DataType, Device, DeviceInfo, GraphDriver, Memory, MemoryKind, RunError, Stream,
    StreamOwner,
};
use fuseplan_gpu::Measured;
use fuseplan_hip_sys::{
    Hip, hipDeviceAttribute_t as Attribute, hipDeviceProp_tR0600, hipError_t, hipEvent_t, hipMemcpyKind,
    hipModule_t, hipStream_t,
};

use crate::driver::{self, Context, call};
use crate::function::Rocm;
use crate::{BACKEND, arch, compiler};

/// Describes every device, and says of those that cannot be used why.
pub(crate) fn all() -> Result<(Vec<DeviceInfo>, Vec<String>), BackendError> {
    let (hip, count) = driver::initialise()?;
    let (mut devices, mut notes) = (Vec::new(), Vec::new());
    for ordinal in 0..count {
        match describe(hip, ordinal) {
            Ok(info) => devices.push(info),
            Err(error) => notes.push(error.to_string()),
        }
    }
    if count == 0 {
        notes.push(format!("{BACKEND}: {} finds no device", compiler::runtime()));
    }
    Ok((devices, notes))
}

/// A device of the initialised runtime.
fn describe(hip: &Hip, ordinal: u32) -> Result<DeviceInfo, BackendError> {
    let device = ordinal as c_int;
    let mut properties = MaybeUninit::<hipDeviceProp_tR0600>::zeroed();
    // SAFETY: the runtime fills the structure, for which zeros are valid too.
    let properties = unsafe {
        call!(hip, hipGetDevicePropertiesR0600(properties.as_mut_ptr(), device))?;
        properties.assume_init()
    };
    let attribute = |which| -> Result<u32, BackendError> {
        let mut value = 0;
        // SAFETY: the runtime writes the number.
        unsafe { call!(hip, hipDeviceGetAttribute(&mut value, which, device)) }?;
        Ok(value.max(0) as u32)
    };
    let (name, arch) = (text(&properties.name), text(&properties.gcnArchName));
    let refuse = |reason: String| {
        let reason = format!("device {ordinal}, {name}, {reason}");
        Err(BackendError::Unavailable { backend: BACKEND, reason })
    };
    let Some(known) = arch::named(&arch) else {
        let names = arch::ARCHS.map(|arch| arch.name).join(", ");
        return refuse(format!("is {arch}; supported are {names}"));
    };
    let wave = attribute(Attribute::hipDeviceAttributeWarpSize)?;
    if wave != known.wave {
        return refuse(format!(
            "says that its waves have {wave} threads; those of {arch} have {}",
            known.wave
        ));
    }
    Ok(DeviceInfo {
        backend: BACKEND,
        ordinal,
        toolchain: compiler::version(),
        compute_units: attribute(Attribute::hipDeviceAttributeMultiprocessorCount)?,
        lanes: wave,
        local_memory: attribute(Attribute::hipDeviceAttributeMaxSharedMemoryPerBlock)? as usize,
        memory: properties.totalGlobalMem as u64,
        name,
        arch,
    })
}

/// The text in a field, which ends in a zero or where the field ends.
fn text(field: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An opened GPU.
#[derive(Debug)]
pub struct RocmDevice {
    info: DeviceInfo,
    context: Context,
    modules: Arc<Modules>,
    measured: Measured,
}

impl RocmDevice {
    pub(crate) fn open(ordinal: u32) -> Result<Self, BackendError> {
        let (hip, count) = driver::initialise()?;
        if ordinal >= count {
            return Err(BackendError::NoDevice { backend: BACKEND, ordinal, count: count as usize });
        }
        let info = describe(hip, ordinal)?;
        let context = Context { hip, ordinal: ordinal as c_int };
        let modules = Arc::new(Modules { context, loaded: Mutex::default() });
        Ok(RocmDevice { info, context, modules, measured: Measured::default() })
    }

    pub(crate) fn modules(&self) -> &Arc<Modules> {
        &self.modules
    }
}

/// The modules that a device has loaded. They stay as long as the device, a kernel of it or a graph is in use: work
/// in some stream may still need one when its plan is gone, and unloading does not wait.
#[derive(Debug)]
pub(crate) struct Modules {
    pub(crate) context: Context,
    loaded: Mutex<HashMap<Box<[u8]>, Module>>,
}

#[derive(Debug)]
struct Module(hipModule_t);

// SAFETY: a module is an address that only the runtime dereferences, which takes it from any thread.
unsafe impl Send for Module {}

impl Modules {
    /// The module of an image, loaded if it is not yet.
    pub(crate) fn get(&self, image: &[u8]) -> Result<hipModule_t, BackendError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        match loaded.entry(image.into()) {
            Entry::Occupied(module) => Ok(module.get().0),
            Entry::Vacant(place) => {
                let _entered = self.context.enter()?;
                let (mut module, image) = (ptr::null_mut(), place.key().as_ptr());
                // SAFETY: the image is a whole code object, as the compiler made it. The runtime may keep its address:
                // it is the table's own copy, which stays until the module is unloaded.
                unsafe { call!(self.context.hip, hipModuleLoadData(&mut module, image.cast())) }?;
                Ok(place.insert(Module(module)).0)
            }
        }
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        // A module knows its device; the current one matters to errors only.
        let _entered = self.context.enter();
        for module in self.loaded.get_mut().unwrap_or_else(PoisonError::into_inner).values() {
            // SAFETY: the module is unloaded once, and no function of it is left.
            let _ = unsafe { call!(self.context.hip, hipModuleUnload(module.0)) };
        }
    }
}

impl Device for RocmDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> &dyn Memory {
        &self.context
    }

    /// A stream that does not wait for the default stream.
    fn create_stream(&self) -> Result<Stream, BackendError> {
        /// `hipStreamNonBlocking`.
        const NON_BLOCKING: u32 = 1;
        let _entered = self.context.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the runtime writes the stream.
        unsafe { call!(self.context.hip, hipStreamCreateWithFlags(&mut raw, NON_BLOCKING)) }?;
        let owner = OwnedStream { raw, context: self.context };
        Ok(Stream::owned(raw.cast(), Arc::new(owner)))
    }

    fn synchronize(&self, stream: &Stream) -> Result<(), BackendError> {
        let _entered = self.context.enter()?;
        // SAFETY: streams that reach a device are its own or were promised to be.
        unsafe { call!(self.context.hip, hipStreamSynchronize(stream.raw().cast())) }
    }

    fn time(
        &self,
        stream: &Stream,
        work: &mut dyn FnMut() -> Result<(), RunError>,
    ) -> Result<Duration, RunError> {
        let _entered = self.context.enter()?;
        let hip = self.context.hip;
        let (start, end) = (Event::new(hip)?, Event::new(hip)?);
        start.record(stream)?;
        work()?;
        end.record(stream)?;
        Ok(end.since(&start)?)
    }

    fn ceilings(&self, data_type: DataType) -> Result<Ceilings, BackendError> {
        self.measured.get::<Rocm>(self, data_type)
    }

    fn graphs(&self) -> Option<Arc<dyn GraphDriver>> {
        Some(self.modules.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug)]
struct OwnedStream {
    raw: hipStream_t,
    context: Context,
}

// SAFETY: a stream is an address that only the runtime dereferences, which takes it from any thread.
unsafe impl Send for OwnedStream {}
// SAFETY: as above.
unsafe impl Sync for OwnedStream {}

impl StreamOwner for OwnedStream {}

impl Drop for OwnedStream {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // SAFETY: the stream was made by `create_stream` and ends once; work in it still runs to its end.
        let _ = unsafe { call!(self.context.hip, hipStreamDestroy(self.raw)) };
    }
}

/// An event of the current device.
struct Event {
    hip: &'static Hip,
    raw: hipEvent_t,
}

impl Event {
    fn new(hip: &'static Hip) -> Result<Self, BackendError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the runtime writes the event.
        unsafe { call!(hip, hipEventCreateWithFlags(&mut raw, 0)) }?;
        Ok(Event { hip, raw })
    }

    fn record(&self, stream: &Stream) -> Result<(), BackendError> {
        // SAFETY: both are live and of the current device.
        unsafe { call!(self.hip, hipEventRecord(self.raw, stream.raw().cast())) }
    }

    /// Waits for this event; the time since `start`.
    fn since(&self, start: &Event) -> Result<Duration, BackendError> {
        let mut milliseconds = 0.0;
        // SAFETY: both events were recorded; the runtime writes the number.
        unsafe {
            call!(self.hip, hipEventSynchronize(self.raw))?;
            call!(self.hip, hipEventElapsedTime(&mut milliseconds, start.raw, self.raw))?;
        }
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is live and destroyed once.
        let _ = unsafe { call!(self.hip, hipEventDestroy(self.raw)) };
    }
}

/// What the contract asks of allocations; the runtime's are aligned to more.
const ALIGNMENT: usize = 256;

impl Context {
    /// Copies and waits.
    ///
    /// # Safety
    /// Both places have as many bytes, on the sides that `kind` says.
    unsafe fn copy(
        &self,
        target: *mut c_void,
        source: *const c_void,
        bytes: usize,
        kind: hipMemcpyKind,
        stream: &Stream,
    ) -> Result<(), BackendError> {
        if bytes == 0 {
            return Ok(());
        }
        let _entered = self.enter()?;
        let stream: hipStream_t = stream.raw().cast();
        // SAFETY: as of this function; waiting keeps the host's side borrowed until it has been used, pinned or
        // not.
        unsafe {
            call!(self.hip, hipMemcpyAsync(target, source, bytes, kind, stream))?;
            call!(self.hip, hipStreamSynchronize(stream))
        }
    }
}

/// Memory of the device.
impl Memory for Context {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Device
    }

    fn allocate(&self, bytes: usize) -> Result<*mut c_void, BackendError> {
        if bytes == 0 {
            return Ok(ptr::without_provenance_mut(ALIGNMENT));
        }
        let _entered = self.enter()?;
        let mut address = ptr::null_mut();
        // SAFETY: the runtime writes the address.
        match unsafe { self.hip.hipMalloc(&mut address, bytes) } {
            hipError_t::hipErrorOutOfMemory => Err(BackendError::OutOfMemory { backend: BACKEND, bytes }),
            result => driver::check(self.hip, "hipMalloc", result).map(|()| address),
        }
    }

    unsafe fn free(&self, pointer: *mut c_void, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let _entered = self.enter();
        // SAFETY: the caller got the pointer from `allocate` and gives it back once.
        let _ = unsafe { call!(self.hip, hipFree(pointer)) };
    }

    unsafe fn copy_in(
        &self,
        target: *mut c_void,
        source: &[u8],
        stream: &Stream,
    ) -> Result<(), BackendError> {
        let kind = hipMemcpyKind::hipMemcpyHostToDevice;
        // SAFETY: the caller gives room for as many bytes as the source has.
        unsafe { self.copy(target, source.as_ptr().cast(), source.len(), kind, stream) }
    }

    unsafe fn zero(&self, target: *mut c_void, bytes: usize, stream: &Stream) -> Result<(), BackendError> {
        if bytes == 0 {
            return Ok(());
        }
        let _entered = self.enter()?;
        // SAFETY: the caller gives room for as many bytes.
        unsafe { call!(self.hip, hipMemsetAsync(target, 0, bytes, stream.raw().cast())) }
    }

    unsafe fn copy_out(
        &self,
        target: &mut [u8],
        source: *const c_void,
        stream: &Stream,
    ) -> Result<(), BackendError> {
        let kind = hipMemcpyKind::hipMemcpyDeviceToHost;
        // SAFETY: the caller gives as many initialised bytes as the target has room for.
        unsafe { self.copy(target.as_mut_ptr().cast(), source, target.len(), kind, stream) }
    }
}

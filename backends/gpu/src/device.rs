//! Devices over their driver: memory, streams, time.

use std::any::Any;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use fuseplan_api::{
    BackendError, DataType, Device, DeviceInfo, Discovery, GraphDriver, Memory, MemoryKind, Peaks, RunError,
    Stream, StreamOwner,
};

use crate::peaks::Measured;
use crate::{Context, Driver, Entered, Function, Geometry, Object, RawEvent, Runtime};

/// Describes every device, and says of those that cannot be used why.
pub fn discover<D: Driver>() -> Discovery {
    let mut discovery = Discovery::default();
    match D::count() {
        Ok(count) => {
            for ordinal in 0..count {
                match D::describe(ordinal) {
                    Ok(info) => discovery.devices.push(info),
                    Err(error) => discovery.notes.push(error.to_string()),
                }
            }
        }
        Err(error) => discovery.notes.push(error.to_string()),
    }
    discovery
}

/// An opened GPU.
#[derive(Debug)]
pub struct GpuDevice<R: Runtime> {
    info: DeviceInfo,
    pub(crate) context: Arc<Context<R>>,
    measured: Measured,
}

impl<R: Runtime> GpuDevice<R> {
    /// Opens a device by its ordinal.
    ///
    /// # Errors
    /// No such device, one that the backend cannot use, or the driver refuses.
    pub fn open(ordinal: u32) -> Result<Self, BackendError> {
        let count = R::count()?;
        if ordinal >= count {
            return Err(BackendError::NoDevice { backend: R::BACKEND, ordinal, count: count as usize });
        }
        Ok(Self::new(R::describe(ordinal)?, R::open(ordinal)?))
    }

    /// The device that a driver was opened for.
    pub fn new(info: DeviceInfo, driver: R) -> Self {
        GpuDevice { info, context: Arc::new(Context::new(driver)), measured: Measured::default() }
    }

    /// The device behind the contract.
    ///
    /// # Errors
    /// It is another backend's.
    pub fn of(device: &dyn Device) -> Result<&Self, BackendError> {
        let foreign = BackendError::Unsupported { backend: R::BACKEND, what: "a device of another backend" };
        device.as_any().downcast_ref().ok_or(foreign)
    }

    /// What it is driven by.
    pub fn driver(&self) -> &R {
        self.context.driver()
    }

    /// Loads an image that was compiled for the device's architecture. `geometry` is what it will be launched with.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn load(&self, image: &[u8], geometry: &Geometry) -> Result<Function<R>, BackendError> {
        Function::load(&self.context, image, geometry)
    }
}

impl<R: Runtime> Device for GpuDevice<R> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> &dyn Memory {
        &*self.context
    }

    /// A stream that does not wait for the default stream.
    fn create_stream(&self) -> Result<Stream, BackendError> {
        // SAFETY: the context is entered.
        let raw = unsafe { self.context.enter()?.create_stream() }?;
        let owner = OwnedStream { object: Object(raw), context: self.context.clone() };
        Ok(Stream::owned(raw, Arc::new(owner)))
    }

    fn synchronize(&self, stream: &Stream) -> Result<(), BackendError> {
        // SAFETY: streams that reach a device are its own or were promised to be.
        unsafe { self.context.enter()?.synchronize(stream.raw()) }
    }

    fn time(
        &self,
        stream: &Stream,
        work: &mut dyn FnMut() -> Result<(), RunError>,
    ) -> Result<Duration, RunError> {
        self.context.time(stream, work)
    }

    fn peaks(&self, data_type: DataType) -> Result<Peaks, BackendError> {
        self.measured.get(self, data_type)
    }

    fn graphs(&self) -> Option<Arc<dyn GraphDriver>> {
        Some(self.context.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug)]
struct OwnedStream<D: Driver> {
    object: Object,
    context: Arc<Context<D>>,
}

impl<D: Driver> StreamOwner for OwnedStream<D> {}

impl<D: Driver> Drop for OwnedStream<D> {
    fn drop(&mut self) {
        // SAFETY: the stream was made by `create_stream` and ends once.
        self.context.give_back(|driver| unsafe { driver.destroy_stream(self.object.0) });
    }
}

impl<D: Driver> Context<D> {
    /// Runs `work`, which launches into `stream`, and waits: the time that the device took.
    pub(crate) fn time<E: From<BackendError>>(
        &self,
        stream: &Stream,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<Duration, E> {
        let driver = self.enter()?;
        let (start, end) = (Event::new(&driver)?, Event::new(&driver)?);
        start.record(stream)?;
        work()?;
        end.record(stream)?;
        Ok(end.since(&start)?)
    }
}

/// An event of the device that was entered.
struct Event<'a, D: Driver> {
    driver: &'a Entered<'a, D>,
    raw: RawEvent,
}

impl<'a, D: Driver> Event<'a, D> {
    fn new(driver: &'a Entered<'a, D>) -> Result<Self, BackendError> {
        // SAFETY: the context is entered.
        let raw = unsafe { driver.create_event() }?;
        Ok(Event { driver, raw })
    }

    fn record(&self, stream: &Stream) -> Result<(), BackendError> {
        // SAFETY: the event is live, and streams that reach a device are its own or were promised to be.
        unsafe { self.driver.record(self.raw, stream.raw()) }
    }

    /// Waits for this event; the time since `start`. Both were recorded.
    fn since(&self, start: &Self) -> Result<Duration, BackendError> {
        // SAFETY: the event is live.
        unsafe { self.driver.wait_for(self.raw) }?;
        // SAFETY: both events are live; this one has come, and so has the other, which was recorded before it.
        let milliseconds = unsafe { self.driver.milliseconds(start.raw, self.raw) }?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl<D: Driver> Drop for Event<'_, D> {
    fn drop(&mut self) {
        // SAFETY: the event is live and destroyed once. Of a driver that refuses nobody could be told.
        let _ = unsafe { self.driver.destroy_event(self.raw) };
    }
}

/// What the contract asks of allocations; drivers' are aligned to more.
const ALIGNMENT: usize = 256;

/// Memory of the device.
impl<D: Driver> Memory for Context<D> {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Device
    }

    fn allocate(&self, bytes: usize) -> Result<*mut c_void, BackendError> {
        if bytes == 0 {
            return Ok(ptr::without_provenance_mut(ALIGNMENT));
        }
        // SAFETY: the context is entered.
        unsafe { self.enter()?.allocate(bytes) }
    }

    unsafe fn free(&self, pointer: *mut c_void, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // SAFETY: the caller got the pointer from `allocate` and gives it back once.
        self.give_back(|driver| unsafe { driver.free(pointer) });
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
        let driver = self.enter()?;
        // SAFETY: the caller gives room for as many bytes as the source has, which stays borrowed until the stream has
        // been waited for, since memory of the host that is pinned is read after the call.
        unsafe { driver.copy_in(target, source, stream.raw()) }?;
        // SAFETY: streams that reach a device are its own or were promised to be.
        unsafe { driver.synchronize(stream.raw()) }
    }

    unsafe fn zero(&self, target: *mut c_void, bytes: usize, stream: &Stream) -> Result<(), BackendError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller gives room for as many bytes.
        unsafe { self.enter()?.zero(target, bytes, stream.raw()) }
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
        let driver = self.enter()?;
        // SAFETY: the caller gives as many initialised bytes as the target has room for, which stays borrowed until the
        // stream has been waited for, since memory of the host that is pinned is written after the call.
        unsafe { driver.copy_out(target, source, stream.raw()) }?;
        // SAFETY: streams that reach a device are its own or were promised to be.
        unsafe { driver.synchronize(stream.raw()) }
    }
}

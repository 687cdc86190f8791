//! cudarc's streams and memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, DriverError, SyncOnDrop};
use fuseplan_api::{BackendError, Element, Stream, StreamOwner};
use fuseplan_cuda::CudaBackend;

use crate::args::{Operand, OperandMut, Place};
use crate::handle::Handle;

/// A handle on a stream of cudarc's, and the way for plans to cudarc's memory.
///
/// cudarc tracks which streams use a `CudaSlice`; [`read`](Self::read) and [`write`](Self::write) take part in
/// that: the stream waits, on the device, for what others did to the memory, and others wait for what was
/// executed here. Nothing is allocated, and nothing waits on the host.
///
/// ```no_run
/// use cudarc::driver::CudaContext;
/// use fuseplan::{cuda::CudarcHandle, *};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let stream = CudaContext::new(0)?.new_stream()?;
/// let handle = CudarcHandle::new(stream.clone())?;
/// let x = TensorDescriptor::nchw(DataType::Float, [1, 1, 2, 2])?;
/// let mut plan = FusionPlan::for_device(&*handle, x)?;
/// let relu = plan.append(ActivationForward::new(ActivationMode::Relu))?;
/// let compiled = plan.compile(&handle)?;
///
/// let input = stream.clone_htod(&[1.0f32, -2.0, 3.0, -4.0])?;
/// let mut output = stream.alloc_zeros::<f32>(4)?;
/// let mut args = OperatorArgs::new();
/// args.set(relu, Activation::Relu);
/// {
///     let (from, mut to) = (handle.read(&input)?, handle.write(&mut output)?);
///     compiled.execute(&handle, Tensor::new(&x, &from), TensorMut::new(&x, &mut to), &args)?;
/// }
/// assert_eq!(stream.clone_dtoh(&output)?, [1.0, 0.0, 3.0, 0.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct CudarcHandle {
    handle: Handle,
    stream: Arc<CudaStream>,
}

/// Keeps a stream of cudarc's.
#[derive(Debug)]
struct Owner {
    _stream: Arc<CudaStream>,
}

impl StreamOwner for Owner {}

impl CudarcHandle {
    /// A handle of the stream's device whose plans run on the stream, which it keeps alive.
    ///
    /// # Errors
    /// The device is not supported; the stream is of another context than the device's primary one; it is the
    /// default stream of each thread, which is another one for other threads.
    pub fn new(stream: Arc<CudaStream>) -> Result<Self, BackendError> {
        let unavailable = |reason: &str| BackendError::Unavailable { backend: "cuda", reason: reason.into() };
        let context = stream.context();
        let ordinal = u32::try_from(context.ordinal()).map_err(|_| unavailable("there is no such device"))?;
        let handle = Handle::open("cuda", ordinal)?;
        let device = handle.context().device();
        if CudaBackend::context_of(&**device) != Some(context.cu_ctx().cast()) {
            return Err(unavailable("the stream is not of its device's primary context"));
        }
        let raw = stream.cu_stream();
        if raw.addr() == PER_THREAD {
            return Err(unavailable("the per-thread default stream is not one stream"));
        }
        let owned = Stream::owned(raw.cast(), Arc::new(Owner { _stream: stream.clone() }));
        Ok(CudarcHandle { handle: handle.on_stream(owned), stream })
    }

    /// Memory for plans on this handle to read: a `CudaSlice` or a view of one. Drop the result when the plans
    /// have been executed.
    ///
    /// # Errors
    /// Memory of another context.
    pub fn read<'a, T: Element>(
        &'a self,
        slice: &'a impl DevicePtr<T>,
    ) -> Result<Reading<'a, T>, BackendError> {
        self.check(slice)?;
        let bytes = slice.num_bytes();
        let (address, sync) = slice.device_ptr(&self.stream);
        let tracked = Tracked { handle: &self.handle, sync };
        Ok(Reading(Use { address, bytes, tracked, element: PhantomData }))
    }

    /// Memory for plans on this handle to write, or to read and write. Drop the result when the plans have been
    /// executed.
    ///
    /// # Errors
    /// Memory of another context.
    pub fn write<'a, T: Element>(
        &'a self,
        slice: &'a mut impl DevicePtrMut<T>,
    ) -> Result<Writing<'a, T>, BackendError> {
        self.check(slice)?;
        let bytes = slice.num_bytes();
        let (address, sync) = slice.device_ptr_mut(&self.stream);
        let tracked = Tracked { handle: &self.handle, sync };
        Ok(Writing(Use { address, bytes, tracked, element: PhantomData }))
    }

    fn check<T>(&self, slice: &impl DeviceSlice<T>) -> Result<(), BackendError> {
        if slice.stream().context().cu_ctx() == self.stream.context().cu_ctx() {
            return Ok(());
        }
        let reason = "the memory is of another context than the handle's stream".into();
        Err(BackendError::Unavailable { backend: "cuda", reason })
    }
}

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

/// A handle is all that plans ask for.
impl Deref for CudarcHandle {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

/// cudarc's memory while plans on a handle may use it.
struct Use<'a, T> {
    address: u64,
    bytes: usize,
    tracked: Tracked<'a>,
    element: PhantomData<T>,
}

/// The stream that uses some of cudarc's memory, and how cudarc hears of it.
pub(crate) struct Tracked<'a> {
    handle: &'a Handle,
    sync: SyncOnDrop<'a>,
}

impl Tracked<'_> {
    pub(crate) fn handle(&self) -> &Handle {
        self.handle
    }

    /// Tells cudarc that something was launched that uses the memory. It hears so again when this is dropped; but a
    /// value may be forgotten.
    pub(crate) fn launched(&self) -> Result<(), BackendError> {
        let (call, result) = match &self.sync {
            SyncOnDrop::Record(Some((event, stream)))
                if stream.context().is_managing_stream_synchronization() =>
            {
                ("cuEventRecord", event.record(stream))
            }
            SyncOnDrop::Sync(Some(stream)) => ("cuStreamSynchronize", stream.synchronize()),
            _ => return Ok(()),
        };
        let text = |error: DriverError| format!("{} ({})", error, error.0 as u32);
        result.map_err(|error| BackendError::Driver { backend: "cuda", call, text: text(error) })
    }
}

impl fmt::Debug for Tracked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "on {}", self.handle.target())
    }
}

/// cudarc's memory while plans on a handle may read it: an operand. Made by [`CudarcHandle::read`].
pub struct Reading<'a, T>(Use<'a, T>);

/// cudarc's memory while plans on a handle may write it: an operand. Made by [`CudarcHandle::write`].
pub struct Writing<'a, T>(Use<'a, T>);

/// The contents cannot change as long as the borrow lasts.
impl<'a, T: Element> From<&'a Reading<'_, T>> for Operand<'a> {
    fn from(Reading(used): &'a Reading<'_, T>) -> Self {
        let address = std::ptr::without_provenance(used.address as usize);
        Operand::new(address, used.bytes, T::DATA_TYPE, Place::Stream(&used.tracked))
    }
}

impl<'a, T: Element> From<&'a mut Writing<'_, T>> for OperandMut<'a> {
    fn from(Writing(used): &'a mut Writing<'_, T>) -> Self {
        let address = std::ptr::without_provenance(used.address as usize);
        OperandMut::new(address, Some(used.bytes), Some(T::DATA_TYPE), Place::Stream(&used.tracked))
    }
}

impl<T> fmt::Debug for Use<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x} {:?}", self.bytes, self.address, self.tracked)
    }
}

impl<T> fmt::Debug for Reading<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reading({:?})", self.0)
    }
}

impl<T> fmt::Debug for Writing<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writing({:?})", self.0)
    }
}

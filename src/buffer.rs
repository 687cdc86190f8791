//! Memory of a device: owned, typed, and ordered with the streams that use it.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fuseplan_api::{BackendError, Element, MemoryKind, Stream, call, fork};
use thiserror::Error;

use crate::context::Context;
use crate::handle::Handle;

/// Elements in the memory of a handle's device, for plans to read and write where they lie.
///
/// Copies to and from it are ordered with the stream of the handle that it was made with. Plans may use it
/// with any handle of that device: what uses it on another stream waits, on the host, until the earlier
/// use that it must not overtake has passed. It is freed when it is dropped, once every stream that used
/// it has passed.
///
/// A graph that was captured from an execution keeps the address, not the buffer.
///
/// ```
/// use fuseplan::*;
/// # fn main() -> Result<(), Error> {
/// let handle = Handle::new()?;
/// let x = TensorDescriptor::nchw(DataType::Float, [1, 2, 2, 1])?;
/// let mut plan = FusionPlan::new(x)?;
/// let relu = plan.append(ActivationForward::new(ActivationMode::Relu))?;
/// let compiled = plan.compile(&handle)?;
///
/// let input = DeviceBuffer::from_slice(&handle, &[1.0f32, -2.0, 3.0, -4.0])?;
/// let mut output = DeviceBuffer::<f32>::zeroed(&handle, 4)?;
/// let mut args = OperatorArgs::new();
/// args.set(relu, Activation::Relu);
/// // Returns at once on a GPU; reading the result waits.
/// compiled.execute(&handle, Tensor::new(&x, &input), TensorMut::new(&x, &mut output), &args)?;
/// assert_eq!(output.to_vec()?, [1.0, 0.0, 3.0, 0.0]);
/// # Ok(())
/// # }
/// ```
pub struct DeviceBuffer<T> {
    block: Block,
    handle: Handle,
    len: usize,
    element: PhantomData<T>,
}

/// A copy between a buffer and a slice that failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BufferError {
    /// The slice and the buffer are of different lengths.
    #[error("the slice has {found} elements, the buffer {expected}")]
    Length {
        /// Elements of the slice.
        found: usize,
        /// Elements of the buffer.
        expected: usize,
    },
    /// The device refused.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl<T: Element> DeviceBuffer<T> {
    /// `len` zeros.
    ///
    /// # Errors
    /// Out of memory; the driver refuses.
    pub fn zeroed(handle: &Handle, len: usize) -> Result<Self, BackendError> {
        call(|| {
            let buffer = Self::allocate(handle, len)?;
            buffer.block.zero(handle)?;
            Ok(buffer)
        })
    }

    /// A copy of a slice.
    ///
    /// # Errors
    /// Out of memory; the driver refuses.
    pub fn from_slice(handle: &Handle, slice: &[T]) -> Result<Self, BackendError> {
        call(|| {
            let buffer = Self::allocate(handle, slice.len())?;
            buffer.block.write(bytes_of(slice), handle)?;
            Ok(buffer)
        })
    }

    fn allocate(handle: &Handle, len: usize) -> Result<Self, BackendError> {
        fork::usable()?;
        // A size that does not fit the address space is one that no device has.
        let bytes = len.saturating_mul(size_of::<T>());
        let block = Block::new(handle, bytes)?;
        Ok(DeviceBuffer { block, handle: handle.clone(), len, element: PhantomData })
    }

    /// Overwrites all elements.
    ///
    /// # Errors
    /// A slice of another length; the driver refuses.
    pub fn copy_from(&mut self, slice: &[T]) -> Result<(), BufferError> {
        self.check_length(slice.len())?;
        Ok(call(|| self.block.write(bytes_of(slice), &self.handle))?)
    }

    /// Waits for what is in the handle's stream, and reads all elements.
    ///
    /// # Errors
    /// A slice of another length; the driver refuses, or reports the failure of an earlier launch.
    pub fn copy_to(&self, slice: &mut [T]) -> Result<(), BufferError> {
        self.check_length(slice.len())?;
        Ok(call(|| self.block.read(bytes_of_mut(slice), &self.handle))?)
    }

    /// Waits for what is in the handle's stream, and reads all elements.
    ///
    /// # Errors
    /// Out of memory of the host; the driver refuses, or reports the failure of an earlier launch.
    pub fn to_vec(&self) -> Result<Vec<T>, BackendError> {
        let mut elements = Vec::new();
        // The host's memory is the cpu backend's.
        let refused = |_| BackendError::OutOfMemory { backend: "cpu", bytes: self.block.bytes() };
        elements.try_reserve_exact(self.len).map_err(refused)?;
        // SAFETY: every element is a number of which any bits are a value; `read` writes all of them.
        let bytes = unsafe {
            std::ptr::write_bytes(elements.as_mut_ptr(), 0, self.len);
            elements.set_len(self.len);
            bytes_of_mut(elements.as_mut_slice())
        };
        call(|| self.block.read(bytes, &self.handle))?;
        Ok(elements)
    }

    fn check_length(&self, found: usize) -> Result<(), BufferError> {
        if found == self.len { Ok(()) } else { Err(BufferError::Length { found, expected: self.len }) }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The handle that it was made with.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The address in the device's memory, for other libraries. What they do there is not ordered with
    /// anything; they may write only to a buffer that is not borrowed elsewhere.
    pub fn as_raw(&self) -> *mut c_void {
        self.block.address
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }
}

impl<T> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, size, target) = (self.len, size_of::<T>(), self.handle.target());
        write!(f, "DeviceBuffer({len} elements of {size} bytes on {target})")
    }
}

fn bytes_of<T: Element>(slice: &[T]) -> &[u8] {
    // SAFETY: elements are numbers without padding.
    unsafe { std::slice::from_raw_parts(slice.as_ptr().cast(), size_of_val(slice)) }
}

fn bytes_of_mut<T: Element>(slice: &mut [T]) -> &mut [u8] {
    // SAFETY: elements are numbers without padding, of which any bits are a value.
    unsafe { std::slice::from_raw_parts_mut(slice.as_mut_ptr().cast(), size_of_val(slice)) }
}

/// The size of the pattern that [`Block::fill`] repeats.
pub(crate) const CHUNK: usize = 1 << 16;

/// Memory of a device, freed once every stream that used it has passed.
pub(crate) struct Block {
    context: Arc<Context>,
    address: *mut c_void,
    bytes: usize,
    uses: Mutex<Uses>,
}

/// The streams that may still be using a block.
#[derive(Default)]
struct Uses {
    writer: Option<Use>,
    readers: Vec<Use>,
}

/// A stream that may still be using a block, and whether anybody can use the block on it again.
struct Use {
    stream: Stream,
    handles: Weak<()>,
}

impl Use {
    fn new(handle: &Handle) -> Self {
        Use { stream: handle.stream_owner().clone(), handles: Arc::downgrade(handle.life()) }
    }

    fn is_of(&self, handle: &Handle) -> bool {
        self.handles.as_ptr() == Arc::as_ptr(handle.life())
    }

    /// Whether no handle is left, so that nothing more is launched. An execution that has not launched yet has one.
    fn is_abandoned(&self) -> bool {
        self.handles.strong_count() == 0
    }
}

// SAFETY: the address is only dereferenced by the device's driver, which takes it from any thread, or by
// whoever has an exclusive or shared borrow of the block, as Rust's rules for memory have it.
unsafe impl Send for Block {}
// SAFETY: a shared block gives a copy of the address; its other fields are shareable themselves.
unsafe impl Sync for Block {}

impl Block {
    /// Memory of the handle's device, its contents unknown.
    pub(crate) fn new(handle: &Handle, bytes: usize) -> Result<Self, BackendError> {
        let context = handle.context().clone();
        let address = context.memory().allocate(bytes)?;
        Ok(Block { context, address, bytes, uses: Mutex::default() })
    }

    pub(crate) fn address(&self) -> *mut c_void {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// What is to be read by something launched into the handle's stream next.
    pub(crate) fn read_on(&self, handle: &Handle) -> Result<(), BackendError> {
        // A host device has finished when it returns.
        if self.context.memory().kind() == MemoryKind::Host {
            return Ok(());
        }
        let mut uses = self.uses();
        if let Some(writer) = uses.writer.take_if(|writer| writer.stream.raw() != handle.stream()) {
            self.wait_for(&writer).inspect_err(|_| uses.writer = Some(writer))?;
        }
        if !uses.readers.iter().any(|reader| reader.is_of(handle)) {
            // What is only read would keep every stream there ever was. A failed launch is reported where somebody
            // can be told; the stream has passed all the same.
            uses.readers.retain(|reader| {
                !reader.is_abandoned() || {
                    let _ = self.wait_for(reader);
                    false
                }
            });
            uses.readers.push(Use::new(handle));
        }
        Ok(())
    }

    /// What is to be written, or read and written, by something launched into the handle's stream next.
    pub(crate) fn write_on(&self, handle: &Handle) -> Result<(), BackendError> {
        if self.context.memory().kind() == MemoryKind::Host {
            return Ok(());
        }
        let mut uses = self.uses();
        for user in
            uses.readers.iter().chain(&uses.writer).filter(|user| user.stream.raw() != handle.stream())
        {
            self.wait_for(user)?;
        }
        uses.readers.clear();
        if uses.writer.as_ref().is_none_or(|writer| !writer.is_of(handle)) {
            uses.writer = Some(Use::new(handle));
        }
        Ok(())
    }

    /// Overwrites the first bytes.
    pub(crate) fn write(&self, source: &[u8], handle: &Handle) -> Result<(), BackendError> {
        debug_assert!(source.len() <= self.bytes);
        self.write_on(handle)?;
        // SAFETY: the block has room for the source.
        unsafe { self.context.memory().copy_in(self.address, source, handle.stream_owner()) }
    }

    /// Overwrites everything with zeros.
    pub(crate) fn zero(&self, handle: &Handle) -> Result<(), BackendError> {
        self.write_on(handle)?;
        // SAFETY: the block has as many bytes.
        unsafe { self.context.memory().zero(self.address, self.bytes, handle.stream_owner()) }
    }

    /// Overwrites everything with a pattern of [`CHUNK`] bytes, repeated.
    pub(crate) fn fill(&self, pattern: &[u8; CHUNK], handle: &Handle) -> Result<(), BackendError> {
        self.write_on(handle)?;
        for start in (0..self.bytes).step_by(CHUNK) {
            let part = &pattern[..CHUNK.min(self.bytes - start)];
            let target = self.address.wrapping_byte_add(start);
            // SAFETY: inside of the block.
            unsafe { self.context.memory().copy_in(target, part, handle.stream_owner()) }?;
        }
        Ok(())
    }

    /// Waits for the handle's stream, and reads the first bytes, all of which were written before.
    pub(crate) fn read(&self, target: &mut [u8], handle: &Handle) -> Result<(), BackendError> {
        debug_assert!(target.len() <= self.bytes);
        self.read_on(handle)?;
        // SAFETY: the block has as many bytes, which were written: buffers and staged operands are made with
        // their contents, and kernels write the outputs that are read back.
        unsafe { self.context.memory().copy_out(target, self.address, handle.stream_owner()) }
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, user: &Use) -> Result<(), BackendError> {
        self.context.device().synchronize(&user.stream)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let uses = self.uses.get_mut().unwrap_or_else(PoisonError::into_inner);
        for user in uses.readers.iter().chain(&uses.writer) {
            // As above of failed launches.
            let _ = self.context.device().synchronize(&user.stream);
        }
        // SAFETY: allocated with this size, given back once; every stream that used it has passed.
        unsafe { self.context.memory().free(self.address, self.bytes) };
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({:p}, {} bytes)", self.address, self.bytes)
    }
}

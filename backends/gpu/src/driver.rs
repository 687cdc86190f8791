//! What devices are driven by: CUDA's driver and AMD's HIP are one interface under two sets of names.

use std::ffi::{CStr, c_int, c_void};
use std::fmt::Debug;
use std::result;

use fuseplan_api::{BackendError, DeviceInfo, RawGraph, RawGraphExec, RawNode, RawStream};

use crate::Geometry;

/// A driver's event: `CUevent`, `hipEvent_t`.
pub type RawEvent = *mut c_void;
/// A loaded image: `CUmodule`, `hipModule_t`.
pub type RawModule = *mut c_void;
/// A kernel of a module: `CUfunction`, `hipFunction_t`.
pub type RawFunction = *mut c_void;

/// What a driver's call gives, or its error in the driver's own words.
type Result<T = ()> = result::Result<T, BackendError>;

/// An object of a driver's, to be kept.
#[derive(Debug, Clone, Copy)]
pub struct Object(pub *mut c_void);

// SAFETY: an object is an address that only the driver dereferences, and drivers take their objects from any thread.
unsafe impl Send for Object {}
// SAFETY: a shared object gives a copy of its address, which drivers take from several threads at once.
unsafe impl Sync for Object {}

/// What a kernel takes of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attribute {
    /// Registers of a thread.
    Registers,
    /// Bytes of memory of a thread's own.
    Local,
    /// Bytes of shared memory of a block that the kernel declares.
    Shared,
}

/// A vendor's driver, as far as work on one device goes. Most functions are one of the driver's: [`calls!`](crate::calls)
/// makes them.
///
/// # Safety
/// All unsafe functions are so for one reason: the thread has [entered](Driver::enter) the device, or gives something
/// back; objects and memory are live ones of this device, memory has as many bytes as are said, and no other thread uses
/// a graph meanwhile.
#[allow(clippy::missing_safety_doc, reason = "said once, for all of them")]
#[allow(clippy::missing_errors_doc, reason = "the driver is missing, lacks the function, or refuses")]
pub trait Driver: Debug + Send + Sync + Sized + 'static {
    /// The backend's name.
    const BACKEND: &'static str;

    /// What a thread has to make current again when it leaves a device.
    type Before: Debug;

    /// Initialises the driver: how many devices it has.
    fn count() -> Result<u32>;
    /// Describes one of so many devices. An error for one that this backend cannot use.
    fn describe(ordinal: u32) -> Result<DeviceInfo>;
    /// Opens one of them.
    fn open(ordinal: u32) -> Result<Self>;

    /// Makes the device the thread's current one. [`Context::enter`](crate::Context::enter) leaves it again.
    fn enter(&self) -> Result<Self::Before>;
    /// Ends what [`Driver::enter`] began on the same thread, and gave `before` for.
    unsafe fn leave(&self, before: &Self::Before);

    /// So many bytes, which are not none, aligned to 256.
    unsafe fn allocate(&self, bytes: usize) -> Result<*mut c_void>;
    /// Gives back what `allocate` gave.
    unsafe fn free(&self, memory: *mut c_void) -> Result;
    /// Begins to copy from the host.
    unsafe fn copy_in(&self, target: *mut c_void, source: &[u8], stream: RawStream) -> Result;
    /// Begins to copy to the host.
    unsafe fn copy_out(&self, target: &mut [u8], source: *const c_void, stream: RawStream) -> Result;
    /// Begins to overwrite with zeros.
    unsafe fn zero(&self, target: *mut c_void, bytes: usize, stream: RawStream) -> Result;

    /// A stream that does not wait for the default stream.
    unsafe fn create_stream(&self) -> Result<RawStream>;
    /// Ends a stream; work in it still runs to its end.
    unsafe fn destroy_stream(&self, stream: RawStream) -> Result;
    /// Waits for a stream.
    unsafe fn synchronize(&self, stream: RawStream) -> Result;

    /// An event that has a time.
    unsafe fn create_event(&self) -> Result<RawEvent>;
    /// Ends an event.
    unsafe fn destroy_event(&self, event: RawEvent) -> Result;
    /// Has the stream record the event.
    unsafe fn record(&self, event: RawEvent, stream: RawStream) -> Result;
    /// Waits for a recorded event.
    unsafe fn wait_for(&self, event: RawEvent) -> Result;
    /// Milliseconds between two events that have come.
    unsafe fn milliseconds(&self, start: RawEvent, end: RawEvent) -> Result<f32>;

    /// Loads an image, which is a whole one that the backend's compiler made, and stays where it is until the module is
    /// unloaded.
    unsafe fn load(&self, image: &[u8]) -> Result<RawModule>;
    /// Unloads a module, whose functions are not used any more.
    unsafe fn unload(&self, module: RawModule) -> Result;
    /// A module's kernel.
    unsafe fn function(&self, module: RawModule, name: &CStr) -> Result<RawFunction>;
    /// Lets a kernel be launched with so many bytes of shared memory beyond what it declares, where a driver wants to
    /// be told.
    unsafe fn allow_shared(&self, _function: RawFunction, _bytes: u32) -> Result {
        Ok(())
    }
    /// What a kernel takes.
    unsafe fn attribute(&self, function: RawFunction, attribute: Attribute) -> Result<c_int>;
    /// Blocks of such a launch that a compute unit has room for at once.
    unsafe fn resident(&self, function: RawFunction, geometry: &Geometry) -> Result<c_int>;
    /// Launches a kernel with its one argument, a structure of these words, which is copied.
    unsafe fn launch(
        &self,
        function: RawFunction,
        geometry: &Geometry,
        arguments: &[u64],
        stream: RawStream,
    ) -> Result;

    /// Has `launch` launch into the stream with as many bytes of memory, which nothing else uses that is launched meanwhile or before those
    /// launches are done: not even where the stream is being captured, and the graph launched beside what the stream does then. Only what
    /// is instantiated of the same graph uses it as well. An error of a driver that has no such memory; kernels are planned for what
    /// it has ([`Target`](crate::Target)).
    unsafe fn with_scratch(
        &self,
        _stream: RawStream,
        _bytes: usize,
        _launch: &mut dyn FnMut(*mut c_void) -> Result,
    ) -> Result {
        Err(BackendError::Unsupported { backend: Self::BACKEND, what: "memory between two launches" })
    }

    /// Records from now on what is launched into the stream. Whoever works meanwhile may allocate, and wait for other
    /// streams.
    unsafe fn begin_capture(&self, stream: RawStream) -> Result;
    /// What was recorded.
    unsafe fn end_capture(&self, stream: RawStream) -> Result<RawGraph>;
    /// [`GraphDriver::add_child`](fuseplan_api::GraphDriver::add_child).
    unsafe fn add_child(&self, graph: RawGraph, behind: &[RawNode], child: RawGraph) -> Result<RawNode>;
    /// [`GraphDriver::set_child`](fuseplan_api::GraphDriver::set_child).
    unsafe fn set_child(&self, executable: RawGraphExec, node: RawNode, child: RawGraph) -> Result;
    /// A copy of the graph that can be launched.
    unsafe fn instantiate(&self, graph: RawGraph) -> Result<RawGraphExec>;
    /// Launches a graph.
    unsafe fn launch_graph(&self, executable: RawGraphExec, stream: RawStream) -> Result;
    /// Ends a graph.
    unsafe fn destroy_graph(&self, graph: RawGraph) -> Result;
    /// Ends a graph that can be launched.
    unsafe fn destroy_executable(&self, executable: RawGraphExec) -> Result;
}

/// Makes functions of a [`Driver`] that are one function of the vendor's each, which a macro of the backend calls:
///
/// ```text
/// fuseplan_gpu::calls! { call:
///     fn destroy_stream(stream: RawStream) { cuStreamDestroy_v2(stream) }
///     fn create_stream() -> (stream: RawStream = NULL) { cuStreamCreate(stream, FLAGS) }
/// }
/// ```
///
/// A result is written by the vendor's function: the name before it stands for where.
#[macro_export]
macro_rules! calls {
    ($call:ident: $(fn $name:ident $arguments:tt $(-> $result:tt)? { $($function:tt)* })*) => {
        $($crate::calls! { @ $call fn $name $arguments $($result)? => $($function)* })*
    };
    (@ $call:ident fn $name:ident($($argument:ident: $type:ty),*) => $($function:tt)*) => {
        #[allow(clippy::macro_metavars_in_unsafe, reason = "a vendor's function and its arguments")]
        unsafe fn $name(&self, $($argument: $type),*) -> ::core::result::Result<(), ::fuseplan_api::BackendError> {
            // SAFETY: the vendor's function wants what the caller promises.
            unsafe { $call!($($function)*) }
        }
    };
    (@ $call:ident fn $name:ident($($argument:ident: $type:ty),*) ($result:ident: $of:ty = $none:expr) => $($function:tt)*) => {
        #[allow(clippy::macro_metavars_in_unsafe, reason = "a vendor's function and its arguments")]
        unsafe fn $name(&self, $($argument: $type),*) -> ::core::result::Result<$of, ::fuseplan_api::BackendError> {
            let mut written: $of = $none;
            let $result = &raw mut written;
            // SAFETY: as above, and there is room for what it writes.
            unsafe { $call!($($function)*) }.map(|()| written)
        }
    };
}

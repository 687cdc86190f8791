//! The HIP runtime on a device.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{mem, ptr};

use fuseplan_api::{BackendError, DeviceInfo, RawGraph, RawGraphExec, RawNode, RawStream};
use fuseplan_gpu::{
    Attribute, Capture, Driver, Geometry, Object, RawEvent, RawFunction, RawModule, RawUserObject, Scratch,
    ScratchDriver, calls,
};
use fuseplan_hip_sys::{
    hipError_t, hipFunction_attribute as Number, hipMemcpyKind as Copy, hipStreamCaptureMode as Mode,
    hipStreamCaptureStatus as Status,
};

use crate::driver::{self, call};
use crate::{BACKEND, device};

/// A device of the initialised runtime. Its context is the runtime's own.
#[derive(Debug)]
pub(crate) struct Rocm {
    ordinal: c_int,
    scratch: Scratch,
}

impl Drop for Rocm {
    fn drop(&mut self) {
        mem::take(&mut self.scratch).end(self);
    }
}

impl Driver for Rocm {
    const BACKEND: &'static str = BACKEND;

    /// The device that was the current one, if it was another.
    type Before = Option<c_int>;

    fn count() -> Result<u32, BackendError> {
        driver::initialise()
    }

    fn describe(ordinal: u32) -> Result<DeviceInfo, BackendError> {
        device::describe(ordinal)
    }

    fn open(ordinal: u32) -> Result<Self, BackendError> {
        Ok(Rocm { ordinal: ordinal as c_int, scratch: Scratch::default() })
    }

    fn enter(&self) -> Result<Option<c_int>, BackendError> {
        let mut before = 0;
        // SAFETY: the runtime is initialised and writes the number.
        unsafe { call!(hipGetDevice(&mut before)) }?;
        if before == self.ordinal {
            return Ok(None);
        }
        // SAFETY: the device was found.
        unsafe { call!(hipSetDevice(self.ordinal)) }?;
        Ok(Some(before))
    }

    unsafe fn leave(&self, before: &Option<c_int>) {
        if let Some(before) = *before {
            // SAFETY: it was this thread's current device before, as the caller promises.
            let _ = unsafe { call!(hipSetDevice(before)) };
        }
    }

    unsafe fn allocate(&self, bytes: usize) -> Result<*mut c_void, BackendError> {
        let (hip, mut address) = (driver::hip()?, NULL);
        // SAFETY: the runtime writes the address.
        match unsafe { hip.hipMalloc(&mut address, bytes) } {
            hipError_t::hipErrorOutOfMemory => Err(BackendError::OutOfMemory { backend: BACKEND, bytes }),
            result => driver::check(hip, "hipMalloc", result).map(|()| address),
        }
    }

    unsafe fn launch(
        &self,
        function: RawFunction,
        geometry: &Geometry,
        arguments: &[u64],
        stream: RawStream,
    ) -> Result<(), BackendError> {
        let ([x, y, z], block, shared) = (geometry.grid, geometry.block, geometry.shared);
        let mut bytes = size_of_val(arguments);
        // HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END.
        let [pointer, size, end] = [1, 2, 3].map(ptr::without_provenance_mut::<c_void>);
        let mut buffer: [*mut c_void; 5] =
            [pointer, arguments.as_ptr().cast_mut().cast(), size, (&raw mut bytes).cast(), end];
        let (function, stream, buffer) = (function.cast(), stream.cast(), buffer.as_mut_ptr());
        // SAFETY: the kernel's one parameter is a structure of these words, which the runtime copies and does not write;
        // the rest is as promised by the caller.
        unsafe {
            call!(hipModuleLaunchKernel(function, x, y, z, block, 1, 1, shared, stream, NULL.cast(), buffer))
        }
    }

    unsafe fn with_scratch(
        &self,
        stream: RawStream,
        bytes: usize,
        launch: &mut dyn FnMut(*mut c_void) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        // SAFETY: as promised by the caller.
        unsafe { self.scratch.with(self, stream, bytes, launch) }
    }

    unsafe fn set_child(
        &self,
        executable: RawGraphExec,
        node: RawNode,
        child: RawGraph,
    ) -> Result<(), BackendError> {
        // HIP copies the child's launches, but not its user objects.
        self.scratch.keep();
        // SAFETY: as promised by the caller.
        unsafe { call!(hipGraphExecChildGraphNodeSetParams(executable.cast(), node.cast(), child.cast())) }
    }

    // A code object that the runtime rejects is an error of `load`; a cached one is then compiled again.
    calls! { call:
        fn free(memory: *mut c_void) { hipFree(memory) }
        fn copy_in(target: *mut c_void, source: &[u8], stream: RawStream) {
            hipMemcpyAsync(target, source.as_ptr().cast(), source.len(), Copy::hipMemcpyHostToDevice, stream.cast())
        }
        fn copy_out(target: &mut [u8], source: *const c_void, stream: RawStream) {
            hipMemcpyAsync(target.as_mut_ptr().cast(), source, target.len(), Copy::hipMemcpyDeviceToHost, stream.cast())
        }
        fn zero(target: *mut c_void, bytes: usize, stream: RawStream) {
            hipMemsetAsync(target, 0, bytes, stream.cast())
        }

        fn create_stream() -> (stream: RawStream = NULL) { hipStreamCreateWithFlags(stream.cast(), NON_BLOCKING) }
        fn destroy_stream(stream: RawStream) { hipStreamDestroy(stream.cast()) }
        fn synchronize(stream: RawStream) { hipStreamSynchronize(stream.cast()) }

        fn create_event() -> (event: RawEvent = NULL) { hipEventCreateWithFlags(event.cast(), 0) }
        fn destroy_event(event: RawEvent) { hipEventDestroy(event.cast()) }
        fn record(event: RawEvent, stream: RawStream) { hipEventRecord(event.cast(), stream.cast()) }
        fn wait_for(event: RawEvent) { hipEventSynchronize(event.cast()) }
        fn milliseconds(start: RawEvent, end: RawEvent) -> (time: f32 = 0.0) {
            hipEventElapsedTime(time, start.cast(), end.cast())
        }

        fn load(image: &[u8]) -> (module: RawModule = NULL) {
            hipModuleLoadData(module.cast(), image.as_ptr().cast())
        }
        fn unload(module: RawModule) { hipModuleUnload(module.cast()) }
        fn function(module: RawModule, name: &CStr) -> (function: RawFunction = NULL) {
            hipModuleGetFunction(function.cast(), module.cast(), name.as_ptr())
        }
        fn attribute(function: RawFunction, attribute: Attribute) -> (value: c_int = 0) {
            hipFuncGetAttribute(value, number(attribute), function.cast())
        }
        fn resident(function: RawFunction, geometry: &Geometry) -> (blocks: c_int = 0) {
            hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
                blocks, function.cast(), geometry.block as c_int, geometry.shared as usize
            )
        }

        fn begin_capture(stream: RawStream) {
            hipStreamBeginCapture(stream.cast(), Mode::hipStreamCaptureModeRelaxed)
        }
        fn end_capture(stream: RawStream) -> (graph: RawGraph = NULL) {
            hipStreamEndCapture(stream.cast(), graph.cast())
        }
        fn add_child(graph: RawGraph, behind: &[RawNode], child: RawGraph) -> (node: RawNode = NULL) {
            hipGraphAddChildGraphNode(node.cast(), graph.cast(), behind.as_ptr().cast(), behind.len(), child.cast())
        }
        fn instantiate(graph: RawGraph) -> (executable: RawGraphExec = NULL) {
            hipGraphInstantiateWithFlags(executable.cast(), graph.cast(), 0)
        }
        fn launch_graph(executable: RawGraphExec, stream: RawStream) {
            hipGraphLaunch(executable.cast(), stream.cast())
        }
        fn destroy_graph(graph: RawGraph) { hipGraphDestroy(graph.cast()) }
        fn destroy_executable(executable: RawGraphExec) { hipGraphExecDestroy(executable.cast()) }
    }
}

impl ScratchDriver for Rocm {
    /// The stream's address: the runtime waits for what was launched into a stream before another can have it. Of two addresses
    /// that are none one stands for a stream of each thread, the other for the default stream.
    unsafe fn stream_number(&self, stream: RawStream) -> Result<u64, BackendError> {
        static THREADS: AtomicU64 = AtomicU64::new(1);
        thread_local! {
            static THREAD: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
        }
        Ok(match stream.addr() {
            PER_THREAD => OF_THREADS | THREAD.with(|number| *number),
            LEGACY => 0,
            address => address as u64,
        })
    }

    unsafe fn capture_of(&self, stream: RawStream) -> Result<Option<Capture>, BackendError> {
        let (mut status, mut capture) =
            (Status::hipStreamCaptureStatusNone, Capture { id: 0, graph: Object(NULL) });
        let (id, graph) = (&raw mut capture.id, (&raw mut capture.graph.0).cast());
        // SAFETY: as promised by the caller; the runtime writes what has a place.
        unsafe {
            call!(hipStreamGetCaptureInfo_v2(
                stream.cast(),
                &mut status,
                id,
                graph,
                ptr::null_mut(),
                ptr::null_mut()
            ))
        }?;
        Ok((status != Status::hipStreamCaptureStatusNone).then_some(capture))
    }

    unsafe fn exchange_capture_mode(&self, mode: c_int) -> Result<c_int, BackendError> {
        let mut mode = Mode(mode as c_uint);
        // SAFETY: the runtime reads and writes the mode.
        unsafe { call!(hipThreadExchangeStreamCaptureMode(&mut mode)) }.map(|()| mode.0 as c_int)
    }

    fn copies_user_objects(&self) -> bool {
        fuseplan_hip_sys::version().is_ok_and(|version| version >= COPIES_USER_OBJECTS)
    }

    unsafe fn create_user_object(
        &self,
        data: *mut c_void,
        destroy: unsafe extern "C" fn(*mut c_void),
    ) -> Result<RawUserObject, BackendError> {
        let mut object = ptr::null_mut();
        // SAFETY: the runtime writes the object, and calls the function as promised by the caller.
        unsafe { call!(hipUserObjectCreate(&mut object, data, Some(destroy), 1, NO_DESTRUCTOR_SYNC)) }?;
        Ok(object.cast())
    }

    calls! { call:
        fn give_user_object(graph: RawGraph, object: RawUserObject) {
            hipGraphRetainUserObject(graph.cast(), object.cast(), 1, MOVE)
        }
        fn release_user_object(object: RawUserObject) { hipUserObjectRelease(object.cast(), 1) }
    }
}

const NULL: *mut c_void = ptr::null_mut();
/// `hipStreamLegacy`.
const LEGACY: usize = 1;
/// `hipStreamPerThread`.
const PER_THREAD: usize = 2;
/// No address has this bit.
const OF_THREADS: u64 = 1 << 63;
/// HIP 6.2, the first whose copies of graphs refer to user objects, by AMD's sources.
const COPIES_USER_OBJECTS: i32 = 60_200_000;
/// `hipUserObjectNoDestructorSync`.
const NO_DESTRUCTOR_SYNC: c_uint = 1;
/// `hipGraphUserObjectMove`.
const MOVE: c_uint = 1;
/// `hipStreamNonBlocking`.
const NON_BLOCKING: c_uint = 1;

/// The runtime's number of an attribute.
fn number(attribute: Attribute) -> Number {
    match attribute {
        Attribute::Registers => Number::HIP_FUNC_ATTRIBUTE_NUM_REGS,
        Attribute::Local => Number::HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
        Attribute::Shared => Number::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
    }
}

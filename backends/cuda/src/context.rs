//! CUDA's driver in a context.

use std::ffi::{CStr, c_int, c_void};
use std::{mem, ptr};

use fuseplan_api::{BackendError, DeviceInfo, RawGraph, RawGraphExec, RawNode, RawStream};
use fuseplan_gpu::{
    Attribute, Capture, Driver, Geometry, Object, RawEvent, RawFunction, RawModule, RawUserObject, Scratch,
    ScratchDriver, calls,
};

use crate::driver::{self, call, status};
use crate::sys::{self, CUdevice, Opaque, Status};
use crate::{BACKEND, device};

/// A context that work runs in: a device's primary one, which the CUDA runtime uses too, so that pointers and streams of
/// either are good for the other; or a caller's.
#[derive(Debug)]
pub(crate) struct Cuda {
    context: Object,
    device: CUdevice,
    /// Whether it is the device's primary context, which counts its users.
    retained: bool,
    /// Whether a kernel is launched while the grid before it in the stream still runs.
    overlaps: bool,
    scratch: Scratch,
}

impl Cuda {
    /// Somebody else's context; null is the thread's current one. It is used, never destroyed.
    ///
    /// # Safety
    /// It is null, or a context that lives as long as the result.
    pub(crate) unsafe fn adopt(mut raw: Opaque) -> Result<Self, BackendError> {
        if raw.is_null() {
            // SAFETY: the driver writes the context.
            unsafe { call!(cuCtxGetCurrent(&mut raw)) }?;
        }
        if raw.is_null() {
            return Err(BackendError::Unavailable {
                backend: BACKEND,
                reason: "the thread has no current context".into(),
            });
        }
        let mut context = Cuda {
            context: Object(raw),
            device: 0,
            retained: false,
            overlaps: false,
            scratch: Scratch::default(),
        };
        context.enter()?;
        // SAFETY: the driver writes the device of the current context.
        let found = unsafe { call!(cuCtxGetDevice(&mut context.device)) };
        // SAFETY: it was entered above.
        unsafe { context.leave(&()) };
        found?;
        context.overlaps = device::overlaps(context.device)?;
        Ok(context)
    }

    /// `CUcontext`.
    pub(crate) fn raw(&self) -> Opaque {
        self.context.0
    }

    pub(crate) fn device(&self) -> CUdevice {
        self.device
    }

    /// Memory of this context's streams and graphs.
    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        mem::take(&mut self.scratch).end(self);
        if self.retained {
            // SAFETY: it was retained once. A driver that is shutting down refuses, which is as good.
            let _ = unsafe { call!(cuDevicePrimaryCtxRelease_v2(self.device)) };
        }
    }
}

impl Driver for Cuda {
    const BACKEND: &'static str = BACKEND;

    /// The driver has a stack of contexts for each thread.
    type Before = ();

    fn count() -> Result<u32, BackendError> {
        device::count()
    }

    fn describe(ordinal: u32) -> Result<DeviceInfo, BackendError> {
        device::describe(ordinal)
    }

    fn open(ordinal: u32) -> Result<Self, BackendError> {
        let device = device::handle(ordinal)?;
        let overlaps = device::overlaps(device)?;
        let mut raw = ptr::null_mut();
        // SAFETY: the driver writes the context.
        unsafe { call!(cuDevicePrimaryCtxRetain(&mut raw, device)) }?;
        Ok(Cuda { context: Object(raw), device, retained: true, overlaps, scratch: Scratch::default() })
    }

    fn enter(&self) -> Result<(), BackendError> {
        // SAFETY: the context is live.
        unsafe { call!(cuCtxPushCurrent_v2(self.raw())) }
    }

    unsafe fn leave(&self, (): &()) {
        let mut left = ptr::null_mut();
        // SAFETY: `enter` pushed the context on this thread, as the caller promises; the driver writes its address.
        let _ = unsafe { call!(cuCtxPopCurrent_v2(&mut left)) };
    }

    unsafe fn allocate(&self, bytes: usize) -> Result<*mut c_void, BackendError> {
        let mut address = 0;
        // SAFETY: the driver writes the address.
        match unsafe { status!(cuMemAlloc_v2(&mut address, bytes)) }? {
            Status::OUT_OF_MEMORY => Err(BackendError::OutOfMemory { backend: BACKEND, bytes }),
            // Nothing on the host dereferences it.
            status => {
                driver::check("cuMemAlloc_v2", status).map(|()| ptr::without_provenance_mut(address as usize))
            }
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
        let mut parameters: [*mut c_void; 1] = [arguments.as_ptr().cast_mut().cast()];
        let parameters = parameters.as_mut_ptr();
        if !self.overlaps {
            // SAFETY: the kernel's one parameter is a structure of these words, which the driver copies and does not write;
            // the rest is as promised by the caller.
            return unsafe {
                call!(cuLaunchKernel(function, x, y, z, block, 1, 1, shared, stream, parameters, NULL.cast()))
            };
        }
        let mut value = [0; 16];
        value[0] = 1;
        let overlap = sys::LaunchAttribute {
            id: sys::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            unused: 0,
            value,
        };
        let (grid, block) = (geometry.grid, [block, 1, 1]);
        let config = sys::LaunchConfig { grid, block, shared, stream, attributes: &overlap, count: 1 };
        // SAFETY: the kernel's one parameter is a structure of these words, which the driver copies and does not write; it
        // reads the launch's description during the call, and the rest is as promised by the caller. That memory is ready when the
        // stream comes to the launch is enough: each thread of this backend's kernels waits for the grids before it, but for the one that
        // loads an image behind a launch that prepares filters, which has waited itself before it let this one begin. Before that
        // they only hint at filters or an element-wise plan's input, whose memory there is when a kernel is queued behind the one that
        // may still write them.
        unsafe { call!(cuLaunchKernelEx(&config, function, parameters, NULL.cast())) }
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

    calls! { call:
        fn free(memory: *mut c_void) { cuMemFree_v2(memory as u64) }
        fn copy_in(target: *mut c_void, source: &[u8], stream: RawStream) {
            cuMemcpyHtoDAsync_v2(target as u64, source.as_ptr().cast(), source.len(), stream)
        }
        fn copy_out(target: &mut [u8], source: *const c_void, stream: RawStream) {
            cuMemcpyDtoHAsync_v2(target.as_mut_ptr().cast(), source as u64, target.len(), stream)
        }
        fn zero(target: *mut c_void, bytes: usize, stream: RawStream) {
            cuMemsetD8Async(target as u64, 0, bytes, stream)
        }

        fn create_stream() -> (stream: RawStream = NULL) { cuStreamCreate(stream, sys::CU_STREAM_NON_BLOCKING) }
        fn destroy_stream(stream: RawStream) { cuStreamDestroy_v2(stream) }
        fn synchronize(stream: RawStream) { cuStreamSynchronize(stream) }

        fn create_event() -> (event: RawEvent = NULL) { cuEventCreate(event, sys::CU_EVENT_DEFAULT) }
        fn destroy_event(event: RawEvent) { cuEventDestroy_v2(event) }
        fn record(event: RawEvent, stream: RawStream) { cuEventRecord(event, stream) }
        fn wait_for(event: RawEvent) { cuEventSynchronize(event) }
        fn milliseconds(start: RawEvent, end: RawEvent) -> (time: f32 = 0.0) {
            cuEventElapsedTime(time, start, end)
        }

        fn load(image: &[u8]) -> (module: RawModule = NULL) { cuModuleLoadData(module, image.as_ptr().cast()) }
        fn unload(module: RawModule) { cuModuleUnload(module) }
        fn function(module: RawModule, name: &CStr) -> (function: RawFunction = NULL) {
            cuModuleGetFunction(function, module, name.as_ptr())
        }
        fn allow_shared(function: RawFunction, bytes: u32) {
            cuFuncSetAttribute(function, sys::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes as c_int)
        }
        fn attribute(function: RawFunction, attribute: Attribute) -> (value: c_int = 0) {
            cuFuncGetAttribute(value, number(attribute), function)
        }
        fn resident(function: RawFunction, geometry: &Geometry) -> (blocks: c_int = 0) {
            cuOccupancyMaxActiveBlocksPerMultiprocessor(
                blocks, function, geometry.block as c_int, geometry.shared as usize
            )
        }

        fn begin_capture(stream: RawStream) {
            cuStreamBeginCapture_v2(stream, sys::CU_STREAM_CAPTURE_MODE_RELAXED)
        }
        fn end_capture(stream: RawStream) -> (graph: RawGraph = NULL) { cuStreamEndCapture(stream, graph) }
        fn add_child(graph: RawGraph, behind: &[RawNode], child: RawGraph) -> (node: RawNode = NULL) {
            cuGraphAddChildGraphNode(node, graph, behind.as_ptr(), behind.len(), child)
        }
        fn set_child(executable: RawGraphExec, node: RawNode, child: RawGraph) {
            cuGraphExecChildGraphNodeSetParams(executable, node, child)
        }
        fn instantiate(graph: RawGraph) -> (executable: RawGraphExec = NULL) {
            cuGraphInstantiateWithFlags(executable, graph, 0)
        }
        fn launch_graph(executable: RawGraphExec, stream: RawStream) { cuGraphLaunch(executable, stream) }
        fn destroy_graph(graph: RawGraph) { cuGraphDestroy(graph) }
        fn destroy_executable(executable: RawGraphExec) { cuGraphExecDestroy(executable) }
    }
}

impl ScratchDriver for Cuda {
    unsafe fn capture_of(&self, stream: RawStream) -> Result<Option<Capture>, BackendError> {
        let (mut status, mut capture) = (0, Capture { id: 0, graph: Object(NULL) });
        let (id, graph) = (&mut capture.id, &mut capture.graph.0);
        // SAFETY: as promised by the caller; the driver writes what has a place.
        unsafe {
            call!(cuStreamGetCaptureInfo_v2(stream, &mut status, id, graph, ptr::null_mut(), ptr::null_mut()))
        }?;
        Ok((status != sys::CU_STREAM_CAPTURE_STATUS_NONE).then_some(capture))
    }

    unsafe fn exchange_capture_mode(&self, mut mode: c_int) -> Result<c_int, BackendError> {
        // SAFETY: the driver reads and writes the mode.
        unsafe { call!(cuThreadExchangeStreamCaptureMode(&mut mode)) }.map(|()| mode)
    }

    unsafe fn create_user_object(
        &self,
        data: *mut c_void,
        destroy: unsafe extern "C" fn(*mut c_void),
    ) -> Result<RawUserObject, BackendError> {
        let (mut object, flags) = (NULL, sys::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
        // SAFETY: the driver writes the object, and calls the function as promised by the caller.
        unsafe { call!(cuUserObjectCreate(&mut object, data, destroy, 1, flags)) }.map(|()| object)
    }

    calls! { call:
        // A stream's number is no other's, ever.
        fn stream_number(stream: RawStream) -> (number: u64 = 0) { cuStreamGetId(stream, number) }
        fn give_user_object(graph: RawGraph, object: RawUserObject) {
            cuGraphRetainUserObject(graph, object, 1, sys::CU_GRAPH_USER_OBJECT_MOVE)
        }
        fn release_user_object(object: RawUserObject) { cuUserObjectRelease(object, 1) }
    }
}

const NULL: Opaque = ptr::null_mut();

/// The driver's number of an attribute.
fn number(attribute: Attribute) -> c_int {
    match attribute {
        Attribute::Registers => sys::CU_FUNC_ATTRIBUTE_NUM_REGS,
        Attribute::Local => sys::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
        Attribute::Shared => sys::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
    }
}

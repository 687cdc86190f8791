//! The driver's functions.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use crate::state::*;

type Handle = *mut c_void;

/// A function of the driver: counted, and the status of its body.
macro_rules! functions {
    ($(fn $name:ident($state:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                let mut guard = state();
                let $state = &mut *guard;
                let run = |$state: &mut State| -> Result<()> { $body };
                match $state.count(stringify!($name)) {
                    Ok(()) => run($state).err().unwrap_or(0),
                    Err(status) => {
                        // What is given back is gone whatever is said.
                        if RELEASES.contains(&stringify!($name)) {
                            let _ = run($state);
                        }
                        status
                    }
                }
            }
        )*
    };
}

/// Functions that end something.
const RELEASES: [&str; 12] = [
    "cuCtxDestroy_v2",
    "cuCtxPopCurrent_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuEventDestroy_v2",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuMemFree_v2",
    "cuModuleUnload",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuThreadExchangeStreamCaptureMode",
    "cuUserObjectRelease",
];

/// The memory behind addresses: real, so that copies are checked by the allocator of the tests' machine.
static MEMORY: Mutex<BTreeMap<usize, Vec<u8>>> = Mutex::new(BTreeMap::new());

/// The bytes from an address of the current context on, if as many are there.
fn with_memory(state: &mut State, address: u64, count: usize, run: impl FnOnce(&mut [u8])) -> Result<()> {
    let current = state.current()?;
    let address = address as usize;
    let (&start, object) = state.objects.range(..=address).next_back().ok_or(INVALID_VALUE)?;
    if object.kind != "memory" || object.context != current {
        return Err(INVALID_VALUE);
    }
    let mut memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes = memory.get_mut(&start).ok_or(INVALID_VALUE)?;
    let end = (address - start).checked_add(count).ok_or(INVALID_VALUE)?;
    run(bytes.get_mut(address - start..end).ok_or(INVALID_VALUE)?);
    Ok(())
}

/// A stream of the current context; null is the default one.
fn stream(state: &mut State, stream: Handle) -> Result<()> {
    if stream.is_null() { state.current().map(drop) } else { state.own(stream as usize, "stream").map(drop) }
}

/// `CUlaunchAttribute` and `CUlaunchConfig`.
#[repr(C, align(8))]
struct LaunchAttribute {
    id: c_int,
    _unused: c_int,
    value: [c_int; 16],
}
#[repr(C)]
struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    _shared: c_uint,
    stream: Handle,
    attributes: *const LaunchAttribute,
    count: c_uint,
}

fn launch(
    state: &mut State,
    function: Handle,
    grid: [c_uint; 3],
    block: c_uint,
    queue: Handle,
    parameters: *mut *mut c_void,
) -> Result<()> {
    state.own(function as usize, "module")?;
    stream(state, queue)?;
    if grid.contains(&0) || block == 0 || block > 1024 || parameters.is_null() {
        return Err(INVALID_VALUE);
    }
    let graph = if queue.is_null() { 0 } else { state.own(queue as usize, "stream")?.value };
    if graph != 0 {
        state.object(graph, "graph")?.value += 1;
    } else {
        let device = state.device()?;
        state.launches[device] += 1;
    }
    Ok(())
}

fn device(device: c_int) -> Result<usize> {
    usize::try_from(device).ok().filter(|&device| device < DEVICES.len()).ok_or(INVALID_DEVICE)
}

/// The primary context of a device, where it has users.
fn primary(state: &State, device: usize) -> Option<usize> {
    let is_primary = |object: &Object| object.kind == "primary" && object.context == device;
    state.objects.iter().find(|(_, object)| is_primary(object)).map(|(&address, _)| address)
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// The place is null or can be written.
unsafe fn put<T>(place: *mut T, value: T) -> Result<()> {
    if place.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: as promised by the caller.
    unsafe { place.write(value) };
    Ok(())
}

/// A tensor map needs a place at 64 bytes, up to five dimensions, of pixels at least three, and an address at 16 bytes.
/// As the driver under compute-sanitizer, this wants a current context.
fn encode(state: &State, map: *mut u64, rank: c_uint, least: c_uint, address: Handle) -> Result<()> {
    state.device()?;
    let sound =
        map.addr().is_multiple_of(64) && (least..=5).contains(&rank) && address.addr().is_multiple_of(16);
    if sound { Ok(()) } else { Err(INVALID_VALUE) }
}

fn handle(address: usize) -> Handle {
    ptr::without_provenance_mut(address)
}

const NAMES: [(c_int, &CStr, &CStr); 4] = [
    (1, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (INVALID_CONTEXT, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (INVALID_HANDLE, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
];

/// Not counted.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(status: c_int, text: *mut *const c_char) -> c_int {
    let found = NAMES.iter().find(|name| name.0 == status);
    // SAFETY: the driver's interface asks the caller for the place of a string.
    let _ = unsafe { put(text, found.map_or(ptr::null(), |name| name.1.as_ptr())) };
    if found.is_some() { 0 } else { INVALID_VALUE }
}

/// Not counted.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(status: c_int, text: *mut *const c_char) -> c_int {
    let found = NAMES.iter().find(|name| name.0 == status);
    // SAFETY: the driver's interface asks the caller for the place of a string.
    let _ = unsafe { put(text, found.map_or(ptr::null(), |name| name.2.as_ptr())) };
    if found.is_some() { 0 } else { INVALID_VALUE }
}

// SAFETY of the functions: callers pass places and strings as the driver's header asks; every object is looked
// up before it is used.
functions! {
    fn cuInit(_state, flags: c_uint) { if flags == 0 { Ok(()) } else { Err(INVALID_VALUE) } }

    fn cuDriverGetVersion(_state, version: *mut c_int) {
        // SAFETY: see above.
        unsafe { put(version, 13000) }
    }

    fn cuDeviceGetCount(_state, count: *mut c_int) {
        // SAFETY: see above.
        unsafe { put(count, DEVICES.len() as c_int) }
    }

    fn cuDeviceGet(_state, place: *mut c_int, ordinal: c_int) {
        // SAFETY: see above.
        unsafe { put(place, device(ordinal)? as c_int) }
    }

    fn cuDeviceGetName(_state, name: *mut c_char, bytes: c_int, ordinal: c_int) {
        device(ordinal)?;
        let text = c"Fake GPU".to_bytes_with_nul();
        if (bytes as usize) < text.len() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: see above; the name fits.
        unsafe { name.cast::<u8>().copy_from(text.as_ptr(), text.len()) };
        Ok(())
    }

    fn cuDeviceTotalMem_v2(_state, bytes: *mut usize, ordinal: c_int) {
        device(ordinal)?;
        // SAFETY: see above.
        unsafe { put(bytes, 1 << 30) }
    }

    fn cuDeviceGetAttribute(_state, value: *mut c_int, attribute: c_int, ordinal: c_int) {
        let (major, minor) = DEVICES[device(ordinal)?];
        let found = match attribute {
            10 => 32,
            16 => 132,
            75 => major,
            76 => minor,
            97 => 227 << 10,
            _ => return Err(INVALID_VALUE),
        };
        // SAFETY: see above.
        unsafe { put(value, found) }
    }

    fn cuDevicePrimaryCtxRetain(state, place: *mut Handle, ordinal: c_int) {
        let device = device(ordinal)?;
        let context = match primary(state, device) {
            Some(context) => context,
            None => state.insert(Object { kind: "primary", context: device, value: 0 }),
        };
        state.object(context, "primary")?.value += 1;
        // SAFETY: see above.
        unsafe { put(place, handle(context)) }
    }

    fn cuDevicePrimaryCtxRelease_v2(state, ordinal: c_int) {
        let context = primary(state, device(ordinal)?).ok_or(INVALID_CONTEXT)?;
        let object = state.object(context, "primary")?;
        object.value -= 1;
        if object.value == 0 {
            state.objects.remove(&context);
        }
        Ok(())
    }

    fn cuCtxCreate_v2(state, place: *mut Handle, _flags: c_uint, ordinal: c_int) {
        let context = state.insert(Object { kind: "context", context: device(ordinal)?, value: 0 });
        STACK.with_borrow_mut(|stack| stack.push(context));
        // SAFETY: see above.
        unsafe { put(place, handle(context)) }
    }

    fn cuCtxDestroy_v2(state, context: Handle) {
        state.remove(context as usize, "context")?;
        STACK.with_borrow_mut(|stack| stack.pop_if(|top| *top == context as usize));
        Ok(())
    }

    fn cuCtxGetCurrent(_state, place: *mut Handle) {
        let current = STACK.with_borrow(|stack| stack.last().copied());
        // SAFETY: see above.
        unsafe { put(place, handle(current.unwrap_or(0))) }
    }

    fn cuCtxGetDevice(state, place: *mut c_int) {
        let device = state.device()?;
        // SAFETY: see above.
        unsafe { put(place, device as c_int) }
    }

    fn cuCtxPushCurrent_v2(state, context: Handle) {
        let context = context as usize;
        let known = state.objects.get(&context).is_some_and(|o| ["primary", "context"].contains(&o.kind));
        if !known {
            return Err(INVALID_CONTEXT);
        }
        STACK.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    }

    fn cuCtxPopCurrent_v2(_state, place: *mut Handle) {
        let top = STACK.with_borrow_mut(|stack| stack.pop()).ok_or(INVALID_CONTEXT)?;
        // SAFETY: see above.
        unsafe { put(place, handle(top)) }
    }

    fn cuMemAlloc_v2(state, place: *mut u64, bytes: usize) {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        // More than the device has.
        if bytes > 1 << 30 {
            return Err(2);
        }
        let address = state.make("memory", bytes)?;
        // Enough for copies of the tests; what kernels would touch is not there.
        let bytes = vec![0xAA; bytes.min(1 << 20)];
        MEMORY.lock().unwrap_or_else(PoisonError::into_inner).insert(address, bytes);
        // SAFETY: see above.
        unsafe { put(place, address as u64) }
    }

    fn cuMemFree_v2(state, address: u64) {
        state.remove(address as usize, "memory")?;
        MEMORY.lock().unwrap_or_else(PoisonError::into_inner).remove(&(address as usize));
        Ok(())
    }

    fn cuMemcpyHtoDAsync_v2(state, to: u64, from: *const c_void, bytes: usize, queue: Handle) {
        stream(state, queue)?;
        // SAFETY: the caller's block has as many bytes, as the driver's interface asks.
        let from = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) };
        with_memory(state, to, bytes, |to| to.copy_from_slice(from))
    }

    fn cuMemsetD8Async(state, to: u64, value: u8, bytes: usize, queue: Handle) {
        stream(state, queue)?;
        with_memory(state, to, bytes, |to| to.fill(value))
    }

    fn cuMemcpyDtoHAsync_v2(state, to: *mut c_void, from: u64, bytes: usize, queue: Handle) {
        stream(state, queue)?;
        // SAFETY: the caller's block has room for as many bytes, as the driver's interface asks.
        let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), bytes) };
        with_memory(state, from, bytes, |from| to.copy_from_slice(from))
    }

    fn cuStreamCreate(state, place: *mut Handle, _flags: c_uint) {
        let stream = state.make("stream", 0)?;
        // SAFETY: see above.
        unsafe { put(place, handle(stream)) }
    }

    fn cuStreamDestroy_v2(state, stream: Handle) { state.remove(stream as usize, "stream").map(drop) }

    fn cuStreamSynchronize(state, queue: Handle) { stream(state, queue) }

    fn cuStreamBeginCapture_v2(state, stream: Handle, _mode: c_int) {
        let graph = state.make("graph", 0)?;
        match state.own(stream as usize, "stream") {
            Ok(stream) if stream.value == 0 => {
                stream.value = graph;
                Ok(())
            }
            _ => {
                state.remove(graph, "graph")?;
                Err(CAPTURE_INVALID)
            }
        }
    }

    fn cuStreamEndCapture(state, stream: Handle, place: *mut Handle) {
        let failed = state.failed == Some("cuStreamEndCapture");
        let stream = state.own(stream as usize, "stream")?;
        let graph = std::mem::take(&mut stream.value);
        if graph == 0 {
            return Err(CAPTURE_INVALID);
        }
        if failed {
            state.remove(graph, "graph")?;
            return Ok(());
        }
        // SAFETY: see above.
        unsafe { put(place, handle(graph)) }
    }

    fn cuGraphCreate(state, place: *mut Handle, _flags: c_uint) {
        let graph = state.make("graph", 0)?;
        // SAFETY: see above.
        unsafe { put(place, handle(graph)) }
    }

    fn cuGraphDestroy(state, graph: Handle) { state.remove(graph as usize, "graph").map(drop) }

    fn cuGraphAddChildGraphNode(
        state, node: *mut Handle, graph: Handle, _first: *const Handle, _count: usize, child: Handle,
    ) {
        let launches = state.object(child as usize, "graph")?.value;
        state.object(graph as usize, "graph")?.value += launches;
        state.refer_alike(child as usize, graph as usize);
        // SAFETY: see above.
        unsafe { put(node, child) }
    }

    fn cuGraphExecChildGraphNodeSetParams(state, executable: Handle, _node: Handle, child: Handle) {
        state.object(child as usize, "graph")?;
        state.object(executable as usize, "executable").map(drop)
    }

    fn cuGraphInstantiateWithFlags(state, place: *mut Handle, graph: Handle, _flags: u64) {
        let launches = state.object(graph as usize, "graph")?.value;
        let executable = state.make("executable", launches)?;
        state.refer_alike(graph as usize, executable);
        // SAFETY: see above.
        unsafe { put(place, handle(executable)) }
    }

    fn cuGraphExecDestroy(state, executable: Handle) {
        state.remove(executable as usize, "executable").map(drop)
    }

    fn cuGraphLaunch(state, executable: Handle, queue: Handle) {
        stream(state, queue)?;
        let launches = state.own(executable as usize, "executable")?.value;
        let device = state.device()?;
        state.launches[device] += launches as u64;
        Ok(())
    }

    fn cuEventCreate(state, place: *mut Handle, _flags: c_uint) {
        let event = state.make("event", 0)?;
        // SAFETY: see above.
        unsafe { put(place, handle(event)) }
    }

    fn cuEventDestroy_v2(state, event: Handle) { state.remove(event as usize, "event").map(drop) }

    fn cuEventRecord(state, event: Handle, queue: Handle) {
        stream(state, queue)?;
        state.own(event as usize, "event")?.value = 1;
        Ok(())
    }

    fn cuEventSynchronize(state, event: Handle) { state.own(event as usize, "event").map(drop) }

    fn cuEventElapsedTime(state, milliseconds: *mut f32, start: Handle, end: Handle) {
        if [start, end].iter().any(|&event| state.own(event as usize, "event").map_or(0, |e| e.value) == 0) {
            return Err(INVALID_HANDLE);
        }
        // SAFETY: see above.
        unsafe { put(milliseconds, 5.0) }
    }

    fn cuModuleLoadData(state, place: *mut Handle, image: *const c_void) {
        let (major, minor) = DEVICES[state.device()?];
        // SAFETY: the image is a string of this fake's NVRTC, or at least ends in a zero.
        let image = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy().into_owned();
        let arch = image.strip_prefix("fake cubin ").ok_or(200)?;
        let runs = arch.trim_end_matches('a') == format!("sm_{major}{minor}");
        let module = if runs { state.make("module", 0)? } else { return Err(NO_BINARY) };
        // SAFETY: see above.
        unsafe { put(place, handle(module)) }
    }

    fn cuModuleUnload(state, module: Handle) { state.remove(module as usize, "module").map(drop) }

    fn cuModuleGetFunction(state, place: *mut Handle, module: Handle, name: *const c_char) {
        state.own(module as usize, "module")?;
        // SAFETY: a string that ends in a zero.
        if unsafe { CStr::from_ptr(name) } != c"fuseplan_kernel" {
            return Err(NOT_FOUND);
        }
        // SAFETY: see above.
        unsafe { put(place, module) }
    }

    fn cuFuncGetAttribute(state, value: *mut c_int, attribute: c_int, function: Handle) {
        state.own(function as usize, "module")?;
        let found = match attribute {
            1 => 48, // SHARED_SIZE_BYTES
            3 => 8,  // LOCAL_SIZE_BYTES
            4 => 32, // NUM_REGS
            _ => return Err(INVALID_VALUE),
        };
        // SAFETY: see above.
        unsafe { put(value, found) }
    }

    fn cuFuncSetAttribute(state, function: Handle, _attribute: c_int, value: c_int) {
        state.own(function as usize, "module")?;
        if (0..=227 << 10).contains(&value) { Ok(()) } else { Err(INVALID_VALUE) }
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        state, blocks: *mut c_int, function: Handle, _block: c_int, _shared: usize,
    ) {
        state.own(function as usize, "module")?;
        // SAFETY: see above.
        unsafe { put(blocks, 2) }
    }

    fn cuStreamGetId(state, queue: Handle, place: *mut u64) {
        stream(state, queue)?;
        if !queue.is_null() && state.own(queue as usize, "stream")?.value != 0 {
            return Err(CAPTURE_UNSUPPORTED);
        }
        // SAFETY: see above.
        unsafe { put(place, queue as u64) }
    }

    fn cuStreamGetCaptureInfo_v2(
        state, queue: Handle, status: *mut c_int, id: *mut u64, place: *mut Handle, _behind: *mut *const Handle,
        _count: *mut usize,
    ) {
        stream(state, queue)?;
        let graph = if queue.is_null() { 0 } else { state.own(queue as usize, "stream")?.value };
        if graph != 0 {
            // SAFETY: see above.
            unsafe {
                put(id, graph as u64)?;
                put(place, handle(graph))?;
            }
        }
        // SAFETY: see above.
        unsafe { put(status, c_int::from(graph != 0)) }
    }

    fn cuThreadExchangeStreamCaptureMode(state, mode: *mut c_int) {
        // Only what restores the mode has an effect where it fails.
        // SAFETY: the place can be read.
        let restores = !mode.is_null() && unsafe { mode.read() } == 0;
        if mode.is_null() || (state.failed == Some("cuThreadExchangeStreamCaptureMode") && !restores) {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the place can be read and written.
        unsafe { mode.write(MODE.replace(mode.read())) };
        Ok(())
    }

    fn cuUserObjectCreate(
        state, place: *mut Handle, data: Handle, destroy: unsafe extern "C" fn(*mut c_void), count: c_uint,
        flags: c_uint,
    ) {
        if (count, flags) != (1, 1) {
            return Err(INVALID_VALUE);
        }
        let number = state.user_objects.keys().next_back().map_or(1, |last| last + 1);
        state.user_objects.insert(number, UserObject { owners: vec![0], data: data as usize, destroy });
        // SAFETY: see above.
        unsafe { put(place, handle(number)) }
    }

    fn cuGraphRetainUserObject(state, graph: Handle, object: Handle, count: c_uint, flags: c_uint) {
        state.object(graph as usize, "graph")?;
        let object = state.user_objects.get_mut(&(object as usize)).ok_or(INVALID_VALUE)?;
        if (count, flags, &*object.owners) != (1, 1, &[0]) {
            return Err(INVALID_VALUE);
        }
        object.owners = vec![graph as usize];
        Ok(())
    }

    fn cuUserObjectRelease(state, object: Handle, _count: c_uint) {
        state.leave(0, |address| address == object as usize);
        Ok(())
    }

    fn cuTensorMapEncodeTiled(
        state, map: *mut u64, _type: c_int, rank: c_uint, address: Handle, _lens: *const u64,
        _strides: *const u64, _part: *const c_uint, _steps: *const c_uint, _interleave: c_int, _swizzle: c_int,
        _promotion: c_int, _fill: c_int,
    ) {
        encode(state, map, rank, 1, address)
    }

    fn cuTensorMapEncodeIm2col(
        state, map: *mut u64, _type: c_int, rank: c_uint, address: Handle, _lens: *const u64,
        _strides: *const u64, _lower: *const c_int, _upper: *const c_int, _channels: c_uint, _pixels: c_uint,
        _steps: *const c_uint, _interleave: c_int, _swizzle: c_int, _promotion: c_int, _fill: c_int,
    ) {
        encode(state, map, rank, 3, address)
    }

    fn cuLaunchKernel(
        state, function: Handle, x: c_uint, y: c_uint, z: c_uint, block: c_uint, _block_y: c_uint, _block_block_z: c_uint,
        _shared: c_uint, queue: Handle, parameters: *mut *mut c_void, _extra: *mut *mut c_void,
    ) {
        launch(state, function, [x, y, z], block, queue, parameters)
    }

    fn cuLaunchKernelEx(
        state, config: *const LaunchConfig, function: Handle, parameters: *mut *mut c_void, _extra: *mut *mut c_void,
    ) {
        // SAFETY: a caller's description of a launch, or null.
        let config = unsafe { config.as_ref() }.ok_or(INVALID_VALUE)?;
        // SAFETY: as many attributes as the description says.
        let attributes = unsafe { std::slice::from_raw_parts(config.attributes, config.count as usize) };
        // Programmatic stream serialization, of devices that have it.
        let able = DEVICES[state.device()?].0 >= 9;
        if !able || attributes.iter().any(|of| of.id != 6 || of.value[0] != 1) {
            return Err(INVALID_VALUE);
        }
        launch(state, function, config.grid, config.block[0], config.stream, parameters)
    }
}

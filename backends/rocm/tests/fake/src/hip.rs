//! The runtime's functions. Their contracts are HIP's; what a program may not do is an error here even where
//! the real runtime would not see it.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use fuseplan_hip_sys::*;

use crate::launch::Launch;
use crate::memory;
use crate::state::{DEVICE, Kind, MODE, Module, RELAXED, archs, state, wave};

/// A result or a number of HIP's.
pub(crate) type Outcome = Result<(), hipError_t>;

pub(crate) const INVALID: Outcome = Err(hipError_t::hipErrorInvalidValue);

/// Defines functions that note their call, fail if they are to, and do not unwind into their caller.
macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $body:block)*) => {
        $(
            /// HIP's function of this name.
            ///
            /// # Safety
            /// As HIP's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> hipError_t {
                if let Some(number) = state().begin(stringify!($name)) {
                    return hipError_t(number);
                }
                let work = || -> Outcome { $body };
                match work() {
                    Ok(()) => hipError_t::hipSuccess,
                    Err(error) => error,
                }
            }
        )*

        /// Does not compile if a function's type is not that of HIP's header.
        #[allow(dead_code, reason = "only its types count")]
        fn have_the_types_of_the_header(hip: &mut Hip) {
            $(hip.$name = $name;)*
        }
    };
}
pub(crate) use functions;

#[allow(dead_code, reason = "only its types count")]
fn words_have_the_types_of_the_header(hip: &mut Hip) {
    hip.hipGetErrorName = hipGetErrorName;
    hip.hipGetErrorString = hipGetErrorString;
}

fn device(ordinal: c_int) -> Result<&'static str, hipError_t> {
    let found = usize::try_from(ordinal).ok().and_then(|ordinal| archs().get(ordinal));
    found.map(String::as_str).ok_or(hipError_t::hipErrorInvalidDevice)
}

/// The current device; nothing works without one.
fn current() -> Result<&'static str, hipError_t> {
    device(DEVICE.get()).map_err(|_| hipError_t::hipErrorNoDevice)
}

/// Writes a result.
///
/// # Safety
/// The place is null or valid.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Outcome {
    if place.is_null() {
        return INVALID;
    }
    // SAFETY: as of this function.
    unsafe { place.write(value) };
    Ok(())
}

/// A stream that is live, or one of those that always are: the default stream, also as `hipStreamLegacy`, and `hipStreamPerThread`.
pub(crate) fn check_stream(stream: hipStream_t) -> Outcome {
    let live = stream.addr() <= 2 || state().is_live(stream as usize, Kind::Stream);
    if live { Ok(()) } else { Err(hipError_t::hipErrorContextIsDestroyed) }
}

/// Whether the thread may do what waits for the device, though streams are being captured.
fn check_mode() -> Outcome {
    let may = MODE.get() == RELAXED || state().captures.values().all(|capture| capture.mode == RELAXED);
    if may { Ok(()) } else { Err(hipError_t::hipErrorStreamCaptureUnsupported) }
}

/// As [`check_stream`], for what cannot be captured.
fn check_idle(stream: hipStream_t) -> Outcome {
    check_stream(stream)?;
    let captured = state().captures.contains_key(&(stream as usize));
    if captured { Err(hipError_t::hipErrorStreamCaptureUnsupported) } else { Ok(()) }
}

fn check_event(event: hipEvent_t) -> Outcome {
    if state().is_live(event as usize, Kind::Event) { Ok(()) } else { Err(hipError_t::hipErrorInvalidHandle) }
}

/// Gives a thing back.
pub(crate) fn end(address: usize, kind: Kind) -> Outcome {
    if state().end(address, kind) { Ok(()) } else { Err(hipError_t::hipErrorInvalidHandle) }
}

/// What code objects of the fake compiler begin with; architecture and shared object follow, a line each.
pub(crate) const MAGIC: &str = "fake HIP code object\n";

/// Memory that a device is said to have.
const MEMORY: usize = 16 << 30;

functions! {
    fn hipInit(_flags: c_uint) {
        if archs().is_empty() { Err(hipError_t::hipErrorNoDevice) } else { Ok(()) }
    }

    fn hipRuntimeGetVersion(version: *mut c_int) {
        let said = match std::env::var("FAKE_HIP_VERSION") {
            Ok(text) => text.parse().map_err(|_| hipError_t::hipErrorNotInitialized)?,
            Err(_) => 70_253_211,
        };
        // SAFETY: as HIP's.
        unsafe { put(version, said) }
    }

    fn hipGetDeviceCount(count: *mut c_int) {
        // SAFETY: as HIP's.
        unsafe { put(count, archs().len() as c_int)? };
        if archs().is_empty() { Err(hipError_t::hipErrorNoDevice) } else { Ok(()) }
    }

    fn hipGetDevice(ordinal: *mut c_int) {
        current()?;
        // SAFETY: as HIP's.
        unsafe { put(ordinal, DEVICE.get()) }
    }

    fn hipSetDevice(ordinal: c_int) {
        device(ordinal)?;
        DEVICE.set(ordinal);
        Ok(())
    }

    fn hipDeviceGetAttribute(value: *mut c_int, attribute: hipDeviceAttribute_t, ordinal: c_int) {
        let arch = device(ordinal)?;
        let number = match attribute {
            hipDeviceAttribute_t::hipDeviceAttributeWarpSize => {
                std::env::var("FAKE_HIP_WAVE").ok().and_then(|text| text.parse().ok()).unwrap_or(wave(arch))
            }
            hipDeviceAttribute_t::hipDeviceAttributeMultiprocessorCount => 4,
            hipDeviceAttribute_t::hipDeviceAttributeMaxSharedMemoryPerBlock => 64 << 10,
            _ => return INVALID,
        };
        // SAFETY: as HIP's.
        unsafe { put(value, number) }
    }

    fn hipGetDevicePropertiesR0600(properties: *mut hipDeviceProp_tR0600, ordinal: c_int) {
        let arch = device(ordinal)?;
        // SAFETY: zeros are valid for numbers and arrays of them.
        let mut filled: hipDeviceProp_tR0600 = unsafe { std::mem::zeroed() };
        let write = |field: &mut [c_char; 256], text: &str| {
            field.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from as c_char);
        };
        write(&mut filled.name, "Fake GPU");
        write(&mut filled.gcnArchName, arch);
        filled.totalGlobalMem = MEMORY;
        // SAFETY: as HIP's.
        unsafe { put(properties, filled) }
    }

    fn hipMalloc(pointer: *mut *mut c_void, bytes: usize) {
        current()?;
        check_mode()?;
        if bytes > MEMORY {
            return Err(hipError_t::hipErrorOutOfMemory);
        }
        let memory = memory::take(bytes).ok_or(hipError_t::hipErrorOutOfMemory)?;
        state().live.insert(memory as usize, (Kind::Memory, bytes));
        // SAFETY: as HIP's.
        unsafe { put(pointer, memory.cast()) }
    }

    fn hipFree(pointer: *mut c_void) {
        current()?;
        check_mode()?;
        if pointer.is_null() {
            return Ok(());
        }
        let (kind, bytes) = state().live.get(&(pointer as usize)).copied().ok_or(hipError_t::hipErrorInvalidValue)?;
        if kind != Kind::Memory {
            return INVALID;
        }
        end(pointer as usize, Kind::Memory)?;
        // SAFETY: it came from `hipMalloc` with these bytes and was live.
        unsafe { memory::give_back(pointer.cast(), bytes) };
        Ok(())
    }

    fn hipMemcpyAsync(
        target: *mut c_void,
        source: *const c_void,
        bytes: usize,
        kind: hipMemcpyKind,
        stream: hipStream_t
    ) {
        check_idle(stream)?;
        let device = match kind {
            hipMemcpyKind::hipMemcpyHostToDevice => target as usize,
            hipMemcpyKind::hipMemcpyDeviceToHost => source as usize,
            _ => return INVALID,
        };
        if !state().has(device, bytes) {
            return INVALID;
        }
        // SAFETY: the device's side was looked at; the host's is as HIP's.
        unsafe { ptr::copy_nonoverlapping(source.cast::<u8>(), target.cast::<u8>(), bytes) };
        Ok(())
    }

    fn hipMemsetAsync(target: *mut c_void, value: c_int, bytes: usize, stream: hipStream_t) {
        check_stream(stream)?;
        if !state().has(target as usize, bytes) {
            return INVALID;
        }
        // SAFETY: the memory was looked at.
        unsafe { ptr::write_bytes(target.cast::<u8>(), value as u8, bytes) };
        Ok(())
    }

    fn hipStreamCreateWithFlags(stream: *mut hipStream_t, flags: c_uint) {
        current()?;
        if flags > 1 {
            return INVALID;
        }
        let made = state().make(Kind::Stream);
        // SAFETY: as HIP's.
        unsafe { put(stream, ptr::without_provenance_mut(made)) }
    }

    fn hipStreamDestroy(stream: hipStream_t) {
        let captured = state().captures.remove(&(stream as usize));
        if let Some(capture) = captured {
            state().end_graph(capture.graph, Kind::Graph);
        }
        end(stream as usize, Kind::Stream)
    }

    fn hipStreamSynchronize(stream: hipStream_t) {
        check_idle(stream)
    }

    fn hipEventCreateWithFlags(event: *mut hipEvent_t, _flags: c_uint) {
        current()?;
        let made = state().make(Kind::Event);
        // SAFETY: as HIP's.
        unsafe { put(event, ptr::without_provenance_mut(made)) }
    }

    fn hipEventDestroy(event: hipEvent_t) {
        end(event as usize, Kind::Event)
    }

    fn hipEventRecord(event: hipEvent_t, stream: hipStream_t) {
        check_event(event)?;
        check_stream(stream)
    }

    fn hipEventSynchronize(event: hipEvent_t) {
        check_event(event)
    }

    fn hipEventElapsedTime(milliseconds: *mut f32, start: hipEvent_t, end: hipEvent_t) {
        check_event(start)?;
        check_event(end)?;
        // SAFETY: as HIP's.
        unsafe { put(milliseconds, 0.25) }
    }

    fn hipModuleLoadData(module: *mut hipModule_t, image: *const c_void) {
        let arch = current()?;
        // SAFETY: an image has at least the bytes of this magic, all of them before any zero if they are it.
        let magic = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), MAGIC.len()) };
        if magic != MAGIC.as_bytes() {
            return Err(hipError_t::hipErrorInvalidImage);
        }
        // SAFETY: code objects with this magic end in a zero.
        let text = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy().into_owned();
        let mut lines = text[MAGIC.len()..].lines();
        if lines.next() != Some(arch) {
            return Err(hipError_t::hipErrorNoBinaryForGpu);
        }
        let object = lines.next().filter(|line| !line.is_empty()).map(String::from);
        let mut state = state();
        let made = state.make(Kind::Module);
        state.modules.insert(made, Module { device: DEVICE.get(), object });
        // SAFETY: as HIP's.
        unsafe { put(module, ptr::without_provenance_mut(made)) }
    }

    fn hipModuleUnload(module: hipModule_t) {
        end(module as usize, Kind::Module)?;
        state().modules.remove(&(module as usize));
        Ok(())
    }

    fn hipModuleGetFunction(function: *mut hipFunction_t, module: hipModule_t, name: *const c_char) {
        // SAFETY: as HIP's.
        let name = unsafe { CStr::from_ptr(name) };
        if !state().is_live(module as usize, Kind::Module) {
            return Err(hipError_t::hipErrorInvalidHandle);
        }
        if name != c"fuseplan_kernel" {
            return Err(hipError_t::hipErrorNotFound);
        }
        // A module has one function, which is known by the module.
        // SAFETY: as HIP's.
        unsafe { put(function, module.cast()) }
    }

    fn hipFuncGetAttribute(value: *mut c_int, _attribute: hipFunction_attribute, function: hipFunction_t) {
        if !state().is_live(function as usize, Kind::Module) {
            return Err(hipError_t::hipErrorInvalidHandle);
        }
        // SAFETY: as HIP's.
        unsafe { put(value, 0) }
    }

    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        function: hipFunction_t,
        block: c_int,
        _shared: usize
    ) {
        if !state().is_live(function as usize, Kind::Module) || block <= 0 {
            return INVALID;
        }
        // SAFETY: as HIP's.
        unsafe { put(blocks, 2) }
    }

    fn hipModuleLaunchKernel(
        function: hipFunction_t,
        x: c_uint,
        y: c_uint,
        z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: hipStream_t,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void
    ) {
        check_stream(stream)?;
        let module = state().modules.get(&(function as usize)).cloned().ok_or(hipError_t::hipErrorInvalidHandle)?;
        let (grid, block) = ([x, y, z], [block_x, block_y, block_z]);
        // A grid's threads in one dimension are counted in 32 bits.
        let fits = grid.iter().zip(&block).all(|(&g, &b)| g > 0 && b > 0 && u32::try_from(u64::from(g) * u64::from(b)).is_ok());
        if !fits || block.iter().product::<u32>() > 1024 || shared > 64 << 10 || !parameters.is_null() || extra.is_null() {
            return INVALID;
        }
        if module.device != DEVICE.get() {
            return Err(hipError_t::hipErrorInvalidResourceHandle);
        }
        // SAFETY: the list has five places, the last of which ends it.
        let list = unsafe { std::slice::from_raw_parts(extra, 5) };
        if [list[0] as usize, list[2] as usize, list[4] as usize] != [1, 2, 3] {
            return INVALID;
        }
        // SAFETY: the place behind 2 is the number of bytes of what is behind 1.
        let arguments = unsafe { std::slice::from_raw_parts(list[1].cast::<u64>(), *list[3].cast::<usize>() / 8) };
        let launch = Launch { function: function as usize, object: module.object, grid, block, shared, arguments: arguments.into() };
        if let Some(capture) = state().captures.get_mut(&(stream as usize)) {
            capture.launches.push(launch);
            return Ok(());
        }
        // SAFETY: the arguments are good for the kernel, as HIP's.
        unsafe { launch.run() }
    }
}

/// HIP's function of this name; `hipErrorUnknown` for what it does not know.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorName(error: hipError_t) -> *const c_char {
    let name = match error {
        hipError_t::hipErrorInvalidValue => c"hipErrorInvalidValue",
        hipError_t::hipErrorNoDevice => c"hipErrorNoDevice",
        hipError_t::hipErrorNoBinaryForGpu => c"hipErrorNoBinaryForGpu",
        hipError_t::hipErrorInvalidImage => c"hipErrorInvalidImage",
        hipError_t::hipErrorLaunchFailure => c"hipErrorLaunchFailure",
        hipError_t::hipErrorStreamCaptureUnsupported => c"hipErrorStreamCaptureUnsupported",
        hipError_t::hipErrorGraphExecUpdateFailure => c"hipErrorGraphExecUpdateFailure",
        _ => c"hipErrorUnknown",
    };
    name.as_ptr()
}

/// HIP's function of this name; null for what it does not know.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorString(error: hipError_t) -> *const c_char {
    match error {
        hipError_t::hipErrorInvalidValue => c"invalid argument".as_ptr(),
        hipError_t::hipErrorNoDevice => c"no ROCm-capable device is detected".as_ptr(),
        _ => ptr::null(),
    }
}

/// A code object of the fake compiler.
pub(crate) fn code_object(arch: &str, object: &str) -> Vec<u8> {
    CString::new(format!("{MAGIC}{arch}\n{object}\n")).unwrap_or_default().into_bytes_with_nul()
}

//! NVRTC's functions. A program's cubin says the architecture; a text with `#error` does not compile.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use crate::state::state;

struct Program {
    text: String,
    cubin: CString,
    log: &'static CStr,
}

/// The `NVRTC_ERROR_` numbers.
const INVALID_INPUT: c_int = 3;
const INVALID_PROGRAM: c_int = 4;
const COMPILATION: c_int = 6;

/// Counts a call of a function, which is over if it is to fail.
macro_rules! count {
    ($name:ident) => {
        if let Err(status) = state().count(stringify!($name)) {
            return status;
        }
    };
}

/// # Safety
/// The program is null or was made by `nvrtcCreateProgram` and not destroyed.
unsafe fn program<'a>(program: *mut c_void) -> Option<&'a mut Program> {
    // SAFETY: as promised by the caller.
    unsafe { program.cast::<Program>().as_mut() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> c_int {
    count!(nvrtcVersion);
    // SAFETY: NVRTC's interface asks the caller for places of two numbers.
    unsafe {
        major.write(13);
        minor.write(0);
    }
    0
}

/// Not counted.
#[unsafe(no_mangle)]
extern "C" fn nvrtcGetErrorString(status: c_int) -> *const c_char {
    let text = match status {
        1 => c"NVRTC_ERROR_OUT_OF_MEMORY",
        COMPILATION => c"NVRTC_ERROR_COMPILATION",
        _ => c"NVRTC_ERROR unknown",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcCreateProgram(
    place: *mut *mut c_void,
    text: *const c_char,
    _name: *const c_char,
    headers: c_int,
    _texts: *const *const c_char,
    _names: *const *const c_char,
) -> c_int {
    count!(nvrtcCreateProgram);
    if headers != 0 {
        return INVALID_INPUT;
    }
    // SAFETY: a string that ends in a zero, and the caller's place.
    unsafe {
        let text = CStr::from_ptr(text).to_string_lossy().into_owned();
        place.write(Box::into_raw(Box::new(Program { text, cubin: CString::default(), log: c"" })).cast());
    }
    state().programs += 1;
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcDestroyProgram(place: *mut *mut c_void) -> c_int {
    let status = state().count("nvrtcDestroyProgram").err().unwrap_or(0);
    // SAFETY: the program came from `nvrtcCreateProgram`, and its creator destroys it once.
    unsafe {
        if (*place).is_null() {
            return INVALID_PROGRAM;
        }
        drop(Box::from_raw((*place).cast::<Program>()));
        place.write(std::ptr::null_mut());
    }
    state().programs -= 1;
    status
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcCompileProgram(
    raw: *mut c_void,
    count: c_int,
    options: *const *const c_char,
) -> c_int {
    count!(nvrtcCompileProgram);
    // SAFETY: the program came from `nvrtcCreateProgram`; the caller gives as many strings as it says.
    let (program, options) = unsafe { (program(raw), std::slice::from_raw_parts(options, count as usize)) };
    let Some(program) = program else { return INVALID_PROGRAM };
    // SAFETY: strings that end in a zero.
    let mut options = options.iter().map(|&option| unsafe { CStr::from_ptr(option) }.to_string_lossy());
    let arch = options.find_map(|option| option.strip_prefix("--gpu-architecture=").map(str::to_string));
    let Some(arch) = arch else { return INVALID_INPUT };
    if program.text.contains("#error") {
        program.log = c"fuseplan.cu(1): error: #error";
        return COMPILATION;
    }
    program.log = c"0 bytes spill stores, 0 bytes spill loads";
    program.cubin = CString::new(format!("fake cubin {arch}")).unwrap_or_default();
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetCUBINSize(raw: *mut c_void, bytes: *mut usize) -> c_int {
    count!(nvrtcGetCUBINSize);
    // SAFETY: the program came from `nvrtcCreateProgram`; the caller gives the place of a number.
    unsafe {
        let Some(program) = program(raw) else { return INVALID_PROGRAM };
        bytes.write(program.cubin.as_bytes_with_nul().len());
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetCUBIN(raw: *mut c_void, cubin: *mut c_char) -> c_int {
    count!(nvrtcGetCUBIN);
    // SAFETY: the program came from `nvrtcCreateProgram`; the caller gives room for as many bytes as it was told.
    unsafe {
        let Some(program) = program(raw) else { return INVALID_PROGRAM };
        let bytes = program.cubin.as_bytes_with_nul();
        cubin.copy_from(bytes.as_ptr().cast(), bytes.len());
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetProgramLogSize(raw: *mut c_void, bytes: *mut usize) -> c_int {
    count!(nvrtcGetProgramLogSize);
    // SAFETY: the program came from `nvrtcCreateProgram`; the caller gives the place of a number.
    unsafe {
        let Some(program) = program(raw) else { return INVALID_PROGRAM };
        bytes.write(program.log.to_bytes_with_nul().len());
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetProgramLog(raw: *mut c_void, log: *mut c_char) -> c_int {
    count!(nvrtcGetProgramLog);
    // SAFETY: the program came from `nvrtcCreateProgram`; the caller gives room for as many bytes as it was told.
    unsafe {
        let Some(program) = program(raw) else { return INVALID_PROGRAM };
        let bytes = program.log.to_bytes_with_nul();
        log.copy_from(bytes.as_ptr().cast(), bytes.len());
    }
    0
}

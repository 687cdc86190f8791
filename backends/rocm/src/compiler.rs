//! hiprtc: text to a code object for one architecture. Needs no device.

use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::{Arc, OnceLock};

use fuseplan_api::BackendError;
use fuseplan_gpu::{CompileFailure, Compiled, Memo};
use fuseplan_hip_sys::{self as sys, Hiprtc, hiprtcProgram, hiprtcResult};

use crate::arch::{self, Arch};
use crate::{BACKEND, unavailable};

/// The compiler's name and version, for keys of stored binaries; empty where there is none. It is known by its
/// runtime's, since its own number is the same in every release.
pub(crate) fn version() -> String {
    if sys::hiprtc().is_err() { String::new() } else { runtime() }
}

/// The runtime's name and version.
pub(crate) fn runtime() -> String {
    match sys::version() {
        Ok(version) => {
            format!("HIP {}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000)
        }
        Err(_) => "no HIP".into(),
    }
}

/// Compiles a text, or remembers what came of it: plans that differ in sizes alone have the same text.
pub(crate) fn compile(source: &str, arch: &str) -> Result<Compiled, CompileFailure> {
    static KNOWN: OnceLock<Memo> = OnceLock::new();
    KNOWN.get_or_init(Memo::default).get_or_compile(source, arch, translate)
}

/// Whether this HIP's compiler knows a processor; one that does not may end the process.
fn require(arch: &Arch) -> Result<(), BackendError> {
    let version = sys::version().map_err(unavailable)?;
    if (version / 10_000_000, version / 100_000 % 100) >= arch.since {
        return Ok(());
    }
    let (name, (major, minor)) = (arch.name, arch.since);
    let reason = format!("{name} needs HIP {major}.{minor} or later, found {}", runtime());
    Err(BackendError::Unavailable { backend: BACKEND, reason })
}

/// A program of hiprtc's.
struct Program<'a> {
    compiler: &'a Hiprtc,
    raw: hiprtcProgram,
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the program was made and is destroyed once.
        unsafe { self.compiler.hiprtcDestroyProgram(&mut self.raw) };
    }
}

fn check(
    compiler: &Hiprtc,
    call: &'static str,
    result: hiprtcResult,
    log: &str,
) -> Result<(), CompileFailure> {
    if result == hiprtcResult::HIPRTC_SUCCESS {
        return Ok(());
    }
    // SAFETY: the compiler gives a constant string or null for any number.
    let words = unsafe {
        let words = compiler.hiprtcGetErrorString(result);
        if words.is_null() { String::new() } else { CStr::from_ptr(words).to_string_lossy().into_owned() }
    };
    let log = if log.is_empty() { String::new() } else { format!(": {log}") };
    let text = format!("{words} ({}){log}", result.0);
    Err(CompileFailure::Backend(BackendError::Driver { backend: BACKEND, call, text }))
}

fn translate(source: &str, arch: &str) -> Result<Compiled, CompileFailure> {
    arch::require(arch).and_then(require).map_err(CompileFailure::Backend)?;
    let compiler = sys::hiprtc().map_err(|error| CompileFailure::Backend(unavailable(error)))?;
    let string = |text: &str| CString::new(text).map_err(|error| CompileFailure::Log(error.to_string()));
    let (source, name) = (string(source)?, string("fuseplan.hip")?);
    let options = [format!("--offload-arch={arch}"), "-std=c++17".into(), "-O3".into()];
    let options = options.iter().map(|option| string(option)).collect::<Result<Vec<_>, _>>()?;
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let mut program = Program { compiler, raw: ptr::null_mut() };
    let (text, file, none) = (source.as_ptr(), name.as_ptr(), ptr::null());
    // SAFETY: the strings end in a zero and live until the program is destroyed; there are no headers.
    let made = unsafe { compiler.hiprtcCreateProgram(&mut program.raw, text, file, 0, none, none) };
    check(compiler, "hiprtcCreateProgram", made, "")?;
    // SAFETY: the program was created, and there are as many options, which end in a zero and live on.
    let result =
        unsafe { compiler.hiprtcCompileProgram(program.raw, options.len() as i32, options.as_ptr()) };
    // What is wrong with the text matters more than a log that cannot be had.
    // SAFETY: the program was compiled.
    let log = unsafe { log(&program) };
    if result == hiprtcResult::HIPRTC_ERROR_COMPILATION
        && let Ok(log) = &log
        && !log.is_empty()
    {
        return Err(CompileFailure::Log(log.clone()));
    }
    check(compiler, "hiprtcCompileProgram", result, log.as_deref().unwrap_or_default())?;
    let log = log?;
    let mut bytes = 0;
    // SAFETY: the program was compiled, and the place is that of a number.
    let sized = unsafe { compiler.hiprtcGetCodeSize(program.raw, &mut bytes) };
    check(compiler, "hiprtcGetCodeSize", sized, "")?;
    let mut code = vec![0u8; bytes];
    // SAFETY: the program was compiled, and the buffer has the size that the compiler asked for.
    let got = unsafe { compiler.hiprtcGetCode(program.raw, code.as_mut_ptr().cast()) };
    check(compiler, "hiprtcGetCode", got, "")?;
    Ok(Compiled { image: Arc::from(code), log })
}

/// # Safety
/// The program was compiled.
unsafe fn log(program: &Program<'_>) -> Result<String, CompileFailure> {
    let compiler = program.compiler;
    let mut bytes = 0;
    // SAFETY: as of this function; the buffer has the size that the compiler asks for.
    unsafe {
        let sized = compiler.hiprtcGetProgramLogSize(program.raw, &mut bytes);
        check(compiler, "hiprtcGetProgramLogSize", sized, "")?;
        let mut text = vec![0u8; bytes];
        if bytes > 0 {
            let got = compiler.hiprtcGetProgramLog(program.raw, text.as_mut_ptr().cast());
            check(compiler, "hiprtcGetProgramLog", got, "")?;
        }
        Ok(String::from_utf8_lossy(&text).trim_end_matches('\0').trim().to_string())
    }
}

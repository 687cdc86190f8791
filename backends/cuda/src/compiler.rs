//! NVRTC: text to a cubin for one architecture. Needs no device and no driver.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};
use fuseplan_api::BackendError;
use fuseplan_gpu::CompileFailure;

use crate::{BACKEND, library};

/// The compiler's name and version, for keys of stored binaries.
pub(crate) fn version() -> String {
    static VERSION: OnceLock<String> = OnceLock::new();
    let read = || {
        if library::nvrtc().is_err() {
            return "no NVRTC".into();
        }
        let (mut major, mut minor) = (0, 0);
        // SAFETY: NVRTC is there and writes the numbers.
        unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
        format!("NVRTC {major}.{minor}")
    };
    VERSION.get_or_init(read).clone()
}

/// A cubin, and what the compiler said about its registers and memory.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The machine code.
    pub cubin: Arc<[u8]>,
    /// The compiler's log: registers, shared memory, stack, spills.
    pub log: String,
}

/// Most cubins that are remembered; then all are forgotten.
const CAPACITY: usize = 1024;

/// Compiles a text, or remembers what came of it: plans that differ in sizes alone have the same text.
pub(crate) fn compile(source: &str, arch: &str) -> Result<Compiled, CompileFailure> {
    type Known = HashMap<(String, String), Compiled>;
    static KNOWN: OnceLock<Mutex<Known>> = OnceLock::new();
    let known = || KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let key = (source.to_string(), arch.to_string());
    if let Some(compiled) = known().get(&key) {
        return Ok(compiled.clone());
    }
    // Others may compile meanwhile; the same text gives the same cubin.
    let compiled = translate(source, arch)?;
    let mut known = known();
    if known.len() >= CAPACITY {
        known.clear();
    }
    Ok(known.entry(key).or_insert(compiled).clone())
}

/// A program of NVRTC's.
struct Program(nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program was made and is destroyed once.
        unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

fn check(call: &'static str, result: nvrtcResult) -> Result<(), CompileFailure> {
    if result == nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    // SAFETY: NVRTC is loaded, since it gave this result, and gives a constant string.
    let text = unsafe { CStr::from_ptr(sys::nvrtcGetErrorString(result)) }.to_string_lossy().into_owned();
    Err(CompileFailure::Backend(BackendError::Driver { backend: BACKEND, call, text }))
}

fn translate(source: &str, arch: &str) -> Result<Compiled, CompileFailure> {
    library::nvrtc().map_err(CompileFailure::Backend)?;
    let string = |text: &str| CString::new(text).map_err(|error| CompileFailure::Log(error.to_string()));
    let (source, name) = (string(source)?, string("fuseplan.cu")?);
    let options = [
        format!("--gpu-architecture={arch}"),
        "--std=c++17".into(),
        "--ptxas-options=--verbose".into(),
        "--ptxas-options=--warn-on-spills".into(),
    ];
    let options = options.iter().map(|option| string(option)).collect::<Result<Vec<_>, _>>()?;
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let mut program = Program(ptr::null_mut());
    // SAFETY: NVRTC is there; strings end in a zero and live until the program is destroyed, buffers have
    // the sizes that it asks for.
    unsafe {
        let made = sys::nvrtcCreateProgram(
            &mut program.0,
            source.as_ptr(),
            name.as_ptr(),
            0,
            ptr::null(),
            ptr::null(),
        );
        check("nvrtcCreateProgram", made)?;
        let result = sys::nvrtcCompileProgram(program.0, options.len() as i32, options.as_ptr());
        let log = log(&program)?;
        if result == nvrtcResult::NVRTC_ERROR_COMPILATION {
            return Err(CompileFailure::Log(log));
        }
        check("nvrtcCompileProgram", result).map_err(|failure| match failure {
            CompileFailure::Backend(BackendError::Driver { backend, call, text }) => {
                CompileFailure::Backend(BackendError::Driver {
                    backend,
                    call,
                    text: format!("{text}: {log}"),
                })
            }
            other => other,
        })?;
        let mut bytes = 0;
        check("nvrtcGetCUBINSize", sys::nvrtcGetCUBINSize(program.0, &mut bytes))?;
        let mut cubin = vec![0u8; bytes];
        check("nvrtcGetCUBIN", sys::nvrtcGetCUBIN(program.0, cubin.as_mut_ptr().cast()))?;
        Ok(Compiled { cubin: cubin.into(), log })
    }
}

/// # Safety
/// NVRTC is there and the program was compiled.
unsafe fn log(program: &Program) -> Result<String, CompileFailure> {
    let mut bytes = 0;
    // SAFETY: as of this function; the buffer has the size that NVRTC asks for.
    unsafe {
        check("nvrtcGetProgramLogSize", sys::nvrtcGetProgramLogSize(program.0, &mut bytes))?;
        let mut text = vec![0u8; bytes];
        check("nvrtcGetProgramLog", sys::nvrtcGetProgramLog(program.0, text.as_mut_ptr().cast()))?;
        let text = String::from_utf8_lossy(&text);
        Ok(text.trim_end_matches('\0').trim().to_string())
    }
}

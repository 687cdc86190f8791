//! NVRTC: text to a cubin for one architecture. Needs no device and no driver.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::OnceLock;

use fuseplan_api::BackendError;
use fuseplan_gpu::{CompileFailure, Compiled, Memo};

use crate::sys::{Nvrtc, Opaque, Status};
use crate::{BACKEND, library};

/// Calls a function of NVRTC; an error carries the function's name and NVRTC's words. Unsafe like the function
/// itself.
macro_rules! call {
    ($nvrtc:ident.$function:ident($($argument:expr),* $(,)?)) => {
        match $nvrtc.$function {
            Some(function) => check($nvrtc, stringify!($function), function($($argument),*)),
            None => Err(library::lacks("libnvrtc", stringify!($function))),
        }
    };
}

/// The compiler's name and version, which stored binaries are of; empty where there is none.
pub(crate) fn version() -> String {
    let Ok(nvrtc) = library::nvrtc() else { return String::new() };
    let (major, minor) = library::version(nvrtc).unwrap_or_default();
    format!("NVRTC {major}.{minor}")
}

/// Compiles a text to a cubin, or remembers what came of it. The log says what it takes: registers, shared
/// memory, stack, spills.
pub(crate) fn compile(source: &str, arch: &str) -> Result<Compiled, CompileFailure> {
    static KNOWN: OnceLock<Memo> = OnceLock::new();
    KNOWN.get_or_init(Memo::default).get_or_compile(source, arch, translate)
}

/// The error of a function of NVRTC's.
fn check(nvrtc: &Nvrtc, call: &'static str, status: Status) -> Result<(), BackendError> {
    if status == Status::SUCCESS {
        return Ok(());
    }
    // SAFETY: NVRTC gives a constant string.
    let text = unsafe {
        let text = nvrtc.nvrtcGetErrorString.map_or(ptr::null(), |words| words(status));
        if text.is_null() { "error".into() } else { CStr::from_ptr(text).to_string_lossy() }
    };
    Err(BackendError::Driver { backend: BACKEND, call, text: format!("{text} ({})", status.0) })
}

/// A program of NVRTC's.
struct Program {
    nvrtc: &'static Nvrtc,
    raw: Opaque,
}

impl Drop for Program {
    fn drop(&mut self) {
        let nvrtc = self.nvrtc;
        // SAFETY: the program was made and is destroyed once.
        let _ = unsafe { call!(nvrtc.nvrtcDestroyProgram(&mut self.raw)) };
    }
}

impl Program {
    fn new(source: &CStr, name: &CStr) -> Result<Self, BackendError> {
        let nvrtc = library::nvrtc()?;
        let mut raw = ptr::null_mut();
        let (source, name, none) = (source.as_ptr(), name.as_ptr(), ptr::null());
        // SAFETY: NVRTC copies the strings, which end in a zero, and writes the program.
        unsafe { call!(nvrtc.nvrtcCreateProgram(&mut raw, source, name, 0, none, none)) }?;
        Ok(Program { nvrtc, raw })
    }

    fn compile(&self, options: &[CString]) -> Result<Compiled, CompileFailure> {
        let nvrtc = self.nvrtc;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let compile =
            nvrtc.nvrtcCompileProgram.ok_or_else(|| library::lacks("libnvrtc", "nvrtcCompileProgram"))?;
        // SAFETY: the program is live; there are as many options as said, each ends in a zero.
        let status = unsafe { compile(self.raw, options.len() as i32, options.as_ptr()) };
        // What is wrong with the text matters more than a log that cannot be had.
        let log = self.log();
        let explained = |words: String| match &log {
            Ok(log) if !log.is_empty() => format!("{words}: {log}"),
            _ => words,
        };
        match (status, check(nvrtc, "nvrtcCompileProgram", status)) {
            (Status::COMPILATION, Err(error)) => {
                return Err(CompileFailure::Log(explained(error.to_string())));
            }
            (_, Err(BackendError::Driver { backend, call, text })) => {
                return Err(BackendError::Driver { backend, call, text: explained(text) }.into());
            }
            (_, Err(error)) => return Err(error.into()),
            (_, Ok(())) => {}
        }
        let log = log?;
        Ok(Compiled { image: self.cubin()?.into(), log })
    }

    fn cubin(&self) -> Result<Vec<u8>, BackendError> {
        let (nvrtc, mut bytes) = (self.nvrtc, 0);
        // SAFETY: NVRTC writes the number, and then as many bytes.
        unsafe {
            call!(nvrtc.nvrtcGetCUBINSize(self.raw, &mut bytes))?;
            let mut cubin = vec![0u8; bytes];
            call!(nvrtc.nvrtcGetCUBIN(self.raw, cubin.as_mut_ptr().cast()))?;
            Ok(cubin)
        }
    }

    fn log(&self) -> Result<String, BackendError> {
        let (nvrtc, mut bytes) = (self.nvrtc, 0);
        // SAFETY: NVRTC writes the number, and then as many bytes.
        let text = unsafe {
            call!(nvrtc.nvrtcGetProgramLogSize(self.raw, &mut bytes))?;
            let mut text = vec![0u8; bytes];
            call!(nvrtc.nvrtcGetProgramLog(self.raw, text.as_mut_ptr().cast()))?;
            text
        };
        Ok(String::from_utf8_lossy(&text).trim_end_matches('\0').trim().to_string())
    }
}

/// The first version that has the option `--minimal`.
const MINIMAL: (c_int, c_int) = (12, 4);

fn translate(source: &str, arch: &str) -> Result<Compiled, CompileFailure> {
    let string = |text: &str| CString::new(text).map_err(|error| CompileFailure::Log(error.to_string()));
    let mut options = vec![
        format!("--gpu-architecture={arch}"),
        "--std=c++17".into(),
        "--ptxas-options=--verbose".into(),
        "--ptxas-options=--warn-on-spills".into(),
    ];
    // NVRTC parses under one lock in the whole process, its own declarations too. Kernels use none of textures, of the runtime and of
    // launches from the device, which it leaves out then.
    if library::version(library::nvrtc()?).is_some_and(|version| version >= MINIMAL) {
        options.push("--minimal".into());
    }
    let options = options.iter().map(|option| string(option)).collect::<Result<Vec<_>, _>>()?;
    Program::new(&string(source)?, c"fuseplan.cu")?.compile(&options)
}

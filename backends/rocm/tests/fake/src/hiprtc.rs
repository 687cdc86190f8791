//! The compiler's functions.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::ptr;

use fuseplan_hip_sys::*;

use crate::hip::code_object;
use crate::shim;
use crate::state::{Kind, state};

/// A program, behind the compiler's pointer.
struct Program {
    source: String,
    code: Vec<u8>,
    log: CString,
}

type Outcome = Result<(), hiprtcResult>;

/// Defines functions that note their call and fail if they are to.
macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $body:block)*) => {
        $(
            /// hiprtc's function of this name.
            ///
            /// # Safety
            /// As hiprtc's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> hiprtcResult {
                if let Some(number) = state().begin(stringify!($name)) {
                    return hiprtcResult(number);
                }
                let work = || -> Outcome { $body };
                match work() {
                    Ok(()) => hiprtcResult::HIPRTC_SUCCESS,
                    Err(error) => error,
                }
            }
        )*

        /// Does not compile if a function's type is not that of HIP's header.
        #[allow(dead_code, reason = "only its types count")]
        fn have_the_types_of_the_header(hiprtc: &mut Hiprtc) {
            $(hiprtc.$name = $name;)*
            hiprtc.hiprtcGetErrorString = hiprtcGetErrorString;
        }
    };
}

/// A live program.
///
/// # Safety
/// If it is live, nobody else uses it.
unsafe fn open<'a>(program: hiprtcProgram) -> Result<&'a mut Program, hiprtcResult> {
    if !state().is_live(program as usize, Kind::Program) {
        return Err(hiprtcResult::HIPRTC_ERROR_INVALID_PROGRAM);
    }
    // SAFETY: live programs are addresses of boxes.
    Ok(unsafe { &mut *program.cast::<Program>() })
}

functions! {
    fn hiprtcCreateProgram(
        program: *mut hiprtcProgram,
        source: *const c_char,
        _name: *const c_char,
        headers: c_int,
        _texts: *const *const c_char,
        _names: *const *const c_char
    ) {
        if source.is_null() || headers != 0 {
            return Err(hiprtcResult::HIPRTC_ERROR_INVALID_INPUT);
        }
        // SAFETY: a text ends in a zero.
        let source = unsafe { CStr::from_ptr(source) }.to_string_lossy().into_owned();
        let made = Box::into_raw(Box::new(Program { source, code: Vec::new(), log: CString::default() }));
        state().live.insert(made as usize, (Kind::Program, 0));
        // SAFETY: as hiprtc's.
        unsafe { program.write(made.cast()) };
        Ok(())
    }

    fn hiprtcDestroyProgram(program: *mut hiprtcProgram) {
        // SAFETY: as hiprtc's.
        let raw = unsafe { *program };
        if !state().end(raw as usize, Kind::Program) {
            return Err(hiprtcResult::HIPRTC_ERROR_INVALID_PROGRAM);
        }
        // SAFETY: it was live, so it is the address of a box; now it is not.
        unsafe {
            drop(Box::from_raw(raw.cast::<Program>()));
            program.write(ptr::null_mut());
        }
        Ok(())
    }

    fn hiprtcCompileProgram(program: hiprtcProgram, count: c_int, options: *const *const c_char) {
        // SAFETY: as hiprtc's.
        let program = unsafe { open(program) }?;
        // SAFETY: there are as many options.
        let options = unsafe { std::slice::from_raw_parts(options, count as usize) };
        // SAFETY: each ends in a zero.
        let options = options.iter().map(|&option| unsafe { CStr::from_ptr(option) }.to_string_lossy());
        let mut archs = options.filter_map(|option| option.strip_prefix("--offload-arch=").map(String::from));
        // Without one the real compiler asks for the device and fails with an empty log if there is none.
        let Some(arch) = archs.next() else { return Err(hiprtcResult::HIPRTC_ERROR_COMPILATION) };
        let made = match std::env::var("FAKE_HIP_KERNELS") {
            Ok(folder) => shim::build(&program.source, &arch, Path::new(&folder)).map(|file| file.display().to_string()),
            Err(_) => Ok(String::new()),
        };
        match made {
            Ok(object) => program.code = code_object(&arch, &object),
            Err(log) => {
                program.log = CString::new(log).unwrap_or_default();
                return Err(hiprtcResult::HIPRTC_ERROR_COMPILATION);
            }
        }
        Ok(())
    }

    fn hiprtcGetProgramLogSize(program: hiprtcProgram, bytes: *mut usize) {
        // SAFETY: as hiprtc's.
        unsafe { bytes.write(open(program)?.log.as_bytes_with_nul().len()) };
        Ok(())
    }

    fn hiprtcGetProgramLog(program: hiprtcProgram, log: *mut c_char) {
        // SAFETY: as hiprtc's: there is room for as many bytes as it said.
        unsafe {
            let text = open(program)?.log.as_bytes_with_nul();
            ptr::copy_nonoverlapping(text.as_ptr(), log.cast(), text.len());
        }
        Ok(())
    }

    fn hiprtcGetCodeSize(program: hiprtcProgram, bytes: *mut usize) {
        // SAFETY: as hiprtc's.
        unsafe { bytes.write(open(program)?.code.len()) };
        Ok(())
    }

    fn hiprtcGetCode(program: hiprtcProgram, code: *mut c_char) {
        // SAFETY: as hiprtc's: there is room for as many bytes as it said.
        unsafe {
            let from = &open(program)?.code;
            ptr::copy_nonoverlapping(from.as_ptr(), code.cast(), from.len());
        }
        Ok(())
    }
}

/// hiprtc's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn hiprtcGetErrorString(result: hiprtcResult) -> *const c_char {
    match result {
        hiprtcResult::HIPRTC_ERROR_COMPILATION => c"HIPRTC_ERROR_COMPILATION".as_ptr(),
        _ => c"Invalid HIPRTC error code".as_ptr(),
    }
}

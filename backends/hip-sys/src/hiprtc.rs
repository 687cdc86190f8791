// Made by examples/generate.rs from the headers of HIP 7.2; not to be edited.

impl hiprtcResult {
    pub const HIPRTC_SUCCESS: hiprtcResult = hiprtcResult(0);
    pub const HIPRTC_ERROR_OUT_OF_MEMORY: hiprtcResult = hiprtcResult(1);
    pub const HIPRTC_ERROR_PROGRAM_CREATION_FAILURE: hiprtcResult = hiprtcResult(2);
    pub const HIPRTC_ERROR_INVALID_INPUT: hiprtcResult = hiprtcResult(3);
    pub const HIPRTC_ERROR_INVALID_PROGRAM: hiprtcResult = hiprtcResult(4);
    pub const HIPRTC_ERROR_INVALID_OPTION: hiprtcResult = hiprtcResult(5);
    pub const HIPRTC_ERROR_COMPILATION: hiprtcResult = hiprtcResult(6);
    pub const HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE: hiprtcResult = hiprtcResult(7);
    pub const HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION: hiprtcResult = hiprtcResult(8);
    pub const HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION: hiprtcResult = hiprtcResult(9);
    pub const HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID: hiprtcResult = hiprtcResult(10);
    pub const HIPRTC_ERROR_INTERNAL_ERROR: hiprtcResult = hiprtcResult(11);
    pub const HIPRTC_ERROR_LINKING: hiprtcResult = hiprtcResult(100);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct hiprtcResult(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct _hiprtcProgram {
    _unused: [u8; 0],
}
pub type hiprtcProgram = *mut _hiprtcProgram;
pub struct Hiprtc {
    __library: ::libloading::Library,
    pub hiprtcGetErrorString: unsafe extern "C" fn(result: hiprtcResult) -> *const ::std::os::raw::c_char,
    pub hiprtcCompileProgram: unsafe extern "C" fn(
        prog: hiprtcProgram,
        numOptions: ::std::os::raw::c_int,
        options: *const *const ::std::os::raw::c_char,
    ) -> hiprtcResult,
    pub hiprtcCreateProgram: unsafe extern "C" fn(
        prog: *mut hiprtcProgram,
        src: *const ::std::os::raw::c_char,
        name: *const ::std::os::raw::c_char,
        numHeaders: ::std::os::raw::c_int,
        headers: *const *const ::std::os::raw::c_char,
        includeNames: *const *const ::std::os::raw::c_char,
    ) -> hiprtcResult,
    pub hiprtcDestroyProgram: unsafe extern "C" fn(prog: *mut hiprtcProgram) -> hiprtcResult,
    pub hiprtcGetProgramLog:
        unsafe extern "C" fn(prog: hiprtcProgram, log: *mut ::std::os::raw::c_char) -> hiprtcResult,
    pub hiprtcGetProgramLogSize:
        unsafe extern "C" fn(prog: hiprtcProgram, logSizeRet: *mut usize) -> hiprtcResult,
    pub hiprtcGetCode:
        unsafe extern "C" fn(prog: hiprtcProgram, code: *mut ::std::os::raw::c_char) -> hiprtcResult,
    pub hiprtcGetCodeSize: unsafe extern "C" fn(prog: hiprtcProgram, codeSizeRet: *mut usize) -> hiprtcResult,
}
impl Hiprtc {
    pub unsafe fn new<P>(path: P) -> Result<Self, ::libloading::Error>
    where
        P: AsRef<::std::ffi::OsStr>,
    {
        let library = ::libloading::Library::new(path)?;
        Self::from_library(library)
    }
    pub unsafe fn from_library<L>(library: L) -> Result<Self, ::libloading::Error>
    where
        L: Into<::libloading::Library>,
    {
        let __library = library.into();
        let hiprtcGetErrorString = __library.get(b"hiprtcGetErrorString\0").map(|sym| *sym)?;
        let hiprtcCompileProgram = __library.get(b"hiprtcCompileProgram\0").map(|sym| *sym)?;
        let hiprtcCreateProgram = __library.get(b"hiprtcCreateProgram\0").map(|sym| *sym)?;
        let hiprtcDestroyProgram = __library.get(b"hiprtcDestroyProgram\0").map(|sym| *sym)?;
        let hiprtcGetProgramLog = __library.get(b"hiprtcGetProgramLog\0").map(|sym| *sym)?;
        let hiprtcGetProgramLogSize = __library.get(b"hiprtcGetProgramLogSize\0").map(|sym| *sym)?;
        let hiprtcGetCode = __library.get(b"hiprtcGetCode\0").map(|sym| *sym)?;
        let hiprtcGetCodeSize = __library.get(b"hiprtcGetCodeSize\0").map(|sym| *sym)?;
        Ok(Hiprtc {
            __library,
            hiprtcGetErrorString,
            hiprtcCompileProgram,
            hiprtcCreateProgram,
            hiprtcDestroyProgram,
            hiprtcGetProgramLog,
            hiprtcGetProgramLogSize,
            hiprtcGetCode,
            hiprtcGetCodeSize,
        })
    }
    pub unsafe fn hiprtcGetErrorString(&self, result: hiprtcResult) -> *const ::std::os::raw::c_char {
        (self.hiprtcGetErrorString)(result)
    }
    pub unsafe fn hiprtcCompileProgram(
        &self,
        prog: hiprtcProgram,
        numOptions: ::std::os::raw::c_int,
        options: *const *const ::std::os::raw::c_char,
    ) -> hiprtcResult {
        (self.hiprtcCompileProgram)(prog, numOptions, options)
    }
    pub unsafe fn hiprtcCreateProgram(
        &self,
        prog: *mut hiprtcProgram,
        src: *const ::std::os::raw::c_char,
        name: *const ::std::os::raw::c_char,
        numHeaders: ::std::os::raw::c_int,
        headers: *const *const ::std::os::raw::c_char,
        includeNames: *const *const ::std::os::raw::c_char,
    ) -> hiprtcResult {
        (self.hiprtcCreateProgram)(prog, src, name, numHeaders, headers, includeNames)
    }
    pub unsafe fn hiprtcDestroyProgram(&self, prog: *mut hiprtcProgram) -> hiprtcResult {
        (self.hiprtcDestroyProgram)(prog)
    }
    pub unsafe fn hiprtcGetProgramLog(
        &self,
        prog: hiprtcProgram,
        log: *mut ::std::os::raw::c_char,
    ) -> hiprtcResult {
        (self.hiprtcGetProgramLog)(prog, log)
    }
    pub unsafe fn hiprtcGetProgramLogSize(
        &self,
        prog: hiprtcProgram,
        logSizeRet: *mut usize,
    ) -> hiprtcResult {
        (self.hiprtcGetProgramLogSize)(prog, logSizeRet)
    }
    pub unsafe fn hiprtcGetCode(
        &self,
        prog: hiprtcProgram,
        code: *mut ::std::os::raw::c_char,
    ) -> hiprtcResult {
        (self.hiprtcGetCode)(prog, code)
    }
    pub unsafe fn hiprtcGetCodeSize(&self, prog: hiprtcProgram, codeSizeRet: *mut usize) -> hiprtcResult {
        (self.hiprtcGetCodeSize)(prog, codeSizeRet)
    }
}

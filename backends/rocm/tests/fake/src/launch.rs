//! Kernels that run on this CPU.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use fuseplan_hip_sys::hipError_t;

use crate::hip::Outcome;

/// A launch with its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) function: usize,
    /// The shared object of the kernel, if kernels run.
    pub(crate) object: Option<String>,
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
    pub(crate) arguments: Vec<u64>,
}

impl Launch {
    /// Runs the kernel of the shared object, which is open only meanwhile: programs have thousands.
    ///
    /// # Safety
    /// The arguments are good for the kernel.
    pub(crate) unsafe fn run(&self) -> Outcome {
        let Some(object) = &self.object else { return Ok(()) };
        /// `shim_launch` of `shim/launch.h`.
        type Launch = unsafe extern "C" fn(
            *const c_char,
            *const c_uint,
            *const c_uint,
            c_uint,
            *const c_void,
            std::ffi::c_ulong,
            *mut c_char,
            std::ffi::c_ulong,
        ) -> c_int;
        let failed = |what: &str| {
            eprintln!("fake HIP: {object}: {what}");
            Err(hipError_t::hipErrorLaunchFailure)
        };
        // SAFETY: the shim made the object; it does nothing when it is loaded.
        let library = match unsafe { libloading::Library::new(object) } {
            Ok(library) => library,
            Err(error) => return failed(&error.to_string()),
        };
        // SAFETY: the function has this type.
        let Ok(run) = (unsafe { library.get::<Launch>(b"shim_launch\0") }) else {
            return failed("no shim_launch");
        };
        let mut message = [0; 512];
        let (name, room) = (c"fuseplan_kernel".as_ptr(), message.len() as std::ffi::c_ulong);
        // SAFETY: as of this function; the message has room for as many bytes.
        let status = unsafe {
            run(
                name,
                self.grid.as_ptr(),
                self.block.as_ptr(),
                self.shared,
                self.arguments.as_ptr().cast(),
                size_of_val(&self.arguments[..]) as std::ffi::c_ulong,
                message.as_mut_ptr(),
                room,
            )
        };
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the message ends in a zero.
        failed(&unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy())
    }
}

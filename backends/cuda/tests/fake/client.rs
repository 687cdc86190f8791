//! The fake for the tests that use it: its own functions, and a process whose loader finds it first.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::ptr;

use libloading::Library;

/// The folder of the fake, in the process that loads it.
pub(crate) const FAKE: &str = "FUSEPLAN_TEST_FAKE";

/// The fake's own functions.
pub(crate) struct Fake(Library);

impl Fake {
    pub(crate) fn load() -> Self {
        // SAFETY: the fake, which the loader finds before a real driver.
        Fake(unsafe { Library::new("libcuda.so.1") }.unwrap())
    }

    /// What a function of the fake says.
    pub(crate) fn text(&self, function: &str) -> String {
        // SAFETY: functions of this type, which give strings that stay.
        unsafe {
            let function = self.0.get::<unsafe extern "C" fn() -> *mut c_char>(function).unwrap();
            CStr::from_ptr(function()).to_string_lossy().into_owned()
        }
    }

    /// The `nth` call from now fails.
    pub(crate) fn fail(&self, nth: u64, status: c_int) {
        // SAFETY: the function has this type.
        unsafe { self.0.get::<unsafe extern "C" fn(u64, c_int)>("fake_fail").unwrap()(nth, status) }
    }

    /// The call that failed.
    pub(crate) fn failed(&self) -> String {
        self.text("fake_failed")
    }

    /// What is live, and contexts that are current.
    pub(crate) fn live(&self) -> String {
        self.text("fake_live")
    }

    /// Kernels that have run on a device.
    pub(crate) fn launches(&self, device: u32) -> u64 {
        // SAFETY: the function has this type.
        unsafe { self.0.get::<unsafe extern "C" fn(c_int) -> u64>("fake_launches").unwrap()(device as c_int) }
    }

    /// A context of the caller's, which is then the thread's current one.
    pub(crate) fn create_context(&self, device: u32) -> *mut c_void {
        let mut context = ptr::null_mut();
        type Create = unsafe extern "C" fn(*mut *mut c_void, u32, c_int) -> c_int;
        // SAFETY: the driver's function, which writes the context.
        let status =
            unsafe { self.0.get::<Create>("cuCtxCreate_v2").unwrap()(&mut context, 0, device as c_int) };
        assert_eq!(status, 0);
        context
    }

    pub(crate) fn destroy_context(&self, context: *mut c_void) {
        type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;
        // SAFETY: the context is live.
        let status = unsafe { self.0.get::<Destroy>("cuCtxDestroy_v2").unwrap()(context) };
        assert_eq!(status, 0);
    }
}

/// This program with a folder of libraries.
pub(crate) fn command(folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("LD_LIBRARY_PATH", folder).env(FAKE, folder);
    for name in ["FUSEPLAN_NVRTC_PATH", "CUDA_PATH", "CUDA_HOME", "VIRTUAL_ENV"] {
        command.env_remove(name);
    }
    command
}

/// Puts the fake into a folder and runs this program again with a loader that looks there first.
pub(crate) fn with_fake() -> std::io::Result<ExitCode> {
    let fake = std::env::current_exe()?.with_file_name("libfuseplan_fake_cuda.so");
    let folder = std::env::temp_dir().join(format!("fuseplan-fake-cuda-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    fs::copy(&fake, folder.join("libcuda.so.1"))?;
    // One file under two names is one library to the loader, with one set of objects; a copy would be another.
    fs::hard_link(folder.join("libcuda.so.1"), folder.join("libnvrtc.so.13"))?;
    let status = command(&folder).args(std::env::args_os().skip(1)).status();
    fs::remove_dir_all(&folder)?;
    Ok(if status?.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

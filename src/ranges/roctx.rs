//! rocTX: functions of a library of AMD's, which profilers listen to. ROCprofiler's is today's; rocTracer's is the one before,
//! which rocprofv3 understands too.

use std::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};

use fuseplan_api::Variable;
use libloading::Library;

use super::Profiler;

/// The libraries, the preferred first.
const NAMES: [&str; 4] =
    ["librocprofiler-sdk-roctx.so.1", "librocprofiler-sdk-roctx.so", "libroctx64.so.4", "libroctx64.so"];

struct Roctx {
    push: unsafe extern "C" fn(*const c_char) -> c_int,
    pop: unsafe extern "C" fn() -> c_int,
}

impl Profiler for Roctx {
    fn push(&self, name: &CStr) {
        // SAFETY: the function copies a C string, which lives during the call.
        unsafe { (self.push)(name.as_ptr()) };
    }

    fn pop(&self) {
        // SAFETY: the function takes nothing, and the library is never unloaded.
        unsafe { (self.pop)() };
    }
}

/// rocTX, if its library is on this machine.
pub(super) fn load() -> Option<Box<dyn Profiler>> {
    let named = [Variable::ROCM_PATH, Variable::HIP_PATH].into_iter().filter_map(Variable::library_path);
    let folders = named.chain([PathBuf::from("/opt/rocm")]).map(|folder| folder.join("lib"));
    // By its bare name a library is looked for where the system's loader looks.
    let files = NAMES.map(PathBuf::from).into_iter();
    let files = files.chain(folders.flat_map(|folder| NAMES.map(|name| folder.join(name))));
    files.into_iter().find_map(|file| open(&file)).map(|found| Box::new(found) as Box<dyn Profiler>)
}

fn open(file: &Path) -> Option<Roctx> {
    // SAFETY: a library of these names is AMD's, whose constructors may run in any process; the environment names its
    // folder only where it may (`library_path`).
    let library = unsafe { Library::new(file) }.ok()?;
    // SAFETY: the function has this type in `roctx.h`.
    let push = unsafe { library.get::<unsafe extern "C" fn(*const c_char) -> c_int>(b"roctxRangePushA\0") };
    // SAFETY: the function has this type in `roctx.h`.
    let pop = unsafe { library.get::<unsafe extern "C" fn() -> c_int>(b"roctxRangePop\0") };
    let found = Roctx { push: *push.ok()?, pop: *pop.ok()? };
    // Its functions are called until the process ends.
    std::mem::forget(library);
    Some(found)
}

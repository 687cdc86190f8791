//! A profiler that writes down the ranges it is told of: a tool that NVTX injects, and rocTX.
//!
//! Lines `nvtx push NAME`, `nvtx pop`, `roctx push NAME` and `roctx pop` are added to the file that the environment variable
//! [`FILE`] names. With [`REFUSES`] the tool refuses to be initialised.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// The environment variable that names the file of ranges.
pub const FILE: &str = "FUSEPLAN_TEST_RANGES";

/// The environment variable that lets the initialisation fail.
pub const REFUSES: &str = "FUSEPLAN_TEST_RANGES_REFUSED";

/// What a domain of this tool is.
const DOMAIN: usize = 0x1234;

/// Where the shared object is: beside the test that was built with it.
///
/// # Errors
/// The program does not know where it is.
pub fn shared_object() -> std::io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("libfuseplan_fake_profiler.so"))
}

fn say(line: &str) {
    let Some(path) = std::env::var_os(FILE) else { return };
    let written = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = written {
        eprintln!("the fake profiler cannot write: {error}");
    }
}

/// # Safety
/// The pointer is to a C string.
unsafe fn text(name: *const c_char) -> String {
    // SAFETY: as promised by the caller.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// rocTX's function.
///
/// # Safety
/// The pointer is to a C string.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "rocTX's own name")]
pub unsafe extern "C" fn roctxRangePushA(name: *const c_char) -> c_int {
    // SAFETY: as promised by the caller.
    say(&format!("roctx push {}", unsafe { text(name) }));
    0
}

/// rocTX's function.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "rocTX's own name")]
pub extern "C" fn roctxRangePop() -> c_int {
    say("roctx pop");
    0
}

/// NVTX's table of callbacks, of whatever size.
#[repr(C)]
struct Callbacks {
    size: usize,
    get_module_function_table:
        unsafe extern "C" fn(c_uint, *mut *const *mut *const c_void, *mut c_uint) -> c_int,
}

/// The first and the last members of NVTX's attributes of an event.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    between: [u8; 28],
    message_type: i32,
    message: *const c_char,
}

/// The function by which NVTX attaches a tool: fills in the functions of domains and their ranges.
///
/// # Safety
/// The argument is NVTX's.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "NVTX's own name")]
pub unsafe extern "C" fn InitializeInjectionNvtx2(
    get_export_table: unsafe extern "C" fn(u32) -> *const c_void,
) -> c_int {
    if std::env::var_os(REFUSES).is_some() {
        return 0;
    }
    // SAFETY: table 1 is that of callbacks, or null.
    let callbacks = unsafe { get_export_table(1).cast::<Callbacks>().as_ref() };
    let Some(callbacks) = callbacks.filter(|callbacks| callbacks.size >= size_of::<Callbacks>()) else {
        return 0;
    };
    let sizes = [(1, 16), (2, 9), (3, 15), (4, 7), (5, 16), (6, 7)];
    for (module, expected) in sizes {
        let (mut table, mut size) = (std::ptr::null(), 0);
        // SAFETY: places for a table and its size.
        let found = unsafe { (callbacks.get_module_function_table)(module, &mut table, &mut size) };
        if found == 0 || size != expected {
            say(&format!("module {module} has {size} places"));
            return 0;
        }
        if module == 5 {
            let functions: [(usize, *const c_void); 3] =
                [(4, push as *const c_void), (5, pop as *const c_void), (12, create_domain as *const c_void)];
            for (place, function) in functions {
                // SAFETY: the table has so many addresses of places, each of which takes a function.
                unsafe { **table.add(place) = function };
            }
        }
    }
    1
}

/// # Safety
/// The pointer is to a C string.
unsafe extern "C" fn create_domain(name: *const c_char) -> *mut c_void {
    // SAFETY: as promised by the caller.
    say(&format!("nvtx domain {}", unsafe { text(name) }));
    DOMAIN as *mut c_void
}

/// # Safety
/// The pointer is to attributes whose message is a C string.
unsafe extern "C" fn push(domain: *mut c_void, attributes: *const Attributes) -> c_int {
    // SAFETY: as promised by the caller.
    let Attributes { version, size, message_type, message, .. } = unsafe { attributes.read() };
    let is_sound = (domain.addr(), version, size, message_type) == (DOMAIN, 3, 48, 1);
    // SAFETY: as promised by the caller.
    let name = unsafe { text(message) };
    say(&if is_sound { format!("nvtx push {name}") } else { format!("nvtx push is wrong: {name}") });
    0
}

unsafe extern "C" fn pop(domain: *mut c_void) -> c_int {
    say(if domain.addr() == DOMAIN { "nvtx pop" } else { "nvtx pop of another domain" });
    0
}

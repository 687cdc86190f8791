//! Finding and steering the shared object that a program has loaded.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::ops::Range;
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::shim;
use crate::state::{Kind, state};

/// The shared object, as a test sees it.
#[derive(Debug)]
pub struct Fake {
    fail: unsafe extern "C" fn(*const c_char, usize, usize, u32),
    calls: unsafe extern "C" fn() -> *mut c_char,
    live: unsafe extern "C" fn() -> *mut c_char,
    take_live: unsafe extern "C" fn() -> *mut c_char,
    free: unsafe extern "C" fn(*mut c_char),
}

impl Fake {
    /// Whether there is a compiler for kernels that run on this CPU.
    pub fn runs_kernels() -> bool {
        shim::compiler().is_some()
    }

    /// Puts the runtime's and the compiler's file names into `folder`/lib, for `ROCM_PATH`.
    ///
    /// # Errors
    /// The shared object was not built, or the folder cannot be written.
    pub fn install(folder: &Path, major: u32) -> Result<(), String> {
        let lib = folder.join("lib");
        let words = |error: std::io::Error| format!("{}: {error}", lib.display());
        std::fs::create_dir_all(&lib).map_err(words)?;
        for stem in ["libamdhip64", "libhiprtc"] {
            let link = lib.join(format!("{stem}.so.{major}"));
            // Of the compiler's own library there is one from HIP 6 on.
            if stem == "libhiprtc" && major < 6 {
                continue;
            }
            let _ = std::fs::remove_file(&link);
            #[cfg(unix)]
            std::os::unix::fs::symlink(object()?, &link).map_err(words)?;
        }
        Ok(())
    }

    /// The shared object that [`install`](Fake::install) put into a folder.
    ///
    /// # Errors
    /// It cannot be loaded.
    pub fn open(folder: &Path, major: u32) -> Result<Self, String> {
        let file = folder.join("lib").join(format!("libamdhip64.so.{major}"));
        let words = |error: libloading::Error| error.to_string();
        // SAFETY: it does nothing when it is loaded, its functions have these types, and it stays.
        unsafe {
            let library = Library::new(file).map_err(words)?;
            let fake = Fake {
                fail: *library.get(b"fake_hip_fail\0").map_err(words)?,
                calls: *library.get(b"fake_hip_calls\0").map_err(words)?,
                live: *library.get(b"fake_hip_live\0").map_err(words)?,
                take_live: *library.get(b"fake_hip_take_live\0").map_err(words)?,
                free: *library.get(b"fake_hip_free\0").map_err(words)?,
            };
            std::mem::forget(library);
            Ok(fake)
        }
    }

    /// Forgets calls and wishes to fail.
    pub fn reset(&self) {
        self.fail("", 0..0, 0);
    }

    /// Forgets calls; these calls of a function, counted from 0, are to return `number`.
    pub fn fail(&self, function: &str, calls: Range<usize>, number: u32) {
        let name = CString::new(function).unwrap_or_default();
        // SAFETY: the name ends in a zero.
        unsafe { (self.fail)(name.as_ptr(), calls.start, calls.end, number) }
    }

    /// The functions called since the last reset, in order.
    pub fn calls(&self) -> Vec<String> {
        self.words(self.calls)
    }

    /// What is in use, by kind.
    pub fn live(&self) -> Vec<String> {
        self.words(self.live)
    }

    /// The same; forgets it.
    pub fn take_live(&self) -> Vec<String> {
        self.words(self.take_live)
    }

    fn words(&self, list: unsafe extern "C" fn() -> *mut c_char) -> Vec<String> {
        // SAFETY: the text ends in a zero and is given back.
        unsafe {
            let text = list();
            let words = CStr::from_ptr(text).to_string_lossy().split_whitespace().map(String::from).collect();
            (self.free)(text);
            words
        }
    }
}

/// The shared object, which Cargo puts beside tests' programs.
fn object() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let file = program.with_file_name("libfuseplan_fake_hip.so");
    if file.exists() { Ok(file) } else { Err(format!("{} was not built", file.display())) }
}

/// See [`Fake::fail`].
///
/// # Safety
/// The name ends in a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_hip_fail(name: *const c_char, first: usize, end: usize, number: u32) {
    // SAFETY: as of this function.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    state().reset(name, first..end, number);
}

/// See [`Fake::calls`].
#[unsafe(no_mangle)]
pub extern "C" fn fake_hip_calls() -> *mut c_char {
    text(&state().calls.join(" "))
}

/// See [`Fake::live`].
#[unsafe(no_mangle)]
pub extern "C" fn fake_hip_live() -> *mut c_char {
    kinds(&state().live)
}

/// See [`Fake::take_live`].
#[unsafe(no_mangle)]
pub extern "C" fn fake_hip_take_live() -> *mut c_char {
    kinds(&std::mem::take(&mut state().live))
}

fn kinds(live: &BTreeMap<usize, (Kind, usize)>) -> *mut c_char {
    let kinds: Vec<_> = live.values().map(|(kind, _)| format!("{kind:?}")).collect();
    text(&kinds.join(" "))
}

fn text(words: &str) -> *mut c_char {
    CString::new(words).unwrap_or_default().into_raw()
}

/// Gives a text of these functions back.
///
/// # Safety
/// It came from one of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_hip_free(text: *mut c_char) {
    // SAFETY: as of this function.
    drop(unsafe { CString::from_raw(text) });
}

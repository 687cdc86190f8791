//! Where the libraries are found.
//!
//! The runtime is the one that the process has already, since two do not get on with each other; else the
//! first that is found in the folders that the environment names, by the system's loader, in ROCm's usual
//! folders, or in a Python environment's. The compiler must fit the runtime: it is the one beside it, of the
//! same major version. HIP before 7 may have it in the runtime itself.
//!
//! Libraries are never unloaded: the compiler does not survive it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use fuseplan_api::Variable;
use libloading::Library;
use thiserror::Error;

use crate::{Hip, Hiprtc, hipError_t};

/// Environment variables that name ROCm's folder, whose `lib` has the libraries. Programs that run with more
/// rights than their user has do not read them.
pub const FOLDERS: [Variable; 2] = [Variable::ROCM_PATH, Variable::HIP_PATH];

/// Major versions by which libraries are looked for. The first is the one of most installations; ABIs of later
/// ones have been the same.
const MAJORS: [u32; 6] = [7, 8, 9, 10, 6, 5];

/// A library that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LoadError {
    /// It is nowhere.
    #[error("{what} is not installed: looked for {names} in {places}; ROCM_PATH names another folder{found}")]
    Missing {
        /// The library, in words.
        what: &'static str,
        /// The names looked for.
        names: String,
        /// The folders looked into.
        places: String,
        /// What was there and could not be loaded, and why; mostly empty.
        found: String,
    },
    /// It does not say which version it is.
    #[error("{library}: hipRuntimeGetVersion failed ({code})")]
    Version {
        /// The library's file.
        library: String,
        /// The runtime's number.
        code: u32,
    },
    /// It lacks a function.
    #[error("{library} has not every function that is needed, which HIP 6.0 and later have: {reason}")]
    Incomplete {
        /// The library's file.
        library: String,
        /// The function, in the loader's words.
        reason: String,
    },
}

/// The runtime's library.
#[derive(Debug)]
struct Runtime {
    file: PathBuf,
    /// As `hipRuntimeGetVersion` gives it: major · 10⁷ + minor · 10⁵ + patch.
    version: i32,
}

/// The runtime with every function of [`Hip`].
///
/// # Errors
/// It is missing, or too old.
pub fn hip() -> Result<&'static Hip, LoadError> {
    static HIP: OnceLock<Result<Hip, LoadError>> = OnceLock::new();
    let load = || {
        let file = &runtime()?.file;
        let library = keep(file).map_err(|reason| incomplete(file, reason))?;
        // SAFETY: the functions have the types of HIP's headers, which did not change from HIP 6 on.
        unsafe { Hip::from_library(library) }.map_err(|error| incomplete(file, error.to_string()))
    };
    HIP.get_or_init(load).as_ref().map_err(Clone::clone)
}

/// The compiler that fits the runtime.
///
/// # Errors
/// It or the runtime is missing.
pub fn hiprtc() -> Result<&'static Hiprtc, LoadError> {
    static HIPRTC: OnceLock<Result<Hiprtc, LoadError>> = OnceLock::new();
    HIPRTC.get_or_init(find_compiler).as_ref().map_err(Clone::clone)
}

/// The runtime's version: major · 10⁷ + minor · 10⁵ + patch. It says which compiler there is, too, whose own
/// version number is always the same. Needs no device.
///
/// # Errors
/// There is no runtime.
pub fn version() -> Result<i32, LoadError> {
    Ok(runtime()?.version)
}

fn incomplete(file: &Path, reason: String) -> LoadError {
    LoadError::Incomplete { library: file.display().to_string(), reason }
}

fn runtime() -> Result<&'static Runtime, LoadError> {
    static RUNTIME: OnceLock<Result<Runtime, LoadError>> = OnceLock::new();
    RUNTIME.get_or_init(find_runtime).as_ref().map_err(Clone::clone)
}

fn find_runtime() -> Result<Runtime, LoadError> {
    let (names, folders) = (names("amdhip64", &MAJORS), folders());
    let mut found = Vec::new();
    let library = names
        .iter()
        .find_map(|name| loaded(name))
        .or_else(|| look(&folders.before, &names, &mut found))
        .or_else(|| names.iter().find_map(|name| by_name(name, &mut found)))
        .or_else(|| look(&folders.after, &names, &mut found));
    let Some((library, file)) = library else {
        let places: Vec<_> = [&folders.before[..], &folders.after[..]].concat();
        return Err(missing("the HIP runtime", &names, "the process, the loader's folders", &places, &found));
    };
    type Version = unsafe extern "C" fn(*mut i32) -> hipError_t;
    // SAFETY: the function has this type in every version.
    let get = unsafe { library.get::<Version>(b"hipRuntimeGetVersion\0") };
    let get = get.map_err(|error| incomplete(&file, error.to_string()))?;
    let (file, mut version) = (file_of(*get as *const ()).unwrap_or(file.clone()), 0);
    // SAFETY: the function writes the number; it needs no device.
    let result = unsafe { get(&mut version) };
    if result != hipError_t::hipSuccess {
        return Err(LoadError::Version { library: file.display().to_string(), code: result.0 });
    }
    std::mem::forget(library);
    Ok(Runtime { file, version })
}

fn find_compiler() -> Result<Hiprtc, LoadError> {
    let runtime = runtime()?;
    let major = u32::try_from(runtime.version / 10_000_000).unwrap_or(0);
    let names = names("hiprtc", &[major]);
    let canonical = runtime.file.canonicalize().ok();
    let files = [Some(&runtime.file), canonical.as_ref()].into_iter().flatten();
    let mut folders: Vec<PathBuf> = files.filter_map(|file| Some(file.parent()?.to_path_buf())).collect();
    folders.retain(|folder| folder.is_absolute());
    folders.dedup();
    let mut found = Vec::new();
    // One that the process has already is of the runtime's version if its name says so.
    let library = look(&folders, &names, &mut found)
        .or_else(|| loaded(&names[0]))
        .or_else(|| (major < 7).then(|| keep_or(&runtime.file, &mut found)).flatten());
    let Some((library, file)) = library else {
        return Err(missing("the run-time compiler hiprtc", &names, "the process", &folders, &found));
    };
    // SAFETY: the functions have the types of HIP's headers, which did not change from HIP 5 on.
    unsafe { Hiprtc::from_library(library) }.map_err(|error| incomplete(&file, error.to_string()))
}

fn missing(
    what: &'static str,
    names: &[String],
    place: &str,
    folders: &[PathBuf],
    found: &[String],
) -> LoadError {
    let folders = folders.iter().map(|folder| folder.display().to_string());
    LoadError::Missing {
        what,
        names: names.join(", "),
        places: std::iter::once(place.to_string()).chain(folders).collect::<Vec<_>>().join(", "),
        found: found.iter().map(|text| format!("; {text}")).collect(),
    }
}

/// File names of a library, the preferred first.
fn names(stem: &str, majors: &[u32]) -> Vec<String> {
    if cfg!(windows) {
        let of = |major| format!("{stem}_{major}.dll");
        return majors.iter().map(of).chain([format!("{stem}.dll")]).collect();
    }
    majors.iter().map(|major| format!("lib{stem}.so.{major}")).chain([format!("lib{stem}.so")]).collect()
}

/// Folders to look into before and after the loader's own.
struct Folders {
    before: Vec<PathBuf>,
    after: Vec<PathBuf>,
}

fn folders() -> Folders {
    let before =
        FOLDERS.iter().filter_map(|variable| variable.library_path()).map(|folder| folder.join("lib"));
    let mut after = vec![PathBuf::from("/opt/rocm/lib")];
    let mut versions = subfolders(Path::new("/opt/rocm"), "core-");
    versions.sort_unstable();
    after.extend(versions.into_iter().rev().map(|folder| folder.join("lib")));
    // AMD's Python packages.
    if let Some(environment) = Variable::VIRTUAL_ENV.library_path() {
        let pythons = subfolders(&environment.join("lib"), "python").into_iter();
        after.extend(pythons.map(|python| python.join("site-packages/_rocm_sdk_core/lib")));
    }
    Folders { before: before.collect(), after }
}

fn subfolders(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let fits = |name: &OsStr| name.to_string_lossy().starts_with(prefix);
    entries.filter(|entry| fits(&entry.file_name())).map(|entry| entry.path()).collect()
}

/// A library and its file, or its name where it was found by that.
type Found = (Library, PathBuf);

/// The first of the files that there is and can be loaded; notes why others cannot.
fn look(folders: &[PathBuf], names: &[String], notes: &mut Vec<String>) -> Option<Found> {
    let mut files = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    files.find_map(|file| if file.exists() { keep_or(&file, notes) } else { None })
}

/// What the system's loader finds by a name. One that it finds and cannot load is noted; on Linux it says which.
fn by_name(name: &str, notes: &mut Vec<String>) -> Option<Found> {
    let mut reasons = Vec::new();
    let found = keep_or(Path::new(name), &mut reasons);
    let absent = format!("{name} could not be loaded: {name}: cannot open shared object file");
    notes.extend(reasons.into_iter().filter(|text| cfg!(target_os = "linux") && !text.starts_with(&absent)));
    found
}

/// [`keep`], or a note of why not.
fn keep_or(file: &Path, notes: &mut Vec<String>) -> Option<Found> {
    match keep(file) {
        Ok(library) => Some((library, file.to_path_buf())),
        Err(reason) => {
            notes.push(format!("{} could not be loaded: {reason}", file.display()));
            None
        }
    }
}

/// Loads a library once more than it will be unloaded, so that it stays.
fn keep(file: &Path) -> Result<Library, String> {
    // SAFETY: loading a library of AMD's runs its initialisers, which is what it is for.
    let open = || unsafe { Library::new(file) }.map_err(|error| error.to_string());
    std::mem::forget(open()?);
    open()
}

/// A library that the process has already.
#[cfg(target_os = "linux")]
fn loaded(name: &str) -> Option<Found> {
    use libloading::os::unix;
    let flags = libc::RTLD_NOLOAD | libc::RTLD_NOW;
    // SAFETY: nothing is loaded, so nothing runs.
    let library = unsafe { unix::Library::open(Some(name), flags) };
    Some((Library::from(library.ok()?), name.into()))
}

/// Other systems give what is loaded already without being asked to.
#[cfg(not(target_os = "linux"))]
fn loaded(_name: &str) -> Option<Found> {
    None
}

/// The file that the code at an address was loaded from.
#[cfg(unix)]
fn file_of(address: *const ()) -> Option<PathBuf> {
    use std::ffi::CStr;
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: zeros are valid for a structure of pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the loader fills the structure, and its strings live as long as the library, which stays.
    unsafe {
        if libc::dladdr(address.cast(), &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(PathBuf::from(OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes())))
    }
}

#[cfg(not(unix))]
fn file_of(_address: *const ()) -> Option<PathBuf> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_versions_in_order() {
        if cfg!(unix) {
            assert_eq!(
                names("amdhip64", &[7, 6]),
                ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"]
            );
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn loaded_libraries_are_found_with_their_files() {
        let (library, _) = loaded("libc.so.6").unwrap();
        // SAFETY: the address is not called.
        let malloc = unsafe { library.get::<unsafe extern "C" fn()>(b"malloc\0") }.unwrap();
        assert!(file_of(*malloc as *const ()).unwrap().is_absolute());
        assert!(loaded("libnever-made.so").is_none());
    }

    #[test]
    fn what_cannot_be_loaded_is_named() {
        let folder = std::env::temp_dir().join(format!("fuseplan-hip-sys-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libfake.so"), "no library").unwrap();
        let mut notes = Vec::new();
        assert!(
            look(std::slice::from_ref(&folder), &["libfake.so".into(), "absent.so".into()], &mut notes)
                .is_none()
        );
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(notes.len() == 1 && notes[0].contains("libfake.so could not be loaded: "), "{notes:?}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_nowhere_is_not_noted() {
        let mut notes = Vec::new();
        assert!(by_name("libnever-made.so", &mut notes).is_none());
        assert!(notes.is_empty(), "{notes:?}");
        assert!(by_name("libc.so.6", &mut notes).is_some());
        // A file that the loader's search ends at, and that is no library.
        assert!(by_name("/proc/self/status", &mut notes).is_none());
        assert!(
            notes.len() == 1 && notes[0].starts_with("/proc/self/status could not be loaded: "),
            "{notes:?}"
        );
    }
}

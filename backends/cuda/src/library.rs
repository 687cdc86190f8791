//! The driver and NVRTC, found and loaded when first wanted, and kept.

use std::error::Error;
use std::ffi::{OsStr, c_int};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use fuseplan_api::{BackendError, Variable, fork};
use libloading::Library;

use crate::sys::{Driver, Nvrtc, Status};
use crate::{BACKEND, driver as calls};

/// Environment variables that name folders in which NVRTC is looked for: the folder itself, which comes before
/// everything else, CUDA toolkits, which come behind the system's loader, and a Python environment, whose packages
/// come last. Programs that run with more rights than their user has do not read them.
pub const FOLDERS: [Variable; 4] = [FOLDER, Variable::CUDA_PATH, Variable::CUDA_HOME, ENVIRONMENT];
const FOLDER: Variable = Variable::NVRTC_PATH;
const ENVIRONMENT: Variable = Variable::VIRTUAL_ENV;

/// What the system's loader knows the driver as.
const DRIVER: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };

/// What the system's loader knows NVRTC as, the newest first.
const NVRTC: &[&str] = if cfg!(windows) {
    &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"]
} else {
    &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
};

/// The folder of a toolkit that has its libraries.
const TOOLKIT: &str = if cfg!(windows) { "bin" } else { "lib64" };

/// The folders of NVIDIA's Python packages that have them, below `site-packages`: of CUDA 13, and of CUDA 12.
const PACKAGES: [&str; 2] = ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"];

/// The driver, or why it cannot be used. A process that was forked from the one that loaded it cannot.
pub(crate) fn driver() -> Result<&'static Driver, BackendError> {
    static FOUND: OnceLock<Result<Driver, String>> = OnceLock::new();
    static LOADED_IN: OnceLock<u64> = OnceLock::new();
    let find = || {
        let mut missing = Vec::new();
        for name in DRIVER {
            match load(name.as_ref()) {
                // SAFETY: the driver's functions have the types of its header.
                Ok(library) => return Ok(unsafe { Driver::of(library) }),
                Err(error) => missing.push(error),
            }
        }
        Err(format!("the driver is not installed: {}", missing.join("; ")))
    };
    let driver = FOUND.get_or_init(find).as_ref().map_err(|reason| unavailable(reason.clone()))?;
    if *LOADED_IN.get_or_init(fork::generation) == fork::generation() {
        Ok(driver)
    } else {
        Err(fork::forked(BACKEND))
    }
}

/// NVRTC, or why it cannot be used.
pub(crate) fn nvrtc() -> Result<&'static Nvrtc, BackendError> {
    static FOUND: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
    FOUND.get_or_init(find_nvrtc).as_ref().map_err(|reason| unavailable(reason.clone()))
}

/// The error of a function that a library does not have.
pub(crate) fn lacks(library: &str, function: &str) -> BackendError {
    unavailable(format!("{library} has no function {function}, it is too old"))
}

fn unavailable(reason: String) -> BackendError {
    BackendError::Unavailable { backend: BACKEND, reason }
}

/// Loads a library, for as long as the process lives: its threads and handlers outlive every use.
fn load(name: &OsStr) -> Result<&'static Library, String> {
    // SAFETY: loading these libraries runs their initialisers, which is what they are for.
    let library = unsafe { Library::new(name) }.map_err(|error| {
        // The loader's own words, which name the file.
        error.source().map_or_else(|| format!("{}: {error}", name.display()), ToString::to_string)
    })?;
    Ok(Box::leak(Box::new(library)))
}

/// Looks for the first NVRTC whose code this machine's driver can load, which is of the same major version or
/// an earlier one; without a driver, or if there is no such, for the first of all.
fn find_nvrtc() -> Result<Nvrtc, String> {
    let newest = calls::version().map_or(c_int::MAX, |(major, _)| major);
    let mut first = None;
    for file in candidates() {
        let Ok(library) = load(file.as_ref()) else { continue };
        // SAFETY: NVRTC's functions have the types of its header.
        let nvrtc = unsafe { Nvrtc::of(library) };
        if version(&nvrtc).is_none_or(|(major, _)| major <= newest) {
            return Ok(nvrtc);
        }
        first.get_or_insert(nvrtc);
    }
    first.ok_or_else(|| {
        let folders: Vec<_> = toolkits().iter().map(|folder| folder.display().to_string()).collect();
        format!(
            "the run-time compiler NVRTC is not installed: looked for {} in the loader's folders, for any \
             version in {}, and in {} of the Python environment {ENVIRONMENT}{}; {FOLDER} names another folder",
            NVRTC.join(", "),
            folders.join(", "),
            PACKAGES.join(" and "),
            ENVIRONMENT.library_path().map_or(String::new(), |folder| format!("={}", folder.display())),
        )
    })
}

/// Major and minor version of NVRTC.
pub(crate) fn version(nvrtc: &Nvrtc) -> Option<(c_int, c_int)> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: NVRTC writes the numbers.
    let status = unsafe { nvrtc.nvrtcVersion?(&mut major, &mut minor) };
    (status == Status::SUCCESS).then_some((major, minor))
}

/// Names and files that may be NVRTC, in the order in which they are tried. Folders are looked into when it
/// is their turn.
fn candidates() -> impl Iterator<Item = PathBuf> {
    let named = FOLDER.library_path();
    let names = NVRTC.iter().map(PathBuf::from);
    let installed = toolkits().into_iter().chain(packages()).flat_map(|folder| files(&folder));
    named.into_iter().flat_map(|folder| files(&folder)).chain(names).chain(installed)
}

/// The folders of toolkits.
fn toolkits() -> Vec<PathBuf> {
    let named = FOLDERS[1..3].iter().filter_map(|variable| variable.library_path());
    let usual = (!cfg!(windows)).then(|| PathBuf::from("/usr/local/cuda"));
    named.chain(usual).map(|folder| folder.join(TOOLKIT)).collect()
}

/// The folders of NVIDIA's packages in the Python environment that is active.
fn packages() -> Vec<PathBuf> {
    let Some(environment) = ENVIRONMENT.library_path() else { return Vec::new() };
    let entries = environment.join("lib").read_dir().into_iter().flatten().flatten();
    let pythons = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("python"));
    let mut sites: Vec<_> = pythons.map(|python| python.path().join("site-packages")).collect();
    sites.sort_unstable();
    sites.iter().flat_map(|site| PACKAGES.map(|package| site.join(package))).collect()
}

/// The files of a folder that are NVRTC by their names, the newest first. Its companion, which some versions
/// look for by name only, is loaded before.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = folder.read_dir() else { return Vec::new() };
    let mut files = Vec::new();
    for file in entries.flatten().map(|entry| entry.path()) {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let is_library = name.contains(".so.") || name.ends_with(".so") || name.ends_with(".dll");
        if !is_library || name.contains(".alt.") {
            continue;
        }
        if name.starts_with("libnvrtc-builtins.so.") || name.starts_with("nvrtc-builtins64_") {
            // Where it is of use, NVRTC says so itself when it is not there.
            let _ = load(file.as_ref());
        } else if name.starts_with("libnvrtc.so") || name.starts_with("nvrtc64_") {
            files.push(file);
        }
    }
    // Versions differ behind the point, or the underscore, and have two digits.
    files.sort_unstable();
    files.reverse();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_without_nvrtc_are_passed_over() {
        assert!(files(Path::new("/nonexistent")).is_empty());
        assert!(files(Path::new("/")).is_empty());
    }

    #[test]
    fn the_newest_nvrtc_of_a_folder_comes_first() {
        let folder = std::env::temp_dir().join(format!("fuseplan-nvrtc-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in [
            "libnvrtc.so.12",
            "libnvrtc.so.13",
            "libnvrtc.alt.so.13",
            "libnvrtc-builtins.so.13.0",
            "libm.so.6",
        ] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(files(&folder), ["libnvrtc.so.13", "libnvrtc.so.12"].map(|name| folder.join(name)));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

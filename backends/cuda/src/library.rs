//! The driver and NVRTC, loaded when first wanted.
//!
//! cudarc panics where a library or one of its functions is missing. So nothing of it is called before
//! [`driver`] or [`nvrtc`] has said that the library is there with every function that this backend uses.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::{driver, nvrtc as compiler};
use fuseplan_api::BackendError;
use libloading::Library;

use crate::BACKEND;

/// Environment variables that name folders in which NVRTC is looked for when the system's loader does not
/// know it: the folder itself, or a CUDA toolkit whose `lib64` it is. `/usr/local/cuda` comes last.
pub const FOLDERS: [&str; 3] = ["FUSEPLAN_NVRTC_PATH", "CUDA_PATH", "CUDA_HOME"];

/// Functions of the driver that this backend calls.
const DRIVER: [&str; 28] = [
    "cuCtxPopCurrent_v2",
    "cuCtxPushCurrent_v2",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
];

/// Functions of the driver for streams of our own.
const STREAMS: [&str; 3] = ["cuStreamCreate", "cuStreamDestroy_v2", "cuStreamSynchronize"];

/// Functions of NVRTC that this backend calls.
const NVRTC: [&str; 9] = [
    "nvrtcCompileProgram",
    "nvrtcCreateProgram",
    "nvrtcDestroyProgram",
    "nvrtcGetCUBIN",
    "nvrtcGetCUBINSize",
    "nvrtcGetErrorString",
    "nvrtcGetProgramLog",
    "nvrtcGetProgramLogSize",
    "nvrtcVersion",
];

/// The driver, or why it cannot be used. A driver that is found stays loaded.
pub(crate) fn driver() -> Result<&'static Library, BackendError> {
    static FOUND: OnceLock<Result<(), String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        // SAFETY: loading the driver runs its initialisers, which is what it is for.
        if !unsafe { driver::sys::is_culib_present() } {
            return Err(
                "the driver is not installed: looked for libcuda.so, libcuda.so.1 and other names in \
                        the loader's folders and LD_LIBRARY_PATH"
                    .into(),
            );
        }
        // SAFETY: the library is present, so it is found.
        check(unsafe { driver::sys::culib() }, "libcuda", DRIVER.iter().chain(&STREAMS))
    });
    match found {
        // SAFETY: it was found.
        Ok(()) => Ok(unsafe { driver::sys::culib() }),
        Err(reason) => Err(BackendError::Unavailable { backend: BACKEND, reason: reason.clone() }),
    }
}

/// Whether NVRTC is there, or why it cannot be used. A compiler that is found stays loaded.
pub(crate) fn nvrtc() -> Result<(), BackendError> {
    static FOUND: OnceLock<Result<(), String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let folders = folders();
        let present = || {
            // SAFETY: loading the compiler runs its initialisers, which is what it is for.
            unsafe { compiler::sys::is_culib_present() }
        };
        if !present() && !folders.iter().any(|folder| preload(folder) && present()) {
            let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
            return Err(format!(
                "the run-time compiler NVRTC is not installed: looked for libnvrtc.so, libnvrtc.so.13, \
                 libnvrtc.so.12 and other names in the loader's folders, LD_LIBRARY_PATH and {}; {} names \
                 another folder",
                folders.join(", "),
                FOLDERS[0],
            ));
        }
        // SAFETY: the library is present, so it is found.
        check(unsafe { compiler::sys::culib() }, "libnvrtc", NVRTC.iter())
    });
    found.clone().map_err(|reason| BackendError::Unavailable { backend: BACKEND, reason })
}

/// The first function that a library does not have.
fn check<'a>(
    library: &Library,
    name: &str,
    functions: impl Iterator<Item = &'a &'static str>,
) -> Result<(), String> {
    for function in functions {
        // SAFETY: the address is not used.
        if let Err(error) = unsafe { library.get::<*const ()>(function.as_bytes()) } {
            return Err(format!("{name} has no function {function}, it is too old: {error}"));
        }
    }
    Ok(())
}

/// Where NVRTC is looked for besides the loader's own folders.
fn folders() -> Vec<PathBuf> {
    let named = FOLDERS.iter().filter_map(|name| Some((*name, PathBuf::from(std::env::var_os(name)?))));
    let named = named.filter(|(_, folder)| folder.is_absolute());
    let toolkit =
        |(name, folder): (&str, PathBuf)| if name == FOLDERS[0] { folder } else { folder.join("lib64") };
    named.map(toolkit).chain(["/usr/local/cuda/lib64".into()]).collect()
}

/// Loads NVRTC from a folder, so that the loader knows it by its name from then on; its own companion first,
/// which some versions look for by name only. Both stay loaded.
fn preload(folder: &Path) -> bool {
    let Ok(entries) = folder.read_dir() else { return false };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let name =
        |file: &Path| file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    files.retain(|file| {
        name(file).starts_with("libnvrtc") && name(file).contains(".so.") && !name(file).contains(".alt.")
    });
    files.sort_by_key(|file| !name(file).contains("builtins"));
    let mut loaded = false;
    for file in files {
        // SAFETY: as in `nvrtc`; the folder is the user's own choice or the toolkit's.
        if let Ok(library) = unsafe { Library::new(&file) } {
            std::mem::forget(library);
            loaded = true;
        }
    }
    loaded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_functions_are_named() {
        #[cfg(unix)]
        {
            let this: Library = libloading::os::unix::Library::this().into();
            assert_eq!(check(&this, "this program", [&"malloc"].into_iter()), Ok(()));
            let error = check(&this, "libcuda", [&"malloc", &"cuNeverMade"].into_iter()).unwrap_err();
            assert!(error.starts_with("libcuda has no function cuNeverMade, it is too old: "), "{error}");
        }
    }

    #[test]
    fn folders_without_nvrtc_are_passed_over() {
        assert!(!preload(Path::new("/nonexistent")));
        assert!(!preload(Path::new("/")));
    }
}

//! The environment variables that the library reads, and how it reads them. No other file asks the environment, so that
//! the list here is whole; `docs/environment.md` explains each.

use std::fmt;
use std::path::PathBuf;

/// An environment variable that the library reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable(&'static str);

macro_rules! variables {
    ($($(#[$doc:meta])* $constant:ident = $name:literal;)*) => {
        impl Variable {
            $($(#[$doc])* pub const $constant: Variable = Variable($name);)*

            /// Every variable that the library reads.
            pub const ALL: &[Variable] = &[$(Variable::$constant),*];
        }
    };
}

variables! {
    /// The backend that is opened where none is named.
    BACKEND = "FUSEPLAN_BACKEND";
    /// Whether solvers of fusions are timed; it comes before [`Variable::FIND_MODE`].
    FIND_MODE_FUSION = "MIOPEN_FIND_MODE_FUSION";
    /// Whether solvers are timed.
    FIND_MODE = "MIOPEN_FIND_MODE";
    /// The directory of the on-disk cache.
    CACHE_DIRECTORY = "MIOPEN_CUSTOM_CACHE_DIR";
    /// Whether there is no on-disk cache.
    DISABLE_CACHE = "MIOPEN_DISABLE_CACHE";
    /// Whether the directory of the on-disk cache is shared on purpose.
    TRUST_CACHE_DIRECTORY = "FUSEPLAN_TRUST_CACHE_DIR";
    /// The number of threads of the default CPU device.
    NUM_THREADS = "FUSEPLAN_NUM_THREADS";
    /// The instruction set of the CPU backend.
    ISA = "FUSEPLAN_ISA";
    /// What is logged on standard error.
    LOG_LEVEL = "MIOPEN_LOG_LEVEL";
    /// Whether calls of the C library are logged.
    ENABLE_LOGGING = "MIOPEN_ENABLE_LOGGING";
    /// Whether the command that reproduces each plan is logged.
    ENABLE_LOGGING_CMD = "MIOPEN_ENABLE_LOGGING_CMD";
    /// Whether lines of the log are JSON.
    LOG_JSON = "FUSEPLAN_LOG_JSON";
    /// Whether compiles and executions are ranges in a profiler's timeline.
    RANGES = "FUSEPLAN_RANGES";
    /// The tool that NVTX tells of ranges.
    NVTX_INJECTION = "NVTX_INJECTION64_PATH";
    /// The folder of NVRTC.
    NVRTC_PATH = "FUSEPLAN_NVRTC_PATH";
    /// A CUDA toolkit.
    CUDA_PATH = "CUDA_PATH";
    /// A CUDA toolkit by its older name.
    CUDA_HOME = "CUDA_HOME";
    /// The active Python environment, whose packages may bring a vendor's libraries.
    VIRTUAL_ENV = "VIRTUAL_ENV";
    /// An installation of ROCm.
    ROCM_PATH = "ROCM_PATH";
    /// An installation of ROCm by its other name.
    HIP_PATH = "HIP_PATH";
}

impl Variable {
    /// The variable's name.
    pub const fn name(self) -> &'static str {
        self.0
    }

    /// What the variable is set to, if that is Unicode.
    pub fn text(self) -> Option<String> {
        std::env::var(self.0).ok()
    }

    /// What the variable is set to, with what is not Unicode replaced.
    pub fn lossy_text(self) -> Option<String> {
        Some(std::env::var_os(self.0)?.to_string_lossy().into_owned())
    }

    /// The file or directory that the variable names, if it is set and not empty.
    pub fn path(self) -> Option<PathBuf> {
        std::env::var_os(self.0).filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    /// The file or directory of libraries that the variable names by an absolute path. A process with more rights than
    /// whoever started it ([`is_elevated`]) has none, since the environment must not choose what it loads.
    pub fn library_path(self) -> Option<PathBuf> {
        if is_elevated() {
            return None;
        }
        self.path().filter(|path| path.is_absolute())
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Whether this process has rights that whoever started it has not (set-user-id, set-group-id, file capabilities), so
/// that the environment must not choose what it loads.
pub fn is_elevated() -> bool {
    #[cfg(unix)]
    {
        // SAFETY: these read numbers that the system keeps of the process.
        let [user, effective] = unsafe { [libc::getuid(), libc::geteuid()] };
        // SAFETY: these read numbers that the system keeps of the process, too.
        let [group, effective_group] = unsafe { [libc::getgid(), libc::getegid()] };
        user != effective || group != effective_group || is_secure()
    }
    #[cfg(not(unix))]
    false
}

/// Whether the system has said so when the program was started.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_secure() -> bool {
    // SAFETY: reads a number that the system gave the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
fn is_secure() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_process_reads_absolute_paths() {
        assert!(!is_elevated());
        assert_eq!(Variable("FUSEPLAN_TEST_NEVER_SET").library_path(), None);
        let folder = Variable("CARGO_MANIFEST_DIR");
        assert_eq!(folder.library_path(), folder.text().map(PathBuf::from));
        let relative = Variable("CARGO_PKG_NAME");
        assert_eq!((relative.library_path(), relative.path()), (None, relative.text().map(PathBuf::from)));
    }
}

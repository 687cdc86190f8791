//! What the environment may decide.

use std::path::PathBuf;

/// The folder or file that an environment variable names by an absolute path; `None` in a process whose environment
/// must not choose what it loads ([`is_elevated`]).
pub fn path_variable(name: &str) -> Option<PathBuf> {
    if is_elevated() {
        return None;
    }
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Whether this process has rights that whoever started it has not (set-user-id, set-group-id, file capabilities), so
/// that the environment must not choose what it loads.
pub fn is_elevated() -> bool {
    #[cfg(unix)]
    {
        // SAFETY: these read numbers that the system keeps of the process.
        let [user, effective] = unsafe { [libc::getuid(), libc::geteuid()] };
        // SAFETY: as above.
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
        assert_eq!(path_variable("FUSEPLAN_TEST_NEVER_SET"), None);
        let folder = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        assert_eq!(path_variable("CARGO_MANIFEST_DIR"), folder);
        assert_eq!(path_variable("CARGO_PKG_NAME"), None);
    }
}

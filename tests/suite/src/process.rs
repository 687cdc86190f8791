//! The disk cache between processes, on a backend that compiles: this program runs itself again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use fuseplan::Handle;

use crate::library::Library;
use crate::sample::Sample;

/// In the environment of a child.
const CHILD: &str = "FUSEPLAN_TEST_CHILD";

/// Whether the backend's binaries are worth storing.
pub fn has_binaries(library: &Library) -> bool {
    let Ok(sample) = Sample::new(3) else { return false };
    let handle = library.handle();
    let Some(backend) =
        fuseplan::device::backends().iter().find(|b| b.name() == handle.device_info().backend)
    else {
        return false;
    };
    let (problem, info) = (sample.plan.problem(), handle.device_info());
    let mut solvers = backend.solvers().iter();
    solvers.any(|solver| {
        solver.applies(&problem, info).is_ok()
            && solver.cache_key(&problem, info, &solver.preferred(&problem, info)).is_some()
    })
}

/// Whether this program can start itself: not if a loader was started and given its name.
pub fn can_start() -> bool {
    let called = env::args_os().next().and_then(|name| fs::canonicalize(name).ok());
    called.zip(env::current_exe().ok()).is_none_or(|(called, running)| called == running)
}

/// What a child does, if this is one: compiles a plan, runs it and checks the numbers.
pub fn child(backend: &str) -> Option<ExitCode> {
    env::var_os(CHILD)?;
    let run = || -> Result<bool, fuseplan::Error> {
        let (sample, handle) = (Sample::new(3)?, Handle::open(backend, 0)?);
        let compiled = sample.plan.compile(&handle)?;
        Ok(sample.run(&compiled, &handle, &sample.args())? == sample.expected())
    };
    let right = run();
    if !matches!(right, Ok(true)) {
        eprintln!("the child's result: {right:?}");
    }
    Some(if matches!(right, Ok(true)) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A directory that is removed in the end.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // Of a test that is over; what cannot be removed stays.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A second process loads what the first has compiled; what is damaged is compiled again.
///
/// # Errors
/// What was not so.
pub fn second_process() -> Result<(), String> {
    let directory = Directory(env::temp_dir().join(format!("fuseplan-cache-{}", std::process::id())));
    let run = || -> Result<BTreeMap<PathBuf, u64>, String> {
        let mut command = Command::new(env::current_exe().map_err(|error| error.to_string())?);
        command.env(CHILD, "1").env("MIOPEN_CUSTOM_CACHE_DIR", &directory.0);
        for variable in ["MIOPEN_DISABLE_CACHE", "FUSEPLAN_TRUST_CACHE_DIR", "MIOPEN_FIND_MODE_FUSION"] {
            command.env_remove(variable);
        }
        let output = command.output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(format!("a process failed: {}", String::from_utf8_lossy(&output.stderr)));
        }
        entries(&directory.0).map_err(|error| error.to_string())
    };
    let first = run()?;
    let (entry, _) = first.first_key_value().ok_or("the first process stored nothing")?;
    let second = run()?;
    // A binary that is stored again is a new file.
    if first != second {
        return Err(format!("the second process compiled again: {first:?}, then {second:?}"));
    }
    let mut bytes = fs::read(entry).map_err(|error| error.to_string())?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(entry, bytes).map_err(|error| error.to_string())?;
    let third = run()?;
    if third.get(entry) == second.get(entry) {
        return Err("a damaged binary was not replaced".into());
    }
    Ok(())
}

/// The entries of a cache by path, with the number of the file that each is.
fn entries(directory: &Path) -> std::io::Result<BTreeMap<PathBuf, u64>> {
    let mut entries = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|end| end == "bin") {
            entries.insert(entry.path(), file_number(&entry)?);
        }
    }
    Ok(entries)
}

#[cfg(unix)]
fn file_number(entry: &fs::DirEntry) -> std::io::Result<u64> {
    use std::os::unix::fs::DirEntryExt;
    Ok(entry.ino())
}

/// There is no disk cache elsewhere.
#[cfg(not(unix))]
fn file_number(_entry: &fs::DirEntry) -> std::io::Result<u64> {
    Ok(0)
}

//! Compiles and executions as ranges of profilers: every step is a process of its own, with a profiler that writes down
//! what it is told.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Command;

use fuseplan::Handle;
use fuseplan_fake_profiler::{FILE, REFUSES, shared_object};
use fuseplan_suite::sample::Sample;

/// Set in a child.
const CHILD: &str = "FUSEPLAN_TEST_CHILD";

/// Compiles a plan, executes it twice, and prints it.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    fuseplan::log::to_stderr();
    let (sample, handle) = (Sample::new(3).unwrap(), Handle::cpu());
    let compiled = sample.plan.compile(&handle).unwrap();
    for _ in 0..2 {
        assert_eq!(sample.run(&compiled, &handle, &sample.args()).unwrap(), sample.expected());
    }
    println!("plan {}\nsolver {}", sample.plan, compiled.info().solver);
}

/// The ranges that a process opens and closes, the text of its plan, its solver, and what it says.
fn run(variables: &[(&str, &Path)]) -> (Vec<String>, String, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ranges");
    let mut command = Command::new(std::env::current_exe().unwrap());
    for variable in ["FUSEPLAN_RANGES", "NVTX_INJECTION64_PATH", "ROCM_PATH", "HIP_PATH", "MIOPEN_LOG_LEVEL"]
    {
        command.env_remove(variable);
    }
    command.args(["--exact", "child", "--nocapture"]).env(CHILD, "1").env(FILE, &file);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let (text, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{text}{said}");
    let after = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
    let ranges = std::fs::read_to_string(file).unwrap_or_default().lines().map(String::from).collect();
    (ranges, after("plan "), after("solver "), said)
}

/// What a profiler hears of the child.
fn expected(name: &str, plan: &str, solver: &str) -> Vec<String> {
    let [compile, execute] = [format!("compile {plan}"), format!("execute {solver} {plan}")];
    [&compile, &execute, &execute]
        .into_iter()
        .flat_map(|range| [format!("{name} push {range}"), format!("{name} pop")])
        .collect()
}

#[test]
fn profilers_are_told_where_they_are_asked_for() {
    let tool = shared_object().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let rocm = folder.path();
    std::fs::create_dir(rocm.join("lib")).unwrap();
    std::os::unix::fs::symlink(&tool, rocm.join("lib/librocprofiler-sdk-roctx.so.1")).unwrap();
    let yes = ("FUSEPLAN_RANGES", Path::new("1"));
    let nvtx = ("NVTX_INJECTION64_PATH", &*tool);

    // A tool alone is not asked for ranges of this library.
    assert_eq!(run(&[nvtx, ("ROCM_PATH", rocm)]).0, [""; 0]);
    let (ranges, plan, solver, said) = run(&[yes, nvtx]);
    assert_eq!(ranges[0], "nvtx domain fuseplan", "{said}");
    assert_eq!(ranges[1..], expected("nvtx", &plan, &solver));
    let (ranges, plan, solver, _) = run(&[yes, ("ROCM_PATH", rocm)]);
    assert_eq!(ranges, expected("roctx", &plan, &solver));
    let (ranges, ..) = run(&[yes, nvtx, ("ROCM_PATH", rocm)]);
    assert_eq!(ranges.len(), 13, "{ranges:?}");
}

#[test]
fn what_cannot_be_told_is_a_warning() {
    let yes = ("FUSEPLAN_RANGES", Path::new("1"));
    let said = |variables: &[(&str, &Path)]| {
        let (ranges, _, _, said) = run(variables);
        assert_eq!(ranges, [""; 0]);
        said
    };
    assert!(said(&[yes]).contains("warning: no ranges: no profiler has set NVTX_INJECTION64_PATH"));
    let absent = said(&[yes, ("NVTX_INJECTION64_PATH", Path::new("/nowhere/tool.so"))]);
    assert!(absent.contains("warning: no NVTX ranges: /nowhere/tool.so: "), "{absent}");
    let tool = shared_object().unwrap();
    let refused = said(&[yes, ("NVTX_INJECTION64_PATH", &tool), (REFUSES, Path::new("1"))]);
    assert!(refused.contains(": it refuses to be initialised"), "{refused}");
}

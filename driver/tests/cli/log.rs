//! What is said on standard error beside the answer.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

use crate::run::{fuseplan_of, fuseplan_with};

/// Wants a cache, which cannot be had below a file.
const LINE: &str = "CBAInfer -F 4 -n 1 -c 8 -k 8 -g 2 -H 6 -W 6 --find";
const NO_CACHE: (&str, &str) = ("MIOPEN_CUSTOM_CACHE_DIR", "/dev/null/cache");

fn said(variables: &[(&str, &str)]) -> Vec<String> {
    let run = fuseplan_with(LINE, &[&[NO_CACHE], variables].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    run.stderr.lines().filter(|line| line.starts_with("fuseplan: ")).map(str::to_string).collect()
}

#[test]
#[cfg(unix)]
fn warnings_are_shown_unless_miopens_variable_says_otherwise() {
    for variables in [&[][..], &[("MIOPEN_LOG_LEVEL", "0")], &[("MIOPEN_LOG_LEVEL", "4")]] {
        let lines = said(variables);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let start = "fuseplan: warning: no disk cache, binaries are kept in memory only: /dev/null/cache: ";
        assert!(lines[0].starts_with(start), "{lines:?}");
    }
    for quiet in ["1", "2", "3"] {
        assert_eq!(said(&[("MIOPEN_LOG_LEVEL", quiet)]), [""; 0], "{quiet}");
    }
    let lines = said(&[("MIOPEN_LOG_LEVEL", "6")]);
    assert!(lines.iter().any(|line| line.starts_with("fuseplan: debug: solver=cpu.")), "{lines:?}");
}

#[test]
fn compiles_and_executions_are_lines() {
    let plan = "f32 1x8x6x6 NCHW -> conv 8 3x3 -> relu";
    let said = |variables: &[(&str, &str)]| -> Vec<String> {
        let run = fuseplan_of(&["run", plan], variables);
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stderr.lines().map(str::to_string).collect()
    };
    let lines = said(&[("MIOPEN_LOG_LEVEL", "5")]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, cache) in lines.iter().zip(["solver", "memory"]) {
        assert!(line.starts_with("fuseplan: info: compile solver=cpu."), "{line}");
        assert!(line.contains(&format!(" cache={cache} microseconds=")), "{line}");
        assert!(line.contains(" device=cpu 0 (") && line.ends_with(&format!(" plan={plan}")), "{line}");
    }
    let lines = said(&[("MIOPEN_LOG_LEVEL", "6"), ("FUSEPLAN_LOG_JSON", "1")]);
    let objects: Vec<serde_json::Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let executions: Vec<_> = objects.iter().filter(|object| object["message"] == "execute").collect();
    assert!(executions.len() > 3 && executions.iter().all(|object| object["plan"] == plan), "{lines:?}");

    // The command that is said does the same.
    let lines = said(&[("MIOPEN_ENABLE_LOGGING_CMD", "yes")]);
    let command = format!("fuseplan: trace: fuseplan run \"{plan}\" --backend cpu");
    assert_eq!(lines, [&command[..], &command]);
}

#[test]
#[cfg(target_os = "linux")]
fn standard_error_that_cannot_be_written_does_no_harm() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fuseplan"));
    command.args(LINE.split_whitespace()).envs([NO_CACHE, ("FUSEPLAN_BACKEND", "cpu")]);
    let output = command.stderr(Stdio::from(full)).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(!output.stdout.is_empty());
}

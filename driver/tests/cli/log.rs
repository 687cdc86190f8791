//! What is said on standard error beside the answer.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

use crate::run::fuseplan_with;

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
#[cfg(target_os = "linux")]
fn standard_error_that_cannot_be_written_does_no_harm() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fuseplan"));
    command.args(LINE.split_whitespace()).envs([NO_CACHE, ("FUSEPLAN_BACKEND", "cpu")]);
    let output = command.stderr(Stdio::from(full)).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(!output.stdout.is_empty());
}

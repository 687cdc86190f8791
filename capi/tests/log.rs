//! What the library says on standard error, in processes of their own: the variables are read once.
#![cfg(unix)]

use std::ffi::c_void;
use std::fs::OpenOptions;
use std::process::{Command, Stdio};

use MIOpen::abi::Out;
use MIOpen::*;

/// Set in the processes that do the calls.
const CHILD: &str = "FUSEPLAN_TEST_LOG_CHILD";

macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: handles are any numbers, and pointers are to live locals of their type.
        assert_eq!(unsafe { $function($($argument),*) }, 0, stringify!($function))
    };
}

macro_rules! create {
    ($function:ident($($argument:expr),*)) => {{
        let mut handle = Ref::NULL;
        call!($function(Out::new(&mut handle) $(, $argument)*));
        handle
    }};
}

/// Compiles a plan in find mode, which wants the cache, and makes a mistake.
fn calls() {
    let handle = create!(miopenCreate());
    let (x, w) = (create!(miopenCreateTensorDescriptor()), create!(miopenCreateTensorDescriptor()));
    call!(miopenSet4dTensorDescriptor(x, 1, 1, 8, 6, 6));
    call!(miopenSet4dTensorDescriptor(w, 1, 8, 8, 3, 3));
    let conv = create!(miopenCreateConvolutionDescriptor());
    call!(miopenInitConvolutionDescriptor(conv, 0, 0, 0, 1, 1, 1, 1));
    let plan = create!(miopenCreateFusionPlan(0, x));
    let mut op = Ref::NULL;
    call!(miopenCreateOpConvForward(plan, Out::new(&mut op), conv, w));
    call!(miopenCompileFusionPlan(handle, plan));
    // SAFETY: a null pointer is refused.
    assert_ne!(unsafe { miopenGetStream(handle, Out::new(std::ptr::null_mut::<*mut c_void>())) }, 0);
    call!(miopenDestroy(handle));
}

/// This test in a process of its own, with a cache that cannot be had.
fn child(variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "what_is_said_is_up_to_miopens_variables", "--nocapture"]);
    command.env_remove("MIOPEN_LOG_LEVEL").env_remove("MIOPEN_ENABLE_LOGGING");
    command.envs([
        (CHILD, "1"),
        ("FUSEPLAN_BACKEND", "cpu"),
        ("MIOPEN_FIND_MODE_FUSION", "NORMAL"),
        ("MIOPEN_CUSTOM_CACHE_DIR", "/dev/null/cache"),
    ]);
    command.envs(variables.iter().copied());
    command
}

fn said(variables: &[(&str, &str)]) -> Vec<String> {
    let output = child(variables).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}");
    text.lines().map(str::to_string).collect()
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn what_is_said_is_up_to_miopens_variables() {
    if std::env::var_os(CHILD).is_some() {
        return calls();
    }
    let warning = "fuseplan: warning: no disk cache, binaries are kept in memory only: /dev/null/cache: ";
    let error = "MIOpen Error: miopenGetStream: `streamID` is NULL";
    let lines = said(&[]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with(warning) && lines[1] == error, "{lines:?}");
    assert_eq!(said(&[("MIOPEN_LOG_LEVEL", "3")]), [error]);
    assert_eq!(said(&[("MIOPEN_LOG_LEVEL", "1")]), [""; 0]);

    // Calls are said whatever the level is.
    let lines = said(&[("MIOPEN_LOG_LEVEL", "1"), ("MIOPEN_ENABLE_LOGGING", "on")]);
    assert_eq!(lines.first().map(String::as_str), Some("fuseplan: trace: miopenCreate"), "{lines:?}");
    assert_eq!(lines.last().map(String::as_str), Some("fuseplan: trace: miopenDestroy"), "{lines:?}");
    assert_eq!(lines.len(), 12, "{lines:?}");
}

#[test]
#[cfg(target_os = "linux")]
#[cfg_attr(miri, ignore = "starts processes")]
fn standard_error_that_cannot_be_written_does_no_harm() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = child(&[]).stdout(Stdio::null()).stderr(Stdio::from(full)).status().unwrap();
    assert!(status.success());
}

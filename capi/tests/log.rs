//! What the library says on standard error, in processes of their own: the variables are read once.
#![cfg(unix)]

use std::ffi::c_void;
use std::fs::OpenOptions;
use std::mem::MaybeUninit;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

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

const VARIABLES: &str = "what_is_said_is_up_to_miopens_variables";

/// A test in a process of its own, with a cache that cannot be had.
fn child(test: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    for variable in
        ["MIOPEN_LOG_LEVEL", "MIOPEN_ENABLE_LOGGING", "MIOPEN_ENABLE_LOGGING_CMD", "FUSEPLAN_LOG_JSON"]
    {
        command.env_remove(variable);
    }
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
    let output = child(VARIABLES, variables).output().unwrap();
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

    // Commands are said whatever the level is.
    let lines = said(&[("MIOPEN_LOG_LEVEL", "1"), ("MIOPEN_ENABLE_LOGGING_CMD", "1")]);
    assert_eq!(lines, ["fuseplan: trace: fuseplan run \"f32 1x8x6x6 NCHW -> conv 8 3x3\" --backend cpu"]);
    let lines = said(&[("MIOPEN_LOG_LEVEL", "3"), ("FUSEPLAN_LOG_JSON", "1")]);
    let object =
        r#"{"level":"error","target":"fuseplan::calls","message":"miopenGetStream: `streamID` is NULL"}"#;
    assert_eq!(lines, [object]);

    // So are calls.
    let lines = said(&[("MIOPEN_LOG_LEVEL", "1"), ("MIOPEN_ENABLE_LOGGING", "on")]);
    assert_eq!(lines.len(), 12, "{lines:?}");
    let is = |line: usize, pattern: &str| {
        let mut rest = lines[line].strip_prefix("fuseplan: trace: ").unwrap_or_default();
        for (index, part) in pattern.split('*').enumerate() {
            let at = rest.find(part).filter(|&at| index > 0 || at == 0);
            rest = &rest[at.unwrap_or_else(|| panic!("{} is not {pattern}", lines[line])) + part.len()..];
        }
    };
    is(0, "miopenCreate(handle = 0x*)");
    is(3, "miopenSet4dTensorDescriptor(tensorDesc = 0x4d*, dataType = 1, n = 1, c = 8, h = 6, w = 6)");
    is(
        7,
        "miopenCreateFusionPlan(fusePlanDesc = 0x*, fuseDirection = 0, inputDesc = 0x4d* (f32 1x8x6x6 NCHW))",
    );
    is(
        8,
        "miopenCreateOpConvForward(fusePlanDesc = 0x4d* (f32 1x8x6x6 NCHW*), *, wDesc = 0x4d* (f32 8x8x3x3 NCHW))",
    );
    is(9, "miopenCompileFusionPlan(handle = 0x4d*, fusePlanDesc = 0x4d* (f32 1x8x6x6 NCHW -> conv 8 3x3))");
    is(10, "miopenGetStream(handle = 0x4d*, streamID = 0x0)");
    is(11, "miopenDestroy(handle = 0x4d*)");
}

/// A C program, which does not ignore SIGPIPE as Rust programs do, and of whose signals nothing changes: neither for
/// the calls in this thread nor for those of another, which has a SIGPIPE waiting.
fn calls_of_a_c_program() {
    extern "C" fn counted(_: libc::c_int) {
        SIGNALS.fetch_add(1, Ordering::SeqCst);
    }
    static SIGNALS: AtomicUsize = AtomicUsize::new(0);
    let signals = || {
        let (mut mask, mut waiting) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: places for two sets, which the calls fill.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
            libc::sigpending(waiting.as_mut_ptr());
            (
                libc::sigismember(mask.as_ptr(), libc::SIGPIPE),
                libc::sigismember(waiting.as_ptr(), libc::SIGPIPE),
            )
        }
    };
    // SAFETY: the default disposition.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    calls();
    assert_eq!(signals(), (0, 0));
    // SAFETY: gives the disposition and sets a handler that only counts.
    let before = unsafe { libc::signal(libc::SIGPIPE, counted as extern "C" fn(libc::c_int) as usize) };
    assert_eq!(before, libc::SIG_DFL);
    calls();
    let waits = std::thread::spawn(move || {
        // SAFETY: a set with SIGPIPE, blocked for this thread, to which it is sent.
        unsafe {
            let mut set = MaybeUninit::uninit();
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE);
        }
        calls();
        signals()
    });
    assert_eq!(waits.join().unwrap(), (1, 1));
    assert_eq!((signals(), SIGNALS.load(Ordering::SeqCst)), ((0, 0), 0));
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn standard_error_that_nobody_reads_ends_no_program() {
    if std::env::var_os(CHILD).is_some() {
        return calls_of_a_c_program();
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = child("standard_error_that_nobody_reads_ends_no_program", &[]);
    let output = command.stdout(Stdio::piped()).stderr(Stdio::from(writer)).output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stdout));
}

#[test]
#[cfg(target_os = "linux")]
#[cfg_attr(miri, ignore = "starts processes")]
fn standard_error_that_cannot_be_written_does_no_harm() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = child(VARIABLES, &[]).stdout(Stdio::null()).stderr(Stdio::from(full)).status().unwrap();
    assert!(status.success());
}

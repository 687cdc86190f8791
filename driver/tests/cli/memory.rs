//! Sizes for which there is no memory.

use crate::run::{Run, fuseplan};

/// The bytes that the last line of standard error says could not be had.
fn refused(run: &Run) -> Option<u128> {
    let (_, number) = run.stderr.lines().last()?.split_once("error: cpu: out of memory allocating ")?;
    number.strip_suffix(" bytes")?.parse().ok()
}

#[test]
fn sizes_that_no_machine_has_are_errors_with_their_bytes() {
    for (flags, bytes) in [
        // The input, in the type's own bytes.
        ("-F 4 -n 1000000000 -c 1000 -H 1000 -W 1000", 1_000_000_000_000_000_000u128),
        ("-F 2 -n 10000000 -c 1000 -H 1000 -W 1000", 10_000_000_000_000_000),
        // The filters.
        ("-F 4 -n 1 -c 1 -k 10000000000000", 90_000_000_000_000),
    ] {
        for (command, size) in
            [("CBAInfer", 4), ("CBAInferfp16", 2), ("CBAInferbfp16", 2), ("explain CBAInfer", 4)]
        {
            let run = fuseplan(&format!("{command} {flags} --json"));
            assert_eq!(run.code, 4, "{command} {flags}: {}", run.stderr);
            assert_eq!(refused(&run), Some(size * bytes), "{command} {flags}: {}", run.stderr);
            assert_eq!(run.objects()[0]["exit"], 4);
        }
    }
    let run = fuseplan("bench na --batch 4000000000");
    assert!(run.code == 4 && refused(&run).is_some(), "{}", run.stderr);
}

/// How a command ends that may have so much address space; none where not even its libraries could be loaded.
#[cfg(target_os = "linux")]
fn limited(kibibytes: usize, flags: &str) -> Option<Run> {
    use std::process::Command;

    let line = "-n 4 -c 64 -H 56 -W 56 -k 64 -x 1 -y 1 -I NHWC --threads 2 -V 0";
    let limited = format!("ulimit -v {kibibytes}; exec \"$0\" {flags} {line}");
    let mut command = Command::new("sh");
    command.args(["-c", &limited, env!("CARGO_BIN_EXE_fuseplan")]).env("FUSEPLAN_BACKEND", "cpu");
    let output = command.env("MIOPEN_DISABLE_CACHE", "1").output().unwrap();
    let run = Run {
        code: output.status.code().unwrap_or(-1),
        stdout: String::new(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    };
    (!run.stderr.contains("error while loading shared libraries")).then_some(run)
}

/// At whatever allocation the memory ends: an error and no abort.
#[test]
#[cfg(target_os = "linux")]
fn memory_that_is_refused_is_an_error_wherever_it_ends() {
    const PAGE: usize = 4;
    for flags in ["CBAInfer -F 4", "CBAInferfp16 -F 0 -M 1"] {
        let runs = |kibibytes: usize| {
            let run = limited(kibibytes, flags)?;
            assert!([0, 4].contains(&run.code), "{kibibytes} KiB, {flags}: {}: {}", run.code, run.stderr);
            Some(run.code == 0)
        };
        let coarse: Vec<_> =
            (30_000..90_000).step_by(6_000).map(|kibibytes| (kibibytes, runs(kibibytes))).collect();
        let refused = coarse.iter().filter(|(_, ran)| *ran == Some(false)).map(|(limit, _)| *limit).max();
        let ran = coarse.iter().filter(|(_, ran)| *ran == Some(true)).map(|(limit, _)| *limit).min();
        let (mut refused, mut ran) = refused.zip(ran).expect("the memory ends between these limits");
        // The fewest pages with which it runs: what it allocates last is what they are refused for.
        while ran > refused + PAGE {
            let middle = refused.midpoint(ran);
            *if runs(middle) == Some(true) { &mut ran } else { &mut refused } = middle;
        }
        for limit in (ran.saturating_sub(16 * PAGE)..ran + 16 * PAGE).step_by(PAGE) {
            runs(limit);
        }
    }
}

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

/// At whatever allocation the memory ends: an error and no abort.
#[test]
#[cfg(target_os = "linux")]
fn memory_that_is_refused_is_an_error_wherever_it_ends() {
    use std::process::Command;

    let line = "-n 4 -c 64 -H 56 -W 56 -k 64 -x 1 -y 1 -I NHWC --threads 2 -V 0";
    let mut ended = [0; 2];
    for kibibytes in (30_000..90_000).step_by(6_000) {
        for flags in ["CBAInfer -F 4", "CBAInferfp16 -F 0 -M 1"] {
            let limited = format!("ulimit -v {kibibytes}; exec \"$0\" {flags} {line}");
            let mut command = Command::new("sh");
            command.args(["-c", &limited, env!("CARGO_BIN_EXE_fuseplan")]).env("FUSEPLAN_BACKEND", "cpu");
            let output = command.env("MIOPEN_DISABLE_CACHE", "1").output().unwrap();
            let run = Run {
                code: output.status.code().unwrap_or(-1),
                stdout: String::new(),
                stderr: String::from_utf8(output.stderr).unwrap(),
            };
            // Without the memory for its libraries a process does not even begin.
            if run.stderr.contains("error while loading shared libraries") {
                continue;
            }
            match run.code {
                0 => ended[0] += 1,
                4 => ended[1] += 1,
                code => panic!("{kibibytes} KiB, {flags}: exit code {code}: {}", run.stderr),
            }
        }
    }
    assert!(ended[0] > 0 && ended[1] > 2, "{ended:?}: the limits are not where the memory ends");
}

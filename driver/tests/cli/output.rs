//! Where answers go: one object a line with `--json`, and nowhere when nobody reads them.

use std::process::{Command, Stdio};

use crate::run::fuseplan;

#[test]
fn help_and_mistakes_are_objects_too() {
    let only = |line: &str, code: i32| {
        let run = fuseplan(line);
        assert_eq!(run.code, code, "{line}: {}", run.stderr);
        let [object] = &run.objects()[..] else { panic!("{line}: {}", run.stdout) };
        object.clone()
    };
    for line in
        ["--help --json", "--json -h", "CBAInfer -? --json", "--json help", "explain CBAInfer --json -h"]
    {
        let object = only(line, 0);
        assert_eq!(object["kind"], "help", "{line}");
        assert!(object["text"].as_str().unwrap().contains("Usage: fuseplan"), "{line}: {object}");
    }
    let version = only("--version --json", 0);
    let text = format!("fuseplan {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((&version["kind"], &version["text"]), (&"version".into(), &text.into()));
    for line in ["CBAInfer --json --nonesuch 1", "CBAInfer -n many --json", "--json", "bench --json nonesuch"]
    {
        let object = only(line, 2);
        assert_eq!((&object["kind"], &object["exit"]), (&"error".into(), &2.into()), "{line}");
        assert!(!object["message"].as_str().unwrap().is_empty());
    }
    let script = only("completions bash --json", 0);
    assert_eq!((&script["kind"], &script["shell"]), (&"completions".into(), &"bash".into()));
    assert!(script["text"].as_str().unwrap().contains("CBAInferbfp16"));
    // A value that only looks like the flag, behind the end of the flags, asks for nothing.
    assert_eq!(fuseplan("CBAInfer -- --json").stdout, "");
}

/// As in `fuseplan supported | head -1`, whose reader has gone.
#[test]
#[cfg(unix)]
fn output_that_nobody_reads_ends_the_command_quietly() {
    for line in [
        "supported --backend cpu",
        "supported --backend cpu --json",
        "devices",
        "completions zsh",
        "CBAInfer --help",
        "--help --json",
        "CBAInfer -F 4 -n 1 -c 3 -k 4 -H 6 -W 6",
        "explain --no-peaks CBAInfer -F 4 -n 1 -c 3 -k 4 -H 6 -W 6",
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fuseplan"));
        command.args(line.split_whitespace()).env("FUSEPLAN_BACKEND", "cpu");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line}");
    }
    // Nor does it matter that nobody reads what is wrong: the exit code says so.
    for (line, code) in [
        ("CBAInfer -n many", 2),
        ("CBAInfer -F 4 -c 3 -g 2", 3),
        ("CBAInfer --backend none", 4),
        ("CBAInfer -F 4 -n 1 -c 3 -k 4 -H 6 -W 6 --tolerance -1", 1),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fuseplan"));
        command.args(line.split_whitespace()).env("FUSEPLAN_BACKEND", "cpu").stdout(Stdio::null());
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(command.stderr(writer).status().unwrap().code(), Some(code), "{line}");
    }
}

//! Plans as text: `run`, and `explain` of one.

use crate::run::{Run, fuseplan_of};

fn run(text: &str, more: &[&str]) -> Run {
    fuseplan_of(&[&["run", text], more].concat(), &[])
}

#[test]
fn plans_of_every_operator_run_and_verify() {
    for text in [
        "f16 1x16x9x9 NHWC -> conv 24 3x3 pad 1 stride 2 -> bias -> relu",
        "f32 2x12x7x6 NCHW math tf32 -> conv 8 1x3 groups 4 weights NHWC -> batch-norm spatial -> residual -> gelu",
        "bf16 1x4x3x6x5 NDHWC -> conv 8 3x3x3 pad 1x0x2 dilation 1x1x2 -> leakyrelu slope 0.25",
        "f16 2x3x8x9 NCHW -> bias f32 -> batch-norm spatial f16",
        "f32 1x3x9x8 NCHW -> conv 16 3x3 stride 2 output NCHWc8 -> bias -> residual -> relu",
        "bf16 1x8x5x6 NCHWc8 -> conv 12 3x3 weights NHWC output NHWC -> bias",
        "f32 2x3x8x9 strides 300x100x12x1 -> bias -> bias -> residual NCHW -> batch-norm per-activation -> clamp min 0 max 0.5",
        "f32 3x5x4x4 NCHW -> batch-norm-forward spatial running -> relu",
        "f16 3x5x4x4 NHWC -> batch-norm-forward per-activation",
        "f32 3x5x4x4 NCHW -> batch-norm-backward spatial -> tanh-backward",
    ] {
        let run = run(text, &["--verify"]);
        assert_eq!(run.code, 0, "{text}: {}", run.stderr);
        let lines: Vec<_> = run.stdout.lines().collect();
        assert_eq!(lines.len(), 5, "{text}: {}", run.stdout);
        let plan = text.split(" slope").next().unwrap().split(" min").next().unwrap();
        assert!(lines[0].starts_with(plan) && lines[1].starts_with("device     cpu 0 "), "{}", run.stdout);
        for (line, start) in lines[2..].iter().zip(["solver     cpu.", "time       ", "verified   error "]) {
            assert!(line.starts_with(start), "{text}: {line}");
        }
    }
}

#[test]
fn a_run_is_an_object_for_programs() {
    let text = "f32 1x8x6x6 NCHW -> conv 8 3x3 -> relu";
    let once = |more: &[&str]| {
        let run = run(text, &[&["--json"], more].concat());
        (run.code, run.objects().remove(0))
    };
    let (code, object) = once(&["--solver", "cpu.reference.v1"]);
    assert_eq!((code, &object["kind"], &object["plan"]), (0, &"plan".into(), &text.into()));
    assert_eq!(
        (&object["solver"], &object["verified"]),
        (&"cpu.reference.v1".into(), &serde_json::Value::Null)
    );
    assert!(object["time_ms"].as_f64().unwrap() > 0.0);
    let (code, object) = once(&["--verify", "--tolerance", "-1"]);
    assert_eq!((code, &object["verified"]), (1, &false.into()));
}

#[test]
fn mistakes_are_pointed_at() {
    let wrong = run("f32 1x8x6x6 -> konv 8 3x3", &[]);
    assert_eq!(wrong.code, 2);
    let lines: Vec<_> = wrong.stderr.lines().collect();
    assert!(
        lines[0].starts_with("error: `konv` at 15: no operator has this name; accepted: conv, "),
        "{lines:?}"
    );
    assert_eq!(lines[1..], ["  f32 1x8x6x6 -> konv 8 3x3", "                 ^"]);
    let refused = run("f64 1x8x6x6 -> relu", &[]);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    assert!(refused.stderr.contains("the data type is f64; accepted: f32, f16, bf16"), "{}", refused.stderr);
    for words in [&["run"][..], &["explain"], &["explain", "f32 1x8x6x6 -> relu", "CBAInfer"]] {
        assert_eq!(fuseplan_of(words, &[]).code, 2, "{words:?}");
    }
}

#[test]
fn a_text_is_explained_as_a_primitive_is() {
    let text = "f32 1x4x6x6 NCHW -> conv 4 3x3 -> bias";
    let run = fuseplan_of(&["explain", "--no-peaks", text], &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.starts_with(&format!("{text}\ndevice     cpu 0 (")), "{}", run.stdout);
    assert!(run.stdout.contains("\ncan        cpu."), "{}", run.stdout);
}

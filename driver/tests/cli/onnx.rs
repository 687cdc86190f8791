//! Networks from ONNX files: `explain`, `bench` and its page.

use std::fs;
use std::path::PathBuf;

use crate::run::fuseplan;

/// A network of `driver/tests/onnx`.
fn file(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/onnx").join(name).display().to_string()
}

#[test]
fn explain_tells_chains_arithmetic_and_reasons() {
    let line = format!("explain {} --shape x=2x3x16x16", file("residual.onnx"));
    let run = fuseplan(&line);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let first = "\
chains
  Conv c1: f32 2x3x16x16 NCHW -> conv 8 3x3 pad 1 stride 2 -> batch-norm spatial -> relu
    58.368 kFLOP, 26.5 %; ends since the value is read 2 times
";
    assert!(run.stdout.contains(first), "{}", run.stdout);

    let objects = fuseplan(&format!("{line} --json")).objects();
    let kinds = |kind: &str| objects.iter().filter(|object| object["kind"] == kind).collect::<Vec<_>>();
    let chains = kinds("onnx_chain");
    let texts = [
        "conv 8 3x3 pad 1 stride 2 -> batch-norm spatial -> relu",
        "conv 8 3x3 pad 1 -> batch-norm spatial -> residual -> relu",
        "conv 8 1x1 -> bias",
        "conv 8 1x1 -> bias",
        "f32 2x8x1x1 NHWC -> conv 5 1x1",
    ];
    let ends = [
        "the value is read 2 times",
        "MaxPool p2 is no operator of a plan",
        "Conv c4 begins a chain of its own",
        "GlobalAveragePool g is no operator of a plan",
        "the value is a result of the graph",
    ];
    // 2 images of 8x8 pixels and 8 filters: products, a batch-norm of two operations, ReLU and the sum.
    let outputs = 2.0 * 64.0 * 8.0;
    let last = outputs / 4.0 * (16.0 + 1.0);
    // At last products of 2x8 and 8x5.
    let work = [outputs * (54.0 + 3.0), outputs * (144.0 + 4.0), last, last, 160.0];
    assert_eq!(chains.len(), 5);
    for (index, chain) in chains.iter().enumerate() {
        let plan = chain["plan"].as_str().unwrap();
        assert!(plan.ends_with(texts[index]), "{plan}");
        assert_eq!(chain["end"], ends[index]);
        assert_eq!(chain["flops"], work[index]);
        assert!(
            run.stdout.contains(&format!("  {}: {plan}\n", chain["name"].as_str().unwrap())),
            "{}",
            run.stdout
        );
        // Each is a plan that the command takes.
        let again = crate::run::fuseplan_of(&["run", plan, "--verify"], &[]);
        assert_eq!(again.code, 0, "{}", again.stderr);
    }
    // A maximum of 4 for each of 2x8x4x4, and as many looks for their means.
    let rest = kinds("onnx_rest");
    let rest: Vec<_> = rest
        .iter()
        .map(|rest| (rest["operator"].as_str().unwrap(), rest["flops"].as_f64().unwrap()))
        .collect();
    assert_eq!(rest, [("MaxPool", 1024.0), ("GlobalAveragePool", 256.0), ("Flatten", 0.0)]);
    let summary = kinds("onnx_summary")[0];
    let fused = work[..4].iter().sum::<f64>();
    assert_eq!(summary["flops"], fused + 160.0 + 1024.0 + 256.0);
    assert_eq!(summary["fused_flops"], fused);
    assert_eq!(
        (&summary["convolutions"], &summary["layers"], &summary["chains"]),
        (&4.into(), &1.into(), &5.into())
    );
    let counts = "chains     4 of 4 convolutions, 1 of 1 fully connected layers\n";
    assert!(run.stdout.contains(counts), "{}", run.stdout);
    assert_eq!(summary["inputs"][0], "x 2x3x16x16");
}

#[test]
fn batch_type_and_layout_are_asked_for() {
    let run = fuseplan(&format!("explain {} --batch 3 --dtype fp16 --layout NHWC", file("mobile.onnx")));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let first = "  Conv c1: f16 3x3x15x16 NHWC -> conv 8 3x3 pad 1x0:1 stride 2 -> bias -> hardswish\n";
    assert!(run.stdout.contains(first), "{}", run.stdout);
    assert!(run.stdout.contains("HardSigmoid: alpha is 0.2000 and beta 0.5000"), "{}", run.stdout);
    assert!(run.stdout.contains("chains     6 of 6 convolutions"), "{}", run.stdout);
}

#[test]
fn what_depends_on_the_data_is_said_with_its_origin() {
    let run = fuseplan(&format!("explain {}", file("lost.onnx")));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let origin = "its lengths are not known: at NonZero nz: NonZero is an operator of unknown shape here";
    assert!(run.stdout.contains(&format!("  1 Conv, unknown arithmetic: {origin}\n")), "{}", run.stdout);
    assert!(run.stdout.contains("chains     1 of 2 convolutions"), "{}", run.stdout);
}

#[test]
fn files_and_flags_that_make_no_sense_are_refused() {
    let garbage = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("garbage.onnx");
    fs::write(&garbage, [7; 100]).unwrap();
    let residual = file("residual.onnx");
    for (line, text) in [
        (format!("explain {}", garbage.display()), "garbage.onnx: no ONNX model: "),
        ("explain absent.onnx".into(), "absent.onnx: it cannot be read: "),
        (format!("explain {residual} --shape z=1x3x8x8"), "--shape z=1x3x8x8: the network's inputs are x"),
        (format!("explain {residual} --shape x=1x3xyx8"), "accepted: NAME=1x3x224x224"),
        (format!("explain {residual} --shape 1x3x8"), "input `x` has 4 dimensions, --shape gives 3"),
        (format!("explain {residual} --find"), "--solver, --find and --error are for a plan"),
        (format!("explain {residual} --layout NWHC"), "known: NCHW, NHWC"),
    ] {
        let run = fuseplan(&line);
        assert_eq!(run.code, 2, "{line}: {}", run.stdout);
        assert!(run.stderr.contains(text), "{line}: {}", run.stderr);
    }
    let plan = "f32 1x4x8x8 NCHW -> conv 4 1x1";
    let run = crate::run::fuseplan_of(&["explain", plan, "--batch", "2"], &[]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("are for a network: a plan says its own"), "{}", run.stderr);
}

#[test]
fn bench_verifies_times_and_sums_the_chains() {
    let page = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("mobile.html");
    let _ = fs::remove_file(&page);
    let line =
        format!("bench {} --seconds 0.01 --batch 2 --html {} --json", file("mobile.onnx"), page.display());
    let run = fuseplan(&line);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let objects = run.objects();
    let (summary, rows) = objects.split_last().unwrap();
    assert_eq!(rows.len(), 6);
    let number = |object: &serde_json::Value, member: &str| object[member].as_f64().unwrap();
    let sum = |member: &str| rows.iter().map(|row| number(row, "count") * number(row, member)).sum::<f64>();
    for row in rows {
        assert_eq!((&row["kind"], &row["verified"]), (&"onnx_bench".into(), &true.into()), "{row}");
        assert!(
            number(row, "fused_ms") > 0.0 && number(row, "fused_error") <= number(row, "tolerance"),
            "{row}"
        );
        let ratio = number(row, "unfused_ms") / number(row, "fused_ms");
        assert!((ratio / number(row, "speed_up") - 1.0).abs() < 1e-9, "{row}");
        // One plan for each operator.
        let operators = row["plan"].as_str().unwrap().matches(" -> ").count();
        assert_eq!(row["unfused_solvers"].as_array().unwrap().len(), operators, "{row}");
    }
    assert_eq!(summary["kind"], "onnx_bench_summary");
    for member in ["fused_ms", "unfused_ms"] {
        assert!((sum(member) / number(summary, member) - 1.0).abs() < 1e-9, "{summary}");
    }

    // A page that needs nothing else.
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("<!DOCTYPE html>") && text.ends_with("</html>\n"), "{text}");
    for absent in ["<script", "http", "src=", "href=", "url(", "@import", "NaN", "inf "] {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
    for (open, count) in [("<svg ", 2), ("<g>", 6), ("<table>", 3)] {
        assert_eq!(text.matches(open).count(), count, "{open}");
    }
    for tag in [
        "svg", "g", "text", "rect", "table", "tr", "td", "th", "div", "p", "span", "title", "h2", "body",
        "html",
    ] {
        let opened = text.matches(&format!("<{tag}>")).count() + text.matches(&format!("<{tag} ")).count();
        let closed = text.matches(&format!("</{tag}>")).count()
            + if tag == "rect" { text.matches("\"/>").count() } else { 0 };
        assert!(
            if tag == "rect" { opened <= closed } else { opened == closed },
            "{tag}: {opened} and {closed}"
        );
    }
    assert!(text.contains("conv 8 3x3 pad 1x0:1 stride 2 -&gt; bias -&gt; hardswish"), "{text}");
}

#[test]
fn chains_of_the_same_plan_are_measured_once_and_counted() {
    let line = format!("bench {} --shape x=2x3x16x16 --seconds 0 --only 1x1 --json", file("residual.onnx"));
    let objects = fuseplan(&line).objects();
    assert_eq!(objects.len(), 3);
    assert_eq!((&objects[0]["name"], &objects[0]["count"]), (&"Conv c3".into(), &2.into()));
    assert_eq!((&objects[1]["name"], &objects[1]["count"]), (&"MatMul y".into(), &1.into()));
    assert_eq!(objects[2]["measured_chains"], 3);
    let run = fuseplan(&format!("bench {} --seconds 0 --only nothing", file("residual.onnx")));
    assert_eq!(run.code, 3);
    assert!(run.stderr.contains("--only: no chain of"), "{}", run.stderr);
}

#[test]
fn flags_of_lists_and_of_networks_are_told_apart() {
    let residual = file("residual.onnx");
    for (line, text) in [
        (format!("bench {residual} --out somewhere"), "--network and --out are for a list"),
        (format!("bench {residual} --network resnet50"), "--network and --out are for a list"),
        ("bench na --html page.html".into(), "--shape and --html are for a network in an ONNX file"),
        ("bench na --shape 1x3x8x8".into(), "--shape and --html are for a network in an ONNX file"),
        ("bench nothing".into(), "known: cba, na, resnet50, field, or a file whose name ends with .onnx"),
    ] {
        let run = fuseplan(&line);
        assert_eq!(run.code, 2, "{line}: {}", run.stdout);
        assert!(run.stderr.contains(text), "{line}: {}", run.stderr);
    }
}

//! `bench`: a small run of every list, its files, its refusals.

use std::fs;
use std::path::PathBuf;

use crate::run::fuseplan;

/// A directory of a test's own, empty.
fn directory(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    path
}

#[test]
fn a_list_gives_a_table_a_spreadsheet_and_a_chart() {
    let out = directory("na");
    let line = format!("bench na --batch 2 --seconds 0.01 --backend cpu --out {}", out.display());
    let run = fuseplan(&line);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);

    let labels =
        ["512-7-7", "2048-7-7", "256-14-14", "1024-14-14", "128-28-28", "512-28-28", "64-55-55", "256-55-55"];
    let table = fs::read_to_string(out.join("na-f32-nchw-n2.md")).unwrap();
    assert!(run.stdout.starts_with(&table), "{}", run.stdout);
    assert!(table.contains("Verified: both images"), "{table}");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.contains("configuration"))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.iter().map(|row| row[1]).collect::<Vec<_>>(), labels);
    assert!(rows.iter().all(|row| row[8] == "yes"), "{table}");

    let csv = fs::read_to_string(out.join("na-f32-nchw-n2.csv")).unwrap();
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 9);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    for line in &lines[1..] {
        let number = |column: usize| line[column].parse::<f64>().unwrap();
        assert!((number(2) / number(1) / number(3) - 1.0).abs() < 0.01, "{line:?}");
        assert!(number(10) <= number(12), "{line:?}");
        assert_eq!(line.last(), Some(&"true"));
    }

    let svg = fs::read_to_string(out.join("na-f32-nchw-n2.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("<title>").count(), 8);
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    for label in labels {
        assert!(svg.contains(&format!(">{label}</text>")), "{label}");
    }
}

#[test]
fn convolutions_in_another_type_and_layout_are_objects() {
    let run =
        fuseplan("bench cba --only 64-55-55-64- --batch 1 --seconds 0 --dtype bf16 --layout NHWC --json");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let objects = run.objects();
    assert_eq!(objects.len(), 3);
    for object in &objects[..2] {
        assert_eq!(object["kind"], "bench");
        assert_eq!(object["verified"], true, "{object}");
        assert_eq!(object["unfused_solvers"].as_array().unwrap().len(), 3);
        let speed_up = object["unfused_ms"].as_f64().unwrap() / object["fused_ms"].as_f64().unwrap();
        assert!((object["speed_up"].as_f64().unwrap() / speed_up - 1.0).abs() < 1e-9);
    }
    assert_eq!(
        objects[1]["command"],
        "fuseplan CBAInferbfp16 -F 4 -c 64 -H 55 -W 55 -k 64 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -n 1 -I NHWC \
         -f NHWC --backend cpu"
    );
    let summary = &objects[2];
    assert_eq!((&summary["kind"], &summary["verified"]), (&"bench_summary".into(), &2.into()));
    assert_eq!((&summary["dtype"], &summary["layout"]), (&"bf16".into(), &"NHWC".into()));
}

#[test]
fn layers_of_a_network_are_run_with_their_residuals_and_counted() {
    let run =
        fuseplan("bench field --network resnet18 --only 512-7x7 --batch 3 --seconds 0 --json --backend cpu");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let objects = run.objects();
    let (layers, summary) = objects.split_at(objects.len() - 1);
    let labels: Vec<_> = layers.iter().map(|layer| layer["configuration"].as_str().unwrap()).collect();
    let same = "resnet18:512-7x7-512-3x3-1x1+b";
    assert_eq!(labels, [same.to_string(), format!("{same}+relu"), format!("{same}+r+relu")]);
    for layer in layers {
        assert_eq!((&layer["network"], &layer["half"]), (&"resnet18".into(), &"judge".into()));
        assert_eq!(
            (&layer["count"], &layer["batch"], &layer["verified"]),
            (&1.into(), &3.into(), &true.into())
        );
    }
    assert_eq!(layers[2]["unfused_solvers"].as_array().unwrap().len(), 4);
    let again = layers[2]["command"].as_str().unwrap();
    assert!(
        again.starts_with("fuseplan bench field --only resnet18:512-7x7-512-3x3-1x1+b+r+relu --batch 3"),
        "{again}"
    );
    assert_eq!(summary[0]["verified"], 3);

    let run =
        fuseplan("bench field --network mobilenetv3 --only 1x1-24- --batch 2 --seconds 0 --backend cpu");
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("| all layers of |"), "{}", run.stdout);
    assert!(run.stdout.contains("\n| mobilenetv3 (judge) | "), "{}", run.stdout);
}

#[test]
fn nonsense_is_refused() {
    for (line, text) in [
        ("bench", "<LIST>"),
        ("bench vgg", "known: cba, na, resnet50, field, or a file whose name ends with .onnx"),
        ("bench na --network vgg16", "only the field list has them"),
        ("bench field --network vgg", "no network `vgg`; known: resnet18, resnet50, "),
        ("bench field --network vgg16 --only g32", "no configuration of field contains `g32`"),
        ("bench na --batch 0", "0 is not in 1.."),
        ("bench na --layout NCDHW", "known: NCHW, NHWC"),
        ("bench na --dtype f64", "possible values: fp32, fp16, bfp16"),
        ("bench na --only 9-9", "no configuration of na contains `9-9`"),
        ("bench na --seconds -1", "unexpected argument"),
        ("bench na --seconds=-1", "a number of seconds is needed"),
        ("bench na --out /proc/version/here", "cannot be written"),
    ] {
        let run = fuseplan(line);
        assert_eq!(run.code, 2, "{line}: {}", run.stderr);
        assert!(run.stderr.contains(text), "{line}: {}", run.stderr);
    }
    assert_eq!(fuseplan("bench na --backend none").code, 4);
}

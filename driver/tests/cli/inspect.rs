//! What is supported, on what, and why: `supported`, `devices`, `explain`, `completions`, help.

use crate::run::{fuseplan, fuseplan_with};

#[test]
fn the_supported_table_names_every_solver() {
    let run = fuseplan("supported --backend cpu");
    assert_eq!(run.code, 0);
    assert!(run.stdout.starts_with("Supported on cpu 0 ("), "{}", run.stdout);
    assert!(run.stdout.contains("| solver | algorithm | operators |"), "{}", run.stdout);
    let rows = run.stdout.lines().filter(|line| line.starts_with("| cpu.")).count();

    let objects = fuseplan("supported --backend cpu --json").objects();
    assert_eq!(objects.len(), rows);
    let reference = objects.iter().find(|object| object["solver"] == "cpu.reference.v1").unwrap();
    assert_eq!(reference["data_types"], "f32 f16 bf16");
    assert!(reference["operators"].as_str().unwrap().contains("CBNA"));
}

#[test]
fn architectures_stand_in_for_devices() {
    if cfg!(target_arch = "x86_64") {
        let run = fuseplan("supported --backend cpu --arch x86-64+avx2");
        assert!(run.stdout.starts_with("Supported on cpu 0 (x86-64+avx2)"), "{}", run.stdout);
    }
    let run = fuseplan("supported --backend cpu --arch z80");
    assert_eq!(run.code, 4);
    assert!(run.stderr.contains("unknown architecture `z80`; known: "), "{}", run.stderr);
    assert_eq!(fuseplan("supported --arch z80").code, 2);
}

#[test]
fn devices_are_listed() {
    let run = fuseplan("devices");
    assert_eq!(run.code, 0);
    assert!(run.stdout.lines().any(|line| line.starts_with("cpu 0: ")), "{}", run.stdout);
    assert!(run.stdout.contains("  architecture   "), "{}", run.stdout);
    let run = crate::run::fuseplan_with("devices --json", &[("FUSEPLAN_NUM_THREADS", "nonsense")]);
    let objects = run.objects();
    let cpu = objects.iter().find(|object| object["backend"] == "cpu").unwrap();
    assert!(cpu["compute_units"].as_u64().unwrap() >= 1);
    assert!(objects.iter().any(|object| {
        object["kind"] == "note" && object["text"].as_str().unwrap().contains("FUSEPLAN_NUM_THREADS")
    }));
}

#[test]
fn explain_tells_the_solver_the_reasons_and_the_floor() {
    let line = "explain CBAInfer -F 4 -n 1 -c 3 -k 4 -H 6 -W 6";
    let run = fuseplan(line);
    assert_eq!(run.code, 0, "{}", run.stderr);
    for start in ["solver  ", "kernels    1", "time  ", "achieved  ", "peaks  ", "floor  "] {
        assert!(run.stdout.lines().any(|line| line.starts_with(start)), "{start}: {}", run.stdout);
    }
    let objects = fuseplan(&format!("{line} --json")).objects();
    let object = &objects[0];
    let refused = run.stdout.lines().filter(|line| line.starts_with("refused    cpu.")).count();
    assert_eq!(object["refused"].as_array().unwrap().len(), refused);
    // 2 · 4 · 16 outputs · 27 products, and two operators on each output.
    assert_eq!(object["flops"], 2.0 * 64.0 * 27.0 + 2.0 * 64.0);
    assert_eq!(object["bytes"], 4.0 * (108.0 + 108.0 + 4.0 + 64.0));
    let (time, rate) = (object["time_ms"].as_f64().unwrap(), object["achieved_flops"].as_f64().unwrap());
    assert!((rate * time * 1e-3 / object["flops"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    let floor = object["floor_memory_ms"].as_f64().unwrap().max(object["floor_compute_ms"].as_f64().unwrap());
    assert!((floor / time / object["of_floor"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    assert_eq!(object["floor_ms"].as_f64(), Some(floor));
    assert!(object["detail"].is_string(), "{object}");
    // A kernel of the CPU is no launch.
    assert!(object.as_object().unwrap()["resources"].is_null());
    assert!(!run.stdout.contains("resources  "), "{}", run.stdout);
}

#[test]
fn explain_measures_no_peaks_where_it_is_not_to() {
    for line in ["explain --no-peaks CBAInfer -F 5 -n 1", "explain CBAInfer -F 5 -n 1 --no-peaks"] {
        let run = fuseplan(&format!("{line} -c 3 -k 4 -H 6 -W 6 --json"));
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(run.stderr.lines().any(|line| line == "floor      not known: --no-peaks"), "{}", run.stderr);
        let object = &run.objects()[0];
        assert!(
            object["time_ms"].is_number() && object["peak_bytes"].is_null() && object["floor_ms"].is_null()
        );
    }
    // It is a flag of `explain` alone.
    assert_eq!(fuseplan("CBAInfer --no-peaks").code, 2);
}

#[test]
fn explain_tells_how_the_solver_was_chosen() {
    let line = "explain CBAInfer -F 4 -n 1 -c 8 -k 8 -g 2 -H 6 -W 6";
    let cache = tempfile::tempdir().unwrap();
    let variables = [("MIOPEN_CUSTOM_CACHE_DIR", cache.path().to_str().unwrap())];
    let explain = |more: &str, variables: &[(&str, &str)]| {
        let run = fuseplan_with(&format!("{line} {more} --json"), variables);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(run.stderr.lines().any(|line| line.starts_with("chosen     ")), "{}", run.stderr);
        run.objects()[0]["chosen"].clone()
    };
    assert_eq!(explain("", &variables)["by"], "preference");
    assert_eq!(explain("--solver cpu.reference.v1", &variables)["by"], "request");
    let found = explain("--find", &variables);
    assert_eq!((&found["by"], &found["stored"]), (&"time".into(), &false.into()));
    assert!(found["times"].as_array().unwrap().len() > 1, "{found}");
    // A second process finds what the first has found; the environment asks for it as well.
    let mode = [variables[0], ("MIOPEN_FIND_MODE_FUSION", "NORMAL")];
    let again = explain("", &mode);
    assert_eq!((&again["stored"], &again["times"]), (&true.into(), &found["times"]));
    let fast = [mode[0], ("MIOPEN_FIND_MODE", "NORMAL"), ("MIOPEN_FIND_MODE_FUSION", "FAST")];
    assert_eq!(explain("", &fast)["by"], "preference");
}

#[test]
fn explain_tells_every_reason_of_a_refused_plan() {
    let run = fuseplan("explain CBAInfer -F 2 -n 1 --solver cpu.batch_norm_training.v1 --json");
    assert_eq!(run.code, 3);
    let objects = run.objects();
    assert_eq!(objects[0]["kind"], "explain");
    assert_eq!(objects[0]["refused"][0]["solver"], "cpu.batch_norm_training.v1");
    assert_eq!(objects[0]["refused"][0]["property"], "operators");
    assert_eq!(objects[1]["exit"], 3);
    assert!(run.stderr.contains("refused    cpu.batch_norm_training.v1: operators is"), "{}", run.stderr);
}

#[test]
fn help_has_every_flag() {
    for line in ["CBAInfer -?", "CBAInfer -h", "CBAInfer --help", "help CAInferbfp16"] {
        let run = fuseplan(line);
        assert_eq!(run.code, 0, "{line}");
        assert!(run.stdout.contains("MIOpen Driver Input Flags:"), "{line}: {}", run.stdout);
        for flag in [
            "-!, --in_d",
            "-^, --dilation_d",
            "-F, --fusion_mode",
            "--backend",
            "--device",
            "--math",
            "--json",
        ] {
            assert!(run.stdout.contains(flag), "{line} lacks {flag}: {}", run.stdout);
        }
        assert!(!run.stdout.contains("--tolerance"), "{line}");
    }
    assert_eq!(fuseplan("-?").code, 0);
    assert_eq!(fuseplan("--version").code, 0);
}

#[test]
fn completions_are_scripts_of_their_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let run = fuseplan(&format!("completions {shell}"));
        assert_eq!(run.code, 0);
        assert!(run.stdout.contains("CBAInferbfp16") && run.stdout.contains("fusion_mode"), "{shell}");
    }
    assert_eq!(fuseplan("completions dos").code, 2);
}

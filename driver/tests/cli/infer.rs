//! The fusion primitives: MIOpenDriver's lines, our exit codes.

use crate::run::{fuseplan, fuseplan_with};

/// A small problem with a tail in every dimension.
const SMALL: &str = "-n 2 -c 3 -k 5 -H 7 -W 6 -p 1 -q 1";

#[test]
fn lines_are_those_of_miopendriver() {
    let line = format!("CBAInfer -F 4 {SMALL} -t 1 -w 1 -i 3");
    let run = fuseplan(&line);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(
        run.form(),
        format!(
            "MIOpenDriver {line}\n\
             PRNG seed: 12345678\n\
             Running fusion: Convolution+Bias+Activation\n\
             Wall-clock Time Elapsed: # ms, for 2 iterations.\n\
             GPU Fused Kernel Min Time Elapsed: # ms\n\
             GPU Fused Kernel Avg Time Elapsed: # ms, for 2 iterations.\n\
             Running CPU fwd convolution and/or bias.\n\
             Running CPU fwd activation.\n\
             Forward Activation Verifies on CPU and GPU (#)\n"
        )
    );
    assert!(run.stdout.trim_end().ends_with(" < 9.53674e-06)"), "{}", run.stdout);
    let time = run.stdout.lines().find(|line| line.starts_with("GPU Fused Kernel Min")).unwrap();
    let digits = time.split(' ').nth(6).unwrap().split_once('.').unwrap().1;
    assert_eq!(digits.len(), 6, "{time}");
}

#[test]
fn every_mode_and_primitive_verifies() {
    let bn = "Running CPU fwd batch normalization.\nRunning CPU spatial BN.\n";
    let conv = "Running CPU fwd convolution and/or bias.\n";
    let activ = "Running CPU fwd activation.\n";
    let modes = [
        (0, "Convolution+Bias+BatchNorm+Activation", [conv, bn, activ]),
        (1, "Convolution+BatchNorm+Activation", [conv, bn, activ]),
        (2, "BatchNorm+Activation", ["", bn, activ]),
        (3, "Convolution+BatchNorm", [conv, bn, ""]),
        (4, "Convolution+Bias+Activation", [conv, "", activ]),
        (5, "Convolution+Activation", [conv, "", activ]),
        (6, "Convolution+Bias", [conv, "", ""]),
    ];
    let primitives =
        ["CBAInfer", "CBAInferfp16", "CBAInferbfp16", "CAInfer", "CAInferfp16", "CAInferbfp16", "CBAInfer"];
    for ((mode, name, cpu), primitive) in modes.into_iter().zip(primitives) {
        let line = format!("{primitive} -J {mode} {SMALL} -M 1");
        let run = fuseplan(&line);
        assert_eq!(run.code, 0, "{line}: {}", run.stderr);
        let tolerance = match primitive.trim_start_matches(['C', 'B', 'A']) {
            "Infer" => "9.53674e-06",
            "Inferfp16" => "0.078125",
            _ => "0.625",
        };
        assert_eq!(
            run.form(),
            format!(
                "MIOpenDriver {line}\nPRNG seed: 12345678\nRunning fusion: {name}\n{}\
                 Forward Activation Verifies on CPU and GPU (#)\n",
                cpu.concat()
            )
        );
        assert!(run.stdout.trim_end().ends_with(&format!("< {tolerance})")), "{}", run.stdout);
    }
}

#[test]
fn tf32_is_allowed_where_it_is_asked_for() {
    let run = |more: &str| {
        let run = fuseplan(&format!("CBAInfer -F 4 {SMALL} {more} --json"));
        assert_eq!(run.code, 0, "{more}: {}", run.stderr);
        run.objects().remove(0)
    };
    let said = |object: &serde_json::Value| object["problem"].as_str().unwrap().contains(" math tf32 ");
    for more in ["", "--math precise"] {
        let object = run(more);
        assert_eq!((&object["math"], said(&object)), (&"precise".into(), false), "{object}");
    }
    // The CPU computes precisely all the same; the result may be as far off as TF32's.
    let object = run("--math tf32");
    assert_eq!((&object["math"], said(&object)), (&"tf32".into(), true), "{object}");
    assert_eq!(object["tolerance"], 80.0 / 1024.0);
    assert!(object["error"].as_f64().unwrap() < 1e-5, "{object}");
    let run = fuseplan(&format!("CBAInfer {SMALL} --math fast"));
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("possible values: strict, precise, tf32"), "{}", run.stderr);
}

#[test]
fn a_device_is_chosen_by_its_number() {
    let run = fuseplan(&format!("CBAInfer -F 4 {SMALL} --backend cpu --device 0 --json"));
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.objects()[0]["device"].as_str().unwrap().starts_with("cpu 0 ("));
    let run = fuseplan(&format!("CBAInfer -F 4 {SMALL} --backend cpu --device 3"));
    assert_eq!(run.code, 4);
    assert!(run.stderr.contains("cpu: no device 3; 1 found"), "{}", run.stderr);
    for (flags, reason) in [
        ("--device 0", "--backend <NAME>"),
        ("--backend cpu --device 0 --threads 2", "cannot be used with"),
        ("--backend cpu --device=-1", "invalid value"),
    ] {
        let run = fuseplan(&format!("CBAInfer -F 4 {SMALL} {flags}"));
        assert_eq!(run.code, 2, "{flags}: {}", run.stderr);
        assert!(run.stderr.contains(reason), "{flags}: {}", run.stderr);
    }
}

#[test]
fn shapes_layouts_and_modes_verify() {
    for line in [
        "-F 0 -n 1 -c 4 -k 6 -g 2 -H 9 -W 5 -u 2 -v 3 -l 2 -p 2 -M 0 -m 8 -A 0.1",
        "-F 4 -n 2 -c 3 -k 4 -H 5 -W 5 -z same -I NHWC -O NHWC -f NHWC -m 9",
        "-F 5 -_ 3 -n 1 -c 2 -k 3 -! 4 -H 5 -W 4 -@ 2 -# 2 -$ 1 -I NDHWC -m 10 -A 0.2 -B 0.8",
        "-F 2 -_ 3 -n 2 -c 3 -! 2 -H 3 -W 3 -M 0 -m 1",
        "-F 0 -n 1 -c 3 -k 16 -H 7 -W 5 -p 1 -q 1 -O NCHWc16 -M 1",
        "-F 4 -n 2 -c 8 -k 12 -H 5 -W 5 -I NCHWc8 -O NCHWc4",
        "-F 2 -n 1 -c 8 -H 3 -W 3 -I NCHWc4 -M 1",
    ] {
        let run = fuseplan(&format!("CBAInfer {line}"));
        assert_eq!(run.code, 0, "{line}: {}{}", run.stdout, run.stderr);
        assert!(run.stdout.contains("Verifies"), "{line}: {}", run.stdout);
    }
}

#[test]
fn without_verification_nothing_is_verified() {
    let run = fuseplan(&format!("CBAInfer -F 4 {SMALL} -V 0 --seed 7 --threads 1"));
    assert_eq!(run.code, 0);
    assert!(run.stdout.contains("PRNG seed: 7\n") && !run.stdout.contains("CPU fwd"), "{}", run.stdout);
}

#[test]
fn the_seed_comes_from_the_environment_and_the_flag_wins() {
    let variable = [("MIOPEN_DEBUG_DRIVER_PRNG_SEED", "42")];
    assert!(fuseplan_with(&format!("CBAInfer -F 6 {SMALL}"), &variable).stdout.contains("PRNG seed: 42\n"));
    let line = format!("CBAInfer -F 6 {SMALL} --seed 43");
    assert!(fuseplan_with(&line, &variable).stdout.contains("PRNG seed: 43\n"));
    let nonsense = [("MIOPEN_DEBUG_DRIVER_PRNG_SEED", "many")];
    assert_eq!(fuseplan_with(&format!("CBAInfer -F 6 {SMALL}"), &nonsense).code, 2);
}

#[test]
fn a_wrong_result_fails_and_names_the_command() {
    let run = fuseplan(&format!("CBAInfer -F 4 {SMALL} --tolerance -1"));
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains("Forward Activation FAILED: "), "{}", run.stdout);
    assert!(run.stderr.contains(&format!("fuseplan CBAInfer -F 4 {SMALL}")), "{}", run.stderr);
}

#[test]
fn bad_usage_is_refused() {
    for (line, text) in [
        ("", "Usage"),
        ("FooInfer", "unrecognized subcommand"),
        ("CBAInfer -F 7", "Fusion mode out of range"),
        ("CBAInfer -M 2", "Incorrect Batch Normalization Mode"),
        ("CBAInfer -e 3", "unexpected argument '-e'"),
        ("CBAInfer --batch 3", "unexpected argument '--batch'"),
        ("CBAInfer -n many", "invalid digit"),
        ("CBAInfer -n", "a value is required"),
        ("CBAInfer 12", "unexpected argument"),
        ("CBAInfer -n 0", "tensor length 0 is zero"),
        ("CBAInfer -_ 3 -I NHWC", "does not go with --spatial_dim 3"),
        ("CBAInfer --solver cpu.none.v1", "cpu has no solver `cpu.none.v1`"),
        ("CBAInfer --backend cuda --threads 2", "--threads is for the cpu backend"),
    ] {
        let run = fuseplan(line);
        assert_eq!(run.code, 2, "{line}: {}", run.stderr);
        assert!(run.stderr.contains(text), "{line}: {}", run.stderr);
    }
}

#[test]
fn refused_plans_say_why() {
    for (line, upstream, reason) in [
        (
            "CBAInfer -F 4 -c 3 -g 2",
            "Convolution+Bias+Activation plan not supported.",
            "3 input channels are not divisible by 2 groups; accepted: a group count that divides 3",
        ),
        (
            "CBAInfer -F 5 -H 2",
            "ConvActivInference plan not supported.",
            "the filter reaches over 3 elements of spatial dimension 0, the padded input has 2; accepted: ",
        ),
        (
            "CBAInfer -F 2 -I NHWC -O NCHW",
            "BatchNormActivInference plan not supported.",
            "accepted without a convolution: NHWC",
        ),
        ("CBAInfer -F 0 -r 1", "Convolution+Bias+BatchNorm+Activation plan not supported.", "accepted: 0"),
        (
            "CBAInfer -F 2 --solver cpu.batch_norm_training.v1",
            "BatchNormActivInference plan not supported.",
            "no solver of cpu 0",
        ),
    ] {
        let run = fuseplan(line);
        assert_eq!(run.code, 3, "{line}: {}", run.stderr);
        assert!(run.stderr.lines().any(|l| l == upstream), "{line}: {}", run.stderr);
        assert!(run.stderr.contains(reason), "{line}: {}", run.stderr);
    }
}

#[test]
fn a_missing_device_is_its_own_code() {
    let run = fuseplan("CBAInfer -F 4 --backend none");
    assert_eq!(run.code, 4);
    assert!(run.stderr.contains("there is no backend `none`; this build has "), "{}", run.stderr);
    let run = fuseplan_with("CBAInfer -F 4", &[("FUSEPLAN_BACKEND", "none")]);
    assert_eq!(run.code, 4, "{}", run.stderr);
    assert_eq!(fuseplan("CBAInfer --threads 0").code, 4);
}

#[test]
fn objects_stand_alone_on_standard_output() {
    let run = fuseplan(&format!("CBAInfer -F 4 {SMALL} -i 2 -t 1 --json"));
    assert_eq!(run.code, 0);
    let [object] = &run.objects()[..] else { panic!("{}", run.stdout) };
    assert_eq!(object["kind"], "run");
    assert_eq!(object["fusion"], "Convolution+Bias+Activation");
    assert_eq!(object["verified"], true);
    assert_eq!(object["iterations"], 2);
    assert_eq!(object["kernels"], 1);
    assert!(object["kernel_min_ms"].as_f64().unwrap() > 0.0);
    assert!(object["error"].as_f64().unwrap() <= object["tolerance"].as_f64().unwrap());
    assert!(run.stderr.contains("Forward Activation Verifies"), "{}", run.stderr);

    let run = fuseplan("CBAInfer -F 4 -c 3 -g 2 --json");
    let [object] = &run.objects()[..] else { panic!("{}", run.stdout) };
    assert_eq!((&object["kind"], &object["exit"]), (&"error".into(), &3.into()));
    assert!(object["message"].as_str().unwrap().contains("not divisible by 2 groups"));

    let run = fuseplan(&format!("CBAInfer -F 4 {SMALL} --tolerance -1 --json"));
    let kinds: Vec<_> = run.objects().iter().map(|object| object["kind"].clone()).collect();
    assert_eq!(kinds, ["run", "error"]);
    assert_eq!(run.objects()[0]["verified"], false);
}

#[test]
fn a_check_against_the_same_solver_is_told() {
    let run = fuseplan(&format!("CBAInfer -F 4 {SMALL} --solver cpu.reference.v1"));
    assert_eq!(run.code, 0);
    assert!(run.stderr.contains("compared with itself"), "{}", run.stderr);
}

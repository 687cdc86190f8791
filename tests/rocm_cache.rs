//! Compiled kernels on disk, as the ROCm backend uses them: every step is a process of its own, on a runtime
//! without a GPU whose kernels do nothing.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Command;

use fuseplan::{ActivationForward, ActivationMode, DataType, FusionPlan, Handle, TensorDescriptor};
use fuseplan_fake_hip::Fake;

/// In a child: the error that its loads of the stored module return, before and after waiting for others that
/// may compile; 0 is none.
const CHILD: &str = "FUSEPLAN_TEST_CHILD";

/// Compiles a plan and prints how often the compiler and the loader were called.
#[test]
fn child() {
    let Ok(number) = std::env::var(CHILD) else { return };
    let fake = Fake::open(Path::new(&std::env::var("ROCM_PATH").unwrap()), 7).unwrap();
    match number.parse().unwrap() {
        0 => fake.reset(),
        number => fake.fail("hipModuleLoadData", 0..2, number),
    }
    fuseplan::log::to_stderr();
    let handle = Handle::open("rocm", 0).unwrap();
    let x = TensorDescriptor::nchw(DataType::Float, [1, 2, 3, 4]).unwrap();
    let mut plan = FusionPlan::for_device(&handle, x).unwrap();
    plan.append(ActivationForward::new(ActivationMode::Relu)).unwrap();
    let result = plan.compile(&handle).map(|compiled| {
        let resources = compiled.info().resources.expect("a kernel of a GPU is launched");
        assert!(compiled.to_string().contains(&format!("\nresources  {resources}")), "{compiled}");
        compiled.info().solver
    });
    let calls = fake.calls();
    let count = |name: &str| calls.iter().filter(|call| *call == name).count();
    println!("compiled {}, loaded {}", count("hiprtcCompileProgram"), count("hipModuleLoadData"));
    println!("{}", result.map_or_else(|error| error.to_string(), String::from));
}

/// What a process prints.
fn run(hip: &Path, cache: &Path, number: u32, version: &str) -> String {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, number.to_string())
        .env("ROCM_PATH", hip)
        .env("MIOPEN_CUSTOM_CACHE_DIR", cache)
        .env("FAKE_HIP_VERSION", version)
        .env("MIOPEN_LOG_LEVEL", "5")
        .env_remove("MIOPEN_DISABLE_CACHE")
        .output()
        .unwrap();
    let text = [child.stdout, child.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(child.status.success(), "{text}");
    text
}

#[test]
fn stored_kernels_are_used_where_they_can_be() {
    const HIP: &str = "70253211";
    let folder = tempfile::tempdir().unwrap();
    let (hip, cache) = (folder.path().join("hip"), folder.path().join("cache"));
    Fake::install(&hip, 7).unwrap();
    let holds = |text: String, counts: &str, outcome: &str| {
        assert!(text.contains(counts) && text.contains(outcome), "not `{counts}`, `{outcome}`:\n{text}");
    };
    let solver = "rocm.element_wise.v1";
    holds(run(&hip, &cache, 0, HIP), "compiled 1, loaded 1", solver);
    holds(run(&hip, &cache, 0, HIP), "compiled 0, loaded 1", solver);
    holds(
        run(&hip, &folder.path().join("empty"), 0, HIP),
        "compiled 1, loaded 1",
        " cache=compiled microseconds=",
    );
    holds(run(&hip, &cache, 0, HIP), "compiled 0, loaded 1", " cache=disk microseconds=");
    // What the runtime does not take any more is compiled again, and stored.
    for refused in [209, 200] {
        holds(run(&hip, &cache, refused, HIP), "compiled 1, loaded 3", solver);
        holds(run(&hip, &cache, 0, HIP), "compiled 0, loaded 1", solver);
    }
    // Another compiler's kernel is replaced.
    holds(run(&hip, &cache, 0, "70300000"), "compiled 1, loaded 1", solver);
    holds(run(&hip, &cache, 0, "70300000"), "compiled 0, loaded 1", solver);
    // Without a compiler, stored kernels run and others do not.
    std::fs::remove_file(hip.join("lib/libhiprtc.so.7")).unwrap();
    holds(run(&hip, &cache, 0, HIP), "compiled 0, loaded 1", solver);
    let other = folder.path().join("other");
    holds(run(&hip, &other, 0, HIP), "compiled 0, loaded 0", "the run-time compiler hiprtc is not installed");
}

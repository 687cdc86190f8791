//! Machines that have a CUDA driver and no compiler: plans that were exported, or stored in the cache, where there
//! was one run there. With a fake in the driver's place, in processes whose loader finds it first.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fuseplan::error::CompileError;
use fuseplan::*;

/// What is installed where a process of this test runs.
const INSTALLED: &str = "FUSEPLAN_TEST_INSTALLED";
/// Where a plan is exported to, or loaded from.
const EXPORTED: &str = "FUSEPLAN_TEST_EXPORTED";

/// A plan of one activation.
struct Plan(FusionPlan, OpId<ActivationForward>, Activation);

impl Plan {
    fn new(activation: Activation) -> Self {
        let x = TensorDescriptor::nchw(DataType::Float, [1, 3, 2, 2]).unwrap();
        let mut plan = FusionPlan::new(x).unwrap();
        let id = plan.append(ActivationForward::new(activation.mode())).unwrap();
        Plan(plan, id, activation)
    }

    /// Compiles, or gets what is compiled, and executes; what came of it.
    fn run(
        &self,
        handle: &Handle,
        get: impl FnOnce(&FusionPlan) -> Result<CompiledPlan, CompileError>,
    ) -> String {
        let execute = || -> Result<(), Error> {
            let compiled = get(&self.0)?;
            let x = DeviceBuffer::<f32>::zeroed(handle, 12)?;
            let mut y = DeviceBuffer::<f32>::zeroed(handle, 12)?;
            let mut args = OperatorArgs::new();
            args.set(self.1, self.2);
            let (from, to) = (Tensor::new(compiled.input(), &x), TensorMut::new(compiled.output(), &mut y));
            compiled.execute(handle, from, to, &args)?;
            Ok(handle.synchronize()?)
        };
        execute().map_or_else(|error| error.to_string(), |()| "ran".into())
    }
}

/// A process on a machine of its own.
#[test]
fn child() {
    let Ok(installed) = std::env::var(INSTALLED) else { return };
    let exported = std::env::var_os(EXPORTED).unwrap();
    let handle = match Handle::open("cuda", 0) {
        Ok(handle) => handle,
        Err(error) => return println!("open: {error}"),
    };
    println!("compiler: {:?}", handle.device_info().toolchain);
    if installed == "driver and compiler" {
        let plan = Plan::new(Activation::Tanh { alpha: 1.0, beta: 1.0 });
        let binary = plan.0.compile_for(&handle, &CompileOptions::default()).unwrap();
        fs::write(&exported, binary.to_bytes()).unwrap();
    }
    println!("known: {}", Plan::new(Activation::Relu).run(&handle, |plan| plan.compile(&handle)));
    // SAFETY: the bytes were written by this test.
    let binary = unsafe { CompiledBinary::from_bytes(&fs::read(&exported).unwrap()) }.unwrap();
    println!(
        "exported: {}",
        Plan::new(Activation::Tanh { alpha: 1.0, beta: 1.0 })
            .run(&handle, |plan| plan.load(&handle, &binary))
    );
    if installed == "driver" {
        println!(
            "new: {}",
            Plan::new(Activation::Elu { alpha: 1.0 }).run(&handle, |plan| plan.compile(&handle))
        );
    }
}

/// Runs the child with what a folder has.
fn on_machine(folder: &Path, installed: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(INSTALLED, installed)
        .env(EXPORTED, folder.join("plan"))
        .env("MIOPEN_CUSTOM_CACHE_DIR", folder.join("cache"))
        .env("LD_LIBRARY_PATH", folder.join(installed))
        .env_remove("FUSEPLAN_NVRTC_PATH")
        .env_remove("CUDA_PATH")
        .env_remove("CUDA_HOME")
        .env_remove("VIRTUAL_ENV")
        .env_remove("MIOPEN_DISABLE_CACHE")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// A folder with one of each kind of machine.
fn machines(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("fuseplan-{name}-{}", std::process::id()));
    fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
    let fake = std::env::current_exe().unwrap().with_file_name("libfuseplan_fake_cuda.so");
    for (installed, names) in
        [("driver and compiler", &["libcuda.so.1", "libnvrtc.so.13"][..]), ("driver", &["libcuda.so.1"])]
    {
        fs::create_dir(folder.join(installed)).unwrap();
        for name in names {
            fs::copy(&fake, folder.join(installed).join(name)).unwrap();
        }
    }
    folder
}

#[test]
fn what_is_compiled_runs_where_there_is_no_compiler() {
    let folder = machines("driver-only");
    let text = on_machine(&folder, "driver and compiler");
    assert!(text.contains("known: ran\nexported: ran\n"), "{text}");
    let text = on_machine(&folder, "driver");
    assert!(text.contains("known: ran\nexported: ran\n"), "{text}");
    let text = on_machine(&folder, "nothing");
    let missing = "open: cuda: not available: the driver is not installed: libcuda.so.1: ";
    // Unless the loader finds this machine's own.
    assert!(text.contains(missing) || text.contains("compiler: "), "{text}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
#[ignore = "needs a machine without NVRTC; `.ci/run test` runs it there"]
fn what_is_new_is_refused_where_there_is_no_compiler() {
    let folder = machines("no-compiler");
    on_machine(&folder, "driver and compiler");
    let text = on_machine(&folder, "driver");
    let missing = "new: cuda: not available: the run-time compiler NVRTC is not installed: looked for ";
    assert!(text.contains("compiler: \"\"") && text.contains(missing), "{text}");
    fs::remove_dir_all(&folder).unwrap();
}

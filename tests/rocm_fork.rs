//! A child of a process that opened an AMD GPU: every use of that is an error that says so, nothing reaches the runtime,
//! and the CPU computes. On a runtime without a GPU whose kernels do nothing.
#![cfg(target_os = "linux")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;

use fuseplan::{
    Activation, ActivationForward, ActivationMode, DataType, DeviceBuffer, FusionPlan, Handle, OperatorArgs,
    Tensor, TensorDescriptor, TensorMut, device::discover,
};
use fuseplan_fake_hip::Fake;
use fuseplan_suite::sample::Sample;

/// Set in a process whose runtime is the fake one.
const CHILD: &str = "FUSEPLAN_TEST_CHILD";

#[test]
fn what_a_parent_opened_is_an_error_in_its_child() {
    if let Ok(folder) = std::env::var(CHILD) {
        return opened_and_forked(&Fake::open(Path::new(&folder), 7).unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    Fake::install(folder.path(), 7).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "what_a_parent_opened_is_an_error_in_its_child", "--nocapture"])
        .env(CHILD, folder.path())
        .env("ROCM_PATH", folder.path())
        .env("MIOPEN_DISABLE_CACHE", "1")
        .env_remove("FUSEPLAN_BACKEND")
        .output()
        .unwrap();
    let text = [child.stdout, child.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
}

fn opened_and_forked(fake: &Fake) {
    let handle = Handle::open("rocm", 0).unwrap();
    let x = &TensorDescriptor::nchw(DataType::Float, [1, 2, 3, 4]).unwrap();
    let mut plan = FusionPlan::for_device(&handle, *x).unwrap();
    let relu = plan.append(ActivationForward::new(ActivationMode::Relu)).unwrap();
    let compiled = plan.compile(&handle).unwrap();
    let (input, mut output) = (
        DeviceBuffer::from_slice(&handle, &[1.0f32; 24]).unwrap(),
        DeviceBuffer::<f32>::zeroed(&handle, 24).unwrap(),
    );
    let mut args = OperatorArgs::new();
    args.set(relu, Activation::Relu);

    let in_child = move || {
        fake.reset();
        let (from, to) = (Tensor::new(x, &input), TensorMut::new(x, &mut output));
        let executed = compiled.execute(&handle, from, to, &args).unwrap_err().to_string();
        let errors = [
            executed,
            handle.synchronize().unwrap_err().to_string(),
            input.to_vec().unwrap_err().to_string(),
            DeviceBuffer::from_slice(&handle, &[0.0f32; 4]).unwrap_err().to_string(),
            Handle::open("rocm", 0).unwrap_err().to_string(),
            discover("rocm").unwrap().notes.concat(),
        ];
        let is_said =
            errors.iter().all(|error| error.contains("rocm") && error.contains("this process was forked"));
        drop((compiled, input, output, args, handle));
        let (sample, best) = (Sample::new(3).unwrap(), Handle::new().unwrap());
        let on_cpu = sample.plan.compile(&best).unwrap();
        let is_right = sample.run(&on_cpu, &best, &sample.args()).unwrap() == sample.expected();
        let calls = fake.calls();
        println!("{errors:#?} {calls:?} {}", best.target());
        is_said && calls.is_empty() && best.device_info().backend == "cpu" && is_right
    };
    // SAFETY: the child does the above and ends, without anything of the test's harness.
    let status = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(30);
            libc::_exit(i32::from(!catch_unwind(AssertUnwindSafe(in_child)).unwrap_or(false)));
        }
        let mut status = -1;
        libc::waitpid(child, &raw mut status, 0);
        status
    };
    assert_eq!(status, 0);
}

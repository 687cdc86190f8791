//! Graphs on the ROCm backend: what is captured does not run, and runs when it is launched, by itself or as a node,
//! with other arguments too. On a runtime without a GPU that runs the kernels' text on the CPU, for which
//! it needs clang.
#![cfg(target_os = "linux")]

use std::process::Command;

use fuseplan::*;
use fuseplan_fake_hip::Fake;

/// Set in a process whose runtime is the fake one.
const CHILD: &str = "FUSEPLAN_TEST_CHILD";

/// Two channels of 2 x 3.
const INPUT: [f32; 12] = [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
const BIAS: [f32; 2] = [1.0, -4.0];

/// An addition of the bias and a ReLU, applied `times` times.
fn expected(input: &[f32], times: usize) -> Vec<f32> {
    (0..times)
        .fold(input.to_vec(), |x, _| x.iter().enumerate().map(|(i, x)| (x + BIAS[i / 6]).max(0.0)).collect())
}

#[test]
#[ignore = "needs clang++ 19 or later; `.ci/run test` runs it"]
fn graphs_run_when_they_are_launched() -> Result<(), Box<dyn std::error::Error>> {
    assert!(Fake::runs_kernels(), "no clang++ of version 19 or later");
    if std::env::var_os(CHILD).is_some() {
        return Ok(graphs()?);
    }
    let folder = tempfile::tempdir()?;
    Fake::install(folder.path(), 7)?;
    let child = Command::new(std::env::current_exe()?)
        .args(["--exact", "graphs_run_when_they_are_launched", "--nocapture", "--ignored"])
        .env(CHILD, "1")
        .env("ROCM_PATH", folder.path())
        .env("FAKE_HIP_KERNELS", folder.path().join("kernels"))
        .env("MIOPEN_DISABLE_CACHE", "1")
        .output()?;
    let text = [child.stdout, child.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
    Ok(())
}

fn graphs() -> Result<(), Error> {
    let handle = Handle::open("rocm", 0)?;
    let x = &TensorDescriptor::nchw(DataType::Float, [1, 2, 2, 3])?;
    let mut plan = FusionPlan::for_device(&handle, *x)?;
    let bias = plan.append(BiasForward::new())?;
    let relu = plan.append(ActivationForward::new(ActivationMode::Relu))?;
    let compiled = plan.compile(&handle)?;
    let shift = DeviceBuffer::from_slice(&handle, &BIAS)?;
    let mut args = OperatorArgs::new();
    args.set(bias, BiasForwardArgs::new(&shift)).set(relu, Activation::Relu);
    let mut input = DeviceBuffer::from_slice(&handle, &INPUT)?;
    let [mut middle, mut output, mut other] =
        [(); 3].map(|()| DeviceBuffer::<f32>::zeroed(&handle, 12).unwrap());

    // One execution behind another.
    let twice = handle.capture_graph(|handle| {
        compiled.execute(handle, Tensor::new(x, &input), TensorMut::new(x, &mut middle), &args)?;
        compiled.execute(handle, Tensor::new(x, &middle), TensorMut::new(x, &mut output), &args)
    })?;
    assert_eq!(output.to_vec()?, [0.0; 12], "something ran at the capture");
    let twice = twice.instantiate()?;
    for input_now in [INPUT, INPUT.map(|v| 2.0 * v)] {
        input.copy_from(&input_now)?;
        // SAFETY: the buffers live, and the handle's stream orders their use.
        unsafe { twice.launch(handle.stream()) }?;
        handle.synchronize()?;
        assert_eq!(output.to_vec()?, expected(&input_now, 2));
    }

    // A node of a graph, then with another output.
    input.copy_from(&INPUT)?;
    let once = |to: &mut DeviceBuffer<f32>| {
        handle.capture_graph(|handle| {
            compiled.execute(handle, Tensor::new(x, &input), TensorMut::new(x, to), &args)
        })
    };
    let (first, second) = (once(&mut output)?, once(&mut other)?);
    let whole = handle.capture_graph(|_| Ok::<(), Error>(()))?;
    // SAFETY: graphs and nodes are live and used by this thread alone; the buffers live, and the handle's stream
    // orders their use.
    unsafe {
        let node = first.add_to(whole.raw(), &[])?;
        let executable = whole.instantiate()?;
        executable.launch(handle.stream())?;
        handle.synchronize()?;
        assert_eq!(output.to_vec()?, expected(&INPUT, 1));
        assert_eq!(other.to_vec()?, [0.0; 12]);
        second.update(executable.raw(), node)?;
        output.copy_from(&[5.0; 12])?;
        executable.launch(handle.stream())?;
        handle.synchronize()?;
        assert_eq!(other.to_vec()?, expected(&INPUT, 1));
        assert_eq!(output.to_vec()?, [5.0; 12], "the node has its old output");
    }

    // What waits for the stream cannot be captured, and the error is that of the wait.
    let waited = handle.capture_graph(|handle| handle.synchronize());
    let error = waited.unwrap_err().to_string();
    assert!(error.contains("hipStreamSynchronize failed: hipErrorStreamCaptureUnsupported (900)"), "{error}");
    Ok(())
}

//! The backend on a runtime that fails on demand (`tests/fake`): every call that fails is an error in words
//! which names it, nothing is leaked, the caller's current device is as before, and nothing panics. Kernels do
//! not run here.

#[path = "fake/scratch.rs"]
mod scratch;

use std::ffi::c_void;
use std::path::Path;
use std::process::Command;
use std::ptr;

use fuseplan_api::operands::ConvForward;
use fuseplan_api::*;
use fuseplan_fake_hip::Fake;
use fuseplan_hip_sys as sys;
use fuseplan_rocm::RocmBackend;
use libtest_mimic::{Arguments, Failed, Trial};

/// Calls whose failure is not reported, and what stays in use then: those that give something back, and a
/// question whose answer is not needed.
const SILENT: [(&str, &str); 8] = [
    ("hipEventDestroy", "Event"),
    ("hipFree", "Memory"),
    ("hipGraphDestroy", "Graph"),
    ("hipGraphExecDestroy", "GraphExec"),
    ("hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", ""),
    ("hipModuleUnload", "Module"),
    ("hipStreamDestroy", "Stream"),
    ("hiprtcDestroyProgram", "Program"),
];

/// Set in a process that only prints what it finds.
const CHILD: &str = "FUSEPLAN_TEST_CHILD";

/// A number that no version of HIP gives.
const UNKNOWN: u32 = 4321;

/// A plan with a text that no other number's plan has, so that it is compiled and not remembered.
fn problem(number: usize) -> Problem {
    let input = TensorDescriptor::nchw(DataType::Float, [1, 16, 4, 4]).unwrap();
    let weights = TensorDescriptor::nchw(DataType::Float, [16 + number, 16, 1, 1]).unwrap();
    let conv = ConvolutionDescriptor::d2();
    let output = conv.forward_output(&input, &weights).unwrap();
    Problem { input, output, ops: vec![Op::ConvForward { conv, weights }], math: MathMode::Precise }
}

/// Memory that is given back.
struct Buffer<'a> {
    memory: &'a dyn Memory,
    pointer: *mut c_void,
    bytes: usize,
}

impl<'a> Buffer<'a> {
    fn new(memory: &'a dyn Memory, bytes: usize) -> Result<Self, BackendError> {
        Ok(Buffer { memory, pointer: memory.allocate(bytes)?, bytes })
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated with this size, given back once; nothing uses it.
        unsafe { self.memory.free(self.pointer, self.bytes) }
    }
}

/// Everything that is done with a device, from the look for it to its end.
fn everything(number: usize) -> Result<(), String> {
    let words = |error: BackendError| error.to_string();
    let found = RocmBackend.discover();
    if found.devices.len() != 2 || !found.notes.is_empty() {
        return Err(found.notes.join("; "));
    }
    let device = RocmBackend.open(1).map_err(words)?;
    let problem = problem(number);
    let solver = solver();
    let binary = solver.compile_preferred(&problem, device.info()).map_err(|error| error.to_string())?;
    let executable = solver.load(&problem, &device, &binary).map_err(|error| error.to_string())?;
    let stream = device.create_stream().map_err(words)?;
    let memory = device.memory();
    let input = Buffer::new(memory, problem.input.bytes()).map_err(words)?;
    let weights = Buffer::new(memory, (16 + number) * 16 * 4).map_err(words)?;
    let output = Buffer::new(memory, problem.output.bytes()).map_err(words)?;
    // SAFETY: the memory has as many bytes.
    unsafe {
        memory.copy_in(input.pointer, &vec![1; input.bytes], &stream).map_err(words)?;
        memory.zero(output.pointer, output.bytes, &stream).map_err(words)?;
    }
    let ops = [ConvForward { weights: weights.pointer }.into()];
    let args =
        RunArgs { input: input.pointer, output: output.pointer, ops: &ops, workspace: ptr::null_mut() };
    let mut run = || {
        // SAFETY: operands have the sizes that the problem says.
        unsafe { executable.run(stream.raw(), &args) }
    };
    run().map_err(|error| error.to_string())?;
    device.synchronize(&stream).map_err(words)?;
    device.time(&stream, &mut run).map_err(|error| error.to_string())?;
    graphs(&*device, &stream, &|stream| {
        // SAFETY: operands have the sizes that the problem says, and outlive the graph.
        unsafe { executable.run(stream.raw(), &args) }
    })
    .map_err(|error| error.to_string())?;
    let peaks = device.peaks(DataType::Half).map_err(words)?;
    assert!(peaks.flops > 0.0 && peaks.bytes > 0.0, "{peaks:?}");
    for (buffer, value) in [(&input, 1), (&output, 0)] {
        let mut bytes = vec![9; buffer.bytes];
        // SAFETY: the memory was filled above.
        unsafe { memory.copy_out(&mut bytes, buffer.pointer, &stream) }.map_err(words)?;
        assert!(bytes.iter().all(|&byte| byte == value));
    }
    Ok(())
}

/// Everything that is done with graphs.
fn graphs(
    device: &dyn Device,
    stream: &Stream,
    run: &dyn Fn(&Stream) -> Result<(), RunError>,
) -> Result<(), RunError> {
    let (graph, outer) = (Graph::capture(device, run)?, Graph::capture(device, run)?);
    // SAFETY: the graphs are live and used by this thread alone; operands live until the stream has passed.
    unsafe {
        graph.instantiate()?.launch(stream.raw())?;
        let node = graph.add_to(outer.raw(), &[])?;
        graph.update(outer.instantiate()?.raw(), node)?;
    }
    Ok(device.synchronize(stream)?)
}

/// Each function that is called, failing at each of its calls.
fn every_failure_is_an_error(fake: &Fake) -> Result<(), Failed> {
    // The runtime is found and asked for its version once for the process.
    everything(0)?;
    fake.reset();
    everything(1)?;
    let calls = fake.calls();
    assert!(fake.take_live().is_empty());
    let mut functions = calls.clone();
    functions.sort();
    functions.dedup();
    assert!(functions.len() >= 39, "{functions:?}");
    let mut number = 1;
    for function in &functions {
        for nth in 0..calls.iter().filter(|call| *call == function).count() {
            number += 1;
            fake.fail(function, nth..nth + 1, UNKNOWN);
            let result = everything(number);
            let what = format!("call {nth} of {function}");
            if !fake.calls().contains(function) {
                return Err(format!("{what} was not made").into());
            }
            // On the way out the current device is asked for and put back, as well as can be.
            let silent = SILENT.iter().any(|(name, _)| name == function) || function.ends_with("etDevice");
            match result {
                Err(text) if text.contains(function.as_str()) && text.contains("(4321)") => {}
                Ok(()) if silent => {}
                other => return Err(format!("{what}: {other:?}").into()),
            }
            // Only what the runtime refused to take back.
            let kept = SILENT.iter().filter(|(name, kind)| name == function && !kind.is_empty());
            let left: Vec<_> = kept.map(|(_, kind)| *kind).collect();
            let found = fake.take_live();
            if found != left {
                return Err(format!("{what} left {found:?}").into());
            }
            if function != "hipSetDevice" && current_device() != 0 {
                return Err(format!("{what} left another current device").into());
            }
            // SAFETY: there is a device 0.
            unsafe { sys::hip().map_err(|error| error.to_string())?.hipSetDevice(0) };
        }
    }
    Ok(())
}

fn current_device() -> i32 {
    let mut device = -1;
    // SAFETY: the runtime writes the number.
    unsafe { sys::hip().unwrap().hipGetDevice(&mut device) };
    device
}

/// What a launch does besides launching: nothing that a stream under capture would refuse.
fn an_execution_only_launches(fake: &Fake) -> Result<(), Failed> {
    let device = RocmBackend.open(1)?;
    let problem = problem(9000);
    let solver = solver();
    let binary = solver.compile_preferred(&problem, device.info())?;
    let executable = solver.load(&problem, &device, &binary)?;
    let stream = device.create_stream()?;
    let pointer = device.memory().allocate(1 << 20)?;
    let ops = [ConvForward { weights: pointer }.into()];
    let args = RunArgs { input: pointer, output: pointer, ops: &ops, workspace: ptr::null_mut() };
    fake.reset();
    // SAFETY: the memory is larger than every operand.
    unsafe { executable.run(stream.raw(), &args) }?;
    let calls = fake.calls();
    assert_eq!(calls, ["hipGetDevice", "hipSetDevice", "hipModuleLaunchKernel", "hipSetDevice"]);
    // The same image is not loaded twice.
    fake.reset();
    drop(solver.load(&problem, &device, &binary)?);
    assert!(!fake.calls().iter().any(|call| call == "hipModuleLoadData" || call == "hipModuleUnload"));
    // SAFETY: allocated with this size, given back once.
    unsafe { device.memory().free(pointer, 1 << 20) };
    Ok(())
}

/// Memory that there is not, binaries that are not for the device, streams that are gone.
fn misuse_is_an_error(_: &Fake) -> Result<(), Failed> {
    let device = RocmBackend.open(0)?;
    let error = device.memory().allocate(1 << 50).unwrap_err();
    assert_eq!(error, BackendError::OutOfMemory { backend: "rocm", bytes: 1 << 50 });
    let nothing = device.memory().allocate(0)?;
    // SAFETY: it was allocated with this size.
    unsafe { device.memory().free(nothing, 0) };
    let error = RocmBackend.open(7).unwrap_err();
    assert_eq!(error, BackendError::NoDevice { backend: "rocm", ordinal: 7, count: 2 });

    let (solver, problem) = (solver(), problem(9001));
    let other = solver.compile_preferred(&problem, &RocmBackend.target("gfx1100")?)?;
    let error = solver.load(&problem, &device, &other).unwrap_err().to_string();
    assert!(error.contains("it was made for gfx1100"), "{error}");
    // A code object of another architecture, and no code object at all, under the right name.
    let good = solver.compile_preferred(&problem, device.info())?;
    let mut foreign = good.clone();
    let at = good.bytes.windows(6).position(|bytes| bytes == b"gfx942").unwrap();
    foreign.bytes[at + 5] = b'0';
    let error = solver.load(&problem, &device, &foreign).unwrap_err().to_string();
    assert!(error.contains("hipModuleLoadData failed: hipErrorNoBinaryForGpu (209)"), "{error}");
    let mut broken = good.clone();
    let at = good.bytes.windows(4).position(|bytes| bytes == b"fake").unwrap();
    broken.bytes[at] = b'F';
    let error = solver.load(&problem, &device, &broken).unwrap_err().to_string();
    assert!(error.contains("hipModuleLoadData failed: hipErrorInvalidImage (200)"), "{error}");
    solver.load(&problem, &device, &good)?;

    let gone = Stream::borrowed(device.create_stream()?.raw());
    let error = device.synchronize(&gone).unwrap_err().to_string();
    assert!(error.starts_with("rocm: hipStreamSynchronize failed: "), "{error}");
    Ok(())
}

fn solver() -> &'static dyn Solver {
    by_id("rocm.conv_ffma.v1")
}

fn by_id(id: &str) -> &'static dyn Solver {
    *RocmBackend.solvers().iter().find(|solver| solver.id() == id).unwrap()
}

/// What another process finds, in another environment.
fn elsewhere(folder: &Path, environment: &[(&str, &str)]) -> String {
    let child = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, "1")
        .env("ROCM_PATH", folder)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{text}{}", String::from_utf8_lossy(&child.stderr));
    text
}

/// The file of a library that every process has.
fn c_library() -> Result<String, Failed> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let mut files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    Ok(files.find(|file| file.contains("libc.so") || file.contains("libc-")).ok_or("no C library")?.into())
}

/// Asks for everything that needs no device and prints the answers.
fn child() {
    let found = RocmBackend.discover();
    for device in found.devices {
        println!("device {}: {} {} {}", device.ordinal, device.arch, device.lanes, device.toolchain);
    }
    for note in found.notes {
        println!("note: {note}");
    }
    println!("open: {:?}", RocmBackend.open(0).map(drop).map_err(|error| error.to_string()));
    for arch in ["gfx90a", "gfx950"] {
        let compiled = solver().compile_preferred(&problem(1), &RocmBackend.target(arch).unwrap());
        println!("{arch}: {:?}", compiled.map(drop).map_err(|error| error.to_string()));
    }
}

/// Devices that cannot be used, and runtimes that are old, lack something, or are not there.
fn what_is_found_is_said(folder: &Path) -> Result<(), Failed> {
    let has = |text: &str, part: &str| assert!(text.contains(part), "no `{part}` in\n{text}");
    let text = elsewhere(folder, &[("FAKE_HIP_ARCHS", "gfx803 gfx1100")]);
    has(&text, "note: rocm: not available: device 0, Fake GPU, is gfx803; supported are gfx906, ");
    has(&text, "device 1: gfx1100 32 HIP 7.2.53211");
    has(&text, "open: Err(\"rocm: not available: device 0, ");
    let text = elsewhere(folder, &[("FAKE_HIP_WAVE", "32")]);
    has(&text, "says that its waves have 32 threads; those of gfx942:sramecc+:xnack- have 64");
    let text = elsewhere(folder, &[("FAKE_HIP_ARCHS", "")]);
    has(&text, "note: rocm: HIP 7.2.53211 finds no device");
    has(&text, "open: Err(\"rocm: no device 0; 0 found\")");
    has(&text, "gfx90a: Ok(())");

    // The compiler inside the runtime, of a version that would end the process at an unknown name.
    let old = folder.join("old");
    Fake::install(&old, 5)?;
    let text = elsewhere(&old, &[("FAKE_HIP_VERSION", "50731921")]);
    has(&text, "gfx90a: Ok(())");
    has(&text, "gfx950: Err(\"rocm: not available: gfx950 needs HIP 6.4 or later, found HIP 5.7.31921\")");
    // Without its compiler, which must be of the runtime's version.
    let lone = folder.join("lone");
    Fake::install(&lone, 7)?;
    std::fs::rename(lone.join("lib/libhiprtc.so.7"), lone.join("lib/libhiprtc.so.6"))?;
    let text = elsewhere(&lone, &[]);
    has(
        &text,
        "note: rocm: not available: the run-time compiler hiprtc is not installed: looked for libhiprtc.so.7",
    );
    has(&text, "gfx90a: Err(\"rocm: not available: the run-time compiler hiprtc");
    has(&text, "open: Ok(())");
    let text = elsewhere(folder, &[("FAKE_HIP_VERSION", "none")]);
    has(&text, "lib/libamdhip64.so.7: hipRuntimeGetVersion failed (3)");
    // A library that is another one, and a compiler that is.
    let other = folder.join("other");
    std::fs::create_dir_all(other.join("lib"))?;
    std::os::unix::fs::symlink(c_library()?, other.join("lib/libamdhip64.so.7"))?;
    let text = elsewhere(&other, &[]);
    has(&text, "other/lib/libamdhip64.so.7 has not every function that is needed, ");
    has(&text, "hipRuntimeGetVersion");
    std::fs::remove_file(lone.join("lib/libhiprtc.so.6"))?;
    std::os::unix::fs::symlink(c_library()?, lone.join("lib/libhiprtc.so.7"))?;
    let text = elsewhere(&lone, &[]);
    has(&text, "lone/lib/libhiprtc.so.7 has not every function that is needed, ");
    has(&text, "hiprtc");
    // No library at all under the right name.
    let empty = folder.join("empty");
    std::fs::create_dir_all(empty.join("lib"))?;
    std::fs::write(empty.join("lib/libamdhip64.so.7"), "")?;
    let text = elsewhere(&empty, &[]);
    if text.contains("open: Err") {
        has(&text, "libamdhip64.so.7 could not be loaded: ");
        has(
            &text,
            "note: rocm: not available: the HIP runtime is not installed: looked for libamdhip64.so.7, ",
        );
    }
    Ok(())
}

fn main() {
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    let mut arguments = Arguments::from_args();
    // There is one runtime, which fails for one test at a time.
    arguments.test_threads = Some(1);
    let folder = std::env::temp_dir().join(format!("fuseplan-fake-hip-{}", std::process::id()));
    let fake = Fake::install(&folder, 7).and_then(|()| Fake::open(&folder, 7)).unwrap();
    // SAFETY: there is one thread yet.
    unsafe {
        std::env::set_var("ROCM_PATH", &folder);
        std::env::set_var("FAKE_HIP_ARCHS", "gfx942:sramecc+:xnack- gfx942:sramecc+:xnack-");
    }
    let fake: &'static Fake = Box::leak(Box::new(fake));
    type Test = fn(&Fake) -> Result<(), Failed>;
    let tests: [(&str, Test); 4] = [
        ("every_failure_is_an_error", every_failure_is_an_error),
        ("an_execution_only_launches", an_execution_only_launches),
        ("misuse_is_an_error", misuse_is_an_error),
        ("scratch", scratch::scratch),
    ];
    let mut trials: Vec<_> = tests.map(|(name, test)| Trial::test(name, move || test(fake))).into();
    let place = folder.clone();
    trials.push(Trial::test("what_is_found_is_said", move || what_is_found_is_said(&place)));
    let conclusion = libtest_mimic::run(&arguments, trials);
    let _ = std::fs::remove_dir_all(&folder);
    conclusion.exit();
}

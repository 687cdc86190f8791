//! The backend's control flow with a fake in the place of the driver and of NVRTC: whatever call fails, and
//! whatever function is missing, is an error that names it; nothing is leaked, no context is left current, and
//! nothing panics. Needs no device, and is run in a process whose loader finds the fake first.

use std::collections::HashSet;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::{fs, ptr, thread};

#[path = "fake/client.rs"]
mod client;
#[path = "fake/prepared.rs"]
mod prepared;

use client::{FAKE, Fake, command, with_fake};
use fuseplan_api::operands::ConvForward;
use fuseplan_api::*;
use fuseplan_cuda::CudaBackend;
use libtest_mimic::{Arguments, Failed, Trial};

/// Set in a process that only prints what came of the scenario.
const REPORT: &str = "FUSEPLAN_TEST_REPORT";

/// A convolution whose kernel has a text of its own for every number of channels.
fn problem(layout: TensorLayout, channels: usize) -> Problem {
    let input = TensorDescriptor::with_layout(DataType::Half, layout, &[1, channels, 4, 4]).unwrap();
    let weights = TensorDescriptor::with_layout(DataType::Half, layout, &[16, channels, 1, 1]).unwrap();
    let conv = ConvolutionDescriptor::d2();
    let output = conv.forward_output(&input, &weights).unwrap();
    Problem { input, output, ops: vec![Op::ConvForward { conv, weights }], math: MathMode::Precise }
}

fn direct(channels: usize) -> Problem {
    problem(TensorLayout::Nchw, channels)
}

/// The solver that takes everything.
fn solver() -> &'static dyn Solver {
    by_id("cuda.direct.v1")
}

fn by_id(id: &str) -> &'static dyn Solver {
    *CudaBackend.solvers().iter().find(|solver| solver.id() == id).unwrap()
}

/// Memory that is given back.
struct Memory<'a>(&'a Arc<dyn Device>, *mut std::ffi::c_void, usize);

impl<'a> Memory<'a> {
    fn new(device: &'a Arc<dyn Device>, bytes: usize) -> Result<Self, BackendError> {
        Ok(Memory(device, device.memory().allocate(bytes)?, bytes))
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated with this size, given back once.
        unsafe { self.0.memory().free(self.1, self.2) }
    }
}

type AnyError = Box<dyn std::error::Error>;

/// A compiled plan that runs on memory of its own.
fn execute(
    device: &Arc<dyn Device>,
    stream: &Stream,
    problem: &Problem,
    binary: &Binary,
) -> Result<(), AnyError> {
    let executable = by_id(&binary.solver).load(problem, device, binary)?;
    let memory = Memory::new(device, 4096)?;
    let bytes: Vec<u8> = (0..4096).map(|i| (i % 251) as u8).collect();
    // SAFETY: the memory has as many bytes.
    unsafe { device.memory().copy_in(memory.1, &bytes, stream) }?;
    let mut back = vec![0; 4096];
    // SAFETY: the memory has as many bytes, and they were written.
    unsafe { device.memory().copy_out(&mut back, memory.1, stream) }?;
    assert_eq!(back, bytes);
    let ops = [ConvForward { weights: memory.1 }.into()];
    let args = RunArgs { input: memory.1, output: memory.1, ops: &ops, workspace: ptr::null_mut() };
    // SAFETY: the fake's kernels touch nothing.
    let run = |stream: &Stream| unsafe { executable.run(stream.raw(), &args) };
    run(stream)?;
    device.time(stream, &mut || run(stream))?;
    let graph = Graph::capture(&**device, run)?;
    // SAFETY: the kernels of the fake driver touch nothing.
    unsafe { graph.instantiate()?.launch(stream.raw()) }?;
    Ok(device.synchronize(stream)?)
}

/// Everything that the backend does on a device.
fn scenario(channels: usize) -> Result<(), AnyError> {
    let device = CudaBackend.open(0)?;
    let stream = device.create_stream()?;
    // One solver that launches and nothing else, and the one that has the driver describe tensors before.
    let hopper = (by_id("cuda.conv_wgmma.v1"), problem(TensorLayout::Nhwc, 8 * channels));
    for (solver, problem) in [(solver(), direct(channels)), hopper] {
        let binary = solver.compile_preferred(&problem, device.info())?;
        execute(&device, &stream, &problem, &binary)?;
    }
    device.peaks(DataType::Half)?;
    // SAFETY: null: the current context, if there is one; it is the test's, which destroys it later.
    match unsafe { CudaBackend::adopt(ptr::null_mut()) } {
        Ok(device) => Ok(device.create_stream().map(drop)?),
        Err(BackendError::Unavailable { reason, .. }) if reason.contains("no current context") => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Calls whose failure is nobody's: they give something back, or ask for what can be done without.
const SILENT: [&str; 12] = [
    "cuCtxPopCurrent_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDriverGetVersion",
    "cuEventDestroy_v2",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuMemFree_v2",
    "cuModuleUnload",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuStreamDestroy_v2",
    "nvrtcDestroyProgram",
    "nvrtcVersion",
];

fn works(fake: &Fake) -> Result<(), Failed> {
    let before = fake.launches(0);
    scenario(3)?;
    let launches = fake.launches(0) - before;
    // Once by itself, once timed, once replayed; and those of the peaks.
    if launches < 3 {
        return Err(format!("{launches} launches").into());
    }
    nothing_left(fake)
}

/// What kernels take of a device, and that one of them brings another along.
fn resources(_: &Fake) -> Result<(), Failed> {
    let device = CudaBackend.open(0)?;
    let load = |id, problem: &Problem| {
        let solver = by_id(id);
        solver.load(problem, &device, &solver.compile_preferred(problem, device.info())?)
    };
    let simple = load("cuda.direct.v1", &direct(3))?.info().resources.ok_or("no resources")?;
    let Resources { registers, local, shared, resident, .. } = simple;
    let found = (registers, local, shared, resident);
    if found != (32, 8, 48, Some(2)) || !simple.spills() {
        return Err(format!("{simple:?}").into());
    }
    let hopper = load("cuda.conv_wgmma.v1", &problem(TensorLayout::Nhwc, 64))?;
    let info = hopper.info();
    // The launch's shared memory counts as well, and blocks are as many as the device has room for.
    let launch = info.resources.ok_or("no resources")?;
    let (own, other) =
        info.detail.split_once("; for addresses that are not multiples of 16 bytes: ").ok_or("no other")?;
    let is_said = own.starts_with("wgmma, ")
        && other.starts_with("cuda.conv_mma.v1, ")
        && other.contains("spills: 8 bytes");
    if !is_said || launch.shared <= 48 {
        return Err(format!("{info:?}").into());
    }
    Ok(())
}

/// A graph has a plan's kernel when the plan is gone.
fn graphs_keep_kernels(fake: &Fake) -> Result<(), Failed> {
    let device = CudaBackend.open(0)?;
    let (solver, problem) = (solver(), direct(2));
    let binary = solver.compile_preferred(&problem, device.info())?;
    let load = || solver.load(&problem, &device, &binary);
    let memory = Memory::new(&device, 4096)?;
    let graph = {
        let executables = [load()?, load()?];
        let ops = [ConvForward { weights: memory.1 }.into()];
        let args = RunArgs { input: memory.1, output: memory.1, ops: &ops, workspace: ptr::null_mut() };
        // SAFETY: the fake's kernels touch nothing.
        Graph::capture(&*device, |stream| unsafe { executables[0].run(stream.raw(), &args) })?
    };
    let modules = |fake: &Fake| fake.live().split(' ').filter(|kind| *kind == "module").count();
    if modules(fake) != 1 {
        return Err(format!("live beside a graph: {}", fake.live()).into());
    }
    drop(memory);
    drop(device);
    let executable = graph.instantiate()?;
    drop(graph);
    if modules(fake) != 1 {
        return Err(format!("live beside an instantiated graph: {}", fake.live()).into());
    }
    drop(executable);
    nothing_left(fake)
}

fn nothing_left(fake: &Fake) -> Result<(), Failed> {
    let live = fake.live();
    if live.is_empty() { Ok(()) } else { Err(format!("still live: {live}").into()) }
}

/// Each call of the scenario in turn fails with a status, beside a context of the caller's.
fn every_call_fails(fake: &Fake, status: c_int) -> Result<(), Failed> {
    let mut seen = HashSet::new();
    let context = fake.create_context(0);
    for nth in 1.. {
        fake.fail(nth, status);
        let result = catch_unwind(AssertUnwindSafe(|| scenario(4 + nth as usize)));
        let failed = fake.failed();
        fake.fail(0, 0);
        let result = result.map_err(|_| format!("call {nth}, {failed}: a panic"))?;
        if failed.is_empty() {
            result?;
            break;
        }
        if fake.live() != "context depth=1" {
            return Err(format!("call {nth}, {failed}: live is {}", fake.live()).into());
        }
        match result {
            // Something was given back, or asked for that can be done without.
            Ok(()) if SILENT.contains(&&*failed) || failed == "cuCtxPushCurrent_v2" => {}
            // Peaks are then measured on less memory.
            Ok(()) if failed == "cuMemAlloc_v2" && status == 2 => {}
            Ok(()) => return Err(format!("call {nth}, {failed}: no error").into()),
            Err(error) => {
                let text = error.to_string();
                let oom = failed == "cuMemAlloc_v2" && status == 2 && text.contains("out of memory");
                let named = text.contains(&failed) && text.contains(&format!("({status})"));
                if !oom && !named {
                    return Err(format!("call {nth}, {failed}: {text}").into());
                }
            }
        }
        seen.insert(failed);
    }
    fake.destroy_context(context);
    // The list of what is called must not have shrunk.
    for name in
        ["cuInit", "cuModuleLoadData", "cuLaunchKernelEx", "cuStreamEndCapture", "cuMemcpyDtoHAsync_v2"]
    {
        if !seen.contains(name) {
            return Err(format!("{name} never failed").into());
        }
    }
    Ok(())
}

/// What a failure is called, also one that neither this version nor the driver knows.
fn words(fake: &Fake) -> Result<(), Failed> {
    let device = CudaBackend.open(0)?;
    for (status, text) in [
        (1, "cuda: cuStreamCreate failed: CUDA_ERROR_INVALID_VALUE (1): invalid argument"),
        (424_242, "cuda: cuStreamCreate failed: an error that this driver has no name for (424242)"),
        (-7, "cuda: cuStreamCreate failed: an error that this driver has no name for (-7)"),
    ] {
        // The first call enters the context.
        fake.fail(2, status);
        let error = device.create_stream().unwrap_err().to_string();
        if error != text {
            return Err(error.into());
        }
    }
    let error = device.memory().allocate(1 << 40).unwrap_err();
    if !matches!(error, BackendError::OutOfMemory { bytes, .. } if bytes == 1 << 40) {
        return Err(error.to_string().into());
    }
    let error = CudaBackend.open(2).unwrap_err();
    if !matches!(error, BackendError::NoDevice { ordinal: 2, count: 2, .. }) {
        return Err(error.to_string().into());
    }
    Ok(())
}

/// A failure while devices are looked for is a note, and the other device is found.
fn discovery(fake: &Fake) -> Result<(), Failed> {
    let found = CudaBackend.discover();
    if found.devices.len() != 2 || !found.notes.is_empty() {
        return Err(format!("{found:?}").into());
    }
    for nth in 1.. {
        fake.fail(nth, 1);
        let found = CudaBackend.discover();
        let failed = fake.failed();
        fake.fail(0, 0);
        if failed.is_empty() {
            return Ok(());
        }
        if !found.notes.iter().any(|note| note.contains(&failed)) && !SILENT.contains(&&*failed) {
            return Err(format!("{failed}: {found:?}").into());
        }
        nothing_left(fake)?;
    }
    Ok(())
}

/// One plan compiled for each device: kernels run on the device that they were loaded for.
fn devices(fake: &Fake) -> Result<(), Failed> {
    let problem = direct(3);
    for info in CudaBackend.discover().devices {
        let before = [fake.launches(0), fake.launches(1)];
        let device = CudaBackend.open(info.ordinal)?;
        let binary = solver().compile_preferred(&problem, &info)?;
        execute(&device, &device.create_stream()?, &problem, &binary)?;
        let mut expected = before;
        expected[info.ordinal as usize] += 3;
        if [fake.launches(0), fake.launches(1)] != expected {
            return Err(format!("device {}: wrong launches", info.ordinal).into());
        }
        // The other device's code is refused before the driver sees it.
        let other = CudaBackend.open(1 - info.ordinal)?;
        let error = solver().load(&problem, &other, &binary).unwrap_err();
        if !matches!(error, BuildError::Binary { .. }) {
            return Err(error.to_string().into());
        }
    }
    nothing_left(fake)
}

/// In a child of a process that opened a device every call is an error that says so, and none reaches the driver.
fn forked(fake: &Fake) -> Result<(), Failed> {
    // As everything that the library does.
    let device = call(|| CudaBackend.open(0))?;
    let stream = device.create_stream()?;
    let in_child = || {
        fake.fail(1, 1);
        let errors = [
            device.create_stream().err(),
            device.synchronize(&stream).err(),
            device.memory().allocate(16).err(),
            CudaBackend.open(0).err(),
        ];
        let said = |error: &Option<BackendError>| {
            error.as_ref().is_some_and(|error| error.to_string().contains("this process was forked"))
        };
        let right = errors.iter().all(said) && CudaBackend.discover().devices.is_empty();
        drop((stream, device));
        right && fake.failed().is_empty()
    };
    // SAFETY: the child does the above and ends, without anything of the test's harness.
    let status = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(30);
            libc::_exit(i32::from(!in_child()));
        }
        let mut status = -1;
        libc::waitpid(child, &raw mut status, 0);
        status
    };
    if status == 0 { Ok(()) } else { Err(format!("the child's status is {status:#x}").into()) }
}

/// A caller's context is worked in, left current, and not destroyed.
fn adopted(fake: &Fake) -> Result<(), Failed> {
    let problem = direct(3);
    for ordinal in [0, 1] {
        let context = fake.create_context(ordinal);
        // SAFETY: the context lives until all that is made of it here is gone.
        let device = unsafe { CudaBackend::adopt(ptr::null_mut()) }?;
        if device.info().ordinal != ordinal {
            return Err("another device".into());
        }
        let binary = solver().compile_preferred(&problem, device.info())?;
        execute(&device, &device.create_stream()?, &problem, &binary)?;
        // A caller's stream, here the default one.
        execute(&device, &Stream::borrowed(ptr::null_mut()), &problem, &binary)?;
        drop(device);
        if fake.live() != "context depth=1" {
            return Err(fake.live().into());
        }
        fake.destroy_context(context);
    }
    nothing_left(fake)
}

/// Many threads work on one device.
fn threads(fake: &Fake) -> Result<(), Failed> {
    let problem = direct(3);
    let device = CudaBackend.open(0)?;
    let binary = solver().compile_preferred(&problem, device.info())?;
    thread::scope(|scope| {
        let work = || -> Result<(), String> {
            for _ in 0..20 {
                let stream = device.create_stream().map_err(|error| error.to_string())?;
                execute(&device, &stream, &problem, &binary).map_err(|error| error.to_string())?;
            }
            Ok(())
        };
        let workers: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap())
    })?;
    drop(device);
    nothing_left(fake)
}

/// A driver that lacks a function, for every function: an error that names it, where it is needed.
fn missing_functions(folder: &Path) -> Result<(), Failed> {
    let library = fs::read(folder.join("libcuda.so.1"))?;
    // The loader's table of names, which stands near the start and has them all.
    let names = find(&library, "\0cuInit\0").ok_or("no names")?;
    let names = names.saturating_sub(1 << 16)..(names + (1 << 16)).min(library.len());
    let whole = report(folder)?;
    let called = whole.split_once("called: ").ok_or("no names")?.1.trim();
    if called.split(' ').count() < 40 {
        return Err(called.into());
    }
    for function in called.split(' ') {
        let place = folder.join(function);
        fs::create_dir(&place)?;
        // Under another name the loader does not find it.
        let (name, other) = (format!("\0{function}\0"), format!("\0X{}\0", &function[1..]));
        let at = find(&library[names.clone()], &name).ok_or("no such name")? + names.start;
        let mut patched = library.clone();
        patched[at..at + other.len()].copy_from_slice(other.as_bytes());
        fs::write(place.join("libcuda.so.1"), &patched)?;
        fs::write(place.join("libnvrtc.so.13"), &patched)?;
        let text = report(&place)?;
        let library = if function.starts_with("nvrtc") { "libnvrtc" } else { "libcuda" };
        let named = text.contains(&format!("{library} has no function {function}, it is too old"));
        // Objects that cannot be given back are lost, but nothing else happens.
        let silent = SILENT.contains(&function) && text.contains("scenario: Ok");
        // Kernels are then launched when the grid before them has ended.
        let other = function == "cuLaunchKernelEx" && text.contains("scenario: Ok");
        if !named && !silent && !other {
            return Err(format!("{function}: {text}").into());
        }
        fs::remove_dir_all(&place)?;
    }
    Ok(())
}

fn find(bytes: &[u8], text: &str) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text.as_bytes())
}

/// With a driver and no NVRTC a compiled plan loads and runs; with neither, errors say what was looked for.
fn driver_only(text: String) -> Result<(), Failed> {
    for wanted in [
        "scenario: Err(\"cuda: not available: the run-time compiler NVRTC is not installed: looked for libnvrtc.so.13",
        "elsewhere: Ok",
        "peaks: Err(\"cuda: not available: the run-time compiler NVRTC is not installed",
    ] {
        if !text.contains(wanted) {
            return Err(text.into());
        }
    }
    Ok(())
}

/// What the scenario gives where there is the driver and no NVRTC but one that the loader knows.
fn report_without_compiler(folder: &Path) -> Result<String, Failed> {
    let place = folder.join("driver-only");
    fs::create_dir(&place)?;
    fs::copy(folder.join("libcuda.so.1"), place.join("libcuda.so.1"))?;
    report(&place)
}

/// What the scenario gives in a process whose loader finds this folder first.
fn report(folder: &Path) -> Result<String, Failed> {
    let output = command(folder).env(REPORT, "1").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        return Err(format!("{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(text)
}

fn print_report() {
    println!("scenario: {:?}", scenario(3).map_err(|error| error.to_string()));
    // A binary that was compiled elsewhere.
    let elsewhere = || -> Result<(), AnyError> {
        let device = CudaBackend.open(0)?;
        let bytes = match solver().compile_preferred(&direct(3), device.info()) {
            Ok(binary) => return execute(&device, &device.create_stream()?, &direct(3), &binary),
            Err(_) => compiled_elsewhere(),
        };
        let binary = Binary { solver: solver().id().into(), arch: device.info().arch.clone(), bytes };
        execute(&device, &device.create_stream()?, &direct(3), &binary)
    };
    println!("elsewhere: {:?}", elsewhere().map_err(|error| error.to_string()));
    let peaks = CudaBackend.open(0).and_then(|device| device.peaks(DataType::Float));
    println!("peaks: {:?}", peaks.map_err(|error| error.to_string()));
    println!("compiler: {:?}", CudaBackend.target("sm_90a").unwrap().toolchain);
    println!("called: {}", Fake::load().text("fake_called"));
}

/// The bytes that a process with NVRTC stored in the fake's folder.
fn compiled_elsewhere() -> Vec<u8> {
    let folder = PathBuf::from(std::env::var_os(FAKE).unwrap());
    fs::read(folder.parent().unwrap().join("binary")).unwrap()
}

fn main() -> ExitCode {
    if !cfg!(target_os = "linux") {
        let trial = Trial::test("fake_for_linux", || Ok(())).with_ignored_flag(true);
        return libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code();
    }
    let Some(folder) = std::env::var_os(FAKE).map(PathBuf::from) else {
        return with_fake().unwrap();
    };
    if std::env::var_os(REPORT).is_some() {
        print_report();
        return ExitCode::SUCCESS;
    }
    let binary = solver().compile_preferred(&direct(3), &CudaBackend.target("sm_90a").unwrap()).unwrap();
    fs::write(folder.join("binary"), binary.bytes).unwrap();
    let mut arguments = Arguments::from_args();
    // The fake counts the calls of the whole process.
    arguments.test_threads = Some(1);
    let fake: &'static Fake = Box::leak(Box::new(Fake::load()));
    let mut trials = vec![
        Trial::test("works", || works(fake)),
        Trial::test("resources", || resources(fake)),
        Trial::test("graphs_keep_kernels", || graphs_keep_kernels(fake)),
        Trial::test("words", || words(fake)),
        Trial::test("discovery", || discovery(fake)),
        Trial::test("devices", || devices(fake)),
        Trial::test("adopted", || adopted(fake)),
        Trial::test("forked", || forked(fake)),
        Trial::test("threads", || threads(fake)),
        Trial::test("prepared", || prepared::prepared(fake)),
        Trial::test("prepared_each_time", || prepared::prepared_each_time(fake)),
        Trial::test("transformed", || prepared::transformed(fake)),
        Trial::test("reordered", || prepared::reordered(fake)),
        Trial::test("sums", || prepared::sums(fake)),
    ];
    // No memory, what NVRTC calls a text that does not compile, and a status that nobody knows.
    for status in [2, 6, 999_999] {
        trials
            .push(Trial::test(format!("every_call_fails.{status}"), move || every_call_fails(fake, status)));
    }
    let place = folder.clone();
    trials.push(Trial::test("missing_functions", move || missing_functions(&place)));
    let text = report_without_compiler(&folder).map_err(|error| format!("{error:?}")).unwrap();
    // The loader may find this machine's own compiler.
    let has_compiler = !text.contains("compiler: \"\"");
    if has_compiler {
        println!("ignored: driver_only because the loader knows a compiler of this machine");
    }
    trials.push(Trial::test("driver_only", move || driver_only(text)).with_ignored_flag(has_compiler));
    libtest_mimic::run(&arguments, trials).exit_code()
}

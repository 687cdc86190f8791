//! What a device must do beyond right numbers, which the suite looks at: graphs, contexts of the caller's,
//! several devices, pointers of any alignment, the same bits every time. Ignored, with the reason, where there is no device or no NVRTC; with
//! `REQUIRE_BACKEND=cuda` that is a failure.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use fuseplan_api::*;
use fuseplan_cuda::{CudaBackend, CudaDevice};
use half::f16;
use libtest_mimic::{Arguments, Failed, Trial};

/// Memory of the device that is given back.
struct Buffer {
    device: Arc<dyn Device>,
    base: *mut c_void,
    bytes: usize,
}

impl Buffer {
    fn of(device: &Arc<dyn Device>, stream: &Stream, bytes: &[u8]) -> Self {
        let base = device.memory().allocate(bytes.len()).unwrap();
        // SAFETY: the memory has as many bytes.
        unsafe { device.memory().copy_in(base, bytes, stream) }.unwrap();
        Buffer { device: device.clone(), base, bytes: bytes.len() }
    }

    fn read(&self, stream: &Stream) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        // SAFETY: the memory was filled when it was made.
        unsafe { self.device.memory().copy_out(&mut bytes, self.base, stream) }.unwrap();
        bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this size, given back once; reads have waited for the stream.
        unsafe { self.device.memory().free(self.base, self.bytes) }
    }
}

/// Small whole numbers, so that sums are exact whatever their order.
fn data(data_type: DataType, count: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 24) % 5) as f32 - 2.0
    };
    match data_type {
        DataType::Float => (0..count).flat_map(|_| next().to_ne_bytes()).collect(),
        _ => (0..count).flat_map(|_| f16::from_f32(next()).to_ne_bytes()).collect(),
    }
}

/// A plan with its executable and operands.
struct Plan {
    problem: Problem,
    executable: Arc<dyn Executable>,
    input: Buffer,
    output: Buffer,
    operands: Vec<Buffer>,
    /// Elements by which every pointer is moved.
    shift: usize,
}

impl Plan {
    /// The plan on the solver's device, its operands `shift` elements behind where an allocation starts.
    fn new(device: &Arc<dyn Device>, stream: &Stream, problem: &Problem, solver: &str, shift: usize) -> Self {
        let found = CudaBackend.solvers().iter().find(|found| found.id() == solver).unwrap();
        found.applies(problem, device.info()).unwrap();
        let binary = found.compile(problem, device.info()).unwrap();
        let executable = found.load(problem, device, &binary).unwrap();
        let data_type = problem.output.data_type();
        let buffer = |span: usize, seed| Buffer::of(device, stream, &data(data_type, span + shift, seed));
        let poison = vec![0xFF; (problem.output.span() + shift) * data_type.size()];
        let operands = problem.ops.iter().enumerate().map(|(i, op)| match op {
            Op::ConvForward { weights, .. } => buffer(weights.span(), 7),
            Op::BiasForward { bias } => buffer(bias.span(), 11 + i as u32),
            _ => buffer(1, 0),
        });
        Plan {
            input: buffer(problem.input.span(), 3),
            output: Buffer::of(device, stream, &poison),
            operands: operands.collect(),
            problem: problem.clone(),
            executable,
            shift,
        }
    }

    fn launch(&self, stream: &Stream) {
        let at = |buffer: &Buffer| {
            buffer.base.wrapping_byte_add(self.shift * self.problem.output.data_type().size())
        };
        let kind = |(op, buffer): (&Op, &Buffer)| match op {
            Op::ConvForward { .. } => OpArgsKind::ConvForward { weights: at(buffer), prepared: None },
            Op::BiasForward { .. } => OpArgsKind::BiasForward { bias: at(buffer) },
            _ => OpArgsKind::ActivationForward { params: ActivationParams::default() },
        };
        let ops: Vec<_> = self
            .problem
            .ops
            .iter()
            .zip(&self.operands)
            .map(|pair| OpArgs { alpha: 1.0, beta: 0.0, kind: kind(pair) })
            .collect();
        let args = RunArgs {
            input: at(&self.input),
            output: at(&self.output),
            ops: &ops,
            workspace: ptr::null_mut(),
        };
        // SAFETY: buffers of the problem's descriptors on the executable's device, which live until a read
        // has waited for the stream.
        unsafe { self.executable.run(stream.raw(), &args) }.unwrap();
    }

    fn elements(&self, stream: &Stream) -> Vec<u8> {
        self.output.read(stream).split_off(self.shift * self.problem.output.data_type().size())
    }
}

/// Convolution, bias, residual and activation; or what is behind the convolution alone.
fn problems() -> Vec<(&'static str, &'static str, Problem)> {
    let image =
        |data_type, layout| TensorDescriptor::with_layout(data_type, layout, &[3, 32, 9, 16]).unwrap();
    let behind = |data_type, convolution: Option<Op>, input, output: TensorDescriptor| {
        let bias = TensorDescriptor::nchw(data_type, [1, output.lens()[1], 1, 1]).unwrap();
        let residual = Op::BiasForward { bias: output };
        let relu = Op::ActivationForward { mode: ActivationMode::Relu };
        let ops = convolution.into_iter().chain([Op::BiasForward { bias }, residual, relu]).collect();
        Problem { input, output, ops, math: MathMode::Precise }
    };
    let grouped = |data_type, layout, filters, groups: usize| {
        let x = image(data_type, layout);
        let conv = ConvolutionDescriptor::new_2d([1, 1], [1, 1], [1, 1]).unwrap();
        let conv = conv.with_groups(groups).unwrap();
        let weights = [filters, 32 / groups, 3, 3];
        let weights = TensorDescriptor::with_layout(data_type, layout, &weights).unwrap();
        let output = conv.forward_output(&x, &weights).unwrap();
        behind(data_type, Some(Op::ConvForward { conv, weights }), x, output)
    };
    let convolved = |data_type, layout| grouped(data_type, layout, 48, 1);
    let depthwise = |data_type, layout| grouped(data_type, layout, 32, 32);
    let alone = |data_type, layout| {
        let x = image(data_type, layout);
        behind(data_type, None, x, x)
    };
    use DataType::{Float, Half};
    use TensorLayout::{Nchw, Nhwc};
    vec![
        ("wgmma", "cuda.conv_wgmma.v1", convolved(Half, Nhwc)),
        ("wgmma.gather", "cuda.conv_wgmma_gather.v1", convolved(Half, Nchw)),
        ("mma.nhwc", "cuda.conv_mma.v1", convolved(Half, Nhwc)),
        ("mma.nchw", "cuda.conv_mma.v1", convolved(Half, Nchw)),
        ("ffma.nhwc", "cuda.conv_ffma.v1", convolved(Float, Nhwc)),
        ("ffma.nchw", "cuda.conv_ffma.v1", convolved(Float, Nchw)),
        ("depthwise.nhwc", "cuda.conv_depthwise.v1", depthwise(Half, Nhwc)),
        ("depthwise.nchw", "cuda.conv_depthwise.v1", depthwise(Half, Nchw)),
        ("depthwise.f32", "cuda.conv_depthwise.v1", depthwise(Float, Nchw)),
        ("depthwise.multiplier", "cuda.conv_depthwise.v1", grouped(Half, Nhwc, 64, 32)),
        ("element_wise.nhwc", "cuda.element_wise.v1", alone(Half, Nhwc)),
        ("element_wise.nchw", "cuda.element_wise.v1", alone(Float, Nchw)),
        ("direct", "cuda.direct.v1", convolved(Half, Nchw)),
    ]
}

/// What the direct kernel, which reads one element at a time, gives.
fn reference(device: &Arc<dyn Device>, stream: &Stream, problem: &Problem, shift: usize) -> Vec<u8> {
    let plan = Plan::new(device, stream, problem, "cuda.direct.v1", shift);
    plan.launch(stream);
    plan.elements(stream)
}

/// Every pointer at an odd element: the same integers as of the direct kernel on the same operands.
fn misaligned(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    for shift in [0, 1, 3] {
        let plan = Plan::new(device, &stream, problem, solver, shift);
        plan.launch(&stream);
        if plan.elements(&stream) != reference(device, &stream, problem, shift) {
            return Err(format!("{solver} is wrong with pointers {shift} elements off").into());
        }
    }
    Ok(())
}

fn repeated(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    let plan = Plan::new(device, &stream, problem, solver, 0);
    plan.launch(&stream);
    let first = plan.elements(&stream);
    for run in 1..100 {
        plan.launch(&stream);
        if plan.elements(&stream) != first {
            return Err(format!("run {run} gave other bits").into());
        }
    }
    Ok(())
}

/// Captures a launch into a graph and replays it.
fn captured(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    let plan = Plan::new(device, &stream, problem, solver, 0);
    let graph = Graph::capture(&**device, |stream| {
        plan.launch(stream);
        Ok::<_, BackendError>(())
    })?;
    device.synchronize(&stream)?;
    if plan.elements(&stream).iter().any(|&byte| byte != 0xFF) {
        return Err("something ran at the capture".into());
    }
    let graph = graph.instantiate()?;
    // SAFETY: the plan's buffers live until they have been read.
    unsafe { graph.launch(stream.raw()) }?;
    if plan.elements(&stream) != reference(device, &stream, problem, 0) {
        return Err("the replay gave another result".into());
    }
    Ok(())
}

/// The driver as a caller has it: functions that the backend does not use.
mod caller {
    use std::ffi::{c_int, c_uint, c_void};
    use std::ptr;

    use libtest_mimic::Failed;

    pub(super) type Handle = *mut c_void;

    fn call<F: Copy>(name: &str, run: impl FnOnce(F) -> c_int) -> Result<(), Failed> {
        // SAFETY: the driver is loaded already; callers state the functions' own types.
        let status = unsafe {
            let driver = libloading::Library::new(if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" })?;
            run(*driver.get::<F>(name)?)
        };
        if status == 0 { Ok(()) } else { Err(format!("{name} gave {status}").into()) }
    }

    /// A new context, which is then the thread's current one.
    pub(super) fn create_context(device: u32) -> Result<Handle, Failed> {
        let mut context = ptr::null_mut();
        type Create = unsafe extern "system" fn(*mut Handle, c_uint, c_int) -> c_int;
        // SAFETY: the driver is initialised and writes the context.
        call("cuCtxCreate_v2", |f: Create| unsafe { f(&mut context, 0, device as c_int) })?;
        Ok(context)
    }

    pub(super) fn current_context() -> Result<Handle, Failed> {
        let mut context = ptr::null_mut();
        type Get = unsafe extern "system" fn(*mut Handle) -> c_int;
        // SAFETY: the driver is initialised and writes the context.
        call("cuCtxGetCurrent", |f: Get| unsafe { f(&mut context) })?;
        Ok(context)
    }

    /// Also takes it from the thread, whose current context it is.
    pub(super) fn destroy_context(context: Handle) -> Result<(), Failed> {
        type Destroy = unsafe extern "system" fn(Handle) -> c_int;
        // SAFETY: the context was created, and nothing of it is left.
        call("cuCtxDestroy_v2", |f: Destroy| unsafe { f(context) })
    }

    /// Makes the device's primary context the thread's current one, as the CUDA runtime does.
    pub(super) fn enter_primary(device: u32) -> Result<(), Failed> {
        let mut context = ptr::null_mut();
        type Retain = unsafe extern "system" fn(*mut Handle, c_int) -> c_int;
        type Push = unsafe extern "system" fn(Handle) -> c_int;
        // SAFETY: the driver is initialised and writes the context.
        call("cuDevicePrimaryCtxRetain", |f: Retain| unsafe { f(&mut context, device as c_int) })?;
        // SAFETY: the context was retained.
        call("cuCtxPushCurrent_v2", |f: Push| unsafe { f(context) })
    }

    pub(super) fn leave_primary(device: u32) -> Result<(), Failed> {
        let mut context = ptr::null_mut();
        type Pop = unsafe extern "system" fn(*mut Handle) -> c_int;
        type Release = unsafe extern "system" fn(c_int) -> c_int;
        // SAFETY: the context was pushed and retained.
        call("cuCtxPopCurrent_v2", |f: Pop| unsafe { f(&mut context) })?;
        // SAFETY: as above.
        call("cuDevicePrimaryCtxRelease_v2", |f: Release| unsafe { f(device as c_int) })
    }

    pub(super) fn create_graph() -> Result<Handle, Failed> {
        let mut graph = ptr::null_mut();
        type Create = unsafe extern "system" fn(*mut Handle, c_uint) -> c_int;
        // SAFETY: the driver writes the graph.
        call("cuGraphCreate", |f: Create| unsafe { f(&mut graph, 0) })?;
        Ok(graph)
    }

    pub(super) fn instantiate(graph: Handle) -> Result<Handle, Failed> {
        let mut executable = ptr::null_mut();
        type Instantiate = unsafe extern "system" fn(*mut Handle, Handle, u64) -> c_int;
        // SAFETY: the graph is live.
        call("cuGraphInstantiateWithFlags", |f: Instantiate| unsafe { f(&mut executable, graph, 0) })?;
        Ok(executable)
    }

    pub(super) fn launch(executable: Handle, stream: Handle) -> Result<(), Failed> {
        type Launch = unsafe extern "system" fn(Handle, Handle) -> c_int;
        // SAFETY: both are live.
        call("cuGraphLaunch", |f: Launch| unsafe { f(executable, stream) })
    }

    pub(super) fn destroy_graph(graph: Handle, executable: Handle) -> Result<(), Failed> {
        type Destroy = unsafe extern "system" fn(Handle) -> c_int;
        // SAFETY: both are live and destroyed once.
        call("cuGraphExecDestroy", |f: Destroy| unsafe { f(executable) })?;
        // SAFETY: as above.
        call("cuGraphDestroy", |f: Destroy| unsafe { f(graph) })
    }
}

/// In a context of the caller's own: right numbers, and the context is left as it was.
fn adopted(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let context = caller::create_context(device.info().ordinal)?;
    // The thread's current context, and the same by its address.
    for raw in [ptr::null_mut(), context] {
        // SAFETY: the context lives until all that is made of it here is gone.
        let adopted: Arc<dyn Device> = Arc::new(unsafe { CudaDevice::adopt(raw) }?);
        if adopted.info() != device.info() {
            return Err(format!("{:?} instead of {:?}", adopted.info(), device.info()).into());
        }
        let stream = adopted.create_stream()?;
        let plan = Plan::new(&adopted, &stream, problem, solver, 0);
        plan.launch(&stream);
        let primary = device.create_stream()?;
        if plan.elements(&stream) != reference(device, &primary, problem, 0) {
            return Err("another result than in the primary context".into());
        }
        if caller::current_context()? != context {
            return Err("the thread's current context was changed".into());
        }
    }
    caller::destroy_context(context)
}

/// Two executions as nodes of a caller's graph, the second behind the first; then other operands for one.
fn nodes(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    let plans: Vec<_> =
        [0, 1, 2].into_iter().map(|_| Plan::new(device, &stream, problem, solver, 0)).collect();
    let graph = |plan: &Plan| {
        Graph::capture(&**device, |stream| {
            plan.launch(stream);
            Ok::<_, BackendError>(())
        })
    };
    caller::enter_primary(device.info().ordinal)?;
    let whole = caller::create_graph()?;
    // SAFETY: the graph is live and this thread's; the plans live until it has run.
    let second = unsafe {
        let first = graph(&plans[0])?.add_to(whole, &[])?;
        graph(&plans[1])?.add_to(whole, &[first])?
    };
    let executable = caller::instantiate(whole)?;
    caller::launch(executable, stream.raw())?;
    let expected = reference(device, &stream, problem, 0);
    if plans[0].elements(&stream) != expected || plans[1].elements(&stream) != expected {
        return Err("a node gave another result".into());
    }
    if plans[2].elements(&stream) == expected {
        return Err("what is in no graph ran".into());
    }
    // SAFETY: as above; the node is of the graph that was instantiated.
    unsafe { graph(&plans[2])?.update(executable, second) }?;
    caller::launch(executable, stream.raw())?;
    if plans[2].elements(&stream) != expected {
        return Err("a node with other operands gave another result".into());
    }
    caller::destroy_graph(whole, executable)?;
    caller::leave_primary(device.info().ordinal)
}

/// Every type has ceilings, which are measured once, in well under a second.
fn ceilings(device: &Arc<dyn Device>) -> Result<(), Failed> {
    for data_type in [DataType::Float, DataType::Half, DataType::BFloat16] {
        let start = Instant::now();
        let measured = device.ceilings(data_type)?;
        println!(
            "{data_type}: {:.1} TFLOP/s, {:.2} TB/s, measured in {:?}",
            measured.flops / 1e12,
            measured.bytes / 1e12,
            start.elapsed()
        );
        if !(measured.flops > 1e10 && measured.flops < 1e18 && measured.bytes > 1e9 && measured.bytes < 1e15)
        {
            return Err(format!("{measured:?}").into());
        }
        if device.ceilings(data_type)? != measured {
            return Err("measured again".into());
        }
    }
    Ok(())
}

/// Devices by their ordinals: one plan compiled for each, run on each.
fn devices(problem: &Problem, solver: &str) -> Result<(), Failed> {
    let mut results = Vec::new();
    for info in CudaBackend.discover().devices {
        let device = CudaBackend.open(info.ordinal)?;
        let stream = device.create_stream()?;
        let plan = Plan::new(&device, &stream, problem, solver, 0);
        plan.launch(&stream);
        results.push((plan.elements(&stream), reference(&device, &stream, problem, 0)));
    }
    let expected = results[0].1.clone();
    if results.iter().any(|(found, reference)| *found != expected || *reference != expected) {
        return Err("devices differ".into());
    }
    Ok(())
}

fn main() {
    let mut arguments = Arguments::from_args();
    // One device, and captures that forbid calls of other threads meanwhile.
    arguments.test_threads = Some(1);
    let found = CudaBackend.discover();
    let device =
        found.devices.first().map(|_| CudaBackend.open(0).unwrap()).filter(|_| found.notes.is_empty());
    if device.is_none() {
        println!("ignored: {}", found.notes.join("; "));
        if std::env::var("REQUIRE_BACKEND").is_ok_and(|names| names.split(',').any(|name| name == "cuda")) {
            std::process::exit(101);
        }
    }
    type Check = fn(&Arc<dyn Device>, &Problem, &str) -> Result<(), Failed>;
    let checks: [(&str, Check); 5] = [
        ("misaligned", misaligned),
        ("repeated", repeated),
        ("captured", captured),
        ("nodes", nodes),
        ("adopted", adopted),
    ];
    let mut trials = Vec::new();
    for (name, solver, problem) in problems() {
        for (check_name, check) in checks {
            let (problem, device) = (problem.clone(), device.clone());
            let ignored = device.is_none();
            let run = move || device.map_or(Ok(()), |device| check(&device, &problem, solver));
            trials.push(Trial::test(format!("{check_name}.{name}"), run).with_ignored_flag(ignored));
        }
    }
    for (name, solver, problem) in problems() {
        let alone = found.devices.len() < 2;
        let trial = Trial::test(format!("devices.{name}"), move || devices(&problem, solver));
        trials.push(trial.with_ignored_flag(alone || device.is_none()));
    }
    let (ignored, device) = (device.is_none(), device.clone());
    let run = move || device.map_or(Ok(()), |device| ceilings(&device));
    trials.push(Trial::test("ceilings", run).with_ignored_flag(ignored));
    libtest_mimic::run(&arguments, trials).exit();
}

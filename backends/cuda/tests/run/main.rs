//! What a device must do beyond right numbers, which the suite looks at: graphs, contexts of the caller's,
//! several devices, pointers of any alignment, the same bits every time. Ignored, with the reason, where there is no
//! device or no NVRTC; with `REQUIRE_BACKEND=cuda` that is a failure.
//!
//! Every plan's results are exact, so that the CPU backend gives the same numbers, or nearly so where factors are transformed.

mod caller;
mod plan;
mod problems;
mod winograd;

use std::ptr;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Instant;

use fuseplan_api::*;
use fuseplan_cpu::CpuBackend;
use fuseplan_cuda::CudaBackend;
use libtest_mimic::{Arguments, Failed, Trial};

use plan::{Content, Plan, checked};
use problems::{GEMV, TRAINING, problems};
use winograd::{WINOGRAD, agree, left_to_ffma};

/// The plan on a solver of the CUDA backend.
fn plan(device: &Arc<dyn Device>, stream: &Stream, problem: &Problem, solver: &str, shift: usize) -> Plan {
    let solver = CudaBackend.solvers().iter().find(|found| found.id() == solver).unwrap();
    Plan::new(device, stream, problem, *solver, shift, Content::Whole)
}

/// What the CPU backend gives for the same operands, by the plainest of its solvers that takes the problem.
fn reference(problem: &Problem) -> Vec<f32> {
    static CPU: LazyLock<Arc<dyn Device>> = LazyLock::new(|| CpuBackend.open(0).unwrap());
    let stream = CPU.create_stream().unwrap();
    let takes = |solver: &&&dyn Solver| solver.applies(problem, CPU.info()).is_ok();
    let solver = CpuBackend.solvers().iter().rfind(takes).unwrap();
    let plan = Plan::new(&CPU, &stream, problem, *solver, 0, Content::Whole);
    plan.launch(&stream);
    plan.results(&stream)
}

/// What can be known with no device: the solver takes the problem on Hopper, and there is something to compare with.
fn expected(problem: &Problem, solver: &str) -> Result<(), Failed> {
    let solver = CudaBackend.solvers().iter().find(|found| found.id() == solver).ok_or("no such solver")?;
    let hopper = CudaBackend.target("sm_90a")?;
    solver.applies(problem, &hopper).map_err(|refusal| refusal.to_string())?;
    let results = reference(problem);
    let mut several = results.clone();
    several.sort_by(f32::total_cmp);
    several.dedup();
    if results.iter().any(|value| value.is_nan()) || several.len() < 4 {
        return Err(format!("{} results are {several:?}", results.len()).into());
    }
    Ok(())
}

/// Every pointer at an odd element.
fn misaligned(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    let expected = reference(problem);
    for shift in [0, 1, 3] {
        let plan = plan(device, &stream, problem, solver, shift);
        plan.launch(&stream);
        if !agree(solver, &plan.results(&stream), &expected) {
            return Err(format!("{solver} is wrong with pointers {shift} elements off").into());
        }
    }
    Ok(())
}

/// Every configuration, on pointers of any alignment, and twice on numbers whose sums depend on their order.
fn configured(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    let expected = reference(problem);
    let solver = CudaBackend.solvers().iter().find(|found| found.id() == solver).unwrap();
    let all = solver.configurations(problem, device.info());
    // Compilers work in several threads at once.
    let binaries: Vec<_> = thread::scope(|scope| {
        let compile = |of: &Candidate| solver.compile(problem, device.info(), &of.configuration);
        let threads: Vec<_> = all.iter().map(|of| scope.spawn(move || compile(of))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (Candidate { configuration, .. }, binary) in all.iter().zip(binaries) {
        let binary = binary?;
        let of = |shift, content| Plan::of(device, &stream, problem, *solver, &binary, shift, content);
        checked(of, &stream, |results| agree(solver.id(), results, &expected), solver.id() == GEMV)
            .map_err(|reason| format!("{configuration} {reason}"))?;
    }
    Ok(())
}

/// A hundred executions on numbers whose sums depend on their order.
fn repeated(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    let solver = CudaBackend.solvers().iter().find(|found| found.id() == solver).unwrap();
    let plan = Plan::new(device, &stream, problem, *solver, 0, Content::Noise);
    plan.launch(&stream);
    let first = plan.bytes(&stream);
    for run in 1..100 {
        plan.reset(&stream);
        plan.launch(&stream);
        if plan.bytes(&stream) != first {
            return Err(format!("run {run} gave other bits").into());
        }
    }
    Ok(())
}

/// Captures a launch into a graph and replays it: the first of a plan, and one with all that an earlier one has prepared.
fn captured(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    let first = plan(device, &stream, problem, solver, 0);
    captured_and_replayed(device, problem, solver, &first)?;
    let second = plan(device, &stream, problem, solver, 0);
    second.launch(&stream);
    second.reset(&stream);
    captured_and_replayed(device, problem, solver, &second)
}

fn captured_and_replayed(
    device: &Arc<dyn Device>,
    problem: &Problem,
    solver: &str,
    plan: &Plan,
) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    let graph = Graph::capture(&**device, |stream| {
        plan.launch(stream);
        Ok::<_, BackendError>(())
    })?;
    device.synchronize(&stream)?;
    let untouched = plan.written.iter().flat_map(|buffer| &buffer.bytes);
    if !untouched.eq(&plan.bytes(&stream)) {
        return Err("something ran at the capture".into());
    }
    let graph = graph.instantiate()?;
    // SAFETY: the plan's buffers live until they have been read.
    unsafe { graph.launch(stream.raw()) }?;
    if !agree(solver, &plan.results(&stream), &reference(problem)) {
        return Err("the replay gave another result".into());
    }
    Ok(())
}

/// How many kernels an execution launches of a plan that has nothing prepared yet, by what is captured of it.
fn launches(device: &Arc<dyn Device>, plan: &Plan) -> Result<usize, Failed> {
    let graph = Graph::capture(&**device, |stream| {
        plan.launch(stream);
        Ok::<_, BackendError>(())
    })?;
    caller::nodes(graph.raw())
}

/// With operands that may change, in turns with another plan that has others: on one stream, on another meanwhile, and in a graph.
fn changing(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let streams = [device.create_stream()?, device.create_stream()?];
    let found = CudaBackend.solvers().iter().find(|found| found.id() == solver).unwrap();
    let binary = found.compile_preferred(problem, device.info())?;
    let of = |content| Plan::of(device, &streams[0], problem, *found, &binary, 0, content).changing();
    let (whole, noise) = (of(Content::Whole), of(Content::Noise));
    let on_other = of(Content::Noise);
    device.synchronize(&streams[0])?;
    noise.launch(&streams[0]);
    let (expected, alone) = (reference(problem), noise.bytes(&streams[0]));
    let check = |what: &str| -> Result<(), Failed> {
        if !agree(solver, &whole.results(&streams[0]), &expected) || noise.bytes(&streams[0]) != alone {
            return Err(format!("{what}: wrong beside another plan").into());
        }
        [&whole, &noise].into_iter().for_each(|plan| plan.reset(&streams[0]));
        Ok(device.synchronize(&streams[0])?)
    };
    for _ in 0..20 {
        whole.launch(&streams[0]);
        on_other.launch(&streams[1]);
        noise.launch(&streams[0]);
    }
    if on_other.bytes(&streams[1]) != alone {
        return Err("wrong on another stream".into());
    }
    check("on a stream")?;
    let graph = Graph::capture(&**device, |stream| {
        [&whole, &noise, &whole].into_iter().for_each(|plan| plan.launch(stream));
        Ok::<_, BackendError>(())
    })?;
    let graph = graph.instantiate()?;
    for _ in 0..3 {
        // SAFETY: the plans' buffers live until they have been read.
        unsafe { graph.launch(streams[0].raw()) }?;
        on_other.launch(&streams[1]);
        check("in a graph")?;
    }
    Ok(())
}

/// In a context of the caller's own: right numbers, and the context is left as it was.
fn adopted(device: &Arc<dyn Device>, problem: &Problem, solver: &str) -> Result<(), Failed> {
    let context = caller::create_context(device.info().ordinal)?;
    // The thread's current context, and the same by its address.
    for raw in [ptr::null_mut(), context] {
        // SAFETY: the context lives until all that is made of it here is gone.
        let adopted = unsafe { CudaBackend::adopt(raw) }?;
        if adopted.info() != device.info() {
            return Err(format!("{:?} instead of {:?}", adopted.info(), device.info()).into());
        }
        let stream = adopted.create_stream()?;
        let plan = plan(&adopted, &stream, problem, solver, 0);
        plan.launch(&stream);
        if !agree(solver, &plan.results(&stream), &reference(problem)) {
            return Err("wrong in a caller's context".into());
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
    let plans: Vec<_> = [0, 1, 2].into_iter().map(|_| plan(device, &stream, problem, solver, 0)).collect();
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
    let expected = reference(problem);
    let is_right = |plan: &Plan| agree(solver, &plan.results(&stream), &expected);
    if !is_right(&plans[0]) || !is_right(&plans[1]) {
        return Err("a node gave another result".into());
    }
    if is_right(&plans[2]) {
        return Err("what is in no graph ran".into());
    }
    // SAFETY: operands outlive the launch, and the node is of the graph that was instantiated.
    unsafe { graph(&plans[2])?.update(executable, second) }?;
    caller::launch(executable, stream.raw())?;
    if !is_right(&plans[2]) {
        return Err("a node with other operands gave another result".into());
    }
    caller::destroy_graph(whole, executable)?;
    caller::leave_primary(device.info().ordinal)
}

/// Every type has peaks, which are measured once, in well under a second.
fn peaks(device: &Arc<dyn Device>) -> Result<(), Failed> {
    for data_type in [DataType::Float, DataType::Half, DataType::BFloat16] {
        let start = Instant::now();
        let measured = device.peaks(data_type)?;
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
        if device.peaks(data_type)? != measured {
            return Err("measured again".into());
        }
    }
    Ok(())
}

/// What a test says that is asked for where it is ignored.
const NO_DEVICE: &str = "cuda has no device here";

/// Devices by their ordinals: one plan compiled for each, run on each.
fn devices(problem: &Problem, solver: &str) -> Result<(), Failed> {
    let mut results = Vec::new();
    for info in CudaBackend.discover().devices {
        let device = CudaBackend.open(info.ordinal)?;
        let stream = device.create_stream()?;
        let plan = plan(&device, &stream, problem, solver, 0);
        plan.launch(&stream);
        results.push(plan.bytes(&stream));
        if !agree(solver, &plan.results(&stream), &reference(problem)) {
            return Err(format!("device {} is wrong", info.ordinal).into());
        }
    }
    if results.len() < 2 {
        return Err(format!("cuda has {} devices here, of two that are compared", results.len()).into());
    }
    if results.iter().any(|found| *found != results[0]) {
        return Err("devices differ".into());
    }
    Ok(())
}

/// An image whose bytes almost need a 32nd bit to count, as they are reordered and gathered.
fn large(device: &Arc<dyn Device>) -> Result<(), Failed> {
    let stream = device.create_stream()?;
    let tensor =
        |lens: [usize; 5]| TensorDescriptor::with_layout(DataType::Float, TensorLayout::Ncdhw, &lens);
    let (input, weights) = (tensor([1, 64, 4, 1448, 1448])?, tensor([32, 64, 1, 3, 3])?);
    let conv = ConvolutionDescriptor::d3().with_pads([0, 1, 1])?.with_strides([1, 2, 2])?;
    let output = conv.forward_output(&input, &weights)?;
    let problem =
        Problem { input, output, ops: vec![Op::ConvForward { conv, weights }], math: MathMode::AllowTf32 };
    let of = |id: &str| *CudaBackend.solvers().iter().find(|solver| solver.id() == id).unwrap();
    let reordered = of("cuda.conv_wgmma_reordered.v1");
    let plan = Plan::new(device, &stream, &problem, reordered, 0, Content::Whole);
    // What reorders is launched in front of what convolves.
    let launches = launches(device, &plan)?;
    if launches != 2 {
        return Err(format!("{launches} launches: another kernel computes it").into());
    }
    plan.launch(&stream);
    let found = plan.results(&stream);
    let gathered = plan.by(device, &stream, of("cuda.conv_wgmma_gather.v1"));
    gathered.launch(&stream);
    if found != gathered.results(&stream) {
        return Err("the two differ".into());
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
    let checks: [(&str, Check); 6] = [
        ("misaligned", misaligned),
        ("changing", changing),
        ("repeated", repeated),
        ("captured", captured),
        ("nodes", nodes),
        ("adopted", adopted),
    ];
    let mut trials = Vec::new();
    for (name, solver, problem) in problems() {
        for (check_name, check) in checks {
            // What a launch writes for the next. Running statistics would be those of many executions.
            let hands_on = ["lines", "transposed", "reordered", "runs", "backward.shared.nhwc", "winograd"];
            if check_name == "changing" && !hands_on.iter().any(|part| name.contains(part)) {
                continue;
            }
            let (problem, device) = (problem.clone(), device.clone());
            let ignored = device.is_none();
            let run = move || check(&device.ok_or(NO_DEVICE)?, &problem, solver);
            trials.push(Trial::test(format!("{check_name}.{name}"), run).with_ignored_flag(ignored));
        }
        if solver == WINOGRAD {
            let (problem, device) = (problem.clone(), device.clone());
            let ignored = device.is_none();
            let run = move || left_to_ffma(&device.ok_or(NO_DEVICE)?, name, &problem);
            trials.push(Trial::test(format!("left.{name}"), run).with_ignored_flag(ignored));
        }
        let has_many =
            ["columns", "runs16", "wgmma.tf32", "wgmma.transposed"].iter().any(|part| name.contains(part));
        if [TRAINING, GEMV, WINOGRAD].contains(&solver) || has_many {
            let (problem, device) = (problem.clone(), device.clone());
            let ignored = device.is_none();
            let run = move || configured(&device.ok_or(NO_DEVICE)?, &problem, solver);
            trials.push(Trial::test(format!("configured.{name}"), run).with_ignored_flag(ignored));
        }
    }
    let is_alone = found.devices.len() < 2;
    if device.is_some() && is_alone {
        println!("ignored: devices.* because cuda has one device here, of two that are compared");
    }
    for (name, solver, problem) in problems() {
        let of_host = problem.clone();
        trials.push(Trial::test(format!("expected.{name}"), move || expected(&of_host, solver)));
        let trial = Trial::test(format!("devices.{name}"), move || devices(&problem, solver));
        trials.push(trial.with_ignored_flag(is_alone || device.is_none()));
    }
    type Alone = fn(&Arc<dyn Device>) -> Result<(), Failed>;
    let alone: [(&str, Alone); 2] = [("peaks", peaks), ("large", large)];
    for (name, check) in alone {
        let (ignored, device) = (device.is_none(), device.clone());
        let run = move || check(&device.ok_or(NO_DEVICE)?);
        trials.push(Trial::test(name, run).with_ignored_flag(ignored));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

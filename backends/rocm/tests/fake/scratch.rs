//! Memory that a first launch hands on to a second: the stream's or the graph's.

use std::sync::Arc;
use std::{ptr, thread};

use fuseplan_api::*;
use fuseplan_fake_hip::Fake;
use fuseplan_hip_sys::{self as sys, hipStreamCaptureMode};
use fuseplan_rocm::RocmBackend;
use libtest_mimic::Failed;

use super::{Buffer, UNKNOWN, by_id};

/// `hipErrorOutOfMemory`.
const OUT_OF_MEMORY: u32 = 2;

/// A plan of two launches, and what its runs leave.
struct Plan<'a> {
    fake: &'a Fake,
    executable: Arc<dyn Executable>,
    buffer: Buffer<'a>,
}

impl<'a> Plan<'a> {
    fn new(fake: &'a Fake, device: &'a Arc<dyn Device>) -> Result<Self, Failed> {
        let input = TensorDescriptor::nhwc(DataType::Half, [8, 64, 56, 56])?;
        let ops = vec![Op::BatchNormForward { mode: BatchNormMode::Spatial, running: false }];
        let problem = Problem { input, output: input, ops, math: MathMode::Precise };
        let solver = by_id("rocm.batch_norm_training.v1");
        let candidates = solver.configurations(&problem, device.info());
        let found = candidates.iter().find(|one| one.configuration.as_str().ends_with("in memory"));
        let configuration = &found.ok_or("nothing meets in memory")?.configuration;
        let binary = solver.compile(&problem, device.info(), configuration)?;
        let executable = solver.load(&problem, device, &binary)?;
        if executable.info().kernels != 2 {
            return Err(format!("{:?}", executable.info()).into());
        }
        Ok(Plan { fake, executable, buffer: Buffer::new(device.memory(), 8 << 20)? })
    }

    fn run(&self, stream: &Stream) -> Result<(), RunError> {
        run(&*self.executable, self.buffer.pointer as usize, stream)
    }

    /// Blocks of memory that there are besides the operands'.
    fn blocks(&self) -> usize {
        self.fake.live().iter().filter(|kind| *kind == "Memory").count() - 1
    }

    /// Launches of a run, and blocks that there are afterwards.
    fn check(&self, what: &str, stream: &Stream, expected: (usize, usize)) -> Result<(), Failed> {
        self.fake.reset();
        self.run(stream)?;
        self.are(what, (self.launches(), self.blocks()), expected)
    }

    /// Since the last reset.
    fn launches(&self) -> usize {
        self.fake.calls().iter().filter(|call| *call == "hipModuleLaunchKernel").count()
    }

    fn are(&self, what: &str, found: (usize, usize), expected: (usize, usize)) -> Result<(), Failed> {
        if found == expected {
            Ok(())
        } else {
            Err(format!("{what}: {found:?}, {expected:?} was expected").into())
        }
    }

    /// Lets calls of a run fail in turn, by their names and numbers: each is an error that names it, and leaves no more memory.
    fn fail(&self, wanted: &[(&str, usize)], run: impl Fn() -> Result<(), RunError>) -> Result<(), Failed> {
        for &(name, nth) in wanted {
            let before = self.blocks();
            self.fake.fail(name, nth..nth + 1, UNKNOWN);
            let result = run();
            let calls = self.fake.calls().iter().filter(|call| *call == name).count();
            self.fake.reset();
            let text = result.err().map_or(String::new(), |error| error.to_string());
            if calls <= nth || !text.contains(name) || !text.contains("(4321)") {
                return Err(format!("call {nth} of {name}, which had {calls}: {text:?}").into());
            }
            // A stream keeps what it has got for launches that fail.
            let most = before + usize::from(name == "hipModuleLaunchKernel");
            self.are(name, (0, self.blocks().max(most)), (0, most))?;
        }
        Ok(())
    }
}

fn run(executable: &dyn Executable, address: usize, stream: &Stream) -> Result<(), RunError> {
    let pointer = ptr::without_provenance_mut(address);
    let args =
        RunArgs { input: pointer, output: pointer, ops: &[OpArgs::default()], workspace: ptr::null_mut() };
    // SAFETY: the kernels of this runtime do nothing.
    unsafe { executable.run(stream.raw(), &args) }
}

/// In memory of the stream's, which its plans share, or of the graph's. Without memory nothing is launched.
pub(crate) fn scratch(fake: &Fake) -> Result<(), Failed> {
    fake.take_live();
    let device = RocmBackend.open(0)?;
    let streams = [device.create_stream()?, device.create_stream()?];
    let plan = Plan::new(fake, &device)?;
    plan.check("an execution", &streams[0], (2, 1))?;
    plan.check("again", &streams[0], (2, 1))?;
    plan.check("on another stream", &streams[1], (2, 2))?;
    plan.check("on the default stream", &Stream::borrowed(ptr::null_mut()), (2, 3))?;
    // `hipStreamLegacy` is the same one, `hipStreamPerThread` another for each thread.
    let special = |address: usize| Stream::borrowed(ptr::without_provenance_mut(address));
    plan.check("on the same by another name", &special(1), (2, 3))?;
    plan.check("on this thread's", &special(2), (2, 4))?;
    let (executable, address) = (&*plan.executable, plan.buffer.pointer as usize);
    thread::scope(|scope| scope.spawn(|| run(executable, address, &special(2))).join().unwrap())?;
    plan.are("on another thread's", (0, plan.blocks()), (0, 5))?;
    for _ in 0..20 {
        plan.run(&device.create_stream()?)?;
    }
    plan.are("streams that are used no more", (0, plan.blocks()), (0, 8))?;

    let capture =
        |count: usize| Graph::capture(&*device, |stream| (0..count).try_for_each(|_| plan.run(stream)));
    let first = capture(2)?;
    plan.are("executions of a graph share memory", (0, plan.blocks()), (0, 9))?;
    let outer = capture(0)?;
    // SAFETY: both are live, and used by this thread alone.
    unsafe { first.add_to(outer.raw(), &[])? };
    let executable = outer.instantiate()?;
    drop((first, outer));
    // What is gone is given back when memory is allocated next.
    let second = capture(1)?;
    plan.are("a graph that is a node of an executable", (0, plan.blocks()), (0, 10))?;
    drop((executable, second));
    let third = capture(1)?;
    plan.are("graphs that are gone", (0, plan.blocks()), (0, 9))?;
    drop(third);
    // As in HIP an executable that gets another child does not refer to the child's user objects: its memory is kept.
    let (first, other, outer) = (capture(1)?, capture(1)?, capture(0)?);
    // SAFETY: all are live, and used by this thread alone.
    let executable = unsafe {
        let node = first.add_to(outer.raw(), &[])?;
        let executable = outer.instantiate()?;
        other.update(executable.raw(), node)?;
        executable
    };
    drop((first, other, outer));
    let fourth = capture(1)?;
    plan.are("a graph whose launches an executable got", (0, plan.blocks()), (0, 11))?;
    drop((executable, fourth));
    capture_strictly(&streams[0], || plan.run(&streams[0]))?;

    // A stream that has memory allocates none.
    let fresh = || plan.run(&device.create_stream()?);
    let calls = [
        ("hipStreamGetCaptureInfo_v2", 0),
        ("hipThreadExchangeStreamCaptureMode", 0),
        ("hipMalloc", 0),
        ("hipModuleLaunchKernel", 0),
        ("hipModuleLaunchKernel", 1),
    ];
    plan.fail(&calls, fresh)?;
    fake.fail("hipMalloc", 0..1, OUT_OF_MEMORY);
    let error = fresh().expect_err("there is no memory");
    let launches = plan.launches();
    fake.reset();
    if !matches!(error, RunError::SharedSums { solver: "rocm.batch_norm_training.v1", bytes: 1.., .. })
        || launches != 0
    {
        return Err(format!("{error}, {launches} launches").into());
    }
    let words = error.to_string();
    if !words.starts_with("rocm.batch_norm_training.v1: out of memory allocating ")
        || !words.contains("; accepted: as many free bytes")
    {
        return Err(words.into());
    }
    plan.fail(&[("hipUserObjectCreate", 0), ("hipGraphRetainUserObject", 0)], || capture(1).map(drop))?;
    drop((plan, streams));
    drop(device);
    let left = fake.take_live();
    if left.is_empty() { Ok(()) } else { Err(format!("still live: {left:?}").into()) }
}

/// As of a program that captures by itself, and lets nobody allocate meanwhile.
fn capture_strictly(stream: &Stream, run: impl Fn() -> Result<(), RunError>) -> Result<(), Failed> {
    let hip = sys::hip()?;
    // SAFETY: the stream is live, and the place that of a graph.
    unsafe {
        let mut graph = ptr::null_mut();
        let began = hip.hipStreamBeginCapture(stream.raw().cast(), hipStreamCaptureMode(0));
        let result = run();
        let ended = hip.hipStreamEndCapture(stream.raw().cast(), &mut graph);
        let destroyed = hip.hipGraphDestroy(graph);
        if [began, ended, destroyed].iter().any(|status| status.0 != 0) {
            return Err(format!("{began:?}, {ended:?}, {destroyed:?}").into());
        }
        Ok(result?)
    }
}

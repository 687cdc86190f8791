//! What is written for a later launch: filters once beside constant operands, and else by each execution; images and filters that are
//! reordered; sums of a batch-norm.

use std::ptr;
use std::sync::Arc;

use fuseplan_api::*;
use fuseplan_cuda::CudaBackend;
use libtest_mimic::Failed;

use super::client::Fake;
use super::{Memory, by_id, nothing_left};

/// An executable with operands that are prepared, and what its runs leave.
struct Plan<'a> {
    fake: &'a Fake,
    executable: Arc<dyn Executable>,
    memory: Memory<'a>,
}

impl<'a> Plan<'a> {
    /// With streamed filters, of an image with as many lines and columns.
    fn streaming(fake: &'a Fake, device: &'a Arc<dyn Device>, image: [usize; 2]) -> Result<Self, Failed> {
        Plan::new(fake, device, image, "cuda.conv_wgmma_lines.v1", "streamed filters")
    }

    /// On a solver, with a tile whose name ends so.
    fn new(
        fake: &'a Fake,
        device: &'a Arc<dyn Device>,
        image: [usize; 2],
        solver: &str,
        tile: &str,
    ) -> Result<Self, Failed> {
        let of = |lens: [usize; 4]| TensorDescriptor::nchw(DataType::Half, lens).unwrap();
        let (input, weights) = (of([1, 256, image[0], image[1]]), of([64, 256, 3, 3]));
        let conv = ConvolutionDescriptor::d2().with_pads([1, 1])?;
        let output = conv.forward_output(&input, &weights)?;
        let problem =
            Problem { input, output, ops: vec![Op::ConvForward { conv, weights }], math: MathMode::Precise };
        Plan::of(fake, device, &problem, solver, tile)
    }

    /// Of a problem with one operator.
    fn of(
        fake: &'a Fake,
        device: &'a Arc<dyn Device>,
        problem: &Problem,
        solver: &str,
        tile: &str,
    ) -> Result<Self, Failed> {
        let solver = by_id(solver);
        let candidates = solver.configurations(problem, device.info());
        let found = candidates.iter().find(|one| one.configuration.as_str().ends_with(tile));
        let configuration = &found.ok_or("there is no such tile")?.configuration;
        let binary = solver.compile(problem, device.info(), configuration)?;
        let executable = solver.load(problem, device, &binary)?;
        Ok(Plan { fake, executable, memory: Memory::new(device, 32 << 20)? })
    }

    /// Whether filters that may change are read as they are by another kernel.
    fn reads_filters(&self) -> bool {
        self.executable.info().detail.contains("; for filters that are not constant, and addresses")
    }

    fn run(&self, stream: &Stream, prepared: Option<&Arc<Prepared>>) -> Result<(), RunError> {
        let mut ops = [OpArgs { prepared: prepared.cloned(), ..OpArgs::default() }];
        ops[0].pointers[0] = self.memory.1;
        let args =
            RunArgs { input: self.memory.1, output: self.memory.1, ops: &ops, workspace: ptr::null_mut() };
        // SAFETY: the fake's kernels touch nothing.
        unsafe { self.executable.run(stream.raw(), &args) }
    }

    /// Blocks of memory that there are besides the operands'.
    fn blocks(&self) -> usize {
        self.fake.live().split(' ').filter(|kind| *kind == "memory").count() - 1
    }

    /// Launches of a run, and blocks that there are afterwards.
    fn check(
        &self,
        what: &str,
        stream: &Stream,
        prepared: Option<&Arc<Prepared>>,
        expected: (u64, usize),
    ) -> Result<(), Failed> {
        let before = self.fake.launches(0);
        self.run(stream, prepared)?;
        self.are(what, (self.fake.launches(0) - before, self.blocks()), expected)
    }

    fn are(&self, what: &str, found: (u64, usize), expected: (u64, usize)) -> Result<(), Failed> {
        if found == expected {
            Ok(())
        } else {
            Err(format!("{what}: {found:?}, {expected:?} was expected").into())
        }
    }

    /// Lets each call of a run fail in turn: whichever of these it is, the run is none the worse, and no memory is left.
    fn fail(&self, names: &[&str], run: impl Fn() -> Result<(), RunError>) -> Result<(), Failed> {
        for &name in names {
            let mut tried = false;
            for nth in 1..20 {
                let before = self.blocks();
                self.fake.fail(nth, 2);
                let result = run();
                let failed = self.fake.failed();
                self.fake.fail(0, 0);
                if failed == name {
                    tried = true;
                    result.map_err(|error| format!("{name}: {error}"))?;
                    self.are(name, (0, self.blocks().max(before)), (0, before))?;
                }
            }
            if !tried {
                return Err(format!("{name} was not called").into());
            }
        }
        Ok(())
    }
}

/// Prepared once, for all streams, and given back with the operands; where they cannot be prepared another kernel runs.
pub(crate) fn prepared(fake: &Fake) -> Result<(), Failed> {
    let device = CudaBackend.open(0)?;
    let streams = [device.create_stream()?, device.create_stream()?];
    let plan = Plan::streaming(fake, &device, [8, 16])?;
    if !plan.reads_filters() {
        return Err("few pixels are not worth preparing filters each time".into());
    }
    plan.check("operands that may change", &streams[0], None, (1, 0))?;
    let kept = Arc::<Prepared>::default();
    // What is launched into a captured stream runs later.
    drop(Graph::capture(&*device, |stream| plan.run(stream, Some(&kept)))?);
    plan.are("a capture", (0, plan.blocks()), (0, 0))?;
    plan.fail(&["cuStreamGetCaptureInfo_v2", "cuMemAlloc_v2", "cuStreamSynchronize"], || {
        plan.run(&streams[0], Some(&Arc::default()))
    })?;
    plan.check("constant operands", &streams[0], Some(&kept), (2, 1))?;
    plan.check("again", &streams[0], Some(&kept), (1, 1))?;
    plan.check("on another stream", &streams[1], Some(&kept), (1, 1))?;
    plan.check("other operands, which go at once", &streams[0], Some(&Arc::default()), (2, 2))?;
    drop(kept);
    plan.are("prepared filters of operands that are gone", (0, plan.blocks()), (0, 0))?;
    // A graph that was captured from an execution reads them, whoever has it.
    let kept = Arc::default();
    plan.check("before a capture", &streams[0], Some(&kept), (2, 1))?;
    let capture =
        || Graph::capture(&*device, |stream| (0..2).try_for_each(|_| plan.run(stream, Some(&kept))));
    let graphs = [capture()?, capture()?];
    plan.fail(&["cuUserObjectCreate", "cuGraphRetainUserObject"], || capture().map(drop))?;
    drop(capture()?);
    drop(kept);
    let [first, second] = graphs;
    plan.are("what graphs read", (0, plan.blocks()), (0, 1))?;
    drop(first);
    plan.check("while one of them is there", &streams[0], Some(&Arc::default()), (2, 2))?;
    drop(second);
    plan.check("when all are gone", &streams[0], Some(&Arc::default()), (2, 1))?;
    drop((plan, streams));
    drop(device);
    nothing_left(fake)
}

/// Prepared by each execution where operands may change: in memory of the stream's, which its plans share, or of the graph's.
pub(crate) fn prepared_each_time(fake: &Fake) -> Result<(), Failed> {
    let device = CudaBackend.open(0)?;
    let streams = [device.create_stream()?, device.create_stream()?];
    let plan = Plan::streaming(fake, &device, [64, 64])?;
    if plan.reads_filters() {
        return Err("many pixels are worth preparing filters each time".into());
    }
    plan.check("operands that may change", &streams[0], None, (2, 1))?;
    plan.check("again", &streams[0], None, (2, 1))?;
    plan.check("on another stream", &streams[1], None, (2, 2))?;
    plan.check("constant operands", &streams[0], Some(&Arc::default()), (2, 3))?;
    for _ in 0..20 {
        plan.run(&device.create_stream()?, None)?;
    }
    plan.are("streams that are used no more", (0, plan.blocks()), (0, 8))?;
    let calls =
        ["cuStreamGetCaptureInfo_v2", "cuStreamGetId", "cuThreadExchangeStreamCaptureMode", "cuMemAlloc_v2"];
    // A stream that has memory allocates none.
    plan.fail(&calls, || plan.run(&device.create_stream()?, None))?;
    let capture =
        |count: usize| Graph::capture(&*device, |stream| (0..count).try_for_each(|_| plan.run(stream, None)));
    let before = plan.blocks();
    let first = capture(2)?;
    plan.are("executions of a graph share memory", (0, plan.blocks()), (0, before + 1))?;
    let executable = first.instantiate()?;
    drop(first);
    // What is gone is given back when memory is allocated next.
    let second = capture(1)?;
    plan.are("a graph that has become an executable", (0, plan.blocks()), (0, before + 2))?;
    drop((executable, second));
    let third = capture(1)?;
    plan.are("graphs that are gone", (0, plan.blocks()), (0, before + 1))?;
    drop(third);
    let kept = Arc::default();
    let graph = Graph::capture(&*device, |stream| plan.run(stream, Some(&kept)))?;
    plan.are("constant operands, first in a capture", (0, plan.blocks()), (0, before + 1))?;
    drop((graph, plan, streams));
    drop(device);
    nothing_left(fake)
}

/// Transformed for Winograd's convolution: once beside constant operands, and else by each execution; where neither can be another kernel runs.
pub(crate) fn transformed(fake: &Fake) -> Result<(), Failed> {
    let device = CudaBackend.open(0)?;
    let streams = [device.create_stream()?, device.create_stream()?];
    let of = |lens: [usize; 4]| TensorDescriptor::nchw(DataType::Float, lens).unwrap();
    let (input, weights) = (of([16, 64, 56, 56]), of([64, 64, 3, 3]));
    let conv = ConvolutionDescriptor::d2().with_pads([1, 1])?;
    let output = conv.forward_output(&input, &weights)?;
    let problem =
        Problem { input, output, ops: vec![Op::ConvForward { conv, weights }], math: MathMode::Precise };
    let plan = Plan::of(fake, &device, &problem, "cuda.conv_winograd.v1", "stages")?;
    if plan.reads_filters() || plan.executable.info().kernels != 1 {
        return Err(format!("{:?}", plan.executable.info()).into());
    }
    plan.check("operands that may change", &streams[0], None, (2, 1))?;
    plan.check("on another stream", &streams[1], None, (2, 2))?;
    let kept = Arc::<Prepared>::default();
    plan.check("constant operands", &streams[0], Some(&kept), (2, 3))?;
    plan.check("again", &streams[1], Some(&kept), (1, 3))?;
    drop(kept);
    plan.are("operands that are gone", (0, plan.blocks()), (0, 2))?;
    let calls =
        ["cuStreamGetCaptureInfo_v2", "cuStreamGetId", "cuThreadExchangeStreamCaptureMode", "cuMemAlloc_v2"];
    plan.fail(&calls, || plan.run(&device.create_stream()?, None))?;
    drop((plan, streams));
    drop(device);
    nothing_left(fake)
}

/// Reordered by each execution, in memory of the stream's or of the graph's; without memory another kernel runs.
pub(crate) fn reordered(fake: &Fake) -> Result<(), Failed> {
    let device = CudaBackend.open(0)?;
    let streams = [device.create_stream()?, device.create_stream()?];
    let plan = Plan::new(fake, &device, [64, 64], "cuda.conv_wgmma_reordered.v1", "")?;
    let streaming = Plan::streaming(fake, &device, [64, 64])?;
    if [&plan, &streaming].map(|plan| plan.executable.info().kernels) != [2, 1] {
        return Err("the copy is a kernel of an execution, prepared filters are not".into());
    }
    let blocks = plan.blocks();
    plan.check("an execution", &streams[0], None, (2, blocks + 1))?;
    plan.check("again", &streams[0], None, (2, blocks + 1))?;
    plan.check("constant operands", &streams[0], Some(&Arc::default()), (2, blocks + 1))?;
    streaming.check("another plan of the stream", &streams[0], None, (2, blocks + 1))?;
    plan.check("on another stream", &streams[1], None, (2, blocks + 2))?;
    let calls =
        ["cuStreamGetCaptureInfo_v2", "cuStreamGetId", "cuThreadExchangeStreamCaptureMode", "cuMemAlloc_v2"];
    plan.fail(&calls, || plan.run(&device.create_stream()?, None))?;
    let before = plan.blocks();
    let graph = Graph::capture(&*device, |stream| (0..2).try_for_each(|_| plan.run(stream, None)))?;
    plan.are("executions of a graph share memory", (0, plan.blocks()), (0, before + 1))?;
    drop(graph);
    drop((plan, streaming, streams));
    drop(device);
    nothing_left(fake)
}

/// Handed on from a first launch to a second, in memory of the stream's or of the graph's. Without memory nothing is launched, and the
/// error names what was asked for.
pub(crate) fn sums(fake: &Fake) -> Result<(), Failed> {
    let device = CudaBackend.open(0)?;
    let streams = [device.create_stream()?, device.create_stream()?];
    let input = TensorDescriptor::nhwc(DataType::Half, [8, 64, 56, 56])?;
    let ops = vec![Op::BatchNormForward { mode: BatchNormMode::Spatial, running: false }];
    let problem = Problem { input, output: input, ops, math: MathMode::Precise };
    let plan = Plan::of(fake, &device, &problem, "cuda.batch_norm_training.v1", "in memory")?;
    let info = plan.executable.info();
    if (info.kernels, info.workspace) != (2, 0) {
        return Err(format!("{info:?}").into());
    }
    plan.check("an execution", &streams[0], None, (2, 1))?;
    plan.check("again", &streams[0], None, (2, 1))?;
    plan.check("on another stream", &streams[1], None, (2, 2))?;
    let graph = Graph::capture(&*device, |stream| (0..2).try_for_each(|_| plan.run(stream, None)))?;
    plan.are("executions of a graph share memory", (0, plan.blocks()), (0, 3))?;
    drop(graph);
    plan.check("memory of a graph that is gone is given back", &device.create_stream()?, None, (2, 3))?;
    let mut wanted = vec![
        "cuStreamGetCaptureInfo_v2",
        "cuStreamGetId",
        "cuThreadExchangeStreamCaptureMode",
        "cuMemAlloc_v2",
        "cuLaunchKernelEx",
        "cuLaunchKernelEx",
    ];
    for nth in 1.. {
        // A stream that has memory allocates none.
        let fresh = device.create_stream()?;
        let (launches, blocks) = (fake.launches(0), plan.blocks());
        fake.fail(nth, 2);
        let result = plan.run(&fresh, None);
        let failed = fake.failed();
        fake.fail(0, 0);
        if failed.is_empty() {
            result?;
            break;
        }
        let Some(at) = wanted.iter().position(|name| *name == failed) else { continue };
        wanted.remove(at);
        let text = result.err().map_or(String::new(), |error| error.to_string());
        let is_said = match &*failed {
            "cuMemAlloc_v2" => text.contains("out of memory") && text.contains(" bytes"),
            name => text.contains(name),
        };
        // Only behind the first launch there is one that has run; the stream keeps the memory of either.
        let is_launch = failed == "cuLaunchKernelEx";
        let ran = u64::from(is_launch && !wanted.contains(&"cuLaunchKernelEx"));
        let launched = fake.launches(0) - launches;
        if !is_said || launched != ran || plan.blocks() > blocks + usize::from(is_launch) {
            return Err(format!("{failed}: {text:?}, {launched} launches").into());
        }
    }
    if !wanted.is_empty() {
        return Err(format!("{wanted:?} never failed").into());
    }
    drop((plan, streams));
    drop(device);
    nothing_left(fake)
}

//! A device with memory of its own, which computes by the CPU's solvers. It holds them to pointers that the device
//! has allocated and counts what it is asked to do, so that tests see copies and waits where there is no such device.

use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fuseplan_api::{
    Accuracy, Algorithm, Backend, BackendError, Binary, BuildError, Candidate, Configuration, Constraint,
    DataType, Device, DeviceInfo, Discovery, Executable, ExecutableInfo, GraphDriver, Memory, MemoryKind,
    Peaks, Preference, Problem, RawGraph, RawGraphExec, RawNode, RawStream, RunArgs, RunError, Solver,
    Stream, StreamOwner,
};
use fuseplan_cpu::CpuBackend;

const BACKEND: &str = "fake";

/// A fake device, and a look into it.
#[derive(Debug, Clone)]
pub struct FakeDevice(Arc<Inner>);

impl Default for FakeDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeDevice {
    /// A device with no memory allocated.
    pub fn new() -> Self {
        let cpu = fuseplan_cpu::open_with_threads(1).expect("a thread is all that is asked for");
        let info = DeviceInfo { backend: BACKEND, ..cpu.info().clone() };
        FakeDevice(Arc::new(Inner { info, cpu, state: Arc::default() }))
    }

    /// The backend whose solvers compute on such devices. It finds none of them by itself.
    pub fn backend() -> &'static dyn Backend {
        &OwnMemoryBackend
    }

    /// The device as the contract sees it.
    pub fn device(&self) -> Arc<dyn Device> {
        self.0.clone()
    }

    /// Blocks that are allocated now.
    pub fn live(&self) -> usize {
        self.0.state.blocks.lock().unwrap().len()
    }

    /// Allocations so far.
    pub fn allocations(&self) -> usize {
        self.0.state.allocations.load(Ordering::Relaxed)
    }

    /// Waits for streams so far.
    pub fn waits(&self) -> usize {
        self.0.state.waits.load(Ordering::Relaxed)
    }

    /// The allocation after `count` more is out of memory.
    pub fn fail_allocation(&self, count: usize) {
        *self.0.state.fail.lock().unwrap() = Some(count);
    }

    /// Executions of this solver take a while from now on.
    pub fn slow_down(&self, solver: &'static str) {
        *self.0.state.slow.lock().unwrap() = Some(solver);
    }

    /// Executions so far.
    pub fn executions(&self) -> usize {
        self.0.state.executions.load(Ordering::Relaxed)
    }

    /// The device records graphs from now on, or refuses to if `refuses`. What a graph launches is counted and not computed.
    pub fn give_graphs(&self, refuses: bool) {
        *self.0.state.graphs.lock().unwrap() = Some(refuses);
    }

    /// Executions that graphs have recorded, launches of graphs, and graphs that have not ended.
    pub fn graphs(&self) -> [usize; 3] {
        let state = &self.0.state;
        [&state.recorded, &state.launches, &state.live_graphs].map(|count| count.load(Ordering::SeqCst))
    }

    /// Streams that have not ended.
    pub fn live_streams(&self) -> usize {
        self.0.state.live_streams.load(Ordering::SeqCst)
    }

    /// Copies to the device so far.
    pub fn copies(&self) -> usize {
        self.0.state.copies.load(Ordering::Relaxed)
    }

    /// Executables that were loaded so far.
    pub fn loads(&self) -> usize {
        self.0.state.loads.load(Ordering::SeqCst)
    }

    /// The most executions that ran at once.
    pub fn most_at_once(&self) -> usize {
        self.0.state.most_at_once.load(Ordering::SeqCst)
    }

    /// Plans have this workspace from now on.
    pub fn set_workspace(&self, bytes: usize) {
        self.0.state.workspace.store(bytes, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct State {
    /// Length by address.
    blocks: Mutex<BTreeMap<usize, usize>>,
    allocations: AtomicUsize,
    waits: AtomicUsize,
    fail: Mutex<Option<usize>>,
    workspace: AtomicUsize,
    streams: AtomicUsize,
    live_streams: AtomicUsize,
    copies: AtomicUsize,
    slow: Mutex<Option<&'static str>>,
    executions: AtomicUsize,
    loads: AtomicUsize,
    running: AtomicUsize,
    most_at_once: AtomicUsize,
    /// Whether capturing is refused, where the device has graphs.
    graphs: Mutex<Option<bool>>,
    captures: AtomicBool,
    recorded: AtomicUsize,
    launches: AtomicUsize,
    live_graphs: AtomicUsize,
}

/// Graphs that count what they record and how often they are launched.
#[derive(Debug)]
struct Graphs(Arc<State>);

impl Graphs {
    fn made(&self) -> *mut c_void {
        ptr::without_provenance_mut(self.0.live_graphs.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

impl GraphDriver for Graphs {
    unsafe fn capture(&self, _: RawStream, work: &mut dyn FnMut()) -> Result<RawGraph, BackendError> {
        self.0.captures.store(true, Ordering::SeqCst);
        work();
        self.0.captures.store(false, Ordering::SeqCst);
        if *self.0.graphs.lock().unwrap() == Some(true) {
            return Err(BackendError::Unsupported { backend: BACKEND, what: "recording this" });
        }
        Ok(self.made())
    }

    unsafe fn add_child(&self, _: RawGraph, _: &[RawNode], _: RawGraph) -> Result<RawNode, BackendError> {
        Err(BackendError::Unsupported { backend: BACKEND, what: "child graphs" })
    }

    unsafe fn set_child(&self, _: RawGraphExec, _: RawNode, _: RawGraph) -> Result<(), BackendError> {
        Err(BackendError::Unsupported { backend: BACKEND, what: "child graphs" })
    }

    unsafe fn instantiate(&self, _: RawGraph) -> Result<RawGraphExec, BackendError> {
        Ok(self.made())
    }

    unsafe fn launch(&self, _: RawGraphExec, _: RawStream) -> Result<(), BackendError> {
        self.0.launches.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    unsafe fn destroy(&self, _: RawGraph) {
        self.0.live_graphs.fetch_sub(1, Ordering::SeqCst);
    }

    unsafe fn destroy_executable(&self, _: RawGraphExec) {
        self.0.live_graphs.fetch_sub(1, Ordering::SeqCst);
    }
}

impl State {
    /// Whether an address is in memory of the device.
    fn owns(&self, pointer: *const c_void) -> bool {
        let blocks = self.blocks.lock().unwrap();
        let found = blocks.range(..=pointer.addr()).next_back();
        found.is_some_and(|(start, bytes)| pointer.addr() < start + bytes)
    }
}

#[derive(Debug)]
struct Inner {
    info: DeviceInfo,
    cpu: Arc<dyn Device>,
    state: Arc<State>,
}

#[derive(Debug)]
struct OwnStream(Arc<State>);

impl StreamOwner for OwnStream {}

impl Drop for OwnStream {
    fn drop(&mut self) {
        self.0.live_streams.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Device for Inner {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> &dyn Memory {
        self
    }

    fn create_stream(&self) -> Result<Stream, BackendError> {
        let number = self.state.streams.fetch_add(1, Ordering::Relaxed) + 1;
        self.state.live_streams.fetch_add(1, Ordering::SeqCst);
        let owner = OwnStream(self.state.clone());
        Ok(Stream::owned(ptr::without_provenance_mut(number), Arc::new(owner)))
    }

    fn synchronize(&self, _stream: &Stream) -> Result<(), BackendError> {
        self.state.waits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn time(
        &self,
        stream: &Stream,
        work: &mut dyn FnMut() -> Result<(), RunError>,
    ) -> Result<Duration, RunError> {
        self.cpu.time(stream, work)
    }

    fn peaks(&self, data_type: DataType) -> Result<Peaks, BackendError> {
        self.cpu.peaks(data_type)
    }

    fn graphs(&self) -> Option<Arc<dyn GraphDriver>> {
        self.state
            .graphs
            .lock()
            .unwrap()
            .map(|_| Arc::new(Graphs(self.state.clone())) as Arc<dyn GraphDriver>)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Memory for Inner {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Device
    }

    fn allocate(&self, bytes: usize) -> Result<*mut c_void, BackendError> {
        let mut fail = self.state.fail.lock().unwrap();
        *fail = match *fail {
            Some(0) => {
                *fail = None;
                return Err(BackendError::OutOfMemory { backend: BACKEND, bytes });
            }
            Some(count) => Some(count - 1),
            None => None,
        };
        let pointer = self.cpu.memory().allocate(bytes)?;
        // SAFETY: the block has as many bytes. New memory holds no zeros that a test could rely on.
        unsafe { ptr::write_bytes(pointer.cast::<u8>(), 0xFF, bytes) };
        self.state.blocks.lock().unwrap().insert(pointer.addr(), bytes);
        self.state.allocations.fetch_add(1, Ordering::Relaxed);
        Ok(pointer)
    }

    unsafe fn free(&self, pointer: *mut c_void, bytes: usize) {
        assert_eq!(self.state.blocks.lock().unwrap().remove(&pointer.addr()), Some(bytes));
        // SAFETY: as promised to this function.
        unsafe { self.cpu.memory().free(pointer, bytes) }
    }

    unsafe fn copy_in(
        &self,
        target: *mut c_void,
        source: &[u8],
        stream: &Stream,
    ) -> Result<(), BackendError> {
        assert!(source.is_empty() || self.state.owns(target));
        self.state.copies.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as promised to this function.
        unsafe { self.cpu.memory().copy_in(target, source, stream) }
    }

    unsafe fn zero(&self, target: *mut c_void, bytes: usize, stream: &Stream) -> Result<(), BackendError> {
        assert!(bytes == 0 || self.state.owns(target));
        // SAFETY: as promised to this function.
        unsafe { self.cpu.memory().zero(target, bytes, stream) }
    }

    unsafe fn copy_out(
        &self,
        target: &mut [u8],
        source: *const c_void,
        stream: &Stream,
    ) -> Result<(), BackendError> {
        assert!(target.is_empty() || self.state.owns(source));
        self.state.waits.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as promised to this function.
        unsafe { self.cpu.memory().copy_out(target, source, stream) }
    }
}

/// The backend of these devices, which does not find them when it looks for devices.
#[derive(Debug)]
struct OwnMemoryBackend;

impl Backend for OwnMemoryBackend {
    fn name(&self) -> &'static str {
        BACKEND
    }

    fn discover(&self) -> Discovery {
        Discovery::default()
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, BackendError> {
        Err(BackendError::NoDevice { backend: BACKEND, ordinal, count: 0 })
    }

    fn target(&self, arch: &str) -> Result<DeviceInfo, BackendError> {
        CpuBackend.target(arch)
    }

    fn solvers(&self) -> &'static [&'static dyn Solver] {
        static SOLVERS: std::sync::OnceLock<Vec<&'static dyn Solver>> = std::sync::OnceLock::new();
        SOLVERS.get_or_init(|| {
            let solvers = CpuBackend.solvers().iter();
            solvers.map(|solver| &*Box::leak(Box::new(OwnMemorySolver(*solver))) as &dyn Solver).collect()
        })
    }
}

#[derive(Debug)]
struct OwnMemorySolver(&'static dyn Solver);

impl Solver for OwnMemorySolver {
    fn id(&self) -> &'static str {
        self.0.id()
    }

    fn algorithm(&self) -> Algorithm {
        self.0.algorithm()
    }

    fn constraints(&self) -> &'static [Constraint] {
        self.0.constraints()
    }

    fn addresses_any_layout(&self) -> bool {
        self.0.addresses_any_layout()
    }

    fn preferences(&self) -> &'static [Preference] {
        self.0.preferences()
    }

    fn is_reference(&self) -> bool {
        self.0.is_reference()
    }

    fn accuracy(&self, problem: &Problem) -> Accuracy {
        self.0.accuracy(problem)
    }

    fn configurations(&self, problem: &Problem, target: &DeviceInfo) -> Vec<Candidate> {
        self.0.configurations(problem, target)
    }

    fn compile(
        &self,
        problem: &Problem,
        target: &DeviceInfo,
        configuration: &Configuration,
    ) -> Result<Binary, BuildError> {
        self.0.compile(problem, target, configuration)
    }

    fn load(
        &self,
        problem: &Problem,
        device: &Arc<dyn Device>,
        binary: &Binary,
    ) -> Result<Arc<dyn Executable>, BuildError> {
        let device = device.as_any().downcast_ref::<Inner>().unwrap();
        let inner = self.0.load(problem, &device.cpu, binary)?;
        device.state.loads.fetch_add(1, Ordering::SeqCst);
        let workspace = device.state.workspace.load(Ordering::Relaxed);
        let info = ExecutableInfo { workspace, ..inner.info().clone() };
        Ok(Arc::new(OwnMemoryExecutable { info, inner, state: device.state.clone() }))
    }
}

#[derive(Debug)]
struct OwnMemoryExecutable {
    info: ExecutableInfo,
    inner: Arc<dyn Executable>,
    state: Arc<State>,
}

impl Executable for OwnMemoryExecutable {
    fn info(&self) -> &ExecutableInfo {
        &self.info
    }

    unsafe fn run(&self, stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError> {
        let pointers = args.ops.iter().flat_map(|op| op.pointers).chain([args.input.cast_mut(), args.output]);
        for pointer in pointers.filter(|pointer| !pointer.is_null()) {
            assert!(self.state.owns(pointer), "a pointer that is not the device's");
        }
        assert!(self.info.workspace == 0 || self.state.owns(args.workspace));
        if self.state.captures.load(Ordering::SeqCst) {
            self.state.recorded.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        self.state.executions.fetch_add(1, Ordering::Relaxed);
        let running = self.state.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.state.most_at_once.fetch_max(running, Ordering::SeqCst);
        if *self.state.slow.lock().unwrap() == Some(self.info.solver) {
            std::thread::sleep(Duration::from_millis(3));
        }
        // SAFETY: as promised to this function.
        let result = unsafe { self.inner.run(stream, args) };
        self.state.running.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

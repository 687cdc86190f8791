//! A backend that accepts every problem and computes nothing.

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuseplan_api::{
    Algorithm, Backend, BackendError, Binary, BuildError, Configuration, Constraint, DataType, Device,
    DeviceInfo, Discovery, Executable, ExecutableInfo, Memory, MemoryKind, Peaks, Problem, RawStream,
    RunArgs, RunError, Solver, Stream,
};

/// A backend with one device, one solver that takes every problem, and executables that write nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct NullBackend;

#[derive(Debug)]
struct NullSolver;
static SOLVER: NullSolver = NullSolver;
static SOLVERS: [&dyn Solver; 1] = [&SOLVER];

#[derive(Debug)]
struct NullDevice(DeviceInfo);

#[derive(Debug)]
struct NullExecutable(ExecutableInfo);

fn info() -> DeviceInfo {
    DeviceInfo {
        backend: "null",
        ordinal: 0,
        name: "null".into(),
        arch: "null".into(),
        toolchain: String::new(),
        compute_units: 1,
        lanes: 1,
        local_memory: 0,
        memory: 0,
    }
}

impl Backend for NullBackend {
    fn name(&self) -> &'static str {
        "null"
    }

    fn discover(&self) -> Discovery {
        Discovery { devices: vec![info()], notes: Vec::new() }
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, BackendError> {
        match ordinal {
            0 => Ok(Arc::new(NullDevice(info()))),
            _ => Err(BackendError::NoDevice { backend: "null", ordinal, count: 1 }),
        }
    }

    fn target(&self, _arch: &str) -> Result<DeviceInfo, BackendError> {
        Ok(info())
    }

    fn solvers(&self) -> &'static [&'static dyn Solver] {
        &SOLVERS
    }
}

impl Solver for NullSolver {
    fn id(&self) -> &'static str {
        "null.nothing.v1"
    }

    fn algorithm(&self) -> Algorithm {
        Algorithm::Direct
    }

    fn constraints(&self) -> &'static [Constraint] {
        &[]
    }

    fn compile(
        &self,
        _problem: &Problem,
        target: &DeviceInfo,
        _configuration: &Configuration,
    ) -> Result<Binary, BuildError> {
        Ok(Binary { solver: self.id().into(), arch: target.arch.clone(), bytes: Vec::new() })
    }

    fn load(
        &self,
        _problem: &Problem,
        _device: &Arc<dyn Device>,
        _binary: &Binary,
    ) -> Result<Arc<dyn Executable>, BuildError> {
        Ok(Arc::new(NullExecutable(ExecutableInfo {
            solver: self.id(),
            algorithm: self.algorithm(),
            kernels: 1,
            workspace: 0,
            detail: String::new(),
            resources: None,
        })))
    }
}

impl Executable for NullExecutable {
    fn info(&self) -> &ExecutableInfo {
        &self.0
    }

    unsafe fn run(&self, _stream: RawStream, _args: &RunArgs<'_>) -> Result<(), RunError> {
        Ok(())
    }
}

impl Device for NullDevice {
    fn info(&self) -> &DeviceInfo {
        &self.0
    }

    fn memory(&self) -> &dyn Memory {
        self
    }

    fn create_stream(&self) -> Result<Stream, BackendError> {
        Ok(Stream::borrowed(std::ptr::null_mut()))
    }

    fn synchronize(&self, _stream: &Stream) -> Result<(), BackendError> {
        Ok(())
    }

    fn time(
        &self,
        _stream: &Stream,
        work: &mut dyn FnMut() -> Result<(), RunError>,
    ) -> Result<Duration, RunError> {
        let start = Instant::now();
        work().map(|()| start.elapsed())
    }

    fn peaks(&self, _data_type: DataType) -> Result<Peaks, BackendError> {
        Err(BackendError::Unsupported { backend: "null", what: "measuring peaks" })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Memory for NullDevice {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Device
    }

    fn allocate(&self, _bytes: usize) -> Result<*mut c_void, BackendError> {
        Ok(std::ptr::dangling_mut::<u128>().cast())
    }

    unsafe fn free(&self, _pointer: *mut c_void, _bytes: usize) {}

    unsafe fn copy_in(
        &self,
        _target: *mut c_void,
        _source: &[u8],
        _stream: &Stream,
    ) -> Result<(), BackendError> {
        Ok(())
    }

    unsafe fn zero(&self, _target: *mut c_void, _bytes: usize, _stream: &Stream) -> Result<(), BackendError> {
        Ok(())
    }

    unsafe fn copy_out(
        &self,
        _target: &mut [u8],
        _source: *const c_void,
        _stream: &Stream,
    ) -> Result<(), BackendError> {
        Ok(())
    }
}

//! Handles, version, profiling: the "Library" and "Handle" sections of the header.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuseplan::{CompileOptions, FindMode, Handle, device::MemoryKind};

use crate::abi::{
    Bool, In, Out, export, fuseplanParallelFor_t, miopenAcceleratorQueue_t, miopenAllocatorFunction,
    miopenDeallocatorFunction, miopenTuningPolicy_t,
};
use crate::boundary::text::read_text;
use crate::parallel::{Address, ParallelLoop};
use crate::status::{Failure, Status, bad_parm, not_implemented};
use crate::table::{Ref, create, object};

/// The interface version of the header.
const VERSION: [usize; 3] = [3, 5, 0];

/// What a `miopenHandle_t` names.
#[derive(Debug)]
pub struct HandleObject {
    state: Mutex<State>,
}
object!(HandleObject, Handle);

/// C's `miopenHandle_t`.
#[allow(non_camel_case_types, reason = "MIOpen's own name")]
pub type miopenHandle_t = Ref<HandleObject>;

#[derive(Debug)]
struct State {
    /// With the stream that was set last.
    handle: Handle,
    /// The stream that was set last.
    stream: Address,
    allocator: Option<Allocator>,
    profiling: bool,
    milliseconds: f32,
    honors_scales: bool,
    policy: miopenTuningPolicy_t,
}

/// The policies that time solvers: `miopenTuningPolicyDbUpdate`, `…Search` and `…SearchDbUpdate`.
const TIMING_POLICIES: std::ops::RangeInclusive<miopenTuningPolicy_t> = 2..=4;

/// The caller's functions for memory that the caller did not provide.
#[derive(Debug, Clone, Copy)]
struct Allocator {
    allocate: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void),
    context: Address,
}

/// How many handles honour alpha and beta: while there is none, the pointers are not even read.
static HONORING: AtomicUsize = AtomicUsize::new(0);

/// Whether alpha and beta are to be read when arguments are set.
pub(crate) fn any_handle_honors_scales() -> bool {
    HONORING.load(Ordering::Acquire) != 0
}

impl HandleObject {
    /// With the caller's stream; null is the backend's default stream, as programs expect that copy and
    /// compute without naming one.
    pub(crate) fn new(handle: &Handle, stream: miopenAcceleratorQueue_t) -> Self {
        let state = State {
            handle: adopt(handle, stream),
            stream: Address(stream),
            allocator: None,
            profiling: false,
            milliseconds: 0.0,
            honors_scales: false,
            policy: 1,
        };
        HandleObject { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle to run on.
    pub(crate) fn handle(&self) -> Handle {
        self.state().handle.clone()
    }

    /// Whether executions honour alpha and beta.
    pub(crate) fn honors_scales(&self) -> bool {
        self.state().honors_scales
    }

    /// Whether the device reads host memory.
    pub(crate) fn is_host(&self) -> bool {
        self.state().handle.memory_kind() == MemoryKind::Host
    }

    /// Refuses what is done by the host itself on devices with memory of their own.
    pub(crate) fn require_host(&self, what: &str) -> Result<(), Failure> {
        if self.is_host() {
            return Ok(());
        }
        Err(not_implemented(format!("{what} is implemented for host memory only (the CPU backend)")))
    }

    /// With the stream and the tuning policy that it has now.
    pub(crate) fn pinned(&self) -> Pinned<'_> {
        let state = self.state();
        let mut options = CompileOptions::default();
        if TIMING_POLICIES.contains(&state.policy) {
            options = options.with_find(FindMode::Normal);
        }
        Pinned { object: self, handle: state.handle.clone(), options }
    }
}

/// A handle with the stream and the tuning policy that it had when a call began: others may be set meanwhile.
pub(crate) struct Pinned<'a> {
    object: &'a HandleObject,
    handle: Handle,
    options: CompileOptions,
}

impl Pinned<'_> {
    /// The handle to run on.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// How single operators choose their solver.
    pub(crate) fn options(&self) -> &CompileOptions {
        &self.options
    }

    /// Runs `work`; times it when profiling is on.
    pub(crate) fn run(&self, work: impl FnOnce(&Handle) -> Result<(), Failure>) -> Result<(), Failure> {
        let profiling = self.object.state().profiling;
        if !profiling {
            return work(&self.handle);
        }
        let (elapsed, result) = self.handle.time(|| work(&self.handle))?;
        result?;
        self.object.state().milliseconds = elapsed.as_secs_f32() * 1e3;
        Ok(())
    }

    /// [`run`](Self::run) with a workspace of `bytes` bytes from the caller's allocator.
    pub(crate) fn run_with_workspace(
        &self,
        bytes: usize,
        work: impl FnOnce(&Handle, *mut c_void) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if bytes == 0 {
            return self.run(|handle| work(handle, std::ptr::null_mut()));
        }
        let Some(allocator) = self.object.state().allocator else {
            return Err(bad_parm(format!(
                "the plan needs a workspace of {bytes} bytes; give one to miopenExecuteFusionPlan_v2, or set \
                 an allocator"
            )));
        };
        // SAFETY: the caller set these functions as a pair for this context.
        let memory = unsafe { (allocator.allocate)(allocator.context.0, bytes) };
        if memory.is_null() {
            return Err(Failure::new(
                Status::AllocFailed,
                format!("the handle's allocator gave no workspace of {bytes} bytes"),
            ));
        }
        let result = self.run(|handle| work(handle, memory));
        let waited = self.handle.synchronize();
        // SAFETY: the memory came from the pair's other function, and the stream no longer uses it.
        unsafe { (allocator.free)(allocator.context.0, memory) };
        waited?;
        result
    }
}

impl Drop for HandleObject {
    fn drop(&mut self) {
        if self.honors_scales() {
            HONORING.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// A handle with the caller's stream.
fn adopt(handle: &Handle, stream: miopenAcceleratorQueue_t) -> Handle {
    // SAFETY: the header says that the stream is of the device and outlives the handle.
    unsafe { handle.with_stream(stream) }
}

/// A backend's handle by name.
fn open(backend: In<c_char>) -> Result<Handle, Failure> {
    Ok(Handle::of_backend(&read_text(backend, "backend")?)?)
}

export! {
    fn miopenGetVersion(major: Out<usize>, minor: Out<usize>, patch: Out<usize>) {
        for (out, number) in [major, minor, patch].into_iter().zip(VERSION) {
            out.set(number);
        }
    }

    fn miopenCreate(handle: Out<miopenHandle_t>) {
        let out = handle.required("handle")?;
        out.set(create(HandleObject::new(&Handle::new()?, std::ptr::null_mut()))?);
    }

    fn miopenCreateWithStream(handle: Out<miopenHandle_t>, stream: miopenAcceleratorQueue_t) {
        let out = handle.required("handle")?;
        out.set(create(HandleObject::new(&Handle::new()?, stream))?);
    }

    fn fuseplanCreateForBackend(handle: Out<miopenHandle_t>, backend: In<c_char>) {
        let out = handle.required("handle")?;
        out.set(create(HandleObject::new(&open(backend)?, std::ptr::null_mut()))?);
    }

    fn miopenDestroy(handle: miopenHandle_t) {
        if !handle.is_null() {
            handle.remove()?;
        }
    }

    fn miopenSetStream(handle: miopenHandle_t, streamID: miopenAcceleratorQueue_t) {
        let object = handle.get()?;
        let mut state = object.state();
        state.handle = adopt(&state.handle, streamID);
        state.stream = Address(streamID);
    }

    fn miopenGetStream(handle: miopenHandle_t, streamID: Out<miopenAcceleratorQueue_t>) {
        let object = handle.get()?;
        streamID.required("streamID")?.set(object.state().stream.0);
    }

    fn miopenSetAllocator(
        handle: miopenHandle_t,
        allocator: miopenAllocatorFunction,
        deallocator: miopenDeallocatorFunction,
        allocatorContext: *mut c_void,
    ) {
        let object = handle.get()?;
        object.state().allocator = match (allocator, deallocator) {
            (Some(allocate), Some(free)) => {
                Some(Allocator { allocate, free, context: Address(allocatorContext) })
            }
            (None, None) => None,
            _ => return Err(bad_parm("allocator and deallocator must be given both or neither")),
        };
    }

    fn miopenGetKernelTime(handle: miopenHandle_t, time: Out<f32>) {
        let object = handle.get()?;
        time.required("time")?.set(object.state().milliseconds);
    }

    fn miopenEnableProfiling(handle: miopenHandle_t, enable: Bool) {
        handle.get()?.state().profiling = enable.get();
    }

    fn miopenSetTuningPolicy(handle: miopenHandle_t, newValue: miopenTuningPolicy_t) {
        let object = handle.get()?;
        if !(1..=5).contains(&newValue) {
            return Err(bad_parm(format!("{newValue} is no tuning policy; accepted: 1 to 5")));
        }
        object.state().policy = newValue;
    }

    fn miopenGetTuningPolicy(handle: miopenHandle_t, value: Out<miopenTuningPolicy_t>) {
        let object = handle.get()?;
        value.required("value")?.set(object.state().policy);
    }

    fn fuseplanSetParallelFor(
        handle: miopenHandle_t,
        threads: usize,
        parallelFor: fuseplanParallelFor_t,
        context: *mut c_void,
    ) {
        let object = handle.get()?;
        let backend = object.handle().device_info().backend;
        if backend != "cpu" {
            return Err(bad_parm(format!(
                "threads are the CPU backend's; this handle is one of the backend {backend}"
            )));
        }
        let with_threads = match ParallelLoop::new(parallelFor, context, threads) {
            Some(pool) => Handle::cpu_with_parallel_for(Arc::new(pool))
                .map_err(|error| bad_parm(error.to_string()))?,
            None => Handle::cpu(),
        };
        let mut state = object.state();
        state.handle = adopt(&with_threads, state.stream.0);
    }

    fn fuseplanSetHonorAlphaBeta(handle: miopenHandle_t, honor: Bool) {
        let object = handle.get()?;
        let mut state = object.state();
        match (state.honors_scales, honor.get()) {
            (false, true) => HONORING.fetch_add(1, Ordering::AcqRel),
            (true, false) => HONORING.fetch_sub(1, Ordering::AcqRel),
            _ => 0,
        };
        state.honors_scales = honor.get();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuning_policy_times_solvers_until_it_ends() {
        let handle = create(HandleObject::new(&Handle::cpu(), std::ptr::null_mut())).unwrap();
        let find = || handle.get().unwrap().pinned().options().find;
        assert_eq!(find(), None);
        let timed = Some(FindMode::Normal);
        for (policy, expected) in [(2, timed), (3, timed), (4, timed), (5, None), (1, None)] {
            // SAFETY: handles are any numbers.
            assert_eq!(unsafe { miopenSetTuningPolicy(handle, policy) }, 0);
            assert_eq!(find(), expected, "policy {policy}");
        }
        handle.remove().unwrap();
    }
}

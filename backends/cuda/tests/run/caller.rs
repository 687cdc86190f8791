//! The driver as a caller has it: functions that the backend does not use.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use libtest_mimic::Failed;

pub(crate) type Handle = *mut c_void;

fn call<F: Copy>(name: &str, run: impl FnOnce(F) -> c_int) -> Result<(), Failed> {
    // SAFETY: the driver is loaded already; callers state the functions' own types.
    let status = unsafe {
        let driver = libloading::Library::new(if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" })?;
        run(*driver.get::<F>(name)?)
    };
    if status == 0 { Ok(()) } else { Err(format!("{name} gave {status}").into()) }
}

/// A new context, which is then the thread's current one.
pub(crate) fn create_context(device: u32) -> Result<Handle, Failed> {
    let mut context = ptr::null_mut();
    type Create = unsafe extern "system" fn(*mut Handle, c_uint, c_int) -> c_int;
    // SAFETY: the driver is initialised and writes the context.
    call("cuCtxCreate_v2", |f: Create| unsafe { f(&mut context, 0, device as c_int) })?;
    Ok(context)
}

pub(crate) fn current_context() -> Result<Handle, Failed> {
    let mut context = ptr::null_mut();
    type Get = unsafe extern "system" fn(*mut Handle) -> c_int;
    // SAFETY: the driver is initialised and writes the context.
    call("cuCtxGetCurrent", |f: Get| unsafe { f(&mut context) })?;
    Ok(context)
}

/// Also takes it from the thread, whose current context it is.
pub(crate) fn destroy_context(context: Handle) -> Result<(), Failed> {
    type Destroy = unsafe extern "system" fn(Handle) -> c_int;
    // SAFETY: the context was created, and nothing of it is left.
    call("cuCtxDestroy_v2", |f: Destroy| unsafe { f(context) })
}

/// Makes the device's primary context the thread's current one, as the CUDA runtime does.
pub(crate) fn enter_primary(device: u32) -> Result<(), Failed> {
    let mut context = ptr::null_mut();
    type Retain = unsafe extern "system" fn(*mut Handle, c_int) -> c_int;
    type Push = unsafe extern "system" fn(Handle) -> c_int;
    // SAFETY: the driver is initialised and writes the context.
    call("cuDevicePrimaryCtxRetain", |f: Retain| unsafe { f(&mut context, device as c_int) })?;
    // SAFETY: the context was retained.
    call("cuCtxPushCurrent_v2", |f: Push| unsafe { f(context) })
}

pub(crate) fn leave_primary(device: u32) -> Result<(), Failed> {
    let mut context = ptr::null_mut();
    type Pop = unsafe extern "system" fn(*mut Handle) -> c_int;
    type Release = unsafe extern "system" fn(c_int) -> c_int;
    // SAFETY: the context was pushed and retained.
    call("cuCtxPopCurrent_v2", |f: Pop| unsafe { f(&mut context) })?;
    // SAFETY: the context was retained, and is released once.
    call("cuDevicePrimaryCtxRelease_v2", |f: Release| unsafe { f(device as c_int) })
}

pub(crate) fn create_graph() -> Result<Handle, Failed> {
    let mut graph = ptr::null_mut();
    type Create = unsafe extern "system" fn(*mut Handle, c_uint) -> c_int;
    // SAFETY: the driver writes the graph.
    call("cuGraphCreate", |f: Create| unsafe { f(&mut graph, 0) })?;
    Ok(graph)
}

/// How many nodes a graph has.
pub(crate) fn nodes(graph: Handle) -> Result<usize, Failed> {
    let mut count = 0;
    type Get = unsafe extern "system" fn(Handle, *mut Handle, *mut usize) -> c_int;
    // SAFETY: the graph is live, and without a place for nodes the driver writes their number alone.
    call("cuGraphGetNodes", |f: Get| unsafe { f(graph, ptr::null_mut(), &mut count) })?;
    Ok(count)
}

pub(crate) fn instantiate(graph: Handle) -> Result<Handle, Failed> {
    let mut executable = ptr::null_mut();
    type Instantiate = unsafe extern "system" fn(*mut Handle, Handle, u64) -> c_int;
    // SAFETY: the graph is live.
    call("cuGraphInstantiateWithFlags", |f: Instantiate| unsafe { f(&mut executable, graph, 0) })?;
    Ok(executable)
}

pub(crate) fn launch(executable: Handle, stream: Handle) -> Result<(), Failed> {
    type Launch = unsafe extern "system" fn(Handle, Handle) -> c_int;
    // SAFETY: both are live.
    call("cuGraphLaunch", |f: Launch| unsafe { f(executable, stream) })
}

pub(crate) fn destroy_graph(graph: Handle, executable: Handle) -> Result<(), Failed> {
    type Destroy = unsafe extern "system" fn(Handle) -> c_int;
    // SAFETY: both are live and destroyed once.
    call("cuGraphExecDestroy", |f: Destroy| unsafe { f(executable) })?;
    // SAFETY: the graph is live and destroyed once.
    call("cuGraphDestroy", |f: Destroy| unsafe { f(graph) })
}

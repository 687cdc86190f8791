//! A driver without a device, which notes what the thread asks of it.

use std::cell::RefCell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use fuseplan_api::*;
use fuseplan_fakes::NullBackend;

use crate::*;

/// Its compiler makes of a text the text.
#[derive(Debug)]
pub(crate) struct FakeDriver;

thread_local! {
    static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// What the thread has asked of the driver since it was asked this.
pub(crate) fn calls() -> Vec<String> {
    CALLS.take()
}

/// Notes a call, and makes an object whose address is its number.
fn note(call: impl Into<String>) -> *mut c_void {
    CALLS.with_borrow_mut(|calls| {
        calls.push(call.into());
        ptr::without_provenance_mut(calls.len())
    })
}

const NULL: *mut c_void = ptr::null_mut();

/// A function of a vendor's that makes nothing.
unsafe fn done(call: impl Into<String>) -> Result<(), BackendError> {
    note(call);
    Ok(())
}

/// One that makes something.
unsafe fn made(call: impl Into<String>, place: *mut *mut c_void) -> Result<(), BackendError> {
    // SAFETY: as promised by the caller.
    unsafe { place.write(note(call)) };
    Ok(())
}

macro_rules! call {
    ($place:ident = $call:expr) => {
        made($call, $place)
    };
    ($call:expr) => {
        done($call)
    };
}

impl Drop for FakeDriver {
    fn drop(&mut self) {
        note("close");
    }
}

impl Runtime for FakeDriver {
    const VENDOR: &'static str = "";
    const IS_FITTED: bool = true;
    const SCRATCH: bool = true;

    fn units(_arch: &str) -> usize {
        2
    }

    fn cluster(_arch: &str) -> Option<&'static str> {
        None
    }

    fn products(_data_type: DataType, _arch: &str) -> Probe {
        Probe::fma::<Self>()
    }

    fn compile(source: &str, arch: &str) -> Result<Compiled, CompileFailure> {
        match arch {
            "broken" => Err(CompileFailure::Log("line 1: no".into())),
            _ => Ok(Compiled { image: source.as_bytes().into(), log: String::new() }),
        }
    }
}

impl Driver for FakeDriver {
    const BACKEND: &'static str = "null";
    type Before = ();

    fn count() -> Result<u32, BackendError> {
        Ok(1)
    }
    fn describe(_: u32) -> Result<DeviceInfo, BackendError> {
        NullBackend.target("")
    }
    fn open(_: u32) -> Result<Self, BackendError> {
        Ok(FakeDriver)
    }
    fn enter(&self) -> Result<(), BackendError> {
        note("enter");
        Ok(())
    }
    unsafe fn leave(&self, (): &()) {
        note("leave");
    }

    unsafe fn with_scratch(
        &self,
        _stream: RawStream,
        bytes: usize,
        launch: &mut dyn FnMut(*mut c_void) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        launch(note(format!("with_scratch {bytes}")))
    }

    calls! { call:
        fn allocate(_bytes: usize) -> (memory: *mut c_void = NULL) { memory = "allocate" }
        fn free(_memory: *mut c_void) { "free" }
        fn copy_in(_target: *mut c_void, _source: &[u8], _stream: RawStream) { "copy_in" }
        fn copy_out(_target: &mut [u8], _source: *const c_void, _stream: RawStream) { "copy_out" }
        fn zero(_target: *mut c_void, _bytes: usize, _stream: RawStream) { "zero" }
        fn create_stream() -> (stream: RawStream = NULL) { stream = "create_stream" }
        fn destroy_stream(_stream: RawStream) { "destroy_stream" }
        fn synchronize(_stream: RawStream) { "synchronize" }
        fn create_event() -> (event: RawEvent = NULL) { event = "create_event" }
        fn destroy_event(_event: RawEvent) { "destroy_event" }
        fn record(_event: RawEvent, _stream: RawStream) { "record" }
        fn wait_for(_event: RawEvent) { "wait_for" }
        fn milliseconds(_start: RawEvent, _end: RawEvent) -> (_time: f32 = 0.5) { "milliseconds" }
        fn load(image: &[u8]) -> (module: RawModule = NULL) {
            module = format!("load {}", String::from_utf8_lossy(image))
        }
        fn unload(_module: RawModule) { "unload" }
        fn function(_module: RawModule, name: &CStr) -> (function: RawFunction = NULL) {
            function = name.to_string_lossy()
        }
        fn allow_shared(_function: RawFunction, bytes: u32) { format!("allow_shared {bytes}") }
        fn attribute(_function: RawFunction, _attribute: Attribute) -> (_value: c_int = 32) { "attribute" }
        fn resident(_function: RawFunction, _geometry: &Geometry) -> (_blocks: c_int = 2) { "resident" }
        fn launch(_function: RawFunction, _geometry: &Geometry, arguments: &[u64], _stream: RawStream) {
            format!("launch {arguments:?}")
        }
        fn begin_capture(_stream: RawStream) { "begin_capture" }
        fn end_capture(_stream: RawStream) -> (graph: RawGraph = NULL) { graph = "end_capture" }
        fn add_child(_graph: RawGraph, _behind: &[RawNode], _child: RawGraph) -> (node: RawNode = NULL) {
            node = "add_child"
        }
        fn set_child(_executable: RawGraphExec, _node: RawNode, _child: RawGraph) { "set_child" }
        fn instantiate(_graph: RawGraph) -> (executable: RawGraphExec = NULL) { executable = "instantiate" }
        fn launch_graph(_executable: RawGraphExec, _stream: RawStream) { "launch_graph" }
        fn destroy_graph(_graph: RawGraph) { "destroy_graph" }
        fn destroy_executable(_executable: RawGraphExec) { "destroy_executable" }
    }
}

#[test]
fn an_image_is_loaded_once_and_its_limit_of_shared_memory_only_rises() {
    let device = GpuDevice::<FakeDriver>::open(0).unwrap();
    calls();
    for shared in [0, 64, 32, 96] {
        let geometry = Geometry { grid: [1, 1, 1], block: 32, shared };
        device.load(b"image", &geometry).unwrap();
    }
    let found = calls().into_iter().filter(|call| call.contains(' '));
    assert_eq!(found.collect::<Vec<_>>(), ["load image", "allow_shared 64", "allow_shared 96"]);
}

/// Whatever was made of a device keeps it, and its modules are unloaded in its context before the driver is closed.
#[test]
fn the_last_user_of_a_device_closes_it() {
    let geometry = Geometry { grid: [1, 1, 1], block: 32, shared: 0 };
    for last in 0..3 {
        let device = GpuDevice::<FakeDriver>::open(0).unwrap();
        let mut users: Vec<Box<dyn std::any::Any>> = vec![
            Box::new(device.create_stream().unwrap()),
            Box::new(device.load(b"image", &geometry).unwrap()),
            Box::new(Graph::capture(&device, |_| Ok::<_, BackendError>(())).unwrap()),
        ];
        drop(device);
        let user = users.swap_remove(last);
        drop(users);
        assert!(!calls().iter().any(|call| call == "unload" || call == "close"));
        drop(user);
        let closed = calls();
        assert_eq!(closed[closed.len() - 4..], ["enter", "unload", "leave", "close"], "{last}");
    }
}

/// Times are between events that are made, recorded and ended in one stay in the context.
#[test]
fn work_is_timed_between_two_events() {
    let device = GpuDevice::<FakeDriver>::open(0).unwrap();
    let stream = device.create_stream().unwrap();
    calls();
    let took = device.time(&stream, &mut || {
        note("work");
        Ok(())
    });
    assert_eq!(took.unwrap().as_micros(), 500);
    let expected = [
        "enter",
        "create_event",
        "create_event",
        "record",
        "work",
        "record",
        "wait_for",
        "milliseconds",
        "destroy_event",
        "destroy_event",
        "leave",
    ];
    assert_eq!(calls(), expected);
}

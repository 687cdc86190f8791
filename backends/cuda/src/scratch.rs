//! Memory that launches of one stream use one after the other: what one writes for the next.
//!
//! Each stream has its own, as its launches follow each other. What is captured runs whenever the graph is launched, also beside the
//! stream's own work, so a graph has memory of its own for each stream that was captured. The driver says when it is gone: by a
//! user object, which the graph and all that is made of it refer to. All executable graphs of one graph have the same memory, so that
//! a caller runs one of them at a time. Memory that its owner is done with, but graphs may still read, is left here in the same way.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{mem, ptr};

use fuseplan_api::{BackendError, RawStream};
use fuseplan_gpu::{Driver, Object};

use crate::context::Cuda;
use crate::driver::call;
use crate::sys::{self, Opaque};

/// The memory of a device's streams and graphs; of a stream's what was used last is last.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Mutex<Vec<Room>>);

/// Of so many streams memory is kept, as a program may make many of which none says that it is gone.
const MOST_STREAMS: usize = 8;

#[derive(Debug)]
struct Room {
    /// A number that no other stream has or had, in the capture if it is captured; none where memory is only read.
    stream: Option<u64>,
    /// Those that use it: one of a captured stream, some of what is only read.
    graphs: Vec<OfGraph>,
    address: Object,
    bytes: usize,
}

/// A graph that was captured, and all that is made of it.
#[derive(Debug)]
pub(crate) struct OfGraph {
    /// A number that no other capture has or had.
    capture: u64,
    /// Set by the driver.
    is_gone: Arc<AtomicBool>,
}

impl OfGraph {
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    pub(crate) fn is_of(&self, capture: &Capture) -> bool {
        self.capture == capture.id
    }
}

/// Memory for what is launched into a stream before this is dropped.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    address: *mut c_void,
    /// Nobody else launches what uses it meanwhile.
    _rooms: MutexGuard<'a, Vec<Room>>,
}

impl Held<'_> {
    pub(crate) fn address(&self) -> *mut c_void {
        self.address
    }
}

impl Scratch {
    /// At least as many bytes for what is launched into the stream next. What belonged to graphs that are gone is given back when
    /// memory is allocated, and what belonged to streams when others have been used since.
    ///
    /// # Errors
    /// Out of memory; the driver lacks a function, or refuses.
    ///
    /// # Safety
    /// The driver's context is current, the stream is a live one of it, `capture` is what [`Capture::of`] gives of it, and the memory
    /// is used by nothing but what is launched into the stream while the result lives.
    pub(crate) unsafe fn hold(
        &self,
        driver: &Cuda,
        stream: RawStream,
        capture: Option<Capture>,
        bytes: usize,
    ) -> Result<Held<'_>, BackendError> {
        let number = match &capture {
            // The driver does not tell its number meanwhile; its address is no other stream's before the capture ends.
            Some(_) => stream.addr() as u64,
            // SAFETY: as promised by the caller.
            None => unsafe { number(stream) }?,
        };
        let of_stream = |room: &Room| {
            (room.stream, room.capture()) == (Some(number), capture.as_ref().map(|capture| capture.id))
        };
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = rooms.iter().position(|room| of_stream(room) && room.bytes >= bytes);
        let room = if let Some(at) = found {
            rooms.remove(at)
        } else {
            let _relaxed = Relaxed::begin()?;
            // The driver waits for the device's work before it gives memory away.
            rooms.extract_if(.., |room| room.is_gone()).for_each(|room| room.free(driver));
            let mut of_streams = rooms.iter().enumerate().filter(|(_, room)| room.graphs.is_empty());
            if capture.is_none() && of_streams.clone().count() >= MOST_STREAMS {
                let oldest = of_streams.next().map(|(at, _)| at);
                oldest.into_iter().for_each(|at| rooms.remove(at).free(driver));
            }
            // SAFETY: the context is current.
            let address = unsafe { driver.allocate(bytes) }?;
            // A stream's larger memory takes the place of its own, which it has kept if there is no larger one.
            let own = rooms.extract_if(.., |room| capture.is_none() && of_stream(room));
            own.for_each(|room| room.free(driver));
            let mut room = Room { stream: Some(number), graphs: Vec::new(), address: Object(address), bytes };
            match capture.as_ref().map(Capture::retain).transpose() {
                Ok(graph) => room.graphs.extend(graph),
                Err(error) => {
                    room.free(driver);
                    return Err(error);
                }
            }
            room
        };
        let address = room.address.0;
        rooms.push(room);
        Ok(Held { address, _rooms: rooms })
    }

    /// Takes memory over that the driver gave and that graphs may read.
    pub(crate) fn leave(&self, address: Object, bytes: usize, graphs: Vec<OfGraph>) {
        let room = Room { stream: None, graphs, address, bytes };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(room);
    }

    /// Gives back what belonged to graphs that are gone.
    ///
    /// # Errors
    /// The driver lacks a function, or refuses.
    pub(crate) fn free_gone(&self, driver: &Cuda) -> Result<(), BackendError> {
        let _relaxed = Relaxed::begin()?;
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.extract_if(.., |room| room.is_gone()).for_each(|room| room.free(driver));
        Ok(())
    }

    pub(crate) fn is_empty(&mut self) -> bool {
        self.rooms().is_empty()
    }

    /// Gives all memory back. What was launched with it has been launched, and graphs that use it are not launched any more.
    pub(crate) fn free(&mut self, driver: &Cuda) {
        mem::take(self.rooms()).into_iter().for_each(|room| room.free(driver));
    }

    fn rooms(&mut self) -> &mut Vec<Room> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    fn is_gone(&self) -> bool {
        !self.graphs.is_empty() && self.graphs.iter().all(OfGraph::is_gone)
    }

    fn capture(&self) -> Option<u64> {
        self.graphs.first().map(|graph| graph.capture)
    }

    /// Of a driver that refuses nobody could be told.
    fn free(self, driver: &Cuda) {
        // SAFETY: the memory was allocated, and is freed once.
        let _ = unsafe { driver.free(self.address.0) };
    }
}

/// A number that no other stream of the context has or had.
///
/// # Safety
/// The stream's context is current, and it is a live one that is not being captured.
unsafe fn number(stream: RawStream) -> Result<u64, BackendError> {
    let mut number = 0;
    // SAFETY: as promised by the caller; the driver writes the number.
    unsafe { call!(cuStreamGetId(stream, &mut number)) }.map(|()| number)
}

/// A capture that is under way.
pub(crate) struct Capture {
    id: u64,
    graph: Opaque,
}

impl Capture {
    /// Of a stream, if it is being captured.
    ///
    /// # Errors
    /// The driver lacks the function, or refuses.
    ///
    /// # Safety
    /// The stream's context is current, and it is a live one.
    pub(crate) unsafe fn of(stream: RawStream) -> Result<Option<Self>, BackendError> {
        let (mut status, mut capture) = (0, Capture { id: 0, graph: ptr::null_mut() });
        let (id, graph) = (&mut capture.id, &mut capture.graph);
        // SAFETY: as promised by the caller; the driver writes what has a place.
        unsafe {
            call!(cuStreamGetCaptureInfo_v2(stream, &mut status, id, graph, ptr::null_mut(), ptr::null_mut()))
        }?;
        Ok((status != sys::CU_STREAM_CAPTURE_STATUS_NONE).then_some(capture))
    }

    /// Has the graph say when it is gone.
    ///
    /// # Errors
    /// The driver lacks the function, or refuses.
    pub(crate) fn retain(&self) -> Result<OfGraph, BackendError> {
        /// # Safety
        /// What is given is a strong reference to a flag, which is taken over.
        unsafe extern "C" fn gone(flag: *mut c_void) {
            // SAFETY: as promised by the caller.
            unsafe { Arc::from_raw(flag.cast::<AtomicBool>().cast_const()) }.store(true, Ordering::Release);
        }
        let is_gone = Arc::new(AtomicBool::new(false));
        let flag = Arc::into_raw(is_gone.clone()).cast_mut().cast();
        let mut object = ptr::null_mut();
        // SAFETY: the driver writes the object, and calls the function once with the flag when nothing refers to it.
        let created = unsafe {
            call!(cuUserObjectCreate(&mut object, flag, gone, 1, sys::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC))
        };
        if let Err(error) = created {
            // SAFETY: there is no object that would do it.
            unsafe { gone(flag) };
            return Err(error);
        }
        // SAFETY: the graph is being captured; it takes over the only reference to the object.
        let retained =
            unsafe { call!(cuGraphRetainUserObject(self.graph, object, 1, sys::CU_GRAPH_USER_OBJECT_MOVE)) };
        if let Err(error) = retained {
            // SAFETY: the reference is still ours.
            let _ = unsafe { call!(cuUserObjectRelease(object, 1)) };
            return Err(error);
        }
        Ok(OfGraph { capture: self.id, is_gone })
    }
}

/// The time in which this thread may allocate though some stream is being captured.
struct Relaxed(c_int);

impl Relaxed {
    fn begin() -> Result<Self, BackendError> {
        Self::exchange(sys::CU_STREAM_CAPTURE_MODE_RELAXED).map(Relaxed)
    }

    /// Sets the thread's mode, and returns what it was.
    fn exchange(mut mode: c_int) -> Result<c_int, BackendError> {
        // SAFETY: the driver reads and writes the mode.
        unsafe { call!(cuThreadExchangeStreamCaptureMode(&mut mode)) }.map(|()| mode)
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        let _ = Self::exchange(self.0);
    }
}

//! Memory that launches of one stream use one after the other: what one writes for the next.
//!
//! Each stream has its own, as its launches follow each other. What is captured runs whenever the graph is launched, also beside the
//! stream's own work, so a graph has memory of its own for each stream that was captured. The driver says when it is gone: by a
//! user object, which the graph and all that is made of it refer to. All executable graphs of one graph have the same memory, so that
//! a caller runs one of them at a time. Memory that its owner is done with, but graphs may still read, is left here in the same way.

use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuseplan_api::{BackendError, RawGraph, RawStream};

use crate::{Driver, Object};

/// What a driver's functions do for [`Scratch`].
///
/// # Safety
/// As for [`Driver`].
#[allow(clippy::missing_safety_doc, reason = "said once, for all of them")]
#[allow(clippy::missing_errors_doc, reason = "the driver is missing, lacks the function, or refuses")]
pub trait ScratchDriver: Driver {
    /// A number of a stream that is not being captured, which no other stream has before all work in this one is done.
    unsafe fn stream_number(&self, stream: RawStream) -> Result<u64, BackendError>;

    /// The capture of a stream, if it is being captured.
    unsafe fn capture_of(&self, stream: RawStream) -> Result<Option<Capture>, BackendError>;

    /// Sets what the thread may do while some stream is being captured, and gives what it might before.
    unsafe fn exchange_capture_mode(&self, mode: c_int) -> Result<c_int, BackendError>;

    /// Whether all that is made of a graph refers to the graph's user objects. Where it does not, nobody tells when memory is used no
    /// more, and what graphs use is kept.
    fn copies_user_objects(&self) -> bool {
        true
    }

    /// A user object with one reference, which has the driver call `destroy` with `data` when nothing refers to it.
    unsafe fn create_user_object(
        &self,
        data: *mut c_void,
        destroy: unsafe extern "C" fn(*mut c_void),
    ) -> Result<RawUserObject, BackendError>;

    /// Moves the one reference to a graph, and so to all that is made of it.
    unsafe fn give_user_object(&self, graph: RawGraph, object: RawUserObject) -> Result<(), BackendError>;

    /// Gives the one reference up.
    unsafe fn release_user_object(&self, object: RawUserObject) -> Result<(), BackendError>;
}

/// A driver's user object: `CUuserObject`, `hipUserObject_t`.
pub type RawUserObject = *mut c_void;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`, `hipStreamCaptureModeRelaxed`.
const RELAXED: c_int = 2;

/// The memory of a device's streams and graphs; of a stream's what was used last is last.
#[derive(Debug, Default)]
pub struct Scratch(Mutex<Vec<Room>>);

/// Of so many streams memory is kept, as a program may make many of which none says that it is gone.
const MOST_STREAMS: usize = 8;

#[derive(Debug)]
struct Room {
    /// What [`ScratchDriver::stream_number`] gives, the stream's address if it is captured; none where memory is only read.
    stream: Option<u64>,
    /// Those that use it: one of a captured stream, some of what is only read.
    graphs: Vec<OfGraph>,
    address: Object,
    bytes: usize,
}

/// A graph that was captured, and all that is made of it.
#[derive(Debug)]
pub struct OfGraph {
    /// A number that no other capture has or had.
    capture: u64,
    /// Set by the driver.
    is_gone: Arc<AtomicBool>,
}

impl OfGraph {
    /// Whether all of that is gone.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Whether it came of this capture.
    pub fn is_of(&self, capture: &Capture) -> bool {
        self.capture == capture.id
    }
}

/// Memory for what is launched into a stream before this is dropped.
#[derive(Debug)]
pub struct Held<'a> {
    address: *mut c_void,
    /// Nobody else launches what uses it meanwhile.
    _rooms: MutexGuard<'a, Vec<Room>>,
}

impl Held<'_> {
    /// The memory's address.
    pub fn address(&self) -> *mut c_void {
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
    /// The driver's context is current, the stream is a live one of it, `capture` is what [`ScratchDriver::capture_of`] gives of it, and the memory
    /// is used by nothing but what is launched into the stream while the result lives.
    pub unsafe fn hold<D: ScratchDriver>(
        &self,
        driver: &D,
        stream: RawStream,
        capture: Option<Capture>,
        bytes: usize,
    ) -> Result<Held<'_>, BackendError> {
        let number = match &capture {
            // The driver does not tell its number meanwhile; its address is no other stream's before the capture ends.
            Some(_) => stream.addr() as u64,
            // SAFETY: as promised by the caller.
            None => unsafe { driver.stream_number(stream) }?,
        };
        let of_stream = |room: &Room| {
            (room.stream, room.capture()) == (Some(number), capture.as_ref().map(|capture| capture.id))
        };
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = rooms.iter().position(|room| of_stream(room) && room.bytes >= bytes);
        let room = if let Some(at) = found {
            rooms.remove(at)
        } else {
            // SAFETY: the context is current.
            let _relaxed = unsafe { Relaxed::begin(driver) }?;
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
            // SAFETY: the context is current, and the stream is being captured.
            let retained = capture.as_ref().map(|capture| unsafe { capture.retain(driver) });
            match retained.transpose() {
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
    pub fn leave(&self, address: Object, bytes: usize, graphs: Vec<OfGraph>) {
        let room = Room { stream: None, graphs, address, bytes };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(room);
    }

    /// Gives back what belonged to graphs that are gone.
    ///
    /// # Errors
    /// The driver lacks a function, or refuses.
    ///
    /// # Safety
    /// The driver's context is current.
    pub unsafe fn free_gone<D: ScratchDriver>(&self, driver: &D) -> Result<(), BackendError> {
        // SAFETY: as promised by the caller.
        let _relaxed = unsafe { Relaxed::begin(driver) }?;
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.extract_if(.., |room| room.is_gone()).for_each(|room| room.free(driver));
        Ok(())
    }

    /// Keeps what captured graphs use for good: where their launches were copied, and what tells that they are gone was not.
    pub fn keep(&self) {
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for graph in rooms.iter_mut().flat_map(|room| &mut room.graphs).filter(|graph| !graph.is_gone()) {
            // Nobody sets this one.
            graph.is_gone = Arc::default();
        }
    }

    /// Gives all memory back. What was launched with it has been launched, and graphs that use it are not launched any more.
    pub fn end<D: ScratchDriver>(&mut self, driver: &D) {
        let rooms = mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner));
        if rooms.is_empty() {
            return;
        }
        // Memory knows its context: where that cannot be entered it is given back all the same.
        let entered = driver.enter();
        rooms.into_iter().for_each(|room| room.free(driver));
        if let Ok(before) = entered {
            // SAFETY: it was entered above.
            unsafe { driver.leave(&before) };
        }
    }

    /// [`Driver::with_scratch`] with this memory.
    ///
    /// # Errors
    /// As for [`hold`](Self::hold), and those of `launch`.
    ///
    /// # Safety
    /// As for [`Driver::with_scratch`].
    pub unsafe fn with<D: ScratchDriver>(
        &self,
        driver: &D,
        stream: RawStream,
        bytes: usize,
        launch: &mut dyn FnMut(*mut c_void) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        // SAFETY: as promised by the caller.
        let capture = unsafe { driver.capture_of(stream) }?;
        // SAFETY: the same; what is launched while the memory is held is the stream's.
        let held = unsafe { self.hold(driver, stream, capture, bytes) }?;
        launch(held.address())
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
    fn free<D: ScratchDriver>(self, driver: &D) {
        // SAFETY: the memory was allocated, and is freed once.
        let _ = unsafe { driver.free(self.address.0) };
    }
}

/// A capture that is under way.
#[derive(Debug)]
pub struct Capture {
    /// A number that no other capture has or had.
    pub id: u64,
    /// What is recorded.
    pub graph: Object,
}

impl Capture {
    /// Has the graph say when it is gone, if it can.
    ///
    /// # Errors
    /// The driver lacks the function, or refuses.
    ///
    /// # Safety
    /// The driver's context is current, and the capture is still under way.
    pub unsafe fn retain<D: ScratchDriver>(&self, driver: &D) -> Result<OfGraph, BackendError> {
        /// # Safety
        /// What is given is a strong reference to a flag, which is taken over.
        unsafe extern "C" fn gone(flag: *mut c_void) {
            // SAFETY: as promised by the caller.
            unsafe { Arc::from_raw(flag.cast::<AtomicBool>().cast_const()) }.store(true, Ordering::Release);
        }
        if !driver.copies_user_objects() {
            return Ok(OfGraph { capture: self.id, is_gone: Arc::default() });
        }
        let is_gone = Arc::new(AtomicBool::new(false));
        let flag = Arc::into_raw(is_gone.clone()).cast_mut().cast();
        // SAFETY: the driver calls the function once with the flag when nothing refers to the object.
        let object = match unsafe { driver.create_user_object(flag, gone) } {
            Ok(object) => object,
            Err(error) => {
                // SAFETY: there is no object that would do it.
                unsafe { gone(flag) };
                return Err(error);
            }
        };
        // SAFETY: the graph is being captured; it takes over the only reference to the object.
        if let Err(error) = unsafe { driver.give_user_object(self.graph.0, object) } {
            // SAFETY: the reference is still ours.
            let _ = unsafe { driver.release_user_object(object) };
            return Err(error);
        }
        Ok(OfGraph { capture: self.id, is_gone })
    }
}

/// The time in which this thread may allocate though some stream is being captured.
struct Relaxed<'a, D: ScratchDriver> {
    driver: &'a D,
    before: c_int,
}

impl<'a, D: ScratchDriver> Relaxed<'a, D> {
    /// # Safety
    /// The driver's context is current until the result is dropped.
    unsafe fn begin(driver: &'a D) -> Result<Self, BackendError> {
        // SAFETY: as promised by the caller.
        let before = unsafe { driver.exchange_capture_mode(RELAXED) }?;
        Ok(Relaxed { driver, before })
    }
}

impl<D: ScratchDriver> Drop for Relaxed<'_, D> {
    fn drop(&mut self) {
        // SAFETY: as promised when it began.
        let _ = unsafe { self.driver.exchange_capture_mode(self.before) };
    }
}

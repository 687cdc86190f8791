//! What the runtime knows: devices, calls, wishes to fail, and what is in use.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::graph::Graph;
use crate::launch::Launch;

/// Things that are made and given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Event,
    Graph,
    GraphExec,
    Memory,
    Module,
    Program,
    Stream,
    UserObject,
}

/// A stream's capture.
#[derive(Debug)]
pub(crate) struct Capture {
    /// What it lets threads do meanwhile.
    pub(crate) mode: u32,
    /// The graph that it makes.
    pub(crate) graph: usize,
    /// What was launched into the stream since it began.
    pub(crate) launches: Vec<Launch>,
}

/// What graphs refer to, and who is told of its end.
#[derive(Debug)]
pub(crate) struct UserObject {
    /// The graphs that refer to it, also those that can be launched; 0 is the program.
    pub(crate) owners: Vec<usize>,
    pub(crate) data: usize,
    pub(crate) destroy: unsafe extern "C" fn(*mut c_void),
}

/// The runtime's state.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Every call since the last reset.
    pub(crate) calls: Vec<&'static str>,
    /// How many of them were a function's.
    counts: HashMap<&'static str, usize>,
    /// A function, which of its calls since the last reset fail, and the number that they return.
    failure: Option<(String, Range<usize>, u32)>,
    /// What is in use: by address, its kind and, for memory, its bytes.
    pub(crate) live: BTreeMap<usize, (Kind, usize)>,
    /// Modules: the shared object of their kernel, if kernels run.
    pub(crate) modules: HashMap<usize, Module>,
    /// By stream.
    pub(crate) captures: HashMap<usize, Capture>,
    /// By address.
    pub(crate) user_objects: HashMap<usize, UserObject>,
    /// Graphs, and those that can be launched.
    pub(crate) graphs: HashMap<usize, Graph>,
    next: usize,
}

/// A loaded code object.
#[derive(Debug, Clone)]
pub(crate) struct Module {
    pub(crate) device: i32,
    pub(crate) object: Option<String>,
}

/// `hipStreamCaptureModeRelaxed`: whatever there is.
pub(crate) const RELAXED: u32 = 2;

thread_local! {
    /// The thread's current device.
    pub(crate) static DEVICE: Cell<i32> = const { Cell::new(0) };
    /// What it may do while a stream is being captured.
    pub(crate) static MODE: Cell<u32> = const { Cell::new(0) };
}

pub(crate) fn state() -> MutexGuard<'static, State> {
    static STATE: OnceLock<Mutex<State>> = OnceLock::new();
    STATE.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Forgets calls; these calls of a function, if it has a name, fail from now on.
    pub(crate) fn reset(&mut self, function: String, calls: Range<usize>, number: u32) {
        self.calls.clear();
        self.counts.clear();
        self.failure = (!function.is_empty()).then_some((function, calls, number));
    }

    /// Notes a call; the number that it is to return, if it is to fail.
    pub(crate) fn begin(&mut self, name: &'static str) -> Option<u32> {
        self.calls.push(name);
        let count = self.counts.entry(name).or_default();
        let nth = *count;
        *count += 1;
        let (function, calls, number) = self.failure.as_ref()?;
        (function == name && calls.contains(&nth)).then_some(*number)
    }

    /// An address that nothing else has.
    pub(crate) fn address(&mut self) -> usize {
        self.next += 1;
        0xfa4e_0000_0000 + self.next * 64
    }

    /// A new thing that is only an address.
    pub(crate) fn make(&mut self, kind: Kind) -> usize {
        let address = self.address();
        self.live.insert(address, (kind, 0));
        address
    }

    pub(crate) fn is_live(&self, address: usize, kind: Kind) -> bool {
        self.live.get(&address).is_some_and(|(found, _)| *found == kind)
    }

    /// Gives a thing back; whether it was one.
    pub(crate) fn end(&mut self, address: usize, kind: Kind) -> bool {
        self.is_live(address, kind) && self.live.remove(&address).is_some()
    }

    /// Gives a graph back, or one that can be launched; whether it was one.
    pub(crate) fn end_graph(&mut self, address: usize, kind: Kind) -> bool {
        if !self.end(address, kind) {
            return false;
        }
        self.graphs.remove(&address);
        self.leave(address);
        true
    }

    /// Whatever the first refers to, the second does too.
    pub(crate) fn refer_alike(&mut self, from: usize, to: usize) {
        for object in self.user_objects.values_mut().filter(|object| object.owners.contains(&from)) {
            object.owners.push(to);
        }
    }

    /// An owner no longer refers to anything.
    pub(crate) fn leave(&mut self, owner: usize) {
        let live = &mut self.live;
        self.user_objects.retain(|address, object| {
            object.owners.retain(|&of| of != owner);
            let is_owned = !object.owners.is_empty();
            if !is_owned {
                live.remove(address);
                // SAFETY: the program gave both for this; it is called once.
                unsafe { (object.destroy)(object.data as *mut c_void) };
            }
            is_owned
        });
    }

    /// Whether bytes are all of one piece of memory.
    pub(crate) fn has(&self, address: usize, bytes: usize) -> bool {
        let at = self.live.range(..=address).next_back();
        at.is_some_and(|(start, (kind, size))| *kind == Kind::Memory && address + bytes <= start + size)
    }
}

/// The devices' architectures.
pub(crate) fn archs() -> &'static [String] {
    static ARCHS: OnceLock<Vec<String>> = OnceLock::new();
    ARCHS.get_or_init(|| {
        let list = std::env::var("FAKE_HIP_ARCHS").unwrap_or("gfx942:sramecc+:xnack-".into());
        list.split_whitespace().map(String::from).collect()
    })
}

/// Threads of a wave.
pub(crate) fn wave(arch: &str) -> i32 {
    if arch.starts_with("gfx9") { 64 } else { 32 }
}

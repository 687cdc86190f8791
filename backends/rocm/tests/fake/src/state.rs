//! What the runtime knows: devices, calls, wishes to fail, and what is in use.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
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
    /// Streams under capture: what was launched into them since.
    pub(crate) captures: HashMap<usize, Vec<Launch>>,
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

thread_local! {
    /// The thread's current device.
    pub(crate) static DEVICE: Cell<i32> = const { Cell::new(0) };
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

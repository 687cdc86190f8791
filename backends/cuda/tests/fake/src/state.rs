//! What the driver knows of its objects.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) type Result<T> = std::result::Result<T, c_int>;

pub(crate) const INVALID_VALUE: c_int = 1;
pub(crate) const INVALID_DEVICE: c_int = 101;
pub(crate) const INVALID_CONTEXT: c_int = 201;
pub(crate) const NO_BINARY: c_int = 209;
pub(crate) const INVALID_HANDLE: c_int = 400;
pub(crate) const NOT_FOUND: c_int = 500;
pub(crate) const CAPTURE_UNSUPPORTED: c_int = 900;
pub(crate) const CAPTURE_INVALID: c_int = 901;

/// Compute capabilities of the devices.
pub(crate) const DEVICES: [(c_int, c_int); 2] = [(9, 0), (8, 0)];

/// An object, by the address that the caller has.
pub(crate) struct Object {
    pub(crate) kind: &'static str,
    /// The context that it belongs to; of a context its device.
    pub(crate) context: usize,
    /// Memory: its bytes. Stream: the graph that it is captured into. Event: 1 when it was recorded. Graph:
    /// its launches. Primary context: its users.
    pub(crate) value: usize,
}

/// What graphs refer to, and what is told of its end.
pub(crate) struct UserObject {
    /// The graphs and executables that refer to it; 0 is the caller.
    pub(crate) owners: Vec<usize>,
    pub(crate) data: usize,
    pub(crate) destroy: unsafe extern "C" fn(*mut c_void),
}

pub(crate) struct State {
    /// Calls until the one that fails, and its status.
    pub(crate) fault: (u64, c_int),
    pub(crate) failed: Option<&'static str>,
    pub(crate) called: BTreeSet<&'static str>,
    pub(crate) objects: BTreeMap<usize, Object>,
    pub(crate) launches: [u64; DEVICES.len()],
    /// Programs of NVRTC.
    pub(crate) programs: usize,
    pub(crate) user_objects: BTreeMap<usize, UserObject>,
    next: usize,
}

pub(crate) fn state() -> MutexGuard<'static, State> {
    static STATE: Mutex<State> = Mutex::new(State {
        fault: (0, 0),
        failed: None,
        called: BTreeSet::new(),
        objects: BTreeMap::new(),
        launches: [0; DEVICES.len()],
        programs: 0,
        user_objects: BTreeMap::new(),
        next: 0,
    });
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The thread's contexts, the current one last.
    pub(crate) static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// How the thread treats captures of others.
    pub(crate) static MODE: Cell<c_int> = const { Cell::new(0) };
}

impl State {
    /// Counts a call; an error if it is the one that fails.
    pub(crate) fn count(&mut self, name: &'static str) -> Result<()> {
        self.called.insert(name);
        let (left, status) = self.fault;
        match left {
            0 => Ok(()),
            1 => {
                self.fault = (0, 0);
                self.failed = Some(name);
                Err(status)
            }
            _ => {
                self.fault = (left - 1, status);
                Ok(())
            }
        }
    }

    pub(crate) fn live(&self) -> String {
        let mut words: Vec<_> = self.objects.values().map(|object| object.kind.to_string()).collect();
        words.extend((0..self.programs).map(|_| "program".to_string()));
        words.extend(self.user_objects.values().map(|_| "user_object".to_string()));
        let depth = STACK.with_borrow(Vec::len);
        if depth != 0 {
            words.push(format!("depth={depth}"));
        }
        if MODE.get() != 0 {
            words.push(format!("mode={}", MODE.get()));
        }
        words.join(" ")
    }

    /// The thread's current context.
    pub(crate) fn current(&self) -> Result<usize> {
        let current = STACK.with_borrow(|stack| stack.last().copied());
        current.filter(|context| self.objects.contains_key(context)).ok_or(INVALID_CONTEXT)
    }

    /// The device of the thread's current context.
    pub(crate) fn device(&self) -> Result<usize> {
        Ok(self.objects[&self.current()?].context)
    }

    /// A new object of the current context.
    pub(crate) fn make(&mut self, kind: &'static str, value: usize) -> Result<usize> {
        let context = self.current()?;
        Ok(self.insert(Object { kind, context, value }))
    }

    pub(crate) fn insert(&mut self, object: Object) -> usize {
        // As far apart as the largest memory.
        self.next += 1 << 30;
        self.objects.insert(self.next, object);
        self.next
    }

    /// A live object of this kind.
    pub(crate) fn object(&mut self, address: usize, kind: &'static str) -> Result<&mut Object> {
        self.objects.get_mut(&address).filter(|object| object.kind == kind).ok_or(INVALID_HANDLE)
    }

    /// A live object of this kind and of the current context.
    pub(crate) fn own(&mut self, address: usize, kind: &'static str) -> Result<&mut Object> {
        let current = self.current()?;
        let object = self.object(address, kind)?;
        if object.context == current { Ok(object) } else { Err(INVALID_CONTEXT) }
    }

    pub(crate) fn remove(&mut self, address: usize, kind: &'static str) -> Result<Object> {
        self.object(address, kind)?;
        self.leave(address, |_| true);
        self.objects.remove(&address).ok_or(INVALID_HANDLE)
    }

    /// Whatever the first refers to, the second does too.
    pub(crate) fn refer_alike(&mut self, from: usize, to: usize) {
        for object in self.user_objects.values_mut().filter(|object| object.owners.contains(&from)) {
            object.owners.push(to);
        }
    }

    /// An owner no longer refers to the user objects that are meant.
    pub(crate) fn leave(&mut self, owner: usize, is_meant: impl Fn(usize) -> bool) {
        for (_, object) in self.user_objects.iter_mut().filter(|(address, _)| is_meant(**address)) {
            object.owners.retain(|&of| of != owner);
        }
        self.user_objects.retain(|_, object| {
            let is_owned = !object.owners.is_empty();
            if !is_owned {
                // SAFETY: the caller gave both for this; it is called once.
                unsafe { (object.destroy)(object.data as *mut c_void) };
            }
            is_owned
        });
    }
}

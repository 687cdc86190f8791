//! Handles: numbers that only this library understands, and the tables behind them.
//!
//! What C holds as a pointer is `tag | kind | generation | index`. The index names a slot of the table of
//! that kind; the slot's generation counts how often it was given out. A look-up of any bit pattern gives
//! the object that was created under exactly that pattern and not yet destroyed, or nothing. The tag is
//! the library's, and makes a handle an address that no process can have, so code that looks behind it faults at once.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::failure::{Failure, Status, bad_parm};
use crate::LIBRARY;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("handles are 64-bit numbers");

const INDEX_BITS: u32 = 32;
const GENERATION_BITS: u32 = 20;
const KIND_BITS: u32 = 4;
const TAG: u64 = LIBRARY.tag as u64;

/// The kinds of objects, with the words that failures use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Handle = 1,
    Tensor,
    Convolution,
    Activation,
    Plan,
    Op,
    Args,
    Problem,
    FindOptions,
    Solution,
    Compiled,
    Binary,
}

impl Kind {
    const ALL: [Kind; 12] = [
        Kind::Handle,
        Kind::Tensor,
        Kind::Convolution,
        Kind::Activation,
        Kind::Plan,
        Kind::Op,
        Kind::Args,
        Kind::Problem,
        Kind::FindOptions,
        Kind::Solution,
        Kind::Compiled,
        Kind::Binary,
    ];

    fn name(self) -> &'static str {
        match self {
            Kind::Handle => "handle",
            Kind::Tensor => "tensor descriptor",
            Kind::Convolution => "convolution descriptor",
            Kind::Activation => "activation descriptor",
            Kind::Plan => "fusion plan",
            Kind::Op => "fusion operator",
            Kind::Args => "operator argument object",
            Kind::Problem => "problem",
            Kind::FindOptions => "find options object",
            Kind::Solution => "solution",
            Kind::Compiled => "compiled plan",
            Kind::Binary => "binary",
        }
    }
}

/// Something that C holds a handle of.
pub(crate) trait Object: Send + Sync + Sized + 'static {
    const KIND: Kind;

    /// The process-wide table of this kind.
    fn table() -> &'static Table<Self>;

    /// What it is, where that can be said in a few words.
    fn describe(&self) -> Option<String> {
        None
    }
}

/// Gives a type its kind and its table, and its own way to be described, if it has one.
macro_rules! object {
    ($type:ty, $kind:ident $(, $describe:expr)?) => {
        impl $crate::boundary::table::Object for $type {
            const KIND: $crate::boundary::table::Kind = $crate::boundary::table::Kind::$kind;

            fn table() -> &'static $crate::boundary::table::Table<Self> {
                static TABLE: $crate::boundary::table::Table<$type> = $crate::boundary::table::Table::new();
                &TABLE
            }

            $(fn describe(&self) -> Option<String> {
                let describe: fn(&Self) -> Option<String> = $describe;
                describe(self)
            })?
        }
    };
}
pub(crate) use object;

/// A handle as C passes it: any number whatever.
#[repr(transparent)]
pub struct Ref<T> {
    bits: u64,
    object: PhantomData<fn() -> T>,
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ref<T> {}

impl<T> PartialEq for Ref<T> {
    fn eq(&self, other: &Self) -> bool {
        self.bits == other.bits
    }
}

impl<T> std::fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#018x}", self.bits)
    }
}

impl<T> Ref<T> {
    /// C's NULL.
    pub const NULL: Self = Self::from_bits(0);

    /// Any number whatever.
    pub const fn from_bits(bits: u64) -> Self {
        Ref { bits, object: PhantomData }
    }

    /// The number.
    pub const fn bits(self) -> u64 {
        self.bits
    }

    pub(crate) fn is_null(self) -> bool {
        self.bits == 0
    }
}

#[allow(private_bounds, reason = "objects are the library's own")]
impl<T: Object> Ref<T> {
    fn new(index: u32, generation: u32) -> Self {
        let (kind, tag) = (T::KIND as u64, TAG);
        let high = (tag << KIND_BITS | kind) << GENERATION_BITS | u64::from(generation);
        Self::from_bits(high << INDEX_BITS | u64::from(index))
    }

    /// Index and generation, for a number that has the form of a handle of this kind.
    fn parts(self) -> Option<(u32, u32)> {
        let generation = (self.bits >> INDEX_BITS) as u32 & ((1 << GENERATION_BITS) - 1);
        let parts = (self.bits as u32, generation);
        (Self::new(parts.0, parts.1) == self).then_some(parts)
    }

    /// The object.
    pub(crate) fn get(self) -> Result<Arc<T>, Failure> {
        let found = self.parts().and_then(|(index, generation)| T::table().get(index, generation));
        found.ok_or_else(|| self.missing())
    }

    /// Ends the handle and gives the object; calls that still use it go on.
    pub(crate) fn remove(self) -> Result<Arc<T>, Failure> {
        let found = self.parts().and_then(|(index, generation)| T::table().remove(index, generation));
        found.ok_or_else(|| self.missing())
    }

    /// Why there is no object.
    fn missing(self) -> Failure {
        let wanted = T::KIND.name();
        if self.is_null() {
            return bad_parm(format!("the {wanted} is NULL"));
        }
        let kind = (self.bits >> (INDEX_BITS + GENERATION_BITS)) & ((1 << KIND_BITS) - 1);
        let tagged = self.bits >> (INDEX_BITS + GENERATION_BITS + KIND_BITS) == TAG;
        match Kind::ALL.iter().find(|&&k| tagged && k as u64 == kind) {
            Some(&kind) if kind == T::KIND => bad_parm(format!("the {wanted} was destroyed")),
            Some(kind) => bad_parm(format!("the {wanted} is a handle of another kind: {}", kind.name())),
            None => bad_parm(format!("{self:?} is no {wanted} of this library")),
        }
    }
}

/// Creates an object and the handle for it.
pub(crate) fn create<T: Object>(object: T) -> Result<Ref<T>, Failure> {
    let (index, generation) = T::table().insert(Arc::new(object)).ok_or_else(|| {
        Failure::new(Status::AllocFailed, format!("there are too many {}s", T::KIND.name()))
    })?;
    Ok(Ref::new(index, generation))
}

/// How many objects of this kind there are in the process.
#[allow(private_bounds, reason = "objects are the library's own")]
pub fn live<T: Object>() -> usize {
    T::table().len()
}

/// As many locks as there are likely to be threads that create and destroy at once.
const SHARDS: usize = 16;

/// The objects of one kind.
pub(crate) struct Table<T> {
    shards: [RwLock<Shard<T>>; SHARDS],
    next: AtomicUsize,
}

struct Shard<T> {
    slots: Vec<Slot<T>>,
    /// Slots without an object whose generations are not used up.
    free: Vec<u32>,
}

struct Slot<T> {
    generation: u32,
    object: Option<Arc<T>>,
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        let shards = [const { RwLock::new(Shard { slots: Vec::new(), free: Vec::new() }) }; SHARDS];
        Table { shards, next: AtomicUsize::new(0) }
    }

    /// `None` when every index is taken.
    fn insert(&self, object: Arc<T>) -> Option<(u32, u32)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let mut shard = self.shards[number].write().unwrap_or_else(PoisonError::into_inner);
        let slot = match shard.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(shard.slots.len()).ok()?;
                slot.checked_mul(SHARDS as u32)?.checked_add(SHARDS as u32)?;
                shard.slots.push(Slot { generation: 0, object: None });
                slot
            }
        };
        let entry = &mut shard.slots[slot as usize];
        entry.object = Some(object);
        Some((slot * SHARDS as u32 + number as u32, entry.generation))
    }

    fn get(&self, index: u32, generation: u32) -> Option<Arc<T>> {
        let (shard, slot) = self.place(index);
        let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
        let slot = shard.slots.get(slot).filter(|slot| slot.generation == generation)?;
        slot.object.clone()
    }

    fn remove(&self, index: u32, generation: u32) -> Option<Arc<T>> {
        let (shard, slot) = self.place(index);
        let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
        let entry = shard.slots.get_mut(slot).filter(|slot| slot.generation == generation)?;
        let object = entry.object.take()?;
        // A slot whose generations are used up is never given out again, so no handle ever names two
        // objects.
        if entry.generation + 1 < 1 << GENERATION_BITS {
            entry.generation += 1;
            shard.free.push(slot as u32);
        }
        Some(object)
    }

    /// How many objects there are.
    fn len(&self) -> usize {
        let len = |shard: &RwLock<Shard<T>>| {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            shard.slots.iter().filter(|slot| slot.object.is_some()).count()
        };
        self.shards.iter().map(len).sum()
    }

    fn place(&self, index: u32) -> (&RwLock<Shard<T>>, usize) {
        (&self.shards[index as usize % SHARDS], index as usize / SHARDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Thing(u32);
    object!(Thing, Args);

    #[derive(Debug)]
    struct Other;
    object!(Other, Plan);

    #[test]
    fn a_handle_lives_from_create_to_remove() {
        let a = create(Thing(1)).unwrap();
        let b = create(Thing(2)).unwrap();
        assert_ne!(a, b);
        assert_eq!(*a.get().unwrap(), Thing(1));
        assert_eq!(*b.get().unwrap(), Thing(2));
        let kept = a.get().unwrap();
        assert_eq!(*a.remove().unwrap(), Thing(1));
        assert_eq!(*kept, Thing(1));
        assert_eq!(a.get().unwrap_err().text, "the operator argument object was destroyed");
        assert_eq!(a.remove().unwrap_err().status, Status::BadParm);
        assert_eq!(*b.get().unwrap(), Thing(2));
    }

    #[test]
    fn slots_are_reused_under_another_handle() {
        let table = Table::new();
        let mut seen = std::collections::HashSet::new();
        for round in 0..100 {
            let (index, generation) = table.insert(Arc::new(round)).unwrap();
            assert!(seen.insert((index, generation)));
            assert!(index < SHARDS as u32, "destroyed slots are used again");
            assert_eq!(table.remove(index, generation).as_deref(), Some(&round));
        }
    }

    #[test]
    fn a_slot_whose_generations_are_used_up_is_retired() {
        let table = Table::new();
        let (index, generation) = table.insert(Arc::new(0)).unwrap();
        let last = (1 << GENERATION_BITS) - 1;
        table.place(index).0.write().unwrap().slots[0].generation = last;
        assert!(table.remove(index, generation).is_none());
        assert!(table.remove(index, last).is_some());
        assert!(table.place(index).0.read().unwrap().free.is_empty());
    }

    #[test]
    fn any_bit_pattern_is_judged() {
        let thing = create(Thing(3)).unwrap();
        assert_eq!(Ref::<Thing>::NULL.get().unwrap_err().text, "the operator argument object is NULL");
        let other = Ref::<Other>::from_bits(thing.bits());
        let text = other.get().unwrap_err().text;
        assert_eq!(text, "the fusion plan is a handle of another kind: operator argument object");
        for bit in 0..64 {
            let near = Ref::<Thing>::from_bits(thing.bits() ^ 1 << bit);
            if let Ok(found) = near.get() {
                assert_ne!(*found, Thing(3), "another test's thing, not this one");
            }
        }
        for bits in [1, 2, u64::MAX, 0xdead_beef, 0x7fff_ffff_f000, (TAG << 56) | u64::from(u32::MAX)] {
            assert!(Ref::<Thing>::from_bits(bits).get().is_err());
            assert!(Ref::<Thing>::from_bits(bits).remove().is_err());
        }
    }

    #[test]
    fn threads_create_look_up_and_remove_at_once() {
        let rounds = if cfg!(miri) { 20 } else { 2000 };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for round in 0..rounds {
                        let handle = create(Thing(thread * 10_000 + round)).unwrap();
                        assert_eq!(handle.get().unwrap().0, thread * 10_000 + round);
                        assert!(handle.remove().is_ok());
                        assert!(handle.get().is_err());
                    }
                });
            }
        });
    }
}

//! What is compiled once: executables in memory, binaries on disk.
//!
//! This file holds the cache in memory, which is generic; a device's has the executables by canonical problem and
//! options. `disk.rs` holds the cache on disk.

mod directory;
#[cfg_attr(not(unix), allow(dead_code, reason = "there is no disk cache"))]
mod disk;
mod format;
mod key;
#[cfg(unix)]
mod trust;

#[cfg(all(test, unix))]
mod tests;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub(crate) use disk::Disk;
pub use format::BinaryError;
pub(crate) use format::{decode, encode};
pub(crate) use key::Subject;

/// More than any application has shapes; the least recently used goes when a new one comes.
const CAPACITY: usize = 4096;

/// Builds each key once, however many threads ask for it at once; those that come second wait. A failed
/// build is not kept.
#[derive(Debug)]
pub(crate) struct Cache<K, T> {
    entries: Mutex<Entries<K, T>>,
}

#[derive(Debug)]
struct Entries<K, T> {
    slots: HashMap<K, Slot<T>>,
    clock: u64,
}

#[derive(Debug)]
struct Slot<T> {
    built: Arc<Mutex<Option<T>>>,
    last_used: u64,
}

impl<K, T> Default for Cache<K, T> {
    fn default() -> Self {
        Cache { entries: Mutex::new(Entries { slots: HashMap::new(), clock: 0 }) }
    }
}

impl<K: Clone + Eq + Hash, T: Clone> Cache<K, T> {
    pub(crate) fn get_or_build<E>(&self, key: K, build: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let slot = self.slot(key);
        let mut built = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(built) = &*built {
            return Ok(built.clone());
        }
        Ok(built.insert(build()?).clone())
    }

    /// Whether it is built already; not while it is being built.
    pub(crate) fn has(&self, key: &K) -> bool {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.slots.get(key).is_some_and(|slot| slot.built.try_lock().is_ok_and(|built| built.is_some()))
    }

    /// The slot of a key, made if there is none; building happens outside of the map's lock.
    fn slot(&self, key: K) -> Arc<Mutex<Option<T>>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.clock += 1;
        let clock = entries.clock;
        if entries.slots.len() >= CAPACITY && !entries.slots.contains_key(&key) {
            let oldest = entries.slots.iter().min_by_key(|(_, slot)| slot.last_used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                entries.slots.remove(&oldest);
            }
        }
        let slot =
            entries.slots.entry(key).or_insert_with(|| Slot { built: Arc::default(), last_used: clock });
        slot.last_used = clock;
        slot.built.clone()
    }
}

/// The disk cache of this process, opened when first asked for; `None` if there is none.
pub(crate) fn disk() -> Option<&'static Disk> {
    static DISK: OnceLock<Option<Disk>> = OnceLock::new();
    DISK.get_or_init(open_disk).as_ref()
}

/// A disk cache of a test's own.
#[cfg(all(test, unix))]
pub(crate) fn disk_at(path: &std::path::Path) -> Disk {
    let directory = directory::RealDirectory::open(path, trust::Trust::Owner).unwrap();
    Disk::new(Box::new(directory), disk::Limits::default())
}

#[cfg(unix)]
fn open_disk() -> Option<Disk> {
    if fuseplan_api::is_elevated() {
        tracing::debug!(target: "fuseplan::cache", "no disk cache: the process runs with elevated rights");
        return None;
    }
    let path = crate::env::cache_directory()?;
    let trust =
        if crate::env::cache_directory_is_shared() { trust::Trust::Shared } else { trust::Trust::Owner };
    match directory::RealDirectory::open(&path, trust) {
        Ok(directory) => Some(Disk::new(Box::new(directory), disk::Limits::default())),
        Err(error) => {
            let path = path.display();
            tracing::warn!(target: "fuseplan::cache", "no disk cache, binaries are kept in memory only: {path}: {error}");
            None
        }
    }
}

/// Ownership cannot be checked here, so no file is trusted.
#[cfg(not(unix))]
fn open_disk() -> Option<Disk> {
    None
}

//! What is compiled once: executables in memory, binaries on disk.
//!
//! This file holds the in-memory cache of one device: canonical problem and options → executable. A miss
//! goes on to the disk (`disk.rs`), a miss there to the solver's compiler.

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
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fuseplan_api::Problem;

pub(crate) use disk::Disk;
pub use format::BinaryError;
pub(crate) use format::{decode, encode};
pub(crate) use key::{FIND, Subject, describe};

use crate::select::{Built, CompileError, CompileOptions};

/// More than any application has shapes; the least recently used goes when a new one comes.
const CAPACITY: usize = 4096;

type Key = (Problem, CompileOptions);

/// Builds each key once, however many threads ask for it at once; those that come second wait. A failed
/// build is not kept.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    slots: HashMap<Key, Slot>,
    clock: u64,
}

#[derive(Debug, Clone, Default)]
struct Slot {
    built: Arc<Mutex<Option<Built>>>,
    last_used: u64,
}

impl Cache {
    pub(crate) fn get_or_build(
        &self,
        problem: &Problem,
        options: &CompileOptions,
        build: impl FnOnce() -> Result<Built, CompileError>,
    ) -> Result<Built, CompileError> {
        let slot = self.slot((problem.clone(), options.clone()));
        let mut built = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(built) = &*built {
            return Ok(built.clone());
        }
        Ok(built.insert(build()?).clone())
    }

    /// The slot of a key, made if there is none; building happens outside of the map's lock.
    fn slot(&self, key: Key) -> Arc<Mutex<Option<Built>>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.clock += 1;
        let clock = entries.clock;
        if entries.slots.len() >= CAPACITY && !entries.slots.contains_key(&key) {
            let oldest = entries.slots.iter().min_by_key(|(_, slot)| slot.last_used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                entries.slots.remove(&oldest);
            }
        }
        let slot = entries.slots.entry(key).or_default();
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

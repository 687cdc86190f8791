//! The on-disk cache: one file an entry, verified before every use. No fault of a file system is an error
//! here; the worst is that a kernel is compiled again. `docs/cache.md` says what is promised.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fuseplan_api::in_order_of;

use super::directory::{Directory, Item};
use super::format::{self, BinaryError};
use super::key::Subject;

/// Bytes of the largest entry: many times what the largest kernel has. It bounds the memory that a file can ask for.
const LARGEST: u64 = 64 << 20;

/// Bounds of a disk cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of all files together; the least recently used go.
    pub(crate) bytes: u64,
    /// How long to wait for another process that compiles.
    pub(crate) wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        // A kernel has some 100 KB and compiles within a second or two.
        Limits { bytes: 1 << 30, wait: Duration::from_secs(10) }
    }
}

/// Binaries in a directory.
#[derive(Debug)]
pub(crate) struct Disk {
    directory: Box<dyn Directory>,
    limits: Limits,
    /// The directory is not to be trusted any more.
    disabled: AtomicBool,
    warned: AtomicBool,
}

impl Disk {
    pub(crate) fn new(directory: Box<dyn Directory>, limits: Limits) -> Self {
        Disk { directory, limits, disabled: AtomicBool::new(false), warned: AtomicBool::new(false) }
    }

    /// What `load` makes of the stored payload, else of the one that `make` makes, which is then stored. Of several
    /// threads and processes that ask at once one makes it and the others wait, though not for ever.
    pub(crate) fn get_or_build<T, E: fmt::Display>(
        &self,
        subject: &Subject,
        load: impl Fn(&[u8]) -> Result<T, E>,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<T, E> {
        if let Some(loaded) = self.find(subject, &load) {
            return Ok(loaded);
        }
        let name = subject.key().to_hex();
        let _lock = self.lock(&subject.lock());
        // Who had the lock before has most likely stored this very binary.
        if let Some(loaded) = self.find(subject, &load) {
            return Ok(loaded);
        }
        let payload = make()?;
        let loaded = load(&payload)?;
        self.put(&name, subject, &payload);
        Ok(loaded)
    }

    /// What `load` makes of the stored payload, if there is one.
    pub(crate) fn find<T, E: fmt::Display>(
        &self,
        subject: &Subject,
        load: impl Fn(&[u8]) -> Result<T, E>,
    ) -> Option<T> {
        let name = subject.key().to_hex();
        let payload = self.get(&name, subject)?;
        // What cannot be loaded is as good as absent; the new payload takes its place.
        load(&payload).inspect_err(|error| self.fault(&name, "is compiled again", error)).ok()
    }

    /// The stored payload of the subject, if there is one in which every byte is right.
    fn get(&self, name: &str, subject: &Subject) -> Option<Vec<u8>> {
        if !self.is_usable() {
            return None;
        }
        let read = self.directory.open(&format!("{name}.bin")).and_then(|file| Ok((self.read(&file)?, file)));
        let (bytes, file) = match read {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) if is_verdict(&error) => return self.quarantine(name, &error),
            // Nothing is said of the entry: there may be no descriptors, no memory, no network.
            Err(error) => return self.unread(name, &error),
        };
        match format::decode(&bytes) {
            Ok((found, payload)) if found.serves(subject) => {
                // An entry whose time cannot be set is only evicted earlier.
                let _ = self.directory.touch(&file);
                tracing::debug!(target: "fuseplan::cache", name, solver = subject.solver, "disk hit");
                Some(payload.to_vec())
            }
            // Of another compiler; this one's takes its place.
            Ok((found, _)) if found.key() == subject.key() => None,
            Ok(_) => self.quarantine(name, "it is the binary of something else"),
            Err(error) => self.quarantine(name, &error),
        }
    }

    /// The bytes of an entry's file. The length that stands in its first bytes is read before the others, and these
    /// only where the file is as long and an entry may be: a sparse file has any length and costs nothing.
    fn read(&self, file: &File) -> io::Result<Vec<u8>> {
        let mut start = [0; format::PREFIX];
        let mut stream = self.stream(file);
        stream.read_exact(&mut start).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other(BinaryError::NotABinary),
            _ => error,
        })?;
        let expected = format::length(&start).map_err(io::Error::other)?;
        let found = self.directory.length(file)?;
        if found != expected {
            return Err(io::Error::other(BinaryError::Length { found, expected }));
        }
        if expected > LARGEST {
            return Err(io::Error::other(format!("it has {expected} bytes, entries have {LARGEST} at most")));
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(expected as usize).map_err(|_| io::ErrorKind::OutOfMemory)?;
        bytes.extend(start);
        stream.take(expected.saturating_sub(start.len() as u64)).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn put(&self, name: &str, subject: &Subject, payload: &[u8]) {
        if !self.is_usable() {
            return;
        }
        let bytes = format::encode(subject, payload);
        if bytes.len() as u64 > LARGEST.min(self.limits.bytes) {
            return;
        }
        let stored = self.publish(name, &bytes).and_then(|()| self.tidy());
        if let Err(error) = stored {
            self.warn_once("binaries are kept in memory only where they cannot be stored", &error);
        }
    }

    /// Writes an entry so that it appears whole or not at all, also after a loss of power.
    fn publish(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut attempts = 0;
        loop {
            match self.write(name, bytes) {
                // Somebody tidied it away in the moment before it was locked.
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempts < 10 => attempts += 1,
                written => return written,
            }
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (temporary, file) = self.temporary(name)?;
        // For as long as it is locked, `tidy` takes it for somebody's. Where locks do not work, so be it.
        let _ = self.directory.try_lock(&file);
        let entry = format!("{name}.bin");
        let written = self
            .stream(&file)
            .write_all(bytes)
            .and_then(|()| self.directory.sync(&file))
            .and_then(|()| self.directory.rename(&temporary, &entry))
            .and_then(|()| self.directory.sync_names());
        if written.is_err() {
            // Gone already if it was renamed.
            let _ = self.directory.remove(&temporary);
        }
        written
    }

    fn temporary(&self, name: &str) -> io::Result<(String, File)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut attempts = 0;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let temporary = format!("{name}.{}-{number}.tmp", std::process::id());
            match self.directory.create(&temporary) {
                // Of a killed process, or of one in another container, that has the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempts < 1000 => {
                    attempts += 1
                }
                created => return created.map(|file| (temporary, file)),
            }
        }
    }

    /// Removes what killed processes left behind, what is larger than any entry, and, above the size limit, what was
    /// not used for longest.
    fn tidy(&self) -> io::Result<()> {
        let mut items = self.directory.list()?;
        items.retain(|item| is_ours(&item.name));
        items.retain(|item| !(item.name.ends_with(".tmp") && self.remove_orphan(&item.name)));
        items.retain(|item| !(item.bytes > LARGEST && self.directory.remove(&item.name).is_ok()));
        let seconds = |item: &Item| {
            item.used.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
        };
        let items = in_order_of(items, seconds);
        let mut bytes: u64 = items.iter().map(|item| item.bytes).sum();
        for Item { name, bytes: size, .. } in &items {
            if bytes <= self.limits.bytes {
                break;
            }
            match self.directory.remove(name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                // Another process may have been faster.
                _ => bytes -= size,
            }
        }
        Ok(())
    }

    /// Removes a temporary file unless its writer is alive, and so has it locked.
    fn remove_orphan(&self, name: &str) -> bool {
        let orphan = self.directory.open(name).and_then(|file| self.directory.try_lock(&file));
        orphan.is_ok_and(|orphan| orphan) && self.directory.remove(name).is_ok()
    }

    /// The lock of this name, or nothing when it is not to be had in time: locks only save work.
    fn lock(&self, name: &str) -> Option<File> {
        if !self.is_usable() {
            return None;
        }
        let file = self.directory.open_lock(name).ok()?;
        let (start, mut pause) = (Instant::now(), Duration::from_millis(1));
        loop {
            match self.directory.try_lock(&file) {
                Ok(true) => return Some(file),
                Ok(false) if start.elapsed() < self.limits.wait => thread::sleep(pause),
                // A holder that takes too long, or a file system without locks.
                _ => return None,
            }
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// Sets an entry aside, for people to look at; it is not read again.
    fn quarantine(&self, name: &str, reason: impl fmt::Display) -> Option<Vec<u8>> {
        self.fault(name, "is set aside", reason);
        let _ = self.directory.rename(&format!("{name}.bin"), &format!("{name}.bad"));
        None
    }

    /// An entry that could not be read this time.
    fn unread(&self, name: &str, reason: &io::Error) -> Option<Vec<u8>> {
        self.fault(name, "cannot be read", reason);
        None
    }

    /// Whether the directory is still one to be trusted; once it is not, never again.
    fn is_usable(&self) -> bool {
        if self.disabled.load(Ordering::Relaxed) {
            return false;
        }
        if let Err(error) = self.directory.check() {
            self.disabled.store(true, Ordering::Relaxed);
            self.warn_once("the cache is not used any more, binaries are kept in memory only", &error);
            return false;
        }
        true
    }

    fn fault(&self, name: &str, what: &str, reason: impl fmt::Display) {
        tracing::warn!(target: "fuseplan::cache", "cache entry {name} {what}: {reason}");
    }

    fn warn_once(&self, what: &str, reason: &io::Error) {
        if self.warned.swap(true, Ordering::Relaxed) {
            tracing::debug!(target: "fuseplan::cache", "{what}: {reason}");
        } else {
            tracing::warn!(target: "fuseplan::cache", "{what}: {reason}");
        }
    }

    fn stream<'a>(&'a self, file: &'a File) -> Stream<'a> {
        Stream { directory: &*self.directory, file }
    }
}

/// Whether an error is about what the file is: refused by [`Directory::open`] or [`Disk::read`], whose errors have no
/// number of the system's, or a link, or a socket.
fn is_verdict(error: &io::Error) -> bool {
    if error.kind() == io::ErrorKind::OutOfMemory {
        return false;
    }
    #[cfg(unix)]
    let wrong = [rustix::io::Errno::LOOP, rustix::io::Errno::NXIO].map(rustix::io::Errno::raw_os_error);
    #[cfg(not(unix))]
    let wrong: [i32; 0] = [];
    error.raw_os_error().is_none_or(|number| wrong.contains(&number))
}

/// Whether a name is one that this cache gives: a directory of the user's choice may hold other files.
fn is_ours(name: &str) -> bool {
    let (key, end) = name.split_once('.').unwrap_or((name, ""));
    let is_key =
        key.len() == 2 * blake3::OUT_LEN && key.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    is_key && (["bin", "bad"].contains(&end) || end.ends_with(".tmp"))
}

/// A file whose bytes pass through the directory.
struct Stream<'a> {
    directory: &'a dyn Directory,
    file: &'a File,
}

impl Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.directory.read(self.file, buffer)
    }
}

impl Write for Stream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.directory.write(self.file, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

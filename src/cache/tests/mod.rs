//! The disk cache against damage, failing calls, other processes and hostile directories: every row of the
//! table in `docs/cache.md`.

mod damage;
mod fake;
mod hostile;
mod io_faults;
mod locks;
mod processes;

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fuseplan_api::BuildError;
use tempfile::TempDir;

use super::directory::RealDirectory;
use super::disk::{Disk, Limits};
use super::key::Subject;
use super::trust::Trust;

const WAIT: Limits = Limits { bytes: 1 << 30, wait: Duration::from_secs(20) };

fn temporary() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn open(path: &Path) -> Disk {
    open_with(path, WAIT)
}

fn open_with(path: &Path, limits: Limits) -> Disk {
    Disk::new(Box::new(RealDirectory::open(path, Trust::Owner).unwrap()), limits)
}

fn subject(number: u64) -> Subject {
    Subject {
        version: "1.2.3".into(),
        solver: "fake.copy.v1".into(),
        arch: "fake_90".into(),
        toolchain: "fakec 12.4".into(),
        content: number.to_le_bytes().to_vec(),
    }
}

/// The one right binary of a subject.
fn payload(number: u64, length: usize) -> Vec<u8> {
    let mut random = Random(number + 1);
    (0..length).map(|_| random.next() as u8).collect()
}

/// Asks for a small binary, checks what comes and says whether it was compiled.
fn ask(disk: &Disk, number: u64) -> bool {
    ask_sized(disk, number, 200)
}

fn ask_sized(disk: &Disk, number: u64, length: usize) -> bool {
    let compiled = Cell::new(false);
    let subject = subject(number);
    let loaded = disk.get_or_build(
        &subject,
        |found| Ok::<_, BuildError>(found.to_vec()),
        || {
            compiled.set(true);
            Ok(payload(number, length))
        },
    );
    let loaded = loaded.expect("a fault of the cache came through");
    assert!(loaded == payload(number, length), "a wrong binary was loaded");
    compiled.get()
}

/// Writes a file of our own, whatever the umask.
fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    let mut options = fs::OpenOptions::new();
    let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(path).unwrap();
    file.write_all(bytes.as_ref()).unwrap();
}

/// The file of an entry.
fn entry(number: u64) -> String {
    format!("{}.bin", subject(number).key())
}

fn names(path: &Path, end: &str) -> Vec<String> {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(end)).collect()
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }
}

/// How many warnings `work` logs.
fn warnings(work: impl FnOnce()) -> usize {
    let count = Count::default();
    tracing::subscriber::with_default(count.clone(), work);
    count.0.load(Ordering::Relaxed)
}

#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl tracing::Subscriber for Count {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() == tracing::Level::WARN
    }

    fn event(&self, _event: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}
    fn enter(&self, _span: &tracing::span::Id) {}
    fn exit(&self, _span: &tracing::span::Id) {}
}

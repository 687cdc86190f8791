//! Every call of the file system fails, one after the other: never an error to the user.

use std::fs::File;
use std::io;

use rustix::io::Errno;

use super::*;
use crate::cache::directory::{Directory, Item};
use crate::cache::format::decode;

#[derive(Debug, Clone, Copy)]
enum Fault {
    Error(Errno),
    /// Half of what was asked for is read or written.
    Short,
}

/// A directory whose `k`-th call fails, and, if the fault lasts, every later one.
#[derive(Debug)]
struct Faulty {
    inner: RealDirectory,
    fault: Fault,
    k: usize,
    lasts: bool,
    calls: Arc<AtomicUsize>,
}

impl Faulty {
    fn hits(&self) -> bool {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        call == self.k || (self.lasts && call > self.k)
    }

    fn call<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match (self.fault, self.hits()) {
            (Fault::Error(errno), true) => Err(errno.into()),
            _ => call(),
        }
    }

    /// Bytes to be moved of so many.
    fn part(&self, length: usize) -> io::Result<usize> {
        match (self.fault, self.hits()) {
            (_, false) => Ok(length),
            (Fault::Error(errno), true) => Err(errno.into()),
            (Fault::Short, true) => Ok(length.div_ceil(2)),
        }
    }
}

impl Directory for Faulty {
    fn check(&self) -> io::Result<()> {
        self.call(|| self.inner.check())
    }
    fn open(&self, name: &str) -> io::Result<File> {
        self.call(|| self.inner.open(name))
    }
    fn create(&self, name: &str) -> io::Result<File> {
        self.call(|| self.inner.create(name))
    }
    fn open_lock(&self, name: &str) -> io::Result<File> {
        self.call(|| self.inner.open_lock(name))
    }
    fn try_lock(&self, file: &File) -> io::Result<bool> {
        self.call(|| self.inner.try_lock(file))
    }
    fn length(&self, file: &File) -> io::Result<u64> {
        self.call(|| self.inner.length(file))
    }
    fn read(&self, file: &File, buffer: &mut [u8]) -> io::Result<usize> {
        let part = self.part(buffer.len())?;
        self.inner.read(file, &mut buffer[..part])
    }
    fn write(&self, file: &File, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(file, &bytes[..self.part(bytes.len())?])
    }
    fn sync(&self, file: &File) -> io::Result<()> {
        self.call(|| self.inner.sync(file))
    }
    fn sync_names(&self) -> io::Result<()> {
        self.call(|| self.inner.sync_names())
    }
    fn touch(&self, file: &File) -> io::Result<()> {
        self.call(|| self.inner.touch(file))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.call(|| self.inner.rename(from, to))
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.call(|| self.inner.remove(name))
    }
    fn list(&self) -> io::Result<Vec<Item>> {
        self.call(|| self.inner.list())
    }
}

/// A miss, a hit, a damaged entry and a stranded temporary file: how many calls there were.
fn scenario(path: &Path, fault: Fault, k: usize, lasts: bool) -> usize {
    let stranded = path.join(format!("{}.1-1.tmp", subject(9).key()));
    write(&stranded, "half an ent");
    write(&path.join(entry(3)), "nonsense");
    let calls = Arc::new(AtomicUsize::new(0));
    let inner = RealDirectory::open(path, Trust::Owner).unwrap();
    let limits = Limits { wait: Duration::from_millis(5), ..WAIT };
    let disk = Disk::new(Box::new(Faulty { inner, fault, k, lasts, calls: calls.clone() }), limits);
    ask(&disk, 1);
    ask(&disk, 1);
    ask(&disk, 3);
    ask(&disk, 2);
    calls.load(Ordering::Relaxed)
}

fn every_call(fault: Fault, lasts: bool) {
    for k in 0.. {
        let directory = temporary();
        let path = directory.path();
        let calls = scenario(path, fault, k, lasts);
        // Nothing wrong is left behind, and a healthy process carries on.
        for name in names(path, ".bin") {
            let bytes = fs::read(path.join(&name)).unwrap();
            assert!(decode(&bytes).is_ok() || (name == entry(3) && bytes == b"nonsense"), "{fault:?} {k}");
        }
        let healthy = open(path);
        for number in [1, 2, 3, 4] {
            ask(&healthy, number);
            assert!(!ask(&healthy, number), "{fault:?} {k}");
        }
        assert!(names(path, ".tmp").is_empty(), "{fault:?} {k}");
        if k >= calls {
            assert!(k > 40, "the scenario is too short: {k} calls");
            return;
        }
    }
}

#[test]
fn no_space() {
    every_call(Fault::Error(Errno::NOSPC), false);
    every_call(Fault::Error(Errno::NOSPC), true);
}

#[test]
fn input_output_error() {
    every_call(Fault::Error(Errno::IO), false);
    every_call(Fault::Error(Errno::IO), true);
}

#[test]
fn no_access() {
    every_call(Fault::Error(Errno::ACCESS), false);
    every_call(Fault::Error(Errno::ACCESS), true);
}

#[test]
fn interrupted() {
    every_call(Fault::Error(Errno::INTR), false);
}

#[test]
fn moved_in_parts() {
    every_call(Fault::Short, false);
    every_call(Fault::Short, true);
}

/// What a process lacks for a moment says nothing of an entry, which is read again later.
#[test]
fn a_sound_entry_outlives_errors_that_pass() {
    for errno in [Errno::MFILE, Errno::NOMEM, Errno::ACCESS, Errno::INTR, Errno::IO] {
        let directory = temporary();
        let path = directory.path();
        assert!(ask(&open(path), 1));
        let inner = || RealDirectory::open(path, Trust::Owner).unwrap();
        // The directory's own check, opening, reading the start, the length, and the rest.
        for k in 0..6 {
            let (fault, calls) = (Fault::Error(errno), Arc::default());
            let disk = Disk::new(Box::new(Faulty { inner: inner(), fault, k, lasts: false, calls }), WAIT);
            ask(&disk, 1);
            assert!(names(path, ".bad").is_empty(), "{errno:?} {k}");
        }
    }
}

/// Everything but reading fails.
#[derive(Debug)]
struct ReadOnly(RealDirectory, Errno);

impl Directory for ReadOnly {
    fn check(&self) -> io::Result<()> {
        self.0.check()
    }
    fn open(&self, name: &str) -> io::Result<File> {
        self.0.open(name)
    }
    fn create(&self, _: &str) -> io::Result<File> {
        Err(self.1.into())
    }
    fn open_lock(&self, _: &str) -> io::Result<File> {
        Err(self.1.into())
    }
    fn try_lock(&self, file: &File) -> io::Result<bool> {
        self.0.try_lock(file)
    }
    fn length(&self, file: &File) -> io::Result<u64> {
        self.0.length(file)
    }
    fn read(&self, file: &File, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(file, buffer)
    }
    fn write(&self, _: &File, _: &[u8]) -> io::Result<usize> {
        Err(self.1.into())
    }
    fn sync(&self, _: &File) -> io::Result<()> {
        Err(self.1.into())
    }
    fn sync_names(&self) -> io::Result<()> {
        Err(self.1.into())
    }
    fn touch(&self, _: &File) -> io::Result<()> {
        Err(self.1.into())
    }
    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(self.1.into())
    }
    fn remove(&self, _: &str) -> io::Result<()> {
        Err(self.1.into())
    }
    fn list(&self) -> io::Result<Vec<Item>> {
        self.0.list()
    }
}

#[test]
fn a_read_only_or_full_directory_is_read_and_warned_of_once() {
    for errno in [Errno::ROFS, Errno::NOSPC, Errno::DQUOT] {
        let directory = temporary();
        assert!(ask(&open(directory.path()), 1));
        let inner = RealDirectory::open(directory.path(), Trust::Owner).unwrap();
        let disk = Disk::new(Box::new(ReadOnly(inner, errno)), WAIT);
        let warned = warnings(|| {
            assert!(!ask(&disk, 1), "a read-only entry is an entry");
            assert!(ask(&disk, 2) && ask(&disk, 2) && ask(&disk, 3));
        });
        assert_eq!(warned, 1);
    }
}

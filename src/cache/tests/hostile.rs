//! Directories and entries that others could have written.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;

use super::*;
use crate::cache::directory::{Directory, Item};
use crate::cache::format::encode;

const NOBODY: u32 = 65534;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Gives a path to somebody else.
fn give_away(path: &Path) {
    chown(path, Some(NOBODY), None).expect("only root can give a path to somebody else");
}

fn refused(path: &Path) -> String {
    match RealDirectory::open(path, Trust::Owner) {
        Ok(_) => panic!("{} was trusted", path.display()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn directories_and_files_are_their_owners_alone() {
    let above = temporary();
    let path = above.path().join("a/b");
    assert!(ask(&open(&path), 1));
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(fs::metadata(above.path().join("a")).unwrap().mode() & 0o7777, 0o700);
    for file in fs::read_dir(&path).unwrap() {
        assert_eq!(file.unwrap().metadata().unwrap().mode() & 0o7777, 0o600);
    }
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    let above = temporary();
    let path = above.path().join("cache");
    drop(open(&path));
    for mode in [0o777, 0o770, 0o702, 0o1777] {
        chmod(&path, mode);
        assert!(refused(&path).contains("can be written by others"), "{mode:o}");
    }
    // Others may read: nothing in it is secret.
    chmod(&path, 0o755);
    assert!(ask(&open(&path), 1));
}

#[test]
fn a_directory_that_others_can_replace_is_refused() {
    let above = temporary();
    let middle = above.path().join("middle");
    let path = middle.join("cache");
    drop(open(&path));
    chmod(&middle, 0o777);
    assert!(refused(&path).contains("above it can be written by others"));
    // As in /tmp: others may add names but not replace ours.
    chmod(&middle, 0o1777);
    drop(open(&path));
    chmod(&middle, 0o700);
    // The links in a path do not matter, where it leads does.
    let link = above.path().join("link");
    symlink(&path, &link).unwrap();
    drop(open(&link));
    chmod(&middle, 0o777);
    assert!(refused(&link).contains("above it"));
}

#[test]
fn a_directory_shared_on_purpose_is_used() {
    let above = temporary();
    let path = above.path().join("cache");
    drop(open(&path));
    chmod(&path, 0o777);
    used_shared(&path);
}

/// A directory that is shared on purpose is used whoever it belongs to, and so are entries that others can write.
fn used_shared(path: &Path) {
    let shared = || Disk::new(Box::new(RealDirectory::open(path, Trust::Shared).unwrap()), WAIT);
    assert!(ask(&shared(), 1));
    chmod(&path.join(entry(1)), 0o666);
    assert!(!ask(&shared(), 1));
}

/// A forged entry, sound in every byte, that runs other code.
fn forge(file: &Path) {
    fs::write(file, encode(&subject(1), b"something else")).unwrap();
    chmod(file, 0o600);
}

/// The forged entry is not taken, but set aside, and a good one takes its place.
fn not_taken(path: &Path) {
    let disk = open(path);
    assert!(ask(&disk, 1) && !ask(&disk, 1));
}

#[test]
fn forged_entries_are_not_taken() {
    let above = temporary();
    let path = above.path().join("cache");
    let file = path.join(entry(1));
    drop(open(&path));

    let elsewhere = above.path().join("forged");
    forge(&elsewhere);
    symlink(&elsewhere, &file).unwrap();
    not_taken(&path);
    assert!(fs::symlink_metadata(&file).unwrap().is_file());
    assert_eq!(fs::read(&elsewhere).unwrap(), encode(&subject(1), b"something else"));

    for mode in [0o666, 0o620, 0o602] {
        forge(&file);
        chmod(&file, mode);
        not_taken(&path);
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
    }
}

#[test]
#[ignore = "needs root; `.ci/run test` runs it there"]
fn what_belongs_to_somebody_else_is_not_trusted() {
    let above = temporary();
    let middle = above.path().join("a");
    let path = middle.join("cache");
    let file = path.join(entry(1));
    drop(open(&path));
    forge(&file);
    give_away(&file);
    not_taken(&path);
    fs::remove_file(&file).unwrap();

    give_away(&middle);
    assert!(refused(&path).contains("above it belongs to user 65534"));
    chown(&middle, Some(0), None).unwrap();
    give_away(&path);
    assert!(refused(&path).contains("belongs to user 65534"));
    chmod(&path, 0o777);
    used_shared(&path);
}

#[test]
fn entries_that_are_no_files_do_not_stop_anybody() {
    let above = temporary();
    let path = above.path().join("cache");
    let file = path.join(entry(1));
    drop(open(&path));
    // Opening a pipe would wait for its other end.
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RWXU).unwrap();
    not_taken(&path);
    fs::remove_file(&file).unwrap();
    fs::remove_file(file.with_extension("bad")).unwrap();
    fs::create_dir(&file).unwrap();
    not_taken(&path);
    // A link where a lock should be is neither followed nor waited for.
    let target = above.path().join("target");
    for shard in 0..=0xfff {
        let lock = path.join(format!("{shard:03x}.lock"));
        let _ = fs::remove_file(&lock);
        symlink(&target, lock).unwrap();
    }
    assert!(ask(&open(&path), 2) && !ask(&open(&path), 2));
    assert!(!target.exists());
}

#[test]
fn a_directory_opened_to_others_in_the_meantime_is_left_with_one_warning() {
    let above = temporary();
    let path = above.path().join("cache");
    let disk = open(&path);
    assert!(ask(&disk, 1) && !ask(&disk, 1));
    let warned = warnings(|| {
        chmod(&path, 0o777);
        assert!(ask(&disk, 1) && ask(&disk, 1) && ask(&disk, 2));
        // Who could write then may have written.
        chmod(&path, 0o700);
        assert!(ask(&disk, 1));
    });
    assert_eq!(warned, 1);
    assert_eq!(names(&path, ".bin").len(), 1);
}

#[test]
fn a_directory_replaced_in_the_meantime_is_not_looked_into() {
    let above = temporary();
    let path = above.path().join("cache");
    let moved: PathBuf = above.path().join("moved");
    let disk = open(&path);
    assert!(ask(&disk, 2));
    fs::rename(&path, &moved).unwrap();
    fs::create_dir(&path).unwrap();
    chmod(&path, 0o777);
    forge(&path.join(entry(1)));
    assert!(ask(&disk, 1) && !ask(&disk, 1) && !ask(&disk, 2));
    assert_eq!(names(&path, "").len(), 1, "something was written to the new directory");
    assert_eq!(names(&moved, ".bin").len(), 2);
    // Removed altogether: memory only.
    fs::remove_dir_all(&moved).unwrap();
    let warned = warnings(|| assert!(ask(&disk, 1) && ask(&disk, 1) && ask(&disk, 3)));
    assert_eq!(warned, 1);
}

/// A directory that counts the bytes that are read.
#[derive(Debug)]
struct Counted(RealDirectory, Arc<AtomicUsize>);

impl Directory for Counted {
    fn check(&self) -> io::Result<()> {
        self.0.check()
    }
    fn open(&self, name: &str) -> io::Result<File> {
        self.0.open(name)
    }
    fn create(&self, name: &str) -> io::Result<File> {
        self.0.create(name)
    }
    fn open_lock(&self, name: &str) -> io::Result<File> {
        self.0.open_lock(name)
    }
    fn try_lock(&self, file: &File) -> io::Result<bool> {
        self.0.try_lock(file)
    }
    fn length(&self, file: &File) -> io::Result<u64> {
        self.0.length(file)
    }
    fn read(&self, file: &File, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.0.read(file, buffer)?;
        self.1.fetch_add(bytes, Ordering::Relaxed);
        Ok(bytes)
    }
    fn write(&self, file: &File, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(file, bytes)
    }
    fn sync(&self, file: &File) -> io::Result<()> {
        self.0.sync(file)
    }
    fn sync_names(&self) -> io::Result<()> {
        self.0.sync_names()
    }
    fn touch(&self, file: &File) -> io::Result<()> {
        self.0.touch(file)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn list(&self) -> io::Result<Vec<Item>> {
        self.0.list()
    }
}

/// Sparse files of a tebibyte as entries: one that says nothing, one whose own length is that of an entry, and one that
/// says truly how long it is. No more than their starts are read, they are set aside, and what else is in the
/// cache stays when they are tidied away.
#[test]
fn entries_longer_than_any_are_not_read() {
    const LENGTH: u64 = 1 << 40;
    let sound = encode(&subject(1), b"something else");
    let mut truthful = sound.clone();
    truthful[12..20].copy_from_slice(&LENGTH.to_le_bytes());
    for start in [Vec::new(), sound, truthful] {
        let directory = temporary();
        let path = directory.path();
        assert!(ask(&open(path), 2));
        write(&path.join(entry(1)), &start);
        let file = fs::OpenOptions::new().write(true).open(path.join(entry(1))).unwrap();
        if let Err(error) = file.set_len(LENGTH) {
            return eprintln!("not checked: no sparse files of a tebibyte here: {error}");
        }
        let read = Arc::new(AtomicUsize::new(0));
        let inner = RealDirectory::open(path, Trust::Owner).unwrap();
        let disk = Disk::new(Box::new(Counted(inner, read.clone())), WAIT);
        assert!(ask(&disk, 1));
        assert!(read.load(Ordering::Relaxed) < 4096, "{} bytes were read", read.load(Ordering::Relaxed));
        assert!(names(path, ".bad").is_empty(), "a file of a tebibyte was kept");
        assert!(!ask(&disk, 1) && !ask(&disk, 2));
    }
}

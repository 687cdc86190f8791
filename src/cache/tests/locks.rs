//! Holders of locks that work, die, or never let go.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use super::*;

#[test]
fn who_asks_while_another_compiles_gets_that_binary() {
    let directory = temporary();
    let compiling = Barrier::new(2);
    let (first, second) = (open(directory.path()), open(directory.path()));
    thread::scope(|scope| {
        scope.spawn(|| {
            let compile = || {
                compiling.wait();
                thread::sleep(Duration::from_millis(150));
                Ok::<_, BuildError>(payload(1, 200))
            };
            first.get_or_build(&subject(1), |_| Ok(()), compile).unwrap();
        });
        compiling.wait();
        assert!(!ask(&second, 1), "two compiled at once");
    });
}

/// Holds the lock of an entry as another process would: through a file description of its own.
fn hold(path: &Path, number: u64) -> std::fs::File {
    let name = format!("{}.lock", &subject(number).key().to_hex()[..3]);
    let mut options = OpenOptions::new();
    let lock = options.create(true).truncate(false).write(true).mode(0o600).open(path.join(name)).unwrap();
    lock.lock().unwrap();
    lock
}

#[test]
fn a_lock_that_is_never_released_is_waited_for_in_vain_only_so_long() {
    let directory = temporary();
    let wait = Duration::from_millis(200);
    let disk = open_with(directory.path(), Limits { wait, ..WAIT });
    let lock = hold(directory.path(), 1);
    let start = Instant::now();
    assert!(ask(&disk, 1));
    let waited = start.elapsed();
    assert!(waited >= wait && waited < wait + Duration::from_secs(5), "{waited:?}");
    // It was stored nevertheless, and a hit needs no lock.
    let start = Instant::now();
    assert!(!ask(&disk, 1));
    assert!(start.elapsed() < wait, "a hit waited for the lock");
    drop(lock);
}

#[test]
fn a_temporary_file_in_use_is_not_swept() {
    let directory = temporary();
    let path = directory.path();
    let [used, stranded] = [8, 9].map(|number| path.join(format!("{}.1-1.tmp", subject(number).key())));
    let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&used).unwrap();
    file.lock().unwrap();
    write(&stranded, "half");
    assert!(ask(&open(path), 1));
    assert!(used.exists() && !stranded.exists());
    drop(file);
    assert!(ask(&open(path), 2));
    assert!(!used.exists());
}

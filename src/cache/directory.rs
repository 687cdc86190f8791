//! What the disk cache asks of a file system.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::time::SystemTime;

/// The files of one directory. Every call can fail, and the tests make every one fail.
pub(crate) trait Directory: Debug + Send + Sync {
    /// Whether the directory may still be used, as it is now.
    fn check(&self) -> io::Result<()>;

    /// Opens a file for reading: a regular file that may be trusted, not a link.
    fn open(&self, name: &str) -> io::Result<File>;

    /// Makes a file that does not exist and opens it for writing.
    fn create(&self, name: &str) -> io::Result<File>;

    /// Opens a file to be locked, made if there is none.
    fn open_lock(&self, name: &str) -> io::Result<File>;

    /// Whether the lock of the file, which ends when it is closed, could be had.
    fn try_lock(&self, file: &File) -> io::Result<bool>;

    /// How many bytes a file has.
    fn length(&self, file: &File) -> io::Result<u64>;

    /// Reads some bytes; 0 at the end.
    fn read(&self, file: &File, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes some bytes.
    fn write(&self, file: &File, bytes: &[u8]) -> io::Result<usize>;

    /// Waits until the file's contents are on the medium.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Waits until the names are on the medium.
    fn sync_names(&self) -> io::Result<()>;

    /// Marks a file as used now.
    fn touch(&self, file: &File) -> io::Result<()>;

    /// Gives a file another name, in one step that replaces what had the name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The regular files.
    fn list(&self) -> io::Result<Vec<Item>>;
}

/// A file of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) used: SystemTime,
}

#[cfg(unix)]
pub(crate) use unix::RealDirectory;

#[cfg(unix)]
mod unix {
    use std::fs::{self, DirBuilder, File};
    use std::io::{self, Read, Write};
    use std::os::unix::fs::DirBuilderExt;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, SystemTime};

    use rustix::fs::{AtFlags, FileType, Mode, OFlags};

    use super::{Directory, Item};
    use crate::cache::trust::Trust;

    /// A directory that is held open: every name is looked up in this very directory, whatever is put at
    /// its path later.
    #[derive(Debug)]
    pub(crate) struct RealDirectory {
        path: PathBuf,
        directory: File,
        trust: Trust,
    }

    impl RealDirectory {
        /// Opens a directory, made for its owner alone if there is none.
        pub(crate) fn open(path: &Path, trust: Trust) -> io::Result<Self> {
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
            let path = fs::canonicalize(path)?;
            trust.check_ancestors(&path)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let directory = File::from(rustix::fs::open(&path, flags, Mode::empty())?);
            let opened = RealDirectory { path, directory, trust };
            opened.check()?;
            Ok(opened)
        }

        fn open_at(&self, name: &str, flags: OFlags) -> io::Result<File> {
            let mode = match self.trust {
                Trust::Owner => 0o600,
                Trust::Shared => 0o666,
            };
            // Without NONBLOCK, opening a pipe would wait for its other end.
            let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::openat(&self.directory, name, flags, Mode::from(mode))?);
            let metadata = file.metadata()?;
            if !metadata.is_file() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{name} is not a regular file"),
                ));
            }
            self.trust.check(name, &metadata)?;
            Ok(file)
        }
    }

    impl Directory for RealDirectory {
        fn check(&self) -> io::Result<()> {
            self.trust.check(&self.path.to_string_lossy(), &self.directory.metadata()?)
        }

        fn open(&self, name: &str) -> io::Result<File> {
            self.open_at(name, OFlags::RDONLY)
        }

        fn create(&self, name: &str) -> io::Result<File> {
            self.open_at(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
        }

        fn open_lock(&self, name: &str) -> io::Result<File> {
            self.open_at(name, OFlags::RDWR | OFlags::CREATE)
        }

        fn try_lock(&self, file: &File) -> io::Result<bool> {
            match file.try_lock() {
                Ok(()) => Ok(true),
                Err(fs::TryLockError::WouldBlock) => Ok(false),
                Err(fs::TryLockError::Error(error)) => Err(error),
            }
        }

        fn length(&self, file: &File) -> io::Result<u64> {
            Ok(file.metadata()?.len())
        }

        fn read(&self, mut file: &File, buffer: &mut [u8]) -> io::Result<usize> {
            file.read(buffer)
        }

        fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<usize> {
            file.write(bytes)
        }

        fn sync(&self, file: &File) -> io::Result<()> {
            file.sync_all()
        }

        fn sync_names(&self) -> io::Result<()> {
            self.directory.sync_all()
        }

        fn touch(&self, file: &File) -> io::Result<()> {
            file.set_modified(SystemTime::now())
        }

        fn rename(&self, from: &str, to: &str) -> io::Result<()> {
            Ok(rustix::fs::renameat(&self.directory, from, &self.directory, to)?)
        }

        fn remove(&self, name: &str) -> io::Result<()> {
            Ok(rustix::fs::unlinkat(&self.directory, name, AtFlags::empty())?)
        }

        fn list(&self) -> io::Result<Vec<Item>> {
            let mut items = Vec::new();
            for entry in rustix::fs::Dir::read_from(&self.directory)? {
                let entry = entry?;
                // Names that are not text are not ours; what is gone by now needs no word.
                let Ok(name) = entry.file_name().to_str() else { continue };
                let Ok(stat) = rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
                    continue;
                };
                if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                    let used =
                        Duration::new(stat.st_mtime.try_into().unwrap_or(0), stat.st_mtime_nsec as u32);
                    items.push(Item {
                        name: name.into(),
                        bytes: stat.st_size.try_into().unwrap_or(0),
                        used: SystemTime::UNIX_EPOCH + used,
                    });
                }
            }
            Ok(items)
        }
    }
}

//! Whose files are trusted. A digest finds damage; that nobody else can write is what keeps others from
//! having their code run.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Whose files a cache directory may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Ours alone: nobody else may be able to put a file there.
    Owner,
    /// Those of everyone who can write to the directory: the user has said so.
    Shared,
}

impl Trust {
    /// Whether an open directory or file may be used.
    pub(super) fn check(self, what: &str, metadata: &Metadata) -> io::Result<()> {
        if self == Trust::Shared {
            return Ok(());
        }
        let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
        if owner != user {
            return refuse(format!("{what} belongs to user {owner}, this process runs as user {user}"));
        }
        if metadata.mode() & OTHERS_WRITE != 0 {
            return refuse(format!(
                "{what} can be written by others (mode {:04o})",
                metadata.mode() & 0o7777
            ));
        }
        Ok(())
    }

    /// Whether somebody else could put another directory in the place of `path`, an absolute path without
    /// links.
    pub(super) fn check_ancestors(self, path: &Path) -> io::Result<()> {
        if self == Trust::Shared {
            return Ok(());
        }
        let user = rustix::process::geteuid().as_raw();
        for ancestor in path.ancestors().skip(1) {
            let metadata = fs::metadata(ancestor)?;
            let (owner, mode) = (metadata.uid(), metadata.mode());
            let ancestor = ancestor.display();
            if owner != user && owner != 0 {
                return refuse(format!("{ancestor} above it belongs to user {owner}"));
            }
            if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
                return refuse(format!(
                    "{ancestor} above it can be written by others (mode {:04o})",
                    mode & 0o7777
                ));
            }
        }
        Ok(())
    }
}

fn refuse(reason: String) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
}

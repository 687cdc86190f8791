//! The boundary between C and Rust, which both C libraries stand on: `table` (handles are numbers, never addresses),
//! `export` (functions as C calls them), `guard` (panics and failures become statuses with a reason), `failure` (which
//! error becomes which status), `arguments` (how logged calls look), `text` and `parallel`.
//!
//! It is a module of each library and not a crate of its own, since each has its own tables, its own last error and its
//! own log lines, and methods on handles of its own objects.

use std::ffi::c_uint;

pub(crate) mod arguments;
pub(crate) mod export;
pub(crate) mod failure;
pub(crate) mod guard;
pub(crate) mod parallel;
pub(crate) mod table;
pub(crate) mod text;

use failure::Status;

/// What the libraries differ in; each has a `LIBRARY` in its root.
pub(crate) struct Library {
    /// The name in front of its lines on standard error.
    pub(crate) name: &'static str,
    /// The first byte of its handles, so that one library's are none of the other's.
    pub(crate) tag: u8,
    /// Its numbers of statuses.
    pub(crate) code: fn(Status) -> c_uint,
}

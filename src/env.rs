//! The environment variables that this crate reads. `docs/environment.md` lists them all.

/// `FUSEPLAN_BACKEND`: the backend of [`Handle::new`](crate::Handle::new), if set and not empty.
pub(crate) fn backend() -> Option<String> {
    std::env::var("FUSEPLAN_BACKEND").ok().filter(|name| !name.is_empty())
}

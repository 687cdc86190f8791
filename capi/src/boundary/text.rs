//! Text in the caller's buffers, and texts of the caller's.

use std::ffi::{CStr, c_char};

use fuseplan::Handle;

use super::export::{In, Out};
use super::failure::{Failure, Status, bad_parm};

/// Writes `text` and a terminating zero to a buffer of `*size` bytes, and to `*size` how many that are.
pub(crate) fn write_text(text: &str, buffer: Out<c_char>, size: Out<usize>) -> Result<(), Failure> {
    let room = size.required("size")?.get().unwrap_or(0);
    let bytes: Vec<c_char> = text.bytes().chain([0]).map(|byte| byte as c_char).collect();
    size.set(bytes.len());
    if !buffer.is_null() && room < bytes.len() {
        return Err(Failure::new(
            Status::InvalidValue,
            format!("the buffer has {room} bytes, the text needs {}", bytes.len()),
        ));
    }
    buffer.set_all(&bytes);
    Ok(())
}

/// A C string of the caller's.
pub(crate) fn read_text(text: In<c_char>, name: &str) -> Result<String, Failure> {
    if text.get().is_none() {
        return Err(bad_parm(format!("`{name}` is NULL")));
    }
    // SAFETY: not NULL, so a C string, as the header says.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    text.to_str().map(str::to_owned).map_err(|_| bad_parm(format!("`{name}` is not UTF-8")))
}

/// The table of what the handle's backend can run.
pub(crate) fn supported(handle: &Handle) -> Result<String, Failure> {
    let table = fuseplan::support::Table::of_target(handle.target());
    table
        .map(|table| table.to_string())
        .map_err(|error| Failure::new(Status::InternalError, error.to_string()))
}

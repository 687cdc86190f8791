//! Text for the caller's buffers, and this thread's last error.

use std::ffi::c_char;

use crate::abi::{Out, export};
use crate::handle::miopenHandle_t;
use crate::status::{Failure, Status};

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

export! {
    fn fuseplanGetSupportedTable(handle: miopenHandle_t, text: Out<c_char>, size: Out<usize>) {
        let handle = handle.get()?.handle();
        let table = fuseplan::supported_on(handle.target()).map_err(|error| {
            Failure::new(Status::InternalError, error.to_string())
        })?;
        write_text(&table.to_string(), text, size)?;
    }
}

/// `fuseplanGetLastErrorString` of the header.
#[cfg_attr(not(versioned_symbols), unsafe(no_mangle))]
#[allow(non_snake_case, reason = "a name of the C interface")]
pub extern "C" fn fuseplanGetLastErrorString() -> *const c_char {
    crate::guard::last_error()
}

crate::abi::export_symbol!(fuseplanGetLastErrorString, fuseplanGetLastErrorString);

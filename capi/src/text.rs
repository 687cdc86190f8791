//! Texts for the caller's buffers, and this thread's last error.

use std::ffi::c_char;

use crate::abi::{Out, export};
use crate::boundary::text::supported;
pub(crate) use crate::boundary::text::write_text;
use crate::handle::miopenHandle_t;

export! {
    fn fuseplanGetSupportedTable(handle: miopenHandle_t, text: Out<c_char>, size: Out<usize>) {
        let handle = handle.get()?.handle();
        write_text(&supported(&handle)?, text, size)?;
    }
}

/// `fuseplanGetLastErrorString` of the header.
#[cfg_attr(not(versioned_symbols), unsafe(no_mangle))]
#[allow(non_snake_case, reason = "a name of the C interface")]
pub extern "C" fn fuseplanGetLastErrorString() -> *const c_char {
    crate::guard::last_error()
}

crate::abi::export_symbol!(fuseplanGetLastErrorString, fuseplanGetLastErrorString);

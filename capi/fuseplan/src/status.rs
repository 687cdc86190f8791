//! The interface's numbers of statuses, and the functions that return text.

use std::ffi::{CStr, c_char, c_uint};

use crate::boundary::export::export_symbol;
use crate::boundary::failure::Status;
use crate::boundary::guard;

/// A status as C sees it.
#[allow(non_camel_case_types, reason = "C's name")]
pub type fuseplan_status_t = c_uint;

const NAMES: [&CStr; 6] = [
    c"FUSEPLAN_SUCCESS",
    c"FUSEPLAN_INVALID_ARGUMENT",
    c"FUSEPLAN_UNSUPPORTED",
    c"FUSEPLAN_UNAVAILABLE",
    c"FUSEPLAN_OUT_OF_MEMORY",
    c"FUSEPLAN_INTERNAL_ERROR",
];

/// A status's number.
pub(crate) fn code(status: Status) -> fuseplan_status_t {
    match status {
        Status::Success => 0,
        Status::InvalidValue | Status::BadParm | Status::UnknownError | Status::VersionMismatch => 1,
        Status::UnsupportedOp | Status::NotImplemented => 2,
        Status::Unavailable => 3,
        Status::AllocFailed => 4,
        Status::InternalError => 5,
    }
}

/// `fuseplan_status_string` of the header.
#[cfg_attr(not(versioned_symbols), unsafe(no_mangle))]
pub extern "C" fn fuseplan_status_string(status: fuseplan_status_t) -> *const c_char {
    NAMES.get(status as usize).copied().unwrap_or(c"unknown status").as_ptr()
}

export_symbol!(fuseplan_status_string, fuseplan_status_string);

/// `fuseplan_last_error` of the header.
#[cfg_attr(not(versioned_symbols), unsafe(no_mangle))]
pub extern "C" fn fuseplan_last_error() -> *const c_char {
    guard::last_error()
}

export_symbol!(fuseplan_last_error, fuseplan_last_error);

/// `fuseplan_version` of the header.
#[cfg_attr(not(versioned_symbols), unsafe(no_mangle))]
pub extern "C" fn fuseplan_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

export_symbol!(fuseplan_version, fuseplan_version);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_name_and_nothing_else_has_one() {
        assert_eq!(NAMES[code(Status::Success) as usize], c"FUSEPLAN_SUCCESS");
        assert_eq!(NAMES[code(Status::BadParm) as usize], c"FUSEPLAN_INVALID_ARGUMENT");
        assert_eq!(NAMES[code(Status::UnsupportedOp) as usize], c"FUSEPLAN_UNSUPPORTED");
        assert_eq!(NAMES[code(Status::Unavailable) as usize], c"FUSEPLAN_UNAVAILABLE");
        assert_eq!(NAMES[code(Status::AllocFailed) as usize], c"FUSEPLAN_OUT_OF_MEMORY");
        assert_eq!(NAMES[code(Status::InternalError) as usize], c"FUSEPLAN_INTERNAL_ERROR");
        for number in [NAMES.len() as u32, u32::MAX] {
            // SAFETY: a static C string.
            let name = unsafe { CStr::from_ptr(fuseplan_status_string(number)) };
            assert_eq!(name, c"unknown status");
        }
    }
}

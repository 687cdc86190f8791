//! MIOpen's numbers of statuses, and their names.

use std::ffi::{CStr, c_char, c_uint};

pub(crate) use crate::boundary::failure::{Failure, Status, bad_parm, not_implemented};

/// A status as C sees it.
#[allow(non_camel_case_types, reason = "MIOpen's own name")]
pub type miopenStatus_t = c_uint;

/// A status's number.
pub(crate) fn code(status: Status) -> miopenStatus_t {
    match status {
        Status::Success => 0,
        Status::InvalidValue => 2,
        Status::BadParm | Status::Unavailable => 3,
        Status::AllocFailed => 4,
        Status::InternalError => 5,
        Status::NotImplemented => 6,
        Status::UnknownError => 7,
        Status::UnsupportedOp => 8,
        Status::VersionMismatch => 10,
    }
}

/// The name of a status, as `miopenGetErrorString` gives it.
fn name(status: miopenStatus_t) -> &'static CStr {
    const NAMES: [&CStr; 11] = [
        c"miopenStatusSuccess",
        c"miopenStatusNotInitialized",
        c"miopenStatusInvalidValue",
        c"miopenStatusBadParm",
        c"miopenStatusAllocFailed",
        c"miopenStatusInternalError",
        c"miopenStatusNotImplemented",
        c"miopenStatusUnknownError",
        c"miopenStatusUnsupportedOp",
        c"miopenStatusGpuOperationsSkipped",
        c"miopenStatusVersionMismatch",
    ];
    NAMES.get(status as usize).copied().unwrap_or(c"Unknown error status")
}

/// `miopenGetErrorString` of the header: the status's name, static.
#[cfg_attr(not(versioned_symbols), unsafe(no_mangle))]
#[allow(non_snake_case, reason = "MIOpen's own name")]
pub extern "C" fn miopenGetErrorString(error: miopenStatus_t) -> *const c_char {
    name(error).as_ptr()
}

crate::abi::export_symbol!(miopenGetErrorString, miopenGetErrorString);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_name_and_nothing_else_has_one() {
        assert_eq!(name(code(Status::Success)), c"miopenStatusSuccess");
        assert_eq!(name(code(Status::BadParm)), c"miopenStatusBadParm");
        assert_eq!(name(code(Status::UnsupportedOp)), c"miopenStatusUnsupportedOp");
        assert_eq!(name(10), c"miopenStatusVersionMismatch");
        for number in [11, 12, u32::MAX, i32::MAX as u32] {
            assert_eq!(name(number), c"Unknown error status");
        }
    }
}

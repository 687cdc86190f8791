//! Statuses, and the one table of which error becomes which.

use std::ffi::{CStr, c_char, c_uint};

use fuseplan::{
    AppendError, BackendError, BuildError, CompileError, DescriptorError, ExecuteError, PlanError, Reason,
    RunError,
};

/// A status as C sees it.
#[allow(non_camel_case_types, reason = "MIOpen's own name")]
pub type miopenStatus_t = c_uint;

/// MIOpen's statuses that this library returns, and their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Success = 0,
    InvalidValue = 2,
    BadParm = 3,
    AllocFailed = 4,
    InternalError = 5,
    NotImplemented = 6,
    UnknownError = 7,
    UnsupportedOp = 8,
    VersionMismatch = 10,
}

/// A call that failed: the status that it returns and the reason that it gives.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Self {
        Failure { status, text: text.into() }
    }
}

/// The failure of almost every misuse.
pub(crate) fn bad_parm(text: impl Into<String>) -> Failure {
    Failure::new(Status::BadParm, text)
}

/// What this library, or a backend, does not have.
pub(crate) fn not_implemented(text: impl Into<String>) -> Failure {
    Failure::new(Status::NotImplemented, text)
}

macro_rules! statuses {
    ($($error:ty => |$e:ident| $status:expr;)*) => {$(
        impl From<$error> for Failure {
            fn from($e: $error) -> Self {
                Failure::new($status, $e.to_string())
            }
        }
    )*};
}

statuses! {
    DescriptorError => |_e| Status::BadParm;
    PlanError => |e| match &e {
        PlanError::Horizontal => Status::UnsupportedOp,
        _ => Status::BadParm,
    };
    AppendError => |e| match &e.reason {
        Reason::Shape { .. }
        | Reason::DataType { .. }
        | Reason::BiasShape { .. }
        | Reason::BatchNormShape { .. }
        | Reason::OverlappingOutput { .. } => Status::BadParm,
        _ => Status::UnsupportedOp,
    };
    CompileError => |e| match &e {
        CompileError::NoSolver { .. } => Status::UnsupportedOp,
        CompileError::Empty => Status::UnknownError,
        CompileError::Build(error) => build(error),
        _ => Status::BadParm,
    };
    ExecuteError => |e| match &e {
        ExecuteError::Run(error) => run(error),
        _ => Status::BadParm,
    };
    BackendError => |e| backend(&e);
    RunError => |e| run(&e);
}

fn build(error: &BuildError) -> Status {
    match error {
        BuildError::Backend(error) => backend(error),
        _ => Status::InternalError,
    }
}

fn run(error: &RunError) -> Status {
    match error {
        RunError::Backend(error) => backend(error),
        _ => Status::InternalError,
    }
}

fn backend(error: &BackendError) -> Status {
    match error {
        BackendError::OutOfMemory { .. } => Status::AllocFailed,
        BackendError::Unsupported { .. } => Status::NotImplemented,
        BackendError::Unavailable { .. } | BackendError::NoDevice { .. } => Status::BadParm,
        _ => Status::InternalError,
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
        assert_eq!(name(Status::Success as u32), c"miopenStatusSuccess");
        assert_eq!(name(Status::BadParm as u32), c"miopenStatusBadParm");
        assert_eq!(name(Status::UnsupportedOp as u32), c"miopenStatusUnsupportedOp");
        assert_eq!(name(10), c"miopenStatusVersionMismatch");
        for number in [11, 12, u32::MAX, i32::MAX as u32] {
            assert_eq!(name(number), c"Unknown error status");
        }
    }
}

//! Why calls fail, and the one table of which error becomes which status.

use fuseplan::error::{
    AppendError, BackendError, BinaryError, BuildError, CompileError, DescriptorError, ExecuteError,
    PlanError, Reason, RunError,
};

/// What a call may return. Each library has its own numbers for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// It did what it says.
    Success,
    /// A value that the function has no use for, or a buffer that is too small.
    InvalidValue,
    /// Misuse: NULL, no such handle, a number out of its range, descriptors that do not fit.
    BadParm,
    /// There is no such backend, or no device of it.
    Unavailable,
    /// There is no memory.
    AllocFailed,
    /// A driver or a compiler failed, or this library did.
    InternalError,
    /// This library, or a backend, does not have it.
    NotImplemented,
    /// What MIOpen has no better status for.
    UnknownError,
    /// No solver computes it, or it cannot stand there.
    UnsupportedOp,
    /// Something was stored by another version.
    VersionMismatch,
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
    PlanError => |_e| Status::BadParm;
    AppendError => |e| match &e.reason {
        Reason::Shape { .. }
        | Reason::DataType { .. }
        | Reason::ParameterType { .. }
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
    BinaryError => |_e| Status::BadParm;
    RunError => |e| run(&e);
}

fn build(error: &BuildError) -> Status {
    match error {
        BuildError::Backend(error) => backend(error),
        BuildError::Compiler { .. } | BuildError::Configuration { .. } | BuildError::Binary { .. } => {
            Status::InternalError
        }
    }
}

fn run(error: &RunError) -> Status {
    match error {
        RunError::Backend(error) => backend(error),
        RunError::SharedSums { .. } => Status::AllocFailed,
        RunError::Stopped { .. } => Status::InternalError,
    }
}

fn backend(error: &BackendError) -> Status {
    match error {
        BackendError::OutOfMemory { .. } => Status::AllocFailed,
        BackendError::Unsupported { .. } => Status::NotImplemented,
        BackendError::Unavailable { .. } | BackendError::NoDevice { .. } => Status::Unavailable,
        BackendError::UnknownArch { .. } | BackendError::Driver { .. } => Status::InternalError,
    }
}

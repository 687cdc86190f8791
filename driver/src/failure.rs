//! How a command can fail, and the exit code that says so.

use std::io;
use std::process::ExitCode;

use fuseplan::{CompileError, Error, ExecuteError};
use serde_json::json;
use thiserror::Error as ThisError;

use crate::output::Output;

/// A command that did not do what was asked.
#[derive(Debug, ThisError)]
pub(crate) enum Failure {
    /// A result differs from the reference, or a kernel failed.
    #[error("{0}")]
    WrongResult(String),
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The plan is not supported.
    #[error("{0}")]
    Unsupported(String),
    /// No such backend or device, or the device refuses.
    #[error("{0}")]
    NoDevice(String),
    /// Nobody reads the output, or it cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Failure::WrongResult(_) => 1,
            Failure::Usage(_) | Failure::Output(_) => 2,
            Failure::Unsupported(_) => 3,
            Failure::NoDevice(_) => 4,
        }
    }

    /// Says what happened on standard error and, with `--json`, as an object; the exit code.
    pub(crate) fn report(&self, output: &Output) -> ExitCode {
        if matches!(self, Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        let code = self.exit_code();
        eprintln!("error: {self}");
        // Where even this cannot be written, the exit code remains.
        let _ = output.object("error", json!({ "exit": code, "message": self.to_string() }));
        ExitCode::from(code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Descriptor(_) | Error::Compile(CompileError::UnknownSolver { .. }) => Failure::Usage(text),
            Error::Plan(_)
            | Error::Append(_)
            | Error::Compile(_)
            | Error::Execute(ExecuteError::Workspace { .. }) => Failure::Unsupported(text),
            Error::Backend(_) => Failure::NoDevice(text),
            _ => Failure::WrongResult(text),
        }
    }
}

//! How a command can fail, and the exit code that says so.

use std::io::{self, Write};
use std::process::ExitCode;

use fuseplan::{
    Error,
    error::{BackendError, BuildError, CompileError, ExecuteError, RunError},
};
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
    /// The command line makes no sense, in the words of its parser.
    #[error("{0}")]
    CommandLine(clap::Error),
    /// The plan is not supported.
    #[error("{0}")]
    Unsupported(String),
    /// No such backend or device, or the device refuses: it has no compiler or not enough memory.
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
            Failure::Usage(_) | Failure::CommandLine(_) | Failure::Output(_) => 2,
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
        // Where even this cannot be written, the exit code remains.
        let _ = match self {
            Failure::CommandLine(words) => words.print(),
            _ => writeln!(io::stderr(), "error: {self}"),
        };
        let _ = output.object("error", json!({ "exit": code, "message": self.to_string() }));
        ExitCode::from(code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Descriptor(_) | Error::Compile(CompileError::UnknownSolver { .. }) => Failure::Usage(text),
            // What the plan asks for could be done, were the compiler or the memory there.
            Error::Compile(CompileError::Build(BuildError::Backend(_)))
            | Error::Execute(ExecuteError::Run(
                RunError::Backend(BackendError::OutOfMemory { .. }) | RunError::SharedSums { .. },
            )) => Failure::NoDevice(text),
            Error::Plan(_)
            | Error::Append(_)
            | Error::Compile(_)
            | Error::Execute(ExecuteError::Workspace { .. }) => Failure::Unsupported(text),
            Error::Backend(_) => Failure::NoDevice(text),
            _ => Failure::WrongResult(text),
        }
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Error::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_say_whose_fault_it_is() {
        let missing = || BackendError::Unavailable { backend: "rocm", reason: "no compiler".into() };
        let memory = || BackendError::OutOfMemory { backend: "cpu", bytes: 12 };
        let log = BuildError::Compiler { solver: "rocm.direct.v1", log: "error".into() };
        let stopped = RunError::Stopped { backend: "cpu", text: "why".into() };
        for (error, code) in [
            (Error::Compile(CompileError::Empty), 3),
            (Error::Compile(log.into()), 3),
            (Error::Compile(BuildError::from(missing()).into()), 4),
            (Error::Compile(BuildError::from(memory()).into()), 4),
            (Error::Execute(memory().into()), 4),
            (Error::Execute(missing().into()), 1),
            (Error::Execute(stopped.into()), 1),
            (Error::Backend(memory()), 4),
        ] {
            let text = error.to_string();
            let failure = Failure::from(error);
            assert_eq!((failure.exit_code(), failure.to_string()), (code, text));
        }
    }
}

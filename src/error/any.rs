//! Every error of this crate under one roof, for `?`.

use fuseplan_api::{BackendError, DescriptorError, RunError};
use thiserror::Error;

use crate::buffer::BufferError;
use crate::build::CompileError;
use crate::cache::BinaryError;
use crate::execute::ExecuteError;
use crate::plan::{AppendError, PlanError};

/// Any error of this crate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A descriptor cannot be constructed.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// A plan cannot be made.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// An operator was rejected.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// A plan cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// Bytes are not a compiled plan.
    #[error(transparent)]
    Binary(#[from] BinaryError),
    /// An execution was refused or failed.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// A copy between a buffer and a slice failed.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A backend or device cannot do what was asked.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A measurement failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

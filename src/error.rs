//! What each step can be refused with, or fail by. [`Error`](crate::Error) is any of them.

pub(crate) mod any;

pub use fuseplan_api::{BackendError, BuildError, DescriptorError, RunError};

pub use crate::buffer::BufferError;
pub use crate::build::CompileError;
pub use crate::cache::BinaryError;
pub use crate::execute::ExecuteError;
pub use crate::plan::{AppendError, PlanError, PlanTextError, Reason};

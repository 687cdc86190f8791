//! Why a plan is not compiled.

use fuseplan_api::{BuildError, Refusal};
use thiserror::Error;

use crate::cache::BinaryError;

/// A plan that cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompileError {
    /// There is nothing to compute.
    #[error("the plan has no operators")]
    Empty,
    /// The plan was made for a device that the handle is not of.
    #[error("the plan is for {plan}, the handle is of {handle}")]
    OtherDevice {
        /// The plan's device or architecture.
        plan: String,
        /// The handle's device.
        handle: String,
    },
    /// No solver has the id asked for.
    #[error("{backend} has no solver `{id}`; it has {known}")]
    UnknownSolver {
        /// The backend's name.
        backend: &'static str,
        /// The id asked for.
        id: String,
        /// The ids it has.
        known: String,
    },
    /// No solver takes the plan.
    #[error("no solver of {device} takes {chain}: {}", .refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NoSolver {
        /// The device.
        device: String,
        /// The plan's operators.
        chain: String,
        /// Every solver's own reason, in order of preference.
        refusals: Vec<Refusal>,
    },
    /// A compiled binary is not for this plan, device or version.
    #[error(transparent)]
    Binary(#[from] BinaryError),
    /// The solver's kernel cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
}

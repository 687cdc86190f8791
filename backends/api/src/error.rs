//! Errors of the contract. Each says what was asked, what was found and, where there is one, the limit.

use thiserror::Error;

/// A descriptor that cannot be constructed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DescriptorError {
    /// The number of dimensions is not one the descriptor can have.
    #[error("{what}: {found} dimensions, expected {expected}")]
    Rank {
        /// Which descriptor.
        what: &'static str,
        /// The number of dimensions given.
        found: usize,
        /// What would be accepted.
        expected: &'static str,
    },
    /// Two lists that must have one entry per dimension differ in length.
    #[error("{what}: {found} entries, expected one for each of the {expected} dimensions")]
    Count {
        /// Which list.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The number of dimensions.
        expected: usize,
    },
    /// A length, stride or dilation is zero.
    #[error("{what} {dimension} is zero; it must be at least 1")]
    Zero {
        /// Which list.
        what: &'static str,
        /// The dimension in it.
        dimension: usize,
    },
    /// The product of lengths and strides does not fit the address space.
    #[error("tensor lengths {lens:?} with strides {strides:?} overflow the address space")]
    Overflow {
        /// The lengths given.
        lens: Vec<usize>,
        /// The strides given.
        strides: Vec<usize>,
    },
    /// A number is outside of its range.
    #[error("{what} is {found}; {expected}")]
    Range {
        /// Which property.
        what: &'static str,
        /// The number given.
        found: String,
        /// What would be accepted.
        expected: &'static str,
    },
    /// The operands of a shape computation do not fit one another.
    #[error("{0}")]
    Mismatch(String),
}

/// A backend or device that cannot do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BackendError {
    /// The backend's driver or libraries are not on this machine.
    #[error("{backend}: not available: {reason}")]
    Unavailable {
        /// The backend's name.
        backend: &'static str,
        /// What was looked for, and where.
        reason: String,
    },
    /// No device with this ordinal.
    #[error("{backend}: no device {ordinal}; {count} found")]
    NoDevice {
        /// The backend's name.
        backend: &'static str,
        /// The ordinal asked for.
        ordinal: u32,
        /// How many there are.
        count: usize,
    },
    /// An architecture name that the backend's compiler does not know.
    #[error("{backend}: unknown architecture `{arch}`; known: {known}")]
    UnknownArch {
        /// The backend's name.
        backend: &'static str,
        /// The name given.
        arch: String,
        /// The names it knows.
        known: String,
    },
    /// Memory could not be allocated.
    #[error("{backend}: out of memory allocating {bytes} bytes")]
    OutOfMemory {
        /// The backend's name.
        backend: &'static str,
        /// The size asked for.
        bytes: usize,
    },
    /// The driver refused a call.
    #[error("{backend}: {call} failed: {text}")]
    Driver {
        /// The backend's name.
        backend: &'static str,
        /// The driver function.
        call: &'static str,
        /// The driver's own words and number.
        text: String,
    },
    /// Something that this backend does not have.
    #[error("{backend}: {what} is not supported")]
    Unsupported {
        /// The backend's name.
        backend: &'static str,
        /// What was asked for.
        what: &'static str,
    },
}

/// A solver that accepted a problem but could not build its kernel.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BuildError {
    /// The kernel compiler refused the source.
    #[error("{solver}: the kernel does not compile: {log}")]
    Compiler {
        /// The solver's id.
        solver: &'static str,
        /// The compiler's log.
        log: String,
    },
    /// The solver does not compute the problem in this configuration.
    #[error("{solver}: there is no configuration `{configuration}` of this problem")]
    Configuration {
        /// The solver's id.
        solver: &'static str,
        /// The configuration asked for.
        configuration: String,
    },
    /// A stored binary is not of this solver, device or format.
    #[error("{solver}: the stored binary cannot be used: {reason}")]
    Binary {
        /// The solver's id.
        solver: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The device refused.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// A launch that failed. The output's contents are then unspecified.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RunError {
    /// The device refused.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// There is no memory for the sums that blocks of a kernel share. Nothing was launched.
    #[error(
        "{solver}: out of memory allocating {bytes} bytes for the sums that blocks share ({detail}); accepted: as many free bytes for each \
         stream and captured graph, or another solver"
    )]
    SharedSums {
        /// The solver's id.
        solver: &'static str,
        /// The size asked for.
        bytes: usize,
        /// The choices that the solver made.
        detail: String,
    },
    /// A worker of the backend failed.
    #[error("{backend}: a kernel stopped: {text}")]
    Stopped {
        /// The backend's name.
        backend: &'static str,
        /// What it said.
        text: String,
    },
}

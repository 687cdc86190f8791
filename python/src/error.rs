//! The library's errors as Python's exceptions, whose classes `fuseplan/errors.py` defines.

use fuseplan::error::{AppendError, BackendError, CompileError, DescriptorError, ExecuteError, PlanError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

mod classes {
    pyo3::import_exception!(fuseplan.errors, Error);
    pyo3::import_exception!(fuseplan.errors, UnsupportedError);
    pyo3::import_exception!(fuseplan.errors, OperandError);
    pyo3::import_exception!(fuseplan.errors, DeviceError);
}

/// An operator that was not appended.
pub(crate) fn append(error: &AppendError) -> PyErr {
    classes::UnsupportedError::new_err((
        error.to_string(),
        error.kind.to_string(),
        error.index,
        error.property(),
        error.found(),
        error.accepted.clone(),
    ))
}

/// A plan that cannot be made.
pub(crate) fn plan(error: &PlanError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Numbers of which no descriptor can be made.
pub(crate) fn descriptor(error: &DescriptorError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A plan that is not compiled.
pub(crate) fn compile(error: &CompileError) -> PyErr {
    match error {
        CompileError::NoSolver { chain, refusals, .. } => {
            let last = refusals.last();
            classes::UnsupportedError::new_err((
                error.to_string(),
                chain.clone(),
                None::<usize>,
                last.map_or("solver", |refusal| refusal.property),
                last.map_or_else(String::new, |refusal| refusal.found.clone()),
                last.map_or("", |refusal| refusal.accepts),
            ))
        }
        CompileError::Build(_) => device(error),
        _ => classes::Error::new_err(error.to_string()),
    }
}

/// An execution that was refused or failed.
pub(crate) fn execute(error: &ExecuteError) -> PyErr {
    match error {
        ExecuteError::Run(_) => device(error),
        ExecuteError::Misaligned { operand: name, size } => {
            operand(name, "address", "between elements", format!("a multiple of {size} bytes"))
        }
        ExecuteError::Overlap { written, other, .. } => {
            operand(written, "memory", format!("shared with {other}"), "memory of its own".into())
        }
        _ => classes::Error::new_err(error.to_string()),
    }
}

/// A device that cannot be had.
pub(crate) fn backend(error: &BackendError) -> PyErr {
    device(error)
}

fn device(error: &dyn std::error::Error) -> PyErr {
    classes::DeviceError::new_err(error.to_string())
}

/// An array that cannot be used where it lies.
pub(crate) fn operand(
    operand: &str,
    property: &'static str,
    found: impl Into<String>,
    accepted: String,
) -> PyErr {
    classes::OperandError::new_err((operand.to_owned(), property, found.into(), accepted))
}

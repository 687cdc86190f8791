//! Arguments that are numbers which are not negative, with errors that name them.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

pub(crate) fn groups(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    one("groups", object)
}

pub(crate) fn threads(object: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    (!object.is_none()).then(|| one("threads", object)).transpose()
}

pub(crate) fn shape(object: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    several("shape", object)
}

pub(crate) fn strides(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<usize>>> {
    (!object.is_none()).then(|| several("strides", object)).transpose()
}

pub(crate) fn output_strides(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<usize>>> {
    (!object.is_none()).then(|| several("output_strides", object)).transpose()
}

fn one(name: &str, object: &Bound<'_, PyAny>) -> PyResult<usize> {
    object
        .extract()
        .map_err(|_| wrong(name, object, "an integer that is not negative and has at most 64 bits"))
}

fn several(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    object.extract().map_err(|_| {
        wrong(name, object, "a sequence of integers that are not negative and have at most 64 bits")
    })
}

fn wrong(name: &str, object: &Bound<'_, PyAny>, accepted: &str) -> PyErr {
    let found = object.repr().map_or_else(|_| "an object without a text".into(), |text| text.to_string());
    PyTypeError::new_err(format!("{name} is {found}; accepted: {accepted}"))
}

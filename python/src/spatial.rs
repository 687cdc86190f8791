//! Numbers of a convolution's spatial dimensions, as Python gives them.

use fuseplan::ConvolutionDescriptor;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::{error, type_name};

/// A number for all spatial dimensions, or one for each; 1 if nothing is given.
pub(crate) fn per_dimension(
    what: &str,
    given: Option<&Bound<'_, PyAny>>,
    dims: usize,
) -> PyResult<Vec<usize>> {
    let Some(given) = given else { return Ok(vec![1; dims]) };
    if let Ok(number) = given.extract::<usize>() {
        return Ok(vec![number; dims]);
    }
    let wrong = || {
        let found = given.repr().map_or_else(|_| type_name(given), |text| text.to_string());
        PyValueError::new_err(format!(
            "{what} is {found}; accepted: a number, or {dims} numbers, that are not negative"
        ))
    };
    let numbers: Vec<usize> = given.extract().map_err(|_| wrong())?;
    if numbers.len() == dims { Ok(numbers) } else { Err(wrong()) }
}

/// What is added before and after each spatial dimension.
pub(crate) fn padding_of(
    given: Option<&Bound<'_, PyAny>>,
    strides: &[usize],
    dilations: &[usize],
    weights: &fuseplan::TensorDescriptor,
) -> PyResult<Vec<(usize, usize)>> {
    let dims = strides.len();
    let Some(given) = given else { return Ok(vec![(0, 0); dims]) };
    let wrong = || {
        let found = given.repr().map_or_else(|_| type_name(given), |text| text.to_string());
        PyValueError::new_err(format!(
            "padding is {found}; accepted: a number, {dims} numbers or {dims} pairs (before, after), that are not \
             negative, \"same\" or \"valid\""
        ))
    };
    if let Ok(word) = given.cast::<PyString>() {
        return match word.to_cow()?.as_ref() {
            "valid" => Ok(vec![(0, 0); dims]),
            "same" if strides.iter().any(|&stride| stride != 1) => {
                Err(PyValueError::new_err("padding \"same\" needs a stride of 1, as in PyTorch"))
            }
            // As PyTorch has it: where the sum is odd, one more behind.
            "same" => {
                let taps = weights.lens().iter().skip(2).zip(dilations);
                Ok(taps
                    .map(|(&taps, &dilation)| (taps.max(1) - 1).saturating_mul(dilation))
                    .map(|sum| (sum / 2, sum - sum / 2))
                    .collect())
            }
            _ => Err(wrong()),
        };
    }
    if let Ok(pairs) = given.extract::<Vec<(usize, usize)>>() {
        return if pairs.len() == dims { Ok(pairs) } else { Err(wrong()) };
    }
    per_dimension("padding", Some(given), dims)
        .map(|pads| pads.into_iter().map(|pad| (pad, pad)).collect())
        .map_err(|_| wrong())
}

/// A convolution of so many dimensions as there are strides.
pub(crate) fn convolution(
    strides: &[usize],
    pads: &[(usize, usize)],
    dilations: &[usize],
    groups: usize,
) -> PyResult<ConvolutionDescriptor> {
    let (before, after): (Vec<_>, Vec<_>) = pads.iter().copied().unzip();
    ConvolutionDescriptor::of_dims(strides.len())
        .and_then(|conv| conv.with_strides(strides))
        .and_then(|conv| conv.with_asymmetric_pads(before, after))
        .and_then(|conv| conv.with_dilations(dilations))
        .and_then(|conv| conv.with_groups(groups))
        .map_err(|error| error::descriptor(&error))
}

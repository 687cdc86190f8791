//! The names that Python programs have for data types, layouts, math modes and activations.

use fuseplan::raw::ActivationParams;
use fuseplan::{Activation, ActivationMode, DataType, MathMode, TensorLayout};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The name of a data type, which is NumPy's.
pub(crate) fn of_data_type(data_type: DataType) -> &'static str {
    match data_type {
        DataType::Half => "float16",
        DataType::BFloat16 => "bfloat16",
        DataType::Float => "float32",
        DataType::Double => "float64",
        DataType::Int8 => "int8",
    }
}

/// The data type that an object names: a string, a NumPy type or `dtype`, a `torch.dtype`.
pub(crate) fn data_type(object: &Bound<'_, PyAny>) -> PyResult<DataType> {
    let text = match object.getattr_opt("__name__")? {
        Some(name) => name.to_string(),
        None => object.str()?.to_string(),
    };
    let name = text.rsplit('.').next().unwrap_or(&text);
    let found = DataType::ALL.into_iter().find(|&known| of_data_type(known) == name);
    found.ok_or_else(|| {
        let known = DataType::ALL.map(of_data_type).join(", ");
        PyValueError::new_err(format!("dtype is {text}; accepted: {known}"))
    })
}

/// A layout by its letters, which are those of a plan's text.
pub(crate) fn layout(name: &str) -> PyResult<TensorLayout> {
    TensorLayout::ALL.into_iter().find(|layout| layout.to_string() == name).ok_or_else(|| {
        let known = TensorLayout::ALL.map(|layout| layout.to_string()).join(", ");
        PyValueError::new_err(format!("layout is {name}; accepted: {known}"))
    })
}

/// The name of a math mode, which is that of a plan's text.
pub(crate) fn of_math(math: MathMode) -> &'static str {
    match math {
        MathMode::Precise => "precise",
        MathMode::AllowTf32 => "tf32",
        MathMode::Strict => "strict",
    }
}

/// The math mode by its name, or by the shorter word for TF32.
pub(crate) fn math(name: Option<&str>, tf32: bool) -> PyResult<MathMode> {
    let all = [MathMode::Precise, MathMode::AllowTf32, MathMode::Strict];
    let named = |name: &str| {
        all.into_iter().find(|&math| of_math(math) == name).ok_or_else(|| {
            PyValueError::new_err(format!("math is {name}; accepted: {}", all.map(of_math).join(", ")))
        })
    };
    match (name.map(named).transpose()?, tf32) {
        (None, false) => Ok(MathMode::Precise),
        (None | Some(MathMode::AllowTf32), true) => Ok(MathMode::AllowTf32),
        (Some(math), false) => Ok(math),
        (Some(math), true) => Err(PyValueError::new_err(format!(
            "math is {}, and tf32 is True; accepted: one of them",
            of_math(math)
        ))),
    }
}

/// What a Python program says of an activation: PyTorch's name, and the names of its parameters with their values where none
/// are given; `None` where one has to be.
struct Named {
    mode: ActivationMode,
    name: &'static str,
    parameters: &'static [(&'static str, Option<f64>)],
}

const ACTIVATIONS: [Named; 17] = {
    const fn of(
        mode: ActivationMode,
        name: &'static str,
        parameters: &'static [(&'static str, Option<f64>)],
    ) -> Named {
        Named { mode, name, parameters }
    }
    [
        of(ActivationMode::Pasthru, "identity", &[]),
        of(ActivationMode::Logistic, "sigmoid", &[]),
        of(ActivationMode::Tanh, "tanh", &[("alpha", Some(1.0)), ("beta", Some(1.0))]),
        of(ActivationMode::Relu, "relu", &[]),
        of(ActivationMode::SoftRelu, "softplus", &[]),
        of(ActivationMode::Abs, "abs", &[]),
        of(ActivationMode::Power, "power", &[("alpha", Some(0.0)), ("beta", Some(1.0)), ("gamma", None)]),
        of(ActivationMode::ClippedRelu, "relu6", &[("max", Some(6.0))]),
        of(ActivationMode::LeakyRelu, "leaky_relu", &[("slope", Some(0.01))]),
        of(ActivationMode::Elu, "elu", &[("alpha", Some(1.0))]),
        of(ActivationMode::Clamp, "clamp", &[("min", None), ("max", None)]),
        of(ActivationMode::Silu, "silu", &[]),
        of(ActivationMode::HardSwish, "hardswish", &[]),
        of(ActivationMode::HardSigmoid, "hardsigmoid", &[]),
        of(ActivationMode::Gelu, "gelu", &[]),
        of(ActivationMode::GeluTanh, "gelu_tanh", &[]),
        of(ActivationMode::Mish, "mish", &[]),
    ]
};

/// The activation of this name, with the parameters given or those by default.
pub(crate) fn activation(name: &str, given: Option<&Bound<'_, PyDict>>) -> PyResult<Activation> {
    let Some(named) = ACTIVATIONS.iter().find(|named| named.name == name) else {
        let known: Vec<_> = ACTIVATIONS.iter().map(|named| named.name).collect();
        return Err(PyValueError::new_err(format!("activation is {name}; accepted: {}", known.join(", "))));
    };
    let mut scalars = [0.0; 3];
    for (scalar, (word, default)) in scalars.iter_mut().zip(named.parameters) {
        let given = given.map(|given| given.get_item(word)).transpose()?.flatten();
        let given = given.map(|value| value.extract()).transpose()?;
        *scalar = given
            .or(*default)
            .ok_or_else(|| PyTypeError::new_err(format!("activation {name} needs {word}")))?;
    }
    for word in given.into_iter().flat_map(|given| given.keys()) {
        let word = word.to_string();
        if named.parameters.iter().all(|(known, _)| *known != word) {
            let known: Vec<_> = named.parameters.iter().map(|(known, _)| *known).collect();
            let known = if known.is_empty() { "no parameters".into() } else { known.join(", ") };
            return Err(PyTypeError::new_err(format!("activation {name} has no {word}; accepted: {known}")));
        }
    }
    // The three scalars are the parameters in their order.
    let [alpha, beta, gamma] = scalars;
    Ok(named.mode.with(&ActivationParams::new(alpha, beta, gamma)))
}

/// The name of an activation, whose parameters are put into a dictionary.
pub(crate) fn describe_activation(
    activation: &Activation,
    parameters: &Bound<'_, PyDict>,
) -> PyResult<&'static str> {
    let mode = activation.mode();
    let Some(named) = ACTIVATIONS.iter().find(|named| named.mode == mode) else {
        return Err(PyValueError::new_err(format!("the activation {mode} has no name")));
    };
    let ActivationParams { alpha, beta, gamma } = activation.params();
    for ((word, _), value) in named.parameters.iter().zip([alpha, beta, gamma]) {
        parameters.set_item(word, value)?;
    }
    Ok(named.name)
}

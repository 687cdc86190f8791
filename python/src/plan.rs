//! Plans: an input and operators, with the arrays among their operands that do not change.

use std::collections::BTreeMap;

use fuseplan::raw::ActivationParams;
use fuseplan::traits::Operator;
use fuseplan::{
    ActivationForward, BatchNormInference, BatchNormMode, BiasForward, ConvForward, DataType, MathMode,
    PReluForward,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::array::Array;
use crate::compile::{LayoutTime, options};
use crate::compiled::CompiledPlan;
use crate::dlpack::Device as Memory;
use crate::handle::Handle;
use crate::spatial::{convolution, padding_of, per_dimension};
use crate::tensor::{Given, TensorDescriptor, list, of_blocks};
use crate::{count, error, names, type_name};

/// A plan as its compiled plans need it.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) plan: fuseplan::FusionPlan,
    pub(crate) operands: Vec<Named>,
    /// The scalars of each operator.
    pub(crate) scalars: Vec<Vec<f64>>,
}

/// An operand as a Python program names it.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) name: String,
    /// The operator's index in the plan.
    pub(crate) operator: usize,
    /// The operand's index in the operator's list.
    pub(crate) operand: usize,
    pub(crate) descriptor: fuseplan::TensorDescriptor,
}

impl Chain {
    /// Names and descriptors of the operands.
    pub(crate) fn described<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let described = PyDict::new(py);
        for operand in &self.operands {
            described.set_item(&operand.name, TensorDescriptor(operand.descriptor))?;
        }
        Ok(described)
    }
}

/// A chain of operators that is compiled into one kernel.
#[pyclass(name = "Plan", module = "fuseplan")]
#[derive(Debug)]
pub(crate) struct FusionPlan {
    chain: Chain,
    /// The arrays that were given for operands.
    constants: BTreeMap<String, Py<PyAny>>,
    device: Option<Py<Handle>>,
    /// Where the array lies that the input was given as.
    input_memory: Option<Memory>,
    /// The calls that appended the operators, to be made again where the plan is unpickled.
    calls: Vec<(&'static str, Py<PyDict>)>,
}

/// An operand of an operator that is appended: its name in the operator's list and in the program, and its array.
type Operand<'a, 'py> = (&'static str, String, Option<&'a Bound<'py, PyAny>>);

#[pymethods]
impl FusionPlan {
    #[new]
    #[pyo3(signature = (input, *, dtype=None, strides=None, layout=None, device=None))]
    fn new(
        input: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = count::strides)] strides: Option<Vec<usize>>,
        layout: Option<&str>,
        device: Option<Py<Handle>>,
    ) -> PyResult<Self> {
        let named = layout.map(names::layout).transpose()?;
        let blocked = named.and_then(|layout| Some((layout, layout.block()?)));
        let describes_shape =
            dtype.is_some() || strides.is_some() || layout.is_some_and(|_| blocked.is_none());
        let mut is_shape = false;
        let given = Given::of("the input", input, |lens| {
            is_shape = true;
            TensorDescriptor::new(lens.to_vec(), dtype, strides, layout).map(|made| made.0)
        })?;
        if describes_shape && !is_shape {
            return Err(PyTypeError::new_err(
                "dtype, strides and a layout without blocks are for a shape; this input has its own",
            ));
        }
        let input = match (&given, blocked) {
            (Given::Array(array), Some((layout, block))) => {
                of_blocks("the input", &array.descriptor, layout, block)?
            }
            (Given::Described(_), Some(_)) if !is_shape => {
                return Err(PyTypeError::new_err(
                    "layout is for an array or a shape; this input has its own",
                ));
            }
            _ => *given.descriptor(),
        };
        let plan = match &device {
            Some(handle) => fuseplan::FusionPlan::for_device(&handle.get().inner, input),
            None => fuseplan::FusionPlan::new(input),
        };
        let plan = plan.map_err(|error| error::plan(&error))?;
        let chain = Chain { plan, operands: Vec::new(), scalars: Vec::new() };
        let input_memory = match &given {
            Given::Array(array) => Some(array.device),
            Given::Described(_) => None,
        };
        Ok(FusionPlan { chain, constants: BTreeMap::new(), device, input_memory, calls: Vec::new() })
    }

    #[pyo3(signature = (weight, *, stride=None, padding=None, dilation=None, groups=1, output_layout=None, output_strides=None, name=None))]
    #[allow(clippy::too_many_arguments, reason = "Python's keywords")]
    fn conv<'py>(
        mut slf: PyRefMut<'py, Self>,
        weight: &Bound<'py, PyAny>,
        stride: Option<&Bound<'py, PyAny>>,
        padding: Option<&Bound<'py, PyAny>>,
        dilation: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = count::groups)] groups: usize,
        output_layout: Option<&str>,
        #[pyo3(from_py_with = count::output_strides)] output_strides: Option<Vec<usize>>,
        name: Option<&str>,
    ) -> PyResult<PyRefMut<'py, Self>> {
        let py = weight.py();
        let name = slf.name_of(name, "weight")?;
        let running = *slf.chain.plan.output();
        let given = Given::of(&name, weight, |lens| {
            let made = if lens.len() == running.rank() {
                running.filters_like(lens)
            } else {
                fuseplan::TensorDescriptor::packed(running.data_type(), lens)
            };
            made.map_err(|error| error::descriptor(&error))
        })?;
        let weights = *given.descriptor();
        let dims = running.spatial().len();
        let strides = per_dimension("stride", stride, dims)?;
        let dilations = per_dimension("dilation", dilation, dims)?;
        let pads = padding_of(padding, &strides, &dilations, &weights)?;
        let conv = convolution(&strides, &pads, &dilations, groups)?;
        let mut operator = ConvForward::new(conv, weights);
        if output_layout.is_some() && output_strides.is_some() {
            return Err(PyTypeError::new_err(
                "output_layout and output_strides are given; accepted: one of them",
            ));
        }
        if let Some(name) = output_layout {
            operator = operator.with_output_layout(names::layout(name)?);
        }
        if let Some(strides) = &output_strides {
            operator = operator.with_output_strides(strides);
        }
        let call = PyDict::new(py);
        match given {
            Given::Described(_) => call.set_item("weight", TensorDescriptor(weights))?,
            Given::Array(_) => call.set_item("weight", weight)?,
        }
        call.set_item("stride", strides)?;
        call.set_item("padding", pads)?;
        call.set_item("dilation", dilations)?;
        call.set_item("groups", groups)?;
        call.set_item("output_layout", output_layout)?;
        call.set_item("output_strides", output_strides)?;
        call.set_item("name", &name)?;
        let array = matches!(given, Given::Array(_)).then_some(weight);
        slf.append(operator, Vec::new(), vec![("weights", name, array)], ("conv", call))?;
        Ok(slf)
    }

    #[pyo3(signature = (bias=None, *, dtype=None, name=None))]
    fn bias<'py>(
        mut slf: PyRefMut<'py, Self>,
        py: Python<'py>,
        bias: Option<&Bound<'py, PyAny>>,
        dtype: Option<&Bound<'py, PyAny>>,
        name: Option<&str>,
    ) -> PyResult<PyRefMut<'py, Self>> {
        let name = slf.name_of(name, "bias")?;
        let described = parameters_of(slf.chain.plan.output(), false, &name, bias, dtype)?;
        let call = PyDict::new(py);
        call.set_item("bias", bias)?;
        call.set_item("dtype", names::of_data_type(described.data_type()))?;
        call.set_item("name", &name)?;
        let operator = BiasForward::with_descriptor(described);
        slf.append(operator, Vec::new(), vec![("bias", name, bias)], ("bias", call))?;
        Ok(slf)
    }

    #[pyo3(signature = (slope=None, *, shared=false, dtype=None, name=None))]
    fn prelu<'py>(
        mut slf: PyRefMut<'py, Self>,
        py: Python<'py>,
        slope: Option<&Bound<'py, PyAny>>,
        shared: bool,
        dtype: Option<&Bound<'py, PyAny>>,
        name: Option<&str>,
    ) -> PyResult<PyRefMut<'py, Self>> {
        let name = slf.name_of(name, "slope")?;
        let array = slope.map(|slope| Array::of(&name, slope, None)).transpose()?.flatten();
        let shared = shared || array.is_some_and(|array| array.descriptor.element_count() == 1);
        let described = parameters_of(slf.chain.plan.output(), shared, &name, slope, dtype)?;
        let call = PyDict::new(py);
        call.set_item("slope", slope)?;
        call.set_item("shared", shared)?;
        call.set_item("dtype", names::of_data_type(described.data_type()))?;
        call.set_item("name", &name)?;
        let operator = PReluForward::with_descriptor(described);
        slf.append(operator, Vec::new(), vec![("slope", name, slope)], ("prelu", call))?;
        Ok(slf)
    }

    #[pyo3(signature = (like=None, *, name=None))]
    fn residual<'py>(
        mut slf: PyRefMut<'py, Self>,
        py: Python<'py>,
        like: Option<&Bound<'py, PyAny>>,
        name: Option<&str>,
    ) -> PyResult<PyRefMut<'py, Self>> {
        let name = slf.name_of(name, "residual")?;
        let running = *slf.chain.plan.output();
        let of_lens = |lens: &[usize]| running.like(lens).map_err(|error| error::descriptor(&error));
        let descriptor = match like {
            Some(like) => *Given::of(&name, like, of_lens)?.descriptor(),
            None => running,
        };
        if descriptor.lens() != running.lens() {
            return Err(error::operand(&name, "shape", list(descriptor.lens()), list(running.lens())));
        }
        let call = PyDict::new(py);
        call.set_item("like", TensorDescriptor(descriptor))?;
        call.set_item("name", &name)?;
        let residual = BiasForward::with_descriptor(descriptor);
        slf.append(residual, Vec::new(), vec![("bias", name, None)], ("residual", call))?;
        Ok(slf)
    }

    #[pyo3(signature = (scale=None, bias=None, mean=None, variance=None, *, eps=1e-5, per_activation=false, dtype=None, name=None))]
    #[allow(clippy::too_many_arguments, reason = "Python's keywords")]
    fn batch_norm<'py>(
        mut slf: PyRefMut<'py, Self>,
        py: Python<'py>,
        scale: Option<&Bound<'py, PyAny>>,
        bias: Option<&Bound<'py, PyAny>>,
        mean: Option<&Bound<'py, PyAny>>,
        variance: Option<&Bound<'py, PyAny>>,
        eps: f64,
        per_activation: bool,
        dtype: Option<&Bound<'py, PyAny>>,
        name: Option<&str>,
    ) -> PyResult<PyRefMut<'py, Self>> {
        let mode = if per_activation { BatchNormMode::PerActivation } else { BatchNormMode::Spatial };
        let name = slf.name_of(name, "bn")?;
        let data_type = parameter_type(&name, scale, dtype)?.unwrap_or(DataType::Float);
        let described = mode.derive(slf.chain.plan.output());
        let described = described.and_then(|derived| derived.with_data_type(data_type));
        let described = described.map_err(|error| error::descriptor(&error))?;
        let given = [("scale", scale), ("bias", bias), ("mean", mean), ("variance", variance)];
        let call = PyDict::new(py);
        for (operand, array) in given {
            call.set_item(operand, array)?;
        }
        call.set_item("eps", eps)?;
        call.set_item("per_activation", per_activation)?;
        call.set_item("dtype", names::of_data_type(data_type))?;
        call.set_item("name", &name)?;
        let operands = given.map(|(operand, array)| (operand, format!("{name}_{operand}"), array)).to_vec();
        let operator = BatchNormInference::with_descriptor(mode, described);
        slf.append(operator, vec![eps], operands, ("batch_norm", call))?;
        Ok(slf)
    }

    #[pyo3(signature = (mode, **parameters))]
    fn activation<'py>(
        mut slf: PyRefMut<'py, Self>,
        py: Python<'py>,
        mode: &str,
        parameters: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<PyRefMut<'py, Self>> {
        let activation = names::activation(mode, parameters)?;
        let call = parameters.map_or_else(|| Ok(PyDict::new(py)), |parameters| parameters.copy())?;
        call.set_item("mode", mode)?;
        let ActivationParams { alpha, beta, gamma } = activation.params();
        let operator = ActivationForward::new(activation.mode());
        slf.append(operator, vec![alpha, beta, gamma], Vec::new(), ("activation", call))?;
        Ok(slf)
    }

    #[pyo3(signature = (device=None, *, find=None, math=None, tf32=false, solver=None))]
    fn compile(
        &self,
        py: Python<'_>,
        device: Option<Py<Handle>>,
        find: Option<bool>,
        math: Option<&str>,
        tf32: bool,
        solver: Option<String>,
    ) -> PyResult<CompiledPlan> {
        let chain = self.chain_with(names::math(math, tf32)?);
        let device = self.device_or(py, device)?;
        let options = options(find, solver);
        let handle = &device.get().inner;
        let built = py.detach(|| chain.plan.compile_with(handle, &options));
        let built = built.map_err(|error| error::compile(&error))?;
        CompiledPlan::new(py, self.twin(py), chain, device, built)
    }

    #[pyo3(signature = (device=None, *, math=None, tf32=false))]
    fn fastest_layouts(
        &self,
        py: Python<'_>,
        device: Option<Py<Handle>>,
        math: Option<&str>,
        tf32: bool,
    ) -> PyResult<Vec<LayoutTime>> {
        let chain = self.chain_with(names::math(math, tf32)?);
        let device = self.device_or(py, device)?;
        let handle = &device.get().inner;
        let times = py.detach(|| chain.plan.fastest_layouts(handle));
        Ok(times.map_err(|error| error::compile(&error))?.into_iter().map(LayoutTime).collect())
    }

    #[getter]
    fn input(&self) -> TensorDescriptor {
        TensorDescriptor(*self.chain.plan.input())
    }

    #[getter]
    fn output(&self) -> TensorDescriptor {
        TensorDescriptor(*self.chain.plan.output())
    }

    #[getter]
    fn operators(&self) -> Vec<String> {
        self.chain.plan.ops().iter().map(ToString::to_string).collect()
    }

    #[getter]
    fn operands<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.chain.described(py)
    }

    fn __repr__(&self) -> String {
        format!("<fuseplan.Plan {}>", self.chain.plan.problem())
    }

    fn __copy__(&self, py: Python<'_>) -> Self {
        self.twin(py)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let rebuild = py.import("fuseplan._native")?.getattr("rebuild")?;
        let device = self.device.as_ref().map(|device| device.clone_ref(py));
        let calls = PyList::new(py, self.calls.iter().map(|(method, call)| (*method, call)))?;
        let memory = self.input_memory.map(|memory| (memory.kind, memory.id));
        Ok((rebuild, (self.input(), device, calls, memory).into_pyobject(py)?))
    }
}

/// A plan by the calls that made it, for pickle.
#[pyfunction]
pub(crate) fn rebuild<'py>(
    py: Python<'py>,
    input: Bound<'py, PyAny>,
    device: Option<Py<Handle>>,
    calls: Vec<(String, Bound<'py, PyDict>)>,
    memory: Option<(i32, i32)>,
) -> PyResult<Bound<'py, FusionPlan>> {
    let mut plan = FusionPlan::new(&input, None, None, None, device)?;
    plan.input_memory = memory.map(|(kind, id)| Memory { kind, id });
    let plan = Bound::new(py, plan)?;
    for (method, call) in calls {
        plan.call_method(PyString::new(py, &method), (), Some(&call))?;
    }
    Ok(plan)
}

impl FusionPlan {
    /// The chain in a math mode.
    pub(crate) fn chain_with(&self, math: MathMode) -> Chain {
        let mut chain = self.chain.clone();
        chain.plan.set_math_mode(math);
        chain
    }

    pub(crate) fn constants(&self) -> &BTreeMap<String, Py<PyAny>> {
        &self.constants
    }

    /// The device given, else the plan's own, else the one in whose memory the plan's arrays lie, else the best one.
    pub(crate) fn device_or(&self, py: Python<'_>, given: Option<Py<Handle>>) -> PyResult<Py<Handle>> {
        if let Some(device) = given.or_else(|| self.device.as_ref().map(|device| device.clone_ref(py))) {
            return Ok(device);
        }
        let handles = py.get_type::<Handle>();
        let opened = match self.memory(py)?.and_then(Memory::of_backend) {
            Some(device) => handles.call1(device)?,
            None => handles.call0()?,
        };
        Ok(opened.cast_into::<Handle>()?.unbind())
    }

    /// Where the input's array lies, or the constants.
    fn memory(&self, py: Python<'_>) -> PyResult<Option<Memory>> {
        if self.input_memory.is_some() {
            return Ok(self.input_memory);
        }
        let Some((name, constant)) = self.constants.first_key_value() else { return Ok(None) };
        Ok(Array::of(name, constant.bind(py), None)?.map(|array| array.device))
    }

    pub(crate) fn twin(&self, py: Python<'_>) -> Self {
        let constants = self.constants.iter().map(|(name, array)| (name.clone(), array.clone_ref(py)));
        FusionPlan {
            chain: self.chain.clone(),
            constants: constants.collect(),
            device: self.device.as_ref().map(|device| device.clone_ref(py)),
            input_memory: self.input_memory,
            calls: self.calls.iter().map(|(method, call)| (*method, call.clone_ref(py))).collect(),
        }
    }

    /// Appends an operator with its operands; the plan is as it was if anything is refused.
    fn append<'py, O: Operator>(
        &mut self,
        operator: O,
        scalars: Vec<f64>,
        operands: Vec<Operand<'_, 'py>>,
        call: (&'static str, Bound<'py, PyDict>),
    ) -> PyResult<()> {
        let mut plan = self.chain.plan.clone();
        let index = plan.append(operator).map_err(|error| error::append(&error))?.index();
        let described: Vec<_> = plan.ops()[index].operands(plan.output()).collect();
        let (mut named, mut constants) = (Vec::new(), Vec::new());
        for (operand, name, array) in operands {
            if name == "out" || self.chain.operands.iter().any(|known| known.name == name) {
                return Err(PyValueError::new_err(format!("the name {name} is taken")));
            }
            let Some(position) = O::KIND.operand_index(operand) else { continue };
            let descriptor = described[position].descriptor;
            if let Some(object) = array {
                let Some(array) = Array::of(&name, object, None)? else {
                    return Err(PyTypeError::new_err(format!(
                        "{name} is of type {}; accepted: an array with __dlpack__ or __array_interface__",
                        type_name(object)
                    )));
                };
                array.check_is(&name, &descriptor)?;
                constants.push((name.clone(), object.clone().unbind()));
            }
            named.push(Named { name, operator: index, operand: position, descriptor });
        }
        self.chain.plan = plan;
        self.chain.operands.extend(named);
        self.chain.scalars.push(scalars);
        self.constants.extend(constants);
        self.calls.push((call.0, call.1.unbind()));
        Ok(())
    }

    /// The name of an operand: the one given, or the first free one of `word`, `word2`, `word3`.
    fn name_of(&self, given: Option<&str>, word: &str) -> PyResult<String> {
        if let Some(name) = given {
            return Ok(name.into());
        }
        let is_taken = |name: &str| {
            let of_group = format!("{name}_");
            self.chain.operands.iter().any(|known| known.name == name || known.name.starts_with(&of_group))
        };
        let mut numbered = (2..).map(|number| format!("{word}{number}"));
        let name = if is_taken(word) { numbered.find(|name| !is_taken(name)) } else { Some(word.into()) };
        name.ok_or_else(|| PyValueError::new_err("there are too many operands"))
    }
}

/// What one value a channel, or one for all, is described as: of the data type of its array, the one that is named, or the
/// running tensor's.
fn parameters_of(
    running: &fuseplan::TensorDescriptor,
    is_one: bool,
    name: &str,
    array: Option<&Bound<'_, PyAny>>,
    dtype: Option<&Bound<'_, PyAny>>,
) -> PyResult<fuseplan::TensorDescriptor> {
    let data_type = parameter_type(name, array, dtype)?.unwrap_or(running.data_type());
    let mut lens = vec![1; running.rank()];
    lens[1] = if is_one { 1 } else { running.lens()[1] };
    fuseplan::TensorDescriptor::packed(data_type, &lens).map_err(|error| error::descriptor(&error))
}

/// The data type of parameters: that of their array, or the one that is named.
fn parameter_type(
    name: &str,
    array: Option<&Bound<'_, PyAny>>,
    dtype: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<DataType>> {
    if let Some(dtype) = dtype {
        return names::data_type(dtype).map(Some);
    }
    let Some(array) = array else { return Ok(None) };
    Ok(Array::of(name, array, None)?.map(|array| array.descriptor.data_type()))
}

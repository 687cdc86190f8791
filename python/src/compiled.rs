//! Compiled plans: called with arrays, explained, stored.

use std::borrow::Cow;

use fuseplan::error::{CompileError, ExecuteError};
use fuseplan::memory::{Operand, OperandMut};
use fuseplan::raw::{self, OpArgs};
use fuseplan::{CompileOptions, CompiledBinary, Tensor, TensorMut};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::array::{self, Array, Owner};
use crate::handle::Handle;
use crate::plan::{Chain, FusionPlan};
use crate::tensor::TensorDescriptor;
use crate::{error, names, type_name};

/// What no data type's elements are aligned to more than.
const ALIGNED: usize = 16;

/// The address of an output.
pub(crate) enum Out {
    /// In memory that nothing else of the execution lies in.
    New(usize),
    /// Wherever a program says.
    Given(usize),
}

/// Why a call by addresses failed.
pub(crate) enum ComputeError {
    /// There are not as many as the plan takes, or one is 0.
    Addresses {
        /// How many operands are no constants.
        expected: usize,
    },
    Execute(ExecuteError),
}

impl From<ComputeError> for PyErr {
    fn from(error: ComputeError) -> Self {
        match error {
            ComputeError::Addresses { expected } => PyValueError::new_err(format!(
                "a call takes the addresses of input, output and {expected} operands, none of them 0"
            )),
            ComputeError::Execute(error) => error::execute(&error),
        }
    }
}

/// A plan compiled for a device, with the arrays among its operands that do not change.
#[pyclass(frozen, module = "fuseplan")]
pub(crate) struct CompiledPlan {
    inner: fuseplan::CompiledPlan,
    chain: Chain,
    device: Py<Handle>,
    /// The plan as it was at the compile.
    plan: Py<FusionPlan>,
    /// The arguments, with the constant operands in them; a call fills in the others.
    args: Vec<OpArgs>,
    /// The others: their operators, and their places among the operators' operands.
    variable: Vec<(usize, usize)>,
    /// The constant operands, by name.
    constants: Vec<(String, Py<PyAny>)>,
    /// What the memory of the constant operands belongs to.
    _owners: Vec<Owner>,
}

impl CompiledPlan {
    pub(crate) fn device(&self) -> &Handle {
        self.device.get()
    }

    pub(crate) fn new(
        py: Python<'_>,
        plan: FusionPlan,
        chain: Chain,
        device: Py<Handle>,
        inner: fuseplan::CompiledPlan,
    ) -> PyResult<Self> {
        let constants: Vec<_> =
            plan.constants().iter().map(|(name, array)| (name.clone(), array.clone_ref(py))).collect();
        let plan = Py::new(py, plan)?;
        Self::bound(py, inner, chain, device, plan, constants)
    }

    fn bound(
        py: Python<'_>,
        inner: fuseplan::CompiledPlan,
        chain: Chain,
        device: Py<Handle>,
        plan: Py<FusionPlan>,
        mut constants: Vec<(String, Py<PyAny>)>,
    ) -> PyResult<Self> {
        let of_scalars = |scalars: &Vec<f64>| {
            let mut args = OpArgs::default();
            args.scalars[..scalars.len()].copy_from_slice(scalars);
            args
        };
        let mut args: Vec<_> = chain.scalars.iter().map(of_scalars).collect();
        let mut owners = Vec::new();
        let handle = device.get();
        for (name, object) in &mut constants {
            let operand = chain.operands.iter().find(|operand| operand.name == *name);
            let operand = operand.ok_or_else(|| unknown(&chain, name))?;
            let mut array = array_of(name, object.bind(py), handle.dlpack_stream())?;
            if let Some(detach) = object.bind(py).getattr_opt(intern!(py, "detach"))? {
                // A tensor of PyTorch can be given other memory (`set_`), so a second one keeps what is here.
                *object = detach.call0()?.unbind();
                array = array_of(name, object.bind(py), handle.dlpack_stream())?;
            }
            array.check_is(name, &operand.descriptor)?;
            array.check_device(name, &handle.inner)?;
            args[operand.operator].pointers[operand.operand] = array.pointer();
            owners.push(array.owner);
        }
        // What is derived from operands is kept where all that an operator reads is constant.
        for (index, args) in args.iter_mut().enumerate() {
            let mut own = chain.operands.iter().filter(|operand| operand.operator == index).peekable();
            let is_constant = own.peek().is_some()
                && own.all(|operand| constants.iter().any(|(name, _)| *name == operand.name));
            args.prepared = is_constant.then(Default::default);
        }
        let places = chain.operands.iter().map(|operand| (operand.operator, operand.operand));
        let variable =
            places.filter(|&(operator, operand)| args[operator].pointers[operand].is_null()).collect();
        Ok(CompiledPlan { inner, chain, device, plan, args, variable, constants, _owners: owners })
    }

    /// Executes the plan, checked or not, and waits for the device if so asked.
    ///
    /// # Safety
    /// The addresses, in the arguments as well, are those of memory that the plan's descriptors describe, which the handle's
    /// device can use, which may be written where it is, and which is kept until the execution has passed. Where nothing is
    /// checked, none is 0 or misaligned, and what is written lies in nothing else.
    unsafe fn execute(
        &self,
        handle: &fuseplan::Handle,
        input: usize,
        output: usize,
        args: &[OpArgs],
        is_checked: bool,
        waits: bool,
    ) -> Result<(), ExecuteError> {
        let input = std::ptr::with_exposed_provenance(input);
        let output = std::ptr::with_exposed_provenance_mut(output);
        if is_checked {
            // SAFETY: as the function's own.
            let (input, output, args) = unsafe {
                (Operand::from_raw(input, None), OperandMut::from_raw(output, None), raw::Args::new(args))
            };
            let input = Tensor::new(self.inner.input(), input);
            self.inner.execute(handle, input, TensorMut::new(self.inner.output(), output), args)?;
        } else {
            // SAFETY: as the function's own.
            unsafe { self.inner.execute_unchecked(handle, input, output, args)? };
        }
        if waits { handle.synchronize().map_err(ExecuteError::from) } else { Ok(()) }
    }

    /// Computes with the memory at these addresses: input, output and the operands that are not constant, in their order.
    ///
    /// # Errors
    /// Another number of operands, an address of 0, and what the execution fails with.
    ///
    /// # Safety
    /// The memory is what the plan's descriptors say, on the plan's device, writable where it is written, and kept until the
    /// execution has passed.
    pub(crate) unsafe fn compute_at(
        &self,
        py: Python<'_>,
        input: usize,
        out: Out,
        operands: impl ExactSizeIterator<Item = usize> + Send,
        stream: Option<usize>,
    ) -> PyResult<()> {
        // SAFETY: as the function's own.
        py.detach(|| unsafe { self.compute(input, out, operands, stream) }).map_err(PyErr::from)
    }

    /// As [`compute_at`](Self::compute_at), where Python's lock is not held.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn compute(
        &self,
        input: usize,
        out: Out,
        operands: impl ExactSizeIterator<Item = usize>,
        stream: Option<usize>,
    ) -> Result<(), ComputeError> {
        let own = self.device.get();
        let in_stream = stream.map(|stream| own.with_stream(stream));
        let device = in_stream.as_ref().unwrap_or(own);
        let expected = self.variable.len();
        let (Out::New(output) | Out::Given(output)) = out;
        let mut is_whole = operands.len() == expected && input != 0 && output != 0;
        let mut all = input | output;
        let mut given = Cow::Borrowed(&self.args[..]);
        for (&(operator, operand), address) in self.variable.iter().zip(operands) {
            is_whole &= address != 0;
            all |= address;
            given.to_mut()[operator].pointers[operand] = std::ptr::with_exposed_provenance_mut(address);
        }
        if !is_whole {
            return Err(ComputeError::Addresses { expected });
        }
        let is_checked = matches!(out, Out::Given(_)) || !all.is_multiple_of(ALIGNED);
        let waits = !device.has_given_stream && device.backend() != "cpu";
        // SAFETY: as the function's own. None of the addresses is 0, and where one may be misaligned, or the output may lie in an
        // operand, all is checked.
        unsafe { self.execute(&device.inner, input, output, &given, is_checked, waits) }
            .map_err(ComputeError::Execute)
    }

    /// How many bytes an output has.
    pub(crate) fn output_bytes(&self) -> usize {
        self.inner.output().bytes()
    }

    fn constants_of(&self, py: Python<'_>) -> Vec<(String, Py<PyAny>)> {
        self.constants.iter().map(|(name, array)| (name.clone(), array.clone_ref(py))).collect()
    }
}

#[pymethods]
impl CompiledPlan {
    #[pyo3(signature = (input, /, *, out=None, **operands))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        input: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        operands: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let is_torch = array::is_torch(input)?;
        let own = self.device.get();
        let in_stream;
        let device = if is_torch && own.takes_torch_stream() {
            in_stream = own.in_torch_stream(py)?;
            &in_stream
        } else {
            own
        };
        let (handle, stream) = (&device.inner, device.dlpack_stream());
        let x = array_of("the input", input, stream)?;
        x.check_is("the input", self.inner.input())?;
        x.check_device("the input", handle)?;
        let mut args = self.args.clone();
        let mut owners = Vec::new();
        let mut given = 0;
        for operand in &self.chain.operands {
            let name = &operand.name;
            let object = operands.map(|operands| operands.get_item(name)).transpose()?.flatten();
            let is_constant = !args[operand.operator].pointers[operand.operand].is_null();
            let object = match (object, is_constant) {
                (Some(object), false) => object,
                (None, true) => continue,
                (Some(_), true) => {
                    return Err(PyTypeError::new_err(format!(
                        "{name} is given; the plan has it as a constant"
                    )));
                }
                (None, false) => {
                    let accepted = operand.descriptor;
                    return Err(PyTypeError::new_err(format!(
                        "{name} is missing; accepted: an array {accepted}"
                    )));
                }
            };
            let array = array_of(name, &object, stream)?;
            array.check_is(name, &operand.descriptor)?;
            array.check_device(name, handle)?;
            args[operand.operator].pointers[operand.operand] = array.pointer();
            owners.push(array.owner);
            given += 1;
        }
        if let Some(operands) = operands.filter(|operands| operands.len() > given) {
            let known = |name: &str| self.chain.operands.iter().any(|operand| operand.name == name);
            for name in operands.keys() {
                let name = name.to_string();
                if !known(&name) {
                    return Err(unknown(&self.chain, &name));
                }
            }
        }
        let output = match out {
            Some(out) => out.clone(),
            None => array::empty_like(input, self.inner.output())?,
        };
        let y = array_of("out", &output, stream)?;
        y.check_is("out", self.inner.output())?;
        y.check_device("out", handle)?;
        if !y.is_writable {
            return Err(error::operand("out", "memory", "read-only", "what may be written".into()));
        }
        // Whoever gave the stream, PyTorch for its tensors, keeps the memory until the stream has passed. Nobody else does.
        let waits = !device.has_given_stream && device.backend() != "cpu";
        // SAFETY: every array was found to have the type, extent and device that the plan says, and what is written to be
        // writable. They are alive until this returns; the device has passed the execution by then, or the stream is one
        // whose owner keeps memory for it. That nobody else writes them meanwhile is up to the program, as it is for every
        // function of Python's that gives its lock away.
        let executed =
            py.detach(|| unsafe { self.execute(handle, x.address, y.address, &args, true, waits) });
        executed.map_err(|error| error::execute(&error))?;
        Ok(output)
    }

    /// The same kernel with more operands that do not change.
    #[pyo3(signature = (**operands))]
    fn bind(&self, py: Python<'_>, operands: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut constants = self.constants_of(py);
        for (name, array) in operands.into_iter().flatten() {
            let name: String = name.extract()?;
            constants.retain(|(known, _)| *known != name);
            constants.push((name, array.unbind()));
        }
        let (device, plan) = (self.device.clone_ref(py), self.plan.clone_ref(py));
        Self::bound(py, self.inner.clone(), self.chain.clone(), device, plan, constants)
    }

    fn explain(&self) -> String {
        let threads = self.device.get().whose_threads();
        let threads = threads.map_or_else(String::new, |threads| format!("\nthreads    {threads}"));
        format!("{}{threads}", self.inner)
    }

    #[getter]
    fn handle(&self, py: Python<'_>) -> Py<Handle> {
        self.device.clone_ref(py)
    }

    #[getter]
    fn input(&self) -> TensorDescriptor {
        TensorDescriptor(*self.inner.input())
    }

    #[getter]
    fn output(&self) -> TensorDescriptor {
        TensorDescriptor(*self.inner.output())
    }

    #[getter]
    fn operands<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.chain.described(py)
    }

    #[getter]
    fn constants(&self) -> Vec<&str> {
        self.constants.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[getter]
    fn solver(&self) -> &'static str {
        self.inner.info().solver
    }

    #[getter]
    fn kernels(&self) -> usize {
        self.inner.info().kernels as usize
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let options = CompileOptions::default().with_solver(self.solver());
        let handle = &self.device.get().inner;
        let binary = py.detach(|| self.chain.plan.compile_for(handle, &options));
        Ok(PyBytes::new(py, &binary.map_err(|error| error::compile(&error))?.to_bytes()))
    }

    #[staticmethod]
    #[pyo3(signature = (plan, data, device=None, *, math=None, tf32=false))]
    fn from_bytes(
        py: Python<'_>,
        plan: &Bound<'_, FusionPlan>,
        data: &[u8],
        device: Option<Py<Handle>>,
        math: Option<&str>,
        tf32: bool,
    ) -> PyResult<Self> {
        let plan = plan.borrow();
        let chain = plan.chain_with(names::math(math, tf32)?);
        let device = plan.device_or(py, device)?;
        let inner = load(py, &chain, data, &device).map_err(|error| error::compile(&error))?;
        Self::new(py, plan.twin(py), chain, device, inner)
    }

    fn __repr__(&self) -> String {
        format!("<fuseplan.CompiledPlan {} by {}>", self.inner.problem(), self.solver())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (py, this) = (slf.py(), slf.get());
        let constants = PyDict::new(py);
        for (name, array) in &this.constants {
            constants.set_item(name, array)?;
        }
        let restore = py.import("fuseplan._native")?.getattr("restore")?;
        let math = names::of_math(this.inner.problem().math);
        let state = (&this.plan, &this.device, math, this.to_bytes(py)?, constants);
        Ok((restore, state.into_pyobject(py)?))
    }
}

/// A compiled plan that was pickled: its binary where that fits the device and this version, else compiled anew.
#[pyfunction]
pub(crate) fn restore(
    py: Python<'_>,
    plan: Py<FusionPlan>,
    device: Py<Handle>,
    math: &str,
    data: &[u8],
    constants: &Bound<'_, PyDict>,
) -> PyResult<CompiledPlan> {
    let chain = plan.borrow(py).chain_with(names::math(Some(math), false)?);
    let inner = match load(py, &chain, data, &device) {
        Err(CompileError::Binary(_)) => py.detach(|| chain.plan.compile(&device.get().inner)),
        loaded => loaded,
    };
    let inner = inner.map_err(|error| error::compile(&error))?;
    let named = constants.iter().map(|(name, array)| Ok((name.extract()?, array.unbind())));
    let constants = named.collect::<PyResult<Vec<_>>>()?;
    CompiledPlan::bound(py, inner, chain, device, plan, constants)
}

fn load(
    py: Python<'_>,
    chain: &Chain,
    data: &[u8],
    device: &Py<Handle>,
) -> Result<fuseplan::CompiledPlan, CompileError> {
    let handle = &device.get().inner;
    py.detach(|| {
        // SAFETY: the stub says that only bytes of `to_bytes` may be given; damage by accident is found.
        let binary = unsafe { CompiledBinary::from_bytes(data) }?;
        chain.plan.load(handle, &binary)
    })
}

fn array_of(name: &str, object: &Bound<'_, PyAny>, stream: Option<usize>) -> PyResult<Array> {
    Array::of(name, object, stream)?.ok_or_else(|| {
        PyTypeError::new_err(format!(
            "{name} is of type {}; accepted: an array with __dlpack__ or __array_interface__",
            type_name(object)
        ))
    })
}

fn unknown(chain: &Chain, name: &str) -> PyErr {
    let known: Vec<_> = chain.operands.iter().map(|operand| operand.name.as_str()).collect();
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    PyTypeError::new_err(format!("the plan has no operand {name}; it has {known}"))
}

//! PyTorch's operator without PyTorch's dispatcher, for calls that it would hand on to the kernel, and that are like one before.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyString, PyTuple, PyType};

use crate::calls::{Calls, Now};
use crate::dispatcher::{Dispatcher, Keys};
use crate::program::{Given, Program};
use crate::torch;

/// How many programs are kept.
const MOST_PROGRAMS: usize = 256;

/// The operator as Python calls it.
#[pyclass(frozen, module = "fuseplan")]
pub(crate) struct Direct {
    calls: Py<Calls>,
    /// The operator by PyTorch's dispatcher.
    dispatched: Py<PyAny>,
    dispatcher: Dispatcher,
    /// Those of tensors that are nothing but tensors.
    classes: Vec<Py<PyType>>,
    /// PyTorch's own operators that runs have, by their names.
    own: Py<PyDict>,
    /// By the hashes that Python keeps with their texts.
    programs: Mutex<HashMap<isize, Arc<Program>>>,
}

#[pymethods]
impl Direct {
    #[new]
    fn new(
        py: Python<'_>,
        calls: Py<Calls>,
        dispatched: Py<PyAny>,
        library: PathBuf,
        of_inference: Keys,
        own: Py<PyDict>,
    ) -> PyResult<Self> {
        let torch = py.import("torch")?;
        let dispatcher = Dispatcher::of(&library, of_inference).ok_or_else(|| {
            PyRuntimeError::new_err("PyTorch's libraries lack what tells of its dispatcher")
        })?;
        let classes = [torch.getattr("Tensor")?, torch.getattr("nn")?.getattr("Parameter")?];
        Ok(Direct {
            calls,
            dispatched,
            dispatcher,
            classes: classes
                .into_iter()
                .map(|class| Ok(class.cast_into::<PyType>()?.unbind()))
                .collect::<PyResult<_>>()?,
            own,
            programs: Mutex::default(),
        })
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if kwargs.is_none_or(|kwargs| kwargs.is_empty())
            && let Some(y) = self.call(py, args)?
        {
            return Ok(y);
        }
        self.dispatched.bind(py).call(args, kwargs)
    }

    fn hands_on(&self) -> bool {
        self.dispatcher.hands_on()
    }

    /// Calls behind each other by their text, with tensors from outside of them, some by their names, if each is like one before.
    /// `guards`, a function and what it is called with, look at tensors of other layouts than before.
    fn run<'py>(
        &self,
        py: Python<'py>,
        program: &Bound<'py, PyString>,
        buffers: &Bound<'py, PyDict>,
        names: &Bound<'py, PyTuple>,
        guards: Option<&Bound<'py, PyTuple>>,
        tensors: &Bound<'py, PyTuple>,
    ) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        let given = Given { tensors, buffers, names };
        let hash = program.hash()?;
        let known = self.programs().get(&hash).cloned();
        let program = match known {
            Some(known) if known.is(program)? => known,
            _ => {
                let made = Arc::new(Program::new(program, given.len())?);
                let mut programs = self.programs();
                if programs.len() >= MOST_PROGRAMS {
                    programs.clear();
                }
                programs.insert(hash, made.clone());
                made
            }
        };
        program.run(py, self, &given, guards)
    }
}

impl Direct {
    pub(crate) fn calls(&self) -> &Calls {
        self.calls.get()
    }

    /// Makes a call that is known from then on: image, weight and operands.
    ///
    /// # Errors
    /// As the call.
    pub(crate) fn make(
        &self,
        py: Python<'_>,
        tensors: &[Bound<'_, PyAny>],
        operators: &str,
        constant: bool,
    ) -> PyResult<()> {
        let operands = PyList::new(py, &tensors[2..])?;
        self.calls.bind(py).call1((&tensors[0], &tensors[1], operands, operators, constant)).map(drop)
    }

    /// # Errors
    /// Runs have no such operator.
    pub(crate) fn own_operator<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let found = self.own.bind(py).get_item(name)?;
        found.ok_or_else(|| PyValueError::new_err(format!("runs have no operator {name}")))
    }

    fn programs(&self) -> MutexGuard<'_, HashMap<isize, Arc<Program>>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call<'py>(&self, py: Python<'py>, args: &Bound<'py, PyTuple>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut arguments = args.iter();
        let mut next = || arguments.next();
        let (Some(x), Some(weight), Some(operands), Some(operators)) = (next(), next(), next(), next())
        else {
            return Ok(None);
        };
        let (constant, more) = (next(), next());
        let (Ok(operands), Ok(operators), Ok(constant), None) = (
            operands.cast_exact::<PyList>(),
            operators.cast_exact::<PyString>(),
            constant
                .as_ref()
                .map_or(Ok(false), |constant| constant.cast_exact::<PyBool>().map(|of| of.is_true())),
            more,
        ) else {
            return Ok(None);
        };
        let mut tensors = Vec::with_capacity(8);
        tensors.extend([x, weight]);
        tensors.extend(operands.iter());
        let Some(now) = self.see(&tensors)? else { return Ok(None) };
        let setting = self.calls().setting(py, &now[0].layout)?;
        let known = self.calls().known((operators.to_str()?, constant), setting, &now, &tensors);
        let Some(plan) = known.as_ref().and_then(|call| call.plan_call(py)) else { return Ok(None) };
        for at in plan.given() {
            if torch::is_negative(&tensors[at])? {
                return Ok(None);
            }
        }
        // SAFETY: the call was found to have been made with tensors of these layouts and constants, and those of now are
        // arguments, which live.
        unsafe { plan.run(py, self.calls().tensors(), &now) }.map(Some)
    }

    /// The tensors, if calls with them in this thread get to the kernel as they are, unless one is
    /// [negative](torch::is_negative).
    pub(crate) fn see(&self, tensors: &[Bound<'_, PyAny>]) -> PyResult<Option<Vec<Now>>> {
        let Some(sight) = self.sight() else { return Ok(None) };
        tensors.iter().map(|tensor| sight.of(tensor)).collect()
    }

    /// What sees tensors, if calls in this thread get to the kernel as they are.
    pub(crate) fn sight(&self) -> Option<Sight<'_>> {
        let wants_gradients = || self.dispatcher.is_grad_enabled();
        self.dispatcher.hands_on().then(|| Sight { direct: self, wants_gradients: wants_gradients() })
    }

    /// A tensor that is nothing but one, and has memory.
    pub(crate) fn look(&self, tensor: &Bound<'_, PyAny>) -> Option<Now> {
        let class = tensor.get_type();
        if !self.classes.iter().any(|known| known.is(&class)) {
            return None;
        }
        let seen = self.calls().tensors().look(tensor)?;
        (seen.1 != 0).then(|| Now::new(tensor, seen))
    }
}

/// Sees tensors in a thread whose calls get to the kernel as they are.
pub(crate) struct Sight<'a> {
    direct: &'a Direct,
    wants_gradients: bool,
}

impl Sight<'_> {
    /// A tensor with which calls get to the kernel as they are, unless it is [negative](torch::is_negative).
    ///
    /// # Errors
    /// What the look-up of the tensor's attributes raises.
    pub(crate) fn of(&self, tensor: &Bound<'_, PyAny>) -> PyResult<Option<Now>> {
        match self.direct.look(tensor) {
            Some(seen) if !(self.wants_gradients && torch::requires_grad(tensor)?) => Ok(Some(seen)),
            _ => Ok(None),
        }
    }
}

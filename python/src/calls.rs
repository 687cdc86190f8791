//! PyTorch's operator: a call that is like one before is computed by what that one left, without Python's code.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple, PyType};

use crate::compiled::CompiledPlan;
use crate::torch::{self, Layout, Tensors};

/// How many calls are kept with one constant weight, and how many without.
const MOST_OF_A_WEIGHT: usize = 64;
const MOST_OTHERS: usize = 1024;

/// A plan that is called by addresses, and how its output is made.
#[pyclass(frozen, module = "fuseplan")]
pub(crate) struct PlanCall {
    plan: Py<CompiledPlan>,
    /// Which of image, weight and operands are no constants of the plan, but for the image.
    given: Vec<usize>,
    /// A function of PyTorch, and what it is called with.
    empty: Py<PyAny>,
    output: Py<PyTuple>,
    /// Where there are several devices.
    gpu: Option<Gpu>,
    /// What has to live as long as the call may be made again.
    _kept: Py<PyAny>,
}

/// A GPU as PyTorch knows it: functions of PyTorch without arguments.
#[derive(FromPyObject)]
struct Gpu {
    number: i64,
    /// Gives the number of the current device, on which `empty` makes its tensors.
    current: Py<PyAny>,
    /// Makes the output on this device, whichever is the current one.
    empty: Py<PyAny>,
    /// Gives the current stream of this device.
    stream: Py<PyAny>,
}

#[pymethods]
impl PlanCall {
    #[new]
    fn new(
        plan: Py<CompiledPlan>,
        given: Vec<usize>,
        empty: Py<PyAny>,
        output: Py<PyTuple>,
        gpu: Option<Gpu>,
        kept: Py<PyAny>,
    ) -> Self {
        PlanCall { plan, given, empty, output, gpu, _kept: kept }
    }
}

impl PlanCall {
    /// The call with such tensors as it was made for.
    ///
    /// # Safety
    /// They have the layouts of tensors that the plan has computed with, are those where it has constants, and are alive.
    unsafe fn run<'py>(
        &self,
        py: Python<'py>,
        tensors: &Tensors,
        now: &[Now],
    ) -> PyResult<Bound<'py, PyAny>> {
        let (y, stream) = match &self.gpu {
            None => (self.empty(py)?, None),
            Some(gpu) => {
                let current: i64 = gpu.current.bind(py).call0()?.extract()?;
                let y = if current == gpu.number { self.empty(py)? } else { gpu.empty.bind(py).call0()? };
                (y, Some(gpu.stream.bind(py).call0()?.extract()?))
            }
        };
        let operands = self.given.iter().map(|&at| now[at].address);
        let (input, out) = (now[0].address, tensors.address(&y)?);
        // SAFETY: with tensors of these layouts the plan has looked at each as an array, and what is made for the output is
        // what the stub says. All are alive. A plan without a stream has computed when this returns, and memory of PyTorch's
        // is kept until its current stream has passed.
        unsafe { self.plan.get().compute_at(py, input, out, operands, stream) }?;
        Ok(y)
    }

    fn empty<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.empty.bind(py).call1(self.output.bind(py))
    }
}

/// A tensor at a call.
struct Now {
    layout: Layout,
    /// Python's object.
    object: usize,
    address: usize,
}

/// A tensor that was a constant of a call.
struct Constant {
    /// Its place among the tensors.
    at: usize,
    object: usize,
    address: usize,
    /// As [`torch::version`] gave it.
    version: Option<u64>,
}

/// A call that was made.
struct Call {
    operators: String,
    setting: u64,
    layouts: Vec<Layout>,
    constants: Vec<Constant>,
    /// A `PlanCall`, or a function of the operator's tensors.
    again: Py<PyAny>,
}

impl Call {
    /// Whether it can be made again in place of a call of now, if its constants [have not changed](Self::is_unchanged).
    fn is_like(&self, operators: &str, setting: u64, now: &[Now]) -> bool {
        let same = |of: &Constant| (now[of.at].object, now[of.at].address) == (of.object, of.address);
        self.setting == setting
            && self.layouts.len() == now.len()
            && self.constants.iter().all(same)
            && self.layouts.iter().zip(now).all(|(layout, now)| *layout == now.layout)
            && self.operators == operators
    }

    /// Whether PyTorch has counted no changes to the constants, which are among these tensors, since the call.
    fn is_unchanged(&self, tensors: &[Bound<'_, PyAny>]) -> bool {
        self.constants
            .iter()
            .all(|of| of.version.is_none_or(|known| torch::has_version(&tensors[of.at], known)))
    }
}

/// The calls that may be made again, the oldest first.
#[derive(Default)]
struct Made {
    /// Those with constants, by the weight's object.
    of_weights: HashMap<usize, VecDeque<Arc<Call>>>,
    /// The others, by a digest of what they were called with, and all digests in the calls' order.
    others: HashMap<u64, VecDeque<Arc<Call>>>,
    digests: VecDeque<u64>,
}

/// Where a call is kept.
#[derive(Clone, Copy)]
enum Place {
    Weight(usize),
    Other(u64),
}

impl Place {
    fn of(now: &[Now], constant: bool) -> Self {
        if constant {
            return Place::Weight(now[1].object);
        }
        let mut hasher = DefaultHasher::new();
        now[0].layout.shape().hash(&mut hasher);
        now[1].layout.shape().hash(&mut hasher);
        Place::Other(hasher.finish())
    }
}

impl Made {
    fn at(&self, place: Place) -> Option<&VecDeque<Arc<Call>>> {
        match place {
            Place::Weight(object) => self.of_weights.get(&object),
            Place::Other(digest) => self.others.get(&digest),
        }
    }

    /// Keeps a call, and returns the one that is kept no longer for it.
    fn insert(&mut self, place: Place, call: Arc<Call>) -> Option<Arc<Call>> {
        match place {
            Place::Weight(object) => {
                let calls = self.of_weights.entry(object).or_default();
                calls.push_back(call);
                if calls.len() > MOST_OF_A_WEIGHT { calls.pop_front() } else { None }
            }
            Place::Other(digest) => {
                self.others.entry(digest).or_default().push_back(call);
                self.digests.push_back(digest);
                if self.digests.len() <= MOST_OTHERS {
                    return None;
                }
                let oldest = self.digests.pop_front()?;
                let calls = self.others.get_mut(&oldest)?;
                let call = calls.pop_front();
                if calls.is_empty() {
                    self.others.remove(&oldest);
                }
                call
            }
        }
    }
}

/// The operator, with the calls that it can make again.
#[pyclass(frozen, module = "fuseplan")]
pub(crate) struct Calls {
    tensors: Tensors,
    /// Makes a call that is like none before; the result, what makes such a call again, and the places of its constants.
    first: Py<PyAny>,
    /// Gives what besides tensors and operators says how an image on a GPU is computed.
    setting: Py<PyAny>,
    is_grad_enabled: Py<PyAny>,
    get_num_threads: Py<PyAny>,
    /// Not locked while Python's objects are used or dropped, as code of Python may then run, and call the operator.
    made: Mutex<Made>,
}

#[pymethods]
impl Calls {
    #[new]
    fn new(
        py: Python<'_>,
        class: &Bound<'_, PyType>,
        first: Py<PyAny>,
        setting: Py<PyAny>,
    ) -> PyResult<Self> {
        let torch = py.import("torch")?;
        Ok(Calls {
            tensors: Tensors::new(class)?,
            first,
            setting,
            is_grad_enabled: torch.getattr("is_grad_enabled")?.unbind(),
            get_num_threads: torch.getattr("get_num_threads")?.unbind(),
            made: Mutex::default(),
        })
    }

    #[pyo3(signature = (x, weight, operands, operators, constant=false))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        x: Bound<'py, PyAny>,
        weight: Bound<'py, PyAny>,
        operands: Bound<'py, PyList>,
        operators: Bound<'py, PyString>,
        constant: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut tensors = Vec::with_capacity(8);
        tensors.extend([x, weight]);
        tensors.extend(operands.iter());
        self.refuse_gradients(&tensors)?;
        let first = || {
            let arguments = (&tensors[0], &tensors[1], &operands, &operators, constant);
            self.first.bind(py).call1(arguments)?.extract::<(Bound<'py, PyAny>, Py<PyAny>, Vec<usize>)>()
        };
        let Some(now) = self.see(&tensors)? else { return first().map(|(y, ..)| y) };
        let setting = if now[0].layout.is_on_gpu() {
            self.setting.bind(py).call0()?
        } else {
            self.get_num_threads.bind(py).call0()?
        };
        let setting: u64 = setting.extract()?;
        let text = operators.to_str()?;
        let place = Place::of(&now, constant);
        // Behind a change no call from before it is right, so that the latest is the only one to look at.
        if let Some(call) = self.find(place, text, setting, &now).filter(|call| call.is_unchanged(&tensors)) {
            let again = call.again.bind(py);
            return match again.cast::<PlanCall>() {
                // SAFETY: the call was found to have been made with tensors of these layouts and constants, and those of now
                // are arguments, which live.
                Ok(call) => unsafe { call.get().run(py, &self.tensors, &now) },
                Err(_) => again.call1((&tensors[0], &tensors[1], operands)),
            };
        }
        // Before the constants are read.
        let versions = tensors.iter().map(|tensor| if constant { torch::version(tensor) } else { Ok(None) });
        let versions = versions.collect::<PyResult<Vec<_>>>()?;
        let (y, again, constants) = first()?;
        let constant_of = |at: usize| Constant {
            at,
            object: now[at].object,
            address: now[at].address,
            version: versions[at],
        };
        let call = Call {
            operators: text.to_owned(),
            setting,
            layouts: now.iter().map(|now| now.layout).collect(),
            constants: constants.into_iter().map(constant_of).collect(),
            again,
        };
        let oldest = self.made().insert(place, Arc::new(call));
        drop(oldest);
        Ok(y)
    }

    /// Lets go of the calls of a weight, by its object.
    fn forget(&self, weight: usize) {
        let calls = self.made().of_weights.remove(&weight);
        drop(calls);
    }

    fn clear(&self) {
        let made = std::mem::take(&mut *self.made());
        drop(made);
    }

    fn __len__(&self) -> usize {
        let made = self.made();
        made.digests.len() + made.of_weights.values().map(VecDeque::len).sum::<usize>()
    }
}

impl Calls {
    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// A tensor whose gradient would be recorded.
    fn refuse_gradients(&self, tensors: &[Bound<'_, PyAny>]) -> PyResult<()> {
        let py = tensors[0].py();
        if !self.is_grad_enabled.bind(py).call0()?.is_truthy()? {
            return Ok(());
        }
        for tensor in tensors {
            if tensor.getattr(intern!(py, "requires_grad"))?.is_truthy()? {
                return Err(PyRuntimeError::new_err(
                    "fuseplan's operators are for inference, they have no gradient; call them under torch.no_grad() or \
                     torch.inference_mode()",
                ));
            }
        }
        Ok(())
    }

    /// The tensors, if none has more dimensions than a plan has.
    fn see(&self, tensors: &[Bound<'_, PyAny>]) -> PyResult<Option<Vec<Now>>> {
        let mut now = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let Some((layout, address)) = self.tensors.see(tensor)? else { return Ok(None) };
            now.push(Now { layout, object: tensor.as_ptr().addr(), address });
        }
        Ok(Some(now))
    }

    /// The latest call that is like one of now.
    fn find(&self, place: Place, operators: &str, setting: u64, now: &[Now]) -> Option<Arc<Call>> {
        let made = self.made();
        made.at(place)?.iter().rev().find(|call| call.is_like(operators, setting, now)).cloned()
    }
}

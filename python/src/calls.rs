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
    /// A function that gives the current stream, where there are streams.
    stream: Option<Py<PyAny>>,
    /// What has to live as long as the call may be made again.
    _kept: Py<PyAny>,
}

#[pymethods]
impl PlanCall {
    #[new]
    fn new(
        plan: Py<CompiledPlan>,
        given: Vec<usize>,
        empty: Py<PyAny>,
        output: Py<PyTuple>,
        stream: Option<Py<PyAny>>,
        kept: Py<PyAny>,
    ) -> Self {
        PlanCall { plan, given, empty, output, stream, _kept: kept }
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
        let y = self.empty.bind(py).call1(self.output.bind(py))?;
        let operands = self.given.iter().map(|&at| now[at].identity.address);
        let (input, out) = (now[0].identity.address, tensors.address(&y)?);
        let stream = self.stream.as_ref().map(|stream| stream.bind(py).call0()?.extract()).transpose()?;
        // SAFETY: with tensors of these layouts the plan has looked at each as an array, and what is made for the output is
        // what the stub says. All are alive. A plan without a stream has computed when this returns, and memory of PyTorch's
        // is kept until its current stream has passed.
        unsafe { self.plan.get().compute_at(py, input, out, operands, stream) }?;
        Ok(y)
    }
}

/// Which tensor it is, and in which state.
#[derive(Clone, Copy, PartialEq)]
struct Identity {
    object: usize,
    address: usize,
    /// 0 until it is looked up, which only constants need.
    version: u64,
}

/// A tensor at a call.
struct Now {
    layout: Layout,
    identity: Identity,
}

/// A call that was made.
struct Call {
    operators: String,
    setting: u64,
    layouts: Vec<Layout>,
    /// Constants, by their places among the tensors.
    constants: Arc<[usize]>,
    identities: Vec<Identity>,
    /// A `PlanCall`, or a function of the operator's tensors.
    again: Py<PyAny>,
}

impl Call {
    /// Whether it can be made again in place of a call of now.
    fn is_like(&self, operators: &str, setting: u64, now: &[Now]) -> bool {
        let same = |(&at, identity): (&usize, &Identity)| now[at].identity == *identity;
        self.setting == setting
            && self.layouts.len() == now.len()
            && self.constants.iter().zip(&self.identities).all(same)
            && self.layouts.iter().zip(now).all(|(layout, now)| *layout == now.layout)
            && self.operators == operators
    }
}

/// The calls that may be made again, the oldest first.
#[derive(Default)]
struct Made {
    /// Those with constants, by the weight's object.
    of_weights: HashMap<usize, VecDeque<Call>>,
    /// The others, by a digest of what they were called with, and all digests in the calls' order.
    others: HashMap<u64, VecDeque<Call>>,
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
            return Place::Weight(now[1].identity.object);
        }
        let mut hasher = DefaultHasher::new();
        now[0].layout.shape().hash(&mut hasher);
        now[1].layout.shape().hash(&mut hasher);
        Place::Other(hasher.finish())
    }
}

impl Made {
    fn at(&self, place: Place) -> Option<&VecDeque<Call>> {
        match place {
            Place::Weight(object) => self.of_weights.get(&object),
            Place::Other(digest) => self.others.get(&digest),
        }
    }

    /// Keeps a call, and returns the one that is kept no longer for it.
    fn insert(&mut self, place: Place, call: Call) -> Option<Call> {
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
        let Some(mut now) = self.see(&tensors)? else { return first().map(|(y, ..)| y) };
        let setting = if now[0].layout.is_on_gpu() {
            self.setting.bind(py).call0()?
        } else {
            self.get_num_threads.bind(py).call0()?
        };
        let setting: u64 = setting.extract()?;
        let text = operators.to_str()?;
        let place = Place::of(&now, constant);
        if constant {
            for &at in self.constants(place, text, now.len()).iter() {
                now[at].identity.version = torch::version(&tensors[at])?;
            }
        }
        if let Some(again) = self.find(py, place, text, setting, &now) {
            return match again.cast::<PlanCall>() {
                // SAFETY: the call was found to have been made with tensors of these layouts and constants, and those of now
                // are arguments, which live.
                Ok(call) => unsafe { call.get().run(py, &self.tensors, &now) },
                Err(_) => again.call1((&tensors[0], &tensors[1], operands)),
            };
        }
        if constant {
            for (now, tensor) in now.iter_mut().zip(&tensors) {
                now.identity.version = torch::version(tensor)?;
            }
        }
        let (y, again, constants) = first()?;
        let call = Call {
            operators: text.to_owned(),
            setting,
            layouts: now.iter().map(|now| now.layout).collect(),
            identities: constants.iter().map(|&at| now[at].identity).collect(),
            constants: constants.into(),
            again,
        };
        let oldest = self.made().insert(place, call);
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

    /// The tensors without their versions, if none has more dimensions than a plan has.
    fn see(&self, tensors: &[Bound<'_, PyAny>]) -> PyResult<Option<Vec<Now>>> {
        let mut now = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let Some((layout, address)) = self.tensors.see(tensor)? else { return Ok(None) };
            let identity = Identity { object: tensor.as_ptr().addr(), address, version: 0 };
            now.push(Now { layout, identity });
        }
        Ok(Some(now))
    }

    /// The places of the constants among so many tensors, which follow from the operators.
    fn constants(&self, place: Place, operators: &str, count: usize) -> Arc<[usize]> {
        let made = self.made();
        let mut calls = made.at(place).into_iter().flatten();
        let call = calls.find(|call| call.operators == operators && call.layouts.len() == count);
        call.map_or_else(Arc::default, |call| call.constants.clone())
    }

    /// What makes a call again.
    fn find<'py>(
        &self,
        py: Python<'py>,
        place: Place,
        operators: &str,
        setting: u64,
        now: &[Now],
    ) -> Option<Bound<'py, PyAny>> {
        let made = self.made();
        let call = made.at(place)?.iter().rev().find(|call| call.is_like(operators, setting, now))?;
        Some(call.again.bind(py).clone())
    }
}

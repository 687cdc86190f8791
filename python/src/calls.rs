//! PyTorch's operator: a call that is like one before is computed by what that one left, without Python's code.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple, PyType};

use crate::compiled::{CompiledPlan, Out};
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
    pub(crate) unsafe fn run<'py>(
        &self,
        py: Python<'py>,
        tensors: &Tensors,
        now: &[Now],
    ) -> PyResult<Bound<'py, PyAny>> {
        let y = match &self.gpu {
            Some(gpu) if !self.is_on_current(py)? => gpu.empty.bind(py).call0()?,
            _ => self.empty(py)?,
        };
        // SAFETY: as the function's own; what is made for the output is what the stub says.
        unsafe { self.run_into(py, now, Out::New(tensors.address(&y)?)) }?;
        Ok(y)
    }

    /// The call with such tensors as it was made for, and the address of its output.
    ///
    /// # Safety
    /// As [`run`](Self::run), and the output is one that the plan describes, which may be written.
    unsafe fn run_into(&self, py: Python<'_>, now: &[Now], out: Out) -> PyResult<()> {
        let stream = self.stream(py)?;
        let operands = self.given.iter().map(|&at| now[at].address);
        // SAFETY: with tensors of these layouts the plan has looked at each as an array. All are alive. A plan without a stream
        // has computed when this returns, and memory of PyTorch's is kept until its current stream has passed.
        unsafe { self.plan.get().compute_at(py, now[0].address, out, operands, stream) }
    }

    /// An output, where there are several devices on the current one.
    pub(crate) fn empty<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.empty.bind(py).call1(self.output.bind(py))
    }

    /// A tensor of this shape, strides and type where [outputs](Self::empty) are made.
    pub(crate) fn tensor<'py>(
        &self,
        py: Python<'py>,
        of: impl pyo3::call::PyCallArgs<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.empty.bind(py).call1(of)
    }

    /// Whether outputs on the current device are on the plan's.
    pub(crate) fn is_on_current(&self, py: Python<'_>) -> PyResult<bool> {
        let is_current = |gpu: &Gpu| Ok(gpu.current.bind(py).call0()?.extract::<i64>()? == gpu.number);
        self.gpu.as_ref().map_or(Ok(true), is_current)
    }

    /// PyTorch's current stream of a GPU.
    pub(crate) fn stream(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        self.gpu.as_ref().map(|gpu| gpu.stream.bind(py).call0()?.extract()).transpose()
    }

    pub(crate) fn plan(&self) -> &CompiledPlan {
        self.plan.get()
    }

    /// The places of tensors other than the image that are no constants of the plan.
    pub(crate) fn rest(&self) -> &[usize] {
        &self.given
    }

    /// The places of all tensors that are no constants.
    pub(crate) fn given(&self) -> impl Iterator<Item = usize> + '_ {
        std::iter::once(0).chain(self.given.iter().copied())
    }
}

/// A tensor at a call.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    pub(crate) layout: Layout,
    /// Python's object.
    object: usize,
    pub(crate) address: usize,
}

impl Now {
    pub(crate) fn new(tensor: &Bound<'_, PyAny>, (layout, address): (Layout, usize)) -> Self {
        Now { layout, object: tensor.as_ptr().addr(), address }
    }

    /// A tensor that is not there yet.
    pub(crate) fn of_layout(layout: Layout) -> Self {
        Now { layout, object: 0, address: 0 }
    }
}

/// A tensor that was a constant of a call.
#[derive(Clone)]
pub(crate) struct Constant {
    /// Its place among the tensors.
    pub(crate) at: usize,
    object: usize,
    address: usize,
    /// As [`torch::version`] gave it.
    version: Option<u64>,
}

impl Constant {
    pub(crate) fn is(&self, now: &Now) -> bool {
        (now.object, now.address) == (self.object, self.address)
    }

    /// Whether PyTorch has counted no change to the tensor since the call.
    pub(crate) fn is_unchanged(&self, tensors: &Tensors, tensor: &Bound<'_, PyAny>) -> bool {
        self.version.is_none_or(|known| tensors.has_version(tensor, known))
    }
}

/// A call that was made.
pub(crate) struct Call {
    operators: String,
    /// Whether the last of the tensors is what the result was written to.
    is_into: bool,
    setting: u64,
    layouts: Vec<Layout>,
    pub(crate) constants: Vec<Constant>,
    /// A `PlanCall`, or a function of the operator's tensors.
    again: Py<PyAny>,
}

impl Call {
    /// Whether it can be made again in place of a call of now, if its constants [have not changed](Self::is_unchanged).
    fn is_like(&self, operators: &str, is_into: bool, setting: u64, now: &[Now]) -> bool {
        (self.setting, self.is_into) == (setting, is_into)
            && self.layouts.len() == now.len()
            && self.constants.iter().all(|of| of.is(&now[of.at]))
            && self.layouts.iter().zip(now).all(|(layout, now)| *layout == now.layout)
            && self.operators == operators
    }

    /// Whether PyTorch has counted no changes to the constants, which are among these tensors, since the call.
    fn is_unchanged(&self, looks: &Tensors, tensors: &[Bound<'_, PyAny>]) -> bool {
        self.constants.iter().all(|of| of.is_unchanged(looks, &tensors[of.at]))
    }

    pub(crate) fn plan_call<'a>(&'a self, py: Python<'a>) -> Option<&'a PlanCall> {
        self.again.cast_bound::<PlanCall>(py).ok().map(|call| call.get())
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
    /// Makes a call that is like none before, with a tensor for the result or None; the result, what makes such a call again,
    /// and the places of its constants.
    first: Py<PyAny>,
    /// Give what besides tensors and operators says how an image on a GPU is computed.
    switches: Vec<Py<PyAny>>,
    is_grad_enabled: Py<PyAny>,
    get_num_threads: Py<PyAny>,
    uint8: Py<PyAny>,
    /// Not locked while Python's objects are used or dropped, as code of Python may then run, and call the operator.
    made: Mutex<Made>,
    /// The memory of a run that is over, and how many bytes it has; locked as above.
    memory: Mutex<Option<(usize, Py<PyAny>)>>,
}

/// The memory of a run: a tensor of so many bytes.
pub(crate) struct Memory<'py> {
    bytes: usize,
    pub(crate) tensor: Bound<'py, PyAny>,
}

/// Runs of at most so much of the host's memory leave it to the next one. What is made anew may be pages that the system has to clear,
/// 1,600 of them for the 6.5 MB of a network for telephones.
const MOST_MEMORY: usize = 64 << 20;

#[pymethods]
impl Calls {
    #[new]
    fn new(
        py: Python<'_>,
        class: &Bound<'_, PyType>,
        first: Py<PyAny>,
        switches: Vec<Py<PyAny>>,
    ) -> PyResult<Self> {
        let torch = py.import("torch")?;
        Ok(Calls {
            tensors: Tensors::new(class, torch.getattr("nn")?.getattr("Parameter")?.cast()?)?,
            first,
            switches,
            is_grad_enabled: torch.getattr("is_grad_enabled")?.unbind(),
            get_num_threads: torch.getattr("get_num_threads")?.unbind(),
            uint8: torch.getattr("uint8")?.unbind(),
            made: Mutex::default(),
            memory: Mutex::default(),
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
        self.call(py, (x, weight, operands, operators, constant), None)
    }

    /// The operator `chain_into`, which writes the result to a tensor.
    #[pyo3(signature = (x, weight, operands, operators, out, constant=false))]
    #[allow(clippy::too_many_arguments, reason = "Python's keywords")]
    fn into<'py>(
        &self,
        py: Python<'py>,
        x: Bound<'py, PyAny>,
        weight: Bound<'py, PyAny>,
        operands: Bound<'py, PyList>,
        operators: Bound<'py, PyString>,
        out: Bound<'py, PyAny>,
        constant: bool,
    ) -> PyResult<()> {
        self.call(py, (x, weight, operands, operators, constant), Some(out)).map(drop)
    }

    /// Refuses tensors whose gradients would be recorded, as calls with them do.
    #[pyo3(name = "refuse_gradients")]
    fn refuse_gradients_of(&self, tensors: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        self.refuse_gradients(&tensors)
    }

    /// Lets go of the calls of a weight, by its object.
    fn forget(&self, weight: usize) {
        let calls = self.made().of_weights.remove(&weight);
        drop(calls);
    }

    fn clear(&self) {
        let made = std::mem::take(&mut *self.made());
        let memory = self.memory().take();
        drop((made, memory));
    }

    fn __len__(&self) -> usize {
        let made = self.made();
        made.digests.len() + made.of_weights.values().map(VecDeque::len).sum::<usize>()
    }
}

/// What the operators take: image, weight, operands, the text of operators, and whether there are constants.
type Arguments<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyList>, Bound<'py, PyString>, bool);

impl Calls {
    /// A call, with the tensor that the result is written to, if it is not a new one.
    fn call<'py>(
        &self,
        py: Python<'py>,
        (x, weight, operands, operators, constant): Arguments<'py>,
        out: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let is_into = out.is_some();
        let mut tensors = Vec::with_capacity(8);
        tensors.extend([x, weight]);
        tensors.extend(operands.iter());
        tensors.extend(out.clone());
        self.refuse_gradients(&tensors)?;
        let first = || {
            let arguments = (&tensors[0], &tensors[1], &operands, &operators, constant, &out);
            self.first.bind(py).call1(arguments)?.extract::<(Bound<'py, PyAny>, Py<PyAny>, Vec<usize>)>()
        };
        let Some(now) = self.see(&tensors)? else { return first().map(|(y, ..)| y) };
        let setting = self.setting(py, &now[0].layout)?;
        let text = operators.to_str()?;
        let place = Place::of(&now, constant);
        if let Some(call) = self.find(place, (text, is_into), setting, &now, &tensors) {
            let again = call.again.bind(py);
            return match (again.cast::<PlanCall>(), out) {
                // SAFETY: the call was found to have been made with tensors of these layouts and constants, and those of now
                // are arguments, which live.
                (Ok(call), None) => unsafe { call.get().run(py, &self.tensors, &now) },
                (Ok(call), Some(out)) => {
                    let address = now[now.len() - 1].address;
                    // SAFETY: as above; the last of these tensors is what is written to, as the operator declares.
                    unsafe { call.get().run_into(py, &now, Out::Given(address)) }.map(|()| out)
                }
                (Err(_), out) => again.call1((&tensors[0], &tensors[1], operands, out)),
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
            is_into,
            setting,
            layouts: now.iter().map(|now| now.layout).collect(),
            constants: constants.into_iter().map(constant_of).collect(),
            again,
        };
        let oldest = self.made().insert(place, Arc::new(call));
        drop(oldest);
        Ok(y)
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> MutexGuard<'_, Option<(usize, Py<PyAny>)>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tensor of so many bytes at the least, where the outputs of `call` are made: on the host what a run before
    /// [has left](Self::keep_memory), if it is enough.
    ///
    /// # Errors
    /// What PyTorch raises where it has no such memory.
    pub(crate) fn memory_of<'py>(
        &self,
        py: Python<'py>,
        call: &PlanCall,
        bytes: usize,
    ) -> PyResult<Memory<'py>> {
        let kept = if call.gpu.is_none() { self.memory().take_if(|kept| kept.0 >= bytes) } else { None };
        match kept {
            Some((bytes, tensor)) => Ok(Memory { bytes, tensor: tensor.into_bound(py) }),
            None => {
                let tensor = call.tensor(py, ((bytes,), (1,), self.uint8.bind(py)))?;
                Ok(Memory { bytes, tensor })
            }
        }
    }

    /// Leaves the memory of a run to the next one, in the place of less.
    pub(crate) fn keep_memory(&self, call: &PlanCall, memory: Memory<'_>) {
        let Memory { bytes, tensor } = memory;
        if call.gpu.is_some() || bytes > MOST_MEMORY {
            return;
        }
        let mut kept = self.memory();
        let is_more = kept.as_ref().is_none_or(|kept| kept.0 < bytes);
        let before = if is_more { kept.replace((bytes, tensor.unbind())) } else { None };
        drop(kept);
        drop(before);
    }

    /// # Errors
    /// A tensor whose gradient would be recorded.
    fn refuse_gradients(&self, tensors: &[Bound<'_, PyAny>]) -> PyResult<()> {
        let Some(py) = tensors.first().map(Bound::py) else { return Ok(()) };
        if !self.is_grad_enabled.bind(py).call0()?.is_truthy()? {
            return Ok(());
        }
        for tensor in tensors {
            if torch::requires_grad(tensor)? {
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
            now.push(Now::new(tensor, (layout, address)));
        }
        Ok(Some(now))
    }

    pub(crate) fn tensors(&self) -> &Tensors {
        &self.tensors
    }

    /// What besides tensors and operators says how an image of this layout is computed.
    pub(crate) fn setting(&self, py: Python<'_>, image: &Layout) -> PyResult<u64> {
        if !image.is_on_gpu() {
            return self.get_num_threads.bind(py).call0()?.extract();
        }
        self.switches
            .iter()
            .try_fold(0, |setting, switch| Ok(2 * setting + u64::from(switch.bind(py).call0()?.is_truthy()?)))
    }

    /// A call with a new tensor for its result that is like one of now.
    pub(crate) fn known(
        &self,
        (operators, constant): (&str, bool),
        setting: u64,
        now: &[Now],
        tensors: &[Bound<'_, PyAny>],
    ) -> Option<Arc<Call>> {
        self.find(Place::of(now, constant), (operators, false), setting, now, tensors)
    }

    /// The latest call that is like one of now. Behind a change to a constant no call from before it is right, so that there is
    /// no other to look at.
    fn find(
        &self,
        place: Place,
        (operators, is_into): (&str, bool),
        setting: u64,
        now: &[Now],
        tensors: &[Bound<'_, PyAny>],
    ) -> Option<Arc<Call>> {
        let made = self.made();
        let call =
            made.at(place)?.iter().rev().find(|call| call.is_like(operators, is_into, setting, now)).cloned();
        drop(made);
        call.filter(|call| call.is_unchanged(&self.tensors, tensors))
    }
}

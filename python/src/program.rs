//! Calls of PyTorch's operator behind each other, and of the few of PyTorch's own that weigh an image's channels or give a result another
//! shape, computed without code of Python's between them, with memory of their own for what none but they read.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::calls::{Call, Constant, Now, PlanCall};
use crate::compiled::{CompiledPlan, ComputeError, Out};
use crate::direct::{Direct, Sight};
use crate::pixels::Pixels;
use crate::steps::{self, Kind, Step, lengths};
use crate::torch::{self, Layout};

/// For how many layouts and constants of its tensors a program is kept.
const MOST: usize = 16;

/// What values in the memory of a run are aligned to, as PyTorch aligns tensors on GPUs.
const ALIGNMENT: usize = 512;

/// Calls behind each other.
pub(crate) struct Program {
    text: Py<PyString>,
    /// How many tensors come from outside.
    given: usize,
    steps: Vec<Step>,
    /// The numbers of the tensors that it returns.
    results: Vec<usize>,
    /// What was found of earlier runs, the latest last.
    ready: Mutex<VecDeque<Arc<Ready>>>,
}

/// Where a step's result lies.
#[derive(Clone, Copy)]
enum Lies {
    /// So many bytes behind the start of the run's memory.
    Inside(usize),
    /// In a tensor that is returned, by its place there.
    Result(usize),
}

/// A run that can be made again with tensors like those of then.
struct Ready {
    setting: u64,
    /// The function that has held the tensors' lengths against an example's, as another network of the same program has another.
    guard: Option<Py<PyAny>>,
    /// One for each tensor from outside.
    expected: Vec<Expected>,
    /// Calls go with their weights.
    steps: Vec<Computed<Weak<Call>>>,
    outputs: Vec<Lies>,
    bytes: usize,
}

/// What a tensor from outside is like.
struct Expected {
    layout: Layout,
    /// As what it is a constant of calls.
    constant: Option<Constant>,
    /// Whether it is no constant of a call that has it.
    is_variable: bool,
}

/// Tensors from outside of a program.
pub(crate) struct Given<'a, 'py> {
    pub(crate) tensors: &'a Bound<'py, PyTuple>,
    /// A module's, of which those with these names follow.
    pub(crate) buffers: &'a Bound<'py, PyDict>,
    pub(crate) names: &'a Bound<'py, PyTuple>,
}

impl<'py> Given<'_, 'py> {
    pub(crate) fn len(&self) -> usize {
        self.tensors.len() + self.names.len()
    }

    /// The tensors, nothing in place of one that the module has not.
    fn iter(&self) -> impl Iterator<Item = PyResult<Option<Bound<'py, PyAny>>>> {
        let tensors = self.tensors.iter().map(|tensor| Ok(Some(tensor)));
        tensors.chain(self.names.iter().map(|name| self.buffers.get_item(name)))
    }
}

/// How a step is computed.
#[derive(Clone)]
enum Computed<C> {
    Call(C),
    Pixels(Arc<Between>),
    /// Shape, strides and type of the result, which lies where what it views lies.
    View(Arc<Py<PyTuple>>),
}

/// What is computed between calls.
struct Between {
    pixels: Pixels,
    /// Shape, strides and type of the result, and how many bytes it has.
    output: Py<PyTuple>,
    bytes: usize,
}

/// A run of now.
struct Found<'py> {
    ready: Arc<Ready>,
    steps: Vec<Computed<Arc<Call>>>,
    /// Where the tensors from outside begin.
    addresses: Vec<usize>,
    /// Those that calls do not keep.
    variable: Vec<Bound<'py, PyAny>>,
}

impl Program {
    /// # Errors
    /// The text is none of [steps](steps::parsed).
    pub(crate) fn new(program: &Bound<'_, PyString>, given: usize) -> PyResult<Self> {
        let text = program.to_str()?;
        let (results, steps) = steps::parsed(text, given).ok_or_else(|| {
            PyValueError::new_err(format!("with {given} tensors this is no program: {text:?}"))
        })?;
        Ok(Program { text: program.clone().unbind(), given, steps, results, ready: Mutex::default() })
    }

    /// Whether that is the program's text, which code has in one object.
    ///
    /// # Errors
    /// What the comparison raises.
    pub(crate) fn is(&self, text: &Bound<'_, PyString>) -> PyResult<bool> {
        Ok(self.text.is(text) || self.text.bind(text.py()).as_any().eq(text)?)
    }

    /// The results, if each call is like one before. `guards`, a function in front of what it is called with, are asked before
    /// the first run by them with tensors of such layouts.
    ///
    /// # Errors
    /// What the guards raise.
    pub(crate) fn run<'py>(
        &self,
        py: Python<'py>,
        direct: &Direct,
        given: &Given<'_, 'py>,
        guards: Option<&Bound<'py, PyTuple>>,
    ) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        if given.len() != self.given {
            return Ok(None);
        }
        let Some(sight) = direct.sight() else { return Ok(None) };
        // Not locked while Python's objects are asked.
        let known: Vec<_> = self.ready().iter().rev().cloned().collect();
        let guard = guards.map(|guards| guards.get_item(0)).transpose()?;
        for ready in known {
            let is_guarded =
                ready.guard.as_ref().map(|of| of.as_ptr()) == guard.as_ref().map(|of| of.as_ptr());
            if is_guarded && let Some(found) = ready.again(py, self, direct, &sight, given)? {
                return found.run(py, self, direct);
            }
        }
        let Some(tensors) = given.iter().collect::<PyResult<Option<Vec<_>>>>()? else { return Ok(None) };
        let Some(now) = direct.see(&tensors)? else { return Ok(None) };
        let setting = direct.calls().setting(py, &now[self.image()].layout)?;
        if let (Some(guard), Some(guards)) = (&guard, guards) {
            guard.call1(guards.get_slice(1, guards.len()))?;
        }
        let found = self.prepare(py, direct, &tensors, &now, setting, guard)?;
        found.map_or(Ok(None), |found| found.run(py, self, direct))
    }

    /// The number of the tensor that the first call computes with, which all others lie beside.
    fn image(&self) -> usize {
        self.steps[0].tensors[0]
    }

    fn ready(&self) -> MutexGuard<'_, VecDeque<Arc<Ready>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds each call, and keeps what was found.
    fn prepare<'py>(
        &self,
        py: Python<'py>,
        direct: &Direct,
        tensors: &[Bound<'py, PyAny>],
        now: &[Now],
        setting: u64,
        guard: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Found<'py>>> {
        // A setting is that of a device.
        if now.iter().any(|of| !of.layout.is_beside(&now[0].layout)) {
            return Ok(None);
        }
        let mut values: Vec<_> = now.iter().copied().zip(tensors.iter().cloned()).collect();
        let (mut found, mut variable) = (Vec::new(), Vec::new());
        for step in &self.steps {
            let (of_own, own): (Vec<_>, Vec<_>) = step.tensors.iter().map(|&at| values[at].clone()).unzip();
            let (computed, result) = match step.kind {
                Kind::Chain { constant } => {
                    let known = || direct.calls().known((&*step.operators, constant), setting, &of_own, &own);
                    let mut call = known();
                    if call.is_none() && self.steps.iter().any(|step| step.kind == Kind::Mean) {
                        // PyTorch's mean has other bits, so that not even the first run is made of calls one by one.
                        let like = step.tensors.iter().map(|&at| self.example(py, tensors, &found, at));
                        direct.make(py, &like.collect::<PyResult<Vec<_>>>()?, &step.operators, constant)?;
                        call = known();
                    }
                    let Some(call) = call else { return Ok(None) };
                    let Some(plan) = call.plan_call(py) else { return Ok(None) };
                    if !plan.is_on_current(py)? {
                        return Ok(None);
                    }
                    variable.extend(plan.given().map(|at| step.tensors[at]));
                    let result = plan.empty(py)?;
                    (Computed::Call(call), result)
                }
                Kind::Mean | Kind::Product => {
                    // Results lie as PyTorch's, so its operator is called with tensors that lie as these will.
                    let known = |&at: &usize| self.example(py, tensors, &found, at);
                    let like = step.tensors.iter().map(known).collect::<PyResult<Vec<_>>>()?;
                    let result = direct.own_operator(py, &step.operators)?.call1(PyTuple::new(py, like)?)?;
                    let Some(seen) = direct.look(&result) else { return Ok(None) };
                    let pixels = match &of_own[..] {
                        [image] => Pixels::mean(&image.layout, &seen.layout),
                        [image, numbers] => Pixels::product(&image.layout, &numbers.layout, &seen.layout),
                        _ => None,
                    };
                    let Some(pixels) = pixels else { return Ok(None) };
                    variable.extend(&step.tensors);
                    let bytes = result.getattr(intern!(py, "nbytes"))?.extract()?;
                    let between = Between { pixels, output: described(&result)?, bytes };
                    (Computed::Pixels(Arc::new(between)), result)
                }
                Kind::View => {
                    let image = self.example(py, tensors, &found, step.tensors[0])?;
                    let result = image.call_method1(intern!(py, "reshape"), (lengths(&step.operators),))?;
                    let looks = direct.calls().tensors();
                    // Where strides allow no view, PyTorch has copied.
                    if looks.address(&image)? != looks.address(&result)? {
                        return Ok(None);
                    }
                    (Computed::View(Arc::new(described(&result)?)), result)
                }
            };
            let Some(result) = direct.look(&result) else { return Ok(None) };
            // It is nobody's constant.
            values.push((Now::of_layout(result.layout), py.None().into_bound(py)));
            found.push(computed);
        }
        let (outputs, bytes) = self.places(py, &found);
        let expected = now.iter().enumerate().map(|(number, now)| Expected {
            layout: now.layout,
            constant: None,
            is_variable: variable.contains(&number),
        });
        let mut expected: Vec<_> = expected.collect();
        for (step, computed) in self.steps.iter().zip(&found) {
            let Computed::Call(call) = computed else { continue };
            for constant in &call.constants {
                // What another step computes is nobody's.
                if let Some(of) = expected.get_mut(step.tensors[constant.at]) {
                    of.constant = Some(constant.clone());
                }
            }
        }
        let weak = |computed: &Computed<Arc<Call>>| match computed {
            Computed::Call(call) => Computed::Call(Arc::downgrade(call)),
            Computed::Pixels(between) => Computed::Pixels(between.clone()),
            Computed::View(output) => Computed::View(output.clone()),
        };
        let steps = found.iter().map(weak).collect();
        let guard = guard.map(Bound::unbind);
        let ready = Arc::new(Ready { setting, guard, expected, steps, outputs, bytes });
        let mut kept = self.ready();
        kept.push_back(ready.clone());
        if kept.len() > MOST {
            kept.pop_front();
        }
        let addresses = now.iter().map(|now| now.address).collect();
        let all = tensors.iter().zip(&ready.expected);
        let variable = all.filter(|(_, of)| of.is_variable).map(|(tensor, _)| tensor.clone()).collect();
        Ok(Some(Found { ready, steps: found, addresses, variable }))
    }

    /// A tensor of this number, or one like it.
    fn example<'py>(
        &self,
        py: Python<'py>,
        tensors: &[Bound<'py, PyAny>],
        found: &[Computed<Arc<Call>>],
        number: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        match number.checked_sub(self.given) {
            None => Ok(tensors[number].clone()),
            Some(index) => empty(py, found, index),
        }
    }

    /// The last of the views of a step's result, or the result itself.
    fn seen(&self, index: usize) -> usize {
        let sees = |step: &Step| step.kind == Kind::View && step.tensors[0] == self.given + index;
        self.steps.iter().position(sees).map_or(index, |view| self.seen(view))
    }

    /// Where results lie, and how many bytes the run needs: each at the first place where nothing lies that is still read, or where
    /// what is read for the last time lies, if that is what a step may write on.
    fn places(&self, py: Python<'_>, found: &[Computed<Arc<Call>>]) -> (Vec<Lies>, usize) {
        let seen = |index: usize| self.seen(index);
        let last = |index: usize| {
            let reads = |step: &Step| step.tensors.contains(&(self.given + index));
            self.steps.iter().rposition(reads).unwrap_or(index)
        };
        let last = |index: usize| last(seen(index));
        // Starts, ends, and by which step they are read last.
        let mut taken: Vec<(usize, usize, usize)> = Vec::new();
        let mut whole = 0;
        let mut lies: Vec<Lies> = Vec::new();
        for (index, computed) in found.iter().enumerate() {
            if let Some(at) = self.results.iter().position(|&number| number == self.given + seen(index)) {
                lies.push(Lies::Result(at));
                continue;
            }
            let image = self.steps[index].tensors[0].checked_sub(self.given);
            if let (Computed::View(_), Some(image)) = (computed, image) {
                lies.push(lies[image]);
                continue;
            }
            if let (Computed::Pixels(between), Some(image)) = (computed, image)
                && let (true, Lies::Inside(start)) = (between.pixels.is_in_place(), lies[image])
                && last(image) == index
                && let Some(place) = taken.iter_mut().find(|&&mut (from, _, of)| (from, of) == (start, index))
            {
                place.2 = last(index);
                lies.push(Lies::Inside(start));
                continue;
            }
            taken.retain(|&(_, _, last)| last >= index);
            taken.sort_unstable();
            let size = computed.bytes(py).next_multiple_of(ALIGNMENT);
            let mut start = 0;
            for &(from, to, _) in &taken {
                if start + size <= from {
                    break;
                }
                start = start.max(to);
            }
            taken.push((start, start + size, last(index)));
            whole = whole.max(start + size);
            lies.push(Lies::Inside(start));
        }
        (lies, whole)
    }
}

impl Computed<Arc<Call>> {
    fn plan<'a>(&'a self, py: Python<'a>) -> Option<&'a PlanCall> {
        match self {
            Computed::Call(call) => call.plan_call(py),
            Computed::Pixels(_) | Computed::View(_) => None,
        }
    }

    fn bytes(&self, py: Python<'_>) -> usize {
        match self {
            Computed::Call(call) => call.plan_call(py).map_or(0, |plan| plan.plan().output_bytes()),
            Computed::Pixels(between) => between.bytes,
            Computed::View(_) => 0,
        }
    }
}

/// A tensor for the result of a step, the first of which is a call.
fn empty<'py>(py: Python<'py>, steps: &[Computed<Arc<Call>>], index: usize) -> PyResult<Bound<'py, PyAny>> {
    let plan = steps[index].plan(py).or_else(|| steps[0].plan(py));
    let plan = plan.ok_or_else(|| PyRuntimeError::new_err("the first step of a run is no plan's"))?;
    match &steps[index] {
        Computed::Call(_) => plan.empty(py),
        Computed::Pixels(between) => plan.tensor(py, between.output.bind(py)),
        Computed::View(output) => plan.tensor(py, output.bind(py)),
    }
}

/// Shape, strides and type of a tensor.
fn described(tensor: &Bound<'_, PyAny>) -> PyResult<Py<PyTuple>> {
    let py = tensor.py();
    // Nothing but tuples is taken, which a shape is not.
    let shape: Vec<i64> = tensor.getattr(intern!(py, "shape"))?.extract()?;
    let strides = tensor.call_method0(intern!(py, "stride"))?;
    let dtype = tensor.getattr(intern!(py, "dtype"))?;
    Ok((PyTuple::new(py, shape)?, strides, dtype).into_pyobject(py)?.unbind())
}

impl Ready {
    /// The calls, if a run of now is like this one: they are kept yet, and their constants are those of then, to which PyTorch has
    /// counted no changes.
    fn again<'py>(
        self: Arc<Self>,
        py: Python<'py>,
        program: &Program,
        direct: &Direct,
        sight: &Sight<'_>,
        given: &Given<'_, 'py>,
    ) -> PyResult<Option<Found<'py>>> {
        let looks = direct.calls().tensors();
        let (mut addresses, mut variable) = (Vec::with_capacity(self.expected.len()), Vec::new());
        for (tensor, expected) in given.iter().zip(&self.expected) {
            let Some(tensor) = tensor? else { return Ok(None) };
            let Some(now) = sight.of(&tensor)? else { return Ok(None) };
            let is_same = |of: &Constant| of.is(&now) && of.is_unchanged(looks, &tensor);
            let is_like = now.layout == expected.layout && expected.constant.as_ref().is_none_or(is_same);
            if !is_like {
                return Ok(None);
            }
            addresses.push(now.address);
            if expected.is_variable {
                variable.push(tensor);
            }
        }
        // Asked of Python, so of a run with such tensors only.
        if self.setting != direct.calls().setting(py, &self.expected[program.image()].layout)? {
            return Ok(None);
        }
        let computed = |computed: &Computed<Weak<Call>>| match computed {
            Computed::Call(call) => call.upgrade().map(Computed::Call),
            Computed::Pixels(between) => Some(Computed::Pixels(between.clone())),
            Computed::View(output) => Some(Computed::View(output.clone())),
        };
        let steps = self.steps.iter().map(computed).collect::<Option<_>>();
        Ok(steps.map(|steps| Found { ready: self, steps, addresses, variable }))
    }
}

impl<'py> Found<'py> {
    fn run(
        &self,
        py: Python<'py>,
        program: &Program,
        direct: &Direct,
    ) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        let Found { ready, steps, addresses, variable } = self;
        for tensor in variable {
            if torch::is_negative(tensor)? {
                return Ok(None);
            }
        }
        // All calls are of one setting, and so of one device.
        let Some(first) = steps[0].plan(py) else { return Ok(None) };
        if !first.is_on_current(py)? {
            return Ok(None);
        }
        let stream = first.stream(py)?;
        let results = program.results.iter().map(|&number| empty(py, steps, number - program.given));
        let results = results.collect::<PyResult<Vec<_>>>()?;
        let looks = direct.calls().tensors();
        let starts = results.iter().map(|result| looks.address(result)).collect::<PyResult<Vec<_>>>()?;
        // Where there is no such memory in one piece, there may be some for each tensor.
        let Ok(memory) = direct.calls().memory_of(py, first, ready.bytes) else { return Ok(None) };
        let start = looks.address(&memory.tensor)?;
        let address =
            |number: usize| match number.checked_sub(program.given).map(|index| ready.outputs[index]) {
                None => addresses[number],
                Some(Lies::Inside(offset)) => start + offset,
                Some(Lies::Result(at)) => starts[at],
            };
        let device = first.plan().device();
        let work = steps.iter().map(|step| match step {
            Computed::Call(_) => step.plan(py).map(|plan| Work::Plan(plan.plan(), plan.rest())),
            Computed::Pixels(between) => Some(Work::Pixels(between.pixels)),
            Computed::View(_) => Some(Work::Nothing),
        });
        let Some(work) = work.collect::<Option<Vec<_>>>() else { return Ok(None) };
        let compute = || -> Result<(), ComputeError> {
            for (index, (step, work)) in program.steps.iter().zip(&work).enumerate() {
                let (input, out) = (address(step.tensors[0]), address(program.given + index));
                // SAFETY: tensors from outside were found to have the layouts of tensors that the plan has computed with, and to be
                // those where it has constants, which calls keep; the others are held here. What is written lies in tensors made for
                // it, or in the run's memory where nothing lies that is still read, but for what may be written on. A plan without a
                // stream has computed when this returns, and PyTorch's memory is kept until its current stream has passed.
                unsafe {
                    match work {
                        Work::Plan(plan, rest) => {
                            let operands = rest.iter().map(|&at| address(step.tensors[at]));
                            plan.compute(input, Out::New(out), operands, stream)?;
                        }
                        Work::Pixels(pixels) => {
                            let numbers = step.tensors.get(1).map_or(0, |&number| address(number));
                            let computed = pixels.compute(&device.inner, input, numbers, out);
                            computed.map_err(ComputeError::Execute)?;
                        }
                        Work::Nothing => {}
                    }
                }
            }
            Ok(())
        };
        let mut computed = Ok(());
        py.detach(|| device.together(&mut || computed = compute()));
        direct.calls().keep_memory(first, memory);
        computed?;
        Ok(Some(results))
    }
}

/// A step without Python's objects.
enum Work<'a> {
    Plan(&'a CompiledPlan, &'a [usize]),
    Pixels(Pixels),
    Nothing,
}

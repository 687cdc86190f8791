//! Calls of PyTorch's operator behind each other, computed without code of Python's between them, with memory of their own for what
//! none but they read.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::calls::{Call, Now};
use crate::compiled::ComputeError;
use crate::direct::Direct;
use crate::torch::{self, Layout};

/// For how many layouts and constants of its tensors a program is kept.
const MOST: usize = 16;

/// What values in the memory of a run are aligned to, as PyTorch aligns tensors on GPUs.
const ALIGNMENT: usize = 512;

/// One call. Tensors are numbers: of those from outside, then of results of the calls before.
struct Step {
    /// Image, weight and operands.
    tensors: Vec<usize>,
    operators: String,
    constant: bool,
}

/// Calls behind each other.
pub(crate) struct Program {
    text: String,
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
    layouts: Vec<Layout>,
    /// They go with their weights.
    calls: Vec<Weak<Call>>,
    /// The tensors from outside that are not constants of every call that has them.
    variable: Vec<usize>,
    outputs: Vec<Lies>,
    bytes: usize,
}

type Found = (Arc<Ready>, Vec<Arc<Call>>);

impl Program {
    /// A call a line: `constant 0 1 2: conv … -> bias` has tensors 0, 1 and 2, the weight and biases of which are constants, as
    /// they are not behind `variable`. In front of the calls is a line with the numbers of the results.
    ///
    /// # Errors
    /// What is no such text, and numbers of tensors that there are not.
    pub(crate) fn new(text: &str, given: usize) -> PyResult<Self> {
        let parsed = Self::parsed(text, given);
        parsed.ok_or_else(|| {
            PyValueError::new_err(format!("with {given} tensors this is no program: {text:?}"))
        })
    }

    fn parsed(text: &str, given: usize) -> Option<Self> {
        let numbers = |words: &str, end: usize| {
            let number = |word: &str| word.parse().ok().filter(|&number| number < end);
            words.split(' ').map(number).collect::<Option<Vec<usize>>>()
        };
        let (results, lines) = text.split_once('\n')?;
        let steps = lines.lines().enumerate().map(|(index, line)| {
            let (words, operators) = line.split_once(": ")?;
            let (kind, tensors) = words.split_once(' ')?;
            let constant = kind == "constant";
            let tensors = numbers(tensors, given + index)?;
            let is_call = tensors.len() >= 2 && (constant || kind == "variable");
            is_call.then(|| Step { tensors, operators: operators.to_owned(), constant })
        });
        let steps = steps.collect::<Option<Vec<_>>>()?;
        let results = numbers(results, given + steps.len())?;
        let is_own = |(at, number): (usize, &usize)| *number >= given && !results[..at].contains(number);
        let is_program = !steps.is_empty() && results.iter().enumerate().all(is_own);
        is_program.then(|| Program { text: text.to_owned(), given, steps, results, ready: Mutex::default() })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The results, if each call is like one before.
    pub(crate) fn run<'py>(
        &self,
        py: Python<'py>,
        direct: &Direct,
        tensors: &[Bound<'py, PyAny>],
        now: &[Now],
    ) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        if tensors.len() != self.given {
            return Ok(None);
        }
        let image = self.steps[0].tensors[0];
        let setting = direct.calls().setting(py, &now[image].layout)?;
        // Not locked while Python's objects are asked.
        let known: Vec<_> = self.ready().iter().rev().cloned().collect();
        let again = |ready: Arc<Ready>| ready.again(self, setting, tensors, now).map(|calls| (ready, calls));
        let found = known.into_iter().find_map(again);
        let found = match found {
            Some(found) => Some(found),
            None => self.prepare(py, direct, tensors, now, setting)?,
        };
        let Some((ready, calls)) = found else { return Ok(None) };
        ready.run(py, self, direct, tensors, now, &calls)
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
    ) -> PyResult<Option<Found>> {
        // A setting is that of a device.
        if now.iter().any(|of| !of.layout.is_beside(&now[0].layout)) {
            return Ok(None);
        }
        let mut values: Vec<_> = now.iter().copied().zip(tensors.iter().cloned()).collect();
        let (mut calls, mut variable, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for step in &self.steps {
            let (of_own, own): (Vec<_>, Vec<_>) = step.tensors.iter().map(|&at| values[at].clone()).unzip();
            let operators = (&*step.operators, step.constant);
            let Some(call) = direct.calls().known(operators, setting, &of_own, &own) else { return Ok(None) };
            let Some(plan) = call.plan_call(py) else { return Ok(None) };
            if !plan.is_on_current(py)? {
                return Ok(None);
            }
            variable.extend(plan.given().map(|at| step.tensors[at]).filter(|&number| number < self.given));
            let Some(result) = direct.look(&plan.empty(py)?) else { return Ok(None) };
            // It is nobody's constant.
            values.push((Now::of_layout(result.layout), py.None().into_bound(py)));
            bytes.push(plan.plan().output_bytes());
            calls.push(call);
        }
        variable.sort_unstable();
        variable.dedup();
        let (outputs, bytes) = self.places(&bytes);
        let layouts = now.iter().map(|now| now.layout).collect();
        let of_calls = calls.iter().map(Arc::downgrade).collect();
        let ready = Arc::new(Ready { setting, layouts, calls: of_calls, variable, outputs, bytes });
        let mut kept = self.ready();
        kept.push_back(ready.clone());
        if kept.len() > MOST {
            kept.pop_front();
        }
        Ok(Some((ready, calls)))
    }

    /// Where results of so many bytes lie, and how many bytes the run needs: each at the first place where nothing lies that is
    /// still read.
    fn places(&self, bytes: &[usize]) -> (Vec<Lies>, usize) {
        let last = |index: usize| {
            let reads = |step: &Step| step.tensors.contains(&(self.given + index));
            self.steps.iter().rposition(reads).unwrap_or(index)
        };
        // Starts, ends, and by which step they are read last.
        let mut taken: Vec<(usize, usize, usize)> = Vec::new();
        let mut whole = 0;
        let lies = (0..self.steps.len()).map(|index| {
            if let Some(at) = self.results.iter().position(|&number| number == self.given + index) {
                return Lies::Result(at);
            }
            taken.retain(|&(_, _, last)| last >= index);
            taken.sort_unstable();
            let size = bytes[index].next_multiple_of(ALIGNMENT);
            let mut start = 0;
            for &(from, to, _) in &taken {
                if start + size <= from {
                    break;
                }
                start = start.max(to);
            }
            taken.push((start, start + size, last(index)));
            whole = whole.max(start + size);
            Lies::Inside(start)
        });
        (lies.collect(), whole)
    }
}

impl Ready {
    /// The calls, if a run of now is like this one: they are kept yet, and their constants are those of then, to which PyTorch has
    /// counted no changes.
    fn again(
        &self,
        program: &Program,
        setting: u64,
        tensors: &[Bound<'_, PyAny>],
        now: &[Now],
    ) -> Option<Vec<Arc<Call>>> {
        let are_like = self.layouts.iter().zip(now).all(|(layout, now)| *layout == now.layout);
        if self.setting != setting || !are_like {
            return None;
        }
        let call = |(step, call): (&Step, &Weak<Call>)| {
            let call = call.upgrade()?;
            let is_same = call.constants.iter().all(|of| {
                let number = step.tensors[of.at];
                of.is(&now[number]) && of.is_unchanged(&tensors[number])
            });
            is_same.then_some(call)
        };
        program.steps.iter().zip(&self.calls).map(call).collect()
    }

    fn run<'py>(
        &self,
        py: Python<'py>,
        program: &Program,
        direct: &Direct,
        tensors: &[Bound<'py, PyAny>],
        now: &[Now],
        calls: &[Arc<Call>],
    ) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        let plans: Option<Vec<_>> = calls.iter().map(|call| call.plan_call(py)).collect();
        let Some(plans) = plans else { return Ok(None) };
        for &number in &self.variable {
            if torch::is_negative(&tensors[number])? {
                return Ok(None);
            }
        }
        // All calls are of one setting, and so of one device.
        if !plans[0].is_on_current(py)? {
            return Ok(None);
        }
        let stream = plans[0].stream(py)?;
        let results = program.results.iter().map(|&number| plans[number - program.given].empty(py));
        let results = results.collect::<PyResult<Vec<_>>>()?;
        let looks = direct.calls().tensors();
        let starts = results.iter().map(|result| looks.address(result)).collect::<PyResult<Vec<_>>>()?;
        // Where there is no such memory in one piece, there may be some for each tensor.
        let Ok(memory) = plans[0].bytes(py, self.bytes, direct.uint8(py)) else { return Ok(None) };
        let start = looks.address(&memory)?;
        let address = |number: usize| match number.checked_sub(program.given).map(|index| self.outputs[index])
        {
            None => now[number].address,
            Some(Lies::Inside(offset)) => start + offset,
            Some(Lies::Result(at)) => starts[at],
        };
        let plans: Vec<_> = plans.into_iter().map(|plan| (plan.plan(), plan.rest())).collect();
        let compute = || -> Result<(), ComputeError> {
            for (index, (step, (plan, rest))) in program.steps.iter().zip(&plans).enumerate() {
                let operands = rest.iter().map(|&at| address(step.tensors[at]));
                let (input, out) = (address(step.tensors[0]), address(program.given + index));
                // SAFETY: tensors from outside were found to have the layouts of tensors that the plan has computed with, and to be
                // those where it has constants, and the caller holds them. What is written lies in tensors made for it, or in
                // the run's memory where nothing lies that is still read. A plan without a stream has computed when this
                // returns, and PyTorch's memory is kept until its current stream has passed.
                unsafe { plan.compute(input, out, operands, stream) }?;
            }
            Ok(())
        };
        let device = plans[0].0.device();
        let mut computed = Ok(());
        py.detach(|| device.together(&mut || computed = compute()));
        computed?;
        Ok(Some(results))
    }
}

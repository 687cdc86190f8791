//! Arguments: the section of the header.
//!
//! Operands and scalars go by the names that the list of every operator's operands has, so an operator needs no function
//! of its own here.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuseplan::problem::{Op, OpKind, Problem};
use fuseplan::raw::OpArgs;
use fuseplan::raw::operands::MAX_OPERANDS;

use crate::abi::{In, Out};
use crate::boundary::export::export;
use crate::boundary::failure::{Failure, bad_parm};
use crate::boundary::table::{Ref, create, object};
use crate::boundary::text::read_text;
use crate::plan::fuseplan_plan_t;

/// What a `fuseplan_args_t` names.
#[derive(Debug)]
pub struct ArgsObject {
    settings: Mutex<Arc<Settings>>,
}
object!(ArgsObject, Args);

/// C's `fuseplan_args_t`.
#[allow(non_camel_case_types, reason = "C's name")]
pub type fuseplan_args_t = Ref<ArgsObject>;

/// What is set, as executions take it. Executions keep what they began with, whatever is set meanwhile.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    kinds: Vec<OpKind>,
    ops: Vec<OpArgs>,
    /// Which operands of each operator do not change.
    constant: Vec<[bool; MAX_OPERANDS]>,
}

/// How an operand is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    ReadConstant,
    Written,
}

impl Settings {
    fn kind(&self, op: usize) -> Result<OpKind, Failure> {
        self.kinds.get(op).copied().ok_or_else(|| {
            bad_parm(format!("there is no operator {op}; the arguments are of {}", self.kinds.len()))
        })
    }

    fn set_operand(
        &mut self,
        op: usize,
        name: &str,
        pointer: *mut c_void,
        usage: Use,
    ) -> Result<(), Failure> {
        let kind = self.kind(op)?;
        let operands = kind.operands();
        let Some(index) = kind.operand_index(name) else {
            return Err(no_such(kind, op, "operand", name, operands.iter().map(|spec| spec.name)));
        };
        match (operands[index].access.is_written(), usage) {
            (true, Use::Written) | (false, Use::Read | Use::ReadConstant) => {}
            (true, Use::Read | Use::ReadConstant) => {
                return Err(bad_parm(format!(
                    "{kind} (operator {op}) writes `{name}`; accepted: fuseplan_args_set_result"
                )));
            }
            (false, Use::Written) => {
                return Err(bad_parm(format!(
                    "{kind} (operator {op}) reads `{name}`; accepted: fuseplan_args_set_operand"
                )));
            }
        }
        let args = &mut self.ops[op];
        args.pointers[index] = pointer;
        let constant = &mut self.constant[op];
        constant[index] = usage == Use::ReadConstant;
        // What kernels derive may be of all that the operator reads.
        let mut reads = operands.iter().zip(constant).filter(|(spec, _)| !spec.access.is_written());
        args.prepared = reads.all(|(_, constant)| *constant).then(Arc::default);
        Ok(())
    }

    fn set_scalar(&mut self, op: usize, name: &str, value: f64) -> Result<(), Failure> {
        let kind = self.kind(op)?;
        let Some(index) = kind.scalar_index(name) else {
            return Err(no_such(kind, op, "scalar", name, kind.scalars().iter().copied()));
        };
        self.ops[op].scalars[index] = value;
        Ok(())
    }

    /// The arguments for the operators of a plan, which must be those that they were made for.
    pub(crate) fn of(&self, problem: &Problem) -> Result<&[OpArgs], Failure> {
        if self.kinds.iter().copied().eq(problem.ops.iter().map(Op::kind)) {
            return Ok(&self.ops);
        }
        let names = |kinds: &mut dyn Iterator<Item = OpKind>| {
            kinds.map(|kind| kind.to_string()).collect::<Vec<_>>().join(", ")
        };
        Err(bad_parm(format!(
            "the arguments are of the operators {}; what was compiled has {}",
            names(&mut self.kinds.iter().copied()),
            names(&mut problem.ops.iter().map(Op::kind))
        )))
    }
}

/// A name that is not in an operator's list.
fn no_such(
    kind: OpKind,
    op: usize,
    what: &str,
    name: &str,
    names: impl Iterator<Item = &'static str>,
) -> Failure {
    let names = names.collect::<Vec<_>>().join(", ");
    let accepted = if names.is_empty() { "none" } else { &names };
    bad_parm(format!("{kind} (operator {op}) has no {what} `{name}`; accepted: {accepted}"))
}

impl ArgsObject {
    fn lock(&self) -> MutexGuard<'_, Arc<Settings>> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is set now.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.lock().clone()
    }
}

impl fuseplan_args_t {
    /// Changes what is set.
    fn change(self, change: impl FnOnce(&mut Settings) -> Result<(), Failure>) -> Result<(), Failure> {
        change(Arc::make_mut(&mut self.get()?.lock()))
    }

    fn set_operand(
        self,
        op: usize,
        name: In<c_char>,
        pointer: *mut c_void,
        usage: Use,
    ) -> Result<(), Failure> {
        self.change(|settings| settings.set_operand(op, &read_text(name, "name")?, pointer, usage))
    }
}

export! {
    fn fuseplan_args_create(args: Out<fuseplan_args_t>, plan: fuseplan_plan_t) {
        let out = args.required("args")?;
        let plan = plan.get()?;
        let settings = {
            let state = plan.state();
            let kinds: Vec<_> = state.plan.ops().iter().map(Op::kind).collect();
            let constant = vec![[false; MAX_OPERANDS]; kinds.len()];
            Settings { kinds, ops: state.defaults.clone(), constant }
        };
        out.set(create(ArgsObject { settings: Mutex::new(Arc::new(settings)) })?);
    }

    fn fuseplan_args_set_operand(
        args: fuseplan_args_t,
        op: usize,
        name: In<c_char>,
        pointer: *const c_void,
    ) {
        args.set_operand(op, name, pointer.cast_mut(), Use::Read)?;
    }

    fn fuseplan_args_set_constant_operand(
        args: fuseplan_args_t,
        op: usize,
        name: In<c_char>,
        pointer: *const c_void,
    ) {
        args.set_operand(op, name, pointer.cast_mut(), Use::ReadConstant)?;
    }

    fn fuseplan_args_set_result(
        args: fuseplan_args_t,
        op: usize,
        name: In<c_char>,
        pointer: *mut c_void,
    ) {
        args.set_operand(op, name, pointer, Use::Written)?;
    }

    fn fuseplan_args_set_scalar(args: fuseplan_args_t, op: usize, name: In<c_char>, value: f64) {
        args.change(|settings| settings.set_scalar(op, &read_text(name, "name")?, value))?;
    }

    fn fuseplan_args_set_scales(args: fuseplan_args_t, op: usize, alpha: f32, beta: f32) {
        args.change(|settings| {
            settings.kind(op)?;
            (settings.ops[op].alpha, settings.ops[op].beta) = (alpha, beta);
            Ok(())
        })?;
    }

    fn fuseplan_args_destroy(args: fuseplan_args_t) {
        if !args.is_null() {
            args.remove()?;
        }
    }
}

//! Executions on bare pointers, for callers who know no types, such as libraries for other languages: operands by address,
//! and the arguments of operators as lists of pointers and numbers.
//!
//! Input, output and workspace are [`Operand::from_raw`](crate::memory::Operand::from_raw) and
//! [`OperandMut::from_raw`](crate::memory::OperandMut::from_raw). The operators' arguments are either typed and made of the
//! same operands, or [`Args`] of [`OpArgs`] in the order that [`OpKind::operands`](crate::problem::OpKind::operands) and
//! [`OpKind::scalars`](crate::problem::OpKind::scalars) give. All of them are executed by
//! [`CompiledPlan::execute`](crate::CompiledPlan::execute) and its like, with the same checks, or without any by
//! [`CompiledPlan::execute_unchecked`](crate::CompiledPlan::execute_unchecked).

pub use fuseplan_api::{ActivationParams, OpArgs, RawStream, operands};

use crate::args::OperatorArgs;

/// The operators' arguments of one execution: [`OperatorArgs`], or pointers and numbers as they are.
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    /// What a kernel is given, one entry for each operator.
    pub(crate) ops: &'a [OpArgs],
    /// What is known of them; `None` where only the caller knows.
    pub(crate) typed: Option<&'a OperatorArgs<'a>>,
}

impl<'a> Args<'a> {
    /// Pointers and numbers, one entry for each operator of a plan; entries behind the plan's last operator are not looked
    /// at. An execution with them allocates nothing after the first on a thread, if the plan needs no workspace or is given
    /// one.
    ///
    /// # Safety
    /// Each entry has the pointers and scalars of the kind of operator that stands at its place in the plan that is executed
    /// with them. Every pointer that is not null is memory of the handle's device, as large as its descriptor says, that
    /// stays valid and is written by nobody else until the stream has passed the execution; what is written is not read by
    /// anybody else either.
    pub unsafe fn new(ops: &'a [OpArgs]) -> Self {
        Args { ops, typed: None }
    }
}

impl<'a> From<&'a OperatorArgs<'_>> for Args<'a> {
    fn from(args: &'a OperatorArgs<'_>) -> Self {
        Args { ops: args.ops(), typed: Some(args) }
    }
}

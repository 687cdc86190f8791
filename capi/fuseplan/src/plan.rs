//! Plans: what they are made of; `operators` appends to them, `compile` compiles them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fuseplan::FusionPlan;
use fuseplan::raw::OpArgs;
use fuseplan::traits::Operator;

use crate::abi::Out;
use crate::boundary::export::export;
use crate::boundary::failure::Failure;
use crate::boundary::table::{Ref, create, object};
use crate::handle::fuseplan_handle_t;
use crate::tensor::fuseplan_tensor_t;

/// What a `fuseplan_plan_t` names.
#[derive(Debug)]
pub struct PlanObject {
    state: Mutex<PlanState>,
}
object!(PlanObject, Plan, |plan| Some(plan.state().plan.problem().to_string()));

/// C's `fuseplan_plan_t`.
#[allow(non_camel_case_types, reason = "C's name")]
pub type fuseplan_plan_t = Ref<PlanObject>;

#[derive(Debug)]
pub(crate) struct PlanState {
    pub(crate) plan: FusionPlan,
    /// The arguments that each operator has where nothing is set: its scalars, and no operands.
    pub(crate) defaults: Vec<OpArgs>,
}

impl PlanObject {
    pub(crate) fn state(&self) -> MutexGuard<'_, PlanState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlanState {
    /// Appends the operator that `make` makes for the plan; gives its number.
    pub(crate) fn append<O: Operator>(
        &mut self,
        defaults: O::Operands,
        make: impl FnOnce(&FusionPlan) -> Result<O, Failure>,
    ) -> Result<usize, Failure> {
        let operator = make(&self.plan)?;
        let op = self.plan.append(operator)?;
        self.defaults.push(defaults.into());
        Ok(op.index())
    }
}

export! {
    fn fuseplan_plan_create(
        plan: Out<fuseplan_plan_t>,
        handle: fuseplan_handle_t,
        input: fuseplan_tensor_t,
    ) {
        let out = plan.required("plan")?;
        let plan = if handle.is_null() {
            FusionPlan::new(input.descriptor()?)?
        } else {
            FusionPlan::for_device(handle.get()?.handle(), input.descriptor()?)?
        };
        let state = PlanState { plan, defaults: Vec::new() };
        out.set(create(PlanObject { state: Mutex::new(state) })?);
    }

    fn fuseplan_plan_output(plan: fuseplan_plan_t, output: Out<fuseplan_tensor_t>) {
        let object = plan.get()?;
        let out = output.required("output")?;
        let descriptor = *object.state().plan.output();
        out.set(fuseplan_tensor_t::of(descriptor)?);
    }

    fn fuseplan_plan_destroy(plan: fuseplan_plan_t) {
        if !plan.is_null() {
            plan.remove()?;
        }
    }
}

//! Fusion plans: the "Plan" section of the header.

use std::ffi::{c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fuseplan::{CompiledPlan, FusionPlan, Handle, MathMode, problem::OpKind, traits::Operator};

use crate::abi::{
    Out, export, fuseplanMathMode_t, miopenConvFwdAlgorithm_t, miopenFusionDirection_t, to_size,
};
use crate::handle::miopenHandle_t;
use crate::operators::{OpObject, miopenFusionOpDescriptor_t};
use crate::status::{Failure, Status, bad_parm};
use crate::table::{Ref, create, object};
use crate::tensor::miopenTensorDescriptor_t;
use crate::text::write_text;

/// What a `miopenFusionPlanDescriptor_t` names.
#[derive(Debug)]
pub struct PlanObject {
    state: Mutex<PlanState>,
}
object!(PlanObject, Plan, |plan| Some(plan.state().plan.to_string()));

/// C's `miopenFusionPlanDescriptor_t`.
#[allow(non_camel_case_types, reason = "MIOpen's own name")]
pub type miopenFusionPlanDescriptor_t = Ref<PlanObject>;

#[derive(Debug)]
pub(crate) struct PlanState {
    pub(crate) plan: FusionPlan,
    /// One handle for each operator; they end with the plan.
    ops: Vec<miopenFusionOpDescriptor_t>,
    /// At most one for each device, of the plan as it is now.
    compiled: Vec<CompiledPlan>,
    /// Why an operator was refused. A plan that lacks an operator which its caller asked for computes something else,
    /// so it computes nothing from then on.
    refused: Option<Failure>,
    /// The plan was destroyed while somebody still used it.
    closed: bool,
}

impl PlanObject {
    pub(crate) fn state(&self) -> MutexGuard<'_, PlanState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlanState {
    /// Appends the operator that `make` makes for the plan and makes the handle for it. If anything fails, the plan
    /// is good for nothing any more.
    pub(crate) fn append<O: Operator>(
        &mut self,
        running: bool,
        make: impl FnOnce(&FusionPlan) -> Result<O, Failure>,
    ) -> Result<miopenFusionOpDescriptor_t, Failure> {
        if self.closed {
            return Err(bad_parm("the fusion plan was destroyed"));
        }
        self.require_complete()?;
        self.compiled.clear();
        let index = self.plan.ops().len();
        let appended = make(&self.plan).and_then(|operator| {
            let handle = create(OpObject { index, kind: O::KIND, running })?;
            if let Err(error) = self.plan.append(operator) {
                handle.remove()?;
                return Err(error.into());
            }
            Ok(handle)
        });
        match &appended {
            Ok(handle) => self.ops.push(*handle),
            Err(Failure { status, text }) => {
                let text =
                    format!("the plan lacks operator {index} ({}), which was refused: {text}", O::KIND);
                self.refused = Some(Failure::new(*status, text));
            }
        }
        appended
    }

    /// Whether every operator that was asked for is in the plan.
    pub(crate) fn require_complete(&self) -> Result<(), Failure> {
        self.refused.clone().map_or(Ok(()), Err)
    }

    /// The plan for the handle's device.
    fn compile(&self, handle: &Handle) -> Result<CompiledPlan, Failure> {
        self.require_complete()?;
        Ok(self.plan.compile(handle)?)
    }

    /// What was compiled with another mode is forgotten.
    fn set_math_mode(&mut self, math: MathMode) {
        if self.plan.problem().math != math {
            self.plan.set_math_mode(math);
            self.compiled.clear();
        }
    }

    /// The plan as compiled for the handle's device.
    pub(crate) fn compiled_for(&self, handle: &Handle) -> Option<&CompiledPlan> {
        self.compiled.iter().find(|compiled| compiled.is_for(handle))
    }

    fn workspace(&self, handle: &Handle) -> Result<usize, Failure> {
        match self.compiled_for(handle) {
            Some(compiled) => Ok(compiled.workspace()),
            None => Ok(self.compile(handle)?.workspace()),
        }
    }

    fn require_convolution(&self) -> Result<(), Failure> {
        match self.plan.ops().first() {
            Some(op) if op.kind() == OpKind::ConvForward => Ok(()),
            _ => Err(bad_parm("the fusion plan has no convolution")),
        }
    }

    fn explain(&self, handle: &Handle) -> String {
        match self.compile(handle) {
            Ok(compiled) => compiled.to_string(),
            Err(Failure { text, .. }) => format!("{}\nrefused    {text}", self.plan.problem()),
        }
    }
}

/// Refuses every direction but the vertical one: that each operator works on the result of the one before is what a plan
/// of the library is.
fn require_vertical(direction: miopenFusionDirection_t) -> Result<(), Failure> {
    match direction {
        0 => Ok(()),
        1 => Err(Failure::new(
            Status::UnsupportedOp,
            "horizontal fusion (1) is not supported; accepted: vertical fusion (0)",
        )),
        _ => Err(bad_parm(format!("{direction} is no fusion direction; accepted: vertical fusion (0)"))),
    }
}

fn math_mode(number: fuseplanMathMode_t) -> Result<MathMode, Failure> {
    match number {
        0 => Ok(MathMode::Precise),
        1 => Ok(MathMode::AllowTf32),
        2 => Ok(MathMode::Strict),
        _ => Err(bad_parm(format!(
            "{number} is no math mode; accepted: 0 (precise), 1 (TF32 allowed), 2 (strict)"
        ))),
    }
}

/// What `miopenFusionPlanConvolutionGetAlgo` lists: Direct and Winograd, as MIOpen does for every plan.
const ALGORITHMS: [miopenConvFwdAlgorithm_t; 2] = [1, 3];

export! {
    fn miopenCreateFusionPlan(
        fusePlanDesc: Out<miopenFusionPlanDescriptor_t>,
        fuseDirection: miopenFusionDirection_t,
        inputDesc: miopenTensorDescriptor_t,
    ) {
        let out = fusePlanDesc.required("fusePlanDesc")?;
        require_vertical(fuseDirection)?;
        let plan = FusionPlan::new(inputDesc.descriptor()?)?;
        let state =
            PlanState { plan, ops: Vec::new(), compiled: Vec::new(), refused: None, closed: false };
        out.set(create(PlanObject { state: Mutex::new(state) })?);
    }

    fn miopenDestroyFusionPlan(fusePlanDesc: miopenFusionPlanDescriptor_t) {
        if fusePlanDesc.is_null() {
            return Ok(());
        }
        let object = fusePlanDesc.remove()?;
        let mut state = object.state();
        state.closed = true;
        for op in state.ops.drain(..) {
            op.remove()?;
        }
    }

    fn miopenCompileFusionPlan(handle: miopenHandle_t, fusePlanDesc: miopenFusionPlanDescriptor_t) {
        let handle = handle.get()?.handle();
        let object = fusePlanDesc.get()?;
        let mut state = object.state();
        let compiled = state.compile(&handle)?;
        state.compiled.retain(|other| !other.is_for(&handle));
        state.compiled.push(compiled);
    }

    fn miopenFusionPlanGetOp(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        op_idx: c_int,
        op: Out<miopenFusionOpDescriptor_t>,
    ) {
        let object = fusePlanDesc.get()?;
        let out = op.required("op")?;
        let state = object.state();
        let index = to_size(op_idx, "the operator index")?;
        let found = state.ops.get(index).copied();
        out.set(found.ok_or_else(|| {
            bad_parm(format!("there is no operator {index}; the plan has {}", state.ops.len()))
        })?);
    }

    fn miopenFusionPlanGetWorkSpaceSize(
        handle: miopenHandle_t,
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        workSpaceSize: Out<usize>,
        algo: miopenConvFwdAlgorithm_t,
    ) {
        let _ = algo;
        let handle = handle.get()?.handle();
        let object = fusePlanDesc.get()?;
        let out = workSpaceSize.required("workSpaceSize")?;
        out.set(object.state().workspace(&handle)?);
    }

    fn miopenFusionPlanConvolutionGetAlgo(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        requestAlgoCount: c_int,
        returnedAlgoCount: Out<c_int>,
        returnedAlgos: Out<miopenConvFwdAlgorithm_t>,
    ) {
        let object = fusePlanDesc.get()?;
        let (count, list) =
            (returnedAlgoCount.required("returnedAlgoCount")?, returnedAlgos.required("returnedAlgos")?);
        let requested = to_size(requestAlgoCount, "the number of algorithms requested")?;
        object.state().require_convolution()?;
        let algorithms = &ALGORITHMS[..ALGORITHMS.len().min(requested)];
        count.set(algorithms.len() as c_int);
        list.set_all(algorithms);
    }

    fn miopenFusionPlanConvolutionSetAlgo(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        algo: miopenConvFwdAlgorithm_t,
    ) {
        let object = fusePlanDesc.get()?;
        // Any algorithm may be asked for; the solver that takes the plan has its own.
        let _ = algo;
        object.state().require_convolution()?;
    }

    fn fuseplanSetFusionPlanMathMode(fusePlanDesc: miopenFusionPlanDescriptor_t, mode: fuseplanMathMode_t) {
        let object = fusePlanDesc.get()?;
        object.state().set_math_mode(math_mode(mode)?);
    }

    fn fuseplanGetOutputDescriptor(
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        outputDesc: miopenTensorDescriptor_t,
    ) {
        let object = fusePlanDesc.get()?;
        let output = {
            let state = object.state();
            state.require_complete()?;
            *state.plan.output()
        };
        outputDesc.assign(output)?;
    }

    fn fuseplanExplainPlan(
        handle: miopenHandle_t,
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        text: Out<c_char>,
        size: Out<usize>,
    ) {
        let handle = handle.get()?.handle();
        let object = fusePlanDesc.get()?;
        let explanation = object.state().explain(&handle);
        write_text(&explanation, text, size)?;
    }
}

//! Argument objects: the "Arguments" section of the header.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuseplan::raw::operands::{
    ActivationBackward, ActivationForward, BatchNormBackward, BatchNormForward, BatchNormInference,
    BiasForward, ConvForward, Operands, PReluForward,
};
use fuseplan::{
    problem::{OpKind, Problem},
    raw::{ActivationParams, OpArgs},
};

use crate::abi::{In, Out, export};
use crate::handle::any_handle_honors_scales;
use crate::operators::{OpObject, miopenFusionOpDescriptor_t};
use crate::status::{Failure, Status, bad_parm};
use crate::table::{Ref, create, object};

/// What a `miopenOperatorArgs_t` names: what was set last for each operator index.
#[derive(Debug, Default)]
pub struct ArgsObject {
    settings: Mutex<Arc<Settings>>,
}
object!(ArgsObject, Args);

/// C's `miopenOperatorArgs_t`.
#[allow(non_camel_case_types, reason = "MIOpen's own name")]
pub type miopenOperatorArgs_t = Ref<ArgsObject>;

/// `y = alpha · op(x) + beta · y`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scales {
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
}

impl Scales {
    pub(crate) const NONE: Scales = Scales { alpha: 1.0, beta: 0.0 };

    /// What the pointers say; 1 and 0 for NULL.
    pub(crate) fn read(alpha: In<c_void>, beta: In<c_void>) -> Self {
        let at = |pointer: In<c_void>| pointer.cast::<f32>().get();
        Scales { alpha: at(alpha).unwrap_or(1.0), beta: at(beta).unwrap_or(0.0) }
    }

    /// The arguments, scaled so.
    pub(crate) fn of(self, args: OpArgs) -> OpArgs {
        OpArgs { alpha: self.alpha, beta: self.beta, ..args }
    }
}

/// What was set for the operators up to the highest index, as executions take it. Executions keep what they began
/// with, whatever is set meanwhile.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// The kind of operator that each was set for; `None` where nothing was set.
    kinds: Vec<Option<OpKind>>,
    /// For handles that do not honour alpha and beta.
    plain: Vec<OpArgs>,
    /// For handles that do.
    scaled: Vec<OpArgs>,
}

impl Settings {
    fn set(&mut self, index: usize, kind: OpKind, args: OpArgs, scales: Scales) {
        if self.kinds.len() <= index {
            self.kinds.resize(index + 1, None);
            self.plain.resize_with(index + 1, OpArgs::default);
            self.scaled.resize_with(index + 1, OpArgs::default);
        }
        self.kinds[index] = Some(kind);
        self.scaled[index] = scales.of(args.clone());
        self.plain[index] = args;
    }

    /// Has kernels keep what they derive from what an operator reads, from now until something is set for it again.
    fn set_constant(&mut self, index: usize, kind: OpKind) -> Result<(), Failure> {
        self.require(index, kind)?;
        let reads = kind.operands().iter().any(|spec| !spec.access.is_written());
        self.plain[index].prepared = reads.then(Arc::default);
        self.scaled[index].prepared = self.plain[index].prepared.clone();
        Ok(())
    }

    /// Refuses an operator for which nothing was set, or arguments of another kind.
    fn require(&self, index: usize, kind: OpKind) -> Result<(), Failure> {
        match self.kinds.get(index).copied().flatten() {
            Some(found) if found == kind => Ok(()),
            Some(found) => Err(wrong_kind(index, found, kind)),
            None => Err(bad_parm(format!("{kind} (operator {index}) has no arguments"))),
        }
    }

    /// The arguments for the operators of a plan, each of which must have been set for its kind, and perhaps for more.
    pub(crate) fn of(&self, problem: &Problem, honor: bool) -> Result<&[OpArgs], Failure> {
        for (index, op) in problem.ops.iter().enumerate() {
            self.require(index, op.kind())?;
        }
        Ok(if honor { &self.scaled } else { &self.plain })
    }
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

fn wrong_kind(index: usize, found: OpKind, expected: OpKind) -> Failure {
    Failure::new(
        Status::UnknownError,
        format!("operator {index} is a {expected}, the arguments are of a {found}"),
    )
}

/// Keeps what was given for an operator of its kind.
fn set<O: Operands>(
    args: miopenOperatorArgs_t,
    op: miopenFusionOpDescriptor_t,
    alpha: In<c_void>,
    beta: In<c_void>,
    operands: impl FnOnce(&OpObject) -> Result<O, Failure>,
) -> Result<(), Failure> {
    let args = args.get()?;
    let op = op.get()?;
    let operands = operands(&op)?;
    if O::KIND != op.kind {
        return Err(wrong_kind(op.index, O::KIND, op.kind));
    }
    let scales = if any_handle_honors_scales() { Scales::read(alpha, beta) } else { Scales::NONE };
    Arc::make_mut(&mut args.lock()).set(op.index, O::KIND, operands.into(), scales);
    Ok(())
}

export! {
    fn miopenCreateOperatorArgs(args: Out<miopenOperatorArgs_t>) {
        let out = args.required("args")?;
        out.set(create(ArgsObject::default())?);
    }

    fn miopenDestroyOperatorArgs(args: miopenOperatorArgs_t) {
        if !args.is_null() {
            args.remove()?;
        }
    }

    fn miopenSetOpArgsConvForward(
        args: miopenOperatorArgs_t,
        convOp: miopenFusionOpDescriptor_t,
        alpha: In<c_void>,
        beta: In<c_void>,
        w: *const c_void,
    ) {
        set(args, convOp, alpha, beta, |_| Ok(ConvForward { weights: w }))?;
    }

    fn miopenSetOpArgsBiasForward(
        args: miopenOperatorArgs_t,
        biasOp: miopenFusionOpDescriptor_t,
        alpha: In<c_void>,
        beta: In<c_void>,
        bias: *const c_void,
    ) {
        set(args, biasOp, alpha, beta, |_| Ok(BiasForward { bias }))?;
    }

    fn fuseplanSetOpArgsPReluForward(
        args: miopenOperatorArgs_t,
        preluOp: miopenFusionOpDescriptor_t,
        alpha: In<c_void>,
        beta: In<c_void>,
        slope: *const c_void,
    ) {
        set(args, preluOp, alpha, beta, |_| Ok(PReluForward { slope }))?;
    }

    fn miopenSetOpArgsActivForward(
        args: miopenOperatorArgs_t,
        activFwdOp: miopenFusionOpDescriptor_t,
        alpha: In<c_void>,
        beta: In<c_void>,
        activAlpha: f64,
        activBeta: f64,
        activGamma: f64,
    ) {
        let params = ActivationParams::new(activAlpha, activBeta, activGamma);
        set(args, activFwdOp, alpha, beta, |_| Ok(ActivationForward::from(params)))?;
    }

    fn miopenSetOpArgsActivBackward(
        args: miopenOperatorArgs_t,
        activBwdOp: miopenFusionOpDescriptor_t,
        alpha: In<c_void>,
        beta: In<c_void>,
        y: *const c_void,
        reserved: *const c_void,
        activAlpha: f64,
        activBeta: f64,
        activGamma: f64,
    ) {
        let _ = reserved;
        let params = ActivationParams::new(activAlpha, activBeta, activGamma);
        set(args, activBwdOp, alpha, beta, |_| Ok(ActivationBackward::new(y, params)))?;
    }

    fn miopenSetOpArgsBatchNormInference(
        args: miopenOperatorArgs_t,
        bnOp: miopenFusionOpDescriptor_t,
        alpha: In<c_void>,
        beta: In<c_void>,
        bnScale: *const c_void,
        bnBias: *const c_void,
        estimatedMean: *const c_void,
        estimatedVariance: *const c_void,
        epsilon: f64,
    ) {
        set(args, bnOp, alpha, beta, |_| {
            Ok(BatchNormInference {
                scale: bnScale,
                bias: bnBias,
                mean: estimatedMean,
                variance: estimatedVariance,
                epsilon,
            })
        })?;
    }

    fn miopenSetOpArgsBatchNormForward(
        args: miopenOperatorArgs_t,
        bnOp: miopenFusionOpDescriptor_t,
        alpha: In<c_void>,
        beta: In<c_void>,
        bnScale: *const c_void,
        bnBias: *const c_void,
        savedMean: *mut c_void,
        savedInvVariance: *mut c_void,
        runningMean: *mut c_void,
        runningVariance: *mut c_void,
        expAvgFactor: f64,
        epsilon: f64,
    ) {
        set(args, bnOp, alpha, beta, |op| {
            let running = [runningMean, runningVariance];
            if op.running && running.contains(&null_mut()) {
                return Err(bad_parm(
                    "the operator updates running statistics; `runningMean` and `runningVariance` must not be NULL",
                ));
            }
            let [running_mean, running_variance] =
                running.map(|pointer| if op.running { pointer.cast() } else { null_mut() });
            Ok(BatchNormForward {
                scale: bnScale.cast(),
                bias: bnBias.cast(),
                saved_mean: savedMean.cast(),
                saved_inv_variance: savedInvVariance.cast(),
                running_mean,
                running_variance,
                epsilon,
                exp_avg_factor: expAvgFactor,
            })
        })?;
    }

    fn miopenSetOpArgsBatchNormBackward(
        args: miopenOperatorArgs_t,
        bnOp: miopenFusionOpDescriptor_t,
        alpha: In<c_void>,
        beta: In<c_void>,
        x: *const c_void,
        bnScale: *const c_void,
        bnBias: *const c_void,
        resultBnScaleDiff: *mut c_void,
        resultBnBiasDiff: *mut c_void,
        savedMean: *const c_void,
        savedInvVariance: *const c_void,
    ) {
        set(args, bnOp, alpha, beta, |_| {
            Ok(BatchNormBackward {
                x,
                scale: bnScale.cast(),
                bias: bnBias.cast(),
                saved_mean: savedMean.cast(),
                saved_inv_variance: savedInvVariance.cast(),
                scale_diff: resultBnScaleDiff.cast(),
                bias_diff: resultBnBiasDiff.cast(),
            })
        })?;
    }

    fn fuseplanSetOpArgsConstant(args: miopenOperatorArgs_t, op: miopenFusionOpDescriptor_t) {
        let args = args.get()?;
        let op = op.get()?;
        Arc::make_mut(&mut args.lock()).set_constant(op.index, op.kind)?;
    }
}

//! Argument objects: the "Arguments" section of the header.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fuseplan::{
    ActivationBackward, ActivationBackwardArgs, ActivationForward, ActivationForwardArgs, BatchNormBackward,
    BatchNormBackwardArgs, BatchNormForward, BatchNormForwardArgs, BatchNormInference,
    BatchNormInferenceArgs, BiasForward, BiasForwardArgs, ConvForward, ConvForwardArgs, FusionPlan, OpKind,
    Operand, OperandMut, OperatorArgs,
};

use crate::abi::{In, Out, export};
use crate::handle::{Address, any_handle_honors_scales};
use crate::operators::{OpObject, miopenFusionOpDescriptor_t};
use crate::status::{Failure, Status, bad_parm};
use crate::table::{Ref, create, object};

/// What a `miopenOperatorArgs_t` names: what was set last for each operator index.
#[derive(Debug, Default)]
pub struct ArgsObject {
    settings: Mutex<Vec<Option<Setting>>>,
}
object!(ArgsObject, Args);

/// C's `miopenOperatorArgs_t`.
#[allow(non_camel_case_types, reason = "MIOpen's own name")]
pub type miopenOperatorArgs_t = Ref<ArgsObject>;

/// The arguments of one operator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) given: Given,
    /// Alpha and beta; 1 and 0 where they are not honoured.
    pub(crate) scales: Scales,
}

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
}

/// Pointers and scalars by kind of operator, in the order of the C functions.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Given {
    Conv {
        weights: Address,
    },
    Bias {
        bias: Address,
    },
    Activation {
        params: [f64; 3],
    },
    ActivationBackward {
        y: Address,
        params: [f64; 3],
    },
    /// Scale, bias, mean, variance.
    BatchNorm {
        parameters: [Address; 4],
        epsilon: f64,
    },
    /// Scale, bias; saved mean and inverse variance, running mean and variance.
    BatchNormForward {
        parameters: [Address; 2],
        results: [Address; 4],
        exp_avg_factor: f64,
        epsilon: f64,
    },
    /// x, scale, bias, saved mean, saved inverse variance; gradients of scale and bias.
    BatchNormBackward {
        operands: [Address; 5],
        results: [Address; 2],
    },
}

impl Given {
    fn kind(&self) -> OpKind {
        match self {
            Given::Conv { .. } => OpKind::ConvForward,
            Given::Bias { .. } => OpKind::BiasForward,
            Given::Activation { .. } => OpKind::ActivationForward,
            Given::ActivationBackward { .. } => OpKind::ActivationBackward,
            Given::BatchNorm { .. } => OpKind::BatchNormInference,
            Given::BatchNormForward { .. } => OpKind::BatchNormForward,
            Given::BatchNormBackward { .. } => OpKind::BatchNormBackward,
        }
    }
}

impl ArgsObject {
    fn settings(&self) -> MutexGuard<'_, Vec<Option<Setting>>> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was set for the first `count` operators.
    pub(crate) fn first(&self, count: usize) -> Vec<Option<Setting>> {
        self.settings().iter().copied().chain(std::iter::repeat(None)).take(count).collect()
    }
}

fn wrong_kind(index: usize, found: OpKind, expected: OpKind) -> Failure {
    Failure::new(
        Status::UnknownError,
        format!("operator {index} is a {expected}, the arguments are of a {found}"),
    )
}

/// The plan's own form of what was set: one entry for each operator, honouring alpha and beta or not.
///
/// # Safety
/// Every address is NULL or memory of the device that the plan will run on, as the operator's descriptor
/// says, until the plan's stream has passed the execution.
pub(crate) unsafe fn bind(
    plan: &FusionPlan,
    settings: &[Option<Setting>],
    honor: bool,
) -> Result<OperatorArgs<'static>, Failure> {
    let mut args = OperatorArgs::new();
    for (index, op) in plan.ops().iter().enumerate() {
        let missing = || bad_parm(format!("{} (operator {index}) has no arguments", op.kind()));
        let Setting { given, scales } = settings.get(index).copied().flatten().ok_or_else(missing)?;
        let Scales { alpha, beta } = if honor { scales } else { Scales::NONE };
        // SAFETY: as promised by the caller.
        let read = |address: Address| unsafe { Operand::from_raw(address.0, None) };
        // SAFETY: as promised by the caller.
        let write = |address: Address| unsafe { OperandMut::from_raw(address.0, None) };
        macro_rules! set {
            ($operator:ident, $args:expr) => {{
                let id = plan.op_id::<$operator>(index);
                let id = id.ok_or_else(|| wrong_kind(index, given.kind(), op.kind()))?;
                args.set(id, $args.alpha(alpha).beta(beta));
            }};
        }
        match given {
            Given::Conv { weights } => set!(ConvForward, ConvForwardArgs::new(read(weights))),
            Given::Bias { bias } => set!(BiasForward, BiasForwardArgs::new(read(bias))),
            Given::Activation { params: [a, b, c] } => {
                set!(ActivationForward, ActivationForwardArgs::new(a, b, c))
            }
            Given::ActivationBackward { y, params: [a, b, c] } => {
                set!(ActivationBackward, ActivationBackwardArgs::new(read(y), a, b, c))
            }
            Given::BatchNorm { parameters: [scale, bias, mean, variance], epsilon } => set!(
                BatchNormInference,
                BatchNormInferenceArgs::new(read(scale), read(bias), read(mean), read(variance), epsilon)
            ),
            Given::BatchNormForward {
                parameters: [scale, bias],
                results: [mean, inverse, running_mean, running_variance],
                exp_avg_factor,
                epsilon,
            } => set!(
                BatchNormForward,
                BatchNormForwardArgs::new(
                    read(scale),
                    read(bias),
                    write(mean),
                    write(inverse),
                    write(running_mean),
                    write(running_variance),
                    exp_avg_factor,
                    epsilon,
                )
            ),
            Given::BatchNormBackward {
                operands: [x, scale, bias, mean, inverse],
                results: [scale_diff, bias_diff],
            } => set!(
                BatchNormBackward,
                BatchNormBackwardArgs::new(
                    read(x),
                    read(scale),
                    read(bias),
                    read(mean),
                    read(inverse),
                    write(scale_diff),
                    write(bias_diff),
                )
            ),
        }
    }
    Ok(args)
}

/// Keeps what was given for an operator of its kind.
fn set(
    args: miopenOperatorArgs_t,
    op: miopenFusionOpDescriptor_t,
    alpha: In<c_void>,
    beta: In<c_void>,
    given: impl FnOnce(&OpObject) -> Result<Given, Failure>,
) -> Result<(), Failure> {
    let args = args.get()?;
    let op = op.get()?;
    let given = given(&op)?;
    if given.kind() != op.kind {
        return Err(wrong_kind(op.index, given.kind(), op.kind));
    }
    let scales = if any_handle_honors_scales() { Scales::read(alpha, beta) } else { Scales::NONE };
    let mut settings = args.settings();
    if settings.len() <= op.index {
        settings.resize(op.index + 1, None);
    }
    settings[op.index] = Some(Setting { given, scales });
    Ok(())
}

fn address(pointer: *const c_void) -> Address {
    Address(pointer.cast_mut())
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
        set(args, convOp, alpha, beta, |_| Ok(Given::Conv { weights: address(w) }))?;
    }

    fn miopenSetOpArgsBiasForward(
        args: miopenOperatorArgs_t,
        biasOp: miopenFusionOpDescriptor_t,
        alpha: In<c_void>,
        beta: In<c_void>,
        bias: *const c_void,
    ) {
        set(args, biasOp, alpha, beta, |_| Ok(Given::Bias { bias: address(bias) }))?;
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
        let params = [activAlpha, activBeta, activGamma];
        set(args, activFwdOp, alpha, beta, |_| Ok(Given::Activation { params }))?;
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
        let params = [activAlpha, activBeta, activGamma];
        set(args, activBwdOp, alpha, beta, |_| Ok(Given::ActivationBackward { y: address(y), params }))?;
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
        let parameters = [bnScale, bnBias, estimatedMean, estimatedVariance].map(address);
        set(args, bnOp, alpha, beta, |_| Ok(Given::BatchNorm { parameters, epsilon }))?;
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
            let mut results = [savedMean, savedInvVariance, runningMean, runningVariance];
            if !op.running {
                results[2..].fill(std::ptr::null_mut());
            } else if results[2..].contains(&std::ptr::null_mut()) {
                return Err(bad_parm(
                    "the operator updates running statistics; `runningMean` and `runningVariance` must not be NULL",
                ));
            }
            Ok(Given::BatchNormForward {
                parameters: [bnScale, bnBias].map(address),
                results: results.map(Address),
                exp_avg_factor: expAvgFactor,
                epsilon,
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
            Ok(Given::BatchNormBackward {
                operands: [x, bnScale, bnBias, savedMean, savedInvVariance].map(address),
                results: [resultBnScaleDiff, resultBnBiasDiff].map(Address),
            })
        })?;
    }
}

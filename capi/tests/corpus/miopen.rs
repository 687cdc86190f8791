//! Cases through the functions of `libMIOpen.so.1`.

use std::ffi::{CStr, c_int, c_void};

use MIOpen::abi::{In, Out};
use MIOpen::*;
use fuseplan::{BatchNormMode, DataType, TensorDescriptor};
use fuseplan_suite::case::{self, Case, OpSpec, Stage};
use fuseplan_suite::layout::Layout;
use fuseplan_suite::oracle::EXP_AVG_FACTOR;

use crate::{Library, Refused, Result};

fn check(stage: Stage, status: u32) -> std::result::Result<(), Refused> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: a C string of this thread's, read before its next call.
    let text = unsafe { CStr::from_ptr(fuseplanGetLastErrorString()) };
    Err(Refused { stage, status, text: text.to_string_lossy().into_owned() })
}

/// Calls a C function in a stage; early return when it fails. Pointers that are made here are to live
/// locals.
macro_rules! call {
    ($stage:ident, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: every pointer is NULL or to a local of the type and number that the header says.
        check(Stage::$stage, unsafe { $function($($argument),*) })
    };
}

/// A handle that a call writes.
macro_rules! made {
    ($stage:ident, $function:ident($($before:expr,)* => $($argument:expr),* $(,)?)) => {{
        let mut handle = Ref::NULL;
        // SAFETY: the local lives over the call.
        let out = unsafe { Out::new(&mut handle) };
        call!($stage, $function($($before,)* out $(, $argument)*)).map(|()| handle)
    }};
}

/// A list that a call reads.
fn list(values: &[c_int]) -> In<c_int> {
    // SAFETY: every caller holds the list over the call and says its length.
    unsafe { In::new(values.as_ptr()) }
}

/// A scalar that a call reads.
fn scalar(value: &f32) -> In<c_void> {
    // SAFETY: every caller holds the number over the call.
    unsafe { In::new(std::ptr::from_ref(value).cast()) }
}

fn ints(values: impl IntoIterator<Item = usize>) -> Vec<c_int> {
    values.into_iter().map(|value| c_int::try_from(value).unwrap_or(-1)).collect()
}

fn code(data_type: DataType) -> u32 {
    match data_type {
        DataType::Half => 0,
        DataType::Int8 => 3,
        DataType::BFloat16 => 5,
        DataType::Double => 6,
        _ => 1,
    }
}

fn tensor(data_type: DataType, lens: &[usize], layout: Option<&Layout>) -> Result<miopenTensorDescriptor_t> {
    let handle = made!(Descriptor, miopenCreateTensorDescriptor(=>))?;
    let lens32 = ints(lens.iter().copied());
    // Lengths that the layout cannot be made for are left to C to refuse.
    let strides = layout.and_then(|layout| layout.describe(data_type, lens).ok());
    let strides = strides.and_then(|descriptor| Some(ints(descriptor.strides()?.iter().copied())));
    let strides = strides.as_deref().map_or_else(null, list);
    call!(
        Descriptor,
        miopenSetTensorDescriptor(handle, code(data_type), lens32.len() as c_int, list(&lens32), strides)
    )?;
    Ok(handle)
}

/// What a descriptor of C's says.
fn described(handle: miopenTensorDescriptor_t) -> Result<TensorDescriptor> {
    let (mut rank, mut data_type, mut lens, mut strides) = (0, 0, [0; 5], [0; 5]);
    // SAFETY: live places, of as many elements as a tensor may have dimensions.
    unsafe {
        check(Stage::Descriptor, miopenGetTensorDescriptorSize(handle, Out::new(&mut rank)))?;
        let (lens, strides) = (Out::new(lens.as_mut_ptr()), Out::new(strides.as_mut_ptr()));
        check(Stage::Descriptor, miopenGetTensorDescriptor(handle, Out::new(&mut data_type), lens, strides))?;
    }
    let rank = usize::try_from(rank)?;
    let sizes = |list: [c_int; 5]| list[..rank].iter().map(|&value| value as usize).collect::<Vec<_>>();
    let data_type = DataType::ALL.into_iter().find(|&known| code(known) == data_type).ok_or("a data type")?;
    Ok(TensorDescriptor::new(data_type, &sizes(lens), &sizes(strides))?)
}

fn null() -> In<c_int> {
    // SAFETY: NULL is always allowed.
    unsafe { In::new(std::ptr::null()) }
}

/// A plan with everything that was made for it; all of it ends with the value.
pub(crate) struct Built {
    handle: miopenHandle_t,
    plan: miopenFusionPlanDescriptor_t,
    args: miopenOperatorArgs_t,
    ops: Vec<miopenFusionOpDescriptor_t>,
}

impl Drop for Built {
    fn drop(&mut self) {
        // SAFETY: handles are any numbers.
        unsafe {
            miopenDestroyOperatorArgs(self.args);
            miopenDestroyFusionPlan(self.plan);
            miopenDestroy(self.handle);
        }
    }
}

fn append(
    case: &Case,
    plan: miopenFusionPlanDescriptor_t,
    op: &OpSpec,
) -> Result<miopenFusionOpDescriptor_t> {
    let bn = |mode: BatchNormMode| mode as u32;
    Ok(match op {
        OpSpec::Conv(spec) => {
            let dims = 0..spec.filter.len();
            let conv = made!(Descriptor, miopenCreateConvolutionDescriptor(=>))?;
            let pads = ints(dims.clone().map(|d| spec.pad(d)));
            let strides = ints(dims.clone().map(|d| spec.stride(d)));
            let dilations = ints(dims.clone().map(|d| spec.dilation(d)));
            call!(
                Descriptor,
                miopenInitConvolutionNdDescriptor(
                    conv,
                    pads.len() as c_int,
                    list(&pads),
                    list(&strides),
                    list(&dilations),
                    u32::from(spec.transpose),
                )
            )?;
            if !spec.is_symmetric() {
                let after = ints(dims.clone().map(|d| spec.pad_after(d)));
                let dims = pads.len() as c_int;
                call!(Descriptor, fuseplanSetConvolutionPadding(conv, dims, list(&pads), list(&after)))?;
            }
            call!(Descriptor, miopenSetConvolutionGroupCount(conv, ints([spec.groups])[0]))?;
            let lens = spec.weight_lens(case.input[1]);
            let layout = spec.weights.clone().unwrap_or_else(|| case.layout.packed());
            let layout = (lens.len() == case.input.len()).then_some(&layout);
            let weights = tensor(spec.data_type.unwrap_or(case.data_type), &lens, layout)?;
            let op = made!(Append, miopenCreateOpConvForward(plan, => conv, weights));
            call!(Append, miopenDestroyTensorDescriptor(weights))?;
            call!(Append, miopenDestroyConvolutionDescriptor(conv))?;
            op?
        }
        OpSpec::Bias(spec) => {
            let lens = spec.lens.clone().unwrap_or_else(|| {
                let mut lens = vec![1; case.input.len()];
                lens[1] = case.output_lens()[1];
                lens
            });
            let bias = tensor(spec.data_type.unwrap_or(case.data_type), &lens, None)?;
            let op = made!(Append, miopenCreateOpBiasForward(plan, => bias));
            call!(Append, miopenDestroyTensorDescriptor(bias))?;
            op?
        }
        OpSpec::PRelu(spec) => {
            let lens = spec.lens.clone().unwrap_or_else(|| case.channel_lens());
            let slope = tensor(spec.data_type.unwrap_or(case.data_type), &lens, None)?;
            let op = made!(Append, fuseplanCreateOpPReluForward(plan, => slope));
            call!(Append, miopenDestroyTensorDescriptor(slope))?;
            op?
        }
        OpSpec::Residual(spec) => {
            let residual = match &spec.layout {
                Some(layout) => {
                    tensor(spec.data_type.unwrap_or(case.data_type), &case.output_lens(), Some(layout))?
                }
                None => {
                    let like = made!(Descriptor, miopenCreateTensorDescriptor(=>))?;
                    call!(Descriptor, fuseplanGetOutputDescriptor(plan, like))?;
                    like
                }
            };
            let op = made!(Append, miopenCreateOpBiasForward(plan, => residual));
            call!(Append, miopenDestroyTensorDescriptor(residual))?;
            op?
        }
        OpSpec::BatchNorm(spec) => {
            let params = match (&spec.params, spec.data_type) {
                (Some(lens), data_type) => tensor(data_type.unwrap_or(DataType::Float), lens, None)?,
                (None, Some(data_type)) => {
                    let mut lens = case.channel_lens();
                    if spec.mode == BatchNormMode::PerActivation {
                        lens[2..].copy_from_slice(&case.output_lens()[2..]);
                    }
                    tensor(data_type, &lens, None)?
                }
                (None, None) => {
                    let output = tensor(case.data_type, &case.output_lens(), None)?;
                    let derived = made!(Descriptor, miopenCreateTensorDescriptor(=>))?;
                    call!(Descriptor, miopenDeriveBNTensorDescriptor(derived, output, bn(spec.mode)))?;
                    call!(Descriptor, miopenDestroyTensorDescriptor(output))?;
                    derived
                }
            };
            let op = made!(Append, miopenCreateOpBatchNormInference(plan, => bn(spec.mode), params));
            call!(Append, miopenDestroyTensorDescriptor(params))?;
            op?
        }
        OpSpec::Activation(spec) => {
            made!(Append, miopenCreateOpActivationForward(plan, => spec.mode.miopen_value()))?
        }
        OpSpec::ActivationBackward(spec) => {
            made!(Append, miopenCreateOpActivationBackward(plan, => spec.mode.miopen_value()))?
        }
        OpSpec::BatchNormForward(spec) => {
            made!(Append, miopenCreateOpBatchNormForward(plan, => bn(spec.mode), spec.running.into()))?
        }
        OpSpec::BatchNormBackward(spec) => {
            made!(Append, miopenCreateOpBatchNormBackward(plan, => bn(spec.mode)))?
        }
    })
}

impl Library for Built {
    const UNSUPPORTED: &[u32] = &[3, 7, 8];

    fn can_say(case: &Case) -> bool {
        !case.names_any_layout()
    }

    /// A bias is per channel whatever its descriptor's channels say, which is MIOpen's rule. So is a spatial batch-norm's,
    /// whose descriptor callers derive from the plan's input.
    fn may_take(refused: &case::Refused) -> bool {
        let is_spatial = || refused.says.iter().any(|words| words == "spatial");
        refused.reason == "BiasShape" || (refused.reason == "BatchNormShape" && is_spatial())
    }

    fn refuses_at(case: &Case, refused: &case::Refused) -> Stage {
        let says = |word: &str| refused.says.iter().any(|words| words.starts_with(word));
        match refused.stage {
            // A plan is for no device, so what a device refuses comes at the compile.
            Stage::Append if case.for_device && refused.reason == "NoSolver" => Stage::Compile,
            // Convolution descriptors keep any group count, and tensor descriptors no elements, until they are used.
            Stage::Descriptor if says("group count") => Stage::Append,
            Stage::Descriptor if says("length") => Stage::Plan,
            stage => stage,
        }
    }

    fn build(case: &Case) -> Result<Self> {
        let handle = made!(Plan, miopenCreate(=>))?;
        call!(Plan, fuseplanSetHonorAlphaBeta(handle, true.into()))?;
        let x = tensor(case.data_type, &case.input, Some(&case.layout))?;
        let plan = made!(Plan, miopenCreateFusionPlan(=> 0, x));
        call!(Plan, miopenDestroyTensorDescriptor(x))?;
        let mut built = Built { handle, plan: plan?, args: Ref::NULL, ops: Vec::new() };
        built.args = made!(Plan, miopenCreateOperatorArgs(=>))?;
        for op in &case.ops {
            let made = append(case, built.plan, op)?;
            built.ops.push(made);
        }
        Ok(built)
    }

    fn compile(&mut self) -> Result<()> {
        // The oracle's bounds are those of sums.
        call!(Compile, fuseplanSetFusionPlanMathMode(self.plan, 2))?;
        Ok(call!(Compile, miopenCompileFusionPlan(self.handle, self.plan))?)
    }

    fn output(&self) -> Result<TensorDescriptor> {
        let yd = made!(Compile, miopenCreateTensorDescriptor(=>))?;
        call!(Compile, fuseplanGetOutputDescriptor(self.plan, yd))?;
        let output = described(yd);
        call!(Compile, miopenDestroyTensorDescriptor(yd))?;
        output
    }

    fn execute(&self, case: &Case, x: *mut c_void, y: *mut c_void) -> Result<()> {
        let xd = tensor(case.data_type, &case.input, Some(&case.layout))?;
        let yd = made!(Compile, miopenCreateTensorDescriptor(=>))?;
        call!(Compile, fuseplanGetOutputDescriptor(self.plan, yd))?;
        call!(Compile, miopenExecuteFusionPlan(self.handle, self.plan, xd, x, yd, y, self.args))?;
        call!(Compile, miopenDestroyTensorDescriptor(xd))?;
        Ok(call!(Compile, miopenDestroyTensorDescriptor(yd))?)
    }

    fn set(&self, case: &Case, index: usize, read: &[*mut c_void], written: &[*mut c_void]) -> Result<()> {
        let (args, handle) = (self.args, self.ops[index]);
        let beta = if index + 1 == case.ops.len() { case.beta } else { 0.0 };
        let (alpha, beta) = (scalar(&case.alpha[index]), scalar(&beta));
        let epsilon = case.epsilon;
        let op = &case.ops[index];
        let at = |i: usize| read.get(i).copied().unwrap_or(std::ptr::null_mut());
        match op {
            OpSpec::Conv(_) => call!(Compile, miopenSetOpArgsConvForward(args, handle, alpha, beta, at(0)))?,
            OpSpec::Bias(_) | OpSpec::Residual(_) => {
                call!(Compile, miopenSetOpArgsBiasForward(args, handle, alpha, beta, at(0)))?;
            }
            OpSpec::PRelu(_) => {
                call!(Compile, fuseplanSetOpArgsPReluForward(args, handle, alpha, beta, at(0)))?
            }
            OpSpec::Activation(spec) => {
                let [a, b, c] = spec.params;
                call!(Compile, miopenSetOpArgsActivForward(args, handle, alpha, beta, a, b, c))?;
            }
            OpSpec::ActivationBackward(spec) => {
                let [a, b, c] = spec.params;
                let none = std::ptr::null();
                call!(
                    Compile,
                    miopenSetOpArgsActivBackward(args, handle, alpha, beta, at(0), none, a, b, c)
                )?;
            }
            OpSpec::BatchNorm(_) => call!(
                Compile,
                miopenSetOpArgsBatchNormInference(
                    args,
                    handle,
                    alpha,
                    beta,
                    at(0),
                    at(1),
                    at(2),
                    at(3),
                    epsilon
                )
            )?,
            OpSpec::BatchNormForward(_) => call!(
                Compile,
                miopenSetOpArgsBatchNormForward(
                    args,
                    handle,
                    alpha,
                    beta,
                    at(0),
                    at(1),
                    written[0],
                    written[1],
                    at(2),
                    at(3),
                    EXP_AVG_FACTOR,
                    epsilon,
                )
            )?,
            OpSpec::BatchNormBackward(_) => call!(
                Compile,
                miopenSetOpArgsBatchNormBackward(
                    args,
                    handle,
                    alpha,
                    beta,
                    at(0),
                    at(1),
                    at(2),
                    written[0],
                    written[1],
                    at(3),
                    at(4),
                )
            )?,
        }
        Ok(())
    }
}

//! The shared corpus of cases through the C functions: the same data files and the same oracle as every
//! backend, one test for each case.

use std::error::Error;
use std::ffi::{CStr, c_int, c_void};
use std::process::ExitCode;

use MIOpen::abi::{In, Out};
use MIOpen::*;
use fuseplan::{BatchNormMode, DataType, TensorDescriptor};
use fuseplan_suite::case::{Case, OpSpec, OperandSpec, Stage};
use fuseplan_suite::data::{self, EXACT_EPSILON, Tier};
use fuseplan_suite::layout::Layout;
use fuseplan_suite::oracle::{self, EXP_AVG_FACTOR, F32_ROUNDOFF, Field, Operands};
use fuseplan_suite::{corpus, number};
use libtest_mimic::{Arguments, FormatSetting, Trial};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    if arguments.filter.is_none() && !arguments.list {
        arguments.format.get_or_insert(FormatSetting::Terse);
    }
    let trials = match corpus::load() {
        Ok(cases) => cases.into_iter().map(trial).collect(),
        Err(error) => vec![Trial::test("corpus", || Err(error.into()))],
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(case: Case) -> Trial {
    Trial::test(format!("capi.{}", case.id), move || Ok(judge(&case)?))
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A call that failed: at which stage, with which status and text.
#[derive(Debug)]
struct Refused {
    stage: Stage,
    status: u32,
    text: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} gave status {}: {}", self.stage, self.status, self.text)
    }
}

impl Error for Refused {}

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
    let strides = strides.map(|descriptor| ints(descriptor.strides().iter().copied()));
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

/// Memory of a tensor, poisoned but for the elements.
struct Memory {
    descriptor: TensorDescriptor,
    /// Of 8 bytes each, so that every element type is aligned.
    words: Vec<u64>,
}

impl Memory {
    fn new(descriptor: TensorDescriptor, values: Option<&[f64]>) -> Result<Self> {
        let data_type = descriptor.data_type();
        let mut memory = Memory { descriptor, words: vec![u64::MAX; descriptor.bytes() / 8 + 1] };
        for (index, value) in values.into_iter().flatten().enumerate() {
            let (offset, size) = (memory.offset(index), data_type.size());
            let mut bytes = [0; 8];
            number::encode(*value, data_type, &mut bytes[..size]);
            // SAFETY: inside of the words, by the descriptor's own count of bytes.
            unsafe { memory.pointer().byte_add(offset * size).cast::<u8>().copy_from(bytes.as_ptr(), size) };
        }
        Ok(memory)
    }

    /// An operand of the case; a residual that says nothing of its layout is like the output.
    fn of(spec: &OperandSpec, output: TensorDescriptor, values: Option<&[f64]>) -> Result<Self> {
        let layout = spec.layout.as_ref();
        let described = layout.map_or(Ok(output), |layout| layout.describe(spec.data_type, &spec.lens));
        Memory::new(described?, values)
    }

    fn pointer(&mut self) -> *mut c_void {
        self.words.as_mut_ptr().cast()
    }

    /// Of the element at an index, in elements.
    fn offset(&self, mut index: usize) -> usize {
        let dims = self.descriptor.lens().iter().zip(self.descriptor.strides()).rev();
        let mut offset = 0;
        for (&length, &stride) in dims {
            offset += index % length * stride;
            index /= length;
        }
        offset
    }

    fn values(&mut self) -> Vec<f64> {
        let (data_type, size) = (self.descriptor.data_type(), self.descriptor.data_type().size());
        let start = self.pointer();
        let element = |index| {
            let mut bytes = [0u8; 8];
            // SAFETY: as in `new`.
            unsafe {
                start.byte_add(self.offset(index) * size).cast::<u8>().copy_to(bytes.as_mut_ptr(), size)
            };
            number::decode(&bytes[..size], data_type)
        };
        (0..self.descriptor.element_count()).map(element).collect()
    }
}

/// A plan with everything that was made for it; all of it ends with the value.
struct Built {
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

fn build(case: &Case) -> Result<Built> {
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

fn judge(case: &Case) -> Result<()> {
    let Some(refused) = &case.refused else {
        judge_tier(case, Tier::Bound)?;
        return if case.can_be_exact() { judge_tier(case, Tier::Exact) } else { Ok(()) };
    };
    let outcome =
        build(case).and_then(|built| Ok(call!(Compile, miopenCompileFusionPlan(built.handle, built.plan))?));
    let found = match outcome {
        Err(error) => *error.downcast::<Refused>()?,
        // C's bias is per channel whatever its descriptor's channels say; that is MIOpen's rule.
        Ok(()) if refused.reason == "BiasShape" => return Ok(()),
        // So is a spatial batch-norm's, which C's callers derive from the plan's input.
        Ok(())
            if refused.reason == "BatchNormShape" && refused.says.iter().any(|words| words == "spatial") =>
        {
            return Ok(());
        }
        Ok(()) => return Err(format!("was taken, want {refused:?}").into()),
    };
    let stage = match refused.stage {
        // A plan of C's is for no device, so what a device refuses comes at the compile.
        Stage::Append if case.for_device && refused.reason == "NoSolver" => Stage::Compile,
        // C's descriptors keep any group count until they are used.
        Stage::Descriptor if refused.says.iter().any(|words| words == "group count") => Stage::Append,
        // C's descriptors may have no elements until they are used.
        Stage::Descriptor if refused.says.iter().any(|words| words.starts_with("length")) => Stage::Plan,
        stage => stage,
    };
    if found.stage != stage || ![3, 7, 8].contains(&found.status) {
        return Err(format!("found {found}, want {refused:?}").into());
    }
    Ok(())
}

fn judge_tier(case: &Case, tier: Tier) -> Result<()> {
    let mut case = case.clone();
    let mut roundoff = F32_ROUNDOFF;
    if tier == Tier::Exact {
        (case.epsilon, roundoff) = (EXACT_EPSILON, 0.0);
    }
    let operands = data::operands(&case, tier, 0);
    let expected = oracle::expect(&case, &operands, roundoff, 0.0)?;
    let built = build(&case)?;
    // The oracle's bounds are those of sums.
    call!(Plan, fuseplanSetFusionPlanMathMode(built.plan, 2))?;
    call!(Compile, miopenCompileFusionPlan(built.handle, built.plan))?;
    let found = execute(&case, &built, &operands)?;
    if found.len() != expected.len() {
        return Err(format!("{} results, want {}", found.len(), expected.len()).into());
    }
    for (at, ((data_type, values), field)) in found.iter().zip(&expected).enumerate() {
        compare(*data_type, values, field).map_err(|text| format!("tier {tier:?}, result {at}: {text}"))?;
    }
    Ok(())
}

fn compare(data_type: DataType, found: &[f64], want: &Field) -> std::result::Result<(), String> {
    for (i, &value) in found.iter().enumerate() {
        let (least, greatest) = want.accepted(i, data_type);
        let right = (least..=greatest).contains(&value) || (want.value[i].is_nan() && value.is_nan());
        if !right {
            return Err(format!("element {i} is {value}, accepted: {least} to {greatest}"));
        }
    }
    Ok(())
}

/// Sets the arguments, executes, and gives the output and whatever operators wrote besides.
fn execute(case: &Case, built: &Built, operands: &Operands) -> Result<Vec<(DataType, Vec<f64>)>> {
    let yd = made!(Compile, miopenCreateTensorDescriptor(=>))?;
    call!(Compile, fuseplanGetOutputDescriptor(built.plan, yd))?;
    let output = described(yd)?;
    let specs = case.operands();
    let mut read: Vec<Vec<Memory>> = Vec::new();
    for (specs, values) in specs.iter().zip(&operands.ops) {
        let memories: Result<Vec<_>> =
            specs.iter().zip(values).map(|(s, v)| Memory::of(s, output, Some(v))).collect();
        read.push(memories?);
    }
    let mut written = Vec::new();
    if case.is_training() {
        let params = specs[0].iter().rfind(|spec| spec.data_type == DataType::Float);
        let spec = params.ok_or("a training operator has parameters")?;
        for _ in 0..2 {
            written.push(Memory::of(spec, output, None)?);
        }
    }
    for (index, op) in case.ops.iter().enumerate() {
        let pointers: Vec<*mut c_void> = read[index].iter_mut().map(Memory::pointer).collect();
        let results: Vec<*mut c_void> = written.iter_mut().map(Memory::pointer).collect();
        set(case, built, index, op, &pointers, &results)?;
    }
    let mut x = Memory::new(case.layout.describe(case.data_type, &case.input)?, Some(&operands.input))?;
    let prior = (case.beta != 0.0).then_some(&operands.prior[..]);
    let mut y = Memory::new(output, prior)?;
    let xd = tensor(case.data_type, &case.input, Some(&case.layout))?;
    let target = if case.in_place { x.pointer() } else { y.pointer() };
    call!(
        Compile,
        miopenExecuteFusionPlan(built.handle, built.plan, xd, x.pointer(), yd, target, built.args)
    )?;
    call!(Compile, miopenDestroyTensorDescriptor(xd))?;
    call!(Compile, miopenDestroyTensorDescriptor(yd))?;
    let running = matches!(case.ops.first(), Some(OpSpec::BatchNormForward(norm)) if norm.running);
    let mut results = vec![if case.in_place { x } else { y }];
    results.extend(written);
    if running {
        results.extend(read[0].drain(2..));
    }
    Ok(results.iter_mut().map(|memory| (memory.descriptor.data_type(), memory.values())).collect())
}

fn set(
    case: &Case,
    built: &Built,
    index: usize,
    op: &OpSpec,
    read: &[*mut c_void],
    written: &[*mut c_void],
) -> Result<()> {
    let (args, handle) = (built.args, built.ops[index]);
    let beta = if index + 1 == case.ops.len() { case.beta } else { 0.0 };
    let (alpha, beta) = (scalar(&case.alpha[index]), scalar(&beta));
    let epsilon = case.epsilon;
    let at = |i: usize| read.get(i).copied().unwrap_or(std::ptr::null_mut());
    match op {
        OpSpec::Conv(_) => call!(Compile, miopenSetOpArgsConvForward(args, handle, alpha, beta, at(0)))?,
        OpSpec::Bias(_) | OpSpec::Residual(_) => {
            call!(Compile, miopenSetOpArgsBiasForward(args, handle, alpha, beta, at(0)))?;
        }
        OpSpec::PRelu(_) => call!(Compile, fuseplanSetOpArgsPReluForward(args, handle, alpha, beta, at(0)))?,
        OpSpec::Activation(spec) => {
            let [a, b, c] = spec.params;
            call!(Compile, miopenSetOpArgsActivForward(args, handle, alpha, beta, a, b, c))?;
        }
        OpSpec::ActivationBackward(spec) => {
            let [a, b, c] = spec.params;
            let none = std::ptr::null();
            call!(Compile, miopenSetOpArgsActivBackward(args, handle, alpha, beta, at(0), none, a, b, c))?;
        }
        OpSpec::BatchNorm(_) => call!(
            Compile,
            miopenSetOpArgsBatchNormInference(args, handle, alpha, beta, at(0), at(1), at(2), at(3), epsilon)
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

//! The library under test: a case becomes a plan, and operands become memory of the device.

use std::ffi::c_void;
use std::sync::Arc;

use fuseplan::{
    ActivationBackward, ActivationBackwardArgs, ActivationForward, ActivationForwardArgs, BatchNormBackward,
    BatchNormBackwardArgs, BatchNormForward, BatchNormForwardArgs, BatchNormInference,
    BatchNormInferenceArgs, BiasForward, BiasForwardArgs, CompileOptions, CompiledPlan, ConvForward,
    ConvForwardArgs, ConvolutionDescriptor, ConvolutionMode, DataType, FusionPlan, Handle, OpId,
    OperatorArgs, PReluForward, PReluForwardArgs, Tensor, TensorDescriptor, TensorMut,
    choice::ExecutableInfo,
    error::{AppendError, CompileError},
    memory::{Operand, OperandMut},
    raw::ActivationParams,
};
use fuseplan_api::{Device, Memory, Stream};

use crate::case::{Case, OpSpec, OperandSpec, Stage};
#[cfg(unix)]
use crate::guard_pages::{Edge, GuardPages};
use crate::image::{Alignment, Image};
use crate::oracle::{EXP_AVG_FACTOR, Operands};

/// fuseplan on one device.
#[derive(Debug)]
pub struct Library {
    handle: Handle,
    /// For memory; the same device as the handle's.
    device: Arc<dyn Device>,
    solvers: Vec<&'static str>,
    around: Around,
    /// Where operands lie instead of in the device's memory.
    #[cfg(unix)]
    pages: Option<GuardPages>,
}

/// Calls a function, once: what a compile and an execution are called by.
pub type Around = fn(&mut dyn FnMut());

/// A plan made from a case, with the typed handles of its operators.
#[derive(Debug, Clone)]
pub struct Built {
    /// The plan.
    pub plan: FusionPlan,
    ids: Vec<Id>,
}

/// A typed operator handle of any kind.
#[derive(Debug, Clone, Copy)]
enum Id {
    Conv(OpId<ConvForward>),
    Bias(OpId<BiasForward>),
    PRelu(OpId<PReluForward>),
    BatchNorm(OpId<BatchNormInference>),
    Activation(OpId<ActivationForward>),
    BatchNormForward(OpId<BatchNormForward>),
    BatchNormBackward(OpId<BatchNormBackward>),
    ActivationBackward(OpId<ActivationBackward>),
}

/// Why a case was not computed.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// Where.
    pub stage: Stage,
    /// The index of the operator.
    pub at: usize,
    /// The name of the error's or reason's variant.
    pub reason: String,
    /// The error in words.
    pub sentence: String,
    /// The nearest thing that would have been accepted.
    pub accepts: String,
    /// The plan as far as it came, of a rejected append.
    pub rest: Option<Box<Built>>,
}

/// What an execution left behind.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The output, then what the operators wrote besides, with their types.
    pub results: Vec<(DataType, Vec<f64>)>,
    /// The same with weights that may change, where another kernel computes these.
    pub changing: Option<Vec<(DataType, Vec<f64>)>>,
    /// What ran.
    pub info: ExecutableInfo,
    /// Writes where there was nothing to write, and results that were not the same a second time.
    pub faults: Vec<String>,
}

impl Refusal {
    fn new(stage: Stage, at: usize, error: &(impl std::fmt::Debug + std::fmt::Display)) -> Self {
        Refusal {
            stage,
            at,
            reason: variant(error),
            sentence: error.to_string(),
            accepts: String::new(),
            rest: None,
        }
    }
}

/// The name of an enumeration's variant.
pub fn variant(error: &impl std::fmt::Debug) -> String {
    format!("{error:?}").chars().take_while(|c| c.is_alphanumeric()).collect()
}

impl Library {
    /// The library on a backend's first device.
    ///
    /// # Errors
    /// Why there is none.
    pub fn open(backend: &str) -> Result<Self, String> {
        let found = fuseplan::device::discover(backend).map_err(|error| error.to_string())?;
        if found.devices.is_empty() {
            return Err(found.notes.join("; "));
        }
        Self::on(Handle::open(backend, 0).map_err(|error| error.to_string())?)
    }

    /// The library on a handle's device.
    ///
    /// # Errors
    /// The device cannot be opened a second time, for its memory.
    pub fn on(handle: Handle) -> Result<Self, String> {
        let info = handle.device_info();
        let backend = fuseplan::device::backends().iter().find(|backend| backend.name() == info.backend);
        let backend = backend.ok_or("the handle's backend is not of this build")?;
        let device = backend.open(info.ordinal).map_err(|error| error.to_string())?;
        let solvers = backend.solvers().iter().map(|solver| solver.id()).collect();
        Ok(Library {
            handle,
            device,
            solvers,
            around: |call| call(),
            #[cfg(unix)]
            pages: None,
        })
    }

    /// The same with operands in pages between such that fault; those that are only read cannot be written. The
    /// device is a CPU, and executions are of [`Alignment::Bare`].
    #[cfg(unix)]
    #[must_use]
    pub fn on_guard_pages(self, edge: Edge) -> Self {
        Library { pages: Some(GuardPages(edge)), ..self }
    }

    /// Reads the byte at a distance of less than a page from the start of an allocation of so many bytes, on guard pages.
    ///
    /// # Panics
    /// There is no memory.
    #[cfg(unix)]
    pub fn touch(&self, bytes: usize, distance: isize) -> u8 {
        let start = self.memory().allocate(bytes).expect("some bytes").cast::<u8>();
        // SAFETY: the byte lies in the allocation's pages, or in one beside them, where the process ends.
        unsafe { start.wrapping_offset(distance).read_volatile() }
    }

    fn memory(&self) -> &dyn Memory {
        #[cfg(unix)]
        if let Some(pages) = &self.pages {
            return pages;
        }
        self.device.memory()
    }

    /// Lets nobody write to the buffer, where that can be.
    fn seal(&self, buffer: &Buffer<'_>) {
        #[cfg(unix)]
        if let Some(pages) = &self.pages {
            pages.seal(buffer.base, buffer.image.bytes().len());
        }
        #[cfg(not(unix))]
        let _ = buffer;
    }

    /// The same, compiling and executing within `around`, in a floating-point environment of its own for example.
    #[must_use]
    pub fn within(self, around: Around) -> Self {
        Library { around, ..self }
    }

    /// Every solver of the backend, in its order.
    pub fn solvers(&self) -> &[&'static str] {
        &self.solvers
    }

    /// Whether the backend has solvers for channels in blocks, and for outputs in another order than the input's.
    pub fn has_any_layout(&self) -> bool {
        !["cuda", "rocm"].contains(&self.handle.device_info().backend)
    }

    /// The handle.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The plan of a case.
    ///
    /// # Errors
    /// The refusal.
    pub fn build(&self, case: &Case) -> Result<Built, Refusal> {
        let input = case.layout.describe(case.data_type, &case.input);
        let input = input.map_err(|error| Refusal::new(Stage::Descriptor, 0, &error))?;
        let plan = if case.for_device {
            FusionPlan::for_device(&self.handle, input)
        } else {
            FusionPlan::new(input)
        };
        let plan = plan.map_err(|error| Refusal::new(Stage::Plan, 0, &error))?;
        let mut built = Built { plan, ids: Vec::new() };
        for (at, op) in case.ops.iter().enumerate() {
            match append(&mut built.plan, case, op, at) {
                Ok(id) => built.ids.push(id),
                Err(refusal) => return Err(Refusal { rest: Some(built.into()), ..refusal }),
            }
        }
        Ok(built)
    }

    /// Compiles a case's plan for the library's device, for one solver if it is named.
    ///
    /// # Errors
    /// The refusal.
    pub fn compile(&self, built: &Built, solver: Option<&str>) -> Result<CompiledPlan, Refusal> {
        let options = CompileOptions::default();
        let options = solver.map_or(options.clone(), |id| options.with_solver(id));
        let last = built.ids.len().saturating_sub(1);
        let mut compiled = Err(CompileError::Empty);
        (self.around)(&mut || compiled = built.plan.compile_with(&self.handle, &options));
        compiled.map_err(|error| Refusal::new(Stage::Compile, last, &error))
    }

    /// Runs a compiled case twice, the second time with weights that are promised not to change; where another kernel computes
    /// those that may, once more.
    ///
    /// # Errors
    /// The failure in words; no case expects one.
    pub fn execute(
        &self,
        case: &Case,
        built: &Built,
        compiled: &CompiledPlan,
        operands: &Operands,
        alignment: Alignment,
    ) -> Result<Outcome, String> {
        let first = self.execute_once(case, built, compiled, operands, alignment, false)?;
        let second = self.execute_once(case, built, compiled, operands, alignment, true)?;
        let bits = |outcome: &Outcome| -> Vec<u64> {
            outcome.results.iter().flat_map(|(_, values)| values.iter().map(|v| v.to_bits())).collect()
        };
        let mut outcome = second;
        let same = if outcome.info.detail.contains("; for filters that are not constant") {
            let third = self.execute_once(case, built, compiled, operands, alignment, true)?;
            outcome.changing = Some(first.results);
            outcome.faults.extend(third.faults.iter().cloned());
            bits(&outcome) == bits(&third)
        } else {
            bits(&first) == bits(&outcome)
        };
        outcome.faults.extend(first.faults);
        if !same {
            outcome.faults.push("another run with constant weights gave other bits".into());
        }
        Ok(outcome)
    }

    fn execute_once(
        &self,
        case: &Case,
        built: &Built,
        compiled: &CompiledPlan,
        operands: &Operands,
        alignment: Alignment,
        constant: bool,
    ) -> Result<Outcome, String> {
        let words = |error: &dyn std::fmt::Display| error.to_string();
        let plan = &built.plan;
        let input = self.upload("the input", Image::of(*plan.input(), alignment, &operands.input))?;
        let separate = if case.in_place {
            None
        } else if case.beta == 0.0 {
            Some(self.upload("the output", Image::poisoned(*plan.output(), alignment))?)
        } else {
            Some(self.upload("the output", Image::of(*plan.output(), alignment, &operands.prior))?)
        };
        let mut read = Vec::new();
        let mut written = Vec::new();
        for (specs, values) in case.operands().iter().zip(&operands.ops) {
            let mut buffers = Vec::new();
            for (spec, values) in specs.iter().zip(values) {
                let descriptor = describe(spec, plan)?;
                buffers.push(
                    self.upload(&format!("{:?}", spec.role), Image::of(descriptor, alignment, values))?,
                );
            }
            read.push(buffers);
        }
        // Besides the output, training operators write parameters.
        if case.is_training() {
            let first = &case.operands()[0];
            let params = first.iter().rfind(|spec| spec.data_type == DataType::Float);
            let descriptor = describe(params.ok_or("a training operator has parameters")?, plan)?;
            for name in ["written first", "written second"] {
                written.push(self.upload(name, Image::poisoned(descriptor, alignment))?);
            }
        }

        let mut args = OperatorArgs::new();
        for (i, id) in built.ids.iter().enumerate() {
            set(&mut args, *id, case, i, &read[i], &written, constant);
        }
        let workspace =
            self.upload("workspace", Image::poisoned(bytes(compiled.workspace().max(1))?, alignment))?;
        let output = separate.as_ref().unwrap_or(&input);
        // Running statistics are read and written.
        let running = matches!(case.ops.first(), Some(OpSpec::BatchNormForward(norm)) if norm.running);
        let updated = |op: usize, operand: usize| running && op == 0 && operand >= 2;
        separate.iter().for_each(|_| self.seal(&input));
        for (op, buffers) in read.iter().enumerate() {
            let only_read = buffers.iter().enumerate().filter(|(operand, _)| !updated(op, *operand));
            only_read.for_each(|(_, buffer)| self.seal(buffer));
        }
        let mut executed = Ok(());
        (self.around)(&mut || {
            // SAFETY: every pointer is to memory of the device that an image of its descriptor was copied into,
            // which lives until the stream has been waited for below.
            let (x, y, scratch) = unsafe {
                (
                    Operand::from_raw(input.pointer(), None),
                    OperandMut::from_raw(output.pointer(), None),
                    OperandMut::from_raw(workspace.pointer(), Some(compiled.workspace())),
                )
            };
            let (x, y) = (Tensor::new(plan.input(), x), TensorMut::new(plan.output(), y));
            executed = compiled.execute_with_workspace(&self.handle, x, y, &args, scratch);
        });
        executed.map_err(|error| words(&error))?;
        self.handle.synchronize().map_err(|error| words(&error))?;

        let mut faults = Vec::new();
        let updated = if running { read[0].split_off(2) } else { Vec::new() };
        let constant = separate.iter().map(|_| &input).chain(read.iter().flatten());
        for buffer in constant {
            if buffer.download()? != buffer.image {
                faults.push(format!("{} was written to", buffer.name));
            }
        }
        let mut results = Vec::new();
        for buffer in [output].into_iter().chain(&written).chain(&updated) {
            let image = buffer.download()?;
            if let Some(at) = image.damage() {
                faults.push(format!("{}: byte {at}, which is no element's, was written", buffer.name));
            }
            results.push((image.descriptor().data_type(), image.values()));
        }
        if let Some(at) = workspace.download()?.damage() {
            faults.push(format!("byte {at} behind the workspace was written"));
        }
        Ok(Outcome { results, changing: None, info: compiled.info().clone(), faults })
    }

    fn upload(&self, name: &str, image: Image) -> Result<Buffer<'_>, String> {
        let memory = self.memory();
        let bytes = image.bytes().len();
        let base = memory.allocate(bytes).map_err(|error| error.to_string())?;
        let stream = Stream::borrowed(self.handle.stream());
        let buffer = Buffer { memory, stream, base, name: name.into(), image };
        // SAFETY: `base` has room for `bytes`.
        unsafe { memory.copy_in(base, buffer.image.bytes(), &buffer.stream) }
            .map_err(|error| error.to_string())?;
        Ok(buffer)
    }
}

/// An image in the memory of a device.
#[derive(Debug)]
struct Buffer<'a> {
    memory: &'a dyn Memory,
    stream: Stream,
    base: *mut c_void,
    name: String,
    /// What was copied there.
    image: Image,
}

impl Buffer<'_> {
    /// The first element.
    fn pointer(&self) -> *mut c_void {
        self.base.wrapping_byte_add(self.image.start())
    }

    fn download(&self) -> Result<Image, String> {
        let mut image = self.image.clone();
        // SAFETY: the image was copied there, so all of it is initialised.
        unsafe { self.memory.copy_out(image.bytes_mut(), self.base, &self.stream) }
            .map_err(|error| error.to_string())?;
        Ok(image)
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated with this size by `upload`, given back once; the stream has been waited for.
        unsafe { self.memory.free(self.base, self.image.bytes().len()) }
    }
}

/// A run of bytes.
fn bytes(count: usize) -> Result<TensorDescriptor, String> {
    TensorDescriptor::packed(DataType::Int8, &[count]).map_err(|error| error.to_string())
}

fn describe(spec: &OperandSpec, plan: &FusionPlan) -> Result<TensorDescriptor, String> {
    let Some(layout) = &spec.layout else { return Ok(*plan.output()) };
    layout.describe(spec.data_type, &spec.lens).map_err(|error| error.to_string())
}

/// Appends an operator, and holds the plan to being unchanged when that is rejected.
fn append(plan: &mut FusionPlan, case: &Case, op: &OpSpec, at: usize) -> Result<Id, Refusal> {
    let before = (plan.problem(), *plan.output());
    let result = try_append(plan, case, op, at);
    if result.is_err() {
        assert_eq!((plan.problem(), *plan.output()), before, "a rejected append changed the plan");
    }
    result
}

fn try_append(plan: &mut FusionPlan, case: &Case, op: &OpSpec, at: usize) -> Result<Id, Refusal> {
    let describing = |error| Refusal::new(Stage::Descriptor, at, &error);
    let rejected = |error: AppendError| Refusal {
        stage: Stage::Append,
        at: error.index,
        reason: variant(&error.reason),
        sentence: error.to_string(),
        accepts: error.accepted,
        rest: None,
    };
    let id = match op {
        OpSpec::Conv(spec) => {
            let dims = spec.filter.len();
            let list = |value: &dyn Fn(usize) -> usize| (0..dims).map(value).collect::<Vec<_>>();
            let conv = ConvolutionDescriptor::of_dims(dims)
                .and_then(|conv| {
                    conv.with_asymmetric_pads(list(&|d| spec.pad(d)), list(&|d| spec.pad_after(d)))
                })
                .and_then(|conv| conv.with_strides(list(&|d| spec.stride(d))))
                .and_then(|conv| conv.with_dilations(list(&|d| spec.dilation(d))))
                .and_then(|conv| conv.with_groups(spec.groups))
                .map_err(describing)?;
            let mode = if spec.transpose { ConvolutionMode::Transpose } else { ConvolutionMode::Convolution };
            let layout = spec.weights.clone().unwrap_or_else(|| case.layout.filters());
            let lens = spec.weight_lens(case.input[1]);
            let data_type = spec.data_type.unwrap_or(case.data_type);
            let weights = if lens.len() == case.input.len() {
                layout.describe(data_type, &lens)
            } else {
                TensorDescriptor::packed(data_type, &lens)
            };
            let mut conv = ConvForward::new(conv.with_mode(mode), weights.map_err(describing)?);
            if let Some(layout) = spec.output.as_deref() {
                conv = match layout.library() {
                    Some(layout) => conv.with_output_layout(layout),
                    None => {
                        let output =
                            layout.describe(case.data_type, &case.output_lens()).map_err(describing)?;
                        conv.with_output_strides(output.strides().unwrap_or_default())
                    }
                };
            }
            Id::Conv(plan.append(conv).map_err(rejected)?)
        }
        OpSpec::Bias(spec) => {
            let bias = match (&spec.lens, spec.data_type) {
                (None, None) => BiasForward::new(),
                (lens, data_type) => {
                    let lens = lens.clone().unwrap_or_else(|| case.channel_lens());
                    BiasForward::with_descriptor(
                        TensorDescriptor::packed(data_type.unwrap_or(case.data_type), &lens)
                            .map_err(describing)?,
                    )
                }
            };
            Id::Bias(plan.append(bias).map_err(rejected)?)
        }
        OpSpec::Residual(spec) => {
            let bias = match (&spec.layout, spec.data_type) {
                (None, None) => BiasForward::residual(),
                (layout, data_type) => {
                    let layout = layout.clone().unwrap_or_else(|| case.output_layout());
                    let data_type = data_type.unwrap_or(case.data_type);
                    BiasForward::with_descriptor(
                        layout.describe(data_type, plan.output().lens()).map_err(describing)?,
                    )
                }
            };
            Id::Bias(plan.append(bias).map_err(rejected)?)
        }
        OpSpec::PRelu(spec) => {
            let prelu = match (&spec.lens, spec.data_type) {
                (None, None) => PReluForward::new(),
                (lens, data_type) => {
                    let lens = lens.clone().unwrap_or_else(|| case.channel_lens());
                    PReluForward::with_descriptor(
                        TensorDescriptor::packed(data_type.unwrap_or(case.data_type), &lens)
                            .map_err(describing)?,
                    )
                }
            };
            Id::PRelu(plan.append(prelu).map_err(rejected)?)
        }
        OpSpec::BatchNorm(spec) => {
            let norm = match (&spec.params, spec.data_type) {
                (None, None) => BatchNormInference::new(spec.mode),
                (lens, data_type) => {
                    let derived = spec.mode.derive(plan.output()).map_err(describing)?;
                    let lens = lens.as_deref().unwrap_or(derived.lens());
                    let data_type = data_type.unwrap_or(DataType::Float);
                    BatchNormInference::with_descriptor(
                        spec.mode,
                        TensorDescriptor::packed(data_type, lens).map_err(describing)?,
                    )
                }
            };
            Id::BatchNorm(plan.append(norm).map_err(rejected)?)
        }
        OpSpec::Activation(spec) => {
            Id::Activation(plan.append(ActivationForward::new(spec.mode)).map_err(rejected)?)
        }
        OpSpec::BatchNormForward(spec) => Id::BatchNormForward(
            plan.append(BatchNormForward::new(spec.mode, spec.running)).map_err(rejected)?,
        ),
        OpSpec::BatchNormBackward(spec) => {
            Id::BatchNormBackward(plan.append(BatchNormBackward::new(spec.mode)).map_err(rejected)?)
        }
        OpSpec::ActivationBackward(spec) => {
            Id::ActivationBackward(plan.append(ActivationBackward::new(spec.mode)).map_err(rejected)?)
        }
    };
    Ok(id)
}

fn set<'a>(
    args: &mut OperatorArgs<'a>,
    id: Id,
    case: &Case,
    i: usize,
    read: &'a [Buffer<'_>],
    written: &'a [Buffer<'_>],
    constant: bool,
) {
    let alpha = case.alpha[i];
    let beta = if i + 1 == case.ops.len() { case.beta } else { 0.0 };
    let epsilon = case.epsilon;
    let operand = |at: usize| {
        let buffer: &Buffer<'_> = &read[at];
        let size = buffer.image.descriptor().bytes();
        // SAFETY: the buffer holds the operand and outlives the arguments; nobody writes to it.
        let operand = unsafe { Operand::from_raw(buffer.pointer(), Some(size)) };
        // SAFETY: nobody writes to the buffer while the arguments live.
        if constant { unsafe { operand.constant() } } else { operand }
    };
    let target = |buffer: Option<&'a Buffer<'_>>| match buffer {
        // SAFETY: the buffer has room for the operand and outlives the arguments; nobody else uses it.
        Some(buffer) => unsafe {
            OperandMut::from_raw(buffer.pointer(), Some(buffer.image.descriptor().bytes()))
        },
        None => OperandMut::none(),
    };
    let activation = || match &case.ops[i] {
        OpSpec::Activation(spec) | OpSpec::ActivationBackward(spec) => {
            let [alpha, beta, gamma] = spec.params;
            spec.mode.with(&ActivationParams::new(alpha, beta, gamma))
        }
        other => unreachable!("{other:?} is no activation"),
    };
    match id {
        Id::Conv(id) => args.set(id, ConvForwardArgs::new(operand(0)).alpha(alpha).beta(beta)),
        Id::Bias(id) => args.set(id, BiasForwardArgs::new(operand(0)).alpha(alpha).beta(beta)),
        Id::PRelu(id) => args.set(id, PReluForwardArgs::new(operand(0)).alpha(alpha).beta(beta)),
        Id::BatchNorm(id) => {
            let new = BatchNormInferenceArgs::new()
                .scale(operand(0))
                .bias(operand(1))
                .mean(operand(2))
                .variance(operand(3))
                .epsilon(epsilon);
            args.set(id, new.alpha(alpha).beta(beta))
        }
        Id::Activation(id) => args.set(id, ActivationForwardArgs::new(activation()).alpha(alpha).beta(beta)),
        Id::BatchNormForward(id) => {
            let new = BatchNormForwardArgs::new()
                .scale(operand(0))
                .bias(operand(1))
                .saved_mean(target(written.first()))
                .saved_inv_variance(target(written.get(1)))
                .running_mean(target(read.get(2)))
                .running_variance(target(read.get(3)))
                .exp_avg_factor(EXP_AVG_FACTOR)
                .epsilon(epsilon);
            args.set(id, new.alpha(alpha).beta(beta))
        }
        Id::BatchNormBackward(id) => {
            let [x, scale, bias, mean, inverse] = [0, 1, 2, 3, 4].map(operand);
            let (first, second) = (target(written.first()), target(written.get(1)));
            let new = BatchNormBackwardArgs::new()
                .x(x)
                .scale(scale)
                .bias(bias)
                .saved_mean(mean)
                .saved_inv_variance(inverse)
                .scale_diff(first)
                .bias_diff(second);
            args.set(id, new.alpha(alpha).beta(beta))
        }
        Id::ActivationBackward(id) => {
            args.set(id, ActivationBackwardArgs::new(activation(), operand(0)).alpha(alpha).beta(beta))
        }
    };
}

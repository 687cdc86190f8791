//! Execution: the last section of the header's plans.

use std::ffi::c_void;

use fuseplan::{
    ActivationForward, BiasForward, CompileOptions, CompiledPlan, ConvForward, FusionPlan, Handle, Tensor,
    TensorDescriptor, TensorMut,
    memory::{Operand, OperandMut},
    raw::{self, OpArgs, operands},
    traits::Operator,
};

use crate::abi::{In, export, miopenConvFwdAlgorithm_t};
use crate::activation::miopenActivationDescriptor_t;
use crate::args::{Scales, miopenOperatorArgs_t};
use crate::convolution::miopenConvolutionDescriptor_t;
use crate::handle::{HandleObject, Pinned, miopenHandle_t};
use crate::operators::bias;
use crate::plan::{PlanState, miopenFusionPlanDescriptor_t};
use crate::primitives::scratch::Scratch;
use crate::status::{Failure, bad_parm};
use crate::tensor::{in_full, miopenTensorDescriptor_t};

/// Memory with its descriptor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) descriptor: TensorDescriptor,
    pub(crate) address: *mut c_void,
}

impl Memory {
    /// What C hands in as descriptor and pointer.
    pub(crate) fn new(descriptor: miopenTensorDescriptor_t, address: *const c_void) -> Result<Self, Failure> {
        Ok(Memory { descriptor: descriptor.descriptor()?, address: address.cast_mut() })
    }

    /// This memory, refused when the pointer is NULL.
    pub(crate) fn present(self, name: &str) -> Result<Self, Failure> {
        if self.address.is_null() { Err(bad_parm(format!("`{name}` is NULL"))) } else { Ok(self) }
    }

    /// A tensor that a plan reads.
    ///
    /// # Safety
    /// This is memory of the handle's device, as large as the descriptor says, until the handle's stream has passed the
    /// executions with it.
    unsafe fn read(&self) -> Tensor<'_> {
        // SAFETY: as promised by the caller.
        Tensor::new(&self.descriptor, unsafe { Operand::from_raw(self.address, None) })
    }

    /// A tensor that a plan writes.
    ///
    /// # Safety
    /// As [`read`](Self::read), and nobody else uses the memory.
    unsafe fn written(&self) -> TensorMut<'_> {
        // SAFETY: as promised by the caller.
        TensorMut::new(&self.descriptor, unsafe { OperandMut::from_raw(self.address, None) })
    }
}

/// The caller's workspace, or `None`: the handle's allocator is asked.
pub(crate) type Workspace = Option<(*mut c_void, usize)>;

/// Runs a compiled plan on a handle.
///
/// # Safety
/// `ops` have the pointers and scalars of the plan's operators. Memory, arguments and workspace are memory of the
/// handle's device, as large as they say, until the handle's stream has passed the execution.
unsafe fn launch(
    handle: &Pinned<'_>,
    compiled: &CompiledPlan,
    ops: &[OpArgs],
    x: Memory,
    y: Memory,
    workspace: Workspace,
) -> Result<(), Failure> {
    let run = |handle: &Handle, workspace: *mut c_void, bytes: usize| {
        // SAFETY: as promised by the caller.
        let (x, y, args) = unsafe { (x.read(), y.written(), raw::Args::new(ops)) };
        // SAFETY: as promised by the caller of the workspace as well.
        let workspace = unsafe { OperandMut::from_raw(workspace, Some(bytes)) };
        Ok(compiled.execute_with_workspace(handle, x, y, args, workspace)?)
    };
    match workspace {
        Some((pointer, bytes)) => handle.run(|handle| run(handle, pointer, bytes)),
        None => {
            let bytes = compiled.workspace();
            handle.run_with_workspace(bytes, |handle, pointer| run(handle, pointer, bytes))
        }
    }
}

/// A plan of the library's own with its arguments: how single operators and combined calls are run.
pub(crate) struct Chain {
    plan: FusionPlan,
    ops: Vec<OpArgs>,
    /// How the solver is chosen; if not given, by the handle's tuning policy.
    options: Option<CompileOptions>,
}

impl Chain {
    pub(crate) fn new(input: TensorDescriptor) -> Result<Self, Failure> {
        let plan = FusionPlan::new(input)?;
        Ok(Chain { plan, ops: Vec::new(), options: None })
    }

    /// Appends an operator and its arguments.
    pub(crate) fn append<O: Operator>(
        &mut self,
        operator: O,
        operands: O::Operands,
        scales: Scales,
    ) -> Result<&mut Self, Failure> {
        self.plan.append(operator)?;
        self.ops.push(scales.of(operands.into()));
        Ok(self)
    }

    /// This chain with a choice of its own of how the solver is chosen.
    pub(crate) fn with_options(self, options: CompileOptions) -> Self {
        Chain { options: Some(options), ..self }
    }

    /// What the operators so far make of the input.
    pub(crate) fn output(&self) -> &TensorDescriptor {
        self.plan.output()
    }

    /// The plan for the handle's device.
    pub(crate) fn compile(&self, on: &Pinned<'_>) -> Result<CompiledPlan, Failure> {
        let options = self.options.as_ref().unwrap_or(on.options());
        Ok(self.plan.compile_with(on.handle(), options)?)
    }

    /// Compiles, or finds what was compiled, and runs.
    ///
    /// # Safety
    /// As [`launch`].
    pub(crate) unsafe fn run(
        &self,
        handle: &HandleObject,
        x: Memory,
        y: Memory,
        workspace: Workspace,
    ) -> Result<(), Failure> {
        // SAFETY: as promised by the caller.
        unsafe { self.run_on(&handle.pinned(), x, y, workspace) }
    }

    /// Compiles, or finds what was compiled, and runs, as a part of a call.
    ///
    /// # Safety
    /// As [`launch`].
    pub(crate) unsafe fn run_on(
        &self,
        handle: &Pinned<'_>,
        x: Memory,
        y: Memory,
        workspace: Workspace,
    ) -> Result<(), Failure> {
        let compiled = self.compile(handle)?;
        // SAFETY: as promised by the caller; each operator was appended with operands of its own kind.
        unsafe { launch(handle, &compiled, &self.ops, x, y, workspace) }
    }

    /// What [`run_on`](Self::run_on) would refuse of these operands, without running anything.
    pub(crate) fn check_on(&self, handle: &Pinned<'_>, x: Memory, y: Memory) -> Result<(), Failure> {
        let compiled = self.compile(handle)?;
        // SAFETY: nothing is executed with them; each operator was appended with operands of its own kind.
        let (x, y, args) = unsafe { (x.read(), y.written(), raw::Args::new(&self.ops)) };
        Ok(compiled.check(handle.handle(), x, y, args)?)
    }
}

/// The plan's state is as this execution needs it: in MIOpen's order output, input, compiled.
fn compiled_for<'a>(
    state: &'a PlanState,
    handle: &HandleObject,
    x: &Memory,
    y: &Memory,
) -> Result<&'a CompiledPlan, Failure> {
    let differ = |what: &str, found: &TensorDescriptor, expected: &TensorDescriptor| {
        Err(bad_parm(format!(
            "the {what} descriptor is {}, the plan's is {}",
            in_full(found),
            in_full(expected)
        )))
    };
    if y.descriptor != *state.plan.output() {
        return differ("output", &y.descriptor, state.plan.output());
    }
    if x.descriptor != *state.plan.input() {
        return differ("input", &x.descriptor, state.plan.input());
    }
    let compiled = state.compiled_for(&handle.handle());
    compiled.ok_or_else(|| bad_parm("the fusion plan was not compiled successfully for this handle"))
}

#[allow(clippy::too_many_arguments, reason = "MIOpen's own argument lists")]
fn execute(
    handle: miopenHandle_t,
    plan: miopenFusionPlanDescriptor_t,
    input_desc: miopenTensorDescriptor_t,
    input: *const c_void,
    output_desc: miopenTensorDescriptor_t,
    output: *mut c_void,
    args: miopenOperatorArgs_t,
    workspace: Workspace,
) -> Result<(), Failure> {
    let handle = handle.get()?;
    let plan = plan.get()?;
    plan.state().require_complete()?;
    let y = Memory::new(output_desc, output)?;
    let x = Memory::new(input_desc, input)?;
    let args = args.get()?;
    let compiled = compiled_for(&plan.state(), &handle, &x, &y)?.clone();
    let settings = args.settings();
    let ops = settings.of(compiled.problem(), handle.honors_scales())?;
    // SAFETY: the header says that the pointers that were set, and input, output and workspace, are memory of the
    // handle's device; what was set is of the operators' kinds.
    unsafe { launch(&handle.pinned(), &compiled, ops, x.present("input")?, y.present("output")?, workspace) }
}

/// The parts of a convolution-bias-activation call.
struct ConvBiasActivation {
    x: Memory,
    weights: Memory,
    y: Memory,
    residual: Option<Memory>,
    bias: Memory,
    /// Scales of the convolution and of the residual.
    alphas: [f32; 2],
}

impl ConvBiasActivation {
    /// What the convolution is scaled by before the residual is added, where both are scaled by alpha2 behind the
    /// addition: exactly alpha1 for the usual alpha2 of 1, else the quotient, in which much would be lost where one of
    /// them is far larger. `None`: the residual has to be scaled by itself.
    fn quotient(&self) -> Option<f32> {
        const FAR: f32 = 1048576.0;
        let [alpha1, alpha2] = self.alphas;
        let quotient = alpha1 / alpha2;
        let is_near = alpha1 == 0.0 || (1.0 / FAR..=FAR).contains(&quotient.abs());
        (alpha2 == 1.0 || is_near && alpha2.is_normal()).then_some(quotient)
    }

    /// Puts the residual into memory of its own where it is not to be read, or not as it is, once the output is
    /// written: where it is the output itself, and where it has to be scaled by itself.
    fn copy_residual(&mut self, on: &Pinned<'_>) -> Result<Option<Scratch>, Failure> {
        let (quotient, y, [_, alpha2]) = (self.quotient(), self.y, self.alphas);
        let Some(z) = self.residual.as_mut().filter(|_| alpha2 != 0.0) else { return Ok(None) };
        let is_output = z.address == y.address && z.descriptor == y.descriptor;
        if quotient.is_some() && !is_output {
            return Ok(None);
        }
        let alpha = if quotient.is_some() { 1.0 } else { std::mem::replace(&mut self.alphas[1], 1.0) };
        // SAFETY: the header says that `z` is memory of its descriptor.
        let copy = unsafe { Scratch::scaled(on, z, alpha) }?;
        z.address = copy.address();
        Ok(Some(copy))
    }

    /// `activation(alpha1 · conv(x) + alpha2 · z + bias)` as operators.
    fn chain(
        &self,
        conv: miopenConvolutionDescriptor_t,
        activation: miopenActivationDescriptor_t,
    ) -> Result<Chain, Failure> {
        let (mode, params) = activation.activation()?;
        let [alpha1, alpha2] = self.alphas;
        let scale = |alpha| Scales { alpha, beta: 0.0 };
        let mut chain = Chain::new(self.x.descriptor)?;
        let (first, residual) = match self.residual {
            Some(residual) if alpha2 != 0.0 => (self.quotient().unwrap_or(alpha1), Some(residual)),
            _ => (alpha1, None),
        };
        let operator = ConvForward::new(conv.descriptor()?, self.weights.descriptor);
        chain.append(operator, operands::ConvForward { weights: self.weights.address }, scale(first))?;
        if let Some(z) = residual {
            let operator = BiasForward::with_descriptor(z.descriptor);
            chain.append(operator, operands::BiasForward { bias: z.address }, scale(alpha2))?;
        }
        let operator = bias(self.bias.descriptor, chain.output())?;
        chain.append(operator, operands::BiasForward { bias: self.bias.address }, Scales::NONE)?;
        chain.append(ActivationForward::new(mode), params.into(), Scales::NONE)?;
        Ok(chain)
    }
}

export! {
    fn miopenExecuteFusionPlan(
        handle: miopenHandle_t,
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        inputDesc: miopenTensorDescriptor_t,
        input: *const c_void,
        outputDesc: miopenTensorDescriptor_t,
        output: *mut c_void,
        args: miopenOperatorArgs_t,
    ) {
        execute(handle, fusePlanDesc, inputDesc, input, outputDesc, output, args, None)?;
    }

    fn miopenExecuteFusionPlan_v2(
        handle: miopenHandle_t,
        fusePlanDesc: miopenFusionPlanDescriptor_t,
        inputDesc: miopenTensorDescriptor_t,
        input: *const c_void,
        outputDesc: miopenTensorDescriptor_t,
        output: *mut c_void,
        args: miopenOperatorArgs_t,
        workspace: *mut c_void,
        workspaceSize: usize,
    ) {
        let workspace = Some((workspace, workspaceSize));
        execute(handle, fusePlanDesc, inputDesc, input, outputDesc, output, args, workspace)?;
    }

    fn miopenConvolutionBiasActivationForward(
        handle: miopenHandle_t,
        alpha1: In<c_void>,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        wDesc: miopenTensorDescriptor_t,
        w: *const c_void,
        convDesc: miopenConvolutionDescriptor_t,
        algo: miopenConvFwdAlgorithm_t,
        workspace: *mut c_void,
        workspaceSizeInBytes: usize,
        alpha2: In<c_void>,
        zDesc: miopenTensorDescriptor_t,
        z: *const c_void,
        biasDesc: miopenTensorDescriptor_t,
        bias: *const c_void,
        activationDesc: miopenActivationDescriptor_t,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
    ) {
        let _ = algo;
        let handle = handle.get()?;
        let alpha = |pointer: In<c_void>| Scales::read(pointer, In::NULL).alpha;
        let residual = if z.is_null() { None } else { Some(Memory::new(zDesc, z)?) };
        let mut call = ConvBiasActivation {
            x: Memory::new(xDesc, x)?.present("x")?,
            weights: Memory::new(wDesc, w)?.present("w")?,
            y: Memory::new(yDesc, y)?.present("y")?,
            residual,
            bias: Memory::new(biasDesc, bias)?.present("bias")?,
            alphas: [alpha(alpha1), alpha(alpha2)],
        };
        let on = handle.pinned();
        let _copy = call.copy_residual(&on)?;
        let chain = call.chain(convDesc, activationDesc)?;
        let workspace = (!workspace.is_null()).then_some((workspace, workspaceSizeInBytes));
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { chain.run_on(&on, call.x, call.y, workspace) }?;
    }
}

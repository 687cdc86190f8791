//! The check of everything that is given at run time, in one place for typed operands and bare pointers.
#![allow(unsafe_code, reason = "the one place above the backends that hands pointers to a kernel")]

mod error;
mod staged;

use std::ffi::c_void;
use std::sync::Arc;

use fuseplan_api::operands::DescribedOperand;
use fuseplan_api::{MemoryKind, Op, OpArgs, OpKind, RunArgs, RunError, TensorDescriptor, call, fork};

pub use error::ExecuteError;

use crate::args::{OperandMut, OperatorArgs, Place, Resident, Slot, Span};
use crate::buffer::Block;
use crate::handle::Handle;
use crate::observe;
use crate::plan::CompiledPlan;
use crate::raw::Args;
use crate::tensor::{Tensor, TensorMut};

/// What a workspace is aligned to: what [`allocate`](fuseplan_api::Memory::allocate) promises of all memory.
const WORKSPACE_ALIGNMENT: usize = 256;

/// Memory of one execution, for the check of overlaps.
#[derive(Clone, Copy)]
struct Region<'d> {
    start: usize,
    bytes: usize,
    /// What lies there; nothing of a workspace, of which every byte is used.
    tensor: Option<&'d TensorDescriptor>,
    written: bool,
}

impl<'d> Region<'d> {
    fn new(span: &Span<'_>, descriptor: &'d TensorDescriptor) -> Self {
        Region {
            start: span.address.addr(),
            bytes: descriptor.bytes(),
            tensor: Some(descriptor),
            written: span.written,
        }
    }

    /// Whether some memory may be in both. What lies in the gaps of the other, as other channels of one tensor do, is not.
    fn overlaps(&self, other: &Region<'_>) -> bool {
        let meet = self.start < other.start.saturating_add(other.bytes)
            && other.start < self.start.saturating_add(self.bytes);
        let interleave = || match (self.tensor, other.tensor) {
            (Some(own), Some(of)) => own.interleaves(of, other.start.wrapping_sub(self.start).cast_signed()),
            _ => false,
        };
        meet && !interleave()
    }
}

/// The operators' arguments of one execution as they are checked.
#[derive(Clone, Copy)]
struct Given<'s, 'a> {
    /// What a kernel is given, one entry for each operator.
    ops: &'s [OpArgs],
    /// What is known of the memory there; `None` where only the caller knows.
    slots: Option<&'s [Option<Slot<'a>>]>,
}

impl<'s, 'a> Given<'s, 'a> {
    /// Of bare pointers those of the plan's operators.
    fn of(args: Args<'a>, plan: &CompiledPlan) -> Given<'a, 'a> {
        match args.typed {
            Some(typed) => Given { ops: args.ops, slots: Some(typed.slots()) },
            None => Given { ops: &args.ops[..args.ops.len().min(plan.problem().ops.len())], slots: None },
        }
    }

    /// The memory of an operand of an operator that has arguments, if it is not null.
    fn span(&self, index: usize, at: usize, operand: &DescribedOperand) -> Span<'a> {
        let known = self.slots.and_then(|slots| slots[index].as_ref()).map(|slot| slot.spans()[at]);
        let raw = || Span::raw(self.ops[index].pointers[at], operand.spec.access.is_written());
        known.unwrap_or_else(raw)
    }
}

impl CompiledPlan {
    /// Runs the plan on [`DeviceBuffer`](crate::DeviceBuffer)s, slices or raw operands.
    ///
    /// The operators' arguments are [`&OperatorArgs`](OperatorArgs), or [`raw::Args`](Args) where only the caller knows types.
    ///
    /// On a CPU the work is done when this returns. On a device with memory of its own it is launched into
    /// the handle's stream if all that the plan writes, and its input, lie in the device's memory: nothing
    /// is then allocated or waited for after the first execution with these arguments. Slices are a
    /// convenience there: an input or a result in host memory is copied in, computed, copied out and waited
    /// for, through memory that is allocated for the call. A plan with a workspace allocates and waits
    /// likewise, unless it is given one ([`execute_with_workspace`](Self::execute_with_workspace)). (Slices that operators
    /// read are copied once, see [`OperatorArgs`].)
    ///
    /// # Errors
    /// Descriptors that are not the plan's, a handle of another device, missing, extra or
    /// foreign arguments, an activation of another mode than the operator's, operands of the wrong type, too small or in
    /// another device's memory, no memory for copies, or a failed launch. Nothing is written unless everything fits.
    pub fn execute<'a>(
        &self,
        handle: &Handle,
        input: Tensor<'_>,
        output: TensorMut<'_>,
        args: impl Into<Args<'a>>,
    ) -> Result<(), ExecuteError> {
        let (x, y, args) = (input.operand.memory, output.operand.memory, args.into());
        self.observed(|| {
            let given = Given::of(args, self);
            self.check_all(handle, input.descriptor, &x, output.descriptor, &y, given)?;
            // SAFETY: the check has passed.
            unsafe { self.run(handle, &x, &y, args.typed, given.ops, None) }
        })
    }

    /// Runs the plan as [`execute`](Self::execute) does, in a workspace of the caller's: a plan that has one then neither
    /// allocates it nor waits for it.
    ///
    /// The workspace is memory of the handle's device of [`workspace`](Self::workspace) bytes, aligned to 256 as buffers
    /// are, of any data type. What it held is lost. A plan without a workspace does not look at it.
    ///
    /// # Errors
    /// As [`CompiledPlan::execute`]; a workspace that is too small, misaligned, in host memory where the device has its
    /// own, or that overlaps an operand.
    pub fn execute_with_workspace<'a>(
        &self,
        handle: &Handle,
        input: Tensor<'_>,
        output: TensorMut<'_>,
        args: impl Into<Args<'a>>,
        workspace: OperandMut<'_>,
    ) -> Result<(), ExecuteError> {
        let (x, y, args) = (input.operand.memory, output.operand.memory, args.into());
        let workspace = workspace.memory;
        self.observed(|| {
            let given = Given::of(args, self);
            self.check_all(handle, input.descriptor, &x, output.descriptor, &y, given)?;
            self.check_workspace(handle, &workspace, &x, &y, given)?;
            // SAFETY: both checks have passed.
            unsafe { self.run(handle, &x, &y, args.typed, given.ops, Some(workspace)) }
        })
    }

    /// Runs an element-wise plan on memory that it reads and writes.
    ///
    /// # Errors
    /// As [`CompiledPlan::execute`]; a plan that is not element-wise.
    pub fn execute_in_place<'a>(
        &self,
        handle: &Handle,
        tensor: TensorMut<'_>,
        args: impl Into<Args<'a>>,
    ) -> Result<(), ExecuteError> {
        if !self.problem().is_element_wise() {
            let first = self.problem().ops.first().map_or(OpKind::ConvForward, Op::kind);
            return Err(ExecuteError::InPlace { first });
        }
        let (y, args) = (tensor.operand.memory, args.into());
        let x = Span { written: false, ..y };
        self.observed(|| {
            let given = Given::of(args, self);
            self.check_all(handle, tensor.descriptor, &x, tensor.descriptor, &y, given)?;
            // SAFETY: the check has passed.
            unsafe { self.run(handle, &x, &y, args.typed, given.ops, None) }
        })
    }

    /// Runs the plan on bare pointers as [`execute`](Self::execute) does, without its checks: for who runs the same plans again
    /// and again on memory of its own, and has held it against their descriptors before.
    ///
    /// The operators' arguments are as [`raw::Args`](Args) has them.
    ///
    /// # Errors
    /// No memory for a workspace, a failed launch, or a fork that left the library unusable.
    ///
    /// # Safety
    /// [`check`](Self::check) would pass these operands, and `ops` keep the promise of [`raw::Args::new`](Args::new), which
    /// holds for `input`, which is read, and `output`, which is written, likewise.
    pub unsafe fn execute_unchecked(
        &self,
        handle: &Handle,
        input: *const c_void,
        output: *mut c_void,
        ops: &[OpArgs],
    ) -> Result<(), ExecuteError> {
        let (x, y) = (Span::raw(input, false), Span::raw(output, true));
        let given = Given::of(Args { ops, typed: None }, self);
        self.observed(|| {
            fork::usable()?;
            // SAFETY: as promised by the caller.
            unsafe { self.run(handle, &x, &y, None, given.ops, None) }
        })
    }

    /// What [`execute`](Self::execute) would refuse, without executing anything. No memory is looked at.
    ///
    /// # Errors
    /// Those of [`execute`](Self::execute) that are found before the launch.
    pub fn check<'a>(
        &self,
        handle: &Handle,
        input: Tensor<'_>,
        output: TensorMut<'_>,
        args: impl Into<Args<'a>>,
    ) -> Result<(), ExecuteError> {
        let (x, y, given) = (input.operand.memory, output.operand.memory, Given::of(args.into(), self));
        call(|| self.check_all(handle, input.descriptor, &x, output.descriptor, &y, given))
    }

    /// A call that executes the plan.
    fn observed(&self, execute: impl FnOnce() -> Result<(), ExecuteError>) -> Result<(), ExecuteError> {
        observe::execution(self, || call(execute))
    }

    /// A workspace, where the plan has one, is memory that its kernel can use and that nothing else of the execution lies
    /// in.
    fn check_workspace(
        &self,
        handle: &Handle,
        workspace: &Span<'_>,
        x: &Span<'_>,
        y: &Span<'_>,
        given: Given<'_, '_>,
    ) -> Result<(), ExecuteError> {
        let needed = self.workspace();
        if needed == 0 {
            return Ok(());
        }
        let name = || "the workspace".to_owned();
        let found = if workspace.address.is_null() { 0 } else { workspace.bytes.unwrap_or(needed) };
        if found < needed {
            return Err(ExecuteError::Workspace { found, needed });
        }
        if workspace.is_host() && handle.memory_kind() != MemoryKind::Host {
            let (found, expected) = ("the host".into(), handle.target().to_string());
            return Err(ExecuteError::OtherMemory { operand: name(), found, expected });
        }
        check_place(handle, name, workspace)?;
        if !workspace.address.addr().is_multiple_of(WORKSPACE_ALIGNMENT) {
            return Err(ExecuteError::MisalignedWorkspace { alignment: WORKSPACE_ALIGNMENT });
        }
        let region = Region { start: workspace.address.addr(), bytes: needed, tensor: None, written: true };
        let tensors = [("the input", x, self.input()), ("the output", y, self.output())];
        let mut tensors = tensors.into_iter().map(|(name, span, of)| (name, Region::new(span, of)));
        let tensor = tensors.find(|(_, memory)| region.overlaps(memory)).map(|(name, _)| name.to_owned());
        let operand = || {
            let clash = self.regions(given).find(|(_, memory)| region.overlaps(memory));
            clash.map(|((index, operand), _)| self.name_of(index, operand))
        };
        match tensor.or_else(operand) {
            Some(other) => Err(ExecuteError::Overlap { written: name(), other, element_wise: false }),
            None => Ok(()),
        }
    }

    /// Runs on operands, the operators' by `ops`, of which `typed` is what is known, if anything is; without a workspace one is
    /// allocated if need be.
    ///
    /// # Safety
    /// `check_all` passes the operands, and `check_workspace` the workspace, whether they were called or not.
    unsafe fn run(
        &self,
        handle: &Handle,
        x: &Span<'_>,
        y: &Span<'_>,
        typed: Option<&OperatorArgs<'_>>,
        ops: &[OpArgs],
        workspace: Option<Span<'_>>,
    ) -> Result<(), ExecuteError> {
        // Before anything is marked as used by the stream, until it is launched.
        let _turn = typed.and_then(OperatorArgs::turn);
        let needed = self.workspace();
        let allocated;
        let scratch = match workspace.filter(|_| needed > 0) {
            None if needed > 0 => {
                allocated = Block::new(handle, needed)?;
                OperandMut::new(allocated.address(), Some(needed), None, Place::Device(&allocated)).memory
            }
            given => given.unwrap_or(Span::raw(std::ptr::null(), true)),
        };
        let (input, output, workspace) = (x.address, y.address.cast_mut(), scratch.address.cast_mut());
        if handle.memory_kind() == MemoryKind::Host {
            let run = RunArgs { input, output, ops, workspace };
            // SAFETY: the caller says that every operand is present, typed, aligned, large enough and free of
            // overlaps. Slices and buffers live for the duration of the call, and a host device has
            // finished when it returns; what the arguments borrow mutably is this execution's by its turn;
            // raw operands were promised valid where they were made.
            return Ok(unsafe { self.launch(handle, &run) }?);
        }
        let resident = typed.map(|args| args.resident(handle)).transpose()?.flatten();
        if let Some(resident) = &resident {
            resident.read_on(handle)?;
        }
        let ops = resident.as_deref().map_or(ops, Resident::ops);
        let spans = || typed.into_iter().flat_map(OperatorArgs::spans);
        let written_to_host = spans().any(|span| span.is_host() && span.written);
        if x.is_host() || y.is_host() || written_to_host {
            return self.run_staged(handle, x, y, typed, ops, &scratch);
        }
        for span in [x, y, &scratch].into_iter().chain(spans()) {
            span.use_on(handle)?;
        }
        let run = RunArgs { input, output, ops, workspace };
        // SAFETY: the caller says that every operand is present, typed, aligned, large enough and free of overlaps. What
        // buffers and copies hold is kept until the stream has passed, since they know that it uses them; raw operands
        // were promised valid where they were made.
        let launched = unsafe { self.launch(handle, &run) };
        for span in [x, y, &scratch].into_iter().chain(spans()) {
            span.launched()?;
        }
        Ok(launched?)
    }

    /// # Safety
    /// `run` is of operands that `check_all` passes, in memory of the handle's device, which stay valid
    /// until the stream has passed the execution.
    unsafe fn launch(&self, handle: &Handle, run: &RunArgs<'_>) -> Result<(), RunError> {
        // SAFETY: as promised by the caller; the executable was loaded for this handle's device.
        unsafe { self.executable().run(handle.stream(), run) }
    }

    /// Everything that can be checked before a launch, in MIOpen's order: output, input, device, arguments.
    fn check_all(
        &self,
        handle: &Handle,
        input: &TensorDescriptor,
        x: &Span<'_>,
        output: &TensorDescriptor,
        y: &Span<'_>,
        given: Given<'_, '_>,
    ) -> Result<(), ExecuteError> {
        fork::usable()?;
        if output != self.output() {
            return Err(ExecuteError::Output { found: (*output).into(), expected: (*self.output()).into() });
        }
        if input != self.input() {
            return Err(ExecuteError::Input { found: (*input).into(), expected: (*self.input()).into() });
        }
        if !self.is_for(handle) {
            let (plan, handle) = (self.target().to_string(), handle.target().to_string());
            return Err(ExecuteError::OtherDevice { plan, handle });
        }
        check_memory(handle, || "the output".into(), y, output)?;
        check_memory(handle, || "the input".into(), x, input)?;
        self.check_operators(given)?;
        self.check_operands(handle, given)?;
        self.check_overlaps(x, y, given)
    }

    /// Every operator has arguments that are its own, and there are no others.
    fn check_operators(&self, given: Given<'_, '_>) -> Result<(), ExecuteError> {
        let ops = &self.problem().ops;
        let last = ops.len() - 1;
        for (index, op) in ops.iter().enumerate() {
            let kind = op.kind();
            let args = given.ops.get(index).ok_or(ExecuteError::Missing { index, kind })?;
            if let Some(slots) = given.slots {
                let slot = slots[index].as_ref().ok_or(ExecuteError::Missing { index, kind })?;
                if slot.plan != self.plan_id() || slot.kind != kind {
                    return Err(ExecuteError::Foreign { index, kind });
                }
                if let Some((found, expected)) = slot.mode.zip(op.activation_mode()).filter(|(a, b)| a != b) {
                    return Err(ExecuteError::Activation { index, kind, found, expected });
                }
            }
            let beta = args.beta;
            if beta != 0.0 && index != last {
                return Err(ExecuteError::Beta { index, kind, beta: beta.to_string(), last });
            }
        }
        let slots = given.slots.unwrap_or_default();
        let mut extra = slots.iter().enumerate().skip(ops.len());
        match extra.find_map(|(index, slot)| Some((index, slot.as_ref()?.kind))) {
            Some((index, kind)) => Err(ExecuteError::Extra { index, kind, count: ops.len() }),
            None => Ok(()),
        }
    }

    /// Every operand is there, or rightly left out, and is memory that its descriptor fits.
    fn check_operands(&self, handle: &Handle, given: Given<'_, '_>) -> Result<(), ExecuteError> {
        for (index, at, operand) in self.all_operands() {
            let span = given.span(index, at, operand);
            if span.address.is_null() && operand.may_be_null() {
                continue;
            }
            let name = || self.name_of(index, operand);
            if !operand.is_taken {
                return Err(ExecuteError::Unexpected { operand: name() });
            }
            check_memory(handle, name, &span, &operand.descriptor)?;
        }
        Ok(())
    }

    /// Nothing that is written may overlap anything else, except in place where that is exact.
    fn check_overlaps(&self, x: &Span<'_>, y: &Span<'_>, given: Given<'_, '_>) -> Result<(), ExecuteError> {
        let element_wise = self.problem().is_element_wise();
        let input = Region::new(x, self.input());
        let output = Region::new(y, self.output());
        let fail =
            |written: String, other: String| Err(ExecuteError::Overlap { written, other, element_wise });
        let in_place = element_wise && input.start == output.start;
        if output.overlaps(&input) && !in_place {
            return fail("the output".into(), "the input".into());
        }
        let name = |(index, operand): (usize, &DescribedOperand)| self.name_of(index, operand);
        for ((index, operand), region) in self.regions(given) {
            let in_place =
                element_wise && region.start == output.start && operand.descriptor == *self.output();
            if output.overlaps(&region) && !in_place {
                return fail("the output".into(), name((index, operand)));
            }
            if !region.written {
                continue;
            }
            if region.overlaps(&input) {
                return fail(name((index, operand)), "the input".into());
            }
            let is_other = |(_, other): (usize, &DescribedOperand)| !std::ptr::eq(other, operand);
            let clash =
                self.regions(given).find(|(other, memory)| is_other(*other) && region.overlaps(memory));
            if let Some((other, _)) = clash {
                return fail(name((index, operand)), name(other));
            }
        }
        Ok(())
    }

    /// The memory of every operand that is present, with its operator's index.
    fn regions<'s>(
        &'s self,
        given: Given<'s, 's>,
    ) -> impl Iterator<Item = ((usize, &'s DescribedOperand), Region<'s>)> + 's {
        self.all_operands().filter_map(move |(index, at, operand)| {
            let span = given.span(index, at, operand);
            let region = Region::new(&span, &operand.descriptor);
            (!span.address.is_null()).then_some(((index, operand), region))
        })
    }

    /// Every operand of the plan, with its operator's index and its own among the operator's.
    fn all_operands(&self) -> impl Iterator<Item = (usize, usize, &DescribedOperand)> {
        let operators = (0..self.problem().ops.len()).map(|index| (index, self.operands(index)));
        operators.flat_map(|(index, operands)| {
            operands.iter().enumerate().map(move |(at, operand)| (index, at, operand))
        })
    }

    fn name_of(&self, index: usize, operand: &DescribedOperand) -> String {
        format!("{} (operator {index}): {}", self.problem().ops[index].kind(), operand.spec.name)
    }
}

fn check_memory(
    handle: &Handle,
    operand: impl Fn() -> String,
    span: &Span<'_>,
    descriptor: &TensorDescriptor,
) -> Result<(), ExecuteError> {
    let expected = descriptor.data_type();
    if let Some(found) = span.data_type.filter(|&found| found != expected) {
        return Err(ExecuteError::DataType { operand: operand(), found, expected });
    }
    let needed = descriptor.bytes();
    if let Some(found) = span.bytes.filter(|&found| found < needed) {
        return Err(ExecuteError::TooSmall { operand: operand(), found, needed });
    }
    if span.address.is_null() {
        return Err(ExecuteError::Null { operand: operand() });
    }
    if !span.address.addr().is_multiple_of(expected.size()) {
        return Err(ExecuteError::Misaligned { operand: operand(), size: expected.size() });
    }
    check_place(handle, operand, span)
}

/// Memory of which it is known whose it is belongs to the handle's device, and stream.
fn check_place(handle: &Handle, operand: impl Fn() -> String, span: &Span<'_>) -> Result<(), ExecuteError> {
    match span.place {
        Place::Device(block) if !Arc::ptr_eq(block.context(), handle.context()) => {
            let (found, expected) = (block.context().target().to_string(), handle.target().to_string());
            Err(ExecuteError::OtherMemory { operand: operand(), found, expected })
        }
        #[cfg(feature = "cudarc")]
        Place::Stream(tracked)
            if !(tracked.handle().is_same_device(handle) && tracked.handle().stream() == handle.stream()) =>
        {
            Err(ExecuteError::OtherStream { operand: operand() })
        }
        #[cfg(feature = "cudarc")]
        Place::Stream(_) => Ok(()),
        Place::Host | Place::Raw | Place::Device(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;

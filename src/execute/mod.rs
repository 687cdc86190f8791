//! The check of everything that is given at run time, in one place for the typed and the raw path.
#![allow(unsafe_code, reason = "the one place above the backends that hands pointers to a kernel")]

mod error;
mod operands;
mod staged;

use std::ffi::c_void;
use std::sync::Arc;

use fuseplan_api::{MemoryKind, Op, OpKind, RunArgs, RunError, TensorDescriptor, call, fork};

pub use error::ExecuteError;
pub(crate) use operands::{OperandSpec, operands};

use crate::args::{OperatorArgs, Place, Resident, Slot, Span};
use crate::buffer::Block;
use crate::handle::Handle;
use crate::plan::CompiledPlan;
use crate::tensor::{Tensor, TensorMut};

/// Memory of one execution, for the check of overlaps.
#[derive(Clone, Copy)]
struct Region {
    start: usize,
    bytes: usize,
    written: bool,
}

impl Region {
    fn new(span: &Span<'_>, descriptor: &TensorDescriptor) -> Self {
        Region { start: span.address.addr(), bytes: descriptor.bytes(), written: span.written }
    }

    fn overlaps(&self, other: &Region) -> bool {
        self.start < other.start.saturating_add(other.bytes)
            && other.start < self.start.saturating_add(self.bytes)
    }
}

impl CompiledPlan {
    /// Runs the plan on [`DeviceBuffer`](crate::DeviceBuffer)s, slices or raw operands.
    ///
    /// On a CPU the work is done when this returns. On a device with memory of its own it is launched into
    /// the handle's stream if all that the plan writes, and its input, lie in the device's memory: nothing
    /// is then allocated or waited for after the first execution with these arguments. Slices are a
    /// convenience there: an input or a result in host memory is copied in, computed, copied out and waited
    /// for, through memory that is allocated for the call. A plan with a workspace allocates and waits
    /// likewise. (Slices that operators read are copied once, see [`OperatorArgs`].)
    ///
    /// # Errors
    /// Descriptors that are not the plan's, a changed plan, a handle of another device, missing, extra or
    /// foreign arguments, operands of the wrong type, too small or in another device's memory, no memory for
    /// copies, or a failed launch. Nothing is written unless everything fits.
    pub fn execute(
        &self,
        handle: &Handle,
        input: Tensor<'_>,
        output: TensorMut<'_>,
        args: &OperatorArgs<'_>,
    ) -> Result<(), ExecuteError> {
        let (x, y) = (input.operand.memory, output.operand.memory);
        call(|| {
            self.check(handle, input.descriptor, &x, output.descriptor, &y, args)?;
            self.run(handle, &x, &y, args, None)
        })
    }

    /// Runs an element-wise plan on memory that it reads and writes.
    ///
    /// # Errors
    /// As [`CompiledPlan::execute`]; a plan that is not element-wise.
    pub fn execute_in_place(
        &self,
        handle: &Handle,
        tensor: TensorMut<'_>,
        args: &OperatorArgs<'_>,
    ) -> Result<(), ExecuteError> {
        if !self.problem().is_element_wise() {
            let first = self.problem().ops.first().map_or(OpKind::ConvForward, Op::kind);
            return Err(ExecuteError::InPlace { first });
        }
        let y = tensor.operand.memory;
        let x = Span { written: false, ..y };
        call(|| {
            self.check(handle, tensor.descriptor, &x, tensor.descriptor, &y, args)?;
            self.run(handle, &x, &y, args, None)
        })
    }

    /// Launches on pointers of the handle's device into the handle's stream and returns; on a CPU the work
    /// is then done. The same checks as [`CompiledPlan::execute`]; the extent of raw memory is not known.
    /// Slices among the arguments are treated as there.
    ///
    /// # Errors
    /// As [`CompiledPlan::execute`]; null or misaligned pointers; a workspace that is too small.
    ///
    /// # Safety
    /// `input`, `output` and `workspace` are memory of the handle's device, as large as their descriptors
    /// (`workspace_bytes`) say, that stays valid and is used by nobody else until the stream has passed
    /// this execution.
    #[allow(clippy::too_many_arguments, reason = "MIOpen's own argument list")]
    pub unsafe fn execute_raw(
        &self,
        handle: &Handle,
        input_descriptor: &TensorDescriptor,
        input: *const c_void,
        output_descriptor: &TensorDescriptor,
        output: *mut c_void,
        args: &OperatorArgs<'_>,
        workspace: *mut c_void,
        workspace_bytes: usize,
    ) -> Result<(), ExecuteError> {
        let (x, y) = (raw_span(input, false), raw_span(output.cast_const(), true));
        call(|| {
            self.check(handle, input_descriptor, &x, output_descriptor, &y, args)?;
            let needed = self.workspace();
            let found = if workspace.is_null() { 0 } else { workspace_bytes };
            if found < needed {
                return Err(ExecuteError::Workspace { found, needed });
            }
            self.run(handle, &x, &y, args, Some(workspace))
        })
    }

    /// What [`execute_raw`](Self::execute_raw) would refuse of these operands, but for the workspace, without
    /// executing anything. No memory is looked at.
    ///
    /// # Errors
    /// Those of [`execute_raw`](Self::execute_raw) that are found before the launch.
    pub fn check_raw(
        &self,
        handle: &Handle,
        input_descriptor: &TensorDescriptor,
        input: *const c_void,
        output_descriptor: &TensorDescriptor,
        output: *mut c_void,
        args: &OperatorArgs<'_>,
    ) -> Result<(), ExecuteError> {
        let (x, y) = (raw_span(input, false), raw_span(output.cast_const(), true));
        self.check(handle, input_descriptor, &x, output_descriptor, &y, args)
    }

    /// Runs on operands that `check` has passed; without a workspace one is allocated if need be.
    fn run(
        &self,
        handle: &Handle,
        x: &Span<'_>,
        y: &Span<'_>,
        args: &OperatorArgs<'_>,
        workspace: Option<*mut c_void>,
    ) -> Result<(), ExecuteError> {
        // Before anything is marked as used by the stream, until it is launched.
        let _turn = args.turn();
        let allocated = match workspace {
            None if self.workspace() > 0 => Some(Block::new(handle, self.workspace())?),
            _ => None,
        };
        let workspace = match &allocated {
            Some(block) => {
                block.write_on(handle)?;
                block.address()
            }
            None => workspace.unwrap_or(std::ptr::null_mut()),
        };
        let (input, output) = (x.address, y.address.cast_mut());
        if handle.memory_kind() == MemoryKind::Host {
            let run = RunArgs { input, output, ops: args.ops(), workspace };
            // SAFETY: `check` has proved every operand present, typed, aligned, large enough and free of
            // overlaps. Slices and buffers live for the duration of the call, and a host device has
            // finished when it returns; what the arguments borrow mutably is this execution's by its turn;
            // raw operands were promised valid where they were made.
            return Ok(unsafe { self.launch(handle, &run) }?);
        }
        let resident = args.resident(handle)?;
        let resident = resident.as_deref();
        if let Some(resident) = resident {
            resident.read_on(handle)?;
        }
        let written_to_host = args.spans().any(|span| span.is_host() && span.written);
        if x.is_host() || y.is_host() || written_to_host {
            return self.run_staged(handle, x, y, args, resident, workspace);
        }
        let ops = resident.map_or(args.ops(), Resident::ops);
        for span in [x, y].into_iter().chain(args.spans()) {
            span.use_on(handle)?;
        }
        let run = RunArgs { input, output, ops, workspace };
        // SAFETY: as above; what buffers and copies hold is kept until the stream has passed, since they
        // know that it uses them.
        let launched = unsafe { self.launch(handle, &run) };
        for span in [x, y].into_iter().chain(args.spans()) {
            span.launched()?;
        }
        Ok(launched?)
    }

    /// # Safety
    /// `run` is of operands that `check` has passed, in memory of the handle's device, which stay valid
    /// until the stream has passed the execution.
    unsafe fn launch(&self, handle: &Handle, run: &RunArgs<'_>) -> Result<(), RunError> {
        // SAFETY: as promised by the caller; the executable was loaded for this handle's device.
        unsafe { self.executable().run(handle.stream(), run) }
    }

    /// Everything that can be checked before a launch, in MIOpen's order: output, input, compiled, arguments.
    fn check(
        &self,
        handle: &Handle,
        input: &TensorDescriptor,
        x: &Span<'_>,
        output: &TensorDescriptor,
        y: &Span<'_>,
        args: &OperatorArgs<'_>,
    ) -> Result<(), ExecuteError> {
        fork::usable()?;
        if output != self.output() {
            return Err(ExecuteError::Output { found: (*output).into(), expected: (*self.output()).into() });
        }
        if input != self.input() {
            return Err(ExecuteError::Input { found: (*input).into(), expected: (*self.input()).into() });
        }
        if !self.is_current() {
            return Err(ExecuteError::PlanChanged);
        }
        if !self.is_for(handle) {
            let (plan, handle) = (self.target().to_string(), handle.target().to_string());
            return Err(ExecuteError::OtherDevice { plan, handle });
        }
        check_memory(handle, || "the output".into(), y, output)?;
        check_memory(handle, || "the input".into(), x, input)?;
        self.check_args(handle, args)?;
        self.check_overlaps(x, y, args)
    }

    fn check_args(&self, handle: &Handle, args: &OperatorArgs<'_>) -> Result<(), ExecuteError> {
        let ops = &self.problem().ops;
        let last = ops.len() - 1;
        for (index, op) in ops.iter().enumerate() {
            let kind = op.kind();
            let slot = args.slots().get(index).filter(|slot| slot.kind.is_some());
            let slot = slot.ok_or(ExecuteError::Missing { index, kind })?;
            if slot.plan != self.plan_id() || slot.kind != Some(kind) {
                return Err(ExecuteError::Foreign { index, kind });
            }
            let beta = args.ops()[index].beta;
            if beta != 0.0 && index != last {
                return Err(ExecuteError::Beta { index, kind, beta: beta.to_string(), last });
            }
            for (spec, span) in self.operands(index).iter().zip(&slot.spans) {
                let name = || format!("{kind} (operator {index}): {}", spec.name);
                if span.address.is_null() && spec.optional {
                    continue;
                }
                if spec.absent {
                    return Err(ExecuteError::Unexpected { operand: name() });
                }
                check_memory(handle, name, span, &spec.descriptor)?;
            }
        }
        let extra = args.slots().iter().enumerate().skip(ops.len());
        if let Some((index, kind)) = extra.filter_map(|(i, slot)| Some((i, slot.kind?))).next() {
            return Err(ExecuteError::Extra { index, kind, count: ops.len() });
        }
        Ok(())
    }

    /// Nothing that is written may overlap anything else, except in place where that is exact.
    fn check_overlaps(
        &self,
        x: &Span<'_>,
        y: &Span<'_>,
        args: &OperatorArgs<'_>,
    ) -> Result<(), ExecuteError> {
        let element_wise = self.problem().is_element_wise();
        let input = Region::new(x, self.input());
        let output = Region::new(y, self.output());
        let fail =
            |written: String, other: String| Err(ExecuteError::Overlap { written, other, element_wise });
        let in_place = element_wise && input.start == output.start;
        if output.overlaps(&input) && !in_place {
            return fail("the output".into(), "the input".into());
        }
        let name = |(index, operand): (usize, usize)| {
            let kind = self.problem().ops[index].kind();
            format!("{kind} (operator {index}): {}", self.operands(index)[operand].name)
        };
        for (at, region, descriptor) in self.regions(args.slots()) {
            let in_place = element_wise && region.start == output.start && descriptor == *self.output();
            if output.overlaps(&region) && !in_place {
                return fail("the output".into(), name(at));
            }
            if !region.written {
                continue;
            }
            if region.overlaps(&input) {
                return fail(name(at), "the input".into());
            }
            let clash = self.regions(args.slots()).find(|(b, other, _)| *b != at && region.overlaps(other));
            if let Some((other, ..)) = clash {
                return fail(name(at), name(other));
            }
        }
        Ok(())
    }

    /// The memory of every operand that is present.
    fn regions<'s>(
        &'s self,
        slots: &'s [Slot<'_>],
    ) -> impl Iterator<Item = ((usize, usize), Region, TensorDescriptor)> + 's {
        slots.iter().enumerate().flat_map(move |(index, slot)| {
            let operands = self.operands(index).iter().zip(&slot.spans).enumerate();
            let present = operands.filter(|(_, (_, span))| !span.address.is_null());
            present.map(move |(operand, (spec, span))| {
                ((index, operand), Region::new(span, &spec.descriptor), spec.descriptor)
            })
        })
    }
}

/// Memory of which only the address is known.
fn raw_span(address: *const c_void, written: bool) -> Span<'static> {
    Span { address, bytes: None, data_type: None, written, place: Place::Raw }
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
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;

//! The check of everything that is given at run time, in one place for the typed and the raw path.
#![allow(unsafe_code, reason = "the one place above the backends that hands pointers to a kernel")]

mod error;
mod operands;

use std::ffi::c_void;

use fuseplan_api::{Element, MemoryKind, Op, OpKind, RunArgs, TensorDescriptor};

pub use error::ExecuteError;
pub(crate) use operands::{OperandSpec, operands};

use crate::args::{OperatorArgs, Slot, Span};
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
    fn new(span: &Span, descriptor: &TensorDescriptor) -> Self {
        Region { start: span.address.addr(), bytes: descriptor.bytes(), written: span.written }
    }

    fn overlaps(&self, other: &Region) -> bool {
        self.start < other.start.saturating_add(other.bytes)
            && other.start < self.start.saturating_add(self.bytes)
    }
}

impl CompiledPlan {
    /// Runs on slices in host memory and waits. Nothing is allocated after the first execution of a plan on
    /// a thread.
    ///
    /// # Errors
    /// Descriptors that are not the plan's, a changed plan, a handle of another device, missing, extra or
    /// foreign arguments, operands of the wrong type or too small, or a failed launch. Nothing is written
    /// unless everything fits.
    pub fn execute<T: Element>(
        &self,
        handle: &Handle,
        input: Tensor<'_, T>,
        output: TensorMut<'_, T>,
        args: &OperatorArgs<'_>,
    ) -> Result<(), ExecuteError> {
        let data_type = Tensor::<T>::DATA_TYPE;
        let x = Span {
            address: input.data.as_ptr().cast(),
            bytes: Some(size_of_val(input.data)),
            data_type: Some(data_type),
            written: false,
        };
        let y = Span {
            address: output.data.as_mut_ptr().cast_const().cast(),
            bytes: Some(size_of_val(output.data)),
            data_type: Some(data_type),
            written: true,
        };
        let (xd, yd) = (input.descriptor, output.descriptor);
        self.execute_slices(handle, xd, x, yd, y, args)
    }

    /// Runs an element-wise plan on a slice in host memory, which it reads and writes.
    ///
    /// # Errors
    /// As [`CompiledPlan::execute`]; a plan that is not element-wise.
    pub fn execute_in_place<T: Element>(
        &self,
        handle: &Handle,
        tensor: TensorMut<'_, T>,
        args: &OperatorArgs<'_>,
    ) -> Result<(), ExecuteError> {
        if !self.problem().is_element_wise() {
            let first = self.problem().ops.first().map_or(OpKind::ConvForward, Op::kind);
            return Err(ExecuteError::InPlace { first });
        }
        let y = Span {
            address: tensor.data.as_mut_ptr().cast_const().cast(),
            bytes: Some(size_of_val(tensor.data)),
            data_type: Some(T::DATA_TYPE),
            written: true,
        };
        let x = Span { written: false, ..y };
        self.execute_slices(handle, tensor.descriptor, x, tensor.descriptor, y, args)
    }

    fn execute_slices(
        &self,
        handle: &Handle,
        input: &TensorDescriptor,
        x: Span,
        output: &TensorDescriptor,
        y: Span,
        args: &OperatorArgs<'_>,
    ) -> Result<(), ExecuteError> {
        if handle.context().device().memory().kind() != MemoryKind::Host {
            return Err(ExecuteError::HostMemory { device: handle.target().to_string() });
        }
        let needed = self.workspace();
        if needed != 0 {
            return Err(ExecuteError::Workspace { found: 0, needed });
        }
        self.check(handle, input, &x, output, &y, args)?;
        // SAFETY: `check` has proved every operand present, typed, aligned, large enough and free of
        // overlaps. Slices live for the duration of the call and a host device has finished when it returns;
        // raw operands were promised valid where they were made.
        unsafe { self.launch(handle, x.address, y.address.cast_mut(), args, std::ptr::null_mut()) }
    }

    /// Launches on pointers of the handle's device into the handle's stream and returns; on a CPU the work
    /// is then done. The same checks as [`CompiledPlan::execute`]; the extent of raw memory is not known.
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
        let x = Span { address: input, bytes: None, data_type: None, written: false };
        let y = Span { address: output, bytes: None, data_type: None, written: true };
        self.check(handle, input_descriptor, &x, output_descriptor, &y, args)?;
        let needed = self.workspace();
        let found = if workspace.is_null() { 0 } else { workspace_bytes };
        if found < needed {
            return Err(ExecuteError::Workspace { found, needed });
        }
        // SAFETY: `check` has proved what can be seen of the operands; the caller promises their validity.
        unsafe { self.launch(handle, input, output, args, workspace) }
    }

    /// # Safety
    /// `check` passed for these very operands, which stay valid until the stream has passed the execution.
    unsafe fn launch(
        &self,
        handle: &Handle,
        input: *const c_void,
        output: *mut c_void,
        args: &OperatorArgs<'_>,
        workspace: *mut c_void,
    ) -> Result<(), ExecuteError> {
        let run = RunArgs { input, output, ops: args.ops(), workspace };
        // SAFETY: as promised by the caller; the executable was loaded for this handle's device.
        unsafe { self.executable().run(handle.stream(), &run) }.map_err(ExecuteError::from)
    }

    /// Everything that can be checked before a launch, in MIOpen's order: output, input, compiled, arguments.
    fn check(
        &self,
        handle: &Handle,
        input: &TensorDescriptor,
        x: &Span,
        output: &TensorDescriptor,
        y: &Span,
        args: &OperatorArgs<'_>,
    ) -> Result<(), ExecuteError> {
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
        check_memory(|| "the output".into(), y, output)?;
        check_memory(|| "the input".into(), x, input)?;
        self.check_args(args)?;
        self.check_overlaps(x, y, args)
    }

    fn check_args(&self, args: &OperatorArgs<'_>) -> Result<(), ExecuteError> {
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
                    return Err(ExecuteError::Extra { index, kind, count: ops.len() });
                }
                check_memory(name, span, &spec.descriptor)?;
            }
        }
        let extra = args.slots().iter().enumerate().skip(ops.len());
        if let Some((index, kind)) = extra.filter_map(|(i, slot)| Some((i, slot.kind?))).next() {
            return Err(ExecuteError::Extra { index, kind, count: ops.len() });
        }
        Ok(())
    }

    /// Nothing that is written may overlap anything else, except in place where that is exact.
    fn check_overlaps(&self, x: &Span, y: &Span, args: &OperatorArgs<'_>) -> Result<(), ExecuteError> {
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
        slots: &'s [Slot],
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

fn check_memory(
    operand: impl Fn() -> String,
    span: &Span,
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
    Ok(())
}

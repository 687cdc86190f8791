//! Executing with slices in host memory on a device that has memory of its own.

use fuseplan_api::{OpArgs, RunArgs, TensorDescriptor};

use super::ExecuteError;
use crate::args::{OperatorArgs, Slot, Span};
use crate::buffer::Block;
use crate::handle::Handle;
use crate::plan::CompiledPlan;

/// A slice that the plan writes, and its stand-in in the device's memory.
struct Staged<'a> {
    slice: &'a Span<'a>,
    bytes: usize,
    block: Block,
}

impl<'a> Staged<'a> {
    /// The stand-in; `keeps`: with the slice's contents.
    fn new(
        handle: &Handle,
        slice: &'a Span<'a>,
        descriptor: &TensorDescriptor,
        keeps: bool,
    ) -> Result<Self, ExecuteError> {
        let bytes = descriptor.bytes();
        let block = Block::new(handle, bytes)?;
        if keeps {
            // SAFETY: `check_all` has found the slice, which lives for the duration of the call, large enough.
            block.write(unsafe { std::slice::from_raw_parts(slice.address.cast(), bytes) }, handle)?;
        } else {
            block.write_on(handle)?;
        }
        Ok(Staged { slice, bytes, block })
    }

    /// Waits, and copies the result to the slice.
    fn finish(&self, handle: &Handle) -> Result<(), ExecuteError> {
        let address = self.slice.address.cast_mut().cast();
        // SAFETY: the span was made from a mutable slice that is borrowed for the duration of the call, and is
        // used by no other execution before this one's turn ends; `check_all` has found it large enough and free of
        // overlaps.
        let slice = unsafe { std::slice::from_raw_parts_mut(address, self.bytes) };
        Ok(self.block.read(slice, handle)?)
    }
}

impl CompiledPlan {
    /// Copies slices in, runs, copies results out and waits; in `ops` slices that are only read are replaced by their
    /// copies already. All memory is there before anything runs.
    pub(super) fn run_staged(
        &self,
        handle: &Handle,
        x: &Span<'_>,
        y: &Span<'_>,
        typed: Option<&OperatorArgs<'_>>,
        ops: &[OpArgs],
        workspace: &Span<'_>,
    ) -> Result<(), ExecuteError> {
        let mut written = Vec::new();
        let mut output = y.address.cast_mut();
        if y.is_host() {
            let blends = ops.last().is_some_and(|op| op.beta != 0.0);
            let has_gaps = self.output().span() != self.output().element_count();
            let keeps = blends || has_gaps || x.address == y.address;
            let staged = Staged::new(handle, y, self.output(), keeps)?;
            output = staged.block.address();
            written.push(staged);
        }
        let mut copy = None;
        let input = if x.address == y.address {
            output.cast_const()
        } else if x.is_host() {
            let bytes = self.input().bytes();
            let block = copy.insert(Block::new(handle, bytes)?);
            // SAFETY: `check_all` has found the slice, which lives for the duration of the call, large enough.
            block.write(unsafe { std::slice::from_raw_parts(x.address.cast(), bytes) }, handle)?;
            block.address().cast_const()
        } else {
            x.address
        };
        let mut ops = ops.to_vec();
        let slots = typed.map_or(&[][..], OperatorArgs::slots);
        for (index, (op, slot)) in ops.iter_mut().zip(slots).enumerate() {
            let spans = slot.as_ref().map_or(&[][..], Slot::spans);
            for ((span, operand), pointer) in spans.iter().zip(self.operands(index)).zip(&mut op.pointers) {
                if span.is_host() && span.written {
                    let staged = Staged::new(handle, span, &operand.descriptor, true)?;
                    *pointer = staged.block.address();
                    written.push(staged);
                }
            }
        }
        let spans = || typed.into_iter().flat_map(OperatorArgs::spans);
        for span in [x, y, workspace].into_iter().chain(spans()) {
            span.use_on(handle)?;
        }
        let run = RunArgs { input, output, ops: &ops, workspace: workspace.address.cast_mut() };
        // SAFETY: `check_all` has passed the operands; those in host memory were replaced by memory of the
        // device, as large as their descriptors, which is kept until the stream has passed.
        let launched = unsafe { self.launch(handle, &run) };
        for span in [x, y, workspace].into_iter().chain(spans()) {
            span.launched()?;
        }
        launched?;
        written.iter().try_for_each(|staged| staged.finish(handle))
    }
}

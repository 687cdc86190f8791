//! Executing with slices in host memory on a device that has memory of its own.

use fuseplan_api::{RunArgs, TensorDescriptor};

use super::ExecuteError;
use crate::args::{OperatorArgs, Resident, Span, place};
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
            // SAFETY: `check` has found the slice, which lives for the duration of the call, large enough.
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
        // used by no other execution before this one's turn ends; `check` has found it large enough and free of
        // overlaps.
        let slice = unsafe { std::slice::from_raw_parts_mut(address, self.bytes) };
        Ok(self.block.read(slice, handle)?)
    }
}

impl CompiledPlan {
    /// Copies slices in, runs, copies results out and waits; `resident` has the copies of those among the
    /// arguments that are only read. All memory is there before anything runs.
    pub(super) fn run_staged(
        &self,
        handle: &Handle,
        x: &Span<'_>,
        y: &Span<'_>,
        args: &OperatorArgs<'_>,
        resident: Option<&Resident>,
        workspace: *mut std::ffi::c_void,
    ) -> Result<(), ExecuteError> {
        let mut written = Vec::new();
        let mut output = y.address.cast_mut();
        if y.is_host() {
            let blends = args.ops().last().is_some_and(|op| op.beta != 0.0);
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
            // SAFETY: `check` has found the slice, which lives for the duration of the call, large enough.
            block.write(unsafe { std::slice::from_raw_parts(x.address.cast(), bytes) }, handle)?;
            block.address().cast_const()
        } else {
            x.address
        };
        let mut ops = resident.map_or(args.ops(), Resident::ops).to_vec();
        for (index, (op, slot)) in ops.iter_mut().zip(args.slots()).enumerate() {
            let mut addresses = args.addresses(index, resident);
            for ((span, spec), address) in slot.spans.iter().zip(self.operands(index)).zip(&mut addresses) {
                if span.is_host() && span.written {
                    let staged = Staged::new(handle, span, &spec.descriptor, true)?;
                    *address = staged.block.address();
                    written.push(staged);
                }
            }
            place(&mut op.kind, &addresses);
        }
        for span in [x, y].into_iter().chain(args.spans()) {
            span.use_on(handle)?;
        }
        let run = RunArgs { input, output, ops: &ops, workspace };
        // SAFETY: `check` has passed the operands; those in host memory were replaced by memory of the
        // device, as large as their descriptors, which is kept until the stream has passed.
        let launched = unsafe { self.launch(handle, &run) };
        for span in [x, y].into_iter().chain(args.spans()) {
            span.launched()?;
        }
        launched?;
        written.iter().try_for_each(|staged| staged.finish(handle))
    }
}

//! Executions of the kernel, with the launch that transforms filters.

use std::ffi::c_void;
use std::sync::Arc;

use fuseplan_api::{Executable, ExecutableInfo, RawStream, RunArgs, RunError};
use fuseplan_gpu::{ArgumentLayout, Function, Geometry, MAX_WORDS, SCRATCH_WORDS};

use crate::context::Cuda;
use crate::prepared::Preparation;

#[derive(Debug)]
pub(super) struct WinogradExecutable {
    pub(super) info: ExecutableInfo,
    pub(super) function: Function<Cuda>,
    pub(super) geometry: Geometry,
    /// Of the launch that transforms filters.
    pub(super) preparing: Geometry,
    pub(super) arguments: ArgumentLayout,
    /// What the input's and the output's addresses must be multiples of.
    pub(super) alignment: [usize; 2],
    pub(super) filters: Preparation,
    /// For other addresses, and filters that are not transformed.
    pub(super) other: Arc<dyn Executable>,
}

/// What a launch does, in the words of the text.
mod launch {
    /// Transforms filters.
    pub(super) const PREPARE: u64 = 0;
    /// Convolves with what such a launch wrote.
    pub(super) const CONVOLVE: u64 = 1;
}

impl Executable for WinogradExecutable {
    fn info(&self) -> &ExecutableInfo {
        &self.info
    }

    unsafe fn run(&self, stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError> {
        let addresses = [args.input.addr(), args.output.addr()];
        // SAFETY: an executable of the same problem and device.
        let other = || unsafe { self.other.run(stream, args) };
        if addresses.iter().zip(self.alignment).any(|(address, of)| !address.is_multiple_of(of)) {
            return other();
        }
        let mut words = [0; MAX_WORDS];
        let count = self.arguments.pack(args, &mut words);
        let entered = self.function.enter()?;
        let mut launch = |geometry: &Geometry, memory: *mut c_void, what: u64| {
            words[count - SCRATCH_WORDS..count].copy_from_slice(&[memory.addr() as u64, what]);
            // SAFETY: these are the arguments of this kernel's text; the caller keeps what `RunArgs` promises.
            unsafe { self.function.launch_entered(&entered, stream, geometry, &words[..count]) }
        };
        let kept = args.ops[0].prepared.as_deref();
        let write = |memory: *mut c_void| launch(&self.preparing, memory, launch::PREPARE);
        // SAFETY: the context is entered, and the kernel writes as many bytes; the caller answers for the stream.
        let Some(filters) = (unsafe { self.filters.filters(&entered, kept, stream, write) }) else {
            // Whatever the reason, the other kernel needs no transformed filters.
            return other();
        };
        // What was written is not written again before the launch, as the filters are held.
        Ok(launch(&self.geometry, filters.address(), launch::CONVOLVE)?)
    }
}

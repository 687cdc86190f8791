//! Executions of a kernel on Hopper, with the launches that prepare its operands.

use std::ffi::c_void;
use std::sync::Arc;

use fuseplan_api::operands::ConvForward;
use fuseplan_api::{BackendError, Executable, ExecutableInfo, RawStream, RunArgs, RunError};
use fuseplan_gpu::{ArgumentLayout, Entered, Function, Geometry, Held, MAX_WORDS, ScratchDriver};

use super::reordered::Reordered;
use super::tensor_map::{MAP_WORDS, TensorMap};
use crate::context::Cuda;
use crate::prepared::{Filters, Preparation};

#[derive(Debug)]
pub(super) struct HopperExecutable {
    pub(super) info: ExecutableInfo,
    pub(super) function: Function<Cuda>,
    pub(super) geometry: Geometry,
    /// Of the launch that prepares operands, which all multiprocessors share however few tiles there are.
    pub(super) preparing: Geometry,
    pub(super) arguments: ArgumentLayout,
    pub(super) input: Option<TensorMap>,
    pub(super) filters: Option<TensorMap>,
    pub(super) input_alignment: usize,
    pub(super) output_alignment: usize,
    pub(super) filter_alignment: usize,
    pub(super) prepares: Prepares,
    /// For pointers that TMA does not take, and operands that cannot be prepared.
    pub(super) other: Arc<dyn Executable>,
}

/// What is prepared by launches of the same kernel.
#[derive(Debug)]
pub(super) enum Prepares {
    Nothing,
    /// Filters that are streamed.
    Filters(Preparation),
    /// Image and filters that are reordered.
    Operands(Reordered),
}

/// What a launch does about streamed filters, in the words of the text.
mod streamed {
    /// Loads them.
    pub(super) const LOAD: u64 = 0;
    /// Writes them.
    pub(super) const PREPARE: u64 = 1;
    /// Loads what the launch before it writes.
    pub(super) const WAIT: u64 = 2;
}

/// A launch's arguments: the words of the text's `struct Launch`, and how many there are.
struct Words {
    all: [u64; MAX_WORDS],
    count: usize,
}

impl HopperExecutable {
    /// Arguments without tensor maps; `None` where TMA does not take the pointers.
    fn arguments(&self, args: &RunArgs<'_>) -> Option<Words> {
        let ConvForward { weights } = ConvForward::of(&args.ops[0]);
        let is_aligned = |pointer: *const c_void, alignment| pointer.addr().is_multiple_of(alignment);
        let aligned = is_aligned(args.input, self.input_alignment)
            && is_aligned(args.output, self.output_alignment)
            && is_aligned(weights, self.filter_alignment);
        aligned.then(|| {
            let mut all = [0; MAX_WORDS];
            let count = 2 * MAP_WORDS + self.arguments.pack(args, &mut all[2 * MAP_WORDS..]);
            Words { all, count }
        })
    }

    /// Writes the tensor maps of operands at these addresses.
    ///
    /// # Errors
    /// The driver does not encode a tensor map.
    fn write_maps(
        &self,
        words: &mut Words,
        image: *const c_void,
        weights: *const c_void,
    ) -> Result<(), BackendError> {
        if let Some(input) = &self.input {
            words.all[..MAP_WORDS].copy_from_slice(&input.encode(image)?);
        }
        if let Some(filters) = &self.filters {
            words.all[MAP_WORDS..2 * MAP_WORDS].copy_from_slice(&filters.encode(weights)?);
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Executable::run`]; the words are of these arguments.
    unsafe fn launch(
        &self,
        entered: &Entered<'_, Cuda>,
        stream: RawStream,
        geometry: &Geometry,
        words: &Words,
    ) -> Result<(), BackendError> {
        // SAFETY: these are the arguments of this kernel's text; the caller keeps what `RunArgs` promises.
        unsafe { self.function.launch_entered(entered, stream, geometry, &words.all[..words.count]) }
    }

    /// Launches the kernel with filters that are prepared; `false` where they cannot be.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    unsafe fn run_with_filters(
        &self,
        preparation: &Preparation,
        entered: &Entered<'_, Cuda>,
        stream: RawStream,
        args: &RunArgs<'_>,
        words: &mut Words,
    ) -> Result<bool, BackendError> {
        let mut launch = |geometry: &Geometry, memory: *mut c_void, what: u64| {
            words.all[MAP_WORDS..][..2].copy_from_slice(&[memory.addr() as u64, what]);
            // SAFETY: as promised by the caller.
            unsafe { self.launch(entered, stream, geometry, words) }
        };
        let kept = args.ops[0].prepared.as_deref();
        let write = |memory: *mut c_void| launch(&self.preparing, memory, streamed::PREPARE);
        // SAFETY: the context is entered, and the kernel writes as many bytes; the caller answers for the stream.
        let Some(filters) = (unsafe { preparation.filters(entered, kept, stream, write) }) else {
            return Ok(false);
        };
        // What was written is not written again before the launch, as the filters are held.
        let is_new = matches!(filters, Filters::JustWritten(_));
        let what = if is_new { streamed::WAIT } else { streamed::LOAD };
        launch(&self.geometry, filters.address(), what).map(|()| true)
    }

    /// Launches the kernel twice: to write operands, and to load them; `false` where there is no memory for these.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    unsafe fn run_reordered(
        &self,
        reordered: &Reordered,
        entered: &Entered<'_, Cuda>,
        stream: RawStream,
        words: &mut Words,
    ) -> Result<bool, BackendError> {
        // SAFETY: as promised by the caller.
        let Ok(memory) = (unsafe { scratch(entered, stream, reordered.bytes) }) else { return Ok(false) };
        let image = memory.address();
        // A launch without maps writes.
        words.all[MAP_WORDS] = image.addr() as u64;
        // SAFETY: as promised by the caller.
        unsafe { self.launch(entered, stream, &self.preparing, words) }?;
        self.write_maps(words, image, image.wrapping_byte_add(reordered.filters_at))?;
        // SAFETY: the same.
        unsafe { self.launch(entered, stream, &self.geometry, words) }.map(|()| true)
    }
}

/// Memory for what is launched into the stream next.
///
/// # Safety
/// A context is entered, in which the stream is a live one.
unsafe fn scratch<'a>(
    entered: &'a Entered<'_, Cuda>,
    stream: RawStream,
    bytes: usize,
) -> Result<Held<'a>, BackendError> {
    // SAFETY: as promised by the caller.
    let capture = unsafe { entered.capture_of(stream) }?;
    // SAFETY: the same; what is launched while the memory is held is the stream's.
    unsafe { entered.scratch().hold(&**entered, stream, capture, bytes) }
}

impl Executable for HopperExecutable {
    fn info(&self) -> &ExecutableInfo {
        &self.info
    }

    unsafe fn run(&self, stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError> {
        let entered = self.function.enter()?;
        // SAFETY: an executable of the same problem and device.
        let other = || unsafe { self.other.run(stream, args) };
        let Some(mut words) = self.arguments(args) else { return other() };
        if !matches!(self.prepares, Prepares::Operands(_)) {
            self.write_maps(&mut words, args.input, ConvForward::of(&args.ops[0]).weights)?;
        }
        let launched = match &self.prepares {
            Prepares::Nothing => {
                // SAFETY: as promised by the caller; the words are of these arguments.
                unsafe { self.launch(&entered, stream, &self.geometry, &words) }.map(|()| true)
            }
            // SAFETY: the same.
            Prepares::Filters(of) => unsafe { self.run_with_filters(of, &entered, stream, args, &mut words) },
            // SAFETY: the same.
            Prepares::Operands(of) => unsafe { self.run_reordered(of, &entered, stream, &mut words) },
        };
        // Whatever the reason, the other kernel needs no prepared operands.
        if launched? { Ok(()) } else { other() }
    }
}

//! Convolution on Hopper's tensor cores: `wgmma` fed by the copy engine.
//!
//! The copy engine reads tensors by maps that hold their addresses, so maps are made at every execution, on
//! the host and from numbers alone. It reads addresses that are multiples of 16 bytes; for others the binary
//! carries the kernel of [`MMA`](crate::solvers::MMA) too, which makes any of these problems, also those too small for
//! it to be worth it.

mod constraints;
mod plan;
mod tensor_map;
mod tiling;

use std::ffi::c_void;
use std::fmt::Write;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};

use fuseplan_api::{
    Algorithm, BackendError, Binary, BuildError, Constraint, Device, DeviceInfo, Executable, ExecutableInfo,
    OpArgsKind, Problem, RawStream, RunArgs, RunError, Solver,
};
use fuseplan_gpu::{
    GROUP_COUNT, Geometry, INFERENCE, Kernel, MAX_WORDS, OPERATOR_COUNT, Planner, SIXTEEN_BITS, SPAN, binary,
    compile, load, pack,
};

use crate::function::{Cuda, CudaFunction};
use crate::solvers::MMA;

use plan::Plan;
use tensor_map::{MAP_WORDS, TensorMap};
use tiling::Way;

/// A solver: pixels come one way.
#[derive(Debug)]
pub(crate) struct Hopper {
    id: &'static str,
    constraints: &'static [Constraint],
    way: Way,
}

/// Channels innermost.
pub(crate) static COPIED: Hopper = Hopper {
    id: "cuda.conv_wgmma.v1",
    constraints: &[
        constraints::ARCHITECTURE,
        SIXTEEN_BITS,
        INFERENCE,
        OPERATOR_COUNT,
        constraints::CHANNEL_VALUES,
        constraints::FILTERS,
        constraints::LAYOUT,
        constraints::GROUPS,
        constraints::REACH,
        GROUP_COUNT,
        SPAN,
    ],
    way: Way::Copied,
};

/// Any other layout.
pub(crate) static GATHERED: Hopper = Hopper {
    id: "cuda.conv_wgmma_gather.v1",
    constraints: &[
        constraints::ARCHITECTURE,
        SIXTEEN_BITS,
        INFERENCE,
        OPERATOR_COUNT,
        constraints::CHANNEL_VALUES,
        constraints::SIZE,
        constraints::RUNS,
        constraints::GATHERED_LAYOUT,
        constraints::TAPS,
        GROUP_COUNT,
        SPAN,
    ],
    way: Way::Gathered,
};

impl Hopper {
    /// The plan of a problem that meets the constraints.
    pub(crate) fn plan(&self, problem: &Problem, arch: &str) -> Plan {
        plan::plan(self.way, problem, arch)
    }
}

/// What the copy engine reads is aligned to this.
const ALIGNMENT: usize = 16;

impl Planner for Hopper {
    fn kernel(&self, problem: &Problem, arch: &str) -> Kernel {
        self.plan(problem, arch).kernel
    }
}

impl Solver for Hopper {
    fn id(&self) -> &'static str {
        self.id
    }

    fn algorithm(&self) -> Algorithm {
        Algorithm::ImplicitGemm
    }

    fn constraints(&self) -> &'static [Constraint] {
        self.constraints
    }

    fn cache_key(&self, problem: &Problem, target: &DeviceInfo) -> Option<Vec<u8>> {
        let other = MMA.cache_key(problem, target)?;
        Some([binary::cache_key(&self.plan(problem, &target.arch).kernel.source), other].concat())
    }

    fn compile(&self, problem: &Problem, target: &DeviceInfo) -> Result<Binary, BuildError> {
        let text = self.plan(problem, &target.arch).kernel.source;
        // NVRTC works in several threads at once.
        let (image, other) = thread::scope(|scope| {
            let other = || MMA.compile(problem, target);
            let thread = thread::Builder::new().spawn_scoped(scope, other);
            let image = compile::<Cuda>(self.id, &text, &target.arch);
            let join =
                |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            (image, thread.map_or_else(|_| other(), join))
        });
        let (image, other) = (image?, other?);
        let images = [&(image.len() as u64).to_le_bytes(), &*image, &other.bytes].concat();
        Ok(binary::seal(self.id, &target.arch, &text, &images))
    }

    fn load(
        &self,
        problem: &Problem,
        device: &Arc<dyn Device>,
        binary: &Binary,
    ) -> Result<Arc<dyn Executable>, BuildError> {
        let arch = &device.info().arch;
        let plan = self.plan(problem, arch);
        let blocks = plan.blocks(device.info().compute_units as usize);
        let Plan { mut kernel, input, filters, output_alignment, .. } = plan;
        let images = binary::open(self.id, arch, &kernel.source, binary)?;
        let Some((image, other)) = split(images) else {
            return Err(BuildError::Binary { solver: self.id, reason: "it is cut off".into() });
        };
        let other = Binary { solver: MMA.id().into(), arch: arch.clone(), bytes: other.into() };
        let misaligned = MMA.load(problem, device, &other)?;
        kernel.geometry.grid[0] = blocks;
        let (function, mut info) = load::<Cuda>(self.id, self.algorithm(), &**device, &kernel, image)?;
        let other = misaligned.info();
        // Writing to a string cannot fail.
        let _ = write!(
            info.detail,
            "; for addresses that are not multiples of {ALIGNMENT} bytes: {}, {}",
            other.solver, other.detail
        );
        if let Some(resources) = other.resources {
            let _ = write!(info.detail, ", {resources}");
        }
        Ok(Arc::new(HopperExecutable {
            info,
            function,
            geometry: kernel.geometry,
            sizes: kernel.sizes,
            input,
            filters,
            output_alignment,
            misaligned,
        }))
    }
}

/// The first image, whose length stands before it, and the rest.
fn split(images: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, images) = images.split_first_chunk()?;
    images.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
}

#[derive(Debug)]
struct HopperExecutable {
    info: ExecutableInfo,
    function: CudaFunction,
    geometry: Geometry,
    sizes: Vec<i64>,
    input: Option<TensorMap>,
    filters: TensorMap,
    output_alignment: usize,
    /// For pointers that the copy engine does not take.
    misaligned: Arc<dyn Executable>,
}

impl HopperExecutable {
    /// The words of the text's `struct Launch`, and their number; `None` where the copy engine does not take
    /// the pointers. A context has to be current.
    ///
    /// # Errors
    /// The driver does not encode a tensor map.
    fn arguments(
        &self,
        args: &RunArgs<'_>,
        words: &mut [u64; MAX_WORDS],
    ) -> Result<Option<usize>, BackendError> {
        let weights = match args.ops.first().map(|op| &op.kind) {
            Some(OpArgsKind::ConvForward { weights, .. }) => *weights,
            _ => unreachable!("a constraint demands a convolution"),
        };
        let is_aligned = |pointer: *const c_void, alignment| pointer.addr().is_multiple_of(alignment);
        if !is_aligned(args.output, self.output_alignment) || !is_aligned(weights, ALIGNMENT) {
            return Ok(None);
        }
        if let Some(input) = &self.input {
            if !is_aligned(args.input, ALIGNMENT) {
                return Ok(None);
            }
            words[..MAP_WORDS].copy_from_slice(&input.encode(args.input)?);
        }
        words[MAP_WORDS..2 * MAP_WORDS].copy_from_slice(&self.filters.encode(weights)?);
        Ok(Some(2 * MAP_WORDS + pack(args, &self.sizes, &mut words[2 * MAP_WORDS..])))
    }
}

impl Executable for HopperExecutable {
    fn info(&self) -> &ExecutableInfo {
        &self.info
    }

    unsafe fn run(&self, stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError> {
        let mut words = [0; MAX_WORDS];
        let entered = self.function.enter()?;
        match self.arguments(args, &mut words)? {
            // SAFETY: these are the arguments of this kernel's text; the caller keeps what `RunArgs` promises.
            Some(count) => Ok(unsafe {
                self.function.launch_entered(&entered, stream, &self.geometry, &words[..count])
            }?),
            // SAFETY: an executable of the same problem and device.
            None => unsafe { self.misaligned.run(stream, args) },
        }
    }
}

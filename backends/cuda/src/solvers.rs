//! The solvers, and how their kernels are loaded and launched.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use fuseplan_api::{
    Algorithm, BackendError, Constraint, DataType, Device, MathMode, Problem, RawStream, Solver,
};
use fuseplan_gpu::{
    Access, CompileFailure, DATA_TYPE, Function, GEMM, Geometry, INFERENCE, JitSolver, Kernel, MainLoop,
    OPERATOR_COUNT, Probe, Resources, Runtime, SPAN, Tile, ffma, implicit_gemm,
};

use crate::driver::{Context, Entered, call};
use crate::hopper;
use crate::sys::{self, Opaque};
use crate::{CudaDevice, arch, ceilings, compiler};

/// Solvers, best first; the direct kernel takes every plan for inference.
pub(crate) static SOLVERS: [&dyn Solver; 8] =
    [&DEPTHWISE_CONV, &hopper::COPIED, &hopper::GATHERED, &MMA, &FFMA, &ELEMENT_WISE, &BATCH_NORM, &DIRECT];

/// The kernel of the solver with this id.
pub(crate) fn kernel(id: &str, problem: &Problem, arch: &str) -> Option<Kernel> {
    if let Some(hopper) = [&hopper::COPIED, &hopper::GATHERED].into_iter().find(|solver| solver.id() == id) {
        return Some(hopper.plan(problem, arch).kernel);
    }
    let compiled = [&DEPTHWISE_CONV, &MMA, &FFMA, &ELEMENT_WISE, &BATCH_NORM, &DIRECT];
    Some(compiled.into_iter().find(|solver| solver.id() == id)?.kernel(problem, arch))
}

static DEPTHWISE_CONV: JitSolver<Cuda> = JitSolver::depthwise("cuda.conv_depthwise.v1");

pub(crate) static MMA: JitSolver<Cuda> = JitSolver::new(
    "cuda.conv_mma.v1",
    Algorithm::ImplicitGemm,
    &[TENSOR_CORE_TYPES, TENSOR_CORES, INFERENCE, OPERATOR_COUNT, GEMM, SPAN],
    |problem, arch| implicit_gemm(Cuda::VENDOR, problem, &mma(), Cuda::units(arch)),
);

static FFMA: JitSolver<Cuda> = JitSolver::new(
    "cuda.conv_ffma.v1",
    Algorithm::ImplicitGemm,
    &[DATA_TYPE, INFERENCE, OPERATOR_COUNT, GEMM, SPAN],
    |problem, arch| implicit_gemm(Cuda::VENDOR, problem, &ffma(), Cuda::units(arch)),
);

static ELEMENT_WISE: JitSolver<Cuda> = JitSolver::element_wise("cuda.element_wise.v1");

static BATCH_NORM: JitSolver<Cuda> = JitSolver::batch_norm("cuda.batch_norm_training.v1");

static DIRECT: JitSolver<Cuda> = JitSolver::direct("cuda.direct.v1");

const TENSOR_CORE_TYPES: Constraint = Constraint {
    property: "data type",
    accepts: "f16, bf16, f32 where TF32 is allowed",
    check: |problem, _| match (problem.output.data_type(), problem.math) {
        (DataType::Half | DataType::BFloat16, _) | (DataType::Float, MathMode::AllowTf32) => None,
        (data_type, _) => Some(data_type.to_string()),
    },
};

const TENSOR_CORES: Constraint = Constraint {
    property: "architecture",
    accepts: "sm_80 and later",
    check: |_, device| {
        let known = arch::named(&device.arch).is_some_and(|arch| arch.capability >= (8, 0));
        (!known).then(|| device.arch.clone())
    },
};

/// `mma.sync` with `cp.async`.
fn mma() -> MainLoop {
    const fn tiles(depth: usize) -> [Tile; 5] {
        const fn tile([pixels, filters, depth]: [usize; 3], threads: usize, rate: usize) -> Tile {
            Tile { pixels, filters, depth, threads, rate }
        }
        // Rates as seen on an H200. A thread of the largest has 128 registers: too few for deep steps.
        [
            tile([128, 128, 32], 256, 340),
            tile([64, 128, depth], 128, 320),
            tile([128, 64, depth], 128, 255),
            tile([64, 64, depth], 128, 220),
            tile([128, 32, depth], 128, 160),
        ]
    }
    const SHALLOW: [Tile; 5] = tiles(32);
    const DEEP: [Tile; 5] = tiles(64);
    MainLoop {
        text: include_str!("../kernels/mma.cuh"),
        name: "mma.sync",
        tiles: |access| {
            let deep = access.depth % 64 == 0 && access.element == 2 && !through_registers(access);
            // The largest has too few registers for TF32, and loses to deep steps where chunks are copied.
            let largest = access.element == 2 && !(deep && access.image_chunks);
            let tiles = if deep { &DEEP } else { &SHALLOW };
            &tiles[usize::from(!largest)..]
        },
        constants: |tile, access| {
            let warps = tile.threads / 32;
            // Warps as square as can be read least from shared memory.
            let filters = (0..=warps.ilog2())
                .map(|power| 1 << power)
                .filter(|filters| tile.filters / filters >= 16 && tile.pixels * filters / warps >= 16)
                .min_by_key(|filters| tile.filters / filters + tile.pixels * filters / warps)
                .unwrap_or(1);
            vec![
                ("STAGES", stages(tile, access)),
                ("OCCUPANCY", tile.threads / 128),
                ("WARPS_P", warps / filters),
                ("WARPS_F", filters),
            ]
        },
        shared: |tile, access| {
            let row = tile.depth * access.element;
            let image = match (access.image_chunks, access.element) {
                (true, _) => tile.pixels * row,
                (false, 2) => tile.depth * tile.pixels * 2,
                (false, element) => tile.depth * (tile.pixels + 8) * element,
            };
            let places = tile.depth * size_of::<[u32; 2]>();
            stages(tile, access) * (image + tile.filters * row + places)
        },
        part: |tile| tile.pixels,
    }
}

/// Whether the tensor cores' main loop takes the image through registers, one 16-bit element at a time.
fn through_registers(access: &Access) -> bool {
    !access.image_chunks && access.image_run * access.element == 2
}

/// Buffers of the tensor cores' main loop. What goes through registers is a step ahead anyway.
fn stages(tile: &Tile, access: &Access) -> usize {
    if !through_registers(access) && tile.depth * access.element == 64 { 4 } else { 3 }
}

/// The CUDA runtime of the shared solvers: NVRTC and the driver.
#[derive(Debug)]
pub(crate) struct Cuda;

impl Runtime for Cuda {
    type Function = CudaFunction;

    const VENDOR: &'static str = include_str!("../kernels/vendor.cuh");

    fn units(arch: &str) -> usize {
        arch::named(arch).map_or(1, |arch| arch.units as usize)
    }

    fn products(data_type: DataType, arch: &str) -> Probe {
        ceilings::products(data_type, arch)
    }

    fn compile(source: &str, arch: &str) -> Result<Arc<[u8]>, CompileFailure> {
        compiler::compile(source, arch).map(|compiled| compiled.image)
    }

    fn load(device: &dyn Device, image: &[u8], geometry: &Geometry) -> Result<CudaFunction, BackendError> {
        CudaFunction::load(CudaDevice::of(device)?, image, geometry)
    }
}

/// How many blocks a multiprocessor has room for at once, if the driver says.
fn resident(function: Opaque, geometry: &Geometry) -> Option<u32> {
    let (mut blocks, block, shared) = (0, geometry.block as i32, geometry.shared as usize);
    // SAFETY: the function is loaded; the driver writes the number.
    unsafe { call!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, block, shared)) }
        .ok()?;
    u32::try_from(blocks).ok()
}

/// A loaded kernel.
#[derive(Debug)]
pub(crate) struct CudaFunction {
    function: Opaque,
    /// Which keeps the kernel.
    context: Arc<Context>,
    resources: Resources,
}

impl CudaFunction {
    /// Loads a cubin for the device's architecture.
    pub(crate) fn load(device: &CudaDevice, image: &[u8], geometry: &Geometry) -> Result<Self, BackendError> {
        let context = device.context();
        let _entered = context.enter()?;
        let function = context.modules().function(image, geometry.shared)?;
        let attribute = |which| -> Result<u32, BackendError> {
            let mut value = 0;
            // SAFETY: the function is of a loaded module; the driver writes the number.
            unsafe { call!(cuFuncGetAttribute(&mut value, which, function)) }?;
            Ok(value.max(0) as u32)
        };
        let resources = Resources {
            registers: attribute(sys::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local: attribute(sys::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared: attribute(sys::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            resident: resident(function, geometry),
        };
        Ok(CudaFunction { function, context: context.clone(), resources })
    }
}

impl CudaFunction {
    /// Makes its context the thread's current one until the result is dropped.
    pub(crate) fn enter(&self) -> Result<Entered, BackendError> {
        self.context.enter()
    }
}

// SAFETY: a function is an address that only the driver dereferences, which takes it from any thread; nothing changes
// it after loading but its limit of shared memory, which the driver guards.
unsafe impl Send for CudaFunction {}
// SAFETY: as above.
unsafe impl Sync for CudaFunction {}

impl Function for CudaFunction {
    fn resources(&self) -> Resources {
        self.resources
    }

    unsafe fn launch(
        &self,
        stream: RawStream,
        geometry: &Geometry,
        arguments: &[u64],
    ) -> Result<(), BackendError> {
        let _entered = self.context.enter()?;
        let ([x, y, z], block, shared) = (geometry.grid, geometry.block, geometry.shared);
        let mut parameters: [*mut c_void; 1] = [arguments.as_ptr().cast_mut().cast()];
        let (parameters, none) = (parameters.as_mut_ptr(), ptr::null_mut());
        // SAFETY: the kernel's one parameter is a structure of these words, which the driver copies; the
        // caller answers for what they point to and for the stream.
        unsafe {
            call!(cuLaunchKernel(self.function, x, y, z, block, 1, 1, shared, stream, parameters, none))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CudaBackend;
    use fuseplan_api::{
        ActivationMode, Backend, ConvolutionDescriptor, DataType, MathMode, Op, TensorDescriptor,
    };

    /// The solvers that take a convolution of as many channels, with ReLU behind it.
    fn takers(lens: [usize; 4], groups: usize, pad: usize) -> Vec<&'static str> {
        let of = |lens| TensorDescriptor::nchw(DataType::Half, lens).unwrap();
        let conv = ConvolutionDescriptor::new_2d([pad, 1], [1, 1], [pad, 1]).unwrap();
        let conv = conv.with_groups(groups).unwrap();
        let (input, weights) = (of(lens), of([lens[1], lens[1] / groups, 3, 3]));
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops =
            vec![Op::ConvForward { conv, weights }, Op::ActivationForward { mode: ActivationMode::Relu }];
        let problem = Problem { input, output, ops, math: MathMode::Precise };
        let target = CudaBackend.target("sm_90a").unwrap();
        let takes = |solver: &&&dyn Solver| solver.applies(&problem, &target).is_ok();
        SOLVERS.iter().filter(takes).map(|solver| solver.id()).collect()
    }

    #[test]
    fn only_the_direct_kernel_takes_offsets_beyond_32_bits() {
        let direct = [DIRECT.id()];
        assert_eq!(takers([1, 32, 100, 10000], 32, 1), [DEPTHWISE_CONV.id(), direct[0]]);
        assert_eq!(takers([1, 2, 65536, 65536], 2, 1), direct);
        assert_eq!(takers([1, 32, 100, 10000], 32, 300_000), direct);
        assert!(takers([1, 32, 100, 10000], 1, 1).len() > 2);
        assert_eq!(takers([1, 32, 100, 10000], 1, 300_000), direct);
    }
}

//! The solvers, and how their kernels are loaded and launched.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use fuseplan_api::{Algorithm, BackendError, DataType, Device, Problem, RawStream, Solver};
use fuseplan_gpu::{
    CompileFailure, DATA_TYPE, Function, GEMM, Geometry, INFERENCE, JitSolver, Kernel, MainLoop,
    OPERATOR_COUNT, Probe, Resources, Runtime, SIXTEEN_BITS, SPAN, Tile, ffma, implicit_gemm,
};
use fuseplan_hip_sys::{hipFunction_attribute as Attribute, hipFunction_t};

use crate::device::Modules;
use crate::driver::call;
use crate::matrix::{HAS_MFMA, HAS_WMMA, mfma, wmma};
use crate::{BACKEND, RocmDevice, arch, ceilings, compiler, estimate};

/// Solvers, best first; the direct kernel takes every plan for inference.
pub(crate) static SOLVERS: [&dyn Solver; 7] =
    [&DEPTHWISE_CONV, &MFMA, &WMMA, &FFMA, &ELEMENT_WISE, &BATCH_NORM, &DIRECT];

/// The solver with this id.
pub(crate) fn by_id(id: &str) -> Option<&'static JitSolver<Rocm>> {
    [&DEPTHWISE_CONV, &MFMA, &WMMA, &FFMA, &ELEMENT_WISE, &BATCH_NORM, &DIRECT]
        .into_iter()
        .find(|solver| solver.id() == id)
}

static DEPTHWISE_CONV: JitSolver<Rocm> = JitSolver::depthwise("rocm.conv_depthwise.v1");

static MFMA: JitSolver<Rocm> = JitSolver::new(
    "rocm.conv_mfma.v1",
    Algorithm::ImplicitGemm,
    &[HAS_MFMA, DATA_TYPE, INFERENCE, OPERATOR_COUNT, GEMM, SPAN],
    |problem, arch| on_matrix_cores(problem, arch, &mfma()),
);

static WMMA: JitSolver<Rocm> = JitSolver::new(
    "rocm.conv_wmma.v1",
    Algorithm::ImplicitGemm,
    &[HAS_WMMA, SIXTEEN_BITS, INFERENCE, OPERATOR_COUNT, GEMM, SPAN],
    |problem, arch| on_matrix_cores(problem, arch, &wmma()),
);

static FFMA: JitSolver<Rocm> = JitSolver::new(
    "rocm.conv_ffma.v1",
    Algorithm::ImplicitGemm,
    &[DATA_TYPE, INFERENCE, OPERATOR_COUNT, GEMM, SPAN],
    |problem, arch| implicit_gemm(Rocm::VENDOR, problem, &fma(), Rocm::units(arch)),
);

static ELEMENT_WISE: JitSolver<Rocm> = JitSolver::element_wise("rocm.element_wise.v1");

static BATCH_NORM: JitSolver<Rocm> = JitSolver::batch_norm("rocm.batch_norm_training.v1");

static DIRECT: JitSolver<Rocm> = JitSolver::direct("rocm.direct.v1");

/// An implicit matrix product, with the time that it cannot beat among the choices made.
fn on_matrix_cores(problem: &Problem, arch: &str, main_loop: &MainLoop) -> Kernel {
    let mut kernel = implicit_gemm(Rocm::VENDOR, problem, main_loop, Rocm::units(arch));
    if let Some(shortest) = estimate::shortest(problem, arch) {
        kernel.detail = format!("{}; {shortest}", kernel.detail);
    }
    kernel
}

/// The shared main loop in f32; its sums of a tile fit 64 KiB of shared memory.
fn fma() -> MainLoop {
    const fn tile(pixels: usize, filters: usize, rate: usize) -> Tile {
        Tile { pixels, filters, depth: 16, threads: pixels * filters / 64, rate }
    }
    MainLoop {
        name: "FMA",
        tiles: |_| const { &[tile(128, 64, 95), tile(64, 64, 85)] },
        // Of a whole step the compiler reads all operands at once, and has no registers left.
        constants: |_, _| vec![("OCCUPANCY", 1), ("UNROLL", 4)],
        part: |tile| tile.pixels,
        ..ffma()
    }
}

/// The ROCm runtime of the shared solvers: hiprtc and HIP.
#[derive(Debug)]
pub(crate) struct Rocm;

impl Runtime for Rocm {
    type Function = RocmFunction;

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

    /// A code object that the runtime rejects is an error; a cached one is then compiled again.
    fn load(device: &dyn Device, image: &[u8], geometry: &Geometry) -> Result<RocmFunction, BackendError> {
        let foreign = BackendError::Unsupported { backend: BACKEND, what: "a device of another backend" };
        let device: &RocmDevice = device.as_any().downcast_ref().ok_or(foreign)?;
        let modules = device.modules().clone();
        let hip = modules.context.hip;
        let module = modules.get(image)?;
        let _entered = modules.context.enter()?;
        let (name, mut function) = (CString::new(Kernel::NAME).unwrap_or_default(), ptr::null_mut());
        // SAFETY: the module is loaded, and the name ends in a zero.
        unsafe { call!(hip, hipModuleGetFunction(&mut function, module, name.as_ptr())) }?;
        let attribute = |which| -> Result<u32, BackendError> {
            let mut value = 0;
            // SAFETY: the function is of the loaded module; the runtime writes the number.
            unsafe { call!(hip, hipFuncGetAttribute(&mut value, which, function)) }?;
            Ok(value.max(0) as u32)
        };
        let (mut blocks, block, shared) = (0, geometry.block as i32, geometry.shared as usize);
        // SAFETY: the function is of the loaded module; the runtime writes the number.
        let resident = unsafe {
            call!(
                hip,
                hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, block, shared)
            )
        };
        let resources = Resources {
            registers: attribute(Attribute::HIP_FUNC_ATTRIBUTE_NUM_REGS)?,
            local: attribute(Attribute::HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared: attribute(Attribute::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            resident: resident.ok().map(|()| blocks.max(0) as u32),
        };
        Ok(RocmFunction { function, modules, resources })
    }
}

/// A loaded kernel.
#[derive(Debug)]
pub(crate) struct RocmFunction {
    function: hipFunction_t,
    modules: Arc<Modules>,
    resources: Resources,
}

// SAFETY: the function is an address that only the runtime dereferences, which takes it from any thread;
// nothing changes it after loading.
unsafe impl Send for RocmFunction {}
// SAFETY: as above.
unsafe impl Sync for RocmFunction {}

impl Function for RocmFunction {
    fn resources(&self) -> Resources {
        self.resources
    }

    unsafe fn launch(
        &self,
        stream: RawStream,
        geometry: &Geometry,
        arguments: &[u64],
    ) -> Result<(), BackendError> {
        let context = &self.modules.context;
        let _entered = context.enter()?;
        let ([x, y, z], block, shared) = (geometry.grid, geometry.block, geometry.shared);
        let mut bytes = size_of_val(arguments);
        // HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END.
        let [pointer, size, end] = [1, 2, 3].map(ptr::without_provenance_mut::<c_void>);
        let mut buffer: [*mut c_void; 5] =
            [pointer, arguments.as_ptr().cast_mut().cast(), size, (&raw mut bytes).cast(), end];
        let (none, buffer) = (ptr::null_mut(), buffer.as_mut_ptr());
        // SAFETY: the kernel's one parameter is a structure of these words, which the runtime copies; the
        // caller answers for what they point to and for the stream.
        unsafe {
            call!(
                context.hip,
                hipModuleLaunchKernel(
                    self.function,
                    x,
                    y,
                    z,
                    block,
                    1,
                    1,
                    shared,
                    stream.cast(),
                    none,
                    buffer
                )
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RocmBackend;
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
        let target = RocmBackend.target("gfx942").unwrap();
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

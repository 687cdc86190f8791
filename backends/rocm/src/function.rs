//! How kernels are compiled, loaded and launched.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use fuseplan_api::{BackendError, DataType, Device, Problem, RawStream, Resources};
use fuseplan_gpu::{CompileFailure, Function, Geometry, Kernel, Probe, Runtime};
use fuseplan_hip_sys::{hipFunction_attribute as Attribute, hipFunction_t};

use crate::device::Modules;
use crate::driver::call;
use crate::{BACKEND, RocmDevice, arch, ceilings, compiler, estimate, solvers};

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

    fn estimate(solver: &'static str, problem: &Problem, arch: &str) -> Option<String> {
        estimate::shortest(problem, arch, solvers::on_matrix_cores(solver))
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
            blocks: geometry.grid,
            threads: geometry.block,
            registers: attribute(Attribute::HIP_FUNC_ATTRIBUTE_NUM_REGS)?,
            local: attribute(Attribute::HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared: attribute(Attribute::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)? + geometry.shared,
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

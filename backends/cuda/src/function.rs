//! How kernels are compiled, loaded and launched.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use fuseplan_api::{BackendError, DataType, Device, RawStream, Resources};
use fuseplan_gpu::{CompileFailure, Function, Geometry, Probe, Runtime};

use crate::driver::{Context, Entered, call};
use crate::sys::{self, Opaque};
use crate::{CudaDevice, arch, ceilings, compiler};

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
            blocks: geometry.grid,
            threads: geometry.block,
            registers: attribute(sys::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local: attribute(sys::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared: attribute(sys::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)? + geometry.shared,
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

    /// [`Function::launch`] by one who has entered the function's context.
    ///
    /// # Safety
    /// As that one's.
    pub(crate) unsafe fn launch_entered(
        &self,
        _: &Entered,
        stream: RawStream,
        geometry: &Geometry,
        arguments: &[u64],
    ) -> Result<(), BackendError> {
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
        let entered = self.enter()?;
        // SAFETY: as promised by the caller.
        unsafe { self.launch_entered(&entered, stream, geometry, arguments) }
    }
}

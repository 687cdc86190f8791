//! What devices there are.

use std::ffi::{c_char, c_int};
use std::ptr;

use fuseplan_api::{BackendError, DeviceInfo};

use crate::context::Cuda;
use crate::driver::{self, call};
use crate::sys::{self, CUdevice};
use crate::{BACKEND, arch, compiler, library};

/// How many devices the driver has, which is initialised then.
pub(crate) fn count() -> Result<u32, BackendError> {
    driver::initialise()?;
    let mut count = 0;
    // SAFETY: the driver is initialised and writes the number.
    unsafe { call!(cuDeviceGetCount(&mut count)) }?;
    Ok(count.max(0) as u32)
}

/// The driver's name for a device.
pub(crate) fn handle(ordinal: u32) -> Result<CUdevice, BackendError> {
    let mut device = 0;
    // SAFETY: the driver is initialised and writes the device.
    unsafe { call!(cuDeviceGet(&mut device, ordinal as c_int)) }?;
    Ok(device)
}

/// The ordinal of a context's device.
pub(crate) fn ordinal_of(context: &Cuda) -> Result<Option<u32>, BackendError> {
    for ordinal in 0..count()? {
        if handle(ordinal)? == context.device() {
            return Ok(Some(ordinal));
        }
    }
    Ok(None)
}

/// The ordinal of the device of the calling thread's current context, if there is one.
pub(crate) fn current_device() -> Option<u32> {
    driver::initialise().ok()?;
    // SAFETY: null asks for the context that is current now; the result does not leave this function.
    let context = unsafe { Cuda::adopt(ptr::null_mut()) }.ok()?;
    ordinal_of(&context).ok()?
}

/// A number of a device.
fn attribute(device: CUdevice, which: c_int) -> Result<u32, BackendError> {
    let mut value = 0;
    // SAFETY: the driver writes the number.
    unsafe { call!(cuDeviceGetAttribute(&mut value, which, device)) }?;
    Ok(value.max(0) as u32)
}

/// Whether kernels are launched while the grid before them in the stream still runs (programmatic dependent launch): the
/// device can from compute capability 9.0 on, and drivers for CUDA 12.3 and later do so in graphs, too.
pub(crate) fn overlaps(device: CUdevice) -> Result<bool, BackendError> {
    let able = attribute(device, sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? >= 9;
    Ok(able && library::driver()?.cuLaunchKernelEx.is_some() && driver::version()? >= (12, 3))
}

/// A device of the initialised driver.
pub(crate) fn describe(ordinal: u32) -> Result<DeviceInfo, BackendError> {
    let device = handle(ordinal)?;
    let attribute = |which| attribute(device, which);
    let mut name = [0; 256];
    let mut memory = 0;
    // SAFETY: the driver writes at most as many bytes as it is told, with a final zero, and the numbers.
    unsafe {
        call!(cuDeviceGetName(name.as_mut_ptr().cast::<c_char>(), name.len() as c_int, device))?;
        call!(cuDeviceTotalMem_v2(&mut memory, device))?;
    }
    let name: Vec<u8> = name.into_iter().take_while(|&byte| byte != 0).collect();
    let capability = (
        attribute(sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    let name = String::from_utf8_lossy(&name).into_owned();
    let Some(arch) = arch::of_capability(capability) else {
        let (major, minor) = capability;
        return Err(BackendError::Unavailable {
            backend: BACKEND,
            reason: format!(
                "device {ordinal}, {name}, has compute capability {major}.{minor}; 7.0 and later that \
                             this version knows are supported"
            ),
        });
    };
    Ok(DeviceInfo {
        backend: BACKEND,
        ordinal,
        name,
        arch: arch.name.into(),
        toolchain: compiler::version(),
        compute_units: attribute(sys::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        lanes: attribute(sys::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
        local_memory: attribute(sys::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize,
        memory: memory as u64,
    })
}

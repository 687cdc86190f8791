//! What devices there are.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use fuseplan_api::{BackendError, DeviceInfo};
use fuseplan_hip_sys::{hipDeviceAttribute_t as Attribute, hipDeviceProp_tR0600};

use crate::driver::{self, call};
use crate::{BACKEND, arch, compiler};

/// The ordinal of the calling thread's current device, if there is a device.
pub(crate) fn current_device() -> Option<u32> {
    let count = driver::initialise().ok()?;
    let mut ordinal = 0;
    // SAFETY: the runtime is initialised and writes the number.
    unsafe { call!(hipGetDevice(&mut ordinal)) }.ok()?;
    u32::try_from(ordinal).ok().filter(|&ordinal| ordinal < count)
}

/// A device of the initialised runtime.
pub(crate) fn describe(ordinal: u32) -> Result<DeviceInfo, BackendError> {
    let device = ordinal as c_int;
    let mut properties = MaybeUninit::<hipDeviceProp_tR0600>::zeroed();
    // SAFETY: the runtime fills the structure, for which zeros are valid too.
    let properties = unsafe {
        call!(hipGetDevicePropertiesR0600(properties.as_mut_ptr(), device))?;
        properties.assume_init()
    };
    let attribute = |which| -> Result<u32, BackendError> {
        let mut value = 0;
        // SAFETY: the runtime writes the number.
        unsafe { call!(hipDeviceGetAttribute(&mut value, which, device)) }?;
        Ok(value.max(0) as u32)
    };
    let (name, arch) = (text(&properties.name), text(&properties.gcnArchName));
    let refuse = |reason: String| {
        let reason = format!("device {ordinal}, {name}, {reason}");
        Err(BackendError::Unavailable { backend: BACKEND, reason })
    };
    let Some(known) = arch::named(&arch) else {
        let names = arch::ARCHS.map(|arch| arch.name).join(", ");
        return refuse(format!("is {arch}; supported are {names}"));
    };
    let wave = attribute(Attribute::hipDeviceAttributeWarpSize)?;
    if wave != known.wave {
        return refuse(format!(
            "says that its waves have {wave} threads; those of {arch} have {}",
            known.wave
        ));
    }
    Ok(DeviceInfo {
        backend: BACKEND,
        ordinal,
        toolchain: compiler::version(),
        compute_units: attribute(Attribute::hipDeviceAttributeMultiprocessorCount)?,
        lanes: wave,
        local_memory: attribute(Attribute::hipDeviceAttributeMaxSharedMemoryPerBlock)? as usize,
        memory: properties.totalGlobalMem as u64,
        name,
        arch,
    })
}

/// The text in a field, which ends in a zero or where the field ends.
fn text(field: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

//! The backends of this build, and the choice of one and of its device for who has not named any.

use fuseplan_api::{Backend, BackendError, Discovery, call};

/// The backends of this build, the preferred first.
pub fn backends() -> &'static [&'static dyn Backend] {
    static BACKENDS: &[&dyn Backend] = &[
        #[cfg(feature = "cuda")]
        &fuseplan_cuda::CudaBackend,
        #[cfg(feature = "rocm")]
        &fuseplan_rocm::RocmBackend,
        &fuseplan_cpu::CpuBackend,
    ];
    BACKENDS
}

/// The backend of this name.
pub(crate) fn named(name: &str) -> Result<&'static dyn Backend, BackendError> {
    let found = backends().iter().find(|backend| backend.name() == name).copied();
    found.ok_or_else(|| BackendError::Unavailable {
        backend: "fuseplan",
        reason: format!(
            "there is no backend `{name}`; this build has {}",
            backends().iter().map(|backend| backend.name()).collect::<Vec<_>>().join(", ")
        ),
    })
}

/// What a backend found on this machine.
///
/// # Errors
/// A name that is no backend of this build.
pub fn discover(name: &str) -> Result<Discovery, BackendError> {
    let backend = named(name)?;
    Ok(call(|| backend.discover()))
}

/// The first backend that has a device and can compile for it. A device without a compiler runs only what was
/// compiled before, so it is passed over. The CPU always has a device and needs no compiler.
pub(crate) fn best() -> &'static str {
    let compiles = |backend: &&&dyn Backend| {
        let devices = backend.discover().devices;
        let compiles = devices.iter().any(|device| !device.toolchain.is_empty());
        if let Some(device) = devices.first().filter(|_| !compiles) {
            let (backend, device) = (backend.name(), &device.name);
            tracing::warn!(target: "fuseplan::handle", "{backend}: {device} is passed over, as there is no compiler for it; FUSEPLAN_BACKEND={backend} uses it for what was compiled before");
        }
        compiles
    };
    backends().iter().find(compiles).map_or("cpu", |backend| backend.name())
}

/// The ordinal of the device that the calling thread has chosen by the vendor's own means, else of the first that
/// can be used.
///
/// # Errors
/// As [`discover`].
pub(crate) fn chosen_device(name: &str) -> Result<u32, BackendError> {
    let backend = named(name)?;
    Ok(call(|| choose_device(&backend.discover(), backend.current_device())))
}

/// The ordinal of the device to open: the current one if it can be used, else the first that can. Where there is
/// none, opening says why.
fn choose_device(discovery: &Discovery, current: Option<u32>) -> u32 {
    let mut usable = discovery.devices.iter().map(|device| device.ordinal);
    let Some(first) = usable.clone().next() else { return current.unwrap_or(0) };
    match current {
        Some(current) if usable.any(|ordinal| ordinal == current) => current,
        None => first,
        Some(current) => {
            let notes = discovery.notes.join("; ");
            tracing::warn!(target: "fuseplan::handle", "the current device, {current}, cannot be used, {first} is: {notes}");
            first
        }
    }
}

#[cfg(test)]
mod tests {
    use fuseplan_api::DeviceInfo;

    use super::*;

    #[test]
    fn a_device_that_cannot_be_used_is_passed_over() {
        let info = discover("cpu").unwrap().devices.remove(0);
        let device = |ordinal| DeviceInfo { ordinal, ..info.clone() };
        let of = |ordinals: &[u32]| Discovery {
            devices: ordinals.iter().copied().map(device).collect(),
            notes: vec!["device 0 is too old".into()],
        };
        assert_eq!(choose_device(&of(&[0, 1]), None), 0);
        assert_eq!(choose_device(&of(&[0, 1]), Some(1)), 1);
        assert_eq!(choose_device(&of(&[1, 2]), None), 1);
        assert_eq!(choose_device(&of(&[1, 2]), Some(0)), 1);
        assert_eq!(choose_device(&of(&[1, 2]), Some(2)), 2);
        assert_eq!((choose_device(&of(&[]), None), choose_device(&of(&[]), Some(3))), (0, 3));
    }
}

//! Architectures by their names.

use fuseplan_api::{BackendError, DeviceInfo};

use crate::{BACKEND, compiler};

/// An architecture: name, compute capability, multiprocessors of its largest chip, bytes of shared memory
/// that a block may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arch {
    pub(crate) name: &'static str,
    pub(crate) capability: (u32, u32),
    pub(crate) units: u32,
    pub(crate) shared: usize,
}

const fn arch(name: &'static str, capability: (u32, u32), units: u32, shared: usize) -> Arch {
    Arch { name, capability, units, shared: shared * 1024 }
}

/// Every known architecture. Hopper's devices are of the one with the `a` of features that later ones need not have:
/// kernels use them. No kernel does on others.
pub(crate) const ARCHS: [Arch; 15] = [
    arch("sm_70", (7, 0), 80, 96),
    arch("sm_72", (7, 2), 8, 96),
    arch("sm_75", (7, 5), 72, 64),
    arch("sm_80", (8, 0), 108, 163),
    arch("sm_86", (8, 6), 84, 99),
    arch("sm_87", (8, 7), 16, 163),
    arch("sm_88", (8, 8), 16, 99),
    arch("sm_89", (8, 9), 142, 99),
    arch("sm_90a", (9, 0), 132, 227),
    arch("sm_90", (9, 0), 132, 227),
    arch("sm_100", (10, 0), 148, 227),
    arch("sm_103", (10, 3), 148, 227),
    arch("sm_110", (11, 0), 20, 227),
    arch("sm_120", (12, 0), 188, 99),
    arch("sm_121", (12, 1), 48, 99),
];

/// The architecture with this name.
pub(crate) fn named(name: &str) -> Option<&'static Arch> {
    ARCHS.iter().find(|arch| arch.name == name)
}

/// The architecture that kernels for a device of this compute capability are compiled for: its own, else
/// the nearest earlier one of the same family, whose kernels it runs.
pub(crate) fn of_capability(capability: (u32, u32)) -> Option<&'static Arch> {
    let exact = ARCHS.iter().find(|arch| arch.capability == capability);
    let earlier = |arch: &&Arch| {
        arch.capability.0 == capability.0 && arch.capability.1 < capability.1 && !arch.name.ends_with('a')
    };
    exact.or_else(|| ARCHS.iter().filter(earlier).max_by_key(|arch| arch.capability))
}

/// Describes an architecture with no device.
pub(crate) fn target(name: &str) -> Result<DeviceInfo, BackendError> {
    let arch = named(name).ok_or_else(|| BackendError::UnknownArch {
        backend: BACKEND,
        arch: name.into(),
        known: ARCHS.map(|arch| arch.name).join(", "),
    })?;
    Ok(DeviceInfo {
        backend: BACKEND,
        ordinal: 0,
        name: name.into(),
        arch: name.into(),
        toolchain: compiler::version(),
        compute_units: arch.units,
        lanes: 32,
        local_memory: arch.shared,
        memory: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_need_no_device() {
        let info = target("sm_90a").unwrap();
        assert_eq!((info.backend, info.arch.as_str(), info.compute_units), ("cuda", "sm_90a", 132));
        let error = target("gfx942").unwrap_err().to_string();
        assert!(error.starts_with("cuda: unknown architecture `gfx942`; known: sm_70, "), "{error}");
    }

    #[test]
    fn devices_find_the_kernels_they_run() {
        let of = |major, minor| of_capability((major, minor)).map(|arch| arch.name);
        assert_eq!(of(9, 0), Some("sm_90a"));
        assert_eq!(of(10, 0), Some("sm_100"));
        assert_eq!(of(8, 6), Some("sm_86"));
        assert_eq!(of(12, 3), Some("sm_121"));
        assert_eq!(of(10, 7), Some("sm_103"));
        assert_eq!(of(6, 1), None);
        assert_eq!(of(15, 0), None);
    }
}

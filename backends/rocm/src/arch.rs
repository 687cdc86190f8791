//! Architectures by their names, as LLVM and `gcnArchName` give them: a processor, and for some processors
//! whether two of its features are on, such as `gfx942:sramecc+:xnack-`.

use fuseplan_api::{BackendError, DeviceInfo};

use crate::{BACKEND, compiler};

/// A processor: name, threads of a wave, compute units of its largest chip, bytes of shared memory that a
/// block may have, the first HIP whose compiler knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arch {
    pub(crate) name: &'static str,
    pub(crate) wave: u32,
    pub(crate) units: u32,
    pub(crate) shared: usize,
    pub(crate) since: (i32, i32),
}

const fn arch(name: &'static str, wave: u32, units: u32, shared: usize, since: (i32, i32)) -> Arch {
    Arch { name, wave, units, shared: shared * 1024, since }
}

/// Every known processor.
pub(crate) const ARCHS: [Arch; 16] = [
    arch("gfx906", 64, 64, 64, (5, 0)),
    arch("gfx908", 64, 120, 64, (5, 0)),
    arch("gfx90a", 64, 110, 64, (5, 0)),
    arch("gfx942", 64, 304, 64, (5, 7)),
    arch("gfx950", 64, 256, 160, (6, 4)),
    arch("gfx1030", 32, 80, 64, (5, 0)),
    arch("gfx1031", 32, 40, 64, (5, 0)),
    arch("gfx1032", 32, 32, 64, (5, 0)),
    arch("gfx1100", 32, 96, 64, (5, 7)),
    arch("gfx1101", 32, 60, 64, (5, 7)),
    arch("gfx1102", 32, 32, 64, (5, 7)),
    arch("gfx1103", 32, 12, 64, (5, 7)),
    arch("gfx1150", 32, 16, 64, (5, 7)),
    arch("gfx1151", 32, 40, 64, (5, 7)),
    arch("gfx1200", 32, 32, 64, (6, 4)),
    arch("gfx1201", 32, 64, 64, (6, 4)),
];

/// Features that a name may say, in this order, of processors that have them.
const FEATURES: [&str; 2] = ["sramecc", "xnack"];

/// The processor of an architecture's full name. Older compilers end the process at a name that they do not
/// know, so no other name must reach them.
pub(crate) fn named(name: &str) -> Option<&'static Arch> {
    let (processor, features) = name.split_once(':').map_or((name, None), |(name, rest)| (name, Some(rest)));
    let arch = ARCHS.iter().find(|arch| arch.name == processor)?;
    let mut left = FEATURES.iter().filter(|_| arch.wave == 64);
    for feature in features.into_iter().flat_map(|features| features.split(':')) {
        let feature = feature.strip_suffix(['+', '-'])?;
        left.find(|known| **known == feature)?;
    }
    Some(arch)
}

/// [`named`], or an error that lists what is known.
pub(crate) fn require(name: &str) -> Result<&'static Arch, BackendError> {
    named(name).ok_or_else(|| BackendError::UnknownArch {
        backend: BACKEND,
        arch: name.into(),
        known: ARCHS.map(|arch| arch.name).join(", "),
    })
}

/// Describes an architecture with no device.
pub(crate) fn target(name: &str) -> Result<DeviceInfo, BackendError> {
    let arch = require(name)?;
    Ok(DeviceInfo {
        backend: BACKEND,
        ordinal: 0,
        name: name.into(),
        arch: name.into(),
        toolchain: compiler::version(),
        compute_units: arch.units,
        lanes: arch.wave,
        local_memory: arch.shared,
        memory: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_need_no_device() {
        let info = target("gfx942:sramecc+:xnack-").unwrap();
        assert_eq!((info.backend, info.compute_units, info.lanes), ("rocm", 304, 64));
        assert_eq!(info.arch, "gfx942:sramecc+:xnack-");
        let error = target("sm_90a").unwrap_err().to_string();
        assert!(error.starts_with("rocm: unknown architecture `sm_90a`; known: gfx906, "), "{error}");
    }

    #[test]
    fn names_are_taken_only_as_the_compiler_knows_them() {
        for good in ["gfx90a", "gfx90a:xnack+", "gfx90a:sramecc-:xnack-", "gfx1201"] {
            assert!(named(good).is_some(), "{good}");
        }
        let bad = [
            "gfx940",
            "gfx9999",
            "gfx90a:",
            "gfx90a:xnack",
            "gfx90a:xnack+:sramecc+",
            "gfx90a:xnack+:xnack+",
            "gfx1100:xnack-",
            "gfx942:fast+",
            "gfx942 ",
            "gfx9-4-generic",
            "",
        ];
        for bad in bad {
            assert!(named(bad).is_none(), "{bad}");
        }
    }
}

//! The kernels by which a device's arithmetic is measured: f32 on the CUDA cores, where its products are exact; f16
//! and bf16 on the tensor cores by the instruction that this backend's kernels use on the architecture: `wgmma` on
//! sm_90a, `mma.sync` from sm_80, and the CUDA cores before.

use fuseplan_api::DataType;
use fuseplan_gpu::{Probe, kernel_text};

use crate::arch;
use crate::context::Cuda;

/// What computes in a type on an architecture.
pub(crate) fn products(data_type: DataType, arch: &str) -> Probe {
    let capability = arch::named(arch).map_or((0, 0), |arch| arch.capability);
    let element = match data_type {
        DataType::Half if capability >= (8, 0) => "f16",
        DataType::BFloat16 if capability >= (8, 0) => "bf16",
        DataType::Half | DataType::BFloat16 | DataType::Float | DataType::Double | DataType::Int8 => {
            return Probe::fma::<Cuda>();
        }
    };
    let body = |part| {
        let file = kernel_text!("../kernels/peaks.cuh");
        format!("#define {part}\n#define TYPE \"{element}\"\n{file}")
    };
    if arch == crate::hopper::HOPPER {
        // Four products of 64x256x16 by 128 threads.
        Probe::new::<Cuda>("wgmma", &body("WGMMA"), [256, 1], 16384.0)
    } else {
        // Sixteen products of 16x8x16 by a warp.
        Probe::new::<Cuda>("mma.sync", &body("MMA"), [256, 4], 2048.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{compiler, library};

    #[test]
    fn probes_are_those_of_the_architectures_kernels() {
        let of = |data_type, arch| products(data_type, arch).name;
        assert_eq!(of(DataType::Float, "sm_90a"), "FMA");
        assert_eq!(of(DataType::Half, "sm_90a"), "wgmma");
        assert_eq!(of(DataType::BFloat16, "sm_100"), "mma.sync");
        assert_eq!(of(DataType::Half, "sm_75"), "FMA");
    }

    /// Every part for every kind of architecture: nothing may wait for memory that holds spilled registers.
    #[test]
    #[ignore = "needs NVRTC; `.ci/run nvrtc` runs it"]
    fn probes_compile_and_spill_nothing() {
        if let Err(error) = library::nvrtc() {
            panic!("{error}");
        }
        for arch in ["sm_75", "sm_80", "sm_90a", "sm_100", "sm_120"] {
            let types = [DataType::Float, DataType::Half, DataType::BFloat16];
            for probe in
                types.map(|data_type| products(data_type, arch)).iter().chain([&Probe::copy::<Cuda>()])
            {
                let log = compiler::compile(&probe.source, arch).unwrap().log;
                let sound = log.contains("0 bytes spill stores, 0 bytes spill loads");
                assert!(sound && !log.contains("warning"), "{} for {arch}: {log}", probe.name);
            }
        }
    }
}

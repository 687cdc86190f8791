//! The kernels by which a device's arithmetic is measured: the matrix cores' instructions that this backend's
//! kernels use, MFMA in every type on CDNA and WMMA in 16 bits on RDNA; elsewhere multiply-adds in f32.

use fuseplan_api::DataType;
use fuseplan_gpu::{Probe, element, kernel_text};

use crate::arch;
use crate::context::Rocm;

/// What computes in a type on an architecture.
pub(crate) fn products(data_type: DataType, arch: &str) -> Probe {
    let processor = arch::named(arch).map_or("", |arch| arch.name);
    let Some(element) = element(data_type) else { return Probe::fma::<Rocm>() };
    // Of one call of `multiply` by a wave.
    let has_mfma = ["gfx90a", "gfx942", "gfx950"].contains(&processor);
    let has_wmma = processor.starts_with("gfx11") || processor.starts_with("gfx12");
    let (name, text, operations) = match data_type {
        DataType::Float if has_mfma => ("MFMA", MFMA, 2 * 32 * 32 * 8),
        DataType::Half | DataType::BFloat16 if has_mfma => ("MFMA", MFMA, 2 * 32 * 32 * 16),
        DataType::Half | DataType::BFloat16 if has_wmma => ("WMMA", WMMA, 2 * 16 * 16 * 16),
        DataType::Float | DataType::Half | DataType::BFloat16 | DataType::Double | DataType::Int8 => {
            return Probe::fma::<Rocm>();
        }
    };
    let body = format!("#define TYPE {element}\n{text}\n{}", kernel_text!("../kernels/peaks.cuh"));
    // Four sums of a wave.
    let wave = if name == "MFMA" { 64 } else { 32 };
    Probe::new::<Rocm>(name, &body, [256, 4], f64::from(4 * operations / wave))
}

const MFMA: &str = kernel_text!("../kernels/mfma.cuh");
const WMMA: &str = kernel_text!("../kernels/wmma.cuh");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_those_of_the_architectures_kernels() {
        let of = |data_type, arch| products(data_type, arch).name;
        assert_eq!(of(DataType::Float, "gfx942:sramecc+:xnack-"), "MFMA");
        assert_eq!(of(DataType::BFloat16, "gfx90a"), "MFMA");
        assert_eq!(of(DataType::Half, "gfx908"), "FMA");
        assert_eq!(of(DataType::Half, "gfx1201"), "WMMA");
        assert_eq!(of(DataType::Float, "gfx1201"), "FMA");
        assert_eq!(of(DataType::BFloat16, "gfx1030"), "FMA");
    }
}

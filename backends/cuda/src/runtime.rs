//! What the shared solvers need of CUDA besides its driver.

use fuseplan_api::DataType;
use fuseplan_gpu::{CompileFailure, Compiled, Probe, Runtime, kernel_text};

use crate::context::Cuda;
use crate::{arch, compiler, peaks};

/// The part of a text that makes blocks which share a tile a cluster.
pub(crate) const CLUSTER: &str = kernel_text!("../kernels/cluster.cuh");

impl Runtime for Cuda {
    const VENDOR: &'static str = kernel_text!("../kernels/vendor.cuh");
    const IS_FITTED: bool = true;
    const SCRATCH: bool = true;

    fn units(arch: &str) -> usize {
        arch::named(arch).map_or(1, |arch| arch.units as usize)
    }

    /// Only the data centres' architectures are known to have clusters of any size.
    fn cluster(arch: &str) -> Option<&'static str> {
        let clusters = arch::named(arch).is_some_and(|arch| (9..=10).contains(&arch.capability.0));
        clusters.then_some(CLUSTER)
    }

    fn products(data_type: DataType, arch: &str) -> Probe {
        peaks::products(data_type, arch)
    }

    fn compile(source: &str, arch: &str) -> Result<Compiled, CompileFailure> {
        compiler::compile(source, arch)
    }
}

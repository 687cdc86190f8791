//! What the shared solvers need of CUDA besides its driver.

use fuseplan_api::DataType;
use fuseplan_gpu::{CompileFailure, Compiled, Probe, Runtime};

use crate::context::Cuda;
use crate::{arch, compiler, peaks};

impl Runtime for Cuda {
    const VENDOR: &'static str = include_str!("../kernels/vendor.cuh");

    fn units(arch: &str) -> usize {
        arch::named(arch).map_or(1, |arch| arch.units as usize)
    }

    fn products(data_type: DataType, arch: &str) -> Probe {
        peaks::products(data_type, arch)
    }

    fn compile(source: &str, arch: &str) -> Result<Compiled, CompileFailure> {
        compiler::compile(source, arch)
    }
}

//! What the shared solvers need of ROCm besides the HIP runtime.

use fuseplan_api::DataType;
use fuseplan_gpu::{CompileFailure, Compiled, Probe, Runtime, kernel_text};

use crate::context::Rocm;
use crate::{arch, compiler, peaks};

impl Runtime for Rocm {
    const VENDOR: &'static str = kernel_text!("../kernels/vendor.cuh");
    const IS_FITTED: bool = false;
    const SCRATCH: bool = true;

    fn units(arch: &str) -> usize {
        arch::named(arch).map_or(1, |arch| arch.units as usize)
    }

    fn cluster(_arch: &str) -> Option<&'static str> {
        None
    }

    fn products(data_type: DataType, arch: &str) -> Probe {
        peaks::products(data_type, arch)
    }

    fn compile(source: &str, arch: &str) -> Result<Compiled, CompileFailure> {
        compiler::compile(source, arch)
    }
}

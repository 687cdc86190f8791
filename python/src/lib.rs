//! `fuseplan._native`: plans, handles and compiled plans as Python objects, and arrays that are read where they lie.
//!
//! The stubs in `fuseplan/_native.pyi` say what each does. Python holds its lock while arguments are looked at, and not while
//! a plan is compiled or executed.

mod array;
mod calls;
mod chains;
mod compile;
mod compiled;
mod count;
mod direct;
mod dispatcher;
mod dlpack;
mod error;
mod getter;
mod handle;
mod names;
mod openmp;
mod pixels;
mod plan;
mod program;
mod spatial;
mod steps;
mod tensor;
mod together;
mod torch;

use pyo3::prelude::*;

/// What a Python program may name of this module.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::calls::{Calls, PlanCall};
    #[pymodule_export]
    use crate::chains::{find_chains, spelled_out};
    #[pymodule_export]
    use crate::compile::{LayoutTime, compile_all};
    #[pymodule_export]
    use crate::compiled::{CompiledPlan, restore};
    #[pymodule_export]
    use crate::direct::Direct;
    #[pymodule_export]
    use crate::dispatcher::dispatch_keys;
    #[pymodule_export]
    use crate::handle::{Handle, devices};
    #[pymodule_export]
    use crate::openmp::openmp_handle;
    #[pymodule_export]
    use crate::plan::{FusionPlan, rebuild};
    #[pymodule_export]
    use crate::tensor::TensorDescriptor;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        fuseplan::log::to_stderr();
        // A fork is noticed from the first call on, and OpenMP's threads are lost in a child though no plan was computed before.
        fuseplan::call(|| ());
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// The text of a type by the words that Python programs know it by.
fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().fully_qualified_name().map_or_else(|_| "an object".into(), |name| name.to_string())
}

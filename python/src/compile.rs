//! How plans are compiled: the options, several plans at once, and the layouts that plans are fastest with.

use fuseplan::{CompileOptions, FindMode};
use pyo3::prelude::*;

use crate::compiled::CompiledPlan;
use crate::handle::Handle;
use crate::plan::FusionPlan;
use crate::{error, names};

/// The options of a compile by Python's keywords.
pub(crate) fn options(find: Option<bool>, solver: Option<String>) -> CompileOptions {
    let mut options = CompileOptions::default();
    options.find = find.map(|find| if find { FindMode::Normal } else { FindMode::Fast });
    options.solver = solver;
    options
}

/// A layout of a plan's tensors, and how long the fastest solver takes with it.
#[pyclass(frozen, module = "fuseplan")]
#[derive(Debug)]
pub(crate) struct LayoutTime(pub(crate) fuseplan::choice::LayoutTime);

#[pymethods]
impl LayoutTime {
    #[getter]
    fn layout(&self) -> String {
        self.0.layout.to_string()
    }

    #[getter]
    fn solver(&self) -> &'static str {
        self.0.solver
    }

    #[getter]
    fn seconds(&self) -> f64 {
        self.0.time.as_secs_f64()
    }

    fn __repr__(&self) -> String {
        format!("<fuseplan.LayoutTime {} {:?} by {}>", self.0.layout, self.0.time, self.0.solver)
    }
}

/// Plans for one device, compiled several at a time.
#[pyfunction]
#[pyo3(signature = (plans, device=None, *, find=None, math=None, tf32=false, solver=None))]
pub(crate) fn compile_all(
    py: Python<'_>,
    plans: Vec<PyRef<'_, FusionPlan>>,
    device: Option<Py<Handle>>,
    find: Option<bool>,
    math: Option<&str>,
    tf32: bool,
    solver: Option<String>,
) -> PyResult<Vec<CompiledPlan>> {
    let (math, options) = (names::math(math, tf32)?, options(find, solver));
    let Some(first) = plans.first() else { return Ok(Vec::new()) };
    let device = first.device_or(py, device)?;
    let chains: Vec<_> = plans.iter().map(|plan| plan.chain_with(math)).collect();
    let of_chains: Vec<_> = chains.iter().map(|chain| chain.plan.clone()).collect();
    let handle = &device.get().inner;
    let built = py.detach(|| fuseplan::FusionPlan::compile_all(&of_chains, handle, &options));
    let compiled = plans.iter().zip(chains).zip(built).map(|((plan, chain), built)| {
        let built = built.map_err(|error| error::compile(&error))?;
        CompiledPlan::new(py, plan.twin(py), chain, device.clone_ref(py), built)
    });
    compiled.collect()
}

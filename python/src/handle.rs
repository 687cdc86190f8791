//! Handles: a device and the stream that plans run on there.

use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::openmp::Team;
use crate::{count, error};

/// A device and a stream.
#[pyclass(frozen, module = "fuseplan")]
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    pub(crate) inner: fuseplan::Handle,
    /// Threads of a CPU device of its own.
    threads: Option<usize>,
    /// The threads of an OpenMP runtime, if they are not the library's.
    openmp: Option<Arc<Team>>,
    /// Whether the stream is the caller's.
    pub(crate) has_given_stream: bool,
}

#[pymethods]
impl Handle {
    #[new]
    #[pyo3(signature = (backend=None, ordinal=None, *, threads=None, stream=None))]
    fn new(
        py: Python<'_>,
        backend: Option<&str>,
        ordinal: Option<u32>,
        #[pyo3(from_py_with = count::threads)] threads: Option<usize>,
        stream: Option<usize>,
    ) -> PyResult<Self> {
        if ordinal.is_some() && backend.is_none() {
            return Err(PyTypeError::new_err("a device's number needs the backend's name before it"));
        }
        if threads.is_some() && backend != Some("cpu") {
            return Err(PyTypeError::new_err("threads are the CPU's: Handle(\"cpu\", threads=...)"));
        }
        if backend.is_none_or(|name| name == "cuda") {
            // Python's packages bring NVIDIA's compiler, which is found where it is loaded already.
            py.import("fuseplan._libraries")?.call_method0("load_nvrtc")?;
        }
        let opened = py.detach(|| match (backend, ordinal, threads) {
            (None, _, _) => fuseplan::Handle::new(),
            (Some(_), _, Some(threads)) => fuseplan::Handle::cpu_with_threads(threads),
            (Some(name), Some(ordinal), None) => fuseplan::Handle::open(name, ordinal),
            (Some(name), None, None) => fuseplan::Handle::of_backend(name),
        });
        let inner = opened.map_err(|error| error::backend(&error))?;
        let handle = Handle { inner, threads, openmp: None, has_given_stream: false };
        Ok(stream.map_or_else(|| handle.clone(), |stream| handle.with_stream(stream)))
    }

    /// The same device with a stream of the caller's.
    pub(crate) fn with_stream(&self, stream: usize) -> Self {
        let stream = std::ptr::with_exposed_provenance_mut::<c_void>(stream);
        // SAFETY: the stub says that the number is that of a stream of this device, which outlives the handle.
        let inner = unsafe { self.inner.with_stream(stream) };
        Handle { inner, threads: self.threads, openmp: self.openmp.clone(), has_given_stream: true }
    }

    #[getter]
    pub(crate) fn backend(&self) -> &'static str {
        self.inner.device_info().backend
    }

    #[getter]
    fn ordinal(&self) -> u32 {
        self.inner.device_info().ordinal
    }

    #[getter]
    fn name(&self) -> &str {
        &self.inner.device_info().name
    }

    #[getter]
    fn arch(&self) -> &str {
        &self.inner.device_info().arch
    }

    #[getter]
    fn compute_units(&self) -> u32 {
        self.inner.device_info().compute_units
    }

    #[getter]
    fn stream(&self) -> usize {
        self.inner.stream().expose_provenance()
    }

    #[getter]
    fn openmp(&self) -> Option<&Path> {
        self.openmp.as_deref().map(Team::file)
    }

    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.synchronize()).map_err(|error| error::backend(&error))
    }

    fn __repr__(&self) -> String {
        let info = self.inner.device_info();
        format!("<fuseplan.Handle {}:{} {} ({})>", info.backend, info.ordinal, info.name, info.arch)
    }

    /// A stream does not travel to another process; the device does.
    pub(crate) fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let this = slf.get();
        let ordinal = this.threads.is_none().then(|| this.ordinal());
        let arguments = (this.backend(), ordinal, this.threads);
        let open = slf.py().import("fuseplan._libraries")?.getattr("open_handle")?;
        Ok((open, arguments.into_pyobject(slf.py())?))
    }
}

impl Handle {
    /// The CPU on threads of an OpenMP runtime.
    pub(crate) fn of_openmp(inner: fuseplan::Handle, threads: usize, team: Arc<Team>) -> Self {
        Handle { inner, threads: Some(threads), openmp: Some(team), has_given_stream: false }
    }

    /// Calls `body`, in which many plans are executed: on threads of an OpenMP runtime together.
    pub(crate) fn together(&self, body: &mut dyn FnMut()) {
        match &self.openmp {
            Some(team) => team.together(body),
            None => body(),
        }
    }

    /// Whose threads plans run on, where it is a CPU's.
    pub(crate) fn whose_threads(&self) -> Option<String> {
        let whose = match &self.openmp {
            Some(team) => team.file().display().to_string(),
            None if self.backend() == "cpu" => "the library's own".into(),
            None => return None,
        };
        Some(format!("{} of {whose}", self.compute_units()))
    }

    /// Whether tensors of PyTorch are computed in PyTorch's current stream, as they are unless the caller has given one.
    pub(crate) fn takes_torch_stream(&self) -> bool {
        !self.has_given_stream && self.backend() != "cpu"
    }

    /// The same device in PyTorch's current stream.
    pub(crate) fn in_torch_stream(&self, py: Python<'_>) -> PyResult<Self> {
        let cuda = py.import(intern!(py, "torch.cuda"))?;
        let stream = cuda.call_method1(intern!(py, "current_stream"), (self.ordinal(),))?;
        Ok(self.with_stream(stream.getattr(intern!(py, "cuda_stream"))?.extract()?))
    }

    /// The stream's number in DLPack: the default streams of CUDA and of ROCm have one of their own.
    pub(crate) fn dlpack_stream(&self) -> Option<usize> {
        match (self.backend(), self.stream()) {
            ("cuda", 0) => Some(1),
            ("cuda" | "rocm", stream) => Some(stream),
            _ => None,
        }
    }
}

/// The devices of this machine, the preferred backend's first: backend, number, name, architecture.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> PyResult<Vec<(&'static str, u32, String, String)>> {
    py.import("fuseplan._libraries")?.call_method0("load_nvrtc")?;
    Ok(py.detach(|| {
        let found = fuseplan::device::backends().iter().flat_map(|backend| {
            let found = fuseplan::device::discover(backend.name());
            found.map_or_else(|_| Vec::new(), |found| found.devices)
        });
        found.map(|info| (info.backend, info.ordinal, info.name, info.arch)).collect()
    }))
}

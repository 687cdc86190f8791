//! Graphs. Whoever has one keeps the context, and so the modules of the kernels in it.

use fuseplan_api::{BackendError, GraphDriver, RawGraph, RawGraphExec, RawNode, RawStream};

use crate::{Context, Driver};

impl<D: Driver> GraphDriver for Context<D> {
    unsafe fn capture(&self, stream: RawStream, work: &mut dyn FnMut()) -> Result<RawGraph, BackendError> {
        let driver = self.enter()?;
        // SAFETY: as promised by the caller.
        unsafe { driver.begin_capture(stream) }?;
        work();
        // SAFETY: as promised by the caller.
        unsafe { driver.end_capture(stream) }
    }

    unsafe fn add_child(
        &self,
        graph: RawGraph,
        dependencies: &[RawNode],
        child: RawGraph,
    ) -> Result<RawNode, BackendError> {
        // SAFETY: as promised by the caller.
        unsafe { self.enter()?.add_child(graph, dependencies, child) }
    }

    unsafe fn set_child(
        &self,
        executable: RawGraphExec,
        node: RawNode,
        child: RawGraph,
    ) -> Result<(), BackendError> {
        // SAFETY: as promised by the caller.
        unsafe { self.enter()?.set_child(executable, node, child) }
    }

    unsafe fn instantiate(&self, graph: RawGraph) -> Result<RawGraphExec, BackendError> {
        // SAFETY: as promised by the caller.
        unsafe { self.enter()?.instantiate(graph) }
    }

    unsafe fn launch(&self, executable: RawGraphExec, stream: RawStream) -> Result<(), BackendError> {
        // SAFETY: as promised by the caller.
        unsafe { self.enter()?.launch_graph(executable, stream) }
    }

    unsafe fn destroy(&self, graph: RawGraph) {
        // SAFETY: as promised by the caller.
        self.give_back(|driver| unsafe { driver.destroy_graph(graph) });
    }

    unsafe fn destroy_executable(&self, executable: RawGraphExec) {
        // SAFETY: as promised by the caller.
        self.give_back(|driver| unsafe { driver.destroy_executable(executable) });
    }
}

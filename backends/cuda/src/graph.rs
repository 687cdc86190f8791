//! CUDA graphs.

use std::ptr;

use fuseplan_api::{BackendError, GraphDriver, RawGraph, RawGraphExec, RawNode, RawStream};

use crate::driver::{Context, call};
use crate::sys;

impl GraphDriver for Context {
    unsafe fn capture(&self, stream: RawStream, work: &mut dyn FnMut()) -> Result<RawGraph, BackendError> {
        let _entered = self.enter()?;
        let mode = sys::CU_STREAM_CAPTURE_MODE_RELAXED;
        let mut graph = ptr::null_mut();
        // SAFETY: as promised by the caller; the driver writes the handle.
        unsafe {
            call!(cuStreamBeginCapture_v2(stream, mode))?;
            work();
            call!(cuStreamEndCapture(stream, &mut graph))?;
        }
        Ok(graph)
    }

    unsafe fn add_child(
        &self,
        graph: RawGraph,
        dependencies: &[RawNode],
        child: RawGraph,
    ) -> Result<RawNode, BackendError> {
        let _entered = self.enter()?;
        let mut node = ptr::null_mut();
        let (first, count) = (dependencies.as_ptr(), dependencies.len());
        // SAFETY: as promised by the caller; the driver writes the handle.
        unsafe { call!(cuGraphAddChildGraphNode(&mut node, graph, first, count, child)) }?;
        Ok(node)
    }

    unsafe fn set_child(
        &self,
        executable: RawGraphExec,
        node: RawNode,
        child: RawGraph,
    ) -> Result<(), BackendError> {
        let _entered = self.enter()?;
        // SAFETY: as promised by the caller.
        unsafe { call!(cuGraphExecChildGraphNodeSetParams(executable, node, child)) }
    }

    unsafe fn instantiate(&self, graph: RawGraph) -> Result<RawGraphExec, BackendError> {
        let _entered = self.enter()?;
        let mut executable = ptr::null_mut();
        // SAFETY: as promised by the caller; the driver writes the handle.
        unsafe { call!(cuGraphInstantiateWithFlags(&mut executable, graph, 0)) }?;
        Ok(executable)
    }

    unsafe fn launch(&self, executable: RawGraphExec, stream: RawStream) -> Result<(), BackendError> {
        let _entered = self.enter()?;
        // SAFETY: as promised by the caller.
        unsafe { call!(cuGraphLaunch(executable, stream)) }
    }

    unsafe fn destroy(&self, graph: RawGraph) {
        let _entered = self.enter();
        // SAFETY: as promised by the caller.
        let _ = unsafe { call!(cuGraphDestroy(graph)) };
    }

    unsafe fn destroy_executable(&self, executable: RawGraphExec) {
        let _entered = self.enter();
        // SAFETY: as promised by the caller.
        let _ = unsafe { call!(cuGraphExecDestroy(executable)) };
    }
}

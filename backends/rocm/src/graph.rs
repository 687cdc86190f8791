//! HIP graphs. Whoever has one keeps the modules of the kernels in it.

use std::ptr;

use fuseplan_api::{BackendError, GraphDriver, RawGraph, RawGraphExec, RawNode, RawStream};
use fuseplan_hip_sys::hipStreamCaptureMode;

use crate::device::Modules;
use crate::driver::call;

impl GraphDriver for Modules {
    unsafe fn capture(&self, stream: RawStream, work: &mut dyn FnMut()) -> Result<RawGraph, BackendError> {
        let _entered = self.context.enter()?;
        let mode = hipStreamCaptureMode::hipStreamCaptureModeRelaxed;
        let mut graph = ptr::null_mut();
        // SAFETY: as promised by the caller; the runtime writes the handle.
        unsafe {
            call!(self.context.hip, hipStreamBeginCapture(stream.cast(), mode))?;
            work();
            call!(self.context.hip, hipStreamEndCapture(stream.cast(), &mut graph))?;
        }
        Ok(graph.cast())
    }

    unsafe fn add_child(
        &self,
        graph: RawGraph,
        dependencies: &[RawNode],
        child: RawGraph,
    ) -> Result<RawNode, BackendError> {
        let _entered = self.context.enter()?;
        let mut node = ptr::null_mut();
        let (first, count) = (dependencies.as_ptr().cast(), dependencies.len());
        // SAFETY: as promised by the caller; the runtime writes the handle.
        unsafe {
            call!(
                self.context.hip,
                hipGraphAddChildGraphNode(&mut node, graph.cast(), first, count, child.cast())
            )
        }?;
        Ok(node.cast())
    }

    unsafe fn set_child(
        &self,
        executable: RawGraphExec,
        node: RawNode,
        child: RawGraph,
    ) -> Result<(), BackendError> {
        let _entered = self.context.enter()?;
        // SAFETY: as promised by the caller.
        unsafe {
            call!(
                self.context.hip,
                hipGraphExecChildGraphNodeSetParams(executable.cast(), node.cast(), child.cast())
            )
        }
    }

    unsafe fn instantiate(&self, graph: RawGraph) -> Result<RawGraphExec, BackendError> {
        let _entered = self.context.enter()?;
        let mut executable = ptr::null_mut();
        // SAFETY: as promised by the caller; the runtime writes the handle.
        unsafe { call!(self.context.hip, hipGraphInstantiateWithFlags(&mut executable, graph.cast(), 0)) }?;
        Ok(executable.cast())
    }

    unsafe fn launch(&self, executable: RawGraphExec, stream: RawStream) -> Result<(), BackendError> {
        let _entered = self.context.enter()?;
        // SAFETY: as promised by the caller.
        unsafe { call!(self.context.hip, hipGraphLaunch(executable.cast(), stream.cast())) }
    }

    unsafe fn destroy(&self, graph: RawGraph) {
        let _entered = self.context.enter();
        // SAFETY: as promised by the caller.
        let _ = unsafe { call!(self.context.hip, hipGraphDestroy(graph.cast())) };
    }

    unsafe fn destroy_executable(&self, executable: RawGraphExec) {
        let _entered = self.context.enter();
        // SAFETY: as promised by the caller.
        let _ = unsafe { call!(self.context.hip, hipGraphExecDestroy(executable.cast())) };
    }
}

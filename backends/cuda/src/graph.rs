//! Executions as parts of CUDA graphs.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use fuseplan_api::{BackendError, Device, RawStream, Stream};

use crate::CudaDevice;
use crate::driver::{Context, call};
use crate::sys::{self, Opaque};

/// A caller's `CUgraph`.
pub type RawGraph = *mut c_void;
/// A caller's `CUgraphNode`.
pub type RawNode = *mut c_void;
/// A caller's `CUgraphExec`.
pub type RawGraphExec = *mut c_void;

/// What executions launch, with all their arguments: to be replayed, or to be a node of a caller's graph.
#[derive(Debug)]
pub struct Graph {
    raw: Opaque,
    context: Arc<Context>,
}

// SAFETY: a graph is an address that only the driver dereferences, which takes it from any thread, though from one
// at a time.
unsafe impl Send for Graph {}

impl Graph {
    /// What `work` launches into the stream that it is given. Nothing runs; `work` must not wait for the
    /// stream, nor copy to or from pageable memory in it.
    ///
    /// # Errors
    /// A device of another backend, what `work` returns, or the driver refuses.
    pub fn capture<E: From<BackendError>>(
        device: &dyn Device,
        work: impl FnOnce(&Stream) -> Result<(), E>,
    ) -> Result<Self, E> {
        let context = CudaDevice::of(device)?.context().clone();
        let stream = device.create_stream()?;
        let _entered = context.enter()?;
        // Whoever works meanwhile, this thread included, may allocate, and wait for other streams.
        let mode = sys::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is live.
        unsafe { call!(cuStreamBeginCapture_v2(stream.raw(), mode)) }?;
        let capture = Capture { stream: &stream, context: &context };
        let worked = work(&stream);
        // Failed work may have spoilt the capture: its error says more.
        let graph = capture.end();
        worked?;
        Ok(graph?)
    }

    /// The `CUgraph`, which is destroyed with this value.
    pub fn raw(&self) -> RawGraph {
        self.raw
    }

    /// Adds a copy to a caller's graph as a node (`cuGraphAddChildGraphNode`) that runs behind `dependencies`.
    ///
    /// # Errors
    /// The driver refuses.
    ///
    /// # Safety
    /// `graph` is a live graph that no other thread uses meanwhile and `dependencies` are nodes of it. Where
    /// the graph is launched, what was promised for the captured executions holds.
    pub unsafe fn add_to(&self, graph: RawGraph, dependencies: &[RawNode]) -> Result<RawNode, BackendError> {
        let _entered = self.context.enter()?;
        let mut node = ptr::null_mut();
        let (first, count) = (dependencies.as_ptr(), dependencies.len());
        // SAFETY: as promised by the caller; the driver writes the node.
        unsafe { call!(cuGraphAddChildGraphNode(&mut node, graph, first, count, self.raw)) }?;
        Ok(node)
    }

    /// Gives a node that [`Graph::add_to`] made, in a graph that was instantiated since, the arguments of this
    /// graph (`cuGraphExecChildGraphNodeSetParams`): the same executions with other pointers and scalars.
    ///
    /// # Errors
    /// The driver refuses, in particular a graph of other kernels.
    ///
    /// # Safety
    /// As of [`Graph::add_to`], for `executable` and the node of the graph that it was made from.
    pub unsafe fn update(&self, executable: RawGraphExec, node: RawNode) -> Result<(), BackendError> {
        let _entered = self.context.enter()?;
        // SAFETY: as promised by the caller.
        unsafe { call!(cuGraphExecChildGraphNodeSetParams(executable, node, self.raw)) }
    }

    /// Makes it ready to be launched by itself.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn instantiate(&self) -> Result<GraphExec, BackendError> {
        let _entered = self.context.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the graph is live; the driver writes the executable graph.
        unsafe { call!(cuGraphInstantiateWithFlags(&mut raw, self.raw, 0)) }?;
        Ok(GraphExec { raw, context: self.context.clone() })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // SAFETY: the graph is destroyed once; nodes and executable graphs have copies.
        let _ = unsafe { call!(cuGraphDestroy(self.raw)) };
    }
}

/// A stream that is captured, until the end whatever happens.
struct Capture<'a> {
    stream: &'a Stream,
    context: &'a Arc<Context>,
}

impl Capture<'_> {
    fn end(self) -> Result<Graph, BackendError> {
        let graph = self.stop();
        std::mem::forget(self);
        graph
    }

    fn stop(&self) -> Result<Graph, BackendError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the stream is live and captured; the driver writes the graph, or null where it is spoilt.
        unsafe { call!(cuStreamEndCapture(self.stream.raw(), &mut raw)) }?;
        Ok(Graph { raw, context: self.context.clone() })
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// A graph that can be launched any number of times.
#[derive(Debug)]
pub struct GraphExec {
    raw: Opaque,
    context: Arc<Context>,
}

// SAFETY: as of a graph.
unsafe impl Send for GraphExec {}

impl GraphExec {
    /// Launches everything into a stream and returns.
    ///
    /// # Errors
    /// The launch fails.
    ///
    /// # Safety
    /// What was promised for the captured executions holds until the stream has passed the launch; the stream
    /// is a live one of the graph's device.
    pub unsafe fn launch(&self, stream: RawStream) -> Result<(), BackendError> {
        let _entered = self.context.enter()?;
        // SAFETY: as promised by the caller.
        unsafe { call!(cuGraphLaunch(self.raw, stream)) }
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // SAFETY: destroyed once; the driver waits for launches that still run.
        let _ = unsafe { call!(cuGraphExecDestroy(self.raw)) };
    }
}

//! Executions as parts of graphs, for drivers that have them.

use std::ffi::c_void;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::{BackendError, Device, RawStream, Stream};

/// A driver's graph: `CUgraph`, `hipGraph_t`.
pub type RawGraph = *mut c_void;
/// A node of a graph: `CUgraphNode`, `hipGraphNode_t`.
pub type RawNode = *mut c_void;
/// A graph that can be launched: `CUgraphExec`, `hipGraphExec_t`.
pub type RawGraphExec = *mut c_void;

/// A driver that records what is launched into a stream.
///
/// # Safety
/// All of its functions are unsafe for one reason: handles are live ones of this driver, and no other thread uses
/// a graph meanwhile.
#[allow(clippy::missing_safety_doc, reason = "said once, for all of them")]
#[allow(clippy::missing_errors_doc, reason = "the driver refuses")]
pub trait GraphDriver: Debug + Send + Sync {
    /// Calls `work` once, which returns, and records what is launched into the stream meanwhile. Whoever works
    /// meanwhile, this thread included, may allocate, and wait for other streams. An error where the stream is used in
    /// a way that cannot be recorded.
    unsafe fn capture(&self, stream: RawStream, work: &mut dyn FnMut()) -> Result<RawGraph, BackendError>;

    /// A node with a copy of `child`, behind `dependencies`.
    unsafe fn add_child(
        &self,
        graph: RawGraph,
        dependencies: &[RawNode],
        child: RawGraph,
    ) -> Result<RawNode, BackendError>;

    /// Gives such a node in an instantiated graph the arguments of another child.
    unsafe fn set_child(
        &self,
        executable: RawGraphExec,
        node: RawNode,
        child: RawGraph,
    ) -> Result<(), BackendError>;

    /// A copy of the graph that can be launched.
    unsafe fn instantiate(&self, graph: RawGraph) -> Result<RawGraphExec, BackendError>;

    /// Launches and returns.
    unsafe fn launch(&self, executable: RawGraphExec, stream: RawStream) -> Result<(), BackendError>;

    /// Ends a graph; copies of it live on.
    unsafe fn destroy(&self, graph: RawGraph);

    /// Ends a graph that can be launched; launches that still run end as they would have.
    unsafe fn destroy_executable(&self, executable: RawGraphExec);
}

/// What executions launch, with all their arguments: to be replayed, or to be a node of a caller's graph.
#[derive(Debug)]
pub struct Graph {
    raw: RawGraph,
    driver: Arc<dyn GraphDriver>,
}

// SAFETY: a graph is an address that only the driver dereferences, which takes it from any thread, though from one
// at a time.
unsafe impl Send for Graph {}

impl Graph {
    /// What `work` launches into the stream that it is given. Nothing runs; `work` must not wait for the
    /// stream, nor copy to or from pageable memory in it.
    ///
    /// # Errors
    /// A device without graphs, what `work` returns, or the driver refuses.
    pub fn capture<E: From<BackendError>>(
        device: &dyn Device,
        work: impl FnOnce(&Stream) -> Result<(), E>,
    ) -> Result<Self, E> {
        let without = BackendError::Unsupported { backend: device.info().backend, what: "capturing graphs" };
        let driver = device.graphs().ok_or(without)?;
        let stream = device.create_stream()?;
        let (mut work, mut worked) = (Some(work), None);
        let mut once = || {
            let work = work.take();
            worked = work.map(|work| catch_unwind(AssertUnwindSafe(|| work(&stream))));
        };
        // SAFETY: the stream is live.
        let raw = unsafe { driver.capture(stream.raw(), &mut once) };
        let graph = raw.map(|raw| Graph { raw, driver });
        match worked {
            // Failed work may have spoilt the capture: its error says more.
            Some(Ok(worked)) => worked?,
            Some(Err(panic)) => resume_unwind(panic),
            None => {}
        }
        Ok(graph?)
    }

    /// The driver's graph, which is destroyed with this value.
    pub fn raw(&self) -> RawGraph {
        self.raw
    }

    /// Adds a copy to a caller's graph as a node (a child graph) that runs behind `dependencies`.
    ///
    /// # Errors
    /// The driver refuses.
    ///
    /// # Safety
    /// `graph` is a live graph that no other thread uses meanwhile and `dependencies` are nodes of it. Where
    /// the graph is launched, what was promised for the captured executions holds.
    pub unsafe fn add_to(&self, graph: RawGraph, dependencies: &[RawNode]) -> Result<RawNode, BackendError> {
        // SAFETY: as promised by the caller; this graph is live.
        unsafe { self.driver.add_child(graph, dependencies, self.raw) }
    }

    /// Gives a node that [`Graph::add_to`] made, in a graph that was instantiated since, the arguments of this
    /// graph: the same executions with other pointers and scalars.
    ///
    /// # Errors
    /// The driver refuses, in particular a graph of other kernels.
    ///
    /// # Safety
    /// As of [`Graph::add_to`], for `executable` and the node of the graph that it was made from.
    pub unsafe fn update(&self, executable: RawGraphExec, node: RawNode) -> Result<(), BackendError> {
        // SAFETY: as promised by the caller; this graph is live.
        unsafe { self.driver.set_child(executable, node, self.raw) }
    }

    /// Makes it ready to be launched by itself.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn instantiate(&self) -> Result<GraphExec, BackendError> {
        // SAFETY: the graph is live.
        let raw = unsafe { self.driver.instantiate(self.raw) }?;
        Ok(GraphExec { raw, driver: self.driver.clone() })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the graph is destroyed once; nodes and executable graphs have copies.
        unsafe { self.driver.destroy(self.raw) };
    }
}

/// A graph that can be launched any number of times.
#[derive(Debug)]
pub struct GraphExec {
    raw: RawGraphExec,
    driver: Arc<dyn GraphDriver>,
}

// SAFETY: as of a graph.
unsafe impl Send for GraphExec {}

impl GraphExec {
    /// The driver's graph, which is destroyed with this value.
    pub fn raw(&self) -> RawGraphExec {
        self.raw
    }

    /// Launches everything into a stream and returns.
    ///
    /// # Errors
    /// The launch fails.
    ///
    /// # Safety
    /// What was promised for the captured executions holds until the stream has passed the launch; the stream
    /// is a live one of the graph's device.
    pub unsafe fn launch(&self, stream: RawStream) -> Result<(), BackendError> {
        // SAFETY: as promised by the caller.
        unsafe { self.driver.launch(self.raw, stream) }
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        // SAFETY: destroyed once.
        unsafe { self.driver.destroy_executable(self.raw) };
    }
}

//! Executions as graphs of the device's driver: captured by [`Handle::capture_graph`], replayed, or made nodes of the
//! caller's graph.

use fuseplan_api::{BackendError, Stream, call};
pub use fuseplan_api::{Graph, GraphExec, RawGraph, RawGraphExec, RawNode};

use crate::handle::Handle;

impl Handle {
    /// What `work` executes on the handle that it is given, as a graph of the device's driver (CUDA's, HIP's): to
    /// be replayed, or to be a node of the caller's graph. Nothing runs now.
    ///
    /// Operands must be in the device's memory. A graph keeps addresses: launching it is `unsafe`, because
    /// nothing else keeps the operands.
    ///
    /// # Errors
    /// A device without graphs, such as the CPU; what `work` returns; or the driver refuses.
    pub fn capture_graph<E: From<BackendError>>(
        &self,
        work: impl FnOnce(&Handle) -> Result<(), E>,
    ) -> Result<Graph, E> {
        let work = |stream: &Stream| work(&self.on_stream(stream.clone()));
        call(|| Graph::capture(&**self.context().device(), work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_has_no_graphs() {
        let captured = Handle::cpu().capture_graph(|_| Ok::<(), BackendError>(()));
        assert_eq!(captured.unwrap_err().to_string(), "cpu: capturing graphs is not supported");
    }
}

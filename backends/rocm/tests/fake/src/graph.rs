//! Graphs: launches that were recorded, and nodes with copies of other graphs.

use std::ffi::c_ulonglong;
use std::ptr;

use fuseplan_hip_sys::*;

use crate::hip::{INVALID, Outcome, check_stream, end, functions, put};
use crate::launch::Launch;
use crate::state::{Kind, state};

/// A graph's nodes in the order in which they run, each with its launches.
pub(crate) type Graph = Vec<(usize, Vec<Launch>)>;

/// The nodes of a live graph.
fn nodes(graph: usize, kind: Kind) -> Result<Graph, hipError_t> {
    let state = state();
    let found = state.graphs.get(&graph).filter(|_| state.is_live(graph, kind));
    found.cloned().ok_or(hipError_t::hipErrorInvalidValue)
}

/// All launches of a graph.
fn launches(graph: Graph) -> Vec<Launch> {
    graph.into_iter().flat_map(|(_, launches)| launches).collect()
}

functions! {
    fn hipStreamBeginCapture(stream: hipStream_t, mode: hipStreamCaptureMode) {
        check_stream(stream)?;
        // The default stream cannot be captured, and a captured one not again.
        if stream.is_null() || mode.0 > 2 || state().captures.contains_key(&(stream as usize)) {
            return Err(hipError_t::hipErrorIllegalState);
        }
        state().captures.insert(stream as usize, Vec::new());
        Ok(())
    }

    fn hipStreamEndCapture(stream: hipStream_t, graph: *mut hipGraph_t) {
        let recorded = state().captures.remove(&(stream as usize)).ok_or(hipError_t::hipErrorIllegalState)?;
        let mut state = state();
        let nodes = recorded.into_iter().map(|launch| (state.address(), vec![launch])).collect();
        let made = state.make(Kind::Graph);
        state.graphs.insert(made, nodes);
        // SAFETY: as HIP's.
        unsafe { put(graph, ptr::without_provenance_mut(made)) }
    }

    fn hipGraphDestroy(graph: hipGraph_t) {
        end(graph as usize, Kind::Graph)?;
        state().graphs.remove(&(graph as usize));
        Ok(())
    }

    fn hipGraphAddChildGraphNode(
        node: *mut hipGraphNode_t,
        graph: hipGraph_t,
        dependencies: *const hipGraphNode_t,
        count: usize,
        child: hipGraph_t
    ) {
        let mut parent = nodes(graph as usize, Kind::Graph)?;
        let child = nodes(child as usize, Kind::Graph)?;
        // SAFETY: as HIP's.
        let behind = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(dependencies, count) } };
        if behind.iter().any(|node| parent.iter().all(|(known, _)| *known != *node as usize)) {
            return INVALID;
        }
        let made = state().address();
        parent.push((made, launches(child)));
        state().graphs.insert(graph as usize, parent);
        // SAFETY: as HIP's.
        unsafe { put(node, ptr::without_provenance_mut(made)) }
    }

    fn hipGraphInstantiateWithFlags(executable: *mut hipGraphExec_t, graph: hipGraph_t, flags: c_ulonglong) {
        let nodes = nodes(graph as usize, Kind::Graph)?;
        if flags != 0 {
            return INVALID;
        }
        let mut state = state();
        let made = state.make(Kind::GraphExec);
        state.graphs.insert(made, nodes);
        // SAFETY: as HIP's.
        unsafe { put(executable, ptr::without_provenance_mut(made)) }
    }

    fn hipGraphExecChildGraphNodeSetParams(executable: hipGraphExec_t, node: hipGraphNode_t, child: hipGraph_t) {
        let mut all = nodes(executable as usize, Kind::GraphExec)?;
        let child = launches(nodes(child as usize, Kind::Graph)?);
        let (_, old) = all.iter_mut().find(|(known, _)| *known == node as usize).ok_or(hipError_t::hipErrorInvalidValue)?;
        // The same kernels in the same order.
        if !old.iter().map(|launch| launch.function).eq(child.iter().map(|launch| launch.function)) {
            return Err(hipError_t::hipErrorGraphExecUpdateFailure);
        }
        *old = child;
        state().graphs.insert(executable as usize, all);
        Ok(())
    }

    fn hipGraphLaunch(executable: hipGraphExec_t, stream: hipStream_t) {
        check_stream(stream)?;
        for launch in launches(nodes(executable as usize, Kind::GraphExec)?) {
            // SAFETY: as HIP's: what was true of the arguments when they were recorded is true now.
            unsafe { launch.run()? };
        }
        Ok(())
    }

    fn hipGraphExecDestroy(executable: hipGraphExec_t) {
        end(executable as usize, Kind::GraphExec)?;
        state().graphs.remove(&(executable as usize));
        Ok(())
    }
}

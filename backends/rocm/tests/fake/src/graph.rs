//! Graphs: launches that were recorded, and nodes with copies of other graphs.

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::ptr;

use fuseplan_hip_sys::*;

use crate::hip::{INVALID, Outcome, check_stream, functions, put};
use crate::launch::Launch;
use crate::state::{Capture, Kind, MODE, UserObject, state};

/// A graph's nodes in the order in which they run, each with its launches.
pub(crate) type Graph = Vec<(usize, Vec<Launch>)>;

/// The nodes of a live graph.
fn nodes(graph: usize, kind: Kind) -> Result<Graph, hipError_t> {
    let state = state();
    let found = state.graphs.get(&graph).filter(|_| state.is_live(graph, kind));
    found.cloned().ok_or(hipError_t::hipErrorInvalidValue)
}

fn end_graph(graph: usize, kind: Kind) -> Outcome {
    if state().end_graph(graph, kind) { Ok(()) } else { Err(hipError_t::hipErrorInvalidHandle) }
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
        let mut state = state();
        let graph = state.make(Kind::Graph);
        state.captures.insert(stream as usize, Capture { mode: mode.0, graph, launches: Vec::new() });
        Ok(())
    }

    fn hipStreamEndCapture(stream: hipStream_t, graph: *mut hipGraph_t) {
        let recorded = state().captures.remove(&(stream as usize)).ok_or(hipError_t::hipErrorIllegalState)?;
        let mut state = state();
        let nodes = recorded.launches.into_iter().map(|launch| (state.address(), vec![launch])).collect();
        state.graphs.insert(recorded.graph, nodes);
        // SAFETY: as HIP's.
        unsafe { put(graph, ptr::without_provenance_mut(recorded.graph)) }
    }

    fn hipStreamGetCaptureInfo_v2(
        stream: hipStream_t,
        status: *mut hipStreamCaptureStatus,
        id: *mut c_ulonglong,
        graph: *mut hipGraph_t,
        _behind: *mut *const hipGraphNode_t,
        _count: *mut usize
    ) {
        check_stream(stream)?;
        let capture = state().captures.get(&(stream as usize)).map(|capture| capture.graph);
        let Some(made) = capture else {
            // SAFETY: as HIP's.
            return unsafe { put(status, hipStreamCaptureStatus::hipStreamCaptureStatusNone) };
        };
        // SAFETY: as HIP's.
        unsafe {
            put(id, made as c_ulonglong)?;
            put(graph, ptr::without_provenance_mut(made))?;
            put(status, hipStreamCaptureStatus::hipStreamCaptureStatusActive)
        }
    }

    fn hipThreadExchangeStreamCaptureMode(mode: *mut hipStreamCaptureMode) {
        // SAFETY: as HIP's: the place is null or can be read and written.
        let Some(mode) = (unsafe { mode.as_mut() }) else { return INVALID };
        if mode.0 > 2 {
            return INVALID;
        }
        mode.0 = MODE.replace(mode.0);
        Ok(())
    }

    fn hipUserObjectCreate(
        object: *mut hipUserObject_t,
        data: *mut c_void,
        destroy: hipHostFn_t,
        count: c_uint,
        flags: c_uint
    ) {
        let Some(destroy) = destroy else { return INVALID };
        if data.is_null() || (count, flags) != (1, 1) {
            return INVALID;
        }
        let mut state = state();
        let made = state.make(Kind::UserObject);
        state.user_objects.insert(made, UserObject { owners: vec![0], data: data as usize, destroy });
        // SAFETY: as HIP's.
        unsafe { put(object, ptr::without_provenance_mut(made)) }
    }

    fn hipUserObjectRelease(object: hipUserObject_t, count: c_uint) {
        let mut state = state();
        let owners = &state.user_objects.get(&(object as usize)).ok_or(hipError_t::hipErrorInvalidValue)?.owners;
        if count != 1 || !owners.contains(&0) {
            return INVALID;
        }
        state.leave(0);
        Ok(())
    }

    fn hipGraphRetainUserObject(graph: hipGraph_t, object: hipUserObject_t, count: c_uint, flags: c_uint) {
        let mut state = state();
        if !state.is_live(graph as usize, Kind::Graph) || (count, flags) != (1, 1) {
            return INVALID;
        }
        let object = state.user_objects.get_mut(&(object as usize)).ok_or(hipError_t::hipErrorInvalidValue)?;
        if object.owners != [0] {
            return INVALID;
        }
        object.owners = vec![graph as usize];
        Ok(())
    }

    fn hipGraphDestroy(graph: hipGraph_t) {
        end_graph(graph as usize, Kind::Graph)
    }

    fn hipGraphAddChildGraphNode(
        node: *mut hipGraphNode_t,
        graph: hipGraph_t,
        dependencies: *const hipGraphNode_t,
        count: usize,
        child: hipGraph_t
    ) {
        let mut parent = nodes(graph as usize, Kind::Graph)?;
        let nodes_of_child = nodes(child as usize, Kind::Graph)?;
        // SAFETY: as HIP's.
        let behind = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(dependencies, count) } };
        if behind.iter().any(|node| parent.iter().all(|(known, _)| *known != *node as usize)) {
            return INVALID;
        }
        let made = state().address();
        parent.push((made, launches(nodes_of_child)));
        let mut state = state();
        state.graphs.insert(graph as usize, parent);
        state.refer_alike(child as usize, graph as usize);
        drop(state);
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
        state.refer_alike(graph as usize, made);
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
        end_graph(executable as usize, Kind::GraphExec)
    }
}

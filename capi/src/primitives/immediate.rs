//! Forward convolution in immediate mode: one solution for each problem that the backend can run.

use std::ffi::c_void;

use super::convolution::{Convolution, algorithm, workspace};
use crate::abi::{Out, export, miopenConvSolution_t};
use crate::args::Scales;
use crate::convolution::miopenConvolutionDescriptor_t;
use crate::handle::miopenHandle_t;
use crate::status::{Failure, Status, bad_parm};
use crate::tensor::miopenTensorDescriptor_t;

/// The id of the solution: the kernel that the backend's rules choose.
const CHOSEN: u64 = 1;

fn check(solution: u64) -> Result<(), Failure> {
    if solution == CHOSEN {
        Ok(())
    } else {
        Err(bad_parm(format!("there is no solution {solution}; the only one is {CHOSEN}")))
    }
}

export! {
    fn miopenConvolutionForwardGetSolutionCount(
        handle: miopenHandle_t,
        wDesc: miopenTensorDescriptor_t,
        xDesc: miopenTensorDescriptor_t,
        convDesc: miopenConvolutionDescriptor_t,
        yDesc: miopenTensorDescriptor_t,
        solutionCount: Out<usize>,
    ) {
        let handle = handle.get()?;
        let out = solutionCount.required("solutionCount")?;
        let call = Convolution { x: xDesc, weights: wDesc, conv: convDesc, y: yDesc };
        match call.compile(&handle) {
            Ok(_) => out.set(1),
            Err(failure) if failure.status == Status::UnsupportedOp => out.set(0),
            Err(failure) => return Err(failure),
        }
    }

    fn miopenConvolutionForwardGetSolution(
        handle: miopenHandle_t,
        wDesc: miopenTensorDescriptor_t,
        xDesc: miopenTensorDescriptor_t,
        convDesc: miopenConvolutionDescriptor_t,
        yDesc: miopenTensorDescriptor_t,
        maxSolutionCount: usize,
        solutionCount: Out<usize>,
        solutions: Out<miopenConvSolution_t>,
    ) {
        let handle = handle.get()?;
        let count = solutionCount.required("solutionCount")?;
        let list = solutions.required("solutions")?;
        if maxSolutionCount == 0 {
            return Err(bad_parm("there is no room for a solution"));
        }
        let call = Convolution { x: xDesc, weights: wDesc, conv: convDesc, y: yDesc };
        let compiled = call.compile(&handle)?;
        count.set(1);
        list.set(miopenConvSolution_t {
            time: -1.0,
            workspace_size: compiled.workspace(),
            solution_id: CHOSEN,
            algorithm: algorithm(compiled.info().algorithm),
        });
    }

    fn miopenConvolutionForwardGetSolutionWorkspaceSize(
        handle: miopenHandle_t,
        wDesc: miopenTensorDescriptor_t,
        xDesc: miopenTensorDescriptor_t,
        convDesc: miopenConvolutionDescriptor_t,
        yDesc: miopenTensorDescriptor_t,
        solution_id: u64,
        workSpaceSize: Out<usize>,
    ) {
        let handle = handle.get()?;
        check(solution_id)?;
        let call = Convolution { x: xDesc, weights: wDesc, conv: convDesc, y: yDesc };
        workSpaceSize.required("workSpaceSize")?.set(call.compile(&handle)?.workspace());
    }

    fn miopenConvolutionForwardCompileSolution(
        handle: miopenHandle_t,
        wDesc: miopenTensorDescriptor_t,
        xDesc: miopenTensorDescriptor_t,
        convDesc: miopenConvolutionDescriptor_t,
        yDesc: miopenTensorDescriptor_t,
        solution_id: u64,
    ) {
        let handle = handle.get()?;
        check(solution_id)?;
        Convolution { x: xDesc, weights: wDesc, conv: convDesc, y: yDesc }.compile(&handle)?;
    }

    fn miopenConvolutionForwardImmediate(
        handle: miopenHandle_t,
        wDesc: miopenTensorDescriptor_t,
        w: *const c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        convDesc: miopenConvolutionDescriptor_t,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
        workSpace: *mut c_void,
        workSpaceSize: usize,
        solution_id: u64,
    ) {
        let handle = handle.get()?;
        check(solution_id)?;
        let call = Convolution { x: xDesc, weights: wDesc, conv: convDesc, y: yDesc };
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { call.run(&handle, x, w, y, Scales::NONE, workspace(workSpace, workSpaceSize)) }?;
    }
}

//! Forward convolution: workspace, find, run, and the bias behind it.

use std::ffi::{c_int, c_void};

use fuseplan::{BiasForward, CompiledPlan, ConvForward, choice::Algorithm, raw::operands};

use crate::abi::{
    Bool, In, Out, export, miopenConvAlgoPerf_t, miopenConvAlgorithm_t, miopenConvFwdAlgorithm_t, to_size,
};
use crate::args::Scales;
use crate::convolution::miopenConvolutionDescriptor_t;
use crate::execute::{Chain, Memory, Workspace};
use crate::handle::{HandleObject, miopenHandle_t};
use crate::operators::bias;
use crate::status::{Failure, bad_parm};
use crate::tensor::miopenTensorDescriptor_t;

/// A convolution with nothing behind it.
#[derive(Clone, Copy)]
pub(crate) struct Convolution {
    pub(crate) x: miopenTensorDescriptor_t,
    pub(crate) weights: miopenTensorDescriptor_t,
    pub(crate) conv: miopenConvolutionDescriptor_t,
    pub(crate) y: miopenTensorDescriptor_t,
}

impl Convolution {
    fn chain(&self, weights: *const c_void, scales: Scales) -> Result<Chain, Failure> {
        let mut chain = Chain::new(self.x.descriptor()?)?;
        let operator = ConvForward::new(self.conv.descriptor()?, self.weights.descriptor()?);
        chain.append(operator, operands::ConvForward { weights }, scales)?;
        Ok(chain)
    }

    /// The kernel, for descriptors that fit one another.
    pub(crate) fn compile(&self, handle: &HandleObject) -> Result<CompiledPlan, Failure> {
        let compiled = self.chain(std::ptr::null(), Scales::NONE)?.compile(&handle.pinned())?;
        let y = self.y.descriptor()?;
        if y != *compiled.output() {
            return Err(bad_parm(format!("`y` is {y}, the convolution's output is {}", compiled.output())));
        }
        Ok(compiled)
    }

    /// # Safety
    /// The pointers are memory of the handle's device, as large as the descriptors say.
    pub(crate) unsafe fn run(
        &self,
        handle: &HandleObject,
        x: *const c_void,
        weights: *const c_void,
        y: *mut c_void,
        scales: Scales,
        workspace: Workspace,
    ) -> Result<(), Failure> {
        let x = Memory::new(self.x, x)?.present("x")?;
        let y = Memory::new(self.y, y)?.present("y")?;
        if weights.is_null() {
            return Err(bad_parm("`w` is NULL"));
        }
        // SAFETY: as promised by the caller.
        unsafe { self.chain(weights, scales)?.run(handle, x, y, workspace) }
    }
}

/// The number of an algorithm in C's enumerations of algorithms.
pub(crate) fn algorithm(algorithm: Algorithm) -> miopenConvAlgorithm_t {
    match algorithm {
        Algorithm::Winograd => 3,
        Algorithm::ImplicitGemm => 5,
        Algorithm::Direct | Algorithm::ElementWise | Algorithm::BatchNorm => 1,
    }
}

/// A workspace as C hands it in; without one the handle's allocator is asked.
pub(crate) fn workspace(pointer: *mut c_void, bytes: usize) -> Workspace {
    (!pointer.is_null()).then_some((pointer, bytes))
}

export! {
    fn miopenConvolutionForwardGetWorkSpaceSize(
        handle: miopenHandle_t,
        wDesc: miopenTensorDescriptor_t,
        xDesc: miopenTensorDescriptor_t,
        convDesc: miopenConvolutionDescriptor_t,
        yDesc: miopenTensorDescriptor_t,
        workSpaceSize: Out<usize>,
    ) {
        let handle = handle.get()?;
        let call = Convolution { x: xDesc, weights: wDesc, conv: convDesc, y: yDesc };
        workSpaceSize.required("workSpaceSize")?.set(call.compile(&handle)?.workspace());
    }

    fn miopenConvolutionForwardGetWorkSpaceSizeRange(
        handle: miopenHandle_t,
        wDesc: miopenTensorDescriptor_t,
        xDesc: miopenTensorDescriptor_t,
        convDesc: miopenConvolutionDescriptor_t,
        yDesc: miopenTensorDescriptor_t,
        minWorkspaceSize: Out<usize>,
        maxWorkspaceSize: Out<usize>,
    ) {
        let handle = handle.get()?;
        let (least, most) =
            (minWorkspaceSize.required("minWorkspaceSize")?, maxWorkspaceSize.required("maxWorkspaceSize")?);
        let call = Convolution { x: xDesc, weights: wDesc, conv: convDesc, y: yDesc };
        let needed = call.compile(&handle)?.workspace();
        least.set(needed);
        most.set(needed);
    }

    fn miopenFindConvolutionForwardAlgorithm(
        handle: miopenHandle_t,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        wDesc: miopenTensorDescriptor_t,
        w: *const c_void,
        convDesc: miopenConvolutionDescriptor_t,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
        requestAlgoCount: c_int,
        returnedAlgoCount: Out<c_int>,
        perfResults: Out<miopenConvAlgoPerf_t>,
        workSpace: *mut c_void,
        workSpaceSize: usize,
        exhaustiveSearch: Bool,
    ) {
        let _ = exhaustiveSearch;
        let handle = handle.get()?;
        let count = returnedAlgoCount.required("returnedAlgoCount")?;
        let results = perfResults.required("perfResults")?;
        if to_size(requestAlgoCount, "the number of algorithms requested")? == 0 {
            return Err(bad_parm("no algorithm was requested"));
        }
        let call = Convolution { x: xDesc, weights: wDesc, conv: convDesc, y: yDesc };
        let compiled = call.compile(&handle)?;
        let workspace = workspace(workSpace, workSpaceSize);
        let (elapsed, result) = handle.handle().time(|| {
            // SAFETY: the header says that the pointers are memory of the handle's device.
            unsafe { call.run(&handle, x, w, y, Scales::NONE, workspace) }
        })?;
        result?;
        count.set(1);
        results.set(miopenConvAlgoPerf_t {
            fwd_algo: algorithm(compiled.info().algorithm),
            time: elapsed.as_secs_f32() * 1e3,
            memory: compiled.workspace(),
        });
    }

    fn miopenConvolutionForward(
        handle: miopenHandle_t,
        alpha: In<c_void>,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        wDesc: miopenTensorDescriptor_t,
        w: *const c_void,
        convDesc: miopenConvolutionDescriptor_t,
        algo: miopenConvFwdAlgorithm_t,
        beta: In<c_void>,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
        workSpace: *mut c_void,
        workSpaceSize: usize,
    ) {
        let _ = algo;
        let handle = handle.get()?;
        let call = Convolution { x: xDesc, weights: wDesc, conv: convDesc, y: yDesc };
        let scales = Scales::read(alpha, beta);
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { call.run(&handle, x, w, y, scales, workspace(workSpace, workSpaceSize)) }?;
    }

    fn miopenConvolutionForwardBias(
        handle: miopenHandle_t,
        alpha: In<c_void>,
        bDesc: miopenTensorDescriptor_t,
        b: *const c_void,
        beta: In<c_void>,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
    ) {
        let handle = handle.get()?;
        let y = Memory::new(yDesc, y)?.present("y")?;
        let operand = Memory::new(bDesc, b)?.present("b")?;
        let mut chain = Chain::new(y.descriptor)?;
        let operator: BiasForward = bias(operand.descriptor, &y.descriptor)?;
        chain.append(operator, operands::BiasForward { bias: operand.address }, Scales::read(alpha, beta))?;
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { chain.run(&handle, y, y, None) }?;
    }
}

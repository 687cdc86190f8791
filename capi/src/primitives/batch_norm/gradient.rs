//! The gradient of batch-norm, with or without saved statistics.

use std::ffi::c_void;

use fuseplan::{ActivationBackward, BatchNormBackward, raw::operands};

use super::super::scratch::Scratch;
use super::super::tensor::same_lens;
use super::Call;
use crate::abi::{In, export, miopenBatchNormMode_t};
use crate::activation::miopenActivationDescriptor_t;
use crate::args::Scales;
use crate::execute::{Chain, Memory};
use crate::handle::{Pinned, miopenHandle_t};
use crate::status::{Failure, not_implemented};
use crate::tensor::miopenTensorDescriptor_t;

/// The operands of a gradient behind the tensors: scale, bias (may be NULL), saved mean, saved inverse
/// variance; and the gradients of scale and bias.
struct Gradient {
    x: Memory,
    dy: Memory,
    operands: [*const c_void; 4],
    results: [*mut c_void; 2],
    epsilon: f64,
    scales: Scales,
}

impl Gradient {
    fn new(
        x: Memory,
        dy: Memory,
        operands: [*const c_void; 4],
        results: [*mut c_void; 2],
        epsilon: f64,
        scales: [In<c_void>; 4],
    ) -> Result<Self, Failure> {
        let [data_alpha, data_beta, param_alpha, param_beta] = scales;
        let params = Scales::read(param_alpha, param_beta);
        if (params.alpha, params.beta) != (1.0, 0.0) {
            return Err(not_implemented("alpha and beta of the parameters' gradients, but 1 and 0"));
        }
        same_lens("dy", &dy.descriptor, "x", &x.descriptor)?;
        Ok(Gradient { x, dy, operands, results, epsilon, scales: Scales::read(data_alpha, data_beta) })
    }

    /// # Safety
    /// Everything is memory of the handle's device, as the descriptors say.
    unsafe fn run(
        mut self,
        on: &Pinned<'_>,
        call: &Call,
        activation: Option<miopenActivationDescriptor_t>,
    ) -> Result<(), Failure> {
        let [scale, bias, ..] = self.operands;
        // Without an activation the bias has no part in the gradient.
        let bias = if bias.is_null() && activation.is_none() { scale } else { bias };
        let mut saved = None;
        if self.operands[2..].iter().any(|pointer| pointer.is_null()) {
            // SAFETY: as promised by the caller.
            let saved = saved.insert(unsafe { self.statistics(on, call, bias) }?);
            self.operands[2..]
                .copy_from_slice(&[saved[0].address(), saved[1].address()].map(|p| p.cast_const()));
        }
        let [_, _, mean, inverse] = self.operands;
        let mut chain = Chain::new(self.dy.descriptor)?;
        let [scale_diff, bias_diff] = self.results.map(|result| result.cast());
        let operands = operands::BatchNormBackward {
            x: self.x.address,
            scale: scale.cast(),
            bias: bias.cast(),
            saved_mean: mean.cast(),
            saved_inv_variance: inverse.cast(),
            scale_diff,
            bias_diff,
        };
        let own = if activation.is_some() { Scales::NONE } else { self.scales };
        chain.append(BatchNormBackward::new(call.mode), operands, own)?;
        let mut forward = None;
        if let Some(activation) = activation {
            // The activation's gradient wants its output, which this call is not given: it is made again.
            let y = forward.insert(Scratch::new(on, self.x.descriptor)?);
            // SAFETY: as promised by the caller.
            unsafe {
                let folded = call.fold(on, scale, inverse)?;
                let parameters = [folded.scale.address().cast_const(), bias, mean, folded.variance.address()];
                let forward = call.inference(parameters, 0.0, Scales::NONE, Some(activation))?;
                forward.run_on(on, self.x.present("x")?, y.memory(), None)?;
            }
            let (mode, params) = activation.activation()?;
            let operands = operands::ActivationBackward::new(y.address(), params);
            chain.append(ActivationBackward::new(mode), operands, self.scales)?;
        }
        let (dy, dx) = (self.dy.present("dy")?, call.output.present("dx")?);
        // SAFETY: as promised by the caller.
        unsafe { chain.run_on(on, dy, dx, None) }
    }

    /// Mean and inverse variance of x, as the forward pass would have saved them.
    ///
    /// # Safety
    /// As [`Gradient::run`].
    unsafe fn statistics(
        &self,
        on: &Pinned<'_>,
        call: &Call,
        bias: *const c_void,
    ) -> Result<[Scratch; 2], Failure> {
        let saved = [Scratch::new(on, call.parameters)?, Scratch::new(on, call.parameters)?];
        let null = std::ptr::null_mut();
        let results = [saved[0].address(), saved[1].address(), null, null];
        let chain =
            call.training([self.operands[0], bias], results, 0.0, self.epsilon, Scales::NONE, None)?;
        let y = Scratch::new(on, self.x.descriptor)?;
        // SAFETY: as promised by the caller.
        unsafe { chain.run_on(on, self.x.present("x")?, y.memory(), None) }?;
        Ok(saved)
    }
}

export! {
    fn miopenBatchNormalizationBackward(
        handle: miopenHandle_t,
        bn_mode: miopenBatchNormMode_t,
        alphaDataDiff: In<c_void>,
        betaDataDiff: In<c_void>,
        alphaParamDiff: In<c_void>,
        betaParamDiff: In<c_void>,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        dyDesc: miopenTensorDescriptor_t,
        dy: *const c_void,
        dxDesc: miopenTensorDescriptor_t,
        dx: *mut c_void,
        bnScaleBiasDiffDesc: miopenTensorDescriptor_t,
        bnScale: *const c_void,
        resultBnScaleDiff: *mut c_void,
        resultBnBiasDiff: *mut c_void,
        epsilon: f64,
        savedMean: *const c_void,
        savedInvVariance: *const c_void,
    ) {
        let handle = handle.get()?;
        let (x, dy) = (Memory::new(xDesc, x)?, Memory::new(dyDesc, dy)?);
        let call = Call::new(bn_mode, x, Memory::new(dxDesc, dx)?, &[bnScaleBiasDiffDesc])?;
        let operands = [bnScale, std::ptr::null(), savedMean, savedInvVariance];
        let results = [resultBnScaleDiff, resultBnBiasDiff];
        let scales = [alphaDataDiff, betaDataDiff, alphaParamDiff, betaParamDiff];
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { Gradient::new(x, dy, operands, results, epsilon, scales)?.run(&handle.pinned(), &call, None) }?;
    }

    fn miopenBatchNormalizationBackward_V2(
        handle: miopenHandle_t,
        bn_mode: miopenBatchNormMode_t,
        alphaDataDiff: In<c_void>,
        betaDataDiff: In<c_void>,
        alphaParamDiff: In<c_void>,
        betaParamDiff: In<c_void>,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        dyDesc: miopenTensorDescriptor_t,
        dy: *const c_void,
        dxDesc: miopenTensorDescriptor_t,
        dx: *mut c_void,
        scaleDesc: miopenTensorDescriptor_t,
        biasDesc: miopenTensorDescriptor_t,
        savedMeanDesc: miopenTensorDescriptor_t,
        savedVarDesc: miopenTensorDescriptor_t,
        bnScale: *const c_void,
        resultBnScaleDiff: *mut c_void,
        resultBnBiasDiff: *mut c_void,
        epsilon: f64,
        savedMean: *const c_void,
        savedInvVariance: *const c_void,
    ) {
        let handle = handle.get()?;
        let (x, dy) = (Memory::new(xDesc, x)?, Memory::new(dyDesc, dy)?);
        let descriptors = [scaleDesc, biasDesc, savedMeanDesc, savedVarDesc];
        let call = Call::new(bn_mode, x, Memory::new(dxDesc, dx)?, &descriptors)?;
        let operands = [bnScale, std::ptr::null(), savedMean, savedInvVariance];
        let results = [resultBnScaleDiff, resultBnBiasDiff];
        let scales = [alphaDataDiff, betaDataDiff, alphaParamDiff, betaParamDiff];
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { Gradient::new(x, dy, operands, results, epsilon, scales)?.run(&handle.pinned(), &call, None) }?;
    }

    fn miopenBatchNormBackwardActivation(
        handle: miopenHandle_t,
        bn_mode: miopenBatchNormMode_t,
        alphaDataDiff: In<c_void>,
        betaDataDiff: In<c_void>,
        alphaParamDiff: In<c_void>,
        betaParamDiff: In<c_void>,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        dyDesc: miopenTensorDescriptor_t,
        dy: *const c_void,
        dxDesc: miopenTensorDescriptor_t,
        dx: *mut c_void,
        scaleDesc: miopenTensorDescriptor_t,
        biasDesc: miopenTensorDescriptor_t,
        savedMeanDesc: miopenTensorDescriptor_t,
        savedVarianceDesc: miopenTensorDescriptor_t,
        bnScale: *const c_void,
        bnBias: *const c_void,
        resultBnScaleDiff: *mut c_void,
        resultBnBiasDiff: *mut c_void,
        epsilon: f64,
        savedMean: *const c_void,
        savedInvVariance: *const c_void,
        activDesc: miopenActivationDescriptor_t,
    ) {
        let handle = handle.get()?;
        let (x, dy) = (Memory::new(xDesc, x)?, Memory::new(dyDesc, dy)?);
        let descriptors = [scaleDesc, biasDesc, savedMeanDesc, savedVarianceDesc];
        let call = Call::new(bn_mode, x, Memory::new(dxDesc, dx)?, &descriptors)?;
        let operands = [bnScale, bnBias, savedMean, savedInvVariance];
        let results = [resultBnScaleDiff, resultBnBiasDiff];
        let scales = [alphaDataDiff, betaDataDiff, alphaParamDiff, betaParamDiff];
        let gradient = Gradient::new(x, dy, operands, results, epsilon, scales)?;
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { gradient.run(&handle.pinned(), &call, Some(activDesc)) }?;
    }
}

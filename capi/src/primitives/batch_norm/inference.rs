//! Batch-norm inference: with estimated mean and variance, with an inverse variance, or with the statistics of
//! the batch where none are given.

use std::ffi::c_void;

use super::{Call, scales};
use crate::abi::{export, miopenBatchNormMode_t};
use crate::activation::miopenActivationDescriptor_t;
use crate::execute::Memory;
use crate::handle::miopenHandle_t;
use crate::tensor::miopenTensorDescriptor_t;

export! {
    fn miopenBatchNormalizationForwardInference(
        handle: miopenHandle_t,
        bn_mode: miopenBatchNormMode_t,
        alpha: *mut c_void,
        beta: *mut c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
        bnScaleBiasMeanVarDesc: miopenTensorDescriptor_t,
        bnScale: *mut c_void,
        bnBias: *mut c_void,
        estimatedMean: *mut c_void,
        estimatedVariance: *mut c_void,
        epsilon: f64,
    ) {
        let handle = handle.get()?;
        let (x, y) = (Memory::new(xDesc, x)?, Memory::new(yDesc, y)?);
        let call = Call::new(bn_mode, x, y, &[bnScaleBiasMeanVarDesc])?;
        let parameters = [bnScale, bnBias, estimatedMean, estimatedVariance].map(|p| p.cast_const());
        let chain = call.inference_or_batch(parameters, epsilon, scales(alpha, beta), None)?;
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { call.run(&handle.pinned(), &chain) }?;
    }

    fn miopenBatchNormalizationForwardInference_V2(
        handle: miopenHandle_t,
        bn_mode: miopenBatchNormMode_t,
        alpha: *mut c_void,
        beta: *mut c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
        scaleDesc: miopenTensorDescriptor_t,
        biasDesc: miopenTensorDescriptor_t,
        estMeanDesc: miopenTensorDescriptor_t,
        estVarianceDesc: miopenTensorDescriptor_t,
        bnScale: *mut c_void,
        bnBias: *mut c_void,
        estimatedMean: *mut c_void,
        estimatedVariance: *mut c_void,
        epsilon: f64,
    ) {
        let handle = handle.get()?;
        let (x, y) = (Memory::new(xDesc, x)?, Memory::new(yDesc, y)?);
        let call = Call::new(bn_mode, x, y, &[scaleDesc, biasDesc, estMeanDesc, estVarianceDesc])?;
        let parameters = [bnScale, bnBias, estimatedMean, estimatedVariance].map(|p| p.cast_const());
        let chain = call.inference_or_batch(parameters, epsilon, scales(alpha, beta), None)?;
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { call.run(&handle.pinned(), &chain) }?;
    }

    fn miopenBatchNormForwardInferenceActivation(
        handle: miopenHandle_t,
        bn_mode: miopenBatchNormMode_t,
        alpha: *mut c_void,
        beta: *mut c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
        scaleDesc: miopenTensorDescriptor_t,
        biasDesc: miopenTensorDescriptor_t,
        estMeanDesc: miopenTensorDescriptor_t,
        estVarianceDesc: miopenTensorDescriptor_t,
        bnScale: *mut c_void,
        bnBias: *mut c_void,
        estimatedMean: *mut c_void,
        estimatedVariance: *mut c_void,
        epsilon: f64,
        activDesc: miopenActivationDescriptor_t,
    ) {
        let handle = handle.get()?;
        let (x, y) = (Memory::new(xDesc, x)?, Memory::new(yDesc, y)?);
        let call = Call::new(bn_mode, x, y, &[scaleDesc, biasDesc, estMeanDesc, estVarianceDesc])?;
        let parameters = [bnScale, bnBias, estimatedMean, estimatedVariance].map(|p| p.cast_const());
        let chain = call.inference_or_batch(parameters, epsilon, scales(alpha, beta), Some(activDesc))?;
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { call.run(&handle.pinned(), &chain) }?;
    }

    fn miopenBatchNormForwardInferenceActivationInvVariance(
        handle: miopenHandle_t,
        bn_mode: miopenBatchNormMode_t,
        alpha: *mut c_void,
        beta: *mut c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
        scaleDesc: miopenTensorDescriptor_t,
        biasDesc: miopenTensorDescriptor_t,
        estMeanDesc: miopenTensorDescriptor_t,
        estInvVarianceDesc: miopenTensorDescriptor_t,
        bnScale: *mut c_void,
        bnBias: *mut c_void,
        estimatedMean: *mut c_void,
        estimatedInvVariance: *mut c_void,
        activDesc: miopenActivationDescriptor_t,
    ) {
        let handle = handle.get()?;
        let (x, y) = (Memory::new(xDesc, x)?, Memory::new(yDesc, y)?);
        let call = Call::new(bn_mode, x, y, &[scaleDesc, biasDesc, estMeanDesc, estInvVarianceDesc])?;
        let on = handle.pinned();
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe {
            let folded = call.fold(&on, bnScale, estimatedInvVariance)?;
            let parameters = [folded.scale.address(), bnBias, estimatedMean, folded.variance.address()]
                .map(|p| p.cast_const());
            call.run(&on, &call.inference(parameters, 0.0, scales(alpha, beta), Some(activDesc))?)?;
        }
    }

    fn miopenBatchNormalizationForwardInferenceInvVariance(
        handle: miopenHandle_t,
        bn_mode: miopenBatchNormMode_t,
        alpha: *mut c_void,
        beta: *mut c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
        scaleDesc: miopenTensorDescriptor_t,
        biasDesc: miopenTensorDescriptor_t,
        estMeanDesc: miopenTensorDescriptor_t,
        estInvVarianceDesc: miopenTensorDescriptor_t,
        bnScale: *mut c_void,
        bnBias: *mut c_void,
        estimatedMean: *mut c_void,
        estimatedInvVariance: *mut c_void,
    ) {
        let handle = handle.get()?;
        let (x, y) = (Memory::new(xDesc, x)?, Memory::new(yDesc, y)?);
        let call = Call::new(bn_mode, x, y, &[scaleDesc, biasDesc, estMeanDesc, estInvVarianceDesc])?;
        let on = handle.pinned();
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe {
            let folded = call.fold(&on, bnScale, estimatedInvVariance)?;
            let parameters = [folded.scale.address(), bnBias, estimatedMean, folded.variance.address()]
                .map(|p| p.cast_const());
            call.run(&on, &call.inference(parameters, 0.0, scales(alpha, beta), None)?)?;
        }
    }
}

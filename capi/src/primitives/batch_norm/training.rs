//! Batch-norm for training, with running statistics that are updated in place or from one memory to another.

use std::ffi::c_void;

use super::super::scratch::copying;
use super::{Call, scales};
use crate::abi::{export, miopenBatchNormMode_t};
use crate::activation::miopenActivationDescriptor_t;
use crate::args::Scales;
use crate::execute::{Chain, Memory};
use crate::handle::{Pinned, miopenHandle_t};
use crate::status::{Failure, bad_parm};
use crate::tensor::miopenTensorDescriptor_t;

/// The parameters of a training call whose running statistics come from one memory and go to another.
struct Moving {
    /// Scale and bias.
    parameters: [*const c_void; 2],
    /// Mean and inverse variance of the batch, where wanted.
    saved: [*mut c_void; 2],
    /// Running mean and variance before the call.
    previous: [*const c_void; 2],
    /// Running mean and variance behind the call; NULL where they are not wanted.
    next: [*mut c_void; 2],
    exp_avg_factor: f64,
    epsilon: f64,
    scales: Scales,
}

impl Moving {
    /// Copies the running statistics to where they are wanted and trains with them in place there. What can be
    /// refused is refused before anything is written.
    ///
    /// # Safety
    /// Everything is memory of the handle's device, as the descriptors say.
    unsafe fn run(
        &self,
        on: &Pinned<'_>,
        call: &Call,
        activation: Option<miopenActivationDescriptor_t>,
    ) -> Result<(), Failure> {
        let results = [self.saved[0], self.saved[1], self.next[0], self.next[1]];
        let Moving { parameters, exp_avg_factor, epsilon, scales, .. } = *self;
        let training = call.training(parameters, results, exp_avg_factor, epsilon, scales, activation)?;
        let mut steps: Vec<(Chain, Memory, Memory)> = Vec::new();
        for (from, to) in self.previous.into_iter().zip(self.next).filter(|(_, to)| !to.is_null()) {
            if from.is_null() {
                return Err(bad_parm("the next running mean and variance are wanted, the previous are NULL"));
            }
            let memory = |address| Memory { descriptor: call.parameters, address };
            if from != to.cast_const() {
                steps.push((copying(call.parameters, 1.0)?, memory(from.cast_mut()), memory(to)));
            }
        }
        steps.push((training, call.x.present("x")?, call.output.present("y")?));
        for (chain, x, y) in &steps {
            chain.check_on(on, *x, *y)?;
        }
        for (chain, x, y) in steps {
            // SAFETY: as promised by the caller.
            unsafe { chain.run_on(on, x, y, None) }?;
        }
        Ok(())
    }
}

export! {
    fn miopenBatchNormalizationForwardTraining(
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
        expAvgFactor: f64,
        resultRunningMean: *mut c_void,
        resultRunningVariance: *mut c_void,
        epsilon: f64,
        resultSaveMean: *mut c_void,
        resultSaveInvVariance: *mut c_void,
    ) {
        let handle = handle.get()?;
        let (x, y) = (Memory::new(xDesc, x)?, Memory::new(yDesc, y)?);
        let call = Call::new(bn_mode, x, y, &[bnScaleBiasMeanVarDesc])?;
        let results = [resultSaveMean, resultSaveInvVariance, resultRunningMean, resultRunningVariance];
        let parameters = [bnScale, bnBias].map(|p| p.cast_const());
        let chain = call.training(parameters, results, expAvgFactor, epsilon, scales(alpha, beta), None)?;
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { call.run(&handle.pinned(), &chain) }?;
    }

    fn miopenBatchNormalizationForwardTraining_V2(
        handle: miopenHandle_t,
        bn_mode: miopenBatchNormMode_t,
        alpha: *mut c_void,
        beta: *mut c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
        scaleDesc: miopenTensorDescriptor_t,
        biasVarDesc: miopenTensorDescriptor_t,
        savedMeanDesc: miopenTensorDescriptor_t,
        savedVarDesc: miopenTensorDescriptor_t,
        bnScale: *mut c_void,
        bnBias: *mut c_void,
        expAvgFactor: f64,
        resultRunningMean: *mut c_void,
        resultRunningVariance: *mut c_void,
        epsilon: f64,
        resultSaveMean: *mut c_void,
        resultSaveInvVariance: *mut c_void,
    ) {
        let handle = handle.get()?;
        let (x, y) = (Memory::new(xDesc, x)?, Memory::new(yDesc, y)?);
        let call = Call::new(bn_mode, x, y, &[scaleDesc, biasVarDesc, savedMeanDesc, savedVarDesc])?;
        let results = [resultSaveMean, resultSaveInvVariance, resultRunningMean, resultRunningVariance];
        let parameters = [bnScale, bnBias].map(|p| p.cast_const());
        let chain = call.training(parameters, results, expAvgFactor, epsilon, scales(alpha, beta), None)?;
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { call.run(&handle.pinned(), &chain) }?;
    }

    fn miopenBatchNormForwardTrainingActivation(
        handle: miopenHandle_t,
        bn_mode: miopenBatchNormMode_t,
        alpha: *mut c_void,
        beta: *mut c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
        scaleDesc: miopenTensorDescriptor_t,
        biasVarDesc: miopenTensorDescriptor_t,
        savedMeanDesc: miopenTensorDescriptor_t,
        savedVarDesc: miopenTensorDescriptor_t,
        bnScale: *mut c_void,
        bnBias: *mut c_void,
        expAvgFactor: f64,
        resultRunningMean: *mut c_void,
        resultRunningVariance: *mut c_void,
        epsilon: f64,
        resultSaveMean: *mut c_void,
        resultSaveInvVariance: *mut c_void,
        activDesc: miopenActivationDescriptor_t,
    ) {
        let handle = handle.get()?;
        let (x, y) = (Memory::new(xDesc, x)?, Memory::new(yDesc, y)?);
        let call = Call::new(bn_mode, x, y, &[scaleDesc, biasVarDesc, savedMeanDesc, savedVarDesc])?;
        let results = [resultSaveMean, resultSaveInvVariance, resultRunningMean, resultRunningVariance];
        let parameters = [bnScale, bnBias].map(|p| p.cast_const());
        let activation = Some(activDesc);
        let scales = scales(alpha, beta);
        let chain = call.training(parameters, results, expAvgFactor, epsilon, scales, activation)?;
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { call.run(&handle.pinned(), &chain) }?;
    }

    fn miopenBatchNormalizationForwardTraining_V3(
        handle: miopenHandle_t,
        bn_mode: miopenBatchNormMode_t,
        alpha: *mut c_void,
        beta: *mut c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
        scaleDesc: miopenTensorDescriptor_t,
        biasVarDesc: miopenTensorDescriptor_t,
        savedMeanDesc: miopenTensorDescriptor_t,
        savedVarDesc: miopenTensorDescriptor_t,
        bnScale: *mut c_void,
        bnBias: *mut c_void,
        expAvgFactor: f64,
        prevResultRunningMean: *const c_void,
        prevResultRunningVariance: *const c_void,
        nextResultRunningMean: *mut c_void,
        nextResultRunningVariance: *mut c_void,
        epsilon: f64,
        resultSaveMean: *mut c_void,
        resultSaveInvVariance: *mut c_void,
    ) {
        let handle = handle.get()?;
        let (x, y) = (Memory::new(xDesc, x)?, Memory::new(yDesc, y)?);
        let call = Call::new(bn_mode, x, y, &[scaleDesc, biasVarDesc, savedMeanDesc, savedVarDesc])?;
        let moving = Moving {
            parameters: [bnScale, bnBias].map(|p| p.cast_const()),
            saved: [resultSaveMean, resultSaveInvVariance],
            previous: [prevResultRunningMean, prevResultRunningVariance],
            next: [nextResultRunningMean, nextResultRunningVariance],
            exp_avg_factor: expAvgFactor,
            epsilon,
            scales: scales(alpha, beta),
        };
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { moving.run(&handle.pinned(), &call, None) }?;
    }

    fn miopenBatchNormForwardTrainingActivation_V2(
        handle: miopenHandle_t,
        bn_mode: miopenBatchNormMode_t,
        alpha: *mut c_void,
        beta: *mut c_void,
        xDesc: miopenTensorDescriptor_t,
        x: *const c_void,
        yDesc: miopenTensorDescriptor_t,
        y: *mut c_void,
        scaleDesc: miopenTensorDescriptor_t,
        biasVarDesc: miopenTensorDescriptor_t,
        savedMeanDesc: miopenTensorDescriptor_t,
        savedVarDesc: miopenTensorDescriptor_t,
        bnScale: *mut c_void,
        bnBias: *mut c_void,
        expAvgFactor: f64,
        prevResultRunningMean: *const c_void,
        prevResultRunningVariance: *const c_void,
        nextResultRunningMean: *mut c_void,
        nextResultRunningVariance: *mut c_void,
        epsilon: f64,
        resultSaveMean: *mut c_void,
        resultSaveInvVariance: *mut c_void,
        activDesc: miopenActivationDescriptor_t,
    ) {
        let handle = handle.get()?;
        let (x, y) = (Memory::new(xDesc, x)?, Memory::new(yDesc, y)?);
        let call = Call::new(bn_mode, x, y, &[scaleDesc, biasVarDesc, savedMeanDesc, savedVarDesc])?;
        let moving = Moving {
            parameters: [bnScale, bnBias].map(|p| p.cast_const()),
            saved: [resultSaveMean, resultSaveInvVariance],
            previous: [prevResultRunningMean, prevResultRunningVariance],
            next: [nextResultRunningMean, nextResultRunningVariance],
            exp_avg_factor: expAvgFactor,
            epsilon,
            scales: scales(alpha, beta),
        };
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { moving.run(&handle.pinned(), &call, Some(activDesc)) }?;
    }
}

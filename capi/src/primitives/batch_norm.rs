//! Batch-norm: inference, training and gradient, alone or with an activation behind it.

use std::ffi::c_void;

use fuseplan::{
    ActivationBackward, ActivationForward, BatchNormBackward, BatchNormForward, BatchNormInference,
    BatchNormMode, TensorDescriptor,
};

use super::scratch::Scratch;
use crate::abi::{In, export, miopenBatchNormMode_t};
use crate::activation::miopenActivationDescriptor_t;
use crate::args::{Given, Scales};
use crate::execute::{Chain, Memory};
use crate::handle::{Address, Pinned, miopenHandle_t};
use crate::status::{Failure, bad_parm, not_implemented};
use crate::tensor::{batch_norm_mode, miopenTensorDescriptor_t};

/// The tensors of a call, and the descriptor that its parameters must have.
struct Call {
    mode: BatchNormMode,
    x: Memory,
    /// y, or dx.
    output: Memory,
    parameters: TensorDescriptor,
}

impl Call {
    fn new(
        mode: miopenBatchNormMode_t,
        x: Memory,
        output: Memory,
        descriptors: &[miopenTensorDescriptor_t],
    ) -> Result<Self, Failure> {
        let mode = batch_norm_mode(mode)?;
        let parameters = mode.derive(&x.descriptor)?;
        for descriptor in descriptors {
            let found = descriptor.descriptor()?;
            if found.canonical() != parameters.canonical() {
                return Err(bad_parm(format!("{mode} parameters are {found}; accepted: {parameters}")));
            }
        }
        Ok(Call { mode, x, output, parameters })
    }

    /// Scale, bias, mean and variance; then an activation, if there is one.
    fn inference(
        &self,
        parameters: [*const c_void; 4],
        epsilon: f64,
        scales: Scales,
        activation: Option<miopenActivationDescriptor_t>,
    ) -> Result<Chain, Failure> {
        let mut chain = Chain::new(self.x.descriptor)?;
        let given = Given::BatchNorm { parameters: parameters.map(address), epsilon };
        let own = if activation.is_some() { Scales::NONE } else { scales };
        chain.append(BatchNormInference::new(self.mode), given, own)?;
        append_activation(&mut chain, activation, scales)?;
        Ok(chain)
    }

    /// Scale and bias; saved mean and inverse variance, running mean and variance, where wanted.
    fn training(
        &self,
        parameters: [*const c_void; 2],
        results: [*mut c_void; 4],
        exp_avg_factor: f64,
        epsilon: f64,
        scales: Scales,
        activation: Option<miopenActivationDescriptor_t>,
    ) -> Result<Chain, Failure> {
        let running = match results[2..].iter().filter(|pointer| !pointer.is_null()).count() {
            0 => false,
            2 => true,
            _ => return Err(bad_parm("running mean and variance must be given both or neither")),
        };
        let mut chain = Chain::new(self.x.descriptor)?;
        let given = Given::BatchNormForward {
            parameters: parameters.map(address),
            results: results.map(Address),
            exp_avg_factor,
            epsilon,
        };
        let own = if activation.is_some() { Scales::NONE } else { scales };
        chain.append(BatchNormForward::new(self.mode, running), given, own)?;
        append_activation(&mut chain, activation, scales)?;
        Ok(chain)
    }

    /// Runs the chain from x to the output.
    ///
    /// # Safety
    /// Everything is memory of the handle's device, as the descriptors say.
    unsafe fn run(&self, on: &Pinned<'_>, chain: &Chain) -> Result<(), Failure> {
        let (x, output) = (self.x.present("x")?, self.output.present("y")?);
        // SAFETY: as promised by the caller.
        unsafe { chain.run_on(on, x, output, None) }
    }

    /// The parameters of a batch-norm whose inverse variance is given.
    ///
    /// # Safety
    /// Both are memory of a parameter on the handle's device.
    unsafe fn fold(
        &self,
        on: &Pinned<'_>,
        scale: *const c_void,
        inverse: *const c_void,
    ) -> Result<Folded, Failure> {
        if inverse.is_null() {
            return Err(bad_parm("the inverse variance is NULL"));
        }
        let scale = Memory { descriptor: self.parameters, address: scale.cast_mut() }.present("bnScale")?;
        let product = Scratch::new(on, self.parameters)?;
        let [zero, one] = [0.0, 1.0].map(|value| Scratch::filled(on, self.parameters, value));
        let (zero, one) = (zero?, one?);
        // A product of parameters is a batch-norm of one that has the other as its scale.
        let operands = [inverse.cast_mut(), zero.address(), zero.address(), one.address()];
        let mut chain = Chain::new(self.parameters)?;
        let given = Given::BatchNorm { parameters: operands.map(Address), epsilon: 0.0 };
        chain.append(BatchNormInference::new(self.mode), given, Scales::NONE)?;
        // SAFETY: as promised by the caller.
        unsafe { chain.run_on(on, scale, product.memory(), None) }?;
        Ok(Folded { scale: product, variance: one })
    }
}

/// A scale with the inverse variance in it, and the variance that is left: 1, with an epsilon of 0.
struct Folded {
    scale: Scratch,
    variance: Scratch,
}

fn append_activation(
    chain: &mut Chain,
    activation: Option<miopenActivationDescriptor_t>,
    scales: Scales,
) -> Result<(), Failure> {
    if let Some(activation) = activation {
        let (mode, params) = activation.activation()?;
        let params = [params.alpha, params.beta, params.gamma];
        chain.append(ActivationForward::new(mode), Given::Activation { params }, scales)?;
    }
    Ok(())
}

fn address(pointer: *const c_void) -> Address {
    Address(pointer.cast_mut())
}

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
        super::tensor::same_lens("dy", &dy.descriptor, "x", &x.descriptor)?;
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
        let given = Given::BatchNormBackward {
            operands: [self.x.address.cast_const(), scale, bias, mean, inverse].map(address),
            results: self.results.map(Address),
        };
        let own = if activation.is_some() { Scales::NONE } else { self.scales };
        chain.append(BatchNormBackward::new(call.mode), given, own)?;
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
            let params = [params.alpha, params.beta, params.gamma];
            let given = Given::ActivationBackward { y: Address(y.address()), params };
            chain.append(ActivationBackward::new(mode), given, self.scales)?;
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

/// `alpha` and `beta` as these functions have them, not const.
fn scales(alpha: *mut c_void, beta: *mut c_void) -> Scales {
    // SAFETY: NULL or one f32, as the header says of the functions that hand these in.
    unsafe { Scales::read(In::new(alpha.cast_const()), In::new(beta.cast_const())) }
}

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
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { call.run(&handle.pinned(), &call.inference(parameters, epsilon, scales(alpha, beta), None)?) }?;
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
        // SAFETY: the header says that the pointers are memory of the handle's device.
        unsafe { call.run(&handle.pinned(), &call.inference(parameters, epsilon, scales(alpha, beta), None)?) }?;
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
        let chain = call.inference(parameters, epsilon, scales(alpha, beta), Some(activDesc))?;
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

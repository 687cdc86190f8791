//! Batch-norm: inference, training and gradient, alone or with an activation behind it. Here is what the
//! three have in common: the tensors of a call, and the chains of operators that they run as.

use std::ffi::c_void;

use fuseplan::{
    ActivationForward, BatchNormForward, BatchNormInference, BatchNormMode, TensorDescriptor, raw::operands,
};

use super::scratch::Scratch;
use crate::abi::{In, miopenBatchNormMode_t};
use crate::activation::miopenActivationDescriptor_t;
use crate::args::Scales;
use crate::execute::{Chain, Memory};
use crate::handle::Pinned;
use crate::status::{Failure, bad_parm};
use crate::tensor::{batch_norm_mode, miopenTensorDescriptor_t};

pub(crate) mod gradient;
pub(crate) mod inference;
pub(crate) mod training;

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
        let [scale, bias, mean, variance] = parameters.map(|parameter| parameter.cast());
        let operands = operands::BatchNormInference { scale, bias, mean, variance, epsilon };
        let own = if activation.is_some() { Scales::NONE } else { scales };
        chain.append(BatchNormInference::new(self.mode), operands, own)?;
        append_activation(&mut chain, activation, scales)?;
        Ok(chain)
    }

    /// [`inference`](Self::inference), or, without a mean or without a variance, the same with the batch's own
    /// mean and variance, which are not kept.
    fn inference_or_batch(
        &self,
        parameters: [*const c_void; 4],
        epsilon: f64,
        scales: Scales,
        activation: Option<miopenActivationDescriptor_t>,
    ) -> Result<Chain, Failure> {
        let [scale, bias, mean, variance] = parameters;
        if mean.is_null() || variance.is_null() {
            let nowhere = [std::ptr::null_mut(); 4];
            return self.training([scale, bias], nowhere, 0.0, epsilon, scales, activation);
        }
        self.inference(parameters, epsilon, scales, activation)
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
        let [scale, bias] = parameters.map(|parameter| parameter.cast());
        let [saved_mean, saved_inv_variance, running_mean, running_variance] =
            results.map(|result| result.cast());
        let operands = operands::BatchNormForward {
            scale,
            bias,
            saved_mean,
            saved_inv_variance,
            running_mean,
            running_variance,
            epsilon,
            exp_avg_factor,
        };
        let own = if activation.is_some() { Scales::NONE } else { scales };
        chain.append(BatchNormForward::new(self.mode, running), operands, own)?;
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
        let operands = operands::BatchNormInference {
            scale: inverse.cast(),
            bias: zero.address().cast(),
            mean: zero.address().cast(),
            variance: one.address().cast(),
            epsilon: 0.0,
        };
        let mut chain = Chain::new(self.parameters)?;
        chain.append(BatchNormInference::new(self.mode), operands, Scales::NONE)?;
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
        chain.append(ActivationForward::new(mode), params.into(), scales)?;
    }
    Ok(())
}

/// `alpha` and `beta` as these functions have them, not const.
fn scales(alpha: *mut c_void, beta: *mut c_void) -> Scales {
    // SAFETY: NULL or one f32, as the header says of the functions that hand these in.
    unsafe { Scales::read(In::new(alpha.cast_const()), In::new(beta.cast_const())) }
}

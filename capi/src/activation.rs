//! Activation descriptors.

use std::sync::{Mutex, PoisonError};

use fuseplan::{ActivationMode, raw::ActivationParams};

use crate::abi::{Out, export, miopenActivationMode_t};
use crate::status::{Failure, bad_parm};
use crate::table::{Ref, create, object};

/// What a `miopenActivationDescriptor_t` names.
#[derive(Debug)]
pub struct ActivationObject {
    state: Mutex<(ActivationMode, ActivationParams)>,
}
object!(ActivationObject, Activation, |activation| {
    let (mode, params) = *activation.state.lock().unwrap_or_else(PoisonError::into_inner);
    Some(format!("{mode}, alpha {}, beta {}, gamma {}", params.alpha, params.beta, params.gamma))
});

/// C's `miopenActivationDescriptor_t`.
#[allow(non_camel_case_types, reason = "MIOpen's own name")]
pub type miopenActivationDescriptor_t = Ref<ActivationObject>;

impl miopenActivationDescriptor_t {
    /// Mode and parameters.
    pub(crate) fn activation(self) -> Result<(ActivationMode, ActivationParams), Failure> {
        Ok(*self.get()?.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The mode that C names.
pub(crate) fn mode(number: miopenActivationMode_t) -> Result<ActivationMode, Failure> {
    let mode = ActivationMode::from_miopen_value(number);
    mode.ok_or_else(|| {
        let known = ActivationMode::ALL.map(|mode| format!("{} {mode}", mode.miopen_value())).join(", ");
        bad_parm(format!("{number} is no activation mode; accepted: {known}"))
    })
}

export! {
    fn miopenCreateActivationDescriptor(activDesc: Out<miopenActivationDescriptor_t>) {
        let out = activDesc.required("activDesc")?;
        let state = Mutex::new((ActivationMode::Pasthru, ActivationParams::default()));
        out.set(create(ActivationObject { state })?);
    }

    fn miopenSetActivationDescriptor(
        activDesc: miopenActivationDescriptor_t,
        mode: miopenActivationMode_t,
        activAlpha: f64,
        activBeta: f64,
        activGamma: f64,
    ) {
        let object = activDesc.get()?;
        let state = (self::mode(mode)?, ActivationParams::new(activAlpha, activBeta, activGamma));
        *object.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn miopenGetActivationDescriptor(
        activDesc: miopenActivationDescriptor_t,
        mode: Out<miopenActivationMode_t>,
        activAlpha: Out<f64>,
        activBeta: Out<f64>,
        activGamma: Out<f64>,
    ) {
        let (kept, params) = activDesc.activation()?;
        mode.set(kept.miopen_value());
        activAlpha.set(params.alpha);
        activBeta.set(params.beta);
        activGamma.set(params.gamma);
    }

    fn miopenDestroyActivationDescriptor(activDesc: miopenActivationDescriptor_t) {
        if !activDesc.is_null() {
            activDesc.remove()?;
        }
    }
}

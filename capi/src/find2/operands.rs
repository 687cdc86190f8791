//! The names of a problem's tensors and scalars, and what a call gives for them.

use std::collections::BTreeMap;
use std::ffi::c_void;

use crate::abi::miopenTensorArgumentId_t;
use crate::parallel::Address;
use crate::status::{Failure, bad_parm};

macro_rules! ids {
    ($($name:ident = $number:expr => $text:literal;)*) => {
        $(pub(super) const $name: miopenTensorArgumentId_t = $number;)*

        /// The header's name of an argument, or its number.
        pub(super) fn name(id: miopenTensorArgumentId_t) -> String {
            match id {
                $($name => $text.into(),)*
                other => format!("argument {other}"),
            }
        }
    };
}

const SCALAR: miopenTensorArgumentId_t = 1 << 31;

ids! {
    CONVOLUTION_X = 1 => "miopenTensorConvolutionX";
    CONVOLUTION_W = 2 => "miopenTensorConvolutionW";
    CONVOLUTION_Y = 3 => "miopenTensorConvolutionY";
    ACTIVATION_X = 37 => "miopenTensorActivationX";
    ACTIVATION_Y = 38 => "miopenTensorActivationY";
    BIAS_X = 41 => "miopenTensorBiasX";
    BIAS_Y = 42 => "miopenTensorBiasY";
    BIAS = 43 => "miopenTensorBias";
    BATCHNORM_X = 48 => "miopenTensorBatchnormX";
    BATCHNORM_Y = 49 => "miopenTensorBatchnormY";
    BATCHNORM_RUNNING_MEAN = 50 => "miopenTensorBatchnormRunningMean";
    BATCHNORM_RUNNING_VARIANCE = 51 => "miopenTensorBatchnormRunningVariance";
    BATCHNORM_SAVED_MEAN = 52 => "miopenTensorBatchnormSavedMean";
    BATCHNORM_SAVED_VARIANCE = 53 => "miopenTensorBatchnormSavedVariance";
    BATCHNORM_SCALE = 54 => "miopenTensorBatchnormScale";
    BATCHNORM_ESTIMATED_MEAN = 56 => "miopenTensorBatchnormEstimatedMean";
    BATCHNORM_ESTIMATED_VARIANCE = 57 => "miopenTensorBatchnormEstimatedVariance";
    BATCHNORM_BIAS = 58 => "miopenTensorBatchnormBias";
    BATCHNORM_EXP_AVG_FACTOR = SCALAR | 2 => "miopenScalarBatchnormExpAvgFactor";
    BATCHNORM_EPSILON = SCALAR | 3 => "miopenScalarBatchnormEpsilon";
}

/// Whether an argument is one number in host memory.
pub(super) fn is_scalar(id: miopenTensorArgumentId_t) -> bool {
    id & SCALAR != 0
}

/// What a call gives for a problem's arguments.
#[derive(Debug, Default)]
pub(super) struct Operands {
    buffers: BTreeMap<miopenTensorArgumentId_t, Address>,
    scalars: BTreeMap<miopenTensorArgumentId_t, f64>,
}

impl Operands {
    pub(super) fn set_buffer(&mut self, id: miopenTensorArgumentId_t, address: *mut c_void) {
        self.buffers.insert(id, Address(address));
    }

    pub(super) fn set_scalar(&mut self, id: miopenTensorArgumentId_t, value: f64) {
        self.scalars.insert(id, value);
    }

    /// The memory that was given, or NULL.
    pub(super) fn buffer(&self, id: miopenTensorArgumentId_t) -> *mut c_void {
        self.buffers.get(&id).map_or(std::ptr::null_mut(), |address| address.0)
    }

    /// The number that was given, or 0.
    pub(super) fn scalar(&self, id: miopenTensorArgumentId_t) -> f64 {
        self.scalars.get(&id).copied().unwrap_or(0.0)
    }

    /// Refuses calls that do not give what is needed.
    pub(super) fn require(&self, ids: &[miopenTensorArgumentId_t]) -> Result<(), Failure> {
        let missing = |id: &&miopenTensorArgumentId_t| match is_scalar(**id) {
            true => !self.scalars.contains_key(id),
            false => self.buffer(**id).is_null(),
        };
        match ids.iter().find(missing) {
            Some(&id) => Err(bad_parm(format!("{} is not given, or NULL", name(id)))),
            None => Ok(()),
        }
    }
}

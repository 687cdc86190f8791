//! Batch-normalisation modes.

use std::fmt;

use crate::{DataType, DescriptorError, TensorDescriptor};

/// Over which elements statistics are taken, and so the shape of the parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BatchNormMode {
    /// One parameter for each (c, d, h, w): shape `[1, C, (D,) H, W]`.
    PerActivation,
    /// One parameter for each channel: shape `[1, C, (1,) 1, 1]`.
    Spatial,
}

impl BatchNormMode {
    /// Both modes, in the order of MIOpen's enumeration.
    pub const ALL: [BatchNormMode; 2] = [BatchNormMode::PerActivation, BatchNormMode::Spatial];

    /// The descriptor of scale, bias, mean and variance of a tensor: always f32 and packed, whatever the
    /// tensor's data type and layout (MIOpen's `miopenDeriveBNTensorDescriptor`).
    ///
    /// # Errors
    /// Tensors that are not 4-D or 5-D.
    pub fn derive(self, x: &TensorDescriptor) -> Result<TensorDescriptor, DescriptorError> {
        if x.spatial().len() < 2 {
            return Err(DescriptorError::Rank {
                what: "batch-norm tensor",
                found: x.rank(),
                expected: "4 or 5",
            });
        }
        let mut lens = [1; crate::MAX_RANK];
        lens[1] = x.lens()[1];
        if self == BatchNormMode::PerActivation {
            lens[2..x.rank()].copy_from_slice(x.spatial());
        }
        TensorDescriptor::packed(DataType::Float, &lens[..x.rank()])
    }
}

impl fmt::Display for BatchNormMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            BatchNormMode::PerActivation => "per-activation",
            BatchNormMode::Spatial => "spatial",
        })
    }
}

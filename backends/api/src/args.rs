//! What an executable is given at run time.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::ActivationParams;

/// Pointers and scalars of one execution.
///
/// What an executable may rely on: every pointer names memory of the device that the executable was loaded
/// for, large enough for its descriptor and aligned to its element; `ops` has one entry for each operator
/// of the problem, of the same kind; only the last entry has a non-zero `beta`; the output overlaps no
/// other operand, except that in an element-wise problem it may be the input itself or the residual itself
/// when descriptors are equal.
#[derive(Debug, Clone, Copy)]
pub struct RunArgs<'a> {
    /// The plan's input.
    pub input: *const c_void,
    /// The plan's output.
    pub output: *mut c_void,
    /// One entry for each operator.
    pub ops: &'a [OpArgs],
    /// At least as many bytes as the executable's workspace; may be null when that is 0.
    pub workspace: *mut c_void,
}

/// Arguments of one operator: `y = alpha · op(x) + beta · y_prior`.
#[derive(Debug, Clone)]
pub struct OpArgs {
    /// Scales the operator's result.
    pub alpha: f32,
    /// Scales the output's previous contents, which are added; not read when 0. Zero but on the last
    /// operator.
    pub beta: f32,
    /// What depends on the operator's kind.
    pub kind: OpArgsKind,
}

/// The part of an operator's arguments that depends on its kind.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum OpArgsKind {
    /// Nothing was set. Never reaches an executable.
    Unset,
    /// Of [`Op::ConvForward`](crate::Op::ConvForward).
    ConvForward {
        /// The filters.
        weights: *const c_void,
        /// Present when the filters cannot change as long as these arguments live: a place to keep what is
        /// derived from them.
        prepared: Option<Arc<Prepared>>,
    },
    /// Of [`Op::BiasForward`](crate::Op::BiasForward).
    BiasForward {
        /// The bias or residual, of the tensor's data type.
        bias: *const c_void,
    },
    /// Of [`Op::BatchNormInference`](crate::Op::BatchNormInference); f32.
    BatchNormInference {
        /// Scale (γ).
        scale: *const f32,
        /// Bias (β).
        bias: *const f32,
        /// Estimated mean.
        mean: *const f32,
        /// Estimated variance.
        variance: *const f32,
        /// Added to the variance.
        epsilon: f64,
    },
    /// Of [`Op::ActivationForward`](crate::Op::ActivationForward).
    ActivationForward {
        /// α, β, γ.
        params: ActivationParams,
    },
    /// Of [`Op::BatchNormForward`](crate::Op::BatchNormForward); f32.
    BatchNormForward {
        /// Scale (γ).
        scale: *const f32,
        /// Bias (β).
        bias: *const f32,
        /// Written: the mean of this batch. May be null: not wanted.
        saved_mean: *mut f32,
        /// Written: `1 / sqrt(variance + ε)` of this batch. May be null: not wanted.
        saved_inv_variance: *mut f32,
        /// Updated: `(1 − f) · running + f · batch`. Null unless the operator has running statistics.
        running_mean: *mut f32,
        /// Updated likewise, with the unbiased variance. Null unless the operator has running statistics.
        running_variance: *mut f32,
        /// The factor f.
        exp_avg_factor: f64,
        /// Added to the variance.
        epsilon: f64,
    },
    /// Of [`Op::BatchNormBackward`](crate::Op::BatchNormBackward); parameters f32.
    BatchNormBackward {
        /// The input of the forward batch-norm, of the plan's descriptor.
        x: *const c_void,
        /// Scale (γ).
        scale: *const f32,
        /// Bias (β); needed to remake the activation's input.
        bias: *const f32,
        /// Written: gradient of scale.
        scale_diff: *mut f32,
        /// Written: gradient of bias.
        bias_diff: *mut f32,
        /// The mean saved by the forward pass.
        saved_mean: *const f32,
        /// The inverse standard deviation saved by the forward pass.
        saved_inv_variance: *const f32,
    },
    /// Of [`Op::ActivationBackward`](crate::Op::ActivationBackward).
    ActivationBackward {
        /// The output of the forward activation, of the plan's descriptor.
        y: *const c_void,
        /// α, β, γ of the forward activation.
        params: ActivationParams,
    },
}

// SAFETY: these are plain addresses and numbers; whoever dereferences an address answers for it (see
// `Executable::run`), and `Prepared` is itself shareable.
unsafe impl Send for OpArgs {}
// SAFETY: as above.
unsafe impl Sync for OpArgs {}

/// What executables derived from constant weights (a packed copy, a transform), kept beside them.
///
/// One value for each owner; few owners are kept, the oldest goes first.
#[derive(Default)]
pub struct Prepared {
    slots: Mutex<Vec<(u64, Arc<dyn Any + Send + Sync>)>>,
}

impl Prepared {
    const SLOTS: usize = 4;

    /// The value that `owner` keeps here, made by `make` the first time. A panic or error in `make` leaves
    /// nothing behind. Looking up an existing value does not allocate.
    ///
    /// # Errors
    /// What `make` returns.
    pub fn get_or_try_make<T: Any + Send + Sync, E>(
        &self,
        owner: u64,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = slots.iter().find(|(o, _)| *o == owner).map(|(_, v)| Arc::clone(v));
        if let Some(value) = kept.and_then(|v| v.downcast::<T>().ok()) {
            return Ok(value);
        }
        let value = Arc::new(make()?);
        slots.retain(|(o, _)| *o != owner);
        if slots.len() == Self::SLOTS {
            slots.remove(0);
        }
        slots.push((owner, value.clone()));
        Ok(value)
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        write!(f, "Prepared({} kept)", slots.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepared_values_are_made_once_and_few_are_kept() {
        let prepared = Prepared::default();
        for owner in 0..6u64 {
            for _ in 0..2 {
                let mut made = 0;
                let value = prepared.get_or_try_make(owner, || {
                    made += 1;
                    Ok::<_, ()>(owner * 10)
                });
                assert_eq!(*value.unwrap(), owner * 10);
                assert!(made <= 1);
            }
        }
        assert_eq!(format!("{prepared:?}"), "Prepared(4 kept)");
        assert_eq!(prepared.get_or_try_make(5, || Err::<u64, _>("not again")).map(|v| *v), Ok(50));
        assert_eq!(prepared.get_or_try_make(0, || Err::<u64, _>("gone")), Err("gone"));
    }
}

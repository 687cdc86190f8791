//! Operators with one value a channel (bias, spatial batch-norm, and every α) as one step:
//! `y = (x · before + offset) · scale + shift`, two multiply-adds in f32.
//!
//! A batch-norm is `(x − mean) · k + bias` with `k = scale / sqrt(variance + ε)`. The mean is taken from x before
//! anything is multiplied: in `x · k + (bias − mean · k)` both terms are large where the mean is large beside the
//! deviation, and their difference has lost its digits. So a step has at most one batch-norm; what is in front of it
//! folds into `before` and `offset`, what follows into `scale` and `shift`. All of this is f32, each operation
//! rounded, so that every solver gets the same numbers from the same parameters, as GPUs do.

use crate::isa::Simd;

/// What operators amount to for one channel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fold {
    /// The product of the alphas in front of the batch-norm: the same for all channels.
    pub(crate) before: f32,
    pub(crate) offset: f32,
    pub(crate) scale: f32,
    pub(crate) shift: f32,
}

impl Fold {
    /// Leaves every number as it is: adding +0 would change the sign of −0.
    pub(crate) const IDENTITY: Fold = Fold { before: 1.0, offset: -0.0, scale: 1.0, shift: -0.0 };

    /// An α.
    pub(crate) fn multiply(&mut self, alpha: f32) {
        self.scale *= alpha;
        self.shift *= alpha;
    }

    /// A bias.
    pub(crate) fn add(&mut self, bias: f32) {
        self.shift += bias;
    }

    /// A batch-norm, the first of the step.
    pub(crate) fn normalize(&mut self, scale: f32, bias: f32, mean: f32, variance: f32, epsilon: f32) {
        let k = scale / (variance + epsilon).sqrt();
        *self = Fold { before: self.scale, offset: self.shift - mean, scale: k, shift: bias };
    }
}

/// The step for all channels: tables with one value for each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChannelStep {
    pub(crate) before: f32,
    /// Null where there is no batch-norm, and nothing to be done before the scale.
    pub(crate) offset: *const f32,
    pub(crate) scale: *const f32,
    pub(crate) shift: *const f32,
}

impl ChannelStep {
    /// Tables of a step.
    pub(crate) const TABLES: usize = 3;

    /// A step whose tables of `stride` floats lie at `tables`.
    pub(crate) fn at(tables: *const f32, stride: usize, normalizes: bool) -> Self {
        ChannelStep {
            before: 1.0,
            offset: if normalizes { tables.wrapping_add(2 * stride) } else { std::ptr::null() },
            scale: tables,
            shift: tables.wrapping_add(stride),
        }
    }

    /// Sets the numbers of channel `c`, but for those in front of the offset.
    ///
    /// # Safety
    /// The tables are writable and have a place for `c`.
    pub(crate) unsafe fn write(&self, c: usize, fold: &Fold) {
        // SAFETY: the caller's.
        unsafe {
            if !self.offset.is_null() {
                self.offset.cast_mut().add(c).write(fold.offset);
            }
            self.scale.cast_mut().add(c).write(fold.scale);
            self.shift.cast_mut().add(c).write(fold.shift);
        }
    }

    /// The step on a vector, whose part of a table `table` loads.
    #[inline(always)]
    pub(crate) fn apply<S: Simd>(&self, s: S, mut x: S::V, table: impl Fn(*const f32) -> S::V) -> S::V {
        if !self.offset.is_null() {
            x = s.fma(x, s.splat(self.before), table(self.offset));
        }
        s.fma(x, table(self.scale), table(self.shift))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_its_operators() {
        let mut fold = Fold::IDENTITY;
        fold.multiply(2.0);
        fold.add(3.0);
        fold.multiply(0.5);
        assert_eq!(fold, Fold { scale: 1.0, shift: 1.5, ..Fold::IDENTITY });
        // (x + 1.5 - 1000) · 4 / sqrt(3.5 + 0.5) + 7, then + 1, times -2.
        fold.normalize(4.0, 7.0, 1000.0, 3.5, 0.5);
        fold.add(1.0);
        fold.multiply(-2.0);
        assert_eq!(fold, Fold { before: 1.0, offset: -998.5, scale: -4.0, shift: -16.0 });
    }

    #[test]
    fn without_variance_the_factor_is_infinite() {
        let mut fold = Fold::IDENTITY;
        fold.normalize(-1.0, 7.0, 1000.0, 0.0, 0.0);
        assert_eq!(fold, Fold { before: 1.0, offset: -1000.0, scale: f32::NEG_INFINITY, shift: 7.0 });
    }
}

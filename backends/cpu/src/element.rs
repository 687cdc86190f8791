//! Elements as f64, and back with one rounding.

use fuseplan_api::{DataType, Element};
use half::{bf16, f16};

/// An element type that kernels compute with.
pub(crate) trait Value: Element {
    /// The same number.
    fn to_f64(self) -> f64;

    /// The nearest element, ties to even.
    fn from_f64(value: f64) -> Self;
}

impl Value for f32 {
    fn to_f64(self) -> f64 {
        self.into()
    }

    fn from_f64(value: f64) -> Self {
        value as f32
    }
}

impl Value for f16 {
    fn to_f64(self) -> f64 {
        f16::to_f64(self)
    }

    fn from_f64(value: f64) -> Self {
        f16::from_f32(to_odd(value))
    }
}

impl Value for bf16 {
    fn to_f64(self) -> f64 {
        bf16::to_f64(self)
    }

    fn from_f64(value: f64) -> Self {
        bf16::from_f32(to_odd(value))
    }
}

/// Rounds to f32 so that rounding the result again, to a type at least two bits shorter, gives what one
/// rounding of `value` would have given: of the two neighbours of an inexact value, the one whose last bit
/// is set ("round to odd"). The f64 conversions of `half` round twice where they use the processor's f32
/// instructions and cut off the low bits where they do not.
fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    let exact = f64::from(near);
    if exact == value || near.is_nan() || near.to_bits() & 1 == 1 {
        return near;
    }
    // The neighbour on the other side of `value`. An even `near` that is not `value` is neither f32::MAX
    // nor, towards zero, a zero.
    f32::from_bits(if exact.abs() > value.abs() { near.to_bits() - 1 } else { near.to_bits() + 1 })
}

/// The data types that have a [`Value`] type.
pub(crate) const DATA_TYPES: [DataType; 3] = [DataType::Float, DataType::Half, DataType::BFloat16];

/// Evaluates an expression with `$T` standing for the [`Value`] type of a data type, which must be one of
/// [`DATA_TYPES`]: solvers refuse the others.
macro_rules! with_value_type {
    ($data_type:expr, $T:ident => $body:expr) => {
        match $data_type {
            fuseplan_api::DataType::Float => {
                type $T = f32;
                $body
            }
            fuseplan_api::DataType::Half => {
                type $T = half::f16;
                $body
            }
            fuseplan_api::DataType::BFloat16 => {
                type $T = half::bf16;
                $body
            }
            other @ (fuseplan_api::DataType::Double | fuseplan_api::DataType::Int8) => {
                unreachable!("a solver accepted {other}")
            }
        }
    };
}
pub(crate) use with_value_type;

#[cfg(test)]
mod tests {
    use super::*;

    /// The element nearest to `value`, found by looking at all of them.
    fn nearest<T: Value>(value: f64, all: impl Fn(u16) -> T) -> (f64, bool) {
        let mut best = (f64::INFINITY, 0.0, false);
        for bits in 0..=u16::MAX {
            let candidate = all(bits).to_f64();
            let distance = (candidate - value).abs();
            let even = bits & 1 == 0;
            if candidate.is_finite() && (distance < best.0 || distance == best.0 && even && !best.2) {
                best = (distance, candidate, even);
            }
        }
        (best.1, best.2)
    }

    #[test]
    fn sixteen_bit_types_are_rounded_once() {
        // Just above and below a tie, by less than an f32 can hold, and the tie itself.
        for base in [1.0, 1.5, 65440.0, 6.0e-5, 3.0e-7, -2.25] {
            let here = f16::from_f32(base as f32);
            let next = f16::from_bits(here.to_bits() + 1);
            let tie = (here.to_f64() + next.to_f64()) / 2.0;
            for value in [tie, tie * (1.0 + 1e-15), tie * (1.0 - 1e-15)] {
                assert_eq!(
                    <f16 as Value>::from_f64(value).to_f64(),
                    nearest(value, f16::from_bits).0,
                    "{value}"
                );
            }
            let here = bf16::from_f32(base as f32);
            let next = bf16::from_bits(here.to_bits() + 1);
            let tie = (here.to_f64() + next.to_f64()) / 2.0;
            for value in [tie, tie * (1.0 + 1e-15), tie * (1.0 - 1e-15)] {
                assert_eq!(
                    <bf16 as Value>::from_f64(value).to_f64(),
                    nearest(value, bf16::from_bits).0,
                    "{value}"
                );
            }
        }
    }

    #[test]
    fn extremes_keep_their_meaning() {
        for value in [f64::INFINITY, 1e300, 65520.0] {
            assert_eq!(<f16 as Value>::from_f64(value), f16::INFINITY);
            assert_eq!(<f16 as Value>::from_f64(-value), f16::NEG_INFINITY);
        }
        assert_eq!(<f16 as Value>::from_f64(65519.99999999999), f16::MAX);
        assert_eq!(<bf16 as Value>::from_f64(1e300), bf16::INFINITY);
        assert!(<f16 as Value>::from_f64(f64::NAN).is_nan());
        assert!(<bf16 as Value>::from_f64(f64::NAN).is_nan());
        assert_eq!(<f16 as Value>::from_f64(1e-300), f16::ZERO);
        assert_eq!(<f16 as Value>::from_f64(-1e-300).to_bits(), 0x8000);
        assert_eq!(<bf16 as Value>::from_f64(-0.0).to_bits(), 0x8000);
    }
}

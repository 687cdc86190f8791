//! Types of data that the driver runs on, and random numbers of them.

use clap::ValueEnum;
use fuseplan::{DataType, MathMode, error::BackendError, traits::Element};
use half::{bf16, f16};

use crate::memory;

/// A type of data by MIOpenDriver's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Precision {
    /// 32-bit floats
    #[value(alias = "f32")]
    Fp32,
    /// 16-bit floats
    #[value(alias = "f16")]
    Fp16,
    /// bfloat16
    #[value(alias = "bf16")]
    Bfp16,
}

impl Precision {
    /// The precision of a data type, if the driver has it.
    pub(crate) fn of(data_type: DataType) -> Option<Self> {
        Precision::value_variants().iter().find(|precision| precision.data_type() == data_type).copied()
    }

    /// The library's name of it.
    pub(crate) fn data_type(self) -> DataType {
        match self {
            Precision::Fp32 => DataType::Float,
            Precision::Fp16 => DataType::Half,
            Precision::Bfp16 => DataType::BFloat16,
        }
    }
}

impl Precision {
    /// What the primitives of this type have behind their name.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Precision::Fp32 => "",
            Precision::Fp16 => "fp16",
            Precision::Bfp16 => "bfp16",
        }
    }
}

/// How products may be rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Math {
    /// Each output is the sum of its own products
    Strict,
    /// As the data type has it, with errors of the order of a sum at most
    Precise,
    /// f32 factors may be rounded to TF32 where that is faster
    Tf32,
}

impl Math {
    /// The library's name of it.
    pub(crate) fn mode(self) -> MathMode {
        match self {
            Math::Strict => MathMode::Strict,
            Math::Precise => MathMode::Precise,
            Math::Tf32 => MathMode::AllowTf32,
        }
    }

    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Math::Strict => "strict",
            Math::Precise => "precise",
            Math::Tf32 => "tf32",
        }
    }
}

/// Calls a function that is generic over [`Scalar`] for a precision.
macro_rules! for_precision {
    ($precision:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $precision {
            $crate::element::Precision::Fp32 => $function::<f32>($($argument),*),
            $crate::element::Precision::Fp16 => $function::<half::f16>($($argument),*),
            $crate::element::Precision::Bfp16 => $function::<half::bf16>($($argument),*),
        }
    };
}
pub(crate) use for_precision;

/// An element that converts to and from floats.
pub(crate) trait Scalar: Element + Copy {
    /// Not a number, to see what a kernel leaves unwritten.
    const NAN: Self;

    /// The nearest value.
    fn from_f32(value: f32) -> Self;

    /// The exact value.
    fn to_f64(self) -> f64;
}

impl Scalar for f32 {
    const NAN: Self = f32::NAN;

    fn from_f32(value: f32) -> Self {
        value
    }

    fn to_f64(self) -> f64 {
        self.into()
    }
}

impl Scalar for f16 {
    const NAN: Self = f16::NAN;

    fn from_f32(value: f32) -> Self {
        f16::from_f32(value)
    }

    fn to_f64(self) -> f64 {
        self.into()
    }
}

impl Scalar for bf16 {
    const NAN: Self = bf16::NAN;

    fn from_f32(value: f32) -> Self {
        bf16::from_f32(value)
    }

    fn to_f64(self) -> f64 {
        self.into()
    }
}

/// Random numbers, the same for the same seed on every machine.
#[derive(Debug)]
pub(crate) struct Random {
    generator: fastrand::Rng,
    seed: u64,
}

impl Random {
    /// From a seed; 0 stands for one that is different each time, as in MIOpenDriver.
    pub(crate) fn new(seed: u64) -> Self {
        let seed = if seed == 0 { fastrand::u64(1..) } else { seed };
        Random { generator: fastrand::Rng::with_seed(seed), seed }
    }

    /// The seed in use.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Evenly distributed numbers from `low` up to 1 above it.
    ///
    /// # Errors
    /// There is no memory for so many.
    pub(crate) fn numbers<T: Scalar>(&mut self, count: usize, low: f32) -> Result<Vec<T>, BackendError> {
        memory::filled(count, || T::from_f32(low + self.generator.f32()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_each_time() {
        let first: Vec<f32> = Random::new(12345678).numbers(1000, 0.0).unwrap();
        let second: Vec<f32> = Random::new(12345678).numbers(1000, 0.0).unwrap();
        let other: Vec<f32> = Random::new(12345679).numbers(1000, 0.0).unwrap();
        assert_eq!(first, second);
        assert_ne!(first, other);
        assert!(first.iter().all(|x| (0.0..1.0).contains(x)));
        let mean = first.iter().sum::<f32>() / 1000.0;
        assert!((mean - 0.5).abs() < 0.05, "{mean}");
    }

    #[test]
    fn seed_zero_is_different_each_time() {
        assert_ne!(Random::new(0).seed(), Random::new(0).seed());
    }
}

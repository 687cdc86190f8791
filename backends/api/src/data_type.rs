//! The types of tensors' elements.

use std::fmt;

/// The type of a tensor's elements, with MIOpen's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DataType {
    /// IEEE 754 binary16.
    Half,
    /// bfloat16: the upper half of a binary32.
    BFloat16,
    /// IEEE 754 binary32.
    Float,
    /// IEEE 754 binary64.
    Double,
    /// 8-bit signed integer.
    Int8,
}

impl DataType {
    /// Every data type that can be described.
    pub const ALL: [DataType; 5] =
        [DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double, DataType::Int8];

    /// Size of one element in bytes.
    pub const fn size(self) -> usize {
        match self {
            DataType::Int8 => 1,
            DataType::Half | DataType::BFloat16 => 2,
            DataType::Float => 4,
            DataType::Double => 8,
        }
    }

    /// The distance from 1 to the next larger number (C++'s `numeric_limits::epsilon`); 0 for integers.
    pub const fn epsilon(self) -> f64 {
        match self {
            DataType::Half => 9.765625e-4,
            DataType::BFloat16 => 7.8125e-3,
            DataType::Float => f32::EPSILON as f64,
            DataType::Double => f64::EPSILON,
            DataType::Int8 => 0.0,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DataType::Half => "f16",
            DataType::BFloat16 => "bf16",
            DataType::Float => "f32",
            DataType::Double => "f64",
            DataType::Int8 => "i8",
        })
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is the element of a tensor.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The data type it stands for.
    const DATA_TYPE: DataType;
}

macro_rules! element {
    ($($t:ty => $d:ident),*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DATA_TYPE: DataType = DataType::$d;
        }
    )*};
}
element!(f32 => Float, half::f16 => Half, half::bf16 => BFloat16, f64 => Double, i8 => Int8);

//! Data types as sets of numbers: rounding, encoding, decoding.

use fuseplan::DataType;
use half::{bf16, f16};

/// Digits of the significand, and the exponents of the smallest and largest normal numbers.
fn format(data_type: DataType) -> (i32, i32, i32) {
    match data_type {
        DataType::Half => (11, -14, 15),
        DataType::BFloat16 => (8, -126, 127),
        DataType::Float => (24, -126, 127),
        DataType::Double | DataType::Int8 => (53, -1022, 1023),
    }
}

/// The number of the type that is nearest to `value`, ties to even; infinity beyond the largest.
pub fn round(value: f64, data_type: DataType) -> f64 {
    let (digits, smallest, largest) = format(data_type);
    if value == 0.0 || !value.is_finite() || digits == 53 {
        return value;
    }
    let exponent = ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let quantum = power_of_two(exponent.max(smallest) - digits + 1);
    let rounded = (value / quantum).round_ties_even() * quantum;
    if rounded.abs() >= power_of_two(largest) * 2.0 { value.signum() * f64::INFINITY } else { rounded }
}

/// The largest power of two of which `value` is a multiple; infinity for zero.
pub fn lowest_bit(value: f64) -> f64 {
    if value == 0.0 {
        return f64::INFINITY;
    }
    let exponent = ((value.to_bits() >> 52) & 0x7ff) as i32 - 1075;
    let significand = (value.to_bits() & ((1 << 52) - 1)) | (1 << 52);
    power_of_two(exponent + significand.trailing_zeros() as i32)
}

/// Two to a power that f64 has: of most of these without a call.
fn power_of_two(exponent: i32) -> f64 {
    match u64::try_from(exponent + 1023) {
        Ok(biased @ 1..0x7ff) => f64::from_bits(biased << 52),
        _ => 2f64.powi(exponent),
    }
}

/// The bytes of a number that the type has.
pub fn encode(value: f64, data_type: DataType, into: &mut [u8]) {
    match data_type {
        DataType::Half => into.copy_from_slice(&f16::from_f64(value).to_ne_bytes()),
        DataType::BFloat16 => into.copy_from_slice(&bf16::from_f64(value).to_ne_bytes()),
        DataType::Float => into.copy_from_slice(&(value as f32).to_ne_bytes()),
        DataType::Double => into.copy_from_slice(&value.to_ne_bytes()),
        DataType::Int8 => into.copy_from_slice(&(value as i8).to_ne_bytes()),
    }
}

/// The number that the bytes are.
pub fn decode(bytes: &[u8], data_type: DataType) -> f64 {
    let pair = || [bytes[0], bytes[1]];
    match data_type {
        DataType::Half => f16::from_ne_bytes(pair()).to_f64(),
        DataType::BFloat16 => bf16::from_ne_bytes(pair()).to_f64(),
        DataType::Float => f64::from(f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
        DataType::Double => f64::from_ne_bytes(bytes.try_into().unwrap_or_default()),
        DataType::Int8 => f64::from(bytes[0] as i8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_nearest_even_at_every_edge() {
        use DataType::*;
        assert_eq!(round(2049.0, Half), 2048.0);
        assert_eq!(round(2051.0, Half), 2052.0);
        assert_eq!(round(65519.9, Half), 65504.0);
        assert_eq!(round(65520.0, Half), f64::INFINITY);
        assert_eq!(round(-257.0, BFloat16), -256.0);
        assert_eq!(round(2f64.powi(-25), Half), 0.0);
        assert_eq!(round(2f64.powi(-25) * 1.001, Half), 2f64.powi(-24));
        assert_eq!(round(16_777_217.0, Float), 16_777_216.0);
        assert!(round(f64::NAN, Half).is_nan());
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            let value = (random.f64() - 0.5) * 2f64.powi(random.i32(-60..60));
            assert_eq!(round(value, Float), f64::from(value as f32));
            let single = f64::from(value as f32);
            assert_eq!(round(single, Half), f16::from_f32(value as f32).to_f64(), "{single}");
            assert_eq!(round(single, BFloat16), bf16::from_f32(value as f32).to_f64(), "{single}");
        }
    }

    #[test]
    fn lowest_bits() {
        for (value, bit) in [(1.0, 1.0), (-6.0, 2.0), (0.75, 0.25), (1536.0, 512.0), (-0.0, f64::INFINITY)] {
            assert_eq!(lowest_bit(value), bit, "{value}");
        }
    }

    #[test]
    fn codes_survive() {
        for data_type in
            [DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double, DataType::Int8]
        {
            let mut bytes = vec![0; data_type.size()];
            for value in [0.0, -1.0, 2.0, 96.0] {
                encode(value, data_type, &mut bytes);
                assert_eq!(decode(&bytes, data_type), value);
            }
        }
    }
}

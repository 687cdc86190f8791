//! Tensors in host memory, element by element, whatever their type and strides.

use fuseplan::{DataType, TensorDescriptor};
use half::{bf16, f16};

use crate::execute::Memory;
use crate::status::{Failure, not_implemented};

/// A tensor of which single elements are read and written as f64, which holds every data type exactly.
#[derive(Clone, Copy)]
pub(crate) struct Elements {
    memory: Memory,
}

impl Elements {
    /// # Safety
    /// Host memory as the descriptor says, as long as the result and its copies are used.
    pub(crate) unsafe fn new(memory: Memory) -> Self {
        Elements { memory }
    }

    pub(crate) fn descriptor(&self) -> &TensorDescriptor {
        &self.memory.descriptor
    }

    /// The element at an offset that [`visit`] gave for this tensor's descriptor.
    pub(crate) fn get(&self, offset: usize) -> f64 {
        let address = self.memory.address;
        macro_rules! read {
            ($t:ty) => {
                // SAFETY: inside of the memory, as `new` was promised; any alignment will do.
                unsafe { address.cast::<$t>().add(offset).read_unaligned() }
            };
        }
        match self.descriptor().data_type() {
            DataType::Half => read!(f16).to_f64(),
            DataType::BFloat16 => read!(bf16).to_f64(),
            DataType::Double => read!(f64),
            DataType::Int8 => read!(i8).into(),
            DataType::Float => read!(f32).into(),
        }
    }

    /// Writes the element at an offset, rounded to nearest even; integers are clamped to their range.
    pub(crate) fn set(&self, offset: usize, value: f64) {
        let address = self.memory.address;
        macro_rules! write {
            ($t:ty, $value:expr) => {
                // SAFETY: inside of the memory, as `new` was promised; any alignment will do.
                unsafe { address.cast::<$t>().add(offset).write_unaligned($value) }
            };
        }
        match self.descriptor().data_type() {
            DataType::Half => write!(f16, f16::from_f64(value)),
            DataType::BFloat16 => write!(bf16, bf16::from_f64(value)),
            DataType::Double => write!(f64, value),
            DataType::Int8 => write!(i8, value.round_ties_even() as i8),
            DataType::Float => write!(f32, value as f32),
        }
    }
}

/// The strides of a tensor that is visited.
///
/// # Errors
/// A tensor whose channels lie in blocks.
pub(crate) fn strides(descriptor: &TensorDescriptor) -> Result<&[usize], Failure> {
    let refuse = || not_implemented(format!("{descriptor}; accepted outside of plans: tensors with strides"));
    descriptor.strides().ok_or_else(refuse)
}

/// Calls `work` for each index of `lens` with the offsets of that index by each list of strides.
pub(crate) fn visit<const N: usize>(
    lens: &[usize],
    strides: [&[usize]; N],
    mut work: impl FnMut([usize; N]),
) {
    let mut index = vec![0usize; lens.len()];
    let mut offsets = [0usize; N];
    loop {
        work(offsets);
        // The next index: the last dimension runs fastest, and those that are through start again.
        let mut dimension = lens.len();
        loop {
            let Some(d) = dimension.checked_sub(1) else { return };
            dimension = d;
            index[d] += 1;
            for (offset, strides) in offsets.iter_mut().zip(strides) {
                *offset += strides[d];
            }
            if index[d] < lens[d] {
                break;
            }
            for (offset, strides) in offsets.iter_mut().zip(strides) {
                *offset -= strides[d] * lens[d];
            }
            index[d] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_is_visited_once_in_order() {
        let mut seen = Vec::new();
        visit(&[2, 3], [&[10, 1], &[0, 2]], |offsets| seen.push(offsets));
        assert_eq!(seen, [[0, 0], [1, 2], [2, 4], [10, 0], [11, 2], [12, 4]]);
        let mut count = 0;
        visit(&[1], [&[7]], |[offset]| {
            assert_eq!(offset, 0);
            count += 1;
        });
        assert_eq!(count, 1);
    }

    #[test]
    fn every_data_type_keeps_its_values() {
        for data_type in DataType::ALL {
            let descriptor = TensorDescriptor::packed(data_type, &[4]).unwrap();
            let mut memory = [f64::NAN; 4];
            let address = memory.as_mut_ptr().cast();
            // SAFETY: 32 bytes are enough for four elements of any type.
            let elements = unsafe { Elements::new(Memory { descriptor, address }) };
            for (offset, value) in [0.0, -3.0, 0.5, 127.0].into_iter().enumerate() {
                elements.set(offset, value);
                let kept = if data_type == DataType::Int8 { value.round_ties_even() } else { value };
                assert_eq!(elements.get(offset), kept, "{data_type}");
            }
            elements.set(0, 1e9);
            assert_eq!(elements.get(0) == 127.0, data_type == DataType::Int8);
        }
    }
}

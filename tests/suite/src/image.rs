//! Tensors as bytes, with poison around and between the elements.

use fuseplan::{TensorDescriptor, TensorLayout};

use crate::number;

/// Every byte that is no element. In each floating-point type it makes a NaN, so that a kernel that reads
/// it into a result, or leaves an element unwritten, cannot pass.
const POISON: u8 = 0xff;

/// Bytes of poison before and behind a tensor.
const GUARD: usize = 256;

/// Where tensors start: kernels may take another way through memory that allows wide accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alignment {
    /// At multiples of 256 bytes.
    Full,
    /// At multiples of their element's size and of nothing more.
    Element,
    /// Wherever the memory is that they are given, of which they have not a byte more than they need.
    Bare,
}

/// A tensor in memory that is aligned to [`GUARD`], as every device's is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Image {
    descriptor: TensorDescriptor,
    alignment: Alignment,
    bytes: Vec<u8>,
}

impl Image {
    /// A tensor with nothing written.
    pub(crate) fn poisoned(descriptor: TensorDescriptor, alignment: Alignment) -> Self {
        let around = match alignment {
            Alignment::Bare => 0,
            _ => 2 * GUARD + descriptor.data_type().size(),
        };
        let bytes = vec![POISON; around + descriptor.bytes()];
        Image { descriptor, alignment, bytes }
    }

    /// A tensor with values in the order N, C, (D,) H, W.
    pub(crate) fn of(descriptor: TensorDescriptor, alignment: Alignment, values: &[f64]) -> Self {
        let mut image = Self::poisoned(descriptor, alignment);
        let size = descriptor.data_type().size();
        for (offset, &value) in offsets(&descriptor).zip(values) {
            let start = image.start() + offset * size;
            number::encode(value, descriptor.data_type(), &mut image.bytes[start..start + size]);
        }
        image
    }

    /// What lies there.
    pub(crate) fn descriptor(&self) -> &TensorDescriptor {
        &self.descriptor
    }

    /// Where the first element lies.
    pub(crate) fn start(&self) -> usize {
        match self.alignment {
            Alignment::Full => GUARD,
            Alignment::Element => GUARD + self.descriptor.data_type().size(),
            Alignment::Bare => 0,
        }
    }

    /// Everything, poison included.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Everything, poison included.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The elements, in the order N, C, (D,) H, W.
    pub(crate) fn values(&self) -> Vec<f64> {
        let size = self.descriptor.data_type().size();
        let element = |offset| {
            let start = self.start() + offset * size;
            number::decode(&self.bytes[start..start + size], self.descriptor.data_type())
        };
        offsets(&self.descriptor).map(element).collect()
    }

    /// The distance in bytes from the first element to a byte that should be poison and is not.
    pub(crate) fn damage(&self) -> Option<isize> {
        let size = self.descriptor.data_type().size();
        let mut element = vec![false; self.bytes.len()];
        for offset in offsets(&self.descriptor) {
            let start = self.start() + offset * size;
            element[start..start + size].fill(true);
        }
        let at = self.bytes.iter().zip(&element).position(|(&byte, &element)| !element && byte != POISON);
        at.map(|at| at as isize - self.start() as isize)
    }
}

/// Offsets of the elements from the first, in elements, in the order N, C, (D,) H, W.
fn offsets(descriptor: &TensorDescriptor) -> impl Iterator<Item = usize> + use<> {
    let lens = descriptor.lens();
    let (lens, strides) = match descriptor.strides() {
        Some(strides) => (five(lens, 1), five(strides, 0)),
        // N, blocks, channels of a block, H, W, of which the channels lie innermost.
        None => {
            let block = descriptor.layout().and_then(TensorLayout::block).unwrap_or(1);
            let [n, c, h, w] = [lens[0], lens[1], lens[2], lens[3]];
            ([n, c / block, block, h, w], [c * h * w, h * w * block, 1, w * block, block])
        }
    };
    let (mut index, mut next) = ([0; 5], 0);
    (0..lens.iter().product()).map(move |_| {
        let offset = next;
        for d in (0..5).rev() {
            index[d] += 1;
            next += strides[d];
            if index[d] < lens[d] {
                break;
            }
            index[d] = 0;
            next -= lens[d] * strides[d];
        }
        offset
    })
}

/// Numbers of dimensions, with others in front of them.
fn five(numbers: &[usize], in_front: usize) -> [usize; 5] {
    let mut all = [in_front; 5];
    all[5 - numbers.len()..].copy_from_slice(numbers);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use fuseplan::DataType;

    #[test]
    fn offsets_are_those_of_the_descriptor() {
        for (layout, lens) in [
            ("nchw", &[2, 3, 4, 5][..]),
            ("nhwc-gap2", &[2, 3, 1, 5]),
            ("nhwc", &[2, 3, 2, 3, 4]),
            ("nchwc8", &[2, 24, 3, 5]),
        ] {
            let descriptor = Layout::named(layout).describe(DataType::Half, lens).unwrap();
            let index = |mut number: usize| {
                let mut index = lens.to_vec();
                for (at, len) in index.iter_mut().zip(lens).rev() {
                    *at = number % len;
                    number /= len;
                }
                index
            };
            let expected = (0..descriptor.element_count()).map(|number| descriptor.offset(&index(number)));
            assert!(offsets(&descriptor).eq(expected), "{descriptor}");
        }
    }

    #[test]
    fn values_survive_and_damage_is_seen() {
        let descriptor = Layout::named("nhwc-gap2").describe(DataType::Half, &[2, 3, 2, 2]).unwrap();
        let values: Vec<f64> = (0..24).map(f64::from).collect();
        for alignment in [Alignment::Full, Alignment::Element] {
            let image = Image::of(descriptor, alignment, &values);
            assert_eq!(image.values(), values);
            assert_eq!(image.damage(), None);
            assert!(Image::poisoned(descriptor, alignment).values().iter().all(|v| v.is_nan()));
            // Before, in the first gap (behind three channels), and behind.
            for at in [-1, 6, descriptor.bytes() as isize] {
                let mut damaged = image.clone();
                let byte = image.start().wrapping_add_signed(at);
                damaged.bytes_mut()[byte] = 0;
                assert_eq!(damaged.damage(), Some(at));
            }
        }
    }
}

//! Tensors of four or five dimensions seen as N, C, D, H, W: what kernels of all backends index by.

use std::ops::Range;

use crate::{Blocks, TensorDescriptor};

/// An index N, C, D, H, W.
pub type Index = [usize; 5];

/// Lengths and strides in elements, in the order N, C, D, H, W; a tensor without depth has depth 1.
#[derive(Debug, Clone, Copy)]
pub struct Volume {
    /// Lengths.
    pub lens: [usize; 5],
    /// Distances between neighbours in memory, which are channels of one block.
    pub strides: [usize; 5],
    /// Channels of a block, of which each is a volume with these strides; a number larger than any of channels where there
    /// are no blocks.
    pub block: usize,
    /// The distance from a block to the next.
    pub block_stride: usize,
}

impl Volume {
    /// A volume whose channels are not in blocks.
    pub const fn new(lens: [usize; 5], strides: [usize; 5]) -> Self {
        Volume { lens, strides, block: usize::MAX, block_stride: 0 }
    }

    /// The volume of a tensor. Strides of dimensions of length 1, which no index reaches, are 0: their only element serves
    /// every index.
    pub fn of(tensor: &TensorDescriptor) -> Self {
        let mut volume = Self::with_all_strides(tensor);
        for (stride, len) in volume.strides.iter_mut().zip(volume.lens) {
            if len == 1 {
                *stride = 0;
            }
        }
        volume
    }

    /// The volume of a tensor with the strides that its descriptor gives dimensions of length 1. In a
    /// [canonical](TensorDescriptor::canonical) descriptor these are a packed tensor's, so that a walk over the end of a
    /// line of one pixel gets to the next line.
    pub fn with_all_strides(tensor: &TensorDescriptor) -> Self {
        let depth = 5 - tensor.rank();
        let mut volume = Volume::new([1; 5], [0; 5]);
        if let Some(Blocks { channels, stride }) = tensor.blocks() {
            (volume.block, volume.block_stride) = (channels, stride);
        }
        for (d, (&len, &stride)) in tensor.lens().iter().zip(tensor.strides_of_block()).enumerate() {
            let dim = if d < 2 { d } else { d + depth };
            (volume.lens[dim], volume.strides[dim]) = (len, stride);
        }
        volume
    }

    /// The offset of an index, in elements.
    #[inline]
    pub fn offset(&self, index: Index) -> usize {
        let [n, channel, d, h, w] = index;
        let strides = &self.strides;
        n * strides[0] + self.channel_offset(channel) + d * strides[2] + h * strides[3] + w * strides[4]
    }

    /// The offset of a channel from the first, in elements.
    #[inline]
    pub fn channel_offset(&self, channel: usize) -> usize {
        if channel < self.block {
            return channel * self.strides[1];
        }
        channel / self.block * self.block_stride + channel % self.block * self.strides[1]
    }

    /// These channels in parts that each lie in one block: all of them at once where there are no blocks.
    pub fn parts(&self, channels: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let (mut first, block) = (channels.start, self.block);
        std::iter::from_fn(move || {
            let part = first..channels.end.min((first / block + 1).saturating_mul(block));
            first = part.end;
            (!part.is_empty()).then_some(part)
        })
    }

    /// The index in the first image of its element `element`, counted in the order C, D, H, W.
    #[inline]
    pub fn index_of(&self, element: usize) -> Index {
        let [_, _, depth, height, width] = self.lens;
        let (line, w) = (element / width, element % width);
        let (slice, h) = (line / height, line % height);
        [0, slice / depth, slice % depth, h, w]
    }

    /// Whether a line follows the one before it as a column does.
    pub fn is_flat(&self) -> bool {
        let ([_, _, depth, height, width], strides) = (self.lens, &self.strides);
        (height == 1 || strides[3] == width * strides[4])
            && (depth == 1 || strides[2] == height * width * strides[4])
    }

    /// Elements of one channel of one image.
    #[inline]
    pub fn plane(&self) -> usize {
        self.lens[2..].iter().product()
    }

    /// Positions of all images.
    pub fn pixels(&self) -> usize {
        self.lens[0] * self.plane()
    }

    /// Whether the channel is the dimension whose elements are neighbours in memory, within a block where there are blocks.
    /// A single position counts.
    pub fn is_channels_last(&self) -> bool {
        self.lens[1] > 1 && self.strides[1] == 1
    }

    /// The distance between neighbouring positions, if all positions of an image are evenly apart.
    pub fn position_stride(&self) -> Option<usize> {
        evenly_apart(&self.lens[2..], &self.strides[2..])
    }

    /// The distance between neighbouring pixels, if all pixels of all images are evenly apart.
    pub fn pixel_stride(&self) -> Option<usize> {
        let [n, _, d, h, w] = self.lens;
        let [sn, _, sd, sh, sw] = self.strides;
        evenly_apart(&[n, d, h, w], &[sn, sd, sh, sw])
    }

    /// The largest power of two, at most `most`, that divides every stride but that of dimension `along`.
    pub fn alignment(&self, along: usize, most: usize) -> usize {
        let others = (0..5).filter(|&d| d != along).map(|d| self.strides[d]);
        others.fold(most, common_power)
    }
}

/// The largest of `power`, a power of two, and its halves that divides `number`; 0 is divided by all. 1 where `power` is 0.
pub fn common_power(power: usize, number: usize) -> usize {
    let mut power = power.max(1);
    while !number.is_multiple_of(power) {
        power /= 2;
    }
    power
}

/// The stride of dimensions, given slowest first, that lie in memory like one; dimensions of length 1 have
/// no say. 1 if there are no others.
pub fn evenly_apart(lens: &[usize], strides: &[usize]) -> Option<usize> {
    let mut used = lens.iter().zip(strides).rev().filter(|&(&len, _)| len > 1);
    let Some((&len, &first)) = used.next() else { return Some(1) };
    let mut next = first * len;
    for (&len, &stride) in used {
        if stride != next {
            return None;
        }
        next *= len;
    }
    Some(first)
}

/// A convolution's paddings, strides or dilations in the order D, H, W; depth gets `without` where a 2-D
/// convolution has none.
pub fn spatial(list: &[usize], without: usize) -> [usize; 3] {
    let mut all = [without; 3];
    all[3 - list.len()..].copy_from_slice(list);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataType, TensorLayout};

    #[test]
    fn strides_tell_what_lies_side_by_side() {
        let of = |layout, lens: &[usize]| {
            Volume::of(&TensorDescriptor::with_layout(DataType::Half, layout, lens).unwrap())
        };
        let nhwc = of(TensorLayout::Nhwc, &[2, 24, 5, 7]);
        assert!(nhwc.is_channels_last());
        assert_eq!((nhwc.position_stride(), nhwc.pixel_stride()), (Some(24), Some(24)));
        assert_eq!(nhwc.alignment(1, 16), 8);
        let nchw = of(TensorLayout::Nchw, &[2, 24, 5, 8]);
        assert!(!nchw.is_channels_last());
        assert_eq!((nchw.position_stride(), nchw.pixel_stride()), (Some(1), None));
        assert_eq!((nchw.plane(), nchw.pixels()), (40, 80));
        // One position: channels are neighbours whatever the layout is called.
        assert!(of(TensorLayout::Nchw, &[2, 24, 1, 1]).is_channels_last());
        let rows = TensorDescriptor::new(DataType::Float, &[1, 2, 3, 4], &[48, 24, 8, 1]).unwrap();
        assert_eq!(Volume::of(&rows).position_stride(), None);
        assert_eq!(common_power(8, 12), 4);
        assert_eq!(common_power(8, 0), 8);
        assert_eq!([0, 1, 12].map(|number| common_power(0, number)), [1; 3]);
    }

    #[test]
    fn one_element_serves_every_index_unless_all_strides_are_kept() {
        let tensor = TensorDescriptor::nchw(DataType::Float, [3, 5, 4, 1]).unwrap();
        let (bias, all) =
            (TensorDescriptor::nchw(DataType::Float, [1, 5, 1, 1]).unwrap(), Volume::with_all_strides);
        assert_eq!(Volume::of(&bias).offset([2, 3, 0, 1, 0]), 3);
        assert_eq!((Volume::of(&tensor).strides, all(&tensor).strides), ([20, 4, 0, 1, 0], [20, 4, 0, 1, 1]));
        // Pixels of one column: a walk along the line goes on to the next one.
        assert!(all(&tensor).is_flat());
        let index = all(&tensor).index_of(13);
        assert_eq!((index, all(&tensor).offset(index)), ([0, 3, 0, 1, 0], 13));
    }
}

//! Tensors of four or five dimensions seen as N, C, D, H, W.

use fuseplan_api::TensorDescriptor;

use crate::epilogue::Place;

/// An index N, C, D, H, W.
pub(crate) type Index = [usize; 5];

/// Lengths and strides in elements, in the order N, C, D, H, W; a tensor without depth has depth 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Volume {
    pub(crate) lens: [usize; 5],
    pub(crate) strides: [usize; 5],
}

impl Volume {
    /// The same tensor.
    pub(crate) fn of(tensor: &TensorDescriptor) -> Self {
        let depth = 5 - tensor.rank();
        let place = |d: usize| if d < 2 { d } else { d + depth };
        let mut volume = Volume { lens: [1; 5], strides: [0; 5] };
        for d in 0..tensor.rank() {
            volume.lens[place(d)] = tensor.lens()[d];
            volume.strides[place(d)] = tensor.strides()[d];
        }
        volume
    }

    /// Where an index lies, in elements from the first. Dimensions of length 1 take any index: their only
    /// element serves all of them.
    pub(crate) fn offset(&self, index: Index) -> usize {
        let dims = self.lens.iter().zip(&self.strides).zip(index);
        dims.map(|((&len, stride), i)| if len == 1 { 0 } else { i * stride }).sum()
    }

    /// Elements of one channel of one image.
    pub(crate) fn plane(&self) -> usize {
        self.lens[2..].iter().product()
    }

    /// The index in the first image of element `place`, counted in the order C, D, H, W.
    pub(crate) fn place(&self, place: usize) -> Index {
        let [_, _, depth, height, width] = self.lens;
        let (row, w) = (place / width, place % width);
        let (slice, h) = (row / height, row % height);
        [0, slice / depth, slice % depth, h, w]
    }
}

/// A convolution's paddings, strides or dilations in the order D, H, W; depth gets `without` where a 2-D
/// convolution has none.
pub(crate) fn spatial(list: &[usize], without: usize) -> [usize; 3] {
    let mut all = [without; 3];
    all[3 - list.len()..].copy_from_slice(list);
    all
}

impl Volume {
    /// Where a row starts, in elements from the first.
    pub(crate) fn at(&self, place: Place) -> usize {
        let (height, strides) = (self.lens[3], &self.strides);
        place.image * strides[0]
            + place.channel * strides[1]
            + place.line / height * strides[2]
            + place.line % height * strides[3]
            + place.column * strides[4]
    }

    /// Whether a line follows the one before it as a column does.
    pub(crate) fn is_flat(&self) -> bool {
        let ([_, _, depth, height, width], strides) = (self.lens, &self.strides);
        (height == 1 || strides[3] == width * strides[4])
            && (depth == 1 || strides[2] == height * width * strides[4])
    }
}

//! Tensors of four or five dimensions seen as N, C, D, H, W.

use fuseplan_api::{Op, Problem, TensorDescriptor};

/// The names of the dimensions in kernel text.
pub(crate) const DIMS: [&str; 5] = ["n", "c", "d", "h", "w"];

/// Lengths and strides in elements, in the order N, C, D, H, W; a tensor without depth has depth 1. Strides
/// of dimensions of length 1, which no index reaches, are 0.
#[derive(Debug, Clone, Copy)]
pub struct Volume {
    /// Lengths.
    pub lens: [usize; 5],
    /// Distances between neighbours in memory.
    pub strides: [usize; 5],
}

impl Volume {
    /// The same tensor.
    pub fn of(tensor: &TensorDescriptor) -> Self {
        let depth = 5 - tensor.rank();
        let mut volume = Volume { lens: [1; 5], strides: [0; 5] };
        for (d, (&len, &stride)) in tensor.lens().iter().zip(tensor.strides()).enumerate() {
            let place = if d < 2 { d } else { d + depth };
            volume.lens[place] = len;
            volume.strides[place] = if len == 1 { 0 } else { stride };
        }
        volume
    }

    /// Elements of one channel of one image.
    pub fn plane(&self) -> usize {
        self.lens[2..].iter().product()
    }

    /// Images times places.
    pub fn pixels(&self) -> usize {
        self.lens[0] * self.plane()
    }

    /// Whether the channel is the dimension whose elements are neighbours in memory. A single place counts.
    pub fn is_channels_last(&self) -> bool {
        self.lens[1] > 1 && self.strides[1] == 1
    }

    /// The distance between neighbouring places, if all places of an image are evenly apart.
    pub fn place_stride(&self) -> Option<usize> {
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

/// The larger of `power`, a power of two, and its halves that divides `number`; 0 is divided by all.
pub fn common_power(power: usize, number: usize) -> usize {
    let mut power = power;
    while !number.is_multiple_of(power) {
        power /= 2;
    }
    power
}

/// The stride of dimensions, given slowest first, that lie in memory like one; dimensions of length 1 have
/// no say. 1 if there are no others.
pub(crate) fn evenly_apart(lens: &[usize], strides: &[usize]) -> Option<usize> {
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

/// The span of an input with its padding, as if the padding were in memory too; or the places of a dimension, if
/// these are more.
fn padded_span(input: &Volume, [d, h, w]: [usize; 3]) -> usize {
    let padded = input.lens.iter().zip([0, 0, d, h, w]).map(|(len, pad)| len + 2 * pad);
    let reach = padded.clone().zip(input.strides).map(|(len, stride)| (len - 1).saturating_mul(stride));
    reach.fold(1, usize::saturating_add).max(padded.max().unwrap_or(0))
}

/// Whether offsets into the problem's tensors, or places in its padded input, need more than 32 bits.
pub(crate) fn is_wide(problem: &Problem) -> bool {
    const LIMIT: usize = 1 << 30;
    let operand = |op: &Op| match op {
        Op::ConvForward { conv, weights } => {
            padded_span(&Volume::of(&problem.input), spatial(conv.pads(), 0)).max(weights.span())
        }
        Op::BiasForward { bias } => bias.span(),
        _ => 0,
    };
    let spans = [problem.input.span(), problem.output.span(), problem.output.element_count()];
    spans.into_iter().chain(problem.ops.iter().map(operand)).any(|span| span >= LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuseplan_api::{DataType, TensorLayout};

    #[test]
    fn strides_tell_what_lies_side_by_side() {
        let of = |layout, lens: &[usize]| {
            Volume::of(&TensorDescriptor::with_layout(DataType::Half, layout, lens).unwrap())
        };
        let nhwc = of(TensorLayout::Nhwc, &[2, 24, 5, 7]);
        assert!(nhwc.is_channels_last());
        assert_eq!((nhwc.place_stride(), nhwc.pixel_stride()), (Some(24), Some(24)));
        assert_eq!(nhwc.alignment(1, 16), 8);
        let nchw = of(TensorLayout::Nchw, &[2, 24, 5, 8]);
        assert!(!nchw.is_channels_last());
        assert_eq!((nchw.place_stride(), nchw.pixel_stride()), (Some(1), None));
        assert_eq!((nchw.plane(), nchw.pixels()), (40, 80));
        // One place: channels are neighbours whatever the layout is called.
        assert!(of(TensorLayout::Nchw, &[2, 24, 1, 1]).is_channels_last());
        let rows = TensorDescriptor::new(DataType::Float, &[1, 2, 3, 4], &[48, 24, 8, 1]).unwrap();
        assert_eq!(Volume::of(&rows).place_stride(), None);
        assert_eq!(common_power(8, 12), 4);
        assert_eq!(common_power(8, 0), 8);
    }

    #[test]
    fn padding_counts_as_if_it_were_in_memory() {
        let of = |lens| Volume::of(&TensorDescriptor::nchw(DataType::Half, lens).unwrap());
        assert_eq!(padded_span(&of([2, 3, 4, 5]), [0; 3]), 2 * 3 * 4 * 5);
        assert_eq!(padded_span(&of([2, 3, 4, 5]), [0, 7, 1]), 2 * 3 * 4 * 5 + (14 * 5) + 2);
        // One row: no index goes down.
        assert_eq!(padded_span(&of([1, 3, 1, 5]), [0, 7, 0]), 15);
        assert_eq!(padded_span(&of([1, 3, 1, 5]), [0, 100, 0]), 201);
        assert_eq!(padded_span(&of([1, 1, 2, 1 << 58]), [0, 1 << 30, 0]), usize::MAX);
    }
}

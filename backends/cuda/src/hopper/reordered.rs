//! Operands that an execution's first launch writes with their channels innermost, for its second.

use fuseplan_api::{Op, Problem, TensorDescriptor};
use fuseplan_gpu::Volume;

/// Elements at whose multiples pixels and taps begin, in bytes.
const CHUNK: usize = 16;
/// The same of the filters, such that TMA may load any box of them.
const FILTERS: usize = 256;
/// The most bytes that are reordered, which a stream keeps: the kernel's text counts those in front of the filters by a number
/// of 32 bits with a sign. Pixels and filters there have offsets of 64, and TMA has coordinates.
pub(crate) const MOST: usize = i32::MAX as usize;

/// A problem whose image and filters are reordered.
#[derive(Debug)]
pub(crate) struct Reordered {
    /// The problem that the second launch computes, with its operands in one memory, and zeros for as many filters as tiles
    /// reach beyond the last. On an H200 boxes that reach beyond the end of what is in memory made tiles take up to 1.9 times
    /// as long, though TMA fills them.
    pub(crate) problem: Problem,
    /// Bytes of the image, behind which the filters lie, and of both.
    pub(crate) filters_at: usize,
    pub(crate) bytes: usize,
}

impl Reordered {
    /// Of a problem with a convolution, for tiles of so many filters of a group.
    pub(crate) fn of(problem: &Problem, filters: usize) -> Option<Self> {
        let (conv, weights) = problem.conv()?;
        let (all, of_group) = (weights.lens()[0], weights.lens()[0] / conv.groups());
        let weights = innermost(weights, all - of_group + of_group.next_multiple_of(filters))?;
        let filters_at = room(&problem.input)?.next_multiple_of(FILTERS);
        let bytes = filters_at.checked_add(room(&weights)?)?;
        let mut inner = problem.clone();
        inner.input = innermost(&problem.input, problem.input.lens()[0])?;
        for op in &mut inner.ops {
            if let Op::ConvForward { weights: own, .. } = op {
                *own = weights;
            }
        }
        Some(Reordered { problem: inner, filters_at, bytes })
    }

    /// Whether a problem's operands take as little memory as [`MOST`], without what tiles reach beyond them.
    pub(crate) fn fits(problem: &Problem) -> bool {
        Reordered::of(problem, 1).is_some_and(|reordered| reordered.bytes <= MOST)
    }

    /// Filters in memory.
    pub(crate) fn filters(&self) -> usize {
        self.problem.conv().map_or(0, |(_, weights)| weights.lens()[0])
    }

    /// Elements of a pixel and of a filter's tap.
    pub(crate) fn channels(&self) -> [usize; 2] {
        let weights = self.problem.conv().map_or(&self.problem.input, |(_, weights)| weights);
        [&self.problem.input, weights].map(pitch)
    }
}

/// Elements from a place to the next.
fn pitch(tensor: &TensorDescriptor) -> usize {
    tensor.lens()[1].next_multiple_of(CHUNK / tensor.data_type().size())
}

/// Bytes of a tensor whose places are that far apart.
fn room(tensor: &TensorDescriptor) -> Option<usize> {
    let volume = Volume::of(tensor);
    volume.plane().checked_mul(volume.lens[0])?.checked_mul(pitch(tensor) * tensor.data_type().size())
}

/// The tensor with its channels innermost, and so many images or filters.
fn innermost(tensor: &TensorDescriptor, images: usize) -> Option<TensorDescriptor> {
    let mut lens = tensor.lens().to_vec();
    lens[0] = images;
    let mut strides = vec![1; lens.len()];
    let mut next = pitch(tensor);
    for d in (2..lens.len()).rev().chain([0]) {
        strides[d] = next;
        next *= lens[d];
    }
    TensorDescriptor::new(tensor.data_type(), &lens, &strides).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuseplan_api::{ConvolutionDescriptor, DataType, MathMode, TensorLayout};

    fn problem(data_type: DataType, images: usize, channels: usize) -> Problem {
        let tensor =
            |lens: [usize; 5]| TensorDescriptor::with_layout(data_type, TensorLayout::Ncdhw, &lens).unwrap();
        let (input, weights) = (tensor([images, channels, 4, 5, 6]), tensor([70, channels, 3, 1, 2]));
        let conv = ConvolutionDescriptor::d3();
        let output = conv.forward_output(&input, &weights).unwrap();
        Problem { input, output, ops: vec![Op::ConvForward { conv, weights }], math: MathMode::AllowTf32 }
    }

    #[test]
    fn places_begin_at_multiples_of_16_bytes_and_filters_lie_behind_the_image() {
        for (data_type, pitch) in [(DataType::Half, 40), (DataType::Float, 36)] {
            let given = problem(data_type, 2, 33);
            let found = Reordered::of(&given, 64).unwrap();
            assert_eq!(found.channels(), [pitch; 2]);
            let (of, size) = (&found.problem, data_type.size());
            assert_eq!(of.input.lens(), given.input.lens());
            assert_eq!(of.input.strides().unwrap(), [4 * 5 * 6 * pitch, 1, 5 * 6 * pitch, 6 * pitch, pitch]);
            assert_eq!(of.conv().unwrap().1.strides().unwrap(), [6 * pitch, 1, 2 * pitch, 2 * pitch, pitch]);
            assert_eq!(of.output, given.output);
            let image = 2 * 4 * 5 * 6 * pitch * size;
            assert!(found.filters_at >= image && found.filters_at.is_multiple_of(FILTERS));
            assert_eq!((found.filters(), found.bytes), (128, found.filters_at + 128 * 6 * pitch * size));
        }
    }

    #[test]
    fn memory_has_a_limit() {
        let of = |images| Reordered::fits(&problem(DataType::Float, images, 32));
        let image = 4 * 5 * 6 * 32 * 4;
        assert!(of(MOST / image - 10) && !of(MOST / image));
    }
}

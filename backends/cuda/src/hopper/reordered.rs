//! Operands that an execution's first launch writes with their channels innermost, for its second.

use fuseplan_api::{Op, Problem, TensorDescriptor};
use fuseplan_gpu::Volume;

/// Elements at whose multiples pixels and taps begin, in bytes.
const CHUNK: usize = 16;
/// The same of the filters, such that TMA may load any box of them.
const FILTERS: usize = 256;
/// The most bytes that are reordered: memory that a stream keeps.
pub(crate) const MOST: usize = 1 << 30;

/// A problem whose image and filters are reordered.
#[derive(Debug)]
pub(crate) struct Reordered {
    /// The problem that the second launch computes, with its operands in one memory.
    pub(crate) problem: Problem,
    /// Bytes of the image, behind which the filters lie, and of both.
    pub(crate) filters_at: usize,
    pub(crate) bytes: usize,
}

impl Reordered {
    /// Of a problem with a convolution; `None` where that takes more memory than [`MOST`].
    pub(crate) fn of(problem: &Problem) -> Option<Self> {
        let filters_at = room(&problem.input)?.next_multiple_of(FILTERS);
        let bytes = filters_at + room(problem.conv()?.1)?;
        let mut inner = problem.clone();
        inner.input = innermost(&problem.input)?;
        for op in &mut inner.ops {
            if let Op::ConvForward { weights, .. } = op {
                *weights = innermost(weights)?;
            }
        }
        (bytes <= MOST).then_some(Reordered { problem: inner, filters_at, bytes })
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

/// The tensor with its channels innermost.
fn innermost(tensor: &TensorDescriptor) -> Option<TensorDescriptor> {
    let lens = tensor.lens();
    let mut strides = vec![1; lens.len()];
    let mut next = pitch(tensor);
    for d in (2..lens.len()).rev().chain([0]) {
        strides[d] = next;
        next *= lens[d];
    }
    TensorDescriptor::new(tensor.data_type(), lens, &strides).ok()
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
            let found = Reordered::of(&given).unwrap();
            assert_eq!(found.channels(), [pitch; 2]);
            let (of, size) = (&found.problem, data_type.size());
            assert_eq!(of.input.lens(), given.input.lens());
            assert_eq!(of.input.strides().unwrap(), [4 * 5 * 6 * pitch, 1, 5 * 6 * pitch, 6 * pitch, pitch]);
            assert_eq!(of.conv().unwrap().1.strides().unwrap(), [6 * pitch, 1, 2 * pitch, 2 * pitch, pitch]);
            assert_eq!(of.output, given.output);
            let image = 2 * 4 * 5 * 6 * pitch * size;
            assert!(found.filters_at >= image && found.filters_at.is_multiple_of(FILTERS));
            assert_eq!(found.bytes, found.filters_at + 70 * 6 * pitch * size);
        }
    }

    #[test]
    fn memory_has_a_limit() {
        let of = |images| Reordered::of(&problem(DataType::Float, images, 32));
        let image = 4 * 5 * 6 * 32 * 4;
        assert!(of(MOST / image - 10).is_some() && of(MOST / image).is_none());
    }
}

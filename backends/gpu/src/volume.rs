//! What kernel text says of a [`Volume`], and which problems its offsets reach.

use fuseplan_api::volume::{Volume, spatial};
use fuseplan_api::{ConvolutionDescriptor, Problem};

/// The names of the dimensions in kernel text.
pub(crate) const DIMS: [&str; 5] = ["n", "c", "d", "h", "w"];

/// The span of an input with its padding, of which each dimension has `pads` on both sides together, as if the padding
/// were in memory too; or the positions along a dimension, if these are more.
fn padded_span(input: &Volume, [d, h, w]: [usize; 3]) -> usize {
    let padded = input.lens.iter().zip([0, 0, d, h, w]).map(|(len, pads)| len + pads);
    let reach = padded.clone().zip(input.strides).map(|(len, stride)| (len - 1).saturating_mul(stride));
    reach.fold(1, usize::saturating_add).max(padded.max().unwrap_or(0))
}

/// Whether a tap may lie outside of the image along each dimension, whatever the image's extents are.
pub(crate) fn reaches_outside(conv: &ConvolutionDescriptor, weights: &Volume) -> [bool; 3] {
    let (before, after) = (spatial(conv.pads_before(), 0), spatial(conv.pads_after(), 0));
    std::array::from_fn(|d| weights.lens[2 + d] > 1 || before[d] > 0 || after[d] > 0)
}

/// Whether offsets into the problem's tensors, or positions in its padded input, need more than 32 bits.
pub(crate) fn is_wide(problem: &Problem) -> bool {
    const LIMIT: usize = 1 << 30;
    let padded = problem.conv().map(|(conv, _)| {
        let (before, after) = (spatial(conv.pads_before(), 0), spatial(conv.pads_after(), 0));
        padded_span(&Volume::of(&problem.input), std::array::from_fn(|d| before[d] + after[d]))
    });
    let operands = problem.ops.iter().flat_map(|op| op.operands(&problem.output));
    let operands = operands.map(|operand| operand.descriptor.span());
    let spans = [problem.input.span(), problem.output.span(), problem.output.element_count()];
    spans.into_iter().chain(padded).chain(operands).any(|span| span >= LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuseplan_api::{DataType, TensorDescriptor};

    #[test]
    fn padding_counts_as_if_it_were_in_memory() {
        let of = |lens| Volume::of(&TensorDescriptor::nchw(DataType::Half, lens).unwrap());
        assert_eq!(padded_span(&of([2, 3, 4, 5]), [0; 3]), 2 * 3 * 4 * 5);
        assert_eq!(padded_span(&of([2, 3, 4, 5]), [0, 14, 2]), 2 * 3 * 4 * 5 + (14 * 5) + 2);
        // One row: no index goes down.
        assert_eq!(padded_span(&of([1, 3, 1, 5]), [0, 14, 0]), 15);
        assert_eq!(padded_span(&of([1, 3, 1, 5]), [0, 200, 0]), 201);
        assert_eq!(padded_span(&of([1, 1, 2, 1 << 58]), [0, 1 << 31, 0]), usize::MAX);
    }
}

//! Convolution descriptors.

use std::fmt;

use crate::{DescriptorError, TensorDescriptor, TensorLayout};

/// The direction of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConvolutionMode {
    /// Cross-correlation of the input with the filters.
    Convolution,
    /// Its transpose ("deconvolution"). Can be described; no solver takes it yet.
    Transpose,
}

/// Padding, strides, dilations and groups of a 2-D or 3-D convolution, each in the order (D,) H, W.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConvolutionDescriptor {
    mode: ConvolutionMode,
    dims: u8,
    pads_before: [usize; 3],
    pads_after: [usize; 3],
    strides: [usize; 3],
    dilations: [usize; 3],
    output_pads: [usize; 3],
    groups: usize,
}

/// A number beyond which a padding, stride or dilation is a mistake and products could overflow.
const LIMIT: usize = i32::MAX as usize;

impl ConvolutionDescriptor {
    /// A 2-D convolution without padding, of stride and dilation 1, with one group.
    ///
    /// ```
    /// # use fuseplan_api::ConvolutionDescriptor;
    /// let conv = ConvolutionDescriptor::d2().with_pads([1, 1])?.with_strides([2, 2])?;
    /// assert_eq!((conv.pads_before(), conv.pads_after()), (&[1, 1][..], &[1, 1][..]));
    /// assert_eq!((conv.strides(), conv.dilations()), (&[2, 2][..], &[1, 1][..]));
    /// # Ok::<(), fuseplan_api::DescriptorError>(())
    /// ```
    pub const fn d2() -> Self {
        Self::plain(2)
    }

    /// A 3-D convolution without padding, of stride and dilation 1, with one group.
    pub const fn d3() -> Self {
        Self::plain(3)
    }

    /// A convolution as of [`d2`](Self::d2) or [`d3`](Self::d3), with a number of spatial dimensions that is known at run time.
    ///
    /// # Errors
    /// Neither 2 nor 3.
    pub const fn of_dims(dims: usize) -> Result<Self, DescriptorError> {
        match dims {
            2 => Ok(Self::d2()),
            3 => Ok(Self::d3()),
            _ => Err(DescriptorError::Rank {
                what: "convolution",
                found: dims,
                expected: "2 or 3 spatial ones",
            }),
        }
    }

    const fn plain(dims: u8) -> Self {
        ConvolutionDescriptor {
            mode: ConvolutionMode::Convolution,
            dims,
            pads_before: [0; 3],
            pads_after: [0; 3],
            strides: [1; 3],
            dilations: [1; 3],
            output_pads: [0; 3],
            groups: 1,
        }
    }

    /// The same with a padding, added on both sides of each spatial dimension.
    ///
    /// # Errors
    /// Another number of dimensions, a number above `i32::MAX`.
    pub fn with_pads(self, pads: impl AsRef<[usize]>) -> Result<Self, DescriptorError> {
        self.with_asymmetric_pads(pads.as_ref(), pads.as_ref())
    }

    /// The same with one padding before the first element of each spatial dimension and another one behind the last: ONNX's
    /// begins and ends of `pads`, cuDNN's pre- and post-padding, what TensorFlow's `SAME` comes to, causal convolutions.
    ///
    /// ```
    /// # use fuseplan_api::{ConvolutionDescriptor, DataType, TensorDescriptor};
    /// // TensorFlow's SAME: an even image, a stride of 2.
    /// let same = ConvolutionDescriptor::d2().with_asymmetric_pads([0, 0], [1, 1])?.with_strides([2, 2])?;
    /// let x = TensorDescriptor::nchw(DataType::Float, [1, 3, 224, 224])?;
    /// let w = TensorDescriptor::nchw(DataType::Float, [32, 3, 3, 3])?;
    /// assert_eq!(same.forward_output(&x, &w)?.lens(), [1, 32, 112, 112]);
    /// // Causal in time: an output sees no frame behind its own.
    /// let causal = ConvolutionDescriptor::d3().with_asymmetric_pads([2, 1, 1], [0, 1, 1])?;
    /// assert_eq!((causal.pads_before(), causal.pads_after()), (&[2, 1, 1][..], &[0, 1, 1][..]));
    /// # Ok::<(), fuseplan_api::DescriptorError>(())
    /// ```
    ///
    /// # Errors
    /// Another number of dimensions, a number above `i32::MAX`.
    pub fn with_asymmetric_pads(
        mut self,
        before: impl AsRef<[usize]>,
        after: impl AsRef<[usize]>,
    ) -> Result<Self, DescriptorError> {
        self.pads_before = self.spatial("convolution padding", before.as_ref(), 0)?;
        self.pads_after = self.spatial("convolution padding", after.as_ref(), 0)?;
        Ok(self)
    }

    /// This convolution with a stride for each spatial dimension.
    ///
    /// # Errors
    /// Another number of dimensions, zero, a number above `i32::MAX`.
    pub fn with_strides(mut self, strides: impl AsRef<[usize]>) -> Result<Self, DescriptorError> {
        self.strides = self.spatial("convolution stride", strides.as_ref(), 1)?;
        Ok(self)
    }

    /// This convolution with a dilation for each spatial dimension.
    ///
    /// # Errors
    /// Another number of dimensions, zero, a number above `i32::MAX`.
    pub fn with_dilations(mut self, dilations: impl AsRef<[usize]>) -> Result<Self, DescriptorError> {
        self.dilations = self.spatial("convolution dilation", dilations.as_ref(), 1)?;
        Ok(self)
    }

    /// A property of the spatial dimensions, none of whose numbers is below `least`; `least` in dimensions that this
    /// convolution does not have.
    fn spatial(
        &self,
        what: &'static str,
        list: &[usize],
        least: usize,
    ) -> Result<[usize; 3], DescriptorError> {
        let dims = self.spatial_dims();
        if list.len() != dims {
            return Err(DescriptorError::Count { what, found: list.len(), expected: dims });
        }
        if let Some(dimension) = list.iter().position(|&v| v < least) {
            return Err(DescriptorError::Zero { what, dimension });
        }
        if let Some(v) = list.iter().find(|&&v| v > LIMIT) {
            return Err(DescriptorError::Range {
                what,
                found: v.to_string(),
                expected: "at most 2147483647 is accepted",
            });
        }
        let mut all = [least; 3];
        all[..dims].copy_from_slice(list);
        Ok(all)
    }

    /// This convolution in `groups` independent groups of channels; groups = channels is depthwise.
    ///
    /// # Errors
    /// Zero groups.
    pub fn with_groups(mut self, groups: usize) -> Result<Self, DescriptorError> {
        if groups == 0 {
            return Err(DescriptorError::Range {
                what: "convolution group count",
                found: "0".into(),
                expected: "it must be at least 1",
            });
        }
        self.groups = groups;
        Ok(self)
    }

    /// This convolution in another mode.
    pub fn with_mode(mut self, mode: ConvolutionMode) -> Self {
        self.mode = mode;
        self
    }

    /// Extra extent of a transposed convolution's output, one number for each spatial dimension.
    ///
    /// # Errors
    /// Another number of dimensions.
    pub fn with_output_padding(mut self, pads: &[usize]) -> Result<Self, DescriptorError> {
        if pads.len() != self.spatial_dims() {
            return Err(DescriptorError::Count {
                what: "transposed convolution's output padding",
                found: pads.len(),
                expected: self.spatial_dims(),
            });
        }
        self.output_pads[..pads.len()].copy_from_slice(pads);
        Ok(self)
    }

    /// The direction.
    pub const fn mode(&self) -> ConvolutionMode {
        self.mode
    }

    /// Number of spatial dimensions, 2 or 3.
    pub const fn spatial_dims(&self) -> usize {
        self.dims as usize
    }

    /// Padding before the first element of each dimension.
    pub fn pads_before(&self) -> &[usize] {
        &self.pads_before[..self.spatial_dims()]
    }

    /// Padding behind the last element of each dimension. It decides the output's lengths, and where the first element of
    /// an output's receptive field lies does not depend on it.
    pub fn pads_after(&self) -> &[usize] {
        &self.pads_after[..self.spatial_dims()]
    }

    /// Distance between neighbouring outputs, in input elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides[..self.spatial_dims()]
    }

    /// Distance between neighbouring filter taps, in input elements.
    pub fn dilations(&self) -> &[usize] {
        &self.dilations[..self.spatial_dims()]
    }

    /// Extra extent of a transposed convolution's output.
    pub fn output_pads(&self) -> &[usize] {
        &self.output_pads[..self.spatial_dims()]
    }

    /// Number of groups.
    pub const fn groups(&self) -> usize {
        self.groups
    }

    /// The output of this convolution: `(before + in + after − (dilation·(k−1) + 1)) / stride + 1` in each
    /// spatial dimension, one channel for each filter, packed in the memory order of the input.
    ///
    /// # Errors
    /// Filters or inputs that do not fit one another, with the property and both numbers.
    pub fn forward_output(
        &self,
        input: &TensorDescriptor,
        weights: &TensorDescriptor,
    ) -> Result<TensorDescriptor, DescriptorError> {
        input.like(&self.forward_lens(input, weights)?[..input.rank()])
    }

    /// The output of this convolution, packed in a layout of its own.
    ///
    /// # Errors
    /// As [`forward_output`](Self::forward_output), and lengths that the layout does not have.
    pub fn forward_output_in(
        &self,
        layout: TensorLayout,
        input: &TensorDescriptor,
        weights: &TensorDescriptor,
    ) -> Result<TensorDescriptor, DescriptorError> {
        let lens = self.forward_lens(input, weights)?;
        TensorDescriptor::with_layout(input.data_type(), layout, &lens[..input.rank()])
    }

    /// The output of this convolution with strides of its own.
    ///
    /// # Errors
    /// As [`forward_output`](Self::forward_output), and strides that are not those of a tensor with its lengths.
    pub fn forward_output_with(
        &self,
        strides: &[usize],
        input: &TensorDescriptor,
        weights: &TensorDescriptor,
    ) -> Result<TensorDescriptor, DescriptorError> {
        let lens = self.forward_lens(input, weights)?;
        TensorDescriptor::new(input.data_type(), &lens[..input.rank()], strides)
    }

    /// The lengths of the output.
    fn forward_lens(
        &self,
        input: &TensorDescriptor,
        weights: &TensorDescriptor,
    ) -> Result<[usize; crate::MAX_RANK], DescriptorError> {
        let mismatch = |text: String| Err(DescriptorError::Mismatch(text));
        let rank = self.spatial_dims() + 2;
        if input.rank() != rank {
            return mismatch(format!(
                "the input has {} dimensions, a {}-D convolution takes {rank}",
                input.rank(),
                self.dims
            ));
        }
        if weights.rank() != rank {
            return mismatch(format!(
                "the weights have {} dimensions, a {}-D convolution takes {rank}",
                weights.rank(),
                self.dims
            ));
        }
        if self.mode == ConvolutionMode::Transpose {
            return mismatch("transposed convolution has no forward solver".into());
        }
        let (channels, filters, per_group) = (input.lens()[1], weights.lens()[0], weights.lens()[1]);
        if self.groups == 1 {
            if channels != per_group {
                return mismatch(format!(
                    "weights have {per_group} input channels, the plan's tensor has {channels}"
                ));
            }
        } else {
            let groups = self.groups;
            if channels % groups != 0 {
                return mismatch(format!("{channels} input channels are not divisible by {groups} groups"));
            }
            if filters % groups != 0 {
                return mismatch(format!("{filters} filters are not divisible by {groups} groups"));
            }
            if channels / groups != per_group {
                return mismatch(format!(
                    "weights have {per_group} input channels per group, the plan's tensor has {} ({channels} \
                     channels in {groups} groups)",
                    channels / groups
                ));
            }
        }
        let mut lens = [0; crate::MAX_RANK];
        lens[0] = input.lens()[0];
        lens[1] = filters;
        for d in 0..self.spatial_dims() {
            let (extent, taps) = (input.spatial()[d], weights.spatial()[d]);
            let reach = (taps - 1).checked_mul(self.dilations[d]).and_then(|r| r.checked_add(1));
            let padded = (self.pads_before[d] + self.pads_after[d]).checked_add(extent);
            let (Some(reach), Some(padded)) = (reach, padded) else {
                return mismatch(format!("the extent of spatial dimension {d} overflows"));
            };
            if reach > padded {
                return mismatch(format!(
                    "the filter reaches over {reach} elements of spatial dimension {d}, the padded input \
                     has {padded}"
                ));
            }
            lens[2 + d] = (padded - reach) / self.strides[d] + 1;
        }
        Ok(lens)
    }
}

impl fmt::Debug for ConvolutionDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConvolutionDescriptor")
            .field("mode", &self.mode)
            .field("pads_before", &self.pads_before())
            .field("pads_after", &self.pads_after())
            .field("strides", &self.strides())
            .field("dilations", &self.dilations())
            .field("output_pads", &self.output_pads())
            .field("groups", &self.groups)
            .finish()
    }
}

/// `pad 1x1 stride 2x2 dilation 1x1 groups 4`; what is the default is left out. A dimension whose padding differs before and
/// after has both, as in `pad 0:1x1`.
impl fmt::Display for ConvolutionDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |list: &[usize]| list.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
        let pad = |(before, after): (&usize, &usize)| {
            if before == after { before.to_string() } else { format!("{before}:{after}") }
        };
        let pads: Vec<_> = self.pads_before().iter().zip(self.pads_after()).map(pad).collect();
        write!(f, "pad {} stride {}", pads.join("x"), join(self.strides()))?;
        if self.dilations().iter().any(|&d| d != 1) {
            write!(f, " dilation {}", join(self.dilations()))?;
        }
        if self.groups != 1 {
            write!(f, " groups {}", self.groups)?;
        }
        if self.mode == ConvolutionMode::Transpose {
            write!(f, " transposed")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DataType;

    fn tensor(lens: [usize; 4]) -> TensorDescriptor {
        TensorDescriptor::nchw(DataType::Float, lens).unwrap()
    }

    #[test]
    fn output_shape_follows_the_formula_and_the_input_layout() {
        let conv = ConvolutionDescriptor::d2()
            .with_pads([3, 2])
            .unwrap()
            .with_strides([2, 1])
            .unwrap()
            .with_dilations([1, 2])
            .unwrap();
        let x = TensorDescriptor::nhwc(DataType::Half, [2, 3, 224, 30]).unwrap();
        let w = TensorDescriptor::nchw(DataType::Half, [64, 3, 7, 3]).unwrap();
        let y = conv.forward_output(&x, &w).unwrap();
        assert_eq!(y.lens(), [2, 64, 112, 30]);
        assert_eq!(y.layout(), Some(TensorLayout::Nhwc));
        assert_eq!(y.data_type(), DataType::Half);
    }

    /// What TensorFlow, ONNX and cuDNN come to for the same numbers.
    #[test]
    fn padding_may_differ_on_both_sides() {
        let output = |conv: ConvolutionDescriptor, x: &[usize], w: &[usize]| {
            let of = |lens: &[usize]| TensorDescriptor::packed(DataType::Float, lens).unwrap();
            conv.forward_output(&of(x), &of(w)).unwrap().lens()[2..].to_vec()
        };
        let (d2, d3) = (ConvolutionDescriptor::d2(), ConvolutionDescriptor::d3());
        let same = d2.with_asymmetric_pads([0, 1], [1, 2]).unwrap().with_strides([2, 3]).unwrap();
        assert_eq!(output(same, &[1, 3, 224, 10], &[8, 3, 3, 5]), [112, 3]);
        let causal = d3.with_asymmetric_pads([2, 1, 1], [0, 1, 1]).unwrap();
        assert_eq!(output(causal, &[1, 4, 5, 8, 9], &[4, 4, 3, 3, 3]), [5, 8, 9]);
        // Padding of one side alone makes room for the filter.
        let after = d2.with_asymmetric_pads([0, 0], [2, 0]).unwrap();
        assert_eq!(output(after, &[1, 1, 1, 4], &[1, 1, 3, 1]), [1, 4]);
        assert_eq!(
            (same.to_string(), after.to_string()),
            ("pad 0:1x1:2 stride 2x3".into(), "pad 0:2x0 stride 1x1".into())
        );

        assert_eq!(d2.with_asymmetric_pads([1, 2], [1, 2]), d2.with_pads([1, 2]));
        assert_ne!(d2.with_asymmetric_pads([1, 2], [1, 1]), d2.with_pads([1, 2]));
        // The last that is set counts, for both sides.
        assert_eq!(after.with_pads([1, 1]), d2.with_pads([1, 1]));
        for error in [d2.with_asymmetric_pads([0], [0, 0]), d2.with_asymmetric_pads([0, 0], [0; 3])] {
            assert!(matches!(error, Err(DescriptorError::Count { expected: 2, .. })));
        }
        let large = d2.with_asymmetric_pads([LIMIT, LIMIT], [0, LIMIT + 1]);
        assert!(matches!(large, Err(DescriptorError::Range { .. })));
        assert!(d2.with_asymmetric_pads([LIMIT; 2], [LIMIT; 2]).is_ok());
    }

    #[test]
    fn mismatches_name_both_numbers() {
        let conv = ConvolutionDescriptor::d2();
        let error = conv.forward_output(&tensor([1, 64, 8, 8]), &tensor([16, 32, 3, 3])).unwrap_err();
        assert_eq!(error.to_string(), "weights have 32 input channels, the plan's tensor has 64");
        let error = conv.forward_output(&tensor([1, 4, 2, 8]), &tensor([16, 4, 3, 3])).unwrap_err();
        assert!(error.to_string().contains("reaches over 3 elements of spatial dimension 0"));
        let grouped = conv.with_groups(3).unwrap();
        assert!(grouped.forward_output(&tensor([1, 4, 8, 8]), &tensor([6, 1, 3, 3])).is_err());
        assert!(grouped.forward_output(&tensor([1, 6, 8, 8]), &tensor([4, 2, 3, 3])).is_err());
        assert!(grouped.forward_output(&tensor([1, 6, 8, 8]), &tensor([6, 2, 3, 3])).is_ok());
    }

    #[test]
    fn nonsense_is_refused_at_construction() {
        let (of, d2) = (ConvolutionDescriptor::of_dims, ConvolutionDescriptor::d2);
        assert!(matches!(of(1), Err(DescriptorError::Rank { found: 1, .. })));
        assert!(matches!(of(4), Err(DescriptorError::Rank { found: 4, .. })));
        assert_eq!((of(2).unwrap(), of(3).unwrap()), (d2(), ConvolutionDescriptor::d3()));
        assert!(matches!(
            d2().with_pads([0, 0, 0]),
            Err(DescriptorError::Count { found: 3, expected: 2, .. })
        ));
        assert!(matches!(d2().with_strides([1]), Err(DescriptorError::Count { .. })));
        assert!(matches!(d2().with_strides([1, 0]), Err(DescriptorError::Zero { dimension: 1, .. })));
        assert!(matches!(d2().with_dilations([0, 1]), Err(DescriptorError::Zero { dimension: 0, .. })));
        assert!(matches!(d2().with_pads([0, LIMIT + 1]), Err(DescriptorError::Range { .. })));
        assert!(d2().with_pads([0, LIMIT]).is_ok());
        assert!(d2().with_groups(0).is_err());
    }

    /// A convolution is equal to another of the same numbers, however it came to them.
    #[test]
    fn numbers_that_are_set_are_those_that_count() {
        let set = ConvolutionDescriptor::d2().with_pads([0, 0]).unwrap().with_strides([1, 1]).unwrap();
        assert_eq!(set.with_dilations([1, 1]).unwrap(), ConvolutionDescriptor::d2());
        let three = ConvolutionDescriptor::d3().with_pads([1, 2, 3]).unwrap();
        let three = three.with_strides(vec![4, 5, 6]).unwrap().with_dilations([7, 8, 9]).unwrap();
        assert_eq!((three.pads_before(), three.pads_after()), (&[1, 2, 3][..], &[1, 2, 3][..]));
        assert_eq!(three.strides(), [4, 5, 6]);
        assert_eq!((three.dilations(), three.spatial_dims()), (&[7, 8, 9][..], 3));
    }
}

//! Convolution descriptors.

use std::fmt;

use crate::{DescriptorError, TensorDescriptor};

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
    pads: [usize; 3],
    strides: [usize; 3],
    dilations: [usize; 3],
    output_pads: [usize; 3],
    groups: usize,
}

/// A number beyond which a padding, stride or dilation is a mistake and products could overflow.
const LIMIT: usize = i32::MAX as usize;

impl ConvolutionDescriptor {
    /// A convolution with one group. Padding is added on both sides of a dimension.
    ///
    /// # Errors
    /// Lists that are not all of length 2 or all of length 3, a zero stride or dilation, a number above
    /// `i32::MAX`.
    pub fn new(pads: &[usize], strides: &[usize], dilations: &[usize]) -> Result<Self, DescriptorError> {
        let dims = pads.len();
        if !(2..=3).contains(&dims) {
            return Err(DescriptorError::Rank {
                what: "convolution",
                found: dims,
                expected: "2 or 3 spatial ones",
            });
        }
        for (what, list, least) in [
            ("convolution padding", pads, 0),
            ("convolution stride", strides, 1),
            ("convolution dilation", dilations, 1),
        ] {
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
        }
        let fill = |list: &[usize], rest| std::array::from_fn(|i| list.get(i).copied().unwrap_or(rest));
        Ok(ConvolutionDescriptor {
            mode: ConvolutionMode::Convolution,
            dims: dims as u8,
            pads: fill(pads, 0),
            strides: fill(strides, 1),
            dilations: fill(dilations, 1),
            output_pads: [0; 3],
            groups: 1,
        })
    }

    /// A 2-D convolution: padding, stride and dilation of H and W.
    ///
    /// # Errors
    /// As [`ConvolutionDescriptor::new`].
    pub fn new_2d(
        pads: [usize; 2],
        strides: [usize; 2],
        dilations: [usize; 2],
    ) -> Result<Self, DescriptorError> {
        Self::new(&pads, &strides, &dilations)
    }

    /// The same convolution in `groups` independent groups of channels; groups = channels is depthwise.
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

    /// The same numbers for another direction.
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

    /// Padding on each side.
    pub fn pads(&self) -> &[usize] {
        &self.pads[..self.spatial_dims()]
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

    /// The output of this convolution: `(in + 2·pad − (dilation·(k−1) + 1)) / stride + 1` in each spatial
    /// dimension, one channel for each filter, packed in the memory order of the input.
    ///
    /// # Errors
    /// Filters or inputs that do not fit one another, with the property and both numbers.
    pub fn forward_output(
        &self,
        input: &TensorDescriptor,
        weights: &TensorDescriptor,
    ) -> Result<TensorDescriptor, DescriptorError> {
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
            let padded = (2 * self.pads[d]).checked_add(extent);
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
        input.like(&lens[..rank])
    }
}

impl fmt::Debug for ConvolutionDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConvolutionDescriptor")
            .field("mode", &self.mode)
            .field("pads", &self.pads())
            .field("strides", &self.strides())
            .field("dilations", &self.dilations())
            .field("output_pads", &self.output_pads())
            .field("groups", &self.groups)
            .finish()
    }
}

/// `pad 1x1 stride 2x2 dilation 1x1 groups 4`; what is the default is left out.
impl fmt::Display for ConvolutionDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |list: &[usize]| list.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
        write!(f, "pad {} stride {}", join(self.pads()), join(self.strides()))?;
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
    use crate::{DataType, TensorLayout};

    fn tensor(lens: [usize; 4]) -> TensorDescriptor {
        TensorDescriptor::nchw(DataType::Float, lens).unwrap()
    }

    #[test]
    fn output_shape_follows_the_formula_and_the_input_layout() {
        let conv = ConvolutionDescriptor::new_2d([3, 2], [2, 1], [1, 2]).unwrap();
        let x = TensorDescriptor::nhwc(DataType::Half, [2, 3, 224, 30]).unwrap();
        let w = TensorDescriptor::nchw(DataType::Half, [64, 3, 7, 3]).unwrap();
        let y = conv.forward_output(&x, &w).unwrap();
        assert_eq!(y.lens(), [2, 64, 112, 30]);
        assert_eq!(y.layout(), Some(TensorLayout::Nhwc));
        assert_eq!(y.data_type(), DataType::Half);
    }

    #[test]
    fn mismatches_name_both_numbers() {
        let conv = ConvolutionDescriptor::new_2d([0, 0], [1, 1], [1, 1]).unwrap();
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
        let new = ConvolutionDescriptor::new;
        assert!(matches!(new(&[1], &[1], &[1]), Err(DescriptorError::Rank { .. })));
        assert!(matches!(new(&[1; 4], &[1; 4], &[1; 4]), Err(DescriptorError::Rank { .. })));
        assert!(matches!(new(&[0, 0], &[1], &[1, 1]), Err(DescriptorError::Count { .. })));
        assert!(matches!(new(&[0, 0], &[1, 0], &[1, 1]), Err(DescriptorError::Zero { dimension: 1, .. })));
        assert!(matches!(new(&[0, 0], &[1, 1], &[0, 1]), Err(DescriptorError::Zero { dimension: 0, .. })));
        assert!(matches!(new(&[0, LIMIT + 1], &[1, 1], &[1, 1]), Err(DescriptorError::Range { .. })));
        assert!(new(&[0, 0], &[1, 1], &[1, 1]).unwrap().with_groups(0).is_err());
    }
}

//! Tensor descriptors: data type, lengths and strides.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::{Blocks, DataType, DescriptorError, TensorLayout};

/// The largest number of dimensions a tensor may have.
pub const MAX_RANK: usize = 5;

/// Data type, lengths and strides of a tensor, or its lengths and [layout](TensorLayout) where its channels lie in blocks.
///
/// Lengths are in the order N, C, (D,) H, W and strides count elements. Filters have lengths
/// K, C/groups, (D,) H, W. One to five dimensions can be described; fusion plans take four or five.
///
/// A tensor with blocks of channels is packed and has no strides. Where it has one block, or images of one pixel,
/// strides say the same, and it equals the tensor that has these.
///
/// No index ever takes a step along a dimension of length 1, so its stride means nothing: two descriptors are
/// equal, and hash alike, when type, lengths and the strides of all longer dimensions are. A tensor of
/// 1x64x1x1 is the same in NCHW and NHWC.
#[derive(Clone, Copy)]
pub struct TensorDescriptor {
    data_type: DataType,
    rank: u8,
    /// The layout that it was described by, if that has blocks of channels.
    blocked: Option<TensorLayout>,
    lens: [usize; MAX_RANK],
    /// With blocks, those of elements of one block.
    strides: [usize; MAX_RANK],
}

impl TensorDescriptor {
    /// The most dimensions that a tensor can have.
    pub const MAX_RANK: usize = MAX_RANK;

    /// A tensor with any positive strides; those of dimensions of length 1 may be 0.
    ///
    /// # Errors
    /// Ranks outside 1..=5, a zero length, a zero stride of a longer dimension, or a tensor that overflows the
    /// address space.
    pub fn new(data_type: DataType, lens: &[usize], strides: &[usize]) -> Result<Self, DescriptorError> {
        let rank = lens.len();
        if rank == 0 || rank > MAX_RANK {
            return Err(DescriptorError::Rank { what: "tensor", found: rank, expected: "1 to 5" });
        }
        if strides.len() != rank {
            return Err(DescriptorError::Count {
                what: "tensor strides",
                found: strides.len(),
                expected: rank,
            });
        }
        if let Some(dimension) = lens.iter().position(|&l| l == 0) {
            return Err(DescriptorError::Zero { what: "tensor length", dimension });
        }
        if let Some(dimension) = (0..rank).find(|&d| lens[d] > 1 && strides[d] == 0) {
            return Err(DescriptorError::Zero { what: "tensor stride", dimension });
        }
        let overflow = || DescriptorError::Overflow { lens: lens.to_vec(), strides: strides.to_vec() };
        let span = lens
            .iter()
            .zip(strides)
            .try_fold(1usize, |span, (&l, &s)| (l - 1).checked_mul(s)?.checked_add(span));
        let bytes = span.and_then(|n| n.checked_mul(data_type.size()));
        let count = lens.iter().try_fold(data_type.size(), |n, &l| n.checked_mul(l));
        let limit = isize::MAX as usize;
        if !matches!((bytes, count), (Some(b), Some(c)) if b <= limit && c <= limit) {
            return Err(overflow());
        }
        let (rank, ones) = (rank as u8, [1; MAX_RANK]);
        let mut desc = TensorDescriptor { data_type, rank, blocked: None, lens: ones, strides: ones };
        desc.lens[..lens.len()].copy_from_slice(lens);
        desc.strides[..lens.len()].copy_from_slice(strides);
        Ok(desc)
    }

    /// A packed tensor, the last dimension innermost (NCHW, NCDHW).
    ///
    /// # Errors
    /// As [`TensorDescriptor::new`].
    pub fn packed(data_type: DataType, lens: &[usize]) -> Result<Self, DescriptorError> {
        let order: [usize; MAX_RANK] = std::array::from_fn(|i| i);
        Self::ordered(data_type, lens, order.get(..lens.len()).unwrap_or(&[]))
    }

    /// A packed tensor in `layout`; `lens` stay in the order N, C, (D,) H, W.
    ///
    /// # Errors
    /// As [`TensorDescriptor::new`], a rank that is not the layout's, and channels that are no whole blocks.
    pub fn with_layout(
        data_type: DataType,
        layout: TensorLayout,
        lens: &[usize],
    ) -> Result<Self, DescriptorError> {
        if lens.len() != layout.rank() {
            let expected = if layout.rank() == 4 { "4 for this layout" } else { "5 for this layout" };
            return Err(DescriptorError::Rank { what: "tensor", found: lens.len(), expected });
        }
        let Some(block) = layout.block() else { return Self::ordered(data_type, lens, layout.order()) };
        if !lens[1].is_multiple_of(block) {
            return Err(DescriptorError::Mismatch(format!(
                "{layout} has blocks of {block} channels, the tensor has {} channels, which are no multiple of that",
                lens[1]
            )));
        }
        let one = Self::ordered(data_type, &[lens[0], block, lens[2], lens[3]], layout.order())?;
        let image = lens[1..].iter().fold(1usize, |image, &len| image.saturating_mul(len));
        let strides = [image.max(1), 1, one.strides[2], one.strides[3]];
        Ok(TensorDescriptor { blocked: Some(layout), ..Self::new(data_type, lens, &strides)? })
    }

    /// A packed 4-D tensor, NCHW.
    ///
    /// # Errors
    /// As [`TensorDescriptor::new`].
    pub fn nchw(data_type: DataType, lens: [usize; 4]) -> Result<Self, DescriptorError> {
        Self::with_layout(data_type, TensorLayout::Nchw, &lens)
    }

    /// A packed 4-D tensor, NHWC; `lens` stay in the order N, C, H, W.
    ///
    /// # Errors
    /// As [`TensorDescriptor::new`].
    pub fn nhwc(data_type: DataType, lens: [usize; 4]) -> Result<Self, DescriptorError> {
        Self::with_layout(data_type, TensorLayout::Nhwc, &lens)
    }

    /// A packed 4-D tensor, its channels in blocks of 4, 8 or 16: NCHWc. `lens` stay in the order N, C, H, W, and C counts all
    /// channels.
    ///
    /// # Errors
    /// As [`TensorDescriptor::new`], blocks of another length, and channels that are no whole blocks.
    pub fn nchwc(data_type: DataType, lens: [usize; 4], block: usize) -> Result<Self, DescriptorError> {
        match TensorLayout::ALL.into_iter().find(|layout| layout.block() == Some(block)) {
            Some(layout) => Self::with_layout(data_type, layout, &lens),
            None => Err(DescriptorError::Range {
                what: "channels of a block",
                found: block.to_string(),
                expected: "4, 8 and 16 are accepted",
            }),
        }
    }

    fn ordered(data_type: DataType, lens: &[usize], order: &[usize]) -> Result<Self, DescriptorError> {
        let mut strides = [1usize; MAX_RANK];
        let mut next = 1usize;
        for &d in order.iter().rev() {
            strides[d] = next.max(1);
            next = next.saturating_mul(lens[d]);
        }
        Self::new(data_type, lens, strides.get(..lens.len()).unwrap_or(&[]))
    }

    /// A packed tensor with other lengths, its dimensions in the same memory order as this one's. A tensor that
    /// fits two layouts is of the one whose strides it literally has, if there is one: what a stride that means
    /// nothing may still hint at.
    ///
    /// # Errors
    /// As [`TensorDescriptor::new`], and another rank.
    pub fn like(&self, lens: &[usize]) -> Result<Self, DescriptorError> {
        if lens.len() != self.rank() {
            return Err(DescriptorError::Rank {
                what: "tensor",
                found: lens.len(),
                expected: "as many as the tensor it is to be like",
            });
        }
        if let Some(layout) = self.literal_layout() {
            return Self::with_layout(self.data_type, layout, lens);
        }
        Self::ordered(self.data_type, lens, &self.memory_order())
    }

    /// Filters with these lengths that go with this tensor: as [`like`](Self::like), but packed with the last dimension
    /// innermost where the tensor was described by blocks of channels, which filters do not have.
    ///
    /// # Errors
    /// As [`TensorDescriptor::like`].
    pub fn filters_like(&self, lens: &[usize]) -> Result<Self, DescriptorError> {
        if self.blocked.is_some() && lens.len() == self.rank() {
            return Self::packed(self.data_type, lens);
        }
        self.like(lens)
    }

    /// The dimensions from slowest to fastest. One of length 1 lies where it would in a tensor of the nearest
    /// layout: right outside of the next dimension of that layout.
    fn memory_order(&self) -> Vec<usize> {
        let layouts = TensorLayout::of_rank(self.rank());
        let closest = layouts.iter().find(|layout| layout.is_channels_last() == self.has_inner_channels());
        let identity = [0, 1, 2, 3, 4];
        let template = closest.map_or(&identity[..self.rank()], |layout| layout.order());
        let mut order: Vec<usize> = template.iter().copied().filter(|&d| self.lens[d] > 1).collect();
        let place = |d: usize| template.iter().position(|&other| other == d);
        order.sort_unstable_by_key(|&d| (std::cmp::Reverse(self.strides[d]), place(d)));
        for (place, &d) in template.iter().enumerate().rev().filter(|&(_, &d)| self.lens[d] == 1) {
            let next = template.get(place + 1).and_then(|next| order.iter().position(|other| other == next));
            order.insert(next.unwrap_or(order.len()), d);
        }
        order
    }

    /// Whether there are channels that lie closer together than the places of an image do.
    fn has_inner_channels(&self) -> bool {
        let mut places = (2..self.rank()).filter(|&d| self.lens[d] > 1).map(|d| self.strides[d]).peekable();
        self.rank() > 2 && self.lens[1] > 1 && places.peek().is_some() && places.all(|s| self.strides[1] < s)
    }

    /// The type of the elements.
    pub const fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Number of dimensions.
    pub const fn rank(&self) -> usize {
        self.rank as usize
    }

    /// Lengths, in the order N, C, (D,) H, W.
    pub fn lens(&self) -> &[usize] {
        &self.lens[..self.rank()]
    }

    /// Strides in elements, in the order N, C, (D,) H, W; `None` where the channels lie in several blocks, so that no one
    /// distance leads from a channel to the next.
    pub fn strides(&self) -> Option<&[usize]> {
        self.blocks().is_none().then(|| self.strides_of_block())
    }

    /// The strides of elements of one block of channels, or of all elements where there are no blocks.
    pub(crate) fn strides_of_block(&self) -> &[usize] {
        &self.strides[..self.rank()]
    }

    /// The blocks in which the channels lie; `None` where strides say where all elements lie.
    pub fn blocks(&self) -> Option<Blocks> {
        let (channels, plane) = (self.blocked?.block()?, self.spatial().iter().product::<usize>());
        (self.lens[1] > channels && plane > 1).then(|| Blocks { channels, stride: channels * plane })
    }

    /// The distance in elements from the first to the one at an index, which is within the lengths.
    pub fn offset(&self, index: &[usize]) -> usize {
        let mut offset = index.iter().zip(self.strides).map(|(i, stride)| i * stride).sum();
        if let (Some(blocks), Some(&channel)) = (self.blocks(), index.get(1)) {
            offset += channel / blocks.channels * (blocks.stride - blocks.channels);
        }
        offset
    }

    /// Lengths of the spatial dimensions, (D,) H, W.
    pub fn spatial(&self) -> &[usize] {
        self.lens().get(2..).unwrap_or(&[])
    }

    /// Number of elements.
    pub fn element_count(&self) -> usize {
        self.lens().iter().product()
    }

    /// Number of elements from the first to the last in memory, gaps included.
    pub fn span(&self) -> usize {
        match self.strides() {
            Some(strides) => 1 + self.lens().iter().zip(strides).map(|(l, s)| (l - 1) * s).sum::<usize>(),
            None => self.element_count(),
        }
    }

    /// Bytes from the first to the last element in memory, gaps included.
    pub fn bytes(&self) -> usize {
        self.span() * self.data_type.size()
    }

    /// Bytes of the elements alone: what is moved where all are read or written once.
    pub fn element_bytes(&self) -> usize {
        self.element_count() * self.data_type.size()
    }

    /// Whether the elements fill their span without gaps.
    pub fn is_packed(&self) -> bool {
        self.span() == self.element_count() && !self.overlaps_itself()
    }

    /// Whether two different indices may name the same element.
    pub fn overlaps_itself(&self) -> bool {
        if self.blocks().is_some() {
            return false;
        }
        let mut order: [usize; MAX_RANK] = std::array::from_fn(|i| i);
        let order = &mut order[..self.rank()];
        order.sort_unstable_by_key(|&d| self.strides[d]);
        let mut reach = 0;
        order.iter().filter(|&&d| self.lens[d] > 1).any(|&d| {
            let overlaps = self.strides[d] <= reach;
            reach += (self.lens[d] - 1) * self.strides[d];
            overlaps
        })
    }

    /// Whether another tensor that begins so many bytes behind this one lies in the gaps of this one, and this one in its gaps, as
    /// slices of one tensor do. `false` also for some tensors that share nothing, such as those whose rows are no whole number of
    /// pixels apart.
    pub fn interleaves(&self, other: &Self, distance: isize) -> bool {
        let mut periods = self.steps().chain(other.steps()).map(|(_, stride)| stride);
        periods.any(|period| {
            let (Some(own), Some(others)) = (self.part_of(period), other.part_of(period)) else {
                return false;
            };
            // Where the other begins in a period that begins with this one.
            let at = distance.rem_euclid(period.cast_signed()).cast_unsigned();
            own <= at && others <= period - at
        })
    }

    /// Lengths above 1, with their strides in bytes.
    fn steps(&self) -> impl Iterator<Item = (usize, usize)> {
        let size = self.data_type.size();
        let steps = self.lens.into_iter().zip(self.strides).filter(|&(len, _)| len > 1);
        steps.map(move |(len, stride)| (len, stride * size))
    }

    /// How many bytes from the first on lie in a period, if the tensor goes on in whole periods.
    fn part_of(&self, period: usize) -> Option<usize> {
        if self.blocked.is_some() {
            return None;
        }
        let mut inner = self.data_type.size();
        for (len, stride) in self.steps() {
            if stride < period {
                inner = inner.saturating_add((len - 1) * stride);
            } else if !stride.is_multiple_of(period) {
                return None;
            }
        }
        Some(inner)
    }

    /// The layout of a packed tensor, or `None` for other strides. Strides of dimensions of length 1 do
    /// not matter; a tensor that fits both layouts is channels first.
    pub fn layout(&self) -> Option<TensorLayout> {
        if self.blocks().is_some() { self.blocked } else { self.fitting_layout(|d| self.lens[d] == 1) }
    }

    /// The order in which the elements lie, in words: the layout of a packed tensor, or strides.
    pub fn order(&self) -> String {
        match self.layout() {
            Some(layout) => layout.to_string(),
            None => format!("strides {:?}", self.strides_of_block()),
        }
    }

    /// The layout that it was described by, or whose strides these are literally, else the one that they fit: what
    /// [`layout`](Self::layout) says, but where a tensor fits several.
    pub fn literal_layout(&self) -> Option<TensorLayout> {
        self.blocked.or_else(|| self.fitting_layout(|_| false)).or_else(|| self.layout())
    }

    fn fitting_layout(&self, ignore: impl Fn(usize) -> bool) -> Option<TensorLayout> {
        let fits = |layout: &&TensorLayout| {
            let packed = Self::with_layout(self.data_type, **layout, self.lens());
            packed.is_ok_and(|p| (0..self.rank()).all(|d| ignore(d) || p.strides[d] == self.strides[d]))
        };
        TensorLayout::of_rank(self.rank()).iter().find(fits).copied()
    }

    /// This tensor with the one choice of strides for dimensions of length 1 that all equal tensors share:
    /// those of a packed tensor. A tensor that fits both layouts is channels first, and one that strides describe has no
    /// blocks of channels.
    pub fn canonical(&self) -> Self {
        if self.blocks().is_some() {
            return *self;
        }
        let order = self.memory_order();
        let used = order.iter().find(|&&d| self.lens[d] > 1);
        // Outside of all dimensions that are used: as far apart as they reach.
        let mut stride = used.map_or(1, |&d| self.lens[d].saturating_mul(self.strides[d]));
        let mut canonical = TensorDescriptor { blocked: None, ..*self };
        for d in order {
            if self.lens[d] > 1 {
                stride = self.strides[d];
            } else {
                canonical.strides[d] = stride;
            }
        }
        canonical
    }

    /// The strides that mean something.
    fn used_strides(&self) -> impl Iterator<Item = usize> {
        self.lens.into_iter().zip(self.strides).filter(|&(len, _)| len > 1).map(|(_, stride)| stride)
    }

    /// This tensor with another data type.
    ///
    /// # Errors
    /// As [`TensorDescriptor::new`], when a larger type overflows.
    pub fn with_data_type(&self, data_type: DataType) -> Result<Self, DescriptorError> {
        let blocked = self.blocked;
        Ok(TensorDescriptor { blocked, ..Self::new(data_type, self.lens(), self.strides_of_block())? })
    }
}

impl PartialEq for TensorDescriptor {
    fn eq(&self, other: &Self) -> bool {
        (self.data_type, self.lens(), self.blocks()) == (other.data_type, other.lens(), other.blocks())
            && self.used_strides().eq(other.used_strides())
    }
}

impl Eq for TensorDescriptor {}

impl Hash for TensorDescriptor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.data_type, self.lens(), self.blocks()).hash(state);
        self.used_strides().for_each(|stride| stride.hash(state));
    }
}

impl fmt::Debug for TensorDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (data_type, lens) = (self.data_type, self.lens());
        match self.blocked {
            Some(layout) => write!(f, "TensorDescriptor({data_type} {lens:?} {layout})"),
            None => write!(f, "TensorDescriptor({data_type} {lens:?} strides {:?})", self.strides_of_block()),
        }
    }
}

/// `f32 64x3x224x224 NCHW`, or `f32 64x3x224x224 strides 301056x100352x448x2` where no layout fits. Of a tensor that fits
/// two layouts it is the one whose strides it literally has, as [`TensorDescriptor::like`] takes it.
impl fmt::Display for TensorDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |list: &[usize]| list.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
        write!(f, "{} {}", self.data_type, joined(self.lens()))?;
        match self.literal_layout() {
            Some(layout) => write!(f, " {layout}"),
            None => write!(f, " strides {}", joined(self.strides_of_block())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_give_the_strides_miopen_gives() {
        let nchw = TensorDescriptor::nchw(DataType::Float, [2, 3, 4, 5]).unwrap();
        assert_eq!(nchw.strides().unwrap(), [60, 20, 5, 1]);
        let nhwc = TensorDescriptor::nhwc(DataType::Float, [2, 3, 4, 5]).unwrap();
        assert_eq!(nhwc.strides().unwrap(), [60, 1, 15, 3]);
        assert_eq!(nhwc.layout(), Some(TensorLayout::Nhwc));
        let ndhwc =
            TensorDescriptor::with_layout(DataType::Half, TensorLayout::Ndhwc, &[2, 3, 4, 5, 6]).unwrap();
        assert_eq!(ndhwc.strides().unwrap(), [360, 1, 90, 18, 3]);
    }

    #[test]
    fn nonsense_is_refused_at_construction() {
        use DescriptorError::*;
        let new = TensorDescriptor::new;
        assert!(matches!(new(DataType::Float, &[], &[]), Err(Rank { .. })));
        assert!(matches!(new(DataType::Float, &[1; 6], &[1; 6]), Err(Rank { .. })));
        assert!(matches!(new(DataType::Float, &[1, 2], &[1]), Err(Count { .. })));
        assert!(matches!(new(DataType::Float, &[1, 0], &[1, 1]), Err(Zero { dimension: 1, .. })));
        assert!(matches!(new(DataType::Float, &[1, 2], &[1, 0]), Err(Zero { dimension: 1, .. })));
        let huge = usize::MAX / 2;
        assert!(matches!(new(DataType::Float, &[huge, 3], &[3, 1]), Err(Overflow { .. })));
        assert!(matches!(TensorDescriptor::packed(DataType::Float, &[huge, huge]), Err(Overflow { .. })));
        assert!(matches!(TensorDescriptor::packed(DataType::Float, &[]), Err(Rank { .. })));
        assert!(matches!(TensorDescriptor::packed(DataType::Float, &[1; 9]), Err(Rank { .. })));
        // One byte each, and one too many of them.
        assert!(new(DataType::Int8, &[isize::MAX as usize], &[1]).is_ok());
        assert!(new(DataType::Half, &[isize::MAX as usize], &[1]).is_err());
    }

    #[test]
    fn gaps_and_overlaps_are_seen() {
        let rows = TensorDescriptor::new(DataType::Float, &[1, 2, 3, 4], &[48, 24, 8, 1]).unwrap();
        assert!(!rows.is_packed() && !rows.overlaps_itself() && rows.layout().is_none());
        assert_eq!(rows.span(), 1 + 24 + 16 + 3);
        let folded = TensorDescriptor::new(DataType::Float, &[1, 2, 3, 4], &[1, 3, 4, 1]).unwrap();
        assert!(folded.overlaps_itself() && !folded.is_packed());
    }

    #[test]
    fn slices_of_one_tensor_interleave() {
        let of = |lens: [usize; 4], strides: [usize; 4]| {
            TensorDescriptor::new(DataType::Half, &lens, &strides).unwrap()
        };
        // Six and ten of 16 channels, of two bytes each.
        let strides = [16 * 12, 1, 16 * 4, 16];
        let (six, ten) = (of([2, 6, 3, 4], strides), of([2, 10, 3, 4], strides));
        assert!(six.interleaves(&ten, 12) && ten.interleaves(&six, -12));
        // An element too early, and in the next pixel.
        assert!(!six.interleaves(&ten, 10) && !six.interleaves(&ten, 14));
        assert!(six.interleaves(&ten, 32 + 12) && !six.interleaves(&six, 0) && !six.interleaves(&six, 32));
        // Channels first: images of 16 channels.
        let strides = [16 * 12, 12, 4, 1];
        let (six, ten) = (of([2, 6, 3, 4], strides), of([2, 10, 3, 4], strides));
        assert!(six.interleaves(&ten, 6 * 24) && !six.interleaves(&ten, 6 * 24 - 2));
        // Pixels of another number of channels meet sooner or later; a packed tensor has no gaps.
        let other = of([2, 2, 3, 4], [24 * 12, 1, 24 * 4, 24]);
        assert!(!six.interleaves(&other, 12));
        let packed = TensorDescriptor::nhwc(DataType::Half, [2, 6, 3, 4]).unwrap();
        assert!(!packed.interleaves(&packed, 12));
        let blocked = TensorDescriptor::nchwc(DataType::Half, [2, 16, 3, 4], 8).unwrap();
        assert!(!blocked.interleaves(&six, 12) && !six.interleaves(&blocked, 12));
        // Every second column, and the others.
        let columns = of([1, 2, 3, 4], [1, 24, 8, 2]);
        assert!(columns.interleaves(&columns, 2) && !columns.interleaves(&columns, 4));
    }

    #[test]
    fn like_keeps_the_memory_order() {
        let nhwc = TensorDescriptor::nhwc(DataType::Float, [2, 1, 4, 5]).unwrap();
        assert_eq!(nhwc.like(&[2, 8, 2, 3]).unwrap().layout(), Some(TensorLayout::Nhwc));
        let rows = TensorDescriptor::new(DataType::Float, &[1, 2, 3, 4], &[48, 24, 8, 1]).unwrap();
        assert_eq!(rows.like(&[1, 7, 3, 4]).unwrap().layout(), Some(TensorLayout::Nchw));
        let chwn = TensorDescriptor::new(DataType::Float, &[6, 2, 3, 4], &[1, 72, 24, 6]).unwrap();
        assert_eq!(chwn.like(&[6, 5, 3, 4]).unwrap().strides().unwrap(), [1, 72, 24, 6]);
    }

    #[test]
    fn strides_of_single_elements_mean_nothing() {
        let hash = |tensor: TensorDescriptor| {
            let mut hasher = std::hash::DefaultHasher::new();
            tensor.hash(&mut hasher);
            hasher.finish()
        };
        let lens_of = [[1, 64, 1, 1], [2, 1, 8, 11], [1, 7, 5, 1], [3, 1, 1, 9], [1, 1, 1, 1], [2, 3, 4, 5]];
        for (lens, layout) in
            lens_of.iter().flat_map(|lens| TensorLayout::of_rank(4).iter().map(move |l| (lens, l)))
        {
            // Packed, and with a gap behind every used dimension.
            for gap in [1, 3] {
                let packed = TensorDescriptor::with_layout(DataType::Half, *layout, lens).unwrap();
                let strides: [usize; 4] = std::array::from_fn(|d| packed.strides().unwrap()[d] * gap);
                let first = TensorDescriptor::new(DataType::Half, lens, &strides).unwrap();
                for junk in [0, 1, 2, 88, 12_345, usize::MAX] {
                    let junk =
                        std::array::from_fn::<_, 4, _>(|d| if lens[d] == 1 { junk } else { strides[d] });
                    let other = TensorDescriptor::new(DataType::Half, lens, &junk).unwrap();
                    assert_eq!(first, other);
                    assert_eq!(hash(first), hash(other));
                    assert_eq!(first.canonical().strides(), other.canonical().strides(), "{other:?}");
                    assert_eq!(other.canonical(), other);
                    assert_eq!(first.layout(), other.layout());
                    assert_eq!(first.is_packed(), other.is_packed());
                    assert_eq!((first.span(), first.overlaps_itself()), (other.span(), false));
                    if let Some(layout) = other.layout() {
                        let packed = TensorDescriptor::with_layout(DataType::Half, layout, lens).unwrap();
                        assert_eq!(other.canonical().strides(), packed.strides());
                    }
                }
            }
        }
        let of = |lens, strides| TensorDescriptor::new(DataType::Float, lens, strides).unwrap();
        assert_ne!(of(&[4, 7, 1, 1], &[7, 1, 1, 1]), of(&[4, 7, 1, 1], &[8, 1, 1, 1]));
        assert_ne!(of(&[4, 7, 1, 1], &[7, 1, 1, 1]), of(&[4, 7, 1], &[7, 1, 1]));
        assert_ne!(of(&[1, 7], &[7, 1]), of(&[7, 1], &[1, 1]));
    }

    #[test]
    fn canonical_strides_are_where_a_packed_tensor_has_them() {
        let canonical = |lens: [usize; 4], strides: [usize; 4]| {
            TensorDescriptor::new(DataType::Float, &lens, &strides)
                .unwrap()
                .canonical()
                .strides()
                .unwrap()
                .to_vec()
        };
        // Rows with gaps are kept; an only image, channel or column lies right outside of what is within.
        assert_eq!(canonical([1, 2, 3, 4], [9, 24, 8, 1]), [48, 24, 8, 1]);
        assert_eq!(canonical([5, 1, 3, 4], [99, 0, 8, 1]), [99, 99, 8, 1]);
        assert_eq!(canonical([1, 6, 3, 1], [0, 1, 8, 0]), [24, 1, 8, 8]);
        // Images innermost.
        assert_eq!(canonical([6, 1, 3, 4], [1, 0, 24, 6]), [1, 72, 24, 6]);
    }

    #[test]
    fn blocks_of_channels_have_their_own_place() {
        let blocked = TensorDescriptor::nchwc(DataType::Half, [2, 24, 3, 5], 8).unwrap();
        assert_eq!((blocked.strides(), blocked.layout()), (None, Some(TensorLayout::Nchwc8)));
        assert_eq!(blocked.blocks(), Some(Blocks { channels: 8, stride: 8 * 15 }));
        assert_eq!((blocked.span(), blocked.bytes()), (2 * 24 * 15, 2 * 2 * 24 * 15));
        assert!(blocked.is_packed() && !blocked.overlaps_itself());
        assert_eq!(blocked.to_string(), "f16 2x24x3x5 NCHWc8");
        assert_eq!(format!("{blocked:?}"), "TensorDescriptor(f16 [2, 24, 3, 5] NCHWc8)");
        // N, blocks, H, W, channels of a block, each element once and in order.
        let (mut next, mut of_volume) = (0, crate::volume::Volume::of(&blocked));
        for (n, block, h, w, c) in (0..2).flat_map(|n| {
            (0..3).flat_map(move |block| {
                let places = (0..3).flat_map(|h| (0..5).map(move |w| (h, w)));
                places.flat_map(move |(h, w)| (0..8).map(move |c| (n, block, h, w, c)))
            })
        }) {
            assert_eq!(blocked.offset(&[n, 8 * block + c, h, w]), next);
            assert_eq!(of_volume.offset([n, 8 * block + c, 0, h, w]), next);
            next += 1;
        }
        assert_eq!(of_volume.parts(5..21).collect::<Vec<_>>(), [5..8, 8..16, 16..21]);
        of_volume =
            crate::volume::Volume::of(&TensorDescriptor::nhwc(DataType::Half, [2, 24, 3, 5]).unwrap());
        assert!(of_volume.parts(5..21).eq(std::iter::once(5..21)));
        // What is made like it has blocks, of as many channels.
        assert_eq!(blocked.like(&[2, 16, 2, 2]).unwrap().to_string(), "f16 2x16x2x2 NCHWc8");
        assert_eq!(blocked.filters_like(&[16, 24, 3, 3]).unwrap().layout(), Some(TensorLayout::Nchw));
        assert_eq!(blocked.with_data_type(DataType::Float).unwrap().blocks(), blocked.blocks());
        let error = blocked.like(&[2, 12, 2, 2]).unwrap_err().to_string();
        assert!(error.contains("NCHWc8 has blocks of 8 channels, the tensor has 12 channels"), "{error}");
        assert!(TensorDescriptor::nchwc(DataType::Half, [2, 24, 3, 5], 6).is_err());
        assert!(TensorDescriptor::nchwc(DataType::Half, [2, 0, 3, 5], 4).is_err());
        assert!(
            TensorDescriptor::with_layout(DataType::Half, TensorLayout::Nchwc4, &[1, 4, 2, 2, 2]).is_err()
        );
        assert!(TensorDescriptor::nchwc(DataType::Double, [1 << 30, 1 << 30, 4, 4], 16).is_err());
    }

    #[test]
    fn blocks_mean_something_where_there_are_several_of_several_pixels() {
        let hash = |tensor: TensorDescriptor| {
            let mut hasher = std::hash::DefaultHasher::new();
            tensor.hash(&mut hasher);
            hasher.finish()
        };
        let of = |layout, lens: [usize; 4]| TensorDescriptor::with_layout(DataType::Float, layout, &lens);
        for (lens, equal) in [
            ([2, 16, 3, 5], vec![TensorLayout::Nhwc]),
            ([2, 48, 1, 1], vec![TensorLayout::Nchw, TensorLayout::Nhwc]),
            ([1, 48, 1, 1], vec![TensorLayout::Nchw, TensorLayout::Nhwc]),
            ([1, 48, 1, 2], vec![]),
        ] {
            let blocked = of(TensorLayout::Nchwc16, lens).unwrap();
            for layout in [TensorLayout::Nchw, TensorLayout::Nhwc, TensorLayout::Nchwc8] {
                let other = of(layout, lens).unwrap();
                let is_one = lens[2..] == [1, 1];
                let is_equal = equal.contains(&layout) || is_one;
                assert_eq!(blocked == other, is_equal, "{blocked} {other}");
                if is_equal {
                    assert_eq!(hash(blocked), hash(other));
                    assert_eq!(blocked.canonical().strides(), other.canonical().strides());
                    assert_eq!(format!("{:?}", blocked.canonical()), format!("{:?}", other.canonical()));
                }
            }
            assert_eq!(blocked.canonical(), blocked);
            // What it was described by goes on to what is made like it.
            assert!(blocked.like(&[1, 32, 4, 4]).unwrap().blocks().is_some());
            assert!(blocked.to_string().ends_with("NCHWc16"));
        }
    }

    #[test]
    fn like_does_not_mind_unused_strides() {
        for junk in [0, 1, 5, 1000] {
            let rows = TensorDescriptor::new(DataType::Float, &[2, 1, 3, 4], &[200, junk, 20, 2]).unwrap();
            assert_eq!(rows.like(&[2, 7, 3, 4]).unwrap().layout(), Some(TensorLayout::Nchw), "{junk}");
        }
    }
}

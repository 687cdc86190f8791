//! Tensor descriptors: data type, lengths and strides.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::DescriptorError;

/// The largest number of dimensions a tensor may have.
pub const MAX_RANK: usize = 5;

/// The type of a tensor's elements, with MIOpen's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DataType {
    /// IEEE 754 binary16.
    Half,
    /// bfloat16: the upper half of a binary32.
    BFloat16,
    /// IEEE 754 binary32.
    Float,
    /// IEEE 754 binary64.
    Double,
    /// 8-bit signed integer.
    Int8,
}

impl DataType {
    /// Every data type that can be described.
    pub const ALL: [DataType; 5] =
        [DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double, DataType::Int8];

    /// Size of one element in bytes.
    pub const fn size(self) -> usize {
        match self {
            DataType::Int8 => 1,
            DataType::Half | DataType::BFloat16 => 2,
            DataType::Float => 4,
            DataType::Double => 8,
        }
    }

    /// The distance from 1 to the next larger number (C++'s `numeric_limits::epsilon`); 0 for integers.
    pub const fn epsilon(self) -> f64 {
        match self {
            DataType::Half => 9.765625e-4,
            DataType::BFloat16 => 7.8125e-3,
            DataType::Float => f32::EPSILON as f64,
            DataType::Double => f64::EPSILON,
            DataType::Int8 => 0.0,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DataType::Half => "f16",
            DataType::BFloat16 => "bf16",
            DataType::Float => "f32",
            DataType::Double => "f64",
            DataType::Int8 => "i8",
        })
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is the element of a tensor.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The data type it stands for.
    const DATA_TYPE: DataType;
}

macro_rules! element {
    ($($t:ty => $d:ident),*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DATA_TYPE: DataType = DataType::$d;
        }
    )*};
}
element!(f32 => Float, half::f16 => Half, half::bf16 => BFloat16, f64 => Double, i8 => Int8);

/// The order in which a packed tensor's dimensions lie in memory, slowest first.
///
/// Lengths are always given as N, C, (D,) H, W; the layout is only a rule for the strides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TensorLayout {
    /// 4-D, channels before the image.
    Nchw,
    /// 4-D, channels innermost.
    Nhwc,
    /// 5-D, channels before the volume.
    Ncdhw,
    /// 5-D, channels innermost.
    Ndhwc,
}

impl TensorLayout {
    /// Number of dimensions.
    pub const fn rank(self) -> usize {
        match self {
            TensorLayout::Nchw | TensorLayout::Nhwc => 4,
            TensorLayout::Ncdhw | TensorLayout::Ndhwc => 5,
        }
    }

    /// Whether the channel is the innermost dimension.
    pub const fn is_channels_last(self) -> bool {
        matches!(self, TensorLayout::Nhwc | TensorLayout::Ndhwc)
    }

    /// The layouts of tensors with `rank` dimensions, channels first before channels last.
    pub const fn of_rank(rank: usize) -> &'static [TensorLayout] {
        match rank {
            4 => &[TensorLayout::Nchw, TensorLayout::Nhwc],
            5 => &[TensorLayout::Ncdhw, TensorLayout::Ndhwc],
            _ => &[],
        }
    }

    /// Dimensions from slowest to fastest.
    const fn order(self) -> &'static [usize] {
        match self {
            TensorLayout::Nchw => &[0, 1, 2, 3],
            TensorLayout::Nhwc => &[0, 2, 3, 1],
            TensorLayout::Ncdhw => &[0, 1, 2, 3, 4],
            TensorLayout::Ndhwc => &[0, 2, 3, 4, 1],
        }
    }
}

impl fmt::Display for TensorLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TensorLayout::Nchw => "NCHW",
            TensorLayout::Nhwc => "NHWC",
            TensorLayout::Ncdhw => "NCDHW",
            TensorLayout::Ndhwc => "NDHWC",
        })
    }
}

/// Data type, lengths and strides of a tensor.
///
/// Lengths are in the order N, C, (D,) H, W and strides count elements. Filters have lengths
/// K, C/groups, (D,) H, W. One to five dimensions can be described; fusion plans take four or five.
///
/// No index ever takes a step along a dimension of length 1, so its stride means nothing: two descriptors are
/// equal, and hash alike, when type, lengths and the strides of all longer dimensions are. A tensor of
/// 1x64x1x1 is the same in NCHW and NHWC.
#[derive(Clone, Copy)]
pub struct TensorDescriptor {
    data_type: DataType,
    rank: u8,
    lens: [usize; MAX_RANK],
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
        let mut desc =
            TensorDescriptor { data_type, rank: rank as u8, lens: [1; MAX_RANK], strides: [1; MAX_RANK] };
        desc.lens[..rank].copy_from_slice(lens);
        desc.strides[..rank].copy_from_slice(strides);
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
    /// As [`TensorDescriptor::new`], and a rank that is not the layout's.
    pub fn with_layout(
        data_type: DataType,
        layout: TensorLayout,
        lens: &[usize],
    ) -> Result<Self, DescriptorError> {
        if lens.len() != layout.rank() {
            let expected = if layout.rank() == 4 { "4 for this layout" } else { "5 for this layout" };
            return Err(DescriptorError::Rank { what: "tensor", found: lens.len(), expected });
        }
        Self::ordered(data_type, lens, layout.order())
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

    /// The dimensions from slowest to fastest. One of length 1 lies where it would in a tensor of the nearest
    /// layout: right outside of the next dimension of that layout.
    fn memory_order(&self) -> Vec<usize> {
        let layouts = TensorLayout::of_rank(self.rank());
        let closest = layouts.iter().find(|layout| layout.is_channels_last() == self.has_inner_channels());
        let identity = [0, 1, 2, 3, 4];
        let template = closest.map_or(&identity[..self.rank()], |layout| layout.order());
        let mut order: Vec<usize> = template.iter().copied().filter(|&d| self.lens[d] > 1).collect();
        order.sort_by_key(|&d| std::cmp::Reverse(self.strides[d]));
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

    /// Strides in elements, in the order N, C, (D,) H, W.
    pub fn strides(&self) -> &[usize] {
        &self.strides[..self.rank()]
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
        1 + self.lens().iter().zip(self.strides()).map(|(l, s)| (l - 1) * s).sum::<usize>()
    }

    /// Bytes from the first to the last element in memory, gaps included.
    pub fn bytes(&self) -> usize {
        self.span() * self.data_type.size()
    }

    /// Whether the elements fill their span without gaps.
    pub fn is_packed(&self) -> bool {
        self.span() == self.element_count() && !self.overlaps_itself()
    }

    /// Whether two different indices may name the same element.
    pub fn overlaps_itself(&self) -> bool {
        let mut order: [usize; MAX_RANK] = std::array::from_fn(|i| i);
        let order = &mut order[..self.rank()];
        order.sort_by_key(|&d| self.strides[d]);
        let mut reach = 0;
        order.iter().filter(|&&d| self.lens[d] > 1).any(|&d| {
            let overlaps = self.strides[d] <= reach;
            reach += (self.lens[d] - 1) * self.strides[d];
            overlaps
        })
    }

    /// The layout of a packed tensor, or `None` for other strides. Strides of dimensions of length 1 do
    /// not matter; a tensor that fits both layouts is channels first.
    pub fn layout(&self) -> Option<TensorLayout> {
        self.fitting_layout(|d| self.lens[d] == 1)
    }

    /// The layout whose strides these are literally, else the one that they fit.
    fn literal_layout(&self) -> Option<TensorLayout> {
        self.fitting_layout(|_| false).or_else(|| self.layout())
    }

    fn fitting_layout(&self, ignore: impl Fn(usize) -> bool) -> Option<TensorLayout> {
        let fits = |layout: &&TensorLayout| {
            let packed = Self::with_layout(self.data_type, **layout, self.lens());
            packed.is_ok_and(|p| (0..self.rank()).all(|d| ignore(d) || p.strides[d] == self.strides[d]))
        };
        TensorLayout::of_rank(self.rank()).iter().find(fits).copied()
    }

    /// This tensor with the one choice of strides for dimensions of length 1 that all equal tensors share:
    /// those of a packed tensor. A tensor that fits both layouts is channels first.
    pub fn canonical(&self) -> Self {
        let order = self.memory_order();
        let used = order.iter().find(|&&d| self.lens[d] > 1);
        // Outside of all dimensions that are used: as far apart as they reach.
        let mut stride = used.map_or(1, |&d| self.lens[d].saturating_mul(self.strides[d]));
        let mut canonical = *self;
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
        Self::new(data_type, self.lens(), self.strides())
    }
}

impl PartialEq for TensorDescriptor {
    fn eq(&self, other: &Self) -> bool {
        (self.data_type, self.lens()) == (other.data_type, other.lens())
            && self.used_strides().eq(other.used_strides())
    }
}

impl Eq for TensorDescriptor {}

impl Hash for TensorDescriptor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.data_type, self.lens()).hash(state);
        self.used_strides().for_each(|stride| stride.hash(state));
    }
}

impl fmt::Debug for TensorDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorDescriptor({} {:?} strides {:?})", self.data_type, self.lens(), self.strides())
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
            None => write!(f, " strides {}", joined(self.strides())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_give_the_strides_miopen_gives() {
        let nchw = TensorDescriptor::nchw(DataType::Float, [2, 3, 4, 5]).unwrap();
        assert_eq!(nchw.strides(), [60, 20, 5, 1]);
        let nhwc = TensorDescriptor::nhwc(DataType::Float, [2, 3, 4, 5]).unwrap();
        assert_eq!(nhwc.strides(), [60, 1, 15, 3]);
        assert_eq!(nhwc.layout(), Some(TensorLayout::Nhwc));
        let ndhwc =
            TensorDescriptor::with_layout(DataType::Half, TensorLayout::Ndhwc, &[2, 3, 4, 5, 6]).unwrap();
        assert_eq!(ndhwc.strides(), [360, 1, 90, 18, 3]);
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
    fn like_keeps_the_memory_order() {
        let nhwc = TensorDescriptor::nhwc(DataType::Float, [2, 1, 4, 5]).unwrap();
        assert_eq!(nhwc.like(&[2, 8, 2, 3]).unwrap().layout(), Some(TensorLayout::Nhwc));
        let rows = TensorDescriptor::new(DataType::Float, &[1, 2, 3, 4], &[48, 24, 8, 1]).unwrap();
        assert_eq!(rows.like(&[1, 7, 3, 4]).unwrap().layout(), Some(TensorLayout::Nchw));
        let chwn = TensorDescriptor::new(DataType::Float, &[6, 2, 3, 4], &[1, 72, 24, 6]).unwrap();
        assert_eq!(chwn.like(&[6, 5, 3, 4]).unwrap().strides(), [1, 72, 24, 6]);
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
                let strides: [usize; 4] = std::array::from_fn(|d| packed.strides()[d] * gap);
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
            TensorDescriptor::new(DataType::Float, &lens, &strides).unwrap().canonical().strides().to_vec()
        };
        // Rows with gaps are kept; an only image, channel or column lies right outside of what is within.
        assert_eq!(canonical([1, 2, 3, 4], [9, 24, 8, 1]), [48, 24, 8, 1]);
        assert_eq!(canonical([5, 1, 3, 4], [99, 0, 8, 1]), [99, 99, 8, 1]);
        assert_eq!(canonical([1, 6, 3, 1], [0, 1, 8, 0]), [24, 1, 8, 8]);
        // Images innermost.
        assert_eq!(canonical([6, 1, 3, 4], [1, 0, 24, 6]), [1, 72, 24, 6]);
    }

    #[test]
    fn like_does_not_mind_unused_strides() {
        for junk in [0, 1, 5, 1000] {
            let rows = TensorDescriptor::new(DataType::Float, &[2, 1, 3, 4], &[200, junk, 20, 2]).unwrap();
            assert_eq!(rows.like(&[2, 7, 3, 4]).unwrap().layout(), Some(TensorLayout::Nchw), "{junk}");
        }
    }
}

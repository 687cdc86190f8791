//! Tensor descriptors: data type, lengths and strides.

use std::fmt;

use crate::DescriptorError;

/// The largest number of dimensions a tensor may have.
pub const MAX_RANK: usize = 5;

/// The type of a tensor's elements, with MIOpen's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
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
/// Two descriptors are equal when type, lengths and strides are.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TensorDescriptor {
    data_type: DataType,
    rank: u8,
    lens: [usize; MAX_RANK],
    strides: [usize; MAX_RANK],
}

impl TensorDescriptor {
    /// A tensor with any positive strides.
    ///
    /// # Errors
    /// Ranks outside 1..=5, a zero length or stride, or a tensor that overflows the address space.
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
        if let Some(dimension) = strides.iter().position(|&s| s == 0) {
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

    /// A packed tensor with other lengths, its dimensions in the same memory order as this one's.
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
        let mut order: [usize; MAX_RANK] = std::array::from_fn(|i| i);
        let order = &mut order[..self.rank()];
        order.sort_by_key(|&d| std::cmp::Reverse(self.strides[d]));
        Self::ordered(self.data_type, lens, order)
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

    /// The same tensor with the strides of dimensions of length 1, which are never used, made uniform.
    pub fn canonical(&self) -> Self {
        let Some(layout) = self.layout() else { return *self };
        // A layout that fits was built from these very lengths, so this cannot fail.
        Self::with_layout(self.data_type, layout, self.lens()).unwrap_or(*self)
    }

    /// The same lengths and strides with another data type.
    ///
    /// # Errors
    /// As [`TensorDescriptor::new`], when a larger type overflows.
    pub fn with_data_type(&self, data_type: DataType) -> Result<Self, DescriptorError> {
        Self::new(data_type, self.lens(), self.strides())
    }
}

impl fmt::Debug for TensorDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorDescriptor({} {:?} strides {:?})", self.data_type, self.lens(), self.strides())
    }
}

/// `f32 64x3x224x224 NCHW`, or the strides where no layout fits.
impl fmt::Display for TensorDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lens: Vec<String> = self.lens().iter().map(usize::to_string).collect();
        write!(f, "{} {}", self.data_type, lens.join("x"))?;
        match self.layout() {
            Some(layout) => write!(f, " {layout}"),
            None => write!(f, " strides {:?}", self.strides()),
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
        assert!(matches!(new(DataType::Float, &[1, 1], &[0, 1]), Err(Zero { dimension: 0, .. })));
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
    fn canonical_forgets_unused_strides_only() {
        let a = TensorDescriptor::new(DataType::Float, &[4, 7, 1, 1], &[7, 1, 1, 1]).unwrap();
        let b = TensorDescriptor::new(DataType::Float, &[4, 7, 1, 1], &[7, 1, 7, 7]).unwrap();
        assert_ne!(a, b);
        assert_eq!(a.canonical(), b.canonical());
        let rows = TensorDescriptor::new(DataType::Float, &[1, 2, 3, 4], &[48, 24, 8, 1]).unwrap();
        assert_eq!(rows.canonical(), rows);
    }
}

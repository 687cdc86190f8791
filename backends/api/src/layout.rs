//! The orders in which tensors lie in memory.

use std::fmt;

/// The order in which a packed tensor's dimensions lie in memory, slowest first.
///
/// Lengths are always given as N, C, (D,) H, W; the layout is only a rule for where elements lie. Behind MIOpen's letters
/// NCHWc is how many channels a block has: blocks of channels lie as NCHW's channels do, and each is an image of so many
/// channels, innermost. A tensor in such a layout has whole blocks.
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
    /// 4-D, blocks of 4 channels before the image, the channels of a block innermost.
    Nchwc4,
    /// 4-D, blocks of 8 channels before the image, the channels of a block innermost.
    Nchwc8,
    /// 4-D, blocks of 16 channels before the image, the channels of a block innermost.
    Nchwc16,
}

impl TensorLayout {
    /// Every layout.
    pub const ALL: [TensorLayout; 7] = [
        TensorLayout::Nchw,
        TensorLayout::Nhwc,
        TensorLayout::Nchwc4,
        TensorLayout::Nchwc8,
        TensorLayout::Nchwc16,
        TensorLayout::Ncdhw,
        TensorLayout::Ndhwc,
    ];

    /// Number of dimensions.
    pub const fn rank(self) -> usize {
        match self {
            TensorLayout::Nchw
            | TensorLayout::Nhwc
            | TensorLayout::Nchwc4
            | TensorLayout::Nchwc8
            | TensorLayout::Nchwc16 => 4,
            TensorLayout::Ncdhw | TensorLayout::Ndhwc => 5,
        }
    }

    /// Channels of a block, in layouts with blocks of channels.
    pub const fn block(self) -> Option<usize> {
        match self {
            TensorLayout::Nchw | TensorLayout::Nhwc | TensorLayout::Ncdhw | TensorLayout::Ndhwc => None,
            TensorLayout::Nchwc4 => Some(4),
            TensorLayout::Nchwc8 => Some(8),
            TensorLayout::Nchwc16 => Some(16),
        }
    }

    /// Whether the channel is the innermost dimension.
    pub const fn is_channels_last(self) -> bool {
        matches!(self, TensorLayout::Nhwc | TensorLayout::Ndhwc)
    }

    /// The layouts of tensors with `rank` dimensions in which every dimension has a stride: channels first, then channels last.
    pub const fn of_rank(rank: usize) -> &'static [TensorLayout] {
        match rank {
            4 => &[TensorLayout::Nchw, TensorLayout::Nhwc],
            5 => &[TensorLayout::Ncdhw, TensorLayout::Ndhwc],
            _ => &[],
        }
    }

    /// All layouts of tensors with `rank` dimensions: those of [`of_rank`](Self::of_rank), then those with blocks of channels.
    pub const fn all_of_rank(rank: usize) -> &'static [TensorLayout] {
        match rank {
            4 => Self::ALL.split_at(5).0,
            5 => Self::ALL.split_at(5).1,
            _ => &[],
        }
    }

    /// Dimensions from slowest to fastest; with blocks of channels, of one block.
    pub(crate) const fn order(self) -> &'static [usize] {
        match self {
            TensorLayout::Nchw => &[0, 1, 2, 3],
            TensorLayout::Nhwc | TensorLayout::Nchwc4 | TensorLayout::Nchwc8 | TensorLayout::Nchwc16 => {
                &[0, 2, 3, 1]
            }
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
            TensorLayout::Nchwc4 => "NCHWc4",
            TensorLayout::Nchwc8 => "NCHWc8",
            TensorLayout::Nchwc16 => "NCHWc16",
        })
    }
}

/// How the channels of a tensor lie in blocks: each block is an image of some channels, innermost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// Channels of a block.
    pub channels: usize,
    /// The distance from a block to the next, in elements.
    pub stride: usize,
}

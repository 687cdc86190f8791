//! What pixels a tile has, and how they come.

/// How pixels come into shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// By TMA, channels innermost. Rows of the product are pixels.
    Tma,
    /// The same, of a window of the image with its halo, once for several taps.
    Halo,
    /// By TMA, positions innermost, or copied by threads. Rows of the product are filters, and a tile stays within an image.
    Planes,
    /// By bulk copies, whole planes of some images, which follow one another without gaps. Rows of the product are pixels.
    Packed,
    /// By TMA, whole lines of the image. Rows of the product are filters, and a tile has some lines of an image.
    Lines,
    /// By TMA, rectangles of planes, which threads write with channels innermost. Rows of the product are filters.
    Transposed,
    /// By TMA, runs of planes. Rows of the product are pixels, which threads read to registers.
    Runs,
    /// By TMA, channels innermost, as an earlier launch has written them. Rows of the product are filters.
    Reordered,
    /// By loads of elements, any layout. Rows of the product are filters.
    Gather,
}

/// The lines of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lines {
    pub(crate) count: usize,
    /// Columns of a line, and of the blocks that it is made of.
    pub(crate) columns: usize,
    pub(crate) block: usize,
    /// Lines that a tile sees besides its own.
    pub(crate) halo: usize,
    /// Whether a tile's lines are kept for all columns of taps; else they are loaded for each.
    pub(crate) keep: bool,
    /// Stages of filters, each of a column of taps, where these are streamed; none where they are resident.
    pub(crate) filter_stages: usize,
}

/// What a step loads where a tile is a rectangle of an output's plane, in squares of 8 x 8 pixels: the pixels that all of
/// its taps see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    /// Columns and lines of the rectangle.
    pub(crate) columns: usize,
    pub(crate) lines: usize,
    /// Columns and lines besides, for the taps.
    pub(crate) halo: [usize; 2],
    /// Lines of taps of a step: all, or one.
    pub(crate) lines_of_taps: usize,
    /// Taps of a step.
    pub(crate) taps: usize,
}

/// The rectangle of an output's plane that a tile is, and how it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transposed {
    /// Lines, and columns of each.
    pub(crate) lines: usize,
    pub(crate) columns: usize,
    /// Lines that a tile sees besides its own, and boxes of [`BOX`] columns in which they come.
    pub(crate) halo: usize,
    pub(crate) boxes: usize,
    /// Taps of a line, whose filters a stage has.
    pub(crate) taps: usize,
    /// Stages of pixels as they come, and of filters.
    pub(crate) raw_stages: usize,
    pub(crate) filter_stages: usize,
}

impl Transposed {
    /// Columns of a stage's line.
    pub(crate) fn line(self) -> usize {
        self.columns + 8
    }

    /// Bytes of a stage as it comes, of [`TRANSPOSED_DEPTH`] channels.
    pub(crate) fn raw_bytes(self) -> usize {
        self.boxes * (self.lines + self.halo) * TRANSPOSED_DEPTH * BOX * 2
    }
}

/// Channels that are transposed at a time.
pub(crate) const TRANSPOSED_DEPTH: usize = 32;

/// The pixels of a tile that runs over the planes of some images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packed {
    /// Pixels of a plane.
    pub(crate) plane: usize,
    /// Pixels of a tile: its rows, or as many of them as whole planes fill.
    pub(crate) pixels: usize,
}

impl Packed {
    /// The most images that a tile has pixels of.
    pub(crate) fn images(self) -> usize {
        let Packed { plane, pixels } = self;
        if pixels.is_multiple_of(plane) { pixels / plane } else { (pixels + plane - 2) / plane + 1 }
    }
}

/// Positions of a plane that TMA loads at once.
pub(crate) const BOX: usize = 64;
/// Bytes of a plane that a thread copies at once.
pub(crate) const COPIED: usize = 8;

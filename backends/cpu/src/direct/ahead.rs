//! What the tiles of a panel ask the second-level cache for meanwhile, spread over their products.
//!
//! In a network a layer finds its filters in memory, and pixels, if there are many, in a cache that all cores share. A core reads
//! either much faster if it is asked ahead. Where a thread computes one band of an image, the filters of a panel are read for few
//! pixels, so that each panel asks for the next one's. Where it computes several, filters are in a cache behind the first, and
//! the first panel asks for the pixels of its next tile, if they are read in place: packing has read the others. The panels behind it
//! ask for what the next band has of a residual, each for a share, since finishing sums reads it in pieces of a panel's channels, which
//! no core asks for by itself.

use super::Convolution;
use super::tile::Tile;
use super::weights::Panel;
use super::work::Work;

/// What a panel's tiles ask for.
#[derive(Clone, Copy)]
pub(super) enum Ahead {
    /// What they have themselves.
    Nothing,
    /// The filters of this panel.
    Filters(Panel),
    /// The pixels behind a tile's own.
    Pixels,
    /// A share of these floats, which follow one another: which of how many.
    Floats { from: *const f32, len: usize, share: [usize; 2] },
}

/// Floats of a cache line: the most from one address that is asked for to the next, since lines would be left out otherwise.
pub(super) const LINE: usize = 16;

/// What the tiles of a line ask for.
pub(super) struct Asked {
    /// Where the first tile begins.
    pub(super) from: *const f32,
    /// Floats from what one product asks for to the next, and from one tile to the next.
    pub(super) step: usize,
    pub(super) tile: usize,
}

impl Ahead {
    /// What the tiles of a line ask for, with at most so many rows each, if there are so many tiles before them of as many in the
    /// band.
    pub(super) fn of_line(
        self,
        first: &Tile<'_>,
        rows: usize,
        [before, tiles]: [usize; 2],
        work: &Work<'_>,
    ) -> Asked {
        let products = first.depth * first.taps.iter().product::<usize>();
        match self {
            Ahead::Filters(panel) if products > 0 && tiles > 0 => {
                let Convolution { geometry: g, functions, .. } = work.conv;
                let len = panel.vectors * functions.lanes * g.inputs * g.filters.tap_count();
                let tile = len.div_ceil(tiles);
                let from = work.weights.as_ptr().wrapping_add(panel.offset + before * tile);
                Asked { from, step: tile.div_ceil(products), tile }
            }
            Ahead::Pixels if products > 0 && rows * first.x_pixel <= LINE * products => {
                let tile = rows * first.x_pixel;
                Asked { from: first.x.wrapping_add(tile), step: tile.div_ceil(products), tile }
            }
            Ahead::Floats { from, len, share: [share, shares] } if products > 0 && tiles > 0 => {
                let tile = len.div_ceil(shares * tiles);
                let from = from.wrapping_add((share * tiles + before) * tile);
                Asked { from, step: tile.div_ceil(products).min(LINE), tile }
            }
            _ => Asked { from: first.w, step: 0, tile: 0 },
        }
    }
}

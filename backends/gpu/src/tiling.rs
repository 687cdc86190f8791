//! Tiles, and how many blocks share one: an estimate of time for every pair.

use std::fmt;

/// A block's part of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Output pixels.
    pub pixels: usize,
    /// Filters.
    pub filters: usize,
    /// Channels times taps of one step.
    pub depth: usize,
    /// Threads of the block.
    pub threads: usize,
    /// Groups of them, each of which sums a part of every step's depth.
    pub slices: usize,
    /// How fast blocks that fill a multiprocessor compute a product, in any unit that a list of tiles shares.
    pub rate: usize,
}

impl Tile {
    /// Whether blocks may share it: threads of the largest have no registers left to do so, and few pixels have no use
    /// for it.
    fn is_shared(&self) -> bool {
        self.pixels * self.filters < 128 * 128
    }
}

/// A tile, and the blocks that share it: each sums a part of its depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    /// The tile.
    pub tile: Tile,
    /// How many blocks share it.
    pub split: usize,
    /// Whether they meet in memory, between two launches, and not in a cluster.
    pub in_memory: bool,
}

/// `128x64x32`: pixels, filters, depth of a step; `128x64x32, 2 slices, split 4` where the depth is shared, by a cluster if it does not
/// say `in memory`.
impl fmt::Display for Tiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tile { pixels, filters, depth, slices, .. } = self.tile;
        write!(f, "{pixels}x{filters}x{depth}")?;
        if slices > 1 {
            write!(f, ", {slices} slices")?;
        }
        if self.split > 1 {
            write!(f, ", split {}", self.split)?;
        }
        if self.in_memory {
            f.write_str(" in memory")?;
        }
        Ok(())
    }
}

/// The device that a product is planned for.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// About how many multiprocessors it has.
    pub units: usize,
    /// The text that makes blocks a cluster, whose blocks read each other's shared memory; `None` where they cannot.
    pub cluster: Option<&'static str>,
    /// Whether one launch can hand memory on to the next ([`Driver::with_scratch`](crate::Driver::with_scratch)).
    pub scratch: bool,
}

/// What a main loop takes, in microseconds; in a unit of its own where nothing was measured.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    /// Whether the numbers were fitted to timings, and so are microseconds.
    pub is_fitted: bool,
    /// A launch.
    pub launch: f64,
    /// What a block does before its first step and after its last, whatever its tile.
    pub block: f64,
    /// A step, without what its threads load and multiply.
    pub step: f64,
    /// A load of a thread, whatever its width.
    pub load: f64,
    /// A product of a thread.
    pub product: f64,
    /// A product of blocks that fill a multiprocessor, at a tile's rate of 1.
    pub filled: f64,
    /// What part of the shorter of two times is not hidden by the longer: that of threads which wait for themselves, and that of a
    /// multiprocessor which is filled.
    pub exposed: f64,
    /// The meeting of the blocks that share a tile.
    pub meet: f64,
    /// What each further block of a multiprocessor adds for each other block that it shares its tile with: they start
    /// together or not at all.
    pub crowd: f64,
    /// The second launch of blocks that meet in memory, and a byte of what they hand on, which is written and read. Nobody timed
    /// either: there was no GPU without clusters.
    pub hand_on: f64,
    /// See above.
    pub handed_on: f64,
    /// An output that a thread adds up and finishes.
    pub output: f64,
    /// A byte that comes from the device's memory or goes there.
    pub memory: f64,
    /// A byte that a tile takes from the cache before that memory.
    pub cache: f64,
}

/// How many multiprocessors of a device have a block each where so many share a tile. These lie within one part of the
/// chip, and what is left of every part stays empty.
pub fn units_at_once(units: usize, split: usize) -> usize {
    if split == 1 { units } else { units - units * split / 64 }
}

/// The product that is planned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// Output pixels, of all images.
    pub(crate) pixels: usize,
    /// Filters of a group, and channels of a group times taps.
    pub(crate) filters: usize,
    pub(crate) depth: usize,
    pub(crate) groups: usize,
    /// Elements of the image and of filters that a thread loads at once.
    pub(crate) loaded: [usize; 2],
    /// Bytes of an element, and of input, filters, residuals and output together.
    pub(crate) element: usize,
    pub(crate) bytes: usize,
}

/// How many blocks may share a tile: as many as every device with clusters takes.
pub(crate) const SPLITS: [usize; 4] = [1, 2, 4, 8];

/// How many blocks may share a tile where they meet in memory.
const SPLITS_IN_MEMORY: [usize; 4] = [2, 4, 8, 16];

/// Blocks of a multiprocessor up to which tiles are shared in memory, which bounds what is handed on: with more, all multiprocessors
/// have something to do.
const BLOCKS_IN_MEMORY: usize = 2;

/// What a time of blocks that meet in memory is multiplied by: nobody measured it, so that it has to gain by a margin.
const UNMEASURED: f64 = 1.25;

/// Tiles of a multiprocessor up to which blocks may share one: with more, what a last round leaves empty is too little
/// to be filled. At six, sharing took an eighth longer on an H200, where the estimate saw no difference.
const TILES_SHARED: usize = 4;

/// Threads of blocks that are on a multiprocessor at once, about: they have most of its registers.
const THREADS_AT_ONCE: usize = 512;

/// Every tile with the blocks that may share it, and about how long the kernel takes with it.
pub(crate) fn tilings(tiles: &[Tile], work: &Work, costs: &Costs, target: &Target) -> Vec<(Tiling, f64)> {
    let (in_clusters, in_memory): (&[usize], &[usize]) = match (target.cluster, target.scratch) {
        (Some(_), _) => (&SPLITS, &[]),
        (None, true) => (&SPLITS[..1], &SPLITS_IN_MEMORY),
        (None, false) => (&SPLITS[..1], &[]),
    };
    let splits = || {
        in_clusters.iter().map(|split| (*split, false)).chain(in_memory.iter().map(|split| (*split, true)))
    };
    let pairs = tiles
        .iter()
        .flat_map(|&tile| splits().map(move |(split, in_memory)| Tiling { tile, split, in_memory }));
    let may_share = |Tiling { tile, split, in_memory }: &Tiling| {
        let (most, blocks) = match in_memory {
            true => (BLOCKS_IN_MEMORY, work.tiles(tile) * split),
            false => (TILES_SHARED, work.tiles(tile)),
        };
        tile.is_shared() && *split <= work.steps(tile) && blocks <= most * target.units
    };
    pairs
        .filter(|tiling| tiling.split == 1 || may_share(tiling))
        .map(|tiling| (tiling, work.time(&tiling, costs, target.units)))
        .collect()
}

impl Work {
    fn steps(&self, tile: &Tile) -> usize {
        self.depth.div_ceil(tile.depth)
    }

    /// Tiles along the filters of a group, and along the pixels.
    fn grid(&self, tile: &Tile) -> (usize, usize) {
        (self.filters.div_ceil(tile.filters), self.pixels.div_ceil(tile.pixels))
    }

    fn tiles(&self, tile: &Tile) -> usize {
        let (columns, rows) = self.grid(tile);
        columns * rows * self.groups
    }

    /// About how many microseconds the kernel takes with this tile, which as many blocks share.
    fn time(&self, tiling: &Tiling, costs: &Costs, units: usize) -> f64 {
        let &Tiling { ref tile, split, in_memory } = tiling;
        let (columns, rows) = self.grid(tile);
        let blocks = self.tiles(tile) * split;
        let is_cluster = split > 1 && !in_memory;
        let busiest = blocks.div_ceil(if is_cluster { units_at_once(units, split) } else { units });
        let rounds = busiest.div_ceil((THREADS_AT_ONCE / tile.threads).max(1)) as f64;
        let steps = self.steps(tile).div_ceil(split) as f64;
        let products = (tile.pixels * tile.filters * tile.depth) as f64;
        let loads = (tile.pixels * tile.depth) as f64 / self.loaded[0] as f64
            + (tile.filters * tile.depth) as f64 / self.loaded[1] as f64;
        let outputs = (tile.pixels * tile.filters) as f64 * (1.0 + (tile.slices - 1) as f64 / split as f64);
        let of_threads = costs.load * loads + costs.product * products;
        let step = costs.step + of_threads / tile.threads as f64;
        let meet = if is_cluster { costs.meet } else { 0.0 };
        let alone =
            rounds * (costs.block + steps * step + costs.output * outputs / tile.threads as f64 + meet);
        let filled = busiest as f64 * steps * products * costs.filled / tile.rate as f64;
        let crowd = if is_cluster { costs.crowd * ((busiest - 1) * (split - 1)) as f64 } else { 0.0 };
        let brought = self.groups * self.depth * (columns * self.pixels + rows * self.filters) * self.element;
        let memory = self.bytes as f64 * costs.memory + brought as f64 * costs.cache;
        let computed = alone.max(filled) + costs.exposed * alone.min(filled);
        let time = costs.launch + computed.hypot(memory) + crowd;
        if !in_memory {
            return time;
        }
        let handed_on = blocks * tile.pixels * tile.filters * size_of::<f32>();
        UNMEASURED * (time + costs.hand_on + costs.handed_on * handed_on as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tile of the smallest estimate, and the blocks that share it.
    fn choose(tiles: &[Tile], work: &Work, costs: &Costs, target: &Target) -> (Tile, usize) {
        let all = tilings(tiles, work, costs, target).into_iter();
        let (Tiling { tile, split, .. }, _) = all.min_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap();
        (tile, split)
    }

    const fn tile(pixels: usize, filters: usize, slices: usize, rate: usize) -> Tile {
        Tile { pixels, filters, depth: 32, threads: 128, slices, rate }
    }
    const TILES: [Tile; 3] = [tile(128, 64, 1, 95), tile(64, 64, 1, 85), tile(64, 32, 4, 70)];
    const COSTS: Costs = Costs {
        is_fitted: true,
        launch: 3.0,
        block: 0.0,
        step: 0.5,
        load: 0.003,
        product: 3.6e-4,
        filled: 7.2e-4,
        exposed: 0.0,
        meet: 1.2,
        crowd: 0.2,
        hand_on: 3.0,
        handed_on: 4e-7,
        output: 2e-4,
        memory: 2e-7,
        cache: 1e-7,
    };
    const CLUSTERS: Target = Target { units: 132, cluster: Some(""), scratch: false };

    fn work(pixels: usize, filters: usize, depth: usize) -> Work {
        let bytes = 4 * (pixels * filters + depth * filters);
        Work { pixels, filters, depth, groups: 1, loaded: [4, 4], element: 4, bytes }
    }

    #[test]
    fn blocks_share_tiles_where_there_are_few() {
        let blocks = |work: &Work| {
            let (tile, split) = choose(&TILES, work, &COSTS, &CLUSTERS);
            (work.pixels.div_ceil(tile.pixels) * work.filters.div_ceil(tile.filters), split)
        };
        // 7x7 of one image: all blocks at once, most of the device.
        let (tiles, split) = blocks(&work(49, 512, 4608));
        assert!(split > 1 && (64..=132).contains(&(tiles * split)), "{tiles} x {split}");
        // Many more tiles than multiprocessors have nothing to share.
        assert_eq!(blocks(&work(64 * 56 * 56, 64, 576)).1, 1);
        let (tiles, split) = blocks(&work(64 * 7 * 7, 2048, 512));
        assert!(tiles > TILES_SHARED * CLUSTERS.units && split == 1, "{tiles} x {split}");
        // A step is not shared.
        assert_eq!(blocks(&work(49, 64, 32)).1, 1);
    }

    #[test]
    fn blocks_are_alone_where_there_are_no_clusters() {
        let (tile, split) =
            choose(&TILES, &work(49, 512, 4608), &COSTS, &Target { cluster: None, ..CLUSTERS });
        // Slices are then what is left.
        assert_eq!((split, tile.slices), (1, 4));
    }

    #[test]
    fn blocks_without_clusters_meet_in_memory_where_tiles_are_few() {
        let target = Target { cluster: None, scratch: true, ..CLUSTERS };
        let best = |work: &Work| {
            let all = tilings(&TILES, work, &COSTS, &target);
            let best = all.iter().min_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap().0;
            assert!(all.iter().all(|(tiling, _)| tiling.in_memory == (tiling.split > 1)));
            (work.tiles(&best.tile), best)
        };
        let (tiles, few) = best(&work(49, 512, 4608));
        assert!(few.split > 1 && tiles * few.split <= BLOCKS_IN_MEMORY * target.units, "{few}");
        assert!(few.to_string().ends_with(&format!("split {} in memory", few.split)), "{few}");
        // Short sums end before another launch begins, and many tiles have nothing to share.
        for alone in [work(49, 512, 256), work(49, 64, 32), work(64 * 56 * 56, 64, 576)] {
            assert_eq!(best(&alone).1.split, 1);
        }
        // With a cluster none meet in memory.
        let both = Target { scratch: true, ..CLUSTERS };
        assert!(tilings(&TILES, &work(49, 512, 4608), &COSTS, &both).iter().all(|(one, _)| !one.in_memory));
    }

    #[test]
    fn clusters_leave_multiprocessors_empty() {
        assert_eq!([1, 2, 4, 8].map(|split| units_at_once(132, split)), [132, 128, 124, 116]);
        assert_eq!(units_at_once(1, 8), 1);
    }
}

//! About how long each tile takes.

use std::ops::ControlFlow;

use fuseplan_api::smallest_first;
use fuseplan_api::volume::common_power;

use super::HaloLoop;
use super::tile::{Layout, QUAD, Shape, Tile, candidates, padded};

/// Bytes of shared memory of a multiprocessor.
const SHARED: usize = 227 << 10;

/// The tiles that have room, with about how many cycles each takes.
pub(super) fn timed(shape: &Shape, main_loop: &HaloLoop, units: usize) -> Vec<(Tile, f64)> {
    let mut all = Vec::new();
    let _ = candidates(shape, main_loop, &mut |tile, bytes| {
        all.push((tile, time(shape, main_loop, &tile, bytes, units)));
        ControlFlow::Continue(())
    });
    all
}

/// Those of the smallest times, of which a solver lists some, with what they take as their windows are padded: fewer of their blocks may
/// have room at once.
pub(super) fn timed_as_padded(shape: &Shape, main_loop: &HaloLoop, units: usize) -> Vec<(Tile, f64)> {
    const PADDED: usize = 48;

    let timed = timed(shape, main_loop, units);
    let times: Vec<_> = timed.iter().map(|&(_, time)| time).collect();
    let mut all: Vec<_> = smallest_first(&times).into_iter().map(|at| timed[at]).collect();
    all.dedup_by(|(a, _), (b, _)| a == b);
    all.truncate(PADDED);
    for (tile, cycles) in &mut all {
        let layout = Layout::new(shape, main_loop, tile, padded(shape, main_loop, tile));
        *cycles = time(shape, main_loop, tile, layout.bytes(), units);
    }
    all
}

/// About how many cycles the kernel takes. A multiprocessor's tiles share what issues instructions, reads and writes
/// shared memory, multiplies, and brings bytes; a tile alone waits for one after the other.
fn time(shape: &Shape, main_loop: &HaloLoop, tile: &Tile, bytes: usize, units: usize) -> f64 {
    // Instructions and bytes of a multiprocessor in a cycle: of shared memory, and from and to the caches.
    const ISSUE: f64 = 2.6;
    const BANKS: f64 = 128.0;
    const CACHE: f64 = 32.0;
    // Cycles until what a tile asks for has come; of an instruction behind the one before it.
    const MEMORY: f64 = 1500.0;
    const NEXT: f64 = 5.0;

    let warps = (tile.threads / 32) as f64;
    let (element, quad) = (shape.element as f64, (QUAD * shape.element) as f64);
    // Bringing the window: a load of 16 bytes or less takes so many instructions, elements one by one more.
    let run = (tile.groups * shape.channels) as f64 * element;
    let vector = if shape.channels_last && shape.channels.is_multiple_of(QUAD) {
        // Neighbouring pixels of single quads are padded, and lie at multiples of no more.
        if shape.quads() == 1 || (tile.groups * shape.quads()) % 2 == 1 { quad } else { 16.0 }
    } else {
        0.0
    };
    let pixels = shape.windows(tile).iter().product::<usize>() as f64;
    let brought = pixels * (tile.groups * shape.quads()) as f64 * quad;
    let loads = if vector > 0.0 { brought / vector } else { brought / quad };
    let per_load = if vector > 0.0 { 16.0 } else { 18.0 + 5.0 * shape.channels.min(QUAD) as f64 };
    // Multiplying: what a warp does for an item, and how many of them one after the other.
    let parts = tile.pixels / tile.item[0];
    let items = tile.groups * tile.filters.div_ceil(tile.item[1]);
    let in_turn = items.div_ceil((tile.threads / 32 / parts).max(1)) as f64;
    let steps = shape.depth().div_ceil(4) as f64;
    // Sums that lie in shared memory before they are finished.
    let staged = if shape.is_direct(main_loop, tile) { 0.0 } else { 1.0 };
    let [blocks_p, blocks_f] = [tile.item[0] as f64 / 16.0, tile.item[1] as f64 / 8.0];
    let (instructions, reads, products) = if main_loop.matrix {
        let deep = element / 2.0;
        let rounding = if deep > 1.0 { 8.0 * blocks_p } else { 0.0 };
        let instructions = steps * (2.0 * blocks_p + blocks_f + deep * blocks_p * blocks_f + rounding + 3.0)
            + 8.0 * blocks_p * blocks_f;
        let reads =
            steps * (2.0 * blocks_p * 1.25 + blocks_f) * 32.0 * quad + staged * blocks_p * blocks_f * 512.0;
        (instructions, reads, steps * blocks_p * blocks_f * main_loop.cycles * deep)
    } else {
        let (lanes, filters) = (tile.item[0] as f64 / 32.0, tile.item[1] as f64);
        let quads = shape.depth() as f64;
        let widen = if element < 4.0 { 4.0 } else { 0.0 };
        let instructions =
            quads * (lanes * (1.0 + widen) + filters + 4.0 * lanes * filters + 2.0) + lanes * filters;
        let reads = quads * (lanes * 32.0 * quad * 1.25 + filters * BANKS) + lanes * filters * BANKS;
        (instructions, reads, quads * lanes * filters)
    };
    // Finishing.
    let outputs = (tile.height * tile.width * tile.groups * tile.filters) as f64;
    let wide = (outputs_at_once(shape, tile) as f64).max(1.0);
    let per_output = 24.0 / wide + 4.0;

    let busy = in_turn * warps;
    let issue =
        (loads / 32.0 * per_load + busy * instructions + outputs / 32.0 * per_output + 60.0 * warps) / ISSUE;
    let banks = (brought + busy * reads + staged * outputs * 4.0) / BANKS;
    let multiply = busy * products;
    // Runs that are parts of what comes together.
    let pieces = |bytes: f64, piece: f64| (bytes / piece).ceil() * piece / bytes;
    let sectors = |bytes: f64| pieces(bytes, 32.0);
    let (x_sectors, y_sectors) = (
        if shape.channels_last && tile.groups == shape.groups {
            // Neighbouring pixels follow each other.
            sectors(run * shape.windows(tile)[2] as f64)
        } else if shape.channels_last {
            pieces(run, main_loop.piece as f64)
        } else {
            sectors(shape.windows(tile)[2] as f64 * element)
        },
        if shape.along_k {
            sectors((tile.groups * tile.filters) as f64 * element)
        } else {
            sectors(tile.width as f64 * element)
        },
    );
    let memory = (pixels * run * x_sectors + outputs * element * y_sectors) / CACHE;
    let shared = [issue, banks, multiply, memory].iter().map(|cycles| cycles.powi(3)).sum::<f64>().cbrt();
    let alone = MEMORY
        + NEXT * (loads / tile.threads as f64 * per_load * 0.5 + in_turn * instructions)
        + NEXT * outputs / tile.threads as f64 * per_output;

    let (tiles, columns) = (tiles(shape, tile), columns(shape, tile));
    let at_once = at_once(shape, main_loop, tile, bytes).min((tiles * columns).div_ceil(units));
    let rounds = rounds(tiles, columns, units * at_once) as f64;
    // Filters are brought once by a block.
    let filters = (tile.groups * tile.filters) as f64 * shape.depth() as f64;
    let start = 2500.0 + NEXT * filters / tile.threads as f64 * 30.0;
    start + rounds * (shared * at_once as f64).max(alone)
}

/// How many outputs lie side by side in a tile, about.
fn outputs_at_once(shape: &Shape, tile: &Tile) -> usize {
    let most = 16 / shape.element;
    if shape.along_k {
        return common_power(most, tile.groups * tile.filters);
    }
    let run = if tile.width == shape.out[2] { tile.height * tile.width } else { tile.width };
    common_power(common_power(most, run), shape.out[1] * shape.out[2])
}

/// Blocks of a multiprocessor.
pub(super) fn at_once(shape: &Shape, main_loop: &HaloLoop, tile: &Tile, bytes: usize) -> usize {
    (SHARED / (bytes + 1024)).clamp(1, occupancy(shape, main_loop, tile))
}

/// Blocks of a multiprocessor by their registers: accumulators, and what is in flight.
pub(super) fn occupancy(shape: &Shape, main_loop: &HaloLoop, tile: &Tile) -> usize {
    let wide = main_loop.matrix && shape.element > 2;
    let threads = match tile.item[0] * tile.item[1] / 32 {
        ..=32 if !wide => 640,
        ..=32 => 512,
        _ => main_loop.threads,
    };
    threads / tile.threads
}

/// How many tiles a block walks over so that so many blocks, each of one column, have them all and none of them waits for another to end;
/// or all of a column, where there are more columns than blocks.
pub(super) fn rounds(tiles: usize, columns: usize, slots: usize) -> usize {
    match slots / columns {
        0 => (tiles * columns).div_ceil(slots).min(tiles),
        walkers => tiles.div_ceil(walkers),
    }
}

/// Tiles of all images, and of all groups and filters.
pub(super) fn tiles(shape: &Shape, tile: &Tile) -> usize {
    let [d, h, w] = shape.out;
    shape.images * d * h.div_ceil(tile.height) * w.div_ceil(tile.width)
}
pub(super) fn columns(shape: &Shape, tile: &Tile) -> usize {
    shape.groups.div_ceil(tile.groups) * shape.filters.div_ceil(tile.filters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_all_columns_run_at_once_where_there_is_room() {
        for (tiles, columns, slots) in
            [(448, 7, 264), (128, 16, 264), (1, 1, 132), (5000, 3, 396), (7, 264, 264), (9, 300, 264)]
        {
            let rounds = rounds(tiles, columns, slots);
            let walkers = tiles.div_ceil(rounds);
            assert!(rounds * walkers >= tiles && rounds <= tiles, "{tiles} {columns} {slots}");
            assert!(columns * walkers <= slots.max(columns), "{tiles} {columns} {slots}");
            // One tile fewer for each block would take more blocks than there is room for.
            assert!(
                rounds == 1 || columns > slots || columns * tiles.div_ceil(rounds - 1) > slots,
                "{tiles} {columns} {slots}"
            );
        }
    }
}

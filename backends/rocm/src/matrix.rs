//! Main loops on matrix cores.

use fuseplan_api::{Constraint, DeviceInfo};
use fuseplan_gpu::{Access, Costs, MainLoop, Tile, constants, image_pair, kernel_text};

use crate::arch;

/// The processor's name if it is of these families.
fn processor(device: &DeviceInfo, families: &[&str]) -> Option<&'static str> {
    let name = arch::named(&device.arch)?.name;
    families.iter().any(|family| name.starts_with(family)).then_some(name)
}

/// CDNA 2, 3 and 4.
pub(crate) const HAS_MFMA: Constraint = Constraint {
    property: "architecture",
    accepts: "gfx90a, gfx942, gfx950",
    check: |_, device| {
        processor(device, &["gfx90a", "gfx942", "gfx950"]).is_none().then(|| device.arch.clone())
    },
};

/// RDNA 3 and 4.
pub(crate) const HAS_WMMA: Constraint = Constraint {
    property: "architecture",
    accepts: "gfx11, gfx12",
    check: |_, device| processor(device, &["gfx11", "gfx12"]).is_none().then(|| device.arch.clone()),
};

/// Bytes of shared memory of a compute unit; gfx950 has more.
const SHARED: usize = 64 << 10;

/// Pixels whose accumulators lie in shared memory at once: about as many bytes as the operands.
const PART: usize = 32;

/// Nothing is measured: what a full compute unit takes for its products decides. What meets in memory takes as long besides as matrix
/// cores in 16 bits would for 5 µs at half of the rate that AMD says, or 10^6 products a microsecond, and bytes that go and come at
/// 2 TB/s.
pub(crate) const COSTS: Costs = Costs {
    is_fitted: false,
    launch: 0.0,
    block: 0.0,
    step: 0.0,
    load: 0.0,
    product: 0.0,
    filled: 1.0,
    exposed: 0.0,
    meet: 0.0,
    crowd: 0.0,
    hand_on: 5e4,
    handed_on: 1e-2,
    output: 0.0,
    memory: 0.0,
    cache: 0.0,
};

/// A tile whose rows are 64 bytes in 16 bits. The rates are guesses from the traffic of shared memory.
const fn tile(pixels: usize, filters: usize, threads: usize, rate: usize) -> Tile {
    Tile { pixels, filters, depth: 32, threads, slices: 1, rate }
}

/// Tiles with rows of 64 bytes in f32, made of those in 16 bits.
const fn in_f32<const N: usize>(mut tiles: [Tile; N]) -> [Tile; N] {
    let mut i = 0;
    while i < N {
        tiles[i].depth = 16;
        i += 1;
    }
    tiles
}

/// Bytes of shared memory for one step's operands, and for what two steps load of the image.
fn operands(tile: &Tile, _: &Access) -> usize {
    (tile.pixels + tile.filters) * 64 + 2 * tile.depth * size_of::<[u32; 2]>()
}

constants! {
    /// The constants of `matrix.cuh`.
    struct MatrixConstants {
        /// Waves along the pixels and along the filters.
        waves_p: usize,
        waves_f: usize,
        /// Waves of a SIMD.
        occupancy: usize,
        /// Fragments along the depth that are read ahead.
        ahead: usize,
    }
}

fn mfma_constants(tile: &Tile, access: &Access) -> MatrixConstants {
    let across = (tile.pixels / 64).min(2);
    // Waves of a SIMD that shared memory allows, at most three: fewer have more registers each.
    let blocks = SHARED / operands(tile, access);
    let occupancy = (blocks * tile.threads / 64).div_ceil(4).min(3);
    let waves_f = tile.threads / 64 / across;
    MatrixConstants { waves_p: across, waves_f, occupancy, ahead: 2 }
}

fn wmma_constants(tile: &Tile) -> MatrixConstants {
    let along = tile.filters / 32;
    let waves_p = tile.threads / 32 / along;
    MatrixConstants { waves_p, waves_f: along, occupancy: 1, ahead: 1 }
}

/// CDNA's matrix cores, in f32, f16 or bf16: waves of 64 threads that have 64x64 accumulators, or twice or half as many.
pub(crate) fn mfma() -> MainLoop {
    const CHUNKS: [Tile; 5] = [
        tile(256, 128, 256, 100),
        tile(128, 128, 256, 90),
        tile(128, 64, 128, 80),
        tile(64, 64, 64, 65),
        tile(128, 32, 128, 50),
    ];
    // Elements take more registers on their load, and threads to read them.
    const ELEMENTS: [Tile; 4] =
        [tile(128, 128, 256, 90), tile(128, 64, 256, 70), tile(64, 64, 128, 55), tile(128, 32, 128, 50)];
    MainLoop {
        texts: &[kernel_text!("../kernels/mfma.cuh"), kernel_text!("../kernels/matrix.cuh")],
        name: "MFMA",
        image_run: image_pair,
        tiles: |access| match (access.image_chunks, access.element) {
            (true, 4) => const { &in_f32(CHUNKS) },
            (true, _) => &CHUNKS,
            (false, 4) => const { &in_f32(ELEMENTS) },
            (false, _) => &ELEMENTS,
        },
        constants: |tile, access, text| mfma_constants(tile, access).write(text),
        shared: operands,
        part: |_| PART,
        costs: COSTS,
    }
}

/// RDNA's matrix cores, in f16 or bf16: waves of 32 threads that have 64x32 accumulators, or half as many.
pub(crate) fn wmma() -> MainLoop {
    const TILES: [Tile; 3] = [tile(128, 64, 128, 100), tile(64, 64, 64, 80), tile(128, 32, 128, 70)];
    MainLoop {
        texts: &[kernel_text!("../kernels/wmma.cuh"), kernel_text!("../kernels/matrix.cuh")],
        name: "WMMA",
        image_run: image_pair,
        tiles: |_| &TILES,
        constants: |tile, _, text| wmma_constants(tile).write(text),
        shared: operands,
        part: |_| PART,
        costs: COSTS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the texts ask of a tile, for every load to read the image.
    #[test]
    fn tiles_suit_their_texts() {
        for (main_loop, wave, block) in [(mfma(), 64, 32), (wmma(), 32, 16)] {
            let all = [(2, true, 1), (2, false, 1), (4, true, 1), (4, false, 1)];
            let pairs = [(2, false, 2), (4, false, 2)];
            for (element, image_chunks, image_run) in all.into_iter().chain(pairs) {
                let access = Access { element, image_chunks, image_run, filter_chunks: true, depth: 576 };
                for tile in (main_loop.tiles)(&access) {
                    let constants =
                        if wave == 64 { mfma_constants(tile, &access) } else { wmma_constants(tile) };
                    let (across, along) = (constants.waves_p, constants.waves_f);
                    assert_eq!(tile.threads, across * along * wave, "{tile:?}");
                    let (pixels, filters) = (tile.pixels / across, tile.filters / along);
                    assert!(pixels % (main_loop.part)(tile) == 0 && filters % block == 0, "{tile:?}");
                    assert!(element == 4 || main_loop.name == "MFMA" || tile.depth == 32, "{tile:?}");
                    // Chunks of 16 bytes, four a row, are dealt out evenly; a bit for each load.
                    let loads = [tile.pixels, tile.filters].map(|rows| (rows * 4 / tile.threads, rows * 4));
                    assert!(loads.iter().all(|(count, rows)| count * tile.threads == *rows), "{tile:?}");
                    let runs = tile.pixels * 4 / image_run;
                    assert!(image_chunks || runs.is_multiple_of(tile.threads), "{tile:?}");
                    assert!(image_chunks || tile.threads.is_multiple_of(tile.pixels / image_run), "{tile:?}");
                    assert!(loads[1].0 * (16 / element) <= 32, "{tile:?}");
                    let sums = PART * (tile.filters + 8).max(tile.filters * (PART + 4) / PART) * 4;
                    assert!(sums.max((main_loop.shared)(tile, &access)) <= SHARED, "{tile:?}");
                }
            }
        }
    }
}

//! Main loops on matrix cores.

use fuseplan_api::{Constraint, DataType, DeviceInfo};
use fuseplan_gpu::{Access, MainLoop, Tile};

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

/// What WMMA multiplies.
pub(crate) const SIXTEEN_BITS: Constraint = Constraint {
    property: "data type",
    accepts: "f16, bf16",
    check: |problem, _| {
        let data_type = problem.output.data_type();
        let known = matches!(data_type, DataType::Half | DataType::BFloat16);
        (!known).then(|| data_type.to_string())
    },
};

/// Pixels whose sums lie in shared memory at once: with the operands they leave it room for three blocks.
const PART: usize = 32;

/// Bytes of shared memory for one step's operands.
fn operands(tile: &Tile, _: &Access) -> usize {
    (tile.pixels + tile.filters) * 64
}

/// CDNA's matrix cores, in f32, f16 or bf16: waves of 64 threads that have 64x64 sums.
pub(crate) fn mfma() -> MainLoop {
    const fn tiles(depth: usize) -> [Tile; 3] {
        [tile(128, 128, depth, 100), tile(128, 64, depth, 90), tile(64, 64, depth, 75)]
    }
    const fn tile(pixels: usize, filters: usize, depth: usize, rate: usize) -> Tile {
        Tile { pixels, filters, depth, threads: pixels * filters / 64, rate }
    }
    MainLoop {
        text: concat!(include_str!("../kernels/mfma.cuh"), "\n", include_str!("../kernels/matrix.cuh")),
        name: "MFMA",
        tiles: |access| if access.element == 4 { const { &tiles(16) } } else { const { &tiles(32) } },
        constants: |tile, _| {
            vec![("WAVES_P", tile.pixels / 64), ("WAVES_F", tile.filters / 64), ("OCCUPANCY", 3)]
        },
        shared: operands,
        part: |_| PART,
    }
}

/// RDNA's matrix cores, in f16 or bf16: waves of 32 threads that have 64x32 sums.
pub(crate) fn wmma() -> MainLoop {
    const fn tile(pixels: usize, filters: usize, rate: usize) -> Tile {
        Tile { pixels, filters, depth: 32, threads: pixels * filters / 64, rate }
    }
    MainLoop {
        text: concat!(include_str!("../kernels/wmma.cuh"), "\n", include_str!("../kernels/matrix.cuh")),
        name: "WMMA",
        tiles: |_| const { &[tile(128, 64, 90), tile(64, 64, 75)] },
        constants: |tile, _| {
            vec![("WAVES_P", tile.pixels / 64), ("WAVES_F", tile.filters / 32), ("OCCUPANCY", 1)]
        },
        shared: operands,
        part: |_| PART,
    }
}

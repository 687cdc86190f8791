//! The main loop on tensor cores.

use fuseplan_api::{Accuracy, Constraint, DataType, Preference, Problem, Solver};
use fuseplan_gpu::{
    Access, Costs, HaloLoop, MainLoop, Tile, Volume, constants, halo_refusal, image_run, kernel_text,
};

use crate::windows::STEM;
use crate::{arch, hopper};

/// The error class of tensor cores' products, which round factors in f32 to TF32.
pub(crate) fn tensor_core_accuracy(problem: &Problem) -> Accuracy {
    match problem.output.data_type() {
        DataType::Float => Accuracy::Tf32,
        DataType::Half | DataType::BFloat16 | DataType::Double | DataType::Int8 => Accuracy::Exact,
    }
}

pub(crate) const TENSOR_CORES: Constraint = Constraint {
    property: "architecture",
    accepts: "sm_80 and later",
    check: |_, device| {
        let known = arch::named(&device.arch).is_some_and(|arch| arch.capability >= (8, 0));
        (!known).then(|| device.arch.clone())
    },
};

/// Groups, filters or channels too few for the tiles of a matrix product.
pub(crate) const NARROW: Preference = Preference {
    property: "convolution",
    prefers: "fewer than 16 filters a group, or two or more groups of at most 24 filters, or at most 4 channels a group; no filters \
              that `wgmma` multiplies in less time, as the models of both have it, and none of 1x1 that it multiplies by runs of planes; \
              of at most 4 channels in strides, planes of 16 bits, none that tiles of elements take less time for",
    check: |problem, device| {
        let (conv, weights) = problem.conv()?;
        let (channels, filters) = (weights.lens()[1], weights.lens()[0]);
        if let Some(found) = (fuseplan_gpu::NARROW.check)(problem, device) {
            if channels > STEM {
                return Some(format!("{found} and {channels} channels"));
            }
            return hopper::preferences::sooner_by_tiles(problem, device)
                .map(|times| format!("{found} of {channels} channels, {times}"));
        }
        if conv.groups() > 1 {
            return hopper::preferences::sooner_than_windows(problem, device)
                .map(|times| format!("{} groups of {channels} channels, {times}", conv.groups()));
        }
        let others: [&dyn Solver; 5] = [
            &hopper::WGMMA,
            &hopper::WGMMA_PLANES,
            &hopper::WGMMA_TRANSPOSED,
            &hopper::WGMMA_LINES,
            &hopper::WGMMA_RUNS,
        ];
        let is_left = others.iter().any(|solver| hopper::preferences::is_preferred(*solver, problem, device));
        is_left.then(|| format!("{filters} filters of {channels} channels"))
    },
};

/// What a block of [`halo_mma`] keeps.
pub(crate) const WINDOW: Constraint = Constraint {
    property: "shared memory",
    accepts: "filters of a group, and what of its channels some outputs see, that fit 96 KiB",
    check: |problem, device| halo_refusal(problem, &halo_mma(&device.arch)),
};

/// Bytes that memory brings as a whole. Of 12 convolutions of groups of 4 to 32 channels in networks to fit to on
/// H200s, two to 16 timed tiles each, the choice is 1.6 % slower than the fastest in the mean, 7 % at worst, instead of
/// 3.5 and 17 % with the 32 bytes of a sector; of 22 others 2.5 % instead of 3.3.
const PIECE: usize = 64;

/// Instructions on fragments, and such fragments whose lanes have quads of channels.
pub(crate) const MMA_SYNC: &str = kernel_text!("../kernels/mma_sync.cuh");
pub(crate) const QUADS: &str = kernel_text!("../kernels/quad_mma.cuh");

/// `mma.sync` on a window of the image in shared memory.
pub(crate) fn halo_mma(arch: &str) -> HaloLoop {
    const TEXTS: &[&str] = &[MMA_SYNC, QUADS, kernel_text!("../kernels/halo_mma.cuh")];
    // From sm_100 on the compiler takes some registers more, of which 128 are too few.
    let is_frugal = arch::named(arch).is_some_and(|arch| arch.capability < (10, 0));
    let threads = if is_frugal { 512 } else { 384 };
    HaloLoop {
        texts: TEXTS,
        name: "mma.sync",
        shared: 96 << 10,
        cycles: 1.6,
        matrix: true,
        piece: PIECE,
        threads,
    }
}

/// In 16 bits. Fitted as those of FFMA, to 156 timings, to 15 % in the mean square. In a later run the choice was 3 to 4 %
/// slower in the mean than the fastest of the tiles timed there, and 6 to 7 % on convolutions that the fit has not seen.
const COSTS: Costs = Costs {
    is_fitted: true,
    launch: 2.13,
    block: 0.0,
    step: 0.265,
    load: 8.1e-4,
    product: 1.25e-4,
    filled: 2.8e-4,
    exposed: 0.0,
    meet: 1.33,
    crowd: 0.16,
    hand_on: 3.0,
    handed_on: 1.1e-6,
    output: 0.0166,
    memory: 5.3e-7,
    cache: 9.2e-8,
};

/// In TF32: 353 timings, 17 %. In the later run 6 to 10 % slower than the fastest tile, and 4 to 11 % on others.
const TF32_COSTS: Costs = Costs {
    is_fitted: true,
    launch: 2.58,
    block: 0.0,
    step: 0.19,
    load: 0.037,
    product: 2.8e-5,
    filled: 4e-4,
    exposed: 0.0,
    meet: 0.73,
    crowd: 0.17,
    hand_on: 3.0,
    handed_on: 4.5e-7,
    output: 0.0285,
    memory: 2.25e-7,
    cache: 1.66e-7,
};

/// The same of one group and tap along planes of a depth below 48, where a block loads, multiplies and writes once or
/// twice, one after the other, so that the memory waits: chosen by 100 timings of 25 convolutions of one tap and 8 to
/// 44 channels, of 1, 8 and 64 images, on an H200, to 13 % in the mean square, each timing weighed by how near it is to
/// the fastest, where it was 31; of 25 others 16 where it was 35.
const TF32_SHALLOW: Costs = Costs { output: 0.042, memory: 4.1e-7, ..TF32_COSTS };

constants! {
    /// The constants of `mma.cuh`.
    struct MmaConstants {
        stages: usize,
        /// Blocks of a multiprocessor.
        occupancy: usize,
        /// Warps along the pixels and along the filters.
        warps_p: usize,
        warps_f: usize,
    }
}

/// `mma.sync` with `cp.async`.
pub(crate) fn mma(problem: &Problem) -> MainLoop {
    const fn tiles(depth: usize) -> [Tile; 9] {
        const fn tile(
            [pixels, filters, depth]: [usize; 3],
            [threads, slices]: [usize; 2],
            rate: usize,
        ) -> Tile {
            Tile { pixels, filters, depth, threads, slices, rate }
        }
        // Rates as seen on an H200. A thread of the largest has 128 registers: too few for deep steps.
        [
            tile([128, 128, 32], [256, 1], 340),
            tile([64, 128, depth], [128, 1], 320),
            tile([128, 64, depth], [128, 1], 255),
            tile([64, 64, depth], [128, 1], 220),
            tile([128, 32, depth], [128, 1], 160),
            tile([64, 64, depth], [256, 2], 220),
            tile([64, 32, depth], [128, 2], 150),
            tile([32, 64, depth], [128, 2], 150),
            tile([32, 32, depth], [128, 2], 110),
        ]
    }
    const STEPS_OF_32: [Tile; 9] = tiles(32);
    const STEPS_OF_64: [Tile; 9] = tiles(64);
    MainLoop {
        texts: &[MMA_SYNC, kernel_text!("../kernels/mma.cuh")],
        name: "mma.sync",
        image_run,
        tiles: |access| {
            let deep = access.depth % 64 == 0 && access.element == 2 && !through_registers(access);
            // The largest has too few registers for TF32, and loses to deep steps where chunks are copied.
            let largest = access.element == 2 && !(deep && access.image_chunks);
            let tiles = if deep { &STEPS_OF_64 } else { &STEPS_OF_32 };
            // Planes of 16 bits take rows of at least 64 pixels.
            let narrow = access.image_chunks || access.element == 4;
            &tiles[usize::from(!largest)..if narrow { 9 } else { 7 }]
        },
        constants: |tile, access, text| {
            let warps = tile.threads / 32 / tile.slices;
            // Warps as square as can be read least from shared memory.
            let filters = (0..=warps.ilog2())
                .map(|power| 1 << power)
                .filter(|filters| tile.filters / filters >= 16 && tile.pixels * filters / warps >= 16)
                .min_by_key(|filters| tile.filters / filters + tile.pixels * filters / warps)
                .unwrap_or(1);
            MmaConstants {
                stages: stages(tile, access),
                occupancy: tile.threads / 128,
                warps_p: warps / filters,
                warps_f: filters,
            }
            .write(text);
        },
        shared: |tile, access| {
            let row = tile.depth * access.element;
            let image = match (access.image_chunks, access.element) {
                (true, _) => tile.pixels * row,
                (false, 2) => tile.depth * tile.pixels * 2,
                (false, element) => tile.depth * (tile.pixels + 8) * element,
            };
            let table = tile.depth * size_of::<[u32; 2]>();
            stages(tile, access) * (image + tile.filters * row + table)
        },
        part: |tile| tile.pixels,
        costs: match problem.output.data_type().size() {
            2 => COSTS,
            _ if is_shallow(problem) => TF32_SHALLOW,
            _ => TF32_COSTS,
        },
    }
}

/// Whether an image whose channels are not innermost is seen by filters of one group and tap, and of little depth.
fn is_shallow(problem: &Problem) -> bool {
    let Some((conv, weights)) = problem.conv() else { return false };
    let is_point = conv.groups() == 1 && Volume::of(weights).plane() == 1;
    is_point
        && weights.lens()[1] < hopper::preferences::SHALLOW
        && !Volume::of(&problem.input).is_channels_last()
}

/// Whether the tensor cores' main loop takes the image through registers, one 16-bit element at a time.
fn through_registers(access: &Access) -> bool {
    !access.image_chunks && access.image_run * access.element == 2
}

/// Stages of the tensor cores' main loop. What goes through registers is a step ahead anyway.
fn stages(tile: &Tile, access: &Access) -> usize {
    if !through_registers(access) && tile.depth * access.element == 64 { 4 } else { 3 }
}

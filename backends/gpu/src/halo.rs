//! Convolutions of narrow groups, few filters or few channels: an image's element is read once, with its halo.

mod tile;
mod time;

use std::ops::ControlFlow;

use fuseplan_api::volume::{Volume, common_power, spatial};
use fuseplan_api::{Configuration, Estimate, Problem};

use crate::configurations::{named, ranked};
use crate::kernel::{BRING, Geometry, Kernel, Text};
use crate::volume::reaches_outside;
use tile::{Layout, QUAD, Shape, Tile, candidates, dense, padded};
use time::{at_once, columns, occupancy, rounds, tiles, timed, timed_as_padded};

/// What multiplies: the text behind `halo.cuh`, and what of a tile its warps take at a time.
#[derive(Debug, Clone, Copy)]
pub struct HaloLoop {
    /// Its text, in the order of the files.
    pub texts: &'static [&'static str],
    /// Its name, for people.
    pub name: &'static str,
    /// Most bytes of shared memory of a block.
    pub shared: usize,
    /// Cycles of a multiprocessor for products of 16 pixels, 8 filters and four quads of channels; of 16-bit elements
    /// where matrix instructions make them, which take f32 at half the rate.
    pub cycles: f64,
    /// Whether fragments are those of a matrix instruction: 16 pixels by 8 filters, four quads deep.
    pub matrix: bool,
    /// Bytes of the image that memory brings as a whole, where a block has some of a pixel's channels.
    pub piece: usize,
    /// Threads of a multiprocessor that may have more than 32 accumulators each, so that none of them spills.
    pub threads: usize,
}

/// Multiply-adds in f32.
pub fn halo_fma(name: &'static str) -> HaloLoop {
    const TEXTS: &[&str] = &[kernel_text!("../kernels/halo_fma.cuh")];
    HaloLoop { texts: TEXTS, name, shared: 64 << 10, cycles: 16.0, matrix: false, piece: 32, threads: 512 }
}

/// The configurations of [`halo`] for a problem that [`halo_refusal`] accepts: the tiles that have room.
pub fn halo_configurations(
    problem: &Problem,
    main_loop: &HaloLoop,
    units: usize,
) -> Vec<(Configuration, Estimate)> {
    let Some(shape) = Shape::of(problem) else { return Vec::new() };
    let estimate = |cost| Estimate::Cost { cost, unit: "cycles", model: "windows" };
    ranked(timed_as_padded(&shape, main_loop, units), estimate)
}

/// What of a problem has no room: none if it has a tile. No tile is looked at after the first that has room, and none
/// where not even one output has, so that asking costs little.
pub fn halo_refusal(problem: &Problem, main_loop: &HaloLoop) -> Option<String> {
    let Some(shape) = Shape::of(problem) else { return Some("none".into()) };
    let one = Tile { height: 1, width: 1, pixels: 1, groups: 1, filters: 1, threads: 128, item: [1; 2] };
    let least = Layout::new(&shape, main_loop, &one, dense(&shape, &one));
    // The window and its table are the smallest that there are; the other parts are some numbers at least.
    let has_room = least.window + least.spots <= main_loop.shared
        && candidates(&shape, main_loop, &mut |_, _| ControlFlow::Break(())).is_break();
    (!has_room).then(|| {
        let [d, h, w] = shape.windows(&Tile { width: shape.out[2].min(64), ..one });
        format!("{} channels of {d} x {h} x {w} pixels", shape.channels)
    })
}

constants! {
    /// The constants of `halo.cuh` and its main loops.
    struct Constants {
        groups: usize,
        filters: usize,
        channels: usize,
        tile: [usize; 2],
        tile_p: usize,
        tile_g: usize,
        tile_f: usize,
        item_p: usize,
        item_f: usize,
        /// Extents of the window.
        window: [usize; 3],
        /// Bytes between neighbouring pixels and rows of the window.
        x_pitch: usize,
        x_row: usize,
        /// Numbers between neighbouring rows of accumulators.
        acc_pitch: usize,
        /// Offsets in shared memory.
        weights_at: usize,
        acc_at: usize,
        channels_at: usize,
        spots_at: usize,
        offsets_at: usize,
        /// Entries of the table of the depth.
        offsets: usize,
        /// Bytes of shared memory.
        shared: usize,
        /// Whether the window is copied asynchronously.
        copies_async: bool,
        threads: usize,
        /// Blocks of a multiprocessor.
        occupancy: usize,
        x_vector: usize,
        y_vector: usize,
        y_along_k: bool,
        /// Whether results are written from where they are summed.
        direct: bool,
        w_k: usize,
        w_c: usize,
        taps: [usize; 3],
        pad: [usize; 3],
        /// Whether a tap may lie outside of the image, before or behind it in depth.
        outside_d: bool,
        stride: [usize; 3],
        dilation: [usize; 3],
        w: [usize; 3],
    }
}

/// Plans a convolution whose blocks keep a window of the image, on a device of about `units` multiprocessors, in one of
/// its configurations; `None` for others. Only for problems that [`halo_refusal`] and [`SPAN`](crate::SPAN) accept.
pub fn halo(
    vendor: &str,
    problem: &Problem,
    main_loop: &HaloLoop,
    units: usize,
    configuration: &Configuration,
) -> Option<Kernel> {
    let ((conv, weights), shape) = (problem.conv()?, Shape::of(problem)?);
    let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
    let tile = named(timed(&shape, main_loop, units), configuration)?;
    let layout = Layout::new(&shape, main_loop, &tile, padded(&shape, main_loop, &tile));
    let chunk = 16 / shape.element;
    // Whole quads that lie side by side as in the window.
    let quads = shape.channels.is_multiple_of(QUAD) && x.is_channels_last();
    let mut runs = vec![tile.groups * shape.channels, x.lens[1]];
    if main_loop.matrix {
        // They are copied as they are.
        runs.extend([layout.pitch / shape.element, layout.row / shape.element]);
    }
    let x_vector = if quads { runs.into_iter().fold(x.alignment(1, chunk), common_power) } else { 1 };
    let x_vector = if x_vector < QUAD { 1 } else { x_vector };
    let whole_rows = tile.width == y.lens[4];
    let y_vector = if shape.along_k {
        // Blocks of several groups have all of their filters.
        let whole = if shape.filters > tile.filters { shape.filters } else { y.lens[1] };
        [tile.groups * tile.filters, whole].into_iter().fold(y.alignment(1, chunk), common_power)
    } else if y.position_stride() == Some(1) {
        let lens = if whole_rows { [tile.height * tile.width, y.plane()] } else { [tile.width, y.lens[4]] };
        let rows = if whole_rows { y.lens[3] * y.lens[4] } else { y.lens[4] };
        [lens[0], lens[1], rows, y.strides[0], y.strides[1]].into_iter().fold(chunk, common_power)
    } else {
        1
    };

    let mut text = Text::default();
    Constants {
        groups: shape.groups,
        filters: shape.filters,
        channels: shape.channels,
        tile: [tile.height, tile.width],
        tile_p: tile.pixels,
        tile_g: tile.groups,
        tile_f: tile.filters,
        item_p: tile.item[0],
        item_f: tile.item[1],
        window: shape.windows(&tile),
        x_pitch: layout.pitch,
        x_row: layout.row,
        acc_pitch: layout.acc_pitch,
        weights_at: layout.window,
        acc_at: layout.window + layout.weights,
        channels_at: layout.window + layout.weights + layout.acc,
        spots_at: layout.window + layout.weights + layout.acc + layout.channels,
        offsets_at: layout.bytes() - layout.offsets * size_of::<u32>(),
        offsets: layout.offsets,
        shared: layout.bytes(),
        copies_async: main_loop.matrix && x_vector > 1,
        threads: tile.threads,
        occupancy: occupancy(&shape, main_loop, &tile),
        x_vector,
        y_vector,
        y_along_k: shape.along_k,
        direct: shape.is_direct(main_loop, &tile),
        w_k: w.strides[0],
        w_c: w.strides[1],
        taps: shape.taps,
        pad: spatial(conv.pads_before(), 0),
        outside_d: reaches_outside(conv, &w)[0],
        stride: shape.strides,
        dilation: shape.dilations,
        w: [w.strides[2], w.strides[3], w.strides[4]],
    }
    .write(&mut text);
    let (tiles, columns) = (tiles(&shape, &tile), columns(&shape, &tile));
    text.size("out_h", y.lens[3]).size("out_w", y.lens[4]).strides("x", &x.strides).strides("y", &y.strides);
    text.size("in_d", x.lens[2]).size("in_h", x.lens[3]).size("in_w", x.lens[4]).size("out_d", y.lens[2]);
    text.size("tiles", tiles).size("tiles_h", y.lens[3].div_ceil(tile.height));
    text.size("tiles_w", y.lens[4].div_ceil(tile.width));

    // Blocks keep their filters and walk over as many tiles as leaves every multiprocessor about as much.
    let slots = units * at_once(&shape, main_loop, &tile, layout.bytes());
    let grid = columns * tiles.div_ceil(rounds(tiles, columns, slots));
    let geometry =
        Geometry { grid: [grid as u32, 1, 1], block: tile.threads as u32, shared: layout.bytes() as u32 };
    let detail = format!(
        "{}, tile {}x{} x {} groups x {} filters, {} x {} at a time, image read in {}, {y_vector} outputs at a time",
        main_loop.name,
        tile.height,
        tile.width,
        tile.groups,
        tile.filters,
        tile.item[0],
        tile.item[1],
        if x_vector > 1 { format!("{} bytes", x_vector * shape.element) } else { "elements".into() },
    );
    let files = [
        &[BRING, kernel_text!("../kernels/halo.cuh")],
        main_loop.texts,
        &[kernel_text!("../kernels/halo_kernel.cuh")],
    ]
    .concat();
    Some(text.finish(vendor, problem, &files, geometry, detail))
}

//! The constants that a kernel's text has of a problem and a tile.

use fuseplan_api::{Problem, TensorDescriptor};
use fuseplan_gpu::{Text, Volume, channel_values, convolution, residuals, spatial};

use super::constants::{
    AlongPlanesConstants, FilterStepsConstants, FiltersConstants, GroupConstants, ImagesConstants,
    LinesConstants, NeighboursConstants, PackedConstants, PartsConstants, PhasesConstants, ReorderConstants,
    ResidualsConstants, RunsConstants, StreamedConstants, StreamedTapsConstants, StrideConstants,
    TapConstants, TransposedConstants, WgmmaConstants, WindowConstants,
};
use super::layout::{
    columns_behind, fills_images, filters_at_once, filters_by_lane, images_follow, neighbours, outputs_of,
    unrolled_parts, writes_filters, writes_images, writes_words,
};
use super::reordered::Reordered;
use super::runs::{By, Sight};
use super::tiling::{Load, Packed, Tiling};

/// Bytes of filters that are brought into L2 before they are asked for. Behind another grid of the same stream convolutions of 16 bits with up
/// to as many take 0.94 to 1.03 of the time on an H200, 0.985 in the mean; with more 0.95 to 1.08, and of TF32 up to 1.12, as loads wait behind
/// the hints.
const MOST_PREFETCHED: usize = 1 << 20;

/// Elements of filters that blocks bring into L2 together: those that lie side by side, where TMA loads channels that are innermost, which is
/// what was timed.
fn prefetched(weights: &TensorDescriptor, tiling: &Tiling) -> usize {
    let count = weights.element_count();
    let loads = matches!(tiling.load, Load::Tma | Load::Halo) && !tiling.tf32x3 || tiling.has_own_filters();
    if loads && weights.is_packed() && count * tiling.element <= MOST_PREFETCHED { count } else { 0 }
}

/// A text that has the constants, with as many bytes of shared memory.
pub(super) fn constants(
    problem: &Problem,
    tiling: &Tiling,
    reordered: Option<&Reordered>,
    shared: usize,
) -> Text {
    let (conv, weights) = convolution(problem);
    let load = tiling.load;
    let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
    let groups = conv.groups();
    let (filters, channels) = (w.lens[0] / groups, w.lens[1]);
    let taps = w.plane();
    let each = [w.lens[2], w.lens[3], w.lens[4]];
    let (steps, filter_steps) = (tiling.steps(channels, each), tiling.filter_steps(channels, each));
    let (producer, consumer) = tiling.registers();
    let dims = conv.spatial_dims();
    let y_vector = outputs_of(tiling, problem);
    // Arrivals that complete a stage's full barrier, and threads that load the parameters of channels.
    let (arrivals, channel_producers) = match load {
        // Another warp issues the loads of filters.
        Load::Lines if tiling.is_streamed() => (1, 64),
        Load::Runs => (1, 64),
        // Two warps transpose.
        Load::Transposed => (2, 64),
        Load::Tma | Load::Reordered | Load::Halo | Load::Planes | Load::Packed | Load::Lines
            if !tiling.copied =>
        {
            (1, 96)
        }
        _ => (tiling.producers * 4 + usize::from(!tiling.resident), tiling.producers * 128),
    };

    let data_type = problem.output.data_type();
    let sight = tiling.runs.and_then(|_| Sight::of(problem));
    let mut text = Text::default();
    let before = spatial(conv.pads_before(), 0);
    let [strides, dilations] = [conv.strides(), conv.dilations()].map(|list| spatial(list, 1));
    WgmmaConstants {
        dims,
        groups,
        filters,
        channels,
        channel_values: channel_values(problem),
        steps,
        split: tiling.split,
        producers: tiling.producers,
        filter_room: tiling.filter_room(filter_steps),
        filter_stages: tiling.filter_stages(),
        raw_stages: tiling.raw_stages(),
        raw_bytes: tiling.transposed.map_or(0, |tile| tile.raw_bytes()),
        rectangle: tiling
            .window
            .map_or(tiling.transposed.map_or(0, |tile| tile.columns), |window| window.columns),
        full_arrivals: arrivals,
        channel_producers,
        table_bytes: tiling.table(taps),
        pingpong: tiling.pingpong,
        cooperative: tiling.cooperative,
        channel_stages: tiling.channel_stages(),
        atoms: tiling.atoms,
        pixels_are_rows: tiling.pixels_are_rows(),
        moves_back: load == Load::Tma,
        residuals_early: tiling.reads_residuals_early(residuals(problem), y_vector, filter_steps),
        pixels_innermost: matches!(load, Load::Planes | Load::Lines)
            || tiling.runs.is_some_and(|runs| runs.images == 1 && runs.by != By::Planes),
        interleaved: match () {
            () if tiling.runs.is_some_and(|runs| runs.paired) => 2,
            () if sight.is_some_and(|sight| sight.element == 4 && sight.is_odd()) => 4,
            () if tiling.packed.is_some_and(|packed| !packed.plane.is_multiple_of(2)) => 8,
            () => 1,
        },
        block_p: tiling.block(),
        lines: tiling.lines.map_or(tiling.transposed.map_or(0, |tile| tile.lines), |lines| lines.count),
        loaded_p: tiling.loaded_pixels(),
        tile_p: tiling.pixels(),
        covered_p: tiling
            .packed
            .map(|packed| packed.pixels)
            .or(tiling.runs.map(|runs| runs.pixels))
            .unwrap_or(tiling.pixels()),
        overlap: tiling.runs.map_or(0, |runs| runs.overlap),
        tile_f: tiling.filters(),
        tile_k: tiling.depth,
        row: tiling.row(),
        row_loaded: tiling.loaded_row(),
        stages: tiling.stages,
        occupancy: tiling.occupancy,
        resident: tiling.resident,
        rearranged: tiling.rearranged,
        streamed: tiling.is_streamed(),
        prefetched: prefetched(weights, tiling),
        filters_by_lane: filters_by_lane(problem, tiling),
        tf32x3: tiling.tf32x3,
        passed: tiling.passed(),
        shared,
        producer_registers: producer,
        consumer_registers: consumer,
        y_vector,
        taps: each,
    }
    .write(&mut text);
    if tiling.is_streamed() || tiling.rearranged || tiling.window.is_some() {
        FilterStepsConstants { filter_steps }.write(&mut text);
    }
    if tiling.is_prepared() || tiling.has_own_filters() {
        StreamedTapsConstants { streamed_taps: tiling.streamed_taps(each) }.write(&mut text);
    }
    if tiling.is_prepared() {
        StreamedConstants {
            by_planes: load != Load::Lines,
            slotted: load == Load::Runs && tiling.element == 2,
        }
        .write(&mut text);
    }
    if tiling.is_streamed() {
        PhasesConstants { phases: tiling.runs.map_or(1, |runs| runs.phases) }.write(&mut text);
    }
    let unrolled_parts = unrolled_parts(problem);
    if matches!(load, Load::Tma | Load::Halo | Load::Planes | Load::Reordered | Load::Gather)
        && !writes_filters(tiling, problem)
    {
        let residuals_ahead = tiling.residuals_ahead(residuals(problem), unrolled_parts);
        ResidualsConstants { residuals_ahead }.write(&mut text);
    }
    if matches!(load, Load::Tma | Load::Halo) {
        PartsConstants { unrolled_parts }.write(&mut text);
    }
    if tiling.window.is_some() {
        WindowConstants { step_taps: tiling.step_taps() }.write(&mut text);
    }
    if let Some(lines) = tiling.lines {
        let behind = columns_behind(y.lens[4], w.lens[4], before[2], lines.columns);
        LinesConstants { keep: lines.keep, behind, pad_h: before[1], pad_w: before[2] }.write(&mut text);
    }
    if let Some(packed @ Packed { plane, .. }) = tiling.packed {
        PackedConstants { plane, images: packed.images() }.write(&mut text);
        text.size("x_n", x.strides[0]);
    }
    let along_planes = writes_words(tiling, problem);
    let along_images = writes_images(tiling, problem);
    if along_images {
        let whole_images = fills_images(tiling, images_follow(problem));
        NeighboursConstants { neighbours: neighbours(tiling, problem), whole_images }.write(&mut text);
    }
    if along_planes || along_images {
        AlongPlanesConstants { y_plane: y.plane(), y_pitch: y.strides[1] }.write(&mut text);
        if along_planes && tiling.runs.is_none_or(|runs| runs.overlap == 0) {
            let of_runs = tiling.runs.map_or(1, |runs| runs.images);
            let y_images = tiling.packed.map_or(of_runs, |packed| packed.images());
            ImagesConstants { y_images }.write(&mut text);
        }
    }
    if let Some(tile) = tiling.transposed {
        TransposedConstants { boxes: tile.boxes, pad: before }.write(&mut text);
    }
    if let (Some(runs), Some(sight)) = (tiling.runs, sight) {
        let Sight { image, output, padded, pads, dilations, strides, .. } = sight;
        RunsConstants {
            channel_pitch: runs.pitch,
            by_boxes: runs.by == By::Boxes,
            columns_of_box: runs.columns,
            boxes: runs.boxes,
            apart: runs.apart,
            images: runs.images,
            whole: runs.by == By::Planes,
            guard: runs.guard,
            image,
            output,
            padded,
            pad: pads,
            dilation: dilations,
            stride: strides,
        }
        .write(&mut text);
        if !tiling.tf32x3 {
            text.size("x_n", x.strides[0]);
        }
    }
    if matches!(load, Load::Tma | Load::Reordered | Load::Halo | Load::Gather) {
        TapConstants { pad: before, dilation: dilations }.write(&mut text);
    }
    let of_groups = tiling.leaves_group(groups, channels);
    if matches!(load, Load::Tma | Load::Reordered | Load::Halo) {
        GroupConstants { of_groups }.write(&mut text);
    }
    if matches!(load, Load::Tma | Load::Reordered | Load::Gather) {
        StrideConstants { stride: strides }.write(&mut text);
    }
    // The tiles of an image, where they stay within one.
    text.output_divisors(&y)
        .divisor("image_tiles", tiling.tiles_of_pixels(1, y.lens[2], y.lens[3], y.lens[4]))
        .coord(&y);
    if load == Load::Gather || tiling.tf32x3 {
        text.size("in_d", x.lens[2]).size("in_h", x.lens[3]).size("in_w", x.lens[4]).strides("x", &x.strides);
    }
    if let Some(reordered) = reordered {
        let [image_channels, filter_channels] = reordered.channels();
        let (filter_rows, filters_at) = (reordered.filters(), reordered.filters_at);
        ReorderConstants { image_channels, filter_channels, filter_rows, filters_at }.write(&mut text);
        text.size("images", x.lens[0]).size("in_plane", x.plane());
    }
    if tiling.copied || reordered.is_some() {
        text.size("x_n", x.strides[0]).size("x_c", x.strides[1]);
    }
    if tiling.tf32x3 {
        for (name, stride) in ["w_k", "w_c", "w_d", "w_h", "w_w"].into_iter().zip(w.strides) {
            text.size(name, stride);
        }
    }
    if tiling.rearranged && !tiling.has_own_filters() {
        FiltersConstants { w_vector: filters_at_once(&w, data_type.size()) }.write(&mut text);
    }
    if (tiling.rearranged || tiling.is_prepared() || reordered.is_some()) && !tiling.tf32x3 {
        text.size("w_k", w.strides[0]);
    }
    text
}

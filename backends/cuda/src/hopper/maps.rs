//! The tensor maps by which TMA loads pixels and filters.

use fuseplan_api::DataType;
use fuseplan_gpu::Volume;

use super::runs::{By, Runs};
use super::tensor_map::{Part, TensorMap};
use super::tiling::{BOX, Tiling};

/// A tensor of `dims` spatial dimensions for loads of `channels` channels.
pub(super) fn tensor_map(
    volume: &Volume,
    dims: usize,
    channels: usize,
    data_type: DataType,
    part: Part,
) -> TensorMap {
    let order = [4, 3, 2].into_iter().take(dims).chain([0]);
    let mut strides = Vec::new();
    // Dimensions of length 1 have no stride; any that is aligned does.
    let mut packed = volume.lens[1].next_multiple_of(8);
    for d in order.clone() {
        let stride = if volume.lens[d] > 1 { volume.strides[d] } else { packed };
        packed = stride * volume.lens[d];
        strides.push((stride * data_type.size()) as u64);
    }
    let lens = [1].into_iter().chain(order).map(|d| volume.lens[d] as u64).collect();
    TensorMap { data_type, rounds: true, lens, strides, innermost: channels as u32, part }
}

/// The map with groups as a dimension, of which a load has one: by its coordinate, or by an offset where pixels are walked over.
pub(super) fn grouped(mut map: TensorMap, groups: usize) -> TensorMap {
    let channels = map.lens[0] / groups as u64;
    map.lens.splice(..1, [channels, groups as u64]);
    map.strides.insert(0, channels * map.data_type.size() as u64);
    match &mut map.part {
        Part::Tile { extents } => extents.insert(0, 1),
        Part::Pixels { strides, lower, upper, .. } => {
            strides.insert(0, 1);
            lower.insert(0, 0);
            upper.insert(0, 1 - groups as i32);
        }
    }
    map
}

/// Images whose positions are neighbours, for loads of a box of positions of `channels` channels.
pub(super) fn planes(volume: &Volume, channels: usize, data_type: DataType) -> TensorMap {
    let mut packed = volume.plane().next_multiple_of(8);
    // As above, dimensions of length 1 have any stride.
    let strides = [1, 0].map(|d| {
        let stride = if volume.lens[d] > 1 { volume.strides[d] } else { packed };
        packed = stride * volume.lens[d];
        (stride * data_type.size()) as u64
    });
    TensorMap {
        data_type,
        rounds: true,
        lens: [volume.plane(), volume.lens[1], volume.lens[0]].map(|len| len as u64).into(),
        strides: strides.into(),
        innermost: BOX as u32,
        part: Part::Tile { extents: vec![channels as u32, 1] },
    }
}

/// Planes of f32, for loads of some of their elements in a step's channels, or all elements as one line.
pub(super) fn runs(volume: &Volume, tiling: &Tiling, runs: &Runs) -> TensorMap {
    let map = planes(volume, tiling.depth, DataType::Float);
    let map = TensorMap { rounds: !tiling.tf32x3, innermost: runs.columns as u32, ..map };
    if runs.by == By::Boxes {
        return map;
    }
    let reach = |d: usize| (volume.lens[d] - 1) * volume.strides[d];
    let elements = reach(0) + reach(1) + volume.plane();
    TensorMap {
        lens: vec![elements as u64],
        strides: Vec::new(),
        part: Part::Tile { extents: Vec::new() },
        ..map
    }
}

/// Images whose lines have no gaps, for loads of the lines that a tile sees.
pub(super) fn lines(volume: &Volume, tiling: &Tiling, data_type: DataType) -> TensorMap {
    let Some(lines) = tiling.lines else { unreachable!("a tile of lines has some") };
    let [images, channels, _, height, width] = volume.lens;
    let blocks = lines.columns / lines.block;
    let mut packed = width.next_multiple_of(8);
    let [line, channel, image] = [3, 1, 0].map(|d| {
        let stride = if volume.lens[d] > 1 { volume.strides[d] } else { packed };
        packed = stride * volume.lens[d];
        stride
    });
    let bytes = |stride: usize| (stride * data_type.size()) as u64;
    TensorMap {
        data_type,
        rounds: true,
        lens: [width.min(lines.block), channels, blocks, height, images].map(|len| len as u64).into(),
        strides: [channel, lines.block, line, image].map(bytes).into(),
        innermost: lines.block as u32,
        part: Part::Tile {
            extents: [tiling.depth, blocks, lines.count + lines.halo, 1].map(|extent| extent as u32).into(),
        },
    }
}

/// Images whose columns have no gaps, for loads of a box of columns of the lines that a tile sees.
pub(super) fn rectangles(volume: &Volume, dims: usize, tiling: &Tiling, data_type: DataType) -> TensorMap {
    let Some(tile) = tiling.transposed else { unreachable!("a tile of a rectangle has one") };
    let order = [1, 3, 2, 0].into_iter().filter(|&d| dims == 3 || d != 2);
    let any = volume.lens[4].next_multiple_of(8);
    // Dimensions of length 1 have any stride.
    let stride = |d: usize| if volume.lens[d] > 1 { volume.strides[d] } else { any };
    let mut extents = vec![tiling.depth as u32, (tile.lines + tile.halo) as u32];
    extents.resize(dims + 1, 1);
    TensorMap {
        data_type,
        rounds: true,
        lens: [4].into_iter().chain(order.clone()).map(|d| volume.lens[d] as u64).collect(),
        strides: order.map(|d| (stride(d) * data_type.size()) as u64).collect(),
        innermost: BOX as u32,
        part: Part::Tile { extents },
    }
}

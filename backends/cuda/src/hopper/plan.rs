//! The choice of tiles, and the kernel's text.

use std::fmt::Write;

use fuseplan_api::{DataType, Problem};
use fuseplan_gpu::{Geometry, Kernel, PLACE, Text, Volume, channel_values, common_power, spatial};

use super::tensor_map::{Part, TensorMap};
use super::tiling::{self, Tiling};
use crate::solvers::{VENDOR, units};

/// A kernel and the maps that it is launched with.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) kernel: Kernel,
    pub(crate) input: TensorMap,
    pub(crate) filters: TensorMap,
    tiling: Tiling,
    tiles: usize,
    /// Tiles side by side that cover all filters of all groups.
    columns: usize,
}

impl Plan {
    /// Blocks for a device of as many multiprocessors: as many as it holds at once, but no more than tiles.
    pub(crate) fn blocks(&self, units: usize) -> u32 {
        let blocks = self.tiles.min(units * self.tiling.per_unit);
        // Blocks that keep their filters walk down a column.
        let whole = if self.tiling.resident { (blocks / self.columns).max(1) * self.columns } else { blocks };
        whole as u32
    }
}

/// Plans a problem that meets the solver's constraints.
pub(crate) fn plan(problem: &Problem, arch: &str) -> Plan {
    let Some((conv, weights)) = problem.conv() else { unreachable!("a constraint demands a convolution") };
    let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
    let groups = conv.groups();
    let (filters, channels) = (w.lens[0] / groups, w.lens[1]);
    let tiling = tiling::choose(problem, units(arch));
    let channel_steps = channels.div_ceil(tiling.depth);
    let steps = channel_steps * w.plane();
    let columns = groups * filters.div_ceil(tiling.filters);
    let tiles = y.pixels().div_ceil(tiling.pixels()) * columns;
    let shared = tiling.shared(steps, channel_values(problem));
    let (feed, consumer) = tiling.registers();
    let dims = conv.spatial_dims();
    let y_vector = common_power(y.alignment(1, 8), filters);

    let mut text = Text::default();
    let numbers = [
        ("DIMS", dims),
        ("GROUPS", groups),
        ("FILTERS", filters),
        ("CHANNELS", channels),
        ("CHANNEL_VALUES", channel_values(problem)),
        ("TEAMS", tiling.teams),
        ("CONSUMERS", tiling.consumers),
        ("BUFFERS", tiling.buffers()),
        ("BLOCKS", tiling.blocks),
        ("TILE_F", tiling.filters),
        ("TILE_K", tiling.depth),
        ("ROW", tiling.depth * 2),
        ("STAGES", tiling.stages),
        ("PER_UNIT", tiling.per_unit),
        ("RESIDENT", tiling.resident.into()),
        ("SHARED", shared),
        ("FEED_REGISTERS", feed),
        ("CONSUMER_REGISTERS", consumer),
        ("Y_VECTOR", y_vector),
    ];
    for (name, value) in numbers {
        text.constant(name, value);
    }
    let lists = [
        ("TAPS", [w.lens[2], w.lens[3], w.lens[4]]),
        ("PAD", spatial(conv.pads(), 0)),
        ("STRIDE", spatial(conv.strides(), 1)),
        ("DILATION", spatial(conv.dilations(), 1)),
    ];
    for (name, values) in lists {
        for (dim, value) in ["D", "H", "W"].into_iter().zip(values) {
            text.constant(&format!("{name}_{dim}"), value);
        }
    }
    text.output(&y).place(&y);
    let grid = tiles.min(units(arch) * tiling.per_unit);
    let grid = if tiling.resident { grid / columns * columns } else { grid };
    let geometry =
        Geometry { grid: [grid as u32, 1, 1], block: tiling.threads() as u32, shared: shared as u32 };
    let detail = format!(
        "wgmma, tile {} pixels x {} filters x {}, {} teams, {} stages, {y_vector} outputs at a time{}",
        tiling.pixels(),
        tiling.filters,
        tiling.depth,
        tiling.teams,
        tiling.stages,
        if tiling.resident { ", filters kept" } else { "" }
    );
    let hopper = include_str!("../../kernels/hopper.cuh");
    let products = products(tiling.filters, problem.output.data_type());
    let files = [PLACE, hopper, &products, include_str!("../../kernels/wgmma.cuh")];
    let kernel = text.finish(VENDOR, problem, &files, geometry, detail);

    let map =
        |volume: &Volume, part| tensor_map(volume, dims, tiling.depth, problem.output.data_type(), part);
    let inner_first = |list: [usize; 3]| list.into_iter().rev().take(dims);
    let [pads, strides, dilations] = [lists[1].1, lists[2].1, lists[3].1];
    let pixels = Part::Pixels {
        pixels: tiling.pixels() as u32,
        strides: inner_first(strides).map(|stride| stride as u32).collect(),
        lower: inner_first(pads).map(|pad| -(pad as i32)).collect(),
        upper: inner_first(std::array::from_fn(|d| d))
            .map(|d| pads[d] as i32 - ((w.lens[2 + d] - 1) * dilations[d]) as i32)
            .collect(),
    };
    let input = map(&x, pixels);
    let filters = map(&w, Part::Tile { rows: tiling.filters as u32 });
    let mut plan = Plan { kernel, input, filters, tiling, tiles, columns };
    plan.kernel.geometry.grid[0] = plan.blocks(units(arch));
    plan
}

/// A tensor of `dims` spatial dimensions for copies of `channels` channels.
fn tensor_map(volume: &Volume, dims: usize, channels: usize, data_type: DataType, part: Part) -> TensorMap {
    let order = [4, 3, 2].into_iter().take(dims).chain([0]);
    let mut strides = Vec::new();
    // Dimensions of one place have no stride; any that is aligned does.
    let mut packed = volume.lens[1].next_multiple_of(8);
    for d in order.clone() {
        let stride = if volume.lens[d] > 1 { volume.strides[d] } else { packed };
        packed = stride * volume.lens[d];
        strides.push((stride * data_type.size()) as u64);
    }
    let lens = [1].into_iter().chain(order).map(|d| volume.lens[d] as u64).collect();
    TensorMap { data_type, lens, strides, channels: channels as u32, part }
}

/// The text's function `products`: adds 64 pixels times the tile's filters over a depth of 16.
fn products(filters: usize, data_type: DataType) -> String {
    let (element, name) = match data_type {
        DataType::BFloat16 => ("bf16", "bf16"),
        _ => ("f16", "f16"),
    };
    let count = filters / 2;
    let (mut registers, mut operands) = (String::new(), String::new());
    for i in 0..count {
        let separator = if i == 0 { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(registers, "{separator}%{i}");
        let _ = write!(operands, "{separator}\"+f\"(sums[{i}])");
    }
    format!(
        "DEVICE void products(float (&sums)[{count}], unsigned long long x, unsigned long long w, bool add, {element}) {{\n  \
         asm volatile(\"{{\\n.reg .pred add;\\nsetp.ne.b32 add, %{}, 0;\\n\"\n    \
         \"wgmma.mma_async.sync.aligned.m64n{filters}k16.f32.{name}.{name} {{{registers}}}, %{count}, %{}, add, 1, 1, 0, 0;\\n}}\"\n    \
         : {operands} : \"l\"(x), \"l\"(w), \"r\"((int)add));\n}}\n",
        count + 2,
        count + 1,
    )
}

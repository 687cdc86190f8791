//! The choice of tiles, and the kernel's text.

use std::fmt::Write;

use fuseplan_api::{DataType, Problem};
use fuseplan_gpu::{ALONE, Geometry, Kernel, PLACE, Runtime, SHARE, Text, Volume, channel_values, spatial};

use super::tensor_map::{Part, TensorMap};
use super::tiling::{self, Tiling, Way};
use crate::function::Cuda;
use crate::solvers::CLUSTER;

/// A kernel and the maps that it is launched with.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) kernel: Kernel,
    /// Of the input, where the copy engine reads it.
    pub(crate) input: Option<TensorMap>,
    pub(crate) filters: TensorMap,
    /// What the output's address must be a multiple of.
    pub(crate) output_alignment: usize,
    tiling: Tiling,
    tiles: usize,
    /// Tiles side by side that cover all filters of all groups.
    columns: usize,
}

impl Plan {
    /// Blocks for a device of as many multiprocessors: as many as it holds at once, but no more than tiles; those that
    /// share a tile have no other.
    pub(crate) fn blocks(&self, units: usize) -> u32 {
        if self.tiling.split > 1 {
            return (self.tiles * self.tiling.split) as u32;
        }
        let blocks = self.tiles.min(units * self.tiling.per_unit);
        // Blocks that keep their filters walk down a column.
        let whole = if self.tiling.resident { (blocks / self.columns).max(1) * self.columns } else { blocks };
        whole as u32
    }
}

/// Plans a problem that meets the solver's constraints.
pub(crate) fn plan(way: Way, problem: &Problem, arch: &str) -> Plan {
    let Some((conv, weights)) = problem.conv() else { unreachable!("a constraint demands a convolution") };
    let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
    let groups = conv.groups();
    let (filters, channels) = (w.lens[0] / groups, w.lens[1]);
    let tiling = tiling::choose(way, problem, Cuda::units(arch));
    let taps = w.plane();
    let steps = match way {
        Way::Copied => channels.div_ceil(tiling.depth) * taps,
        Way::Gathered => (channels * taps).div_ceil(tiling.depth),
    };
    let columns = groups * filters.div_ceil(tiling.filters());
    let tiles = y.pixels().div_ceil(tiling.pixels()) * columns;
    let shared = tiling.shared(steps, taps, channel_values(problem));
    let (feed, consumer) = tiling.registers();
    let dims = conv.spatial_dims();
    let y_vector = tiling::outputs_at_once(way, problem);
    // Arrivals at a stage that make it full, threads that read channels.
    let (arrivals, channel_feeders) = match way {
        Way::Copied => (1, 96),
        Way::Gathered => (tiling.feeders * 4 + usize::from(!tiling.resident), tiling.feeders * 128),
    };

    let mut text = Text::default();
    let numbers = [
        ("DIMS", dims),
        ("GROUPS", groups),
        ("FILTERS", filters),
        ("CHANNELS", channels),
        ("CHANNEL_VALUES", channel_values(problem)),
        ("STEPS", steps),
        ("SPLIT", tiling.split),
        ("FEEDERS", tiling.feeders),
        ("FULL_ARRIVALS", arrivals),
        ("CHANNEL_FEEDERS", channel_feeders),
        ("TABLE_BYTES", tiling.table(taps)),
        ("TEAMS", tiling.teams),
        ("CONSUMERS", tiling.consumers),
        ("BUFFERS", tiling.buffers()),
        ("BLOCKS", tiling.blocks),
        ("PIXELS_ARE_ROWS", (way == Way::Copied).into()),
        ("TILE_P", tiling.pixels()),
        ("TILE_F", tiling.filters()),
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
    if way == Way::Gathered {
        text.size("in_d", x.lens[2]).size("in_h", x.lens[3]).size("in_w", x.lens[4]).strides("x", &x.strides);
    }
    let geometry = Geometry { grid: [1; 3], block: tiling.threads() as u32, shared: shared as u32 };
    let detail = format!(
        "wgmma, pixels {}, tile {} pixels x {} filters x {}, {} teams, {} stages, {y_vector} outputs at a time{}{}",
        if way == Way::Copied { "copied" } else { "gathered" },
        tiling.pixels(),
        tiling.filters(),
        tiling.depth,
        tiling.teams,
        tiling.stages,
        if tiling.resident { ", filters kept" } else { "" },
        if tiling.split > 1 { format!(", shared by {} blocks", tiling.split) } else { String::new() },
    );
    let hopper = include_str!("../../kernels/hopper.cuh");
    let products = products(tiling.width, problem.output.data_type());
    let main = include_str!("../../kernels/wgmma.cuh");
    let feed = match way {
        Way::Copied => include_str!("../../kernels/im2col.cuh"),
        Way::Gathered => include_str!("../../kernels/gather.cuh"),
    };
    let cluster = if tiling.split > 1 { CLUSTER } else { ALONE };
    let split = include_str!("../../kernels/wgmma_split.cuh");
    let files = [PLACE, cluster, SHARE, hopper, &products, main, feed, split];
    let kernel = text.finish(Cuda::VENDOR, problem, &files, geometry, detail);

    let data_type = problem.output.data_type();
    let rows = Part::Tile { rows: tiling.filters() as u32 };
    let (input, filters) = match way {
        Way::Copied => {
            let [pads, strides, dilations] = [lists[1].1, lists[2].1, lists[3].1];
            let inner_first = || (0..3).rev().take(dims);
            let pixels = Part::Pixels {
                pixels: tiling.pixels() as u32,
                strides: inner_first().map(|d| strides[d] as u32).collect(),
                lower: inner_first().map(|d| -(pads[d] as i32)).collect(),
                upper: inner_first()
                    .map(|d| pads[d] as i32 - ((w.lens[2 + d] - 1) * dilations[d]) as i32)
                    .collect(),
            };
            let input = tensor_map(&x, dims, tiling.depth, data_type, pixels);
            (Some(input), tensor_map(&w, dims, tiling.depth, data_type, rows))
        }
        Way::Gathered => {
            // A filter's depth is one row.
            let depth = channels * taps;
            let pitch = if w.lens[0] > 1 { w.strides[0] } else { depth };
            let filters = TensorMap {
                data_type,
                lens: vec![depth as u64, w.lens[0] as u64],
                strides: vec![(pitch * data_type.size()) as u64],
                channels: tiling.depth as u32,
                part: rows,
            };
            (None, filters)
        }
    };
    let output_alignment = y_vector * data_type.size();
    let mut plan = Plan { kernel, input, filters, output_alignment, tiling, tiles, columns };
    plan.kernel.geometry.grid[0] = plan.blocks(Cuda::units(arch));
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

/// The text's function `products`: adds 64 rows times the tile's columns over a depth of 16.
fn products(width: usize, data_type: DataType) -> String {
    let (element, name) = match data_type {
        DataType::BFloat16 => ("bf16", "bf16"),
        _ => ("f16", "f16"),
    };
    let count = width / 2;
    let (mut registers, mut operands) = (String::new(), String::new());
    for i in 0..count {
        let separator = if i == 0 { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(registers, "{separator}%{i}");
        let _ = write!(operands, "{separator}\"+f\"(sums[{i}])");
    }
    format!(
        "DEVICE void products(float (&sums)[{count}], unsigned long long rows, unsigned long long columns, bool add, {element}) {{\n  \
         asm volatile(\"{{\\n.reg .pred add;\\nsetp.ne.b32 add, %{}, 0;\\n\"\n    \
         \"wgmma.mma_async.sync.aligned.m64n{width}k16.f32.{name}.{name} {{{registers}}}, %{count}, %{}, add, 1, 1, 0, 0;\\n}}\"\n    \
         : {operands} : \"l\"(rows), \"l\"(columns), \"r\"((int)add));\n}}\n",
        count + 2,
        count + 1,
    )
}

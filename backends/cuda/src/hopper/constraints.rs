//! What TMA can address, and what registers and shared memory have room for.

use fuseplan_api::{Constraint, DeviceInfo, Problem};
use fuseplan_gpu::{Volume, channel_values, spatial};

use super::layout::{groups_apart, has_taps_innermost, is_addressable, is_copyable, is_packed};
use super::preferences::least;
use super::reordered::Reordered;
use super::runs::Sight;
use super::tiling::Load;

/// The only architecture with these instructions.
pub(crate) const ARCHITECTURE: Constraint = Constraint {
    property: "architecture",
    accepts: super::HOPPER,
    check: |_, device| (device.arch != super::HOPPER).then(|| device.arch.clone()),
};

/// What a block keeps of its channels in shared memory.
pub(crate) const CHANNEL_VALUES: Constraint = Constraint {
    property: "parameters of a channel",
    accepts: "at most 16 numbers: one for biases that begin the chain, three with a batch-norm among them, behind that one \
              for each bias or PReLU, three for each batch-norm",
    check: |problem, _| {
        let values = channel_values(problem);
        (values > 16).then(|| values.to_string())
    },
};

/// Tensors that TMA can address.
pub(crate) const LAYOUT: Constraint = Constraint {
    property: "layout",
    accepts: "channels innermost in input, filters and output; in input and filters all other strides \
              multiples of 16 bytes, and no smaller than what lies within, in the order W, H, D, N",
    check: |problem, _| {
        let (_, weights) = problem.conv()?;
        let chunk = 16 / problem.output.data_type().size();
        let addressable = |volume: &Volume| {
            let mut least = volume.lens[1];
            (volume.lens[1] == 1 || volume.strides[1] == 1)
                && [4, 3, 2, 0].into_iter().filter(|&d| volume.lens[d] > 1).all(|d| {
                    let fits = volume.strides[d] >= least && volume.strides[d].is_multiple_of(chunk);
                    least = volume.strides[d] * volume.lens[d];
                    fits
                })
        };
        let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
        let fits = addressable(&x) && addressable(&w) && y.is_channels_last();
        (!fits).then(|| format!("{}, filters {weights}, {}", problem.input, problem.output))
    },
};

/// Images and filters that threads copy line by line, results that lie side by side along pixels.
pub(crate) const REORDERED_LAYOUT: Constraint = Constraint {
    property: "layout",
    accepts: "channels not innermost in input and output, places of a channel side by side; packed filters, channels before taps",
    check: |problem, _| {
        let (_, weights) = problem.conv()?;
        let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
        let planes = [&x, &y].map(|volume| !volume.is_channels_last() && volume.position_stride() == Some(1));
        let packed = has_taps_innermost(&w);
        let fits = planes == [true; 2] && packed;
        (!fits).then(|| format!("{}, filters {weights}, {}", problem.input, problem.output))
    },
};

/// Memory that reordered operands lie in.
pub(crate) const MEMORY: Constraint = Constraint {
    property: "memory",
    accepts: "an image and filters that take less than 2^31 bytes with their channels innermost, a multiple of 16 bytes for a place",
    check: |problem, _| {
        let (_, weights) = problem.conv()?;
        (!Reordered::fits(problem)).then(|| format!("{}, filters {weights}", problem.input))
    },
};

/// Groups whose channels a step along the depth does not leave.
pub(crate) const GROUPS: Constraint = Constraint {
    property: "groups",
    accepts: "one, or groups whose channels are a multiple of 32 bytes",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let channels = weights.lens()[1];
        let fits = conv.groups() == 1 || (channels * weights.data_type().size()).is_multiple_of(32);
        (!fits).then(|| format!("{} groups of {channels} channels", conv.groups()))
    },
};

/// The same, or groups of which TMA knows where they end.
pub(crate) const GROUPS_OF_PIXELS: Constraint = Constraint {
    property: "groups",
    accepts: "one; groups whose channels are a multiple of 32 bytes; in two dimensions of 16 bytes, if there are at most 16 groups \
              and padding and filters are within the limits of three dimensions, or filters without strides have several taps, at \
              most 9 in a line, and products are not 3xTF32",
    check: |problem, device| {
        let found = (GROUPS.check)(problem, device)?;
        (!groups_apart(problem) || has_no_tile(Load::Tma, problem, device)).then_some(found)
    },
};

/// Receptive extents within the limits of TMA's im2col mode: it takes strides of up to 8, keeps the corners of the image in
/// signed fields of 8 bits in 2-D (5 bits in 3-D), and the offset of a tap in unsigned ones of 8 bits (5 bits).
pub(crate) const RECEPTIVE_EXTENT: Constraint = Constraint {
    property: "filter",
    accepts: "strides of at most 8; a distance of at most 255 elements (31 in 3-D) from a filter's first tap to its \
              last; padding before of at most 127 elements (15), and padding after that differs from this distance \
              by at most 127 (15)",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let taps = Volume::of(weights).lens;
        let [before, after] = [conv.pads_before(), conv.pads_after()].map(|pads| spatial(pads, 0));
        let [strides, dilations] = [conv.strides(), conv.dilations()].map(|list| spatial(list, 1));
        let (corner, offset) = if conv.spatial_dims() == 3 { (15, 31) } else { (127, 255) };
        let fits = (0..3).all(|d| {
            let last_tap = (taps[2 + d] - 1) * dilations[d];
            strides[d] <= 8
                && before[d] <= corner
                && after[d].abs_diff(last_tap) <= corner
                && last_tap <= offset
        });
        (!fits).then(|| format!("{conv}, filters {weights}"))
    },
};

/// Convolutions whose pixels are the image's.
pub(crate) const POINTWISE: Constraint = Constraint {
    property: "filter",
    accepts: "1x1, without strides and padding",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let pads = [conv.pads_before(), conv.pads_after()].concat();
        let pointwise = Volume::of(weights).plane() == 1
            && conv.strides().iter().all(|&stride| stride == 1)
            && pads.iter().all(|&pad| pad == 0);
        (!pointwise).then(|| format!("{conv}, filters {weights}"))
    },
};

/// Convolutions of which a tile's lines are the image's, with sums that move from column to column.
pub(crate) const LINES: Constraint = Constraint {
    property: "filter",
    accepts: "one plane, without strides and dilations; padding before a line of fewer columns than the filter has",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let (taps, x) = (Volume::of(weights).lens, Volume::of(&problem.input));
        let [before, after] = [conv.pads_before(), conv.pads_after()].map(|pads| spatial(pads, 0));
        let dense = |d: usize| {
            let [stride, dilation] = [conv.strides(), conv.dilations()].map(|list| spatial(list, 1)[d]);
            stride == 1 && (dilation == 1 || taps[2 + d] == 1)
        };
        let plane = x.lens[2] == 1 && taps[2] == 1 && before[0] + after[0] == 0;
        let fits = plane && (0..3).all(dense) && before[2] < taps[4];
        (!fits).then(|| format!("{conv}, filters {weights}"))
    },
};

/// Convolutions of which a tile sees whole lines of taps.
pub(crate) const RECTANGLES: Constraint = Constraint {
    property: "filter",
    accepts: "several taps, at most 9 columns of them, without strides and dilations; padding before a line of at most 8 columns",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let taps = Volume::of(weights).lens;
        let before = spatial(conv.pads_before(), 0);
        let dense = |d: usize| {
            let [stride, dilation] = [conv.strides(), conv.dilations()].map(|list| spatial(list, 1)[d]);
            stride == 1 && (dilation == 1 || taps[2 + d] == 1)
        };
        let fits = (0..3).all(dense) && before[2] <= 8 && taps[4] <= 9 && taps[2] * taps[3] * taps[4] > 1;
        (!fits).then(|| format!("{conv}, filters {weights}"))
    },
};

/// Columns that TMA can address, filters with their taps innermost, results that lie side by side along pixels.
pub(crate) const RECTANGLES_LAYOUT: Constraint = Constraint {
    property: "layout",
    accepts: "columns of the input innermost, its other strides multiples of 16 bytes, and no smaller than what lies \
              within, in the order H, D, C, N; places of an output's channel side by side; packed filters, channels \
              before taps",
    check: |problem, _| {
        let (_, weights) = problem.conv()?;
        let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
        let lines = x.lens[4] == 1 || x.strides[4] == 1;
        let packed = has_taps_innermost(&w);
        let along = !y.is_channels_last() && y.position_stride() == Some(1);
        let fits = lines && packed && along && is_addressable(&x, x.lens[4], &[3, 2, 1, 0]);
        (!fits).then(|| format!("{}, filters {weights}, {}", problem.input, problem.output))
    },
};

/// Channels of a group of which steps have no others.
pub(crate) const TRANSPOSED_GROUPS: Constraint = Constraint {
    property: "groups",
    accepts: "one, or groups of a multiple of 32 channels",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let channels = weights.lens()[1];
        let fits = conv.groups() == 1 || channels.is_multiple_of(32);
        (!fits).then(|| format!("{} groups of {channels} channels", conv.groups()))
    },
};

/// Planes of which a tile's pixels see runs, and results that lie side by side along pixels.
pub(crate) const RUNS: Constraint = Constraint {
    property: "layout",
    accepts: "places of a channel side by side in input and output, channels not innermost; images of the input at multiples of 16 \
              bytes, planes too, or one behind the other (of 16 bits as many channels as make that so); packed filters, channels before \
              taps, at most 32 taps in a plane; lines and planes of the output that begin no further back in the input than others end",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let (w, y) = (Volume::of(weights), Volume::of(&problem.output));
        let packed = has_taps_innermost(&w);
        let along = !y.is_channels_last() && y.position_stride() == Some(1);
        let fits = packed && along && Sight::of(problem).is_some();
        (!fits).then(|| format!("{}, {conv}, filters {weights}, {}", problem.input, problem.output))
    },
};

/// As [`TRANSPOSED_GROUPS`], of 64 bytes.
pub(crate) const RUNS_GROUPS: Constraint = Constraint {
    property: "groups",
    accepts: "one, or groups of a multiple of 16 channels of f32, 32 of 16 bits",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let channels = weights.lens()[1];
        let fits = conv.groups() == 1 || (channels * weights.data_type().size()).is_multiple_of(64);
        (!fits).then(|| format!("{} groups of {channels} channels", conv.groups()))
    },
};

/// Runs and stages of filters.
pub(crate) const RUNS_ROOM: Constraint = Constraint {
    property: "shared memory",
    accepts: "planes and filters such that 16 channels of what 64 pixels see, 32 of 16 bits, in at most 4 boxes of 240 elements where \
              TMA loads them, fit twice beside filters of two taps, or of two lines of taps of 16 bits",
    check: |problem, device| no_tile(Load::Runs, problem, device),
};

/// Rectangles and stages of filters.
pub(crate) const TRANSPOSED_ROOM: Constraint = Constraint {
    property: "shared memory",
    accepts: "lines of taps such that 32 channels of what a rectangle of 64 pixels sees fit twice beside two lines' of 64 filters",
    check: |problem, device| no_tile(Load::Transposed, problem, device),
};

/// Planes that TMA can address or threads copy, or that bulk copies bring as a whole, results that lie side by side along pixels.
pub(crate) const PLANES_LAYOUT: Constraint = Constraint {
    property: "layout",
    accepts: "channels not innermost in input and output, places of a channel side by side; strides of the input's \
              channels and images multiples of 16 bytes, and no smaller than what lies within, or these strides and \
              planes multiples of 8 bytes, or planes one behind the other, images and all planes of a group multiples \
              of 16 bytes, an even number of them; channels of a filter side by side",
    check: |problem, _| {
        let (_, weights) = problem.conv()?;
        let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
        let planes = [&x, &y].map(|volume| !volume.is_channels_last() && volume.position_stride() == Some(1));
        let rows = w.lens[1] == 1 || w.strides[1] == 1;
        let loaded = is_addressable(&x, x.plane(), &[1, 0]) || is_copyable(&x) || is_packed(&x, w.lens[1]);
        let fits = planes == [true; 2] && rows && loaded;
        (!fits).then(|| format!("{}, filters {weights}, {}", problem.input, problem.output))
    },
};

/// Lines that TMA can address, filters with their taps innermost, results that lie side by side along pixels.
pub(crate) const LINES_LAYOUT: Constraint = Constraint {
    property: "layout",
    accepts: "columns of the input innermost, its other strides multiples of 16 bytes, and no smaller than what lies \
              within, in the order H, C, N; places of an output's channel side by side; packed filters, channels \
              before taps",
    check: |problem, _| {
        let (_, weights) = problem.conv()?;
        let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
        let lines = x.lens[4] == 1 || x.strides[4] == 1;
        let packed = has_taps_innermost(&w);
        let along = !y.is_channels_last() && y.position_stride() == Some(1);
        let fits = lines && packed && along && is_addressable(&x, x.lens[4], &[3, 1, 0]);
        (!fits).then(|| format!("{}, filters {weights}, {}", problem.input, problem.output))
    },
};

/// What a problem that meets the other constraints has no tile for.
fn no_tile(load: Load, problem: &Problem, device: &DeviceInfo) -> Option<String> {
    let (_, weights) = problem.conv()?;
    has_no_tile(load, problem, device).then(|| format!("{}, filters {weights}", problem.input))
}

fn has_no_tile(load: Load, problem: &Problem, device: &DeviceInfo) -> bool {
    least(load, problem, device).is_infinite()
}

/// Filters that TMA loads, or that stay in shared memory.
pub(crate) const PLANES_ROOM: Constraint = Constraint {
    property: "shared memory",
    accepts: "filters at multiples of 16 bytes, or such that 64 fit beside pixels; of planes that are no multiples of 8 bytes \
              the former, and as many planes as a step has channels, of the images that 64 pixels are of, three times",
    check: |problem, device| no_tile(Load::Planes, problem, device),
};

/// Lines, and stages of filters or those that stay in shared memory.
pub(crate) const LINES_ROOM: Constraint = Constraint {
    property: "shared memory",
    accepts: "lines of at most 64 columns, or of at most 256 in blocks of 16, and a column of taps of 64 filters, in 16 \
              channels, that fits beside them three times; no fewer columns than the output's",
    check: |problem, device| no_tile(Load::Lines, problem, device),
};

/// Filters whose depth is one aligned row, results that lie side by side along pixels.
pub(crate) const GATHERED_LAYOUT: Constraint = Constraint {
    property: "layout",
    accepts: "channels not innermost in input and output, places of an output's channel side by side; packed \
              filters whose depth is a multiple of 16 bytes, channels before taps",
    check: |problem, _| {
        let (_, weights) = problem.conv()?;
        let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
        let (depth, chunk) = (w.lens[1] * w.plane(), 16 / weights.data_type().size());
        let packed = has_taps_innermost(&w);
        let pitch = if w.lens[0] > 1 { w.strides[0] } else { depth };
        let rows = packed && pitch >= depth && pitch.is_multiple_of(chunk) && depth.is_multiple_of(chunk);
        let along = !x.is_channels_last() && !y.is_channels_last() && y.position_stride() == Some(1);
        (!rows || !along).then(|| format!("{}, filters {weights}, {}", problem.input, problem.output))
    },
};

/// Taps that have a bit each.
pub(crate) const TAPS: Constraint = Constraint {
    property: "filter",
    accepts: "at most 32 taps",
    check: |problem, _| {
        let taps = Volume::of(problem.conv()?.1).plane();
        (taps > 32).then(|| taps.to_string())
    },
};

//! What TMA can address, and what registers and shared memory have room for.

use fuseplan_api::Constraint;
use fuseplan_gpu::{Volume, channel_values, spatial};

/// The only architecture with these instructions.
pub(crate) const ARCHITECTURE: Constraint = Constraint {
    property: "architecture",
    accepts: "sm_90a",
    check: |_, device| (device.arch != "sm_90a").then(|| device.arch.clone()),
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

/// Filters whose depth is one aligned row, results that lie side by side along pixels.
pub(crate) const GATHERED_LAYOUT: Constraint = Constraint {
    property: "layout",
    accepts: "channels not innermost in input and output, places of an output's channel side by side; packed \
              filters whose depth is a multiple of 16 bytes, channels before taps",
    check: |problem, _| {
        let (_, weights) = problem.conv()?;
        let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
        let (depth, chunk) = (w.lens[1] * w.plane(), 16 / weights.data_type().size());
        let packed = w.position_stride() == Some(1) && (w.lens[1] == 1 || w.strides[1] == w.plane());
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

//! What the copy engine can address, and what is worth it.

use fuseplan_api::Constraint;
use fuseplan_gpu::{Volume, channel_values, image_run, spatial};

/// The only architecture with these instructions.
pub(crate) const ARCHITECTURE: Constraint = Constraint {
    property: "architecture",
    accepts: "sm_90a",
    check: |_, device| (device.arch != "sm_90a").then(|| device.arch.clone()),
};

/// What a block keeps of its channels in shared memory.
pub(crate) const CHANNEL_VALUES: Constraint = Constraint {
    property: "parameters of a channel",
    accepts: "at most 16 numbers: a bias is one, a batch-norm three",
    check: |problem, _| {
        let values = channel_values(problem);
        (values > 16).then(|| values.to_string())
    },
};

/// Filters enough to be worth a matrix product.
pub(crate) const FILTERS: Constraint = Constraint {
    property: "convolution",
    accepts: "at least 16 filters a group",
    check: |problem, _| {
        let Some((conv, weights)) = problem.conv() else { return Some("none".into()) };
        let filters = weights.lens()[0] / conv.groups();
        (filters < 16).then(|| format!("{filters} filters a group"))
    },
};

/// Tensors that the copy engine can address.
pub(crate) const LAYOUT: Constraint = Constraint {
    property: "layout",
    accepts: "channels innermost in input, filters and output; in input and filters all other strides \
              multiples of 8 elements, and no smaller than what lies within, in the order W, H, D, N",
    check: |problem, _| {
        let (_, weights) = problem.conv()?;
        let addressable = |volume: &Volume| {
            let mut least = volume.lens[1];
            (volume.lens[1] == 1 || volume.strides[1] == 1)
                && [4, 3, 2, 0].into_iter().filter(|&d| volume.lens[d] > 1).all(|d| {
                    let fits = volume.strides[d] >= least && volume.strides[d].is_multiple_of(8);
                    least = volume.strides[d] * volume.lens[d];
                    fits
                })
        };
        let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
        let fits = addressable(&x) && addressable(&w) && y.is_channels_last();
        (!fits).then(|| format!("{}, filters {weights}, {}", problem.input, problem.output))
    },
};

/// A step along the depth stays within its group.
pub(crate) const GROUPS: Constraint = Constraint {
    property: "groups",
    accepts: "one, or groups of a multiple of 16 channels",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let channels = weights.lens()[1];
        let fits = conv.groups() == 1 || channels.is_multiple_of(16);
        (!fits).then(|| format!("{} groups of {channels} channels", conv.groups()))
    },
};

/// The numbers that the copy engine has room for.
pub(crate) const REACH: Constraint = Constraint {
    property: "filter",
    accepts: "strides of at most 8; padding, and what the filter reaches beyond it, of at most 127 elements (15 in \
              3-D); at most 255 elements (31) between a filter's first and last tap",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let taps = Volume::of(weights).lens;
        let [pads, strides, dilations] = [(conv.pads(), 0), (conv.strides(), 1), (conv.dilations(), 1)]
            .map(|(list, rest)| spatial(list, rest));
        let (corner, offset) = if conv.spatial_dims() == 3 { (15, 31) } else { (127, 255) };
        let fits = (0..3).all(|d| {
            let reach = (taps[2 + d] - 1) * dilations[d];
            strides[d] <= 8 && pads[d] <= corner && reach <= pads[d] + corner && reach <= offset
        });
        (!fits).then(|| format!("{conv}, filters {weights}"))
    },
};

/// Filters and depth enough to be worth a matrix product of gathered pixels.
pub(crate) const SIZE: Constraint = Constraint {
    property: "convolution",
    accepts: "at least 32 filters a group and a depth (channels of a group times taps) of at least 48",
    check: |problem, _| {
        let Some((conv, weights)) = problem.conv() else { return Some("none".into()) };
        let w = Volume::of(weights);
        let (filters, depth) = (w.lens[0] / conv.groups(), w.lens[1] * w.plane());
        (filters < 32 || depth < 48).then(|| format!("{filters} filters a group, depth {depth}"))
    },
};

/// Filters enough to be worth gathering elements, where `conv_mma` reads 8 pixels at once: with fewer it takes 0.8 to
/// 0.9 of the time on an H200.
pub(crate) const RUNS: Constraint = Constraint {
    property: "convolution",
    accepts: "of images that are read 8 pixels at once (1x1, without padding and strides): more than 64 filters a \
              group, or a depth of at most 64",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let (filters, depth) = (weights.lens()[0] / conv.groups(), weights.lens()[1]);
        let narrow = filters <= 64 && depth > 64 && image_run(problem) == 8;
        narrow.then(|| format!("{filters} filters a group, depth {depth}"))
    },
};

/// Filters whose depth is one aligned row, results that lie side by side along pixels.
pub(crate) const GATHERED_LAYOUT: Constraint = Constraint {
    property: "layout",
    accepts: "channels not innermost in input and output, places of an output's channel side by side; packed \
              filters of a multiple of 8 elements, channels before taps",
    check: |problem, _| {
        let (_, weights) = problem.conv()?;
        let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
        let depth = w.lens[1] * w.plane();
        let packed = w.place_stride() == Some(1) && (w.lens[1] == 1 || w.strides[1] == w.plane());
        let pitch = if w.lens[0] > 1 { w.strides[0] } else { depth };
        let rows = packed && pitch >= depth && pitch.is_multiple_of(8) && depth.is_multiple_of(8);
        let along = !x.is_channels_last() && !y.is_channels_last() && y.place_stride() == Some(1);
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

//! What `wgmma` is preferred for.

use fuseplan_api::Preference;
use fuseplan_gpu::{Volume, image_run};

/// Filters enough to be worth a matrix product.
pub(crate) const FILTERS: Preference = Preference {
    property: "convolution",
    prefers: "at least 16 filters a group",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let filters = weights.lens()[0] / conv.groups();
        (filters < 16).then(|| format!("{filters} filters a group"))
    },
};

/// Filters and depth enough to be worth a matrix product of gathered pixels.
pub(crate) const SIZE: Preference = Preference {
    property: "convolution",
    prefers: "at least 32 filters a group and a depth (channels of a group times taps) of at least 48",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let w = Volume::of(weights);
        let (filters, depth) = (w.lens[0] / conv.groups(), w.lens[1] * w.plane());
        (filters < 32 || depth < 48).then(|| format!("{filters} filters a group, depth {depth}"))
    },
};

/// Filters enough to be worth gathering elements, where `conv_mma` reads 8 pixels at once: with fewer it takes 0.8 to
/// 0.9 of the time on an H200.
pub(crate) const RUNS: Preference = Preference {
    property: "convolution",
    prefers: "of images that are read 8 pixels at once (1x1, without padding and strides): more than 64 filters a \
              group, or a depth of at most 64",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let (filters, depth) = (weights.lens()[0] / conv.groups(), weights.lens()[1]);
        let narrow = filters <= 64 && depth > 64 && image_run(problem) == 8;
        narrow.then(|| format!("{filters} filters a group, depth {depth}"))
    },
};

//! What solvers of convolutions are good at.

use fuseplan_api::volume::Volume;
use fuseplan_api::{DataType, Preference};

/// Products enough to be worth a tile of a matrix product, most of which may be empty.
pub const GEMM: Preference = Preference {
    property: "convolution",
    prefers: "at least 128 products of a group for a pixel (filters times channels of a group times taps)",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let weights = Volume::of(weights);
        let (filters, depth) = (weights.lens[0] / conv.groups(), weights.lens[1..].iter().product::<usize>());
        (filters.saturating_mul(depth) < 128).then(|| format!("{filters} filters a group, depth {depth}"))
    },
};

/// Pixels so few that products of a matrix and vectors are fastest. Of 159 convolutions on an H200 the team that is chosen takes, in the mean, 0.38 to 0.62 of the time of
/// what else computes them in f32 with up to 8 pixels (1.09 at worst) and 0.65 to 0.93 with 12 and 16 (1.14), in f16 0.67 to 0.78 with one and
/// two (0.94) and 0.80 to 0.87 with four that see much (1.04). With four that see up to 240 elements it is 0.95 (1.39).
pub const FEW_PIXELS: Preference = Preference {
    property: "convolution",
    prefers: "at most 16 pixels of all images together in f32; in 16 bits at most 2, or at most 4 that see at least 256 elements each",
    check: |problem, _| {
        let (_, weights) = problem.conv()?;
        let pixels = Volume::of(&problem.output).pixels();
        let depth: usize = weights.lens()[1..].iter().product();
        let few = match problem.output.data_type() {
            DataType::Float => pixels <= 16,
            _ => pixels <= 2 || (pixels <= 4 && depth >= 256),
        };
        (!few).then(|| format!("{pixels} pixels that see {depth} elements each"))
    },
};

/// Filters too few for the tiles of a matrix product in f32.
pub const FEW_FILTERS: Preference = Preference {
    property: "convolution",
    prefers: "at most 32 filters a group",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let filters = weights.lens()[0] / conv.groups();
        (filters > 32).then(|| format!("{filters} filters a group"))
    },
};

/// Filters or groups too narrow for the tiles of matrix units.
pub const NARROW: Preference = Preference {
    property: "convolution",
    prefers: "fewer than 16 filters a group, or two or more groups of at most 24 filters",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let (groups, filters) = (conv.groups(), weights.lens()[0] / conv.groups());
        let narrow = filters < 16 || (groups > 1 && filters <= 24);
        (!narrow).then(|| format!("{groups} groups of {filters} filters"))
    },
};

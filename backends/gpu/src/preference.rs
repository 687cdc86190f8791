//! What solvers of convolutions are good at.

use fuseplan_api::Preference;

use fuseplan_api::volume::Volume;

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

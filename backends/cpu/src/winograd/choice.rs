//! How large tiles are, and how Winograd's convolution comes to be chosen.

use std::fmt;

use fuseplan_api::{Accuracy, Candidate, Configuration, DeviceInfo, Estimate, Preference, Problem};

/// The size of the output's tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Two,
    Four,
}

impl Size {
    /// The size that a configuration of [`configurations`] names.
    pub(super) fn of(configuration: &Configuration) -> Self {
        if configuration.is_of(&Size::Two) { Size::Two } else { Size::Four }
    }

    /// Extent of a tile.
    pub(super) fn out(self) -> usize {
        match self {
            Size::Two => 2,
            Size::Four => 4,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Size::Two => "F(2x2)",
            Size::Four => "F(4x4)",
        })
    }
}

/// What a convolution costs, in multiply-adds of a vector of output channels. The constants were fitted to times on AVX2 of
/// the layers of the field list's half that choices are fitted to and of smaller and narrower ones; filters count as read
/// from memory, where a network's layers find theirs.
struct Model {
    /// Vectors of a group's input and output channels.
    inputs: f64,
    outputs: f64,
    /// Input channels of a group.
    depth: f64,
    groups: f64,
    images: usize,
    extent: [usize; 2],
}

/// A vector of filters that is read, at a tap or at a point.
const FILTER: f64 = 6.0;

impl Model {
    fn of(problem: &Problem, device: &DeviceInfo) -> Option<Self> {
        let (conv, weights) = problem.conv()?;
        let &[images, _, height, width] = problem.output.lens() else { return None };
        let vectors = |channels: usize| channels.div_ceil(device.lanes as usize) as f64;
        Some(Model {
            inputs: vectors(weights.lens()[1]),
            outputs: vectors(weights.lens()[0] / conv.groups()),
            depth: weights.lens()[1] as f64,
            groups: conv.groups() as f64,
            images,
            extent: [height, width],
        })
    }

    /// Of Winograd's convolution: its products, a vector of a tile's input and of its output at a point, filters.
    fn winograd(&self, size: Size) -> f64 {
        let points = ((size.out() + 2) * (size.out() + 2)) as f64;
        let tiles: usize = self.extent.iter().map(|extent| extent.div_ceil(size.out())).product();
        let tiles = (self.images * tiles) as f64 * points;
        let transforms = tiles * 13.5 * (self.inputs + self.outputs);
        self.groups * (0.93 * tiles * self.depth * self.outputs + transforms + self.filters(points))
    }

    fn filters(&self, values: f64) -> f64 {
        FILTER * values * self.depth * self.outputs
    }
}

/// The sizes, the one that costs less first.
pub(super) fn configurations(problem: &Problem, device: &DeviceInfo) -> Vec<Candidate> {
    let model = Model::of(problem, device);
    let candidate = |size: Size| Candidate {
        configuration: Configuration::new(size.to_string()),
        estimate: Estimate::Cost {
            cost: model.as_ref().map_or(f64::INFINITY, |model| model.winograd(size)),
            unit: "multiply-adds of a vector",
            model: "tiles and transforms",
        },
        accuracy: Accuracy::Transformed,
    };
    let mut candidates = vec![candidate(Size::Four), candidate(Size::Two)];
    candidates.sort_by(|a, b| a.estimate.cost().total_cmp(&b.estimate.cost()));
    candidates
}

/// The model was fitted on one kind of processor, for constant filters, and says nothing of threads. Times are known where
/// find mode takes them.
pub(super) const BY_TIMES: Preference = Preference {
    property: "choice",
    prefers: "find mode, which times it, or the solver's name",
    check: |_, _| Some("the order of solvers".into()),
};

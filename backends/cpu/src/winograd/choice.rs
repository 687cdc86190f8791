//! How large tiles are, and where Winograd's convolution is preferred.

use std::fmt;

use fuseplan_api::{Accuracy, Candidate, Configuration, DeviceInfo, Estimate, Preference, Problem};

/// The size of the output's tiles, and of the filter where that is not 3x3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Two,
    Four,
    TwoOf5,
}

impl Size {
    const ALL: [Size; 3] = [Size::Four, Size::Two, Size::TwoOf5];

    /// The size that a configuration of [`configurations`] names.
    pub(super) fn of(configuration: &Configuration) -> Self {
        Size::ALL.into_iter().find(|size| configuration.is_of(size)).unwrap_or(Size::Four)
    }

    /// Extent of a tile.
    pub(super) fn out(self) -> usize {
        match self {
            Size::Two | Size::TwoOf5 => 2,
            Size::Four => 4,
        }
    }

    /// Extent of the filter.
    fn taps(self) -> usize {
        match self {
            Size::Two | Size::Four => 3,
            Size::TwoOf5 => 5,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Size::Two => "F(2x2)",
            Size::Four => "F(4x4)",
            Size::TwoOf5 => "F(2x2, 5x5)",
        })
    }
}

/// What a convolution costs, in multiply-adds of a vector of output channels. The constants were fitted to times of both
/// solvers on AVX2, with one thread, of the layers of the field list's half that choices are fitted to and of smaller and
/// narrower ones; filters count as read from memory, where a network's layers find theirs.
struct Model {
    /// Vectors of a group's input and output channels.
    inputs: f64,
    outputs: f64,
    /// Input channels of a group.
    depth: f64,
    groups: f64,
    images: usize,
    extent: [usize; 2],
    /// Extent of the filter.
    taps: usize,
    /// Lines of taps that lie in the image, summed over the lines of an output: direct convolution leaves out the others.
    lines: usize,
}

/// A vector of filters that is read, at a tap or at a point.
const FILTER: f64 = 6.0;

impl Model {
    fn of(problem: &Problem, device: &DeviceInfo) -> Option<Self> {
        let (conv, weights) = problem.conv()?;
        let &[images, _, height, width] = problem.output.lens() else { return None };
        let (before, lines) = (conv.pads_before()[0], problem.input.lens()[2]);
        let taps = weights.lens()[2];
        let inside = |tap: usize| {
            height.min((before + lines).saturating_sub(tap)).saturating_sub(before.saturating_sub(tap))
        };
        let vectors = |channels: usize| channels.div_ceil(device.lanes as usize) as f64;
        Some(Model {
            inputs: vectors(weights.lens()[1]),
            outputs: vectors(weights.lens()[0] / conv.groups()),
            depth: weights.lens()[1] as f64,
            groups: conv.groups() as f64,
            images,
            extent: [height, width],
            taps,
            lines: (0..taps).map(inside).sum(),
        })
    }

    /// Of Winograd's convolution: its products, a vector of a tile's input and of its output at a point, filters.
    fn winograd(&self, size: Size) -> f64 {
        let points = (size.out() + size.taps() - 1).pow(2) as f64;
        let tiles: usize = self.extent.iter().map(|extent| extent.div_ceil(size.out())).product();
        let tiles = (self.images * tiles) as f64 * points;
        let transforms = tiles * 13.5 * (self.inputs + self.outputs);
        self.groups * (0.93 * tiles * self.depth * self.outputs + transforms + self.filters(points))
    }

    /// Of direct convolution: its products, a vector of a pixel's input and of its output, filters. One of its products costs
    /// less than Winograd's, whose sums are short.
    fn direct(&self) -> f64 {
        let [height, width] = self.extent;
        let row = (self.images * width) as f64;
        let packs = row * height as f64 * (15.0 * self.inputs + 7.0 * self.outputs);
        let products = 0.8 * (self.taps * self.lines) as f64 * row * self.depth * self.outputs;
        self.groups * (products + packs + 0.8 * self.filters((self.taps * self.taps) as f64))
    }

    fn filters(&self, values: f64) -> f64 {
        FILTER * values * self.depth * self.outputs
    }
}

/// The sizes for a problem's filter.
fn sizes(problem: &Problem) -> impl Iterator<Item = Size> {
    let taps = problem.conv().map(|(_, weights)| weights.lens()[2]);
    Size::ALL.into_iter().filter(move |size| taps == Some(size.taps()))
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
    Candidate::cheapest_first(sizes(problem).map(candidate).collect())
}

/// Winograd's convolution costs so much less by the model where it is no slower for filters that may change, which are
/// transformed at every execution, if only a little faster for small images.
const CLEARLY_LESS: f64 = 0.9;

pub(super) const FEWER_PRODUCTS: Preference = Preference {
    property: "cost",
    prefers: "less than direct convolution's by the model of tiles and transforms",
    check: |problem, device| {
        let ratio = cost_over_direct(problem, device)?;
        (ratio >= 1.0).then(|| format!("{ratio:.2} of it"))
    },
};

/// Whether the solver is preferred only if filters are constant.
pub(super) fn wants_constant_filters(problem: &Problem, device: &DeviceInfo) -> bool {
    cost_over_direct(problem, device).is_some_and(|ratio| ratio > CLEARLY_LESS && ratio < 1.0)
}

/// The cost of a convolution that the solver takes over direct convolution's.
pub(super) fn cost_over_direct(problem: &Problem, device: &DeviceInfo) -> Option<f64> {
    let model = Model::of(problem, device)?;
    let least = sizes(problem).map(|size| model.winograd(size)).min_by(f64::total_cmp)?;
    Some(least / model.direct())
}

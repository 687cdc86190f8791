//! Where instructions that multiply bf16 are preferred.

use fuseplan_api::{Accuracy, DeviceInfo, Preference, Problem};

use super::LINE;
use super::plan::{Limits, Plan};
use super::product::{DEPTH, SIDE, Unit};
use super::split::Split;
use crate::direct::geometry::{Geometry, Lines};
use crate::epilogue::{Epilogue, Lanes};
use crate::isa::Isa;
use crate::winograd;

/// What a convolution costs, in cycles of one thread. The constants were fitted by hand to times of both solvers on one processor
/// with AMX: of bf16 over the layers of the comparison with oneDNN, of sums of parts over ResNet-50's and MobileNetV2's layers
/// where they stand in the network, with filters that come from memory. They hold for vectors that multiply bf16 as well, on a processor
/// whose vectors of 512 bits take two cycles each, if those are what is counted.
struct Model {
    geometry: Geometry,
    plan: Plan,
    /// Whether channels of the input and of the output are neighbours.
    input_last: bool,
    output_last: bool,
    /// Whether an operand as large as the output is added.
    residual: bool,
}

/// Cycles of the unit for a tile's products with a pixel, with what loads of tiles take beyond that: of bf16, and of parts, which
/// with one tap are read from the second-level cache each time.
const PRODUCT: f64 = 1.0 / 0.63;
const PRODUCT_OF_PARTS: f64 = 1.0 / 0.6;
const PRODUCT_OF_POINTS: f64 = 1.0 / 0.48;

/// What a pixel's vector of output channels takes longer where products are of three parts, and with a residual, which direct convolution
/// adds before sums leave their registers.
const FINISH_OF_PARTS: f64 = 3.0;
const RESIDUAL_OF_PARTS: f64 = 10.0;

/// Of a vector's products with a pixel's pair of channels, and how many sums hide an instruction's latency.
const PAIR: f64 = MULTIPLY_ADD / 0.95;
const SUMS: f64 = 6.0;

/// Bytes of a panel of filters that does not stay in the second-level cache, and how many times the others' time its filters take.
const LARGE_PANEL: usize = 700 * 1024;
const READ_AGAIN: f64 = 4.0;

/// Bytes of filters that come from memory in a cycle: both ask for them ahead; the unit's are read beside its own tiles.
const FILTERS_OF_UNIT: f64 = 5.2;
const FILTERS_OF_DIRECT: f64 = 10.0;

/// Cycles of direct convolution for a vector of multiply-adds, pixels of its largest tile, and how many pixels a tile's loads cost.
const MULTIPLY_ADD: f64 = 0.5;
const TILE: usize = 14;
const LOADS: f64 = 4.0;

impl Model {
    fn of(problem: &Problem, unit: Unit) -> Self {
        let mut epilogue = Epilogue::new(problem, Isa::Portable);
        let geometry = Geometry::new(problem, &mut epilogue, Lines::of(LINE));
        let plan = Plan::new(&geometry, Split::of(problem.output.data_type()), unit, 1, Limits::USUAL);
        let input_last = geometry.input.strides[1] == 1;
        let output_last = plan.lanes == Lanes::Channels;
        let residual = problem.ops.iter().any(|op| op.is_residual());
        Model { geometry, plan, input_last, output_last, residual }
    }

    /// Outputs' pixels.
    fn pixels(&self) -> f64 {
        let g = &self.geometry;
        let [images, _, slices, lines, _] = g.output.lens;
        let columns: usize = (0..lines).map(|line| g.width(line)).sum();
        (images * slices * columns) as f64
    }

    /// Vectors of a group's output channels.
    fn vectors(&self) -> f64 {
        self.geometry.outputs.div_ceil(SIDE) as f64
    }

    /// Of a pixel's vector of output channels behind the sums.
    fn finish(&self) -> f64 {
        if self.output_last { 5.0 } else { 9.0 }
    }

    /// Of the unit: products, packed pixels, outputs, filters from memory.
    fn cost(&self, unit: Unit) -> f64 {
        let Model { geometry: g, plan, .. } = self;
        let steps = (plan.depth / DEPTH) as f64;
        let taps = (plan.taps.len() * g.filters.taps[0]) as f64;
        let products = self.vectors()
            * taps
            * match unit {
                Unit::Matrix => self.rows() * steps * plan.split.products() as f64 * self.product(),
                Unit::Vector => self.pixels() * plan.channels.div_ceil(2) as f64 * PAIR * self.waits(),
            };
        let packed = self.runs() * (plan.image_len() / plan.pitch) as f64;
        let step = match (plan.split.parts, self.input_last && !plan.merges, unit) {
            _ if plan.in_place => 0.0,
            (1, true, _) => 4.0,
            (1, false, Unit::Matrix) => 28.0,
            (1, false, Unit::Vector) => 14.0,
            (2, true, _) => 22.0,
            (2, false, _) => 44.0,
            (_, true, _) => 34.0,
            (_, false, _) => 56.0,
        };
        let panel = plan.filters / g.groups / plan.panels_per_group * size_of::<u16>();
        let again = if panel > LARGE_PANEL { READ_AGAIN } else { 1.0 };
        let filters = (panel * plan.panels_per_group) as f64 * again
            / match unit {
                Unit::Matrix => FILTERS_OF_UNIT,
                Unit::Vector => FILTERS_OF_DIRECT,
            };
        let of_parts = match (plan.split.parts, self.residual) {
            (1 | 2, _) => 0.0,
            (_, false) => FINISH_OF_PARTS,
            (_, true) => FINISH_OF_PARTS + RESIDUAL_OF_PARTS,
        };
        let finish = self.pixels() * self.vectors() * (self.finish() + of_parts);
        let group = products + packed * steps * step + finish + filters;
        g.groups as f64 * group
    }

    /// How many times as long a vector's products take where there are fewer sums than hide their latency.
    fn waits(&self) -> f64 {
        let pixels =
            if self.plan.columns > self.plan.span { self.plan.span } else { self.plan.band * self.plan.span };
        (SUMS / (self.vectors().min(2.0) * pixels as f64)).max(1.0)
    }

    /// Bands, with all their spans.
    fn runs(&self) -> f64 {
        let [images, _, slices, ..] = self.geometry.output.lens;
        (images * slices * self.plan.bands * self.plan.spans) as f64
    }

    /// Rows of the matrix unit's tiles.
    fn rows(&self) -> f64 {
        let plan = &self.plan;
        let runs = self.runs();
        let rows = ((plan.band - 1) * plan.columns + plan.span).next_multiple_of(SIDE) as f64;
        // Bands, of which the last may be smaller, are cut from lines that may be, too.
        (runs * rows).min(self.pixels() * plan.columns as f64 / plan.span as f64 + runs * SIDE as f64)
    }

    /// Of a tile's products with a pixel.
    fn product(&self) -> f64 {
        match (self.plan.split.parts, self.plan.taps.len()) {
            (1, _) => PRODUCT,
            (_, 1) => PRODUCT_OF_POINTS,
            _ => PRODUCT_OF_PARTS,
        }
    }

    /// How many times as long direct convolution's multiply-adds take for what tiles load.
    fn loads(&self) -> f64 {
        let g = &self.geometry;
        let columns = g.output.lens[4];
        let is_cut = g.filters.tap_count() == 1 && g.strides == [1; 3];
        let tile = if is_cut { TILE as f64 } else { columns as f64 / columns.div_ceil(TILE) as f64 };
        (tile + LOADS) / tile
    }

    /// Of direct convolution, or its relative with pixels in the lanes: products, packed pixels, outputs, filters. `loads` is what a
    /// multiply-add takes longer for what its tile loads.
    fn direct(&self, loads: f64) -> f64 {
        let g = &self.geometry;
        let taps = g.filters.tap_count();
        let is_point = taps == 1;
        let products = (taps * g.inputs) as f64 * self.vectors() * MULTIPLY_ADD * loads;
        let pack = if self.input_last || is_point { 2.5 } else { 9.0 };
        let finish = if is_point { 5.0 } else { self.finish() };
        let pixel = products + pack * (g.inputs as f64 / SIDE as f64) + finish * self.vectors();
        let filters = (taps * g.inputs * g.outputs * size_of::<f32>()) as f64 / FILTERS_OF_DIRECT;
        g.groups as f64 * (self.pixels() * pixel + filters)
    }
}

/// The part of direct convolution's cost below which the unit is preferred.
const LESS_THAN_DIRECT: f64 = 0.97;

pub(super) const LESS: Preference =
    Preference { check: |problem, device| costs_more(problem, device, Unit::Matrix), ..LESS_BY_VECTORS };

pub(super) const LESS_BY_VECTORS: Preference = Preference {
    property: "cost",
    prefers: "less than direct convolution's by the model of tiles, and no more than Winograd's",
    check: |problem, device| costs_more(problem, device, Unit::Vector),
};

pub(crate) const NO_MATRIX_UNIT: Preference = Preference {
    property: "instructions",
    prefers: "processors without a matrix unit",
    check: |_, device| super::has_matrix_unit(device).then(|| device.arch.clone()),
};

/// What speaks against a unit.
fn costs_more(problem: &Problem, device: &DeviceInfo, unit: Unit) -> Option<String> {
    let model = Model::of(problem, unit);
    let ratio = |loads| model.cost(unit) / model.direct(loads);
    let over_direct = ratio(model.loads());
    // Vectors that multiply bf16 load as much for a tile as direct convolution does. Winograd's model leaves that out of direct
    // convolution's cost, and so does what is compared with it.
    let beside = match unit {
        Unit::Matrix => over_direct,
        Unit::Vector => ratio(1.0),
    };
    if over_direct > LESS_THAN_DIRECT {
        return Some(format!("{over_direct:.2} of direct convolution's"));
    }
    let winograd = winograd(problem, device).filter(|winograd| beside > *winograd)?;
    Some(format!("{beside:.2} of direct convolution's, Winograd's {winograd:.2}"))
}

/// The cost of Winograd's convolution over direct convolution's, where the plan allows it.
fn winograd(problem: &Problem, device: &DeviceInfo) -> Option<f64> {
    if problem.math.allows() < Accuracy::Transformed {
        return None;
    }
    winograd::cost_over_direct(problem, device)
}

//! What a choice among solvers is made of: how a problem can be computed, how fast that is expected to be, and how
//! exact it is. Whether a solver can compute a problem at all is a matter of its constraints.

use std::fmt::{self, Write};

use crate::{DeviceInfo, MathMode, Problem};

/// One way in which a solver computes a problem, in the solver's own words: tile, split of the depth, way of loading.
/// A solver with one way has one configuration without a word.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Configuration(String);

impl Configuration {
    /// The configuration with these words.
    pub fn new(words: impl Into<String>) -> Self {
        Configuration(words.into())
    }

    /// The words; none for the one configuration of a solver that has no other.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `value` is printed as this configuration.
    pub fn is_of(&self, value: &impl fmt::Display) -> bool {
        struct Rest<'a>(&'a str);
        impl Write for Rest<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0 = self.0.strip_prefix(text).ok_or(fmt::Error)?;
                Ok(())
            }
        }
        let mut rest = Rest(&self.0);
        write!(rest, "{value}").is_ok() && rest.0.is_empty()
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// How fast a configuration is expected to be, and who says so. Costs of one solver alone can be compared. Times of several
/// can, roughly: each model was fitted by itself and is off by about a quarter, so between solvers the backend's order
/// decides, and a layout is chosen by times only where they differ by more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Estimate {
    /// There is no model: the solver's place in the backend's order is all that is known.
    Order,
    /// A model whose numbers were fitted to timings.
    Time {
        /// The time of an execution.
        seconds: f64,
        /// The model's name.
        model: &'static str,
    },
    /// A model that ranks a solver's configurations in a unit of its own.
    Cost {
        /// The number; a smaller one is preferred.
        cost: f64,
        /// The unit.
        unit: &'static str,
        /// The model's name.
        model: &'static str,
    },
}

impl Estimate {
    /// The number by which configurations of one solver are compared; the smallest is preferred.
    pub fn cost(&self) -> f64 {
        match *self {
            Estimate::Order => 0.0,
            Estimate::Time { seconds, .. } => seconds,
            Estimate::Cost { cost, .. } => cost,
        }
    }
}

/// `12.3 µs by the model of wgmma tiles`, `by order`
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Estimate::Order => f.write_str("by order"),
            Estimate::Time { seconds, model } => write!(f, "{:.1} µs by the model of {model}", seconds * 1e6),
            Estimate::Cost { cost, unit, model } => write!(f, "{cost:.3e} {unit} by the model of {model}"),
        }
    }
}

/// The error class of a kernel's arithmetic, the most exact first. Products are summed in f32 or wider in every class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Accuracy {
    /// Each output is the sum of its own products, of factors as the data type has them.
    Exact,
    /// Factors in f32 are sums of two numbers of TensorFloat-32, of whose products the three largest are summed (3xTF32). What
    /// is not finite reaches the outputs that it is a term of and no others. Factors lose bits below 2^-136.
    Tf32x3,
    /// Factors are sums of neighbours in f32, as in Winograd's convolution at points whose largest error is of the order
    /// of a sum of f32 products. An output's error depends on its neighbourhood: on the largest elements there, and what
    /// is not finite makes NaN of outputs that it is no term of.
    Transformed,
    /// Factors in f32 are rounded to TensorFloat-32.
    Tf32,
}

impl Accuracy {
    /// A bound of a product's relative error, but for its last rounding.
    pub fn product_error(self) -> f64 {
        match self {
            // What is lost is lost in f32's roundings.
            Accuracy::Exact | Accuracy::Transformed => 0.0,
            // Low parts are at most 2^-11 of a factor and lose a bit of f32 each, 2^-23; the product of both is left out.
            Accuracy::Tf32x3 => 2.0 / f64::from(1 << 23) + 1.0 / f64::from(1 << 22),
            // Both factors are rounded to 11 bits: (1 + 2^-11)² - 1.
            Accuracy::Tf32 => 1.0 / 1024.0 + 1.0 / (2048.0 * 2048.0),
        }
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Accuracy::Exact => "exact products",
            Accuracy::Tf32x3 => "3xTF32 products",
            Accuracy::Transformed => "transformed products",
            Accuracy::Tf32 => "TF32 products",
        })
    }
}

impl MathMode {
    /// The least exact class that a plan with this mode allows.
    pub fn allows(self) -> Accuracy {
        match self {
            MathMode::Strict => Accuracy::Exact,
            MathMode::Precise => Accuracy::Transformed,
            MathMode::AllowTf32 => Accuracy::Tf32,
        }
    }
}

/// The items in the order of their numbers, the smallest first; equal ones stay in their order.
pub fn in_order_of<T>(items: Vec<T>, number: impl Fn(&T) -> f64) -> Vec<T> {
    let numbers: Vec<f64> = items.iter().map(number).collect();
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    smallest_first(&numbers).into_iter().filter_map(|at| items[at].take()).collect()
}

/// Where the numbers are, the smallest first; equal ones stay in their order. One function for all that has a number, as sorting is
/// long code.
pub fn smallest_first(numbers: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_unstable_by(|&a, &b| numbers[a].total_cmp(&numbers[b]).then(a.cmp(&b)));
    order
}

/// A configuration with what is known of it before anything is compiled or run.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// How the problem is computed.
    pub configuration: Configuration,
    /// How fast.
    pub estimate: Estimate,
    /// How exactly.
    pub accuracy: Accuracy,
}

impl Candidate {
    /// Those of the smallest estimates first; equal ones stay in their order.
    pub fn cheapest_first(candidates: Vec<Candidate>) -> Vec<Candidate> {
        in_order_of(candidates, |candidate| candidate.estimate.cost())
    }

    /// The candidate of a solver that has one way, no model, and exact products.
    pub fn only() -> Self {
        let configuration = Configuration::default();
        Candidate { configuration, estimate: Estimate::Order, accuracy: Accuracy::Exact }
    }

    /// Whether the candidate is as exact as the problem's plan asks for.
    pub fn is_exact_enough(&self, problem: &Problem) -> bool {
        self.accuracy <= problem.math.allows()
    }
}

/// A condition under which a solver's place in the backend's order is meant. A solver can compute problems that do not
/// meet it; for them it stands behind every solver whose preferences are met.
#[derive(Clone, Copy)]
pub struct Preference {
    /// What it is about: "filters", "depth", …
    pub property: &'static str,
    /// What is preferred, to stand behind the property.
    pub prefers: &'static str,
    /// `None` when the problem is as preferred on the device, else what was found instead.
    pub check: fn(&Problem, &DeviceInfo) -> Option<String>,
}

impl fmt::Debug for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.prefers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_knows_the_value_that_it_names() {
        let configuration = Configuration::new("64x32");
        assert!(configuration.is_of(&format_args!("{}x{}", 64, 32)));
        for other in ["64x3", "64x320", "", "x"] {
            assert!(!configuration.is_of(&other), "{other}");
        }
        assert!(Configuration::default().is_of(&""));
    }

    #[test]
    fn a_class_is_compared_with_what_the_plan_allows() {
        assert!(Accuracy::Exact <= MathMode::Strict.allows());
        assert!(Accuracy::Transformed > MathMode::Strict.allows());
        assert!(Accuracy::Transformed <= MathMode::Precise.allows());
        assert!(
            Accuracy::Tf32x3 > MathMode::Strict.allows() && Accuracy::Tf32x3 <= MathMode::Precise.allows()
        );
        assert!(Accuracy::Tf32 > MathMode::Precise.allows());
        assert!(Accuracy::Tf32 <= MathMode::AllowTf32.allows());
        assert!(Accuracy::Tf32x3.product_error() > Accuracy::Exact.product_error());
        assert!(Accuracy::Tf32.product_error() > Accuracy::Tf32x3.product_error());
    }
}

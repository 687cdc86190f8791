//! A solver's tiles as its configurations.

use std::fmt::Display;

use fuseplan_api::{Configuration, Estimate, smallest_first};

/// The most configurations that a solver lists: those of larger estimates are nobody's choice.
pub const LISTED: usize = 16;

/// The configurations of tiles with what a model says of each, the smallest first. A tile that an enumeration meets
/// more than once is one configuration.
pub fn ranked<T: Display>(
    tiles: impl IntoIterator<Item = (T, f64)>,
    estimate: impl Fn(f64) -> Estimate,
) -> Vec<(Configuration, Estimate)> {
    let tiles: Vec<_> = tiles.into_iter().collect();
    let costs: Vec<_> = tiles.iter().map(|&(_, cost)| cost).collect();
    let mut all: Vec<(Configuration, Estimate)> = Vec::new();
    for (tile, cost) in smallest_first(&costs).into_iter().map(|at| &tiles[at]) {
        if all.len() == LISTED {
            break;
        }
        if all.iter().all(|(configuration, _)| !configuration.is_of(tile)) {
            all.push((Configuration::new(tile.to_string()), estimate(*cost)));
        }
    }
    all
}

/// A model's number as an estimate: microseconds where the model was fitted to timings, else a unit of its own.
pub(crate) fn estimate(model: &'static str, is_fitted: bool) -> impl Fn(f64) -> Estimate + Copy {
    move |cost| match is_fitted {
        true => Estimate::Time { seconds: cost * 1e-6, model },
        false => Estimate::Cost { cost, unit: "of its own", model },
    }
}

/// The tile that a configuration names.
pub fn named<T: Display>(
    tiles: impl IntoIterator<Item = (T, f64)>,
    configuration: &Configuration,
) -> Option<T> {
    tiles.into_iter().map(|(tile, _)| tile).find(|tile| configuration.is_of(tile))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_ranked_by_cost_and_listed_once() {
        let tiles = [(8, 3.0), (4, 1.0), (8, 3.0), (2, 2.0)];
        let cost = |cost| Estimate::Cost { cost, unit: "tiles", model: "a test" };
        let words: Vec<_> = ranked(tiles, cost).into_iter().map(|(words, _)| words.to_string()).collect();
        assert_eq!(words, ["4", "2", "8"]);
        assert_eq!(named(tiles, &Configuration::new("8")), Some(8));
        assert_eq!(named(tiles, &Configuration::new("16")), None);
        assert_eq!(ranked((0..100).map(|tile| (tile, f64::from(tile))), cost).len(), LISTED);
    }
}

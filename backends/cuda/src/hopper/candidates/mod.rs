//! The tiles that a problem may have: every one that a block has room for.

use fuseplan_api::Problem;
use fuseplan_gpu::{Volume, convolution, spatial, units_at_once};

use super::layout::{is_addressable, is_copyable, is_packed};
use super::runs::Sight;
use super::tiling::{Load, Tiling};
use super::work::Work;

mod room;
mod rows_are_filters;
mod rows_are_pixels;

/// Ping-pong sets, cooperative warpgroups of each, atoms of 64 rows of each, blocks of a multiprocessor.
type Schedule = (usize, usize, usize, usize);

/// How many blocks may share a tile.
const SPLITS: [usize; 3] = [2, 4, 8];

/// Bytes of a step's channels that fill three quarters of its rows, where TMA loads channels that are innermost. They are loaded about as slowly
/// as whole rows, but rows of which a part is beyond the channels are slower. The number in `depth_of_rows` takes them where no more steps
/// than of whole rows are needed and those are not full, as with 48 and 144 channels of 16 bits: eight such convolutions of networks take 0.68 to
/// 0.97 of the time on an H200, four to fit to and four others. With 96, or 240 and more channels they are no faster.
const THREE_QUARTERS: usize = 96;

/// The widest tile that one instruction makes.
const FILTERS: usize = 256;

/// The tiles of a problem that meets the solver's constraints, with about how many microseconds each takes on a device of
/// about `units` multiprocessors.
pub(super) fn tilings(load: Load, problem: &Problem, units: usize) -> Vec<(Tiling, f64)> {
    let (conv, _) = convolution(problem);
    let (work, x) = (Work::of(load, problem, units), Volume::of(&problem.input));
    let all = match load {
        Load::Tma | Load::Halo => {
            let mut all = rows_are_pixels::im2col(&work);
            if !work.tf32x3 && conv.strides().iter().all(|&stride| stride == 1) {
                let [_, h, w] = spatial(conv.dilations(), 1);
                all.extend(rows_are_pixels::windows(&work, [w, h]));
            }
            all
        }
        Load::Planes | Load::Packed => {
            let addressable = is_addressable(&x, x.plane(), &[1, 0]);
            let mut all = Vec::new();
            if addressable || is_copyable(&x) {
                all.extend(rows_are_filters::planes(&work, !addressable));
            }
            if !addressable && work.is_aligned && is_packed(&x, work.channels) {
                all.extend(rows_are_pixels::packed(&work));
            }
            all
        }
        Load::Lines => rows_are_filters::lines(&work),
        Load::Runs => {
            let sight = Sight::of(problem);
            sight.map_or(Vec::new(), |sight| rows_are_pixels::runs(&work, &sight))
        }
        Load::Transposed => rows_are_filters::transposed(&work),
        Load::Reordered => rows_are_filters::reordered(&work),
        Load::Gather => rows_are_filters::gathering(&work),
    };
    all.into_iter().map(|tiling| (tiling, work.time(&tiling))).collect()
}

/// Tiles of runs whose filters are brought as they are, by TMA or by threads, if any, with their times: for filters that would be
/// prepared each time.
pub(super) fn with_filter_rows(problem: &Problem, units: usize) -> Vec<(Tiling, f64)> {
    let work = Work::of(Load::Runs, problem, units);
    let all = Sight::of(problem).map_or(Vec::new(), |sight| rows_are_pixels::filter_rows(&work, &sight));
    all.into_iter().map(|tiling| (tiling, work.time(&tiling))).collect()
}

/// That of the least time, if there is any.
pub(super) fn least_with_filter_rows(problem: &Problem, units: usize) -> Option<(Tiling, f64)> {
    with_filter_rows(problem, units).into_iter().min_by(|(_, a), (_, b)| a.total_cmp(b))
}

/// Tilings, and the same tiles shared by several blocks where all blocks have room at once. A block has one of these.
fn with_splits(mut all: Vec<Tiling>, work: &Work) -> Vec<Tiling> {
    for at in 0..all.len() {
        let tiling = all[at];
        let tiles = work.tiles(&tiling);
        // Adding up the blocks' accumulators takes registers.
        let room = tiling.registers_at_launch() >= tiling.accumulators() + 72;
        if tiling.pingpong > 1 || tiling.resident || !room {
            continue;
        }
        for split in SPLITS {
            let slots = units_at_once(work.units, split) * tiling.occupancy;
            if tiles * split <= slots && 2 * split <= work.steps(&tiling) {
                all.extend(Tiling { split, ..tiling }.filled(work));
            }
        }
    }
    all
}

/// Channels of a step: those that leave the least of the last step empty. A step of a group with others
/// beside it must not reach into them, unless it is known where groups end.
fn depth(work: &Work, known: bool) -> usize {
    depth_of_rows(&[128, 64, 32], work, known)
}

/// The same where rows may have as many bytes.
fn depth_of_rows(rows: &[usize], work: &Work, known: bool) -> usize {
    let cost = |depth: &usize| {
        // Wide rows are loaded faster.
        let slow = match depth * work.element {
            128 => 100,
            64 => 110,
            THREE_QUARTERS => 115,
            _ => 135,
        };
        work.channels.next_multiple_of(*depth) * slow
    };
    let fits = |depth: &usize| work.groups == 1 || known || work.channels.is_multiple_of(*depth);
    let depths = rows.iter().map(|row| row / work.element);
    depths.filter(fits).min_by_key(cost).unwrap_or(32 / work.element)
}

impl Tiling {
    /// A tile of a schedule without what only some loads have. It has no stages yet.
    fn new(load: Load, work: &Work, schedule: Schedule, width: usize, depth: usize) -> Tiling {
        let (pingpong, cooperative, atoms, occupancy) = schedule;
        Tiling {
            load,
            producers: 1,
            pingpong,
            cooperative,
            atoms,
            width,
            depth,
            element: work.element,
            stages: 0,
            occupancy,
            resident: false,
            rearranged: false,
            copied: false,
            split: 1,
            tf32x3: work.tf32x3,
            packed: None,
            lines: None,
            transposed: None,
            runs: None,
            window: None,
        }
    }
}

#[cfg(test)]
mod tests;

//! Convolutions as products of the filters' matrix and a vector for each pixel. With few pixels the floor is to read the filters.

use std::fmt;

use fuseplan_api::volume::{Volume, common_power, evenly_apart, spatial};
use fuseplan_api::{Configuration, Constraint, Estimate, Problem};

use crate::configurations::{estimate, ranked};
use crate::constraint::convolution;
use crate::kernel::{COORD, Geometry, Kernel, Text};

/// Least threads of a block.
const THREADS: usize = 128;
/// Most pixels of a tile.
const PIXELS: usize = 8;
/// Most sums of a thread.
const SUMS: usize = 32;
/// Vectors of filters that a thread has on their way.
const LOADS: usize = 8;
/// Most threads of a launch, which HIP counts in 32 bits.
const THREADS_OF_A_LAUNCH: usize = u32::MAX as usize;
/// Filters of teams.
const FILTERS: [usize; 4] = [1, 2, 4, 8];
/// Threads of teams.
const SLICES: [usize; 6] = [8, 16, 32, 64, 128, 256];

/// Threads that share filters: each sums a slice of the depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Team {
    filters: usize,
    slices: usize,
}

impl Team {
    /// Threads of a block.
    fn threads(&self) -> usize {
        self.slices.max(THREADS)
    }

    /// Filters of a block.
    fn filters_of_block(&self) -> usize {
        self.threads() / self.slices * self.filters
    }
}

/// `4 filters, 64 slices`.
impl fmt::Display for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} filters, {} slices", self.filters, self.slices)
    }
}

constants! {
    /// The constants of `gemv.cuh`.
    struct Constants {
        /// Elements that are read at once.
        chunk: usize,
        depth: usize,
        filters: usize,
        /// Whether a tile has all pixels, so that no block asks which one it has.
        one_tile: bool,
        slices: usize,
        /// Teams of a block.
        teams: usize,
        team_f: usize,
        threads: usize,
        tile_p: usize,
        /// Vectors of a filter that a thread has on their way.
        unroll: usize,
        w_k: usize,
        /// Whether receptive fields begin evenly apart.
        x_linear: bool,
    }
}

/// Receptive fields that lie as filters do, so that both are read alike.
pub(crate) const AS_FILTERS: Constraint = Constraint {
    property: "receptive field",
    accepts: "lies in memory as a filter does: channels and taps in the same order, without gaps",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        (!lies_as_filters(problem)).then(|| format!("{} by {weights}, {conv}", problem.input))
    },
};

fn lies_as_filters(problem: &Problem) -> bool {
    let (conv, weights) = convolution(problem);
    let (x, w) = (Volume::of(&problem.input), Volume::of(weights));
    let [d, h, wide] = spatial(conv.dilations(), 1);
    let taps = [0, x.strides[1], d * x.strides[2], h * x.strides[3], wide * x.strides[4]];
    let alike = |order: [usize; 4]| {
        let lens = order.map(|dim| w.lens[dim]);
        [taps, w.strides].iter().all(|strides| evenly_apart(&lens, &order.map(|dim| strides[dim])) == Some(1))
    };
    alike([1, 2, 3, 4]) || alike([2, 3, 4, 1])
}

/// The numbers of a problem that teams are chosen by.
struct Gemv {
    pixels: usize,
    filters: usize,
    depth: usize,
    groups: usize,
    element: usize,
    /// Elements that are read at once.
    chunk: usize,
    /// How far the receptive fields of neighbouring pixels begin apart, along each spatial dimension.
    steps: [usize; 3],
}

impl Gemv {
    fn of(problem: &Problem) -> Self {
        let (conv, weights) = convolution(problem);
        let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
        let (element, groups) = (problem.output.data_type().size(), conv.groups());
        let depth = w.lens[1..].iter().product();
        let strides = spatial(conv.strides(), 1);
        let steps = [0, 1, 2].map(|dim| strides[dim] * x.strides[2 + dim]);
        let used = [(w.lens[0], w.strides[0]), (groups, w.lens[1] * x.strides[1]), (x.lens[0], x.strides[0])];
        let used = used.into_iter().chain((0..3).map(|dim| (y.lens[2 + dim], steps[dim])));
        let strides = used.filter(|(len, _)| *len > 1).map(|(_, stride)| stride);
        let chunk = strides.fold(common_power(16 / element, depth), common_power);
        Gemv { pixels: y.pixels(), filters: w.lens[0] / groups, depth, groups, element, chunk, steps }
    }

    /// Tiles of all pixels.
    fn tiles(&self) -> usize {
        self.pixels.div_ceil(PIXELS)
    }

    /// Pixels of a tile: as even as possible.
    fn tile(&self) -> usize {
        self.pixels.div_ceil(self.tiles())
    }

    /// Vectors of a filter that a thread reads, and how many of them are on their way at once: as many each time.
    fn vectors(&self, team: &Team) -> (usize, usize) {
        let vectors = self.depth.div_ceil(team.slices * self.chunk);
        let times = vectors.div_ceil(LOADS / team.filters);
        (vectors, vectors.div_ceil(times))
    }

    fn blocks(&self, team: &Team) -> usize {
        self.tiles() * self.filters.div_ceil(team.filters_of_block())
    }

    /// Threads of a multiprocessor at once. Of 16 bits they follow from a thread's registers, which hold vectors of filters and pixels on
    /// their way, sums, and where filters begin, as the compiler for sm_90a was seen to allocate them. Of f32, and of devices whose times are
    /// not known, about 1,024 whatever the team.
    fn threads_at_once(&self, team: &Team, is_fitted: bool) -> usize {
        const REGISTERS: usize = 65536;
        if self.element > 2 || !is_fitted {
            return 1024;
        }
        let ((_, ahead), tile) = (self.vectors(team), self.tile());
        let pixels = if ahead * tile <= LOADS { ahead * tile } else { tile };
        let words = (self.chunk * self.element).div_ceil(4) * (ahead * team.filters + pixels);
        let registers = (words + team.filters * (tile + 2) + 10).next_multiple_of(8).max(32);
        (REGISTERS / (registers * team.threads())).max(1) * team.threads()
    }

    /// Teams of whose threads at least half have a vector, and that of the fewest.
    fn teams(&self) -> impl Iterator<Item = Team> {
        let all =
            FILTERS.iter().flat_map(|&filters| SLICES.iter().map(move |&slices| Team { filters, slices }));
        let suits = move |team: &Team| {
            team.filters * self.tile() <= SUMS
                && team.filters < 2 * self.filters
                && (team.slices == SLICES[0] || team.slices * self.chunk < 2 * self.depth)
                && self.blocks(team) * team.threads() <= THREADS_OF_A_LAUNCH
        };
        all.filter(suits)
    }

    /// About how many microseconds a team takes. Fitted to every other one of 248 convolutions of 1 to 16 pixels in f32 and of 1 to 4 in f16 on an
    /// H200, with 1,024 threads of a multiprocessor at once, so that the choice among up to 16 teams is near the fastest: it took 5 % longer in
    /// the mean, 29 % at worst, and of the others 6 and 49 %. Single times are off by a quarter. What a thread reads and adds up by itself, what a
    /// multiprocessor reads, and the filters' bytes hardly overlap.
    fn time(&self, team: &Team, units: usize, is_fitted: bool) -> f64 {
        const LAUNCH: f64 = 0.731;
        /// For each doubling of the slices.
        const MEETING: f64 = 0.04;
        /// A vector, and a sum, of a thread by itself.
        const VECTOR: f64 = 0.069;
        const SUM: f64 = 0.0148;
        /// A vector among those of a multiprocessor.
        const FILLED: f64 = 1.02e-4;
        /// A byte of the filters.
        const BYTE: f64 = 1.79e-7;
        let (vectors, threads, tile) = (self.vectors(team).0, team.threads() as f64, self.tile());
        let read = (vectors * (team.filters + tile)) as f64;
        let busiest = ((self.blocks(team) * self.groups) as f64 / units as f64).ceil();
        let rounds = (busiest * threads / self.threads_at_once(team, is_fitted) as f64).ceil();
        let alone = rounds * (VECTOR * read + SUM * (team.filters * tile) as f64);
        let bytes = (self.filters * self.groups * self.depth * self.element) as f64;
        LAUNCH
            + MEETING * (team.slices as f64).log2()
            + alone
            + FILLED * busiest * threads * read
            + BYTE * bytes
    }
}

/// The configurations of [`gemv`] for a problem. `is_fitted` says that the model's numbers are times of this vendor's devices.
pub(crate) fn gemv_configurations(
    problem: &Problem,
    units: usize,
    is_fitted: bool,
) -> Vec<(Configuration, Estimate)> {
    let work = Gemv::of(problem);
    let timed = work.teams().map(|team| (team, work.time(&team, units, is_fitted)));
    ranked(timed, estimate("GEMV", is_fitted))
}

/// Plans a convolution as products of a matrix and vectors, in one of its configurations; `None` for others. Only for problems that
/// meet [`UNPADDED`](crate::constraint::UNPADDED), [`AS_FILTERS`], [`PIXEL_COUNT`](crate::constraint::PIXEL_COUNT),
/// [`GROUP_COUNT`](crate::GROUP_COUNT) and [`SPAN`](crate::SPAN); preferred for those that meet
/// [`FEW_PIXELS`](crate::FEW_PIXELS), and what a backend has measured besides.
pub(crate) fn gemv(vendor: &str, problem: &Problem, configuration: &Configuration) -> Option<Kernel> {
    let work = Gemv::of(problem);
    let team = work.teams().find(|team| configuration.is_of(team))?;
    let (_, weights) = convolution(problem);
    let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
    let (_, unroll) = work.vectors(&team);
    let (threads, tile, steps) = (team.threads(), work.tile(), work.steps);
    let pixels = evenly_apart(
        &[y.lens[0], y.lens[2], y.lens[3], y.lens[4]],
        &[x.strides[0], steps[0], steps[1], steps[2]],
    );
    let mut text = Text::default();
    Constants {
        chunk: work.chunk,
        depth: work.depth,
        filters: work.filters,
        one_tile: work.tiles() == 1,
        slices: team.slices,
        teams: threads / team.slices,
        team_f: team.filters,
        threads,
        tile_p: tile,
        unroll,
        w_k: w.strides[0],
        x_linear: pixels.is_some(),
    }
    .write(&mut text);
    text.output(&y)
        .coord(&y)
        .size("x_n", x.strides[0])
        .size("x_p", pixels.unwrap_or(0))
        .size("x_group", w.lens[1] * x.strides[1]);
    for (dim, step) in ["d", "h", "w"].into_iter().zip(steps) {
        text.size(format!("step_{dim}"), step);
    }
    let geometry = Geometry {
        grid: [work.blocks(&team) as u32, 1, work.groups as u32],
        block: threads as u32,
        shared: (threads * team.filters * tile * size_of::<f32>()) as u32,
    };
    let detail = format!(
        "{tile} pixels x {} filters of {} threads, {unroll} vectors of {} elements of each filter on their way",
        team.filters, team.slices, work.chunk,
    );
    let files = [COORD, kernel_text!("../kernels/gemv.cuh")];
    Some(text.finish(vendor, problem, &files, geometry, detail))
}

#[cfg(test)]
mod tests {
    use fuseplan_api::{
        Backend, ConvolutionDescriptor, DataType, MathMode, Op, TensorDescriptor, TensorLayout,
    };
    use fuseplan_fakes::NullBackend;

    use super::*;

    /// A problem with square filters.
    fn problem(
        (data_type, layout): (DataType, TensorLayout),
        lens: [usize; 4],
        filters: usize,
        taps: usize,
        conv: ConvolutionDescriptor,
    ) -> Problem {
        let of = |lens: [usize; 4]| TensorDescriptor::with_layout(data_type, layout, &lens).unwrap();
        let (input, weights) = (of(lens), of([filters, lens[1] / conv.groups(), taps, taps]));
        let output = conv.forward_output(&input, &weights).unwrap();
        Problem { input, output, ops: vec![Op::ConvForward { conv, weights }], math: MathMode::Precise }
    }

    fn pixels(data_type: DataType, pixels: usize, depth: usize, filters: usize) -> Problem {
        problem(
            (data_type, TensorLayout::Nhwc),
            [pixels, depth, 1, 1],
            filters,
            1,
            ConvolutionDescriptor::d2(),
        )
    }

    #[test]
    fn receptive_fields_lie_as_filters_do() {
        use TensorLayout::*;
        let d2 = ConvolutionDescriptor::d2;
        let (dilated, grouped) = (d2().with_dilations([1, 2]).unwrap(), d2().with_groups(2).unwrap());
        let refuses =
            |problem: &Problem| (AS_FILTERS.check)(problem, &NullBackend.target("").unwrap()).is_some();
        for (layout, lens, taps, conv, refused) in [
            (Nhwc, [2, 16, 3, 5], 1, d2(), false),
            (Nchw, [2, 16, 1, 1], 1, d2(), false),
            (Nchw, [2, 16, 3, 5], 1, d2(), true),
            // A window as large as the image, and one that is narrower or lies beyond it.
            (Nchw, [2, 16, 3, 3], 3, d2(), false),
            (Nhwc, [2, 16, 3, 3], 3, d2(), false),
            (Nhwc, [2, 16, 4, 3], 3, d2(), false),
            (Nhwc, [2, 16, 3, 4], 3, d2(), true),
            (Nchw, [2, 16, 4, 3], 3, d2(), true),
            (Nhwc, [2, 16, 3, 5], 3, dilated, true),
            // A group's channels are all that a pixel sees, or lie between those of others.
            (Nhwc, [2, 16, 3, 5], 1, grouped, false),
            (Nchw, [2, 16, 3, 3], 3, grouped, false),
            (Nhwc, [2, 16, 3, 3], 3, grouped, true),
        ] {
            let problem = problem((DataType::Half, layout), lens, 8, taps, conv);
            assert_eq!(refuses(&problem), refused, "{layout} {lens:?} {taps} {conv}");
        }
        // Filters may have gaps between them, but not within.
        for (strides, refused) in [([40, 1, 12, 4], false), ([37, 1, 12, 4], false), ([80, 2, 24, 8], true)] {
            let mut problem = problem((DataType::Half, Nhwc), [2, 4, 3, 3], 8, 3, d2());
            let weights = TensorDescriptor::new(DataType::Half, &[8, 4, 3, 3], &strides).unwrap();
            problem.ops[0] = Op::ConvForward { conv: d2(), weights };
            assert_eq!(refuses(&problem), refused, "{strides:?}");
        }
    }

    #[test]
    fn threads_of_a_launch_are_counted_in_32_bits() {
        // Pixels of which a team with many slices would need too many threads.
        for (count, depth, filters) in [(1 << 26, 1, 1), (1 << 24, 63, 63), (1 << 22, 9, 250)] {
            let problem = pixels(DataType::Half, count, depth, filters);
            let all = gemv_configurations(&problem, 132, true);
            assert!(!all.is_empty());
            for (configuration, _) in all {
                let geometry = gemv("", &problem, &configuration).unwrap().geometry;
                let threads = u64::from(geometry.grid[0]) * u64::from(geometry.block);
                assert!(threads < 1 << 32, "{configuration}: {geometry:?}");
            }
        }
    }

    #[test]
    fn every_team_has_room_and_vectors() {
        for data_type in [DataType::Float, DataType::Half] {
            for count in [1, 3, 8, 9, 16, 100] {
                for depth in [1, 10, 72, 1029, 25088] {
                    for filters in [1, 7, 4096] {
                        let problem = pixels(data_type, count, depth, filters);
                        let all = gemv_configurations(&problem, 132, true);
                        assert!(!all.is_empty(), "{problem:?}");
                        for (configuration, _) in all {
                            let kernel = gemv("", &problem, &configuration).unwrap();
                            let number = |name| kernel.constant(name);
                            let tiles = count.div_ceil(number("TILE_P"));
                            let of_block = number("TEAMS") * number("TEAM_F");
                            assert_eq!(kernel.geometry.grid[0] as usize, tiles * filters.div_ceil(of_block));
                            assert_eq!(number("TEAMS") * number("SLICES"), number("THREADS"));
                            assert!(kernel.geometry.shared <= 48 << 10, "{configuration}: {problem:?}");
                            // Vectors on their way of the last thread but those beyond the depth.
                            let read = number("CHUNK") * number("SLICES") * (number("UNROLL") - 1);
                            assert!(read < depth, "{configuration}: {problem:?}");
                        }
                    }
                }
            }
        }
    }
}

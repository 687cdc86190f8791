//! Convolutions of a few pixels as products of a matrix and vectors, whose floor is to read the filters.

use std::fmt;

use fuseplan_api::volume::{Volume, common_power, evenly_apart, spatial};
use fuseplan_api::{Configuration, Constraint, DataType, Estimate, Preference, Problem};

use crate::configurations::{named, ranked};
use crate::kernel::{COORD, Geometry, Kernel, Text};

/// Least threads of a block.
const THREADS: usize = 128;
/// Most pixels of a tile.
const PIXELS: usize = 8;
/// Most sums of a thread.
const SUMS: usize = 32;
/// Vectors of filters that a thread has on their way.
const LOADS: usize = 8;
/// Filters and threads of teams.
const FILTERS: [usize; 4] = [1, 2, 4, 8];
const PARTS: [usize; 6] = [8, 16, 32, 64, 128, 256];

/// Threads that share filters, and the depth by parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Team {
    filters: usize,
    parts: usize,
}

impl Team {
    /// Threads of a block.
    fn threads(&self) -> usize {
        self.parts.max(THREADS)
    }

    /// Filters of a block.
    fn of_block(&self) -> usize {
        self.threads() / self.parts * self.filters
    }
}

/// `4 filters, 64 parts`.
impl fmt::Display for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} filters, {} parts", self.filters, self.parts)
    }
}

constants! {
    /// The constants of `gemv.cuh`.
    struct Constants {
        /// Elements that are read at once.
        chunk: usize,
        depth: usize,
        filters: usize,
        parts: usize,
        /// Teams of a block.
        teams: usize,
        team_f: usize,
        threads: usize,
        tile_p: usize,
        /// Vectors of a filter that a thread has on their way.
        unroll: usize,
        w_k: usize,
        /// Whether what pixels see begins evenly apart.
        x_linear: bool,
    }
}

/// What a pixel sees in the order of a filter.
pub(crate) const AS_FILTERS: Constraint = Constraint {
    property: "layout",
    accepts: "what a pixel sees lies in memory as a filter does: channels and taps in the same order without gaps, and no padding",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        (!lies_as_filters(problem)).then(|| format!("{} by {weights}, {conv}", problem.input))
    },
};

fn lies_as_filters(problem: &Problem) -> bool {
    let Some((conv, weights)) = problem.conv() else { return false };
    let (x, w) = (Volume::of(&problem.input), Volume::of(weights));
    let [d, h, wide] = spatial(conv.dilations(), 1);
    let taps = [0, x.strides[1], d * x.strides[2], h * x.strides[3], wide * x.strides[4]];
    let alike = |order: [usize; 4]| {
        let lens = order.map(|dim| w.lens[dim]);
        [taps, w.strides].iter().all(|strides| evenly_apart(&lens, &order.map(|dim| strides[dim])) == Some(1))
    };
    conv.pads_before().iter().chain(conv.pads_after()).all(|&pad| pad == 0)
        && (alike([1, 2, 3, 4]) || alike([2, 3, 4, 1]))
}

/// Pixels few enough for filters to be read once. Of 159 convolutions on an H200 the team that is chosen takes, in the mean, 0.38 to 0.62 of the time of
/// what else computes them in f32 with up to 8 pixels (1.09 at worst) and 0.65 to 0.93 with 12 and 16 (1.14), in f16 0.67 to 0.78 with one and
/// two (0.94) and 0.80 to 0.87 with four that see much (1.04). With four that see up to 240 elements it is 0.95 (1.39).
pub(crate) const FEW_PIXELS: Preference = Preference {
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

/// The numbers of a problem that teams are chosen by.
struct Work {
    pixels: usize,
    filters: usize,
    depth: usize,
    groups: usize,
    element: usize,
    /// Elements that are read at once.
    chunk: usize,
}

impl Work {
    fn of(problem: &Problem) -> Self {
        let Some((conv, weights)) = problem.conv() else {
            unreachable!("a constraint demands a convolution")
        };
        let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
        let (element, groups) = (problem.output.data_type().size(), conv.groups());
        let depth = w.lens[1..].iter().product();
        let steps = steps(problem);
        let used = [(w.lens[0], w.strides[0]), (groups, w.lens[1] * x.strides[1]), (x.lens[0], x.strides[0])];
        let used = used.into_iter().chain((0..3).map(|dim| (y.lens[2 + dim], steps[dim])));
        let strides = used.filter(|(len, _)| *len > 1).map(|(_, stride)| stride);
        let chunk = strides.fold(common_power(16 / element, depth), common_power);
        Work { pixels: y.pixels(), filters: w.lens[0] / groups, depth, groups, element, chunk }
    }

    /// Pixels of a tile: as even as possible.
    fn tile(&self) -> usize {
        self.pixels.div_ceil(self.pixels.div_ceil(PIXELS))
    }

    /// Vectors of a filter that a thread reads, and how many of them are on their way at once.
    fn vectors(&self, team: &Team) -> (usize, usize) {
        let vectors = self.depth.div_ceil(team.parts * self.chunk);
        (vectors, (LOADS / team.filters).clamp(1, vectors))
    }

    fn blocks(&self, team: &Team) -> usize {
        self.pixels.div_ceil(self.tile()) * self.filters.div_ceil(team.of_block())
    }

    /// Every team that has something to do for each thread, with about how many microseconds it takes.
    fn teams(&self, units: usize) -> Vec<(Team, f64)> {
        let all = FILTERS.iter().flat_map(|&filters| PARTS.iter().map(move |&parts| Team { filters, parts }));
        let suits = |team: &Team| {
            team.filters * self.tile() <= SUMS
                && team.filters < 2 * self.filters
                && (team.parts == PARTS[0] || team.parts * self.chunk < 2 * self.depth)
        };
        all.filter(suits).map(|team| (team, self.time(&team, units))).collect()
    }

    /// About how many microseconds a team takes. Fitted to every other one of 248 convolutions of 1 to 16 pixels in f32 and of 1 to 4 in f16 on an
    /// H200, so that the choice among up to 16 teams is near the fastest: it takes 5 % longer in the mean, 29 % at worst, and of the others
    /// 6 and 49 %. Single times are off by a quarter. What a thread reads and adds up by itself, what a multiprocessor reads, and the filters' bytes
    /// hardly overlap.
    fn time(&self, team: &Team, units: usize) -> f64 {
        const LAUNCH: f64 = 0.731;
        /// For each number of parts twice the last.
        const MEET: f64 = 0.04;
        /// A vector, and a sum, of a thread by itself.
        const VECTOR: f64 = 0.069;
        const SUM: f64 = 0.0148;
        /// A vector among those of a multiprocessor.
        const FILLED: f64 = 1.02e-4;
        const BYTE: f64 = 1.79e-7;
        /// Threads of a multiprocessor at once, about.
        const AT_ONCE: f64 = 1024.0;
        let (vectors, threads, tile) = (self.vectors(team).0, team.threads() as f64, self.tile());
        let read = (vectors * (team.filters + tile)) as f64;
        let busiest = ((self.blocks(team) * self.groups) as f64 / units as f64).ceil();
        let rounds = (busiest * threads / AT_ONCE).ceil();
        let alone = rounds * (VECTOR * read + SUM * (team.filters * tile) as f64);
        let bytes = (self.filters * self.groups * self.depth * self.element) as f64;
        LAUNCH + MEET * (team.parts as f64).log2() + alone + FILLED * busiest * threads * read + BYTE * bytes
    }
}

/// How far what neighbouring pixels of the output see begins apart, along each spatial dimension.
fn steps(problem: &Problem) -> [usize; 3] {
    let x = Volume::of(&problem.input);
    let strides = problem.conv().map_or([1; 3], |(conv, _)| spatial(conv.strides(), 1));
    [0, 1, 2].map(|dim| strides[dim] * x.strides[2 + dim])
}

/// The configurations of [`gemv`] for a problem.
pub(crate) fn gemv_configurations(problem: &Problem, units: usize) -> Vec<(Configuration, Estimate)> {
    ranked(Work::of(problem).teams(units), |cost| Estimate::Time { seconds: cost * 1e-6, model: "GEMV" })
}

/// Plans a convolution as products of a matrix and vectors, in one of its configurations; `None` for others. Only for problems that
/// meet [`AS_FILTERS`], [`GROUP_COUNT`](crate::GROUP_COUNT) and [`SPAN`](crate::SPAN); preferred for those that meet [`FEW_PIXELS`].
pub(crate) fn gemv(
    vendor: &str,
    problem: &Problem,
    units: usize,
    configuration: &Configuration,
) -> Option<Kernel> {
    let work = Work::of(problem);
    let team = named(work.teams(units), configuration)?;
    let Some((_, weights)) = problem.conv() else { unreachable!("a constraint demands a convolution") };
    let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
    let (_, unroll) = work.vectors(&team);
    let (threads, tile, steps) = (team.threads(), work.tile(), steps(problem));
    let pixels = evenly_apart(
        &[y.lens[0], y.lens[2], y.lens[3], y.lens[4]],
        &[x.strides[0], steps[0], steps[1], steps[2]],
    );
    let mut text = Text::default();
    Constants {
        chunk: work.chunk,
        depth: work.depth,
        filters: work.filters,
        parts: team.parts,
        teams: threads / team.parts,
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
        team.filters, team.parts, work.chunk,
    );
    let files = [COORD, kernel_text!("../kernels/gemv.cuh")];
    Some(text.finish(vendor, problem, &files, geometry, detail))
}

#[cfg(test)]
mod tests {
    use fuseplan_api::{Backend, ConvolutionDescriptor, MathMode, Op, TensorDescriptor, TensorLayout};
    use fuseplan_fakes::NullBackend;

    use super::*;

    fn problem(
        (data_type, layout): (DataType, TensorLayout),
        lens: [usize; 4],
        filters: usize,
        taps: usize,
        pad: usize,
    ) -> Problem {
        let of = |lens: [usize; 4]| TensorDescriptor::with_layout(data_type, layout, &lens).unwrap();
        let (input, weights) = (of(lens), of([filters, lens[1], taps, taps]));
        let conv = ConvolutionDescriptor::d2().with_pads([pad, pad]).unwrap();
        let output = conv.forward_output(&input, &weights).unwrap();
        Problem { input, output, ops: vec![Op::ConvForward { conv, weights }], math: MathMode::Precise }
    }

    #[test]
    fn what_pixels_see_lies_as_filters_do() {
        use TensorLayout::*;
        let refuses = |layout, lens, taps, pad| {
            let problem = problem((DataType::Half, layout), lens, 8, taps, pad);
            (AS_FILTERS.check)(&problem, &NullBackend.target("").unwrap()).is_some()
        };
        for (layout, lens, taps, pad, refused) in [
            (Nhwc, [2, 16, 3, 5], 1, 0, false),
            (Nchw, [2, 16, 1, 1], 1, 0, false),
            (Nchw, [2, 16, 3, 5], 1, 0, true),
            // A window as large as the image, and one that is narrower or lies beyond it.
            (Nchw, [2, 16, 3, 3], 3, 0, false),
            (Nhwc, [2, 16, 3, 3], 3, 0, false),
            (Nhwc, [2, 16, 4, 3], 3, 0, false),
            (Nhwc, [2, 16, 3, 4], 3, 0, true),
            (Nchw, [2, 16, 4, 3], 3, 0, true),
            (Nhwc, [2, 16, 3, 3], 3, 1, true),
            (Nchw, [2, 1, 1, 1], 3, 1, true),
        ] {
            assert_eq!(refuses(layout, lens, taps, pad), refused, "{layout} {lens:?} {taps} {pad}");
        }
    }

    #[test]
    fn every_team_has_room_and_something_to_do() {
        for data_type in [DataType::Float, DataType::Half] {
            for pixels in [1, 3, 8, 9, 16, 100] {
                for depth in [1, 10, 72, 1029, 25088] {
                    for filters in [1, 7, 4096] {
                        let problem =
                            problem((data_type, TensorLayout::Nhwc), [pixels, depth, 1, 1], filters, 1, 0);
                        let all = gemv_configurations(&problem, 132);
                        assert!(!all.is_empty(), "{problem:?}");
                        for (configuration, _) in all {
                            let kernel = gemv("", &problem, 132, &configuration).unwrap();
                            let number = |name| kernel.constant(name);
                            let tiles = pixels.div_ceil(number("TILE_P"));
                            let of_block = number("TEAMS") * number("TEAM_F");
                            assert_eq!(kernel.geometry.grid[0] as usize, tiles * filters.div_ceil(of_block));
                            assert_eq!(number("TEAMS") * number("PARTS"), number("THREADS"));
                            assert!(kernel.geometry.shared <= 48 << 10, "{configuration}: {problem:?}");
                            // Vectors on their way of the last thread but those beyond the depth.
                            let read = number("CHUNK") * number("PARTS") * (number("UNROLL") - 1);
                            assert!(read < depth, "{configuration}: {problem:?}");
                        }
                    }
                }
            }
        }
    }
}

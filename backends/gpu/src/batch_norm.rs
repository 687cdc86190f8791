//! Batch-norm for training: statistics, results and gradients in one kernel, which is launched once or twice.

use std::fmt;

use fuseplan_api::volume::{Volume, common_power};
use fuseplan_api::{BatchNormMode, Configuration, Estimate, Problem, Training};

use crate::chain::activation;
use crate::configurations::{named, ranked};
use crate::kernel::{ALONE, Geometry, Kernel, SHARE, Text};
use crate::tiling::{SPLITS, Target, units_at_once};

/// Threads of a block that shares groups.
const THREADS: usize = 512;
/// Threads of a block where each has its own groups.
const OWNERS: usize = 128;
/// Threads of a block for a channel's planes, at least.
const LEAST: usize = 64;
/// Vectors that each of a group's threads should have.
const VECTORS: usize = 4;
/// Vectors that a thread has on their way.
const UNROLL: usize = 4;
/// Bytes of a line of a multiprocessor's cache.
const CACHE_LINE: usize = 128;
/// Bytes of neighbouring channels that a block may have.
const SLICES: [usize; 4] = [CACHE_LINE, 64, 32, 16];

/// How threads walk over elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Access {
    /// Whether a vector is of neighbouring groups, not of neighbouring elements of a group.
    across: bool,
    /// Elements of a vector.
    vector: usize,
    /// Threads beside each other, for other groups.
    columns: usize,
    threads: usize,
    /// Blocks that share their groups' elements.
    split: usize,
    /// Whether they meet in memory, between two launches, and not in a cluster.
    in_memory: bool,
}

impl Access {
    /// Groups of a block.
    fn groups(&self) -> usize {
        if self.across { self.columns * self.vector } else { 1 }
    }

    /// Bytes of the sums that blocks hand on for each other: two numbers in f64 of each block and group, and what they are the
    /// distances from.
    fn scratch(&self, groups: usize) -> usize {
        let tiles = groups.div_ceil(self.groups());
        if self.in_memory { tiles * self.groups() * (2 * self.split + 1) * size_of::<f64>() } else { 0 }
    }
}

/// `16 groups, 512 threads, split 4`; `32 groups, 512 threads, split 66 in memory`
impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} groups, {} threads", self.groups(), self.threads)?;
        if self.split > 1 {
            write!(f, ", split {}", self.split)?;
        }
        if self.in_memory {
            f.write_str(" in memory")?;
        }
        Ok(())
    }
}

constants! {
    /// The constants of `batch_norm.cuh`.
    struct Constants {
        spatial: bool,
        backward: bool,
        /// Whether a vector is of neighbouring groups.
        across: bool,
        /// Whether a group's elements are evenly apart.
        linear: bool,
        channels_inner: bool,
        /// Elements of a vector.
        v_max: usize,
        columns: usize,
        threads: usize,
        /// Blocks that share their groups' elements.
        split: usize,
        has_activation: bool,
    }
}

/// Vectors of a channel's planes, which start anywhere unless all are whole.
fn plane_vectors(x: &Volume, vector: usize) -> usize {
    let plane = x.plane();
    let whole = [plane, x.strides[0], x.strides[1]].iter().all(|n| n.is_multiple_of(vector));
    if whole { plane / vector } else { (plane + vector - 2) / vector + 1 }
}

/// The ways of threads for a problem that meets [`TRAINING`](crate::constraint::TRAINING), each with about how many cycles
/// it takes.
fn accesses(problem: &Problem, target: &Target) -> Vec<(Access, f64)> {
    let Some(Training { mode, is_backward, .. }) = problem.training() else {
        unreachable!("the constraint asks for batch-norm first, not {}", problem.chain())
    };
    let (x, y) = (Volume::of(&problem.input), Volume::of(&problem.output));
    let (channels, plane) = (x.lens[1], x.plane());
    let size = problem.output.data_type().size();
    let most = 16 / size;
    let channels_last = x.is_channels_last() && y.is_channels_last();
    let of_channels = || common_power(x.alignment(1, most).min(y.alignment(1, most)), channels);
    let planes = |volume: &Volume| volume.position_stride() == Some(1);
    let images = |volume: &Volume| planes(volume) && (channels == 1 || volume.strides[1] == plane);
    if mode != BatchNormMode::Spatial {
        let vector = if channels_last {
            of_channels()
        } else if images(&x) && images(&y) {
            [channels * plane, x.strides[0], y.strides[0]].into_iter().fold(most, common_power)
        } else {
            1
        };
        let access =
            Access { across: true, vector, columns: OWNERS, threads: OWNERS, split: 1, in_memory: false };
        return vec![(access, 0.0)];
    }
    let splits = || SPLITS.into_iter().filter(|&split| split == 1 || target.cluster.is_some());
    let mut all = Vec::new();
    if channels_last {
        let vector = of_channels();
        // Of what takes as long by the model the widest slices were faster.
        for slice in SLICES {
            let columns = (slice / (vector * size)).max(1).min(channels / vector);
            let of = |split, in_memory| Access {
                across: true,
                vector,
                columns,
                threads: THREADS,
                split,
                in_memory,
            };
            all.extend(splits().map(|split| of(split, false)));
            if target.scratch {
                let tiles = channels.div_ceil(columns * vector);
                let most = x.pixels() * columns / THREADS;
                // One block for each multiprocessor: two have no room for their registers.
                let split = (target.units / tiles).min(most);
                all.extend((split > 1).then(|| of(split, true)));
            }
        }
    } else if planes(&x) && planes(&y) {
        let vector = if problem.input == problem.output { most } else { 1 };
        let wanted = x.lens[0] * plane_vectors(&x, vector) / VECTORS;
        // Blocks share a channel's planes only where all of them have a multiprocessor each.
        let at_once = |split: &usize| channels * split <= units_at_once(target.units, *split);
        let shares = splits().filter(|split| *split == 1 || at_once(split)).map(|split| (split, false));
        let split = (target.units / channels).min(wanted / LEAST);
        let in_memory = (target.scratch && split > 1).then_some((split, true));
        for (split, in_memory) in shares.chain(in_memory) {
            let largest = if channels * split < target.units { 2 * THREADS } else { THREADS };
            let threads = (wanted / split).next_power_of_two().clamp(LEAST, largest);
            all.push(Access { across: false, vector, columns: 1, threads, split, in_memory });
        }
    } else {
        let access =
            Access { across: true, vector: 1, columns: 1, threads: THREADS, split: 1, in_memory: false };
        all.push(access);
    }
    let of = Sums { channels, pixels: x.pixels(), size, is_backward };
    let timed = |access: Access| (access, time(&access, &of, target.units));
    all.into_iter().map(timed).collect()
}

/// What is summed: so many channels of so many pixels, elements of so many bytes, forward or backward.
struct Sums {
    channels: usize,
    pixels: usize,
    size: usize,
    is_backward: bool,
}

/// About how many cycles the sums and the results take. In one launch fitted to 256 timings of eight shapes on an H100, of which the
/// choice is 1.4 % slower than the fastest in the mean, 14 % at worst; in a later run of ten shapes, five of them new, 1.5 and 20 %.
/// With what meets in memory fitted to half of 174 timings of 18 shapes there: 0.1 % and 1.1 %, in the other half 1.0 and 8 %.
fn time(access: &Access, sums: &Sums, units: usize) -> f64 {
    // Cycles of a multiprocessor for each line of its cache that threads read a part of, and of a round of vectors at least, until
    // they have come; bytes of a cycle that are its share of what memory gives, and that it takes of whole planes; cycles of the
    // blocks' meeting.
    const LINE: f64 = 2.0;
    const ROUND: f64 = 1200.0;
    // Backward, where a vector takes more instructions, part of it for lines of which a block has 16 bytes.
    const HALF_SECTOR: f64 = 0.85;
    const MEMORY: f64 = 18.0;
    const PLANES: f64 = 14.0;
    const MEET: f64 = 400.0;
    // Of blocks that meet in memory: cycles of a round beside its lines, and of the second launch; bytes of sums of a cycle.
    const WAIT: f64 = 300.0;
    const LAUNCH: f64 = 2000.0;
    const SUMS: f64 = 96.0;

    let Sums { channels, pixels, size, is_backward } = *sums;
    let blocks = channels.div_ceil(access.groups()) * access.split;
    let at_once = if access.in_memory { units } else { units_at_once(units, access.split) };
    let of_unit = blocks.div_ceil(at_once) as f64;
    let pixels_of_block = pixels.div_ceil(access.split);
    let of_block = if access.across {
        let lanes = access.threads / access.columns;
        let lines = (lanes * UNROLL * (access.groups() * size).div_ceil(CACHE_LINE)) as f64;
        let line = if is_backward && access.groups() * size < 32 { HALF_SECTOR * LINE } else { LINE };
        let round = if access.in_memory { line * lines + WAIT } else { (line * lines).max(ROUND) };
        pixels_of_block.div_ceil(lanes * UNROLL) as f64 * round
    } else {
        (pixels_of_block * size) as f64 / PLANES
    };
    let (walks, memory) = (of_unit * of_block, (pixels * channels * size) as f64 / (MEMORY * units as f64));
    if access.in_memory {
        let sums = of_unit * (access.split * access.groups() * 2 * size_of::<f64>()) as f64;
        return 2.0 * walks.hypot(memory) + LAUNCH + sums / SUMS;
    }
    2.0 * walks.max(memory) + if access.split > 1 { MEET } else { 0.0 }
}

/// The configurations of [`batch_norm`].
pub(crate) fn batch_norm_configurations(
    problem: &Problem,
    target: &Target,
) -> Vec<(Configuration, Estimate)> {
    ranked(accesses(problem, target), |cost| Estimate::Cost { cost, unit: "cycles", model: "walks" })
}

/// Plans the kernel of a batch-norm for training: a block, or blocks that are a cluster or meet between two launches, for some
/// channels, or a thread for some positions of all images. Only for problems that meet [`TRAINING`](crate::constraint::TRAINING).
pub(crate) fn batch_norm(
    vendor: &str,
    problem: &Problem,
    target: &Target,
    configuration: &Configuration,
) -> Option<Kernel> {
    let Some(Training { mode, is_backward: backward, activation: behind }) = problem.training() else {
        unreachable!("the constraint asks for batch-norm first, not {}", problem.chain())
    };
    let access = named(accesses(problem, target), configuration)?;
    let mode_behind = behind.map(activation);
    let spatial = mode == BatchNormMode::Spatial;
    let (x, y) = (Volume::of(&problem.input), Volume::of(&problem.output));
    let (channels, plane) = (x.lens[1], x.plane());
    let steps =
        if spatial { x.pixel_stride().zip(y.pixel_stride()) } else { Some((x.strides[0], y.strides[0])) };
    let (x_step, y_step) = steps.unwrap_or((0, 0));
    let (groups, count) = if spatial { (channels, x.pixels()) } else { (channels * plane, x.lens[0]) };

    let mut text = Text::default();
    Constants {
        spatial,
        backward,
        across: access.across,
        linear: steps.is_some(),
        channels_inner: x.is_channels_last() && y.is_channels_last(),
        v_max: access.vector,
        columns: access.columns,
        threads: access.threads,
        split: access.split,
        has_activation: mode_behind.is_some(),
    }
    .write(&mut text);
    text.size("out_h", y.lens[3])
        .size("out_w", y.lens[4])
        .size("groups", groups)
        .size("count", count)
        .size("images", x.lens[0]);
    text.strides("x", &x.strides).strides("y", &y.strides).size("x_step", x_step).size("y_step", y_step);
    text.divisor("plane", plane)
        .divisor("plane_vectors", plane_vectors(&x, access.vector))
        .divisor("channels", channels);
    let name = mode_behind.unwrap_or_else(|| "pasthru".into());
    let functions = format!("#define ACTIVATION act_{name}\n#define GRADIENT grad_{name}\n");
    if access.in_memory {
        text.launched_twice(access.scratch(groups));
    }
    let blocks = groups.div_ceil(access.groups()) * access.split;
    let geometry = Geometry { grid: [blocks as u32, 1, 1], block: access.threads as u32, shared: 0 };
    let shared_by = if access.split > 1 {
        format!(" in {} blocks{}", access.split, if access.in_memory { ", two launches" } else { "" })
    } else {
        String::new()
    };
    let detail = format!(
        "{} {} at a time, {} threads a group{shared_by}, f64 sums",
        access.vector,
        if access.across { "groups" } else { "elements" },
        access.threads / access.columns * access.split,
    );
    let walk = kernel_text!("../kernels/batch_norm_walk.cuh");
    let meeting: &[&str] = if access.in_memory {
        &[SHARE, walk, kernel_text!("../kernels/meet_in_memory.cuh")]
    } else {
        let cluster = target.cluster.filter(|_| access.split > 1).unwrap_or(ALONE);
        &[cluster, SHARE, walk, kernel_text!("../kernels/meet_at_once.cuh")]
    };
    let files = [&[&*functions], meeting, &[kernel_text!("../kernels/batch_norm.cuh")]].concat();
    Some(text.finish(vendor, problem, &files, geometry, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuseplan_api::{DataType, MathMode, Op, TensorDescriptor};

    const TARGET: Target = Target { units: 132, cluster: Some("// cluster"), scratch: true };

    fn problem(lens: [usize; 4]) -> Problem {
        let input = TensorDescriptor::nhwc(DataType::Half, lens).unwrap();
        let ops = vec![Op::BatchNormForward { mode: BatchNormMode::Spatial, running: false }];
        Problem { input, output: input, ops, math: MathMode::Precise }
    }

    fn chosen(lens: [usize; 4], target: &Target) -> (Configuration, Kernel) {
        let problem = problem(lens);
        let (configuration, _) = batch_norm_configurations(&problem, target).swap_remove(0);
        let kernel = batch_norm("// vendor", &problem, target, &configuration).unwrap();
        (configuration, kernel)
    }

    #[test]
    fn few_channels_have_a_block_of_every_multiprocessor() {
        let lens = [64, 64, 56, 56];
        let (configuration, kernel) = chosen(lens, &TARGET);
        assert!(configuration.as_str().ends_with(" in memory"), "{configuration}");
        assert_eq!(kernel.geometry.grid[0], 132);
        // Two numbers of each block and channel, and what they are the distances from.
        assert_eq!(kernel.scratch, 8 * (kernel.constant("SPLIT") * 2 + 1) * 64);
        let (configuration, kernel) = chosen(lens, &Target { scratch: false, ..TARGET });
        assert_eq!((kernel.scratch, kernel.constant("SPLIT")), (0, 8), "{configuration}");
        let (configuration, kernel) = chosen(lens, &Target { scratch: false, cluster: None, ..TARGET });
        assert_eq!((kernel.scratch, kernel.constant("SPLIT")), (0, 1), "{configuration}");
    }

    #[test]
    fn planes_of_few_channels_have_blocks_of_all_multiprocessors() {
        let target = Target { cluster: None, ..TARGET };
        let of = |channels: usize| {
            let input = TensorDescriptor::nchw(DataType::Half, [64, channels, 56, 56]).unwrap();
            let problem = Problem { input, output: input, ..problem([1; 4]) };
            let (configuration, _) = batch_norm_configurations(&problem, &target).swap_remove(0);
            batch_norm("// vendor", &problem, &target, &configuration).unwrap().geometry.grid[0]
        };
        assert_eq!([3, 16, 64, 256].map(of), [132, 128, 128, 256]);
    }

    #[test]
    fn a_second_launch_is_for_sums_that_take_long() {
        for lens in [[64, 64, 1, 1], [1, 2048, 7, 7]] {
            let (configuration, kernel) = chosen(lens, &TARGET);
            assert_eq!(kernel.scratch, 0, "{configuration}");
        }
    }

    #[test]
    fn lanes_of_all_blocks_have_a_vector() {
        for lens in [[2, 3, 1, 1], [3, 40, 9, 16], [8, 64, 56, 56], [1, 7, 30, 40]] {
            let problem = problem(lens);
            for (access, _) in accesses(&problem, &TARGET).into_iter().filter(|(access, _)| access.in_memory)
            {
                let lanes = access.threads / access.columns * access.split;
                assert!(access.split > 1 && lanes <= lens[0] * lens[2] * lens[3], "{lens:?} {access}");
            }
        }
    }
}

//! Batch-norm for training: statistics, results and gradients in one kernel.

use fuseplan_api::volume::{Volume, common_power};
use fuseplan_api::{BatchNormMode, Problem, Training};

use crate::chain::activation;
use crate::kernel::{Geometry, Kernel, Text};

/// Threads of a block that shares groups.
const THREADS: usize = 512;
/// Threads of a block where each has its own groups.
const OWNERS: usize = 128;
/// Vectors that each of a group's threads should have.
const VECTORS: usize = 4;
/// Bytes that memory moves at once.
const SECTOR: usize = 32;

/// How threads walk over elements.
struct Access {
    /// Whether a vector is of neighbouring groups, not of neighbouring elements of a group.
    across: bool,
    /// Elements of a vector.
    vector: usize,
    /// Threads beside each other, for other groups.
    columns: usize,
    threads: usize,
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
        has_activation: bool,
    }
}

/// Plans the kernel of a batch-norm for training on a device of about `units` multiprocessors: a block for some
/// channels, or a thread for some positions of all images. Only for problems that meet
/// [`TRAINING`](crate::constraint::TRAINING).
pub(crate) fn batch_norm(vendor: &str, problem: &Problem, units: usize) -> Kernel {
    let Some(Training { mode, is_backward: backward, activation: behind }) = problem.training() else {
        unreachable!("the constraint asks for batch-norm first, not {}", problem.chain())
    };
    let mode_behind = behind.map(activation);
    let spatial = mode == BatchNormMode::Spatial;
    let (x, y) = (Volume::of(&problem.input), Volume::of(&problem.output));
    let (channels, plane) = (x.lens[1], x.plane());
    let size = problem.output.data_type().size();
    let most = 16 / size;
    let channels_last = x.is_channels_last() && y.is_channels_last();
    let of_channels = || common_power(x.alignment(1, most).min(y.alignment(1, most)), channels);
    let planes = |volume: &Volume| volume.position_stride() == Some(1);
    let images = |volume: &Volume| planes(volume) && (channels == 1 || volume.strides[1] == plane);
    // Vectors of a channel's planes, which start anywhere unless all are whole.
    let plane_vectors = |vector: usize| {
        let whole = [plane, x.strides[0], x.strides[1]].iter().all(|n| n.is_multiple_of(vector));
        if whole { plane / vector } else { (plane + vector - 2) / vector + 1 }
    };
    let access = if !spatial {
        let vector = if channels_last {
            of_channels()
        } else if images(&x) && images(&y) {
            [channels * plane, x.strides[0], y.strides[0]].into_iter().fold(most, common_power)
        } else {
            1
        };
        Access { across: true, vector, columns: OWNERS, threads: OWNERS }
    } else if channels_last {
        // A sector of memory for a block, or half of one where that would leave most multiprocessors idle.
        let vector = of_channels();
        let slice = if 2 * channels * size / SECTOR > units { SECTOR } else { SECTOR / 2 };
        let columns = (slice / (vector * size)).max(1).min(channels / vector);
        Access { across: true, vector, columns, threads: THREADS }
    } else if planes(&x) && planes(&y) {
        let vector = if problem.input == problem.output { most } else { 1 };
        let wanted = (x.lens[0] * plane_vectors(vector) / VECTORS).next_power_of_two();
        let largest = if channels < units { 2 * THREADS } else { THREADS };
        Access { across: false, vector, columns: 1, threads: wanted.clamp(64, largest) }
    } else {
        Access { across: true, vector: 1, columns: 1, threads: THREADS }
    };
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
        channels_inner: channels_last,
        v_max: access.vector,
        columns: access.columns,
        threads: access.threads,
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
        .divisor("plane_vectors", plane_vectors(access.vector))
        .divisor("channels", channels);
    let name = mode_behind.unwrap_or_else(|| "pasthru".into());
    let functions = format!("#define ACTIVATION act_{name}\n#define GRADIENT grad_{name}\n");
    let blocks = groups.div_ceil(if access.across { access.columns * access.vector } else { 1 });
    let geometry = Geometry { grid: [blocks as u32, 1, 1], block: access.threads as u32, shared: 0 };
    let detail = format!(
        "{} {} at a time, {} threads a group, f64 sums",
        access.vector,
        if access.across { "groups" } else { "elements" },
        access.threads / access.columns,
    );
    text.finish(vendor, problem, &[&functions, include_str!("../kernels/batch_norm.cuh")], geometry, detail)
}

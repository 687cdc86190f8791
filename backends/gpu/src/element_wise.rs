//! Packed element-wise plans: one pass, 16 bytes at a time.

use fuseplan_api::Problem;

use crate::kernel::{Geometry, Kernel, Text};
use crate::volume::{Volume, common_power};

/// Threads of a block.
const THREADS: usize = 256;
/// Vectors that a thread has in flight.
const UNROLL: usize = 2;
/// Blocks for each multiprocessor; threads walk over the rest.
const WAVES: usize = 32;

/// Plans one pass over packed tensors on a device of about `units` multiprocessors.
pub fn element_wise(vendor: &str, problem: &Problem, units: usize) -> Kernel {
    let y = Volume::of(&problem.output);
    let channels_last = y.is_channels_last();
    let most = 16 / problem.output.data_type().size();
    let vector = if channels_last { common_power(most, y.lens[1]) } else { most };
    let vectors = y.lens[1] / vector;
    let channel_threads = if channels_last { vectors.min(THREADS) } else { THREADS };
    let grid = if channels_last {
        let at_once = THREADS / channel_threads * UNROLL;
        let columns = vectors.div_ceil(channel_threads);
        [y.pixels().div_ceil(at_once).min((units * WAVES).div_ceil(columns)), columns, 1]
    } else {
        let at_once = THREADS * vector * UNROLL;
        [problem.output.element_count().div_ceil(at_once).min(units * WAVES), 1, 1]
    };
    let mut text = Text::default();
    text.constant("THREADS", THREADS).constant("UNROLL", UNROLL).constant("V_MAX", vector);
    text.constant("CHANNELS_LAST", channels_last.into()).constant("CHANNEL_THREADS", channel_threads);
    text.output(&y).size("out_k", y.lens[1]).size("pixels", y.pixels());
    text.size("outputs", problem.output.element_count());
    let geometry = Geometry { grid: grid.map(|blocks| blocks as u32), block: THREADS as u32, shared: 0 };
    let detail = format!("{vector} elements at a time");
    text.finish(vendor, problem, &[include_str!("../kernels/element_wise.cuh")], geometry, detail)
}

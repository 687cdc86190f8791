//! Packed element-wise plans: one pass, 16 bytes at a time.

use fuseplan_api::Problem;

use crate::chain::channel_values;
use crate::kernel::{Geometry, Kernel, Text};
use crate::volume::{Volume, common_power};

/// Threads of a block.
const THREADS: usize = 256;
/// Vectors that a thread has in flight.
const UNROLL: usize = 3;
/// Threads beside each other that read a pixel's channels: 512 bytes, as much as one instruction reads.
const COLUMN: usize = 32;
/// Most blocks of a grid in its second and third dimension.
const MOST_DOWN: usize = 65_535;
/// Blocks for each multiprocessor where threads keep their channels; they walk over pixels.
const WAVES: usize = 16;
/// About how many threads branch together.
const WARP: usize = 32;
/// Most bytes of a block's table of channels; blocks with more channels than that read them as they come.
const TABLE: usize = 24 << 10;

/// Plans one pass over packed tensors on a device of about `units` multiprocessors.
pub(crate) fn element_wise(vendor: &str, problem: &Problem, units: usize) -> Kernel {
    let y = Volume::of(&problem.output);
    let channels_last = y.is_channels_last();
    let most = 16 / problem.output.data_type().size();
    let vector = if channels_last { common_power(most, y.lens[1]) } else { most };
    let outputs = problem.output.element_count();
    let mut text = Text::default();
    let channel = channel_values(problem) * size_of::<f32>();
    let (grid, shared) = if channels_last {
        // As even as possible.
        let vectors = y.lens[1] / vector;
        let columns = vectors.div_ceil(COLUMN * (most / vector));
        let channel_threads = vectors.div_ceil(columns);
        text.constant("CHANNEL_THREADS", channel_threads);
        let at_once = THREADS / channel_threads * UNROLL;
        let rows = y.pixels().div_ceil(at_once).min((units * WAVES).div_ceil(columns));
        let deep = columns.div_ceil(MOST_DOWN);
        ([rows, columns.div_ceil(deep), deep], channel_threads * vector * channel)
    } else {
        text.constant("CHANNEL_THREADS", 1);
        let tile = THREADS * vector * UNROLL;
        ([outputs.div_ceil(tile), 1, 1], (tile.div_ceil(y.plane()) + 1) * channel)
    };
    let in_table = channels_last || (1..=TABLE).contains(&shared);
    text.constant("THREADS", THREADS).constant("UNROLL", UNROLL).constant("V_MAX", vector);
    text.constant("CHANNELS_LAST", channels_last.into()).constant("CHANNEL_TABLE", in_table.into());
    text.constant("WHOLE_VECTORS", y.plane().is_multiple_of(vector).into());
    text.constant("LONG_PLANES", (y.plane() >= vector).into());
    text.constant("CROSSING_WARPS", (y.plane() < WARP * vector).into());
    text.output(&y).size("outputs", outputs).size("pixels", y.pixels());
    text.divisor("channels", y.lens[1]).divisor("plane", y.plane());
    let shared = if in_table { shared } else { 0 };
    let geometry =
        Geometry { grid: grid.map(|blocks| blocks as u32), block: THREADS as u32, shared: shared as u32 };
    let detail = format!("{vector} elements at a time");
    text.finish(vendor, problem, &[include_str!("../kernels/element_wise.cuh")], geometry, detail)
}

#[cfg(test)]
mod tests {
    use fuseplan_api::{DataType, MathMode, TensorDescriptor};

    use super::*;

    /// A tensor's channels are all dealt out, in a grid that devices take.
    #[test]
    fn any_number_of_channels_fits_a_grid() {
        for channels in [2, 7, 4096, 65_535 * 128, 65_535 * 128 + 4, 200_000_001] {
            let x = TensorDescriptor::nhwc(DataType::Float, [2, channels, 1, 1]).unwrap();
            let problem = Problem { input: x, output: x, ops: Vec::new(), math: MathMode::Precise };
            let kernel = element_wise("", &problem, 100);
            let [_, down, deep] = kernel.geometry.grid;
            let constant = |name: &str| -> usize {
                let name = format!("constexpr int {name} = ");
                let line = kernel.source.lines().find_map(|line| line.strip_prefix(&name)).unwrap();
                line.trim_end_matches(';').parse().unwrap()
            };
            let dealt = down as usize * deep as usize * constant("CHANNEL_THREADS") * constant("V_MAX");
            assert!(down.max(deep) <= 65_535 && dealt >= channels, "{channels}: {:?}", kernel.geometry);
        }
    }
}

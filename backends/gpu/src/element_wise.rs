//! Packed element-wise plans: one pass, 16 bytes at a time.

use fuseplan_api::Problem;
use fuseplan_api::volume::{Volume, common_power};

use crate::chain::channel_values;
use crate::kernel::{Geometry, Kernel, Text};

/// Threads of a block.
const THREADS: usize = 128;
/// Vectors that a thread has in flight.
const UNROLL: usize = 3;
/// Threads beside each other that read a pixel's channels: 256 bytes.
const COLUMN: usize = 16;
/// Bytes that memory is read and written by.
const SECTOR: usize = 32;
/// Blocks that are to be on a multiprocessor at once.
const BLOCKS: usize = 8;
/// About how many threads branch together.
const WARP: usize = 32;
/// Most bytes of a block's table of channels. Where channels come first, blocks with more channels than that read
/// them as they come.
const TABLE: usize = 24 << 10;

constants! {
    /// The constants of `element_wise.cuh`.
    struct Constants {
        /// Threads beside each other that stand for the channels of a pixel.
        channel_threads: usize,
        threads: usize,
        /// Blocks that are to be on a multiprocessor at once.
        blocks: usize,
        /// Blocks, from the first on, that may be there while the grid before still runs.
        early_blocks: usize,
        /// Vectors that a thread has in flight.
        unroll: usize,
        /// Elements of a vector.
        v_max: usize,
        channels_last: bool,
        /// Whether shared memory has a table of the block's channels.
        channel_table: bool,
        /// Whether every vector is of one plane.
        whole_vectors: bool,
        /// Elements in a row, from a multiple of as many on, that are of one plane.
        plane_part: usize,
        /// Whether no vector is of more than two planes.
        long_planes: bool,
        /// Whether most warps cross into another plane.
        crossing_warps: bool,
    }
}

/// How a packed tensor is dealt out to blocks.
struct Deal {
    /// Elements of a vector.
    vector: usize,
    /// Threads beside each other that stand for the channels of a pixel.
    channel_threads: usize,
    /// Blocks of the same pixels, and how many of these there are.
    columns: usize,
    rows: usize,
    /// Bytes of a block's table of channels.
    table: usize,
}

impl Deal {
    fn of(problem: &Problem) -> Self {
        let y = Volume::of(&problem.output);
        let most = 16 / problem.output.data_type().size();
        let channel = channel_values(problem) * size_of::<f32>();
        if !y.is_channels_last() {
            let tile = THREADS * most * UNROLL;
            let rows = problem.output.element_count().div_ceil(tile);
            let table = (tile.div_ceil(y.plane()) + 1) * channel;
            return Deal { vector: most, channel_threads: 1, columns: 1, rows, table };
        }
        // As even as possible, but for sectors, which two blocks would have a part of each.
        let vector = common_power(most, y.lens[1]);
        let vectors = y.lens[1] / vector;
        let most_threads = (COLUMN * (most / vector)).min(TABLE / (vector * channel.max(1)));
        let columns = vectors.div_ceil(most_threads);
        let even = vectors.div_ceil(columns);
        let sector = SECTOR / (vector * problem.output.data_type().size());
        let channel_threads =
            if columns > 1 { even.next_multiple_of(sector).min(most_threads) } else { even };
        let rows = y.pixels().div_ceil(THREADS / channel_threads * UNROLL);
        Deal { vector, channel_threads, columns, rows, table: channel_threads * vector * channel }
    }

    fn blocks(&self) -> usize {
        self.rows.saturating_mul(self.columns)
    }
}

/// Threads of a launch for a packed tensor.
pub(crate) fn threads(problem: &Problem) -> usize {
    Deal::of(problem).blocks().saturating_mul(THREADS)
}

/// Plans one pass over packed tensors on a device of about `units` multiprocessors. Only for problems that meet
/// [`PACKED`](crate::constraint::PACKED) and [`ELEMENTS`](crate::constraint::ELEMENTS).
pub(crate) fn element_wise(vendor: &str, problem: &Problem, units: usize) -> Kernel {
    let y = Volume::of(&problem.output);
    let deal = Deal::of(problem);
    let blocks = deal.blocks();
    let Deal { vector, channel_threads, columns, table, .. } = deal;
    let outputs = problem.output.element_count();
    let mut text = Text::default();
    let in_table = (1..=TABLE).contains(&table);
    let shared = if in_table { table } else { 0 };
    Constants {
        channel_threads,
        threads: THREADS,
        blocks: BLOCKS,
        early_blocks: units * BLOCKS,
        unroll: UNROLL,
        v_max: vector,
        channels_last: y.is_channels_last(),
        channel_table: in_table,
        whole_vectors: y.plane().is_multiple_of(vector),
        plane_part: common_power(vector, y.plane()),
        long_planes: y.plane() >= vector,
        crossing_warps: y.plane() < WARP * vector,
    }
    .write(&mut text);
    text.size("outputs", outputs).size("pixels", y.pixels());
    text.divisor("channels", y.lens[1]).divisor("plane", y.plane()).divisor("columns", columns);
    let geometry = Geometry { grid: [blocks as u32, 1, 1], block: THREADS as u32, shared: shared as u32 };
    let detail = format!("{vector} elements at a time");
    text.finish(vendor, problem, &[kernel_text!("../kernels/element_wise.cuh")], geometry, detail)
}

#[cfg(test)]
mod tests {
    use fuseplan_api::{BatchNormMode, DataType, MathMode, Op, TensorDescriptor};

    use super::*;
    use crate::constraint::MAX_OPS;

    /// A tensor's channels are all dealt out, in a grid that devices take.
    #[test]
    fn any_number_of_channels_fits_a_grid() {
        for channels in [2, 7, 4096, 65_535 * 128, 65_535 * 128 + 4, 200_000_001] {
            let x = TensorDescriptor::nhwc(DataType::Float, [2, channels, 1, 1]).unwrap();
            let problem = Problem { input: x, output: x, ops: Vec::new(), math: MathMode::Precise };
            let kernel = element_wise("", &problem, 100);
            let [blocks, down, deep] = kernel.geometry.grid;
            let threads = kernel.constant("CHANNEL_THREADS") * kernel.constant("V_MAX");
            let dealt = blocks as usize * threads;
            let fits = blocks <= i32::MAX as u32 && down == 1 && deep == 1;
            assert!(fits && dealt >= channels, "{channels}: {:?}", kernel.geometry);
        }
    }

    /// Threads are counted as they are launched, of few channels as well, which leave some without work.
    #[test]
    fn threads_are_those_of_the_grid() {
        for (make, lens) in [
            (TensorDescriptor::nhwc as fn(_, _) -> _, [64, 3, 1 << 10, 1 << 10]),
            (TensorDescriptor::nhwc, [64, 129, 1 << 8, 1 << 8]),
            (TensorDescriptor::nchw, [64, 3, 1 << 10, 1 << 10]),
        ] {
            let x = make(DataType::Half, lens).unwrap();
            let problem = Problem { input: x, output: x, ops: Vec::new(), math: MathMode::Precise };
            let Geometry { grid, block, .. } = element_wise("", &problem, 100).geometry;
            assert_eq!(threads(&problem), grid[0] as usize * block as usize, "{x}");
        }
    }

    #[test]
    fn tables_of_channels_stay_small() {
        for data_type in [DataType::Float, DataType::Half] {
            for channels in [1, 2, 31, 36, 64, 255, 256, 1000] {
                for make in [TensorDescriptor::nchw, TensorDescriptor::nhwc] {
                    for extent in [1, 3] {
                        let x = make(data_type, [2, channels, extent, extent]).unwrap();
                        let ops = vec![
                            Op::BatchNormInference {
                                mode: BatchNormMode::Spatial,
                                params: DataType::Float
                            };
                            MAX_OPS
                        ];
                        let problem = Problem { input: x, output: x, ops, math: MathMode::Precise };
                        let shared = element_wise("", &problem, 132).geometry.shared as usize;
                        assert!(shared <= TABLE, "{x}: {shared}");
                    }
                }
            }
        }
    }
}

//! A kernel, and what it is launched with.

use fuseplan_api::Problem;
use fuseplan_gpu::{Geometry, Kernel, Runtime, Volume, channel_values, convolution};

use super::instruction::{Rows, wgmma};
use super::layout::{filters_at_once, outputs_of};
use super::reordered::Reordered;
use super::tensor_map::TensorMap;
use super::tiling::{COPIED, Load, Tiling};
use super::{ALIGNMENT, files, maps, text};
use crate::context::Cuda;

/// A kernel and the tensor maps that it is launched with.
#[derive(Debug)]
pub(crate) struct WgmmaKernel {
    pub(crate) kernel: Kernel,
    /// Of the input, where TMA loads it.
    pub(crate) input: Option<TensorMap>,
    /// Of the filters, where TMA loads them.
    pub(crate) filters: Option<TensorMap>,
    /// What the input's address must be a multiple of.
    pub(crate) input_alignment: usize,
    /// What the filters' address must be a multiple of.
    pub(crate) filter_alignment: usize,
    /// What the output's address must be a multiple of.
    pub(crate) output_alignment: usize,
    /// Bytes that filters are prepared to, where they are streamed.
    pub(crate) prepared: Option<usize>,
    /// Where filters and image are reordered to.
    pub(crate) reordered: Option<Reordered>,
    pub(super) tiling: Tiling,
    tiles: usize,
    /// Tiles side by side that cover all filters of all groups.
    columns: usize,
}

impl WgmmaKernel {
    /// Blocks that a device of as many multiprocessors holds at once, in whole clusters.
    pub(crate) fn slots(&self, units: usize) -> u32 {
        self.tiling.slots(units) as u32
    }

    /// Blocks for a device of as many multiprocessors. They are persistent: as many as the device holds at once, but no
    /// more than tiles. Blocks that share a tile have no other.
    pub(crate) fn blocks(&self, units: usize) -> u32 {
        if self.tiling.split > 1 {
            return (self.tiles * self.tiling.split) as u32;
        }
        let blocks = self.tiles.min(units * self.tiling.occupancy);
        // Blocks with resident filters walk down a column of tiles.
        let whole = if self.tiling.resident { (blocks / self.columns).max(1) * self.columns } else { blocks };
        whole as u32
    }
}

/// The kernel of a problem that meets the solver's constraints, with a tile.
pub(crate) fn wgmma_kernel(problem: &Problem, arch: &str, tiling: &Tiling) -> WgmmaKernel {
    let (conv, weights) = convolution(problem);
    let load = tiling.load;
    let (w, y) = (Volume::of(weights), Volume::of(&problem.output));
    let groups = conv.groups();
    let (filters, channels) = (w.lens[0] / groups, w.lens[1]);
    let filter_steps = tiling.filter_steps(channels, [w.lens[2], w.lens[3], w.lens[4]]);
    let columns = groups * filters.div_ceil(tiling.filters());
    let tiles = tiling.tiles_of_pixels(y.lens[0], y.lens[2], y.lens[3], y.lens[4]) * columns;
    let shared = tiling.shared(filter_steps, w.plane(), channel_values(problem));
    let y_vector = outputs_of(tiling, problem);
    let data_type = problem.output.data_type();
    let geometry = Geometry { grid: [1; 3], block: tiling.threads() as u32, shared: shared as u32 };
    let rows = if tiling.tf32x3 || matches!(load, Load::Packed | Load::Runs) {
        Rows::InRegisters
    } else {
        Rows::InMemory
    };
    let wgmma = wgmma(tiling.width, data_type, rows, matches!(load, Load::Planes | Load::Lines));
    let files = files::files(tiling, problem, &wgmma);
    let reordered = (load == Load::Reordered).then(|| Reordered::of(problem, tiling.filters())).flatten();
    let text = text::constants(problem, tiling, reordered.as_ref(), shared);
    let kernel = text.finish(Cuda::VENDOR, problem, &files, geometry, detail(tiling, y_vector));
    let (input, filters) =
        maps::of(reordered.as_ref().map_or(problem, |reordered| &reordered.problem), tiling);
    // Pairs of pixels are written as words wherever these are aligned in a tensor that is.
    let pairs = if tiling.runs.is_some_and(|runs| runs.paired) { 2 } else { 1 };
    let output_alignment = y_vector.max(pairs) * data_type.size();
    let input_alignment = match load {
        Load::Planes if tiling.copied => COPIED,
        Load::Gather => data_type.size(),
        Load::Tma
        | Load::Halo
        | Load::Planes
        | Load::Packed
        | Load::Lines
        | Load::Transposed
        | Load::Runs => ALIGNMENT,
        Load::Reordered => data_type.size(),
    };
    let filter_alignment = if tiling.is_prepared() || load == Load::Reordered {
        data_type.size()
    } else if tiling.rearranged {
        filters_at_once(&w, data_type.size()) * data_type.size()
    } else {
        ALIGNMENT
    };
    let mut planned = WgmmaKernel {
        kernel,
        input,
        filters,
        input_alignment,
        filter_alignment,
        output_alignment,
        prepared: tiling.is_prepared().then(|| {
            columns * filter_steps * tiling.filters() * tiling.row() * if tiling.tf32x3 { 2 } else { 1 }
        }),
        reordered,
        tiling: *tiling,
        tiles,
        columns,
    };
    planned.kernel.geometry.grid[0] = planned.blocks(Cuda::units(arch));
    planned
}

/// What the kernel's description says of it.
fn detail(tiling: &Tiling, y_vector: usize) -> String {
    format!(
        "wgmma{}, pixels {}, tile {} pixels x {} filters x {}, {} ping-pong x {} cooperative warpgroups, {} stages, \
         {y_vector} outputs at a time{}{}",
        if tiling.tf32x3 { " of 3xTF32" } else { "" },
        match tiling.load {
            Load::Tma => "by TMA",
            Load::Halo => "by TMA with their halo",
            Load::Planes if tiling.copied => "copied from planes",
            Load::Planes => "by TMA from planes",
            Load::Packed => "by bulk copies of planes",
            Load::Lines => "by TMA by lines",
            Load::Transposed => "by TMA from planes, transposed",
            Load::Runs => "by runs of planes",
            Load::Reordered => "by TMA, reordered",
            Load::Gather => "gathered",
        },
        tiling.pixels(),
        tiling.filters(),
        tiling.depth,
        tiling.pingpong,
        tiling.cooperative,
        tiling.stages,
        match () {
            () if tiling.reads_filters() => ", filters by rows",
            () if tiling.is_streamed() => ", filters streamed",
            () if tiling.resident => ", filters resident",
            () => "",
        },
        if tiling.split > 1 { format!(", shared by {} blocks", tiling.split) } else { String::new() },
    )
}

#[cfg(test)]
mod tests {
    use super::super::candidates;
    use super::*;
    use fuseplan_api::{ConvolutionDescriptor, DataType, MathMode, Op, TensorDescriptor};

    /// A pair is a word, whatever the number of outputs that are written at once.
    #[test]
    fn outputs_of_pairs_are_aligned_to_words() {
        let of = |lens: [usize; 4]| TensorDescriptor::nchw(DataType::Half, lens).unwrap();
        let conv = ConvolutionDescriptor::d2().with_pads([1, 1]).unwrap();
        let (input, weights) = (of([4, 64, 13, 13]), of([64, 64, 3, 3]));
        let output = conv.forward_output(&input, &weights).unwrap();
        let convolved = Op::ConvForward { conv, weights };
        // Behind a residual single elements are written at once, else words.
        for ops in [vec![convolved.clone()], vec![convolved, Op::BiasForward { bias: output }]] {
            let problem = Problem { input, output, ops, math: MathMode::Precise };
            let tilings =
                candidates::tilings(Load::Runs, &problem, 132).into_iter().map(|(tiling, _)| tiling);
            let paired: Vec<_> =
                tilings.filter(|tiling| tiling.runs.is_some_and(|runs| runs.paired)).collect();
            assert!(!paired.is_empty());
            for tiling in paired {
                let alignment = wgmma_kernel(&problem, "sm_90a", &tiling).output_alignment;
                assert!(alignment.is_multiple_of(4), "{tiling}: {alignment}");
            }
        }
    }
}

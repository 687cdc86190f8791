//! The files that a kernel's text is made of.

use fuseplan_api::Problem;
use fuseplan_gpu::{ALONE, COORD, SHARE, kernel_text};

use super::layout::{neighbours, writes_filters, writes_images, writes_rows, writes_words};
use super::tiling::{Load, Tiling};
use crate::runtime::CLUSTER;

const TMA_PRODUCER: &str = kernel_text!("../../kernels/tma_producer.cuh");

const FOURS: &str = kernel_text!("../../kernels/fours.cuh");

const HALVES: &str = kernel_text!("../../kernels/halves.cuh");

const TF32X3: &str = kernel_text!("../../kernels/tf32x3.cuh");

/// What stands for `tf32x3.cuh` where factors have one part.
const ONE_PART: &str = "\
template <class E> DEVICE unsigned low_word_of(const E*) { return 0; }
template <int N> DEVICE bool are_finite(const float (&)[N]) { return true; }
DEVICE float sum_of_products(const Args&, int, int, int) { return 0.f; }
";

/// Residuals that no thread reads early.
const NOT_EARLY: &str = "\
static_assert(!RESIDUALS_EARLY, \"residuals are read where they are used\");
DEVICE void read_residuals(const Args&, Early&, int) {}
";

/// What stands for `filters.cuh` where threads do not bring filters.
const NOT_REARRANGED: &str = "DEVICE void rearrange_filters(const Args&, char*, float*) {}\n";

/// What stands for `streamed_filters.cuh` and `reorder.cuh` where no operands are prepared.
const NOT_STREAMED: &str = "\
DEVICE bool prepares(const Launch&) { return false; }
DEVICE void prepare(const Launch&) {}
DEVICE void wait_for_image(const Launch&) { wait_for_grids(); }
DEVICE void stream_filters(const Launch&, unsigned, const Barriers&) {}
";

/// The files of a tile's kernel, of which `wgmma` are the instructions.
pub(super) fn files<'a>(tiling: &Tiling, problem: &Problem, wgmma: &'a str) -> [&'a str; 19] {
    let load = tiling.load;
    let parts = if tiling.tf32x3 {
        [TF32X3, kernel_text!("../../kernels/tf32x3_interval.cuh")]
    } else {
        [ONE_PART, ""]
    };
    let (loads, producer) = match load {
        Load::Tma if tiling.tf32x3 => {
            (kernel_text!("../../kernels/im2col.cuh"), kernel_text!("../../kernels/tf32x3_producer.cuh"))
        }
        Load::Tma | Load::Reordered => (kernel_text!("../../kernels/im2col.cuh"), TMA_PRODUCER),
        Load::Halo => (kernel_text!("../../kernels/window.cuh"), TMA_PRODUCER),
        Load::Planes if tiling.copied => (kernel_text!("../../kernels/copied_planes.cuh"), ""),
        Load::Planes => (kernel_text!("../../kernels/planes.cuh"), TMA_PRODUCER),
        Load::Packed => (kernel_text!("../../kernels/packed_planes.cuh"), TMA_PRODUCER),
        Load::Lines => (kernel_text!("../../kernels/lines.cuh"), TMA_PRODUCER),
        Load::Transposed => (kernel_text!("../../kernels/transposed.cuh"), ""),
        Load::Runs if tiling.element == 2 => {
            (kernel_text!("../../kernels/runs.cuh"), kernel_text!("../../kernels/runs_words.cuh"))
        }
        Load::Runs => (kernel_text!("../../kernels/runs.cuh"), kernel_text!("../../kernels/runs_rows.cuh")),
        Load::Gather => (kernel_text!("../../kernels/gather.cuh"), ""),
    };
    let mainloop = match load {
        Load::Runs if tiling.tf32x3 => kernel_text!("../../kernels/runs_tf32x3_mainloop.cuh"),
        Load::Runs if tiling.element == 2 => kernel_text!("../../kernels/runs_words_mainloop.cuh"),
        Load::Runs => kernel_text!("../../kernels/runs_mainloop.cuh"),
        _ if tiling.tf32x3 => kernel_text!("../../kernels/tf32x3_mainloop.cuh"),
        Load::Tma | Load::Reordered | Load::Planes | Load::Gather => {
            kernel_text!("../../kernels/mainloop.cuh")
        }
        Load::Halo => kernel_text!("../../kernels/window_mainloop.cuh"),
        Load::Packed if neighbours(tiling, problem) > 1 => {
            kernel_text!("../../kernels/neighbours_mainloop.cuh")
        }
        Load::Packed => kernel_text!("../../kernels/packed_mainloop.cuh"),
        Load::Lines => kernel_text!("../../kernels/lines_mainloop.cuh"),
        Load::Transposed => kernel_text!("../../kernels/transposed_mainloop.cuh"),
    };
    let parts_of_rows = kernel_text!("../../kernels/parts.cuh");
    let epilogue = match load {
        _ if tiling.runs.is_some_and(|runs| runs.overlap > 0) => {
            ["", NOT_EARLY, kernel_text!("../../kernels/along_sectors.cuh")]
        }
        _ if writes_filters(tiling, problem) => [HALVES, "", kernel_text!("../../kernels/along_filters.cuh")],
        _ if writes_images(tiling, problem) => {
            [HALVES, NOT_EARLY, kernel_text!("../../kernels/along_images.cuh")]
        }
        _ if writes_words(tiling, problem) => ["", NOT_EARLY, kernel_text!("../../kernels/along_planes.cuh")],
        Load::Tma | Load::Halo => [FOURS, "", kernel_text!("../../kernels/along_channels.cuh")],
        Load::Runs if tiling.runs.is_some_and(|runs| runs.paired) => {
            [FOURS, NOT_EARLY, kernel_text!("../../kernels/along_pairs.cuh")]
        }
        Load::Runs if writes_rows(load, problem) => {
            [FOURS, NOT_EARLY, kernel_text!("../../kernels/along_rows.cuh")]
        }
        Load::Packed | Load::Runs => ["", NOT_EARLY, kernel_text!("../../kernels/packed_epilogue.cuh")],
        Load::Lines | Load::Transposed => [FOURS, NOT_EARLY, kernel_text!("../../kernels/along_lines.cuh")],
        Load::Planes | Load::Reordered | Load::Gather => {
            [parts_of_rows, "", kernel_text!("../../kernels/along_pixels.cuh")]
        }
    };
    let residuals = if matches!(load, Load::Tma | Load::Halo) {
        ""
    } else {
        kernel_text!("../../kernels/residuals_along_pixels.cuh")
    };
    let tap_filters = if matches!(load, Load::Tma | Load::Reordered | Load::Halo) {
        kernel_text!("../../kernels/tap_filters.cuh")
    } else {
        ""
    };
    let filters = match () {
        () if load == Load::Reordered => [NOT_REARRANGED, kernel_text!("../../kernels/reorder.cuh")],
        () if tiling.has_own_filters() => [kernel_text!("../../kernels/own_filters.cuh"), ""],
        () if tiling.takes_filter_rows() => [NOT_REARRANGED, kernel_text!("../../kernels/filter_rows.cuh")],
        () if tiling.is_streamed() => [NOT_REARRANGED, kernel_text!("../../kernels/streamed_filters.cuh")],
        () if tiling.rearranged => [kernel_text!("../../kernels/filters.cuh"), NOT_STREAMED],
        () => [NOT_REARRANGED, NOT_STREAMED],
    };
    [
        COORD,
        if tiling.split > 1 { CLUSTER } else { ALONE },
        SHARE,
        kernel_text!("../../kernels/hopper.cuh"),
        wgmma,
        kernel_text!("../../kernels/wgmma.cuh"),
        parts[0],
        parts[1],
        filters[0],
        filters[1],
        tap_filters,
        loads,
        producer,
        mainloop,
        residuals,
        epilogue[0],
        epilogue[1],
        epilogue[2],
        kernel_text!("../../kernels/wgmma_split.cuh"),
    ]
}

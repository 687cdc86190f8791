//! What the choice of a tile is made of.

use fuseplan_api::Problem;
use fuseplan_gpu::{
    Volume, chain_values, channel_values, convolution, has_exponentials, reads_elements, residuals, spatial,
};

use super::layout::{
    groups_apart, groups_walked, images_follow, neighbours_of, orders_filters, outputs_at_once,
    results_are_odd, takes_filters, takes_images, takes_tf32x3, takes_words, unrolled_parts, writes_rows,
};
use super::tiling::{Load, Tiling};

/// The numbers of a problem that tiles and their times depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) images: usize,
    /// Planes of an output's image, their lines, and columns.
    pub(super) planes: usize,
    pub(super) lines: usize,
    pub(super) columns: usize,
    /// Columns of the input, those of its padding before the first, and those from one that a column of the output begins at to the next.
    pub(super) image_columns: usize,
    pub(super) pad: usize,
    pub(super) stride: usize,
    /// Whether TMA can load the filters as rows.
    pub(super) is_aligned: bool,
    pub(super) groups: usize,
    /// Whether TMA can know where groups end: where it loads boxes, and where it walks over pixels.
    pub(super) groups_apart: bool,
    pub(super) groups_walked: bool,
    /// Filters and channels of a group.
    pub(super) filters: usize,
    pub(super) channels: usize,
    pub(super) taps: [usize; 3],
    pub(super) channel_values: usize,
    /// Registers that operators of the chain need in the epilogue where eight channels of two pixels are finished at a
    /// time: numbers of these channels, residuals that are on their way, what is between exponentials.
    pub(super) epilogue: usize,
    /// Whether filters can come in the order in which lanes have columns.
    pub(super) orders_filters: bool,
    /// Outputs that are written at once.
    pub(super) vector: usize,
    /// Parts of a tile that an epilogue has unrolled.
    pub(super) unrolled_parts: usize,
    /// Bytes of an element.
    pub(super) element: usize,
    /// Whether products are three of TF32.
    pub(super) tf32x3: bool,
    /// Bytes of input, filters, output and residuals.
    pub(super) bytes: usize,
    /// Of these, of input and filters.
    pub(super) read: usize,
    /// Residuals.
    pub(super) residuals: usize,
    /// Whether an operator reads a number for each result, and whether planes or images of these do not all begin at even elements.
    pub(super) reads_elements: bool,
    pub(super) results_are_odd: bool,
    /// Whether images of the output can be written by 16 bytes, wherever filters begin.
    pub(super) images_follow: bool,
    /// Whether results are written from where they are summed, as neighbouring rows are.
    pub(super) writes_rows: bool,
    /// Multiprocessors.
    pub(super) units: usize,
}

impl Work {
    /// Of a problem that meets the solver's constraints, on a device of about `units` multiprocessors.
    pub(super) fn of(load: Load, problem: &Problem, units: usize) -> Work {
        let (conv, weights) = convolution(problem);
        let [x, w, y] = [&problem.input, weights, &problem.output].map(Volume::of);
        let element = problem.output.data_type().size();
        Work {
            images: y.lens[0],
            planes: y.lens[2],
            lines: y.lens[3],
            columns: y.lens[4],
            image_columns: x.lens[4],
            pad: spatial(conv.pads_before(), 0)[2],
            stride: spatial(conv.strides(), 1)[2],
            is_aligned: (w.strides[0] * element).is_multiple_of(16),
            groups: conv.groups(),
            groups_apart: groups_apart(problem),
            groups_walked: groups_walked(problem),
            filters: w.lens[0] / conv.groups(),
            channels: w.lens[1],
            taps: [w.lens[2], w.lens[3], w.lens[4]],
            channel_values: channel_values(problem),
            epilogue: 8 * chain_values(problem)
                + 4 * element * residuals(problem)
                + if has_exponentials(problem) { 8 } else { 0 },
            orders_filters: orders_filters(problem),
            element,
            tf32x3: takes_tf32x3(load, problem),
            vector: outputs_at_once(load, problem),
            unrolled_parts: unrolled_parts(problem),
            bytes: problem.input.element_bytes()
                + weights.element_bytes()
                + (1 + residuals(problem)) * problem.output.element_bytes(),
            read: problem.input.element_bytes() + weights.element_bytes(),
            residuals: residuals(problem),
            reads_elements: reads_elements(problem),
            results_are_odd: results_are_odd(problem),
            images_follow: images_follow(problem),
            writes_rows: writes_rows(load, problem),
            units,
        }
    }

    pub(super) fn steps(&self, tiling: &Tiling) -> usize {
        tiling.steps(self.channels, self.taps)
    }

    pub(super) fn filter_steps(&self, tiling: &Tiling) -> usize {
        tiling.filter_steps(self.channels, self.taps)
    }

    /// For how many parts a thread has a tile's residuals on their way while it finishes one, if it has not read them before.
    pub(super) fn residuals_ahead(&self, tiling: &Tiling) -> usize {
        // Fewer bytes at a time are read where they are used.
        if self.vector * self.element < 8 {
            0
        } else {
            tiling.residuals_ahead(self.residuals, self.unrolled_parts)
        }
    }

    /// Whether a tile's results are written as words along planes.
    pub(super) fn writes_words(&self, tiling: &Tiling) -> bool {
        !self.writes_images(tiling) && takes_words(tiling, self.results_are_odd, self.reads_elements)
    }

    /// Pixels that lie side by side in a lane's rows of whole planes.
    pub(super) fn neighbours(&self, tiling: &Tiling) -> usize {
        neighbours_of(tiling, self.vector, self.reads_elements)
    }

    /// Whether results of whole planes are written as vectors, of images or of neighbours.
    pub(super) fn writes_images(&self, tiling: &Tiling) -> bool {
        takes_images(tiling, self.vector, self.reads_elements, self.images_follow)
    }

    /// Whether results are passed through shared memory as they are written along pixels, where rows are filters.
    pub(super) fn writes_filters(&self, tiling: &Tiling) -> bool {
        takes_filters(tiling, self.vector, self.reads_elements)
    }

    /// Whether a tile's residuals are read before its main loop.
    pub(super) fn reads_residuals_early(&self, tiling: &Tiling) -> bool {
        tiling.reads_residuals_early(self.residuals, self.vector, self.filter_steps(tiling))
    }

    pub(super) fn columns(&self, tiling: &Tiling) -> usize {
        self.groups * self.filters.div_ceil(tiling.filters())
    }

    pub(super) fn tiles(&self, tiling: &Tiling) -> usize {
        tiling.tiles_of_pixels(self.images, self.planes, self.lines, self.columns) * self.columns(tiling)
    }
}

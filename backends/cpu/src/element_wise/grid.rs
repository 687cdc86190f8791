//! Elements in rows, and which parameters belong to them.

use std::fmt;
use std::ops::Range;

use fuseplan_api::{BatchNormMode, Op, Problem};

use crate::channels::Run;
use crate::isa::MAX_LANES;

/// Columns that are computed at once: a block of f32 that stays in the first-level cache.
pub(super) const BLOCK: usize = 1024;

/// Elements of an item, about: enough to make taking one cheap, and folding its parameters.
const ITEM: usize = 32 << 10;

/// Rows shorter than this are not worth parameters of their own: a rest of a vector costs too much.
const SHORT: usize = 16;

/// Nor are rows shorter than this that leave a rest, where there are enough images to share what columns
/// cost.
const UNEVEN: usize = 256;

/// All elements in memory order, in rows of equal length; the last row may be shorter. Where channels lie in blocks, each
/// block of each image has rows of its own, as an image of so many channels has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grid {
    /// Elements of a part: a block of an image, or all of them. Parts have the same rows.
    elements: usize,
    parts: usize,
    /// Blocks of an image; 1 where there are none.
    blocks: usize,
    /// Length of a row.
    len: usize,
    /// Whether parameters belong to rows. If not, they belong to columns, the same in each row.
    per_row: bool,
    /// Whether the next parameter in memory order is that of the next channel, rather than position.
    channel_fastest: bool,
    /// Whether parameters of columns come again after those of all channels.
    repeats: bool,
    /// Channels of a part.
    channels: usize,
    /// Elements of one channel of one image.
    plane: usize,
    rows_per_item: usize,
    columns_per_item: usize,
}

impl Grid {
    /// For a packed problem.
    pub(super) fn of(problem: &Problem) -> Self {
        let tensor = &problem.output;
        let plane: usize = tensor.spatial().iter().product();
        let has_parameters = |op: &Op| !matches!(op, Op::ActivationForward { .. }) && !op.is_residual();
        let blocks = tensor.blocks().filter(|_| problem.ops.iter().any(has_parameters));
        let channels = blocks.map_or(tensor.lens()[1], |blocks| blocks.channels);
        let elements = blocks.map_or(tensor.element_count(), |blocks| blocks.stride);
        let last =
            blocks.is_some() || plane == 1 || tensor.layout().is_some_and(|layout| layout.is_channels_last());
        let per_position =
            |op: &Op| matches!(op, Op::BatchNormInference { mode: BatchNormMode::PerActivation, .. });

        let is_per_position = problem.ops.iter().any(per_position);
        let leaves_rest = plane < UNEVEN && !plane.is_multiple_of(MAX_LANES) && tensor.lens()[0] >= 8;

        let (per_row, len) = if !problem.ops.iter().any(has_parameters) {
            (true, elements)
        } else if is_per_position || !last && (plane < SHORT || leaves_rest) {
            (false, channels * plane)
        } else if last {
            // Some pixels in a row, a number that leaves no rest of a vector where there is room for it.
            let pixels = (BLOCK / channels).max(1);
            (false, channels * if pixels > 16 { pixels / 16 * 16 } else { pixels })
        } else {
            (true, plane)
        };
        let columns_per_item = len.min(if per_row { ITEM } else { BLOCK });
        Grid {
            elements,
            parts: tensor.element_count() / elements,
            blocks: tensor.lens()[1] / channels,
            len,
            per_row,
            channel_fastest: last || per_row,
            repeats: last && !per_row && !is_per_position,
            channels,
            plane,
            rows_per_item: (ITEM / columns_per_item).clamp(1, BLOCK),
            columns_per_item,
        }
    }

    fn column_items(&self) -> usize {
        self.len.div_ceil(self.columns_per_item)
    }

    /// Rows of a part.
    fn rows(&self) -> usize {
        self.elements.div_ceil(self.len)
    }

    fn items_per_part(&self) -> usize {
        self.rows().div_ceil(self.rows_per_item) * self.column_items()
    }

    /// How many items there are.
    pub(super) fn items(&self) -> usize {
        self.parts * self.items_per_part()
    }

    /// The rows and columns of an item, all of one part. Rows are counted through all parts.
    pub(super) fn item(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let (part, index) = (index / self.items_per_part(), index % self.items_per_part());
        let row = index / self.column_items() * self.rows_per_item;
        let column = index % self.column_items() * self.columns_per_item;
        let (first, rows) = (part * self.rows(), self.rows());
        (
            first + row..first + rows.min(row + self.rows_per_item),
            column..self.len.min(column + self.columns_per_item),
        )
    }

    /// Where in memory some columns of a row lie; fewer than asked for where the last row is shorter.
    pub(super) fn elements(&self, row: usize, columns: &Range<usize>) -> Range<usize> {
        let (part, row) = (row / self.rows(), row % self.rows());
        let at = |column: usize| part * self.elements + (row * self.len + column).min(self.elements);
        at(columns.start)..at(columns.end)
    }

    /// Whether parameters belong to rows.
    pub(super) fn per_row(&self) -> bool {
        self.per_row
    }

    /// The parameters of an item's rows or columns, up to where they come again, and how many there are with all repetitions.
    pub(super) fn parameters(&self, rows: &Range<usize>, columns: &Range<usize>) -> (Parameters<'_>, usize) {
        let mut left = if self.per_row { rows.clone() } else { columns.clone() };
        let entries = left.len();
        if self.repeats {
            left.end = left.end.min(left.start + self.channels);
        }
        let first_channel = rows.start / self.rows() % self.blocks * self.channels;
        (Parameters { grid: self, first_channel, left }, entries)
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = if self.per_row { "row" } else { "column" };
        write!(f, "rows of {} with parameters for each {owner}", self.len)
    }
}

/// Parameters in memory order, in runs along one channel or one position.
#[derive(Debug, Clone)]
pub(super) struct Parameters<'a> {
    grid: &'a Grid,
    first_channel: usize,
    left: Range<usize>,
}

impl Parameters<'_> {
    /// How many are left.
    pub(super) fn len(&self) -> usize {
        self.left.len()
    }
}

impl Iterator for Parameters<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let Grid { channels, plane, channel_fastest, .. } = *self.grid;
        let period = if channel_fastest { channels } else { plane };
        let (slow, fast) = (self.left.start / period, self.left.start % period);
        let len = self.left.len().min(period - fast);
        self.left.start += len;
        let (channel, position) = if channel_fastest { (fast, slow) } else { (slow, fast) };
        let channel = self.first_channel + channel;
        (len > 0).then_some(Run { channel, position, len, along_channels: channel_fastest, plane })
    }
}

#[cfg(test)]
mod tests {
    use fuseplan_api::{ActivationMode, DataType, MathMode, TensorDescriptor, TensorLayout};

    use super::*;

    fn problem(lens: &[usize], layout: TensorLayout, ops: &[Op]) -> Problem {
        let tensor = TensorDescriptor::with_layout(DataType::Float, layout, lens).unwrap();
        Problem { input: tensor, output: tensor, ops: ops.to_vec(), math: MathMode::Precise }
    }

    #[test]
    fn every_element_is_in_one_item_with_its_own_parameters() {
        let spatial = Op::BatchNormInference { mode: BatchNormMode::Spatial, params: DataType::Float };
        let per_activation =
            Op::BatchNormInference { mode: BatchNormMode::PerActivation, params: DataType::Float };
        let relu = Op::ActivationForward { mode: ActivationMode::Relu };
        for lens in [
            [3, 5, 4, 2],
            [2, 3, 40, 37],
            [2, 32, 9, 8],
            [1, 48, 37, 31],
            [1, 1, 1, 1],
            [5, 1500, 1, 1],
            [2, 1100, 2, 1],
            [1, 1, 150, 150],
        ] {
            for &layout in TensorLayout::all_of_rank(4) {
                if layout.block().is_some_and(|block: usize| lens[1] % block != 0) {
                    continue;
                }
                for ops in
                    [vec![spatial.clone()], vec![spatial.clone(), per_activation.clone()], vec![relu.clone()]]
                {
                    let problem = problem(&lens, layout, &ops);
                    let grid = Grid::of(&problem);
                    let (channels, plane) = (lens[1], lens[2] * lens[3]);
                    let block = layout.block().unwrap_or(1);
                    let mut seen = vec![0; problem.output.element_count()];
                    for item in 0..grid.items() {
                        let (rows, columns) = grid.item(item);
                        let list = |run: Run| {
                            let indices = |(first, step)| (0..run.len).map(move |i| first + i * step);
                            indices(run.per_channel(1)).zip(indices(run.per_position()))
                        };
                        let (runs, entries) = grid.parameters(&rows, &columns);
                        let period: Vec<_> = runs.flat_map(list).collect();
                        let expected = if grid.per_row() { rows.len() } else { columns.len() };
                        assert_eq!(entries, expected);
                        let parameters: Vec<_> = period.iter().cycle().take(entries).collect();
                        for row in rows.clone() {
                            let elements = grid.elements(row, &columns);
                            for (i, at) in elements.enumerate() {
                                seen[at] += 1;
                                let (c, position) = match layout {
                                    TensorLayout::Nhwc => (at % channels, at / channels % plane),
                                    _ => (
                                        at / (plane * block) * block % channels + at % block,
                                        at / block % plane,
                                    ),
                                };
                                let found = parameters[if grid.per_row() { row - rows.start } else { i }];
                                assert!(found.0 == c || ops == [relu.clone()]);
                                assert!(found.1 == c * plane + position || ops.len() == 1);
                            }
                        }
                    }
                    assert!(seen.iter().all(|&n| n == 1), "{grid:?}");
                }
            }
        }
    }
}

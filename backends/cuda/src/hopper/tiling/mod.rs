//! A block's tile and schedule.

use std::fmt;

use super::runs::{By, Runs};

mod pixels;
mod resources;

pub(crate) use pixels::{BOX, COPIED, Lines, Load, Packed, TRANSPOSED_DEPTH, Transposed, Window};
#[cfg(test)]
pub(crate) use resources::REGISTERS;
pub(crate) use resources::{SHARED, SHARED_RESERVED, SHORT_LOOP};

/// A block's tile and schedule: how its warpgroups share the work, and how far loads run ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tiling {
    pub(crate) load: Load,
    /// Producer warpgroups, which bring operands.
    pub(crate) producers: usize,
    /// Sets of consumer warpgroups that alternate between tiles (ping-pong); with one, nothing multiplies during the
    /// epilogue.
    pub(crate) pingpong: usize,
    /// Consumer warpgroups of a set, which share a tile (cooperative).
    pub(crate) cooperative: usize,
    /// Rows of each, in the 64 rows of one `wgmma`.
    pub(crate) atoms: usize,
    /// Columns.
    pub(crate) width: usize,
    /// Elements of the depth in a step.
    pub(crate) depth: usize,
    /// Bytes of an element.
    pub(crate) element: usize,
    /// Stages of the pipeline: steps whose operands are in flight or in use.
    pub(crate) stages: usize,
    /// Blocks of a multiprocessor.
    pub(crate) occupancy: usize,
    /// Whether a block's filters are resident: loaded once, for all of its tiles.
    pub(crate) resident: bool,
    /// Whether threads bring the resident filters, which TMA cannot load.
    pub(crate) rearranged: bool,
    /// With [`Load::Planes`], whether threads copy the planes, which TMA cannot address.
    pub(crate) copied: bool,
    /// Blocks that share a tile (split-K over a cluster).
    pub(crate) split: usize,
    /// Whether a product of f32 is three of TF32, of factors in two parts.
    pub(crate) tf32x3: bool,
    /// With [`Load::Packed`].
    pub(crate) packed: Option<Packed>,
    /// With [`Load::Lines`].
    pub(crate) lines: Option<Lines>,
    /// With [`Load::Transposed`].
    pub(crate) transposed: Option<Transposed>,
    /// With [`Load::Runs`].
    pub(crate) runs: Option<Runs>,
    /// With [`Load::Halo`].
    pub(crate) window: Option<Window>,
}

/// `128x104x64, 1 ping-pong, 2 cooperative, occupancy 1`: pixels, filters, depth of a step, and who takes them.
impl fmt::Display for Tiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tiling { pingpong, cooperative, depth, occupancy, .. } = self;
        write!(f, "{}x{}x{depth}, {pingpong} ping-pong, ", self.pixels(), self.filters())?;
        write!(f, "{cooperative} cooperative, occupancy {occupancy}")?;
        if self.resident {
            f.write_str(", resident filters")?;
        }
        if self.copied {
            f.write_str(", copied planes")?;
        }
        if let Some(Packed { pixels, .. }) = self.packed {
            write!(f, ", {pixels} pixels of planes")?;
        }
        if self.split > 1 {
            write!(f, ", split {}", self.split)?;
        }
        if self.tf32x3 {
            f.write_str(", 3xTF32")?;
        }
        if let Some(Window { columns, lines, lines_of_taps, .. }) = self.window {
            write!(f, ", window of {columns}x{lines}, {lines_of_taps} lines of taps")?;
        }
        if let Some(Transposed { lines, columns, .. }) = self.transposed {
            write!(f, ", {lines} lines of {columns} columns")?;
        }
        if let Some(runs) = self.runs.filter(|runs| runs.images > 1 && runs.by != By::Planes) {
            write!(f, ", {} images", runs.images)?;
        }
        if self.runs.is_some_and(|runs| runs.overlap > 0) {
            f.write_str(", whole sectors")?;
        }
        match self.runs.map(|runs| (runs.pixels, runs.boxes, runs.by)) {
            Some((pixels, boxes, By::Boxes)) => write!(f, ", {pixels} pixels by {boxes} boxes")?,
            Some((pixels, boxes, By::Channels)) => {
                write!(f, ", {pixels} pixels by {boxes} boxes of a channel")?
            }
            Some((pixels, _, By::Planes)) => write!(f, ", {pixels} pixels of planes")?,
            None => {}
        }
        if let Some(Lines { count, block, keep, .. }) = self.lines {
            write!(f, ", {count} lines of blocks of {block}{}", if keep { ", kept" } else { "" })?;
        }
        if self.reads_filters() {
            f.write_str(", rows of filters")?;
        } else if self.is_streamed() {
            f.write_str(", streamed filters")?;
        }
        Ok(())
    }
}

impl Tiling {
    pub(crate) fn rows(&self) -> usize {
        self.cooperative * self.atoms * 64
    }

    pub(crate) fn pixels(&self) -> usize {
        if self.pixels_are_rows() { self.rows() } else { self.width }
    }

    pub(crate) fn pixels_are_rows(&self) -> bool {
        matches!(self.load, Load::Tma | Load::Halo | Load::Packed | Load::Runs)
    }

    pub(crate) fn filters(&self) -> usize {
        if self.pixels_are_rows() { self.width } else { self.rows() }
    }

    /// Tiles that cover the pixels of so many images, of so many planes of so many lines.
    pub(crate) fn tiles_of_pixels(
        &self,
        images: usize,
        planes: usize,
        lines: usize,
        columns: usize,
    ) -> usize {
        if let Some(window) = self.window {
            return images * planes * lines.div_ceil(window.lines) * columns.div_ceil(window.columns);
        }
        if let Some(Transposed { lines: some, columns: wide, .. }) = self.transposed {
            return images * planes * lines.div_ceil(some) * columns.div_ceil(wide);
        }
        let lines = planes * lines;
        if let Some(packed) = self.packed {
            return (images * lines * columns).div_ceil(packed.pixels);
        }
        match self.runs {
            Some(Runs { images: 1, by: By::Boxes | By::Channels, pixels, overlap, .. }) => {
                return images * (lines * columns - overlap).div_ceil(pixels);
            }
            Some(runs) => return (images * lines * columns).div_ceil(runs.pixels),
            None => {}
        }
        match (self.load, self.lines) {
            (Load::Lines, Some(tile)) => images * lines.div_ceil(tile.count),
            (Load::Planes, _) => images * (lines * columns).div_ceil(self.pixels()),
            _ => (images * lines * columns).div_ceil(self.pixels()),
        }
    }

    /// Pixels that a step loads.
    pub(crate) fn loaded_pixels(&self) -> usize {
        if let Some(Window { columns, lines, halo, .. }) = self.window {
            return (columns + halo[0]) * (lines + halo[1]);
        }
        if let Some(packed) = self.packed {
            return packed.images() * packed.plane;
        }
        if let Some(tile) = self.transposed {
            return (tile.lines + tile.halo) * tile.line();
        }
        if let Some(runs) = self.runs {
            return runs.loaded(self.depth);
        }
        match (self.load, self.lines) {
            (Load::Lines, Some(lines)) => (lines.count + lines.halo) * lines.columns,
            (Load::Planes, _) => self.width.next_multiple_of(BOX),
            _ => self.pixels(),
        }
    }

    /// Pixels that lie side by side in a stage, where any do.
    pub(crate) fn block(&self) -> usize {
        self.lines.map_or(BOX, |lines| lines.block)
    }

    /// The step's channels of a group, one after the other.
    pub(crate) fn channel_steps(&self, channels: usize) -> usize {
        channels.div_ceil(self.depth)
    }

    /// Whether a group's last step has room for channels that are another group's.
    pub(crate) fn leaves_group(&self, groups: usize, channels: usize) -> bool {
        groups > 1 && !channels.is_multiple_of(self.depth)
    }

    /// Stages of pixels that a tile takes.
    pub(crate) fn steps(&self, channels: usize, taps: [usize; 3]) -> usize {
        let all = taps.iter().product::<usize>();
        match (self.load, self.lines) {
            (Load::Lines, Some(lines)) if lines.keep => self.channel_steps(channels),
            (Load::Lines, _) => self.channel_steps(channels) * taps[2],
            (Load::Transposed | Load::Runs, _) => self.channel_steps(channels) * taps[0],
            (Load::Tma | Load::Reordered | Load::Halo, _) => {
                self.channel_steps(channels) * all / self.step_taps()
            }
            (Load::Planes | Load::Packed | Load::Gather, _) => (channels * all).div_ceil(self.depth),
        }
    }

    /// Steps of the depth, each of which has filters of its own.
    pub(crate) fn filter_steps(&self, channels: usize, taps: [usize; 3]) -> usize {
        match self.load {
            Load::Lines | Load::Halo | Load::Transposed | Load::Runs => {
                self.channel_steps(channels) * taps.iter().product::<usize>()
            }
            Load::Tma | Load::Reordered | Load::Planes | Load::Packed | Load::Gather => {
                self.steps(channels, taps)
            }
        }
    }

    /// Taps whose filters a step loads.
    pub(crate) fn step_taps(&self) -> usize {
        self.window.map_or(1, |window| window.taps)
    }

    /// Stages of the channels' parameters: one for the tile of every set of consumers, and one for the next tile.
    pub(crate) fn channel_stages(&self) -> usize {
        self.pingpong + 1
    }

    /// Taps of a stage of streamed filters.
    pub(crate) fn streamed_taps(&self, taps: [usize; 3]) -> usize {
        match self.load {
            Load::Lines => taps[1],
            Load::Transposed => taps[2],
            _ => self.runs.map_or(1, |runs| runs.taps),
        }
    }

    /// Bytes of a step's elements of one pixel or filter.
    pub(crate) fn loaded_row(&self) -> usize {
        self.depth * self.element
    }

    /// Bytes from a row of a stage to the next one: those that TMA's swizzle repeats after, of which what is loaded may be the first three
    /// quarters.
    pub(crate) fn row(&self) -> usize {
        self.loaded_row().next_power_of_two()
    }

    /// Stages that filters have for themselves.
    pub(crate) fn filter_stages(&self) -> usize {
        let transposed = self.transposed.map(|tile| tile.filter_stages);
        let runs = self.runs.map(|runs| runs.filter_stages);
        transposed.or(runs).or(self.lines.map(|lines| lines.filter_stages)).unwrap_or(0)
    }

    /// Stages of pixels as they come.
    pub(crate) fn raw_stages(&self) -> usize {
        self.transposed.map_or(0, |tile| tile.raw_stages)
    }

    /// Whether filters come by stages of their own.
    pub(crate) fn is_streamed(&self) -> bool {
        self.filter_stages() > 0
    }

    /// Whether these come as an earlier launch has prepared them.
    pub(crate) fn is_prepared(&self) -> bool {
        self.is_streamed() && !self.reads_filters()
    }

    /// Whether they are read as they are.
    pub(crate) fn reads_filters(&self) -> bool {
        self.runs.is_some_and(|runs| runs.filter_rows)
    }

    /// Whether TMA brings them so.
    pub(crate) fn takes_filter_rows(&self) -> bool {
        self.reads_filters() && self.element == 4
    }

    /// Whether a block's threads bring them so, once, all that it has: those of 16 bits in another order than TMA would.
    pub(crate) fn has_own_filters(&self) -> bool {
        self.reads_filters() && self.element == 2
    }

    /// Products that the tensor cores compute for one.
    pub(crate) fn products(&self) -> usize {
        if self.tf32x3 { 3 } else { 1 }
    }
}

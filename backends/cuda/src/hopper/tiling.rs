//! A block's tile and schedule.

use std::fmt;

use fuseplan_api::{DataType, MathMode, Problem};
use fuseplan_gpu::{Volume, common_power};

use super::runs::{By, Runs};

/// How pixels come into shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// By TMA, channels innermost. Rows of the product are pixels.
    Tma,
    /// The same, of a window of the image with its halo, once for several taps.
    Halo,
    /// By TMA, positions innermost, or copied by threads. Rows of the product are filters, and a tile stays within an image.
    Planes,
    /// By bulk copies, whole planes of some images, which follow one another without gaps. Rows of the product are pixels.
    Packed,
    /// By TMA, whole lines of the image. Rows of the product are filters, and a tile has some lines of an image.
    Lines,
    /// By TMA, rectangles of planes, which threads write with channels innermost. Rows of the product are filters.
    Transposed,
    /// By TMA, runs of the planes of f32. Rows of the product are pixels, which threads read to registers.
    Runs,
    /// By loads of elements, any layout. Rows of the product are filters.
    Gather,
}

/// The lines of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lines {
    pub(crate) count: usize,
    /// Columns of a line, and of the blocks that it is made of.
    pub(crate) columns: usize,
    pub(crate) block: usize,
    /// Lines that a tile sees besides its own.
    pub(crate) halo: usize,
    /// Whether a tile's lines are kept for all columns of taps; else they are loaded for each.
    pub(crate) keep: bool,
    /// Stages of filters, each of a column of taps, where these are streamed; none where they are resident.
    pub(crate) filter_stages: usize,
}

/// What a step loads where a tile is a rectangle of an output's plane, in squares of 8 x 8 pixels: the pixels that all of
/// its taps see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    /// Columns and lines of the rectangle.
    pub(crate) columns: usize,
    pub(crate) lines: usize,
    /// Columns and lines besides, for the taps.
    pub(crate) halo: [usize; 2],
    /// Lines of taps of a step: all, or one.
    pub(crate) lines_of_taps: usize,
    /// Taps of a step.
    pub(crate) taps: usize,
}

/// The rectangle of an output's plane that a tile is, and how it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transposed {
    /// Lines, and columns of each.
    pub(crate) lines: usize,
    pub(crate) columns: usize,
    /// Lines that a tile sees besides its own, and boxes of [`BOX`] columns in which they come.
    pub(crate) halo: usize,
    pub(crate) boxes: usize,
    /// Taps of a line, whose filters a stage has.
    pub(crate) taps: usize,
    /// Stages of pixels as they come, and of filters.
    pub(crate) raw_stages: usize,
    pub(crate) filter_stages: usize,
}

impl Transposed {
    /// Columns of a stage's line.
    pub(crate) fn line(self) -> usize {
        self.columns + 8
    }

    /// Bytes of a stage as it comes, of [`TRANSPOSED_DEPTH`] channels.
    pub(crate) fn raw_bytes(self) -> usize {
        self.boxes * (self.lines + self.halo) * TRANSPOSED_DEPTH * BOX * 2
    }
}

/// Channels that are transposed at a time.
pub(super) const TRANSPOSED_DEPTH: usize = 32;

/// The pixels of a tile that runs over the planes of some images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packed {
    /// Pixels of a plane.
    pub(crate) plane: usize,
    /// Pixels of a tile: its rows, or as many of them as whole planes fill.
    pub(crate) pixels: usize,
}

impl Packed {
    /// The most images that a tile has pixels of.
    pub(crate) fn images(self) -> usize {
        let Packed { plane, pixels } = self;
        if pixels.is_multiple_of(plane) { pixels / plane } else { (pixels + plane - 2) / plane + 1 }
    }
}

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
        if self.is_streamed() {
            f.write_str(", streamed filters")?;
        }
        Ok(())
    }
}

/// Positions of a plane that TMA loads at once.
pub(super) const BOX: usize = 64;
/// Bytes of a plane that a thread copies at once.
pub(super) const COPIED: usize = 8;

/// Registers of a multiprocessor for each of 128 threads.
pub(super) const REGISTERS: usize = 512;
/// Bytes of shared memory of a multiprocessor, and of it what every block costs besides its own.
pub(super) const SHARED: usize = 228 * 1024;
pub(super) const SHARED_RESERVED: usize = 1024;

impl Tiling {
    pub(super) fn rows(&self) -> usize {
        self.cooperative * self.atoms * 64
    }

    pub(super) fn pixels(&self) -> usize {
        if self.pixels_are_rows() { self.rows() } else { self.width }
    }

    pub(super) fn pixels_are_rows(&self) -> bool {
        matches!(self.load, Load::Tma | Load::Halo | Load::Packed | Load::Runs)
    }

    pub(super) fn filters(&self) -> usize {
        if self.pixels_are_rows() { self.width } else { self.rows() }
    }

    /// Tiles that cover the pixels of so many images, of so many planes of so many lines.
    pub(super) fn tiles_of_pixels(
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
            Some(Runs { images: 1, by: By::Boxes | By::Channels, pixels, .. }) => {
                return images * (lines * columns).div_ceil(pixels);
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
    pub(super) fn loaded_pixels(&self) -> usize {
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
    pub(super) fn block(&self) -> usize {
        self.lines.map_or(BOX, |lines| lines.block)
    }

    /// The step's channels of a group, one after the other.
    pub(super) fn channel_steps(&self, channels: usize) -> usize {
        channels.div_ceil(self.depth)
    }

    /// Whether a group's last step has room for channels that are another group's.
    pub(super) fn leaves_group(&self, groups: usize, channels: usize) -> bool {
        groups > 1 && !channels.is_multiple_of(self.depth)
    }

    /// Stages of pixels that a tile takes.
    pub(super) fn steps(&self, channels: usize, taps: [usize; 3]) -> usize {
        let all = taps.iter().product::<usize>();
        match (self.load, self.lines) {
            (Load::Lines, Some(lines)) if lines.keep => self.channel_steps(channels),
            (Load::Lines, _) => self.channel_steps(channels) * taps[2],
            (Load::Transposed | Load::Runs, _) => self.channel_steps(channels) * taps[0],
            (Load::Tma | Load::Halo, _) => self.channel_steps(channels) * all / self.step_taps(),
            (Load::Planes | Load::Packed | Load::Gather, _) => (channels * all).div_ceil(self.depth),
        }
    }

    /// Steps of the depth, each of which has filters of its own.
    pub(super) fn filter_steps(&self, channels: usize, taps: [usize; 3]) -> usize {
        match self.load {
            Load::Lines | Load::Halo | Load::Transposed | Load::Runs => {
                self.channel_steps(channels) * taps.iter().product::<usize>()
            }
            Load::Tma | Load::Planes | Load::Packed | Load::Gather => self.steps(channels, taps),
        }
    }

    /// Taps whose filters a step loads.
    pub(super) fn step_taps(&self) -> usize {
        self.window.map_or(1, |window| window.taps)
    }

    /// Stages of the channels' parameters: one for the tile of every set of consumers, and one for the next tile.
    pub(super) fn channel_stages(&self) -> usize {
        self.pingpong + 1
    }

    fn warpgroups(&self) -> usize {
        self.producers + self.pingpong * self.cooperative
    }

    pub(super) fn threads(&self) -> usize {
        self.warpgroups() * 128
    }

    /// Taps of a stage of streamed filters.
    pub(super) fn streamed_taps(&self, taps: [usize; 3]) -> usize {
        match self.load {
            Load::Lines => taps[1],
            Load::Transposed => taps[2],
            _ => 1,
        }
    }

    /// Bytes of a row of a stage: a step's elements of one pixel or filter.
    pub(super) fn row(&self) -> usize {
        self.depth * self.element
    }

    /// Bytes of the table of the depth where pixels are gathered.
    pub(super) fn table(&self, taps: usize) -> usize {
        if self.load == Load::Gather { self.depth * taps * 8 } else { 0 }
    }

    /// Stages that filters have for themselves.
    pub(super) fn filter_stages(&self) -> usize {
        let transposed = self.transposed.map(|tile| tile.filter_stages);
        let runs = self.runs.map(|runs| runs.filter_stages);
        transposed.or(runs).or(self.lines.map(|lines| lines.filter_stages)).unwrap_or(0)
    }

    /// Stages of pixels as they come.
    pub(super) fn raw_stages(&self) -> usize {
        self.transposed.map_or(0, |tile| tile.raw_stages)
    }

    /// Whether filters come as an earlier launch has prepared them, by stages of their own.
    pub(super) fn is_streamed(&self) -> bool {
        self.filter_stages() > 0
    }

    /// Taps whose filters shared memory has room for.
    pub(super) fn filter_room(&self, filter_steps: usize) -> usize {
        if let Some(tile) = self.transposed {
            return tile.filter_stages * tile.taps;
        }
        if let Some(runs) = self.runs {
            return runs.filter_stages;
        }
        match self.lines {
            Some(lines) if lines.filter_stages > 0 => lines.filter_stages * (lines.halo + 1),
            _ if self.resident => filter_steps,
            _ => self.stages * self.step_taps(),
        }
    }

    /// Bytes of the operands of all stages, and of filters that stay.
    pub(super) fn operands(&self, filter_steps: usize) -> usize {
        let row = self.row();
        let kept = self.filter_room(filter_steps);
        let (pixel_parts, filter_parts) = match (self.tf32x3, self.pixels_are_rows()) {
            (false, _) => (1, 1),
            (true, true) => (1, 2),
            (true, false) => (2, 1),
        };
        // Swizzled rows repeat after 1024 bytes.
        let pixels = pixel_parts * (self.loaded_pixels() * row).next_multiple_of(1024);
        let raw = self.transposed.map_or(0, |tile| tile.raw_stages * tile.raw_bytes());
        raw + self.stages * pixels + kept * filter_parts * self.filters() * row
    }

    /// Mbarriers of filters that threads split.
    fn parts_barriers(&self) -> usize {
        match (self.tf32x3 && self.pixels_are_rows() && !self.is_streamed(), self.resident) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => self.stages,
        }
    }

    /// Bytes that accumulators pass through: parts of all warps, or the accumulators of blocks that share a tile.
    pub(super) fn passed(&self) -> usize {
        let values = if self.split > 1 {
            self.rows() * (self.width + 4)
        } else {
            let (rows, columns) = self.part();
            self.pingpong * self.cooperative * 4 * rows * (columns + 8)
        };
        values * size_of::<f32>()
    }

    /// Bytes of shared memory of a block; as the text counts them.
    pub(super) fn shared(&self, filter_steps: usize, taps: usize, channel_values: usize) -> usize {
        let channels =
            (self.channel_stages() * self.filters() * channel_values * size_of::<f32>()).next_multiple_of(16);
        let stages = 2 * (self.stages + self.channel_stages() + self.filter_stages() + self.raw_stages());
        let barriers = (stages + self.pingpong + 1 + self.parts_barriers()) * 8;
        1024 + self.operands(filter_steps) + self.passed() + channels + self.table(taps) + barriers
    }

    /// Rows and columns of the parts in which a warp's accumulators pass through shared memory; as the text counts them.
    fn part(&self) -> (usize, usize) {
        match self.width {
            ..=16 => (16, 16),
            17..=32 => (16, 32),
            33.. => (8, 64),
        }
    }

    /// Columns of all parts side by side: those that lanes take time for.
    pub(super) fn columns_of_parts(&self) -> usize {
        self.width.next_multiple_of(self.part().1)
    }

    pub(super) fn registers_at_launch(&self) -> usize {
        (REGISTERS / (self.occupancy * self.warpgroups()) / 8 * 8).min(248)
    }

    /// Registers of a consumer's accumulators.
    pub(super) fn accumulators(&self) -> usize {
        self.atoms * self.width / 2
    }

    /// Products that the tensor cores compute for one.
    pub(super) fn products(&self) -> usize {
        if self.tf32x3 { 3 } else { 1 }
    }

    /// Registers that a consumer's main loop needs besides where products are 3xTF32: an interval's sums, the rows' factors and
    /// their parts, also those of the next interval, and what counts steps, of which a split tile has a share.
    pub(super) fn promotion(&self) -> usize {
        let gathers = self.load == Load::Gather;
        let factors = if gathers { 24 } else { 40 };
        let counters = 24 + if gathers { 24 } else { 0 } + if self.split > 1 { 16 } else { 0 };
        if self.tf32x3 { self.accumulators() + factors + counters } else { 0 }
    }

    /// Registers of a producer's thread and of a consumer's.
    pub(super) fn registers(&self) -> (usize, usize) {
        let consumers = self.pingpong * self.cooperative;
        let pool = self.registers_at_launch() * self.warpgroups();
        match self.load {
            Load::Tma
            | Load::Halo
            | Load::Planes
            | Load::Packed
            | Load::Lines
            | Load::Transposed
            | Load::Runs => {
                let producer = match pool {
                    // Filters are split, planes copied, or pixels transposed.
                    _ if (self.tf32x3 && self.runs.is_none()) || self.copied || self.transposed.is_some() => {
                        56
                    }
                    400.. => 40,
                    _ if self.load != Load::Tma => 40,
                    _ => 24,
                };
                (producer, ((pool - producer) / consumers / 8 * 8).min(240))
            }
            Load::Gather => {
                let needed = self.accumulators() + 56.max(self.promotion());
                let consumer = needed.next_multiple_of(8).clamp(self.registers_at_launch(), 240);
                let producer = pool.saturating_sub(consumer * consumers) / self.producers / 8 * 8;
                (producer.min(self.registers_at_launch()), consumer)
            }
        }
    }
}

/// Whether groups can be a dimension of an image's map: images have two dimensions, and groups begin at multiples of 16 bytes.
pub(super) fn groups_apart(problem: &Problem) -> bool {
    let channels = problem.conv().map_or(0, |(_, weights)| weights.lens()[1]);
    problem.input.spatial().len() == 2 && (channels * problem.input.data_type().size()).is_multiple_of(16)
}

/// The same where TMA walks over pixels, with the limits of its im2col mode in three dimensions: groups are the offsets of taps.
pub(super) fn groups_walked(problem: &Problem) -> bool {
    let Some((conv, weights)) = problem.conv().filter(|_| groups_apart(problem)) else { return false };
    let taps = &weights.lens()[2..];
    let fits = (0..conv.spatial_dims()).all(|d| {
        let last_tap = (taps[d] - 1) * conv.dilations()[d];
        let [before, after] = [conv.pads_before()[d], conv.pads_after()[d]];
        before <= 15 && after.abs_diff(last_tap) <= 15 && last_tap <= 31
    });
    conv.groups() <= 16 && fits
}

/// Whether a problem's products are 3xTF32: those of f32 that its plan does not allow to be TF32.
pub(super) fn is_tf32x3(problem: &Problem) -> bool {
    problem.output.data_type() == DataType::Float && problem.math != MathMode::AllowTf32
}

/// Results that lie side by side in memory, at most 16 bytes of them: of channels, or of positions where rows of the
/// product are filters.
pub(super) fn outputs_at_once(load: Load, problem: &Problem) -> usize {
    let (y, most) = (Volume::of(&problem.output), 16 / problem.output.data_type().size());
    match load {
        Load::Tma | Load::Halo => {
            let groups = problem.conv().map_or(1, |(conv, _)| conv.groups());
            common_power(y.alignment(1, most), y.lens[1] / groups)
        }
        // A warp writes the pixels of a plane, one a lane.
        Load::Packed | Load::Runs => 1,
        Load::Planes | Load::Lines | Load::Transposed | Load::Gather => {
            // A tile's line ends where the output's does.
            let run = if matches!(load, Load::Lines | Load::Transposed) { y.lens[4] } else { y.plane() };
            y.strides[..2].iter().fold(common_power(most, run), |power, &stride| common_power(power, stride))
        }
    }
}

/// Whether TMA can address a tensor of 16 bits by boxes of these dimensions, given innermost first, the first of which has no
/// gaps.
pub(super) fn is_addressable(volume: &Volume, first: usize, dims: &[usize]) -> bool {
    const CHUNK: usize = 8;
    let mut least = first;
    dims.iter().filter(|&&d| volume.lens[d] > 1).all(|&d| {
        let fits = volume.strides[d] >= least && volume.strides[d].is_multiple_of(CHUNK);
        least = volume.strides[d] * volume.lens[d];
        fits
    })
}

/// Whether planes of 16 bits begin and end at multiples of [`COPIED`] bytes.
pub(super) fn is_copyable(x: &Volume) -> bool {
    let strides = [0, 1].into_iter().filter(|&d| x.lens[d] > 1).map(|d| x.strides[d]);
    strides.chain([x.plane()]).all(|count| (count * 2).is_multiple_of(COPIED))
}

/// Whether planes of 16 bits follow one another without gaps, and bulk copies can bring those of all channels of a group: whole
/// numbers of 16 bytes, at multiples of as many.
pub(super) fn is_packed(x: &Volume, channels: usize) -> bool {
    const CHUNK: usize = 8;
    let follow = x.lens[1] == 1 || x.strides[1] == x.plane();
    let images = x.lens[0] == 1 || x.strides[0].is_multiple_of(CHUNK);
    follow && images && (channels * x.plane()).is_multiple_of(CHUNK) && channels.is_multiple_of(2)
}

/// Elements of packed filters that are read at once: 16 bytes of filters that are whole numbers of these, else one.
pub(super) fn filters_at_once(weights: &Volume, element: usize) -> usize {
    let depth = weights.lens[1] * weights.plane();
    let whole = [depth, weights.strides[0]].into_iter().all(|count| (count * element).is_multiple_of(16));
    if whole { 16 / element } else { 1 }
}

/// Columns behind the end of a tile's line onto which sums move.
pub(super) fn columns_behind(columns: usize, taps: usize, pad: usize, line: usize) -> usize {
    (columns + taps - 1 - pad).saturating_sub(line)
}

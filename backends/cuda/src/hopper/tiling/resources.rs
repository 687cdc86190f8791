//! What a tile takes of a multiprocessor: shared memory and registers.

use fuseplan_gpu::units_at_once;

use super::{Load, Tiling};

/// Registers of a multiprocessor for each of 128 threads.
pub(crate) const REGISTERS: usize = 512;
/// Bytes of shared memory of a multiprocessor, and of it what every block costs besides its own.
pub(crate) const SHARED: usize = 228 * 1024;
pub(crate) const SHARED_RESERVED: usize = 1024;

/// Steps of filters of a main loop in front of which residuals are read: up to 36 gained where timed, 72 lost. In a longer one they come
/// to the second-level cache meanwhile.
pub(crate) const SHORT_LOOP: usize = 36;

impl Tiling {
    fn warpgroups(&self) -> usize {
        self.producers + self.pingpong * self.cooperative
    }

    pub(crate) fn threads(&self) -> usize {
        self.warpgroups() * 128
    }

    /// Blocks that a device of as many multiprocessors holds at once, in whole clusters.
    pub(crate) fn slots(&self, units: usize) -> usize {
        units_at_once(units, self.split) * self.occupancy / self.split * self.split
    }

    /// Bytes of the table of the depth where pixels are gathered.
    pub(crate) fn table(&self, taps: usize) -> usize {
        if self.load == Load::Gather { self.depth * taps * 8 } else { 0 }
    }

    /// Taps whose filters shared memory has room for.
    pub(crate) fn filter_room(&self, filter_steps: usize) -> usize {
        if let Some(tile) = self.transposed {
            return tile.filter_stages * tile.taps;
        }
        if let Some(runs) = self.runs {
            return runs.filter_stages * runs.taps;
        }
        match self.lines {
            Some(lines) if lines.filter_stages > 0 => lines.filter_stages * (lines.halo + 1),
            _ if self.resident => filter_steps,
            _ => self.stages * self.step_taps(),
        }
    }

    /// Bytes of the operands of all stages, and of filters that stay.
    pub(crate) fn operands(&self, filter_steps: usize) -> usize {
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

    /// Whether results are written along channels, as lanes have them, so that accumulators pass through registers alone.
    fn writes_channels(&self) -> bool {
        matches!(self.load, Load::Tma | Load::Halo)
    }

    /// Whether its filters come in the order in which lanes have columns, where that can be: a box has 64 bytes of
    /// filters. In f32 only resident ones do, as where they come step by step that took up to 1.09 of the time with 128
    /// to 512 filters, by boxes of 32.
    pub(crate) fn takes_filters_by_lane(&self) -> bool {
        let orders = self.element == 2 || self.resident;
        self.writes_channels() && self.filters().is_multiple_of(64 / self.element) && orders
    }

    /// Bytes that accumulators pass through: parts of all warps, or the accumulators of blocks that share a tile.
    pub(crate) fn passed(&self) -> usize {
        let values = match self.split {
            1 if self.writes_channels() => 0,
            1 => {
                let (rows, columns) = self.part();
                self.pingpong * self.cooperative * 4 * rows * (columns + 8)
            }
            _ => self.rows() * (self.width + 4),
        };
        values * size_of::<f32>()
    }

    /// Bytes by way of which warps reorder operands, each 32 pixels of 32 words and one; as the text counts them.
    fn reordered(&self) -> usize {
        if self.load == Load::Reordered { self.warpgroups() * 4 * 32 * 33 * 4 } else { 0 }
    }

    /// Bytes of shared memory of a block; as the text counts them.
    pub(crate) fn shared(&self, filter_steps: usize, taps: usize, channel_values: usize) -> usize {
        let channels =
            (self.channel_stages() * self.filters() * channel_values * size_of::<f32>()).next_multiple_of(16);
        let stages = 2 * (self.stages + self.channel_stages() + self.filter_stages() + self.raw_stages());
        let barriers = (stages + self.pingpong + 1 + self.parts_barriers()) * 8;
        let computing =
            1024 + self.operands(filter_steps) + self.passed() + channels + self.table(taps) + barriers;
        computing.max(self.reordered())
    }

    /// Rows and columns of the parts in which a warp's accumulators pass through shared memory; as the text counts them.
    fn part(&self) -> (usize, usize) {
        match self.width {
            ..=16 => (16, 16),
            17..=32 => (16, 32),
            33.. => (8, 64),
        }
    }

    /// Columns of all parts side by side, or of what four lanes exchange: those that lanes take time for.
    pub(crate) fn columns_of_parts(&self) -> usize {
        self.width.next_multiple_of(if self.writes_channels() { 32 } else { self.part().1 })
    }

    pub(crate) fn registers_at_launch(&self) -> usize {
        (REGISTERS / (self.occupancy * self.warpgroups()) / 8 * 8).min(248)
    }

    /// Registers of a consumer's accumulators.
    pub(crate) fn accumulators(&self) -> usize {
        self.atoms * self.width / 2
    }

    /// Registers that a consumer's main loop needs besides where products are 3xTF32: an interval's sums, the rows' factors and
    /// their parts, also those of the next interval, and what counts steps, of which a split tile has a share.
    pub(crate) fn promotion(&self) -> usize {
        let gathers = self.load == Load::Gather;
        let factors = if gathers { 24 } else { 40 };
        let counters = 24 + if gathers { 24 } else { 0 } + if self.split > 1 { 16 } else { 0 };
        if self.tf32x3 { self.accumulators() + factors + counters } else { 0 }
    }

    /// Whether a consumer's thread reads all residuals of its elements of a tile before the tile's main loop, so that it does not
    /// wait for them behind it: where a block has a tile or two, nothing else would hide that. They stay in registers meanwhile,
    /// beside the accumulators and what the main loop needs, so a thread has few of them, and the loop is short. A thread has
    /// `vector` elements that lie side by side.
    pub(crate) fn reads_residuals_early(&self, residuals: usize, vector: usize, filter_steps: usize) -> bool {
        let (rows, columns) = (self.rows(), self.columns_of_parts());
        let elements = if self.split > 1 {
            // Those of its units of the block's share of the rows.
            let unit = vector.max(4);
            let units = rows.div_ceil(self.split) * (self.width / unit);
            units.div_ceil(self.cooperative * 128) * unit
        } else {
            self.atoms * columns / 2
        };
        let held = residuals * elements * self.element / 4;
        let others = if self.tf32x3 { 2 * self.accumulators() + 80 } else { self.accumulators() + 56 };
        let (most, (_, consumer)) = (if self.split > 1 { 16 } else { 32 }, self.registers());
        residuals > 0
            && match self.load {
                Load::Tma | Load::Halo => true,
                Load::Planes | Load::Reordered | Load::Gather => self.split == 1,
                Load::Packed | Load::Lines | Load::Transposed | Load::Runs => false,
            }
            && vector * self.element >= 8
            && filter_steps <= SHORT_LOOP * self.split
            && held <= most
            && held + others <= consumer
    }

    /// For how many parts a consumer's thread that has not read its residuals early has these on their way while it finishes one: of 16
    /// bits along channels, where so many parts are unrolled, for those that there are registers for, at most four, which wait in about the
    /// time of one, elsewhere for one. Sums of 3xTF32 that are not finite are computed anew among them, which takes registers too.
    pub(crate) fn residuals_ahead(&self, residuals: usize, unrolled_parts: usize) -> usize {
        let (_, consumer) = self.registers();
        let parts = self.atoms * self.width.div_ceil(32);
        let (sums, others, bounds) = match (self.writes_channels(), self.tf32x3) {
            (true, true) => (2 * self.accumulators(), 64, (0, 1)),
            (true, false) if self.element == 2 && parts <= unrolled_parts => {
                (self.accumulators(), 48, (1, parts.min(4)))
            }
            (true, false) => (self.accumulators(), 48, (1, 1)),
            (false, true) => (self.accumulators(), 136, (0, 1)),
            (false, false) => (self.accumulators(), 64, (0, 1)),
        };
        if residuals == 0 {
            return 0;
        }
        let free = consumer.saturating_sub(sums + others);
        (free / (4 * self.element * residuals)).clamp(bounds.0, bounds.1)
    }

    /// Registers of a producer's thread and of a consumer's.
    pub(crate) fn registers(&self) -> (usize, usize) {
        let consumers = self.pingpong * self.cooperative;
        let pool = self.registers_at_launch() * self.warpgroups();
        match self.load {
            Load::Tma
            | Load::Reordered
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

//! Whether a block has room for a tile, and how many stages it has room for.

use super::super::runs::Runs;
use super::super::tiling::{Lines, Load, SHARED, SHARED_RESERVED, Tiling, Transposed};
use super::super::work::Work;

/// Registers that a consumer's main loop needs besides its accumulators where it reads pixels.
const PACKED_FACTORS: usize = 84;
/// The same of whole sectors, whose pixels have a single tap.
const FACTORS_OF_A_TAP: usize = 64;
/// Most stages: more are of no use.
const STAGES: usize = 12;

impl Tiling {
    /// This tiling with as many stages as there is room for, if there are registers and shared memory enough.
    pub(super) fn filled(self, work: &Work) -> Option<Tiling> {
        let steps = work.steps(&self);
        // Registers that a thread needs besides its accumulators: at the entry, and in the epilogue. Those that it needs
        // to gather.
        let (entry, epilogue, gathering) = match self.load {
            Load::Tma => (26, 32 + work.epilogue, 0),
            // A window's place is kept as well.
            Load::Halo => (26, 40 + work.epilogue, 0),
            Load::Planes | Load::Reordered => (40, 40 + work.channel_values, 0),
            // The factors of two intervals, which come by halves.
            Load::Runs if self.runs.is_some_and(|runs| runs.overlap > 0) => {
                (40, FACTORS_OF_A_TAP.max(40 + work.channel_values), 0)
            }
            Load::Packed | Load::Runs => (40, PACKED_FACTORS.max(40 + work.channel_values), 0),
            // Four sets of consumers have few at launch.
            Load::Transposed => (40, 40 + work.channel_values, 0),
            Load::Lines => (if self.pingpong > 3 { 48 } else { 40 }, 40 + work.channel_values, 0),
            Load::Gather => (26, 40 + work.channel_values, if self.producers == 1 { 96 } else { 72 }),
        };
        // What the epilogue does not need any more, the main loop has.
        let epilogue = epilogue.max(self.promotion());
        let (producer, consumer) = self.registers();
        if (self.tf32x3 && self.atoms > 1)
            || self.registers_at_launch() < self.accumulators() + entry
            || consumer < self.accumulators() + epilogue
            || producer < gathering
        {
            return None;
        }
        let columns = work.columns(&self);
        if self.resident && columns > work.units * self.occupancy {
            return None;
        }
        let least = match self.lines {
            Some(lines) if lines.keep => steps + 1,
            Some(_) => 2,
            None if self.load == Load::Halo => 2,
            None => 3 + usize::from(self.resident),
        };
        let limit = SHARED / self.occupancy - SHARED_RESERVED;
        let taps = work.taps.iter().product();
        let filter_steps = work.filter_steps(&self);
        let fits = |tiling: &Tiling| tiling.shared(filter_steps, taps, work.channel_values) <= limit;
        let filled = if let Some(tile) = self.transposed {
            let with = |stages, raw_stages, filter_stages| Tiling {
                stages,
                transposed: Some(Transposed { raw_stages, filter_stages, ..tile }),
                ..self
            };
            let growing = [(2, 1, 2), (2, 2, 2), (2, 2, 3), (2, 2, 4), (3, 2, 4), (3, 3, 4), (3, 3, 6)];
            growing
                .map(|(pixels, raw, filters)| with(pixels, raw, filters))
                .into_iter()
                .take_while(fits)
                .last()?
        } else if let Some(runs) = self.runs {
            let with =
                |stages, filter_stages| Tiling { stages, runs: Some(Runs { filter_stages, ..runs }), ..self };
            // A tap's filters and a step's pixels are asked for about as long before.
            let taps = work.taps[1] * work.taps[2] / runs.taps;
            let growing = (2..=STAGES).map(|stages| with(stages, (stages * taps).clamp(3, 8)));
            let first =
                [with(2, 2), with(2, 3), with(2, 4)].into_iter().filter(|tiling| tiling.filter_stages() < 8);
            let kept = (2..=STAGES).map(|stages| with(stages, filter_steps));
            if self.resident {
                kept.take_while(fits).last()?
            } else {
                first.chain(growing).take_while(fits).last()?
            }
        } else if self.is_streamed() {
            // Filters of each step come anew, so they are further ahead before pixels are.
            let with = |stages, filter_stages| Tiling {
                stages,
                lines: self.lines.map(|lines| Lines { filter_stages, ..lines }),
                ..self
            };
            let fewest = self.filter_stages();
            let growing = (fewest..=fewest + 1).map(|filters| with(least, filters));
            let growing =
                growing.chain((least + 1..=STAGES.max(least)).map(|stages| with(stages, fewest + 1)));
            growing.take_while(fits).last()?
        } else {
            (least..=STAGES.max(least)).rev().map(|stages| Tiling { stages, ..self }).find(fits)?
        };
        // Accumulators that are sent to other blocks lie where operands were.
        (self.split == 1 || filled.passed() <= filled.operands(filter_steps)).then_some(filled)
    }
}
